"""What validations have found so far: the best one, and the last that was better than those before."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, isfinite
from typing import Any

from regard.tasks.metric import better


@dataclass
class BestSoFar:
    """The best validation of a run so far, and when one last improved."""

    metric: str
    value: float | None = None  # of the metric
    step: int = 0
    weights: str = ""  # which they are: "step 450", or an average
    lowest_loss: float = inf
    improved_step: int = 0  # of the last validation with a better metric or a lower loss
    validated_step: int = 0  # of the last validation

    def is_beaten_by(self, value: float, loss: float) -> bool:
        """Return whether weights with these values are better; of equal metrics, the one with the lower loss is."""
        return better(self.metric, value, self.value) or (value == self.value and loss < self.lowest_loss)

    def note_validation(self, step: int, loss: float, is_best: bool) -> None:
        """Note a validation of the weights after a step."""
        if is_best:
            self.step, self.weights = step, f"step {step}"
        if is_best or loss < self.lowest_loss:
            self.improved_step = step
        self.lowest_loss = min(self.lowest_loss, loss)
        self.validated_step = step

    @property
    def improves(self) -> bool:
        """Whether the last validation was better than those before."""
        return self.validated_step == self.improved_step

    def is_exhausted(self, patience: int | None, validate_every: int) -> bool:
        """Return whether nothing has improved for the updates of `patience` validations."""
        return patience is not None and self.validated_step - self.improved_step >= patience * validate_every

    def begin_again(self, step: int) -> None:
        """Forget all values, which other data gave; the weights that are kept stay until others are better."""
        self.value, self.step = None, step
        self.lowest_loss, self.improved_step, self.validated_step = inf, step, step

    def facts(self) -> dict[str, Any]:
        """Return what a checkpoint keeps."""
        return {
            "best": self.value,
            "best_step": self.step,
            "best_weights": self.weights,
            "lowest_loss": self.lowest_loss if isfinite(self.lowest_loss) else None,
            "improved_step": self.improved_step,
            "validated_step": self.validated_step,
        }

    def load(self, facts: Mapping[str, Any]) -> None:
        """Restore what a checkpoint has kept."""
        self.value, self.step, self.weights = facts["best"], facts["best_step"], facts["best_weights"]
        self.lowest_loss = inf if facts["lowest_loss"] is None else facts["lowest_loss"]
        self.improved_step = facts["improved_step"]
        self.validated_step = facts.get("validated_step", self.improved_step)  # earlier versions did not save it
