"""How the sublayers of a layer are joined: residual connections (He et al. 2016) and the place of the norm.

Post-norm is the Transformer of 2017, pre-norm that of GPT-2 and after (Xiong et al. 2020), around is Gemma 2's and
CogView's sandwich, parallel is GPT-J's and PaLM's, plain is a stack of recurrent layers with no residual at all.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated

import torch
from torch import Tensor, nn

from regard.config import Registry
from regard.parts.dropout import build_dropout
from regard.parts.norm import NormConfig

Sublayer = Callable[[Tensor], Tensor]


class Residual(nn.Module):
    """Join the named sublayers f of one layer; the norms are named after the sublayers."""

    def __init__(
        self,
        norms: Mapping[str, nn.Module],
        dropout: float = 0.0,
        drop_path: float = 0.0,
        dropout_by_row: bool = False,
    ) -> None:
        super().__init__()
        self.norms = nn.ModuleDict(norms)
        self.dropout = build_dropout(dropout, dropout_by_row)
        self.drop_path = drop_path

    def drop(self, x: Tensor) -> Tensor:
        """Apply dropout in training. Otherwise do not even call it: decode steps are many and small."""
        if not self.training:
            return x
        x = self.dropout(x)
        if self.drop_path:  # of each row, the whole sublayer (stochastic depth)
            kept = torch.rand(len(x), 1, 1, device=x.device, dtype=x.dtype) >= self.drop_path
            x = x * kept / (1 - self.drop_path)
        return x

    narrows = True  # whether the first sublayer may return fewer vectors than it gets, those of the first tokens

    @staticmethod
    def names(sublayers: Sequence[str]) -> list[str]:
        """Return the names of the norms that these sublayers need."""
        return list(sublayers)


class Pre(Residual):
    """x + f(norm(x))."""

    def forward(self, x: Tensor, sublayers: Mapping[str, Sublayer]) -> Tensor:
        """Apply one sublayer after the other."""
        for name, f in sublayers.items():
            x = _sum(x, self.drop(f(self.norms[name](x))))
        return x


class Post(Residual):
    """norm(x + f(x))."""

    def forward(self, x: Tensor, sublayers: Mapping[str, Sublayer]) -> Tensor:
        """Apply one sublayer after the other."""
        for name, f in sublayers.items():
            x = self.norms[name](_sum(x, self.drop(f(x))))
        return x


class Around(Residual):
    """x + norm_after(f(norm(x)))."""

    def forward(self, x: Tensor, sublayers: Mapping[str, Sublayer]) -> Tensor:
        """Apply one sublayer after the other."""
        for name, f in sublayers.items():
            x = _sum(x, self.drop(self.norms[f"{name}_after"](f(self.norms[name](x)))))
        return x

    @staticmethod
    def names(sublayers: Sequence[str]) -> list[str]:
        """Return the names of two norms for each sublayer."""
        return [norm for name in sublayers for norm in (name, f"{name}_after")]


class Parallel(Residual):
    """x + f_1(norm(x)) + f_2(norm(x)) + ..."""

    narrows = False

    def forward(self, x: Tensor, sublayers: Mapping[str, Sublayer]) -> Tensor:
        """Apply all sublayers to the same input."""
        normed = self.norms["shared"](x)
        for f in sublayers.values():
            x = x + self.drop(f(normed))
        return x

    @staticmethod
    def names(sublayers: Sequence[str]) -> list[str]:
        """Return the name of the one norm for all sublayers."""
        return ["shared"]


class Plain(Residual):
    """f(x)."""

    narrows = False

    def forward(self, x: Tensor, sublayers: Mapping[str, Sublayer]) -> Tensor:
        """Apply one sublayer after the other."""
        for f in sublayers.values():
            x = self.drop(f(x))
        return x

    @staticmethod
    def names(sublayers: Sequence[str]) -> list[str]:
        """Return no names: there are no norms."""
        return []


def _sum(x: Tensor, y: Tensor) -> Tensor:
    """Return x + y; if y has the vectors of the first tokens only, so has the sum."""
    return x + y if x.shape == y.shape else x[:, : y.shape[1]] + y


RESIDUALS = Registry[type[Residual]](
    "residual",
    {
        "pre": Pre,
        "post": Post,
        "around": Around,
        "parallel": Parallel,
        "plain": Plain,
    },
)
ResidualName = Annotated[str, RESIDUALS]


def build_residual(
    name: ResidualName,
    sublayers: Sequence[str],
    dim: int,
    norm: NormConfig | None,
    dropout: float,
    drop_path: float = 0.0,
    dropout_by_row: bool = False,
) -> Residual:
    """Build the residual of a layer with these sublayers; without a norm, nothing is normalised."""
    kind = RESIDUALS[name]
    norms = {norm_name: nn.Identity() if norm is None else norm.build(dim) for norm_name in kind.names(sublayers)}
    return kind(norms, dropout, drop_path, dropout_by_row)
