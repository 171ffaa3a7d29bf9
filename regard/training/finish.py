"""What follows the training of a run: a comparison with simple models, the report, and what the user may do next."""

import shlex

from regard.models.recipe import build_empty
from regard.runs.layout import REPORT
from regard.tasks.baselines import find_better_baselines
from regard.tasks.metric import DETAILS
from regard.tasks.task import Task
from regard.training.progress import Progress
from regard.training.report import draw_curves, write_report
from regard.training.report_facts import report_facts
from regard.training.run import Run
from regard.training.validation import measured_rows
from regard.use.evaluate import Evaluation


def warn_of_baselines(task: Task, found: Evaluation, progress: Progress) -> None:
    """Say loudly that simple models are as good as this one, or better."""
    if task.metric not in found.metrics:  # the `evaluate` of a user's task may measure something else
        return
    for baseline in find_better_baselines(task.metric, found[task.metric], task.baselines):
        scores = f"{task.metric} {found[task.metric]:.3g} against {baseline.score:.3g}"
        remedy = "train longer (train.steps), on more data, or with another --size"
        progress.say(f"NOT BETTER than a simple model, {baseline.name}: {scores}; {remedy}", "bold red")


def next_commands(run: Run) -> list[str]:
    """Return the commands that a user may want next."""
    folder = shlex.quote(str(run.folder))
    report = f"open {folder}/{REPORT}"
    if run.config.model is None:  # the command line cannot build a module of the user
        return [report]
    model = build_empty(run.config.model)
    texts = {"translate": '"a sentence" ', "generate": '"Once upon a time" ', "classify": '"a text" '}
    texts |= {"fill": '"a [MASK] text" ', "embed": '"a text" ', "annotate": "MKTAYIAKQR ", "parse": '"a sentence" '}
    texts["forecast"] = "tracks.txt "
    name = (run.config.task.verbs or model.verbs)[0]
    text = "image.png " if model.reads == "image" else texts.get(name, "")
    verb = f"regard {name} {text}-m {folder}"
    return [verb, f"regard evaluate -m {folder}", f"regard look -m {folder}", report]


def finish(run: Run, task: Task, found: Evaluation, best_weights: str) -> None:
    """Draw the curves of a finished run, and write its report."""
    draw_curves(run.folder)
    method = f", {found.method}" if found.method else ""
    shown = [name for name in found if name == task.metric or name not in DETAILS]
    scores = {name: found[name] for name in sorted(shown, key=lambda name: name != task.metric)}  # the metric first
    measured = f"Weights of {best_weights}, measured on the validation data{method}."
    curves = task.method(measured_rows(task, run.config.train))
    facts = report_facts(run, task, found)
    write_report(run.folder, run.folder.resolve().name, scores, measured, facts, curves, task.baselines)
