"""The runs of a comparison as records: what they measure, and what their training cost."""

from collections.abc import Sequence
from hashlib import sha256 as hash_text
from pathlib import Path

from regard.atomic import make_folder, sha256
from regard.errors import InputError
from regard.lab.comparison.folder import CompareRequest
from regard.lab.comparison.models import Contender
from regard.lab.comparison.plan import ComparePlan, count_parameters
from regard.lab.comparison.runs import ComparedRun
from regard.lab.comparison.table import RunRecord
from regard.models.store import WEIGHTS
from regard.runs.records import read_metrics
from regard.tasks.task import Task
from regard.tasks.translation import Translation
from regard.training.ranks import Ranks
from regard.training.result import RunResult, read_result, write_result
from regard.training.run import Run, open_run
from regard.use.evaluate import Evaluation

EVALUATIONS = "evaluations"


def trained_record(run: ComparedRun, plan: ComparePlan, with_memory: bool) -> RunRecord:
    """Return the record of a run that the comparison has trained."""
    result = read_result(run.folder)
    assert result is not None
    [parameters] = [each.parameters for each in plan.recipes if each.contender.name == run.name]
    spent = _spent(run.folder, with_memory)
    return RunRecord(run.name, run.seed, run.folder, result.evaluation, parameters, spent, _checksum(plan.task))


def _checksum(task: Task) -> str | None:
    return None if task.tokenizer is None else task.tokenizer.fingerprint()


def _spent(folder: Path, with_memory: bool) -> dict[str, int | float]:
    """Return what a run cost, from the last line of its log: steps, tokens, seconds, flops; and the peak of memory."""
    train = [record for record in read_metrics(folder) if record.get("kind") == "train"]
    if not train:
        return {}
    last = train[-1]
    spent = {key: last[key] for key in ("tokens", "seconds", "flops") if isinstance(last.get(key), int | float)}
    peak = max(int(record.get("memory") or 0) for record in train)
    return {"steps": last["step"], **spent, **({"memory": peak} if with_memory and peak else {})}


def given_record(
    contender: Contender, request: CompareRequest, plan: ComparePlan | None, ranks: Ranks
) -> tuple[RunRecord, bool]:
    """Measure a run that was given; return it, and whether its own validation data is that of the comparison."""
    assert contender.run is not None
    run = open_run(contender.run)
    files = request.valid if plan is not None else request.files
    tokenizer = run.tokenizer()
    parameters = count_parameters(run.model_config)
    same = False
    if files:
        evaluation = _measured(run, files, request, ranks)
    else:
        assert plan is not None
        same = run.task().fingerprint() == plan.task.fingerprint()
        if not same:
            rule = "may have learned from the rows that are held out of this data, as it was trained on other data"
            raise InputError(f"{contender.name}: {rule}; give files to measure all models on: --valid FILE")
        kept = read_result(contender.run)
        evaluation = run.evaluate(device=str(ranks.device)) if kept is None else kept.evaluation
    checksum = None if tokenizer is None else tokenizer.fingerprint()
    spent = _spent(contender.run, with_memory=True)
    return RunRecord(contender.name, None, contender.run, evaluation, parameters, spent, checksum), same


def _measured(run: Run, files: Sequence[str], request: CompareRequest, ranks: Ranks) -> Evaluation:
    """Measure a run on files, unless the same weights were measured on them before."""
    key = hash_text("\n".join((str(run.folder.resolve()), *request.files, *files)).encode()).hexdigest()[:16]
    folder, weights = request.folder / EVALUATIONS / key, sha256(run.folder / WEIGHTS)
    kept = read_result(folder)
    if kept is not None and kept.weights == weights:
        return kept.evaluation
    evaluation = run.load(str(ranks.device)).evaluate(*files, *(request.changes if not request.valid else ()))
    make_folder(folder)
    write_result(folder, RunResult(0, weights, evaluation))
    return evaluation


def open_data(request: CompareRequest, ranks: Ranks) -> Task:
    """Open the data of a comparison of runs alone, as the first one reads it."""
    assert request.contenders[0].run is not None
    return open_run(request.contenders[0].run).files.open_task(request.files, columns=request.changes)


def references_of(task: Task) -> list[str]:
    """Return the references that translations are scored against; none for other tasks."""
    return [target for _, target in task.valid_texts] if isinstance(task, Translation) else []
