"""Trained weights that a run starts from: those of another run, or of a Hugging Face folder."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from regard.config import from_table, to_table
from regard.data.tokenizer import Tokenizer, load_tokenizer
from regard.data.tokenizer_folder import has_tokenizer
from regard.errors import RegardError
from regard.hub import folder as hub
from regard.models.recipe import ModelConfig, build_empty
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


def take_weights(
    model: nn.Module, pretrained: Pretrained, tokenizer: Tokenizer | None, say: Callable[[str], None]
) -> None:
    """Copy trained weights into a model where name and shape agree; those of other tokens are left out."""
    found, folder = pretrained.weights(), pretrained.folder
    own = tensors(model)
    if tokenizer is not None and not _has_tokens(folder, tokenizer):
        assert isinstance(model.config, ModelConfig)
        other = _of_tokens(model.config)
        found = {name: tensor for name, tensor in found.items() if name not in other}
        say(f"its tokens are not those of {folder}, so their vectors begin untrained")
    taken = [name for name, tensor in own.items() if name in found and found[name].shape == tensor.shape]
    if not taken:
        raise RegardError(f"{folder}: none of its weights fits this model; --init-from needs a similar model")
    with torch.no_grad():
        for name in taken:
            own[name].copy_(found[name])
    new = sorted(own.keys() - set(taken))
    say(f"{len(taken)} of {len(own)} weights taken from {folder}" + (f"; new: {', '.join(new[:6])}" if new else ""))


def _has_tokens(folder: Path, tokenizer: Tokenizer) -> bool:
    """Return whether the model in a folder has these tokens under the same ids, or no tokenizer at all."""
    if not has_tokenizer(folder):
        return True
    own = load_tokenizer(folder)
    shared = min(own.size, tokenizer.size)
    return own.names(shared) == tokenizer.names(shared)


def _of_tokens(config: ModelConfig) -> set[str]:
    """Name the weights of a model that belong to its tokens: those that one token more changes in shape."""
    table = to_table(config)
    wider = {key: table[key] + 1 for key in ("vocabulary", "source_vocabulary") if table.get(key) is not None}
    shapes = {name: tensor.shape for name, tensor in tensors(build_empty(config)).items()}
    larger = tensors(build_empty(from_table(table | wider, ModelConfig, "model")))
    return {name for name, shape in shapes.items() if larger[name].shape != shape}
