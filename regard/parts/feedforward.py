"""Feed-forward layers, applied to each token on its own: MLP (Vaswani et al. 2017), GLU (Dauphin et al. 2017; Shazeer
2020), mixture of experts (`moe.py`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.config import Config, Count, Kinds, Positive, Rate, Registry
from regard.errors import ConfigError
from regard.parts.linear import Linear, linears
from regard.parts.moe import Experts, MixtureOfExperts, Router
from regard.parts.rwkv import ChannelMix


def relu_squared(x: Tensor) -> Tensor:
    """Return max(x, 0)^2 (So et al. 2021)."""
    return F.relu(x).square()


ACTIVATIONS = Registry[Callable[[Tensor], Tensor]](
    "activation",
    {
        "relu": F.relu,
        "relu2": relu_squared,
        "gelu": F.gelu,
        "gelu-tanh": partial(F.gelu, approximate="tanh"),
        "silu": F.silu,
        "sigmoid": torch.sigmoid,
        "tanh": torch.tanh,
    },
)
Activation = Annotated[str, ACTIVATIONS]


class OneLayer(nn.Module):
    """g(Wx + b)."""

    def __init__(self, dim: int, activation: Activation, bias: bool, dropout: float = 0.0) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[activation]
        self.down = Linear(dim, dim, bias=bias)
        self.dropout = nn.Dropout(dropout)

    @property
    def residual_outputs(self) -> list[Tensor]:
        """Return the matrix whose product is added to the residual stream (see `models/init.py`)."""
        return [self.down.weight]

    def forward(self, x: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows D"]:
        """Return g(Wx + b)."""
        return self.dropout(self.activation(self.down(x)))


class MLP(nn.Module):
    """W_2 g(W_1 x + b_1) + b_2."""

    def __init__(self, dim: int, hidden: int, activation: Activation, bias: bool, dropout: float = 0.0) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[activation]
        self.up = Linear(dim, hidden, bias=bias)
        self.down = Linear(hidden, dim, bias=bias)
        self.dropout = nn.Dropout(dropout)

    @property
    def residual_outputs(self) -> list[Tensor]:
        """Return the matrix whose product is added to the residual stream (see `models/init.py`)."""
        return [self.down.weight]

    def forward(self, x: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows D"]:
        """Return W_2 g(W_1 x + b_1) + b_2."""
        hidden = self.activation(self.up(x))
        return self.down(self.dropout(hidden) if self.training else hidden)


class GLU(nn.Module):
    """W_2 (g(W_g x) * W_1 x): with silu it is called SwiGLU, with gelu GEGLU."""

    def __init__(self, dim: int, hidden: int, activation: Activation, bias: bool, dropout: float = 0.0) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[activation]
        self.gate = Linear(dim, hidden, bias=bias)
        self.up = Linear(dim, hidden, bias=bias)
        self.down = Linear(hidden, dim, bias=bias)
        self.dropout = nn.Dropout(dropout)

    @property
    def residual_outputs(self) -> list[Tensor]:
        """Return the matrix whose product is added to the residual stream (see `models/init.py`)."""
        return [self.down.weight]

    def forward(self, x: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows D"]:
        """Return W_2 (g(W_g x) * W_1 x)."""
        gate, up = linears(x, self.gate, self.up)
        hidden = self.activation(gate) * up
        return self.down(self.dropout(hidden) if self.training else hidden)


class FeedForwardConfig(Config):
    """Base of the configs of feed-forward layers."""

    def build(self, dim: int) -> nn.Module:
        """Build the layer for vectors of width `dim`."""
        raise NotImplementedError


@dataclass(frozen=True)
class MLPConfig(FeedForwardConfig):
    """W_2 g(W_1 x + b_1) + b_2 (Vaswani et al. 2017); without `hidden` only g(W x + b)."""

    hidden: Count | None = None
    """Width between the two layers, four times that of the model in Vaswani et al. 2017; absent: one layer only."""
    activation: Activation = "gelu"
    """The function between the layers."""
    bias: bool = True
    """Whether the layers have a bias."""
    dropout: Rate = 0.0
    """Share of the hidden features that training sets to zero."""

    def build(self, dim: int) -> nn.Module:
        """Build the layer for vectors of width `dim`."""
        if self.hidden is None:
            return OneLayer(dim, self.activation, self.bias, self.dropout)
        return MLP(dim, self.hidden, self.activation, self.bias, self.dropout)


@dataclass(frozen=True)
class GLUConfig(FeedForwardConfig):
    """Gated linear unit: W_2 (g(W_g x) * W_1 x) (Dauphin et al. 2017; Shazeer 2020)."""

    hidden: Count
    """Width of the gate."""
    activation: Activation = "silu"
    """The function of the gate: silu makes it SwiGLU, gelu GEGLU (Shazeer 2020)."""
    bias: bool = False
    """Whether the layers have a bias."""
    dropout: Rate = 0.0
    """Share of the hidden features that training sets to zero."""

    def build(self, dim: int) -> nn.Module:
        """Build the layer for vectors of width `dim`."""
        return GLU(dim, self.hidden, self.activation, self.bias, self.dropout)


@dataclass(frozen=True)
class MoEConfig(FeedForwardConfig):
    """Mixture of experts (Shazeer et al. 2017), routed as in DeepSeek-V3 (2024)."""

    experts: Count
    """Number of experts."""
    chosen: Count
    """Number of experts that each token goes to."""
    hidden: Count
    """Width of each expert."""
    shared: Count | None = None
    """Number of shared experts, which serve every token: one gated unit of that many times `hidden`."""
    groups: Count = 1
    """Number of groups of experts; a token first chooses groups, then experts in them."""
    chosen_groups: Count = 1
    """Number of groups from which a token's experts are chosen."""
    scale: Positive = 1.0
    """Factor of the experts' weights."""

    def validate(self) -> None:
        """Check the rules between values."""
        if self.experts % self.groups:
            raise ConfigError(f"experts={self.experts} must be a multiple of groups={self.groups}")
        if self.groups > 1 and self.experts // self.groups < 2:
            raise ConfigError(f"experts={self.experts} in groups={self.groups} must give at least 2 to a group")
        if self.chosen_groups > self.groups:
            raise ConfigError(f"chosen_groups={self.chosen_groups} must be at most groups={self.groups}")
        candidates = self.experts // self.groups * self.chosen_groups
        if self.chosen > candidates:
            raise ConfigError(f"chosen={self.chosen} must be at most {candidates}, the experts in the chosen groups")

    def build(self, dim: int) -> nn.Module:
        """Build the layer for vectors of width `dim`."""
        router = Router(dim, self.experts, self.chosen, self.groups, self.chosen_groups, self.scale)
        shared = GLU(dim, self.shared * self.hidden, "silu", bias=False) if self.shared else None
        return MixtureOfExperts(router, Experts(self.experts, dim, self.hidden), shared)


@dataclass(frozen=True)
class ChannelMixConfig(FeedForwardConfig):
    """The feed-forward of RWKV, which also sees the token before (Peng et al. 2023, 2025)."""

    hidden: Count
    """Width between the two layers."""
    gated: bool = True
    """Whether the output has a gate, as in version 4; version 7 has none."""

    def build(self, dim: int) -> nn.Module:
        """Build the layer for vectors of width `dim`."""
        return ChannelMix(dim, self.hidden, self.gated)


FEEDFORWARDS = Kinds(
    "feedforward",
    FeedForwardConfig,
    {"mlp": MLPConfig, "glu": GLUConfig, "moe": MoEConfig, "channel-mix": ChannelMixConfig},
)
