"""Optimizers: AdamW (Loshchilov, Hutter 2017) for all weights, or Muon (Jordan et al. 2024) for the hidden matrices.

A model is built and moved to its device first; then `config.build(model)` builds its optimizer. Nothing here waits for
an accelerator: the learning rate and the flag that skips a step are tensors on it. Only an optimizer of the user may
have to wait, see `Optimizer.step`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from regard.config import Config, Kinds, NotNegative, Positive, Rate
from regard.errors import ConfigError, RegardError
from regard.models.model import unwrapped
from regard.models.stack import Stack
from regard.parts.recurrent import Recurrent
from regard.training.muon import Muon

Group = dict[str, Any]


class Optimizer:
    """The optimizers of a model's parameters as one; each group knows its `peak` rate, by default its first one."""

    def __init__(self, model: nn.Module, parts: list[torch.optim.Optimizer]) -> None:
        self.parts = parts
        for group in (group for part in parts for group in part.param_groups):
            if "peak" not in group:
                group["peak"] = float(group["lr"])
        self.names: dict[Tensor, str] = {parameter: name for name, parameter in _parameters(model).items()}

    def set_factor(self, factor: float) -> None:
        """Set every rate to its peak times `factor`."""
        for part in self.parts:
            for group in part.param_groups:
                rate = group["peak"] * factor
                if isinstance(group["lr"], Tensor):
                    group["lr"].fill_(rate)  # in place, so that a captured graph sees it
                else:
                    group["lr"] = rate

    def step(self, bad: Tensor | None = None) -> None:
        """Update the weights by their gradients; if `bad` is 1, change nothing at all.

        `bad` is one number on the device of the weights. It is only read for optimizers that cannot skip a step
        themselves, because that waits; `torch.amp.GradScaler` asks them in the same way.
        """
        for part in self.parts:
            if getattr(part, "_step_supports_amp_scaling", False):
                part.found_inf = bad  # type: ignore[attr-defined]
                part.step()
            elif bad is None or not bad:
                part.step()

    def zero(self) -> None:
        """Clear the gradients."""
        for part in self.parts:
            part.zero_grad(set_to_none=True)

    def tensors(self) -> dict[str, Tensor]:
        """Return the complete state by name, `kind/parameter`: the tensors themselves, not copies."""
        return {
            f"{kind}/{self.names[parameter]}": tensor
            for part in self.parts
            for parameter, state in part.state.items()
            for kind, tensor in state.items()
        }

    @torch.no_grad()
    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Load a state that `tensors` returned: strictly, every tensor by name, shape and type."""
        for part in self.parts:
            if not part.state:  # as before the first step of most of torch's optimizers
                self._create_state(part, tensors)
        own = self.tensors()
        for name in sorted(own.keys() ^ tensors.keys()):
            fault = "is missing" if name in own else "belongs to no parameter"
            raise RegardError(f"optimizer state: {name!r} {fault}; {REMEDY}")
        for name, tensor in own.items():
            found, wanted = tensors[name], tensor
            if (found.shape, found.dtype) != (wanted.shape, wanted.dtype):
                described = [f"{tuple(each.shape)} of {str(each.dtype)[6:]}" for each in (found, wanted)]
                raise RegardError(f"optimizer state: {name!r} is {described[0]}, not {described[1]}; {REMEDY}")
        for name, tensor in own.items():
            tensor.copy_(tensors[name])

    def _create_state(self, part: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
        """Create the state of one optimizer from that of all, whose names are `kind/parameter`."""
        states: dict[str, dict[str, Tensor]] = {}
        for name, tensor in tensors.items():
            kind, _, parameter = name.partition("/")
            states.setdefault(parameter, {})[kind] = tensor.clone()
        members = [self.names.get(parameter, "") for group in part.param_groups for parameter in group["params"]]
        state = {number: states[name] for number, name in enumerate(members) if name in states}
        part.load_state_dict({**part.state_dict(), "state": state})


REMEDY = "continue with the model and the optimizer that the state was saved with"


class OptimizerConfig(Config):
    """Base of the configs of optimizers."""

    rate: float  # the peak learning rate

    def build(self, model: nn.Module) -> Optimizer:
        """Build the optimizer of all parameters that the model learns."""
        raise NotImplementedError


@dataclass(frozen=True)
class AdamWConfig(OptimizerConfig):
    """w <- w - rate * (m / (sqrt(v) + epsilon) + decay * w), with the bias-corrected means m of g and v of g^2."""

    rate: Positive
    """The peak learning rate."""
    betas: tuple[float, ...] = (0.9, 0.95)
    """Decay of the means of the gradient and of its square."""
    decay: NotNegative = 0.1
    """Weight decay of matrices."""
    epsilon: Positive = 1e-8
    """Added to the denominator."""

    def validate(self) -> None:
        """Check the rules between values."""
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            raise ConfigError(f"{list(self.betas)} must be two numbers, each at least 0 and below 1", "betas")

    def build(self, model: nn.Module) -> Optimizer:
        """Build the optimizer of all parameters that the model learns."""
        return Optimizer(model, self.parts(model, list(_parameters(model).values())))

    def parts(self, model: nn.Module, parameters: Sequence[Tensor]) -> list[torch.optim.Optimizer]:
        """Build torch's AdamW for some parameters of the model; return an empty list if there are none.

        Matrices decay; biases, norms and tables do not. A row of a table gets a gradient only when its token
        occurs, but would decay in every step, so that rare tokens would vanish.
        """
        if not parameters:
            return []
        tables = {module.weight for module in model.modules() if isinstance(module, nn.Embedding)}
        groups: dict[float, list[Tensor]] = {}
        for parameter in parameters:
            decay = self.decay if _is_matrix(parameter) and parameter not in tables else 0.0
            groups.setdefault(decay, []).append(parameter)
        adam = torch.optim.AdamW(
            [_group(members, self.rate, decay) for decay, members in groups.items()],
            betas=(self.betas[0], self.betas[1]),
            eps=self.epsilon,
            fused=True,  # four times faster than `foreach`, also on a CPU, and it can skip a step
            capturable=parameters[0].device.type == "cuda",
        )
        for parameter in parameters:  # created now, so that the state is complete before the first step
            adam.state[parameter] = {
                "step": torch.zeros((), dtype=torch.float32, device=parameter.device),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }
        return [adam]


@dataclass(frozen=True)
class MuonConfig(OptimizerConfig):
    """Muon for the matrices of stacks and of recurrent layers, AdamW (`rest`) for everything else.

    AdamW gets everything that is not a map between hidden vectors: tables, heads, norms, biases, and weights of more
    than two dimensions (convolutions, experts).
    """

    rate: Positive = 0.02
    """The peak learning rate of matrices."""
    momentum: Rate = 0.95
    """Decay of the mean of the gradient."""
    decay: NotNegative = 0.01
    """Weight decay."""
    rest: AdamWConfig = field(default_factory=lambda: AdamWConfig(rate=0.0003))
    """AdamW for what is not a matrix of a layer."""

    def validate(self) -> None:
        """Check the rules between values."""
        if self.momentum == 1:
            raise ConfigError("1.0 never learns; it must be below 1", "momentum")

    def build(self, model: nn.Module) -> Optimizer:
        """Build the optimizer of all parameters that the model learns."""
        learned = _parameters(model).values()
        hidden = _hidden_matrices(model)
        matrices: list[Tensor] = [parameter for parameter in learned if parameter in hidden]
        others: list[Tensor] = [parameter for parameter in learned if parameter not in hidden]
        group = _group(matrices, self.rate, self.decay) | {"momentum": self.momentum} if matrices else None
        return Optimizer(model, [*([] if group is None else [Muon([group])]), *self.rest.parts(model, others)])


def _parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters that the model learns, by name; shared ones once."""
    model = unwrapped(model)
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def _is_matrix(parameter: Tensor) -> bool:
    """Return whether two sizes are above 1; a class token of shape (1, 1, dim) is a vector."""
    return sum(size > 1 for size in parameter.shape) >= 2


def _hidden_matrices(model: nn.Module) -> set[Tensor]:
    """Return the matrices of the Linear layers inside stacks, and those of recurrent layers anywhere."""
    homes = [module for module in model.modules() if isinstance(module, Stack | Recurrent)]
    inside = {layer for home in homes for layer in home.modules() if isinstance(layer, nn.Linear | Recurrent)}
    return {weight for layer in inside for weight in layer.parameters(recurse=False) if weight.ndim == 2}


def _group(members: list[Tensor], rate: float, decay: float) -> Group:
    """Return a parameter group of torch, with its rate on the device of the weights."""
    device = members[0].device
    lr: float | Tensor = rate if device.type == "cpu" else torch.tensor(rate, device=device)
    return {"params": members, "lr": lr, "peak": rate, "weight_decay": decay}


OPTIMIZERS = Kinds("optimizer", OptimizerConfig, {"adamw": AdamWConfig, "muon": MuonConfig})
