"""Beam search: each step keeps the few most likely beginnings of a text. Works with any engine.

Length and coverage penalty: Wu et al. 2016. With one beam it is greedy search.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Annotated, Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from regard.config import Range
from regard.decode.constrain import ConstrainedTexts, Constraint
from regard.decode.engine import Engine, Given, Work
from regard.decode.rows import Rows, end_ids
from regard.decode.scores import forbid, likeliest, log_total, precise, top_scores
from regard.errors import ConfigError

LENGTH_PENALTY = 0.6
LengthPenalty = Annotated[float, Range(low=0, high=10)]  # an exponent of the length, which must stay finite


@dataclass(frozen=True)
class Hypothesis:
    """A finished text: its ids without the end token, log P, and the score by which it is ranked.

    Where no text has a finite log P, as with weights that diverged, there is one, which is empty with log P = -inf.
    """

    ids: list[int]
    score: float
    log_probability: float


@dataclass(frozen=True)
class Beams:
    """K texts for each row, the likeliest first: their last tokens, the beams that they extend, and log P.

    If there are fewer texts, the remaining ones have log P = -inf.
    """

    tokens: Int[Tensor, "B K"]
    parents: Int[Tensor, "B K"]
    log_p: Float[Tensor, "B K"]

    def rows(self, index: Int[Tensor, "_b"]) -> "Beams":
        """Return the beams of these rows."""
        return Beams(self.tokens[index], self.parents[index], self.log_p[index])


Found = tuple[Beams, Beams]  # the best of all, and the best that do not end
Parts = tuple[Tensor, ...]  # the tensors of both; greedy search needs no second, see `as_beams`


def beam_search(
    engine: Engine,
    given: Given,
    *,
    end: int | Sequence[int],
    limits: list[int],
    beam: int = 5,
    best: int = 1,
    length_penalty: float = LENGTH_PENALTY,
    forbidden: Sequence[int] = (),
    constraint: Constraint | None = None,
) -> list[list[Hypothesis]]:
    """Search for the continuations Y with the highest log P(Y) / lp(Y); return at most `best`, the best first.

    lp(Y) = ((5 + |Y|) / 6)^length_penalty, where |Y| counts the end token. Each step ranks all continuations of a
    row's beams. Those that end, among the first `beam`, are finished; the best `beam` of the others continue. A row is
    done when `beam` texts are finished, or at its limit, where unfinished beams count as finished. P is the model's own
    probability, even where tokens are `forbidden`; with a `constraint` it is that among the tokens that it allows.

    A forced prefix is part of `given.tokens`, after the start token, and not of the returned ids. Call this function
    inside `in_use`.
    """
    if not 1 <= best <= beam:
        raise ConfigError(f"best={best} must be at least 1 and at most beam={beam}")
    rows, ends, device = Rows(given, limits, constraint is not None), end_ids(end), given.tokens.device
    texts = None if constraint is None else ConstrainedTexts(constraint, rows.here, ends, forbidden)
    record = SearchRecord(rows, ends, beam, length_penalty)
    if not rows.going:
        return record.best(best)
    never, ending = (torch.tensor(ids, dtype=torch.long, device=device) for ids in (list(forbidden), ends))
    steps = engine(given, rows.capacity)
    logits = steps.begin()
    log_p = torch.zeros(len(logits), 1, dtype=precise(logits).dtype, device=device)  # each row has one beam so far
    origin = torch.arange(len(logits), device=device)[:, None] * beam
    work = extend_greedily if beam == 1 else beam_extender(beam)
    pending: list[Found] = []
    for written in range(1, rows.steps + 1):
        if texts is not None:
            texts.mask(logits)
        parts = steps.apply(work, logits, (log_p,), (never, ending))
        found = as_beams(parts)
        pending.append(found)
        if texts is not None:
            texts.advance(found[1].tokens, found[1].parents, found[1].log_p)
        beams, index, stay = found[1], origin, None  # the places of rows that stay; None: all
        if rows.is_check_due(written):
            record.read(pending, written)
            pending.clear()
            stay = rows.drop_done(written)
        if stay == []:
            break
        if stay is not None:
            kept = torch.tensor(stay, device=device)
            beams, index, origin = beams.rows(kept), origin[kept], origin[: len(stay)]
            if texts is not None:
                texts.keep(stay)
        if written == 1 and beam > 1:
            steps.repeat(beam)  # until now, all beams of a row are the same
        if stay is not None or (written > 1 and beam > 1):
            steps.reorder((index + beams.parents).flatten())
        log_p = beams.log_p
        logits = steps.step(beams.tokens.flatten())
    return record.best(best)


def extend_greedily(
    logits: Float[Tensor, "B V"], log_p: Float[Tensor, "B 1"], never: Int[Tensor, "_f"], ending: Int[Tensor, "_e"]
) -> Parts:
    """Extend each row by its most likely token; if that ends the row, it does not matter what continues."""
    total = log_total(logits)
    forbid(logits, never)
    value, token = likeliest(logits)
    return token, torch.zeros_like(token), log_p + (value - total)


def as_beams(parts: Parts) -> Found:
    """Return the beams that the search's work computed: the best of all, and the best that do not end."""
    best = Beams(*parts[:3])
    return best, Beams(*parts[3:]) if len(parts) > 3 else best


@cache
def beam_extender(beam: int) -> Work:
    """Return `extend_beams` for this number of beams; always the same object, as `Steps.apply` needs."""
    return partial(extend_beams, beam=beam)


def extend_beams(
    logits: Float[Tensor, "_BK V"],
    log_p: Float[Tensor, "B _K"],
    never: Int[Tensor, "_f"],
    ending: Int[Tensor, "_e"],
    beam: int,
) -> Parts:
    """Rank the continuations of the beams of each row."""
    enough = beam * (1 + len(ending))  # so that `beam` are left without those that end
    total = log_total(logits)
    forbid(logits, never)
    values, tokens = top_scores(logits, enough)
    per_beam = tokens.shape[1]
    ranked, tokens = ((log_p.view(-1, 1) + (values - total)).view(len(log_p), -1), tokens.view(len(log_p), -1))
    missing = enough - tokens.shape[1]
    if missing > 0:  # in a very small vocabulary
        ranked, tokens = F.pad(ranked, (0, missing), value=-torch.inf), F.pad(tokens, (0, missing))
    ranked, order = ranked.sort(dim=-1, descending=True, stable=True)
    ranked, order = ranked[:, :enough], order[:, :enough]
    tokens, parents = tokens.gather(1, order), (order // per_beam).clamp(max=log_p.shape[1] - 1)
    ends = (tokens[..., None] == ending).any(-1)
    ranks = ends.byte().argsort(dim=-1, stable=True)[:, :beam]  # of those that do not end
    going = tuple(part.gather(1, ranks) for part in (tokens, parents, ranked.masked_fill(ends, -torch.inf)))
    return tokens[:, :beam], parents[:, :beam], ranked[:, :beam], *going


class SearchRecord:
    """The search so far, on the host: every beam's token and parent at every step, and the finished texts."""

    def __init__(self, rows: Rows, ends: tuple[int, ...], beam: int, length_penalty: float) -> None:
        self.rows = rows
        self.ends = np.array(ends, np.int64)
        self.beam = beam
        self.length_penalty = length_penalty
        self.tokens = np.zeros((rows.steps, len(rows.limits), beam), np.int64)
        self.parents = np.zeros_like(self.tokens)
        self.finished: list[list[Hypothesis]] = [[] for _ in rows.limits]
        for row in rows.done:  # rows with a limit of 0
            self.finish(row, [], 0.0, 0)

    def read(self, pending: list[Found], written: int) -> None:
        """Record the steps since the last read, in only two copies, because each synchronises with an accelerator."""
        both = [beams for found in pending for beams in found]  # of each step, the best and those that do not end
        choices = torch.stack([part for beams in both for part in (beams.tokens, beams.parents)]).cpu().numpy()
        log_p = torch.stack([beams.log_p for beams in both]).cpu().numpy()
        for number, step in enumerate(range(written - len(pending), written)):
            tokens, parents, *carried = choices[4 * number : 4 * number + 4]
            self.record_ends(step, tokens, parents, log_p[2 * number])
            self.tokens[step, self.rows.here], self.parents[step, self.rows.here] = carried
            self.record_rows(step, log_p[2 * number + 1])

    def record_ends(self, step: int, tokens: NDArray[Any], parents: NDArray[Any], log_p: NDArray[Any]) -> None:
        """Finish the texts that end at this step."""
        ended = (tokens[..., None] == self.ends).any(-1) & np.isfinite(log_p)
        for place, rank in np.argwhere(ended):
            row = self.rows.here[place]
            if row not in self.rows.done:
                ids = self.trace(row, step, int(parents[place, rank]))
                self.finish(row, ids, float(log_p[place, rank]), len(ids) + 1)

    def record_rows(self, step: int, log_p: NDArray[Any]) -> None:
        """Mark the rows that are done after this step; at its limit, a row finishes with all its beams."""
        for place, row in enumerate(self.rows.here):
            if row in self.rows.done:
                continue
            if len(self.finished[row]) >= self.beam:
                self.rows.done.add(row)
            elif step + 1 == self.rows.limits[row]:
                self.rows.done.add(row)
                for rank in np.flatnonzero(np.isfinite(log_p[place])):
                    self.finish(row, self.trace(row, step + 1, int(rank)), float(log_p[place, rank]), step + 1)

    def trace(self, row: int, count: int, beam: int) -> list[int]:
        """Return the first `count` tokens of a text, found backwards from the beam that it is in then."""
        ids = []
        for step in reversed(range(count)):
            ids.append(int(self.tokens[step, row, beam]))
            beam = int(self.parents[step, row, beam])
        return ids[::-1]

    def finish(self, row: int, ids: list[int], log_p: float, length: int) -> None:
        """Add a finished text of `length` tokens, its end included."""
        score = log_p / ((5 + length) / 6) ** self.length_penalty
        self.finished[row].append(Hypothesis(ids, score, log_p))

    def best(self, count: int) -> list[list[Hypothesis]]:
        """Return the best texts of each row; of equals, the one that was finished first."""
        none = [Hypothesis([], -math.inf, -math.inf)]
        return [sorted(found, key=lambda one: -one.score)[:count] or none for found in self.finished]


def coverage(weights: Float[Tensor, "T S"]) -> float:
    """Return sum_i log(min(sum_t a_ti, 1)): the less a source token is attended to over all steps, the lower."""
    least = torch.finfo(weights.dtype).tiny  # so that the sum is finite, and such texts can still be compared
    return float(weights.sum(0).clamp(min=least, max=1).log().sum())
