"""What the tasks on proteins share: their settings, folds without related sequences, and batches of chains."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from regard.config import Count, Table
from regard.data.batches import Indices
from regard.data.proteins import Chain, Structure, fold_of
from regard.data.read import Skipped
from regard.data.tokenizer import Tokenizer, TokenizerConfig, load_tokenizer, train_tokenizer
from regard.errors import ConfigError, InputError
from regard.models.residues import ALPHABET, GAP
from regard.tasks.cautions import caution_validation, hash_items
from regard.tasks.files import FileTaskConfig, name_files
from regard.tasks.loss import IGNORE
from regard.tasks.task import Task
from regard.tasks.text import paths

Item = TypeVar("Item")
Protein = TypeVar("Protein", Chain, Structure)
ProteinTask = TypeVar("ProteinTask", bound=Task)

HELD_OUT = 0.08  # the share of the chains that are kept for validation
ROWS_AT_ONCE = 1024  # residues that are validated together; pairs need memory for their square
WORD = 4  # residues of a word
RELATED = 0.15  # the share of common words from which two sequences are related


@dataclass(frozen=True, kw_only=True)
class ProteinTaskConfig(FileTaskConfig, Generic[Protein, ProteinTask]):
    """Files of proteins; some of them may be left out for a cross-validation, and long ones are seen in parts."""

    recipe = "annotator"
    models = ("evoformer",)
    row_name = "chain"  # what messages call a protein of the files
    passes = 60  # not compared; the best weights come earlier (docs/proteins.md)

    folds: Count = 7
    """Number of folds of a cross-validation."""
    fold: Count | None = None
    """The fold to leave out of training, and to measure with `regard evaluate`; absent: none is left out."""
    crop: Count = 128
    """Maximum number of residues of a training example; of longer chains, another part is seen every time."""

    def validate(self) -> None:
        """Check the rules between values."""
        super().validate()
        if self.fold is not None and self.folds < 2:
            raise ConfigError(f"{self.folds} must be at least 2, or nothing is left to train on", "folds")
        if self.fold is not None and not 1 <= self.fold <= self.folds:
            raise ConfigError(f"{self.fold} must be from 1 to {self.folds}, the number of folds", "fold")

    def suggest_tokenizer(self, pieces: bool) -> Table:
        """Return a tokenizer of letters."""
        return {"kind": "char"}

    def prepare(self, tokenizer: TokenizerConfig, seed: int, say: Callable[[str], None]) -> ProteinTask:
        """Read the files, without the fold that is left out."""
        skipped = Skipped()
        say(f"reading the {self.row_name}s")
        learned = protein_tokenizer(tokenizer)
        found, _ = by_fold(self.read(self.train, skipped), self.folds, self.fold)
        if self.valid:
            train, valid = found, self.read(self.valid, skipped)
        else:
            train, valid = hold_out_chains(found, self.train[0])
        self.check(train, "train on", self.train)
        self.check(valid, "validate on", self.valid or self.train)
        return self.open(learned, skipped, train, valid)

    def evaluation(self, tokenizer: Tokenizer, files: list[str]) -> ProteinTask:
        """Open other files to measure a model on: of a run that left out a fold, only the proteins of this fold."""
        skipped = Skipped()
        found = self.read(tuple(files), skipped)
        _, inside = by_fold(found, self.folds, self.fold)
        if others := len(found) - len(inside):
            skipped.note(f"{self.row_name} of another fold than {self.fold}", files[0], others)
        self.check(inside, "measure", files)
        return self.open(tokenizer, skipped, inside, inside)

    def read(self, files: tuple[str, ...], skipped: Skipped) -> list[Protein]:
        """Read all proteins of files."""
        raise NotImplementedError

    def check(self, found: Sequence[Protein], purpose: str, files: Sequence[str]) -> None:
        """Raise an error if nothing can be learned from these proteins, or measured on them."""

    def open(
        self, tokenizer: Tokenizer, skipped: Skipped, train: Sequence[Protein], valid: Sequence[Protein]
    ) -> ProteinTask:
        """Return the task for proteins to train on and to validate on."""
        raise NotImplementedError


def protein_tokenizer(config: TokenizerConfig) -> Tokenizer:
    """Return the tokenizer of residues and gaps; the same for all data."""
    if config.path is not None:
        return load_tokenizer(Path(config.path))
    if config.kind != "char":
        raise ConfigError(f"{config.kind!r} is not for proteins, whose tokens are residues; leave it out", "tokenizer")
    return train_tokenizer([ALPHABET], config)


def read_all(files: Sequence[str], read: Callable[[Path], Iterable[Item]], skipped: Skipped, name: str) -> list[Item]:
    """Read all files; at least one item must be there. `name` is what messages call one."""
    found = [item for path in paths(files) for item in read(path)]
    if not found:
        left_out = "; ".join(skipped.report())
        raise InputError(f"{name_files(files)}: no {name} is left; give other files{left_out and f' ({left_out})'}")
    return found


def caution_proteins(name: str, train: Sequence[Protein], valid: Sequence[Protein]) -> Iterator[str]:
    """Yield what is wrong with validation proteins: too few, or with the sequence of a training protein."""
    seen, held_out = (hash_items(each.sequence.encode() for each in side) for side in (train, valid))
    return caution_validation(name, seen, held_out)


# --- folds -----------------------------------------------------------------------------------------------------------


def in_fold(sequences: Sequence[str], folds: int, fold: int) -> list[bool]:
    """Return which sequences are in a fold; related ones are in the same."""
    found = [fold_of(sequences[first], folds) == fold for first in related_groups(sequences)]
    if all(found) or not any(found):
        what = "all" if all(found) else "none"
        rule = f"{what} of the {len(found)} chains are in fold {fold} of {folds}"
        raise InputError(f"{rule}; give more chains, or change task.fold or task.folds")
    return found


def by_fold(found: list[Protein], folds: int, fold: int | None) -> tuple[list[Protein], list[Protein]]:
    """Return what is outside a fold, to train on, and what is inside, to measure on; without a fold, all is both."""
    if fold is None:
        return found, found
    inside = in_fold([each.sequence for each in found], folds, fold)
    pairs = list(zip(found, inside, strict=True))
    return [each for each, is_inside in pairs if not is_inside], [each for each, is_inside in pairs if is_inside]


def hold_out_chains(found: list[Protein], place: str) -> tuple[list[Protein], list[Protein]]:
    """Return what to train on and what to validate on: see `split_chains`."""
    rows, held_out = split_chains([each.sequence for each in found], place)
    return [found[row] for row in rows], [found[row] for row in held_out]


def split_chains(sequences: Sequence[str], place: str) -> tuple[Indices, Indices]:
    """Split chains into those for training and those for validation, without a relative on the other side.

    The split does not depend on the seed of a run.
    """
    groups = related_groups(sequences)
    firsts = np.unique(groups)
    if len(firsts) < 2:
        rule = "all chains are related" if len(sequences) > 1 else "only one chain is left"
        raise InputError(f"{place}: {rule}, so none can be held out; give more, or others with --valid")
    count = max(int(len(firsts) * HELD_OUT), 1)
    held_out = np.isin(groups, np.random.default_rng(0).permutation(firsts)[:count])
    return np.flatnonzero(~held_out), np.flatnonzero(held_out)


def related_groups(sequences: Sequence[str], share: float = RELATED) -> Indices:
    """Return for each sequence the first one that it is related to, directly or through others.

    Two are related if they have this share of the words of four residues of the shorter one in common.
    """
    group = np.arange(len(sequences))
    counts = np.zeros(len(sequences), np.int64)  # of the different words of each sequence
    members: dict[str, list[int]] = {}  # the sequences so far that have a word
    for number, text in enumerate(sequences):
        words = {text[place : place + WORD] for place in range(len(text) - WORD + 1)} or {text}
        counts[number] = len(words)
        known = [members.setdefault(word, []) for word in words]
        others = np.fromiter((other for numbers in known for other in numbers), np.int64)
        common = np.bincount(others, minlength=number)
        related = group[np.flatnonzero(common >= share * np.minimum(counts[:number], len(words)))]
        group[np.isin(group, related)] = group[number] = min(related, default=number)
        for numbers in known:
            numbers.append(number)
    return group


# --- batches ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class EncodedChain:
    """A chain as numbers: its tokens, the other rows of its alignment, and the shares of all tokens in each column."""

    ids: Indices
    rows: NDArray[np.uint8]  # (rows, residues)
    profile: NDArray[np.float32]  # (residues, vocabulary)
    labels: NDArray[np.int64]  # of each residue
    gap: int

    @classmethod
    def of(cls, tokenizer: Tokenizer, sequence: str, alignment: Sequence[str], labels: Indices) -> "EncodedChain":
        """Encode a sequence with the other rows of its alignment."""
        ids = tokenizer.encode(sequence).astype(np.int64)
        rows = np.array(tokenizer.encode(list(alignment)), np.uint8).reshape(len(alignment), len(ids))
        gap = int(tokenizer.encode(GAP)[0])
        return cls(ids, rows, _profile(ids, rows, tokenizer.size), labels, gap)

    @property
    def alone(self) -> NDArray[np.float32]:
        """The profile of the sequence alone: 1 at its tokens."""
        return _profile(self.ids, self.rows[:0], self.profile.shape[1])

    def part(self, here: slice) -> "EncodedChain":
        """Return some residues in a row."""
        return replace(
            self, ids=self.ids[here], rows=self.rows[:, here], profile=self.profile[here], labels=self.labels[here]
        )

    def varied_profile(self, random: np.random.Generator) -> NDArray[np.float32]:
        """Return the profile of some of the rows, at least a quarter of them, so that training sees many profiles."""
        count = len(self.rows)
        chosen = random.permutation(count)[: int(random.integers(-(-count // 4), count + 1))]
        return _profile(self.ids, self.rows[chosen], self.profile.shape[1])

    def homolog(self, row: int, aligned: bool = False) -> "EncodedChain":
        """Return a row of the alignment as a chain of its own: without gaps, with the labels of its residues.

        If `aligned`, it has an alignment: the other rows, and the sequence, in the columns where it has residues.
        """
        kept = self.rows[row] != self.gap
        ids = self.rows[row, kept].astype(np.int64)
        rows = self.rows[:0]
        if aligned:
            rows = np.concatenate((self.ids[None].astype(np.uint8), self.rows[:row], self.rows[row + 1 :]))
        return replace(self, ids=ids, rows=rows[:, kept], profile=self.profile[kept], labels=self.labels[kept])


def random_part(length: int, most: int, random: np.random.Generator) -> slice:
    """Return which residues of a protein are an example: all, or `most` of them from a random place."""
    begin = int(random.integers(length - most + 1)) if length > most else 0
    return slice(begin, begin + most)


def _profile(ids: Indices, rows: NDArray[np.uint8], vocabulary: int) -> NDArray[np.float32]:
    """Return the share of each token in each column."""
    every = np.concatenate((ids[None], rows.astype(np.int64)))
    counts = np.zeros((len(ids), vocabulary), np.float32)
    np.add.at(counts, (np.broadcast_to(np.arange(len(ids)), every.shape), every), 1)
    counts /= len(every)
    return counts


def tables_of_rows(
    chains: Sequence[EncodedChain | None],
    width: int,
    tokenizer: Tokenizer,
    rows: int,
    random: np.random.Generator | None = None,
) -> dict[str, np.ndarray]:
    """Return the arguments of a model for chains padded to `width` (None: an empty row), and their labels.

    With `rows`, that many further rows of their alignments are among them, and their profiles. With a generator, rows
    are chosen at random, otherwise evenly spread.
    """
    count = len(chains)
    table: dict[str, np.ndarray] = {
        "tokens": np.full((count, width), tokenizer.pad, np.int64),
        "lengths": np.ones(count, np.int64),  # of an empty row, too: no row may have length 0
        "labels": np.full((count, width), IGNORE, np.int64),
    }
    if rows:
        table["alignment"] = np.full((count, rows, width), tokenizer.pad, np.int64)
        table["depths"] = np.zeros(count, np.int64)
        table["profile"] = np.zeros((count, width, tokenizer.size), np.float32)
    for place, chain in enumerate(chains):
        if chain is None:
            continue
        length = len(chain.ids)
        table["lengths"][place] = length
        table["tokens"][place, :length] = chain.ids
        if chain.labels.ndim == 1:
            table["labels"][place, :length] = chain.labels
        if rows:
            chosen = _some(len(chain.rows), rows, random)
            profile = chain.profile if random is None else chain.varied_profile(random)
            table["alignment"][place, : len(chosen), :length] = chain.rows[chosen]
            table["depths"][place] = len(chosen)
            table["profile"][place, :length] = profile
    return table


def _some(count: int, wanted: int, random: np.random.Generator | None) -> Indices:
    if count <= wanted:
        return np.arange(count)
    if random is None:
        return np.linspace(0, count - 1, wanted).astype(np.int64)
    return np.sort(random.choice(count, wanted, replace=False))
