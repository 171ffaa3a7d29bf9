"""CTranslate2 as an engine: the library translates and writes by itself, with a search of its own.

A folder for it (`regard convert --to ctranslate2`) also holds the tokenizer and what the verbs need to know, so it is
used like any other. Of a run or a folder of Hugging Face one is made in the cache, in float32.
"""

import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from regard.config import from_table, to_json
from regard.data.corpus import cache_folder, file_key
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
from regard.hub.weights import read_json
from regard.models.language import LanguageModel
from regard.models.recipe import ModelConfig, build_empty
from regard.models.template import Template
from regard.use.bundle import Bundle, ExternalEngine
from regard.use.fit import Fit, Part
from regard.use.generate import BatchGenerator, GenerateOptions, GrowingText, Prompt
from regard.use.huggingface import generation_defaults
from regard.use.translate import BatchTranslator, Candidate, TranslatedLine, TranslateOptions

WEIGHTS = "model.bin"
KEPT = "regard.json"
FORMAT = 1


@dataclass(frozen=True, kw_only=True)
class Kept:
    """What the verbs need to know of a model that only the library can read."""

    model: ModelConfig
    frame: Template  # the name in files
    longest: int | None = None


# --- folders ---------------------------------------------------------------------------------------------------------


def is_ctranslate2(folder: Path) -> bool:
    """Tell whether a folder is one of CTranslate2."""
    return (folder / WEIGHTS).is_file() and (folder / "config.json").is_file()


def write_ctranslate2_folder(ready: Bundle, source: Path, folder: Path, quantization: Quantization = "float32") -> None:
    """Write a model for CTranslate2, with what using it needs."""
    words, model = ready.need_tokenizer(), ready.model
    names = words.names(model.config.vocabulary)
    special = TokenNames(names, names[ready.first], names[ready.ends[0]], names[words.unk])
    write_ctranslate2(model, special, folder, quantization)
    words.save(folder)
    (folder / KEPT).write_text(to_json(Kept(model=model.config, frame=ready.template, longest=ready.longest)), "utf-8")
    if (source / GENERATION).exists():
        shutil.copyfile(source / GENERATION, folder / GENERATION)


def open_ctranslate2(folder: Path, device: torch.device) -> Bundle:
    """Open a folder that `regard convert` wrote. The model in it has no weights: those are with the library."""
    if not (folder / KEPT).exists():
        remedy = "convert the model it came from: regard convert MODEL --to ctranslate2 NEW"
        raise RegardError(f"{folder}: there is no {KEPT}, so `regard convert` did not write it; {remedy}")
    kept = from_table(read_json(folder / KEPT), Kept)
    said = read_json(folder / GENERATION) if (folder / GENERATION).exists() else {}
    return Bundle(
        model=build_empty(kept.model),
        name=str(folder),
        tokenizer=load_tokenizer(folder),
        template=kept.frame,
        longest=kept.longest,
        device=device,
        external=Library(folder, device),
        defaults=generation_defaults({key: said[key] for key in GENERATION_KEYS if said.get(key) is not None}, folder),
    )


def through_ctranslate2(ready: Bundle, source: Path, device: torch.device) -> Bundle:
    """Let the library run a model of ours, written for it once and kept in the cache."""
    reason = ctranslate2_obstacle(ready.model.config)
    if reason is not None:
        raise RegardError(f"{source}: cannot be run by CTranslate2: {reason}; take another --engine")
    folder = cache_folder() / "ctranslate2" / _key(ready, source)
    if not is_ctranslate2(folder):
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            with TemporaryDirectory(dir=folder.parent) as beside:
                part = Path(beside) / "part"
                write_ctranslate2_folder(ready, source, part)
                shutil.rmtree(folder, ignore_errors=True)
                part.rename(folder)
        except OSError as error:
            remedy = "make room, or let REGARD_CACHE name another folder"
            raise RegardError(f"{folder}: the model cannot be written: {error.strerror}; {remedy}") from None
    shell = build_empty(ready.model.config)
    return replace(ready, model=shell, device=device, external=Library(folder, device))


def _key(ready: Bundle, source: Path) -> str:
    """Name a model by the files it comes from."""
    files = [file_key(path) for path in sorted(source.iterdir()) if path.suffix in (".safetensors", ".bin", ".json")]
    key = {"files": files, "tokenizer": ready.need_tokenizer().fingerprint(), "format": FORMAT}
    return sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()


# --- running ---------------------------------------------------------------------------------------------------------


class Library(ExternalEngine):
    """A model that the library has loaded, or will when it is first asked."""

    def __init__(self, folder: Path, device: torch.device, precision: str = "auto") -> None:
        self.folder, self.device = folder, device
        self.numbers = "default" if precision == "auto" else precision
        self.module = import_ctranslate2()

    def in_precision(self, precision: str) -> "Library":
        """Return the same model in this precision; `auto` is as the folder has it, or as suits the processor."""
        return Library(self.folder, self.device, precision)

    @cached_property
    def model(self) -> Any:
        """The library's own translator or generator."""
        kept = from_table(read_json(self.folder / KEPT), Kept)
        kind = self.module.Generator if isinstance(build_empty(kept.model), LanguageModel) else self.module.Translator
        try:
            return kind(
                str(self.folder),
                device=self.device.type,
                compute_type=self.numbers,
                intra_threads=torch.get_num_threads(),
            )
        except (RuntimeError, ValueError) as error:
            raise RegardError(f"{self.folder}: CTranslate2 cannot load it: {error}") from None

    def sow(self, seed: int) -> None:
        """Let chance begin with this seed: the threads of a model take theirs when it is loaded."""
        self.module.set_random_seed(seed % 2**32)
        self.__dict__.pop("model", None)

    def translator(self, ready: Bundle, options: TranslateOptions) -> "LibraryTranslator":
        """Return a function that translates a batch."""
        return LibraryTranslator(ready, options, self)

    def generator(self, ready: Bundle, options: GenerateOptions) -> "LibraryGenerator":
        """Return an object that generates for a batch."""
        return LibraryGenerator(ready, options, self)


class Names:
    """Tokens by name, as the library wants them."""

    def __init__(self, ready: Bundle) -> None:
        self.names = ready.need_tokenizer().names(ready.model.config.vocabulary)
        self.ids = {name: id for id, name in enumerate(self.names)}
        self.ends = [self.names[id] for id in ready.ends]
        self.never = [[self.names[id]] for id in ready.template.never] or None

    def of(self, ids: Sequence[int]) -> list[str]:
        """Name a row of ids."""
        return [self.names[id] for id in ids]


class LibraryTranslator(BatchTranslator):
    """Translates one batch by the library."""

    def __init__(self, ready: Bundle, options: TranslateOptions, library: Library) -> None:
        super().__init__(ready, options)
        if options.alignments:
            raise InputError("CTranslate2 gives no alignments; take another --engine")
        self.library, self.names = library, Names(ready)

    def __call__(self, parts: list[Part]) -> list[TranslatedLine]:
        """Translate texts that fit."""
        options = self.options
        sources = self.sources(parts)
        known = self.limits(sources, self.given(sources))
        limits = [min(limit, POSITIONS - len(self.begin)) for limit in known]
        try:
            results = self.library.model.translate_batch(
                [self.names.of(source) for source in sources],
                [self.names.of(self.prefix)] * len(parts) if self.prefix else None,
                beam_size=options.beam,
                num_hypotheses=options.best,
                length_penalty=options.length_penalty,
                coverage_penalty=options.coverage,
                max_input_length=0,
                max_decoding_length=max(limits) + len(self.prefix),
                end_token=self.names.ends,
                suppress_sequences=self.names.never,
                return_scores=True,
            )
        except (RuntimeError, ValueError) as error:
            raise RegardError(f"{self.bundle.name}: CTranslate2 cannot translate this: {error}") from None
        ids = self.names.ids
        rows = [
            [[ids[token] for token in tokens][: limit + len(self.prefix)] for tokens in result.hypotheses]
            for result, limit in zip(results, limits, strict=True)
        ]
        texts = iter(self.tokenizer.decode([row for group in rows for row in group]))
        return [TranslatedLine(tuple(Candidate(next(texts), score) for score in result.scores)) for result in results]


class LibraryGenerator(BatchGenerator):
    """Writes one batch by the library."""

    def __init__(self, ready: Bundle, options: GenerateOptions, library: Library) -> None:
        super().__init__(ready, options)
        if options.sampling.min_p > 0:
            raise InputError(f"min_p={options.sampling.min_p} is unknown to CTranslate2; take another --engine")
        self.library, self.names = library, Names(ready)
        if options.beam is None and options.sampling.temperature > 0:
            library.sow(options.seed)

    def __call__(self, prompts: list[Prompt]) -> list[list[str]]:
        """Write the texts of each prompt; those that may write equally much go together."""
        limits = self.limits(self.given(prompts))
        groups: dict[tuple[int, int], list[int]] = {}
        for place, (prompt, limit) in enumerate(zip(prompts, limits, strict=True)):
            groups.setdefault((limit, self._apart(prompt)), []).append(place)
        found: dict[int, list[list[int]]] = {}
        for (limit, _), places in groups.items():
            results = self._ask("generate_batch", [self.names.of(prompts[place].ids) for place in places], limit)
            found.update((place, result.sequences_ids) for place, result in zip(places, results, strict=True))
        return [[self.text(prompt, ids) for ids in found[place]] for place, prompt in enumerate(prompts)]

    def _apart(self, prompt: Prompt) -> int:
        """Keep prompts apart by length that may not be in one batch.

        The library reads at once what the shortest has but for its last token, and chooses the rest of the others step
        by step. That counts for the score of beams; and if there is nothing to read, prompts come back with the text.
        """
        length = len(prompt.ids)
        return length if self.options.beam is not None else min(length, 2)

    def _ask(self, how: str, given: Any, limit: int) -> Any:
        options, sampling = self.options, self.options.sampling
        greedy = options.beam is not None or sampling.temperature == 0
        settings = {
            "max_length": limit,
            "end_token": self.names.ends,
            "suppress_sequences": self.names.never,
            "repetition_penalty": sampling.repetition,
            "sampling_topk": 1 if greedy else sampling.top_k or 0,
            "sampling_topp": 1.0 if greedy else sampling.top_p,
            "sampling_temperature": 1.0 if greedy else sampling.temperature,
        }
        if how == "generate_batch":
            settings |= {"beam_size": options.beam or 1, "num_hypotheses": options.tries if options.beam else 1}
            settings |= {"length_penalty": options.length_penalty, "include_prompt_in_result": False}
        try:
            return getattr(self.library.model, how)(given, **settings)
        except (RuntimeError, ValueError) as error:
            raise RegardError(f"{self.bundle.name}: CTranslate2 cannot write on from this: {error}") from None

    def stream(self, prompt: str, fit: Fit) -> Iterator[str]:
        """Write one text, piece by piece."""
        (parts,) = fit([prompt])
        row = Prompt(self.with_template(parts))
        if self.options.beam is not None:  # a search knows its text only when it has ended
            yield self([row])[0][0]
            return
        (limit,) = self.limits(self.given([row]))
        shown, ends = GrowingText(self.tokenizer, row, self.options), set(self.bundle.ends)
        for step in self._ask("generate_tokens", self.names.of(row.ids), limit) if limit > 0 else ():
            if step.token_id in ends or shown.stops.found:
                break
            if piece := shown.push([step.token_id]):
                yield piece
        if piece := shown.end():
            yield piece
