"""Sharded models (FSDP2; Zhao et al. 2023): every process keeps some rows of each weight, of its gradient and of the
optimizer's state, and gathers the weights of a layer only while it computes with them.

Validation, and saving the best weights, use a complete copy that is gathered temporarily: decoding calls `begin` and
`step`, which bypass the hooks that gather weights in `forward`, and the copy is an ordinary model. It takes the memory
of the weights alone, a quarter of what training without shards takes.

DTensors are recognised by their methods `to_local` and `full_tensor`: importing the class takes half a second.
"""

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.errors import RegardError
from regard.models.init import allocate
from regard.models.model import Model
from regard.models.recipe import build_empty
from regard.models.stack import Layer
from regard.runs.checkpoint import is_sharded
from regard.training.ranks import Ranks


def shard(model: nn.Module, ranks: Ranks) -> None:
    """Keep only this process's shard of a model; build its optimizer afterwards.

    Layers are gathered one at a time, all other weights with the root. If layers share weights (a table of relative
    positions), everything is gathered with the root: shared weights would be missing in the second layer.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    # Layers may return a view, as recurrences do. The warning is about changing it in place, which does not happen.
    warnings.filterwarnings("ignore", "FSDP2-wrapped module .* returned a view", UserWarning)
    mesh = init_device_mesh(ranks.device.type, (ranks.world,))
    layers = [module for module in model.modules() if isinstance(module, Layer)]
    weights = [weight for layer in layers for weight in layer.parameters()]
    if len(weights) == len(set(weights)):
        for layer in layers:
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)


def local(tensor: Tensor) -> Tensor:
    """Return this process's shard of a tensor, to be changed in place."""
    return tensor.to_local() if is_sharded(tensor) else tensor  # type: ignore[attr-defined]


def whole(tensor: Tensor) -> Tensor:
    """Return the complete tensor; all processes must call this."""
    return tensor.full_tensor() if is_sharded(tensor) else tensor  # type: ignore[attr-defined]


def gathered(model: nn.Module, weights: Mapping[str, Tensor], device: torch.device) -> Model:
    """Return an ordinary copy of a sharded model with these weights, complete on every process."""
    if not isinstance(model, Model) or model.config is None:
        raise RegardError("train.parallel=fsdp needs a model that a recipe describes; use train.parallel=ddp")
    copy = allocate(build_empty(model.config), device)
    copy.load_state_dict({name: whole(weight).clone() for name, weight in weights.items()}, strict=False, assign=True)
    return copy


def with_whole_rows(function: Callable[[Tensor], Tensor], parts: Tensor, like: Tensor) -> Tensor:
    """Apply a function of complete matrices (N, rows, columns) to matrices whose rows are sharded like `like`."""
    if not is_sharded(like):
        return function(parts)
    from torch.distributed.tensor import DTensor, Shard, distribute_tensor

    sharded: Any = like
    shape = torch.Size((len(parts), *like.shape))
    stride = (like.shape[0] * like.shape[1], like.shape[1], 1)
    matrices = DTensor.from_local(parts, sharded.device_mesh, [Shard(1)], shape=shape, stride=stride).full_tensor()
    return local(distribute_tensor(function(matrices), sharded.device_mesh, [Shard(1)], src_data_rank=None))


# --- checkpoints -----------------------------------------------------------------------------------------------------


def write_shards(folder: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write this process's shards of the tensors; all processes call this together. Nothing is pickled."""
    from torch.distributed.checkpoint.api import CheckpointException
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
    from torch.distributed.checkpoint.state_dict_saver import save

    try:
        save(dict(tensors), storage_writer=HuggingFaceStorageWriter(str(folder), save_distributed=True))
    except CheckpointException as error:  # raised in all processes, whichever failed
        for cause, _ in error.failures.values():
            if isinstance(cause, OSError):
                raise cause from None
        raise
