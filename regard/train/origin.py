"""What a run begins from: the model of another run, or a folder of Hugging Face."""

from pathlib import Path

from torch import Tensor

from regard.errors import RegardError
from regard.hub import folder as hub
from regard.hub.weights import INDEX, PICKLES, WHOLE
from regard.models.recipe import ModelConfig
from regard.models.store import load_model, tensors
from regard.models.store import read_config as read_own

ENDS = {  # how the architectures of Hugging Face are called that have the head of a task
    "translation": ("ForConditionalGeneration", "MTModel"),
    "language": ("ForCausalLM", "LMHeadModel"),
    "masked": ("ForMaskedLM",),
    "classification": ("ForSequenceClassification",),
    "vision": ("ForImageClassification",),
}


def read_config(folder: str | Path, task: str) -> ModelConfig:
    """Read the architecture of a model; one of Hugging Face gets the head that its family has for the task."""
    if not hub.is_huggingface(folder):
        return read_own(Path(folder))
    _refuse_pickle(Path(folder))
    return hub.read_config(folder, ENDS[task])


def read_weights(folder: str | Path) -> dict[str, Tensor]:
    """Read the weights of a model, by our names."""
    return tensors(hub.load(folder) if hub.is_huggingface(folder) else load_model(folder))


def _refuse_pickle(folder: Path) -> None:
    safe, old = ([name for name in names if (folder / name).exists()] for names in ((WHOLE, INDEX), PICKLES))
    if old and not safe:
        remedy = f"write it anew: regard convert {folder} --to huggingface NEW --allow-pickle"
        raise RegardError(f"{folder / old[0]}: is a pickle, which can hold programs, and is not read; {remedy}")
