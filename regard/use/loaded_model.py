"""`LoadedModel`: a trained model with a method for every verb."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from reprlib import repr as shortened

import numpy as np
import torch
from jaxtyping import Float

from regard.arguments import check_path, check_text, check_texts
from regard.data.read import Skipped
from regard.data.tokenizer import Tokenizer
from regard.data.tracks import ObservedScene, observe_scene, read_tracks
from regard.data.trees import Tree
from regard.errors import InputError
from regard.models.model import Model
from regard.tasks.task import Task
from regard.use.ablate import Ablation, HeadAblation
from regard.use.annotate import Annotation, ContactMap, annotate_alignment, annotate_lines
from regard.use.batches import Chunks, Feedback, chunk_lines
from regard.use.bundle import Bundle
from regard.use.classify import classify_lines
from regard.use.embed import embed_lines
from regard.use.evaluate import Evaluation, Say, evaluate_model, evaluate_task
from regard.use.fill import fill_lines
from regard.use.fit import as_long
from regard.use.forecast import SceneForecast, forecast_scene, scene_steps
from regard.use.generate import GenerateOptions, generate_lines, generate_options, stream_text
from regard.use.guess import Guess
from regard.use.nearest import nearest_words
from regard.use.parse import BEAM, parse_lines
from regard.use.translate import TranslatedLine, TranslateOptions, translate_lines, translate_options

Texts = Iterable[str] | Chunks
TextsOrPaths = Iterable[str | Path] | Chunks


@dataclass(frozen=True)
class LoadedModel:
    """A model with a method for every verb; a method that does not suit its kind raises an error that names others.

    `translate`, `generate`, `classify`, `fill`, `embed` and `parse` take a list and return a list (or an array). The
    same names with `_lines` take any number of lines, also endless ones, and yield pairs of line and answer in order;
    `feedback` is called for finished lines, and for lines that had to be cut (by default a Python warning). `forecast`
    takes one scene.
    """

    bundle: Bundle

    def __repr__(self) -> str:
        bundle = self.bundle
        return f"<{bundle.name}: {bundle.description} on {self.device}; can {', '.join(bundle.verbs)}>"

    @property
    def model(self) -> Model:
        """The model as a torch module."""
        return self.bundle.model

    @property
    def tokenizer(self) -> Tokenizer | None:
        """The tokenizer; None for a model of images."""
        return self.bundle.tokenizer

    @property
    def classes(self) -> tuple[str, ...]:
        """The labels of a classifier, by their ids; empty for other models."""
        return self.bundle.classes

    @property
    def device(self) -> torch.device:
        """The device that the model is on."""
        return self.bundle.device

    # --- translate ---------------------------------------------------------------------------------------------------

    def translate(
        self,
        texts: Iterable[str],
        *,
        beam: int | None = None,
        length_penalty: float = 0.6,
        coverage: float = 0.0,
        prefix: str = "",
        longest_ratio: float = 2.0,
        long: str = "cut",
    ) -> list[str]:
        """Translate texts, with 5 beams or as many as the model's folder says; `translate_lines` returns more details.

        A `length_penalty` of 0 prefers short translations, 1 long ones; `coverage` penalises a translation that leaves
        words of the source unattended (try 0.2); each starts with the `prefix`, and has at most `longest_ratio` times
        the tokens of its source, plus ten. A text too `long` for the model is "cut", or "split" at its sentences.
        """
        chosen = {"beam": beam, "length_penalty": length_penalty, "coverage": coverage, "prefix": prefix}
        options = translate_options(self.bundle, {**chosen, "longest_ratio": longest_ratio, "long": as_long(long)})
        return [translated.text for _, translated in self.translate_lines(texts, options)]

    def translate_lines(
        self, lines: Texts, options: TranslateOptions | None = None, feedback: Feedback | None = None
    ) -> Iterator[tuple[str, TranslatedLine]]:
        """Yield each line with its translations: n-best lists with scores, and alignments if wanted."""
        options = options or translate_options(self.bundle, {})
        return translate_lines(self.bundle, as_chunks(lines, "texts"), options, feedback or Feedback())

    # --- generate ----------------------------------------------------------------------------------------------------

    def generate(
        self,
        prompts: Iterable[str],
        *,
        tokens: int | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        stop: Iterable[str] = (),
        seed: int = 0,
    ) -> list[str]:
        """Continue prompts; return the new text of each.

        The defaults are 200 tokens and a temperature of 0.8, or what the model's folder says. A temperature of 0 takes
        the most likely token; else one is sampled from the `top_k` most likely, or from the fewest that have the
        probability `top_p` together. A text ends before any string of `stop`. The same seed gives the same text.

        `generate_lines` takes more options, such as `GenerateOptions(beam=3)` and `GenerateOptions(tries=2)`.
        """
        options = self._generate_options(tokens, temperature, top_k, top_p, stop, seed)
        return [text for _, (text,) in self.generate_lines(prompts, options)]

    def generate_lines(
        self,
        lines: Texts,
        options: GenerateOptions | None = None,
        feedback: Feedback | None = None,
        *,
        blank: bool = True,
    ) -> Iterator[tuple[str, list[str]]]:
        """Yield each prompt with its continuations, one for each try; unless `blank`, a blank prompt gets none."""
        options = options or generate_options(self.bundle, {})
        return generate_lines(self.bundle, as_chunks(lines, "prompts"), options, feedback or Feedback(), blank)

    def stream(
        self,
        prompt: str,
        *,
        tokens: int | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        stop: Iterable[str] = (),
        seed: int = 0,
    ) -> Iterator[str]:
        """Continue one prompt, as `generate` does, and yield the text as it arrives."""
        options = self._generate_options(tokens, temperature, top_k, top_p, stop, seed)
        return self.stream_line(check_text(prompt, "prompt"), options)

    def stream_line(
        self, prompt: str, options: GenerateOptions | None = None, feedback: Feedback | None = None
    ) -> Iterator[str]:
        """Continue one prompt with these options, and yield the text as it arrives."""
        options = options or generate_options(self.bundle, {})
        return stream_text(self.bundle, prompt, options, feedback or Feedback())

    def _generate_options(
        self,
        tokens: int | None,
        temperature: float | None,
        top_k: int | None,
        top_p: float | None,
        stop: Iterable[str],
        seed: int,
    ) -> GenerateOptions:
        chosen = {"tokens": tokens, "temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed}
        strings = (stop,) if isinstance(stop, str) else tuple(check_texts(stop, "stop"))
        return generate_options(self.bundle, {**chosen, "stop": strings})

    # --- classify, fill, annotate, embed -----------------------------------------------------------------------------

    def classify(self, texts: Iterable[str | Path], *, top: int = 1) -> list[list[Guess]]:
        """Return the most likely labels of texts, or of image files, the best first; none for a blank text."""
        return [guesses for _, guesses in self.classify_lines(texts, top)]

    def classify_lines(
        self, lines: TextsOrPaths, top: int = 1, feedback: Feedback | None = None, batch_tokens: int | None = None
    ) -> Iterator[tuple[str, list[Guess]]]:
        """Yield each line with its most likely labels."""
        self.bundle.check("classify")
        chunks = as_chunks(lines, "texts", (str, Path))
        return classify_lines(self.bundle, chunks, top, batch_tokens, feedback or Feedback())

    def fill(self, texts: Iterable[str], *, top: int = 5) -> list[list[list[Guess]]]:
        """Return for each [MASK] of each text the most likely tokens, the best first."""
        return [masks for _, masks in self.fill_lines(texts, top)]

    def fill_lines(
        self, lines: Texts, top: int = 5, feedback: Feedback | None = None, batch_tokens: int | None = None
    ) -> Iterator[tuple[str, list[list[Guess]]]]:
        """Yield each line with the most likely tokens for each of its masks."""
        return fill_lines(self.bundle, as_chunks(lines, "texts"), top, batch_tokens, feedback or Feedback())

    def annotate(self, sequences: Iterable[str]) -> list[Annotation | ContactMap | None]:
        """Return the secondary structure of proteins, given as letters, or their contacts; None for a blank one."""
        return [found for _, found in self.annotate_lines(sequences)]

    def annotate_lines(
        self, lines: Texts, feedback: Feedback | None = None, batch_tokens: int | None = None
    ) -> Iterator[tuple[str, Annotation | ContactMap | None]]:
        """Yield each line with the secondary structure, or the contacts, of the protein that it is."""
        return annotate_lines(self.bundle, as_chunks(lines, "sequences"), batch_tokens, feedback or Feedback())

    def annotate_alignment(self, path: str | Path) -> Annotation | ContactMap:
        """Return the secondary structure, or the contacts, of the first sequence of an aligned FASTA file."""
        return annotate_alignment(self.bundle, check_path(path, "path"))

    def embed(self, texts: Iterable[str | Path], *, pool: str | None = None) -> Float[np.ndarray, "N D"]:
        """Return a vector for each text, or image file; a blank text has none, and gets NaN.

        The vector is what the folder of the model says (sentence-transformers), else what its head pools, else the mean
        over the tokens. `pool` chooses instead: "mean", "first", "last", "max", "mean-sqrt" or "position-weighted".
        """
        found = [vector for _, vector in self.embed_lines(texts, pool=pool)]
        width = next((len(vector) for vector in found if vector is not None), None)
        if width is None:
            width = self.vector_width(pool) if found else 0
        rows = [np.full(width, np.nan, np.float32) if vector is None else vector for vector in found]
        return np.stack(rows) if rows else np.empty((0, width), np.float32)

    def vector_width(self, pool: str | None = None) -> int:
        """Return how many numbers a vector of `embed` has; 0 for a model of images."""
        return 0 if self.tokenizer is None else len(self.embed(["a"], pool=pool)[0])

    def embed_lines(
        self,
        lines: TextsOrPaths,
        feedback: Feedback | None = None,
        batch_tokens: int | None = None,
        *,
        pool: str | None = None,
    ) -> Iterator[tuple[str, Float[np.ndarray, "D"] | None]]:
        """Yield each line with its vector; None for a blank line."""
        self.bundle.check("embed")
        chunks = as_chunks(lines, "texts", (str, Path))
        return embed_lines(self.bundle, chunks, pool, batch_tokens, feedback or Feedback())

    def nearest(self, expression: str, count: int = 10) -> list[tuple[str, float]]:
        """Return the words nearest to a word, or to `king - man + woman`, with their cosines, of a table of words."""
        (found,) = nearest_words(self.bundle, [[check_text(expression, "expression")]], count)
        return found[1] or []

    def nearest_lines(self, lines: Texts, count: int = 10) -> Iterator[tuple[str, list[tuple[str, float]] | None]]:
        """Yield each line, a word or an expression, with the nearest words; None for a blank line."""
        return nearest_words(self.bundle, as_chunks(lines, "texts").lists, count)

    # --- parse -------------------------------------------------------------------------------------------------------

    def parse(self, texts: Iterable[str], *, beam: int = BEAM) -> list[Tree | None]:
        """Return the constituency tree of each sentence; None for a blank text."""
        return [tree for _, tree in self.parse_lines(texts, beam)]

    def parse_lines(
        self, lines: Texts, beam: int = BEAM, feedback: Feedback | None = None, batch_tokens: int | None = None
    ) -> Iterator[tuple[str, Tree | None]]:
        """Yield each line with its tree."""
        return parse_lines(self.bundle, as_chunks(lines, "texts"), beam, batch_tokens, feedback or Feedback())

    # --- forecast ----------------------------------------------------------------------------------------------------

    def forecast(self, scene: str | Path | ObservedScene, *, frame: int | None = None) -> SceneForecast:
        """Return the futures of all agents of a scene: of a file with tracks, seen up to a frame, the last by default.

        `.paths` are (agents, futures, steps, 2) in metres, the most likely future first; `.probabilities` are theirs.
        """
        if not isinstance(scene, ObservedScene):
            scene = observe_scene(read_tracks(check_path(scene, "scene"), Skipped()), frame, *scene_steps(self.bundle))
        return forecast_scene(self.bundle, scene)

    # --- evaluate ----------------------------------------------------------------------------------------------------

    def evaluate(
        self,
        *files: str | Path,
        beam: int | None = None,
        batch_tokens: int | None = None,
        say: Say = lambda text: None,
    ) -> Evaluation:
        """Measure the model on files of its task, or on the validation data of its run.

        Tables are read as in training; settings after the files change that: `evaluate("a.csv", "task.text=body")`. A
        translator is measured by what `translate` writes, with 5 beams or as many as its folder says, and a parser with
        those of its run (`task.beam`); `beam` chooses another number for both.
        """
        options = translate_options(self.bundle, {"beam": beam, "batch_tokens": batch_tokens})
        return evaluate_model(self.bundle, list_files(files), options, say, beam)

    def evaluate_task(self, task: Task) -> Evaluation:
        """Measure the model on the validation data of an open task."""
        return evaluate_task(self.bundle, task, translate_options(self.bundle, {}))

    def ablate(self, *files: str | Path, say: Say = lambda text: None) -> Ablation:
        """Measure the loss without each head, on files of its task or on the validation data of its run.

        The result has every head with its rise of the loss, and `as_csv()` and `figure()`.
        """
        work = HeadAblation(self.bundle, list_files(files), say)
        for number, one in enumerate(work.measure(), 1):
            say(f"{number} of {work.total} measured, last: {one.name} {one.rise:+.4g}")
        return work.result()


def list_files(files: Iterable[object]) -> list[str]:
    """Return the names of files, and settings after them, which are arguments of their own."""
    for file in files:
        if not isinstance(file, str | PathLike):
            raise InputError(f"{shortened(file)} must be one file; put a star before a list of files: *files")
    return [str(file) for file in files]


def as_chunks(lines: object, name: str, kinds: tuple[type, ...] = (str,)) -> Chunks:
    """Check lines, and cut them into lists, if they are not in lists already."""
    return lines if isinstance(lines, Chunks) else Chunks(chunk_lines(check_texts(lines, name, kinds)))
