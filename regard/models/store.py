"""A model in a folder: `config.json` and `model.safetensors`. Nothing is pickled, so nothing in it can run."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from regard.config import from_table, to_json
from regard.errors import RegardError, choices
from regard.models.model import Model, ModelConfig
from regard.models.recipe import Recipe, build_empty
from regard.parts.position import Constant

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64}


def tensors(model: Model) -> dict[str, Tensor]:
    """Name every tensor that is saved: parameters, and buffers that training changes; shared ones once."""
    kept = set(model.state_dict())
    named = [*model.named_parameters(), *model.named_buffers()]
    return {name: tensor for name, tensor in named if name in kept}


def save_model(model: nn.Module, folder: str | Path) -> None:
    """Write the model's config and weights into `folder`, each file whole or not at all."""
    model = getattr(model, "_orig_mod", model)  # as it was before torch.compile
    if not isinstance(model, Model) or model.config is None:
        raise RegardError("only a model that a recipe or a config has built can be saved; this one has no config")
    with writing(Path(folder), WEIGHTS, CONFIG) as (weights, config):
        save_file({name: tensor.detach().contiguous() for name, tensor in tensors(model).items()}, weights)
        config.write_text(to_json({"model": model.config}), encoding="utf-8")


def save_weights(weights: Mapping[str, Tensor], path: Path) -> None:
    """Write tensors into a safetensors file, whole or not at all."""
    with writing(path.parent, path.name) as (part,):
        save_file({name: tensor.detach().contiguous() for name, tensor in weights.items()}, part)


@contextmanager
def writing(folder: Path, *names: str) -> Iterator[list[Path]]:
    """Give files to write to, which get their names when all are written and on the disk."""
    parts = [folder / f"{name}.part" for name in names]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        parts[0].touch()
        permissions = parts[0].stat().st_mode  # what files get here; safetensors would let nobody else read its own
        yield parts
        for part in parts:
            part.chmod(permissions)
            with part.open("r+b") as file:
                os.fsync(file.fileno())
        for part, name in zip(parts, names, strict=True):
            part.replace(folder / name)
    except (OSError, SafetensorError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        remedy = "make room or choose another folder"
        raise RegardError(f"{folder}: {names[0]} cannot be written: {reason}; {remedy}") from None
    finally:
        for part in parts:
            with suppress(OSError):  # mostly it has its name by now
                part.unlink()


def read_model(folder: str | Path, device: str | torch.device = "cpu") -> Model:
    """Read a model from a folder that `save_model` wrote. It computes the same bits as the model that was saved."""
    folder = Path(folder)
    config = read_config(folder)
    try:
        weights = {name: tensor.to(device) for name, tensor in read_tensors(folder / WEIGHTS)}
    except (OSError, SafetensorError) as error:
        raise RegardError(f"{folder}: no model can be read from here: {error}") from None
    return build_with(config, weights, folder / WEIGHTS, device)


def read_tensors(path: Path) -> Iterator[tuple[str, Tensor]]:
    """Read the tensors of a safetensors file, each into memory of its own.

    In the file a tensor starts at any multiple of its item size. If weights were mapped from there, BLAS would choose
    other kernels for their unaligned memory, whose results differ in the last bit from those of the saved model.
    """
    with safe_open(path, framework="pt"):
        pass  # the library checks the header: its sizes fit the file
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            begin, end = entry["data_offsets"]
            data = torch.empty(end - begin, dtype=torch.uint8)
            file.seek(8 + size + begin)
            if file.readinto(data.numpy().data) != end - begin:
                raise OSError(f"the file ends before {name}")
            yield name, data.view(DTYPES[entry["dtype"]]).view(entry["shape"])


def build_with(
    config: ModelConfig, weights: Mapping[str, Tensor], path: Path, device: str | torch.device = "cpu"
) -> Model:
    """Build a model with weights that were read from `path`: strictly, every weight with its own name and shape."""
    model = build_empty(config)
    _check_names(set(weights), tensors(model), path)
    for name, tensor in tensors(model).items():
        if tensor.shape != weights[name].shape:
            found, wanted = tuple(weights[name].shape), tuple(tensor.shape)
            raise RegardError(f"{path}: {name} has shape {found}, the config asks for {wanted}")
    dtype = next(tensor.dtype for tensor in weights.values() if tensor.is_floating_point())
    fill(model.to(dtype), {name: tensor.to(device) for name, tensor in weights.items()}, device)
    return model


def read_config(folder: Path) -> ModelConfig:
    """Read the config of a model without its weights."""
    try:
        table = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except OSError as error:
        raise RegardError(f"{folder}: no model can be read from here: {CONFIG}: {error.strerror}") from None
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise RegardError(f"{folder}: no model can be read from here: {CONFIG}: {error}") from None
    if not isinstance(table, dict):
        raise RegardError(f"{folder / CONFIG}: must hold a table, not {table!r}")
    return from_table(table, Recipe).model


def fill(model: Model, weights: Mapping[str, Tensor], device: str | torch.device) -> None:
    """Let an empty model have these weights, as they are and where they are: nothing is copied."""
    model.load_state_dict(weights, strict=False, assign=True)
    for module in model.modules():
        if isinstance(module, Constant):  # not saved, since it follows from the config
            module.to_empty(device=device)


def _check_names(found: set[str], wanted: dict[str, Tensor], path: Path) -> None:
    for name in sorted(found - set(wanted)):
        raise RegardError(f"{path}: the model has no weight {name!r}; {choices(name, wanted)}")
    for name in sorted(set(wanted) - found):
        raise RegardError(f"{path}: the weight {name!r} is missing")
