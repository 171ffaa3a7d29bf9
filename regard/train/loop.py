"""The loop: draw, update, log, validate, save; until the steps are done, nothing gets better, or somebody stops it.

Everything that decides what is learned is a function of the config and the step, or is in the checkpoint. So a run
that was killed and resumed ends with the same weights, to the bit, as one that was not (on the CPU).
"""

import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import isfinite
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from regard.data.batches import Draw
from regard.errors import RegardError
from regard.models.model import Model
from regard.models.store import save_model, tensors
from regard.tasks.metric import better
from regard.tasks.task import Task
from regard.train.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from regard.train.log import Log
from regard.train.memory import memory_in_use
from regard.train.progress import Progress, Standing
from regard.train.ranks import Ranks
from regard.train.run import AVERAGING, CHECKPOINTS, Run
from regard.train.update import Update

BAD_IN_A_ROW = 5  # updates that were not finite, after which a run stops


class StopError(RegardError):
    """Somebody stopped the run; nothing is lost."""

    def __init__(self, message: str, signal_number: int) -> None:
        super().__init__(message)
        self.exit_code = 128 + signal_number


class Trainer:
    """Trains the model of a run."""

    def __init__(self, run: Run, task: Task, model: Model, ranks: Ranks, progress: Progress) -> None:
        self.run, self.task, self.model = run, task, model
        self.config = run.config.train
        self.ranks, self.progress = ranks, progress
        self.update = Update(model, task, self.config, ranks)
        self.order = task.order(model, self.config.tokens, self.config.accumulate * ranks.world, self.config.seed)
        self.step = self.epoch = self.drawn = 0  # updates done; where in the data: draws of this epoch that are done
        self.best: float | None = None
        self.best_step = 0
        self.seconds = 0.0
        self.bad_in_a_row = torch.zeros((), device=ranks.device)
        self.metric: str | None = None

    # --- the loop ----------------------------------------------------------------------------------------------------

    def train(self) -> dict[str, float]:
        """Train to the end; give what the kept weights were measured to have."""
        with self._log() as log, _stoppable() as stop:
            window = Window()
            draws = self._draws()
            while self.step < self.config.steps and not self._exhausted():
                draw, epoch, drawn = next(draws)
                torch.manual_seed(self.config.seed * 1_000_003 + self.step)
                outcome = self.update(self.task.batch(draw, epoch), self.step + 1)
                self.step, self.epoch, self.drawn = self.step + 1, epoch, drawn
                self.bad_in_a_row = (self.bad_in_a_row + outcome.bad) * outcome.bad
                window.add(outcome.loss, outcome.count, outcome.bad, outcome.norm)
                if self.step % self.config.log_every == 0 or self.step == self.config.steps:
                    self._show(log, window)
                    window = Window()
                if self.step % self.config.validate_every == 0 or self.step == self.config.steps:
                    self._validate(log)
                    window.restart()
                if self.step % self.config.checkpoint_every == 0:
                    self.save()
                if stop.number is not None:
                    self._stop(stop.number)
            return self._finish(log)

    def _draws(self) -> Iterator[tuple[Draw, int, int]]:
        """Give (draw, epoch, draws of that epoch after it), on from where the run stands."""
        epoch, done = self.epoch, self.drawn
        while True:
            for number, draw in enumerate(self.order.epoch(epoch)):
                if number >= done:
                    yield draw, epoch, number + 1
            epoch, done = epoch + 1, 0

    def _exhausted(self) -> bool:
        """Whether validations have not got better for too long."""
        patience = self.config.patience
        return patience is not None and self.step - self.best_step >= patience * self.config.validate_every

    def _show(self, log: Log | None, window: "Window") -> None:
        """Say where the run stands. This is where an accelerator is waited for."""
        loss, count, bad, norm = self.ranks.sum(window.sums()).tolist()
        seconds = window.seconds()
        self.seconds += seconds
        if bad:
            self._warn_of_bad(int(bad / self.ranks.world))
        rate = self.config.schedule.factor(self.step, self.config.steps)
        speed = count / self.ranks.world / seconds
        mean = loss * self.ranks.world / count if count else float("nan")
        memory = memory_in_use(self.ranks.device)
        if log is not None and isfinite(mean):
            values = {"loss": mean, "rate": rate, "norm": norm / window.updates / self.ranks.world}
            log.write(self.step, "train", values | {"tokens_per_second": speed, "memory": float(memory)})
        left = (self.config.steps - self.step) * self.seconds / max(self.step, 1)
        if self.ranks.first:
            standing = Standing(self.step, self.config.steps, mean, rate, speed, memory, left, self.metric)
            self.progress.step(standing)

    def _warn_of_bad(self, count: int) -> None:
        """Say that updates were skipped; stop if it does not end."""
        self._say(f"step {self.step}: the loss was not finite; {count} updates skipped", "yellow")
        if int(self.bad_in_a_row) >= BAD_IN_A_ROW:
            kept = f"the last good checkpoint is kept in {self.run.folder / CHECKPOINTS}"
            remedy = "lower train.optimizer.rate or train.clip, then --resume"
            raise RegardError(f"{int(self.bad_in_a_row)} updates in a row were not finite; {kept}; {remedy}")

    def _say(self, text: str, style: str = "") -> None:
        if self.ranks.first:
            self.progress.say(text, style)

    # --- validation --------------------------------------------------------------------------------------------------

    def _validate(self, log: Log | None) -> None:
        """Measure on the validation data, show samples, keep the weights if they are the best so far."""
        with self._averaged(), self.update.autocast():
            self.model.eval()
            values = self.task.measure(self.model, self.config.valid_rows)
            samples = self.task.samples(self.model)
            value = values[self.task.metric]
            is_best = better(self.task.metric, value, self.best)
            if is_best:
                self.best, self.best_step = value, self.step
                self._keep_best()
            self._keep_for_averaging()
        self.metric = f"{_title(self.task.metric)} {value:.4g}"
        if log is not None:
            log.write(self.step, "valid", values)
            log.samples(self.step, samples)
        if self.ranks.first:
            self.progress.validation(self.step, values, is_best)
            self.progress.samples(samples)

    @contextmanager
    def _averaged(self) -> Iterator[None]:
        """Put the moving average in the place of the weights for a while."""
        average = self.update.average
        if average is None:
            yield
            return
        own = {name: tensor.detach().clone() for name, tensor in tensors(self.model).items()}
        _copy(average, self.model)
        try:
            yield
        finally:
            _copy(own, self.model)

    def _keep_best(self) -> None:
        if self.ranks.first:
            save_model(self.model, self.run.folder)

    def _keep_for_averaging(self) -> None:
        """Keep the weights of the last few validations."""
        if not (self.config.average and self.ranks.first):
            return
        folder = self.run.folder / AVERAGING
        folder.mkdir(exist_ok=True)
        weights = {name: tensor.detach().contiguous() for name, tensor in tensors(self.model).items()}
        part = folder / "weights.part"
        save_file(weights, part)
        part.replace(_weights_of(folder, self.step))
        last = self.step - self.config.average * self.config.validate_every
        for path in folder.glob("*.safetensors"):
            if not last < _step_of(path) <= self.step:
                path.unlink()

    def _finish(self, log: Log | None) -> dict[str, float]:
        """Average the last weights and keep them if they are better than the best; measure all validation data."""
        self.save()
        folder = self.run.folder / AVERAGING
        last = self.step - self.config.average * self.config.validate_every
        files = [path for path in sorted(folder.glob("*.safetensors")) if last < _step_of(path) <= self.step]
        if len(files) > 1:
            _copy(mean_of([load_file(path) for path in files]), self.model)
            with self.update.autocast():
                self.model.eval()
                values = self.task.measure(self.model, self.config.valid_rows)
            is_best = better(self.task.metric, values[self.task.metric], self.best)
            self._say(f"average of the last {len(files)} validations:")
            if self.ranks.first:
                self.progress.validation(self.step, values, is_best)
            if is_best:
                self._keep_best()
        self.ranks.wait()
        kept = self.run.model(self.ranks.device)
        with self.update.autocast():
            return self.task.measure(kept)

    # --- saving and going on -----------------------------------------------------------------------------------------

    def state(self) -> dict[str, Tensor]:
        """Everything that the next update depends on."""
        state = {f"model/{name}": tensor.detach() for name, tensor in tensors(self.model).items()}
        state |= {f"optimizer/{name}": tensor for name, tensor in self.update.optimizer.tensors().items()}
        state |= {f"average/{name}": tensor for name, tensor in (self.update.average or {}).items()}
        carried = {name: self.ranks.sum(tensor.clone()) for name, tensor in self.update.carried.items()}
        return state | {f"carried/{name}": tensor for name, tensor in carried.items()}

    def facts(self) -> dict[str, Any]:
        """Where the run stands, besides tensors."""
        return {
            "epoch": self.epoch,
            "drawn": self.drawn,
            "best": self.best,
            "best_step": self.best_step,
            "split": self.update.split,
            "seconds": self.seconds,
            "bad_in_a_row": int(self.bad_in_a_row),
            "data": self.task.facts(),
        }

    def save(self) -> None:
        """Save a checkpoint."""
        state, facts = self.state(), self.facts()
        if self.ranks.first:
            save_checkpoint(self.run.folder / CHECKPOINTS, self.step, state, facts)
        self.ranks.wait()

    def resume(self) -> bool:
        """Go on from the newest good checkpoint, if there is one."""
        found = load_checkpoint(self.run.folder / CHECKPOINTS, lambda text: self._say(text, "yellow"))
        if found is None:
            return False
        self.load(found)
        return True

    def load(self, found: Checkpoint) -> None:
        """Take over a checkpoint."""
        facts = found.facts
        if facts["data"] != self.task.facts():
            before, now = (", ".join(f"{k} {v:,}" for k, v in d.items()) for d in (facts["data"], self.task.facts()))
            raise RegardError(f"{self.run.folder}: the data has changed since: it had {before}, and now {now}")
        _copy(_below("model/", found.tensors), self.model)
        self.update.optimizer.load(_below("optimizer/", found.tensors))
        if self.update.average is not None:
            for name, tensor in _below("average/", found.tensors).items():
                self.update.average[name].copy_(tensor)
        carried = _below("carried/", found.tensors)
        self.update.carried = {name: tensor.to(self.ranks.device) for name, tensor in carried.items()}
        self.step, self.epoch, self.drawn = found.step, facts["epoch"], facts["drawn"]
        self.best, self.best_step = facts["best"], facts["best_step"]
        self.update.split = max(self.config.accumulate, facts["split"])
        self.seconds = facts["seconds"]
        self.bad_in_a_row.fill_(facts["bad_in_a_row"])

    def _stop(self, number: int) -> None:
        self.save()
        how = f"go on with: regard train --resume {self.run.folder}"
        raise StopError(f"stopped at step {self.step}, all is saved; {how}", number)

    @contextmanager
    def _log(self) -> Iterator[Log | None]:
        """Open the log in the first process only."""
        log = Log(self.run.folder, self.step) if self.ranks.first else None
        try:
            yield log
        finally:
            if log is not None:
                log.close()


class Window:
    """What happened since the last time it was shown; sums on the device, so that nothing waits."""

    def __init__(self) -> None:
        self.updates = 0
        self.paused = 0.0
        self.begun = time.perf_counter()
        self.last = self.begun
        self._sums: list[Tensor] | None = None

    def add(self, *values: Tensor) -> None:
        """Add the values of an update; of one that was not finite only that it was."""
        loss, count, bad, norm = (value.detach().float() for value in values)
        good = 1 - bad
        new = [torch.nan_to_num(loss, 0.0, 0.0, 0.0) * good, count * good, bad, torch.nan_to_num(norm, 0.0, 0.0, 0.0)]
        self._sums = new if self._sums is None else [old + value for old, value in zip(self._sums, new, strict=True)]
        self.updates += 1

    def sums(self) -> Tensor:
        """Loss, count, bad updates, norms."""
        assert self._sums is not None
        return torch.stack(self._sums)

    def seconds(self) -> float:
        """Time since the window began."""
        return max(time.perf_counter() - self.begun, 1e-9)

    def restart(self) -> None:
        """Do not count the time that a validation took."""
        self.begun = time.perf_counter()


class Stop:
    """The signal that came, if one came."""

    number: int | None = None


@contextmanager
def _stoppable() -> Iterator[Stop]:
    """Note an interrupt or a request to terminate, to save first; a second one stops at once."""
    stop = Stop()

    def note(number: int, frame: FrameType | None) -> None:
        if stop.number is not None:
            raise KeyboardInterrupt
        stop.number = number

    try:
        before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not in the main thread, as in some notebooks: there nobody sends signals
        yield stop
        return
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def mean_of(weights: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Average weights; what is no fraction is taken from the last."""
    return {
        name: torch.stack([one[name] for one in weights]).mean(0) if tensor.is_floating_point() else tensor
        for name, tensor in weights[-1].items()
    }


@torch.no_grad()
def _copy(source: Mapping[str, Tensor], model: Model) -> None:
    for name, tensor in tensors(model).items():
        tensor.copy_(source[name])


def _below(prefix: str, found: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in found.items() if name.startswith(prefix)}


def _weights_of(folder: Path, step: int) -> Path:
    return folder / f"step-{step:08d}.safetensors"


def _step_of(path: Path) -> int:
    return int(path.stem.removeprefix("step-"))


def _title(metric: str) -> str:
    return {"bleu": "BLEU", "loss": "valid loss"}.get(metric, metric)
