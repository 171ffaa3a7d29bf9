"""Beam search: of all beginnings of a text, the few most likely are carried on. Over any engine's steps.

Length and coverage penalty: Wu et al. 2016. With one beam it is greedy search.
"""

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
from regard.decode.engine import Engine, Given, Work
from regard.decode.rows import Rows, end_ids
from regard.decode.scores import forbid, likeliest, log_total, precise, top
from regard.errors import ConfigError

LENGTH_PENALTY = 0.6
LengthPenalty = Annotated[float, Range(low=0, high=10)]  # a power of the length, which must stay a number


@dataclass(frozen=True)
class Hypothesis:
    """What might be meant: the ids without the end token, log P, and the score by which it is ranked."""

    ids: list[int]
    score: float
    log_probability: float


@dataclass(frozen=True)
class Beams:
    """K texts for each row, the likeliest first: their last tokens, the beams they went on from, and log P.

    Where there are not as many, the rest has log P = -inf.
    """

    tokens: Int[Tensor, "B K"]
    parents: Int[Tensor, "B K"]
    log_p: Float[Tensor, "B K"]

    def rows(self, index: Int[Tensor, "_b"]) -> "Beams":
        """Give the beams of these rows."""
        return Beams(self.tokens[index], self.parents[index], self.log_p[index])


Found = tuple[Beams, Beams]  # the best there are, and the best of those that do not end
Parts = tuple[Tensor, ...]  # the tensors of both, one after the other


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
) -> list[list[Hypothesis]]:
    """Search for the texts Y that follow what is given with the highest log P(Y) / lp(Y); at most `best`, best first.

    lp(Y) = ((5 + |Y|) / 6)^length_penalty, where |Y| counts the end token. Each step ranks all continuations of a
    row's beams. Those that end, among the first `beam`, are finished; the best `beam` of the others are carried on. A
    row is done when `beam` texts are finished; or at its limit, where what is carried on counts as finished, without an
    end. P is the model's own, also where tokens are `forbidden`.

    A forced prefix belongs into `given.tokens`, after the start token; it is not part of the ids that are returned.
    To be run inside `in_use`.
    """
    if not 1 <= best <= beam:
        raise ConfigError(f"best={best} must be at least 1 and at most beam={beam}")
    rows, ends, device = Rows(given, limits), end_ids(end), given.tokens.device
    notes = Notes(rows, ends, beam, length_penalty)
    if not rows.going:
        return notes.best(best)
    never, ending = (torch.tensor(ids, dtype=torch.long, device=device) for ids in (list(forbidden), ends))
    steps = engine(given, rows.room)
    logits = steps.begin()
    log_p = torch.zeros(len(logits), 1, dtype=precise(logits).dtype, device=device)  # each row has one beam yet
    origin = torch.arange(len(logits), device=device)[:, None] * beam
    work = greedy if beam == 1 else widening(beam)
    pending: list[Found] = []
    for written in range(1, rows.steps + 1):
        parts = steps.apply(work, logits, (log_p,), (never, ending))
        found = Beams(*parts[:3]), Beams(*parts[-3:])
        pending.append(found)
        beams, index, stay = found[1], origin, None
        if rows.look(written):
            notes.read(pending, written)
            pending.clear()
            stay = rows.leave(written)
        if stay == []:
            break
        if stay is not None:
            places = torch.tensor(stay, device=device)
            beams, index, origin = beams.rows(places), origin[places], origin[: len(stay)]
        if written == 1 and beam > 1:
            steps.repeat(beam)  # after this, the beams of a row are all alike
        if stay is not None or (written > 1 and beam > 1):
            steps.reorder((index + beams.parents).flatten())
        log_p = beams.log_p
        logits = steps.step(beams.tokens.flatten())
    return notes.best(best)


def greedy(
    logits: Float[Tensor, "B V"], log_p: Float[Tensor, "B 1"], never: Int[Tensor, "_f"], ending: Int[Tensor, "_e"]
) -> Parts:
    """Go on with the most likely token; if that ends the row, it does not matter what is carried on."""
    total = log_total(logits)
    forbid(logits, never)
    value, token = likeliest(logits)
    return token, torch.zeros_like(token), log_p + (value - total)


@cache
def widening(beam: int) -> Work:
    """Give the function that ranks for so many beams, always the same one."""
    return partial(widen, beam=beam)


def widen(
    logits: Float[Tensor, "_BK V"],
    log_p: Float[Tensor, "B _K"],
    never: Int[Tensor, "_f"],
    ending: Int[Tensor, "_e"],
    beam: int,
) -> Parts:
    """Rank how the beams of each row may go on."""
    enough = beam * (1 + len(ending))  # so that `beam` are left when all that end are taken out
    total = log_total(logits)
    forbid(logits, never)
    values, tokens = top(logits, enough)
    each = tokens.shape[1]
    ranked, tokens = ((log_p.view(-1, 1) + (values - total)).view(len(log_p), -1), tokens.view(len(log_p), -1))
    missing = enough - tokens.shape[1]
    if missing > 0:  # a vocabulary may be as small as that
        ranked, tokens = F.pad(ranked, (0, missing), value=-torch.inf), F.pad(tokens, (0, missing))
    ranked, order = ranked.sort(dim=-1, descending=True, stable=True)
    ranked, order = ranked[:, :enough], order[:, :enough]
    tokens, parents = tokens.gather(1, order), (order // each).clamp(max=log_p.shape[1] - 1)
    ends = (tokens[..., None] == ending).any(-1)
    on = ends.byte().argsort(dim=-1, stable=True)[:, :beam]  # the ranks of those that do not end
    going = tuple(part.gather(1, on) for part in (tokens, parents, ranked.masked_fill(ends, -torch.inf)))
    return tokens[:, :beam], parents[:, :beam], ranked[:, :beam], *going


class Notes:
    """What the host knows of a search: every beam's token and parent at every step, and what is finished."""

    def __init__(self, rows: Rows, ends: tuple[int, ...], beam: int, length_penalty: float) -> None:
        self.rows = rows
        self.ends = np.array(ends, np.int64)
        self.beam = beam
        self.length_penalty = length_penalty
        self.tokens = np.zeros((rows.steps, len(rows.limits), beam), np.int64)
        self.parents = np.zeros_like(self.tokens)
        self.finished: list[list[Hypothesis]] = [[] for _ in rows.limits]
        for row in rows.done:  # those that may write nothing
            self.finish(row, [], 0.0, 0)

    def read(self, pending: list[Found], written: int) -> None:
        """Take down the steps since the last look: in two copies, since each waits for an accelerator."""
        each = [beams for found in pending for beams in found]
        whole = torch.stack([part for beams in each for part in (beams.tokens, beams.parents)]).cpu().numpy()
        log_p = torch.stack([beams.log_p for beams in each]).cpu().numpy()
        for number, step in enumerate(range(written - len(pending), written)):
            tokens, parents, *carried = whole[4 * number : 4 * number + 4]
            self.note_ends(step, tokens, parents, log_p[2 * number])
            self.tokens[step, self.rows.here], self.parents[step, self.rows.here] = carried
            self.note_rows(step, log_p[2 * number + 1])

    def note_ends(self, step: int, tokens: NDArray[Any], parents: NDArray[Any], log_p: NDArray[Any]) -> None:
        """Finish the texts that end at this step."""
        ended = (tokens[..., None] == self.ends).any(-1) & np.isfinite(log_p)
        for place, rank in np.argwhere(ended):
            row = self.rows.here[place]
            if row not in self.rows.done:
                ids = self.trace(row, step, int(parents[place, rank]))
                self.finish(row, ids, float(log_p[place, rank]), len(ids) + 1)

    def note_rows(self, step: int, log_p: NDArray[Any]) -> None:
        """See which rows are done after this step; at its limit, a row finishes with all its beams."""
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
        """Read the first `count` tokens of a row backwards, from the beam that it is in by then."""
        ids = []
        for step in reversed(range(count)):
            ids.append(int(self.tokens[step, row, beam]))
            beam = int(self.parents[step, row, beam])
        return ids[::-1]

    def finish(self, row: int, ids: list[int], log_p: float, length: int) -> None:
        """Add a text of so many tokens, its end included."""
        score = log_p / ((5 + length) / 6) ** self.length_penalty
        self.finished[row].append(Hypothesis(ids, score, log_p))

    def best(self, count: int) -> list[list[Hypothesis]]:
        """Give the best of each row; of equals, the one that was finished first."""
        return [sorted(found, key=lambda one: -one.score)[:count] for found in self.finished]


def coverage(weights: Float[Tensor, "T S"]) -> float:
    """sum_i log(min(sum_t a_ti, 1)): below 0 by the source tokens that all steps together hardly looked at."""
    looked = weights.sum(0).clamp(min=torch.finfo(weights.dtype).tiny, max=1)  # even then one may be worse than another
    return float(looked.log().sum())
