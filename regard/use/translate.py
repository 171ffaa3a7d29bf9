"""Translation of any number of lines: beam search over batches of like lengths, n-best lists, word alignments."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import torch

from regard.config import Config, Count, NotNegative, Range
from regard.decode.align import cross_weights
from regard.decode.beam import Hypothesis, LengthPenalty, beam_search, coverage
from regard.decode.engine import Given, in_use
from regard.decode.rows import fit_limits
from regard.errors import ConfigError
from regard.models.model import EncoderDecoder
from regard.use.align import Alignment, align_words
from regard.use.batches import Done, by_line, default_tokens, padded, single, unwatched
from regard.use.fit import Fit, Long, Part
from regard.use.ready import Ready

Times = Annotated[float, Range(above=0, high=1000)]
SPARE = 10  # tokens that a translation may have however short the source is


@dataclass(frozen=True, kw_only=True)
class Translating(Config):
    """How to translate."""

    beam: Count = 5  # 1 is greedy
    best: Count = 1  # how many translations of each line are wanted
    length_penalty: LengthPenalty = 0.6
    coverage: NotNegative = 0.0
    prefix: str = ""  # what every translation is made to begin with
    longest_ratio: Times = 2.0  # a translation has at most so many times the tokens of its source, and ten more
    long: Long = "cut"
    alignments: bool = False
    batch_tokens: Count | None = None  # tokens in a batch, padding and beams included; None: what suits the device

    def validate(self) -> None:
        """Check the rules between values."""
        single(self.prefix, "prefix")
        if self.best > self.beam:
            rule = f"best={self.best} must be between 1 and beam={self.beam}: no more can be found"
            raise ConfigError(f"{rule}; search with a wider beam")


@dataclass(frozen=True)
class Candidate:
    """A translation with its score: the logarithm of its probability, by the length penalty."""

    text: str
    score: float


@dataclass(frozen=True)
class Translation:
    """What a line was translated to, the best first; a blank line has one empty candidate."""

    candidates: tuple[Candidate, ...]
    alignment: Alignment | None = None  # of the best: pairs of words, counted from 0 in source and translation

    @property
    def text(self) -> str:
        """The best."""
        return self.candidates[0].text


def translating(ready: Ready, chosen: Mapping[str, Any]) -> Translating:
    """Give the options that were chosen, by name, over what the model's folder says."""
    return Translating(**ready.chosen(chosen, ("beam",)))


def translations(
    ready: Ready, chunks: Iterable[Sequence[str]], options: Translating, fit: Fit, done: Done = unwatched
) -> Iterator[Translation]:
    """Translate lines, in their order; `fit` counts those that were too long, `done` those that are finished."""
    ready.check("translate")
    outside = ready.outside
    translator = Translator(ready, options) if outside is None else outside.translator(ready, options)
    tokens = options.batch_tokens or default_tokens(ready.device)
    answers = by_line(chunks, fit, lambda part: len(part.ids) + 1, translator, max(tokens // options.beam, 1), done)
    return (join(parts) if parts else nothing(options.alignments) for parts in answers)


def fit_for(ready: Ready, long: Long = "cut") -> Fit:
    """Give what makes lines fit a translator."""
    ready.check("translate")
    return Fit(ready.words, ready.limit, long)


class Translator:
    """Translates one batch."""

    def __init__(self, ready: Ready, options: Translating) -> None:
        assert isinstance(ready.model, EncoderDecoder)
        self.ready, self.options, self.model = ready, options, ready.model
        self.prefix = [*ready.frame.forced, *ready.words.encode_target([options.prefix])[0].tolist()]
        self.begin = [ready.first, *self.prefix]

    def __call__(self, parts: list[Part]) -> list[Translation]:
        """Translate texts that fit."""
        ready, options = self.ready, self.options
        sources = self._sources(parts)
        given = self._given(sources)
        with in_use(self.model):
            found = beam_search(
                ready.writer,
                given,
                end=ready.ends,
                limits=self._limits(sources),
                beam=options.beam,
                best=options.beam if options.coverage else options.best,
                length_penalty=options.length_penalty,
                forbidden=ready.frame.never,
            )
            if options.coverage:
                found = self._by_coverage(sources, found)
            whole = [[self.prefix + one.ids for one in hypotheses] for hypotheses in found]
            texts = [ready.words.decode(rows) for rows in whole]
            made = [
                Translation(tuple(Candidate(text, one.score) for text, one in zip(row, hypotheses, strict=True)))
                for row, hypotheses in zip(texts, found, strict=True)
            ]
            if options.alignments:
                return self._aligned(parts, sources, [rows[0] for rows in whole], made)
        return made

    def _sources(self, parts: list[Part]) -> list[list[int]]:
        frame = self.ready.frame
        return [[*frame.before, *part.ids.tolist(), *frame.after] for part in parts]

    def _limits(self, sources: list[list[int]]) -> list[int]:
        limits = [int(self.options.longest_ratio * len(source)) + SPARE for source in sources]
        return fit_limits(self.model, self._given(sources), limits)

    def _given(self, sources: list[list[int]]) -> Given:
        source, source_lengths = padded(sources, self.ready.words.pad, self.ready.device)
        begin = torch.tensor([self.begin], device=self.ready.device).expand(len(sources), -1)
        return Given(begin, None, source, source_lengths)

    def _by_coverage(self, sources: list[list[int]], found: list[list[Hypothesis]]) -> list[list[Hypothesis]]:
        """Rank hypotheses anew: those that leave a part of the source unread lose (Wu et al. 2016)."""
        pairs = [(source, one.ids) for source, hypotheses in zip(sources, found, strict=True) for one in hypotheses]
        weights = iter(self._weights([source for source, _ in pairs], [self.prefix + ids for _, ids in pairs]))
        ranked = []
        for hypotheses in found:
            scored = [
                replace(one, score=one.score + self.options.coverage * coverage(next(weights))) for one in hypotheses
            ]
            ranked.append(sorted(scored, key=lambda one: -one.score)[: self.options.best])
        return ranked

    def _weights(self, sources: list[list[int]], written: list[list[int]]) -> list[torch.Tensor]:
        source, source_lengths = padded(sources, self.ready.words.pad, self.ready.device)
        return cross_weights(self.model, source, source_lengths, self.begin[0], written)

    def _aligned(
        self, parts: list[Part], sources: list[list[int]], written: list[list[int]], made: list[Translation]
    ) -> list[Translation]:
        """Add to each translation which of its words came from which."""
        words = self.ready.words
        weights = self._weights(sources, written)
        before = len(self.ready.frame.before)
        return [
            replace(one, alignment=align_words(words, part, ids, one.text, matrix[:, before:].cpu()))
            for part, ids, one, matrix in zip(parts, written, made, weights, strict=True)
        ]


def nothing(aligned: bool) -> Translation:
    """Translate a blank line."""
    return Translation((Candidate("", 0.0),), () if aligned else None)


def join(parts: list[Translation]) -> Translation:
    """Make one translation of those of a line's parts: the best of each together, then the second best, and so on."""
    if len(parts) == 1:
        return parts[0]
    ranks = zip(*(part.candidates for part in parts), strict=False)
    candidates = [
        Candidate(" ".join(one.text for one in rank), float(sum(one.score for one in rank))) for rank in ranks
    ]
    if parts[0].alignment is None:
        return Translation(tuple(candidates))
    pairs: list[tuple[int, int]] = []
    words = 0
    for part in parts:
        pairs += [(source, target + words) for source, target in part.alignment or ()]
        words += len(part.text.split())
    return Translation(tuple(candidates), tuple(pairs))
