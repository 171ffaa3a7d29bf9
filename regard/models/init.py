"""How weights begin, in one place.

Models are built without memory and filled here: what stands in a constructor never decides how a weight begins.
Norms begin as 1 and 0, biases as 0, everywhere; the kinds differ in the matrices.
"""

from dataclasses import dataclass
from math import sqrt
from typing import Literal

import torch
from torch import Tensor, nn

from regard.config import Config, Kinds, NotNegative
from regard.parts.moe import Experts, Router
from regard.parts.recurrent import Recurrent
from regard.parts.residual import Residual


def initialise(model: nn.Module, config: "InitConfig", generator: torch.Generator | None = None) -> None:
    """Fill every parameter and buffer of `model` by the rules of `config`."""
    layers = sum(isinstance(module, Residual) for module in model.modules())
    with torch.no_grad():
        recurrent = [module for module in model.modules() if isinstance(module, Recurrent)]
        inside = {id(part) for module in recurrent for part in module.modules()}
        for module in recurrent:
            for weight in module.parameters():
                if weight.ndim == 2:
                    config.recurrent(weight, module.hidden, generator)
                else:
                    nn.init.zeros_(weight)
        for name, module in model.named_modules():
            if id(module) not in inside:
                _fill_module(name, module, config, max(layers, 1), generator)


def _fill_module(
    name: str, module: nn.Module, config: "InitConfig", layers: int, generator: torch.Generator | None
) -> None:
    """Fill the parameters that `module` itself owns."""
    if isinstance(module, nn.LayerNorm | nn.RMSNorm | nn.BatchNorm1d):
        module.reset_parameters()
        return
    if isinstance(module, Router):
        module.bias.zero_()
        module.load.zero_()
    is_output = name.endswith((".output", ".down", ".mixer.conv"))  # what a sublayer adds to the residual stream
    for key, parameter in module.named_parameters(recurse=False):
        if parameter.ndim == 1 or key == "bias":
            nn.init.zeros_(parameter)
        elif isinstance(module, nn.Embedding):
            config.embedding(parameter, generator)
        elif isinstance(module, Experts):
            for matrix in parameter:  # stored as (in, out), the transpose of a Linear
                config.matrix(matrix.T, key == "down", layers, generator)
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
    """N(0, std^2) for all but recurrent matrices, which begin as U(-1/sqrt(H), 1/sqrt(H)).

    What is added to the residual stream begins the `same`, `scaled` by 1/sqrt(2 layers), or as zero. GPT-2
    (Radford et al. 2019) has `scaled`, BERT `same`; zero is that of modern speed runs.
    """

    std: NotNegative = 0.02
    output: Literal["same", "scaled", "zero"] = "same"

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
    """U(-limit, limit) for all: the recurrent nets of 2014."""

    limit: NotNegative = 0.08

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
