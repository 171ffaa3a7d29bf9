"""Changes of a recorded model, as the page describes them: the same tokens again, with interventions.

The page sends a list of changes as JSON, each with the arguments of `regard.intervene`. A vector is named by where it
comes from: a place and a position, of the recorded text or of another one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.errors import InputError, choices
from regard.models.intervention import (
    EditableAttention,
    Intervention,
    apply_interventions,
    find_place,
)
from regard.models.model import writes
from regard.viewer.answers import vocabulary_scores
from regard.viewer.capture import Capture, capture
from regard.viewer.prepare import Prepared, prepare_query
from regard.viewer.query import Query

FIELDS = ("place", "heads", "positions", "attention", "weight", "vector")
ORIGIN = ("place", "position", "head", "text")
MOST = 64  # changes of one recording


class Changes:
    """The changes of a model on one text, checked, and as Python code."""

    def __init__(self, model: Any, given: Any) -> None:
        if not isinstance(given, list) or not given or len(given) > MOST:
            raise InputError(f"changes must be a list of 1 to {MOST} changes")
        self.model = model
        self.given = [_check_fields(one, FIELDS, "a change") for one in given]

    def interventions(self, here: Capture, elsewhere: Any) -> list[Intervention]:
        """Return the interventions; vectors are read from `here`, or from what `elsewhere(text)` returns."""
        return [self._intervention(one, here, elsewhere) for one in self.given]

    def _intervention(self, one: Mapping[str, Any], here: Capture, elsewhere: Any) -> Intervention:
        vector = one.get("vector")
        if vector is not None:
            origin = _check_fields(vector, ORIGIN, "a vector")
            vector = self._vector(origin, here if origin.get("text") is None else elsewhere(origin["text"]))
        weight = one.get("weight")
        if weight is not None and not (isinstance(weight, list) and len(weight) == 3):
            raise InputError(f"{one['place']}: a weight must be [query, key, value]")
        chosen = {name: one.get(name) for name in ("heads", "attention", "positions")}
        change = Intervention(one["place"], weight=None if weight is None else tuple(weight), vector=vector, **chosen)
        change.edit(self.model)  # raises an error for what does not exist
        return change

    def _vector(self, origin: Mapping[str, Any], captured: Capture) -> Tensor:
        name, position = origin.get("place"), origin.get("position")
        place = find_place(self.model, str(name))
        if isinstance(place, EditableAttention):
            head = origin.get("head")
            vectors = captured.traces[place.name].mixed[0]
            if not _is_index(head, len(vectors)):
                raise InputError(f"{name}: no head {head!r}; the heads are 0 to {len(vectors) - 1}")
            vectors = vectors[head]
        else:
            sequence, depth = str(name).split(".")
            vectors = captured.hidden[sequence][int(depth)]
        if not _is_index(position, len(vectors)):
            raise InputError(f"{name}: no token at position {position!r}; the last one is {len(vectors) - 1}")
        return vectors[position]

    def code(self) -> str:
        """Return the changes as Python, with `model` for what `regard.load` returns."""
        lines: list[str] = []
        for one in self.given:
            named = {name: one[name] for name in FIELDS[1:] if one.get(name) is not None}
            if "weight" in named:
                named["weight"] = tuple(named["weight"])
            arguments = [f"{name}={value!r}" for name, value in named.items() if name != "vector"]
            if "vector" in named:
                arguments.append(f"vector={_vector_code(named['vector'])}")
            lines.append(f"with regard.intervene({', '.join(['model', repr(one['place']), *arguments])}):")
        indented = [f"{'    ' * depth}{line}" for depth, line in enumerate(lines)]
        return "\n".join([*indented, "    " * len(lines) + "..."])


def _vector_code(origin: Mapping[str, Any]) -> str:
    head = "" if origin.get("head") is None else f"{origin['head']}, "
    text = "tokens" if origin.get("text") is None else "other_tokens"
    return f"regard.read_vectors(model.model, {origin['place']!r}, {text})[0, {head}{origin['position']}]"


def _check_fields(given: Any, known: Sequence[str], what: str) -> Mapping[str, Any]:
    if not isinstance(given, dict) or not isinstance(given.get("place"), str):
        raise InputError(f'{what} must be an object with the name of a "place"')
    for name in given:
        if name not in known:
            raise InputError(f"unknown field {name!r} of {what}; {choices(name, known)}")
    if not isinstance(given.get("text", ""), str | None):
        raise InputError(f"the text of {what} must be a string")
    return given


def _is_index(number: Any, size: int) -> bool:
    return type(number) is int and 0 <= number < size


# --- what a changed model does ---------------------------------------------------------------------------------------


def capture_changed(model: Any, arguments: Mapping[str, Tensor], changes: Sequence[Intervention]) -> Capture:
    """Run the changed model on the same tokens."""
    with apply_interventions(model, changes):
        return capture(model, arguments)


def write_changed(bundle: Any, query: Query, changes: Sequence[Intervention]) -> str | None:
    """Return what the changed model writes by itself; None for a model that does not write, or has no tokenizer.

    What it writes may be shorter than what it was recorded with, so a position that is never reached is not a mistake.
    """
    if not writes(bundle.model):
        return None
    with apply_interventions(bundle.model, changes, strict=False):
        return prepare_query(bundle, replace(query, target=None)).written


def moved_weights(before: Capture, after: Capture) -> dict[str, list[float]]:
    """Return for each attention how far the weights of each head moved: total variation, the mean over queries.

    TV = 1/2 sum_j |a_j - b_j|, between 0 and 1.
    """
    found: dict[str, list[float]] = {}
    for name, trace in before.traces.items():
        pairs = zip(trace.blocks(), after.traces[name].blocks(), strict=True)
        found[name] = [
            round(float(one), 6) for here, there in pairs for one in (here - there).abs().sum(-1).mean(-1) / 2
        ]
    return found


def text_loss(model: Any, prepared: Prepared, captured: Capture) -> float | None:
    """Return -1/T sum_t log p(x_t | x_<t) of the tokens that a model reads; None if it does not predict tokens."""
    if prepared.begin is None or captured.below is None:
        return None
    ids = [token["id"] for token in list(prepared.sequences.values())[-1]][1:]
    if not ids:
        return None
    logits = vocabulary_scores(model, captured.below[: len(ids)])
    return float(F.cross_entropy(logits.float(), torch.tensor(ids, device=logits.device)))
