"""Tokenised pairs of sentences: read once, kept in the cache, packed into rows."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
import torch

from regard.data.batches import EMPTY, Indices, Widths
from regard.data.cache import CacheKey, cached, digest
from regard.data.columns import ColumnOptions, FileReading
from regard.data.corpus import Corpus, CorpusWriter, cached_corpus
from regard.data.read import Skipped, pairs_reading, read_pairs
from regard.data.tokenizer import Tokenizer
from regard.models.template import text_template
from regard.tasks.text import chunks_of, paths, room_for_text, skips, with_skips
from regard.untrusted import parse_json

TEXTS = "texts.json"
GROWTH, LEAST_WIDTH = 2, 64  # of the rows of variants

TokenPair = tuple[np.ndarray, ...]  # the tokens of a source and of its target


@runtime_checkable
class PairReader(Protocol):
    """Files that hold pairs of texts."""

    def read(self, skipped: Skipped) -> Iterator[tuple[str, str]]:
        """Read the pairs of all files."""


@dataclass(frozen=True)
class PairFiles:
    """Files of pairs: sources with their targets, line by line, or tables alone, of which two columns are read."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    columns: ColumnOptions

    def sides(self) -> list[tuple[Path, Path | None]]:
        """Return each source with its target, or each table alone; a folder stands for the tables in it."""
        if self.target:
            return list(zip(map(Path, self.source), map(Path, self.target), strict=True))
        return [(path, None) for path in paths(self.source)]

    def read(self, skipped: Skipped) -> Iterator[tuple[str, str]]:
        """Read the pairs of all files."""
        for source, target in self.sides():
            yield from read_pairs(source, target, skipped, self.columns)

    def readings(self) -> list[FileReading]:
        """Return how each file is read."""
        return [pairs_reading(source, target, self.columns) for source, target in self.sides()]


class PairTokens:
    """Tokenises the pairs of files, and writes them as rows of a corpus; `Pairs.open` says what a `variant` is."""

    def __init__(
        self,
        files: PairFiles,
        tokenizer: Tokenizer,
        longest: int,
        variant: int | None,
        seed: int,
        widest: Widths,
    ) -> None:
        self.files, self.tokenizer, self.longest, self.variant, self.seed = files, tokenizer, longest, variant, seed
        self.widest = widest
        end = (tokenizer.end,)
        self.edges = text_template(tokenizer, (), end), ((), end)  # around a source, and around a target
        self.limit = room_for_text(longest, *self.edges)

    def write(self, writer: CorpusWriter) -> None:
        """Write the rows of all pairs, and note which pairs were too long."""
        skipped, dropped, line = Skipped(), [], 0
        for number, chunk in enumerate(chunks_of(self.files.read(skipped))):
            for plain, varied in self._tokenise(chunk, number):
                line += 1
                place = f"{self.files.source[0]}, pair {line}"
                if self._fits(plain):
                    writer.add(self._rows(varied if self._is_narrow(varied) else plain))
                elif self.variant is None:
                    skipped.note(f"end of a pair of more than {self.longest} tokens", place)
                    writer.add(self._rows(plain))
                else:
                    skipped.note(f"pair of more than {self.longest} tokens", place)
                    dropped.append(line - 1)
        writer.note(skipped=skips(skipped), dropped=dropped)

    def _tokenise(self, chunk: list[tuple[str, str]], number: int) -> Iterator[tuple[TokenPair, TokenPair]]:
        """Yield the tokens of each pair without BPE-dropout, and with it if this is such a variant."""
        texts = [[pair[side] for pair in chunk] for side in (0, 1)]
        plain = list(zip(self.tokenizer.encode(texts[0]), self.tokenizer.encode_target(texts[1]), strict=True))
        if not self.variant:
            return zip(plain, plain, strict=True)
        fits = [self._fits(pair) for pair in plain]  # the others are left out, so they are not tokenised again
        short = [[text if fit else "" for text, fit in zip(side, fits, strict=True)] for side in texts]
        seeds = [(self.seed, self.variant, number, side) for side in (0, 1)]
        return zip(plain, zip(*map(self.tokenizer.encode_varied, short, seeds), strict=True), strict=True)

    def _fits(self, pair: TokenPair) -> bool:
        return max(map(len, pair)) <= self.limit

    def _is_narrow(self, pair: TokenPair) -> bool:
        """Return whether the rows of a pair fit into the widest rows, on both sides."""
        rows = zip(pair, self.edges, self.widest, strict=True)
        return all(len(ids) + len(before) + len(after) <= width for ids, (before, after), width in rows)

    def _rows(self, pair: TokenPair) -> Iterator[np.ndarray]:
        """Yield the two rows of a pair, with their special tokens."""
        for ids, (before, after) in zip(pair, self.edges, strict=True):
            yield np.concatenate((before, ids[: self.limit], after)).astype(np.int32)


class Pairs:
    """Tokenised pairs: row 2i of the corpus is a source and row 2i + 1 its target; each ends with the end token.

    Only the pairs with the numbers `pairs` are used.
    """

    def __init__(self, corpus: Corpus, files: PairReader, key: CacheKey, pairs: Indices) -> None:
        self.corpus, self.files, self.key, self.pairs = corpus, files, key, pairs
        self.count = len(pairs)
        self.lengths = corpus.lengths.reshape(-1, 2)[pairs]

    def texts(self) -> list[tuple[str, str]]:
        """Return the pairs as in their files, because not every tokenizer decodes to the original text.

        They are read only once, from the same files as the tokens, and kept in the cache.
        """

        def write(folder: Path) -> None:
            dropped = set(self.corpus.facts["dropped"])
            kept = (pair for number, pair in enumerate(self.files.read(Skipped())) if number not in dropped)
            wanted = set(self.pairs.tolist())
            found = [pair for number, pair in enumerate(kept) if number in wanted]
            (folder / TEXTS).write_text(json.dumps(found, ensure_ascii=False), encoding="utf-8")

        key = self.key.adding(corpus=self.corpus.checksum, pairs=digest(self.pairs))
        entry = cached("pairs", key, write)
        return [(one, other) for one, other in parse_json((entry.folder / TEXTS).read_bytes(), entry.folder / TEXTS)]

    def checksum(self) -> str:
        """Return a checksum of the tokens and of the numbers of the pairs that are used."""
        return digest(self.corpus.checksum, self.pairs)

    def row(self, index: Indices, side: int) -> Indices:
        """Return the corpus row of one side (0: source, 1: target) of the pairs that are used; -1 stays -1."""
        return np.where(index < 0, EMPTY, 2 * self.pairs[index] + side)

    @classmethod
    def open(
        cls,
        files: PairFiles,
        key: CacheKey,
        tokenizer: Tokenizer,
        longest: int,
        skipped: Skipped,
        variant: int | None = None,
        seed: int = 0,
        widest: Widths | None = None,
    ) -> "Pairs":
        """Load the tokenised pairs, or tokenise them; `variant` numbers the results of BPE-dropout, 0 is without it.

        A variant follows from the seed. All variants have the same pairs: a pair that dropout makes longer than
        `widest`, on either side, is tokenised without it. Pairs that are too long are left out of training, and cut for
        validation (`variant` None): scores need the same sentences.
        """
        widest = widest or (longest, longest)
        tokens = PairTokens(files, tokenizer, longest, variant, seed, widest)
        tokens_key = key.adding(tokenizer=tokenizer.fingerprint(), longest=longest, cut=variant is None)
        if variant:
            tokens_key = tokens_key.adding(dropout=tokenizer.dropout, seed=seed, variant=variant, widest=widest)
        corpus = cached_corpus(tokens_key, tokens.write)
        if not variant:
            with_skips(corpus.facts, skipped)
        return cls(corpus, files, key, np.arange(corpus.rows // 2))

    def take(self, index: Indices) -> "Pairs":
        """Return the same corpus with only some of the pairs."""
        return Pairs(self.corpus, self.files, self.key, self.pairs[index])

    def to(self, device: torch.device) -> "Pairs":
        """Move the tokens to a device."""
        return Pairs(self.corpus.to(device), self.files, self.key, self.pairs)

    def widest(self, longest: int) -> Widths:
        """Return the most tokens of a row of each side of any variant: twice those of these pairs, at least 64.

        It must be known before the variants are made. BPE-dropout of 0.1 makes a text about a third longer.
        """
        found = self.lengths.max(0, initial=0)
        return tuple(min(longest, max(LEAST_WIDTH, GROWTH * int(length))) for length in found)

    def places(self, side: int, members: list[Indices], width: int) -> tuple[Indices, Indices]:
        """Return where in the corpus the tokens of packed rows are, and the pair of each; -1 where there is none."""
        counts = [len(group) for group in members]
        index = np.concatenate([np.empty(0, np.int64), *members])
        lengths = self.lengths[index, side]
        line = np.repeat(np.arange(len(members)), counts)
        ends = np.cumsum(lengths)
        before = np.repeat(np.concatenate(([0], ends))[np.concatenate(([0], np.cumsum(counts)))[:-1]], counts)
        column = (ends - lengths) - before  # where a sentence begins in its row
        within = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - lengths, lengths)
        place = (np.repeat(line, lengths), np.repeat(column, lengths) + within)
        found = np.full((len(members), width), EMPTY)
        documents = np.full((len(members), width), EMPTY)
        found[place] = np.repeat(self.corpus.starts[self.row(index, side)], lengths) + within
        documents[place] = np.repeat(np.arange(len(index)), lengths)
        return found, documents
