"""What a Hugging Face folder says besides the model: token ids, class labels, maximum length, generation defaults."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from regard.config import Table
from regard.errors import RegardError
from regard.untrusted import read_json

CONFIG = "config.json"
GENERATION = "generation_config.json"
IDS = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id")
MULTI_LABEL, REGRESSION = "multi_label_classification", "regression"
PROBLEMS = ("single_label_classification", MULTI_LABEL, REGRESSION)
GENERATION_KEYS = (  # generation defaults that are kept; `generation_defaults` says which ones are used
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
    "min_length",
    "min_new_tokens",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "bad_words_ids",
    "suppress_tokens",
)


@dataclass(frozen=True)
class Details:
    """What is known besides the model; None or empty where nothing is known.

    `length` is the number of tokens that the model was made for; `decoder_start` is the first token of a decoder's
    output. `problem` is their `problem_type`: what the scores of a classifier mean. `generation` holds generation
    defaults under their Hugging Face names (temperature, num_beams, ...).
    """

    length: int | None = None
    start: int | None = None
    end: tuple[int, ...] = ()
    pad: int | None = None
    decoder_start: int | None = None
    labels: tuple[str, ...] = ()
    problem: str | None = None
    generation: Mapping[str, Any] = field(default_factory=dict)


def read_details(folder: str | Path) -> Details:
    """Read what a Hugging Face folder says besides the model; generation_config.json overrides config.json."""
    folder = Path(folder)
    config = read_json(folder / CONFIG)
    generation = read_json(folder / GENERATION) if (folder / GENERATION).exists() else {}
    merged = {**config, **{key: value for key, value in generation.items() if value is not None}}
    start, end, pad, decoder_start = (_ids(merged, key, folder) for key in IDS)
    length = config.get("max_position_embeddings", config.get("n_positions"))
    return Details(
        length=length if type(length) is int else None,
        start=start[0] if start else None,
        end=end,
        pad=pad[0] if pad else None,
        decoder_start=decoder_start[0] if decoder_start else None,
        labels=_labels(config, folder),
        problem=_problem(config, folder),
        generation={key: merged[key] for key in GENERATION_KEYS if merged.get(key) is not None},
    )


def _ids(table: Table, key: str, folder: Path) -> tuple[int, ...]:
    value = table.get(key)
    found = value if isinstance(value, list) else [] if value is None else [value]
    if not all(type(id) is int for id in found):
        raise RegardError(f"{folder}: {key}={value!r} must be a token id")
    return tuple(found)


def _labels(config: Table, folder: Path) -> tuple[str, ...]:
    labels = config.get("id2label") or {}
    if isinstance(labels, dict) and config.get("num_labels") not in (None, len(labels)):
        return ()  # old files have the right num_labels, but always two entries in id2label
    if not isinstance(labels, dict) or sorted(labels) != sorted(str(number) for number in range(len(labels))):
        raise RegardError(f"{folder / CONFIG}: id2label must name the classes 0, 1, 2, ...")
    return tuple(str(labels[str(number)]) for number in range(len(labels)))


def _problem(config: Table, folder: Path) -> str | None:
    problem = config.get("problem_type")
    if problem is not None and problem not in PROBLEMS:
        raise RegardError(f"{folder / CONFIG}: problem_type={problem!r} must be one of {', '.join(PROBLEMS)}")
    return problem


def token_id_keys(details: Details) -> Table:
    """Return the keys of special tokens, null where there is none: Hugging Face's default might not be a token here."""
    ends = details.end[0] if len(details.end) == 1 else list(details.end) or None
    table: Table = dict(zip(IDS, (details.start, ends, details.pad, details.decoder_start), strict=True))
    return table if details.decoder_start is not None else {key: table[key] for key in IDS[:3]}
