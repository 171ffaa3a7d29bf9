"""Tokenised texts with their labels, as classification reads them: made from files once, and kept in the cache."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from textwrap import shorten

import numpy as np
import torch

from regard.data.batches import Indices
from regard.data.cache import CacheKey, digest
from regard.data.corpus import Corpus, CorpusWriter, cached_corpus
from regard.data.read import Skipped
from regard.data.tokenizer import Tokenizer
from regard.errors import InputError
from regard.models.template import text_template
from regard.tasks.loss import IGNORE
from regard.tasks.text import chunks_of, room_for_text, skips, with_skips


@dataclass(frozen=True)
class Labelled:
    """Tokenised texts with their labels; only `rows` of them are used."""

    corpus: Corpus
    labels: Indices
    classes: tuple[str, ...]
    rows: Indices

    @classmethod
    def open(
        cls,
        key: CacheKey,
        read: Callable[[Skipped], Iterable[tuple[str, str]]],
        tokenizer: Tokenizer,
        longest: int,
        skipped: Skipped,
        classes: tuple[str, ...],
    ) -> "Labelled":
        """Load the tokenised texts, or tokenise them: each between the start and the end token.

        `classes` are those that count; without any, all labels of the texts.
        """
        before, after = text_template(tokenizer, (tokenizer.start,), (tokenizer.end,))
        limit = room_for_text(longest, (before, after))
        found = Skipped()

        def write(writer: CorpusWriter) -> None:
            names: dict[str, int] = {}
            labels: list[int] = []
            for chunk in chunks_of(read(found)):
                for (_, label), ids in zip(chunk, tokenizer.encode([text for text, _ in chunk]), strict=True):
                    labels.append(names.setdefault(label, len(names)))
                    if len(ids) > limit:
                        found.note(f"end of a text of more than {longest} tokens", f"text {len(labels)}")
                    writer.add([np.concatenate((before, ids[:limit], after)).astype(np.int32)])
            writer.note(skipped=skips(found), labels=labels, names=list(names))

        corpus = cached_corpus(key.adding(tokenizer=tokenizer.fingerprint(), longest=longest), write)
        with_skips(corpus.facts, skipped)
        names = list(corpus.facts["names"])
        known = classes or tuple(sorted(names))
        places = {name: place for place, name in enumerate(known)}
        numbers = np.array([places.get(name, IGNORE) for name in names], np.int64)
        labels = numbers[np.array(corpus.facts["labels"], np.int64)]
        rows = np.flatnonzero(labels != IGNORE)
        if names and not len(rows):
            ours, theirs = (", ".join(shorten(name, 30) for name in some[:5]) for some in (names, known))
            there = f"none of its labels ({ours}) occurs in the training data ({theirs})"
            remedy = "choose the column of labels with task.label=NAME, or rename them"
            raise InputError(f"{key.files['files'][0]}: {there}; {remedy}")
        if len(rows) < len(labels):
            first = int(np.argmax(labels == IGNORE))
            place = f"text {first + 1}, {names[corpus.facts['labels'][first]]!r}"
            skipped.note("text of a label that the training data does not have", place, len(labels) - len(rows))
        return cls(corpus, labels, known, rows)

    @property
    def lengths(self) -> Indices:
        """The number of tokens of each text that is used."""
        return self.corpus.lengths[self.rows]

    def checksum(self) -> str:
        """Return a checksum of the tokens, the labels, and the numbers of the texts that are used."""
        return digest(*self.classes, self.corpus.checksum, self.labels, self.rows)

    def take(self, rows: Indices) -> "Labelled":
        """Return the same corpus with only some of the texts."""
        return Labelled(self.corpus, self.labels, self.classes, self.rows[rows])

    def to(self, device: torch.device) -> "Labelled":
        """Move the tokens to a device."""
        return Labelled(self.corpus.to(device), self.labels, self.classes, self.rows)
