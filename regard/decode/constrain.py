"""Constraints of a search: which tokens may follow what is written, for greedy search, beams and sampling alike.

A constraint is a deterministic automaton over tokens. The search keeps its state for each text, and masks all tokens
that it does not allow; so every text that a model writes is accepted by the constraint, whatever the model's weights
are. Probabilities are those of the model among the tokens that are allowed: a token without an alternative costs
nothing.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from regard.errors import InputError


class Constraint(ABC):
    """What may be written in each row of a batch. States are values: `advance` returns a new one."""

    @abstractmethod
    def start(self, row: int) -> Any:
        """Return the state of a row before its first token."""

    @abstractmethod
    def allowed(self, state: Any) -> Sequence[int] | np.ndarray:
        """Return the tokens that may follow, an end token among them if the text may end here; at least one."""

    @abstractmethod
    def advance(self, state: Any, token: int) -> Any:
        """Return the state after one of the tokens that are allowed."""


class ConstrainedTexts:
    """The states of the texts that a search writes: `beams` for each row that is still in the batch.

    A text that has ended, or that is not a candidate, has the state None: then all tokens are allowed, since
    nothing is read from it. `forbidden` tokens are never written, so a constraint must allow others.
    """

    def __init__(
        self, constraint: Constraint, rows: Sequence[int], ends: Sequence[int], forbidden: Sequence[int] = ()
    ) -> None:
        self.constraint = constraint
        self.ends = frozenset(ends)
        self.forbidden = list(forbidden)
        self.states: list[list[Any]] = [[constraint.start(row)] for row in rows]

    def mask(self, logits: Float[Tensor, "_BK V"]) -> None:
        """Set the scores of tokens that are not allowed to -inf, in place."""
        states = [state for row in self.states for state in row]
        kept = np.zeros((len(states), logits.shape[-1]), dtype=bool)
        for place, state in enumerate(states):
            if state is None:
                kept[place] = True
                continue
            tokens = self.constraint.allowed(state)
            if not len(tokens) or (self.forbidden and np.isin(tokens, self.forbidden).all()):
                name = type(self.constraint).__name__
                kind = "only forbidden tokens" if len(tokens) else "no token"
                raise InputError(f"the constraint {name} allows {kind} in the state {state!r}; allow at least one")
            kept[place, tokens] = True
        logits.masked_fill_(~torch.from_numpy(kept).to(logits.device), -torch.inf)

    def advance(self, tokens: Tensor, parents: Tensor | None = None, log_p: Tensor | None = None) -> None:
        """Continue with the tokens (B, K) that extend the texts `parents` (B, K) of their row.

        Without `parents`, each text extends itself. Texts with a `log_p` of -inf are not candidates.
        """
        rows = tokens.reshape(len(self.states), -1).tolist()
        origins = [range(len(row)) for row in rows] if parents is None else parents.tolist()
        alive = [[True] * len(row) for row in rows] if log_p is None else torch.isfinite(log_p).tolist()
        self.states = [
            [self._next(states[parent], token, live) for token, parent, live in zip(*row, strict=True)]
            for states, *row in zip(self.states, rows, origins, alive, strict=True)
        ]

    def _next(self, state: Any, token: int, live: bool) -> Any:
        if state is None or not live or token in self.ends:
            return None
        return self.constraint.advance(state, token)

    def keep(self, places: Sequence[int]) -> None:
        """Keep only the rows at these places."""
        self.states = [self.states[place] for place in places]
