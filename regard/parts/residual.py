"""How the sublayers of a layer are joined: residual connections (He et al. 2016) and where the norm stands.

Post-norm is the Transformer of 2017, pre-norm that of GPT-2 and after (Xiong et al. 2020), around is Gemma 2's and
CogView's sandwich, parallel is GPT-J's and PaLM's, plain is a stack of recurrent layers with no residual at all.
"""

from collections.abc import Callable, Sequence
from typing import Literal

from torch import Tensor, nn

from regard.parts.norm import NormConfig

Sublayer = Callable[[Tensor], Tensor]
Joining = Literal["pre", "post", "around", "parallel", "plain"]


class Residual(nn.Module):
    """Joins the sublayers f of one layer; `norms` are as many as its kind needs."""

    def __init__(self, norms: Sequence[nn.Module], dropout: float = 0.0) -> None:
        super().__init__()
        self.norms = nn.ModuleList(norms)
        self.dropout = nn.Dropout(dropout)

    @staticmethod
    def count(sublayers: int) -> int:
        """How many norms so many sublayers need."""
        return sublayers


class Pre(Residual):
    """x + f(norm(x))."""

    def forward(self, x: Tensor, sublayers: Sequence[Sublayer]) -> Tensor:
        """One sublayer after the other."""
        for norm, f in zip(self.norms, sublayers, strict=True):
            x = x + self.dropout(f(norm(x)))
        return x


class Post(Residual):
    """norm(x + f(x))."""

    def forward(self, x: Tensor, sublayers: Sequence[Sublayer]) -> Tensor:
        """One sublayer after the other."""
        for norm, f in zip(self.norms, sublayers, strict=True):
            x = norm(x + self.dropout(f(x)))
        return x


class Around(Residual):
    """x + norm'(f(norm(x)))."""

    def forward(self, x: Tensor, sublayers: Sequence[Sublayer]) -> Tensor:
        """One sublayer after the other."""
        for before, after, f in zip(self.norms[::2], self.norms[1::2], sublayers, strict=True):
            x = x + self.dropout(after(f(before(x))))
        return x

    @staticmethod
    def count(sublayers: int) -> int:
        """Two to each."""
        return 2 * sublayers


class Parallel(Residual):
    """x + f_1(norm(x)) + f_2(norm(x)) + ..."""

    def forward(self, x: Tensor, sublayers: Sequence[Sublayer]) -> Tensor:
        """All sublayers at once."""
        normed = self.norms[0](x)
        for f in sublayers:
            x = x + self.dropout(f(normed))
        return x

    @staticmethod
    def count(sublayers: int) -> int:
        """One for all."""
        return 1


class Plain(Residual):
    """f(x)."""

    def forward(self, x: Tensor, sublayers: Sequence[Sublayer]) -> Tensor:
        """One sublayer after the other."""
        for f in sublayers:
            x = self.dropout(f(x))
        return x

    @staticmethod
    def count(sublayers: int) -> int:
        """None."""
        return 0


RESIDUALS: dict[str, type[Residual]] = {
    "pre": Pre,
    "post": Post,
    "around": Around,
    "parallel": Parallel,
    "plain": Plain,
}


def build_residual(joining: Joining, sublayers: int, dim: int, norm: NormConfig | None, dropout: float) -> Residual:
    """Make the residual of a layer with so many sublayers; without a norm, nothing is normalised."""
    kind = RESIDUALS[joining]
    count = kind.count(sublayers)
    return kind([nn.Identity() if norm is None else norm.build(dim) for _ in range(count)], dropout)
