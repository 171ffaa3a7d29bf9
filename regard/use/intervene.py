"""`intervene(model, place, ...)`: change what a model computes, and see what happens."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from regard.models.intervention import Intervention, Numbers, apply_interventions
from regard.parts.watch import module_of
from regard.use.bundle import Bundle
from regard.use.loaded_model import LoadedModel


@contextmanager
def intervene(
    model: LoadedModel | Bundle | nn.Module,
    place: str,
    *,
    heads: Numbers = None,
    attention: str | int | None = None,
    weight: tuple[int, int, float] | None = None,
    vector: Any = None,
    positions: Numbers = None,
) -> Iterator[None]:
    """Change one place of a model in this thread inside the `with`: in whole passes, decode steps and beams.

    `place` is an attention (`"cross.2"`: kind and layer, or the name of its module) or the vectors of a sequence after
    a layer (`"target.2"`; layer 0 is the embedding). `heads` and `positions` (of queries, from 0) choose a part of it;
    default: all. One of three things is changed:

    - `attention`: where the heads look. "zero" switches them off, "uniform" looks at all visible keys alike, "previous"
      at the token before, "first" at the first, and a number at the key at that position. A query that may not look at
      the key keeps its own weights.
    - `weight`: (query, key, value) sets one weight; the others of the query are scaled, so that their sum stays 1.
    - `vector`: the outputs of the heads before W_O, or the vectors of the sequence; `read_vectors` reads them from
      another sentence or layer.

    Interventions can be nested; `watch` shows what was changed. A change that changes nothing changes no bit.
    """
    bundle = model.bundle if isinstance(model, LoadedModel) else model
    if isinstance(bundle, Bundle):
        bundle.need_weights("computes by itself and cannot be changed")
        bundle = bundle.model
    with apply_interventions(module_of(bundle), [Intervention(place, heads, attention, weight, vector, positions)]):
        yield
