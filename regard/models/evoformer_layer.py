"""One block of the Evoformer: pairs of residues are updated from the rows of an alignment, and rows from the pairs.

Jumper et al. 2021, supplement, Algorithm 6. In a block, pairs are updated first and rows afterwards, as in
AlphaFold-Multimer (Evans et al. 2021), where the outer product mean was moved to the beginning of the block: so
everything that a block computes reaches the rows above it.
"""

from typing import NamedTuple

from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.parts.attention import Attention
from regard.parts.conv import Convolution
from regard.parts.mask import Padding, Rule
from regard.parts.pair import (
    ColumnAttention,
    OuterProductMean,
    PairBias,
    ProductDifference,
    TriangleAttention,
    TriangleMultiplication,
    real_pairs,
)
from regard.parts.region import region
from regard.parts.residual import Residual, Sublayer

Rows = Float[Tensor, "_rows T D"]  # (B R) T D: the rows of each alignment, the sequence itself first
Pairs = Float[Tensor, "B T T C"]


class Places(NamedTuple):
    """Where residues are: their positions (-1: padding), the rows of each alignment, and how many of these are real."""

    positions: Int[Tensor, "B T"] | None
    rows: int
    depths: Int[Tensor, "B"] | None

    @property
    def of_rows(self) -> Int[Tensor, "_rows T"] | None:
        """The positions of the residues of all rows."""
        return None if self.positions is None else self.positions.repeat_interleave(self.rows, 0)


class PairUpdate(nn.Module):
    """z = z + outer(m); then triangles and a transition, each added to z."""

    def __init__(
        self,
        outer: OuterProductMean | ProductDifference,
        triangles: dict[str, TriangleMultiplication | TriangleAttention],
        feedforward: nn.Module,
        residual: Residual,
    ) -> None:
        super().__init__()
        self.outer = outer
        self.triangles = nn.ModuleDict(triangles)
        self.feedforward = feedforward
        self.residual = residual

    def forward(self, rows: Rows, pairs: Pairs, places: Places) -> Pairs:
        """Return the updated pairs."""
        real = real_pairs(places.positions)

        def through(triangle: nn.Module) -> Sublayer:
            if isinstance(triangle, TriangleMultiplication):
                return lambda z: triangle(z, real)
            return lambda z: triangle(z, places.positions)

        pairs = pairs + self.residual.drop(self.outer(rows, places.depths, places.rows))
        updates = {name: through(triangle) for name, triangle in self.triangles.items()}
        return self.residual(pairs, {**updates, "feedforward": self.feedforward})

    def tokens_through(self, child: nn.Module, tokens: int, keys: int) -> int:
        """Return how many vectors pass through a child: one for each pair, but for the outer product."""
        return tokens if child is self.outer else keys * keys


class RowUpdate(nn.Module):
    """m = m + attention(m, bias(z)); m = m + column(m); m = m + feedforward(m), each of the normed rows.

    A model of single sequences has no attention along columns; a `local` convolution may come first.
    """

    def __init__(
        self,
        attention: Attention,
        bias: PairBias,
        column: ColumnAttention | None,
        local: Convolution | None,
        feedforward: nn.Module,
        residual: Residual,
    ) -> None:
        super().__init__()
        self.local = local
        self.bias = bias
        self.attention = attention
        self.column = column
        self.feedforward = feedforward
        self.residual = residual

    def forward(self, rows: Rows, pairs: Pairs, places: Places) -> Rows:
        """Return the updated rows."""
        positions = places.of_rows
        mask: Rule | None = None if positions is None else Padding()

        def attend(x: Tensor) -> Tensor:
            return self.attention(x, mask=mask, positions=positions, pair=self.bias(pairs, places.rows))

        sublayers: dict[str, Sublayer] = {}
        if self.local is not None:
            local = self.local
            sublayers["local"] = lambda x: local(x, mask=mask, positions=positions)
        sublayers["attention"] = attend
        if self.column is not None:
            column = self.column
            sublayers["column"] = lambda x: column(x, places.depths, places.rows)
        updated: Tensor = self.residual(rows, {**sublayers, "feedforward": self.feedforward})
        return updated

    def tokens_through(self, child: nn.Module, tokens: int, keys: int) -> int:
        """Return how many vectors pass through a child: the bias is made of pairs."""
        return keys * keys if child is self.bias else tokens


class EvoformerLayer(nn.Module):
    """One block: z = pair_update(m, z), then m = row_update(m, z) with a bias from the new pairs."""

    def __init__(self, pair_update: PairUpdate, row_update: RowUpdate) -> None:
        super().__init__()
        self.pair_update = pair_update
        self.row_update = row_update

    @region
    def forward(self, rows: Rows, pairs: Pairs, places: Places) -> tuple[Rows, Pairs]:
        """Return the updated rows and pairs."""
        pairs = self.pair_update(rows, pairs, places)
        return self.row_update(rows, pairs, places), pairs
