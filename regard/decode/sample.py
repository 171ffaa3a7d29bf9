"""Write token by token: each token is sampled, or the most likely one, and read before the next. For any engine."""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from regard.decode.choose import NO_TOKEN, Sampling, choose_tokens
from regard.decode.constrain import ConstrainedTexts, Constraint
from regard.decode.engine import Engine, Given, Work, in_use
from regard.decode.rows import Rows, end_ids
from regard.decode.scores import forbid
from regard.errors import InputError, NotFiniteError

TOGETHER = 256  # steps whose random numbers are drawn together
News = list[tuple[int, list[int]]]  # the number of a row, and what it has written since the last item
Stop = Callable[[int, list[int]], bool]  # whether a row ends, given all it has written so far


def sample(
    engine: Engine,
    given: Given,
    *,
    end: int | Sequence[int],
    limits: list[int],
    sampling: Sampling,
    seeds: list[int],
    forbidden: Sequence[int] = (),
    stop: Stop | None = None,
    constraint: Constraint | None = None,
) -> Iterator[News]:
    """Continue what is given; yield what is new whenever it is read, without the end token.

    A row ends with a token of `end`, at its limit, or when `stop` returns true, which is called after every token.
    `forbidden` tokens are never written, nor those that a `constraint` does not allow. The random numbers of a row
    follow from its seed, so its text does not depend on the other rows of the batch. Scores that are not finite are a
    `NotFiniteError`. Run it inside `in_use`, or through `each_in_use`.
    """
    rows, ends = Rows(given, limits, constraint is not None), set(end_ids(end))
    constrained = None if constraint is None else ConstrainedTexts(constraint, rows.here, end_ids(end), forbidden)
    device = given.tokens.device
    chances = Chances(seeds, device)
    never = torch.tensor(list(forbidden), dtype=torch.long, device=device)
    texts: list[list[int]] = [[] for _ in limits]
    pending: list[Tensor] = []
    seen = None
    if not rows.going:
        return
    steps = engine(given, rows.capacity)
    logits = steps.begin()
    if sampling.repetition != 1:
        seen = mark(given, logits)
    work = choosing(sampling)
    for written in range(1, rows.steps + 1):
        chance = chances.next()
        if constrained is not None:
            constrained.mask(logits)
        (chosen,) = steps.apply(work, logits, (chance,) if seen is None else (chance, seen), (never,))
        pending.append(chosen)
        tokens = chosen.clamp(min=0)  # a row without a token is an error, but only when it is read
        if seen is not None:
            seen.scatter_(1, tokens[:, None], True)
        stay = None  # the places of rows that stay; None: all
        if rows.is_check_due(written):
            news = _read(torch.stack(pending, 1).tolist(), rows, texts, ends, stop)
            pending.clear()
            if news:
                yield news
            stay = rows.drop_done(written)
        if stay == []:
            return
        if constrained is not None:
            constrained.advance(tokens)
        if stay is not None:
            index = torch.tensor(stay, device=device)
            steps.reorder(index)
            tokens = tokens[index]
            chances.keep(stay)
            if constrained is not None:
                constrained.keep(stay)
            seen = None if seen is None else seen[index]
        logits = steps.step(tokens)


def sample_all(
    engine: Engine,
    given: Given,
    *,
    end: int | Sequence[int],
    limits: list[int],
    sampling: Sampling,
    seeds: list[int],
    forbidden: Sequence[int] = (),
    stop: Stop | None = None,
    constraint: Constraint | None = None,
) -> list[list[int]]:
    """Continue what is given, as `sample` does; return all that each row wrote."""
    texts: list[list[int]] = [[] for _ in limits]
    for news in sample(
        engine,
        given,
        end=end,
        limits=limits,
        sampling=sampling,
        seeds=seeds,
        forbidden=forbidden,
        stop=stop,
        constraint=constraint,
    ):
        for row, ids in news:
            texts[row] += ids
    return texts


@lru_cache
def choosing(sampling: Sampling) -> Work:
    """Return the function that chooses tokens by `sampling`; always the same object, as `Steps.apply` needs."""

    def work(logits: Tensor, chance: Tensor, *rest: Tensor) -> tuple[Tensor]:
        *seen, never = rest
        forbid(logits, never)
        return (choose_tokens(logits, sampling, chance, *seen),)

    return work


def each_in_use(model: nn.Module, news: Iterator[News]) -> Iterator[News]:
    """Advance a generator inside `in_use`, and leave `in_use` between its items.

    A generator that opened `in_use` around its loop would leave it open for the caller, too.
    """
    while True:
        with in_use(model):
            item = next(news, None)
        if item is None:
            return
        yield item


class Chances:
    """The numbers in [0, 1) by which rows choose their tokens; they depend on the seed of a row and the step only."""

    def __init__(self, seeds: Sequence[int], device: torch.device) -> None:
        for seed in seeds:
            if not 0 <= seed < 2**128:
                raise InputError(f"seed {seed} must be at least 0 and below 2^128")
        self.device = device
        self.rows = [np.random.Generator(np.random.Philox(key=seed)) for seed in seeds]
        self.drawn: list[Tensor] = []  # for the next steps, the last first

    def next(self) -> Float[Tensor, "B"]:
        """Return the numbers of the next step."""
        if not self.drawn:
            block = torch.from_numpy(np.stack([row.random(TOGETHER) for row in self.rows], 1)).to(self.device)
            self.drawn = list(reversed(block.unbind()))
        return self.drawn.pop()

    def keep(self, rows: list[int]) -> None:
        """Keep only some rows."""
        index = torch.tensor(rows, device=self.device)
        self.rows = [self.rows[row] for row in rows]
        self.drawn = [chance[index] for chance in self.drawn]


def mark(given: Given, logits: Float[Tensor, "B V"]) -> Bool[Tensor, "B V"]:
    """Mark the tokens that occur in what is given."""
    seen = torch.zeros_like(logits, dtype=torch.bool)
    if given.lengths is None:
        return seen.scatter_(1, given.tokens, True)
    real = torch.arange(given.tokens.shape[1], device=logits.device) < given.lengths[:, None]
    # padding marks what the first token of its row marks anyway
    return seen.scatter_(1, torch.where(real, given.tokens, given.tokens[:, :1]), True)


def _read(ids: list[list[int]], rows: Rows, texts: list[list[int]], ends: set[int], stop: Stop | None) -> News:
    """Add what each place of the batch wrote to the texts, up to the end of the row; return what is new."""
    news = []
    for row, new in zip(rows.here, ids, strict=True):
        text = texts[row]
        before = len(text)
        for token in new:
            if row in rows.done:
                break
            if token in ends:
                rows.done.add(row)
                break
            if token == NO_TOKEN:
                raise NotFiniteError
            text.append(token)
            if len(text) == rows.limits[row] or (stop is not None and stop(row, text)):
                rows.done.add(row)
        if len(text) > before:
            news.append((row, text[before:]))
    return news
