"""The settings of a task that is learned from lists of files: those to train on, and those to validate on."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from regard.config import Table
from regard.errors import ConfigError
from regard.tasks.defaults import TaskConfig


@dataclass(frozen=True, kw_only=True)
class FileTaskConfig(TaskConfig):
    """Files to train on and to validate on."""

    wanted: ClassVar[str] = "a file to train on"  # what the user has to name, for the error if nothing was named

    train: tuple[str, ...]
    """Files or tables to train on, or folders of them."""
    valid: tuple[str, ...] = ()
    """Files or tables to validate on; by default a part of the training data is held out."""

    def validate(self) -> None:
        """Check the rules between values."""
        super().validate()
        if not self.train:
            raise ConfigError("train must name at least one file")

    @classmethod
    def from_files(cls, files: Sequence[str], valid: Sequence[str]) -> Table:
        """Return the settings that name these files."""
        if not files:
            raise ConfigError(f"name {cls.wanted}")
        return {"train": list(files), **({"valid": list(valid)} if valid else {})}

    def training_files(self) -> tuple[str, ...]:
        """Return the names of the files to train on."""
        return self.train


def name_files(files: Sequence[str]) -> str:
    """Name files by the first one, for messages."""
    return files[0] if len(files) == 1 else f"{files[0]}, ..."
