"""The Evoformer: single sequences and alignments, what reaches what, and its heads."""

import pytest
import torch

import regard
from regard.models.evoformer import Evoformer
from regard.models.recipe import build

from ..laws.cases import SHRINK, VOCABULARY


def made(*changes: str, recipe: str = "evoformer") -> Evoformer:
    model = build(recipe, *SHRINK[recipe], *changes, dtype=torch.float64, seed=0)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    return model.eval()


def tokens(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(VOCABULARY, shape, generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
def test_a_sequence_alone_is_an_alignment_of_one_row():
    model, x = made(), tokens(2, 7)
    profile = torch.nn.functional.one_hot(x, VOCABULARY).double()
    none = torch.zeros(2, 0, 7, dtype=torch.long)
    torch.testing.assert_close(model(x), model(x, alignment=none, profile=profile))


@torch.no_grad()
def test_the_order_of_the_other_rows_does_not_matter():
    model, x, rows = made(), tokens(2, 7), tokens(2, 5, 7, seed=1)
    index = torch.tensor([3, 0, 4, 1, 2])
    torch.testing.assert_close(model(x, alignment=rows), model(x, alignment=rows[:, index]))


@torch.no_grad()
def test_the_other_rows_and_the_profile_reach_the_states():
    model, x, rows = made(), tokens(1, 7), tokens(1, 3, 7, seed=1)
    alone, aligned = model(x), model(x, alignment=rows)
    assert not torch.allclose(alone, aligned)
    profile = torch.full((1, 7, VOCABULARY), 1 / VOCABULARY, dtype=torch.float64)
    assert not torch.allclose(aligned, model(x, alignment=rows, profile=profile))


@torch.no_grad()
def test_shares_of_a_profile_are_read_as_logarithms():
    model, x, seen = made(), tokens(1, 3), []
    assert model.profile is not None
    model.profile.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    profile = torch.zeros(1, 3, VOCABULARY, dtype=torch.float64)
    profile[0, :, 1] = torch.tensor([0.02, 0.5, 1.0])
    model(x, alignment=tokens(1, 2, 3), profile=profile)
    logs = torch.tensor([2.0, 26.0, 51.0], dtype=torch.float64).log()
    torch.testing.assert_close(seen[0][0, :, 1], logs)
    assert not seen[0][..., 2:].any()
    model.profile_as = "shares"  # which is what a config means that does not name it
    model(x, alignment=tokens(1, 2, 3), profile=profile)
    torch.testing.assert_close(seen[1], profile)


@torch.no_grad()
def test_a_window_reads_neighbouring_columns_before_the_first_block():
    model, x, seen = made("model.window={kernel=3}", recipe="annotator"), tokens(1, 7), {}
    assert model.window is not None
    model.window.register_forward_hook(lambda _, inputs, output: seen.update(read=inputs[0], made=output))
    model.layers[0].register_forward_pre_hook(lambda _, inputs: seen.update(rows=inputs[0]))
    model(x, lengths=torch.tensor([6]))
    read, conv = torch.nn.functional.pad(seen["read"][0, :6], (0, 0, 1, 1)), model.window.conv
    expected = torch.stack([torch.einsum("oik,ki->o", conv.weight, read[t : t + 3]) + conv.bias for t in range(6)])
    torch.testing.assert_close(seen["made"][0, :6], expected)
    torch.testing.assert_close(seen["rows"][0, :6], expected.clamp(min=0))


@torch.no_grad()
def test_distances_are_symmetric():
    model = made("model.head.kind=distances", "model.head.classes=6")
    found = model(tokens(2, 7))
    assert found.shape == (2, 7, 7, 6)
    torch.testing.assert_close(found, found.transpose(1, 2))


@torch.no_grad()
def test_without_positions_of_pairs_the_order_of_residues_does_not_matter():
    model, x, index = made("model.alignment=none"), tokens(1, 9), torch.tensor([3, 0, 8, 5, 1, 7, 2, 6, 4])
    assert not torch.allclose(model(x)[:, index], model(x[:, index]))
    model.positions.table.weight.zero_()
    torch.testing.assert_close(model(x)[:, index], model(x[:, index]))


def test_a_model_of_single_sequences_refuses_alignments():
    with pytest.raises(regard.RegardError, match="reads single sequences; leave the alignment out"):
        made("model.alignment=none")(tokens(1, 7), alignment=tokens(1, 3, 7))


EXPERTS = ("kind=moe", "experts=4", "chosen=2", "hidden=8")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ([f"model.feedforward.{key}" for key in EXPERTS], r"^model\.feedforward: a mixture of experts balances"),
        ([f"model.pair_feedforward.{key}" for key in EXPERTS], r"^model\.pair_feedforward: a mixture of experts"),
        (["model.pair_feedforward.kind=channel-mix"], r"^model\.pair_feedforward: channel-mix reads the token before"),
    ],
)
def test_transitions_that_need_a_row_of_tokens_are_refused(changes: list[str], message: str):
    with pytest.raises(regard.ConfigError, match=message):
        made(*changes)


def test_it_describes_itself():
    model = made()
    assert model.task == "residues"
    assert model.verbs == ("annotate", "embed")
    assert [role.id for role in model.attentions()] == ["self.1", "self.2"]
    assert model.sequences()["tokens"].layers == 2
    assert model.clean_text("acD b") == "ACDX"
    assert not model.packs_documents
    other = made("model.head.kind=distances", "model.head.classes=6")
    assert other.task == "distances"
    assert "distances" in other.description


@torch.no_grad()
@pytest.mark.parametrize("length", [20, 89, 96])
def test_a_single_chain_in_bfloat16_does_not_depend_on_what_memory_held(length: int):
    """Validations in bfloat16 on an H200 were once not finite, though the weights were: freed memory is NaN here."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    changes = ("model.alignment=none", "model.head.kind=distances", "model.head.classes=34")
    model = made(*changes, recipe="annotator").float().to(device)
    x, lengths = tokens(1, length).to(device), torch.tensor([length], device=device)
    exact = model(x, lengths=lengths)
    for size in (2**power for power in range(9, 21)):
        torch.full((size,), 255, dtype=torch.uint8, device=device)
    with torch.autocast(device, torch.bfloat16):
        found = model(x, lengths=lengths)
    assert float((found - exact).abs().mean() / exact.std()) < 0.05
