"""`load(folder)`: what was trained, ready to translate, write, classify, fill in, embed, and be measured."""

import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float

from regard.config import from_table, read_recipe
from regard.data.device import choose_device
from regard.data.tokenizer import TokenizerConfig, load_tokenizer
from regard.decode.choose import Sampling
from regard.decode.engine import Engine, eager
from regard.decode.layout import lay_out
from regard.decode.static import captured, compiled
from regard.errors import InputError, RegardError, choices
from regard.models.model import Model, StepModel
from regard.models.store import WEIGHTS, load_model
from regard.tasks.kinds import TaskConfig
from regard.use.batches import Answer, in_chunks
from regard.use.classify import classes_of
from regard.use.embed import vectors
from regard.use.evaluate import measure
from regard.use.fill import fillings
from regard.use.fit import Fit, Long
from regard.use.generate import Writing, continuations, stream
from regard.use.generate import fit_for as fit_for_writing
from regard.use.guess import Guess
from regard.use.read import fit_for as fit_for_reading
from regard.use.ready import Origin, Ready, usual_frame
from regard.use.translate import Translating, Translation, translations
from regard.use.translate import fit_for as fit_for_translating

RECIPE = "recipe.toml"
ENGINES = ("auto", "eager", "captured", "compiled")


@dataclass(frozen=True)
class Loaded(Ready):
    """A model with a method for every verb; one that does not fit its kind says which does."""

    def translate(
        self,
        texts: Iterable[str],
        *,
        beam: int = 5,
        length_penalty: float = 0.6,
        coverage: float = 0.0,
        prefix: str = "",
        longest_ratio: float = 2.0,
        long: Long = "cut",
    ) -> list[str]:
        """Translate texts; `translations` tells more, and takes any number of them."""
        options = Translating(
            beam=beam,
            length_penalty=length_penalty,
            coverage=coverage,
            prefix=prefix,
            longest_ratio=longest_ratio,
            long=long,
        )
        return [translation.text for translation in self.translations(texts, options)]

    def translations(self, texts: Iterable[str], options: Translating | None = None) -> Iterator[Translation]:
        """Translate one text after the other, as they are asked for: n-best lists with scores, and alignments."""
        options = options or Translating()
        fit = fit_for_translating(self, options.long)
        return warned(translations(self, in_chunks(texts), options, fit), fit)

    def generate(
        self,
        prompts: Iterable[str],
        *,
        tokens: int = 200,
        temperature: float = 0.8,
        top_k: int | None = None,
        top_p: float = 1.0,
        stop: Iterable[str] = (),
        seed: int = 0,
    ) -> list[str]:
        """Write on from prompts; give what is new. `continuations` knows more ways."""
        options = writing(tokens, temperature, top_k, top_p, stop, seed)
        return [text for (text,) in self.continuations(prompts, options)]

    def stream(
        self,
        prompt: str,
        *,
        tokens: int = 200,
        temperature: float = 0.8,
        top_k: int | None = None,
        top_p: float = 1.0,
        stop: Iterable[str] = (),
        seed: int = 0,
    ) -> Iterator[str]:
        """Write on from one prompt, as `generate` does, and give the text as it arrives."""
        options = writing(tokens, temperature, top_k, top_p, stop, seed)
        fit = fit_for_writing(self, tokens)
        return warned(stream(self, prompt, options, fit), fit)

    def continuations(self, prompts: Iterable[str], options: Writing | None = None) -> Iterator[list[str]]:
        """Write on from one prompt after the other, as they are asked for: as many texts as tries are wanted."""
        options = options or Writing()
        fit = fit_for_writing(self, options.tokens)
        return warned(continuations(self, in_chunks(prompts), options, fit), fit)

    def classify(self, texts: Iterable[str | Path], *, top: int = 1) -> list[list[Guess]]:
        """Give the likeliest labels of texts, or of image files, the best first; none for a blank text."""
        self.check("classify")
        fit = fit_for_reading(self)
        return list(warned(classes_of(self, in_chunks(map(str, texts)), top, fit), fit))

    def fill(self, texts: Iterable[str], *, top: int = 5) -> list[list[list[Guess]]]:
        """Give for each text, and in it for each [MASK], the likeliest tokens, the best first."""
        return list(fillings(self, in_chunks(texts), top))

    def embed(self, texts: Iterable[str | Path]) -> Float[np.ndarray, "N D"]:
        """Give a vector for each text, or image file; a blank text has none, and gets NaN."""
        self.check("embed")
        fit = fit_for_reading(self)
        found = list(warned(vectors(self, in_chunks(map(str, texts)), fit), fit))
        width = next((len(vector) for vector in found if vector is not None), 0)
        rows = [np.full(width, np.nan, np.float32) if vector is None else vector for vector in found]
        return np.stack(rows) if rows else np.empty((0, width), np.float32)

    def evaluate(self, *files: str | Path, beam: int = 5) -> dict[str, float]:
        """Measure the model on files of its task, or on the validation data of its run."""
        return measure(self, [str(file) for file in files], Translating(beam=beam)).metrics


def writing(
    tokens: int, temperature: float, top_k: int | None, top_p: float, stop: Iterable[str], seed: int
) -> Writing:
    """Gather what was said on how to write."""
    stops = (stop,) if isinstance(stop, str) else tuple(stop)
    return Writing(tokens=tokens, sampling=Sampling(temperature, top_k, top_p), stop=stops, seed=seed)


def warned(answers: Iterator[Answer], fit: Fit | None) -> Iterator[Answer]:
    """Pass answers on; at their end warn of what was cut."""
    yield from answers
    for line in [] if fit is None else fit.report():
        warnings.warn(line, stacklevel=2)


# --- from a folder ---------------------------------------------------------------------------------------------------


def load(folder: str | Path, device: str = "auto", engine: str = "auto") -> Loaded:
    """Open the folder of a run."""
    folder = Path(folder)
    task, tokenizer_config, seed = read_task(folder)
    place = choose_device(device)
    model = prepare(load_model(folder, place))
    tokenizer = None if tokenizer_config is None else load_tokenizer(folder)
    return Loaded(
        model=model,
        name=str(folder),
        tokenizer=tokenizer,
        frame=usual_frame(model, tokenizer),
        longest=getattr(task, "longest", None) or getattr(task, "window", None),
        classes=getattr(task, "classes", ()),
        mean=getattr(task, "mean", ()),
        std=getattr(task, "std", ()),
        device=place,
        engine=make_engine(engine, model),
        origin=Origin(str(folder), task, None if tokenizer_config is None else tokenizer_config.dropout, seed),
    )


@dataclass(frozen=True, kw_only=True)
class Known:
    """What a run's recipe says of using its model; the model itself is in another file."""

    task: TaskConfig
    tokenizer: TokenizerConfig | None = None


def read_task(folder: Path) -> tuple[TaskConfig, TokenizerConfig | None, int]:
    """Read what a run was for, how its texts became tokens, and the seed that chose its validation data."""
    if not (folder / RECIPE).is_file():
        what = "holds a model but no run" if (folder / WEIGHTS).exists() else "is not the folder of a run"
        raise RegardError(f"{folder}: {what}: there is no {RECIPE}; give the folder that `regard train` printed")
    table = read_recipe(folder / RECIPE)
    known = from_table({key: table[key] for key in ("task", "tokenizer") if key in table}, Known)
    return known.task, known.tokenizer, int(table.get("train", {}).get("seed", 0))


def prepare(model: Model) -> Model:
    """Prepare a model for use: one that writes has its weights laid out for steps, and on CUDA in bfloat16."""
    if isinstance(model, StepModel):
        if next(model.parameters()).device.type == "cuda":
            model.to(torch.bfloat16)
        lay_out(model)
    return model.eval()


def make_engine(name: str, model: Model) -> Engine | None:
    """Give the engine that runs a model which writes; None for all others."""
    if name not in ENGINES:
        raise InputError(f"there is no engine {name!r}; {choices(name, ENGINES)}")
    if not isinstance(model, StepModel):
        return None
    if name == "auto":
        name = "captured" if next(model.parameters()).device.type == "cuda" else "eager"
    return {"eager": eager, "captured": captured, "compiled": compiled}[name](model)
