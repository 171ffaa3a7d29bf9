"""One vector for each text or image, taken below the head of a model."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from jaxtyping import Float
from torch import Tensor

from regard.models.encoder import Encoder
from regard.models.head import Classes, Logits
from regard.models.language import LanguageModel
from regard.models.model import EncoderDecoder
from regard.models.vision import VisionTransformer
from regard.parts.mask import Causal, padded_positions
from regard.parts.pool import Mean
from regard.parts.state import Step
from regard.use.batches import Done, unwatched
from regard.use.fit import Fit
from regard.use.read import read_all
from regard.use.ready import Ready


def vectors(
    ready: Ready,
    chunks: Iterable[Sequence[str]],
    fit: Fit | None,
    batch_tokens: int | None = None,
    done: Done = unwatched,
) -> Iterator[Float[np.ndarray, "D"] | None]:
    """Give a vector for each line (a text, or for a model of images the path of a file); None for a blank line."""
    ready.check("embed")

    def work(inputs: dict[str, Tensor]) -> list[np.ndarray]:
        return list(vector_of(ready, inputs).float().cpu().numpy())

    return (found[0] if found else None for found in read_all(ready, chunks, fit, work, batch_tokens, done))


def vector_of(ready: Ready, inputs: dict[str, Tensor]) -> Float[Tensor, "B D"]:
    """Pool as the model does if it does, else take the mean over the tokens of the text.

    Of an encoder-decoder it is the encoder's vectors that count, of a language model those of its last layer.
    """
    model = ready.model
    if isinstance(model, VisionTransformer):
        pooled = model.head.pooled if isinstance(model.head, Classes) else model.head
        return pooled(model.encode(inputs["images"]))
    tokens, lengths = inputs["tokens"], inputs["lengths"]
    positions = padded_positions(lengths, tokens.shape[1])
    if isinstance(model, LanguageModel):
        return Mean()(model.decode(tokens, Step(Causal())), positions)
    assert isinstance(model, Encoder | EncoderDecoder)
    x = model.encode(tokens, lengths=lengths)
    if isinstance(model, EncoderDecoder) or isinstance(model.head, Logits):
        return Mean()(x, positions)
    return (model.head.pooled if isinstance(model.head, Classes) else model.head)(x, positions)
