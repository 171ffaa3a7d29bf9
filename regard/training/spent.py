"""What the updates of a run have cost so far: tokens, seconds and FLOPs."""

from collections.abc import Mapping
from typing import Any

from torch import nn

from regard.data.batches import Draw
from regard.models.count import forward_flops


class Spent:
    """The cost of all updates so far."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.tokens = 0  # that updates have learned from, up to the last line of the log
        self.seconds = 0.0
        self.flops: int | None = 0  # None if they are not known
        self._row_flops: dict[tuple[int, ...], int | None] = {}  # by the shape of a draw

    def count_flops(self, draw: Draw, passes: int) -> None:
        """Add the FLOPs of an update: forward, and twice as many backward, over all rows as they are padded."""
        if draw.shape not in self._row_flops:
            self._row_flops[draw.shape] = forward_flops(self.model, max(draw.shape, default=1))
        row = self._row_flops[draw.shape]
        more = None if row is None else 3 * row * len(draw.rows) * passes
        self.flops = None if self.flops is None or more is None else self.flops + more

    def values(self, tokens: int = 0, seconds: float = 0.0) -> dict[str, float | int]:
        """Return the values for the log, with tokens and seconds that were not added yet."""
        flops = {} if self.flops is None else {"flops": self.flops}
        return {"tokens": self.tokens + tokens, "seconds": round(self.seconds + seconds, 3), **flops}

    def facts(self) -> dict[str, Any]:
        """Return what a checkpoint keeps."""
        return {"seconds": self.seconds, "tokens": self.tokens, "flops": self.flops}

    def load(self, facts: Mapping[str, Any]) -> None:
        """Restore what a checkpoint has kept."""
        self.seconds, self.tokens, self.flops = facts["seconds"], facts["tokens"], facts["flops"]
