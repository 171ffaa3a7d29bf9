"""Query: what a model is run on. Nothing here imports torch."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

TOKENS = 12
LONGEST = 2048
CHARACTERS = 100_000  # of a text, at most: far more than are shown, but they are kept and encoded

QueryText = str | Sequence[int]  # text, or token ids, to which nothing is added


@dataclass(frozen=True)
class Query:
    """A text, or an image; and what the model should write after it."""

    text: QueryText = ""
    target: QueryText | None = None  # the translation that a translator is made to write; default: its own
    tokens: int | None = None  # how many tokens a language model writes; default: TOKENS
    image: "str | Path | bytes | np.ndarray | None" = None  # a file, its bytes, or pixels (H x W, or H x W x C, 0..255)
    beam: int | None = None  # default: as `translate`
    longest: int = LONGEST  # tokens that are read in one pass, at most
