"""What a model is worth: the measures of its task, on other files or on the validation data of its run.

A translator is measured by what it writes, as `translate` does it: with beams, from text to text.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from regard.data.tokenizer import TokenizerConfig
from regard.decode.engine import in_use
from regard.errors import InputError
from regard.tasks.metric import translation_scores, translation_signatures
from regard.tasks.task import Task
from regard.tasks.translation import Translation
from regard.use.batches import in_chunks
from regard.use.ready import Ready
from regard.use.translate import Translating, fit_for, translations


@dataclass(frozen=True)
class Evaluation:
    """What was measured, how the scores were computed (where that has a name), on what, and what was left out."""

    metrics: dict[str, float]
    signatures: dict[str, str] = field(default_factory=dict)
    data: dict[str, int] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)


def measure(
    ready: Ready,
    files: list[str],
    options: Translating,
    say: Callable[[str], None] = lambda text: None,
) -> Evaluation:
    """Measure a model; `options` are for translators."""
    task = open_task(ready, files, say)
    say("measuring")
    with in_use(ready.model):
        if not isinstance(task, Translation):
            return Evaluation(task.measure(ready.model), {}, task.facts(), task.skipped.report())
        metrics = task.measure_loss(ready.model)
    pairs = task.valid.texts()
    say(f"translating {len(pairs):,} sentences")
    fit = fit_for(ready, options.long)
    made = [one.text for one in translations(ready, in_chunks(source for source, _ in pairs), options, fit)]
    metrics |= translation_scores(made, [target for _, target in pairs])
    return Evaluation(metrics, translation_signatures(), task.facts(), task.skipped.report() + fit.report())


def open_task(ready: Ready, files: list[str], say: Callable[[str], None]) -> Task:
    """Open files, or the run's own data, for the task that the model was trained for."""
    origin = ready.origin
    if origin is None:
        raise InputError(f"{ready.name}: does not come from a run, so there is no task to measure it by")
    if files:
        task: Task = origin.task.evaluation(ready.tokenizer, files)
    else:
        tokenizer = None if origin.dropout is None else TokenizerConfig(path=origin.folder, dropout=origin.dropout)
        task = origin.task.prepare(tokenizer, origin.seed, say)
    task.to(ready.device)
    return task
