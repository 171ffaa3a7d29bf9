"""record(): what any model does with one input, to be looked into.

One pass over all tokens, those that the model wrote among them, leaves vectors that are linear in the length of the
input; all else is worked out of them by the recording (`live.py`).
"""

import copy

import torch
from torch import nn

from regard.data.tokenizer import Tokenizer
from regard.decode.engine import eager
from regard.errors import InputError
from regard.models.model import Model, StepModel
from regard.models.vision import VisionTransformer
from regard.use.ready import Frame, Ready, abilities, usual_frame
from regard.viewer.capture import capture
from regard.viewer.live_recording import LiveRecording
from regard.viewer.patched_image import Image
from regard.viewer.prepare import LONGEST, Text, Wishes, prepare


def record(
    ready: Ready | nn.Module,
    text: Text = "",
    *,
    target: Text | None = None,
    tokens: int = 12,
    beam: int | None = None,
    image: Image | None = None,
    tokenizer: Tokenizer | None = None,
    title: str | None = None,
    longest: int = LONGEST,
) -> LiveRecording:
    """Record what a model does with a text, or with the ids of tokens as they are, or with an image.

    A translator translates it, with `beam` beams, unless the `target` is given; a language model writes on for up to
    `tokens` tokens, always the likeliest. A bare model may come with its `tokenizer`. At most `longest` tokens are
    looked at. The model's weights must stay as they are while the recording is in use.
    """
    ready = make_bundle(ready, tokenizer)
    prepared = prepare(ready, text, Wishes(target, tokens, beam, image, longest))
    model = in_full_precision(ready.model)
    dtype = next(model.parameters()).dtype
    arguments = {
        name: value.to(dtype) if value.is_floating_point() else value for name, value in prepared.arguments.items()
    }
    return LiveRecording(ready, model, prepared, capture(model, arguments), title)


def make_bundle(model: Ready | nn.Module, tokenizer: Tokenizer | None) -> Ready:
    """Make a bare model ready; it is called what it is."""
    if isinstance(model, Ready):
        return model
    model = getattr(model, "_orig_mod", model)  # as it was before torch.compile
    if not isinstance(model, Model):
        raise InputError(f"{type(model).__name__} is no model of regard; give one of `regard.load` or `regard.build`")
    device = next(model.parameters()).device
    engine = eager(model) if isinstance(model, StepModel) else None
    frame = Frame() if isinstance(model, VisionTransformer) else usual_frame(model, tokenizer)
    return Ready(model, abilities(model)[0], tokenizer, frame, device=device, engine=engine)


def in_full_precision(model: Model) -> Model:
    """Give a model as it is, or if it computes in half precision a copy that does not."""
    half = any(parameter.dtype in (torch.bfloat16, torch.float16) for parameter in model.parameters())
    return copy.deepcopy(model).float() if half else model
