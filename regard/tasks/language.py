"""Language modelling: every token from those before it; perplexity per token and per word, bits per byte.

One token ends a text and begins the next, as GPT-2's <|endoftext|> does. Attention reads windows of the whole text,
packed texts hidden from each other; recurrence reads it in parallel lanes and carries its state from window to
window, where the gradient is cut (truncated backpropagation through time, Williams, Peng 1990).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from regard.config import Count, Table
from regard.data.batches import EMPTY, Draw, Indices, Order, Streams, Windows, rows_for
from regard.data.corpus import Corpus, CorpusWriter, cached_corpus, file_key
from regard.data.read import Piece, Skipped, read_documents
from regard.data.tokenizer import Tokenizer, TokenizerConfig
from regard.decode.greedy import continue_text
from regard.errors import ConfigError, InputError
from regard.models.language import LanguageModel
from regard.models.model import Model
from regard.parts.recurrent import Recurrent
from regard.parts.state import Hidden, State
from regard.tasks.loss import IGNORE, Losses, cross_entropy
from regard.tasks.metric import perplexities
from regard.tasks.sample import Sample
from regard.tasks.task import Batch, Task
from regard.tasks.text import attends, in_chunks, learn_tokenizer, mixers, paths, skips, with_skips

By = Literal["file", "line", "blank-line"]

VALID_SHARE = 0.1  # of the text is kept for validation when no file is given for it,
VALID_TOKENS = 500_000  # and at most so many tokens
FEW = 20  # so few texts are not kept whole when one part is kept for validation


@dataclass(frozen=True, kw_only=True)
class TextConfig:
    """Texts in plain files or tables. `documents` says what one text is; rows of a table are texts anyway."""

    train: tuple[str, ...]
    valid: tuple[str, ...] = ()
    documents: By = "file"
    column: str | None = None
    window: Count = 256  # tokens in a row

    def __post_init__(self) -> None:
        if not self.train:
            raise ConfigError("train must name at least one file")

    def open(self, config: TokenizerConfig, say: Callable[[str], None]) -> tuple[Tokenizer, Skipped, "Text", "Text"]:
        """Read, learn the tokenizer, tokenise; give the part for training and the part for validation."""
        skipped = Skipped()

        def texts() -> Iterator[str]:
            return (piece.text for piece in self.read(self.train, Skipped()))

        say("learning the tokenizer")
        tokenizer = learn_tokenizer(config, paths(self.train), texts)
        say("tokenising")
        train = self.tokenise(self.train, tokenizer, skipped)
        if self.valid:
            valid = self.tokenise(self.valid, tokenizer, skipped)
        else:
            train, valid = train.split()
        self.check(train, self.train, "training", "give more text or lower task.window")
        self.check(valid, self.valid or self.train, "validation", "give more text or lower task.window")
        return tokenizer, skipped, train, valid

    def open_other(self, tokenizer: Tokenizer, files: list[str]) -> tuple[Tokenizer, Skipped, "Text", "Text"]:
        """Read and tokenise other files, to measure a model on."""
        skipped = Skipped()
        text = self.tokenise(tuple(files), tokenizer, skipped)
        self.check(text, tuple(files), "measuring", "give more text")
        return tokenizer, skipped, text, text

    def check(self, text: "Text", files: tuple[str, ...], purpose: str, remedy: str) -> None:
        """See that there is at least one window."""
        if text.tokens <= self.window:
            rule = f"{text.tokens} tokens for {purpose} are too few for windows of {self.window}"
            raise InputError(f"{files[0]}: {rule}; {remedy}")

    def read(self, files: tuple[str, ...], skipped: Skipped) -> Iterator[Piece]:
        """Read the pieces of all texts."""
        return chain.from_iterable(read_documents(path, skipped, self.documents, self.column) for path in paths(files))

    def tokenise(self, files: tuple[str, ...], tokenizer: Tokenizer, skipped: Skipped) -> "Text":
        """Find the tokenised text, or tokenise it: every text begins with the end token, and one stands at the end."""
        key = {
            "text": [file_key(path) for path in paths(files)],
            "tokenizer": tokenizer.fingerprint(),
            "documents": self.documents,
            "column": self.column or "",
        }
        found = Skipped()

        def write(writer: CorpusWriter) -> None:
            end = np.array([tokenizer.end], np.int32)
            begins = True
            for chunk in in_chunks(self.read(files, found), 64):
                for piece, ids in zip(chunk, tokenizer.encode([piece.text for piece in chunk]), strict=True):
                    if begins:
                        writer.add_piece(end, ends=False)
                    writer.add_piece(ids, ends=piece.ends)
                    begins = piece.ends
            writer.add([end])
            writer.note(skipped=skips(found))

        corpus = cached_corpus(key, write)
        with_skips(corpus.facts, skipped)
        return Text(corpus, 0, corpus.tokens)


@dataclass(frozen=True)
class Text:
    """The tokens of a corpus from `begin` to `end`, as one long row."""

    corpus: Corpus
    begin: int
    end: int

    @property
    def tokens(self) -> int:
        """How many."""
        return self.end - self.begin

    @property
    def texts(self) -> int:
        """How many texts it has, or parts of texts; the end token behind the last is none."""
        first, last = np.searchsorted(self.corpus.starts, (self.begin, self.end - 1), "right")
        return int(last - first) + (self.end < self.corpus.tokens) or 1

    def split(self) -> tuple["Text", "Text"]:
        """Keep the end for validation: whole texts, if there are many and the last is not too long for that."""
        keep = min(int(self.tokens * VALID_SHARE), VALID_TOKENS)
        cut = self.end - keep
        whole = int(self.corpus.starts[np.searchsorted(self.corpus.starts, cut)])
        if self.texts > FEW and self.end - whole > keep // 2:
            cut = whole
        return Text(self.corpus, self.begin, cut), Text(self.corpus, cut, self.end)

    def windows(self, rows: Indices, width: int) -> Tensor:
        """Rows of `width` tokens; an empty row repeats the first."""
        return self.corpus.windows(self.begin + np.maximum(rows, 0), width)

    def documents(self, rows: Indices, width: int) -> Tensor:
        """The number of the text that each of those tokens belongs to."""
        return self.corpus.row_at(self.begin + np.maximum(rows, 0), width)

    def to(self, device: torch.device) -> "Text":
        """Bring the tokens to a device."""
        return Text(self.corpus.to(device), self.begin, self.end)

    def count_units(self, tokenizer: Tokenizer) -> tuple[int, int]:
        """Count words and bytes of the text that the tokens stand for."""
        words = letters = 0
        for begin in range(self.begin, self.end, 1 << 16):
            ids = self.corpus.windows(np.array([begin]), min(1 << 16, self.end - begin))
            (text,) = tokenizer.decode(ids.tolist())
            words += len(text.split())
            letters += len(text.encode())
        return words, letters


@dataclass(frozen=True, kw_only=True)
class LanguageTaskConfig(TextConfig):
    """Texts to model."""

    def prepare(self, tokenizer: TokenizerConfig, seed: int, say: Callable[[str], None]) -> "Language":
        """Read, learn the tokenizer, tokenise."""
        return Language(self, *self.open(tokenizer, say))

    def evaluation(self, tokenizer: Tokenizer, files: list[str]) -> "Language":
        """Open other files to measure a model on."""
        return Language(self, *self.open_other(tokenizer, files))


class Language(Task):
    """L = -sum_t log p(x_t | x_<t)."""

    name = "language"
    metric = "loss"

    def __init__(self, config: TextConfig, tokenizer: Tokenizer, skipped: Skipped, train: Text, valid: Text) -> None:
        super().__init__(config, tokenizer, skipped)
        self.train, self.valid = train, valid
        self.packed = False
        self.carries = False
        self._units: tuple[int, int] | None = None

    def facts(self) -> dict[str, int]:
        """Texts and tokens."""
        return {"texts": self.train.texts, "tokens": self.train.tokens, "validation tokens": self.valid.tokens}

    def needs(self) -> Table:
        """The vocabulary."""
        assert self.tokenizer is not None
        return {"vocabulary": self.tokenizer.size}

    def order(self, model: Model, tokens: int, parts: int, seed: int) -> Order:
        """Windows for attention, lanes for recurrence."""
        self.bind(model)
        width = self.config.window
        rows = rows_for(tokens, (width,), parts)
        if self.carries:
            most = (self.train.tokens - 1) // width  # with more lanes, none would be as long as a window
            return Streams(self.train.tokens, width, min(rows, most // parts * parts or most))
        return Windows(self.train.tokens, width, rows, seed)

    def bind(self, model: Model) -> None:
        """See what the model can do: keep packed texts apart, or carry a state."""
        self.packed = max(self.train.texts, self.valid.texts) > 1 and attends(model)
        self.carries = all(isinstance(mixer, Recurrent) for mixer in mixers(model))

    def batch(self, draw: Draw, epoch: int) -> Batch:
        """Tokens and what follows each."""
        batch = self.rows(self.train, draw)
        if self.carries:
            batch["begins"] = torch.full((len(draw.rows),), draw.begins, device=self.device)
        return batch

    def rows(self, text: Text, draw: Draw) -> Batch:
        """The rows of a draw of either part."""
        width = self.config.window
        tokens = text.windows(draw.rows, width + 1)
        empty = torch.from_numpy(draw.rows == EMPTY).to(self.device, non_blocking=True)
        batch = {"tokens": tokens[:, :-1], "labels": tokens[:, 1:].masked_fill(empty[:, None], IGNORE)}
        if self.packed:
            batch["documents"] = text.documents(draw.rows, width)
        return batch

    def loss(self, model: Model, batch: Batch) -> tuple[Losses, Batch]:
        """Cross-entropy of what follows; a recurrent model goes on from the state it is given, and gives the next."""
        if not self.carries:
            logits = model(batch["tokens"], documents=batch.get("documents"))
            return cross_entropy(logits, batch["labels"]), {}
        assert isinstance(model, LanguageModel)
        state = model.start(len(batch["tokens"]))
        _put(state, batch)
        logits = model(batch["tokens"], state=state)
        return cross_entropy(logits, batch["labels"]), _take(state)

    @torch.no_grad()
    def measure(self, model: Model, rows: int | None = None) -> dict[str, float]:
        """Loss and perplexities over the whole validation text, window by window."""
        self.bind(model)
        width = self.config.window
        sums = torch.zeros(2, device=self.device, dtype=torch.float64)
        lanes = min(16 if self.carries else 64, (self.valid.tokens - 1) // width)
        carried: Batch = {}
        for draw in Streams(self.valid.tokens, width, lanes).epoch(0):
            batch = self.rows(self.valid, draw)
            losses, carried = self.loss(model, batch | carried)
            sums += torch.stack((losses.loss.double(), losses.count.double()))
        loss, count = sums.tolist()
        words, letters = self.units()
        whole = loss / count * self.valid.tokens  # as if the rest after the last window were like the others
        return {"loss": loss / count, **perplexities(whole, self.valid.tokens, words, letters)}

    def units(self) -> tuple[int, int]:
        """Words and bytes of the validation text."""
        assert self.tokenizer is not None
        if self._units is None:
            self._units = self.valid.count_units(self.tokenizer)
        return self._units

    def samples(self, model: Model) -> list[Sample]:
        """Let the model go on with two beginnings of validation text."""
        assert isinstance(model, LanguageModel)
        assert self.tokenizer is not None
        width = min(32, self.config.window // 2)
        starts = np.linspace(0, self.valid.tokens - 2 * width, 4).astype(np.int64)[1:-1]
        text = self.valid.windows(starts, 2 * width)
        generator = torch.Generator(self.device).manual_seed(0)
        forbidden = (self.tokenizer.pad, self.tokenizer.unk, self.tokenizer.start, self.tokenizer.mask)
        made = continue_text(model, text[:, :width], width, 0.8, generator, forbidden)
        decode = self.tokenizer.decode
        rows = zip(decode(text[:, :width].tolist()), decode(text[:, width:].tolist()), decode(made), strict=True)
        return [Sample(*texts) for texts in rows]

    def to(self, device: torch.device) -> None:
        """Bring the text to the device."""
        super().to(device)
        self.train, self.valid = self.train.to(device), self.valid.to(device)

    def release(self) -> None:
        """Give mapped pages back."""
        self.train.corpus.release()


def _put(state: State, batch: Batch) -> None:
    """Let a state go on from what the last window left, unless a new epoch begins."""
    if "begins" not in batch and not any(key.startswith("carried") for key in batch):
        return
    for place, layer in enumerate(state.layers):
        for name, part in layer.items():
            assert isinstance(part, Hidden)
            found = [batch.get(f"carried.{place}.{name}.{index}") for index in range(len(part.values))]
            part.values = tuple(
                value if old is None else _unless(batch.get("begins"), old, value)
                for old, value in zip(found, part.values, strict=True)
            )


def _unless(begins: Tensor | None, old: Tensor, new: Tensor) -> Tensor:
    return old if begins is None else torch.where(begins[:, None], new, old)


def _take(state: State) -> Batch:
    """What the next window needs, cut off from the gradient."""
    return {
        f"carried.{place}.{name}.{index}": value.detach()
        for place, layer in enumerate(state.layers)
        for name, part in layer.items()
        if isinstance(part, Hidden)
        for index, value in enumerate(part.values)
    }
