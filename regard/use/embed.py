"""One vector per text or image, taken below the head of a model."""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float
from torch import Tensor

from regard.use.batches import Chunks, Feedback
from regard.use.bundle import Bundle
from regard.use.forward import forward_lines


def embed_lines(
    bundle: Bundle, chunks: Chunks, batch_tokens: int | None, feedback: Feedback
) -> Iterator[tuple[str, Float[np.ndarray, "D"] | None]]:
    """Yield each line (a text, or the path of an image) with its vector; None for a blank line."""
    bundle.check("embed")

    def work(inputs: dict[str, Tensor]) -> list[np.ndarray]:
        return list(bundle.model.embed_rows(**inputs).float().cpu().numpy())

    return forward_lines(bundle, chunks, work, batch_tokens, feedback)
