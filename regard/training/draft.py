"""A run while it is planned, and when it is decided."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from regard.config import Table
from regard.data.tokenizer import TokenizerConfig
from regard.models.recipe import ModelConfig
from regard.recipe_files import override_path
from regard.tasks.defaults import TaskConfig
from regard.tasks.task import Task
from regard.training.config import RunConfig
from regard.training.pretrained import Pretrained
from regard.training.ranks import Ranks
from regard.training.request import RunRequest, UserChoices

Say = Callable[[str], None]
COMMAND_LINE = "command line"


@dataclass(frozen=True)
class RunPlan:
    """A run that is decided but not started."""

    config: RunConfig
    task: Task
    size: str | None  # None: the recipe's own
    pretrained: Pretrained | None  # the model whose weights it starts from
    sources: Mapping[str, str]  # where each value comes from, by its dotted path
    module: nn.Module | None = None  # the module to train, if the user gave one
    warnings: tuple[str, ...] = ()
    has_own_recipe: bool = False  # whether the architecture is the task's own, which the user did not choose


@dataclass
class Draft:
    """A run while it is planned; each stage reads what the stages before it have set."""

    request: RunRequest
    ranks: Ranks
    say: Say
    sources: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    # read_request
    given: Table = field(init=False)  # the tables of the recipe file, with what it inherits by `like`
    own: Table = field(init=False)  # the keys of the file itself
    origin: str = field(init=False)  # the source of values from the file, for `--dry-run`
    changes: dict[str, list[str]] = field(init=False)  # the overrides, by table
    choices: UserChoices = field(init=False)
    # choose_task, choose_length, choose_settings
    kind: str = field(init=False)
    task_table: Table = field(init=False)
    task_config: TaskConfig = field(init=False)
    # choose_architecture
    pretrained: Pretrained | None = field(init=False)
    named: bool = field(init=False)  # whether the user named an architecture; otherwise it is the task's own
    base: Table = field(init=False)  # the architecture before any change
    # choose_tokenizer, prepare_data
    tokenizer: TokenizerConfig | None = field(init=False)
    task: Task = field(init=False)
    # choose_model, choose_training
    size: str | None = field(init=False)
    model: ModelConfig | None = field(init=False)  # None: a module of one's own
    train_table: Table = field(init=False)

    @property
    def device(self) -> str:
        """Return the kind of device: "cpu" or that of an accelerator."""
        return self.ranks.device.type

    def note(self, place: str, value: Any, source: str) -> None:
        """Record the source of a value, or of every value of a table."""
        if isinstance(value, Mapping):
            for key, item in value.items():
                self.note(f"{place}.{key}", item, source)
        else:
            self.sources[place] = source

    def note_changes(self, table: str) -> None:
        """Record which values of a table come from overrides."""
        self.sources |= dict.fromkeys(map(override_path, self.changes[table]), COMMAND_LINE)


def chosen_by(reason: str, function: Callable[..., Any]) -> str:
    """Return the source of a value: what it follows from, and the function that chose it."""
    return f"{reason} ({function.__qualname__})"
