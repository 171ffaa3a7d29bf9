"""A model with random scores for every text, and its steps, which check how a search uses them."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from regard.decode.engine import Given, Steps
from regard.decode.rows import row_lengths


class Script:
    """Scores that depend on the text only; `told` fixes what follows some texts."""

    def __init__(self, vocabulary: int, seed: int = 0, spread: float = 2.0, told: dict | None = None) -> None:
        self.vocabulary, self.seed, self.spread, self.told = vocabulary, seed, spread, told or {}
        self.asked: list[int] = []  # the number of rows of every step
        self.reorders = 0

    def logits(self, text: Sequence[int]) -> Tensor:
        if tuple(text) in self.told:
            return torch.nn.functional.one_hot(torch.tensor(self.told[tuple(text)]), self.vocabulary).double() * 50
        random = np.random.default_rng([self.seed, len(text), *text])
        return torch.from_numpy(random.normal(0, self.spread, self.vocabulary))

    def __call__(self, given: Given, capacity: int) -> "ScriptSteps":
        return ScriptSteps(self, given, capacity)


class ScriptSteps(Steps):
    """Growing texts: within the capacity that was requested, and never mixed with those of other rows."""

    def __init__(self, script: Script, given: Given, capacity: int) -> None:
        self.script, self.capacity = script, capacity
        lengths = row_lengths(given.tokens, given.lengths)
        self.texts = [tuple(row[:length]) for row, length in zip(given.tokens.tolist(), lengths, strict=True)]
        self.origins, self.times = list(range(len(self.texts))), 1

    def begin(self) -> Tensor:
        self.script.asked.append(len(self.texts))
        assert all(len(text) <= self.capacity for text in self.texts)
        return torch.stack([self.script.logits(text) for text in self.texts])

    def step(self, tokens: Tensor) -> Tensor:
        self.texts = [(*text, token) for text, token in zip(self.texts, tokens.tolist(), strict=True)]
        return self.begin()

    def repeat(self, times: int) -> None:
        assert times > 1
        self.times *= times
        self.texts = [text for text in self.texts for _ in range(times)]
        self.origins = [origin for origin in self.origins for _ in range(times)]

    def reorder(self, index: Tensor) -> None:
        self.script.reorders += 1
        places = index.tolist()
        self.texts, self.origins = [self.texts[i] for i in places], [self.origins[i] for i in places]
        groups = [set(self.origins[at : at + self.times]) for at in range(0, len(places), self.times)]
        assert all(len(group) == 1 for group in groups)
        assert len(set.union(*groups)) == len(groups)


def prompts(*rows: Sequence[int]) -> Given:
    """Return texts of any lengths, padded with a token that would change the scores."""
    lengths = [len(row) for row in rows]
    padded = [[*row, *[1] * (max(lengths) - len(row))] for row in rows]
    return Given(torch.tensor(padded), torch.tensor(lengths))
