"""A whole run as data: what is learned from which files, by which model, and how it is trained."""

from dataclasses import dataclass
from typing import Annotated, Literal

from regard.config import Config, Count, NotNegative, Positive, Range, Rate
from regard.data.tokenizer import TokenizerConfig
from regard.models.recipe import ModelConfig
from regard.tasks.kinds import TaskConfig
from regard.training.optimizer import OptimizerConfig
from regard.training.schedule import ScheduleConfig

Times = Annotated[int, Range(low=0)]


@dataclass(frozen=True, kw_only=True)
class TrainConfig(Config):
    """How a model is trained. `tokens` is what one update learns from, however it is split."""

    steps: Count
    minutes: Positive | None = None  # the time that was asked for, from which `steps` was chosen
    tokens: Count  # per update: of the target for translation, patches for images
    accumulate: Count = 1  # parts that an update is split into; the result is the same, the memory less
    optimizer: OptimizerConfig
    schedule: ScheduleConfig
    clip: Positive | None = None  # the most that the norm of the gradient may be
    ema: Rate | None = None  # decay of a moving average of the weights, which is then what is measured and kept
    average: Times = 0  # of so many last validations the weights are averaged at the end; kept if better
    validate_every: Count
    valid_rows: Count = 500  # rows that are translated for BLEU in a validation while training
    patience: Count | None = None  # stop after so many validations without a better one
    checkpoint_every: Count
    log_every: Count = 10
    balance: NotNegative = 0.001  # how fast routers of experts even out their load
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    compile: Literal["auto", "always", "never"] = "auto"
    parallel: Literal["ddp", "fsdp"] = "ddp"  # with several processes: a copy of the model on each, or a part
    seed: Times = 0


@dataclass(frozen=True, kw_only=True)
class RunConfig(Config):
    """A run: the task with its files, the tokenizer, the model and the training."""

    about: str = ""
    paper: str = ""
    task: TaskConfig
    tokenizer: TokenizerConfig | None = None
    model: ModelConfig
    train: TrainConfig
