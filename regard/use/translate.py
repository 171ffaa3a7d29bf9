"""Translate any number of lines: beam search over batches of similar lengths, n-best lists, word alignments."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

import torch

from regard.arguments import check_text
from regard.config import Config, Count, NotNegative, Range
from regard.decode.align import cross_weights
from regard.decode.beam import Hypothesis, LengthPenalty, beam_search, coverage
from regard.decode.engine import Given, in_use
from regard.decode.rows import fit_limits
from regard.errors import ConfigError
from regard.models.model import writes
from regard.use.align import Alignment, align_words
from regard.use.batches import Chunks, Feedback, by_line, padded_batch, tokens_per_batch
from regard.use.bundle import Bundle, plain_errors
from regard.use.fit import Fit, Long, Part, warn_of_cuts

LengthRatio = Annotated[float, Range(above=0, high=1000)]
SPARE = 10  # tokens that a translation may have however short the source is


@dataclass(frozen=True, kw_only=True)
class TranslateOptions(Config):
    """How to translate."""

    beam: Count = 5  # 1 is greedy
    n_best: Count = 1  # number of translations of each line
    length_penalty: LengthPenalty = 0.6
    coverage: NotNegative = 0.0
    prefix: str = ""  # the beginning of every translation
    longest_ratio: LengthRatio = 2.0  # the most tokens of a translation: this times the tokens of its source, plus ten
    long: Long = "cut"
    alignments: bool = False
    batch_tokens: Count | None = None  # tokens in a batch, padding and beams included; None: what suits the device

    def validate(self) -> None:
        """Check the rules between values."""
        check_text(self.prefix, "prefix")
        if self.n_best > self.beam:
            rule = f"n_best={self.n_best} must be between 1 and beam={self.beam}"
            raise ConfigError(f"{rule}; search with a wider beam")

    @property
    def search(self) -> str:
        """The search in words, to be shown beside a score."""
        return "greedy" if self.beam == 1 else f"beam {self.beam}"


@dataclass(frozen=True)
class Candidate:
    """A translation with its score: its log-probability divided by the length penalty."""

    text: str
    score: float


@dataclass(frozen=True)
class TranslatedLine:
    """The translations of a line, the best first; a blank line has one empty candidate."""

    candidates: tuple[Candidate, ...]
    alignment: Alignment | None = None  # of the best: pairs of words, counted from 0 in source and translation

    @property
    def text(self) -> str:
        """The best translation."""
        return self.candidates[0].text


def translate_options(bundle: Bundle, chosen: Mapping[str, Any]) -> TranslateOptions:
    """Return the options: the model's defaults, overridden by what the user chose."""
    with plain_errors():
        return TranslateOptions(**bundle.resolve(chosen, ("beam",)))


def translate_lines(
    bundle: Bundle, chunks: Chunks, options: TranslateOptions, feedback: Feedback
) -> Iterator[tuple[str, TranslatedLine]]:
    """Yield each line with its translations, in order."""
    bundle.check("translate")
    bundle.warn_of_unused(feedback.warn)
    external = bundle.external
    translate = BatchTranslator(bundle, options) if external is None else external.translator(bundle, options)
    tokens = tokens_per_batch(options.batch_tokens, bundle.device) // options.beam
    fit = Fit(bundle.need_tokenizer(), bundle.text_limit, options.long)
    found = by_line(chunks, fit, lambda part: len(part.ids) + 1, translate, max(tokens, 1), feedback.done)
    pairs = ((line, join_parts(parts) if parts else _blank(options.alignments)) for line, parts in found)
    return warn_of_cuts(pairs, fit, feedback, 'long="split" (--long split) keeps all of it')


class BatchTranslator:
    """Translates one batch."""

    def __init__(self, bundle: Bundle, options: TranslateOptions) -> None:
        assert writes(bundle.model)
        self.bundle, self.options, self.model = bundle, options, bundle.model
        self.tokenizer, self.template = bundle.need_tokenizer(), bundle.template
        self.prefix = [*self.template.forced, *self.tokenizer.encode_target([options.prefix])[0].tolist()]
        self.begin = [bundle.first, *self.prefix]

    def __call__(self, parts: list[Part]) -> list[TranslatedLine]:
        """Translate texts that fit."""
        bundle, options = self.bundle, self.options
        sources = self.sources(parts)
        given = self.given(sources)
        with in_use(self.model):
            found = beam_search(
                bundle.need_engine(),
                given,
                end=bundle.ends,
                limits=self.limits(sources, given),
                beam=options.beam,
                best=options.beam if options.coverage else options.n_best,
                length_penalty=options.length_penalty,
                forbidden=self.template.never,
            )
            bundle.check_scores(best.score for best, *_ in found)
            if options.coverage:
                found = self._rank_by_coverage(sources, found)
            rows = [[self.prefix + one.ids for one in hypotheses] for hypotheses in found]
            translated = [
                TranslatedLine(tuple(Candidate(text, one.score) for text, one in zip(texts, hypotheses, strict=True)))
                for texts, hypotheses in zip(map(self.tokenizer.decode, rows), found, strict=True)
            ]
            if options.alignments:
                return self._aligned(parts, given, [best for best, *_ in rows], translated)
        return translated

    def sources(self, parts: list[Part]) -> list[list[int]]:
        """Return the ids of the sources with the template around them."""
        return [[*self.template.before, *part.ids.tolist(), *self.template.after] for part in parts]

    def given(self, sources: list[list[int]]) -> Given:
        """Return what the search starts from: the padded sources, and the first tokens of the translations."""
        source, source_lengths = padded_batch(sources, self.tokenizer.pad, self.bundle.device)
        begin = torch.tensor([self.begin], device=self.bundle.device).expand(len(sources), -1)
        return Given(begin, None, source, source_lengths)

    def limits(self, sources: list[list[int]], given: Given) -> list[int]:
        """Return the most tokens of each translation."""
        return fit_limits(
            self.model, given, [int(self.options.longest_ratio * len(source)) + SPARE for source in sources]
        )

    def _rank_by_coverage(self, sources: list[list[int]], found: list[list[Hypothesis]]) -> list[list[Hypothesis]]:
        """Rank hypotheses again: those that leave a part of the source unattended get a penalty (Wu et al. 2016)."""
        pairs = [(source, one.ids) for source, hypotheses in zip(sources, found, strict=True) for one in hypotheses]
        given = self.given([source for source, _ in pairs])
        weights = iter(self._cross_weights(given, [self.prefix + ids for _, ids in pairs]))
        ranked = []
        for hypotheses in found:
            scored = [
                replace(one, score=one.score + self.options.coverage * coverage(next(weights))) for one in hypotheses
            ]
            ranked.append(sorted(scored, key=lambda one: -one.score)[: self.options.n_best])
        return ranked

    def _cross_weights(self, given: Given, written: list[list[int]]) -> list[torch.Tensor]:
        assert given.source is not None
        assert given.source_lengths is not None
        return cross_weights(self.model, given.source, given.source_lengths, self.begin[0], written)

    def _aligned(
        self, parts: list[Part], given: Given, written: list[list[int]], translated: list[TranslatedLine]
    ) -> list[TranslatedLine]:
        """Add to each translation which of its words come from which words of the source."""
        before = len(self.template.before)
        weights = self._cross_weights(given, written)
        return [
            replace(one, alignment=align_words(self.tokenizer, part, ids, one.text, matrix[:, before:].cpu()))
            for part, ids, one, matrix in zip(parts, written, translated, weights, strict=True)
        ]


def _blank(aligned: bool) -> TranslatedLine:
    """Return the translation of a blank line."""
    return TranslatedLine((Candidate("", 0.0),), () if aligned else None)


def join_parts(parts: list[TranslatedLine]) -> TranslatedLine:
    """Join the translations of a line's parts: the best of each, then the second best of each, and so on."""
    if len(parts) == 1:
        return parts[0]
    ranks = zip(*(part.candidates for part in parts), strict=False)
    candidates = [
        Candidate(" ".join(one.text for one in rank), float(sum(one.score for one in rank))) for rank in ranks
    ]
    if parts[0].alignment is None:
        return TranslatedLine(tuple(candidates))
    pairs: list[tuple[int, int]] = []
    words = 0
    for part in parts:
        pairs += [(source, target + words) for source, target in part.alignment or ()]
        words += len(part.text.split())
    return TranslatedLine(tuple(candidates), tuple(pairs))
