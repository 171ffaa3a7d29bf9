"""CTranslate2 as an engine: the library translates and generates with its own search.

A folder that `regard convert --to ctranslate2` wrote also contains the tokenizer and what the verbs need to know, so it
is used like a run. For a run or a Hugging Face folder, such a folder is written once into the cache, in float32.
"""

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from regard.config import from_table, to_json
from regard.data.cache import CacheKey, cached, digest
from regard.data.tokenizer import load_tokenizer
from regard.errors import InputError, RegardError
from regard.hub.ctranslate2 import (
    POSITIONS,
    Quantization,
    TokenNames,
    ctranslate2_obstacle,
    import_ctranslate2,
    write_ctranslate2,
)
from regard.hub.details import GENERATION, GENERATION_KEYS
from regard.models.recipe import ModelConfig, build_empty
from regard.models.template import Template
from regard.untrusted import read_json
from regard.use.bundle import Bundle, ExternalEngine
from regard.use.fit import Fit, Part
from regard.use.generate import BatchGenerator, GenerateOptions, GrowingText, Prompt
from regard.use.huggingface import generation_defaults
from regard.use.translate import BatchTranslator, Candidate, TranslatedLine, TranslateOptions

WEIGHTS = "model.bin"
SETTINGS = "regard.json"
FORMAT = 1  # of the folders in the cache


@dataclass(frozen=True, kw_only=True)
class CTranslate2Settings:
    """What the verbs need to know about a model whose weights only the library can read."""

    model: ModelConfig
    frame: Template  # `frame` is its key in regard.json
    longest: int | None = None


# --- folders ---------------------------------------------------------------------------------------------------------


def is_ctranslate2(folder: Path) -> bool:
    """Return whether a folder contains a CTranslate2 model."""
    return (folder / WEIGHTS).is_file() and (folder / "config.json").is_file()


def write_ctranslate2_folder(
    bundle: Bundle, source: Path, folder: Path, quantization: Quantization = "float32"
) -> None:
    """Write a model for CTranslate2, with its tokenizer and settings."""
    tokenizer, model = bundle.need_tokenizer(), bundle.model
    names = tokenizer.names(model.config.vocabulary)
    special = TokenNames(names, names[bundle.first], names[bundle.ends[0]], names[tokenizer.unk])
    write_ctranslate2(model, special, folder, quantization)
    tokenizer.save(folder)
    (folder / SETTINGS).write_text(
        to_json(CTranslate2Settings(model=model.config, frame=bundle.template, longest=bundle.longest)), "utf-8"
    )
    if (source / GENERATION).exists():
        shutil.copyfile(source / GENERATION, folder / GENERATION)


def open_ctranslate2(folder: Path, device: torch.device) -> Bundle:
    """Open a folder that `regard convert` wrote. The returned model has no weights; the library has them."""
    if not (folder / SETTINGS).exists():
        remedy = "convert the original model: regard convert MODEL --to ctranslate2 NEW"
        raise RegardError(f"{folder}: has no {SETTINGS}, so it was not written by `regard convert`; {remedy}")
    settings = from_table(read_json(folder / SETTINGS), CTranslate2Settings)
    generation = read_json(folder / GENERATION) if (folder / GENERATION).exists() else {}
    return Bundle(
        model=build_empty(settings.model),
        name=str(folder),
        tokenizer=load_tokenizer(folder),
        template=settings.frame,
        longest=settings.longest,
        device=device,
        external=CTranslate2Engine(folder, device),
        defaults=generation_defaults(
            {key: generation[key] for key in GENERATION_KEYS if generation.get(key) is not None}, folder
        ),
    )


def through_ctranslate2(bundle: Bundle, source: Path, device: torch.device) -> Bundle:
    """Return the bundle with the library as its engine; the converted model is kept in the cache."""
    reason = ctranslate2_obstacle(bundle.model.config)
    if reason is not None:
        raise RegardError(f"{source}: cannot be run by CTranslate2: {reason}; use another --engine")
    files = [path for path in sorted(source.iterdir()) if path.suffix in (".safetensors", ".bin", ".json")]
    weights = (
        tensor.detach().reshape(-1).contiguous().view(torch.uint8) for tensor in bundle.model.state_dict().values()
    )
    settings = {
        "weights": digest(*(tensor.cpu().numpy() for tensor in weights)),  # those of any step, not only of the files
        "tokenizer": bundle.need_tokenizer().fingerprint(),
        "format": FORMAT,
    }
    key = CacheKey({"files": files}, settings)
    entry = cached("ctranslate2", key, lambda folder: write_ctranslate2_folder(bundle, source, folder))
    return replace(
        bundle, model=build_empty(bundle.model.config), device=device, external=CTranslate2Engine(entry.folder, device)
    )


# --- running ---------------------------------------------------------------------------------------------------------


class CTranslate2Engine(ExternalEngine):
    """A model of the library, loaded when it is first used."""

    def __init__(self, folder: Path, device: torch.device, precision: str = "auto") -> None:
        self.folder, self.device = folder, device
        self.compute_type = "default" if precision == "auto" else precision
        self.module = import_ctranslate2()

    def in_precision(self, precision: str) -> "CTranslate2Engine":
        """Return the same model in this precision; `auto` lets the library choose."""
        return CTranslate2Engine(self.folder, self.device, precision)

    @cached_property
    def model(self) -> Any:
        """The library's own translator or generator."""
        settings = from_table(read_json(self.folder / SETTINGS), CTranslate2Settings)
        model = build_empty(settings.model)
        kind = self.module.Translator if model.has_source else self.module.Generator
        try:
            return kind(
                str(self.folder),
                device=self.device.type,
                device_index=self.device.index or 0,
                compute_type=self.compute_type,
                intra_threads=torch.get_num_threads(),
            )
        except (RuntimeError, ValueError) as error:
            raise RegardError(f"{self.folder}: CTranslate2 cannot load it: {error}") from None

    def set_seed(self, seed: int) -> None:
        """Seed the sampling. The library reads the seed when it loads a model, so the model is loaded again."""
        self.module.set_random_seed(seed % 2**32)
        self.__dict__.pop("model", None)

    def translator(self, bundle: Bundle, options: TranslateOptions) -> "CTranslate2Translator":
        """Return a function that translates a batch."""
        return CTranslate2Translator(bundle, options, self)

    def generator(self, bundle: Bundle, options: GenerateOptions) -> "CTranslate2Generator":
        """Return an object that generates for a batch."""
        return CTranslate2Generator(bundle, options, self)


class TokenTable:
    """Converts between token ids and the names that the library uses."""

    def __init__(self, bundle: Bundle) -> None:
        self.names = bundle.need_tokenizer().names(bundle.model.config.vocabulary)
        self.ids = {name: id for id, name in enumerate(self.names)}
        self.ends = [self.names[id] for id in bundle.ends]
        self.never = [[self.names[id]] for id in bundle.template.never] or None

    def names_of(self, ids: Sequence[int]) -> list[str]:
        """Return the names of a row of ids."""
        return [self.names[id] for id in ids]


class CTranslate2Translator(BatchTranslator):
    """Translates a batch with the library."""

    def __init__(self, bundle: Bundle, options: TranslateOptions, library: CTranslate2Engine) -> None:
        super().__init__(bundle, options)
        if options.alignments:
            raise InputError("CTranslate2 has no alignments; use another --engine")
        self.library, self.tokens = library, TokenTable(bundle)

    def __call__(self, parts: list[Part]) -> list[TranslatedLine]:
        """Translate texts that fit into the model's context."""
        options = self.options
        sources = self.sources(parts)
        known = self.limits(sources, self.given(sources))
        limits = [min(limit, POSITIONS - len(self.begin)) for limit in known]
        try:
            results = self.library.model.translate_batch(
                [self.tokens.names_of(source) for source in sources],
                [self.tokens.names_of(self.prefix)] * len(parts) if self.prefix else None,
                beam_size=options.beam,
                num_hypotheses=options.n_best,
                length_penalty=options.length_penalty,
                coverage_penalty=options.coverage,
                max_input_length=0,
                min_decoding_length=0,  # as in our own search; the library wants one token by default
                max_decoding_length=max(limits) + len(self.prefix),
                end_token=self.tokens.ends,
                suppress_sequences=self.tokens.never,
                return_scores=True,
            )
        except (RuntimeError, ValueError) as error:
            raise RegardError(f"{self.bundle.name}: CTranslate2 cannot translate this: {error}") from None
        ids = self.tokens.ids
        rows = [
            [[ids[token] for token in tokens][: limit + len(self.prefix)] for tokens in result.hypotheses]
            for result, limit in zip(results, limits, strict=True)
        ]
        texts = iter(self.tokenizer.decode([row for group in rows for row in group]))
        return [TranslatedLine(tuple(Candidate(next(texts), score) for score in result.scores)) for result in results]


class CTranslate2Generator(BatchGenerator):
    """Generates for a batch with the library."""

    def __init__(self, bundle: Bundle, options: GenerateOptions, library: CTranslate2Engine) -> None:
        super().__init__(bundle, options)
        if options.sampling.min_p > 0:
            raise InputError(f"min_p={options.sampling.min_p} is not supported by CTranslate2; use another --engine")
        self.library, self.tokens = library, TokenTable(bundle)
        if options.beam is None and options.sampling.temperature > 0:
            library.set_seed(options.seed)

    def __call__(self, prompts: list[Prompt]) -> list[list[str]]:
        """Generate for each prompt; prompts with the same limit of new tokens form a batch."""
        limits = self.limits(self.given(prompts))
        groups: dict[tuple[int, int], list[int]] = {}
        for index, (prompt, limit) in enumerate(zip(prompts, limits, strict=True)):
            groups.setdefault((limit, self._batch_key(prompt)), []).append(index)
        found: dict[int, list[list[int]]] = {}
        for (limit, _), members in groups.items():
            results = self._call(
                "generate_batch", [self.tokens.names_of(prompts[index].ids) for index in members], limit
            )
            found.update((index, result.sequences_ids) for index, result in zip(members, results, strict=True))
        return [[self.text(prompt, ids) for ids in found[index]] for index, prompt in enumerate(prompts)]

    def _batch_key(self, prompt: Prompt) -> int:
        """Return a key: prompts with different keys must not be in one batch.

        The library prefills all prompts of a batch with the length of the shortest, less one token, and forces the rest
        token by token. These tokens count for the score of beams. If there is nothing to prefill (a prompt of one
        token), the library returns the prompt as part of the text.
        """
        length = len(prompt.ids)
        return length if self.options.beam is not None else min(length, 2)

    def _call(self, method: str, given: Any, limit: int) -> Any:
        options, sampling = self.options, self.options.sampling
        greedy = options.beam is not None or sampling.temperature == 0
        settings = {
            "max_length": limit,
            "end_token": self.tokens.ends,
            "suppress_sequences": self.tokens.never,
            "repetition_penalty": sampling.repetition,
            "sampling_topk": 1 if greedy else sampling.top_k or 0,
            "sampling_topp": 1.0 if greedy else sampling.top_p,
            "sampling_temperature": 1.0 if greedy else sampling.temperature,
        }
        if method == "generate_batch":
            settings |= {"beam_size": options.beam or 1, "num_hypotheses": options.tries if options.beam else 1}
            settings |= {"length_penalty": options.length_penalty, "include_prompt_in_result": False}
        try:
            return getattr(self.library.model, method)(given, **settings)
        except (RuntimeError, ValueError) as error:
            raise RegardError(f"{self.bundle.name}: CTranslate2 cannot continue this: {error}") from None

    def stream(self, prompt: str, fit: Fit) -> Iterator[str]:
        """Generate one text, piece by piece."""
        (parts,) = fit([prompt])
        row = Prompt(self.with_template(parts))
        if self.options.beam is not None:  # the text is known only at the end of a search
            yield self([row])[0][0]
            return
        (limit,) = self.limits(self.given([row]))
        shown, ends = GrowingText(self.tokenizer, row, self.options), set(self.bundle.ends)
        for step in self._call("generate_tokens", self.tokens.names_of(row.ids), limit) if limit > 0 else ():
            if step.token_id in ends or shown.stops.found:
                break
            if piece := shown.push([step.token_id]):
                yield piece
        if piece := shown.end():
            yield piece
