"""A run folder has one owner: runs that start together, are resumed twice, are killed, have failed, are replaced."""

import os
import re
import signal
from functools import partial
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

import regard
from regard.errors import ConfigError, RegardError
from regard.runs.checkpoint import checkpoint_steps
from regard.runs.ownership import check_free, clear_run, hold_run, take_folder, take_next_folder
from regard.runs.records import read_metrics
from regard.training import start
from regard.training.update import Update

from ..processes import Ended
from ..tasks.corpora import write
from ..training.command import at_update, begin_regard, send, wait_for_reader, wait_for_writer
from ..training.command import regard as run_regard
from ..training.tiny import shrunk, training
from ..use.made import run as untrained

TINY = [*shrunk("lstm"), *training(), "tokenizer.kind=char", "train.optimizer.rate=0.003"]
QUIET = Console(file=StringIO())


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(start, "finish", lambda *given: None)
    monkeypatch.chdir(tmp_path)


def text(letters: str) -> str:
    """Write a text of a few letters; return its path."""
    words = [f"{one}{other}" for one in letters for other in letters]
    lines = [" ".join(words[number % 7 :: 3]) for number in range(60)]
    return write(Path(f"{letters}.txt"), lines)


def command(file: str, *options: str | Path) -> list[str | Path]:
    return ["train", "language", file, "task.window=8", "--recipe", "lstm", "--device", "cpu", *options, *TINY]


def train(**options: object) -> regard.training.run.Run:
    """Train in this process."""
    table = {"kind": "language", "train": [text("abcd")], "window": 8}
    return regard.train(table, *TINY, recipe="lstm", device="cpu", console=QUIET, **options)


def assert_well(ended: Ended) -> None:
    assert ended.code == 0, ended.said


# --- two processes ---------------------------------------------------------------------------------------------------


def before_building(act: partial[None]) -> None:
    """Make this process act when its run is planned, before its model is built."""
    build = start.build_model
    start.build_model = lambda *given: (act(), build(*given))[1]


def test_two_runs_that_start_together_get_two_folders_with_their_own_tokenizers(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    waits = (wait_for_writer, wait_for_reader)  # both have planned their run when either continues
    names = ("abcd", "mnop")
    runs = [
        begin_regard(*command(text(letters)), before=partial(before_building, partial(wait, tmp_path / "fifo")))
        for letters, wait in zip(names, waits, strict=True)
    ]
    for run in runs:
        assert_well(run.end())
    found = {}
    for number in (1, 2):
        run = regard.open_run(f"runs/language-{number}")
        (file,) = run.config.task.train
        names_of_tokens = run.tokenizer().names(run.tokenizer().size)
        found[Path(file).stem] = "".join(name for name in sorted(names_of_tokens) if name.isalpha())
    assert found == {name: name for name in names}


def test_the_second_of_two_runs_with_one_name_is_refused_at_once(tmp_path: Path) -> None:
    """The data that it names does not exist, and is not even looked for."""
    os.mkfifo(tmp_path / "fifo")
    meet = partial(before_building, partial(wait_for_writer, tmp_path / "fifo"))
    first = begin_regard(*command(text("abcd"), "--run", "mine"), before=meet)
    with (tmp_path / "fifo").open("w"):
        second = run_regard(*command("missing.txt", "--run", "mine", "--overwrite"))
    assert second.code == 2
    who = r"process \d+ on \S+ has used this folder since [-0-9]+ [:0-9]+"
    assert re.fullmatch(rf"regard: mine: {who}; wait until it ends, or choose another --run FOLDER\n", second.said)
    assert_well(first.end())
    assert read_metrics(Path("mine"))[-1]["step"] == 12


def test_a_second_resume_names_the_process_that_trains_and_disturbs_nothing(tmp_path: Path) -> None:
    stop = partial(at_update, 4, partial(send, signal.SIGTERM))
    assert run_regard(*command(text("abcd"), "--run", "mine"), before=stop).code == 143
    os.mkfifo(tmp_path / "fifo")
    pause = partial(at_update, 2, partial(wait_for_writer, tmp_path / "fifo"))
    first = begin_regard("train", "--resume", "mine", before=pause)
    with (tmp_path / "fifo").open("w"):  # the first waits in its second update
        holder = Path("mine/.lock").read_text(encoding="utf-8")
        second = run_regard("train", "--resume", "mine", "train.steps=20")
    assert (second.code, second.said) == (2, f"regard: mine: {holder}; wait until it ends, or stop it; then resume\n")
    assert_well(first.end())
    steps = [record["step"] for record in read_metrics(Path("mine")) if record["kind"] == "train"]
    assert steps == [5, 10, 12]
    assert not Path("mine/.lock").exists()


def test_a_killed_process_holds_nothing(tmp_path: Path) -> None:
    kill = partial(at_update, 5, partial(send, signal.SIGKILL))
    assert run_regard(*command(text("abcd"), "--run", "mine"), before=kill).code == -signal.SIGKILL
    assert Path("mine/.lock").exists()
    assert_well(run_regard("train", "--resume", "mine"))
    assert read_metrics(Path("mine"))[-1]["step"] == 12


# --- names -----------------------------------------------------------------------------------------------------------


def test_a_run_that_failed_before_its_first_checkpoint_can_be_begun_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:

        def fail(*given: object) -> None:
            raise RegardError("5 updates in a row were not finite")

        patch.setattr(Update, "__call__", fail)
        with pytest.raises(RegardError, match="not finite"):
            train(run="mine")
    assert Path("mine/recipe.toml").exists()
    train(run="mine")
    assert read_metrics(Path("mine"))[-1]["step"] == 12
    with pytest.raises(RegardError) as error:
        train(run="mine")
    remedy = "continue it with regard.resume('mine'), replace it with overwrite=True, or choose another run=FOLDER"
    assert str(error.value) == f"mine: already holds a run; {remedy}"


def test_a_run_is_replaced_only_on_request_and_only_its_own_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when a cell of a notebook is run again."""
    train(run="mine")
    Path("mine/notes.txt").write_text("mine", encoding="utf-8")
    before = Path("mine/model.safetensors").read_bytes()
    with pytest.raises(RegardError, match="missing.txt"):
        regard.train({"kind": "language", "train": ["missing.txt"]}, run="mine", overwrite=True, console=QUIET)
    assert Path("mine/model.safetensors").read_bytes() == before  # nothing is removed until the new run can begin
    run = regard.train(
        {"kind": "language", "train": [text("mnop")], "window": 8},
        *TINY,
        "train.steps=6",
        recipe="lstm",
        run="mine",
        overwrite=True,
        console=QUIET,
    )
    assert (run.folder, run.metrics[-1]["step"]) == (Path("mine"), 6)
    assert checkpoint_steps(Path("mine/checkpoints"))[-1] == 6
    assert Path("mine/notes.txt").read_text(encoding="utf-8") == "mine"
    with pytest.raises(ConfigError, match="overwrite=True needs the folder of the run that it replaces"):
        train(overwrite=True)


@pytest.mark.parametrize("step", ["build_model", "write_config"])
def test_a_failure_before_the_run_begins_leaves_no_folder(monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    def fail(*given: object) -> None:
        raise RegardError("no room")

    monkeypatch.setattr(start, step, fail)
    for run in (None, "deep/er/mine"):
        with pytest.raises(RegardError, match="no room"):
            train(run=run)
    Path("here").mkdir()
    Path("here/notes.txt").touch()
    for _ in range(2):
        with pytest.raises(RegardError, match="no room"):
            train(run="here")
    assert sorted(path.name for path in Path().iterdir()) == ["abcd.txt", "cache", "here"]
    assert os.listdir("here") == ["notes.txt"]


def test_the_next_number_is_created_or_skipped() -> None:
    with take_next_folder(Path("runs"), "language") as one, take_next_folder(Path("runs"), "language") as two:
        assert (one, two) == (1, 2)
        with pytest.raises(RegardError, match="has used this folder since"), hold_run(Path("runs/language-1")):
            pytest.fail("the block must not run")
    assert not Path("runs").exists()  # nothing was written
    Path("runs/language-1").mkdir(parents=True)
    with take_next_folder(Path("runs"), "language") as number:
        Path("runs/language-2/recipe.toml").touch()
    assert number == 2
    assert os.listdir("runs/language-2") == ["recipe.toml"]


def test_a_folder_is_checked_again_when_it_is_locked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process began and ended a run between the check and the lock."""
    makes = Path.mkdir

    def make(path: Path, *given: object, **named: object) -> None:
        makes(path, *given, **named)
        (path / "recipe.toml").touch()
        (path / "model.safetensors").touch()

    monkeypatch.setattr(Path, "mkdir", make)
    with pytest.raises(RegardError, match="mine: already holds a run"), take_folder(Path("mine")):
        pytest.fail("the block must not run")


# --- folders that are free, or not -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["model.safetensors", "checkpoints", "averaging", "probe", "config.json", "tensorboard"]
)
@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_with_parts_of_something_else_is_not_free(tmp_path: Path, name: str, overwrite: bool) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    check_free(folder)
    (folder / "notes.txt").touch()
    check_free(folder)
    (folder / name).mkdir()
    with pytest.raises(RegardError, match=f"holds {name} of something else; choose another run=FOLDER"):
        check_free(folder, overwrite)


def test_a_tokenizer_is_free_only_beside_the_lock_of_a_killed_process(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "tokenizer.json").touch()
    with pytest.raises(RegardError, match=r"holds tokenizer.json of something else"), take_folder(folder):
        pytest.fail("the block must not run")
    (folder / ".lock").touch()
    with take_folder(folder):
        pass


def test_a_run_or_a_file_is_not_free(tmp_path: Path) -> None:
    folder = untrained("language", tmp_path / "run")
    with pytest.raises(RegardError, match="already holds a run"):
        check_free(folder)
    check_free(folder, overwrite=True)
    with pytest.raises(RegardError, match="is a file, and a run needs a folder; choose another run=FOLDER"):
        check_free(folder / "a.txt", overwrite=True)


@pytest.mark.parametrize("name", ["recipe.toml", "metrics.jsonl", "report.html", "model.safetensors"])
def test_a_run_whose_file_is_a_link_is_not_continued(tmp_path: Path, name: str) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "precious").write_text("old")
    (tmp_path / "run" / name).symlink_to(tmp_path / "precious")
    with pytest.raises(RegardError, match=f"run/{name}: is a link, .*; replace it with a copy"), hold_run(Path("run")):
        pytest.fail("the block must not run")
    assert (tmp_path / "precious").read_text() == "old"


def test_a_folder_of_a_run_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "large-disk").mkdir()
    (tmp_path / "run" / "checkpoints").symlink_to(tmp_path / "large-disk")
    with hold_run(Path("run")):
        pass


def test_clearing_a_run_removes_its_files_and_no_linked_folder(tmp_path: Path) -> None:
    folder = untrained("language", tmp_path / "run")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "kept").touch()
    (folder / "checkpoints").symlink_to(tmp_path / "elsewhere")
    (folder / "probe").mkdir()
    (folder / "probe" / "inputs.safetensors").touch()
    (folder / "metrics.jsonl.0123456789ab.part").touch()
    clear_run(folder)
    assert os.listdir(folder) == ["a.txt"]
    assert (tmp_path / "elsewhere" / "kept").exists()


def test_a_run_whose_name_is_not_utf8_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(RegardError, match=r"run\\udcff': is not valid Unicode text; choose another run=FOLDER"):
        check_free(tmp_path / "run\udcff")
    assert list(tmp_path.iterdir()) == []
