"""AlphaFold's parts against the modules of ESMFold in transformers, and against their equations."""

from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn
from transformers.models.esm.modeling_esmfold import (
    EsmFoldPairToSequence,
    EsmFoldRelativePosition,
    EsmFoldResidueMLP,
    EsmFoldSelfAttention,
    EsmFoldSequenceToPair,
    EsmFoldTriangleAttention,
    EsmFoldTriangleMultiplicativeUpdate,
)

import regard
from regard.parts.attention import Attention, AttentionConfig
from regard.parts.feedforward import MLPConfig
from regard.parts.heads import MultiHeadsConfig
from regard.parts.mask import Padding
from regard.parts.pair import (
    ColumnAttention,
    OuterProductMean,
    PairBias,
    PairPositions,
    ProductDifference,
    TriangleAttention,
    TriangleMultiplication,
    real_pairs,
)

B, T, D, C, H = 2, 7, 12, 8, 4
LENGTHS = torch.tensor([7, 5])
POSITIONS = torch.where(torch.arange(T) < LENGTHS[:, None], torch.arange(T), -1)
REAL = POSITIONS >= 0
REAL_PAIRS = REAL[:, :, None] & REAL[:, None, :]


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def shaken(module: nn.Module) -> nn.Module:
    """Set random weights in a module of theirs, also where it starts as zero."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))
    return module.eval()


def copied(ours: nn.Module, pairs: dict[str, Tensor | None]) -> nn.Module:
    """Copy weights into all of our parameters."""
    parameters = dict(ours.named_parameters())
    assert set(parameters) == set(pairs)
    with torch.no_grad():
        for name, value in pairs.items():
            parameters[name].copy_(value)
    return ours.eval()


def linear(ours: str, theirs: nn.Module) -> dict[str, Tensor]:
    return {f"{ours}.{name}": value for name, value in theirs.named_parameters()}


def gated(dim: int) -> Attention:
    return AttentionConfig(MultiHeadsConfig(H, bias="output"), gate=True).build(dim)


def close(ours: Tensor, theirs: Tensor) -> None:
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_gated_attention_with_pair_bias_is_esmfolds():
    theirs = shaken(EsmFoldSelfAttention(D, H, D // H, gated=True))
    query, key, value = theirs.proj.weight.view(H, 3, D // H, D).transpose(0, 1).reshape(3, D, D)
    ours = copied(
        gated(D),
        {"heads.to_query.weight": query, "heads.to_key.weight": key, "heads.to_value.weight": value}
        | linear("heads.output", theirs.o_proj)
        | linear("gate.linear", theirs.g_proj),
    )
    x, bias = noise(B, T, D), noise(B, T, T, H, seed=1)
    wanted, _ = theirs(x, mask=REAL, bias=bias)
    found = ours(x, mask=Padding(), positions=POSITIONS, pair=bias.permute(0, 3, 1, 2))
    close(found[REAL], wanted[REAL])
    close(ours(x, pair=bias.permute(0, 3, 1, 2)), theirs(x, bias=bias)[0])


@torch.no_grad()
def test_the_bias_of_pairs_is_esmfolds_pair_to_sequence():
    theirs = shaken(EsmFoldPairToSequence(C, H))
    ours = copied(PairBias(C, H), linear("norm", theirs.layernorm) | linear("linear", theirs.linear))
    z = noise(B, T, T, C)
    close(ours(z).permute(0, 2, 3, 1), theirs(z))
    assert torch.equal(ours(z, rows=3), ours(z).repeat_interleave(3, 0))


@torch.no_grad()
def test_products_and_differences_are_esmfolds_sequence_to_pair():
    theirs = shaken(EsmFoldSequenceToPair(D, 5, C))
    (left, right), (left_bias, right_bias) = theirs.proj.weight.chunk(2), theirs.proj.bias.chunk(2)
    ours = copied(
        ProductDifference(D, C, 5),
        {"left.weight": left, "left.bias": left_bias, "right.weight": right, "right.bias": right_bias}
        | linear("norm", theirs.layernorm)
        | linear("output", theirs.o_proj),
    )
    x = noise(B * 3, T, D)
    close(ours(x, None, rows=3), theirs(x[::3]))  # of the first row of each alignment


@pytest.mark.parametrize("edges", ["outgoing", "incoming"])
@torch.no_grad()
def test_triangle_multiplication_is_esmfolds(edges):
    theirs = shaken(EsmFoldTriangleMultiplicativeUpdate(SimpleNamespace(pairwise_state_dim=C), edges == "outgoing"))
    names = {"left": "a_p", "left_gate": "a_g", "right": "b_p", "right_gate": "b_g", "gate": "g", "output": "z"}
    weights = linear("norm", theirs.layer_norm_out)
    for our_name, their_name in names.items():
        weights |= linear(our_name, getattr(theirs, f"linear_{their_name}"))
    ours = copied(TriangleMultiplication(C, C, edges), weights)
    z = noise(B, T, T, C)
    close(ours(theirs.layer_norm_in(z)), theirs(z))
    found = ours(theirs.layer_norm_in(z), real_pairs(POSITIONS))
    close(found[REAL_PAIRS], theirs(z, mask=REAL_PAIRS.float())[REAL_PAIRS])


@pytest.mark.parametrize("node", ["starting", "ending"])
@torch.no_grad()
def test_triangle_attention_is_esmfolds(node):
    theirs = shaken(EsmFoldTriangleAttention(C, C // H, H, starting=node == "starting"))
    mha, inside = theirs.mha, "attention"
    weights = linear("bias", theirs.linear) | linear(f"{inside}.heads.output", mha.linear_o)
    weights |= linear(f"{inside}.gate.linear", mha.linear_g)
    for our_name, their_name in {"to_query": "q", "to_key": "k", "to_value": "v"}.items():
        weights |= linear(f"{inside}.heads.{our_name}", getattr(mha, f"linear_{their_name}"))
    ours = copied(TriangleAttention(C, gated(C), node), weights)
    z = noise(B, T, T, C)
    close(ours(theirs.layer_norm(z)), theirs(z))
    found = ours(theirs.layer_norm(z), POSITIONS)
    close(found[REAL_PAIRS], theirs(z, mask=REAL_PAIRS.float())[REAL_PAIRS])
    close(ours(theirs.layer_norm(z[:1])), theirs(z[:1]))  # the bias of a single alignment is broadcast


@torch.no_grad()
def test_the_transition_is_esmfolds_residue_mlp():
    theirs = shaken(EsmFoldResidueMLP(C, 4 * C))
    norm, up, _, down, _ = theirs.mlp
    mlp = MLPConfig(4 * C, "relu").build(C)
    ours = copied(mlp, linear("up", up) | linear("down", down))
    z = noise(B, T, T, C)
    close(z + ours(norm(z)), theirs(z))


@torch.no_grad()
def test_positions_of_pairs_are_esmfolds_except_for_their_sign():
    theirs = shaken(EsmFoldRelativePosition(SimpleNamespace(position_bins=3, pairwise_state_dim=C)))
    ours = copied(PairPositions(C, 3), {"table.weight": theirs.embedding.weight[1:].flip(0)})
    places = torch.arange(T)[None]
    close(ours(places), theirs(places))


# --- by their equations: ESMFold has no alignment --------------------------------------------------------------------


@torch.no_grad()
def test_the_outer_product_is_the_mean_over_the_real_rows():
    part = shaken(OuterProductMean(D, C, 3))
    rows, depths = 4, torch.tensor([4, 2])
    x = noise(B * rows, T, D)
    found = part(x, depths, rows)
    normed = part.norm(x).view(B, rows, T, D)
    for b in range(B):
        for i, j in ((0, 0), (2, 5), (6, 1)):
            real = normed[b, : depths[b]]
            outer = torch.stack([torch.outer(part.left(row[i]), part.right(row[j])) for row in real]).mean(0)
            close(found[b, i, j], part.output(outer.flatten()))
    close(part(x[:rows], None, rows), part(x[:rows], depths[:1], rows))


@torch.no_grad()
def test_column_attention_sees_the_real_rows_of_its_column_only():
    part = ColumnAttention(shaken(gated(D)))
    rows, depths = 4, torch.tensor([4, 2])
    x = noise(B * rows, T, D)
    found = part(x, depths, rows).view(B, rows, T, D)
    for b in range(B):
        for t in range(T):
            column = x.view(B, rows, T, D)[b, : depths[b], t]
            close(found[b, : depths[b], t], part.attention(column[None])[0])


def test_a_pair_bias_is_seen_by_watch_and_gets_a_gradient():
    attention = shaken(gated(D)).train()
    x, pair = noise(1, T, D), noise(1, H, T, T, seed=1).requires_grad_()
    with regard.watch(attention) as tape:
        attention(x, pair=pair).sum().backward()
    (record,) = tape[""]
    scores = record.query @ record.key.transpose(-1, -2) / (D // H) ** 0.5
    close(tape.weights(""), (scores + pair).softmax(-1))
    close(record.explain(2).weights[:, 0], (scores + pair).softmax(-1)[:, 2])
    assert pair.grad is not None
    assert pair.grad.abs().max() > 0
