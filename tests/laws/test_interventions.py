"""Laws of interventions, for every recipe: what changes nothing changes no bit; steps and beams equal the full pass."""

from contextlib import ExitStack
from itertools import product

import pytest
import torch

import regard
from regard.models.intervention import EditableAttention, find_places
from regard.parts.heads import MultiHeads

from .cases import Case, batch, call, cases, decodable, name_of, start

every = pytest.mark.parametrize("case", cases(), ids=name_of)
every_decodable = pytest.mark.parametrize("case", decodable(), ids=name_of)


# Tokens of these models share positions: the agents of a scene at one time. So do the rows of pairs and of alignments,
# which are rows of a batch: a vector or weight that is given for a position is given to all of them.
SHARED = ("Trajectory",)


def close(a: torch.Tensor, b: torch.Tensor) -> None:
    torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


def attentions(model: torch.nn.Module) -> list[str]:
    return [name for name, place in find_places(model).items() if isinstance(place, EditableAttention)]


def arguments(case: Case) -> dict[str, torch.Tensor]:
    """Return one row of inputs without padding."""
    data = batch(case).rows(slice(0, 1))
    if data.images is not None:
        return {"images": data.images}
    if data.tracks is not None:
        return {"tracks": data.tracks, "present": torch.ones_like(data.present)}
    return {"tokens": data.tokens} if data.source is None else {"source": data.source, "target": data.tokens}


@every
@torch.no_grad()
def test_what_changes_nothing_changes_no_bit(case: Case):
    """Vectors and outputs of heads are replaced by themselves, and weights set to what they are."""
    model, inputs = case.build(torch.float32), arguments(case)
    inputs = {name: value.float() if value.is_floating_point() else value for name, value in inputs.items()}
    before, places = output(model, inputs), find_places(model)
    assert places
    with ExitStack() as changes:
        for name in places:
            vectors = regard.read_vectors(model, name, **inputs)
            if len(vectors) == 1 and case.kind not in SHARED:
                changes.enter_context(regard.intervene(model, name, vector=vectors[0]))
        assert torch.equal(output(model, inputs), before)
    names = attentions(model)
    if names:
        with regard.watch(model) as tape:
            model(**inputs)
    with ExitStack() as changes:
        for name in names:
            changes.enter_context(regard.intervene(model, name, heads=[], attention="zero"))
            weights = tape.weights(places[name].name)
            if len(weights) > 1 or min(weights.shape[2:]) < 4 or case.kind in SHARED:
                continue
            for head, query, key in ((0, 3, 1), (weights.shape[1] - 1, 2, 2)):
                same = (query, key, weights[0, head, query, key].item())
                changes.enter_context(regard.intervene(model, name, heads=head, weight=same))
        assert torch.equal(output(model, inputs), before)
    assert torch.equal(output(model, inputs), before)


def output(model: torch.nn.Module, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    """Return everything that a model computes."""
    found = model(**inputs)
    return found if isinstance(found, torch.Tensor) else torch.cat([each.flatten() for each in found])


CHANGES = [
    {"attention": "zero"},
    {"attention": "uniform", "positions": [1, 2, 6]},
    {"attention": "first", "heads": 0},
    {"attention": 4},
    {"weight": (5, 3, 0.7)},
    {"heads": [0], "positions": [2, 5]},
]


def vary(model: torch.nn.Module, name: str, change: dict[str, object]) -> dict[str, object]:
    if change.keys() & {"attention", "weight"}:
        return change
    width = find_places(model)[name].module.heads.value_dim
    return {**change, "vector": torch.randn(width, dtype=torch.float64, generator=torch.Generator().manual_seed(3))}


@every_decodable
@torch.no_grad()
def test_steps_equal_the_full_pass_in_a_changed_model(case: Case):
    """Rows of different lengths are read first; then there are single steps; then two beams of each row."""
    model, data = case.build(), batch(case)
    names = attentions(model)
    data.lengths, prompt, rows = None, torch.tensor([6, 4, 5]), torch.arange(3)
    plain = call(model, data)
    for name, change in product({*names[:1], *names[-1:]}, CHANGES):
        with regard.intervene(model, name, **vary(model, name, change)):
            full, state = call(model, data), start(model, data)
            assert not torch.equal(full, plain)
            logits, state = model.step(data.tokens[:, :6], state, prompt)
            close(logits, full[rows, prompt - 1])
            logits, state = model.step(data.tokens[rows, prompt][:, None], state)
            close(logits, full[rows, prompt])
            state.repeat(2)
            state.reorder(torch.tensor([1, 0, 2, 3, 5, 4]))
            logits, state = model.step(data.tokens[rows, prompt + 1].repeat_interleave(2)[:, None], state)
            close(logits, full[rows, prompt + 1].repeat_interleave(2, 0))


@every_decodable
@torch.no_grad()
def test_patched_vectors_are_the_same_in_steps(case: Case):
    model, data = case.build(), batch(case)
    data.lengths = None
    vectors = [name for name in find_places(model) if name not in attentions(model)]
    for name in {vectors[0], vectors[-1]}:
        with regard.intervene(model, name, vector=torch.linspace(-1, 1, 16), positions=[0, 2, 7]):
            full, state = call(model, data), start(model, data)
            for t in range(4):
                logits, state = model.step(data.tokens[:, t : t + 1], state)
                close(logits, full[:, t])
        assert not torch.allclose(full, call(model, data))


@every
@torch.no_grad()
def test_a_head_that_is_off_is_one_whose_output_has_no_weights(case: Case):
    model, data = case.build(), batch(case)
    for name in attentions(model):
        heads = find_places(model)[name].module.heads
        if not isinstance(heads, MultiHeads):
            continue
        with regard.intervene(model, name, heads=1, attention="zero"):
            off = call(model, data)
        weight = heads.output.weight
        kept, chosen = weight.clone(), slice(heads.head_dim, 2 * heads.head_dim)
        weight[:, chosen] = 0
        close(call(model, data), off)
        with regard.intervene(model, name, heads=1, attention="zero"):
            assert torch.equal(call(model, data), call(model, data))
        weight.copy_(kept)


@every
@torch.no_grad()
def test_watching_shows_what_was_changed(case: Case):
    model, data = case.build(), batch(case)
    for name in attentions(model):
        place = find_places(model)[name]
        with regard.watch(model, place.name) as tape, regard.intervene(model, name, heads=0, attention="zero"):
            call(model, data)
        assert (tape.weights(place.name)[:, 0] == 0).all()
        for record in tape[place.name]:
            assert (record.mixed[:, 0] == 0).all()
        with regard.watch(model, place.name) as tape, regard.intervene(model, name, attention="uniform"):
            call(model, data)
        weights = tape.weights(place.name)
        close(weights, (weights > 0) / (weights > 0).sum(-1, keepdim=True).clamp(min=1).double())
