"""Text that goes on from prompts: drawn or searched, several tries, stopped by strings, whole or as it arrives."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import numpy as np

from regard.config import Config, Count
from regard.decode.beam import LengthPenalty, beam_search
from regard.decode.choose import Sampling
from regard.decode.engine import Given, in_use
from regard.decode.rows import fit_limits
from regard.decode.sample import each_in_use, sample, sample_all
from regard.errors import ConfigError
from regard.models.language import LanguageModel
from regard.use.batches import Done, by_line, default_tokens, padded, unwatched
from regard.use.fit import Fit, Part
from regard.use.ready import Ready
from regard.use.stream import Stops, TextStream


@dataclass(frozen=True, kw_only=True)
class Writing(Config):
    """How to write."""

    tokens: Count = 200  # at most
    sampling: Sampling = field(default_factory=lambda: Sampling(temperature=0.8))
    stop: tuple[str, ...] = ()  # strings that end a text; it has none of them
    seed: int = 0
    tries: Count = 1  # texts for each prompt
    beam: Count | None = None  # search for the most likely text with so many beams, instead of drawing one
    length_penalty: LengthPenalty = 0.6
    batch_tokens: Count | None = None

    def validate(self) -> None:
        """Check the rules between values."""
        if self.beam is not None and not self.tries <= self.beam:
            rule = f"tries={self.tries} must be at most beam={self.beam}: no more can be found"
            raise ConfigError(f"{rule}; search with a wider beam")
        if "" in self.stop:
            raise ConfigError("stop='' would end every text at once; give at least one character")


DRAWING = ("temperature", "top_k", "top_p", "min_p", "repetition")


def writing(ready: Ready, chosen: Mapping[str, Any]) -> Writing:
    """Give the options that were chosen, by name, those of sampling among them, over what the model's folder says."""
    drawn = [name for name in DRAWING if chosen.get(name) is not None]  # then its own way to search does not count
    if drawn and chosen.get("beam") is not None:
        rule = f"{drawn[0]} is for drawing tokens, and beam for searching the most likely text"
        raise ConfigError(f"{rule}; leave one of them out")
    searched = not drawn and ready.defaults.get("beam", 1) > 1
    found = ready.chosen(chosen, (*DRAWING, "tokens", *(("beam",) if searched else ())))
    sampling = {name: found.pop(name) for name in DRAWING if name in found}
    return Writing(sampling=Sampling(**{"temperature": 0.8, **sampling}), **found)


@dataclass(frozen=True)
class Prompt:
    """What a text begins with, and the number of the try."""

    ids: list[int]
    number: int = 0


def continuations(
    ready: Ready,
    chunks: Iterable[Sequence[str]],
    options: Writing,
    fit: Fit,
    blank: bool = True,
    done: Done = unwatched,
) -> Iterator[list[str]]:
    """Write on from prompts, in their order: as many texts for each as tries are wanted, without the prompt.

    From an empty prompt the model begins by itself; unless `blank`, a blank one gets no text.
    """
    ready.check("generate")
    writer = writer_of(ready, options)
    # beam search finds its tries together
    tries = range(1 if options.beam else options.tries)

    def rows_of(lines: Sequence[str]) -> list[list[Prompt]]:
        prompts = (writer.frame(parts) for parts in fit(lines))
        wanted = (blank or bool(line.strip()) for line in lines)
        return [
            [Prompt(ids, number) for number in tries] if want else [] for ids, want in zip(prompts, wanted, strict=True)
        ]

    tokens = (options.batch_tokens or default_tokens(ready.device)) // (options.beam or 1)
    answers = by_line(chunks, rows_of, lambda row: len(row.ids) + options.tokens, writer, max(tokens, 1), done)
    return ([text for texts in answer for text in texts] for answer in answers)


def stream(ready: Ready, prompt: str, options: Writing, fit: Fit) -> Iterator[str]:
    """Write on from one prompt, and give the text as it arrives."""
    ready.check("generate")
    return writer_of(ready, options).stream(prompt, fit)


def writer_of(ready: Ready, options: Writing) -> "Writer":
    """Give what writes: the model here, or a library that runs it."""
    return Writer(ready, options) if ready.outside is None else ready.outside.writer(ready, options)


def fit_for(ready: Ready, tokens: int) -> Fit:
    """Give what makes prompts fit: they lose their beginning, until the new text has room, or half of all room."""
    ready.check("generate")
    limit = ready.limit
    if limit is not None and ready.model.longest() is not None:
        limit -= min(tokens - 1, limit // 2)
    return Fit(ready.words, limit, side="beginning")


class Writer:
    """Writes one batch."""

    def __init__(self, ready: Ready, options: Writing) -> None:
        assert isinstance(ready.model, LanguageModel)
        self.ready, self.options, self.model = ready, options, ready.model

    def frame(self, parts: list[Part]) -> list[int]:
        """Put before a prompt what stands before every text."""
        before = [*self.ready.frame.before]
        ids = [id for part in parts for id in part.ids.tolist()]
        return [*before, *ids] or [self.ready.words.start]  # a model must have something to go on from

    def __call__(self, prompts: list[Prompt]) -> list[list[str]]:
        """Write the texts of each prompt."""
        given = self._given(prompts)
        with in_use(self.model):
            if self.options.beam is None:
                found = [[ids] for ids in self._drawn(prompts, given)]
            else:
                found = self._searched(given, self.options.beam)
        return [[self._text(prompt, ids) for ids in texts] for prompt, texts in zip(prompts, found, strict=True)]

    def _given(self, prompts: list[Prompt]) -> Given:
        return Given(*padded([prompt.ids for prompt in prompts], self.ready.words.pad, self.ready.device))

    def _limits(self, given: Given) -> list[int]:
        return fit_limits(self.model, given, [self.options.tokens] * len(given.tokens))

    def _drawn(self, prompts: list[Prompt], given: Given) -> list[list[int]]:
        watched = [Watched(self.ready, prompt, self.options) for prompt in prompts]
        return sample_all(
            self.ready.writer,
            given,
            end=self.ready.ends,
            limits=self._limits(given),
            sampling=self.options.sampling,
            seeds=[seed_of(self.options.seed, prompt) for prompt in prompts],
            forbidden=self.ready.frame.never,
            stop=(lambda row, ids: watched[row].stopped(ids)) if self.options.stop else None,
        )

    def _searched(self, given: Given, beam: int) -> list[list[list[int]]]:
        found = beam_search(
            self.ready.writer,
            given,
            end=self.ready.ends,
            limits=self._limits(given),
            beam=beam,
            best=self.options.tries,
            length_penalty=self.options.length_penalty,
            forbidden=self.ready.frame.never,
        )
        return [[one.ids for one in hypotheses] for hypotheses in found]

    def _text(self, prompt: Prompt, ids: list[int]) -> str:
        """Give what the ids add to the prompt, up to a stop."""
        watched = Watched(self.ready, prompt, self.options)
        return watched.push(ids) + watched.end()

    def stream(self, prompt: str, fit: Fit) -> Iterator[str]:
        """Write one text, piece by piece."""
        (parts,) = fit([prompt])
        row = Prompt(self.frame(parts))
        if self.options.beam is not None:  # a search knows its text only when it has ended
            yield self([row])[0][0]
            return
        given = self._given([row])
        watched, shown = (Watched(self.ready, row, self.options) for _ in range(2))
        news = sample(
            self.ready.writer,
            given,
            end=self.ready.ends,
            limits=self._limits(given),
            sampling=self.options.sampling,
            seeds=[seed_of(self.options.seed, row)],
            forbidden=self.ready.frame.never,
            stop=(lambda row, ids: watched.stopped(ids)) if self.options.stop else None,
        )
        for new in each_in_use(self.model, news):
            for _, ids in new:
                if piece := shown.push(ids):
                    yield piece
        if piece := shown.end():
            yield piece


class Watched:
    """The text of one row as it grows."""

    def __init__(self, ready: Ready, prompt: Prompt, options: Writing) -> None:
        self.text = TextStream(ready.words, prompt.ids)
        self.stops = Stops(options.stop)
        self.seen = 0

    def push(self, ids: Sequence[int]) -> str:
        """Take more ids; give the text that can be shown."""
        return self.stops.push(self.text.push(ids))

    def end(self) -> str:
        """Give what was held back."""
        return self.stops.push(self.text.end()) + self.stops.end()

    def stopped(self, ids: list[int]) -> bool:
        """Tell whether there is a stop in all ids so far."""
        self.push(ids[self.seen :])
        self.seen = len(ids)
        return self.stops.found


def seed_of(seed: int, prompt: Prompt) -> int:
    """Give a row a seed of its own: equal prompts are drawn equally in any batch, and each try differently."""
    key = f"{seed} {prompt.number} ".encode() + np.array(prompt.ids, "<i8").tobytes()
    return int.from_bytes(sha256(key).digest()[:8], "little")
