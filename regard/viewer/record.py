"""record(): run any model on one input, and keep what its attentions saw.

One pass over all tokens, including those that the model generated, leaves vectors that are linear in the length of the
input; the recording computes everything else from them (`live_recording.py`).
"""

import copy

import torch
from torch import nn

from regard.data.tokenizer import Tokenizer
from regard.decode.engine import eager
from regard.errors import InputError
from regard.models.model import Model, unwrapped, writes
from regard.models.template import Template
from regard.use.bundle import Bundle
from regard.use.loaded_model import LoadedModel
from regard.viewer.capture import capture
from regard.viewer.live_recording import LiveRecording
from regard.viewer.prepare import prepare_query
from regard.viewer.query import Query


def record(
    model: LoadedModel | Bundle | nn.Module,
    query: Query,
    *,
    tokenizer: Tokenizer | None = None,
    title: str | None = None,
) -> LiveRecording:
    """Record what a model does with a query.

    A translator translates the text, unless the query has a target; a language model generates greedily. A bare model
    may come with its `tokenizer`. The model's weights must not change while the recording is in use.
    """
    bundle = make_bundle(model, tokenizer)
    prepared = prepare_query(bundle, query)
    observed = in_full_precision(bundle.model)
    dtype = next(observed.parameters()).dtype
    prepared.arguments = {
        name: value.to(dtype) if value.is_floating_point() else value for name, value in prepared.arguments.items()
    }
    return LiveRecording(bundle, observed, prepared, capture(observed, prepared.arguments), title, query)


def make_bundle(model: LoadedModel | Bundle | nn.Module, tokenizer: Tokenizer | None) -> Bundle:
    """Bundle a bare model with its tokenizer; it is named after its kind."""
    if isinstance(model, LoadedModel):
        return model.bundle
    if isinstance(model, Bundle):
        return model
    model = unwrapped(model)
    if not isinstance(model, Model):
        name = type(model).__name__
        raise InputError(f"{name} is not a model of regard; use one from `regard.load` or `regard.build`")
    device = next(model.parameters()).device
    engine = eager(model) if writes(model) else None
    template = Template() if tokenizer is None else model.template(tokenizer)
    return Bundle(model, model.description, tokenizer, template, device=device, engine=engine)


def in_full_precision(model: Model) -> Model:
    """Return the model itself, or a float32 copy of a model in half precision."""
    half = any(parameter.dtype in (torch.bfloat16, torch.float16) for parameter in model.parameters())
    return copy.deepcopy(model).float() if half else model
