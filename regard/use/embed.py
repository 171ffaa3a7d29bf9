"""One vector per text or image, taken below the head of a model."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float
from torch import Tensor

from regard.errors import InputError
from regard.hub.sentence_transformers import SentenceEmbedding, chosen_pool
from regard.models.model import Model
from regard.parts.mask import padded_positions
from regard.use.batches import Chunks, Feedback
from regard.use.bundle import Bundle
from regard.use.forward import forward_lines


def embed_lines(
    bundle: Bundle, chunks: Chunks, pool: str | None, batch_tokens: int | None, feedback: Feedback
) -> Iterator[tuple[str, Float[np.ndarray, "D"] | None]]:
    """Yield each line (a text, or the path of an image) with its vector; None for a blank line.

    With `pool`, the vectors of the tokens are pooled in this way, and nothing follows. Otherwise the folder of the
    model decides, or its head.
    """
    bundle.check("embed")
    embedding = bundle.embedding if pool is None else chosen_pool(pool)
    if embedding is None:
        return forward_lines(
            bundle, chunks, lambda inputs: _rows(bundle, bundle.model.embed_rows(**inputs)), batch_tokens, feedback
        )
    if type(bundle.model).token_vectors is Model.token_vectors:
        raise InputError(f"pool={pool!r}: {bundle.model.description} has no vectors of tokens; leave it out")
    return _embed(bundle, embedding, chunks, batch_tokens, feedback)


def _embed(
    bundle: Bundle, embedding: SentenceEmbedding, chunks: Chunks, batch_tokens: int | None, feedback: Feedback
) -> Iterator[tuple[str, np.ndarray | None]]:
    """Embed the texts that an embedding prepares, and yield the lines as they were given."""
    given: deque[str] = deque()

    def prepared() -> Iterator[Sequence[str]]:
        for lines in chunks.lists:
            given.extend(lines)
            yield [embedding.prepare(line) for line in lines]

    def work(inputs: dict[str, Tensor]) -> list[np.ndarray]:
        x = bundle.model.token_vectors(**inputs)
        return _rows(bundle, embedding(x, padded_positions(inputs.get("lengths"), x.shape[1])))

    limits = (length for length in (bundle.longest, embedding.longest) if length is not None)
    fitting = replace(bundle, longest=min(limits, default=None))
    for _, vector in forward_lines(fitting, Chunks(prepared()), work, batch_tokens, feedback):
        yield given.popleft(), vector


def _rows(bundle: Bundle, vectors: Tensor) -> list[np.ndarray]:
    bundle.check_finite(vectors)  # NaN is the vector of a blank line
    return list(vectors.float().cpu().numpy())
