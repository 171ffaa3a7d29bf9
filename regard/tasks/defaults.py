"""What a task suggests where the user says nothing: its recipe, tokenizer, lengths, dropout, optimizer and schedule.

The planner (training/planning.py) calls these methods of a task's config; what the user wrote overrides the results.
`TaskConfig` holds what most tasks share; a task overrides what differs in its own file. See docs/training.md for where
the numbers come from.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from reprlib import repr as shortened
from typing import TYPE_CHECKING, Any, ClassVar

from regard.arguments import has_long_name
from regard.config import Config, Table, from_table, to_table
from regard.data.columns import ColumnOptions, FileReading, Role
from regard.data.lines import PACKED
from regard.data.read import files_below
from regard.data.tables import UNPACKED, estimate_cells, find_columns, is_table
from regard.errors import ConfigError
from regard.recipe_files import EMPTY_NAME, override, override_path

if TYPE_CHECKING:
    from regard.tasks.task import Task

# Figures of rates and of the cooldown are validation losses after 150 updates (size tiny, one seed, on a CPU), on
# tinyshakespeare; of ADAM_RATE on SST-2 (on TREC 0.398, 0.440 and 0.435). That is too short to choose by.
MUON_RATE = 0.02  # as Jordan et al. 2024; 1.977 at 0.01, 1.860 at 0.02, 1.822 at 0.04
REST_RATE = 5e-3  # AdamW beside Muon, for a width of 128, less for wider ones; 1.898 at 2.5e-3, 1.860, 1.853 at 1e-2
ADAM_RATE = 2e-3  # for a width of 128, less for wider ones; SST-2: 0.429 at 1e-3, 0.421 at 2e-3, 0.429 at 4e-3
PRETRAINED_RATE = 5e-4  # at most, for a model that starts from trained weights; 4e-5 for a BERT or GPT-2
PRETRAINED_WIDTH = 230  # up to which it holds; it falls with the square of the width
WARMUP = {"cosine": (10, 1000), "inverse-sqrt": (4, 1000), "linear": (20, 100)}  # (1 / share of the steps, maximum)
PRETRAINED_WARMUP = (10, 100)
COOLDOWN = 0.6  # the share of the steps over which a linear schedule falls; 1.835 at 0.3, 1.860 at 0.6, 1.930 at 1
# (below this many bytes of text, pieces)
# Published for such amounts: 10,000 for IWSLT'14 (fairseq), 37,000 for WMT (Vaswani et al. 2017); not compared here.
VOCABULARIES = ((10_000_000, 6000), (50_000_000, 10_000), (500_000_000, 16_000))
LARGEST_VOCABULARY = 32_000
LITTLE = 3_000_000  # tokens of text below which regularisation is strong
BYTES_PER_TOKEN = 4  # of text, about


@dataclass(frozen=True)
class Amount:
    """How much there is to learn from: rows (pairs, texts, images) and the tokens that one pass predicts."""

    rows: int
    tokens: int


class TaskConfig(Config):
    """The files and settings of a task, and what it suggests for everything else."""

    recipe: ClassVar[str]  # the architecture that the task starts from
    models: ClassVar[tuple[str, ...]]  # the kinds of models that can learn it
    hub_task: ClassVar[str | None] = None  # a Hugging Face model gets the head for this task: `Head` in hub/family.py
    file_keys: ClassVar[tuple[str, ...]] = ("train", "valid")  # the settings that name files
    after_reading: ClassVar[tuple[str, ...]] = ()  # the settings that do not decide which texts the files give
    length_key: ClassVar[str | None] = None  # the setting that limits the tokens of a row, if there is one
    roles: ClassVar[tuple[Role, ...]] = ()  # what is read from tables; a setting of the task chooses each column
    module_methods: ClassVar[tuple[str, ...]] = ("forward",)  # what a module of the user must have to be trained
    verbs: ClassVar[tuple[str, ...]] = ()  # what its models can do, if that differs from what their kind can
    description: ClassVar[str] = ""  # what its models are called, with an article, if that differs from their kind
    update_tokens: ClassVar[int] = 2048  # tokens of an update on a CPU
    # on a CPU, the size for fewer tokens than this; larger ones would take days
    cpu_sizes: ClassVar[Mapping[str, int | None]] = {"tiny": 10_000_000, "small": None}
    passes: ClassVar[int] = 10  # passes over the data at most; more passes over little data overfit

    def validate(self) -> None:
        """Check the names of files: an empty one would stand for the current folder, and a long one is a text."""
        for key in self.file_keys:
            names = getattr(self, key, None)
            for name in [names] if isinstance(names, str) else names or ():
                if not name:
                    raise ConfigError(EMPTY_NAME, key)
                if has_long_name(name):
                    raise ConfigError(f"{shortened(name)} must be a path; give texts in a file", key)

    def prepare(self, tokenizer: Any, seed: int, say: Callable[[str], None]) -> "Task":
        """Read the files, learn the tokenizer (from its config; None if the task has none) and tokenise."""
        raise NotImplementedError

    def evaluation(self, tokenizer: Any, files: list[str]) -> "Task":
        """Open other files to measure a model on, with the run's tokenizer."""
        raise NotImplementedError

    @classmethod
    def from_files(cls, files: Sequence[str], valid: Sequence[str]) -> Table:
        """Return the settings that name these files, as `regard train KIND FILES` gives them."""
        raise NotImplementedError

    def training_files(self) -> tuple[str, ...]:
        """Return the names of the files to train on."""
        raise NotImplementedError

    # --- what is read ------------------------------------------------------------------------------------------------

    def column_options(self) -> ColumnOptions:
        """Return the columns to read from tables, as far as they were chosen."""
        chosen = tuple(getattr(self, role.key) for role in self.roles)
        return ColumnOptions(self.roles, chosen, getattr(self, "header", None))

    def with_columns(self) -> "TaskConfig":
        """Return the settings with the columns of the first table, which all tables of a run must then have."""
        tables = (path for name in self.training_files() for path in files_below(Path(name)) if is_table(path))
        table = next(tables, None) if self.roles else None
        if table is None:
            return self
        options = self.column_options()
        found = zip(self.roles, options.chosen, find_columns(table, options), strict=True)
        config: Any = self  # a dataclass, as every kind is
        changed: TaskConfig = replace(config, **{role.key: column for role, old, column in found if old is None})
        return changed

    def with_other_columns(self, changes: Sequence[str]) -> "TaskConfig":
        """Return the settings for files with other columns: changes such as `task.text=body`, and of nothing else."""
        keys = [role.option for role in self.roles] + ["task.header"] * bool(self.roles)
        for change in changes:
            if override_path(change) not in keys:
                rule = f"only the columns can change: {', '.join(keys)}" if keys else "nothing can change"
                raise ConfigError(f"{change!r}: where a model is measured, {rule}")
        table = override({"task": to_table(self)}, changes)["task"]
        return from_table(table, type(self), "task")

    def readings(self, files: Sequence[str] = ()) -> list[FileReading]:
        """Return how files are read, by default those to train and validate on: columns, header, first example."""
        return []

    def text_bytes(self, files: Sequence[str]) -> int:
        """Estimate how many bytes of text files hold.

        This is their size for plain text, three times that if they are compressed. Of tables, whose size depends on the
        format, only the columns that are read count. A missing file is reported when it is read.
        """
        size, tables = 0, []
        for path in (path for name in files for path in files_below(Path(name)) if path.exists()):
            if self.roles and is_table(path):
                tables.append(path)
            elif path.is_file():
                size += path.stat().st_size * (UNPACKED if path.suffix in PACKED else 1)
        return size + estimate_cells(tables, self.column_options())

    def is_little(self, files: Sequence[str]) -> bool:
        """Return whether files hold so little text that it is read many times, and a model has to be regularised."""
        return self.text_bytes(files) < LITTLE * BYTES_PER_TOKEN

    # --- before the data is read -------------------------------------------------------------------------------------

    def suggest_length(self, device: str, positions: int | None) -> int | None:
        """Return the value of `length_key`; None keeps its default. `positions`: how many the model has, if limited."""
        return None

    def suggest_settings(self, device: str) -> Table:
        """Return other settings of the task, for the task's own recipe."""
        return {}

    def suggest_tokenizer(self, pieces: bool) -> Table | None:
        """Return the tokenizer's table, or None if there is no text; `pieces`: the user asked for a vocabulary."""
        return {"kind": "bpe"}

    def suggest_vocabulary(self) -> int:
        """Return the size of a vocabulary, which grows with the data."""
        size = self.text_bytes(self.training_files())
        return next((pieces for limit, pieces in VOCABULARIES if size < limit), LARGEST_VOCABULARY)

    # --- when the amount of data is known ----------------------------------------------------------------------------

    def suggest_model(self, size: str, amount: Amount) -> Table:
        """Return changes of the task's own recipe: the dropout that suits the amount of data, the head."""
        return {}

    def suggest_optimizer_kind(self, pretrained: bool) -> str:
        """Return the kind of the optimizer: one for all recipes of a task, so that they can be compared."""
        return "adamw"

    def suggest_optimizer(self, kind: str, dim: int, pretrained: bool) -> Table:
        """Return the rates and decays of an optimizer for a model of width `dim`.

        A model that starts from trained weights gets a lower rate, so that it does not forget; the less so the smaller
        it is: accuracy on SST-2, after masked words at width 256, is 0.79 with 7e-5, 0.83 with 3e-4 and with 5e-4.
        """
        width, slower = (128 / dim) ** 0.5, 1.0
        if pretrained:
            slower = PRETRAINED_RATE * min(1.0, PRETRAINED_WIDTH / dim) ** 2 / (ADAM_RATE * width)
        if kind == "muon":
            rest = {"rate": REST_RATE * slower * width, "decay": 0.0}
            return {"kind": "muon", "rate": MUON_RATE * slower, "decay": 0.01, "rest": rest}
        return {"kind": "adamw", "rate": ADAM_RATE * slower * width, "decay": 0.01 if pretrained else 0.05}

    def suggest_schedule_kind(self, optimizer: str, pretrained: bool) -> str:
        """Return the kind of the schedule."""
        return "linear" if pretrained else "cosine"

    def suggest_search(self, device: str) -> dict[str, tuple[Any, ...]]:
        """Return what `regard tune` tries: factors of the suggested rate and vocabulary, sizes, and dropouts."""
        return {
            "rate": (0.25, 0.5, 1.0, 2.0, 4.0),
            "size": tuple(self.cpu_sizes) if device == "cpu" else ("tiny", "small", "base"),
            "dropout": (0.0, 0.1, 0.2, 0.3, 0.5),
            "vocabulary": (0.5, 1.0, 2.0),
        }

    def suggest_training(self) -> Table:
        """Return other settings of training, such as averaging."""
        return {}


def suggest_schedule(kind: str, steps: int, pretrained: bool) -> Table:
    """Return how long a schedule of this many steps warms up and cools down."""
    share, most = PRETRAINED_WARMUP if pretrained else WARMUP.get(kind, WARMUP["cosine"])
    cooldown = {"cooldown": COOLDOWN} if kind == "linear" and not pretrained else {}
    return {"kind": kind, "warmup": min(steps // share, most), **cooldown}
