"""Normalisation: per token over the features, or per feature over the batch.

Layer norm (Ba et al. 2016), RMS norm (Zhang, Sennrich 2019), batch norm (Ioffe, Szegedy 2015).
"""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor, nn

from regard.config import Config, Kinds, NotNegative


class LayerNorm(nn.LayerNorm):
    """(x - mean) / sqrt(variance + eps) * gamma + beta, over the features of each token."""


class RMSNorm(nn.RMSNorm):
    """x / sqrt(mean(x^2) + eps) * gamma, over the features of each token; computed in the precision of gamma."""

    def forward(self, x: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows D"]:
        """Normalise the features."""
        return super().forward(x.to(self.weight.dtype)).to(x.dtype)


class BatchNorm(nn.Module):
    """(x - mean) / sqrt(variance + eps) * gamma + beta, of each feature over all tokens of the batch.

    In contrast to layer norm, what a token becomes in training depends on the other tokens of the batch. Outside
    training, running averages of mean and variance are used.
    """

    def __init__(self, dim: int, eps: float) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(dim, eps=eps)

    def forward(self, x: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows D"]:
        """Normalise every feature over all rows."""
        return self.norm(x.flatten(0, -2)).view_as(x)


class NormConfig(Config):
    """Base of the configs of norms."""

    def build(self, dim: int) -> nn.Module:
        """Build the norm for vectors of width `dim`."""
        raise NotImplementedError


@dataclass(frozen=True)
class LayerNormConfig(NormConfig):
    """Layer norm (Ba et al. 2016): over the features of each token."""

    eps: NotNegative = 1e-5
    """What is added to the variance."""
    bias: bool = True
    """Whether beta is added."""

    def build(self, dim: int) -> nn.Module:
        """Build the norm for vectors of width `dim`."""
        return LayerNorm(dim, eps=self.eps, bias=self.bias)


@dataclass(frozen=True)
class RMSNormConfig(NormConfig):
    """RMS norm (Zhang, Sennrich 2019): layer norm without the mean."""

    eps: NotNegative = 1e-6
    """What is added to the mean square."""

    def build(self, dim: int) -> nn.Module:
        """Build the norm for vectors of width `dim`."""
        return RMSNorm(dim, eps=self.eps)


@dataclass(frozen=True)
class BatchNormConfig(NormConfig):
    """Batch norm (Ioffe, Szegedy 2015): over all tokens of the batch, for each feature."""

    eps: NotNegative = 1e-5
    """What is added to the variance."""

    def build(self, dim: int) -> nn.Module:
        """Build the norm for vectors of width `dim`."""
        return BatchNorm(dim, eps=self.eps)


NORMS = Kinds("norm", NormConfig, {"layer": LayerNormConfig, "rms": RMSNormConfig, "batch": BatchNormConfig})
