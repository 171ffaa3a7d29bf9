"""A model with the loss of its task, as one module: what an update computes, compiles and shares between processes."""

from torch import nn

from regard.models.model import EncoderDecoder
from regard.parts.moe import Router
from regard.tasks.loss import IGNORE, Losses
from regard.tasks.task import Batch, Task


class Objective(nn.Module):
    """A model with its loss: batch -> (losses, the state for the next batch)."""

    def __init__(self, model: nn.Module, task: Task) -> None:
        super().__init__()
        self.model = model
        self.task = task
        self._routers = [module for module in model.modules() if isinstance(module, Router)]
        source = set(model.memory.modules()) if isinstance(model, EncoderDecoder) else set(model.modules())
        self._of_target = [router not in source for router in self._routers]

    def forward(self, batch: Batch) -> tuple[Losses, Batch]:
        """Compute the losses; routers count the tokens of rows that have something to learn, not of empty ones.

        Every token of a target has a label, so routers on the side of the target count the tokens that have one.
        """
        if not self._routers:
            return self.task.loss(self.model, batch)
        learned = batch["labels"] != IGNORE
        rows = learned.reshape(len(learned), -1).any(1)
        try:
            for router, of_target in zip(self._routers, self._of_target, strict=True):
                router.counted = learned if of_target else rows
            return self.task.loss(self.model, batch)
        finally:
            for router in self._routers:
                router.counted = None
