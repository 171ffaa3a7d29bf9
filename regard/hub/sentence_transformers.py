"""Folders of sentence-transformers (Reimers, Gurevych 2019): modules.json says how the vectors of tokens become one.

A folder holds a Hugging Face model, then a pooling, and perhaps dense layers and a normalisation.
"""

import shutil
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from safetensors.torch import save_file
from torch import Tensor, nn

from regard.config import Table
from regard.errors import InputError, RegardError, choices
from regard.hub.weights import SINGLE_FILE, open_weights
from regard.models.init import without_memory
from regard.models.store import write_files
from regard.parts.pool import FIXED_POOLS
from regard.untrusted import parse_json, read_json

MODULES = "modules.json"
TRANSFORMER = "sentence_bert_config.json"
SETTINGS = "config_sentence_transformers.json"
TOKENIZER = "tokenizer_config.json"
MODULE = "config.json"  # of each module, in its folder
POOLS = {  # their names, in the order in which several are joined, and ours
    "cls": "first",
    "max": "max",
    "mean": "mean",
    "mean_sqrt_len_tokens": "mean-sqrt",
    "weightedmean": "position-weighted",
    "lasttoken": "last",
}
OLD_POOLS = {  # a flag for each in older files
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
ACTIVATIONS = {each.__name__: each for each in (nn.Tanh, nn.ReLU, nn.GELU, nn.SiLU, nn.Sigmoid, nn.Identity)}


class UnitLength(nn.Module):
    """y = x / |x|."""

    def forward(self, x: Float[Tensor, "B D"]) -> Float[Tensor, "B D"]:
        """Scale each vector to length 1."""
        return F.normalize(x, dim=-1)


@dataclass(frozen=True)
class SentenceEmbedding:
    """How a text becomes one vector: `prompt` + text -> tokens -> pooling -> layers -> its first `width` numbers."""

    pools: tuple[str, ...] = ("mean",)  # kinds of pools; the vectors of several are joined
    layers: nn.Sequential = field(default_factory=nn.Sequential)  # after pooling
    width: int | None = None  # numbers that are kept; None: all
    longest: int | None = None  # tokens of a text, with the special ones
    lower: bool = False  # whether texts become lower case
    prompt: str = ""  # put before every text

    def prepare(self, text: str) -> str:
        """Return what the tokenizer reads for a text; a blank text stays blank."""
        text = self.prompt + text if text.strip() else text
        return text.lower() if self.lower else text

    def __call__(self, x: Float[Tensor, "B T D"], positions: Int[Tensor, "B T"] | None) -> Float[Tensor, "B E"]:
        """Return the vector of each row from those of its tokens."""
        pooled = [FIXED_POOLS[name]().build(x.shape[2])(x, positions) for name in self.pools]
        vectors: Tensor = self.layers(torch.cat(pooled, -1).float())
        return vectors[:, : self.width]


def chosen_pool(name: str) -> SentenceEmbedding:
    """Return the embedding that only pools in this way."""
    if name not in list(FIXED_POOLS):  # a list, because a wrong name may be unhashable
        raise InputError(f"pool={name!r} is unknown; {choices(name, FIXED_POOLS)}")
    return SentenceEmbedding((name,))


# --- reading -------------------------------------------------------------------------------------------------------


def is_sentence_transformer(folder: str | Path) -> bool:
    """Return whether a folder says how texts become vectors, by its modules.json."""
    return (Path(folder) / MODULES).is_file()


def read_sentence_transformer(folder: str | Path, dim: int, allow_pickle: bool = False) -> SentenceEmbedding:
    """Read how a folder turns the token vectors of its model, of width `dim`, into vectors of texts."""
    folder = Path(folder)
    pools: tuple[str, ...] = ()
    layers: list[nn.Module] = []
    prompt, cut = _read_settings(folder)
    for kind, path in _list_modules(folder):
        if kind == "Transformer":
            continue
        place = folder / path / MODULE
        table = read_json(place) if place.exists() else {}
        if table.get("module_input_name", "sentence_embedding") != "sentence_embedding":
            raise _unsupported(place, "module_input_name", table["module_input_name"], "sentence_embedding")
        if kind == "Pooling":
            pools = _read_pools(table, place)
            _check_width(table.get("embedding_dimension", table.get("word_embedding_dimension", dim)), dim, place)
            if prompt and table.get("include_prompt") is False:
                raise _unsupported(place, "include_prompt", False, "true")
            dim *= len(pools)
        elif kind == "Dense":
            dense, activation = _read_dense(folder / path, table, dim, allow_pickle)
            dim = dense.out_features
            layers += [dense, activation]
        else:
            layers.append(UnitLength())
    longest, lower = _read_transformer(folder)
    return SentenceEmbedding(pools, nn.Sequential(*layers).eval(), cut, longest, lower, prompt)


def _list_modules(folder: Path) -> list[tuple[str, str]]:
    """Return the kind of each module and its folder: a Transformer, a Pooling, then Dense and Normalize."""
    place = folder / MODULES
    found = []
    for number, entry in enumerate(_read_list(place)):
        kind, path = (entry.get(key) if isinstance(entry, dict) else None for key in ("type", "path"))
        if not isinstance(kind, str) or not isinstance(path, str):
            raise RegardError(f"{place}: module {number} must have a type and a path")
        package, _, name = kind.rpartition(".")
        allowed = (("Transformer",), ("Pooling",))[number] if number < 2 else ("Dense", "Normalize")
        if not package.startswith("sentence_transformers.") or name not in allowed:
            order = "a Transformer, a Pooling, then Dense and Normalize are supported"
            raise RegardError(f"{place}: module {number} is {kind!r}; {order}")
        if number == 0 and path not in ("", "."):
            raise RegardError(f"{place}: the model is in {path!r}; move its files into {folder} and make the path ''")
        if number > 0 and (Path(path).name != path or path == ".."):
            raise RegardError(f"{place}: the path {path!r} must be a folder in this folder")
        found.append((name, path))
    if len(found) < 2:
        raise RegardError(f"{place}: names {len(found)} modules; a Transformer and a Pooling are needed")
    return found


def _read_list(place: Path) -> list[Any]:
    try:
        found = parse_json(place.read_bytes(), place)
    except OSError as error:
        raise RegardError(f"{place}: cannot be read: {error.strerror}") from None
    if not isinstance(found, list):
        raise RegardError(f"{place}: must contain a list of modules")
    return found


def _read_pools(table: Table, place: Path) -> tuple[str, ...]:
    named = table.get("pooling_mode")
    if named is None:
        named = [name for flag, name in OLD_POOLS.items() if table.get(flag)] or ["mean"]
    names = named if isinstance(named, list) else [named]
    for name in names:
        if name not in list(POOLS):  # a list, because a wrong name may be unhashable
            raise RegardError(f"{place}: unknown pooling_mode {name!r}; {choices(name, POOLS)}")
    return tuple(POOLS[name] for name in names)


def _read_dense(folder: Path, table: Table, dim: int, allow_pickle: bool) -> tuple[nn.Linear, nn.Module]:
    place = folder / MODULE
    _check_width(table.get("in_features"), dim, place)
    if table.get("use_residual"):
        raise _unsupported(place, "use_residual", True, "false")
    activation = str(table.get("activation_function", "torch.nn.Tanh"))
    name = activation.rpartition(".")[2]
    if not activation.startswith("torch.nn.") or name not in ACTIVATIONS:
        raise _unsupported(place, "activation_function", activation, f"torch.nn.{', '.join(ACTIVATIONS)}")
    weights = open_weights(folder, allow_pickle)
    size, bias = table.get("out_features"), table.get("bias", True) is not False
    wanted = {"linear.weight": (size, dim), **({"linear.bias": (size,)} if bias else {})}
    if weights.shapes != wanted:
        raise RegardError(f"{weights.place}: holds {dict(weights.shapes)}, but {place} requires {wanted}")
    with without_memory():
        dense = nn.Linear(dim, int(str(size)), bias=bias)
    found = {name.removeprefix("linear."): weights.get(name).float() for name in wanted}
    dense.load_state_dict(found, assign=True)
    return dense, ACTIVATIONS[name]()


def _check_width(found: object, dim: int, place: Path) -> None:
    if found != dim:
        raise RegardError(f"{place}: is for vectors of width {found!r}, but those before it have {dim}")


def _unsupported(place: Path, key: str, value: object, supported: str) -> RegardError:
    return RegardError(f"{place}: {key}={value!r} is not supported; only {supported}")


def _read_settings(folder: Path) -> tuple[str, int | None]:
    """Return the text before every text, and how many numbers of a vector are kept."""
    place = folder / SETTINGS
    table = read_json(place) if place.exists() else {}
    prompts, name, width = table.get("prompts") or {}, table.get("default_prompt_name"), table.get("truncate_dim")
    prompt = "" if name is None else prompts.get(str(name)) if isinstance(prompts, dict) else None
    if not isinstance(prompt, str):
        raise RegardError(f"{place}: default_prompt_name={name!r} must be the name of one of its prompts")
    if width is not None and not (type(width) is int and width > 0):
        raise RegardError(f"{place}: truncate_dim={width!r} must be a whole number, at least 1")
    return prompt, width


def _read_transformer(folder: Path) -> tuple[int | None, bool]:
    """Return how many tokens of a text are read, and whether it becomes lower case."""
    place = folder / TRANSFORMER
    table = read_json(place) if place.exists() else {}
    task = table.get("transformer_task", "feature-extraction")
    if task != "feature-extraction":
        raise _unsupported(place, "transformer_task", task, "feature-extraction")
    length = table.get("max_seq_length")
    if length is None and (folder / TOKENIZER).exists():
        length = read_json(folder / TOKENIZER).get("model_max_length")
    if length is not None and not (type(length) in (int, float) and 1 <= length < inf):
        raise RegardError(f"{place}: max_seq_length={length!r} must be a number of tokens, at least 1")
    return None if length is None else int(length), table.get("do_lower_case") is True


# --- writing -------------------------------------------------------------------------------------------------------


def write_sentence_transformer(embedding: SentenceEmbedding, source: Path, folder: Path) -> None:
    """Write the modules of the folder `source`, which `embedding` was read from, into another folder.

    Settings are copied as they are; weights are written as safetensors, whatever they were read from.
    """
    for name in (MODULES, TRANSFORMER, SETTINGS):
        if (source / name).exists():
            shutil.copyfile(source / name, folder / name)
    dense = iter(layer for layer in embedding.layers if isinstance(layer, nn.Linear))
    for kind, path in _list_modules(source):
        if kind == "Transformer":
            continue
        (folder / path).mkdir()
        if (source / path / MODULE).exists():
            shutil.copyfile(source / path / MODULE, folder / path / MODULE)
        if kind == "Dense":
            tensors = {f"linear.{name}": tensor.contiguous() for name, tensor in next(dense).state_dict().items()}
            with write_files(folder / path, SINGLE_FILE) as (weights,):
                save_file(tensors, weights, metadata={"format": "pt"})
