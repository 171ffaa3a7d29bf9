"""Several processes learn what one learns: with copies or shards, split, stopped, resumed; and when one fails."""

import io
import json
import os
import random
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

import regard.training.start
from regard.config import from_table
from regard.errors import RegardError
from regard.models.language import LanguageConfig
from regard.models.recipe import build
from regard.runs.checkpoint import load_checkpoint
from regard.runs.ownership import hold_run
from regard.runs.records import read_metrics
from regard.training.loop import Trainer
from regard.training.probe import read_probe
from regard.training.ranks import join_ranks
from regard.training.shard import gathered, shard
from regard.training.update import Update
from regard.use.evaluate import Evaluation
from tests.processes import fork_server, patient
from tests.training.pair import Failure, Pair

TRAIN = [
    "train.steps=4",
    "train.log_every=1",
    "train.validate_every=4",
    "train.checkpoint_every=2",
    "train.schedule.warmup=0",
]
# Epsilon is large, so that Adam does not turn rounding errors into steps.
ADAM = ["train.optimizer.kind=adamw", "train.optimizer.rate=0.01", "train.optimizer.epsilon=0.001"]
SMALL = ["model.depth=2", "model.dim=16"]
LSTM = ["model.embed.dropout=0.0", "model.layers.recurrent.dropout=0.0"]
EXPERTS = '{kind="moe", experts=4, chosen=2, hidden=8}'
CHANGES = ("depth=1", "layers.block.dropout=0.0")
SIDES = [f"model.{side}.{change}" for side in ("encoder", "decoder") for change in CHANGES]

# Task, architecture and overrides; the numbers of rows and tokens are not divisible by the number of processes.
CASES: dict[str, tuple[str, str | None, list[str]]] = {
    "transformer": ("language", None, [*SMALL, "train.tokens=96", "train.accumulate=2"]),  # with Muon
    "translation": (
        "translation",
        None,
        [*SIDES, *ADAM, "model.dim=16", "model.embed.dropout=0.0", "train.tokens=400", "train.accumulate=2"],
    ),
    "lstm": ("language", "lstm", [*SMALL, *LSTM, *ADAM, "train.tokens=80", "train.log_every=3"]),
    "experts": (
        "language",
        None,
        [*SMALL, *ADAM, f"model.layers.block.feedforward={EXPERTS}", "train.tokens=64", "train.ema=0.8"],
    ),
}


class Place:
    """The folders of data and runs, and what starts two processes."""

    def __init__(self, folder: Path, pair: Pair) -> None:
        self.folder, self.pair = folder, pair
        self.count = 0

    def arguments(self, case: str, *changes: str) -> tuple[Any, ...]:
        """Return what a job needs to start a new run."""
        kind, recipe, own = CASES[case]
        texts = [str(self.folder / "one.txt")]
        files = {"source": texts, "target": [str(self.folder / "other.txt")]} if kind == "translation" else {}
        task = {"kind": kind, **(files or {"train": texts, "window": 16})}
        self.count += 1
        return task, recipe, [*TRAIN, *own, *changes], self.folder / f"{case}-{self.count}"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("distributed")
    dice = random.Random(0)
    words = ["".join(dice.choices("abcdefgh", k=dice.randint(1, 6))) for _ in range(40)]
    for name in ("one", "other"):
        lines = (" ".join(dice.choices(words, k=dice.randint(1, 12))) for _ in range(200))
        (folder / f"{name}.txt").write_text("\n".join(lines), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REGARD_CACHE", str(folder / "cache"))
        patch.setenv("OMP_NUM_THREADS", "1")
        yield Place(folder, Pair({"REGARD_CACHE": str(folder / "cache")}))


@pytest.fixture(scope="module")
def references() -> dict[str, Path]:
    """The runs of one process, trained when they are first needed."""
    return {}


def reference(place: Place, references: dict[str, Path], case: str) -> Path:
    """Return the run of one process."""
    if case not in references:
        arguments = place.arguments(case)
        train(*arguments)
        references[case] = arguments[-1]
    return references[case]


# --- jobs: what one process does -------------------------------------------------------------------------------------


def train(task: Any, recipe: str | None, changes: list[str], run: Path) -> str:
    """Train, without the pictures of the report; return what was printed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(regard.training.start, "finish", lambda *arguments: None)
        printed = io.StringIO()
        console = Console(file=printed, width=100)
        regard.training.start.train(task, *changes, run=run, recipe=recipe, device="cpu", console=console)
        return printed.getvalue()


def resume(run: Path, *changes: str) -> None:
    """Resume a run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(regard.training.start, "finish", lambda *arguments: None)
        regard.training.start.resume(run, *changes, device="cpu", console=Console(file=io.StringIO()))


def train_unnamed(folder: Path, task: Any, recipe: str | None, changes: list[str], run: None) -> str:
    """Train in a folder of its own choice; return its name."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(regard.training.start, "finish", lambda *arguments: None)
        patch.chdir(folder)
        console = Console(file=io.StringIO())
        found = regard.training.start.train(task, *changes, run=run, recipe=recipe, device="cpu", console=console)
        return str(found.folder)


def train_until_signal(*arguments: Any) -> None:
    """Train; the last process (not the first) gets a signal in the second step."""
    advance = Trainer.advance

    def advance_or_signal(self: Trainer, draws: Any) -> Any:
        if self.step == 1 and self.ranks.rank == self.ranks.world - 1:
            os.kill(os.getpid(), signal.SIGTERM)
        return advance(self, draws)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "advance", advance_or_signal)
        train(*arguments)


def train_with_bad_update(*arguments: Any) -> None:
    """Train; the last process computes NaN in the second step."""
    backward = Update._backward

    def backward_or_nonsense(self: Update, batch: Any) -> Any:
        found = backward(self, batch)
        if self.step == 2 and self.ranks.rank == self.ranks.world - 1:
            found.loss.fill_(float("nan"))
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Update, "_backward", backward_or_nonsense)
        train(*arguments)


def train_batch_norm(*arguments: Any) -> list[Any]:
    """Train, and return the averages of batch norm at the end."""
    kept: list[Any] = []

    def finish(self: Trainer) -> Evaluation:
        kept.extend(buffer.tolist() for buffer in self.update.buffers)
        return Evaluation({})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "_finish", finish)
        train(*arguments)
    return kept


def train_without_memory(*arguments: Any) -> None:
    """Train; the last process runs out of memory in the second step."""
    call = Update.__call__

    def call_or_fail(self: Update, batch: Any, step: int) -> Any:
        if step == 2 and self.ranks.rank == 1:
            self.objective = fail
        return call(self, batch, step)

    def fail(batch: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Update, "__call__", call_or_fail)
        train(*arguments)


def train_on_full_disk(*arguments: Any) -> None:
    """Train; the disk of the last process is full."""
    write = regard.training.checkpoint.write_shards

    def write_little(folder: Path, tensors: Any) -> None:
        if os.environ["RANK"] == "1":
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
        write(folder, tensors)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(regard.training.checkpoint, "write_shards", write_little)
        train(*arguments)


def answer_in_parts(position: str) -> int:
    """Compare a model, its shards, and a copy gathered from them; count the modules that are gathered separately."""
    mixer = {"kind": "attention", "heads": {"kind": "multi", "heads": 2}, "position": {"kind": position}}
    layer = {"mixer": mixer, "feedforward": {"kind": "mlp", "hidden": 8}}
    table = {"vocabulary": 11, "dim": 8, "depth": 2, "layers": {"block": layer}, "head": {"tied": True}}
    tokens = torch.arange(10).reshape(2, 5)
    with join_ranks("cpu") as ranks:
        model = build(from_table(table, LanguageConfig), seed=1)
        wanted = model(tokens)
        shard(model, ranks)
        found = model(tokens)
        copy = gathered(model, dict(model.named_parameters()), ranks.device)
        torch.testing.assert_close(found, wanted)
        torch.testing.assert_close(copy(tokens), wanted)
        return sum(type(module).__name__.startswith("FSDP") for module in model.modules())


# --- the same as one process -----------------------------------------------------------------------------------------


def done(answers: list[Any]) -> list[Any]:
    """Return the results of both processes; neither may have failed."""
    traces = [answer.trace for answer in answers if isinstance(answer, Failure)]
    assert not traces, "\n".join(traces)
    return answers


def check_alike(run: Path, wanted: Path) -> None:
    """Compare all that was logged and all that the last checkpoints hold."""
    found, losses = read_metrics(run), read_metrics(wanted)
    assert [(record["step"], record["kind"]) for record in found] == [
        (record["step"], record["kind"]) for record in losses
    ]
    for ours, theirs in zip(found, losses, strict=True):
        for name in theirs.keys() & {"loss", "norm", "perplexity", "rate", "bleu"}:
            assert ours[name] == pytest.approx(theirs[name], abs=1e-5, rel=1e-5), (ours["step"], name)
    states = [load_checkpoint(folder / "checkpoints", pytest.fail) for folder in (run, wanted)]
    assert states[0] is not None
    assert states[1] is not None
    assert (states[0].step, states[0].facts["drawn"]) == (states[1].step, states[1].facts["drawn"])
    torch.testing.assert_close(states[0].tensors, states[1].tensors, atol=1e-5, rtol=1e-5)
    kept = [load_file(folder / "model.safetensors") for folder in (run, wanted)]
    torch.testing.assert_close(kept[0], kept[1], atol=1e-5, rtol=1e-5)
    assert (run / "probe").exists() is (wanted / "probe").exists()
    if (wanted / "probe").exists():
        one, other = read_probe(run), read_probe(wanted)
        assert one.steps == other.steps == (0, 1, 2, 3, 4)
        torch.testing.assert_close(one.inputs, other.inputs, atol=0, rtol=0)
        for step in one.steps:  # which are rounded to three digits
            torch.testing.assert_close(one.weights(step), other.weights(step), atol=1e-3, rtol=0)


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
@pytest.mark.parametrize("case", CASES)
def test_two_processes_learn_what_one_learns(
    place: Place, references: dict[str, Path], case: str, parallel: str
) -> None:
    arguments = place.arguments(case, f"train.parallel={parallel}")
    printed = done(place.pair(train, *arguments))
    assert "done" in printed[0]
    assert printed[1] == ""
    check_alike(arguments[-1], reference(place, references, case))
    names = {path.name for path in (arguments[-1] / "checkpoints" / "step-00000004").iterdir()}
    shards = {f"shard-0000{number}-model-00001-of-00001.safetensors" for number in (1, 2)}
    state = shards if parallel == "fsdp" else {"state.safetensors"}
    assert names == {"facts.json", "checksums.json", *state}  # none of them is a pickle


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_averages_of_batch_norm_agree(place: Place, parallel: str) -> None:
    changes = ["model.layers.block.norm.kind=batch", f"train.parallel={parallel}"]
    first, last = done(place.pair(train_batch_norm, *place.arguments("transformer", *changes)))
    assert len(first) > 0
    assert first == last


@pytest.mark.parametrize(("position", "groups"), [("rope", 3), ("relative-bias", 1)])
def test_layers_are_gathered_one_by_one_unless_they_share_weights(place: Place, position: str, groups: int) -> None:
    assert done(place.pair(answer_in_parts, position)) == [groups, groups]


# --- stopped and resumed ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("case", "before", "after"),
    [
        ("lstm", "fsdp", "one"),
        ("lstm", "one", "fsdp"),
        ("experts", "fsdp", "ddp"),
        ("transformer", "ddp", "fsdp"),
        ("lstm", "ddp", "one"),
    ],
)
def test_a_run_continues_in_other_processes(
    place: Place, references: dict[str, Path], case: str, before: str, after: str
) -> None:
    wanted = reference(place, references, case)
    arguments = place.arguments(case, *([] if before == "one" else [f"train.parallel={before}"]))
    run = arguments[-1]
    if before == "one":
        with pytest.raises(RegardError, match="stopped at step 2"):
            train_until_signal(*arguments)
    else:
        texts = sorted(answer.text for answer in place.pair(train_until_signal, *arguments))
        assert texts[0] == str(128 + signal.SIGTERM)  # both have stopped, one prints it
        assert texts[1] == f"stopped at step 2, everything is saved; continue with: regard train --resume {run}"
    assert not (run / "checkpoints" / "step-00000004").exists()
    if after == "one":
        resume(run)
    else:
        done(place.pair(resume, run, f"train.parallel={after}"))
    check_alike(run, wanted)


def test_damaged_shards_are_detected(place: Place) -> None:
    arguments = place.arguments("lstm", "train.parallel=fsdp", "train.keep=2")
    done(place.pair(train, *arguments))
    folder = arguments[-1] / "checkpoints"
    shard_file = folder / "step-00000004" / "shard-00002-model-00001-of-00001.safetensors"
    data = bytearray(shard_file.read_bytes())
    data[-1] ^= 1
    shard_file.write_bytes(data)
    warnings: list[str] = []
    found = load_checkpoint(folder, warnings.append)
    assert found is not None
    assert found.step == 2
    fault = f"{shard_file.name} does not match its checksum"
    assert warnings == [f"checkpoint step-00000004 is damaged ({fault}); using step-00000002"]


# --- when one fails --------------------------------------------------------------------------------------------------


def test_an_update_that_is_not_finite_in_one_process_is_skipped_by_all(place: Place) -> None:
    runs = []
    for parallel in ("one", "ddp", "fsdp"):
        arguments = place.arguments("experts", *([] if parallel == "one" else [f"train.parallel={parallel}"]))
        if parallel == "one":
            train_with_bad_update(*arguments)
        else:
            done(place.pair(train_with_bad_update, *arguments))
        runs.append(arguments[-1])
    assert [record["step"] for record in read_metrics(runs[0]) if record["kind"] == "train"] == [1, 3, 4]
    for run in runs[1:]:
        check_alike(run, runs[0])


def only_error(answers: list[Any]) -> str:
    """Return the error that one process reports; the other must have ended silently."""
    said = [answer.text for answer in answers if issubclass(answer.kind, RegardError)]
    silent = [answer.text for answer in answers if answer.kind is SystemExit]
    assert (len(said), silent) == (1, ["2"]), "\n".join(answer.trace for answer in answers)
    return str(said[0])


def test_a_mistake_is_reported_once(place: Place) -> None:
    task, recipe, changes, run = place.arguments("lstm")
    missing = {**task, "train": ["nowhere.txt"]}
    assert "nowhere.txt" in only_error(place.pair(train, missing, recipe, changes, run))
    assert "train.stepz" in only_error(place.pair(train, task, recipe, [*changes, "train.stepz=1"], run))
    assert "no such folder" in only_error(place.pair(resume, run))
    assert not run.exists()


def test_the_first_process_takes_the_folder_and_holds_its_lock(place: Place, tmp_path: Path) -> None:
    task, recipe, changes, _ = place.arguments("lstm")
    assert done(place.pair(train_unnamed, tmp_path, task, recipe, changes, None)) == ["runs/language-1"] * 2
    run = tmp_path / "runs" / "language-1"
    with hold_run(run):
        text = only_error(place.pair(resume, run))
        assert text.startswith(f"{run}: process {os.getpid()} on ")
    assert "already holds a run" in only_error(place.pair(train, task, recipe, changes, run))


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_no_process_waits_for_one_that_ran_out_of_memory(place: Place, parallel: str) -> None:
    answers = place.pair(train_without_memory, *place.arguments("transformer", f"train.parallel={parallel}"))
    wanted = "process 1 ran out of memory; continue with --resume and train.accumulate=4"
    assert only_error(answers) == wanted


def test_a_full_disk_of_one_process_keeps_the_last_good_checkpoint(place: Place) -> None:
    arguments = place.arguments("lstm", "train.parallel=fsdp")
    folder = arguments[-1] / "checkpoints"
    text = only_error(place.pair(train_on_full_disk, *arguments))
    assert text.startswith(f"{folder}: cannot save step-00000002")
    assert text.endswith(
        "File too large; free some space there or choose another folder; there is no earlier checkpoint"
    )
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("fault", [RuntimeError("a bug"), RegardError("bad weather")])
def test_a_fault_of_one_process_ends_the_other(place: Place, fault: Exception) -> None:
    first, last = place.pair(fail_alone, fault)
    assert (last.kind, last.text) == (type(fault), str(fault))
    if isinstance(fault, RegardError):  # its error was reported
        assert first.kind is SystemExit
    else:
        assert first.text == "another process of this run was lost; find out why, then continue with --resume"


def fail_alone(fault: Exception) -> None:
    """Fail in the last process while the first waits for it."""
    with join_ranks("cpu") as ranks:
        if not ranks.first:
            raise fault
        ranks.wait()


def test_a_process_that_dies_without_an_answer_is_reported(place: Place) -> None:
    with pytest.raises(pytest.fail.Exception, match=r"a process has died; they said:\nfarewell of 0\n"):
        place.pair(die)


def die() -> None:
    """Exit without an answer."""
    print("farewell of", os.environ["RANK"])
    os._exit(3)


def test_processes_agree(place: Place) -> None:
    assert done(place.pair(agree)) == [(2, 0.25, 3.0)] * 2


def agree() -> tuple[int, float, float]:
    with join_ranks("cpu") as ranks:
        number = ranks.largest(ranks.rank + 1)
        return number, ranks.of_first(0.25 + ranks.rank), float(ranks.sum(torch.tensor(ranks.rank + 1.0)))


def test_processes_must_be_started_by_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    wanted = "WORLD_SIZE=2 is set, but not LOCAL_RANK; start several processes with torchrun"
    with pytest.raises(RegardError, match=wanted), join_ranks("cpu"):
        pass


# --- the command -----------------------------------------------------------------------------------------------------


def test_torchrun_passes_a_signal_on_and_the_run_is_saved(place: Place) -> None:
    task, _, changes, run = place.arguments("transformer", "train.steps=1000", "train.validate_every=1000")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--"]
    command = [str(Path(sys.executable).parent / "regard"), "train", "language", *task["train"], "task.window=16"]
    options = ["train.checkpoint_every=1000", "--run", str(run), "--device", "cpu"]
    process = subprocess.Popen(
        [*torchrun, *command, *changes, *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    lines = []
    with patient(process, signal.SIGTERM):  # which also ends the processes that it has started
        for line in process.stdout:
            lines.append(line)
            if "step" in line and "loss" in line and run.exists():
                process.send_signal(signal.SIGTERM)
                break
        lines += process.stdout.readlines()
        process.wait()
    text = "".join(lines)
    assert text.count("everything is saved; continue with") == 1, text
    found = load_checkpoint(run / "checkpoints", pytest.fail)
    assert found is not None
    assert f"stopped at step {found.step}, " in text


def test_a_process_that_was_killed_is_replaced_and_the_run_continues(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the agent of torchrun; here it forks its processes, since they need not import torch then."""
    monkeypatch.setenv("TORCHELASTIC_SIGNALS_TO_HANDLE", "")  # which the agent changes
    fork_server()
    changes = ["train.parallel=fsdp", "train.steps=12", "train.validate_every=12", "train.checkpoint_every=4"]
    arguments = place.arguments("transformer", *changes)
    logs = DefaultLogsSpecs(str(tmp_path), redirects=Std.ALL)
    places = {"rdzv_backend": "c10d", "rdzv_endpoint": "localhost:0", "run_id": "test"}
    config = LaunchConfig(
        1, 1, 2, logs, max_restarts=1, start_method="forkserver", signals_to_handle="SIGTERM", **places
    )
    before = signal.getsignal(signal.SIGTERM)
    elastic_launch(config, train_and_be_killed_once)(*arguments)
    signal.signal(signal.SIGTERM, before)
    run = arguments[-1]
    assert read_metrics(run)[-1]["step"] == 12
    sessions = (run / "sessions.jsonl").read_text().splitlines()
    assert [json.loads(session)["step"] for session in sessions] == [0, 4]


def train_and_be_killed_once(*arguments: Any) -> None:
    """Train; the last process is killed after the first checkpoint, unless it replaces one that was."""
    advance = Trainer.advance

    def advance_or_die(self: Trainer, draws: Any) -> Any:
        if self.step == 5 and self.ranks.rank == 1 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
            os.kill(os.getpid(), signal.SIGKILL)
        return advance(self, draws)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "advance", advance_or_die)
        train(*arguments)
