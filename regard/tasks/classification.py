"""Classification of texts: one label for each; accuracy and F1."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
import torch
from torch import Tensor, nn

from regard.config import ColumnName, Count, NotNegative, Rate, Table
from regard.data.batches import EMPTY, Buckets, Draw, Indices
from regard.data.cache import CacheKey, digest
from regard.data.columns import LABELLED, FileReading
from regard.data.device import to_device
from regard.data.read import Skipped, read_labelled
from regard.data.tables import read_reading
from regard.data.tokenizer import Tokenizer, TokenizerConfig
from regard.errors import InputError
from regard.models.template import text_template
from regard.recipe_files import merge
from regard.tasks.baselines import MOST_TOKENS, Baseline, majority_class, naive_bayes
from regard.tasks.cautions import (
    can_compare,
    caution_classes,
    caution_unmeasured,
    caution_validation,
    compared,
    hash_rows,
)
from regard.tasks.defaults import Amount
from regard.tasks.files import FileTaskConfig
from regard.tasks.labelled import Labelled
from regard.tasks.loss import IGNORE, Losses, cross_entropy, r_drop
from regard.tasks.metric import classification_scores
from regard.tasks.sample import Sample
from regard.tasks.task import LEAST_ROWS, PASS_SECONDS, Batch, Feed, Task
from regard.tasks.text import (
    flat_rows,
    hold_out,
    learn_tokenizer,
    lengths_of,
    name_part,
    paths,
    shortened,
    shown,
    spread,
    telling,
    text_key,
)

WORDS = 10_000  # the vocabulary of little text, at most
BYTES_PER_WORD = 100  # of text, so that rare words are unknown ones
LEAST_WORDS = 1000
LONGEST = 256  # tokens of a text, if the model has that many positions
# Share of the words of little text that are hidden while training. SST-2 (size tiny, 150 updates, one seed): loss 0.428
# at 0, 0.421 at 0.1, 0.444 at 0.3; accuracy 0.817, 0.814 and 0.806. On TREC there is no clear difference.
UNKNOWN = 0.1
DROPOUT = 0.1  # that of BERT (Devlin et al. 2018); not compared
AT_ONCE = 8192  # tokens of a batch of validation
HEAD: Table = {"kind": "classes", "dropout": 0.1}


@dataclass(frozen=True, kw_only=True)
class ClassificationConfig(FileTaskConfig):
    """Tables with a text and a label in every row."""

    recipe = "reader"
    models = ("encoder",)
    hub_task = "classification"
    after_reading = ("longest", "classes", "smoothing", "unknown", "r_drop")
    length_key = "longest"
    roles = LABELLED
    passes = 5  # on TREC, accuracy falls afterwards

    text: ColumnName | None = None
    """The column with the text, by name or number; absent: the one named text, or the only one that can be text."""
    label: ColumnName | None = None
    """The column with the label, by name or number; absent: the one with a usual name, or the only other one."""
    header: bool | None = None
    """Whether the first row of a TSV or CSV names the columns; absent: if it looks like it."""
    classes: tuple[str, ...] = ()
    """The labels; by default those of the training data."""
    longest: Count = LONGEST
    """Maximum number of tokens of a text; longer texts are cut."""
    smoothing: Rate = 0.0
    """Share of the target probability spread over all classes (Szegedy et al. 2016)."""
    unknown: Rate = 0.0
    """Share of the tokens of a training text that the unknown token replaces (word dropout, Iyyer et al. 2015)."""
    r_drop: NotNegative = 0.0
    """Weight of the divergence between two passes with different dropout (R-Drop, Liang et al. 2021); 0: one pass."""

    def suggest_length(self, device: str, positions: int | None) -> int | None:
        """Return the default, limited by the positions of the model."""
        return None if positions is None else min(LONGEST, positions)

    def suggest_tokenizer(self, pieces: bool) -> Table | None:
        """Return words for little text: accuracy on SST-2 is 0.825 with them and 0.795 with pieces of words."""
        return {"kind": "word"} if self.is_little(self.train) else super().suggest_tokenizer(pieces)

    def suggest_vocabulary(self) -> int:
        """Return more words than pieces, but so few that rare words are unknown, and that token is learned.

        TREC's questions have 9,000 words, most of them once. Accuracy on a fifth of them is 0.86 with 3,000 words and
        0.83 with all.
        """
        few = max(self.text_bytes(self.train) // BYTES_PER_WORD, LEAST_WORDS)
        return min(few, WORDS) if self.is_little(self.train) else super().suggest_vocabulary()

    def suggest_settings(self, device: str) -> Table:
        """Return unknown words for little text: those of other texts are then like something that was learned."""
        return {"unknown": UNKNOWN} if self.is_little(self.train) else {}

    def suggest_model(self, size: str, amount: Amount) -> Table:
        """Return the dropout and the head; for little text, phrases of three words and the maximum of each feature.

        Accuracy on a fifth of TREC's questions, after learning from the others (size tiny, 200 updates): 0.77 with
        attention only, the mean and a norm of the vectors of words, 0.85 with a convolution as the first layer, the
        maximum and no such norm; a linear model of words and pairs has 0.85. On SST-2 0.811 and 0.835 (250 updates).
        """
        block = {"dropout": DROPOUT}
        if not self.is_little(self.train):
            return {"layers": {"block": block}, "head": {**HEAD, "pool": {"kind": "mean"}}}
        phrases = {"like": "block", "mixer": {"kind": "conv", "kernel": 3}}
        return {
            "pattern": ["phrases", "3*block"],
            "layers": {"block": block, "phrases": phrases},
            "embed": {"norm": "none"},
            "head": {**HEAD, "pool": {"kind": "max"}},
        }

    def prepare(self, tokenizer: TokenizerConfig, seed: int, say: Callable[[str], None]) -> "Classification":
        """Read the tables, learn the tokenizer, tokenise."""
        skipped = Skipped()
        key = text_key(self, files=self.train)

        def texts() -> Iterator[str]:
            return (text for text, _ in self.read(key, Skipped()))

        say("learning the tokenizer")
        learned = learn_tokenizer(tokenizer, key, texts)
        say("tokenising")
        train = self.tokenise(key, learned, skipped, self.classes)
        if len(train.classes) < 2:
            rule = f"all texts have the label {train.classes[0]!r}" if train.classes else "no labelled text is left"
            raise InputError(f"{self.train[0]}: {rule}; a classifier needs at least two classes")
        if self.valid:
            valid = self.tokenise(text_key(self, files=self.valid), learned, skipped, train.classes)
        else:
            rows, held_out = hold_out(len(train.rows))
            train, valid = train.take(rows), train.take(held_out)
        return Classification(replace(self, classes=train.classes), learned, skipped, train, valid)

    def evaluation(self, tokenizer: Tokenizer, files: list[str]) -> "Classification":
        """Open other files to measure a model on; `classes` are those of the model."""
        skipped = Skipped()
        valid = self.tokenise(text_key(self, files=files), tokenizer, skipped, self.classes)
        return Classification(self, tokenizer, skipped, valid, valid)

    def read(self, key: CacheKey, skipped: Skipped) -> Iterator[tuple[str, str]]:
        """Read all texts with their labels."""
        columns = self.column_options()
        return chain.from_iterable(read_labelled(path, skipped, columns) for path in key.files["files"])

    def readings(self, files: Sequence[str] = ()) -> list[FileReading]:
        """Return how each table is read."""
        return [read_reading(path, self.column_options()) for path in paths(files or (*self.train, *self.valid))]

    def tokenise(self, key: CacheKey, tokenizer: Tokenizer, skipped: Skipped, classes: tuple[str, ...]) -> Labelled:
        """Load the tokenised texts, or tokenise them."""
        return Labelled.open(key, lambda found: self.read(key, found), tokenizer, self.longest, skipped, classes)


def _sorted_draws(lengths: Indices) -> Iterator[Draw]:
    """Yield all rows, those of similar lengths together, so that there is little padding."""
    order = np.argsort(-lengths, kind="stable")
    while len(order):
        width = int(lengths[order[0]])
        rows = max(AT_ONCE // width, 1)
        yield Draw((width,), order[:rows])
        order = order[rows:]


class Classification(Task):
    """L = -sum log p(label | text)."""

    name = "classification"
    metric = "accuracy"
    unit = "texts"
    least_rows = LEAST_ROWS

    def __init__(
        self,
        config: ClassificationConfig,
        tokenizer: Tokenizer,
        skipped: Skipped,
        train: Labelled,
        valid: Labelled,
    ) -> None:
        super().__init__(config, tokenizer, skipped)
        if not len(valid.rows):
            left_out = "; ".join(skipped.report())
            raise InputError(f"no labelled text is left to validate on; give other files ({left_out})")
        self.learned = tokenizer
        self.train, self.valid = train, valid
        self.classes = train.classes
        before, after = text_template(tokenizer, (tokenizer.start,), (tokenizer.end,))
        self.around = sorted({tokenizer.pad, *map(int, before), *map(int, after)})

    def facts(self) -> dict[str, int]:
        """Count texts, tokens and classes."""
        amount = self.amount()
        return {
            "texts": amount.rows,
            "tokens": amount.tokens,
            "classes": len(self.classes),
            "validation texts": len(self.valid.rows),
        }

    def cautions(self) -> Iterator[str]:
        """Yield what is wrong with the labels, and with the validation texts."""
        train, valid = self.train, self.valid
        yield from caution_classes(train.labels[train.rows], self.classes)
        seen = hash_rows(train.corpus, compared(train.rows))
        asked = valid.rows[can_compare(valid.corpus, valid.rows, self.learned.unk)]
        yield from caution_validation("text", seen, hash_rows(valid.corpus, asked), len(valid.rows))
        yield from caution_unmeasured("text", valid.labels[valid.rows], self.classes)

    def tokens_read(self) -> Indices:
        """Return the tokens of the texts."""
        return flat_rows(self.valid.corpus, compared(self.valid.rows))[0]

    def fingerprint(self) -> str:
        """Combine the checksums of both sets of texts."""
        return digest(self.train.checksum(), self.valid.checksum())

    def amount(self) -> Amount:
        """Return the texts and their tokens."""
        return Amount(len(self.train.rows), int(self.train.lengths.sum()))

    def longest(self) -> int:
        """Return the tokens at which texts are cut."""
        return int(self.config.longest)

    def adapt(self, model: Table, said: Table) -> Table:
        """Return the model with a dense layer before the classes if its head for tokens has one, as BERT's."""
        head = model.get("head", {})
        if head.get("kind") != "tokens" or "transform" not in head:
            return model
        return merge(model, {"head": {"kind": "classes", "transform": "tanh"}})

    def needs(self) -> Table:
        """Return the vocabulary and the classes."""
        return {"vocabulary": self.learned.size, "head": {"kind": "classes", "classes": len(self.classes)}}

    def feed(self, model: nn.Module, tokens: int, seed: int) -> Feed:
        """Return batches of texts with similar lengths."""
        order = Buckets(self.train.lengths[:, None], tokens, seed, most=12)
        return Feed(order, lambda draw, epoch: self.rows(self.train, draw))

    def rows(self, texts: Labelled, draw: Draw) -> Batch:
        """Return the texts and labels of a draw."""
        index = np.where(draw.rows < 0, EMPTY, texts.rows[draw.rows])
        labels = np.where(draw.rows < 0, IGNORE, texts.labels[index])
        return {
            "tokens": texts.corpus.padded(index, draw.shape[0], self.learned.pad),
            "lengths": lengths_of(texts.corpus.lengths, Draw(draw.shape, index), self.device),
            "labels": to_device(labels, self.device),
        }

    def loss(self, model: nn.Module, batch: Batch) -> tuple[Losses, Batch]:
        """Compute the cross-entropy of the label; with R-Drop, of two passes."""
        tokens, lengths, labels = batch["tokens"], batch["lengths"], batch["labels"]
        if not model.training:
            return cross_entropy(model(tokens, lengths=lengths), labels), {}
        config = self.config
        logits = model(self.hide(tokens), lengths=lengths)
        if config.r_drop == 0.0:
            return cross_entropy(logits, labels, config.smoothing), {}
        again = model(self.hide(tokens), lengths=lengths)
        return r_drop(logits, again, labels, config.r_drop, config.smoothing), {}

    def passes(self) -> int:
        """Return 2 with R-Drop, else 1."""
        return 1 if self.config.r_drop == 0.0 else 2

    def hide(self, tokens: Tensor) -> Tensor:
        """Replace a share of the tokens by the unknown one, but none of those around a text."""
        if self.config.unknown == 0.0:
            return tokens
        chosen = torch.rand(tokens.shape, device=tokens.device) < self.config.unknown
        for kept in self.around:
            chosen &= tokens != kept
        return torch.where(chosen, self.learned.unk, tokens)

    def validation_cost(self, rows: int | None = None) -> float:
        """Return the tokens that are read."""
        return float(spread(self.valid.lengths, rows).sum())

    def validation_latency(self, rows: int | None = None) -> float:
        """Return the seconds of the passes."""
        return PASS_SECONDS * sum(1 for _ in _sorted_draws(spread(self.valid.lengths, rows)))

    def method(self, rows: int | None = None) -> str:
        """Return how many texts are measured, if not all."""
        return name_part(rows, len(self.valid.rows), "texts")

    @torch.no_grad()
    def measure(self, model: nn.Module, rows: int | None = None) -> dict[str, float]:
        """Measure loss, accuracy and F1 on the validation texts: all, or this many, evenly spread."""
        total = 0.0
        guesses: list[Tensor] = []
        labels: list[Tensor] = []
        texts = self.valid.take(spread(np.arange(len(self.valid.rows)), rows))
        for draw in _sorted_draws(texts.lengths):
            for batch in self.split_batch(self.rows(texts, draw)):
                logits = model(batch["tokens"], lengths=batch["lengths"])
                total += float(cross_entropy(logits, batch["labels"]).loss)
                guesses.append(logits.argmax(-1).cpu())
                labels.append(batch["labels"].cpu())
        found, wanted = torch.cat(guesses).numpy(), torch.cat(labels).numpy()
        return {"loss": total / len(wanted), **classification_scores(found, wanted, self.classes)}

    def measure_baselines(self) -> Iterator[Baseline]:
        """Measure the majority class, and naive Bayes on tokens and pairs of tokens."""
        train, valid, classes = self.train, self.valid, len(self.classes)
        labels, wanted = train.labels[train.rows], valid.labels[valid.rows]
        yield majority_class(labels, wanted, classes)
        share = MOST_TOKENS / max(int(train.lengths.sum()), 1)
        chosen = spread(np.arange(len(labels)), max(int(share * len(labels)), 1))
        texts = flat_rows(train.corpus, train.rows[chosen]), flat_rows(valid.corpus, valid.rows)
        yield naive_bayes(texts[0], labels[chosen], texts[1], wanted, classes)

    @torch.no_grad()
    def samples(self, model: nn.Module) -> list[Sample]:
        """Classify three texts."""
        index = shown(len(self.valid.rows))
        width = int(self.valid.lengths[index].max())
        batch = self.rows(self.valid, Draw((width,), index))
        guesses = model(batch["tokens"], lengths=batch["lengths"]).argmax(-1).tolist()
        texts = self.learned.decode(batch["tokens"].tolist())
        names = ([self.classes[label] for label in ids] for ids in (batch["labels"].tolist(), guesses))
        return [Sample(*row) for row in zip(texts, *names, strict=True)]

    def probe(self, longest: int = 64) -> Batch:
        """Return a text between its special tokens."""
        row = self.valid.rows[telling(self.valid.lengths, longest)]
        return {"tokens": shortened(self.valid.corpus, int(row), longest)}

    def to(self, device: torch.device) -> None:
        """Move the texts to the device."""
        super().to(device)
        self.train, self.valid = self.train.to(device), self.valid.to(device)

    def release(self) -> None:
        """Release mapped pages."""
        self.train.corpus.release()
