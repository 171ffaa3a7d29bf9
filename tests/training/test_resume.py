"""No work is lost: runs of the real command are killed, stopped, damaged or out of disk, and end with the same bits."""

import json
import os
import re
import resource
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file

from regard.config import to_table
from regard.errors import RegardError
from regard.runs.checkpoint import checkpoint_steps, load_checkpoint
from regard.runs.records import read_metrics
from regard.training import background, loop, memory, start, validation
from regard.training.log import Log
from regard.training.memory import UpdateMemory
from regard.training.run import open_run, write_config
from regard.training.schedule import CosineScheduleConfig, LinearScheduleConfig

from ..processes import Ended
from .command import at_moment, at_update, regard, send
from .tiny import data, shrunk, training

ADAM = ("train.optimizer.kind=adamw", "train.optimizer.rate=0.003")
MUON = ("train.optimizer.kind=muon", "train.optimizer.rest.rate=0.003")
RUNS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "transformer": ("language", "gpt2", (*ADAM, "train.accumulate=2", "train.ema=0.9", "train.average=2")),
    "lstm": ("language", "lstm", (*ADAM, "train.accumulate=2")),
    "muon": ("masked", "bert", (*MUON, "train.average=3")),
    "translation": (
        "translation",
        "translator",
        (*ADAM, "train.tokens=512", "task.r_drop=0.5", "train.steps=9", "train.validate_every=5"),
    ),
    "dropout": (  # several epochs, each tokenised in another way
        "translation",
        "translator",
        (*ADAM, "train.tokens=512", "tokenizer.kind=bpe", "tokenizer.vocabulary=300", "tokenizer.dropout=0.3"),
    ),
}
OURS = {"time", "seconds", "tokens_per_second", "memory"}  # what depends on the clock and the machine


@pytest.fixture(autouse=True, scope="module")
def _cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REGARD_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("TOKENIZERS_PARALLELISM", "false")
        yield


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the data of all tasks, and runs that nothing interrupted."""
    return tmp_path_factory.mktemp("files")


def command(name: str, files: Path, run: Path) -> list[str]:
    """Return the command that starts a run."""
    kind, recipe, changes = RUNS[name]
    table: dict[str, Any] = data(kind, files / kind) if not (files / kind).exists() else TABLES[kind]
    TABLES[kind] = table
    if kind == "translation":
        given = ["--source", table["source"][0], "--target", table["target"][0]]
    else:
        given = [table["train"][0], f"task.window={table['window']}"]
    options = ["--recipe", recipe, "--run", str(run), "--device", "cpu"]
    return ["train", kind, *given, *options, *shrunk(recipe), "tokenizer.kind=word", *training(), *changes]


TABLES: dict[str, dict[str, Any]] = {}


@pytest.fixture(scope="module")
def whole(files: Path) -> Callable[[str], Path]:
    """The folder of a run that nothing interrupted."""

    def make(name: str) -> Path:
        run = files / f"whole-{name}"
        if not run.exists():
            assert_well(regard(*command(name, files, run)))
        return run

    return make


def assert_well(ended: Ended) -> None:
    assert ended.code == 0, ended.said


def kept(run: Path) -> dict[str, Any]:
    """Return all that a run has learned and logged, except what depends on the clock."""
    step = checkpoint_steps(run / "checkpoints")[-1]
    folder = run / f"checkpoints/step-{step:08d}"
    facts = json.loads((folder / "facts.json").read_text(encoding="utf-8"))["facts"]
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return {
        "model": (run / "model.safetensors").read_bytes(),
        "state": (folder / "state.safetensors").read_bytes(),
        "facts": {key: value for key, value in facts.items() if key != "seconds"},
        "metrics": [{key: value for key, value in json.loads(line).items() if key not in OURS} for line in lines],
        "samples": (run / "samples.jsonl").read_bytes(),
        "files": sorted(path.name for path in run.iterdir()),
    }


def assert_same(run: Path, other: Path) -> None:
    one, two = kept(run), kept(other)
    for name in one:
        assert one[name] == two[name], name


# --- killed ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RUNS)
def test_a_run_that_is_killed_repeatedly_ends_with_the_same_bits(
    files: Path, tmp_path: Path, whole: Callable[[str], Path], name: str
) -> None:
    """A moment is a change on the disk or an update; a run killed before it had a recipe.toml is started again."""
    chance = np.random.default_rng(sorted(RUNS).index(name))
    run = tmp_path / "run"
    kills = 0
    while True:
        started = (run / "recipe.toml").exists()
        arguments = ["train", "--resume", run, "--device", "cpu"] if started else command(name, files, run)
        kill = partial(at_moment, run, int(chance.integers(2, 40)), partial(send, signal.SIGKILL))
        ended = regard(*arguments, before=kill if kills < 3 else None)
        if ended.code != -signal.SIGKILL:
            break
        kills += 1
    assert_well(ended)
    assert kills >= 2
    assert_same(run, whole(name))


def killed_with_all_written(update: int) -> None:
    """Write files at once in this process, and kill it at an update."""
    background.LARGEST_COPY = 0
    at_update(update, partial(send, signal.SIGKILL))


def test_every_way_to_stop_and_resume_leads_to_the_same_bits(
    files: Path, tmp_path: Path, whole: Callable[[str], Path]
) -> None:
    """Interrupted, terminated, and with a truncated newest checkpoint and another with a wrong bit."""
    run = tmp_path / "the run"
    ended = regard(*command("transformer", files, run), before=partial(at_update, 4, partial(send, signal.SIGINT)))
    how = f"continue with: regard train --resume '{run}'"
    assert (ended.code, ended.said.splitlines()[-1]) == (130, f"regard: stopped at step 4, everything is saved; {how}")
    assert "stopping after this step; a second signal stops at once" in ended.said
    ended = regard("train", "--resume", run, before=partial(at_update, 3, partial(send, signal.SIGTERM)))
    assert (ended.code, ended.said.splitlines()[-1]) == (143, f"regard: stopped at step 7, everything is saved; {how}")
    assert checkpoint_steps(run / "checkpoints") == [6, 7]
    state = run / "checkpoints/step-00000007/state.safetensors"
    os.truncate(state, state.stat().st_size // 2)
    ended = regard("train", "--resume", run, before=partial(killed_with_all_written, 4))
    fault = "state.safetensors does not match its checksum"
    assert f"checkpoint step-00000007 is damaged ({fault}); using step-00000006" in ended.said
    assert checkpoint_steps(run / "checkpoints") == [7, 9]
    state = run / "checkpoints/step-00000009/state.safetensors"
    with state.open("r+b") as file:
        file.seek(-5, os.SEEK_END)
        byte = file.read(1)
        file.seek(-5, os.SEEK_END)
        file.write(bytes([byte[0] ^ 1]))
    ended = regard("train", "--resume", run)
    assert ended.code == 2
    listed = f"step-00000009 ({fault}), step-00000007 ({fault})"
    assert f"every checkpoint is damaged: {listed}; restore one, or remove them to start again" in ended.said
    for path in (run / "checkpoints").iterdir():
        path.rename(tmp_path / path.name)
    ended = regard("train", "--resume", run)
    assert "there is no checkpoint yet; the run starts from the beginning" in ended.said
    assert_well(ended)
    assert_same(run, whole("transformer"))


def test_a_second_signal_stops_at_once(files: Path, tmp_path: Path, whole: Callable[[str], Path]) -> None:
    run = tmp_path / "run"
    both = partial(send, signal.SIGINT, signal.SIGTERM)
    ended = regard(*command("lstm", files, run), before=partial(at_update, 5, both))
    how = f"continue with: regard train --resume {run}"
    lost = "stopped at once, what came after the last checkpoint is lost"
    assert (ended.code, ended.said.splitlines()[-1]) == (143, f"regard: {lost}; {how}")
    assert checkpoint_steps(run / "checkpoints") == [3]
    assert_well(regard("train", "--resume", run))
    assert_same(run, whole("lstm"))


def interrupt_the_end() -> None:
    """Send this process a signal when all is saved."""
    finish = loop.Trainer._finish
    loop.Trainer._finish = lambda trainer: (send(signal.SIGINT), finish(trainer))[1]


def test_when_all_is_saved_one_signal_is_enough(files: Path, tmp_path: Path, whole: Callable[[str], Path]) -> None:
    run = tmp_path / "run"
    ended = regard(*command("muon", files, run), before=interrupt_the_end)
    told = "regard: stopped before the last measurement, everything is saved; continue with: regard train --resume"
    assert (ended.code, ended.said.splitlines()[-1]) == (130, f"{told} {run}")
    assert_well(regard("train", "--resume", run))
    assert_same(run, whole("muon"))


def interrupt_reading(path: str) -> None:
    """Send this process a signal when it first opens a file."""
    sent = False

    def audit(event: str, given: tuple[Any, ...]) -> None:
        nonlocal sent
        if event == "open" and str(given[0]) == path and not sent:
            sent = True
            send(signal.SIGINT)

    sys.addaudithook(audit)


def test_interrupted_while_data_is_read_there_is_no_run_yet(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = command("transformer", files, tmp_path / "run")
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))  # which does not exist yet
    ended = regard(*arguments, before=partial(interrupt_reading, arguments[2]))
    assert ended.code == 130, ended.said
    assert "Traceback" not in ended.said
    assert not (tmp_path / "run").exists()


# --- full disks ------------------------------------------------------------------------------------------------------


def fill_the_disk(place: str, call: int) -> None:
    """Fail the writes of this process from some call on; a limit on the size of files simulates a full disk."""
    of, name = place.split(".")
    holder: Any = {"Log": Log, "loop": loop, "validation": validation}[of]
    write = getattr(holder, name)
    calls = 0

    def limited(*given: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == call:
            resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
        return write(*given, **named)

    setattr(holder, name, limited)


FULL = (  # whichever comes first: files are written while updates continue
    r"checkpoints: cannot save step-0+\d+ \(.*\): File too large; free some space there or .*",
    r"(run/model|averaging/step-0+\d+|probe/\S+)\.safetensors: cannot be written: .*File too large.*; free some .*",
    r"(metrics|samples)\.jsonl: cannot be written: File too large; free some space, then resume",
)


@pytest.mark.parametrize(
    ("place", "call"),
    [
        ("loop.save_checkpoint", 3),
        ("validation.save_model", 2),
        ("validation.keep_weights", 2),
        ("Log.write", 4),
        ("Log.samples", 2),
    ],
)
def test_a_full_disk_is_one_line_and_the_run_can_be_resumed_afterwards(
    files: Path, tmp_path: Path, whole: Callable[[str], Path], place: str, call: int
) -> None:
    run = tmp_path / "run"
    ended = regard(*command("transformer", files, run), before=partial(fill_the_disk, place, call))
    assert ended.code == 2, ended.said
    assert "Traceback" not in ended.said
    assert re.search(f"^regard: .*({'|'.join(FULL)})$", ended.said, re.M), ended.said
    assert load_checkpoint(run / "checkpoints", pytest.fail) is not None
    assert list(run.rglob("*.part")) == []
    assert_well(regard("train", "--resume", run))
    assert_same(run, whole("transformer"))


# --- what --resume does not do ---------------------------------------------------------------------------------------


@pytest.fixture
def _no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "finish", lambda *given: None)


def copy_of(run: Path, folder: Path) -> Path:
    shutil.copytree(run, folder / "copy")
    return folder / "copy"


def resume(run: Path, *changes: str) -> str:
    """Resume in this process; return what was printed."""
    said = StringIO()
    start.resume(run, *changes, device="cpu", console=Console(file=said, width=300))
    return said.getvalue()


@pytest.mark.usefixtures("_no_pictures")
def test_a_run_that_has_ended_stays_as_it_is(tmp_path: Path, whole: Callable[[str], Path]) -> None:
    run = copy_of(whole("transformer"), tmp_path)
    ended = "training ended at step 12; the model is only measured again"
    assert f"{ended}; to train longer, raise train.steps (or train.patience)\n" in resume(run)
    assert_same(run, whole("transformer"))


@pytest.mark.usefixtures("_no_pictures")
def test_the_memory_that_is_needed_is_compared_with_what_is_left_before_the_model_is_built(
    tmp_path: Path, whole: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = copy_of(whole("lstm"), tmp_path)
    monkeypatch.setattr(memory, "available_memory", lambda: 1000)
    monkeypatch.setattr(start, "build_model", lambda *given: pytest.fail("the model is built"))
    rule = (
        r"^not enough memory: training needs at least .* and this machine has 1 kB left; free some memory, or continue"
    )
    with pytest.raises(RegardError, match=rule):
        resume(run, "train.steps=16")
    assert open_run(run).config.train.steps == 12


@pytest.mark.usefixtures("_no_pictures")
def test_updates_that_no_longer_fit_are_split(
    tmp_path: Path, whole: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = copy_of(whole("lstm"), tmp_path)
    monkeypatch.setattr(memory, "bytes_of_state", lambda *given: 0)
    monkeypatch.setattr(memory, "memory_of_update", lambda *given: UpdateMemory(0, 1000))
    config, amount = open_run(run).config.train, open_run(run).task().amount()
    parts = 2 * config.accumulate
    monkeypatch.setattr(memory, "available_memory", lambda: 1000 * min(config.tokens, amount.tokens) // parts + 1)
    assert f"it is split into {parts} parts (train.accumulate), with the same result" in resume(run, "train.steps=16")
    assert checkpoint_steps(run / "checkpoints")[-1] == 16


@pytest.mark.usefixtures("_no_pictures")
def test_a_run_continues_with_more_steps(tmp_path: Path, whole: Callable[[str], Path]) -> None:
    run = copy_of(whole("lstm"), tmp_path)
    assert "has ended" not in resume(run, "train.steps=16")
    assert checkpoint_steps(run / "checkpoints")[-1] == 16
    assert open_run(run).config.train.steps == 16  # for the next time
    steps = [(record["kind"], record["step"]) for record in read_metrics(run)]
    assert steps[-4:] == [("train", 12), ("valid", 12), ("train", 15), ("train", 16), ("valid", 16)][-4:]
    assert len(set(steps)) == len(steps)


@pytest.mark.usefixtures("_no_pictures")
def test_another_schedule_can_be_given_by_its_kind_alone(tmp_path: Path, whole: Callable[[str], Path]) -> None:
    run = copy_of(whole("lstm"), tmp_path)
    before = open_run(run).config.train
    other = CosineScheduleConfig if isinstance(before.schedule, LinearScheduleConfig) else LinearScheduleConfig
    kind = to_table(other(0))["kind"]
    resume(run, f"train.schedule.kind={kind}", "train.steps=14")
    after = open_run(run).config.train
    assert after == replace(before, schedule=after.schedule, steps=14)
    assert isinstance(after.schedule, other)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("model.depth=1", "'model.depth=1': a resumed run keeps its data, its model and its seed; only train.*"),
        ("task.window=4", "'task.window=4': a resumed run keeps its data"),
        ("train.seed=1", "'train.seed=1': a resumed run keeps its data, its model and its seed"),
        ("train. seed=1", "'train. seed=1': a resumed run keeps its data, its model and its seed"),
        ("train.optimizer.kind=muon", "optimizer state: 'exp_avg/"),
        ("train.stops=5", "train.stops: unknown key; did you mean 'steps'"),
    ],
)
def test_a_change_that_does_not_fit_is_refused_and_not_kept(
    tmp_path: Path, whole: Callable[[str], Path], change: str, says: str
) -> None:
    run = copy_of(whole("transformer"), tmp_path)
    with pytest.raises(RegardError, match=re.escape(says)):
        resume(run, change)
    assert (run / "recipe.toml").read_bytes() == (whole("transformer") / "recipe.toml").read_bytes()
    assert_same(run, whole("transformer"))


def change_data(run: Path, lines: list[str]) -> None:
    """Make a run read other lines than before."""
    path = run.parent / "other.txt"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    recipe = (run / "recipe.toml").read_text(encoding="utf-8")
    (text,) = TABLES["language"]["train"]
    (run / "recipe.toml").write_text(recipe.replace(text, str(path)), encoding="utf-8")


def test_data_that_has_changed_is_refused(tmp_path: Path, whole: Callable[[str], Path]) -> None:
    run = copy_of(whole("lstm"), tmp_path)
    change_data(run, ["one two three"] * 50)
    with pytest.raises(
        RegardError, match="the data has changed since the checkpoint: it had texts 1, tokens .*, and now texts 1, tok"
    ):
        resume(run)


@pytest.mark.usefixtures("_no_pictures")
def test_the_same_lines_in_another_order_are_refused_unless_they_are_accepted(
    tmp_path: Path, whole: Callable[[str], Path]
) -> None:
    run = copy_of(whole("lstm"), tmp_path)
    (text,) = TABLES["language"]["train"]
    change_data(run, Path(text).read_text(encoding="utf-8").splitlines()[::-1])
    with pytest.raises(RegardError) as error:
        resume(run, "train.steps=16")
    remedy = "restore the files, or accept the change with --accept-changed-data"
    changed = r"it still has texts 1, tokens [\d,]+, .*, but other content or another order"
    assert re.fullmatch(f"{run}: the data has changed since the checkpoint: {changed}; {remedy}", str(error.value))
    assert_same(run, whole("lstm"))
    said = StringIO()
    console = Console(file=said, width=300)
    start.resume(run, "train.steps=16", device="cpu", console=console, accept_changed_data=True)
    assert re.search(f"^the data has changed: {changed}; the best weights are chosen again", said.getvalue(), re.M)
    found = load_checkpoint(run / "checkpoints", pytest.fail)
    assert found is not None
    assert (found.step, found.facts["best_step"]) == (16, 16)
    resume(run)  # the new data is now that of the run


def test_a_folder_that_is_not_a_run_is_named(tmp_path: Path, whole: Callable[[str], Path]) -> None:
    remedy = "there is no recipe.toml; give the folder that `regard train` printed"
    with pytest.raises(RegardError, match=f"is not the folder of a run: {remedy}$"):
        resume(tmp_path)
    shutil.copy(whole("lstm") / "model.safetensors", tmp_path)
    with pytest.raises(RegardError, match=f"holds a model but no run: {remedy}$"):
        resume(tmp_path)


# --- beginning from other weights ------------------------------------------------------------------------------------


def begin_from(
    model: Path | None, kind: str, folder: Path, *changes: str, recipe: str | None = None
) -> tuple[Path, str]:
    """Train a tiny model from another one; return the folder of the run, and what was printed."""
    said = StringIO()
    words = ["tokenizer.kind=word"] if model is None else []
    start.train(
        data(kind, folder / kind),
        *(shrunk(recipe) if recipe else []),
        *words,
        *training(),
        *changes,
        run=folder / f"{kind}-run",
        recipe=recipe,
        init_from=model,
        device="cpu",
        console=Console(file=said, width=300),
    )
    return folder / f"{kind}-run", said.getvalue()


@pytest.mark.usefixtures("_no_pictures")
def test_from_another_model_only_its_weights_are_taken(tmp_path: Path, whole: Callable[[str], Path]) -> None:
    """The first update moves them as it moves any weights; step, optimizer and the best value are new."""
    given = whole("transformer")
    run, said = begin_from(given, "language", tmp_path, "train.steps=1", "train.keep=2")
    names = load_file(given / "model.safetensors").keys()
    assert f"{len(names)} of {len(names)} weights taken from {given}\n" in said
    first = load_checkpoint(run / "checkpoints", pytest.fail)
    assert first is not None
    assert first.step == 1
    assert first.facts["epoch"] == 0
    counts = {float(tensor) for name, tensor in first.tensors.items() if name.startswith("optimizer/step/")}
    assert counts == {1.0}
    begun = load_file(run / "checkpoints/step-00000000/state.safetensors")
    for name, tensor in load_file(given / "model.safetensors").items():
        assert torch.equal(begun[f"model/{name}"], tensor), name
    assert not any(tensor.any() for name, tensor in begun.items() if name.startswith("optimizer/"))


def test_killed_before_its_first_checkpoint_it_begins_from_these_weights_again(
    tmp_path: Path, files: Path, whole: Callable[[str], Path]
) -> None:
    given = whole("transformer")
    (text,) = TABLES["language"]["train"]
    arguments = ["train", "language", text, "--init-from", given, "--device", "cpu", "task.window=8", *training()]
    assert_well(regard(*arguments, "--run", tmp_path / "whole"))
    ended = regard(*arguments, "--run", tmp_path / "run", before=partial(at_update, 2, partial(send, signal.SIGKILL)))
    assert ended.code == -signal.SIGKILL
    assert_well(regard("train", "--resume", tmp_path / "run"))
    assert_same(tmp_path / "run", tmp_path / "whole")


@pytest.mark.usefixtures("_no_pictures")
def test_a_model_with_another_head_gives_all_but_the_head(tmp_path: Path, whole: Callable[[str], Path]) -> None:
    given = whole("muon")
    run, said = begin_from(given, "classification", tmp_path, "train.steps=1", "train.keep=2", *ADAM)
    begun = load_file(run / "checkpoints/step-00000000/state.safetensors")
    old = load_file(given / "model.safetensors")
    new = [name for name in begun if name.startswith("model/") and name.removeprefix("model/") not in old]
    assert new
    assert all(name.startswith("model/head.") for name in new)
    for name, tensor in old.items():
        if not name.startswith("head."):
            assert torch.equal(begun[f"model/{name}"], tensor), name
    assert re.search(r"^\d+ of \d+ weights taken from .*; new: head\.", said, re.M)


def test_if_nothing_fits_no_folder_is_left(tmp_path: Path, whole: Callable[[str], Path]) -> None:
    """A wider model that is initialised from a narrow one."""
    given = whole("transformer")
    with pytest.raises(RegardError) as error:
        begin_from(given, "language", tmp_path, "model.dim=20", "model.layers.block.feedforward.hidden=28", *ADAM)
    assert str(error.value) == f"{given}: none of its weights fits this model; --init-from needs a similar model"
    assert not (tmp_path / "language-run").exists()


# --- folders ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("model.safetensors", "holds model.safetensors of something else; choose another run=FOLDER"),
        ("checkpoints", "holds checkpoints of something else; choose another run=FOLDER"),
        ("averaging", "holds averaging of something else; choose another run=FOLDER"),
        ("tokenizer.json", "holds tokenizer.json of something else; choose another run=FOLDER"),
        ("report.html", "holds report.html of something else; choose another run=FOLDER"),
    ],
)
def test_a_folder_with_anything_of_a_run_is_refused_untouched(tmp_path: Path, name: str, says: str) -> None:
    folder = tmp_path / "language-run"
    (folder / name).mkdir(parents=True)
    with pytest.raises(RegardError) as error:
        begin_from(None, "language", tmp_path, recipe="gpt2")
    assert str(error.value) == f"{folder}: {says.format(folder)}"
    assert os.listdir(folder) == [name]


def test_a_file_is_not_a_folder_for_a_run(tmp_path: Path) -> None:
    (tmp_path / "language-run").write_text("my notes", encoding="utf-8")
    with pytest.raises(RegardError) as error:
        begin_from(None, "language", tmp_path, recipe="gpt2")
    assert (
        str(error.value)
        == f"{tmp_path / 'language-run'}: is a file, and a run needs a folder; choose another run=FOLDER"
    )


@pytest.mark.usefixtures("_no_pictures")
def test_a_folder_with_other_files_is_taken(tmp_path: Path) -> None:
    folder = tmp_path / "language-run"
    folder.mkdir()
    (folder / "notes.txt").write_text("first try", encoding="utf-8")
    begin_from(None, "language", tmp_path, "train.steps=1", recipe="gpt2")
    assert (folder / "notes.txt").read_text(encoding="utf-8") == "first try"
    assert open_run(folder).config.train.steps == 1


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path, whole: Callable[[str], Path]) -> None:
    config = open_run(whole("lstm")).config
    (tmp_path / "file").touch()
    with pytest.raises(RegardError) as error:
        write_config(tmp_path / "file" / "run", config)
    what = "cannot be written: Not a directory"
    assert str(error.value) == f"{tmp_path / 'file' / 'run'}: {what}; free some space, or choose another run=FOLDER"
