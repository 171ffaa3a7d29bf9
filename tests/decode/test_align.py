"""Alignments against the attention weights recorded step by step, row by row."""

import pytest
import torch
from torch import Tensor

from regard.decode.align import aligning_attention, cross_weights
from regard.errors import InputError
from regard.parts.watch import watch

from ..laws.cases import SHRINK, VARIANTS, VOCABULARY, Case

START = 1
SOURCE = torch.randint(3, VOCABULARY, (4, 7), generator=torch.Generator().manual_seed(0))
LENGTHS = torch.tensor([7, 3, 1, 6])
IDS = [[5, 6, 2], [4], [], [9, 9, 8, 7, 6, 5, 4, 2]]
ATTENTION = {
    "rnn-attention": "attention",
    "rnn-attention-input-feeding": "attention",
    "rnn-attention-luong": "attention",
    "transformer-base": "decoder.layers.0.cross",
}


def build(name: str, *overrides: str) -> torch.nn.Module:
    recipe, changes = VARIANTS.get(name, (name, SHRINK.get(name, [])))
    return Case(name, recipe, (*changes, *overrides)).build()


@torch.no_grad()
def step_by_step(model: torch.nn.Module, name: str, source: Tensor, ids: list[int]) -> Tensor:
    """Write the ids one after the other, and record the weights of each step."""
    found = torch.zeros(0, len(source), dtype=torch.float64)
    state = model.start(source[None])
    for token in [START, *ids[:-1]][: len(ids)]:
        with watch(model) as tape:
            model.step(torch.tensor([[token]]), state)
        found = torch.cat((found, tape.weights(name)[0].mean(0)))
    return found


@pytest.mark.parametrize("name", ATTENTION)
def test_the_weights_are_those_of_the_steps_in_which_the_ids_were_written(name):
    model = build(name)
    found = cross_weights(model, SOURCE, LENGTHS, START, IDS)
    for row, (ids, length) in enumerate(zip(IDS, LENGTHS.tolist(), strict=True)):
        assert found[row].shape == (len(ids), length)
        wanted = step_by_step(model, ATTENTION[name], SOURCE[row, :length], ids)
        torch.testing.assert_close(found[row], wanted, rtol=0, atol=1e-9)
        torch.testing.assert_close(found[row].sum(1), torch.ones(len(ids), dtype=torch.float64))
    assert found[0].std() > 0.01


def test_sources_as_long_as_their_tensor_need_no_lengths():
    model = build("transformer-base")
    found = cross_weights(model, SOURCE, None, START, IDS)
    again = cross_weights(model, SOURCE, torch.full((4,), 7), START, IDS)
    for one, other in zip(found, again, strict=True):
        torch.testing.assert_close(one, other)


def test_only_empty_texts():
    found = cross_weights(build("transformer-base"), SOURCE, LENGTHS, START, [[]] * 4)
    assert [tuple(weights.shape) for weights in found] == [(0, 7), (0, 3), (0, 1), (0, 6)]


@pytest.mark.parametrize(("depth", "layer"), [(1, 0), (2, 0), (3, 1), (6, 4)])
def test_the_second_to_last_layer_aligns(depth, layer):
    model = build("transformer-base", f"model.decoder.depth={depth}")
    assert aligning_attention(model) == f"decoder.layers.{layer}.cross"


def test_layers_without_cross_attention_do_not_count():
    plain = [
        change.replace(".block.", ".plain.") for change in SHRINK["transformer-base"] if "decoder.layers" in change
    ]
    changes = [change for change in plain if "cross" not in change]
    model = build(
        "transformer-base",
        *changes,
        "model.decoder.depth=4",
        "model.decoder.layers.plain.mixer.kind=attention",
        "model.decoder.layers.plain.mixer.heads.kind=multi",
        "model.decoder.layers.plain.feedforward.kind=mlp",
        'model.decoder.pattern=["block", "plain"]',
    )
    assert aligning_attention(model) == "decoder.layers.0.cross"


def test_dropout_is_off_and_the_training_mode_is_restored():
    model = build("transformer-base", "model.embed.dropout=0.9")
    wanted = cross_weights(model, SOURCE, LENGTHS, START, IDS)
    model.train()
    for one, other in zip(cross_weights(model, SOURCE, LENGTHS, START, IDS), wanted, strict=True):
        assert one.equal(other)
    assert model.training


def test_without_attention_nothing_is_aligned():
    message = "^this model has no attention to its source, so it cannot align; use one that has$"
    with pytest.raises(InputError, match=message):
        cross_weights(build("rnn-seq2seq"), SOURCE, LENGTHS, START, IDS)
