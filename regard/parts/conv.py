"""Convolution over time (Gehring et al. 2017): an output sees `kernel` tokens, so distant ones need many layers."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.config import Count
from regard.errors import InputError
from regard.parts.mask import Causal, Documents, Padding, Prefix, Rule, includes
from regard.parts.mixer import Mixer, MixerConfig
from regard.parts.state import Hidden


class Convolution(Mixer):
    """y_t = sum_j W_j x_{t + j}: j from -(kernel-1) to 0 where the mask is causal, else centred on t.

    With `dilation`, the neighbours are that far apart (van den Oord et al. 2016).
    """

    def __init__(self, dim: int, kernel: int, dilation: int = 1) -> None:
        super().__init__()
        self.reach = (kernel - 1) * dilation
        self.conv = nn.Conv1d(dim, dim, kernel, dilation=dilation)

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        *,
        mask: Rule | None = None,
        positions: Int[Tensor, "B T"] | None = None,
        state: Hidden | None = None,
    ) -> Float[Tensor, "B T D"]:
        """Convolve along T."""
        if includes(mask, Documents) or includes(mask, Prefix):
            raise InputError("a convolution sees a fixed range of tokens; packed documents and prefixes need attention")
        if state is not None:
            return self.convolve(self.extend(x, positions if includes(mask, Padding) else None, state))
        if includes(mask, Causal):
            return self.convolve(F.pad(x, (0, 0, self.reach, 0)))
        if positions is not None and includes(mask, Padding):  # padding must not reach the last tokens
            x = x * (positions >= 0)[..., None]
        return self.convolve(F.pad(x, (0, 0, self.reach // 2, self.reach - self.reach // 2)))

    def convolve(self, x: Float[Tensor, "B L D"]) -> Float[Tensor, "B T D"]:
        """Convolve along T; torch convolves along the last dimension."""
        return self.conv(x.transpose(1, 2)).transpose(1, 2)

    def extend(self, x: Tensor, positions: Tensor | None, state: Hidden) -> Tensor:
        """Prepend the inputs in the state, and keep the last `reach` real ones there."""
        (past,) = state.values
        x = torch.cat((past, x), 1)
        ends = torch.full((len(x),), x.shape[1], device=x.device)
        if positions is not None:
            ends = self.reach + (positions >= 0).sum(1)
        index = ends[:, None] - torch.arange(self.reach, 0, -1, device=x.device)
        state.values = (x.gather(1, index[..., None].expand(-1, -1, x.shape[2])),)
        return x

    def start(self, batch: int, capacity: int | None = None) -> Hidden:
        """Return the state before the first token: zeros."""
        return Hidden((self.conv.weight.new_zeros(batch, self.reach, self.conv.in_channels),))

    @property
    def residual_outputs(self) -> list[Tensor]:
        """Return the matrix whose product is added to the residual stream (see `models/init.py`)."""
        return [self.conv.weight]

    def flops(self, tokens: int, keys: int) -> int:
        """Return 0: the product is counted in the child."""
        return 0


class DepthwiseConvolution(Convolution):
    """y_t = sum_j w_j * x_{t + j}, j from -(kernel-1) to 0: each feature is mixed with itself in the tokens before."""

    def __init__(self, dim: int, kernel: int, bias: bool) -> None:
        super(Convolution, self).__init__()
        self.reach = kernel - 1
        self.conv = nn.Conv1d(dim, dim, kernel, groups=dim, bias=bias)

    @property
    def residual_outputs(self) -> list[Tensor]:
        """Return nothing: it is a part of a mixer, before its products."""
        return []

    def start_values(self) -> None:
        """Set the weights so that each token begins as itself, without its neighbours."""
        self.conv.weight.zero_()
        self.conv.weight[..., -1].fill_(1.0)


@dataclass(frozen=True)
class ConvolutionConfig(MixerConfig):
    """Convolution over time (Gehring et al. 2017)."""

    kernel: Count = 3
    """Number of neighbouring tokens that an output sees."""
    dilation: Count = 1
    """Distance between these tokens."""

    def build(self, dim: int) -> Convolution:
        """Build the convolution for vectors of width `dim`."""
        return Convolution(dim, self.kernel, self.dilation)
