"""Masked language modelling (Devlin et al. 2018): predict hidden tokens from both sides."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import nan

import numpy as np
import torch
from torch import Tensor, nn

from regard.config import Rate, Table
from regard.data.batches import Draw, Windows, rows_for
from regard.data.tokenizer import Tokenizer, TokenizerConfig
from regard.errors import ConfigError
from regard.tasks.baselines import Baseline, unigram_loss
from regard.tasks.defaults import Amount
from regard.tasks.long_text import LEAST_WINDOWS, LongTextTask, Text, TextConfig
from regard.tasks.loss import IGNORE, Losses, count_right, cross_entropy
from regard.tasks.metric import perplexity_of
from regard.tasks.sample import Sample
from regard.tasks.task import Batch, Feed
from regard.tasks.text import ignore_empty


@dataclass(frozen=True, kw_only=True)
class MaskedConfig(TextConfig):
    """Texts with a share `rate` of their tokens to be predicted."""

    recipe = "reader"
    models = ("encoder",)
    hub_task = "masked"
    after_reading = ("window", "rate")
    update_tokens = 4096
    passes = 20

    rate: Rate = 0.15
    """Share of the tokens that are chosen to be predicted (Devlin et al. 2018)."""

    def suggest_model(self, size: str, amount: Amount) -> Table:
        """Return the dropout of BERT (Devlin et al. 2018)."""
        return {"layers": {"block": {"dropout": 0.1}}}

    def validate(self) -> None:
        """Check the rules between values."""
        super().validate()
        if self.rate == 0:
            raise ConfigError("0 leaves nothing to predict; it must be above 0", "rate")

    def prepare(self, tokenizer: TokenizerConfig, seed: int, say: Callable[[str], None]) -> "Masked":
        """Read the texts, learn the tokenizer, tokenise."""
        return Masked(self, *self.open(tokenizer, say))

    def evaluation(self, tokenizer: Tokenizer, files: list[str]) -> "Masked":
        """Open other files to measure a model on."""
        return Masked(self, *self.open_other(tokenizer, files))


class Masked(LongTextTask):
    """L = -sum log p(x_t | the rest), over the chosen tokens t.

    Of these, 80 % are replaced by the mask, 10 % by a random token, and 10 % stay.
    """

    name = "masked"
    unit = "hidden tok"
    metric = "loss"
    least_rows = 4 * LEAST_WINDOWS  # because few of their tokens are predicted

    def needs(self) -> Table:
        """Return the vocabulary, and a head that scores it for every token."""
        return super().needs() | {"head": {"kind": "tokens"}}

    def feed(self, model: nn.Module, tokens: int, seed: int) -> Feed:
        """Return windows of the whole text, with some tokens hidden."""
        windows = Windows(self.train.tokens, self.config.window, rows_for(tokens, (self.config.window,)), seed)
        packs = self.packs(model)
        return Feed(windows, lambda draw, epoch: self.rows(self.train, draw, packs))

    def rows(self, text: Text, draw: Draw, packs: bool, generator: torch.Generator | None = None) -> Batch:
        """Return the rows of a draw; the generator (default: torch's own) decides what is hidden."""
        (width,) = draw.shape
        tokens, labels = self.hide(text.windows(draw.rows, width), generator)
        batch = {"tokens": tokens, "labels": ignore_empty(labels, draw)}
        if packs:
            batch["documents"] = text.documents(draw.rows, width)
        return batch

    def hide(self, tokens: Tensor, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """Hide some tokens; return the tokens that are shown, and the labels of the hidden ones."""
        chance, kind = torch.rand(2, *tokens.shape, device=tokens.device, generator=generator)
        chosen = (chance < self.config.rate) & (tokens != self.learned.end)
        # any token of the vocabulary, also a special one, as in the paper
        other = torch.randint(self.learned.size, tokens.shape, device=tokens.device, generator=generator)
        hidden = torch.where(kind < 0.8, self.learned.mask, torch.where(kind < 0.9, other, tokens))
        return torch.where(chosen, hidden, tokens), torch.where(chosen, tokens, IGNORE)

    def loss(self, model: nn.Module, batch: Batch) -> tuple[Losses, Batch]:
        """Compute the cross-entropy of the hidden tokens."""
        return self.model_loss(model, batch), {}

    @torch.no_grad()
    def measure(self, model: nn.Module, rows: int | None = None) -> dict[str, float]:
        """Measure loss, perplexity and accuracy on hidden tokens of the validation text, the same ones every time."""
        packs = self.packs(model)
        sums = torch.zeros(3, device=self.device, dtype=torch.float64)
        generator = torch.Generator(self.device).manual_seed(0)  # its own, so that validation does not change training
        for draw in self.passages(self.valid.tokens, rows):
            for batch in self.split_batch(self.rows(self.valid, draw, packs, generator)):
                logits = self.logits(model, batch)
                losses = cross_entropy(logits, batch["labels"])
                sums += torch.stack((losses.loss, count_right(logits, batch["labels"]), losses.count)).double()
        loss, right, count = sums.tolist()
        if not count:  # in a very short text, nothing may be hidden
            return dict.fromkeys(("loss", "perplexity", "accuracy"), nan)
        return {"loss": loss / count, "perplexity": perplexity_of(loss / count), "accuracy": right / count}

    def measure_baselines(self) -> Iterator[Baseline]:
        """Measure the loss of unigrams on all tokens that may be hidden."""
        train, valid = self.counted_tokens()
        yield unigram_loss(train[train != self.learned.end], valid[valid != self.learned.end], self.learned.size)

    @torch.no_grad()
    def samples(self, model: nn.Module) -> list[Sample]:
        """Predict one hidden token in each of three pieces of validation text."""
        width = min(24, self.config.window)
        starts = np.linspace(0, self.valid.tokens - width - 1, 5).astype(np.int64)[1:-1]
        original = self.valid.windows(starts, width)
        place = width // 2
        given = original.clone()
        given[:, place] = self.learned.mask
        guess = model(given)[:, place].argmax(-1)
        shown = [self.learned.pieces(row) for row in given.tolist()]
        wanted, made = (self.learned.pieces(ids.tolist()) for ids in (original[:, place], guess))
        return [Sample("".join(row), *texts) for row, *texts in zip(shown, wanted, made, strict=True)]

    def probe(self, longest: int = 64) -> Batch:
        """Return the beginning of a text with its middle token hidden, as in training."""
        (tokens,) = super().probe(longest).values()
        tokens[:, tokens.shape[1] // 2] = self.learned.mask
        return {"tokens": tokens}
