"""Comparisons: an equal budget, runs that are kept and resumed, the table, the page, and mistakes."""

import csv
import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass, replace
from functools import partial
from io import StringIO
from math import inf, nan
from pathlib import Path

import pytest
from rich.console import Console

import regard as package
from regard.atomic import lock
from regard.errors import InputError, RegardError
from regard.extend import known_only_here, open_registry, register
from regard.lab.comparison import compare as module
from regard.lab.comparison import plan as compare_plan
from regard.lab.comparison import runs as compare_runs
from regard.lab.comparison.budget import Budget
from regard.lab.comparison.compare import compare
from regard.lab.comparison.models import find_contenders, find_task
from regard.lab.comparison.page import draw_comparison, verdict_sentences
from regard.lab.comparison.plan import CompareSettings, plan_recipes
from regard.lab.comparison.runs import ComparisonStopError
from regard.lab.comparison.table import Comparison, RunRecord, choose_metric, compare_records
from regard.parts.score import ScoreConfig
from regard.runs.layout import CHECKPOINTS
from regard.runs.records import read_metrics
from regard.training import start
from regard.training.optimizer import AdamWConfig, MuonConfig
from regard.training.run import open_run
from regard.use.evaluate import Evaluation

from ..cli.command import Command
from ..tasks.corpora import sentences, write
from ..training.command import regard
from ..training.tiny import ALONE

TINY = ("model.dim=16", "model.depth=1", "train.tokens=64", "task.window=8", "tokenizer.kind=word")
QUIET = Console(quiet=True)
NARROW = """like = "gpt2"
[model.embed.position]
length = 6
"""
OWN = """like = "lstm"
[train.optimizer]
kind = "adamw"
rate = 0.003
betas = [0.9, 0.9]
"""


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A folder with a text, and a finished comparison of two architectures in it."""
    folder = tmp_path_factory.mktemp("compare")
    write(folder / "a.txt", sentences(120, seed=1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REGARD_CACHE", str(folder / "cache"))
        patch.setattr(start, "finish", lambda *given: None)  # drawing takes longer than learning
        patch.chdir(folder)
        table = compare("gpt2", "lstm", *TINY, on="a.txt", steps=12, seeds=2, jobs=0, device="cpu", console=QUIET)
        yield folder, table


@pytest.fixture
def here(world, monkeypatch):
    """The folder, in which nothing is drawn any more."""
    folder, _ = world
    monkeypatch.setenv("REGARD_CACHE", str(folder / "cache"))
    monkeypatch.chdir(folder)
    monkeypatch.setattr(start, "finish", lambda *given: None)
    monkeypatch.setattr(module, "draw_pictures", lambda draw, folder: [])
    return folder


@pytest.fixture
def trained(monkeypatch) -> list[str]:
    """The names of the runs that are trained or resumed from here on."""
    names: list[str] = []

    def noting(do, *given, **options):
        names.append(Path(options.get("run", given[0])).name)
        return do(*given, **options)

    for name in ("train", "resume"):
        monkeypatch.setattr(compare_runs, name, partial(noting, getattr(compare_runs, name)))
    return names


def again(*models: str, **options):
    """Run the finished comparison again."""
    return compare(
        *(models or ("gpt2", "lstm")),
        *TINY,
        **{"on": "a.txt", "steps": 12, "seeds": 2, "jobs": 0, "device": "cpu", "console": QUIET} | options,
    )


def plan(*models: object, kind: str = "language", budget=None, size: str = "auto", jobs: int | None = 1, **options):
    """Plan a comparison, without training."""
    contenders = find_contenders(models)
    table = {"kind": kind, "train": ["a.txt"]}
    changes = options.pop("changes", ("train.tokens=64", "task.window=8", "tokenizer.kind=word"))
    given = {"parameters": None, "changes": changes, "own_optimizer": False, "device": "cpu"} | options
    settings = CompareSettings(table, budget, size, **given)
    return plan_recipes(contenders, settings, {}, ALONE, 3, jobs, lambda text: None)


# --- what is trained -------------------------------------------------------------------------------------------------


def test_all_models_spend_the_same_on_the_same_data(world):
    _, table = world
    configs = [open_run(path).config for path in sorted((table.folder / "runs").iterdir())]
    assert [path.name for path in sorted((table.folder / "runs").iterdir())] == ["gpt2-0", "gpt2-1", "lstm-0", "lstm-1"]
    assert [config.train.seed for config in configs] == [0, 1, 0, 1]
    one, *others = (replace(config.train, seed=0, optimizer=configs[0].train.optimizer) for config in configs)
    assert all(other == one for other in others)
    assert all(isinstance(config.train.optimizer, MuonConfig) for config in configs)
    gpt2, lstm = configs[0].train.optimizer, configs[2].train.optimizer
    assert [config.train.optimizer for config in configs] == [gpt2, gpt2, lstm, lstm]
    higher = replace(gpt2, rate=1.5 * gpt2.rate, rest=replace(gpt2.rest, rate=4 * gpt2.rest.rate))
    assert lstm == higher  # its layers are recurrent
    assert all((config.task, config.tokenizer) == (configs[0].task, configs[0].tokenizer) for config in configs)
    assert (configs[0].train.steps, configs[0].train.patience) == (12, None)  # no run ends early
    assert configs[0].model != configs[2].model


def test_the_table_has_the_spread_the_test_and_the_cost(world):
    _, table = world
    assert (table.task, table.metric) == ("language", "loss")
    best, other = table.rows
    assert {best["model"], other["model"]} == {"gpt2", "lstm"}
    values = [run["loss"] for run in table.runs if run["model"] == best["model"]]
    assert best["loss"] == pytest.approx(sum(values) / 2)
    assert best["loss_sd"] == pytest.approx(abs(values[0] - values[1]) / 2**0.5)
    assert best["loss_low"] < best["loss"] < best["loss_high"]
    assert best["loss"] <= other["loss"]
    assert (best["p"], best["against"]) == (None, None)
    assert (other["against"], other["difference"]) == (best["model"], pytest.approx(other["loss"] - best["loss"]))
    assert 0 < other["p"] <= 1
    assert other["significant"] is (other["p"] < 0.05)
    for row in table.rows:
        assert (row["runs"], row["steps"]) == (2, 12)
        assert 10 * 64 < row["tokens"] <= 12 * 64  # the last batch of a pass has fewer rows
        assert row["parameters"] > 0
        assert row["flops"] > 0
        assert row["tokens_per_second"] == pytest.approx(row["tokens"] / row["seconds"], rel=0.01)


def test_a_notebook_and_pandas_can_show_the_table(world):
    _, table = world
    assert str(table).splitlines()[0].split()[:2] == ["model", "loss"]
    assert "Welch's t-test over 2 runs each" in str(table)
    assert "\x1b" not in str(table)
    assert table._repr_html_().count("<tr>") == 3
    assert all(type(value) in (str, int, float, bool, type(None)) for row in table.rows for value in row.values())
    assert list(table.rows[0]) == list(table.rows[1])


def test_the_folder_has_the_numbers_the_curves_and_a_page(world):
    _, table = world
    rows = list(csv.DictReader((table.folder / "table.csv").open()))
    assert [row["model"] for row in rows] == [row["model"] for row in table.rows]
    assert float(rows[0]["loss"]) == pytest.approx(table.rows[0]["loss"])
    runs = [json.loads(line) for line in (table.folder / "runs.jsonl").read_text().splitlines()]
    assert runs == table.runs
    curves = [json.loads(line) for line in (table.folder / "curves.jsonl").read_text().splitlines()]
    assert {(row["model"], row["seed"]) for row in curves} == {(m, s) for m in ("gpt2", "lstm") for s in (0, 1)}
    assert {"step", "tokens", "seconds", "flops", "loss"} <= curves[0].keys()
    for name in ("step", "tokens", "flops", "seconds"):
        assert (table.folder / f"curves-{name}.svg").is_file()
        assert (table.folder / f"curves-{name}.png").is_file()
    page = (table.folder / "index.html").read_text()
    assert page.count("<figure>") == 4
    assert f"regard look -m {table.folder}/runs/gpt2-0" in page
    assert re.search(rf"regard look -m {table.folder}/runs/\w+-0 -m {table.folder}/runs/\w+-0", page)
    command = f"regard train {table.folder}/recipes/lstm.toml train.seed=1 --run {table.folder}/runs/lstm-1"
    assert command in page
    assert "regard compare gpt2 lstm --on a.txt --task language --steps 12 --seeds 2" in page


@pytest.mark.parametrize(("unit", "name"), [("tok", "tokens"), ("texts", "texts"), ("hidden tok", "hidden tokens")])
def test_the_curves_name_what_the_log_counts(unit, name):
    rows = [{"model": "bert", "seed": 0, "step": step, "tokens": 9000 * step, "loss": 1 / step} for step in (1, 2)]
    spent = [
        picture.caption.partition(":")[0].rpartition(" over ")[2] for picture in draw_comparison(rows, "loss", unit)
    ]
    assert spent == ["updates", name]


# --- what is kept ----------------------------------------------------------------------------------------------------


def test_the_same_command_trains_nothing_again(here, world, trained):
    _, table = world
    same = again()
    assert trained == []
    assert (same.folder, same.rows) == (table.folder, table.rows)


def test_more_seeds_and_models_train_only_what_is_new(here, trained):
    table = again("gpt2", "lstm", "elman", seeds=2)
    assert trained == ["elman-0", "elman-1"]
    assert len(table.rows) == 3
    assert "corrected for 2 comparisons (Holm)" in str(table)
    assert [row["runs"] for row in again(seeds=1).rows] == [1, 1]
    assert "They cannot be tested with one run each" in str(again(seeds=1))


def test_other_settings_are_another_comparison(here, world):
    _, table = world
    with pytest.raises(RegardError, match=r"holds a comparison with other settings: budget is .*; choose another fol"):
        again(steps=13, out=table.folder)
    (here / "other").mkdir()
    (here / "other" / "mine.txt").write_text("")
    with pytest.raises(RegardError, match="other: holds something else; choose another folder with --out"):
        again(out="other")


def test_a_damaged_comparison_elsewhere_does_no_harm(here, trained):
    broken = here / "comparisons" / "language-0"
    broken.mkdir(parents=True)
    (broken / "comparison.json").write_text("{")
    assert again().folder.name == "language-1"
    with pytest.raises(RegardError, match=r"comparison.json: .*; choose another folder with --out, or remove this one"):
        again(out=broken)


def test_a_recipe_that_has_changed_is_not_compared_with_its_past(here, trained):
    (here / "mine.toml").write_text('like = "elman"\n[model]\ndim = 12\n')
    changes = [change for change in TINY if change != "model.dim=16"]
    options = {"on": "a.txt", "steps": 2, "seeds": 1, "jobs": 0, "device": "cpu", "console": QUIET, "out": "changed"}
    compare("mine.toml", *changes, **options)
    (here / "mine.toml").write_text('like = "elman"\n[model]\ndim = 14\n')
    with pytest.raises(RegardError, match="changed: mine has changed since this comparison began: model.dim; give it"):
        compare("mine.toml", *changes, **options)
    assert trained == ["mine-0"]


def test_two_at_once_do_not_share_a_folder(here, world):
    _, table = world
    with lock(table.folder / ".lock"), pytest.raises(RegardError, match=rf"process {os.getpid()} on .* has used this"):
        again()


def test_a_signal_keeps_what_is_finished(here, monkeypatch, trained):
    finish = compare_runs.RunsDisplay.end

    def interrupt(display, run, failure):
        finish(display, run, failure)
        if run.seed == 0:  # the next run gets it
            learn = start.Trainer.advance
            monkeypatch.setattr(
                start.Trainer, "advance", lambda *given: (os.kill(os.getpid(), signal.SIGINT), learn(*given))[1]
            )

    with monkeypatch.context() as patch:
        patch.setattr(compare_runs.RunsDisplay, "end", interrupt)
        with pytest.raises(
            ComparisonStopError, match="stopped; 1 of 2 runs are finished, .*; the same command"
        ) as stop:
            again("elman", steps=5, out="stopped")
    assert stop.value.exit_code == 130
    monkeypatch.undo()
    monkeypatch.chdir(here)
    monkeypatch.setenv("REGARD_CACHE", str(here / "cache"))
    monkeypatch.setattr(start, "finish", lambda *given: None)
    table = again("elman", steps=5, out="stopped")
    assert [run["steps"] for run in table.runs] == [5, 5]
    assert len(read_metrics(here / "stopped" / "runs" / "elman-0")) > 0


def test_a_run_that_fails_is_named_and_the_others_are_compared(here, monkeypatch):
    learn = compare_runs.train

    def fail(recipe, change, **options):
        if change == "train.seed=1":
            raise RegardError("5 updates in a row were not finite")
        return learn(recipe, change, **options)

    monkeypatch.setattr(compare_runs, "train", fail)
    table = again("elman", steps=3, out="failed")
    assert table.failures == {"elman, seed 1": "5 updates in a row were not finite"}
    assert table.rows[0]["runs"] == 1
    assert "elman, seed 1 failed: 5 updates in a row were not finite" in str(table)


STOP = """
import os, signal, sys
from regard.training import start
from regard.training.update import Update

start.finish = lambda *given: None  # drawing takes longer than learning
if "compare" in sys.argv:
    from regard.lab.comparison import compare
    compare.draw_pictures = lambda draw, folder: []
learn = Update.__call__

def stopped(update, batch, step):
    if step == 5 and "train.seed=0" in sys.argv:  # signal the process that compares, and wait until it signals this one
        arrived, notice = os.pipe()
        os.set_blocking(notice, False)
        signal.set_wakeup_fd(notice)
        os.kill(os.getppid(), signal.SIGINT)
        os.read(arrived, 1)
        signal.set_wakeup_fd(-1)
    return learn(update, batch, step)

Update.__call__ = stopped
"""


def test_processes_are_stopped_by_one_signal_and_resumed_by_the_same_command(here):
    (here / "stop.py").write_text(STOP)
    command = ["--import", here / "stop.py", "compare", "lstm", *TINY, "--on", "a.txt", "--steps", 40, "--seeds", 2]
    command += ["--device", "cpu", "--out", "processes", "--jobs"]
    ended = regard(*command, 1)
    assert ended.code == 130, ended.said
    assert "stopped; 0 of 2 runs are finished, the others are saved; the same command continues" in ended.said
    first = here / "processes" / "runs" / "lstm-0"
    assert [path.name for path in (first / CHECKPOINTS).iterdir()] == ["step-00000005"]
    ended = regard(*command, 2)
    assert ended.code == 0, ended.said
    assert [read_metrics(here / "processes" / "runs" / f"lstm-{seed}")[-1]["step"] for seed in (0, 1)] == [40, 40]
    assert "train --resume" in (here / "processes" / "logs" / "lstm-0.txt").read_text()
    assert all(json.loads(line)["memory"] > 0 for line in (here / "processes" / "runs.jsonl").read_text().splitlines())


HOLD = """
import sys
from regard.atomic import lock

with lock(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_process_that_still_trains_a_run_is_waited_for(tmp_path):
    folder = tmp_path / "elman-0"
    folder.mkdir()
    run = compare_runs.ComparedRun("elman", 0, 2, "loss", tmp_path / "r.toml", folder, tmp_path / "log.txt")
    command = [sys.executable, "-c", HOLD, folder / ".lock"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"held\n"

        class Reader(StringIO):
            def write(self, text):  # once it is said, the other process may end
                if "waiting until it ends" in text:
                    other.stdin.close()
                return super().write(text)

        said = Reader()
        compare_runs.wait_for_others([run], Console(file=said, width=300))
        assert other.wait() == 0  # it has released the lock before
    assert f"elman-0: process {other.pid} on" in said.getvalue()
    # nothing to wait for
    compare_runs.wait_for_others([run, replace(run, folder=tmp_path / "none")], Console(file=said))


# --- runs that are finished already ----------------------------------------------------------------------------------


def test_a_finished_run_on_the_same_data_is_shown_beside(here, world, trained):
    _, table = world
    other = table.folder / "runs" / "lstm-0"
    beside = again("gpt2", str(other), out="beside-1", steps=12)
    assert trained == ["gpt2-0", "gpt2-1"]
    [row] = [row for row in beside.rows if row["model"] == str(other)]
    [before] = [run for run in table.runs if run["run"] == str(other)]
    assert (row["runs"], row["loss"], row["p"]) == (1, before["loss"], None)
    assert "Not trained here" in str(beside)


def test_a_run_that_may_have_seen_the_held_out_rows_needs_other_files(here, world):
    _, table = world
    write(here / "b.txt", sentences(120, seed=9))
    run = str(table.folder / "runs" / "lstm-0")
    with pytest.raises(InputError, match=rf"{run}: may have learned from the rows that are held out .* --valid FILE"):
        again("elman", run, on="b.txt", steps=2, seeds=1, out="seen")
    found = again("elman", run, on="b.txt", valid="a.txt", steps=2, seeds=1, out="valid")
    assert {row["model"] for row in found.rows} == {"elman", run}


def test_runs_alone_are_measured_on_the_files(here, world, trained):
    _, table = world
    write(here / "c.txt", sentences(40, seed=5))
    runs = [str(table.folder / "runs" / name) for name in ("gpt2-0", "lstm-0")]
    found = compare(*runs, on="c.txt", device="cpu", console=QUIET)
    assert trained == []
    for row in found.rows:
        wanted = package.load(row["model"], "cpu").evaluate("c.txt")
        assert row["loss"] == pytest.approx(wanted["loss"])
    assert not list(found.folder.glob("curves-*"))
    assert "the curves are beside them" not in (found.folder / "index.html").read_text(encoding="utf-8")


def record(name: str, tokenizer: str, **metrics: float) -> RunRecord:
    return RunRecord(name, 0, Path(name), Evaluation(metrics), 1, {}, tokenizer)


def test_models_with_different_tokenizers_are_compared_per_byte_or_not_at_all():
    one, other = record("one", "x", loss=1.0, bits_per_byte=2.0), record("other", "y", loss=3.0, bits_per_byte=1.0)
    assert choose_metric([one, other], "loss") == "bits_per_byte"
    assert choose_metric([one, one], "loss") == "loss"
    assert choose_metric([one, other], "bleu") == "bleu"
    for bits in ({}, {"bits_per_byte": nan}):
        with pytest.raises(InputError, match="one and other have different tokenizers, so their loss per token cannot"):
            choose_metric([record("one", "x", loss=1.0, **bits), other], "loss")


@pytest.mark.parametrize(("metric", "most"), [("accuracy", 1), ("q3", 1), ("bleu", 100), ("bracket_f1", 100)])
def test_an_interval_stays_within_what_the_metric_can_be(metric, most):
    values = (0.9 * most, 0.2 * most)
    records = [replace(record("one", "x", **{metric: value}), seed=seed) for seed, value in enumerate(values)]
    [row], _ = compare_records(records, metric)
    assert (row[f"{metric}_low"], row[f"{metric}_high"]) == (0.0, most)


def test_runs_that_do_not_differ_are_not_tested():
    records = [record(name, "x", accuracy=value) for name, value in (("a", 0.5), ("b", 0.4)) for _ in range(2)]
    rows, notes = compare_records(records, "accuracy")
    assert [(row["model"], row["p"], row["significant"]) for row in rows] == [("a", None, None), ("b", None, None)]
    assert notes[-1].endswith("They cannot be tested as the runs of a model do not differ.")


def test_bleu_is_tested_over_sentences_and_seeds():
    wanted, bad = sentences(40), sentences(40, seed=3)
    made = {"good": [wanted[:35] + bad[35:], wanted[:34] + bad[34:]], "bad": [bad, wanted[:1] + bad[1:]]}
    scores = {"good": (86.0, 85.0), "bad": (3.0, 4.0)}
    records = [
        RunRecord(name, seed, Path(name), Evaluation({"bleu": scores[name][seed]}, translations=texts), 1, {}, "x")
        for name, runs in made.items()
        for seed, texts in enumerate(runs)
    ]
    rows, notes = compare_records(records, "bleu", wanted)
    assert [row["model"] for row in rows] == ["good", "bad"]
    assert rows[1]["p_sentences"] < 0.05
    assert rows[1]["p"] == max(rows[1]["p_seeds"], rows[1]["p_sentences"])
    assert "the paired bootstrap over sentences (1,000 resamples), of which the larger p counts" in " ".join(notes)


@pytest.mark.parametrize("bad", [nan, inf])
def test_a_model_with_a_run_that_is_not_finite_comes_last_and_is_not_tested(bad: float):
    losses = {"bad": [1.0, bad], "good": [2.0, 2.1], "worse": [3.0, 3.1]}
    records = [
        RunRecord(name, seed, Path(name), Evaluation({"loss": loss}), 1, {}, "x")
        for name, values in losses.items()
        for seed, loss in enumerate(values)
    ]
    rows, notes = compare_records(records, "loss")
    assert [row["model"] for row in rows] == ["good", "worse", "bad"]
    assert rows[1]["p"] < 0.05
    assert {rows[2][key] for key in ("loss", "loss_sd", "loss_low", "difference", "p", "significant")} == {None}
    table = Comparison("language", "loss", "tok", rows, [each.row() for each in records], notes)
    assert "not finite" in str(table)
    assert list(verdict_sentences(table))[1:] == ["Significantly worse: worse (+1)."]


# --- planning --------------------------------------------------------------------------------------------------------


def test_flops_of_a_budget_are_those_that_training_counts(here, world):
    _, table = world
    for row in table.rows:
        found = plan(row["model"], budget=Budget("flops", float(row["flops"])), changes=TINY)
        assert found.recipes[0].config.train.steps == pytest.approx(12, abs=1)


def test_an_equal_number_of_flops_gives_a_cheap_model_more_updates(here):
    found = plan("gpt2", "lstm", budget=Budget("flops", 1e11), changes=(*TINY,))
    gpt2, lstm = (each.config.train.steps for each in found.recipes)
    assert gpt2 < lstm
    again = plan("gpt2", "lstm", budget=Budget("flops", 2e11), changes=(*TINY,))
    assert [each.config.train.steps for each in again.recipes] == pytest.approx([2 * gpt2, 2 * lstm], abs=1)


def test_equal_tokens_are_equal_passes_over_the_data(here):
    found = plan("gpt2", "lstm", budget=Budget("tokens", 6400))
    assert [each.config.train.steps for each in found.recipes] == pytest.approx([100, 100], abs=12)


def test_models_can_be_scaled_to_equal_parameters(here):
    found = plan("gpt2", "lstm", "conv", budget=Budget("steps", 5), parameters=300_000.0)
    assert [each.parameters for each in found.recipes] == pytest.approx([300_000] * 3, rel=0.1)
    with pytest.raises(RegardError, match=r"gpt2: model.dim: 100 parameters are too few: it has .* at a width of 8"):
        plan("gpt2", parameters=100.0)


def test_recipes_of_the_package_suit_the_data_and_files_keep_their_size(here):
    (here / "wide.toml").write_text('like = "gpt2"\n[model]\ndim = 192\n')
    found = plan("gpt2", here / "wide.toml", budget=Budget("steps", 5))
    assert [each.config.model.dim for each in found.recipes] == [128, 192]
    found = plan("gpt2", here / "wide.toml", budget=Budget("steps", 5), size="small")
    assert [each.config.model.dim for each in found.recipes] == [256, 256]


def test_rows_have_the_length_that_every_model_can_take(here):
    (here / "narrow.toml").write_text(NARROW)
    changes = ("tokenizer.kind=word", "train.tokens=64")
    found = plan("lstm", here / "narrow.toml", budget=Budget("steps", 5), changes=changes)
    assert [each.config.task.window for each in found.recipes] == [6, 6]


def test_all_get_one_optimizer_unless_asked_otherwise(here):
    (here / "own.toml").write_text(OWN)
    found = plan("gpt2", here / "own.toml", budget=Budget("steps", 5), size="tiny")
    assert all(isinstance(each.config.train.optimizer, MuonConfig) for each in found.recipes)
    gpt2, own = (each.config.train for each in found.recipes)
    assert replace(own, optimizer=gpt2.optimizer) == gpt2
    assert own.optimizer.rate == pytest.approx(1.5 * gpt2.optimizer.rate)  # its layers are recurrent
    assert found.notes == (
        "own: its [train] table is left out, so that all models get one rule; --own-optimizer uses its optimizer and "
        "schedule",
    )
    found = plan("gpt2", here / "own.toml", budget=Budget("steps", 5), size="tiny", own_optimizer=True)
    assert found.recipes[1].config.train.optimizer == replace(
        found.recipes[1].config.train.optimizer, rate=0.003, betas=(0.9, 0.9)
    )
    assert isinstance(found.recipes[1].config.train.optimizer, AdamWConfig)
    assert isinstance(found.recipes[0].config.train.optimizer, MuonConfig)


def test_equal_minutes_give_a_slow_model_fewer_updates(here):
    found = plan("gpt2", "lstm", budget=Budget("minutes", 0.005), changes=TINY, size="tiny")
    assert all(each.config.train.steps >= 1 for each in found.recipes)
    assert all(each.config.train.minutes is None for each in found.recipes)  # a run that is resumed counts updates


def test_as_many_runs_are_trained_at_a_time_as_there_is_room_for(here, monkeypatch):
    def jobs(unit: str = "steps") -> tuple[int, int]:
        found = plan("gpt2", "lstm", budget=Budget(unit, 0.001 if unit == "minutes" else 5), changes=TINY, jobs=None)
        return found.jobs, found.recipes[0].config.train.threads

    monkeypatch.setattr(compare_plan, "steps_for", lambda *given: 5)  # without trial updates
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    monkeypatch.setattr(compare_plan, "available_memory", lambda: None)
    assert jobs() == (4, 1)
    monkeypatch.setattr(compare_plan, "available_memory", lambda: 1_500_000_000)
    assert jobs() == (2, 2)
    assert jobs("minutes") == (1, 4)  # others would slow it down


@dataclass(frozen=True)
class MineConfig(ScoreConfig):
    """A part that is registered in this process only."""


def test_parts_that_only_this_process_knows_are_trained_in_it(here):
    register("score", "mine")(MineConfig)
    try:
        assert again(jobs=None).folder.name == "language-1"
        with pytest.raises(
            RegardError, match="jobs=2: other processes do not know 'mine', which is registered in this"
        ):
            again(jobs=2)
    finally:
        del open_registry("score")._items["mine"]
    assert known_only_here() == []


def test_the_default_budget_is_said(here):
    found = plan("gpt2", "lstm")
    steps = {each.config.train.steps for each in found.recipes}
    assert found.budget == f"{steps.pop():,} updates each"
    assert not steps


# --- the command -----------------------------------------------------------------------------------------------------

COMMAND = ["compare", "gpt2", "lstm", *TINY, "--on", "a.txt", "--steps", 12, "--seeds", 2, "--jobs", 0]
COMMAND += ["--device", "cpu"]


def test_the_command_prints_the_plan_and_the_table(here, monkeypatch, capsys):
    done = Command(monkeypatch, capsys)(*COMMAND)
    assert (done.code, done.err) == (0, "")
    assert "4 of 4 runs are finished already" in done.out
    assert re.search(r"^budget +12 updates of 64 tokens$", done.out, re.MULTILINE)
    assert re.search(r"^optimizer +muon, linear for all$", done.out, re.MULTILINE)
    assert done.out.splitlines()[-1].startswith("open comparisons/language-")


def test_a_narrow_terminal_shows_the_columns_that_fit(here, monkeypatch, capsys):
    command = Command(monkeypatch, capsys)
    monkeypatch.setenv("COLUMNS", "40")
    lines = command(*COMMAND).out.splitlines()
    head = next(number for number, line in enumerate(lines) if line.startswith("model "))
    assert lines[head].split()[:2] == ["model", "loss"]
    assert all(len(line.rstrip()) <= 40 for line in lines[head : head + 3])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["gpt2", "gpt2"], "gpt2 is given twice ('gpt2'); leave one of them out, or rename it"),
        (["gpt2", "x/gpt2.toml"], "gpt2 and x/gpt2.toml have the same name ('gpt2'); leave one of them out"),
        (["gtp2"], "'gtp2' is neither a recipe nor a run; did you mean 'gpt2'?"),
        (["a.txt"], "a.txt: is a file; give the name of a recipe, a recipe file (.toml) or the folder of a run"),
        (["cache"], "cache: is not the folder of a run: there is no recipe.toml; give the name of a recipe"),
        (["gpt2", "translator"], "these models learn different tasks, so they cannot be compared (gpt2: language; tr"),
        (["bert", "--task", "language"], "bert: model.kind: a model of the kind 'encoder' cannot be trained for lang"),
        (["gpt2", "--task", "talking"], "unknown task 'talking'; use one of classification, distances"),
        (["gpt2", "--steps", "5", "--tokens", "9"], "--steps 5 and --tokens 9: give one of them"),
        (["gpt2", "--flops", "many"], "--flops many must be a number of at least 1, as in 3M"),
        (["gpt2", "--minutes", "0"], "--minutes 0 must be a number of more than 0, as in 3M"),
        (["gpt2", "train.seed=3"], "'train.seed=3': a comparison decides this itself, the same for all; give --steps"),
        (["gpt2", "--size", "huge"], "--size huge is unknown; use auto, own, mini, tiny, small, base, big"),
        (["gpt2", "--size", "tiny", "--parameters", "3M"], "--size tiny and --parameters ... each decide the size of"),
        (["gpt2", "model.depht=3"], "gpt2: model.depht: "),
    ],
)
def test_a_mistake_is_one_line(here, monkeypatch, capsys, arguments, message):
    said = Command(monkeypatch, capsys).refused("compare", *arguments, "--on", "a.txt", "--device", "cpu")
    assert said.startswith(message), said


def test_missing_data_is_one_line(here, monkeypatch, capsys):
    assert "nothing.txt" in Command(monkeypatch, capsys).refused("compare", "gpt2", "--on", "nothing.txt")


def test_a_text_for_encoders_is_masked_and_a_table_needs_the_task(here, monkeypatch, capsys):
    write(here / "t.tsv", ["text\tlabel", *(f"{line}\tx" for line in sentences(20))])
    said = Command(monkeypatch, capsys).refused("compare", "bert", "reader", "--on", "t.tsv")
    assert said == "the models can learn several tasks on this data; choose one with --task masked or classification"
    assert plan("bert", kind=find_task(find_contenders(["bert"]), ["a.txt"], None)).task.name == "masked"


def test_a_run_without_weights_is_named(here, monkeypatch, capsys):
    (here / "empty").mkdir(exist_ok=True)
    (here / "empty" / "recipe.toml").write_text("")
    said = Command(monkeypatch, capsys).refused("compare", "empty", "--on", "a.txt")
    assert said == "empty: this run has no weights yet; finish it with: regard train --resume empty"


def test_only_runs_have_no_budget(here, world, monkeypatch, capsys):
    _, table = world
    run = table.folder / "runs" / "gpt2-0"
    said = Command(monkeypatch, capsys).refused("compare", run, "--on", "a.txt", "--steps", "5")
    assert said.startswith("only runs are compared, which are not trained again; leave the budget")
