"""Trained weights that a run starts from: the model of another run, or a Hugging Face folder."""

from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from regard.errors import RegardError
from regard.hub import folder as hub
from regard.models.recipe import ModelConfig
from regard.models.store import read_config, tensors
from regard.runs.weights import check_best, load_model
from regard.use.box import folder_remedy


@dataclass(frozen=True)
class Pretrained:
    """A folder with a trained model; `allow_pickle` also reads an old .bin of Hugging Face."""

    folder: Path
    allow_pickle: bool = False

    def config(self, task: str | None = None) -> ModelConfig:
        """Read the architecture; a Hugging Face model gets the head that its family has for the `task`."""
        if not self.folder.is_dir():
            raise RegardError(f"{self.folder}: no such folder; {folder_remedy(self.folder)}")
        if hub.is_huggingface(self.folder):
            return hub.read_huggingface_config(self.folder, task, self.allow_pickle)
        check_best(self.folder)
        return read_config(self.folder)

    def weights(self) -> dict[str, Tensor]:
        """Read the weights, under the names of this package."""
        if hub.is_huggingface(self.folder):
            return tensors(hub.load_huggingface(self.folder, allow_pickle=self.allow_pickle))
        return tensors(load_model(self.folder))
