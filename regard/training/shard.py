"""A model in parts (FSDP2; Zhao et al. 2023): every process keeps some rows of each weight, of its gradient and of the
optimizer's state, and gathers the weights of a layer only while it computes with them.

Validation and saving use a whole copy that is gathered for the while: decoding calls `start`, `encode` and `step`,
which go around the hooks that gather in `forward`, and a copy is an ordinary model in every respect. It takes the
memory of the weights alone, which is a quarter of what training them without parts takes.

torch's tensors in parts are known here by their methods `to_local` and `full_tensor`: importing their class takes half
a second, which a run without them need not spend.
"""

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.errors import RegardError
from regard.models.model import Model
from regard.models.recipe import build_empty
from regard.models.stack import Layer
from regard.runs.checkpoint import is_sharded
from regard.training.ranks import Ranks


def shard(model: nn.Module, ranks: Ranks) -> None:
    """Keep only this process's part of a model; build its optimizer afterwards.

    Layers are gathered one at a time, the rest with the root. So is everything where layers share weights (a table of
    relative positions), since those would be gathered with one layer and missing in the next.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    # The warning is about layers that return a view, as recurrences do: changing it in place, which does not happen.
    warnings.filterwarnings("ignore", "FSDP2-wrapped module .* returned a view", UserWarning)
    mesh = init_device_mesh(ranks.device.type, (ranks.world,))
    layers = [module for module in model.modules() if isinstance(module, Layer)]
    weights = [weight for layer in layers for weight in layer.parameters()]
    if len(weights) == len(set(weights)):
        for layer in layers:
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)


def local(tensor: Tensor) -> Tensor:
    """Return this process's part of a tensor, to be changed in place."""
    return tensor.to_local() if is_sharded(tensor) else tensor  # type: ignore[attr-defined]


def whole(tensor: Tensor) -> Tensor:
    """Gather a tensor; all processes must call it."""
    return tensor.full_tensor() if is_sharded(tensor) else tensor  # type: ignore[attr-defined]


def gathered(model: nn.Module, weights: Mapping[str, Tensor], device: torch.device) -> Model:
    """Return an ordinary copy of a sharded model with these weights, whole on every process."""
    if not isinstance(model, Model) or model.config is None:
        raise RegardError("train.parallel=fsdp needs a model that a recipe describes; use train.parallel=ddp")
    copy = build_empty(model.config).to_empty(device=device)
    copy.load_state_dict({name: whole(weight).clone() for name, weight in weights.items()}, strict=False, assign=True)
    return copy


def with_whole_rows(function: Callable[[Tensor], Tensor], parts: Tensor, like: Tensor) -> Tensor:
    """Apply a function of whole matrices (N, rows, columns) to those whose rows are spread as those of `like` are."""
    if not is_sharded(like):
        return function(parts)
    from torch.distributed.tensor import DTensor, Shard, distribute_tensor

    spread: Any = like
    shape = torch.Size((len(parts), *like.shape))
    stride = (like.shape[0] * like.shape[1], like.shape[1], 1)
    matrices = DTensor.from_local(parts, spread.device_mesh, [Shard(1)], shape=shape, stride=stride).full_tensor()
    return local(distribute_tensor(function(matrices), spread.device_mesh, [Shard(1)], src_data_rank=None))


# --- checkpoints -----------------------------------------------------------------------------------------------------


def write_shards(folder: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write this process's part of the tensors; all processes call this together. Nothing is pickled."""
    from torch.distributed.checkpoint.api import CheckpointException
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
    from torch.distributed.checkpoint.state_dict_saver import save

    try:
        save(dict(tensors), storage_writer=HuggingFaceStorageWriter(str(folder), save_distributed=True))
    except CheckpointException as error:  # on all processes, whichever has failed
        for cause, _ in error.failures.values():
            if isinstance(cause, OSError):
                raise cause from None
        raise
