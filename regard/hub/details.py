"""What a Hugging Face folder says beside the model: ids of tokens, names of classes, how long, how to write."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from regard.config import Table
from regard.errors import RegardError
from regard.hub.weights import read_json

CONFIG = "config.json"
GENERATION = "generation_config.json"
IDS = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id")
WRITING = (  # defaults of generation that mean something here, by their names
    "do_sample",
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repetition_penalty",
    "no_repeat_ngram_size",
    "num_beams",
    "length_penalty",
    "max_length",
    "max_new_tokens",
    "min_new_tokens",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "bad_words_ids",
    "suppress_tokens",
)


@dataclass(frozen=True)
class Details:
    """What is known beside the model; None or empty where nothing is.

    `length` is how many tokens the model was made for; `first` begins what a decoder writes about a source. `writing`
    holds defaults of generation by their own names (temperature, num_beams, ...).
    """

    length: int | None = None
    start: int | None = None
    end: tuple[int, ...] = ()
    pad: int | None = None
    first: int | None = None
    labels: tuple[str, ...] = ()
    writing: Mapping[str, Any] = field(default_factory=dict)


def read_details(folder: str | Path) -> Details:
    """Read what a Hugging Face folder says beside the model; generation_config.json counts more than config.json."""
    folder = Path(folder)
    config = read_json(folder / CONFIG)
    generation = read_json(folder / GENERATION) if (folder / GENERATION).exists() else {}
    both = {**config, **{key: value for key, value in generation.items() if value is not None}}
    start, end, pad, first = (_ids(both, key, folder) for key in IDS)
    length = config.get("max_position_embeddings", config.get("n_positions"))
    return Details(
        length=length if type(length) is int else None,
        start=start[0] if start else None,
        end=end,
        pad=pad[0] if pad else None,
        first=first[0] if first else None,
        labels=_labels(config, folder),
        writing={key: both[key] for key in WRITING if both.get(key) is not None},
    )


def _ids(table: Table, key: str, folder: Path) -> tuple[int, ...]:
    value = table.get(key)
    found = value if isinstance(value, list) else [] if value is None else [value]
    if not all(type(id) is int for id in found):
        raise RegardError(f"{folder}: {key}={value!r} must be the id of a token")
    return tuple(found)


def _labels(config: Table, folder: Path) -> tuple[str, ...]:
    labels = config.get("id2label") or {}
    if isinstance(labels, dict) and config.get("num_labels") not in (None, len(labels)):
        return ()  # old files count the classes, and name the two that every config had
    if not isinstance(labels, dict) or sorted(labels) != sorted(str(number) for number in range(len(labels))):
        raise RegardError(f"{folder / CONFIG}: id2label must name the classes 0, 1, 2, ...")
    return tuple(str(labels[str(number)]) for number in range(len(labels)))


def their_ids(details: Details) -> Table:
    """Give the keys of special tokens, also of those that there are not: a default of theirs may not exist here."""
    ends = details.end[0] if len(details.end) == 1 else list(details.end) or None
    table: Table = dict(zip(IDS, (details.start, ends, details.pad, details.first), strict=True))
    return table if details.first is not None else {key: table[key] for key in IDS[:3]}
