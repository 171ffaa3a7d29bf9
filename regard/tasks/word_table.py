"""Words by their vectors: which are nearest to a word, or to a sum and difference of words."""

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float

from regard.data.tokenizer import Tokenizer
from regard.errors import InputError, choices
from regard.models.word2vec import Word2Vec

SIGNS = {"+": 1.0, "-": -1.0}


@dataclass(frozen=True)
class WordTable:
    """The words of a vocabulary and their vectors, of length 1; a word that never occurred has none (0)."""

    words: list[str]
    vectors: Float[np.ndarray, "V D"]

    @staticmethod
    def of(model: Word2Vec, tokenizer: Tokenizer) -> "WordTable":
        """Return the table of a model."""
        vectors = model.embed.tokens.table.weight.detach().float().cpu().numpy()
        words = tokenizer.pieces(list(range(len(vectors))))
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        special = np.isin(np.arange(len(vectors)), list(tokenizer.specials))[:, None]
        return WordTable(words, np.where(special, 0.0, vectors / np.maximum(lengths, 1e-12)))

    @cached_property
    def places(self) -> dict[str, int]:
        """The place of each word."""
        return {word.strip(): place for place, word in enumerate(self.words)}

    def place(self, word: str) -> int:
        """Return the place of a word, also if only its capitals differ."""
        for form in (word, word.lower(), word.capitalize()):
            if form in self.places:
                return self.places[form]
        raise InputError(f"{word!r} is not among the {len(self.words):,} words; {choices(word, self.places)}")

    def find(self, expression: str, count: int) -> list[tuple[str, float]]:
        """Return the nearest words, with their cosines, to a word or an expression such as `king - man + woman`.

        The terms are vectors of length 1, and the words of the expression are not answers (Mikolov et al. 2013).
        """
        total, used, sign = np.zeros(self.vectors.shape[1]), set(), 1.0
        ready = False  # for a sign
        for part in expression.split():
            if ready != (part in SIGNS):
                rule = "words and signs (+, -) must alternate, with blanks between them"
                raise InputError(f"{expression!r}: {rule}, as in 'king - man + woman'")
            if part in SIGNS:
                sign = SIGNS[part]
            else:
                place = self.place(part)
                used.add(place)
                total += sign * self.vectors[place]
            ready = not ready
        if not ready:
            raise InputError(f"{expression!r}: it must end with a word, as in 'king - man + woman'")
        return self.nearest(total, count, used)

    def nearest(
        self, vector: Float[np.ndarray, "D"], count: int, leave_out: Collection[int] = ()
    ) -> list[tuple[str, float]]:
        """Return the words with the highest cosines to a vector."""
        cosines = self.vectors @ (vector / max(float(np.linalg.norm(vector)), 1e-12))
        known = np.any(self.vectors != 0, 1)
        known[list(leave_out)] = False
        order = np.argsort(-np.where(known, cosines, -np.inf), kind="stable")[: min(count, int(known.sum()))]
        return [(self.words[place].strip(), float(cosines[place])) for place in order.tolist()]
