"""What tasks on pairs of sequences share: predict each target token from the source and the target before it.

Several pairs are packed into a row where the model can tell them apart (attention), so that there is one static shape
and hardly any padding; other models (recurrent ones) get rows of similar lengths.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard.config import Table
from regard.data.batches import Buckets, Draw, Indices, Shuffled, Widths, next_multiple, pack_rows, rows_for
from regard.data.cache import digest
from regard.data.device import to_device
from regard.data.read import Skipped
from regard.data.tokenizer import Tokenizer
from regard.errors import InputError
from regard.tasks.cautions import can_compare, caution_validation, compared, hash_pairs
from regard.tasks.chunked_loss import model_loss
from regard.tasks.defaults import Amount
from regard.tasks.files import name_files
from regard.tasks.loss import IGNORE, Losses, r_drop
from regard.tasks.metric import perplexity_of
from regard.tasks.pairs import Pairs
from regard.tasks.task import PASS_SECONDS, Batch, Feed, Task
from regard.tasks.text import can, flat_rows, hold_out, shortened, spread, telling
from regard.tasks.variants import Epochs, Variants

SEARCH_COST = 4  # times that of a forward pass over its tokens, for a greedy search on a CPU
STEP_SECONDS = 0.0025  # of a step of a search on an accelerator (docs/performance.md)
TEXT_SECONDS = 0.0004  # of scoring a text
PACKED_WIDTH = 64  # the least width of a packed row


def check_pairs(pairs: Pairs, purpose: str, files: Sequence[str], skipped: Skipped, name: str = "pair") -> None:
    """Raise an error if there is no pair; `name` is what messages call one."""
    if pairs.count == 0:
        raise nothing_left(name, purpose, files, skipped)


def nothing_left(name: str, purpose: str, files: Sequence[str], skipped: Skipped) -> InputError:
    """Return the error for files of which nothing can be used, with the reasons."""
    left_out = "; ".join(skipped.report())
    rule = f"no {name} is left to {purpose}; give other files"
    return InputError(f"{name_files(files)}: {rule}{left_out and f' ({left_out})'}")


def hold_out_pairs(pairs: Pairs, files: Sequence[str], name: str = "pair") -> tuple[Indices, Pairs]:
    """Return the rows of pairs to train on, and the pairs that are held out to validate on."""
    if pairs.count < 2:
        rule = f"only one {name} is left, so none can be held out"
        raise InputError(f"{name_files(files)}: {rule}; give more {name}s, or others with --valid")
    rows, held_out = hold_out(pairs.count)
    return rows, pairs.take(held_out)


class PairTask(Task):
    """L = -sum_t log p(y_t | y_<t, x), the end token included."""

    row_name = "pair"  # what messages call a row of the data
    least_written = 100
    at_once = 128  # rows that a search writes together in a validation

    def __init__(self, config: Any, tokenizer: Tokenizer, skipped: Skipped, train: Variants, valid: Pairs) -> None:
        super().__init__(config, tokenizer, skipped)
        self.train, self.valid = train, valid
        self.valid_texts = valid.texts()

    def facts(self) -> dict[str, int]:
        """Count pairs and tokens."""
        amount = self.amount()
        return {"pairs": amount.rows, "target tokens": amount.tokens, "validation pairs": self.valid.count}

    def cautions(self) -> Iterator[str]:
        """Yield what is wrong with the validation pairs."""
        assert self.tokenizer is not None
        train, valid = self.train[0], self.valid
        seen = hash_pairs(train.corpus, compared(train.pairs))
        sides = [can_compare(valid.corpus, 2 * valid.pairs + side, self.tokenizer.unk) for side in (0, 1)]
        asked = valid.pairs[sides[0] & sides[1]]
        return caution_validation(self.row_name, seen, hash_pairs(valid.corpus, asked), valid.count)

    def method(self, rows: int | None = None) -> str:
        """Return how sentences are written in a validation, and of how many rows."""
        total = self.valid.count
        count = total if rows is None else min(rows, total)
        of = "" if count == total else f"{count:,} of "
        return f"greedy, {of}{total:,} {self.row_name}{'s' if total > 1 else ''}"

    def tokens_read(self) -> Indices:
        """Return the tokens of the sources."""
        return flat_rows(self.valid.corpus, 2 * compared(self.valid.pairs))[0]

    def fingerprint(self) -> str:
        """Combine the checksums of the pairs, of the references and of what decides the other variants."""
        checksums = self.train.open(0).checksum(), self.valid.checksum()
        others = [self.train.made_from] if len(self.train) > 1 else []
        return digest(*checksums, repr(self.valid_texts), *others)

    def amount(self) -> Amount:
        """Return the pairs and their target tokens."""
        return Amount(self.train[0].count, int(self.train[0].lengths[:, 1].sum()))

    def longest(self) -> int:
        """Return the most tokens of a sentence."""
        return int(self.config.longest)

    def needs(self) -> Table:
        """Return the vocabulary of both sides."""
        assert self.tokenizer is not None
        return {"vocabulary": self.tokenizer.size}

    def feed(self, model: nn.Module, tokens: int, seed: int) -> Feed:
        """Return packed rows for attention, buckets of similar lengths for recurrence."""
        make = self._packed_feed if can(model, "packs_documents") else self._bucket_feed
        epochs = Epochs(len(self.train), make(tokens, seed))
        return Feed(epochs, epochs.batch)

    def _packed_feed(self, tokens: int, seed: int) -> Callable[[int], Feed]:
        """Return a function that packs the rows of a variant."""
        widths = self.widths()
        rows = rows_for(tokens, widths)

        def make(number: int) -> Feed:
            groups = pack_rows(self.train.open(number).lengths, widths)
            order = Shuffled(len(groups), rows, widths, seed)
            return Feed(order, lambda draw, epoch: self.packed(self.train[number], groups, draw))

        return make

    def _bucket_feed(self, tokens: int, seed: int) -> Callable[[int], Feed]:
        """Return a function that puts the rows of a variant into buckets, which are the same for all variants."""
        buckets = Buckets(self.train[0].lengths, tokens, seed, widest=self.train.widest)

        def make(number: int) -> Feed:
            order = buckets.holding(self.train.open(number).lengths) if number else buckets
            return Feed(order, lambda draw, epoch: self.padded(self.train[number], draw))

        return make

    def widths(self) -> Widths:
        """Return the widths of packed rows: on one side that of the longest sentence and at least 64, on the other in
        proportion.
        """
        longest = self.train.widest
        total = self.train[0].lengths.sum(0)
        wide = max(PACKED_WIDTH, *(next_multiple(int(length), 8) for length in longest))
        sides = [max(int(longest[side]), next_multiple(int(wide * total[side] / total.max()), 2)) for side in (0, 1)]
        return tuple(sides)

    def packed(self, pairs: Pairs, groups: list[Indices], draw: Draw) -> Batch:
        """Return rows of several pairs each: source, labels, the shifted target, and the pair of every token."""
        members = [groups[row] if row >= 0 else np.empty(0, np.int64) for row in draw.rows]
        source_places, source_documents = pairs.places(0, members, draw.shape[0])
        target_places, documents = pairs.places(1, members, draw.shape[1])
        labels = pairs.corpus.gather(target_places, IGNORE)
        batch = {
            "source": pairs.corpus.gather(source_places, self.special.pad),
            "source_documents": to_device(source_documents, self.device),
            "documents": to_device(documents, self.device),
            "labels": labels,
        }
        begins = torch.cat((torch.ones_like(labels[:, :1], dtype=torch.bool), batch["documents"].diff(dim=1) != 0), 1)
        batch["target"] = self.shifted(labels).masked_fill(begins, self.special.start)
        return batch

    def padded(self, pairs: Pairs, draw: Draw) -> Batch:
        """Return rows of one pair each."""
        lengths = np.where(draw.rows < 0, 1, pairs.lengths[draw.rows, 0])
        labels = pairs.corpus.padded(pairs.row(draw.rows, 1), draw.shape[1], IGNORE)
        return {
            "source": pairs.corpus.padded(pairs.row(draw.rows, 0), draw.shape[0], self.special.pad),
            "source_lengths": to_device(lengths, self.device),
            "target": self.shifted(labels),
            "labels": labels,
        }

    @property
    def special(self) -> Tokenizer:
        """The tokenizer, for its special tokens."""
        assert self.tokenizer is not None
        return self.tokenizer

    def shifted(self, labels: Tensor) -> Tensor:
        """Return what the decoder reads: the start token, then all labels but the last."""
        target = labels.roll(1, 1)
        target[:, 0] = self.special.start
        return target.masked_fill(target == IGNORE, self.special.pad)

    def loss(self, model: nn.Module, batch: Batch) -> tuple[Losses, Batch]:
        """Compute the smoothed cross-entropy of the target; with R-Drop, of two passes."""
        smoothing = self.config.smoothing if model.training else 0.0
        inputs = {key: value for key, value in batch.items() if key not in ("labels", "source", "target")}
        if self.config.r_drop == 0.0 or not model.training:
            return model_loss(model, batch["labels"], smoothing, batch["source"], batch["target"], **inputs), {}
        logits = model(batch["source"], batch["target"], **inputs)
        again = model(batch["source"], batch["target"], **inputs)
        return r_drop(logits, again, batch["labels"], self.config.r_drop, smoothing), {}

    def passes(self) -> int:
        """Return 2 with R-Drop, else 1."""
        return 1 if self.config.r_drop == 0.0 else 2

    @torch.no_grad()
    def measure_loss(self, model: nn.Module) -> dict[str, float]:
        """Measure loss and perplexity on all pairs."""
        sums = torch.zeros(2, device=self.device, dtype=torch.float64)
        for draw in self._valid_order.epoch(0):
            for batch in self.split_batch(self.padded(self.valid, draw)):
                losses, _ = self.loss(model, batch)
                sums += torch.stack((losses.loss.double(), losses.count.double()))
        loss, count = sums.tolist()
        return {"loss": loss / count, "perplexity": perplexity_of(loss / count)}

    def validation_cost(self, rows: int | None = None) -> float:
        """Return the target tokens, those that a search writes several times."""
        lengths = self.valid.lengths[:, 1]
        return float(lengths.sum() + SEARCH_COST * spread(lengths, rows).sum())

    def validation_latency(self, rows: int | None = None) -> float:
        """Return the seconds of passes for the loss, of the steps of a search, and of the scores of what it writes."""
        lengths = spread(self.valid.lengths, rows)
        target = lengths[np.argsort(-lengths[:, 0], kind="stable"), 1]  # a search has rows of similar lengths
        steps = sum(int(target[begin : begin + self.at_once].max()) for begin in range(0, len(target), self.at_once))
        passes = sum(1 for _ in self._valid_order.epoch(0))
        return PASS_SECONDS * passes + STEP_SECONDS * steps + TEXT_SECONDS * len(target)

    @cached_property
    def _valid_order(self) -> Buckets:
        return Buckets(self.valid.lengths, 4096, 0)

    def validation_loss(self, model: nn.Module) -> float:
        """Measure only the loss on the validation data, without a search."""
        return self.measure_loss(model)["loss"]

    def texts(self, rows: Indices, side: int) -> list[str]:
        """Return one side (0: source, 1: target) of validation rows, as in the file."""
        return [self.valid_texts[row][side] for row in rows]

    def probe(self, longest: int = 64) -> Batch:
        """Return a pair; its target begins with the start token."""
        pair = telling(self.valid.lengths.max(1), longest)
        source, labels = (
            shortened(self.valid.corpus, int(self.valid.row(np.array([pair]), side)[0]), longest) for side in (0, 1)
        )
        return {"source": source, "target": self.shifted(labels)}

    def to(self, device: torch.device) -> None:
        """Move all pairs to the device."""
        super().to(device)
        self.train.to(device)
        self.valid = self.valid.to(device)

    def release(self) -> None:
        """Release mapped pages."""
        self.train.release()
