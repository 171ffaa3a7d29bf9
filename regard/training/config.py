"""The config of a run: the task and its files, the tokenizer, the model, and how it is trained."""

from dataclasses import dataclass
from typing import Annotated, Literal

from regard.config import Config, Count, NotNegative, Positive, Range, Rate, Seed, Times
from regard.data.tokenizer import TokenizerConfig
from regard.models.recipe import ModelConfig
from regard.tasks.kinds import TaskConfig
from regard.training.optimizer import OptimizerConfig
from regard.training.schedule import ScheduleConfig


@dataclass(frozen=True, kw_only=True)
class TrainConfig(Config):
    """How a model is trained. `tokens` counts the complete update, however it is split."""

    steps: Count
    """Number of updates."""
    minutes: Positive | None = None
    """The time that the user asked for, from which `steps` was chosen."""
    tokens: Count
    """Tokens in an update: target tokens for translation, patches for images."""
    accumulate: Annotated[int, Range(low=1, high=4096)] = 1
    """Parts into which an update is split; the result is the same, and less memory is needed."""
    optimizer: OptimizerConfig
    """The optimizer."""
    schedule: ScheduleConfig
    """How the learning rate rises and falls."""
    clip: Positive | None = None
    """The largest norm of the gradient: larger ones are scaled down; absent: no limit."""
    ema: Rate | None = None
    """Decay of a moving average of the weights, which is validated and saved instead of the weights."""
    average: Times = 0
    """Number of last weights, `validate_every` updates apart, whose average is measured at the end, and kept if it is
    better."""
    validate_every: Count
    """Updates between two validations."""
    rare_until: Rate = 0.0
    """Share of the run in which only every fourth of these validations is made, while each is better than the last."""
    valid_rows: Count = 500
    """Rows that a validation translates for BLEU, or parses, while training."""
    valid_part: Count | None = None
    """Rows that a validation measures while training, evenly spread: windows of a text, labelled texts, images. Absent:
    all. The evaluation at the end measures all."""
    patience: Count | None = None
    """Stop after this many validations in which neither the metric nor the loss was better; absent: never."""
    checkpoint_every: Count
    """Updates between two checkpoints."""
    keep: Count = 1
    """Checkpoints that a finished run keeps, for `--step`; while training there are at least two."""
    log_every: Count = 10
    """Updates between two lines of the log."""
    balance: NotNegative = 0.001
    """How fast the routers of a mixture of experts even out the load."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Precision of the computation; auto: bfloat16 where the device is fast in it."""
    compile: Literal["auto", "always", "never"] = "auto"
    """Whether the model is compiled; auto: on an accelerator, if the run is long enough to pay for it."""
    capture: Literal["auto", "always", "never"] = "auto"
    """Whether updates are replayed as CUDA graphs; auto: on one GPU, if launching kernels would limit the speed."""
    parallel: Literal["ddp", "fsdp"] = "ddp"
    """With several processes: a copy of the model in each (ddp), or a shard (fsdp)."""
    threads: Count | None = None
    """Threads on a CPU; another number may round differently. Absent: as many as torch chooses."""
    seed: Seed = 0
    """Seed of the initial weights, the order of the data and dropout; held-out rows are always the same."""


@dataclass(frozen=True, kw_only=True)
class RunConfig(Config):
    """A run: the task with its files, the tokenizer, the model and the training."""

    about: str = ""
    """What this recipe is, in a sentence."""
    paper: str = ""
    """The paper that describes it."""
    task: TaskConfig
    """What is learned, and from which files."""
    tokenizer: TokenizerConfig | None = None
    """How texts become tokens; absent: chosen by the task."""
    model: ModelConfig | None = None
    """The architecture; absent: the module that was given to `regard.train`."""
    train: TrainConfig
    """How the model is trained."""
