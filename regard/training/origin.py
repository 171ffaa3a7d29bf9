"""What a run begins from: the model of another run, or a folder of Hugging Face."""

from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from regard.hub import folder as hub
from regard.models.recipe import ModelConfig
from regard.models.store import read_config, tensors
from regard.runs.weights import load_model

ENDS = {  # how the architectures of Hugging Face are called that have the head of a task
    "translation": ("ForConditionalGeneration", "MTModel"),
    "language": ("ForCausalLM", "LMHeadModel"),
    "masked": ("ForMaskedLM",),
    "classification": ("ForSequenceClassification",),
    "vision": ("ForImageClassification",),
}


@dataclass(frozen=True)
class Origin:
    """The folder that a run begins from; `allow_pickle` reads an old .bin of Hugging Face, too."""

    folder: Path
    allow_pickle: bool = False

    def config(self, task: str) -> ModelConfig:
        """Read the architecture of the model; one of Hugging Face gets the head that its family has for the task."""
        if hub.is_huggingface(self.folder):
            return hub.read_config(self.folder, ENDS[task], self.allow_pickle)
        return read_config(self.folder)

    def weights(self) -> dict[str, Tensor]:
        """Read the weights of the model, by our names."""
        if hub.is_huggingface(self.folder):
            return tensors(hub.load(self.folder, allow_pickle=self.allow_pickle))
        return tensors(load_model(self.folder))
