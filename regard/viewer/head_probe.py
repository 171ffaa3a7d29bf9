"""Scores of heads, for sorting: known behaviours on a probe text, and importance on the text at hand.

The probe is a row of random tokens that is read twice (Olsson et al. 2022, In-context Learning and Induction Heads). In
the second half, every token has occurred before: a matching head looks at its earlier occurrence, an induction head at
the token after that. Importance is the rise of the loss when the head is switched off (Michel et al. 2019).
"""

from collections.abc import Callable, Mapping
from contextlib import ExitStack

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.decode.engine import in_use
from regard.models.intervention import EditableAttention, find_places
from regard.models.model import Model
from regard.parts.attention import Attention
from regard.parts.edit import SwitchOffByRow, edited
from regard.parts.watch import uncompiled
from regard.use.bundle import Bundle
from regard.viewer.capture import Capture, capture
from regard.viewer.prepare import Prepared
from regard.viewer.tokens import describe_tokens

PROBE = 24  # different tokens of the probe
DRAWN = 400  # tokens among which they are found
AT_ONCE = 1 << 25  # numbers of the output that are computed together
ARGUMENTS = {"tokens", "source", "target", "images"}  # of models whose rows are independent of each other

HeadScores = dict[str, list[float]]  # by the id of an attention, a number for each head


def behaviours(bundle: Bundle, model: Model) -> dict[str, HeadScores]:
    """Return how much each head looks at the previous, the first, the matching and the induction token of a probe."""
    rows = probe_rows(bundle, model)
    if not rows:
        return {}
    arguments = {name: torch.tensor([row], device=bundle.device) for name, (row, _) in rows.items()}
    captured = capture(model, arguments)
    found: dict[str, HeadScores] = {name: {} for name in ("previous", "first", "matching", "induction")}
    for role in model.attentions():
        if role.queries != role.keys or role.queries not in rows:
            continue
        row, count = rows[role.queries]
        begin = len(row) - count  # of the second half
        weights = torch.cat(list(captured.traces[role.name].blocks()))
        again = weights[:, begin:]
        index = torch.arange(count, device=weights.device)
        looks: dict[str, Tensor] = {
            "previous": again[:, index, begin + index - 1],
            "first": again[:, :, 0],
            "matching": again[:, index, begin + index - count],
            "induction": again[:, index, begin + index - count + 1],
        }
        for name, values in looks.items():
            found[name][role.id] = [round(number, 6) for number in values.mean(-1).tolist()]
    return found


def probe_rows(bundle: Bundle, model: Model) -> dict[str, tuple[list[int], int]]:
    """Return for each sequence the tokens of the probe, and how many its second half has; empty without tokens."""
    sequences = model.sequences()
    if set(sequences) not in ({"tokens"}, {"source", "target"}):
        return {}
    limit = bundle.context or model.longest() or 2 * PROBE + 8
    found = {}
    for name, sequence in sequences.items():
        if sequence.vocabulary is None:
            return {}
        drawn = np.random.default_rng(0).permutation(sequence.vocabulary)[:DRAWN].tolist()
        usual = [
            id
            for id, token in zip(drawn, describe_tokens(bundle.tokenizer, drawn), strict=True)
            if not token["special"]
        ]
        before = [usual[0]] if name == "target" and bundle.tokenizer is None else list(bundle.template.before)
        before = [bundle.first] if name == "target" and bundle.tokenizer is not None else before
        half = usual[: min(PROBE, (limit - len(before)) // 2)]
        if len(half) < 2:
            return {}
        found[name] = ([*before, *half, *half], len(half))
    return found


def importance(model: Model, prepared: Prepared, captured: Capture) -> HeadScores:
    """Return for each head by how much the loss of the recorded input rises when it is switched off.

    The loss is that of the text, or -log p of the label or word that the whole model prefers. The heads are rows of one
    batch, each with another head off, next to a row of the whole model.
    """
    loss = _loss(model, prepared, captured)
    places = find_places(model)
    modules = {role.id: places[role.id] for role in model.attentions() if role.id in places}
    attentions = {id: place.module for id, place in modules.items() if isinstance(place, EditableAttention)}
    if loss is None or not attentions or not set(prepared.arguments) <= ARGUMENTS:
        return {}
    heads = [(id, head) for id, module in attentions.items() for head in range(module.heads.heads)]
    size = max(AT_ONCE // max(_output_size(model, prepared), 1), 2)
    losses: list[float] = []
    for begin in range(0, len(heads), size):
        losses += _losses_without(model, prepared.arguments, heads[begin : begin + size], attentions, loss)
    found: HeadScores = {id: [] for id in attentions}
    for (id, _), rise in zip(heads, losses, strict=True):
        found[id].append(round(rise, 6))
    return found


def _losses_without(
    model: Model,
    arguments: Mapping[str, Tensor],
    heads: list[tuple[str, int]],
    attentions: Mapping[str, Attention],
    loss: Callable[[Tensor], Tensor],
) -> list[float]:
    """Return the rise of the loss without each of these heads, in one pass."""
    rows = 1 + len(heads)
    edits = []
    for id, module in attentions.items():
        off = torch.zeros(rows, module.heads.heads, dtype=torch.bool, device=next(model.parameters()).device)
        for row, (name, head) in enumerate(heads, 1):
            off[row, head] = name == id
        edits.append((module, SwitchOffByRow(off=off)))
    with ExitStack() as stack:
        for each in (in_use(model), uncompiled, edited(edits)):
            stack.enter_context(each)
        output = model(**{name: value.expand(rows, *value.shape[1:]) for name, value in arguments.items()})
        losses = loss(output)
        return (losses[1:] - losses[0]).tolist()


def _loss(model: Model, prepared: Prepared, captured: Capture) -> Callable[[Tensor], Tensor] | None:
    """Return the function from the output of a batch to the loss of each of its rows; None: there is no loss."""
    if prepared.begin is not None:
        ids = [token["id"] for token in list(prepared.sequences.values())[-1]][1:]
        return (lambda output: _cross_entropy(output[:, : len(ids)], torch.tensor(ids))) if ids else None
    if model.classes is not None and isinstance(captured.output, Tensor):
        label = captured.output.argmax(-1)
        return lambda output: _cross_entropy(output[:, None], label.reshape(1))
    if prepared.masks:
        return lambda output: _cross_entropy(output[:, prepared.masks], output[0, prepared.masks].argmax(-1))
    return None


def _cross_entropy(logits: Tensor, wanted: Tensor) -> Tensor:
    """Return the mean of -log p[wanted] of each row; all rows want the same."""
    wanted = wanted.to(logits.device).expand(len(logits), -1)
    return F.cross_entropy(logits.float().transpose(1, 2), wanted, reduction="none").mean(-1)


def _output_size(model: Model, prepared: Prepared) -> int:
    tokens = max(map(len, prepared.sequences.values()))
    vocabulary = list(model.sequences().values())[-1].vocabulary or 1
    return tokens * vocabulary
