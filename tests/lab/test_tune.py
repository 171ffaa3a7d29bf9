"""Tuning: what is searched, successive halving on validation data, continuing, and the recipe that is found."""

import csv
import os
import signal
import sys
import time
import tomllib
from contextlib import suppress
from itertools import count
from math import inf, nan
from pathlib import Path

import pytest
from rich.console import Console

import regard
from regard.errors import ConfigError, RegardError
from regard.lab import halving
from regard.lab import tune as module
from regard.lab.comparison.runs import ComparisonStopError, is_finished
from regard.lab.halving import Halving, Search, TunedRun, TunedSetting, count_settings, rung_sizes, trials_table
from regard.lab.search_space import changes_for, draw_settings, find_dropouts, search_space, suggested_settings
from regard.lab.tune import tune
from regard.training import start
from regard.training.draft import RunPlan
from regard.training.planning import plan_run
from regard.training.ranks import join_ranks
from regard.training.request import RunRequest
from regard.training.trial import Trial
from tests.cli.command import Command
from tests.processes import PATIENCE, Forked
from tests.tasks.corpora import sentences, write

QUIET = Console(quiet=True)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(start, "finish", lambda *facts: None)


@pytest.fixture
def text(tmp_path: Path) -> dict[str, object]:
    return {"kind": "language", "train": [write(tmp_path / "a.txt", sentences(120))], "window": 16}


def plan(what: dict[str, object], *changes: str, **options: str) -> tuple[RunPlan, RunRequest]:
    request = RunRequest(what, changes, **options)
    with join_ranks("cpu") as ranks:
        return plan_run(request, ranks), request


# --- what is searched ------------------------------------------------------------------------------------------------


def test_what_the_user_decided_is_not_searched(text) -> None:
    found, _ = plan(text)

    def searched(*changes: str, named: bool = False, size: str = "auto") -> set[str]:
        return set(search_space(found, RunRequest(text, changes, size), named, "cpu"))

    assert searched() == {"rate", "size", "dropout"}  # characters have no vocabulary to choose
    assert searched("train.optimizer.rate=0.01") == {"size", "dropout"}
    assert searched("model.layers.block.dropout=0.1") == {"rate", "size"}
    assert searched("model.dim=32") == {"rate", "dropout"}
    assert searched(size="small") == searched(named=True) == {"rate", "dropout"}
    with pytest.raises(ConfigError, match="nothing is left to search"):
        searched("train.optimizer.rate=0.01", "model.layers.block.dropout=0.1", size="tiny")


def test_a_learned_vocabulary_is_searched(tmp_path) -> None:
    rows = [f"{line}\t{number % 2}" for number, line in enumerate(sentences(60))]
    found, request = plan({"kind": "classification", "train": [write(tmp_path / "a.tsv", rows)]})
    assert "vocabulary" in search_space(found, request, False, "cuda")
    half = found.config.tokenizer.vocabulary // 2
    assert changes_for({"vocabulary": 0.5}, found) == [f"tokenizer.vocabulary={half}"]


def test_settings_are_factors_of_what_is_suggested(text) -> None:
    found, _ = plan(text)
    rate, rest = found.config.train.optimizer.rate, found.config.train.optimizer.rest.rate
    changes = changes_for({"rate": 2.0, "size": "tiny", "dropout": 0.3}, found)
    assert changes[:2] == [f"train.optimizer.rate={2 * rate:.4g}", f"train.optimizer.rest.rate={2 * rest:.4g}"]
    assert changes[2:] == [f"{path}=0.3" for path in find_dropouts(found)]
    assert "model.layers.block.dropout" in find_dropouts(found)
    changed, _ = plan(text, *changes)
    assert changed.config.model.layers["block"].dropout == 0.3
    assert changes_for({}, found) == []


def test_settings_differ_and_the_first_is_what_the_task_suggests() -> None:
    space = {"rate": (0.5, 1.0, 2.0), "size": ("tiny", "small")}
    suggested = {"rate": 1.0, "size": "tiny"}
    found = draw_settings(space, 5, suggested)
    assert found[0] == {}
    assert len({str(settings) for settings in found}) == 5
    assert found == draw_settings(space, 5, suggested)  # the same every time
    every = draw_settings(space, 27, suggested)
    assert len(every) == 6  # there are no more
    assert suggested not in every  # which is the first
    assert {settings["rate"] for settings in every[1:]} == {0.5, 1.0, 2.0}


def test_what_the_task_suggests_is_a_setting_of_the_space(text) -> None:
    found, request = plan(text)
    space = search_space(found, request, False, "cpu")
    assert suggested_settings(found, space) == {"rate": 1.0, "size": "tiny", "dropout": 0.0}
    mixed, _ = plan(text, "model.embed.dropout=0.3")
    assert suggested_settings(mixed, space)["dropout"] is None


# --- halving ---------------------------------------------------------------------------------------------------------


def test_a_third_of_a_rung_continues() -> None:
    assert rung_sizes(27) == [27, 9, 3, 1]
    assert rung_sizes(7) == [7, 3, 1]
    assert [count_settings(60.0 * minutes, 2) for minutes in (1, 8, 28)] == [3, 9, 27]
    search = Search("loss", [TunedSetting(n, {}, [], 1.0, [10], [score]) for n, score in enumerate((3.0, 1.0, 2.0), 1)])
    assert [each.number for each in search.members(1)] == [2]  # a low loss is better
    search.metric = "accuracy"
    assert [each.number for each in search.members(1)] == [1]
    search.candidates[0].scores = [float("nan")]
    assert [each.number for each in search.members(1)] == [3]
    search.candidates[1].scores.append(0.5)
    assert search.best() is search.candidates[1]  # it came further


class Trainer:
    """Trains runs in this process, instead of in others, and is stopped before a certain run."""

    def __init__(self, stop_before: int | None = None, fails: str = "") -> None:
        self.begun: list[list[str]] = []
        self.stop_before, self.fails = stop_before, fails

    def __call__(self, runs: list[TunedRun], *facts: object) -> dict[str, str]:
        failed = {}
        watch = facts[-1]
        for run in runs:
            watch(failed)
            if is_finished(run):
                continue
            if len(self.begun) == self.stop_before:
                raise ComparisonStopError(0, 1, 2)
            self.begun.append(arguments := run.arguments())
            if run.name == self.fails:
                failed[run.title] = "not enough memory"
            elif "--resume" in arguments:
                regard.resume(arguments[2], *arguments[3:], console=QUIET)
            else:
                changes = [word for word in arguments[2:] if "=" in word]
                size = arguments[arguments.index("--size") + 1]
                regard.train(arguments[1], *changes, run=run.folder, size=size, console=QUIET)
        return failed


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Settings of a tiny model, and rungs of a few updates, in which no time passes."""
    monkeypatch.setattr(halving, "LEAST_UPDATES", 2)
    monkeypatch.setattr(module, "time_updates", lambda *facts: Trial(1e9, 0))  # so slow that each rung has the least
    monkeypatch.setattr(halving, "monotonic", lambda: 0.0)  # the time is never over, however busy the machine is
    return ["model.dim=16", "model.depth=1", "train.tokens=64", "train.validate_every=2"]


def test_the_best_continues_from_its_checkpoint_and_becomes_a_recipe(text, short, monkeypatch) -> None:
    trainer = Trainer(fails="trial-02")
    monkeypatch.setattr(halving, "train_runs", trainer)
    folder = tune(text, *short, minutes=0.1, jobs=2, device="cpu", console=QUIET)
    assert folder.parent.name == "tuned"
    search = module._open(folder)
    assert [len(each.scores) for each in search.candidates].count(2) == 1
    assert [len(each.scores) for each in search.candidates].count(1) == 1
    assert search.candidates[1].failure == "not enough memory"
    best = search.best()
    resumed = next(words for words in trainer.begun if "--resume" in words)
    assert resumed[2:] == [str(folder / f"trial-{best.number:02d}"), "train.steps=4"]
    rows = list(csv.DictReader((folder / "trials.csv").open()))
    assert [row["state"] for row in rows if row["trial"] == "2"] == ["failed: not enough memory"]
    assert {row["updates"] for row in rows} == {"2", "4"}
    table = tomllib.loads((folder / "found.toml").read_text())
    assert table["model"]["dim"] == 16
    assert table["train"]["tokens"] == 64
    assert "steps" not in table["train"]  # its length follows from the data
    with join_ranks("cpu") as ranks:
        found = plan_run(RunRequest(folder / "found.toml"), ranks).config
    assert found.train.optimizer == regard.open_run(folder / f"trial-{best.number:02d}").config.train.optimizer
    named = plan(text, recipe=str(folder / "found.toml"))[0].config
    assert named.model == found.model  # the architecture also suits `regard train TASK FILES --recipe found.toml`


def test_the_same_command_continues_a_search_and_trains_nothing_twice(text, short, monkeypatch) -> None:
    first, second = Trainer(stop_before=2), Trainer()
    monkeypatch.setattr(halving, "train_runs", first)
    with pytest.raises(ComparisonStopError, match="the same command continues: b$") as stopped:
        tune(text, *short, minutes=0.1, jobs=2, device="cpu", console=QUIET, out="b")
    assert stopped.value.exit_code == 130
    assert [len(each.scores) for each in module._open(Path("b")).candidates] == [1, 1, 0]
    assert Path("b/found.toml").exists()  # the best so far
    monkeypatch.setattr(halving, "train_runs", second)
    folder = tune(text, *short, minutes=0.1, jobs=2, device="cpu", console=QUIET, out="b")
    assert [words[1] == "--resume" for words in (*first.begun, *second.begun)] == [False, False, False, True]
    assert trials_table(module._open(folder)).count("done") == 4
    with pytest.raises(RegardError, match="b: holds a search with other settings; choose another --out"):
        tune(text, *short, minutes=0.2, jobs=2, device="cpu", console=QUIET, out="b")


def test_a_rung_gets_an_even_share_of_the_time_and_every_setting_the_same() -> None:
    slow, fast = TunedSetting(1, {}, [], 0.2), TunedSetting(2, {}, [], 0.1)
    search = Search("loss", [slow, fast], starting=10.0)
    rungs = Halving(Path(), search, 200.0, 2, ["cpu"], QUIET)
    rungs._save = lambda: None
    assert rungs._time(2, 2) == 90.0  # 100 s for the rung, of which starting takes 10
    assert rungs._time(2, 3) == 40.0  # two at a time, so the third follows
    rungs._plan([slow, fast], 90.0)
    assert (slow.updates, fast.updates) == ([450], [900])
    slow.scores, fast.scores, search.spent = [1.0], [2.0], 120.0
    rungs._note_starting(120.0, 0, [slow, fast])
    assert search.starting == pytest.approx(30.0)
    rungs._plan([fast], rungs._time(1, 1))
    assert fast.updates == [900, 900 + 500]


def test_a_part_of_a_rung_does_not_say_what_starting_takes(text, short, monkeypatch) -> None:
    noted = []
    monkeypatch.setattr(Halving, "_note_starting", lambda rungs, seconds, rung, members: noted.append(rung))
    for trainer in (Trainer(stop_before=2), Trainer()):
        monkeypatch.setattr(halving, "train_runs", trainer)
        with suppress(ComparisonStopError):
            tune(text, *short, minutes=0.1, jobs=2, device="cpu", console=QUIET, out="b")
    assert noted == [1]  # the first rung was interrupted


# --- failures --------------------------------------------------------------------------------------------------------


def test_a_setting_that_failed_is_tried_once_more(text, short, monkeypatch, capsys) -> None:
    def search(trainer: Trainer) -> Search:
        monkeypatch.setattr(halving, "train_runs", trainer)
        return module._open(tune(text, *short, minutes=0.1, jobs=2, device="cpu", console=Console(width=200), out="b"))

    assert not search(Trainer(fails="trial-02")).candidates[1].retried
    assert "1 setting failed; b/trials.csv says why; the same command tries once more" in capsys.readouterr().out
    second = Trainer(fails="trial-02")
    found = search(second)
    assert [words[-1] for words in second.begun] == ["b/trial-02"]  # nothing else is trained
    said = capsys.readouterr().out
    assert "1 setting that failed before: trying once more" in said
    assert "1 setting failed twice; b/trials.csv says why\n" in said
    assert ",failed twice: not enough memory," in trials_table(found)
    third = Trainer()
    assert search(third).candidates[1].failure == "not enough memory"
    assert third.begun == []


def test_a_setting_that_failed_before_an_interruption_is_tried_only_once_more(text, short, monkeypatch) -> None:
    retried = []
    for trainer in (Trainer(stop_before=2, fails="trial-02"), Trainer(fails="trial-02")):
        monkeypatch.setattr(halving, "train_runs", trainer)
        with suppress(ComparisonStopError):
            tune(text, *short, minutes=0.1, jobs=2, device="cpu", console=QUIET, out="b")
        retried.append((module._open(Path("b")).candidates[1].failure, module._open(Path("b")).candidates[1].retried))
    assert retried == [("not enough memory", False), ("not enough memory", True)]


def test_a_setting_that_succeeds_late_gets_the_time_of_the_others(text, short, monkeypatch) -> None:
    monkeypatch.setattr(Search, "rank", lambda search, each, rung: (2, 1, 3).index(each.number))
    monkeypatch.setattr(halving, "train_runs", Trainer(fails="trial-02"))
    tune(text, *short, minutes=0.1, jobs=2, device="cpu", console=QUIET, out="b")
    monkeypatch.setattr(halving, "train_runs", Trainer())
    found = module._open(tune(text, *short, minutes=0.1, jobs=2, device="cpu", console=QUIET, out="b"))
    assert [each.updates for each in found.candidates] == [[2, 4], [2, 4], [2]]  # the first continued meanwhile
    assert found.best() is found.candidates[1]


def fail(runs: list[TunedRun], *facts: object) -> dict[str, str]:
    return {run.title: "not enough memory" for run in runs}


def test_if_all_settings_fail_the_error_says_what_to_do(text, short, monkeypatch) -> None:
    monkeypatch.setattr(halving, "train_runs", fail)
    for remedy in ("the same command tries once more", "choose another --out"):
        with pytest.raises(RegardError, match=f"b: no setting could be trained: not enough memory; {remedy}$"):
            tune(text, *short, minutes=0.1, jobs=2, device="cpu", console=QUIET, out="b")


def search_until_killed(here: Path, what: dict[str, object], changes: list[str], program: Path) -> None:
    """Search with runs that never end, in a process that the test kills."""
    os.chdir(here)
    sys.executable = str(program)
    halving.SAVED_EVERY = 0.0
    halving.monotonic = time.monotonic
    module.time_updates = lambda *facts: Trial(1e9, 0)
    tune(what, *changes, minutes=0.1, jobs=1, device="cpu", console=QUIET, out="b")


def test_time_before_a_kill_counts(text, short, monkeypatch, tmp_path) -> None:
    program, process = tmp_path / "train.sh", tmp_path / "process"
    program.write_text(f"#!/bin/sh\necho $$ > {process}\nexec sleep 600\n")
    program.chmod(0o755)
    killed = Forked(search_until_killed, tmp_path, text, short, program)
    try:
        last = time.monotonic() + PATIENCE
        while not ((found := _saved()) and found.spent > 0.3 and process.exists()):
            assert time.monotonic() < last, killed.abort()
            time.sleep(0.01)
    finally:
        killed.kill()
        if process.exists():
            os.kill(int(process.read_text()), signal.SIGKILL)
    before = _saved()
    assert [each.scores for each in before.candidates] == [[], [], []]
    assert before.spent > 0.3
    monkeypatch.setattr(halving, "train_runs", fail)
    monkeypatch.setattr(halving, "monotonic", count().__next__)  # asked at the beginning, then twice
    with pytest.raises(RegardError, match="no setting could be trained"):
        tune(text, *short, minutes=0.1, jobs=1, device="cpu", console=QUIET, out="b")
    assert _saved().spent == before.spent + 2  # it is added to, and counted once


def _saved() -> Search | None:
    return module._open(Path("b"))


def test_a_search_that_is_much_shorter_than_a_run_says_so(tmp_path, capsys) -> None:
    search = Search("loss", [TunedSetting(1, {}, [], 1.0, [20, 40], [2.0, 1.5])], steps=600)
    said = Console(width=200)
    module.print_search(said, search, tmp_path)
    assert "The best was trained for 40 updates, a run has 600: a setting that wins early" in capsys.readouterr().out
    search.steps = 100
    module.print_search(said, search, tmp_path)
    assert "wins early" not in capsys.readouterr().out


def test_only_the_length_of_training_cannot_be_decided_by_the_user(text) -> None:
    with pytest.raises(ConfigError, match="the search decides how long each setting is trained"):
        tune(text, "train.steps=3", minutes=1.0)
    with pytest.raises(ConfigError, match="minutes=-1 must be above 0"):
        tune(text, minutes=-1.0)
    for minutes in (nan, inf):
        with pytest.raises(ConfigError, match=f"minutes={minutes} must be a finite number"):
            tune(text, minutes=minutes)


def test_after_a_mistake_the_corrected_command_may_have_the_same_folder(text, short, monkeypatch) -> None:
    monkeypatch.setattr(halving, "train_runs", Trainer())
    with pytest.raises(ConfigError, match="depht: unknown key"):
        tune(text, *short, "model.depht=2", minutes=0.1, jobs=2, device="cpu", console=QUIET, out="b")
    tune(text, *short, minutes=0.1, jobs=2, device="cpu", console=QUIET, out="b")
    Path("own").mkdir()
    Path("own/task.toml").write_text("# of the user\n")
    with pytest.raises(RegardError, match="own: holds a search with other settings; choose another --out"):
        tune(text, *short, minutes=0.1, jobs=2, device="cpu", console=QUIET, out="own")


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        (["--size", "huge"], "--size 'huge' is unknown; use one of auto, base, big, mini, small, tiny"),
        (["--recipe", "nonsense"], "no recipe has the name 'nonsense'; "),
        (["--recipe", "arch.toml"], "arch.toml: model.depht: unknown key; did you mean 'depth'?"),
        (["model.depht=3"], "model.depht: unknown key; did you mean 'depth'?"),
        (['task.valid=["none.txt"]'], "none.txt: no such file"),
        (["--out", "tuned/deep/own", "--size", "huge"], "--size 'huge' is unknown"),
    ],
)
def test_a_mistake_leaves_nothing_behind_and_names_no_file_that_the_command_wrote(
    monkeypatch, capsys, text, options, rule
) -> None:
    Path("arch.toml").write_text('like = "gpt2"\n[model]\ndepht = 3\n')
    Path("corpus.txt").write_text(Path("a.txt").read_text())
    found = Command(monkeypatch, capsys).refused("tune", "language", "corpus.txt", "--minutes", 1, *options)
    assert found.startswith(rule)
    assert not Path("tuned").exists()


def test_mistakes_of_the_command_are_one_line(monkeypatch, capsys, text) -> None:
    command = Command(monkeypatch, capsys)
    assert command.refused("tune", "languge", "a.txt", "--minutes", 1).startswith(
        "'languge' is not a task; did you mean"
    )
    Path("full").mkdir()
    Path("full/mine.txt").write_text("x")
    found = command.refused("tune", "language", "a.txt", "--minutes", 1, "--out", "full")
    assert found == "full: is not empty, and holds no search; choose another --out"
    assert command.refused("tune", "language", "a.txt", "--minutes", 0) == "--minutes 0 must be above 0"
