"""Distance maps: how far apart the C-alpha atoms of each pair of residues are, as one of several bins (a distogram).

The distogram of AlphaFold (Jumper et al. 2021, supplement, 1.9.8) from sequences. What is measured is the precision of
contacts, pairs closer than 8 angstrom, as in CASP (Monastyrskyy et al. 2016): of the most likely pairs that are at
least 6, 12 or 24 residues apart, the best L/5, L/2 and L for a chain of L residues.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.config import Table
from regard.data.batches import Buckets, Draw, Indices, Shuffled
from regard.data.cache import digest
from regard.data.columns import FileReading
from regard.data.device import to_device
from regard.data.proteins import Structure, read_structures
from regard.data.read import Skipped
from regard.data.tokenizer import Tokenizer
from regard.errors import ConfigError, InputError
from regard.tasks.baselines import Baseline
from regard.tasks.defaults import Amount
from regard.tasks.files import name_files
from regard.tasks.loss import IGNORE, Losses, cross_entropy
from regard.tasks.proteins import (
    ROWS_AT_ONCE,
    ProteinTaskConfig,
    caution_proteins,
    random_part,
    read_all,
)
from regard.tasks.sample import Sample
from regard.tasks.task import Batch, Feed, Task
from regard.tasks.text import shown

EDGES = np.arange(4, 20.5, 0.5)  # between the bins, in angstrom
CONTACT = 8.0  # angstrom below which two residues are in contact
NEAR = int(np.searchsorted(EDGES, CONTACT, side="right"))  # the number of bins below it
APART = (6, 12, 24)  # the least |i - j| of a pair along the chain
SHARES = {"l5": 5, "l2": 2, "l": 1}  # of the most likely contacts: L / this
READING = "seq = the sequence, CA = the places of its C-alpha atoms"

Map = NDArray[np.float32]  # (residues, residues)


@dataclass(frozen=True, kw_only=True)
class DistancesConfig(ProteinTaskConfig[Structure, "Distances"]):
    """Files with a structure in each line, as JSON."""

    row_name = "structure"
    update_tokens = 512

    train: tuple[str, ...]
    """Files to train on, or folders of them: lines of JSON with seq and CA."""
    valid: tuple[str, ...] = ()
    """Files to validate on; by default a part of the training data is held out."""

    def validate(self) -> None:
        """Check the rules between values."""
        super().validate()
        if self.crop < 2:
            raise ConfigError(f"{self.crop} must be at least 2, since distances are those of pairs", "crop")

    def open(
        self, tokenizer: Tokenizer, skipped: Skipped, train: Sequence[Structure], valid: Sequence[Structure]
    ) -> "Distances":
        """Return the task for these structures."""
        return Distances(self, tokenizer, skipped, train, valid)

    def read(self, files: tuple[str, ...], skipped: Skipped) -> list[Structure]:
        """Read all structures of files."""
        return read_all(files, lambda path: read_structures(path, skipped), skipped, self.row_name)

    def check(self, found: Sequence[Structure], purpose: str, files: Sequence[str]) -> None:
        """Raise an error if no structure to measure a model on has enough pairs that are far apart along the chain."""
        maps = (distance_map(each.places) for each in found)
        if purpose != "train on" and all(np.isnan(contact_precision(one, one)[Distances.metric]) for one in maps):
            rule = f"no structure is left to {purpose} with enough pairs of residues at least {APART[0]} apart"
            raise InputError(f"{name_files(files)}: {rule}; give longer chains")

    def readings(self, files: Sequence[str] = ()) -> list[FileReading]:
        """Return how files are read."""
        return [FileReading((name,), READING, {}) for name in files or (*self.train, *self.valid)]


class Distances(Task):
    """L = -sum log p(bin of the distance of i and j | sequence), over all pairs whose places are known."""

    name = "distances"
    metric = "precision_l_6"
    unit = "pairs"

    def __init__(
        self,
        config: DistancesConfig,
        tokenizer: Tokenizer,
        skipped: Skipped,
        train: Sequence[Structure],
        valid: Sequence[Structure],
    ) -> None:
        super().__init__(config, tokenizer, skipped)
        self.learned = tokenizer
        self.train, self.valid = list(train), list(valid)
        self.valid_maps = [distance_map(each.places) for each in self.valid]  # the others are made part by part
        self.ids, self.valid_ids = ([self._ids(each) for each in side] for side in (self.train, self.valid))

    def _ids(self, structure: Structure) -> Indices:
        return self.learned.encode(structure.sequence).astype(np.int64)

    def facts(self) -> dict[str, int]:
        """Count structures and residues."""
        amount = self.amount()
        return {"structures": amount.rows, "residues": amount.tokens, "validation structures": len(self.valid)}

    def cautions(self) -> Iterator[str]:
        """Yield what is wrong with the validation structures."""
        return caution_proteins(self.config.row_name, self.train, self.valid)

    def fingerprint(self) -> str:
        """Compute the checksum of all structures."""
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> str:
        return digest(*(part for each in (*self.train, *self.valid) for part in (each.sequence, each.places)))

    def amount(self) -> Amount:
        """Return the structures and their residues."""
        return Amount(len(self.train), sum(map(len, self.ids)))

    def longest(self) -> int:
        """Return the most residues of a training example."""
        return int(min(self.config.crop, max(map(len, self.ids))))

    def usual_length(self) -> int:
        """Return the mean length of a training example: pairs cost its square."""
        return int(np.mean([min(len(ids), self.config.crop) for ids in self.ids]))

    def adapt(self, model: Table, said: Table) -> Table:
        """Return the model without its parts for alignments."""
        return model if "alignment" in said else {key: value for key, value in model.items() if key != "alignment"}

    def needs(self) -> Table:
        """Return the vocabulary and the bins."""
        return {"vocabulary": self.learned.size, "head": {"kind": "distances", "classes": len(EDGES) + 1}}

    def feed(self, model: nn.Module, tokens: int, seed: int) -> Feed:
        """Return batches of parts of chains, all of one shape."""
        width = self.longest()
        order = Shuffled(len(self.train), max(tokens // width, 1), (width,), seed)
        return Feed(order, lambda draw, epoch: self.varied(draw, (seed, epoch)))

    def varied(self, draw: Draw, seed: tuple[int, int]) -> Batch:
        """Return parts of the chains of a draw, from random places."""
        random = np.random.default_rng((*seed, *np.maximum(draw.rows, 0)))
        parts = [None if row < 0 else self._part(row, draw.shape[0], random) for row in draw.rows.tolist()]
        return self.batch(parts, draw.shape[0])

    def _part(self, row: int, width: int, random: np.random.Generator) -> tuple[Indices, Map]:
        here = random_part(len(self.ids[row]), width, random)
        return self.ids[row][here], distance_map(self.train[row].places[here])

    def batch(self, rows: Sequence[tuple[Indices, Map] | None], width: int) -> Batch:
        """Return the tensors of chains (None: an empty row) with the bins of their pairs."""
        tokens = np.full((len(rows), width), self.learned.pad, np.int64)
        lengths = np.ones(len(rows), np.int64)
        labels = np.full((len(rows), width, width), IGNORE, np.int64)
        for place, row in enumerate(rows):
            if row is not None:
                ids, distances = row
                lengths[place] = len(ids)
                tokens[place, : len(ids)] = ids
                labels[place, : len(ids), : len(ids)] = bins_of(distances)
        table = {"tokens": tokens, "lengths": lengths, "labels": labels}
        return {name: to_device(value, self.device) for name, value in table.items()}

    def loss(self, model: nn.Module, batch: Batch) -> tuple[Losses, Batch]:
        """Compute the cross-entropy of the bins."""
        return cross_entropy(model(batch["tokens"], lengths=batch["lengths"]), batch["labels"]), {}

    def validation_cost(self, rows: int | None = None) -> float:
        """Return the residues of the validation structures."""
        return float(sum(map(len, self.valid_ids)))

    @torch.no_grad()
    def measure(self, model: nn.Module, rows: int | None = None) -> dict[str, float]:
        """Measure the loss and the precision of contacts on all validation structures."""
        total, count = 0.0, 0
        found: list[dict[str, float]] = []
        lengths = np.array(list(map(len, self.valid_ids)))
        for draw in Buckets(lengths[:, None], ROWS_AT_ONCE // 2, 0, most=32).epoch(0):
            for row in draw.rows[draw.rows >= 0].tolist():
                batch = self.batch([(self.valid_ids[row], self.valid_maps[row])], len(self.valid_ids[row]))
                scores = model(batch["tokens"], lengths=batch["lengths"])
                losses = cross_entropy(scores, batch["labels"])
                total, count = total + float(losses.loss), count + int(losses.count)
                found.append(contact_precision(contact_chances(scores[0]), self.valid_maps[row]))
        return {"loss": total / max(count, 1), **mean_precision(found)}

    def measure_baselines(self) -> Iterator[Baseline]:
        """Measure the frequency of contacts at each distance along the sequence."""
        maps = (distance_map(each.places) for each in self.train)
        chances = separation_chances(maps, max(map(len, self.valid_ids)))
        found = [contact_precision(_by_separation(chances, len(one)), one) for one in self.valid_maps]
        score = mean_precision(found)[self.metric]
        yield Baseline("sequence separation", score, f"contacts of {len(self.train)} structures")

    @torch.no_grad()
    def samples(self, model: nn.Module) -> list[Sample]:
        """Name the most likely contacts of three structures."""
        made = []
        for row in shown(len(self.valid)):
            ids, wanted = self.valid_ids[row], self.valid_maps[row]
            chances = contact_chances(model(self.batch([(ids, wanted)], len(ids))["tokens"])[0])
            named = [
                ", ".join(f"{first + 1}-{second + 1}" for first, second in best_pairs(each, 12, 4))
                for each in (-np.nan_to_num(wanted, nan=np.inf), chances)
            ]
            made.append(Sample(self.valid[row].sequence[:60], *named))
        return made

    def probe(self, longest: int = 64) -> Batch:
        """Return the beginning of a sequence."""
        ids = self.valid_ids[0][None, :longest]
        return {"tokens": to_device(ids, self.device)}


# --- maps ------------------------------------------------------------------------------------------------------------


def distance_map(places: NDArray[np.float32]) -> Map:
    """Return the distance of each pair of places, in angstrom; NaN where one is unknown."""
    places = places.astype(np.float64)
    return np.sqrt(((places[:, None] - places[None]) ** 2).sum(-1)).astype(np.float32)


def bins_of(distances: Map) -> Indices:
    """Return the bin of each distance; `IGNORE` where it is unknown, and for a residue and itself."""
    bins = np.searchsorted(EDGES, np.nan_to_num(distances), side="right")
    unknown = np.isnan(distances) | np.eye(len(distances), dtype=bool)
    return np.where(unknown, IGNORE, bins)


def contact_chances(scores: Tensor) -> Map:
    """Return the probability that each pair is in contact, from the scores of the bins."""
    chances: Map = scores.float().softmax(-1)[..., :NEAR].sum(-1).cpu().numpy()
    return chances


def best_pairs(chances: Map, apart: int, count: int) -> list[tuple[int, int]]:
    """Return the pairs with the highest values that are at least `apart` residues apart, the highest first."""
    first, second = np.triu_indices(len(chances), apart)
    order = np.argsort(-chances[first, second], kind="stable")[:count]
    return list(zip(first[order].tolist(), second[order].tolist(), strict=True))


def contact_precision(chances: Map, distances: Map) -> dict[str, float]:
    """Return the share of real contacts among the most likely ones; NaN where a chain has too few pairs to tell."""
    known = np.where(np.isnan(distances), -np.inf, chances)
    found = {}
    for apart in APART:
        for name, share in SHARES.items():
            count = max(len(distances) // share, 1)
            pairs = [pair for pair in best_pairs(known, apart, count) if np.isfinite(known[pair])]
            near = [distances[pair] < CONTACT for pair in pairs]
            found[f"precision_{name}_{apart}"] = float(np.mean(near)) if len(near) == count else float("nan")
    return found


def mean_precision(found: Sequence[dict[str, float]]) -> dict[str, float]:
    """Return the mean over chains, each counted once; 0 if no chain has enough pairs."""
    means = {}
    for name in found[0]:
        values = [each[name] for each in found if not np.isnan(each[name])]
        means[name] = float(np.mean(values)) if values else 0.0
    return means


def separation_chances(maps: Iterable[Map], longest: int) -> NDArray[np.float64]:
    """Return how often residues are in contact that are 0, 1, 2, ... apart along the sequence (add-one)."""
    near, every = np.zeros(longest), np.zeros(longest)
    for one in maps:
        for apart in range(min(len(one), longest)):
            values = np.diagonal(one, apart)
            near[apart] += np.sum(values < CONTACT)
            every[apart] += np.sum(~np.isnan(values))
    return (near + 1) / (every + 2 * longest)


def _by_separation(chances: NDArray[np.float64], length: int) -> Map:
    places = np.arange(length)
    found: Map = chances[np.abs(places[:, None] - places[None])].astype(np.float32)
    return found
