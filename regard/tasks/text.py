"""What the tasks on text share: learning a tokenizer from files, tokenising them once, choosing rows to show."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from threading import main_thread
from typing import Any

import numpy as np
import tokenizers
import torch
from torch import Tensor, nn

from regard.config import to_table
from regard.data.batches import Draw, Indices
from regard.data.cache import CacheKey, cached
from regard.data.corpus import Corpus
from regard.data.device import to_device
from regard.data.read import Skipped, files_below
from regard.data.tokenizer import Tokenizer, TokenizerConfig, load_tokenizer, train_tokenizer
from regard.errors import ConfigError, InputError, RegardError
from regard.models.template import Ids
from regard.tasks.defaults import TaskConfig
from regard.tasks.loss import IGNORE
from regard.tasks.task import HELD_OUT, HELD_OUT_ROWS

CHUNK = 4096  # texts that are tokenised together
LETTERS = 1 << 22  # characters of them, at most


def text_key(config: TaskConfig, **files: Sequence[str]) -> CacheKey:
    """Return the key of the texts that a task reads from files, given by role; all that is made of them adds to it.

    Every setting of the task counts, except for those that its class lists in `after_reading`. So a new setting can
    never give the texts of another. Read the files of the key: those of a folder may change.
    """
    ignored = {*config.file_keys, *config.after_reading}
    settings = {name: value for name, value in to_table(config).items() if name not in ignored}
    roles = {role: paths(names) for role, names in files.items()}
    return CacheKey(roles, {"task": settings, "library": tokenizers.__version__})


def learn_tokenizer(config: TokenizerConfig, key: CacheKey, texts: Callable[[], Iterable[str]]) -> Tokenizer:
    """Learn a tokenizer from the texts that `key` describes, or load the one that was learned from them before."""
    if config.path is not None:
        return load_tokenizer(Path(config.path), config.dropout)
    made_from = key.adding(tokenizer=to_table(config))
    entry = cached("tokenizers", made_from, lambda folder: _learn(config, key, texts).save(folder))
    return load_tokenizer(entry.folder, config.dropout)


def _learn(config: TokenizerConfig, key: CacheKey, texts: Callable[[], Iterable[str]]) -> Tokenizer:
    """Learn a tokenizer; if there is no text to learn from, raise an error that names the file."""
    nothing = False

    def noticed() -> Iterator[str]:
        nonlocal nothing
        found = False
        for text in texts():
            found = found or bool(text.strip())
            yield text
        nothing = not found

    try:
        return train_tokenizer(noticed(), config)
    except RegardError:
        if not nothing:
            raise
        first = next(path for paths in key.files.values() for path in paths)
        raise InputError(f"{first}: holds no text to learn from; give files that hold some") from None


def paths(names: Sequence[str]) -> list[Path]:
    """Return names as paths; a folder stands for the text files and tables in it."""
    return [path for name in names for path in files_below(Path(name))]


def room_for_text(longest: int, *templates: tuple[Ids, Ids]) -> int:
    """Return how many tokens of a text fit between the special tokens of each template."""
    special = max(len(before) + len(after) for before, after in templates)
    if longest <= special:
        rule = f"{longest} must be at least {special + 1}: {special} for special tokens and one for the text"
        raise ConfigError(rule, "task.longest")
    return longest - special


def chunks_of(items: Iterable[Any], size: int = CHUNK) -> Iterator[list[Any]]:
    """Yield tuples of texts, or parts of documents, as lists that fit into memory, whatever their number and length.

    In another thread than the main one this ends with an error when the program ends, which would wait for it.
    """
    chunk: list[Any] = []
    letters = 0
    for item in items:
        chunk.append(item)
        letters += sum(map(len, item)) if isinstance(item, tuple) else len(item.text)
        if len(chunk) == size or letters >= LETTERS:
            yield chunk
            chunk, letters = [], 0
            if not main_thread().is_alive():
                raise RegardError("the program ends")
    if chunk:
        yield chunk


def with_skips(facts: dict[str, Any], skipped: Skipped) -> None:
    """Add what was skipped when a cached corpus was written."""
    for reason, count, place in facts["skipped"]:
        skipped.note(reason, place, count)


def skips(skipped: Skipped) -> list[tuple[str, int, str]]:
    """Return what was skipped, to be saved with a corpus."""
    return [(reason, count, skipped.first[reason]) for reason, count in skipped.counts.items()]


def hold_out(rows: int) -> tuple[Indices, Indices]:
    """Split rows at random into those for training and those for validation: at least one, if there are two.

    The split does not depend on the seed of a run, so that runs with several seeds are measured on the same rows.
    """
    order = np.random.default_rng(0).permutation(rows)
    count = min(HELD_OUT_ROWS, int(rows * HELD_OUT)) or min(rows - 1, 1)
    return np.sort(order[count:]), np.sort(order[:count])


def spread(rows: Indices, count: int | None) -> Indices:
    """Return `count` rows, evenly spread; all, if there are fewer."""
    if count is None or count >= len(rows):
        return rows
    return rows[np.linspace(0, len(rows) - 1, count).astype(np.int64)]


def name_part(rows: int | None, total: int, unit: str) -> str:
    """Return how much a validation measures, if not all: "1,000 of 2,000 images"."""
    return "" if rows is None or rows >= total else f"{rows:,} of {total:,} {unit}"


def flat_rows(corpus: Corpus, rows: Indices) -> tuple[Indices, Indices]:
    """Return the tokens of rows, one after the other, and the length of each row."""
    lengths = corpus.lengths[rows]
    within = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    places = np.repeat(corpus.starts[rows], lengths) + within
    return corpus.gather(places[None], 0)[0].cpu().numpy(), lengths


def shown(count: int) -> Indices:
    """Return the numbers of three of `count` rows to show, from the middle; fewer if there are fewer."""
    return spread(np.arange(count), 5)[1:-1] if count >= 5 else np.arange(min(count, 3))


def telling(lengths: Indices, longest: int) -> int:
    """Return the row to watch while a model learns: of those with at most `longest` tokens, one that is longer than
    most but not the longest, so that there is something to see; the shortest, if all are longer.
    """
    fitting = max(int(np.count_nonzero(lengths <= longest)), 1)
    return int(np.argsort(lengths, kind="stable")[(fitting - 1) * 3 // 4])


def shortened(corpus: Corpus, row: int, longest: int) -> Tensor:
    """Return one row as a batch; a row that is too long keeps its beginning and its last token."""
    length = int(corpus.lengths[row])
    tokens = corpus.padded(np.array([row]), length, 0)
    return tokens if length <= longest else torch.cat((tokens[:, : longest - 1], tokens[:, -1:]), 1)


def can(model: nn.Module, ability: str) -> bool:
    """Return whether a model has an ability such as `packs_documents`; a module of the user may lack the attribute."""
    return bool(getattr(model, ability, False))


def lengths_of(lengths: Indices, draw: Draw, device: torch.device) -> Tensor:
    """Return the lengths of the rows of a draw; an empty row counts one token, because no row may have length 0."""
    found = np.where(draw.rows < 0, 1, np.minimum(lengths[draw.rows], draw.shape[0]))
    return to_device(found, device)


def ignore_empty(labels: Tensor, draw: Draw) -> Tensor:
    """Set the labels of empty rows to `IGNORE`."""
    empty = to_device(draw.rows < 0, labels.device)
    return labels.masked_fill(empty.reshape(-1, *[1] * (labels.ndim - 1)), IGNORE)
