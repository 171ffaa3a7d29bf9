"""Secondary structure: a state of DSSP for each residue of a protein; accuracy in 8 and in 3 states (Q8, Q3).

The model reads sequences alone, or with their alignments. Alignments can also serve as examples: each of their rows is
a further sequence with the same structure, and then the model reads sequences alone.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.config import ColumnName, NotNegative, Rate, Table
from regard.data.batches import Buckets, Draw, Indices
from regard.data.cache import digest
from regard.data.columns import RESIDUES, FileReading
from regard.data.device import to_device
from regard.data.proteins import Chain, read_chains
from regard.data.read import Skipped
from regard.data.tables import read_reading
from regard.data.tokenizer import Tokenizer
from regard.errors import ConfigError, InputError
from regard.models.residues import CLASSES, STATES, STRICT_CLASSES, UNKNOWN
from regard.tasks.baselines import Baseline, linear_windows, majority_class
from regard.tasks.defaults import Amount
from regard.tasks.files import name_files
from regard.tasks.loss import IGNORE, Losses, cross_entropy, r_drop
from regard.tasks.proteins import (
    ROWS_AT_ONCE,
    EncodedChain,
    ProteinTaskConfig,
    caution_proteins,
    random_part,
    read_all,
    tables_of_rows,
)
from regard.tasks.sample import Sample
from regard.tasks.task import Batch, Feed, Task
from regard.tasks.text import paths, shown, telling

SHOWN = 60  # residues of a sample
HALF_WINDOW = 8  # residues on each side that the linear baseline sees
THREE = "HEC"  # the 3 states: helix, strand, coil


@dataclass(frozen=True, kw_only=True)
class ResiduesConfig(ProteinTaskConfig[Chain, "Residues"]):
    """Tables with a sequence and its states in every row, and optionally an alignment."""

    roles = RESIDUES
    update_tokens = 1024

    sequence: ColumnName | None = None
    """The column with the sequence, by name or number; absent: the one with a usual name."""
    structure: ColumnName | None = None
    """The column with the states of DSSP, one letter for each residue; absent: the one with a usual name."""
    alignment: ColumnName | None = None
    """The column with the other rows of the alignment, separated by blanks; absent: alignments are not used."""
    header: bool | None = None
    """Whether the first row of a TSV or CSV names the columns; absent: if it looks like it."""
    alignment_as: Literal["input", "examples", "both"] = "input"
    """Whether the model reads alignments (input), their rows are further training examples (examples), or both."""
    smoothing: Rate = 0.0
    """Share of the target probability spread over all states (Szegedy et al. 2016)."""
    r_drop: NotNegative | None = None
    """Weight of the consistency of two passes that differ in dropout (R-Drop, Liang et al. 2021); absent: one pass."""
    unknown: Rate = 0.0
    """Share of the residues of training sequences that the model reads as X, unknown, so that it relies on others."""

    def validate(self) -> None:
        """Check the rules between values."""
        super().validate()
        if self.alignment_as != "input" and self.alignment is None:
            raise ConfigError(f'alignment_as="{self.alignment_as}" needs a column of alignments; set task.alignment')

    def suggest_training(self) -> Table:
        """Return a moving average, since validations on few chains are noisy; other values were not compared."""
        return {"ema": 0.998}

    def open(
        self, tokenizer: Tokenizer, skipped: Skipped, train: Sequence[Chain], valid: Sequence[Chain]
    ) -> "Residues":
        """Return the task for these chains."""
        return Residues(self, tokenizer, skipped, train, valid)

    def read(self, files: tuple[str, ...], skipped: Skipped) -> list[Chain]:
        """Read all chains of tables."""
        options = self.column_options()
        return read_all(files, lambda path: read_chains(path, options, self.alignment, skipped), skipped, self.row_name)

    def check(self, found: Sequence[Chain], purpose: str, files: Sequence[str]) -> None:
        """Raise an error if no state of these chains is known."""
        if not any(set(chain.structure) - {"?"} for chain in found):
            rule = f"no chain with known states is left to {purpose}"
            raise InputError(f"{name_files(files)}: {rule}; give more chains, with states other than ?")

    def readings(self, files: Sequence[str] = ()) -> list[FileReading]:
        """Return how each table is read."""
        return [read_reading(path, self.column_options()) for path in paths(files or (*self.train, *self.valid))]


class Residues(Task):
    """L = -sum log p(state | sequence), over all residues whose state is known."""

    name = "residues"
    metric = "q3"
    unit = "residues"

    def __init__(
        self,
        config: ResiduesConfig,
        tokenizer: Tokenizer,
        skipped: Skipped,
        train: Sequence[Chain],
        valid: Sequence[Chain],
    ) -> None:
        super().__init__(config, tokenizer, skipped)
        self.learned = tokenizer
        self.chains, self.valid_chains = list(train), list(valid)
        self.train = [self._encode(chain) for chain in self.chains]
        self.valid = [self._encode(chain) for chain in self.valid_chains]
        self.classes = tuple(STATES)
        self.aligned = config.alignment is not None and config.alignment_as != "examples"

    def _encode(self, chain: Chain) -> EncodedChain:
        labels = np.array([STATES.find(state) for state in chain.structure], np.int64)
        return EncodedChain.of(self.learned, chain.sequence, chain.alignment, np.where(labels < 0, IGNORE, labels))

    def facts(self) -> dict[str, int]:
        """Count chains and residues."""
        amount = self.amount()
        return {"chains": amount.rows, "residues": amount.tokens, "validation chains": len(self.valid)}

    def cautions(self) -> Iterator[str]:
        """Yield what is wrong with the validation chains."""
        return caution_proteins(self.config.row_name, self.chains, self.valid_chains)

    def fingerprint(self) -> str:
        """Compute the checksum of all chains."""
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> str:
        sides = (self.chains, self.valid_chains)
        return digest(*("\n".join(" ".join((c.sequence, c.structure, *c.alignment)) for c in side) for side in sides))

    def amount(self) -> Amount:
        """Return the chains and their residues."""
        return Amount(len(self.train), sum(len(chain.ids) for chain in self.train))

    def longest(self) -> int:
        """Return the most residues of a training example."""
        return int(min(self.config.crop, max(len(chain.ids) for chain in self.train)))

    def usual_length(self) -> int:
        """Return the mean length of a training example: pairs cost its square."""
        return int(np.mean(self._lengths()))

    def _lengths(self) -> Indices:
        return np.array([min(len(chain.ids), self.config.crop) for chain in self.train])

    def adapt(self, model: Table, said: Table) -> Table:
        """Return the model without its parts for alignments, if it reads none."""
        if self.aligned or "alignment" in said or "alignment" not in model:
            return model
        return {key: value for key, value in model.items() if key != "alignment"}

    def needs(self) -> Table:
        """Return the vocabulary and the states."""
        return {"vocabulary": self.learned.size, "head": {"kind": "states", "classes": len(STATES)}}

    def feed(self, model: nn.Module, tokens: int, seed: int) -> Feed:
        """Return batches of chains with similar lengths."""
        order = Buckets(self._lengths()[:, None], tokens, seed, most=12)
        return Feed(order, lambda draw, epoch: self.varied(model, draw, (seed, epoch)))

    def varied(self, model: nn.Module, draw: Draw, seed: tuple[int, int]) -> Batch:
        """Return the chains of a draw: parts of long ones, some rows of alignments, or a row instead of the chain."""
        random = np.random.default_rng((*seed, *np.maximum(draw.rows, 0)))
        chains = [None if row < 0 else self._example(self.train[row], random) for row in draw.rows.tolist()]
        parts = [None if each is None else self._part(each, draw.shape[0], random) for each in chains]
        batch = self.batch(model, parts, draw, random)
        if self.config.unknown:
            hidden = to_device(random.random(batch["tokens"].shape) < self.config.unknown, self.device)
            hidden &= batch["tokens"] != self.learned.pad
            batch["tokens"] = batch["tokens"].masked_fill(hidden, int(self.learned.encode(UNKNOWN)[0]))
        return batch

    def _example(self, chain: EncodedChain, random: np.random.Generator) -> EncodedChain:
        """Return a chain, or a row of its alignment as a chain of its own, where alignments are examples."""
        if self.config.alignment_as == "input" or not len(chain.rows):
            return chain
        row = int(random.integers(-1, len(chain.rows)))
        return chain if row < 0 else chain.homolog(row, aligned=self.aligned)

    def _part(self, chain: EncodedChain, width: int, random: np.random.Generator) -> EncodedChain:
        return chain.part(random_part(len(chain.ids), width, random))

    def batch(
        self,
        model: nn.Module,
        chains: Sequence[EncodedChain | None],
        draw: Draw,
        random: np.random.Generator | None = None,
    ) -> Batch:
        """Return the tensors of chains (None: an empty row), with their alignments if the model reads these."""
        rows = int(getattr(model, "aligned_rows", 0)) if self.aligned else 0
        table = tables_of_rows(chains, draw.shape[0], self.learned, rows, random)
        return {name: to_device(value, self.device) for name, value in table.items()}

    def loss(self, model: nn.Module, batch: Batch) -> tuple[Losses, Batch]:
        """Compute the smoothed cross-entropy of the states; with R-Drop, of two passes."""
        smoothing = self.config.smoothing if model.training else 0.0
        scores = self.scores(model, batch)
        if not self.config.r_drop or not model.training:
            return cross_entropy(scores, batch["labels"], smoothing), {}
        return r_drop(scores, self.scores(model, batch), batch["labels"], self.config.r_drop, smoothing), {}

    def passes(self) -> int:
        """Return 2 with R-Drop, else 1."""
        return 2 if self.config.r_drop else 1

    def scores(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the scores of all states."""
        found: Tensor = model(**{name: value for name, value in batch.items() if name != "labels"})
        return found

    def validation_cost(self, rows: int | None = None) -> float:
        """Return the residues of the validation chains."""
        return float(sum(len(chain.ids) for chain in self.valid))

    @torch.no_grad()
    def measure(self, model: nn.Module, rows: int | None = None) -> dict[str, float]:
        """Measure loss, Q3 and Q8 on all validation chains."""
        total = 0.0
        chances: list[NDArray[np.float32]] = []
        labels: list[Indices] = []
        lengths = np.array([len(chain.ids) for chain in self.valid])
        for draw in Buckets(lengths[:, None], ROWS_AT_ONCE, 0, most=32).epoch(0):
            chains = [None if row < 0 else self.valid[row] for row in draw.rows.tolist()]
            for batch in self.split_batch(self.batch(model, chains, draw)):
                scores = self.scores(model, batch)
                total += float(cross_entropy(scores, batch["labels"]).loss)
                real = batch["labels"] != IGNORE
                chances.append(scores.float().softmax(-1)[real].cpu().numpy())
                labels.append(batch["labels"][real].cpu().numpy())
        wanted = np.concatenate(labels)
        return {"loss": total / len(wanted), **state_scores(np.concatenate(chances), wanted)}

    def measure_baselines(self) -> Iterator[Baseline]:
        """Measure the majority class, and a linear model of a window of residues or of their profile."""
        train, valid = self._profiles(self.train), self._profiles(self.valid)
        labels, wanted = (np.concatenate([each for _, each in side]) for side in (train, valid))
        yield majority_class(labels[labels >= 0], wanted[wanted >= 0], 3)
        yield linear_windows(train, valid, HALF_WINDOW, 3, "profiles" if self.aligned else "residues")

    def _profiles(self, chains: Sequence[EncodedChain]) -> list[tuple[NDArray[np.float32], Indices]]:
        """Return the profiles of chains, or the sequences alone, with the labels of 3 states."""
        return [(chain.profile if self.aligned else chain.alone, in_three(chain.labels)) for chain in chains]

    @torch.no_grad()
    def samples(self, model: nn.Module) -> list[Sample]:
        """Annotate the beginning of three chains."""
        made = []
        for row in shown(len(self.valid)):
            chain = self.valid[row].part(slice(SHOWN))
            batch = self.batch(model, [chain], Draw((len(chain.ids),), np.array([0])))
            guesses = self.scores(model, batch)[0].argmax(-1).tolist()
            given = self.valid_chains[row]
            found = "".join(STATES[state] for state in guesses)
            made.append(Sample(given.sequence[:SHOWN], given.structure[:SHOWN], found))
        return made

    def probe(self, longest: int = 64) -> Batch:
        """Return the beginning of a sequence."""
        chain = self.valid[telling(np.array([len(chain.ids) for chain in self.valid]), longest)]
        return {"tokens": to_device(chain.ids[None, :longest].astype(np.int64), self.device)}


def state_scores(chances: NDArray[np.float32], wanted: Indices) -> dict[str, float]:
    """Return the share of residues whose most likely state is right: of 8 states (Q8) and of 3 (Q3).

    The probability of one of 3 states is the sum of those of its states. `q3` counts H, G and I as helix and E and B
    as strand; `q3_strict` counts only H as helix and only E as strand.
    """
    found = {"q8": float(np.mean(chances.argmax(1) == wanted))}
    for name, classes in (("q3", CLASSES), ("q3_strict", STRICT_CLASSES)):
        found[name] = float(np.mean(three_chances(chances, classes).argmax(1) == three_of(classes)[wanted]))
    return {name: found[name] for name in ("q3", "q3_strict", "q8")}


def three_chances(chances: NDArray[np.float32], classes: dict[str, str] = CLASSES) -> NDArray[np.float32]:
    """Return the probabilities of helix, strand and coil (`THREE`) from those of 8 states."""
    three = three_of(classes)
    return np.stack([chances[:, three == number].sum(1) for number in range(3)], 1)


def three_of(classes: dict[str, str]) -> Indices:
    """Return the number of the class (helix, strand, coil) of each of 8 states."""
    return np.array([THREE.index(classes.get(state, "C")) for state in STATES])


def in_three(labels: Indices) -> Indices:
    """Return the labels of 3 states for those of 8; -1 where none is known."""
    return np.where(labels < 0, -1, three_of(CLASSES)[np.maximum(labels, 0)])
