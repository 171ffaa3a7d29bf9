"""Continue prompts: by sampling or beam search, several tries, stop strings, complete texts or a stream."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Annotated, Any

import numpy as np

from regard.config import Config, Count, Range
from regard.data.tokenizer import Tokenizer
from regard.decode.beam import LengthPenalty, beam_search
from regard.decode.choose import Sampling
from regard.decode.engine import Given, in_use
from regard.decode.rows import fit_limits
from regard.decode.sample import each_in_use, sample, sample_all
from regard.errors import ConfigError, InputError
from regard.models.model import writes
from regard.use.batches import Chunks, Feedback, by_line, padded_batch, tokens_per_batch
from regard.use.bundle import Bundle, plain_errors
from regard.use.fit import Fit, Part, warn_of_cuts
from regard.use.stream import Stops, TextStream


@dataclass(frozen=True, kw_only=True)
class GenerateOptions(Config):
    """How to generate."""

    tokens: Count = 200  # at most
    sampling: Sampling = field(default_factory=lambda: Sampling(temperature=0.8))
    stop: tuple[str, ...] = ()  # a text ends before the first of these strings
    seed: int = 0
    tries: Annotated[int, Range(low=1, high=10_000)] = 1  # texts for each prompt
    beam: Count | None = None  # beam search for the most likely text, instead of sampling
    length_penalty: LengthPenalty = 0.6
    batch_tokens: Count | None = None

    @property
    def samples(self) -> bool:
        """Whether the text depends on the seed: tokens are drawn, not searched for."""
        return self.beam is None and self.sampling.temperature > 0

    def validate(self) -> None:
        """Check the rules between values."""
        if self.beam is not None and not self.tries <= self.beam:
            rule = f"tries={self.tries} must be at most beam={self.beam}"
            raise ConfigError(f"{rule}; search with a wider beam")
        if self.tries > 1 and self.beam is None and not self.samples:
            rule = f"tries={self.tries} would repeat the same text at temperature=0"
            raise ConfigError(f"{rule}; choose a higher temperature, or beam={self.tries}")
        if "" in self.stop:
            raise ConfigError("stop='' would end every text at once; give at least one character")


SAMPLING_OPTIONS = ("temperature", "top_k", "top_p", "min_p", "repetition")


def generate_options(bundle: Bundle, chosen: Mapping[str, Any]) -> GenerateOptions:
    """Return the options: the model's defaults, overridden by what the user chose, sampling options included."""
    sampled = [name for name in SAMPLING_OPTIONS if chosen.get(name) is not None]
    if sampled and chosen.get("beam") is not None:
        rule = (
            f"{sampled[0]}={chosen[sampled[0]]} samples tokens, beam={chosen['beam']} searches for the most likely text"
        )
        raise InputError(f"{rule}; leave one of them out")
    # sampling options override the beam search that the model's folder asks for
    searched = not sampled and bundle.defaults.get("beam", 1) > 1
    found = bundle.resolve(chosen, (*SAMPLING_OPTIONS, "tokens", *(("beam",) if searched else ())))
    sampling = {name: found.pop(name) for name in SAMPLING_OPTIONS if name in found}
    with plain_errors():
        return GenerateOptions(sampling=Sampling(**{"temperature": 0.8, **sampling}), **found)


@dataclass(frozen=True)
class Prompt:
    """The ids that a text starts with, and the number of the try."""

    ids: list[int]
    number: int = 0


def generate_lines(
    bundle: Bundle, chunks: Chunks, options: GenerateOptions, feedback: Feedback, blank: bool = True
) -> Iterator[tuple[str, list[str]]]:
    """Yield each prompt with its continuations, in order: one for each try, without the prompt.

    An empty prompt starts a new text; unless `blank`, blank prompts get no text.
    """
    bundle.check("generate")
    bundle.warn_of_unused(feedback.warn)
    generate = batch_generator(bundle, options)
    fit = fit_prompts(bundle, options)
    tries = range(1 if options.beam else options.tries)  # beam search finds all tries at once

    def rows_of(lines: Sequence[str]) -> list[list[Prompt]]:
        prompts = (generate.with_template(parts) for parts in fit(lines))
        wanted = (blank or bool(line.strip()) for line in lines)
        return [
            [Prompt(ids, number) for number in tries] if want else [] for ids, want in zip(prompts, wanted, strict=True)
        ]

    tokens = tokens_per_batch(options.batch_tokens, bundle.device) // (options.beam or 1)
    found = by_line(chunks, rows_of, lambda row: len(row.ids) + options.tokens, generate, max(tokens, 1), feedback.done)
    pairs = ((line, [text for texts in answers for text in texts]) for line, answers in found)
    return warn_of_cuts(pairs, fit, feedback)


def stream_text(bundle: Bundle, prompt: str, options: GenerateOptions, feedback: Feedback) -> Iterator[str]:
    """Continue one prompt, and yield the text as it arrives."""
    bundle.check("generate")
    bundle.warn_of_unused(feedback.warn)
    fit = fit_prompts(bundle, options)
    return warn_of_cuts(batch_generator(bundle, options).stream(prompt, fit), fit, feedback)


def batch_generator(bundle: Bundle, options: GenerateOptions) -> "BatchGenerator":
    """Return what generates for a batch: the model here, or a library that runs it."""
    return BatchGenerator(bundle, options) if bundle.external is None else bundle.external.generator(bundle, options)


def fit_prompts(bundle: Bundle, options: GenerateOptions) -> Fit:
    """Return the `Fit` of prompts: long ones lose their beginning, to leave up to half of the context for new text."""
    limit = bundle.text_limit
    if limit is not None and bundle.model.longest() is not None:
        limit -= min(options.tokens - 1, limit // 2)
    return Fit(bundle.need_tokenizer(), limit, side="beginning")


class BatchGenerator:
    """Generates for one batch."""

    def __init__(self, bundle: Bundle, options: GenerateOptions) -> None:
        assert writes(bundle.model)
        self.bundle, self.options, self.model = bundle, options, bundle.model
        self.tokenizer = bundle.need_tokenizer()

    def with_template(self, parts: list[Part]) -> list[int]:
        """Return a prompt with the tokens that come before every text."""
        ids = [id for part in parts for id in part.ids.tolist()]
        return [*self.bundle.template.before, *ids] or [self.tokenizer.start]  # a model must read at least one token

    def __call__(self, prompts: list[Prompt]) -> list[list[str]]:
        """Return the texts of each prompt."""
        given = self.given(prompts)
        with in_use(self.model):
            if self.options.beam is None:
                found = [[ids] for ids in self._sample(prompts, given)]
            else:
                found = self._search(given, self.options.beam)
        return [[self.text(prompt, ids) for ids in texts] for prompt, texts in zip(prompts, found, strict=True)]

    def given(self, prompts: list[Prompt]) -> Given:
        """Return what decoding starts from: the padded prompts."""
        return Given(*padded_batch([prompt.ids for prompt in prompts], self.tokenizer.pad, self.bundle.device))

    def limits(self, given: Given) -> list[int]:
        """Return the most new tokens of each prompt."""
        return fit_limits(self.model, given, [self.options.tokens] * len(given.tokens))

    def _sample(self, prompts: list[Prompt], given: Given) -> list[list[int]]:
        texts = [GrowingText(self.tokenizer, prompt, self.options) for prompt in prompts]
        return sample_all(
            self.bundle.need_engine(),
            given,
            end=self.bundle.ends,
            limits=self.limits(given),
            sampling=self.options.sampling,
            seeds=[row_seed(self.options.seed, prompt) for prompt in prompts],
            forbidden=self.bundle.template.never,
            stop=(lambda row, ids: texts[row].stopped(ids)) if self.options.stop else None,
        )

    def _search(self, given: Given, beam: int) -> list[list[list[int]]]:
        found = beam_search(
            self.bundle.need_engine(),
            given,
            end=self.bundle.ends,
            limits=self.limits(given),
            beam=beam,
            best=self.options.tries,
            length_penalty=self.options.length_penalty,
            forbidden=self.bundle.template.never,
        )
        self.bundle.check_scores(best.score for best, *_ in found)
        return [[one.ids for one in hypotheses] for hypotheses in found]

    def text(self, prompt: Prompt, ids: list[int]) -> str:
        """Return what the ids add to the prompt, up to a stop string."""
        text = GrowingText(self.tokenizer, prompt, self.options)
        return text.push(ids) + text.end()

    def stream(self, prompt: str, fit: Fit) -> Iterator[str]:
        """Yield one text, piece by piece."""
        (parts,) = fit([prompt])
        row = Prompt(self.with_template(parts))
        if self.options.beam is not None:  # the text is known only at the end of a search
            yield self([row])[0][0]
            return
        given = self.given([row])
        watched, shown = (GrowingText(self.tokenizer, row, self.options) for _ in range(2))
        news = sample(
            self.bundle.need_engine(),
            given,
            end=self.bundle.ends,
            limits=self.limits(given),
            sampling=self.options.sampling,
            seeds=[row_seed(self.options.seed, row)],
            forbidden=self.bundle.template.never,
            stop=(lambda row, ids: watched.stopped(ids)) if self.options.stop else None,
        )
        for new in each_in_use(self.model, news):
            for _, ids in new:
                if piece := shown.push(ids):
                    yield piece
        if piece := shown.end():
            yield piece


class GrowingText:
    """The text of one row as its tokens arrive."""

    def __init__(self, tokenizer: Tokenizer, prompt: Prompt, options: GenerateOptions) -> None:
        self.text = TextStream(tokenizer, prompt.ids)
        self.stops = Stops(options.stop)
        self.seen = 0

    def push(self, ids: Sequence[int]) -> str:
        """Take more ids; return the text that can be shown."""
        return self.stops.push(self.text.push(ids))

    def end(self) -> str:
        """Return the text that was held back."""
        return self.stops.push(self.text.end()) + self.stops.end()

    def stopped(self, ids: list[int]) -> bool:
        """Return whether all ids so far contain a stop string."""
        self.push(ids[self.seen :])
        self.seen = len(ids)
        return self.stops.found


def row_seed(seed: int, prompt: Prompt) -> int:
    """Return the seed of a row: equal prompts are sampled equally in any batch, and each try differently."""
    key = f"{seed} {prompt.number} ".encode() + np.array(prompt.ids, "<i8").tobytes()
    return int.from_bytes(sha256(key).digest()[:8], "little")
