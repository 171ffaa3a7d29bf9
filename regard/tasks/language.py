"""Language modelling: predict every token from those before it; perplexity per token and word, bits per byte.

One token ends a text and starts the next, as GPT-2's <|endoftext|> does. Attention reads windows of the whole text,
with packed texts hidden from each other. Recurrence reads it in parallel lanes and carries its state from window to
window, where the gradient is cut (truncated backpropagation through time, Williams, Peng 1990).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from math import ceil

import numpy as np
import torch
from torch import Tensor, nn

from regard.config import Count, Table
from regard.data.batches import Draw, Order, Streams, Windows, overlapping, rows_for, whole_streams
from regard.data.read import Skipped
from regard.data.tokenizer import Tokenizer, TokenizerConfig
from regard.decode.choose import Sampling
from regard.decode.engine import Given
from regard.decode.rows import fit_limits
from regard.decode.sample import sample_all
from regard.decode.static import KeptEngine
from regard.errors import ConfigError, NotFiniteError
from regard.models.model import writes
from regard.parts.precision import at_least_float32
from regard.parts.state import Hidden, State
from regard.tasks.baselines import Baseline, bigram_loss, unigram_loss
from regard.tasks.chunked_loss import model_loss
from regard.tasks.defaults import LITTLE, Amount
from regard.tasks.long_text import AT_ONCE, LongTextTask, Text, TextConfig, documents_of
from regard.tasks.loss import IGNORE, Losses
from regard.tasks.metric import perplexities
from regard.tasks.neural_cache import NeuralCache
from regard.tasks.sample import Sample
from regard.tasks.task import Batch, Feed
from regard.tasks.text import can, ignore_empty

LANES = 16  # parallel rows of validation text for recurrence; few, because each starts with an empty state


@dataclass(frozen=True, kw_only=True)
class LanguageTaskConfig(TextConfig):
    """Texts to model."""

    recipe = "writer"
    models = ("language",)
    hub_task = "language"
    letters = True
    passes = 15
    after_reading = ("window", "stride", "neural_cache")

    stride: Count | None = None
    """Tokens by which a window of validation text is ahead of the one before; absent: the window. With less, all tokens
    have at least window - stride tokens of context. A recurrent model always has all of it."""
    neural_cache: Count | None = None
    """Tokens of the text before that a neural cache keeps in validation (Grave et al. 2017); the perplexity with it is
    measured besides the one of the model alone. Absent: there is none."""

    def validate(self) -> None:
        """Check the rules between values."""
        super().validate()
        if self.stride is not None and self.stride > self.window:
            raise ConfigError(f"stride={self.stride} must be at most the window, {self.window}, or tokens are left out")

    def suggest_model(self, size: str, amount: Amount) -> Table:
        """Return dropout for all but the smallest model, more for little text, which is read many times."""
        dropout = 0.0 if size in ("mini", "tiny") else 0.25 if amount.tokens < LITTLE else 0.1
        return {"layers": {"block": {"dropout": dropout}}}

    def suggest_optimizer_kind(self, pretrained: bool) -> str:
        """Return Muon, which needs fewer updates; weights that it does not suit (tables, convolutions) get AdamW."""
        return "adamw" if pretrained else "muon"

    def suggest_optimizer(self, kind: str, dim: int, pretrained: bool) -> Table:
        """Return more decay for little text: the loss on tinyshakespeare is 1.40 with 0.2, and 1.43 with 0.01."""
        found = super().suggest_optimizer(kind, dim, pretrained)
        return found | {"decay": 0.2} if kind == "muon" and not pretrained and self.is_little(self.train) else found

    def suggest_schedule_kind(self, optimizer: str, pretrained: bool) -> str:
        """Return the schedule that is usual with Muon."""
        return "linear" if pretrained or optimizer == "muon" else "cosine"

    def prepare(self, tokenizer: TokenizerConfig, seed: int, say: Callable[[str], None]) -> "Language":
        """Read the texts, learn the tokenizer, tokenise."""
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
        self._engine = KeptEngine()
        if self.config.stride is not None or self.config.neural_cache is not None:
            self.least_rows = None  # each window needs those before it

    def feed(self, model: nn.Module, tokens: int, seed: int) -> Feed:
        """Return windows for attention, lanes for recurrence."""
        width = self.config.window
        rows = rows_for(tokens, (width,))
        most = (self.train.tokens - 1) // width  # with more lanes, none would be as long as a window
        carries, packs = can(model, "carries_state"), self.packs(model)
        order: Order = Windows(self.train.tokens, width, rows, seed)
        if carries:
            order = Streams(self.train.tokens, width, min(rows, most))
        return Feed(order, lambda draw, epoch: self.rows(self.train, draw, carries, packs))

    def rows(self, text: Text, draw: Draw, carries: bool, packs: bool) -> Batch:
        """Return the rows of a draw: tokens and what follows each.

        If the model carries a state, `begins` says where it is reset; if it packs texts, `documents` numbers them.
        """
        (width,) = draw.shape
        tokens = text.windows(draw.rows, width + 1)
        batch = {"tokens": tokens[:, :-1], "labels": ignore_empty(tokens[:, 1:], draw)}
        if carries:
            batch["begins"] = torch.full((len(draw.rows),), draw.begins, device=self.device)
        if packs:
            batch["documents"] = text.documents(draw.rows, width)
        return batch

    def loss(self, model: nn.Module, batch: Batch) -> tuple[Losses, Batch]:
        """Compute the cross-entropy of what follows; a recurrent model continues from the state of the last window."""
        if "begins" not in batch:
            return self.model_loss(model, batch), {}
        assert writes(model)
        state = model.begin(batch["tokens"])
        _restore_state(state, batch)
        return model_loss(model, batch["labels"], 0.0, batch["tokens"], state=state), _carried_state(state)

    @torch.no_grad()
    def measure(self, model: nn.Module, rows: int | None = None) -> dict[str, float]:
        """Measure loss and perplexities on the whole validation text, window by window, given its first token.

        Of a part, words and bytes are not known, so only the loss and the perplexity for each token are measured.
        """
        carries, packs = can(model, "carries_state"), self.packs(model)
        draws = list(self._draws(carries, None if self.least_rows is None else rows))
        count = sum(len(draw.rows) * (draw.shape[0] - context) for draw, context in draws)
        total = torch.zeros(2, device=self.device, dtype=torch.float64)  # by the model alone, and with a cache
        size = self.config.neural_cache
        carried: dict[int, Batch] = {}  # by the number of the part
        caches: dict[int, NeuralCache] = {}
        for draw, context in draws:
            whole = self.rows(self.valid, draw, carries, packs)
            whole["labels"][:, :context] = IGNORE
            for number, part in enumerate(self.split_batch(whole)):
                batch = part if draw.begins else part | carried.get(number, {})  # {}: the model carries no state
                if size is None:
                    losses, carried[number] = self.loss(model, batch)
                    total += losses.loss.double()
                    continue
                predictions, carried[number] = _predictions(model, batch)
                lane = number if carries else 0  # lanes are read side by side, windows one after the other
                if lane not in caches or (carries and draw.begins):
                    caches[lane] = NeuralCache(size)
                total += caches[lane].losses(*(predictions if carries else _in_one_row(*predictions)))
        loss, cached_loss = total.tolist()
        found = {"loss": loss / count, **perplexities(loss, count, *self.valid.units)}
        if count < self.valid.tokens - 1:
            return {name: found[name] for name in ("loss", "perplexity")}
        if size is not None:
            cached = perplexities(cached_loss, count, *self.valid.units)
            found |= {f"cached_{name}": cached[name] for name in ("perplexity", "word_perplexity")}
        return found

    def _draws(self, carries: bool, rows: int | None) -> Iterator[tuple[Draw, int]]:
        """Yield the draws of validation, and how many tokens at the beginning of their rows are only context.

        Of a model that carries a state, a part is the beginning of every lane.
        """
        count, width, stride = self.valid.tokens - 1, self.config.window, self.config.stride
        if not carries and stride is not None:
            return overlapping(count, width, stride, rows_for(AT_ONCE, (width,)))
        lanes = min(LANES, count // width)
        draws = whole_streams(count, width, lanes) if carries else self.passages(count, rows)
        return ((draw, 0) for draw in islice(draws, ceil(rows / lanes) if carries and rows is not None else None))

    def validation_cost(self, rows: int | None = None) -> float:
        """Return the tokens that are read; with a stride, windows overlap."""
        return super().validation_cost(rows) * self.config.window / (self.config.stride or self.config.window)

    def measure_baselines(self) -> Iterator[Baseline]:
        """Measure the loss of unigrams and bigrams on the tokens that `measure` counts."""
        train, valid = self.counted_tokens()
        yield unigram_loss(train, valid[1:], self.learned.size)
        yield bigram_loss(train, valid, self.learned.size)

    def samples(self, model: nn.Module) -> list[Sample]:
        """Generate the continuation of two pieces of validation text, if the model can."""
        if not writes(model):
            return []
        width = max(min(32, self.config.window // 2), 1)
        starts = np.linspace(0, self.valid.tokens - 2 * width, 4).astype(np.int64)[1:-1]
        text = self.valid.windows(starts, 2 * width)
        given = Given(text[:, :width])
        try:
            with self._engine.of(model) as engine:
                made = sample_all(
                    engine,
                    given,
                    end=(),  # one text may follow another, as in the validation text
                    limits=fit_limits(model, given, [width] * len(text)),
                    sampling=Sampling(temperature=0.8),
                    seeds=list(range(len(text))),
                    forbidden=(self.learned.pad, self.learned.unk, self.learned.start, self.learned.mask),
                )
        except NotFiniteError:  # a model that diverged, as its loss says
            return []
        decode = self.learned.decode
        rows = zip(decode(text[:, :width].tolist()), decode(text[:, width:].tolist()), decode(made), strict=True)
        return [Sample(*texts) for texts in rows]


def _predictions(model: nn.Module, batch: Batch) -> tuple[tuple[Tensor, Tensor, Tensor], Batch]:
    """Return the vectors below the head, log p of the labels and the labels, and the state for the next window."""
    if not writes(model) or not model.gives_vectors:
        raise ConfigError("task.neural_cache keeps vectors, which only a language model of this package gives")
    labels, carried = batch["labels"], {}
    if "begins" in batch:
        state = model.begin(batch["tokens"])
        _restore_state(state, batch)
        vectors = model(batch["tokens"], state=state, scores=False)
        carried = _carried_state(state)
    else:
        vectors = model(batch["tokens"], **documents_of(batch), scores=False)
    log_p = at_least_float32(model.logits(vectors)).log_softmax(-1)
    return (vectors, log_p.gather(-1, labels.clamp(min=0)[..., None].long())[..., 0], labels), carried


def _in_one_row(vectors: Tensor, log_p: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the tokens that count of windows that follow each other."""
    counts = labels != IGNORE
    return vectors[counts][None], log_p[counts][None], labels[counts][None]


def _restore_state(state: State, batch: Batch) -> None:
    """Set a state to that at the end of the last window, unless a new epoch begins."""
    for place, layer in enumerate(state.layers):
        for name, part in layer.items():
            assert isinstance(part, Hidden)
            found = [batch.get(f"carried.{place}.{name}.{index}") for index in range(len(part.values))]
            part.values = tuple(
                value if old is None else torch.where(batch["begins"].reshape(-1, *[1] * (value.ndim - 1)), value, old)
                for old, value in zip(found, part.values, strict=True)
            )


def _carried_state(state: State) -> Batch:
    """Return what the next window needs, detached from the gradient."""
    return {
        f"carried.{place}.{name}.{index}": value.detach()
        for place, layer in enumerate(state.layers)
        for name, part in layer.items()
        if isinstance(part, Hidden)
        for index, value in enumerate(part.values)
    }
