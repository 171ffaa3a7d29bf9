"""Measure a model: the metrics of its task, on files or on the validation data of its run.

A translator is measured by what `translate` writes: with beams, from text to text. This is the only evaluation: the
command line, `regard.load(...)`, `regard.train(...)` and the end of a training all call it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from shlex import quote
from typing import Any

from regard.config import from_table
from regard.decode.engine import in_use
from regard.errors import InputError
from regard.html_table import html_table
from regard.recipe_files import split_changes
from regard.tasks.cautions import caution_unknown
from regard.tasks.kinds import TASKS
from regard.tasks.metric import DETAILS, translation_scores, translation_signatures
from regard.tasks.parsing import Parsing
from regard.tasks.task import Task
from regard.tasks.translation import Translation
from regard.use.batches import Chunks, Feedback, chunk_lines
from regard.use.box import is_run_folder, read_box_folder
from regard.use.bundle import Bundle
from regard.use.translate import TranslateOptions, translate_lines

Say = Callable[[str], None]

WINDOW = 512  # tokens in a row of a model without a run


@dataclass(frozen=True, eq=False)
class Evaluation(Mapping[str, float]):
    """The measures of a model by name, as a read-only dictionary, with how and on what they were measured."""

    metrics: dict[str, float]
    search: str = ""  # of a translator: "greedy" or "beam 5"
    rows: int | None = None  # of a translator: how many pairs were translated
    signatures: dict[str, str] = field(default_factory=dict)  # of sacreBLEU, to be quoted in papers
    data: dict[str, int] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)  # lines that were left out or cut
    cautions: list[str] = field(default_factory=list)  # why the measures may say little
    read: list[str] = field(default_factory=list)  # how the files were read: their columns
    translations: list[str] = field(default_factory=list)  # of a translator: what was scored, in the order of the pairs

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

    def shown(self) -> list[tuple[str, float]]:
        """Return the measures that are worth a line of a table."""
        return [(name, value) for name, value in self.metrics.items() if name not in DETAILS]

    def _repr_html_(self) -> str:
        return html_table((), self.shown(), self.method)

    def __repr__(self) -> str:
        values = ", ".join(f"{name} {value:.4g}" for name, value in self.metrics.items())
        return f"<{values} ({self.method})>" if self.search else f"<{values}>"


def evaluate_model(
    bundle: Bundle,
    files: Sequence[str],
    options: TranslateOptions,
    say: Say = lambda text: None,
    beam: int | None = None,
) -> Evaluation:
    """Measure a model on files of its task, or on the validation data of its run; `options` are for translators.

    A model in the box has no validation data; without files it is measured on those that come with it. `beam` is what
    the user chose for the search of a translator or parser; it is an error for other models.
    """
    if beam is not None and not {"translate", "parse"} & set(bundle.verbs):
        rule = "does not search when it is measured"
        raise InputError(f"{bundle.name}: is {bundle.description} and {rule}; leave --beam out")
    if bundle.external is not None and not bundle.model.has_source:
        raise InputError(f"{bundle.name}: CTranslate2 computes no probabilities; choose another --engine")
    names, changes = split_changes(files)
    if changes and not names:
        raise InputError(f"{changes[0]!r} is for files, but none is named; name the files to measure the model on")
    names = names or shipped_files(bundle)
    task = open_task(bundle, names, changes, say)
    if isinstance(task, Parsing) and beam is not None:
        task.config = replace(task.config, beam=beam)
    task.to(bundle.device)
    cautions = [*caution_unknown(task)]
    if not names and bundle.run is not None and not bundle.run.learned_from(task):
        rule = "the data of this run has changed since its training: it may have learned from rows that are measured"
        cautions.append(f"{rule}; restore the files, or name files to measure it on")
    if known := files_learned_from(bundle, names):
        rule = "the run was trained on it, so this says little about other data"
        cautions.append(f"{', '.join(known)}: {rule}; without files, the validation data of the run is measured")
    found = replace(evaluate_task(bundle, task, options, say), cautions=cautions)
    return replace(found, read=[reading.heading() for reading in task.readings(names)]) if names else found


def files_learned_from(bundle: Bundle, files: Sequence[str]) -> list[str]:
    """Return which files the run of a model was trained on; none if it left out a fold, which alone is measured."""
    if bundle.run is None or getattr(bundle.run.task_config, "fold", None) is not None:
        return []
    trained = {Path(name).resolve() for name in bundle.run.task_config.training_files()}
    return [name for name in files if Path(name).resolve() in trained]


def shipped_files(bundle: Bundle) -> list[str]:
    """Return the files that a model in the box is measured on if none are named; none for any other model."""
    model = None if bundle.run is None else read_box_folder(bundle.run.path)
    return [] if model is None else list(model.check_files())


def evaluate_task(bundle: Bundle, task: Task, options: TranslateOptions, say: Say = lambda text: None) -> Evaluation:
    """Measure a model on the validation data of an open task."""
    say("measuring")
    metrics: dict[str, float] = {}
    if bundle.external is None:
        with in_use(bundle.model):
            if not isinstance(task, Translation):
                found = task.within_memory(lambda: task.evaluate(bundle.model))
                return Evaluation(found, data=task.facts(), skipped=task.skipped.report())
            translation = task
            metrics = task.within_memory(lambda: translation.measure_loss(bundle.model))
    assert isinstance(task, Translation)
    pairs = task.valid.texts()
    say(f"translating {len(pairs):,} sentences")
    cut: list[str] = []
    sources = Chunks(chunk_lines(source for source, _ in pairs))
    translated = [one.text for _, one in translate_lines(bundle, sources, options, Feedback(warn=cut.append))]
    wanted = [target for _, target in pairs]
    metrics |= translation_scores(translated, wanted)
    return Evaluation(
        metrics,
        options.search,
        len(pairs),
        translation_signatures(wanted),
        task.facts(),
        task.skipped.report() + cut,
        translations=translated,
    )


def open_task(bundle: Bundle, files: Sequence[str], columns: Sequence[str], say: Say) -> Task:
    """Open files, or the run's own data, for the task that the model was trained for."""
    for name in files:
        if is_run_folder(name):
            raise InputError(f"{name}: is a run, not data to measure on; name it as the model: -m {quote(name)}")
    if bundle.run is None:
        return _open_fitting_task(bundle, files, columns)
    return bundle.run.open_task(files, say, columns)


def _open_fitting_task(bundle: Bundle, files: Sequence[str], columns: Sequence[str]) -> Task:
    """Open files for the task that fits the model, if no run says which task it was trained for."""
    if not files:
        raise InputError(f"{bundle.name}: is not a run, so it has no validation data; name files to measure it on")
    kind = bundle.model.task
    if kind is None:
        raise InputError(f"{bundle.name}: is {bundle.model.description}, which no task measures; use another model")
    config: Any = TASKS[kind]
    longest = bundle.context or WINDOW
    image = bundle.model.image
    known = {
        "longest": longest,
        "window": min(longest, WINDOW),
        "size": None if image is None else image.height,
        "classes": bundle.classes,
        "mean": bundle.mean,
        "std": bundle.std,
    }
    settings = {name: value for name, value in known.items() if name in config.__dataclass_fields__}
    fitting = from_table({**config.from_files(files, []), **settings}, config)
    task: Task = fitting.with_other_columns(columns).evaluation(bundle.tokenizer, list(files))
    return task
