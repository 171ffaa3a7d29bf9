"""`load(folder)`: open a folder that holds a model, and choose its device, precision and engine."""

from dataclasses import replace
from os import PathLike
from pathlib import Path

import torch

from regard.data.device import choose_device
from regard.decode.engine import Engine, eager
from regard.decode.static import captured, compiled
from regard.errors import InputError, RegardError, choices
from regard.hub.folder import is_huggingface
from regard.hub.sentence_transformers import MODULES, is_sentence_transformer
from regard.models.model import Model, writes
from regard.models.template import Template
from regard.runs.folder import is_run, not_a_run, read_run
from regard.use.box import find_model, folder_remedy, read_box_folder, shown_name
from regard.use.bundle import Bundle
from regard.use.ctranslate2 import is_ctranslate2, open_ctranslate2, through_ctranslate2
from regard.use.huggingface import open_huggingface
from regard.use.loaded_model import LoadedModel
from regard.use.precision import check_precision, prepare

EXTERNAL = "ctranslate2"
ENGINES = ("auto", "eager", "captured", "compiled", EXTERNAL)


def load(
    folder: str | PathLike[str],
    device: str = "auto",
    engine: str = "auto",
    allow_pickle: bool = False,
    precision: str = "auto",
    step: int | None = None,
) -> LoadedModel:
    """Load the model of a run, of a Hugging Face folder (with `allow_pickle` also an old .bin), or of CTranslate2.

    A name of `regard models` loads a model that comes with the package: `regard.load("en-fr")`.

    The `device` is auto (an accelerator if there is one), cpu, cuda, cuda:1, mps or xpu; the `engine` of models that
    write is auto, eager, captured (CUDA graphs), compiled or ctranslate2. The `precision` is float32, bfloat16 (not on
    the CPU) or int8 (on the CPU only); `auto` is bfloat16 for models that write on CUDA, else float32; CTranslate2
    chooses its own. A run gives its best weights, or those after a `step` that was saved.
    """
    folder, target = find_model(folder), choose_device(device)
    check_engine(engine)
    check_precision(precision)
    bundle = open_folder(folder, torch.device("cpu") if engine == EXTERNAL else target, allow_pickle, step)
    if engine == EXTERNAL and bundle.external is None:
        bundle = through_ctranslate2(bundle, folder, target)
    if bundle.external is not None:
        if engine not in ("auto", EXTERNAL):
            raise InputError(f"{folder}: is a model for CTranslate2; leave --engine {engine} out")
        return LoadedModel(replace(bundle, device=target, external=bundle.external.in_precision(precision)))
    model = prepare(bundle.model, precision, engine)
    return LoadedModel(replace(bundle, model=model, device=target, engine=make_engine(engine, model)))


def open_folder(folder: Path, device: torch.device, allow_pickle: bool = False, step: int | None = None) -> Bundle:
    """Read a folder: a run, a model in the box, a Hugging Face model, or a CTranslate2 model."""
    in_box = read_box_folder(folder)  # raises an error if its files are damaged
    if in_box is not None and step is not None:
        raise InputError(f"{in_box.name}: step={step}: comes with its best weights only; leave --step out")
    if is_run(folder):
        return open_run_model(folder, device, step)
    if step is not None:
        raise InputError(f"{folder}: step={step}: only the folder of a run holds weights of several steps")
    if is_huggingface(folder):
        return open_huggingface(folder, device, allow_pickle)
    if is_ctranslate2(folder):
        return open_ctranslate2(folder, device)
    if is_sentence_transformer(folder):
        raise RegardError(f"{folder}: has {MODULES} but no config.json with a model_type; {folder_remedy(folder)}")
    raise RegardError(not_a_run(folder, folder_remedy(folder)))


def open_run_model(folder: Path, device: torch.device, step: int | None = None) -> Bundle:
    """Read the model of a run, and what its task says about using it."""
    run = read_run(folder)
    model, tokenizer, task = run.model(device, step), run.tokenizer(), run.task_config
    return Bundle(
        model=model,
        name=shown_name(folder),
        tokenizer=tokenizer,
        template=Template() if tokenizer is None else model.template(tokenizer),
        longest=None if task.length_key is None else getattr(task, task.length_key),
        classes=getattr(task, "classes", ()),
        mean=getattr(task, "mean", ()),
        std=getattr(task, "std", ()),
        run=run,
    )


def check_engine(name: str) -> None:
    """Reject unknown engines."""
    if name not in ENGINES:
        raise InputError(f"unknown engine {name!r}; {choices(name, ENGINES)}")


def make_engine(name: str, model: Model) -> Engine | None:
    """Return the engine of a model that writes; None for other models."""
    check_engine(name)
    if not writes(model):
        return None
    weight = next(model.parameters())
    name = choose_engine(name, weight.device.type, model.is_static(weight.dtype))
    return {"eager": eager, "captured": captured, "compiled": compiled}[name](model)


def choose_engine(name: str, device: str, static: bool) -> str:
    """Return the engine for a kind of device; on CUDA only a `static` model can be captured (see `Model.is_static`)."""
    if device != "cuda" or static:
        return ("captured" if device == "cuda" else "eager") if name == "auto" else name
    if name in ("captured", "compiled"):
        rule = f"the engine {name!r} cannot capture experts in this precision or of a width not divisible by 8"
        raise InputError(f"{rule}; use --precision bfloat16, or --engine eager")
    return "eager"
