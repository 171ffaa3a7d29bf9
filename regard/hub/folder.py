"""A Hugging Face folder, read and written: `load`, `save`, and whether a config can be saved at all."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from regard.config import Table, from_table, to_table
from regard.errors import ConfigError, RegardError, choices
from regard.hub import table
from regard.hub.changes import Shape
from regard.hub.details import CONFIG, GENERATION, Details, their_ids
from regard.hub.express import Expressed, UnlikeError, express
from regard.hub.families import FAMILIES
from regard.hub.theirs import Theirs
from regard.hub.weights import DTYPES, INDEX, WHOLE, Weights, open_weights, read_json
from regard.models.model import Model
from regard.models.recipe import Recipe, build_empty
from regard.models.store import fill, tensors, writing

LARGEST = 5 * 10**9  # bytes in one file
SIZES = {  # keys of our config that are sizes of some weight
    *("depth", "dim", "vocabulary", "source_vocabulary", "length", "offset", "segments", "classes"),
    *("heads", "kv_heads", "head_dim", "rank", "query_rank", "plain", "turned", "value", "buckets"),
    *("hidden", "experts", "shared", "patch", "channels"),
}
NAMES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32, "float64": torch.float64}


def is_huggingface(folder: str | Path) -> bool:
    """Tell whether a folder is one of Hugging Face, by its config.json."""
    path = Path(folder) / CONFIG
    return path.is_file() and "model_type" in read_json(path)


# --- reading -------------------------------------------------------------------------------------------------------


def load(
    folder: str | Path,
    device: str | torch.device = "cpu",
    dtype: torch.dtype | None = None,
    allow_pickle: bool = False,
) -> Model:
    """Read a model of Hugging Face as one of ours, in the precision it has there unless given.

    Nothing in the folder is run. On the CPU the weights stay in the file until they are used.
    """
    family, theirs, weights = _open(Path(folder), allow_pickle)
    architecture = theirs.architecture
    model = _build(family, theirs, weights).to(dtype or _dtype(theirs.table, weights))
    ours = tensors(model)
    shapes = _shapes(ours)
    named = table.check(family, architecture, shapes, weights.shapes, weights.place)
    for name in named.values():
        if weights.dtypes[name] not in DTYPES.values() and not family.is_ignored(name):
            raise RegardError(f"{weights.place}: {name} is not in a floating point of 16 bits or more")
    read = table.read(family, architecture, shapes, named, weights.get, weights.place)
    read |= {name: torch.zeros(ours[name].shape) for name in ours if family.is_own(name)}
    fill(model, {name: tensor.to(device, ours[name].dtype) for name, tensor in read.items()}, device)
    return model


def read_config(folder: str | Path, ends: tuple[str, ...] = (), allow_pickle: bool = False) -> Any:
    """Read our config of a model of Hugging Face, without its weights.

    With `ends` it gets another head, if its own architecture has no such name but another of the family has.
    """
    family, theirs, weights = _open(Path(folder), allow_pickle)
    if ends and not theirs.architecture.endswith(ends):
        others = [name for name in family.heads if name.endswith(ends)]
        theirs = (
            Theirs({**theirs.table, "architectures": others[:1]}, theirs.weights, theirs.place) if others else theirs
        )
    return _build(family, theirs, weights).config


def _open(folder: Path, allow_pickle: bool) -> tuple[table.Family, Theirs, Weights]:
    """Open the files of a folder, and find its family."""
    place = str(folder / CONFIG)
    found = read_json(folder / CONFIG)
    family = FAMILIES.get(str(found.get("model_type")))
    if family is None:
        named = found.get("model_type")
        trouble = "has no model_type" if named is None else f"model_type={named!r} is not known here"
        raise RegardError(f"{place}: {trouble}; {choices(named, FAMILIES)}")
    weights = open_weights(folder, allow_pickle)
    theirs = Theirs(found, frozenset(weights.shapes), place)
    if theirs.architecture not in family.heads:
        known = choices(theirs.architecture, family.heads)
        raise RegardError(f"{place}: the head of {theirs.architecture} is not known here; {known}")
    return family, theirs, weights


def _build(family: table.Family, theirs: Theirs, weights: Weights) -> Model:
    """Build the model without memory, every value of our config checked as if it were written by hand.

    A size that is larger than all weights together is a mistake, or an attack: it is found before anything is built.
    """
    try:
        config = family.from_hf(theirs)
        theirs.finish(family.ignored_keys)
        written = to_table({"model": config})
        for name, size in _sizes(written, ""):
            if size > weights.numbers:
                raise ConfigError(f"{size} is more than all {weights.numbers} numbers in the files", name)
        return build_empty(from_table(written, Recipe).model)
    except ConfigError as error:
        reason = str(error).replace("\n", "; ")
        raise RegardError(f"{theirs.place}: describes no model that can be built: {reason}") from None


def _sizes(written: Any, path: str) -> list[tuple[str, int]]:
    """List the numbers in our config that are sizes of weights."""
    if not isinstance(written, dict):
        return []
    found: list[tuple[str, int]] = []
    for key, value in written.items():
        here = f"{path}.{key}" if path else key
        found += [(here, value)] if key in SIZES and isinstance(value, int) else _sizes(value, here)
    return found


def _dtype(found: Mapping[str, Any], weights: Weights) -> torch.dtype:
    named = NAMES.get(str(found.get("dtype", found.get("torch_dtype"))))
    return named or next((dtype for dtype in weights.dtypes.values() if dtype is not None), torch.float32)


def _shapes(ours: dict[str, Tensor]) -> dict[str, Shape]:
    return {name: tuple(tensor.shape) for name, tensor in ours.items()}


# --- writing -------------------------------------------------------------------------------------------------------


def exportable(config: Any) -> str | None:
    """Give the reason why a config cannot be written for Hugging Face; None if it can."""
    try:
        choose(config)
    except RegardError as error:
        return str(error)
    return None


def choose(config: Any) -> Expressed:
    """Choose the family that says the same as a config, or raise the reason of the nearest one."""
    best: tuple[int, str, str] | None = None
    fits: list[Expressed] = []
    for name, family in FAMILIES.items():
        try:
            said = express(family, config)
        except RegardError as error:
            far = isinstance(error, UnlikeError) and error.path == "model"  # not even the same kind of model
            score, reason = (10**6 if far else 10**3), str(error)
        else:
            if not said.differences:
                fits.append(said)
                continue
            score, reason = len(said.differences), said.differences[0]
        if best is None or score < best[0]:
            best = score, name, reason
    if fits:
        return min(fits, key=lambda said: said.filled)
    assert best is not None
    raise RegardError(f"no model of Hugging Face says the same; the nearest is {best[1]}: {best[2]}")


def save(model: nn.Module, folder: str | Path, details: Details = Details()) -> None:  # noqa: B008
    """Write a model as a folder of Hugging Face; what cannot be said there is refused before anything is written."""
    model = getattr(model, "_orig_mod", model)  # as it was before torch.compile
    if not isinstance(model, Model) or model.config is None:
        raise RegardError("only a model that a recipe or a config has built can be saved; this one has no config")
    said = choose(model.config)
    weights = tensors(model)
    [architecture] = said.theirs["architectures"]
    shapes = _shapes(tensors(build_empty(said.image)))
    theirs = table.write(said.family, architecture, shapes, {name: weights[name].detach() for name in weights})
    dtype = next(iter(weights.values())).dtype
    config = _their_config(said, model, details, dtype)
    theirs |= {name: tensor.to(dtype) for name, tensor in said.family.constants(config).items()}
    files = _parts(theirs)
    texts = {CONFIG: config}
    if len(files) > 1:
        total = sum(tensor.nbytes for tensor in theirs.values())
        where = {name: file for file, names in files.items() for name in names}
        texts[INDEX] = {"metadata": {"total_size": total}, "weight_map": where}
    if "ForCausalLM" in architecture or "LMHead" in architecture or config.get("is_encoder_decoder"):
        given = {key: value for key, value in their_ids(details).items() if value is not None}
        texts[GENERATION] = {**details.writing, **given}
    with writing(Path(folder), *files, *texts) as paths:
        for path, names in zip(paths, files.values(), strict=False):
            save_file({name: theirs[name].cpu().contiguous() for name in names}, path, metadata={"format": "pt"})
        for path, text in zip(paths[len(files) :], texts.values(), strict=True):
            path.write_text(json.dumps(text, indent=2) + "\n", encoding="utf-8")


def _their_config(said: Expressed, model: Model, details: Details, dtype: torch.dtype) -> Table:
    """Add to the config of the family what is known beside the model."""
    ids = their_ids(details) if "vocab_size" in said.theirs else {}
    config = {**ids, **said.theirs, "dtype": str(dtype).removeprefix("torch.")}
    if details.pad is not None and config.get("pad_token_id") not in (None, details.pad):
        rule = f"{said.family.model_type} with these positions pads with token {config['pad_token_id']}"
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
    return config


def _parts(weights: dict[str, Tensor]) -> dict[str, list[str]]:
    """Spread the weights over files of a size that can be handled: the names in each."""
    parts: list[list[str]] = [[]]
    size = 0
    for name, tensor in weights.items():
        if parts[-1] and size + tensor.nbytes > LARGEST:
            parts.append([])
            size = 0
        parts[-1].append(name)
        size += tensor.nbytes
    if len(parts) == 1:
        return {WHOLE: parts[0]}
    return {f"model-{number:05}-of-{len(parts):05}.safetensors": names for number, names in enumerate(parts, 1)}
