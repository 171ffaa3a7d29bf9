"""Language modelling: every token from those before it; perplexity per token and per word, bits per byte.

One token ends a text and begins the next, as GPT-2's <|endoftext|> does. Attention reads windows of the whole text,
packed texts hidden from each other; recurrence reads it in parallel lanes and carries its state from window to
window, where the gradient is cut (truncated backpropagation through time, Williams, Peng 1990).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from regard.config import Table
from regard.data.batches import Draw, Order, Streams, Windows, passages, rows_for, whole_streams
from regard.data.read import Skipped
from regard.data.tokenizer import Tokenizer, TokenizerConfig
from regard.decode.choose import Sampling
from regard.decode.engine import Given, eager, in_use
from regard.decode.rows import fitting
from regard.decode.sample import sample_all
from regard.models.language import LanguageModel
from regard.models.model import Model
from regard.parts.recurrent import Recurrent
from regard.parts.state import Hidden, State
from regard.tasks.defaults import Amount
from regard.tasks.long_text import AT_ONCE, LongTextTask, Text, TextConfig
from regard.tasks.loss import Losses, cross_entropy
from regard.tasks.metric import perplexities
from regard.tasks.sample import Sample
from regard.tasks.task import Batch
from regard.tasks.text import ignore_empty, mixers

LANES = 16  # in which recurrence reads what it is measured on: each begins without a memory, so there are few


@dataclass(frozen=True, kw_only=True)
class LanguageTaskConfig(TextConfig):
    """Texts to model."""

    recipe = "writer"
    models = ("language",)
    hub_task = "language"
    letters = True

    def suggest_model(self, size: str, amount: Amount) -> Table:
        """Return dropout for all but the smallest model."""
        return {"layers": {"block": {"dropout": 0.0 if size == "tiny" else 0.1}}}

    def suggest_optimizer_kind(self, pretrained: bool) -> str:
        """Return Muon, which learns from a text in fewer updates; what it is not for (tables, LSTMs) gets AdamW."""
        return "adamw" if pretrained else "muon"

    def suggest_schedule_kind(self, optimizer: str, pretrained: bool) -> str:
        """Return the schedule that is usual with Muon."""
        return "linear" if pretrained or optimizer == "muon" else "cosine"

    def prepare(self, tokenizer: TokenizerConfig, seed: int, say: Callable[[str], None]) -> "Language":
        """Read, learn the tokenizer, tokenise."""
        return Language(self, *self.open(tokenizer, say))

    def evaluation(self, tokenizer: Tokenizer, files: list[str]) -> "Language":
        """Open other files to measure a model on."""
        return Language(self, *self.open_other(tokenizer, files))


class Language(LongTextTask):
    """L = -sum_t log p(x_t | x_<t)."""

    name = "language"
    metric = "loss"

    def __init__(self, config: TextConfig, tokenizer: Tokenizer, skipped: Skipped, train: Text, valid: Text) -> None:
        super().__init__(config, tokenizer, skipped, train, valid)
        self.carries = False  # whether the model remembers the window before
        self._units: tuple[int, int] | None = None

    def order(self, model: Model, tokens: int, seed: int) -> Order:
        """Windows for attention, lanes for recurrence."""
        self.bind(model)
        width = self.config.window
        rows = rows_for(tokens, (width,))
        if self.carries:
            most = (self.train.tokens - 1) // width  # with more lanes, none would be as long as a window
            return Streams(self.train.tokens, width, min(rows, most))
        return Windows(self.train.tokens, width, rows, seed)

    def bind(self, model: Model) -> None:
        """See what the model can do: keep packed texts apart, or carry a state."""
        super().bind(model)
        self.carries = all(isinstance(mixer, Recurrent) for mixer in mixers(model))

    def batch(self, draw: Draw, epoch: int) -> Batch:
        """Tokens and what follows each."""
        batch = self.rows(self.train, draw)
        if self.carries:
            batch["begins"] = torch.full((len(draw.rows),), draw.begins, device=self.device)
        return batch

    def rows(self, text: Text, draw: Draw) -> Batch:
        """The rows of a draw of either part."""
        (width,) = draw.shape
        tokens = text.windows(draw.rows, width + 1)
        batch = {"tokens": tokens[:, :-1], "labels": ignore_empty(tokens[:, 1:], draw)}
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
        """Loss and perplexities over the whole validation text, window by window; only its first token is given."""
        self.bind(model)
        width, count = self.config.window, self.valid.tokens - 1
        if self.carries:
            draws = whole_streams(count, width, min(LANES, count // width))
        else:
            draws = passages(count, width, rows_for(AT_ONCE, (width,)))
        total = torch.zeros((), device=self.device, dtype=torch.float64)
        carried: Batch = {}
        for draw in draws:
            before = {} if draw.begins else carried
            losses, carried = self.loss(model, self.rows(self.valid, draw) | before)
            total += losses.loss.double()
        loss = float(total)
        return {"loss": loss / count, **perplexities(loss, count, *self.units())}

    def units(self) -> tuple[int, int]:
        """Words and bytes of the validation text."""
        if self._units is None:
            self._units = self.valid.count_units(self.learned)
        return self._units

    def samples(self, model: Model) -> list[Sample]:
        """Let the model go on with two beginnings of validation text."""
        assert isinstance(model, LanguageModel)
        width = max(min(32, self.config.window // 2), 1)
        starts = np.linspace(0, self.valid.tokens - 2 * width, 4).astype(np.int64)[1:-1]
        text = self.valid.windows(starts, 2 * width)
        given = Given(text[:, :width])
        with in_use(model):
            made = sample_all(
                eager(model),
                given,
                end=(),  # one text goes over into the next, as in what was wanted
                limits=fitting(model, given, [width] * len(text)),
                sampling=Sampling(temperature=0.8),
                seeds=list(range(len(text))),
                forbidden=(self.learned.pad, self.learned.unk, self.learned.start, self.learned.mask),
            )
        decode = self.learned.decode
        rows = zip(decode(text[:, :width].tolist()), decode(text[:, width:].tolist()), decode(made), strict=True)
        return [Sample(*texts) for texts in rows]


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
