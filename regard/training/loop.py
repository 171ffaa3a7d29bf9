"""The training loop: draw, update, log, validate, save, until all steps are done, nothing improves, or the user stops.

Everything that decides what is learned is a function of the config and the step, or is in the checkpoint. So a run
that was killed and resumed ends with the same weights, to the bit, as one that was not (on the CPU).
"""

import shlex
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from math import isfinite
from typing import Any

import torch
from torch import Tensor, nn

from regard.errors import RegardError
from regard.runs.checkpoint import Checkpoint, checkpoint_steps, load_checkpoint
from regard.runs.layout import AVERAGING, CHECKPOINTS
from regard.tasks.task import Task
from regard.training.background import FileWriter
from regard.training.best import BestSoFar
from regard.training.callbacks import notify
from regard.training.checkpoint import prune_checkpoints, save_checkpoint
from regard.training.log import Log
from regard.training.memory import peak_memory
from regard.training.prefetch import Draws, Prefetcher
from regard.training.probe import Snapshots
from regard.training.progress import Progress, Standing, duration
from regard.training.ranks import Ranks
from regard.training.run import Run
from regard.training.shard import local
from regard.training.spent import Spent
from regard.training.stop import StopError, stoppable
from regard.training.time_left import TimeLeft, count_validations, is_averaged, is_validated
from regard.training.update import Outcome, Update
from regard.training.validation import Validator
from regard.training.window import LogWindow
from regard.use.evaluate import Evaluation

RELEASE_EVERY = 50  # updates after which mapped pages are released, so that resident memory stays bounded
KEPT = 2  # checkpoints while training: the older one is used if the newer one is damaged
NOT_COMPILED = "updates take longer; train.compile=never does not try it"
BAD_IN_A_ROW = 5  # updates in a row that were not finite, after which a run stops


class Trainer:
    """Trains the model of a run."""

    def __init__(
        self, run: Run, task: Task, model: nn.Module, ranks: Ranks, progress: Progress, callbacks: Sequence[Any] = ()
    ) -> None:
        self.run, self.task, self.model, self.callbacks = run, task, model, callbacks
        self.config = run.config.train
        self.ranks, self.progress = ranks, progress
        self.feed = task.feed(model, self.config.tokens, self.config.seed)
        self.batches = Prefetcher(self.feed, ranks.device, self.config.seed)
        self.update = Update(model, task, self.config, ranks, len(self.feed.order.shapes))
        self.step = self.epoch = self.drawn = 0  # updates done; epochs done; draws of this epoch done
        self.best = BestSoFar(task.metric)
        self.spent = Spent(model)
        self.time_left = TimeLeft()
        self.fingerprint = task.fingerprint()
        self.snapshots = Snapshots(run.folder, task, model, self.config.steps)
        self.window = LogWindow()
        self.bad_in_a_row = torch.zeros((), device=ranks.device)
        self.metric: str | None = None  # the last value, as it is shown
        self.files = FileWriter(ranks)
        self.validator = Validator(run, task, model, self.update, self.best, self.files, self._say)

    # --- the loop ----------------------------------------------------------------------------------------------------

    def train(self) -> Evaluation:
        """Train to the end; return the evaluation of the best weights."""
        with self._log() as log, stoppable(self.run.folder, self.ranks.first) as stop, self.files.later():
            draws = self.draws()
            if obstacle := self.update.execution.obstacle:
                self._say(f"nothing is compiled: {obstacle}; {NOT_COMPILED}", "yellow")
            with self.window.paused(self.ranks.device):
                self._first_snapshot()
            while not self.is_done():
                self.window.add(self.advance(draws))
                if self.step % self.config.log_every == 0 or self.step == self.config.steps:
                    self.show(log, self.window)
                    self.window = LogWindow()
                stopped = self.ranks.largest(stop.number or 0)  # a signal may have reached some processes only
                if stopped or self._is_interrupted():
                    with self.window.paused(self.ranks.device):
                        self._interrupt(log, stopped)
                if stopped:
                    self.files.wait()
                    raise StopError(f"stopped at step {self.step}, everything is saved", self.run.folder, stopped)
            if self.window.updates:
                self.show(log, self.window)
                self.window = LogWindow()
            if self.step < self.config.steps:
                rule = f"no validation was better since step {self.best.improved_step}"
                self._say(f"step {self.step}: training ends early: {rule} (train.patience={self.config.patience})")
            self.save()
            self.files.wait()
            stop.saved = True
            found = self._finish()
            self._tidy()
            return found

    def _is_interrupted(self) -> bool:
        """Return whether anything is done between this update and the next."""
        saves = self.step % self.config.checkpoint_every == 0 or is_averaged(self.step, self.config)
        return saves or self._must_validate() or self.snapshots.wanted(self.step, ends=False)

    def _interrupt(self, log: Log | None, stopped: int) -> None:
        """Do what is due after this update: a validation, a snapshot, a checkpoint."""
        if self._must_validate():
            started = time.perf_counter()
            self._validate(log)
            self.time_left.add_validation(time.perf_counter() - started)
        elif is_averaged(self.step, self.config):
            self.validator.keep_to_average(self.step, self.update.average)
        self._snapshot()  # before a checkpoint, so that a resumed run does not miss it
        if self.step % self.config.checkpoint_every == 0 or stopped:
            self.save()

    def advance(self, draws: Draws) -> Outcome:
        """Do one update."""
        batch, draw, epoch, drawn = self.batches.take(draws, self.step + 1)
        split, failure, obstacle = self.update.split, self.update.capture_failure, self.update.execution.obstacle
        started = time.perf_counter()
        outcome = self.update(batch, self.step + 1)
        self.time_left.add_update(draw.shape, time.perf_counter() - started)
        self.spent.count_flops(draw, self.task.passes())
        self.step, self.epoch, self.drawn = self.step + 1, epoch, drawn
        if self.step < self.config.steps:
            self.batches.prepare_next(draws, self.step + 1)
        self.bad_in_a_row = (self.bad_in_a_row + outcome.bad) * outcome.bad
        if self.update.capture_failure != failure:
            reason = f"cannot be captured as a CUDA graph ({self.update.capture_failure})"
            self._say(
                f"step {self.step}: an update {reason}; updates run without graphs, with the same result", "yellow"
            )
        if self.update.execution.obstacle != obstacle:
            self._say(
                f"step {self.step}: compiling failed ({self.update.execution.obstacle}); {NOT_COMPILED}", "yellow"
            )
        if self.update.split > split:
            parts = f"from now on updates are split into {self.update.split} parts"
            self._say(f"step {self.step}: out of memory; {parts}, with the same result in less memory", "yellow")
        if self.ranks.device.type == "cpu":  # on an accelerator this would wait for it
            self._check_updates()
        if self.step % RELEASE_EVERY == 0:
            self.task.release()
        return outcome

    def draws(self) -> Draws:
        """Yield (draw, epoch, draws of that epoch after it), starting from the current position of the run."""
        epoch, done = self.epoch, self.drawn
        while True:
            for number, draw in enumerate(self.feed.order.epoch(epoch)):
                if number >= done:
                    yield draw, epoch, number + 1
            epoch, done = epoch + 1, 0

    def is_done(self) -> bool:
        """Return whether all steps are done, or neither metric nor loss has improved for too many validations."""
        exhausted = self.best.is_exhausted(self.config.patience, self.config.validate_every)
        return self.step >= self.config.steps or exhausted

    def _must_validate(self) -> bool:
        """Return whether the weights of this step are measured."""
        return is_validated(self.step, self.config, self.config.rare_until if self.best.improves else 0.0)

    def show(self, log: Log | None, window: LogWindow) -> None:
        """Log and show the progress. This waits for the accelerator."""
        loss, count, norm, bad = self.ranks.sum(window.sums()).tolist()
        seconds = window.seconds()
        self.spent.seconds += seconds
        if bad:
            skipped = f"the loss was not finite; updates skipped: {int(bad / self.ranks.world)}"
            self._say(f"step {self.step}: {skipped}", "yellow")
            self._check_updates()
        rate = self.config.optimizer.rate * self.config.schedule.factor(self.step, self.config.steps)
        speed = count / self.ranks.world / seconds
        mean = loss * self.ranks.world / count if count else float("nan")
        self.spent.tokens += round(count / self.ranks.world)
        memory = peak_memory(self.ranks.device)
        if log is not None and isfinite(mean):
            values = {"loss": mean, "rate": rate, "norm": norm / window.updates / self.ranks.world}
            values |= {"tokens_per_second": speed, "memory": float(memory)} | self.spent.values()
            if self.update.routers:
                values["busiest_expert"] = float(self.update.busiest.mean())
            log.write(self.step, "train", values)
            notify(self.callbacks, "on_update", self.step, values)
        if self.update.execution.compiles and self.step == window.updates:
            self._say(f"compiling took {duration(self.time_left.compiling)}")
        self.time_left.add_window(window.updates, seconds)
        validations = count_validations(self.step, self.config)
        left = self.time_left.estimate(self.config.steps - self.step, validations + 1)  # and one at the very end
        if self.ranks.first:
            standing = Standing(
                self.step, self.config.steps, mean, rate, speed, memory, left, self.metric, self.task.unit
            )
            self.progress.step(standing)

    def _spent_now(self) -> dict[str, float | int]:
        """Return what all updates so far have cost, with those since the last line of the log."""
        if not self.window.updates:
            return self.spent.values()
        count = round(float(self.window.sums()[1]))  # which is the same in all processes
        return self.spent.values(count, self.window.seconds())

    def _check_updates(self) -> None:
        """Stop after too many updates in a row that were not finite."""
        if int(self.bad_in_a_row) >= BAD_IN_A_ROW:
            raise RegardError(f"{int(self.bad_in_a_row)} updates in a row were not finite; {self._how_to_continue()}")

    def _how_to_continue(self) -> str:
        """Return the remedy after training has failed."""
        with suppress(RegardError):  # another error, less important than the one that is reported
            self.files.wait()
        steps = checkpoint_steps(self.run.folder / CHECKPOINTS)
        if not steps:
            return "there is no checkpoint yet: start again with a lower train.optimizer.rate or train.clip"
        command = f"regard train --resume {shlex.quote(str(self.run.folder))} train.optimizer.rate=..."
        return f"the checkpoint of step {steps[-1]} is good: lower the rate with: {command}"

    def _say(self, text: str, style: str = "") -> None:
        if self.ranks.first:
            self.progress.say(text, style)

    # --- validation --------------------------------------------------------------------------------------------------

    def _validate(self, log: Log | None) -> None:
        """Measure the current weights, log and show the result."""
        values, is_best, samples = self.validator.validate(self.step, self.update.average)
        self.metric = f"valid {_title(self.task.metric)} {values[self.task.metric]:.4g}"
        if log is not None:
            log.write(self.step, "valid", values | self._spent_now())
            log.samples(self.step, samples)
            if self.callbacks:  # they may read what was written
                self.files.wait()
            notify(self.callbacks, "on_validation", self.step, values)
        if self.ranks.first:
            self.progress.validation(self.step, values, is_best, self.validator.method())
            self.progress.samples(samples)

    def _finish(self) -> Evaluation:
        """Average the last weights, save them if they are the best, and evaluate the best as `regard evaluate` does."""
        if (averaged := self.validator.compare_average(self.step)) is not None:
            values, is_best, steps = averaged
            self._say(f"average of the weights of steps {', '.join(map(str, steps))}:")
            if self.ranks.first:
                self.progress.validation(self.step, values, is_best, self.validator.method())
            if is_best:
                self.save()  # a run that is resumed from here must beat the average
        self.files.wait()
        if self.best.value is None:
            raise RegardError(f"no validation gave a number, so no model is kept; {self._how_to_continue()}")
        self.ranks.wait()
        return self.validator.evaluate_best()

    def _first_snapshot(self) -> None:
        """Save what the model attends to before the first update."""
        if self.ranks.first:
            self.snapshots.begin(self.step)
        if self.step == 0:
            self._snapshot()

    def _snapshot(self) -> None:
        """Save what the model attends to, at the chosen steps."""
        if self.snapshots.wanted(self.step, ends=self.is_done()):
            with self.validator.weights(self.update.average) as model:
                if self.ranks.first:
                    self.snapshots.take(model, self.step, self.files.do)

    def _tidy(self) -> None:
        """Remove what only a run in progress needs: weights to be averaged, and all but the last checkpoints."""
        if self.ranks.first:
            shutil.rmtree(self.run.folder / AVERAGING, ignore_errors=True)
            with suppress(OSError):
                prune_checkpoints(self.run.folder / CHECKPOINTS, self.step, self.config.keep)

    # --- saving and resuming -----------------------------------------------------------------------------------------

    def state(self) -> dict[str, Tensor]:
        """Return all tensors that the next update depends on."""
        return self.update.state()

    def facts(self) -> dict[str, Any]:
        """Return the rest of the state of the run, as JSON values."""
        return {
            "epoch": self.epoch,
            "drawn": self.drawn,
            **self.best.facts(),
            "measures_precisely": self.validator.measures_precisely,
            "split": self.update.split,
            **self.spent.facts(),
            "window": self.window.facts(self.ranks) if self.window.updates else None,
            "bad_in_a_row": int(self.bad_in_a_row),
            "data": self.task.facts(),
            "fingerprint": self.fingerprint,
        }

    def save(self) -> None:
        """Save a checkpoint, unless the weights are not finite."""
        self._check_updates()
        state, facts = self.state(), self.facts()
        if self.ranks.largest(int(not _are_finite(state.values()))):
            raise RegardError(f"step {self.step}: the weights are no longer finite; {self._how_to_continue()}")
        folder, step, keep = self.run.folder / CHECKPOINTS, self.step, max(KEPT, self.config.keep)
        if self.update.sharded:
            save_checkpoint(folder, step, state, facts, keep, self.ranks)
        elif self.ranks.first:
            self.files.write(state, lambda kept: save_checkpoint(folder, step, kept, facts, keep))
        self.ranks.wait()

    def resume(self, accept_changed_data: bool = False) -> bool:
        """Continue from the newest good checkpoint, if there is one."""
        warn = partial(self._say, style="yellow")
        found = load_checkpoint(self.run.folder / CHECKPOINTS, warn, self.state())
        if found is None:
            return False
        changed = self._changed_data(found.facts)
        if changed and not accept_changed_data:
            remedy = "restore the files, or accept the change with --accept-changed-data"
            raise RegardError(f"{self.run.folder}: the data has changed since the checkpoint: {changed}; {remedy}")
        self.load(found)
        if changed:
            self._say(f"the data has changed: {changed}; the best weights are chosen again from here on", "yellow")
            self.best.begin_again(self.step)
        return True

    def _changed_data(self, facts: Mapping[str, Any]) -> str:
        """Return how the data differs from that of a checkpoint; empty if it does not."""
        before, now = (_listed(counts) for counts in (facts["data"], self.task.facts()))
        if before != now:
            return f"it had {before}, and now {now}"
        same = facts["fingerprint"] == self.fingerprint
        return "" if same else f"it still has {now}, but other content or another order"

    def load(self, found: Checkpoint) -> None:
        """Restore a checkpoint."""
        facts = found.facts
        if not self.update.fits(found.tensors):
            what = "the checkpoint is of another model than recipe.toml describes"
            raise RegardError(f"{self.run.folder}: {what}; undo the change, or begin a new run with --init-from")
        self.update.load(found.tensors, facts["split"], rows=len(next(self.feed.order.epoch(0)).rows))
        self.step, self.epoch, self.drawn = found.step, facts["epoch"], facts["drawn"]
        self.best.load(facts)
        self.validator.measures_precisely = facts.get("measures_precisely", False)  # earlier versions did not save it
        self.spent.load(facts)
        if facts["window"] is not None:
            self.window = LogWindow.load(facts["window"], self.ranks)
        self.bad_in_a_row.fill_(facts["bad_in_a_row"])

    @contextmanager
    def _log(self) -> Iterator[Log | None]:
        """Open the log in the first process only."""
        log = Log(self.run.folder, self.step) if self.ranks.first else None
        try:
            yield log
        finally:
            if log is not None:
                log.close()


def _are_finite(values: Iterable[Tensor]) -> bool:
    """Return whether all numbers are finite; an accelerator is waited for once."""
    found = [local(tensor).isfinite().all() for tensor in values if tensor.is_floating_point()]
    return bool(torch.stack(found).all())


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.items())


def _title(metric: str) -> str:
    return {"bleu": "BLEU"}.get(metric, metric)
