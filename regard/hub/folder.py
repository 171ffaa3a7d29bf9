"""Read and write models as Hugging Face folders, and find out whether a config can be written as one."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from regard.config import Table, kind_of, to_table
from regard.errors import ConfigError, RegardError
from regard.hub.changes import Shape
from regard.hub.conversion import Conversion, NotExpressibleError, convert_config
from regard.hub.details import CONFIG, GENERATION, Details, token_id_keys
from regard.hub.families import FAMILIES
from regard.hub.family import Family, check_weights, read_weights, write_weights
from regard.hub.hub_config import HubConfig
from regard.hub.weights import DTYPES, INDEX, SINGLE_FILE, FolderWeights, open_weights
from regard.models.model import Model, unwrapped
from regard.models.recipe import ModelConfig, build_empty, whole_numbers
from regard.models.store import assign_weights, tensors, write_files
from regard.untrusted import read_json

MAX_FILE_BYTES = 5 * 10**9
HARMLESS = 2**20  # a number up to this costs little in any key, since models are built without memory for weights
DTYPE_NAMES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32, "float64": torch.float64}
GENERATING = ("language", "translation")  # tasks whose folders have generation defaults


def is_huggingface(folder: str | Path) -> bool:
    """Return whether a folder contains a Hugging Face model, by its config.json."""
    path = Path(folder) / CONFIG
    return path.is_file() and "model_type" in read_json(path)


# --- reading -------------------------------------------------------------------------------------------------------


def load_huggingface(
    folder: str | Path,
    device: str | torch.device = "cpu",
    dtype: torch.dtype | None = None,
    allow_pickle: bool = False,
) -> Model:
    """Load a Hugging Face folder as one of our models, in the precision of its files unless `dtype` is given.

    No code in the folder is run. On the CPU the weights stay in the file until they are used.
    """
    opened = _open(Path(folder), allow_pickle)
    model = _build(opened).to(dtype or _dtype(opened))
    ours = tensors(model)
    weights = _read_weights(opened, ours)
    assign_weights(model, {name: tensor.to(device, ours[name].dtype) for name, tensor in weights.items()}, device)
    return model


def read_huggingface_config(folder: str | Path, task: str | None = None, allow_pickle: bool = False) -> ModelConfig:
    """Read our config of a Hugging Face folder, without its weights.

    With `task`, the config gets the head that its family has for this task, if there is one.
    """
    opened = _open(Path(folder), allow_pickle)
    heads = opened.family.architectures
    if task is not None and heads[opened.architecture].task != task:
        fitting = [name for name, head in heads.items() if head.task == task]
        opened = replace(opened, architecture=fitting[0]) if fitting else opened
    config: ModelConfig = _build(opened).config
    return config


@dataclass(frozen=True)
class _Opened:
    """The files of a folder, opened but not read."""

    family: Family
    architecture: str
    table: Table
    weights: FolderWeights
    place: str  # of config.json, for messages


def _open(folder: Path, allow_pickle: bool) -> _Opened:
    place = str(folder / CONFIG)
    table = read_json(folder / CONFIG)
    family = _find_family(table, place)
    weights = open_weights(folder, allow_pickle)
    named = table.get("architectures")
    if not (isinstance(named, list) and len(named) == 1 and isinstance(named[0], str)):
        raise RegardError(f"{place}: architectures={named!r} must name one class, which selects the head")
    if named[0] not in family.architectures:
        known = f"supported are {', '.join(family.architectures)}"
        raise RegardError(f"{place}: the architecture {named[0]!r} is not supported; {known}")
    return _Opened(family, named[0], table, weights, place)


def _find_family(table: Table, place: str) -> Family:
    supported = f"supported are {', '.join(sorted(FAMILIES))}"
    model_type = table.get("model_type")
    if model_type is None:
        raise RegardError(f"{place}: has no model_type, which names the family of the model; {supported}")
    if str(model_type) not in FAMILIES:
        remedy = "docs/extending.md shows how to add a family, in a file that --import FILE reads"
        raise RegardError(
            f"{place}: the family {str(model_type)!r} (model_type) is not supported; {supported}; {remedy}"
        )
    return FAMILIES[str(model_type)]


def _build(opened: _Opened) -> Model:
    """Build the model without memory for its weights, after checking every value of the config.

    A number that is larger than all weights together is a mistake or an attack, and is rejected before building.
    """
    head = opened.family.architectures[opened.architecture]
    reader = HubConfig(opened.table, head.task, frozenset(opened.weights.shapes), opened.place)
    try:
        config = opened.family.from_hub(reader)
        reader.check_all_read(opened.family.ignored_keys)
        for path, number in whole_numbers(to_table(config), "model"):
            if number > max(HARMLESS, opened.weights.total):
                raise ConfigError(f"{number} is more than the {opened.weights.total} elements of all weights", path)
        return build_empty(config)
    except ConfigError as error:
        reason = str(error).replace("\n", "; ")
        raise RegardError(f"{opened.place}: no model can be built from it: {reason}") from None


def _dtype(opened: _Opened) -> torch.dtype:
    named = DTYPE_NAMES.get(str(opened.table.get("dtype", opened.table.get("torch_dtype"))))
    return named or next((dtype for dtype in opened.weights.dtypes.values() if dtype is not None), torch.float32)


def _read_weights(opened: _Opened, ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
    family, weights, shapes = opened.family, opened.weights, _shapes(ours)
    names = check_weights(family, opened.architecture, shapes, weights.shapes, weights.place)
    for name in names.values():
        if weights.dtypes[name] not in DTYPES.values() and not family.is_ignored(name):
            raise RegardError(f"{weights.place}: {name} is not floating point of 16 bits or more")
    read = read_weights(family, opened.architecture, shapes, names, weights.get, weights.place)
    return read | {name: torch.zeros(shapes[name]) for name in ours if family.is_own(name)}


def _shapes(weights: Mapping[str, Tensor]) -> dict[str, Shape]:
    return {name: tuple(tensor.shape) for name, tensor in weights.items()}


# --- writing -------------------------------------------------------------------------------------------------------


def huggingface_obstacle(config: ModelConfig) -> str | None:
    """Return the reason why a model cannot be written for Hugging Face, or None if it can."""
    try:
        find_conversion(config)
    except RegardError as error:
        return str(error)
    return None


def find_conversion(config: ModelConfig) -> Conversion:
    """Find the family that can express a config, or raise an error that describes the nearest one."""
    nearest: tuple[int, str, str] | None = None
    exact: list[Conversion] = []
    for name, family in FAMILIES.items():
        try:
            conversion = convert_config(family, config)
        except RegardError as error:
            if isinstance(error, NotExpressibleError) and error.path == "model":
                continue  # a family of another kind of model, which is not near
            distance, reason = 10**3, str(error)
        else:
            if not conversion.differences:
                exact.append(conversion)
                continue
            distance, reason = len(conversion.differences), conversion.differences[0]
        if nearest is None or distance < nearest[0]:
            nearest = distance, name, reason
    if exact:
        return min(exact, key=lambda conversion: conversion.added_biases)
    if nearest is None:
        rule = f"no Hugging Face architecture can express this model, of kind {kind_of(type(config))}"
        raise RegardError(f"{rule}; regard writes {', '.join(FAMILIES)}")
    _, name, reason = nearest
    raise RegardError(f"no Hugging Face architecture can express this model; the nearest is {name}: {reason}")


def save_huggingface(model: nn.Module, folder: str | Path, details: Details = Details()) -> None:  # noqa: B008
    """Write a model as a Hugging Face folder. What cannot be expressed is rejected before anything is written."""
    model = unwrapped(model)
    if not isinstance(model, Model) or model.config is None:
        raise RegardError("only a model that was built from a recipe or a config can be saved; this one has no config")
    conversion = find_conversion(model.config)
    family, [architecture] = conversion.family, conversion.theirs["architectures"]
    ours = {name: tensor.detach() for name, tensor in tensors(model).items()}
    dtype = next(iter(ours.values())).dtype
    config = _complete_config(conversion, model, details, dtype)
    theirs = write_weights(family, architecture, _shapes(tensors(build_empty(conversion.read_back))), ours)
    theirs |= {name: tensor.to(dtype) for name, tensor in family.constants(config).items()}
    files = _split_into_files(theirs)
    tables = {CONFIG: config}
    if len(files) > 1:
        tables[INDEX] = _index(files, theirs)
    if family.architectures[architecture].task in GENERATING:
        ids = {key: value for key, value in token_id_keys(details).items() if value is not None}
        tables[GENERATION] = {**details.generation, **ids}
    with write_files(Path(folder), *files, *tables) as paths:
        for path, names in zip(paths, files.values(), strict=False):
            save_file({name: theirs[name].cpu().contiguous() for name in names}, path, metadata={"format": "pt"})
        for path, table in zip(paths[len(files) :], tables.values(), strict=True):
            path.write_text(json.dumps(table, indent=2) + "\n", encoding="utf-8")


def _complete_config(conversion: Conversion, model: Model, details: Details, dtype: torch.dtype) -> Table:
    """Return the content of config.json: the family's keys, and what is known besides the model."""
    ids = token_id_keys(details) if "vocab_size" in conversion.theirs else {}
    config = {**ids, **conversion.theirs, "dtype": str(dtype).removeprefix("torch.")}
    if details.pad is not None and config.get("pad_token_id") not in (None, details.pad):
        rule = f"{conversion.family.model_type} with these positions pads with token {config['pad_token_id']}"
        raise RegardError(f"{rule}, but the padding is token {details.pad}")
    if details.length is not None and model.longest() is None and "max_position_embeddings" in config:
        config["max_position_embeddings"] = details.length
    classes = config.pop("num_labels", None)
    if classes is not None:
        labels = details.labels or tuple(f"LABEL_{number}" for number in range(classes))
        if len(labels) != classes:
            raise RegardError(f"{len(labels)} labels were given for {classes} classes")
        config["id2label"] = {str(number): label for number, label in enumerate(labels)}
        config["label2id"] = {label: number for number, label in enumerate(labels)}
        config |= {} if details.problem is None else {"problem_type": details.problem}
    return config


def _split_into_files(weights: dict[str, Tensor]) -> dict[str, list[str]]:
    """Distribute the weights over files of limited size: file name -> names of weights."""
    groups: list[list[str]] = [[]]
    size = 0
    for name, tensor in weights.items():
        if groups[-1] and size + tensor.nbytes > MAX_FILE_BYTES:
            groups.append([])
            size = 0
        groups[-1].append(name)
        size += tensor.nbytes
    if len(groups) == 1:
        return {SINGLE_FILE: groups[0]}
    return {f"model-{number:05}-of-{len(groups):05}.safetensors": names for number, names in enumerate(groups, 1)}


def _index(files: dict[str, list[str]], weights: dict[str, Tensor]) -> Table:
    total = sum(tensor.nbytes for tensor in weights.values())
    return {
        "metadata": {"total_size": total},
        "weight_map": {name: file for file, names in files.items() for name in names},
    }
