"""Word2Vec: skip-gram with negative sampling (Mikolov et al. 2013), as a model and a task of the package.

A word w predicts the words c around it: L = -log s(u_w . v_c) - sum_k log s(-u_w . v_k), for k words drawn from the
frequencies to the power 3/4. The vectors u are the token table of the embedding, the vectors v the matrix of the head.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.config import Count, Table
from regard.data.batches import Draw, Windows, passages, rows_for
from regard.data.read import Skipped
from regard.data.tokenizer import Tokenizer, TokenizerConfig
from regard.models.head import Logits
from regard.models.init import InitConfig, NormalConfig
from regard.models.model import ModelConfig, ModelSequence, Tap, TokenModel
from regard.parts.embed import Embedding, Tokens
from regard.tasks.long_text import AT_ONCE, LongTextTask, Text, TextConfig
from regard.tasks.loss import IGNORE, Losses
from regard.tasks.sample import Sample
from regard.tasks.task import Batch, Feed
from regard.tasks.text import ignore_empty

DRAWN = 64  # words that one batch is contrasted with; their mean stands for the `negatives` of each word


class Word2Vec(TokenModel):
    """Two vectors for every word: u, and v for the words around it."""

    head: Logits
    description = "a table of word vectors"
    verbs = ("embed",)
    task = "skip-gram"

    def __init__(self, embed: Embedding, head: Logits) -> None:
        super().__init__()
        self.embed = embed
        self.head = head

    def forward(self, tokens: Tensor) -> Tensor:
        """Score every word as one around each token: u_w . v_c."""
        return self.logits(self.embed(tokens))

    def token_vectors(self, **inputs: Tensor) -> Tensor:
        """Return the vector u of every token, whatever is around it."""
        vectors: Tensor = self.embed(inputs["tokens"])
        return vectors

    def sequences(self) -> dict[str, ModelSequence]:
        """Return the one sequence of tokens, which has no layers."""
        return {"tokens": ModelSequence([Tap(self.embed)], self.embed.tokens.table.num_embeddings)}


@dataclass(frozen=True, kw_only=True)
class Word2VecConfig(ModelConfig):
    """Word vectors by skip-gram."""

    vocabulary: Count
    """Number of words; training sets it."""
    dim: Count
    """Width of the vectors."""
    init: InitConfig = field(default_factory=lambda: NormalConfig(std=0.1))
    """The initial weights."""

    def build(self) -> Word2Vec:
        """Build both tables."""
        return Word2Vec(Embedding(Tokens(self.vocabulary, self.dim)), Logits(self.dim, self.vocabulary, tied=False))


@dataclass(frozen=True, kw_only=True)
class SkipGramConfig(TextConfig):
    """Texts whose words predict those around them."""

    recipe = "reader"  # to be replaced by a recipe of kind word2vec
    models = ("word2vec",)

    reach: Count = 4
    """How many words to the left and to the right are predicted."""
    negatives: Count = 5
    """With how many random words each of them is contrasted."""

    def prepare(self, tokenizer: TokenizerConfig, seed: int, say: Callable[[str], None]) -> "SkipGram":
        """Read the texts, learn the tokenizer, tokenise."""
        return SkipGram(self, *self.open(tokenizer, say))

    def evaluation(self, tokenizer: Tokenizer, files: list[str]) -> "SkipGram":
        """Open other files to measure a model on."""
        return SkipGram(self, *self.open_other(tokenizer, files))

    def suggest_optimizer_kind(self, pretrained: bool) -> str:
        """Return AdamW: all weights are tables."""
        return "adamw"


class SkipGram(LongTextTask):
    """L = -sum over words w and words c around them of log s(u_w . v_c) + sum_k log s(-u_w . v_k)."""

    name = "skip-gram"
    metric = "loss"

    def __init__(self, config: TextConfig, tokenizer: Tokenizer, skipped: Skipped, train: Text, valid: Text) -> None:
        super().__init__(config, tokenizer, skipped, train, valid)
        every = self.train.windows(np.array([0]), self.train.tokens)[0]
        counts = torch.bincount(every.long().cpu(), minlength=tokenizer.size).double()
        counts[tokenizer.end] = 0
        self.noise = counts**0.75

    def needs(self) -> Table:
        """Return the vocabulary."""
        return {"vocabulary": self.learned.size}

    def feed(self, model: nn.Module, tokens: int, seed: int) -> Feed:
        """Return windows of the whole text."""
        windows = Windows(self.train.tokens, self.config.window, rows_for(tokens, (self.config.window,)), seed)
        return Feed(windows, lambda draw, epoch: self.rows(self.train, draw))

    def rows(self, text: Text, draw: Draw) -> Batch:
        """Return the rows of a draw, the text that each token belongs to, and the words, which count."""
        (width,) = draw.shape
        tokens = text.windows(draw.rows, width)
        labels = ignore_empty(tokens.masked_fill(tokens == self.learned.end, IGNORE), draw)
        return {"tokens": tokens, "labels": labels, "documents": text.documents(draw.rows, width)}

    def loss(self, model: nn.Module, batch: Batch) -> tuple[Losses, Batch]:
        """Compute the loss of all pairs of words at most `reach` apart in the same text; the count is that of words."""
        drawn = torch.multinomial(self.noise, DRAWN, replacement=True).to(self.device)
        return self.contrast(model, batch, drawn), {}

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
        """Measure the loss on the validation text, with the same random words every time."""
        generator = torch.Generator().manual_seed(0)
        drawn = torch.multinomial(self.noise, DRAWN, replacement=True, generator=generator).to(self.device)
        width = self.config.window
        sums = torch.zeros(2, dtype=torch.float64, device=self.device)
        for draw in passages(self.valid.tokens, width, rows_for(AT_ONCE, (width,))):
            for batch in self.split_batch(self.rows(self.valid, draw)):
                losses = self.contrast(model, batch, drawn)
                sums += torch.stack((losses.loss.double(), losses.count.double()))
        loss, count = sums.tolist()
        return {"loss": loss / max(count, 1)}

    def samples(self, model: nn.Module) -> list[Sample]:
        """Return nothing: the model writes no text."""
        return []


PARTS = (("model", "word2vec", Word2VecConfig), ("task", "skip-gram", SkipGramConfig))  # to be registered
