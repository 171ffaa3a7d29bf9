"""AlphaFold's parts: a vector for every pair of residues, and what it exchanges with the vectors of residues.

Jumper et al. 2021, "Highly accurate protein structure prediction with AlphaFold", supplement, Algorithms 4 and 7 to 15.
`PairBias` turns pairs into a bias of attention along a row (7), `ColumnAttention` attends along the columns of an
alignment (8), `OuterProductMean` turns an alignment into pairs (10), `TriangleMultiplication` (11, 12) and
`TriangleAttention` (13, 14) let pairs interact. The transitions (9, 15) are the MLP of `feedforward.py`, and the gates
are those of `attention.py`. `ProductDifference` replaces the outer product in ESMFold (Lin et al. 2023).

An alignment of R rows is given as rows of a batch, (B R) T D, the sequence itself first, so that attention along its
rows is the attention of any other model. The norm of what a part is added to belongs to the residual.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from einops import rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.config import Config, Count, Kinds
from regard.errors import at
from regard.parts.attention import Attention, AttentionConfig
from regard.parts.linear import Linear
from regard.parts.mask import Padding, padded_positions
from regard.parts.norm import LayerNorm

Pairs = Float[Tensor, "B T T C"]
Alignment = Float[Tensor, "_rows T D"]  # (B R) T D


class PairPositions(nn.Module):
    """z_ij = W[clip(i - j, -reach, reach)]: how far apart two residues are (Algorithm 4)."""

    def __init__(self, pair_dim: int, reach: int) -> None:
        super().__init__()
        self.reach = reach
        self.table = nn.Embedding(2 * reach + 1, pair_dim)

    def forward(self, positions: Int[Tensor, "_b T"]) -> Float[Tensor, "_b T T C"]:
        """Return a vector for every pair of positions."""
        apart = positions[:, :, None] - positions[:, None, :]
        return self.table(apart.clamp(-self.reach, self.reach) + self.reach)


class PairBias(nn.Module):
    """b_ij^h = W norm(z_ij): what pairs add to the scores of the attention along a row (Algorithm 7, line 3)."""

    def __init__(self, pair_dim: int, heads: int) -> None:
        super().__init__()
        self.norm = LayerNorm(pair_dim)
        self.linear = Linear(pair_dim, heads, bias=False)

    def forward(self, pairs: Pairs, rows: int = 1) -> Float[Tensor, "_b H T T"]:
        """Return the bias, the same for all `rows` of an alignment."""
        bias = self.linear(self.norm(pairs)).permute(0, 3, 1, 2)
        return _repeat(bias, rows)


class ColumnAttention(nn.Module):
    """Attention of a residue to those of the other rows in the same column (Algorithm 8)."""

    def __init__(self, attention: Attention) -> None:
        super().__init__()
        self.attention = attention

    def forward(self, x: Alignment, depths: Int[Tensor, "B"] | None, rows: int) -> Alignment:
        """Attend along the `rows` rows, of which the first `depths` are real; None: all are."""
        tokens = x.shape[1]
        columns = rearrange(x, "(B R) T D -> (B T) R D", R=rows)
        places = padded_positions(None if depths is None else depths.repeat_interleave(tokens, 0), rows)
        mixed = self.attention(columns, mask=None if places is None else Padding(), positions=places)
        return rearrange(mixed, "(B T) R D -> (B R) T D", T=tokens)

    def flops(self, tokens: int, keys: int) -> int:
        """Correct the count of the attention, which is over all keys: a residue sees those of the other rows only."""
        every, own = self.attention.flops(tokens, keys), self.attention.flops(tokens, tokens // keys)
        return 0 if every is None or own is None else own - every


# --- from rows to pairs ----------------------------------------------------------------------------------------------


class OuterProductMean(nn.Module):
    """z_ij = W vec(mean_r a_ri b_rj^T) + b, with a = W_a norm(m) + b_a and b = W_b norm(m) + b_b (Algorithm 10)."""

    def __init__(self, dim: int, pair_dim: int, hidden: int) -> None:
        super().__init__()
        self.norm = LayerNorm(dim)
        self.left = Linear(dim, hidden)
        self.right = Linear(dim, hidden)
        self.output = Linear(hidden * hidden, pair_dim)

    @property
    def residual_outputs(self) -> list[Tensor]:
        """The matrix whose product is added to the residual stream (see `models/init.py`)."""
        return [self.output.weight]

    def forward(self, x: Alignment, depths: Int[Tensor, "B"] | None, rows: int) -> Pairs:
        """Return the mean over the real rows of each alignment."""
        x = self.norm(x)
        left, right = (rearrange(part(x), "(B R) T F -> B R T F", R=rows) for part in (self.left, self.right))
        if depths is not None:
            places = padded_positions(depths, rows)
            assert places is not None
            left = left * (places >= 0)[..., None, None] * (rows / depths.to(left.dtype))[:, None, None, None]
        outer = torch.einsum("brif,brjg->bijfg", left, right) / rows
        return self.output(outer.flatten(3))

    def flops(self, tokens: int, keys: int) -> int:
        """Count the projection, which there is for every pair, and the sum over rows, if there are several."""
        rows, products = tokens // keys, self.left.out_features * self.right.out_features
        return 2 * keys * keys * (self.output.weight.numel() + (rows * products if rows > 1 else 0))

    def tokens_through(self, child: nn.Module, tokens: int, keys: int) -> int:
        """Return how many vectors pass through a child: the projection is counted with the pairs."""
        return 0 if child is self.output else tokens


class ProductDifference(nn.Module):
    """z_ij = W [q_j * k_i ; q_j - k_i] + b, with q, k = W norm(m) + b of the first row (ESMFold, Lin et al. 2023)."""

    def __init__(self, dim: int, pair_dim: int, hidden: int) -> None:
        super().__init__()
        self.norm = LayerNorm(dim)
        self.left = Linear(dim, hidden)
        self.right = Linear(dim, hidden)
        self.output = Linear(2 * hidden, pair_dim)

    @property
    def residual_outputs(self) -> list[Tensor]:
        """The matrix whose product is added to the residual stream (see `models/init.py`)."""
        return [self.output.weight]

    def forward(self, x: Alignment, depths: Int[Tensor, "B"] | None, rows: int) -> Pairs:
        """Return the products and differences of the first row of each alignment."""
        x = self.norm(x[::rows])
        left, right = self.left(x)[:, None], self.right(x)[:, :, None]
        return self.output(torch.cat((left * right, left - right), -1))

    def flops(self, tokens: int, keys: int) -> int:
        """Count the projection, which there is for every pair."""
        return 2 * keys * keys * self.output.weight.numel()

    def tokens_through(self, child: nn.Module, tokens: int, keys: int) -> int:
        """Return how many vectors pass through a child: those of the first row, none for the projection."""
        return 0 if child is self.output else keys


# --- from pairs to pairs ---------------------------------------------------------------------------------------------


class TriangleMultiplication(nn.Module):
    """Update the edge ij by the other two edges of all triangles ijk (Algorithms 11 and 12).

    a = sigmoid(W z) * W z and b likewise; x_ij = sum_k a_ik * b_jk (outgoing edges) or sum_k a_ki * b_kj (incoming);
    the update is sigmoid(W z_ij) * W norm(x_ij), each W with its bias.
    """

    def __init__(self, pair_dim: int, hidden: int, edges: Literal["outgoing", "incoming"]) -> None:
        super().__init__()
        self.hidden, self.edges = hidden, edges
        self.left, self.left_gate = Linear(pair_dim, hidden), Linear(pair_dim, hidden)
        self.right, self.right_gate = Linear(pair_dim, hidden), Linear(pair_dim, hidden)
        self.norm = LayerNorm(hidden)
        self.output = Linear(hidden, pair_dim)
        self.gate = Linear(pair_dim, pair_dim)

    @property
    def residual_outputs(self) -> list[Tensor]:
        """The matrix whose product is added to the residual stream (see `models/init.py`)."""
        return [self.output.weight]

    def forward(self, pairs: Pairs, real: Bool[Tensor, "B T T"] | None = None) -> Pairs:
        """Return the update; pairs that are not `real` do not count."""
        left = torch.sigmoid(self.left_gate(pairs)) * self.left(pairs)
        right = torch.sigmoid(self.right_gate(pairs)) * self.right(pairs)
        if real is not None:
            left, right = left * real[..., None], right * real[..., None]
        sums = "bikc,bjkc->bijc" if self.edges == "outgoing" else "bkic,bkjc->bijc"
        return torch.sigmoid(self.gate(pairs)) * self.output(self.norm(torch.einsum(sums, left, right)))

    def flops(self, tokens: int, keys: int) -> int:
        """Count the sums over the third corner; `tokens` counts pairs."""
        return 2 * tokens * keys * self.hidden


class TriangleAttention(nn.Module):
    """Attend from the edge ij to all edges that share its starting node i, or its ending node j (Algorithms 13, 14).

    The score of the edges ij and ik gets a bias from the third edge of the triangle: b_jk^h = W z_jk.
    """

    def __init__(self, pair_dim: int, attention: Attention, node: Literal["starting", "ending"]) -> None:
        super().__init__()
        self.node = node
        self.attention = attention
        self.bias = Linear(pair_dim, attention.heads.heads, bias=False)

    def forward(self, pairs: Pairs, positions: Int[Tensor, "B T"] | None = None) -> Pairs:
        """Return the update; residues at position -1 do not count."""
        if self.node == "ending":
            pairs = pairs.transpose(1, 2)
        batch, tokens = pairs.shape[:2]
        bias = _repeat(self.bias(pairs).permute(0, 3, 1, 2), tokens)
        places = None if positions is None else positions.repeat_interleave(tokens, 0)
        mask = None if positions is None else Padding()
        mixed = self.attention(pairs.flatten(0, 1), mask=mask, positions=places, pair=bias)
        mixed = mixed.unflatten(0, (batch, tokens))
        return mixed.transpose(1, 2) if self.node == "ending" else mixed


def _repeat(bias: Float[Tensor, "B H T S"], rows: int) -> Float[Tensor, "_b H T S"]:
    """Repeat the bias of each alignment for its rows; that of a single one is broadcast."""
    return bias if len(bias) == 1 else bias.repeat_interleave(rows, 0)


def real_pairs(positions: Int[Tensor, "B T"] | None) -> Bool[Tensor, "B T T"] | None:
    """Return which pairs are of two real residues; None: all."""
    return None if positions is None else (positions >= 0)[:, :, None] & (positions >= 0)[:, None, :]


# --- as data ---------------------------------------------------------------------------------------------------------


class OuterConfig(Config):
    """Base of the configs of what makes pairs from rows."""

    def build(self, dim: int, pair_dim: int) -> OuterProductMean | ProductDifference:
        """Build the part for rows of width `dim` and pairs of width `pair_dim`."""
        raise NotImplementedError


@dataclass(frozen=True)
class OuterProductMeanConfig(OuterConfig):
    """The mean over the rows of an alignment of the outer products of two residues (Jumper et al. 2021)."""

    hidden: Count = 16
    """Width of the two vectors."""

    def build(self, dim: int, pair_dim: int) -> OuterProductMean:
        """Build the part for rows of width `dim` and pairs of width `pair_dim`."""
        return OuterProductMean(dim, pair_dim, self.hidden)


@dataclass(frozen=True)
class ProductDifferenceConfig(OuterConfig):
    """Products and differences of two residues of the first row (ESMFold, Lin et al. 2023)."""

    hidden: Count = 16
    """Width of the two vectors."""

    def build(self, dim: int, pair_dim: int) -> ProductDifference:
        """Build the part for rows of width `dim` and pairs of width `pair_dim`."""
        return ProductDifference(dim, pair_dim, self.hidden)


OUTERS = Kinds("outer", OuterConfig, {"mean": OuterProductMeanConfig, "product-difference": ProductDifferenceConfig})


@dataclass(frozen=True)
class TriangleConfig(Config):
    """How pairs interact in triangles: by multiplication, by attention, or both."""

    hidden: Count | None = None
    """Width of the two factors of the multiplicative updates; absent: there are none."""
    attention: AttentionConfig | None = None
    """The attention around the starting and the ending node; absent: there is none."""

    def build(self, pair_dim: int) -> dict[str, TriangleMultiplication | TriangleAttention]:
        """Build the updates of pairs of width `pair_dim`, by their names and in their order."""
        found: dict[str, TriangleMultiplication | TriangleAttention] = {}
        if self.hidden is not None:
            found["outgoing"] = TriangleMultiplication(pair_dim, self.hidden, "outgoing")
            found["incoming"] = TriangleMultiplication(pair_dim, self.hidden, "incoming")
        if self.attention is not None:
            with at("attention"):
                found["starting"] = TriangleAttention(pair_dim, self.attention.build(pair_dim), "starting")
                found["ending"] = TriangleAttention(pair_dim, self.attention.build(pair_dim), "ending")
        return found
