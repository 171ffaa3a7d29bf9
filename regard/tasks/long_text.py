"""What language and masked modelling share: all texts as one long row of tokens, a part of it for validation."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from math import ceil
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from regard.config import ColumnName, Count, Table
from regard.data.batches import Draw, Indices, passages, rows_for
from regard.data.cache import CacheKey, digest
from regard.data.columns import DOCUMENTS, FileReading
from regard.data.corpus import Corpus, CorpusWriter, cached_corpus
from regard.data.read import By, DocumentPart, Skipped, documents_reading, read_documents
from regard.data.tokenizer import Tokenizer, TokenizerConfig
from regard.errors import InputError
from regard.tasks.baselines import MOST_TOKENS
from regard.tasks.cautions import caution_passages
from regard.tasks.chunked_loss import model_loss
from regard.tasks.defaults import Amount
from regard.tasks.files import FileTaskConfig
from regard.tasks.loss import Losses
from regard.tasks.task import PASS_SECONDS, Batch, Task
from regard.tasks.text import (
    can,
    chunks_of,
    learn_tokenizer,
    name_part,
    paths,
    skips,
    spread,
    telling,
    text_key,
    with_skips,
)

CHARACTERS_BELOW = 3_000_000  # bytes of text below which characters work better than pieces
SHORTEST = 8  # tokens of a window, however little text there is

VALID_SHARE = 0.1  # of the text that is held out for validation when no file is given for it
VALID_TOKENS = 500_000  # at most
FEW = 20  # with at most this many texts, a text may be split to hold out a part for validation
AT_ONCE = 4096  # tokens in a batch of validation: their logits must fit into memory beside the training state
LEAST_WINDOWS = 128  # of the validation text that compare weights: 16,000 to 65,000 tokens


@dataclass(frozen=True, kw_only=True)
class TextConfig(FileTaskConfig):
    """Texts in plain files or tables. `documents` says what one text is; in a table, each row is one."""

    after_reading: ClassVar[tuple[str, ...]] = ("window",)
    length_key = "window"
    roles = DOCUMENTS
    letters: ClassVar[bool] = False  # whether characters are suggested for little text

    documents: By = "file"
    """What one text is in a plain file."""
    column: ColumnName | None = None
    """The column of a table that has the text, by name or number; absent: the one named text, or the only one."""
    header: bool | None = None
    """Whether the first row of a TSV or CSV names the columns; absent: if it looks like it."""
    window: Count = 256
    """Tokens in a row of a batch."""

    def suggest_length(self, device: str, positions: int | None) -> int | None:
        """Return the window: shorter for characters, on a CPU, and where there is little text."""
        size = self.text_bytes(self.train)
        letters = self.letters and size < CHARACTERS_BELOW
        window = (128 if letters else 256) if device == "cpu" else 512
        few = max(size // (16 if letters else 80), SHORTEST)  # so that the validation text has some windows, too
        return min(window, few, positions or window)

    def suggest_tokenizer(self, pieces: bool) -> Table | None:
        """Return characters for little text, which has too few repetitions for pieces; otherwise BPE."""
        letters = self.letters and self.text_bytes(self.train) < CHARACTERS_BELOW and not pieces
        return {"kind": "char" if letters else "bpe"}

    def open(self, config: TokenizerConfig, say: Callable[[str], None]) -> tuple[Tokenizer, Skipped, "Text", "Text"]:
        """Read, learn the tokenizer, tokenise; return it, what was skipped, and the texts to train and validate on."""
        skipped = Skipped()
        key = text_key(self, files=self.train)

        def texts() -> Iterator[str]:
            return (piece.text for piece in self.read(key, Skipped()))

        say("learning the tokenizer")
        tokenizer = learn_tokenizer(config, key, texts)
        say("tokenising")
        train = self.tokenise(key, tokenizer, skipped)
        if self.valid:
            valid = self.tokenise(text_key(self, files=self.valid), tokenizer, skipped)
        else:
            train, valid = train.split()
        self.check(train, self.train, "training", "give more text or lower task.window")
        self.check(valid, self.valid or self.train, "validation", "give more text or lower task.window")
        return tokenizer, skipped, train, valid

    def open_other(self, tokenizer: Tokenizer, files: list[str]) -> tuple[Tokenizer, Skipped, "Text", "Text"]:
        """Read and tokenise other files to measure a model on."""
        skipped = Skipped()
        text = self.tokenise(text_key(self, files=files), tokenizer, skipped)
        self.check(text, tuple(files), "measuring", "give more text")
        return tokenizer, skipped, text, text

    def check(self, text: "Text", files: tuple[str, ...], purpose: str, remedy: str) -> None:
        """Check that there is at least one window."""
        if text.tokens <= self.window:
            rule = f"{text.tokens} token{'s' * (text.tokens != 1)} for {purpose} are too few for windows of"
            raise InputError(f"{files[0]}: {rule} {self.window}; {remedy}")

    def read(self, key: CacheKey, skipped: Skipped) -> Iterator[DocumentPart]:
        """Read the pieces of all texts."""
        columns = self.column_options()
        return chain.from_iterable(
            read_documents(path, skipped, self.documents, columns) for path in key.files["files"]
        )

    def readings(self, files: Sequence[str] = ()) -> list[FileReading]:
        """Return how each file is read."""
        columns = self.column_options()
        names = files or (*self.train, *self.valid)
        return [documents_reading(path, self.documents, columns) for path in paths(names)]

    def tokenise(self, key: CacheKey, tokenizer: Tokenizer, skipped: Skipped) -> "Text":
        """Load the tokenised text, or tokenise it: an end token comes before every text and after the last.

        Words and bytes are counted in the text, because not every tokenizer decodes to the original text.
        """
        found = Skipped()

        def write(writer: CorpusWriter) -> None:
            end = np.array([tokenizer.end], np.int32)
            begins = True
            tail = Tail()
            for chunk in chunks_of(self.read(key, found), 64):
                for piece, ids in zip(chunk, tokenizer.encode([piece.text for piece in chunk]), strict=True):
                    if begins:
                        writer.add_piece(end, ends=False)
                    writer.add_piece(ids, ends=piece.ends)
                    tail.add(piece.text, len(ids), begins)
                    begins = piece.ends
            writer.add([end])
            held_out = tail.held_out()
            writer.note(
                skipped=skips(found),
                units=tail.units,
                held_out=held_out,
                held_out_units=tail.units_after(held_out, tokenizer),
            )

        corpus = cached_corpus(key.adding(tokenizer=tokenizer.fingerprint()), write)
        with_skips(corpus.facts, skipped)
        return Text(corpus, 0, corpus.tokens, Units(*corpus.facts["units"]))


class Units(NamedTuple):
    """How long a text is in units that do not depend on a tokenizer."""

    words: int
    bytes: int

    @staticmethod
    def of(text: str) -> "Units":
        """Count the units of a text; the end of a line, which is predicted too, counts as a word, as <eos> does."""
        return Units(len(text.split()) + text.count("\n"), len(text.encode()))


@dataclass(frozen=True)
class TailPiece:
    """A piece of text: its tokens begin at `first` in the corpus, after an end token if it `begins` a text."""

    text: str
    first: int
    tokens: int
    begins: bool


class Tail:
    """Counts a text while it is tokenised, and decides which part of its end is held out for validation.

    It keeps the text of the last pieces, so that words and bytes from any token on can be counted in the text itself.
    """

    def __init__(self) -> None:
        self.pieces: deque[TailPiece] = deque()
        self.tokens = self.texts = 0
        self.units = Units(0, 0)

    def add(self, text: str, tokens: int, begins: bool) -> None:
        """Add the next piece."""
        self.texts += begins
        self.tokens += begins
        self.pieces.append(TailPiece(text, self.tokens, tokens, begins))
        self.tokens += tokens
        self.units = _sum(self.units, Units.of(text))
        while len(self.pieces) > 1 and self.tokens - self.pieces[1].first > VALID_TOKENS:
            self.pieces.popleft()

    def held_out(self) -> int:
        """Return the token from which on the text is held out: whole texts, if there are many and the last is not too
        long.
        """
        tokens = self.tokens + 1  # with the end token after the last text
        keep = min(max(int(tokens * VALID_SHARE), 1), VALID_TOKENS)
        cut = tokens - keep
        starts = (piece.first - 1 for piece in self.pieces if piece.begins)
        whole = next((start for start in starts if start >= cut), tokens - 1)
        return whole if self.texts > FEW and tokens - whole > keep // 2 else cut

    def units_after(self, token: int, tokenizer: Tokenizer) -> Units:
        """Count what follows a token near the end."""
        total = Units(0, 0)
        for piece in self.pieces:
            inside = token + 1 - piece.first  # the first token of the piece that counts
            if inside <= 0:
                total = _sum(total, Units.of(piece.text))
            elif inside < piece.tokens:
                [spans] = tokenizer.spans([piece.text])
                total = _sum(total, Units.of(piece.text[min(spans[inside - 1][1], spans[inside][0]) :]))
        return total


def _sum(one: Units, other: Units) -> Units:
    return Units(one.words + other.words, one.bytes + other.bytes)


@dataclass(frozen=True)
class Text:
    """The tokens of a corpus from `begin` to `end`, as one long row; `units` are counted after the first token."""

    corpus: Corpus
    begin: int
    end: int
    units: Units

    @property
    def tokens(self) -> int:
        """The number of tokens."""
        return self.end - self.begin

    @property
    def texts(self) -> int:
        """The number of texts, or parts of texts; the end token after the last is not one."""
        first, last = np.searchsorted(self.corpus.starts, (self.begin, self.end - 1), "right")
        return int(last - first) + (self.end < self.corpus.tokens) or 1

    def split(self) -> tuple["Text", "Text"]:
        """Hold out the end for validation, as `Tail` chose it."""
        cut, valid = self.corpus.facts["held_out"], Units(*self.corpus.facts["held_out_units"])
        train = Units(self.units.words - valid.words, self.units.bytes - valid.bytes)
        return Text(self.corpus, self.begin, cut, train), Text(self.corpus, cut, self.end, valid)

    def checksum(self) -> str:
        """Return a checksum of the tokens and of where they begin and end in the corpus."""
        return digest(self.corpus.checksum, f"{self.begin} {self.end}")

    def windows(self, rows: Indices, width: int) -> Tensor:
        """Return rows of `width` tokens; an empty row repeats the first."""
        return self.corpus.windows(self.begin + np.maximum(rows, 0), width)

    def passage(self, longest: int) -> Tensor:
        """Return the beginning of one text, at most `longest` tokens, as a batch."""
        starts = self.corpus.starts[slice(*np.searchsorted(self.corpus.starts, (self.begin, self.end)))]
        lengths = np.diff(np.append(starts, self.end))
        starts, lengths = starts[lengths > 1], lengths[lengths > 1]  # without the end token after the last text
        if not len(starts):  # a part of one long text
            starts, lengths = np.array([self.begin]), np.array([self.tokens])
        lengths = np.minimum(lengths, longest)
        row = telling(lengths, longest)
        return self.corpus.windows(starts[[row]], int(lengths[row]))

    def documents(self, rows: Indices, width: int) -> Tensor:
        """Return the number of the text that each of these tokens belongs to."""
        return self.corpus.row_at(self.begin + np.maximum(rows, 0), width)

    def to(self, device: torch.device) -> "Text":
        """Move the tokens to a device."""
        return Text(self.corpus.to(device), self.begin, self.end, self.units)


class LongTextTask(Task):
    """A task whose rows are windows of one long text."""

    least_rows: int | None = LEAST_WINDOWS

    def __init__(self, config: TextConfig, tokenizer: Tokenizer, skipped: Skipped, train: Text, valid: Text) -> None:
        super().__init__(config, tokenizer, skipped)
        self.learned = tokenizer
        self.train, self.valid = train, valid

    def facts(self) -> dict[str, int]:
        """Count texts and tokens."""
        return {"texts": self.train.texts, "tokens": self.train.tokens, "validation tokens": self.valid.tokens}

    def fingerprint(self) -> str:
        """Combine the checksums of both texts."""
        return digest(self.train.checksum(), self.valid.checksum())

    def amount(self) -> Amount:
        """Return the texts and their tokens."""
        return Amount(self.train.texts, self.train.tokens)

    def longest(self) -> int:
        """Return the window."""
        return int(self.config.window)

    def usual_length(self) -> int:
        """Return the window, which all rows fill."""
        return self.longest()

    def needs(self) -> Table:
        """Return the vocabulary."""
        return {"vocabulary": self.learned.size}

    def counted_tokens(self) -> tuple[Indices, Indices]:
        """Return tokens to learn simple models from, and all validation tokens."""
        begin = np.array([0])
        train = self.train.windows(begin, min(self.train.tokens, MOST_TOKENS))
        return train[0].cpu().numpy(), self.valid.windows(begin, self.valid.tokens)[0].cpu().numpy()

    def cautions(self) -> Iterator[str]:
        """Yield a caution if the validation text is in the training text, too."""
        train, valid = self.counted_tokens()
        return caution_passages(train, valid, len(train) == self.train.tokens, self.learned.unk)

    def tokens_read(self) -> Indices:
        """Return the beginning of the validation text."""
        return self.valid.windows(np.array([0]), min(self.valid.tokens, MOST_TOKENS))[0].cpu().numpy()

    def validation_cost(self, rows: int | None = None) -> float:
        """Return the tokens that are read."""
        return float(self.valid.tokens if rows is None else min(self.valid.tokens, rows * self.config.window))

    def validation_latency(self, rows: int | None = None) -> float:
        """Return the seconds of the passes."""
        return PASS_SECONDS * ceil(self.validation_cost(rows) / AT_ONCE)

    def method(self, rows: int | None = None) -> str:
        """Return how much of the validation text is read, if not all."""
        return name_part(rows, self.valid.tokens // self.config.window, "windows")

    def passages(self, count: int, rows: int | None) -> Iterator[Draw]:
        """Yield the first `count` tokens of the validation text as windows: all, or this many, evenly spread."""
        width = self.config.window
        at_once = rows_for(AT_ONCE, (width,))
        if rows is None or rows >= count // width:
            return passages(count, width, at_once)
        starts = spread(np.arange(count // width) * width, rows)
        return (Draw((width,), starts[begin : begin + at_once], begin == 0) for begin in range(0, rows, at_once))

    def packs(self, model: nn.Module) -> bool:
        """Return whether several texts share a window and the model can keep them apart."""
        return max(self.train.texts, self.valid.texts) > 1 and can(model, "packs_documents")

    def logits(self, model: nn.Module, batch: Batch) -> Tensor:
        """Call the model."""
        logits: Tensor = model(batch["tokens"], **documents_of(batch))
        return logits

    def model_loss(self, model: nn.Module, batch: Batch) -> Losses:
        """Call the model and compare its logits with the labels."""
        return model_loss(model, batch["labels"], 0.0, batch["tokens"], **documents_of(batch))

    def probe(self, longest: int = 64) -> Batch:
        """Return the beginning of a text, at most a window."""
        return {"tokens": self.valid.passage(min(longest, self.config.window))}

    def to(self, device: torch.device) -> None:
        """Move the text to the device."""
        super().to(device)
        self.train, self.valid = self.train.to(device), self.valid.to(device)

    def release(self) -> None:
        """Release mapped pages."""
        self.train.corpus.release()


def documents_of(batch: Batch) -> Batch:
    """Return the documents of a batch as arguments: only batches of a model that can keep them apart have them."""
    return {name: batch[name] for name in ("documents",) if name in batch}
