"""Save a model to a folder, and read it back: `config.json` and `model.safetensors`, no pickles."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from regard.arguments import check_path
from regard.atomic import WriteError, make_folder, write_file
from regard.config import from_table, to_json
from regard.errors import RegardError, choices
from regard.models.compact import expand_weights
from regard.models.init import allocate
from regard.models.model import Model, ModelConfig, unwrapped
from regard.models.recipe import Recipe, build_empty
from regard.parts.constant import Constant
from regard.recipe_files import in_file
from regard.untrusted import JsonError, parse_json, read_json

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
PARTS, SPARE_PARTS = 20, 2000  # modules and weights that are built for each weight in a file, at most
DTYPES = {  # by their names in safetensors files
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U64": torch.uint64,
    "U32": torch.uint32,
    "U16": torch.uint16,
    "U8": torch.uint8,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "BOOL": torch.bool,
}


def tensors(model: nn.Module) -> dict[str, Tensor]:
    """Return the tensors that are saved, by name: parameters, and buffers that training changes; shared ones once."""
    model = unwrapped(model)
    kept = set(model.state_dict())
    named = [*model.named_parameters(), *model.named_buffers()]
    return {name: tensor for name, tensor in named if name in kept}


def save_model(model: nn.Module, folder: str | Path, weights: Mapping[str, Tensor] | None = None) -> None:
    """Write the model's config and weights into `folder`: both files, or none.

    `weights` are those that it had when they were copied; by default it has them still.
    """
    model = unwrapped(model)
    if not isinstance(model, Model) or model.config is None:
        raise RegardError("this model has no config, so it cannot be saved; build it from a recipe or a config")
    check_described(model)
    given = tensors(model) if weights is None else weights
    with write_files(check_path(folder, "folder"), WEIGHTS, CONFIG) as (file, config):
        save_file({name: tensor.detach().contiguous() for name, tensor in given.items()}, file)
        config.write_text(to_json({"model": model.config}), encoding="utf-8")


Shapes = dict[str, tuple[int, ...]]
# of models that were saved, their config and the shapes it describes: a training run saves its model many times
_DESCRIBED: WeakKeyDictionary[nn.Module, tuple[ModelConfig, Shapes]] = WeakKeyDictionary()


def check_described(model: nn.Module) -> None:
    """Reject a model in which a part was replaced by hand: its config would build another model."""
    own: Any = model.config
    found = {name: tuple(tensor.shape) for name, tensor in tensors(model).items()}
    config, described = _DESCRIBED.get(model, (None, {}))
    if config is not own:
        described = {name: tuple(tensor.shape) for name, tensor in tensors(build_empty(own)).items()}
        _DESCRIBED[model] = own, described
    if found != described:
        name = min(name for name in found.keys() | described.keys() if found.get(name) != described.get(name))
        rule = (
            f"{name}: {found.get(name, 'missing')} is not what the config describes: {described.get(name, 'nothing')}"
        )
        raise RegardError(f"{rule}; so the model could not be loaded again; register the part (docs/extending.md)")


def save_weights(weights: Mapping[str, Tensor], path: Path) -> None:
    """Write tensors to a safetensors file, completely or not at all."""
    with write_files(path.parent, path.name) as (part,):
        save_file({name: tensor.detach().contiguous() for name, tensor in weights.items()}, part)


@contextmanager
def write_files(folder: Path, *names: str) -> Iterator[list[Path]]:
    """Yield paths to write to; the files get their names in `folder` when all of them are written."""
    make_folder(folder)
    with ExitStack() as files:
        paths = [files.enter_context(write_file(folder / name)) for name in names]
        try:
            yield paths
        except SafetensorError as error:  # a full disk, for example
            reason = str(error).removeprefix("Error while serializing: ").removeprefix("I/O error: ")
            raise WriteError(folder / names[0], reason, "free some space, or choose another folder") from None


def read_model(folder: str | Path, device: str | torch.device = "cpu") -> Model:
    """Read a model from a folder that `save_model` wrote. Its results are the same to the bit.

    Weights that were made compact (models/compact.py) are expanded.
    """
    folder = Path(folder)
    config = read_config(folder)
    try:
        weights = expand_weights({name: tensor.to(device) for name, tensor in read_tensors(folder / WEIGHTS)})
    except (OSError, SafetensorError) as error:
        raise RegardError(f"{folder}: cannot be read as a model: {error}") from None
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
        header = parse_json(file.read(size), path)
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            if entry["dtype"] not in DTYPES:
                raise OSError(f"{name} has the type {entry['dtype']}, which is not read")
            begin, end = entry["data_offsets"]
            data = torch.empty(end - begin, dtype=torch.uint8)
            file.seek(8 + size + begin)
            if file.readinto(data.numpy().data) != end - begin:
                raise OSError(f"the file ends before {name}")
            yield name, data.view(DTYPES[entry["dtype"]]).view(entry["shape"])


def build_with(
    config: ModelConfig, weights: Mapping[str, Tensor], path: Path, device: str | torch.device = "cpu"
) -> Model:
    """Build a model with weights that were read from `path`; every name and shape must be the model's."""
    model = build_empty(config, PARTS * len(weights) + SPARE_PARTS)
    _check_names(set(weights), tensors(model), path)
    for name, tensor in tensors(model).items():
        if tensor.shape != weights[name].shape:
            found, wanted = tuple(weights[name].shape), tuple(tensor.shape)
            raise RegardError(f"{path}: {name} has shape {found}, the config asks for {wanted}")
    dtype = next((tensor.dtype for tensor in weights.values() if tensor.is_floating_point()), torch.float32)
    assign_weights(model.to(dtype), {name: tensor.to(device) for name, tensor in weights.items()}, device)
    return model


def read_config(folder: Path) -> ModelConfig:
    """Read the config of a model without its weights."""
    try:
        table = read_json(folder / CONFIG)
    except JsonError as error:
        reason = error.reason.removeprefix("cannot be read: ")
        raise RegardError(f"{folder}: cannot be read as a model: {CONFIG}: {reason}") from None
    with in_file(folder / CONFIG):
        return from_table(table, Recipe).model


def assign_weights(model: Model, weights: Mapping[str, Tensor], device: str | torch.device) -> None:
    """Make these tensors the weights of an empty model, without a copy."""
    model.load_state_dict(weights, strict=False, assign=True)
    for module in model.modules():
        if isinstance(module, Constant):  # not saved, because the config determines it
            allocate(module, device)


def _check_names(found: set[str], wanted: dict[str, Tensor], path: Path) -> None:
    for name in sorted(found - set(wanted)):
        raise RegardError(f"{path}: the model has no weight {name!r}; {choices(name, wanted)}")
    for name in sorted(set(wanted) - found):
        raise RegardError(f"{path}: the weight {name!r} is missing")
