"""Word vectors: skip-gram with negative sampling and subsampling (Mikolov et al. 2013).

A word w predicts the words c around it: L = -log s(u_w . v_c) - sum_k log s(-u_w . v_k), for k words drawn from the
frequencies to the power 3/4.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.config import Count, Rate, Table
from regard.data.batches import Draw, Windows, rows_for
from regard.data.read import Skipped
from regard.data.tokenizer import Tokenizer, TokenizerConfig
from regard.errors import ConfigError
from regard.models.word2vec import Word2Vec
from regard.tasks.long_text import LongTextTask, Text, TextConfig
from regard.tasks.loss import IGNORE, Losses
from regard.tasks.sample import Sample
from regard.tasks.task import Batch, Feed
from regard.tasks.text import ignore_empty
from regard.tasks.word_table import WordTable

DRAWN = 64  # words that one batch is contrasted with; their mean stands for the `negatives` of each word
FASTER = 5  # than AdamW for other models: tables learn only from the rows that occur
SHOWN = 5  # words whose neighbours are samples, and neighbours of each
RANKED = 400  # the most frequent words, from which they are taken


@dataclass(frozen=True, kw_only=True)
class VectorsConfig(TextConfig):
    """Texts whose words predict those around them."""

    recipe = "word2vec"
    models = ("word2vec",)
    after_reading = ("window", "reach", "negatives", "subsample")
    update_tokens = 8192
    passes = 20

    reach: Count = 4
    """How many words to the left and to the right are predicted."""
    negatives: Count = 5
    """With how many random words each of them is contrasted."""
    subsample: Rate = 1e-3
    """Frequent words are left out at random: one with the share f of the text stays with probability
    sqrt(subsample / f); 1 leaves out none."""

    def validate(self) -> None:
        """Check the rules between values."""
        super().validate()
        if self.subsample == 0:
            raise ConfigError("0 leaves out all words; it must be above 0", "subsample")

    def prepare(self, tokenizer: TokenizerConfig, seed: int, say: Callable[[str], None]) -> "Vectors":
        """Read the texts, learn the tokenizer, tokenise."""
        return Vectors(self, *self.open(tokenizer, say))

    def evaluation(self, tokenizer: Tokenizer, files: list[str]) -> "Vectors":
        """Open other files to measure a model on."""
        return Vectors(self, *self.open_other(tokenizer, files))

    def suggest_tokenizer(self, pieces: bool) -> Table:
        """Return whole words."""
        return {"kind": "word"}

    def suggest_vocabulary(self) -> int:
        """Return many words, since pieces do not help."""
        return 2 * super().suggest_vocabulary()

    def suggest_optimizer(self, kind: str, dim: int, pretrained: bool) -> Table:
        """Return a high rate without decay, which would shrink the vectors of rare words."""
        found = super().suggest_optimizer(kind, dim, pretrained)
        return {**found, "rate": FASTER * found["rate"], "decay": 0.0} if kind == "adamw" else found


class Vectors(LongTextTask):
    """L = -sum over words w and words c around them of (log s(u_w . v_c) + sum_k log s(-u_w . v_k)).

    The sum over k is the number of negatives times the mean over words that the whole batch shares.
    """

    name = "vectors"
    metric = "loss"

    def __init__(self, config: VectorsConfig, tokenizer: Tokenizer, skipped: Skipped, train: Text, valid: Text) -> None:
        super().__init__(config, tokenizer, skipped, train, valid)
        every = self.train.windows(np.array([0]), self.train.tokens)[0]
        counts = torch.bincount(every.long().cpu(), minlength=tokenizer.size).double()
        counts[tokenizer.end] = 0
        noise = counts**0.75
        self._ranked = counts.argsort(descending=True).numpy()
        self._noise = (noise.cumsum(0) / noise.sum()).float()  # up to each word
        self._stays = (config.subsample * counts.sum() / counts.clamp(min=1)).sqrt().clamp(max=1).float()

    def to(self, device: torch.device) -> None:
        """Move the text and the probabilities of its words to the device."""
        super().to(device)
        self._noise, self._stays = self._noise.to(device), self._stays.to(device)

    def needs(self) -> Table:
        """Return the vocabulary."""
        return {"vocabulary": self.learned.size}

    def feed(self, model: nn.Module, tokens: int, seed: int) -> Feed:
        """Return windows of the whole text, in which frequent words are left out at random."""
        windows = Windows(self.train.tokens, self.config.window, rows_for(tokens, (self.config.window,)), seed)
        return Feed(windows, lambda draw, epoch: self.subsampled(self.rows(self.train, draw)))

    def rows(self, text: Text, draw: Draw) -> Batch:
        """Return the rows of a draw, the text that each token belongs to, and the words, which count."""
        (width,) = draw.shape
        tokens = text.windows(draw.rows, width)
        labels = ignore_empty(tokens.masked_fill(tokens == self.learned.end, IGNORE), draw)
        return {"tokens": tokens, "labels": labels, "documents": text.documents(draw.rows, width)}

    def subsampled(self, batch: Batch, generator: torch.Generator | None = None) -> Batch:
        """Leave out words at random, the more often the more frequent they are; others do not move closer."""
        chances = torch.rand(batch["tokens"].shape, device=self.device, generator=generator)
        stays = chances < self._stays[batch["tokens"].long()]
        return {**batch, "labels": batch["labels"].masked_fill(~stays, IGNORE)}

    def loss(self, model: nn.Module, batch: Batch) -> tuple[Losses, Batch]:
        """Compute the loss of all pairs of words at most `reach` apart in the same text; the count is that of words."""
        return self.contrast(model, batch, self.draw_words(torch.rand(DRAWN, device=self.device))), {}

    def draw_words(self, chances: Tensor) -> Tensor:
        """Return a word for each random number from 0 to 1, by the frequencies to the power 3/4."""
        return torch.searchsorted(self._noise, chances).clamp(max=len(self._noise) - 1)

    def contrast(self, model: nn.Module, batch: Batch, drawn: Tensor) -> Losses:
        """Contrast the words around each word with these random words."""
        assert isinstance(model, Word2Vec)
        tokens, documents = batch["tokens"].long(), batch["documents"]
        matrix = model.head.matrix(model.embed.tokens.table.weight)
        u, v = model.embed.tokens(tokens), F.embedding(tokens, matrix)
        against = self.config.negatives * F.softplus(u @ matrix[drawn].T).mean(-1)
        is_word = batch["labels"] != IGNORE
        total = u.new_zeros(())
        for distance in range(1, min(self.config.reach, tokens.shape[1] - 1) + 1):
            left, right = slice(None, -distance), slice(distance, None)
            pairs = is_word[:, left] & is_word[:, right] & (documents[:, left] == documents[:, right])
            for word, around in ((left, right), (right, left)):
                losses = F.softplus(-(u[:, word] * v[:, around]).sum(-1)) + against[:, word]
                total = total + losses.masked_fill(~pairs, 0.0).sum()
        return Losses(total, total.detach(), is_word.sum())

    @torch.no_grad()
    def measure(self, model: nn.Module, rows: int | None = None) -> dict[str, float]:
        """Measure the loss on words of the validation text, with the same random choices every time."""
        generator = torch.Generator(self.device).manual_seed(0)
        drawn = self.draw_words(torch.rand(DRAWN, device=self.device, generator=generator))
        sums = torch.zeros(2, dtype=torch.float64, device=self.device)
        for draw in self.passages(self.valid.tokens, rows):
            for batch in self.split_batch(self.subsampled(self.rows(self.valid, draw), generator)):
                losses = self.contrast(model, batch, drawn)
                sums += torch.stack((losses.loss.double(), losses.count.double()))
        loss, count = sums.tolist()
        return {"loss": loss / max(count, 1)}

    @torch.no_grad()
    def samples(self, model: nn.Module) -> list[Sample]:
        """Return the nearest words of some frequent words."""
        assert isinstance(model, Word2Vec)
        places = np.linspace(0, min(len(self._ranked), RANKED) - 1, SHOWN + 1)[1:]
        words = self._ranked[np.unique(places.astype(int))].tolist()
        table = WordTable.of(model, self.learned)
        found = [(table.words[word], table.nearest(table.vectors[word], SHOWN, {word})) for word in words]
        return [Sample(word, "", ", ".join(name for name, _ in near)) for word, near in found]
