"""Validation: measure weights while a model is trained, keep the best, and evaluate them at the end."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from math import inf, isfinite

import torch
from torch import Tensor, nn

from regard.errors import ConfigError
from regard.models.store import WEIGHTS, read_tensors, save_model, save_weights, tensors
from regard.parts.onednn import fast_products
from regard.runs.layout import AVERAGING
from regard.tasks.sample import Sample
from regard.tasks.task import Task
from regard.training.averaging import keep_weights, last_weights, mean_of, step_of
from regard.training.background import FileWriter
from regard.training.best import BestSoFar
from regard.training.config import TrainConfig
from regard.training.run import Run
from regard.training.settings import without_attention_plans
from regard.training.shard import gathered
from regard.training.update import Update, copy_weights
from regard.use.evaluate import Evaluation

Values = dict[str, float]


def measured_rows(task: Task, config: TrainConfig) -> int | None:
    """Return how many rows a validation measures: of those that are written, or of those that are read; None: all."""
    return config.valid_rows if task.least_rows is None else config.valid_part


class Validator:
    """Measures the weights of a run on the validation data; the best are saved."""

    def __init__(
        self,
        run: Run,
        task: Task,
        model: nn.Module,
        update: Update,
        best: BestSoFar,
        files: FileWriter,
        say: Callable[[str, str], None],
    ) -> None:
        self.run, self.task, self.model, self.update = run, task, model, update
        self.best, self.files, self.say = best, files, say
        self.config, self.ranks = run.config.train, update.ranks
        self.measures_precisely = False  # whether validations are in float32 where updates are in bfloat16

    def method(self) -> str:
        """Return how validations measure, if that needs to be said."""
        return self.task.method(measured_rows(self.task, self.config))

    def validate(self, step: int, weights: Mapping[str, Tensor] | None) -> tuple[Values, bool, list[Sample]]:
        """Measure the weights of a step, the model's own if none are given; keep them to be averaged at the end.

        Return what they measure, whether they are the best so far, and samples.
        """
        with self.weights(weights) as model:
            values, is_best = self._compare(model, step)
            samples = self.task.samples(model)
            self._keep_to_average(model, step)
        self.best.note_validation(step, values.get("loss", inf), is_best)
        return values, is_best, samples

    def keep_to_average(self, step: int, weights: Mapping[str, Tensor] | None) -> None:
        """Keep the weights of a step, the model's own if none are given, to be averaged at the end."""
        with self._swapped(weights) as model:
            self._keep_to_average(model, step)

    def _keep_to_average(self, model: nn.Module, step: int) -> None:
        if self.config.average and self.ranks.first:
            folder, count = self.run.folder / AVERAGING, self.config.average
            self.files.write(tensors(model), lambda kept: keep_weights(folder, step, kept, count))

    def compare_average(self, step: int) -> tuple[Values, bool, list[int]] | None:
        """Measure the average of the last weights that were kept; None for fewer than two.

        Return what it measures, whether it is the best, and the steps whose weights were averaged.
        """
        found = last_weights(self.run.folder / AVERAGING, step, self.config.average)
        if len(found) <= 1:
            return None
        with self.weights(mean_of(found)) as model:
            values, is_best = self._compare(model, step)
        if is_best:
            self.best.weights = f"the average of the last {len(found)} weights"
        return values, is_best, [step_of(path) for path in found]

    def evaluate_best(self) -> Evaluation:
        """Evaluate the weights that were saved, on all validation data, as `regard evaluate` does."""
        if self.run.config.model is not None:
            with without_attention_plans(self.ranks.device):
                return self.run.load(str(self.ranks.device)).evaluate_task(self.task)
        weights = {name: tensor.to(self.ranks.device) for name, tensor in read_tensors(self.run.folder / WEIGHTS)}
        with self.weights(weights) as own:
            found = self.task.within_memory(partial(self.task.measure, own.eval()))
            return Evaluation(found, data=self.task.facts())

    @contextmanager
    def weights(self, weights: Mapping[str, Tensor] | None) -> Iterator[nn.Module]:
        """Yield the model to be measured; during the block, `weights`, if given, replace its own.

        It computes in the precision of training, unless that is too low, by kernels that suit many shapes.
        """
        precision = nullcontext() if self.measures_precisely else self.update.autocast()
        with self._swapped(weights) as model, precision, without_attention_plans(self.ranks.device), fast_products():
            yield model

    @contextmanager
    def _swapped(self, weights: Mapping[str, Tensor] | None) -> Iterator[nn.Module]:
        """Yield the model with other weights, and restore its own afterwards."""
        if self.update.sharded:
            yield gathered(self.model, weights or tensors(self.model), self.ranks.device)
            return
        if weights is None:
            yield self.model
            return
        own = {name: tensor.detach().clone() for name, tensor in tensors(self.model).items()}
        copy_weights(weights, self.model)
        try:
            yield self.model
        finally:
            copy_weights(own, self.model)

    def _compare(self, model: nn.Module, step: int) -> tuple[Values, bool]:
        """Measure weights on the validation data; save them and return True if they are the best."""
        model.eval()
        values, is_finite = self._measure(model, step)
        metric = values[self.task.metric] = self.ranks.of_first(values[self.task.metric])  # all processes must agree
        is_best = is_finite and self.best.is_beaten_by(metric, self.ranks.of_first(values.get("loss", inf)))
        if is_best:
            self.best.value = metric
            if self.ranks.first:
                self._keep(model)
        return values, is_best

    def _measure(self, model: nn.Module, step: int) -> tuple[Values, bool]:
        """Return what weights measure, and whether the loss is finite; if it is not in bfloat16, float32 is used."""
        values = self._measure_once(model)
        if not self._has_finite_loss(values) and self.update.lowers_precision and not self.measures_precisely:
            self.measures_precisely = True
            rule = "not finite in bfloat16; it is measured again, and from now on, in float32"
            self.say(f"step {step}: the validation loss is {rule}", "yellow")
            with torch.autocast(self.ranks.device.type, enabled=False):
                values = self._measure_once(model)
        is_finite = self._has_finite_loss(values)
        if not is_finite:
            self.say(f"step {step}: the validation loss is not finite, so these weights are not kept", "yellow")
        return values, is_finite

    def _measure_once(self, model: nn.Module) -> Values:
        """Measure weights, in more parts if memory runs out."""
        parts = self.task.parts
        rows = measured_rows(self.task, self.config)
        values = self.task.within_memory(lambda: self.task.measure(model, rows))
        if self.task.metric not in values:
            measured = ", ".join(values) or "nothing"
            rule = f"task {self.task.name!r}: `measure` must return its metric, {self.task.metric!r}"
            raise ConfigError(f"{rule}, but returned {measured}; return it, or change `metric`")
        if self.task.parts > parts:
            self.say(f"validation: out of memory; its batches are now split into {self.task.parts} parts", "yellow")
        return values

    def _has_finite_loss(self, values: Mapping[str, float]) -> bool:
        """Return whether the loss, if there is one, is finite in all processes."""
        return not self.ranks.largest(int(not isfinite(values.get("loss", 0.0))))

    def _keep(self, model: nn.Module) -> None:
        """Save the weights, and the config, which a module of the user does not have."""
        folder = self.run.folder
        if self.run.config.model is None:
            self.files.write(tensors(model), lambda kept: save_weights(kept, folder / WEIGHTS))
        else:
            self.files.write(tensors(model), lambda kept: save_model(model, folder, kept))
