"""Initial weights, in one place.

Models are built without memory and filled here, so constructors never decide the initial value of a weight.
Norms start as 1 and 0, biases and buffers as 0, everywhere; the kinds differ in the matrices.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import sqrt
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from regard.config import Config, Kinds, NotNegative
from regard.parts.mixer import Mixer
from regard.parts.moe import Experts
from regard.parts.recurrent import Recurrent
from regard.parts.residual import Residual

M = TypeVar("M", bound=nn.Module)

RANDOM_FILLS = (Tensor.normal_, Tensor.uniform_)


@contextmanager
def without_memory() -> Iterator[None]:
    """Build modules on the device `meta`: shapes only, without memory and without initial values."""
    with torch.device("meta"), _Unfilled():
        yield


class _Unfilled(TorchFunctionMode):
    """Skip random initial values. For tensors without memory, torch would import its compiler to draw them (1.3 s)."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        named = kwargs or {}
        if func in RANDOM_FILLS or getattr(func, "__module__", None) == nn.init.__name__:
            return args[0] if args else named["tensor"]
        return func(*args, **named)


def allocate(module: M, device: str | torch.device) -> M:
    """Allocate the weights of a module that was built `without_memory`, with arbitrary values; return the module."""

    def empty(tensor: Tensor) -> Tensor:  # as `to_empty`, which imports a part of torch's compiler (0.3 s)
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device)

    allocated: M = module._apply(empty)  # type: ignore[no-untyped-call]
    return allocated


def initialise(model: nn.Module, config: "InitConfig", generator: torch.Generator | None = None) -> None:
    """Fill every parameter and buffer of `model` by the rules of `config`.

    A part names the weights that it adds to the residual stream as `residual_outputs`; some rules scale those.
    """
    layers = max(sum(isinstance(module, Residual) for module in model.modules()), 1)
    outputs = {id(weight) for module in model.modules() for weight in getattr(module, "residual_outputs", ())}
    kept = model.state_dict(keep_vars=True)
    with torch.no_grad():
        for name, buffer in model.named_buffers():
            if name in kept:  # others are constants, which fill themselves
                buffer.zero_()
        recurrent = [module for module in model.modules() if isinstance(module, Recurrent)]
        inside = {id(child) for module in recurrent for child in module.modules()}
        for module in recurrent:
            for weight in module.parameters():
                if weight.ndim == 2:
                    config.recurrent(weight, module.hidden, generator)
                else:
                    nn.init.zeros_(weight)
        for part in model.modules():
            if id(part) not in inside:
                _fill_own(part, config, outputs, layers, generator)
        for part in model.modules():
            if isinstance(part, Mixer):
                part.start_values()


def _fill_own(
    module: nn.Module, config: "InitConfig", outputs: set[int], layers: int, generator: torch.Generator | None
) -> None:
    """Fill the parameters that `module` itself owns."""
    if isinstance(module, nn.LayerNorm | nn.RMSNorm | nn.BatchNorm1d | nn.GroupNorm):
        module.reset_parameters()
        return
    for key, parameter in module.named_parameters(recurse=False):
        is_output = id(parameter) in outputs
        if parameter.ndim == 1 or key == "bias":
            nn.init.zeros_(parameter)
        elif isinstance(module, nn.Embedding):
            config.embedding(parameter, generator)
        elif isinstance(module, Experts):
            for matrix in parameter:  # stored as (in, out), the transpose of a Linear
                config.matrix(matrix.T, is_output, layers, generator)
        else:
            config.matrix(parameter, is_output, layers, generator)


class InitConfig(Config):
    """Base of the configs of initialisations."""

    def matrix(self, weight: Tensor, is_output: bool, layers: int, generator: torch.Generator | None) -> None:
        """Fill a matrix of a Linear or a convolution."""
        raise NotImplementedError

    def embedding(self, weight: Tensor, generator: torch.Generator | None) -> None:
        """Fill a table of embeddings."""
        raise NotImplementedError

    def recurrent(self, weight: Tensor, hidden: int, generator: torch.Generator | None) -> None:
        """Fill a matrix of a recurrent layer."""
        raise NotImplementedError


@dataclass(frozen=True)
class NormalConfig(InitConfig):
    """N(0, std^2) for all but recurrent matrices, which start as U(-1/sqrt(H), 1/sqrt(H)).

    Weights that add to the residual stream start the `same`, `scaled` by 1/sqrt(2 layers), or as `zero`. GPT-2
    (Radford et al. 2019) uses `scaled`, BERT `same`, speedruns of nanoGPT `zero`.
    """

    std: NotNegative = 0.02
    """Standard deviation."""
    output: Literal["same", "scaled", "zero"] = "same"
    """How matrices start whose output is added to the residual stream: the same (BERT), scaled by 1/sqrt(2 layers)
    (GPT-2), or zero."""

    def matrix(self, weight: Tensor, is_output: bool, layers: int, generator: torch.Generator | None) -> None:
        """Fill a matrix of a Linear or a convolution."""
        scale = {"same": 1.0, "scaled": 1 / sqrt(2 * layers), "zero": 0.0}[self.output] if is_output else 1.0
        nn.init.normal_(weight, std=self.std * scale, generator=generator)

    def embedding(self, weight: Tensor, generator: torch.Generator | None) -> None:
        """Fill a table."""
        nn.init.normal_(weight, std=self.std, generator=generator)

    def recurrent(self, weight: Tensor, hidden: int, generator: torch.Generator | None) -> None:
        """Fill a matrix of a recurrent layer."""
        nn.init.uniform_(weight, -1 / sqrt(hidden), 1 / sqrt(hidden), generator=generator)


@dataclass(frozen=True)
class XavierConfig(InitConfig):
    """Xavier uniform (Glorot, Bengio 2010) for matrices, N(0, 1/dim) for tables: the Transformer of 2017."""

    def matrix(self, weight: Tensor, is_output: bool, layers: int, generator: torch.Generator | None) -> None:
        """Fill a matrix of a Linear or a convolution."""
        nn.init.xavier_uniform_(weight, generator=generator)

    def embedding(self, weight: Tensor, generator: torch.Generator | None) -> None:
        """Fill a table."""
        nn.init.normal_(weight, std=1 / sqrt(weight.shape[1]), generator=generator)

    def recurrent(self, weight: Tensor, hidden: int, generator: torch.Generator | None) -> None:
        """Fill a matrix of a recurrent layer."""
        nn.init.uniform_(weight, -1 / sqrt(hidden), 1 / sqrt(hidden), generator=generator)


@dataclass(frozen=True)
class UniformConfig(InitConfig):
    """U(-limit, limit) for all: the recurrent networks of 2014."""

    limit: NotNegative = 0.08
    """Limit of the uniform distribution."""

    def matrix(self, weight: Tensor, is_output: bool, layers: int, generator: torch.Generator | None) -> None:
        """Fill a matrix of a Linear or a convolution."""
        nn.init.uniform_(weight, -self.limit, self.limit, generator=generator)

    def embedding(self, weight: Tensor, generator: torch.Generator | None) -> None:
        """Fill a table."""
        nn.init.uniform_(weight, -self.limit, self.limit, generator=generator)

    def recurrent(self, weight: Tensor, hidden: int, generator: torch.Generator | None) -> None:
        """Fill a matrix of a recurrent layer."""
        nn.init.uniform_(weight, -self.limit, self.limit, generator=generator)


INITS = Kinds("init", InitConfig, {"normal": NormalConfig, "xavier": XavierConfig, "uniform": UniformConfig})
