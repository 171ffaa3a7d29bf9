"""`load(folder)`: what was trained, ready to translate, write, classify, fill in, embed, and be measured."""

import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float

from regard.data.device import choose_device
from regard.decode.engine import Engine, eager
from regard.decode.static import captured, compiled
from regard.errors import InputError, RegardError, choices
from regard.hub.folder import is_huggingface
from regard.models.model import Model, StepModel
from regard.runs.folder import is_run, not_a_run, read_run
from regard.runs.layout import FOLDER_REMEDY
from regard.use.batches import Answer, in_chunks, listed, single
from regard.use.classify import classes_of
from regard.use.ctranslate2 import is_ctranslate2, open_ctranslate2, through_ctranslate2
from regard.use.embed import vectors
from regard.use.evaluate import Evaluation, evaluate_model
from regard.use.fill import Masked, fillings
from regard.use.fit import Counted, as_long
from regard.use.generate import Writing, continuations, stream, writing
from regard.use.generate import fit_for as fit_for_writing
from regard.use.guess import Guess
from regard.use.huggingface import open_huggingface
from regard.use.precision import check_precision, prepare
from regard.use.read import fit_for as fit_for_reading
from regard.use.ready import Ready, abilities, usual_frame
from regard.use.translate import Translating, Translation, translating, translations
from regard.use.translate import fit_for as fit_for_translating

OUTSIDE = "ctranslate2"
ENGINES = ("auto", "eager", "captured", "compiled", OUTSIDE)


@dataclass(frozen=True)
class Loaded(Ready):
    """A model with a method for every verb; one that does not fit its kind says which does."""

    def __repr__(self) -> str:
        what, verbs = abilities(self.model)
        return f"<{self.name}: {what} on {self.device}; can {', '.join(verbs)}>"

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
        """Translate texts, with 5 beams or as many as the model's folder says; `translations` tells more.

        A `length_penalty` of 0 prefers short translations, 1 long ones; `coverage` counts it against a translation if
        it leaves words unread (try 0.2); each begins with the `prefix`, and has at most `longest_ratio` times the
        tokens of its source, and ten more. A text too `long` for the model is "cut", or "split" at its sentences.
        """
        chosen = {"beam": beam, "length_penalty": length_penalty, "coverage": coverage, "prefix": prefix}
        options = translating(self, {**chosen, "longest_ratio": longest_ratio, "long": as_long(long)})
        return [translation.text for translation in self.translations(texts, options)]

    def translations(self, texts: Iterable[str], options: Translating | None = None) -> Iterator[Translation]:
        """Translate one text after the other, as they are asked for: n-best lists with scores, and alignments."""
        options = options or translating(self, {})
        fit = fit_for_translating(self, options.long)
        lines = in_chunks(listed(texts, "texts"))
        return warned(translations(self, lines, options, fit), fit, 'long="split" keeps all of it')

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
        """Write on from prompts; give what is new. `continuations` knows more ways.

        Where nothing is chosen: 200 tokens at a temperature of 0.8, or as the model's folder says. At a temperature of
        0 the most likely token is taken, else one is drawn: of the `top_k` most likely, or the fewest that are `top_p`
        likely together. A text ends before any string of `stop`. The same seed writes the same text.
        """
        options = self._writing(tokens, temperature, top_k, top_p, stop, seed)
        return [text for (text,) in self.continuations(prompts, options)]

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
        """Write on from one prompt, as `generate` does, and give the text as it arrives."""
        options = self._writing(tokens, temperature, top_k, top_p, stop, seed)
        fit = fit_for_writing(self, options.tokens)
        return warned(stream(self, single(prompt, "prompt"), options, fit), fit)

    def _writing(
        self,
        tokens: int | None,
        temperature: float | None,
        top_k: int | None,
        top_p: float | None,
        stop: Iterable[str],
        seed: int,
    ) -> Writing:
        chosen = {"tokens": tokens, "temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed}
        return writing(self, {**chosen, "stop": (stop,) if isinstance(stop, str) else tuple(listed(stop, "stop"))})

    def continuations(self, prompts: Iterable[str], options: Writing | None = None) -> Iterator[list[str]]:
        """Write on from one prompt after the other, as they are asked for: as many texts as tries are wanted."""
        options = options or writing(self, {})
        fit = fit_for_writing(self, options.tokens)
        return warned(continuations(self, in_chunks(listed(prompts, "prompts")), options, fit), fit)

    def classify(self, texts: Iterable[str | Path], *, top: int = 1) -> list[list[Guess]]:
        """Give the likeliest labels of texts, or of image files, the best first; none for a blank text."""
        self.check("classify")
        fit = fit_for_reading(self)
        lines = in_chunks(listed(texts, "texts", (str, Path)))
        return list(warned(classes_of(self, lines, top, fit), fit))

    def fill(self, texts: Iterable[str], *, top: int = 5) -> list[list[list[Guess]]]:
        """Give for each text, and in it for each [MASK], the likeliest tokens, the best first."""
        fit = Masked(self)
        return list(warned(fillings(self, in_chunks(listed(texts, "texts")), top, fit), fit))

    def embed(self, texts: Iterable[str | Path]) -> Float[np.ndarray, "N D"]:
        """Give a vector for each text, or image file; a blank text has none, and gets NaN."""
        self.check("embed")
        fit = fit_for_reading(self)
        found = list(warned(vectors(self, in_chunks(listed(texts, "texts", (str, Path))), fit), fit))
        width = next((len(vector) for vector in found if vector is not None), 0)
        rows = [np.full(width, np.nan, np.float32) if vector is None else vector for vector in found]
        return np.stack(rows) if rows else np.empty((0, width), np.float32)

    def evaluate(self, *files: str | Path, beam: int | None = None) -> Evaluation:
        """Measure the model on files of its task, or on the validation data of its run."""
        return evaluate_model(self, [str(file) for file in files], translating(self, {"beam": beam}))


def warned(answers: Iterator[Answer], fit: Counted | None, remedy: str = "") -> Iterator[Answer]:
    """Pass answers on; at their end warn of what was cut."""
    yield from answers
    for line in [] if fit is None else fit.report(remedy):
        warnings.warn(line, stacklevel=2)


# --- from a folder ---------------------------------------------------------------------------------------------------


def load(
    folder: str | PathLike[str],
    device: str = "auto",
    engine: str = "auto",
    allow_pickle: bool = False,
    precision: str = "auto",
    step: int | None = None,
) -> Loaded:
    """Open the folder of a run, or one of Hugging Face (where `allow_pickle` reads an old .bin), or of CTranslate2.

    The `device` is auto (an accelerator if there is one), cpu, cuda, cuda:1, mps or xpu; the `engine` of models that
    write is auto, eager, captured (CUDA graphs), compiled or ctranslate2. The `precision` is float32, bfloat16 (not on
    the CPU) or int8 (on the CPU only). Where nothing is chosen it is float32, but bfloat16 for models that write on
    CUDA; CTranslate2 chooses by itself. Of a run the best weights are loaded, or those of a `step` that was saved.
    """
    folder, place = Path(folder), choose_device(device)
    check_engine(engine)
    check_precision(precision)
    ready = open_folder(folder, torch.device("cpu") if engine == OUTSIDE else place, allow_pickle, step)
    if engine == OUTSIDE and ready.outside is None:
        ready = through_ctranslate2(ready, folder, place)
    if ready.outside is not None:
        if engine not in ("auto", OUTSIDE):
            raise InputError(f"{folder}: is a model for CTranslate2; leave --engine {engine} out")
        return Loaded(**{**vars(ready), "device": place, "outside": ready.outside.computing_in(precision)})
    model = prepare(ready.model, precision, engine)
    return Loaded(**{**vars(ready), "model": model, "device": place, "engine": make_engine(engine, model)})


def open_folder(folder: Path, device: torch.device, allow_pickle: bool = False, step: int | None = None) -> Ready:
    """Read a folder: a run, a model of Hugging Face, or one of CTranslate2."""
    if is_run(folder):
        return from_run(folder, device, step)
    if step is not None:
        raise InputError(f"{folder}: step={step}: only the folder of a run holds weights of several steps")
    if is_huggingface(folder):
        return open_huggingface(folder, device, allow_pickle)
    if is_ctranslate2(folder):
        return open_ctranslate2(folder, device)
    raise RegardError(not_a_run(folder, FOLDER_REMEDY))


def from_run(folder: Path, device: torch.device, step: int | None = None) -> Ready:
    """Read the model of a run, and what its task says about using it."""
    run = read_run(folder)
    model, tokenizer, task = run.model(device, step), run.tokenizer(), run.task_config
    return Ready(
        model=model,
        name=str(folder),
        tokenizer=tokenizer,
        frame=usual_frame(model, tokenizer),
        longest=getattr(task, "longest", None) or getattr(task, "window", None),
        classes=getattr(task, "classes", ()),
        mean=getattr(task, "mean", ()),
        std=getattr(task, "std", ()),
        run=run,
    )


def check_engine(name: str) -> None:
    """Refuse an engine that there is not."""
    if name not in ENGINES:
        raise InputError(f"there is no engine {name!r}; {choices(name, ENGINES)}")


def make_engine(name: str, model: Model) -> Engine | None:
    """Give the engine that runs a model which writes; None for all others."""
    check_engine(name)
    if not isinstance(model, StepModel):
        return None
    if name == "auto":
        name = "captured" if next(model.parameters()).device.type == "cuda" else "eager"
    return {"eager": eager, "captured": captured, "compiled": compiled}[name](model)
