"""Trajectories: forecast where agents go, several futures for each; the errors of the best one, ADE and FDE, in metres.

The usual protocol for ETH/UCY (Alahi et al. 2016; Gupta et al. 2018): steps of 0.4 s, 8 observed and 12 predicted, in
every window of 20 consecutive steps. The agents that are present at all steps of a window are forecast and measured;
all others that are present at the last observed step are seen. ADE is the mean distance over the predicted steps, FDE
that at the last one; of the futures the one with the least error counts, for ADE and FDE each.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import pi
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from regard.config import Count, Rate, Table
from regard.data.batches import Draw, Indices, Shuffled
from regard.data.cache import digest
from regard.data.columns import FileReading
from regard.data.device import to_device
from regard.data.read import Skipped, files_below
from regard.data.tokenizer import Tokenizer, TokenizerConfig
from regard.data.tracks import Tracks, TrackWindows, find_windows, hold_out_end, join_windows, read_tracks
from regard.errors import ConfigError, InputError
from regard.models.trajectory import Futures
from regard.tasks.baselines import Baseline, constant_velocity, constant_velocity_samples, linear_motion
from regard.tasks.cautions import Hashes, caution_validation, hash_items
from regard.tasks.defaults import Amount
from regard.tasks.files import FileTaskConfig, name_files
from regard.tasks.loss import IGNORE, Losses
from regard.tasks.metric import displacement_errors
from regard.tasks.sample import Sample
from regard.tasks.task import Batch, Feed, Task

HELD_OUT = 0.1  # the share of each recording, its end, that is kept for validation when no file is given for it
AT_ONCE = 4096  # agents of a batch of validation


@dataclass(frozen=True, kw_only=True)
class TrajectoriesConfig(FileTaskConfig):
    """Text files with a row `frame agent x y` for each agent and step."""

    recipe = "forecaster"
    models = ("trajectory",)
    update_tokens = 4096
    passes = 60
    wanted = "a file with rows of frame, agent, x and y, or a folder of them"

    train: tuple[str, ...]
    """Files or folders of recordings to train on."""
    valid: tuple[str, ...] = ()
    """Files or folders to validate on; absent: the last tenth of each recording is held out."""
    observed: Count = 8
    """Steps that are seen."""
    predicted: Count = 12
    """Steps that are forecast."""
    agents: Count = 32
    """The most agents of a training window; of more, those nearest to one of them."""
    rotate: bool = True
    """Whether training windows are rotated by a random angle."""
    flip: bool = True
    """Whether training windows are mirrored at random."""
    scale: Rate = 0.2
    """By how much training windows are scaled at random: from 1 - scale to 1 + scale."""
    relax: Rate = 0.05
    """Share of the loss that all futures have in common; the rest is that of the best one (Rupprecht et al. 2017)."""
    final: Rate = 0.0
    """Share of the distance at the last step in the error of a future; the rest is the mean over all steps."""
    choice: Rate = 0.1
    """Weight of the cross-entropy between the probabilities of the futures and the best one."""

    def validate(self) -> None:
        """Check the rules between values."""
        super().validate()
        if self.observed < 2:
            raise ConfigError(f"{self.observed} must be at least 2, since a velocity needs two steps", "observed")

    def suggest_tokenizer(self, pieces: bool) -> Table | None:
        """Return None: positions have no tokenizer."""
        return None

    def suggest_training(self) -> Table:
        """Return a moving average: after 1,200 of 4,000 updates on ETH/UCY, ADE is 0.179 with it and 0.192 without."""
        return {"ema": 0.999}

    def prepare(self, tokenizer: TokenizerConfig | None, seed: int, say: Callable[[str], None]) -> "Trajectories":
        """Read the recordings."""
        say("reading the recordings")
        skipped, length = Skipped(), self.observed + self.predicted
        recordings = read_recordings(self.train, skipped)
        found = [find_windows(tracks, self.observed, self.predicted) for tracks in recordings]
        if self.valid:
            others = [find_windows(each, *self.steps) for each in read_recordings(self.valid, skipped)]
            train, valid = join_windows(found, length), join_windows(others, length)
        else:
            split = [hold_out_end(windows, length, HELD_OUT) for windows in found]
            train, valid = (join_windows(side, length) for side in zip(*split, strict=True))
        for windows, names in ((train, self.train), (valid, self.valid or self.train)):
            self._check(windows, names, ", or lower task.observed and task.predicted")
        return Trajectories(self, skipped, train, valid)

    def evaluation(self, tokenizer: Tokenizer | None, files: list[str]) -> "Trajectories":
        """Open other recordings to measure a model on."""
        skipped = Skipped()
        found = [find_windows(tracks, *self.steps) for tracks in read_recordings(files, skipped)]
        windows = join_windows(found, sum(self.steps))
        self._check(windows, files)
        return Trajectories(self, skipped, windows, windows)

    @property
    def steps(self) -> tuple[int, int]:
        """The observed and the predicted steps."""
        return self.observed, self.predicted

    def _check(self, windows: TrackWindows, names: Sequence[str], remedy: str = "") -> None:
        if not len(windows):
            length = self.observed + self.predicted
            where = f"{name_files(names)}: no agent is present for {length} consecutive steps"
            if names == self.train and not self.valid:
                where += " both before and after the part that is held out"
                remedy = f", others with --valid{remedy}"
            raise InputError(f"{where}; give longer recordings{remedy}")


def read_recordings(names: Sequence[str], skipped: Skipped) -> list[Tracks]:
    """Read the tracks of files, and of all files in folders."""
    return [read_tracks(path, skipped) for name in names for path in files_below(Path(name))]


class Trajectories(Task):
    """L = (1 - r) min_k e_k + r mean_k e_k - c log p_best, with the distance e_k of future k from the truth."""

    name = "trajectories"
    metric = "ade"
    unit = "agents"

    def __init__(self, config: TrajectoriesConfig, skipped: Skipped, train: TrackWindows, valid: TrackWindows) -> None:
        super().__init__(config, None, skipped)
        self.train, self.valid = train, valid
        self._tensors: dict[int, tuple[Tensor, Tensor]] = {}

    def facts(self) -> dict[str, int]:
        """Count windows and agents."""
        return {
            "windows": len(self.train),
            "agents to forecast": int(self.train.whole.sum()),
            "validation windows": len(self.valid),
            "validation agents": int(self.valid.whole.sum()),
        }

    def cautions(self) -> Iterator[str]:
        """Yield what is wrong with the validation windows."""
        seen, held_out = map(_window_hashes, (self.train, self.valid))
        return caution_validation("window", seen, held_out)

    def fingerprint(self) -> str:
        """Compute the checksum of all windows."""
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> str:
        sides = (self.train, self.valid)
        return digest(*(digest(np.nan_to_num(side.positions, nan=1e9), side.begins) for side in sides))

    def readings(self, files: Sequence[str] = ()) -> list[FileReading]:
        """Return how the first file is read."""
        names = list(files) or list(self.config.train)
        (tracks, *_) = read_recordings(names[:1], Skipped())
        x, y = tracks.positions[0].tolist()
        example = {"row": f"{tracks.frame(int(tracks.times[0]))} {tracks.labels[tracks.agents[0]]} {x:g} {y:g}"}
        how = f"frame, agent, x, y; a step is {tracks.step} frame{'s' * (tracks.step != 1)}"
        return [FileReading((tracks.name,), how, example)]

    def amount(self) -> Amount:
        """Return the windows, and the observed steps in them."""
        return Amount(len(self.train), len(self.train.whole) * self.config.observed)

    def longest(self) -> int:
        """Return the steps of all agents of a training window."""
        return self.width * self.config.observed

    @property
    def width(self) -> int:
        """The agents of a training window, at most."""
        return min(self.config.agents, int(self.train.counts.max()))

    def needs(self) -> Table:
        """Return the observed and predicted steps."""
        return {"observed": self.config.observed, "predicted": self.config.predicted}

    # --- batches -----------------------------------------------------------------------------------------------------

    def feed(self, model: nn.Module, tokens: int, seed: int) -> Feed:
        """Return windows, all of one shape; `tokens` counts the observed steps of all agents."""
        order = Shuffled(len(self.train), max(1, tokens // self.longest()), (self.longest(),), seed)
        return Feed(order, lambda draw, epoch: self.varied(draw))

    def varied(self, draw: Draw) -> Batch:
        """Return the windows of a draw: at most `agents` of each, rotated, mirrored and scaled at random."""
        positions, whole = self.windows(self.train, draw.rows, int(self.train.counts.max()))
        positions, whole = nearest_agents(positions, whole, self.config.observed, self.width)
        return self.batch(vary(positions, self.config), whole)

    def rows(self, windows: TrackWindows, rows: Indices) -> Batch:
        """Return whole windows by number, as wide as the one with the most agents."""
        return self.batch(*self.windows(windows, rows, int(windows.counts[rows].max())))

    def windows(self, windows: TrackWindows, rows: Indices, width: int) -> tuple[Tensor, Tensor]:
        """Return the positions (B, A, T, 2) of windows by number, NaN where there is none, and who is forecast.

        An empty row repeats the first window, and forecasts nothing.
        """
        known = np.maximum(rows, 0)
        numbers = windows.begins[known][:, None] + np.arange(width)
        inside = np.arange(width) < windows.counts[known][:, None]
        index = to_device(np.where(inside, numbers, len(windows.whole)), self.device)
        positions, whole = self.tensors(windows)
        return positions[index], whole[index] & to_device(rows >= 0, self.device)[:, None]

    def tensors(self, windows: TrackWindows) -> tuple[Tensor, Tensor]:
        """Return the positions of all agents and which are forecast, on the device; the last row is of no agent."""
        if id(windows) not in self._tensors:
            absent = np.full((1, *windows.positions.shape[1:]), np.nan, np.float32)
            positions = np.concatenate((windows.positions, absent))
            whole = np.append(windows.whole, False)
            self._tensors[id(windows)] = to_device(positions, self.device), to_device(whole, self.device)
        return self._tensors[id(windows)]

    def batch(self, positions: Float[Tensor, "B A T 2"], whole: Bool[Tensor, "B A"]) -> Batch:
        """Split positions into what is seen and what is forecast; absent ones become 0."""
        seen, future = positions.split((self.config.observed, self.config.predicted), 2)
        present = ~seen.isnan().any(-1)
        return {
            "tracks": seen.nan_to_num(0.0).flatten(1, 2),
            "present": present.flatten(1),
            "future": future.nan_to_num(0.0),
            "labels": torch.where(whole, 1, IGNORE),  # the loss is divided by the labels that count
        }

    # --- what is minimised and measured ------------------------------------------------------------------------------

    def loss(self, model: nn.Module, batch: Batch) -> tuple[Losses, Batch]:
        """Compute the error of the best future, a share of all errors, and the cross-entropy of the best one."""
        futures = model(batch["tracks"], batch["present"])
        config, wanted = self.config, batch["labels"] != IGNORE
        weights = (config.relax, config.choice, config.final) if model.training else ()
        return best_of_futures(futures, batch["future"], wanted, *weights), {}

    def validation_cost(self, rows: int | None = None) -> float:
        """Return the observed steps in the validation windows."""
        return float(len(self.valid.whole) * self.config.observed)

    @torch.no_grad()
    def measure(self, model: nn.Module, rows: int | None = None) -> dict[str, float]:
        """Measure ADE and FDE of the best and of the most likely future, over all validation windows."""
        errors: list[Tensor] = []
        for index in self.validation_batches():
            for batch in self.split_batch(self.rows(self.valid, index)):
                paths, logits = model(batch["tracks"], batch["present"])
                ade, fde = displacement_errors(paths, batch["future"])
                likely = logits.argmax(-1, keepdim=True)
                found = (ade.amin(-1), fde.amin(-1), *(each.gather(-1, likely)[..., 0] for each in (ade, fde)))
                errors.append(torch.stack(found, -1)[batch["labels"] != IGNORE])
        ade, fde, likely_ade, likely_fde = torch.cat(errors).double().mean(0).tolist()
        return {"loss": ade, "ade": ade, "fde": fde, "ade_likely": likely_ade, "fde_likely": likely_fde}

    def validation_batches(self) -> Iterator[Indices]:
        """Yield the numbers of validation windows, those with similarly many agents together."""
        order = np.argsort(-self.valid.counts, kind="stable")
        while len(order):
            size = max(AT_ONCE // int(self.valid.counts[order[0]]), 1)
            yield order[:size]
            order = order[size:]

    def measure_baselines(self) -> Iterator[Baseline]:
        """Measure constant velocity, its best of 20 random variations, and a line through the observed steps."""
        positions = self.valid.positions[self.valid.whole]
        for baseline in (constant_velocity, constant_velocity_samples, linear_motion):
            yield baseline(positions, self.config.observed)

    @torch.no_grad()
    def samples(self, model: nn.Module) -> list[Sample]:
        """Forecast an agent in each of three windows: where it is at the end, and the most likely end."""
        count = len(self.valid)
        index = np.unique(np.linspace(0, count - 1, 3).astype(int))
        batch = self.rows(self.valid, index)
        paths, logits = model(batch["tracks"], batch["present"])
        found = []
        for row, number in enumerate(index.tolist()):  # the agents that are forecast come first
            last, end = batch["tracks"][row, self.config.observed - 1], batch["future"][row, 0, -1]
            guess = paths[row, 0, int(logits[row, 0].argmax()), -1]
            name = f"window {number}, moved by"
            found.append(Sample(name, _point(end - last), _point(guess - last)))
        return found

    def probe(self, longest: int = 64) -> Batch:
        """Return a window with some agents, at most as many as have `longest` steps together."""
        number = int(np.argsort(self.valid.counts, kind="stable")[len(self.valid) // 2])
        batch = self.rows(self.valid, np.array([number]))
        steps = max(longest // self.config.observed, 1) * self.config.observed
        return {name: batch[name][:, :steps] for name in ("tracks", "present")}

    def to(self, device: torch.device) -> None:
        """Move the windows to the device."""
        super().to(device)
        self._tensors.clear()


def _window_hashes(windows: TrackWindows) -> Hashes:
    bounds = pairwise(windows.begins.tolist())
    return hash_items(windows.positions[begin:end].tobytes() for begin, end in bounds)


def _point(position: Tensor) -> str:
    x, y = position.tolist()
    return f"{x:.2f} {y:.2f}"


def best_of_futures(
    futures: Futures,
    truth: Float[Tensor, "B A F 2"],
    wanted: Bool[Tensor, "B A"],
    relax: float = 0.0,
    choice: float = 0.0,
    final: float = 0.0,
) -> Losses:
    """Return L = sum_agents (1 - r) min_k e_k + r mean_k e_k - c log p_best (Rupprecht et al. 2017).

    e_k = (1 - f) d_k + f l_k, with the mean distance d_k of future k from the truth over all steps, and that at the
    last one, l_k. Only the best future learns from a path, so that the futures become different. The relaxation r lets
    those learn a little that are never the best.
    """
    mean, last = displacement_errors(futures.paths, truth)
    errors = torch.lerp(mean, last, final)
    least, best = errors.min(-1)
    chosen = F.cross_entropy(futures.logits.flatten(0, 1).to(errors.dtype), best.flatten(), reduction="none")
    objective = (1 - relax) * least + relax * errors.mean(-1) + choice * chosen.view_as(least)
    count = torch.count_nonzero(wanted)
    nearest = mean.detach().amin(-1).masked_fill(~wanted, 0.0).sum()
    return Losses(objective.masked_fill(~wanted, 0.0).sum(), nearest, count)


# --- variations of training windows ----------------------------------------------------------------------------------


def nearest_agents(
    positions: Float[Tensor, "B A T 2"], whole: Bool[Tensor, "B A"], observed: int, most: int
) -> tuple[Float[Tensor, "B _A T 2"], Bool[Tensor, "B _A"]]:
    """Keep the `most` agents that are nearest to a random one of those that are forecast."""
    if positions.shape[1] <= most:
        return positions, whole
    last = positions[:, :, observed - 1]
    chosen = (torch.rand(whole.shape, device=whole.device) + whole).argmax(1)
    middle = last.take_along_dim(chosen[:, None, None], 1)
    away = (last - middle).norm(dim=-1).nan_to_num(torch.inf)
    index = away.topk(most, 1, largest=False).indices
    return positions.take_along_dim(index[:, :, None, None], 1), whole.take_along_dim(index, 1)


def vary(positions: Float[Tensor, "B A T 2"], config: Any) -> Float[Tensor, "B A T 2"]:
    """Rotate, mirror and scale each window around the origin; models do not see where that is."""
    rows, device = len(positions), positions.device
    if config.rotate:
        angle = torch.rand(rows, 1, 1, device=device) * (2 * pi)
        x, y = positions.unbind(-1)
        positions = torch.stack((x * angle.cos() - y * angle.sin(), x * angle.sin() + y * angle.cos()), -1)
    if config.flip:
        mirrored = torch.rand(rows, 1, 1, device=device) < 0.5
        positions = torch.stack((torch.where(mirrored, -positions[..., 0], positions[..., 0]), positions[..., 1]), -1)
    if config.scale:
        positions = positions * (1 + config.scale * (2 * torch.rand(rows, 1, 1, 1, device=device) - 1))
    return positions
