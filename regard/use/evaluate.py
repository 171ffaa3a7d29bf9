"""What a model is worth: the measures of its task, on other files or on the validation data of its run.

A translator is measured by what it writes, as `translate` does it: with beams, from text to text.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from regard.decode.engine import in_use
from regard.errors import InputError
from regard.models.head import Logits
from regard.models.language import LanguageModel
from regard.models.model import EncoderDecoder
from regard.models.vision import VisionTransformer
from regard.tasks.classification import ClassificationConfig
from regard.tasks.language import LanguageTaskConfig
from regard.tasks.masked import MaskedConfig
from regard.tasks.metric import translation_scores, translation_signatures
from regard.tasks.task import Task
from regard.tasks.translation import Translation, TranslationConfig
from regard.tasks.vision import VisionTaskConfig
from regard.use.batches import in_chunks
from regard.use.ready import Ready
from regard.use.translate import Translating, fit_for, translations

WINDOW = 512  # tokens in a row where no run says how many


@dataclass(frozen=True)
class Evaluation(Mapping[str, float]):
    """The measures of a model by name, as a read-only dictionary, with how and on what they were measured."""

    metrics: dict[str, float]
    search: str = ""  # of a translator: "greedy" or "beam 5"
    rows: int | None = None  # of a translator: how many pairs were translated
    signatures: dict[str, str] = field(default_factory=dict)  # of sacreBLEU, for a paper to quote
    data: dict[str, int] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)  # lines that were left out or cut

    def __getitem__(self, name: str) -> float:
        return self.metrics[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.metrics)

    def __len__(self) -> int:
        return len(self.metrics)

    @property
    def method(self) -> str:
        """How a translator was measured: "beam 5, 2,000 pairs"; empty for other models."""
        return f"{self.search}, {self.rows:,} pairs" if self.search else ""

    def __repr__(self) -> str:
        values = ", ".join(f"{name} {value:.4g}" for name, value in self.metrics.items())
        return f"<{values} ({self.method})>" if self.search else f"<{values}>"


def evaluate_model(
    ready: Ready,
    files: Sequence[str],
    options: Translating,
    say: Callable[[str], None] = lambda text: None,
) -> Evaluation:
    """Measure a model on files of its task, or on the validation data of its run; `options` are for translators."""
    if ready.outside is not None and not isinstance(ready.model, EncoderDecoder):
        raise InputError(f"{ready.name}: CTranslate2 computes no probabilities; choose another --engine")
    task = open_task(ready, files, say)
    task.to(ready.device)
    return evaluate_task(ready, task, options, say)


def evaluate_task(
    ready: Ready, task: Task, options: Translating, say: Callable[[str], None] = lambda text: None
) -> Evaluation:
    """Measure a model on the validation data of an open task."""
    say("measuring")
    metrics: dict[str, float] = {}
    if ready.outside is None:
        with in_use(ready.model):
            if not isinstance(task, Translation):
                return Evaluation(task.measure(ready.model), data=task.facts(), skipped=task.skipped.report())
            metrics = task.measure_loss(ready.model)
    assert isinstance(task, Translation)
    pairs = task.valid.texts()
    say(f"translating {len(pairs):,} sentences")
    fit = fit_for(ready, options.long)
    made = [one.text for one in translations(ready, in_chunks(source for source, _ in pairs), options, fit)]
    metrics |= translation_scores(made, [target for _, target in pairs])
    return Evaluation(
        metrics,
        "greedy" if options.beam == 1 else f"beam {options.beam}",
        len(pairs),
        translation_signatures(),
        task.facts(),
        task.skipped.report() + fit.report(),
    )


def open_task(ready: Ready, files: Sequence[str], say: Callable[[str], None]) -> Task:
    """Open files, or the run's own data, for the task that the model was trained for."""
    return _of_its_kind(ready, files) if ready.run is None else ready.run.open_task(files, say)


def _of_its_kind(ready: Ready, files: Sequence[str]) -> Task:
    """Open files for the task that a model is made for, where no run says which one it was trained for."""
    if not files:
        remedy = "name files to measure it on"
        raise InputError(f"{ready.name}: does not come from a run, so it has no validation data; {remedy}")
    model, names, longest = ready.model, tuple(files), ready.room or WINDOW
    window = min(longest, WINDOW)
    config: Any
    if isinstance(model, EncoderDecoder):
        config = TranslationConfig(source=names[:1], longest=longest)
    elif isinstance(model, LanguageModel):
        config = LanguageTaskConfig(train=names, window=window)
    elif isinstance(model, VisionTransformer):
        config = VisionTaskConfig(
            train=names[0], size=model.patches.height, classes=ready.classes, mean=ready.mean, std=ready.std
        )
    elif isinstance(model.head, Logits):
        config = MaskedConfig(train=names, window=window)
    else:
        ready.check("classify")
        config = ClassificationConfig(train=names, classes=ready.classes, longest=longest)
    task: Task = config.evaluation(ready.tokenizer, list(files))
    return task
