"""Running an experiment: rows as they arrive, interruptions, settings, the folder and the page."""

import csv
import json
import os
import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard import draw
from regard.errors import RegardError
from regard.lab import Experiment, Lab, Picture, Verdict, run_experiment
from regard.lab.experiments import EXPERIMENTS, ShippedExperiment, find_experiment
from regard.lab.page import average_seeds, write_lab_report
from regard.lab.runner import LabStopError
from regard.lab.spread import over_seeds
from regard.training.stop import StopError
from tests.cli.command import Command
from tests.processes import Forked

SMALL = ("model.dim=8", "model.depth=1", "model.layers.block.mixer.heads.heads=2")


@dataclass(frozen=True)
class Numbers:
    count: int = 3
    factor: float = 1.0
    places: tuple[int, ...] = (1, 2)


def measure(lab: Lab, settings: Numbers) -> Iterator[dict[str, Any]]:
    for number in range(settings.count):
        lab.progress(f"number {number}", number / settings.count)
        yield {"number": number, "value": settings.factor * torch.rand(()), "name": "a <b>"}


def pictures(rows: Any) -> Iterator[Picture]:
    yield Picture("values", "The values.", draw.lines(rows, x="number", y="value"))


EXAMPLE = Experiment(
    name="example",
    title="An <example>",
    claim="Random numbers\nare `random`.",
    source="A lecture.",
    method="We draw them.\n\n    a = b\n    c = d",
    vary="Draw others.",
    scales={"tiny": Numbers(), "default": Numbers(), "full": Numbers(count=5)},
    measure=measure,
    draw=pictures,
    judge=lambda rows: Verdict(True, f"The mean is {over_seeds(rows, 'value')}."),
)


@pytest.fixture
def regard_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Command:
    monkeypatch.chdir(tmp_path)
    return Command(monkeypatch, capsys)


@pytest.fixture
def registered() -> Iterator[str]:
    """Register the example, as a file of the user does, and take it out again."""
    regard.register("experiment", "example")(EXAMPLE)
    yield "example"
    del EXPERIMENTS._items["example"]


def test_a_folder_has_plots_a_table_settings_and_a_page(tmp_path):
    result = run_experiment(EXAMPLE, out=tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"index.html", "results.csv", "seeds", "settings.json", "values.png", "values.svg"}
    rows = list(csv.DictReader((tmp_path / "results.csv").open()))
    assert [(row["seed"], row["number"]) for row in rows] == [(str(s), str(n)) for s in range(3) for n in range(3)]
    assert [float(row["value"]) for row in rows] == [row["value"] for row in result.rows]
    assert len({row["value"] for row in rows}) == 9
    assert result.verdict.text.startswith("The mean is ")


def test_the_page_is_one_file_with_escaped_text(tmp_path):
    page = run_experiment(EXAMPLE, out=tmp_path).page.read_text(encoding="utf-8")
    assert "An &lt;example&gt;" in page
    assert "a &lt;b&gt;" in page
    assert "<p>Random numbers are <code>random</code>.</p>" in page
    assert '<pre tabindex="0">a = b\nc = d</pre>' in page
    assert page.count("data:image/png;base64,") == 2  # light and dark
    assert not re.search(r"<script|https?://|src=\"(?!data:)", page)


def test_the_page_says_what_bands_and_brackets_mean_if_there_are_several_seeds(tmp_path):
    several = run_experiment(EXAMPLE, out=tmp_path / "several").page.read_text(encoding="utf-8")
    assert "Lines and bars are means over 3 seeds" in several
    single = run_experiment(EXAMPLE, seeds=1, out=tmp_path / "single").page.read_text(encoding="utf-8")
    assert "are means over" not in single


def test_a_seed_decides_what_is_measured_and_leaves_the_generator_alone(tmp_path):
    torch.manual_seed(5)
    expected = torch.rand(())
    torch.manual_seed(5)
    first = run_experiment(EXAMPLE, seed=2, seeds=1, out=tmp_path / "a")
    assert torch.rand(()) == expected
    second = run_experiment(EXAMPLE, seed=0, seeds=3, out=tmp_path / "b")
    assert first.rows == second.rows[6:]


def test_measured_seeds_are_not_measured_again_and_an_interrupted_one_is(tmp_path):
    measured = []

    def stopped(lab: Lab, settings: Numbers) -> Iterator[dict[str, Any]]:
        measured.append(lab.seed)
        yield {"number": 0, "value": 1.0}
        if len(measured) == 2:
            raise KeyboardInterrupt
        yield {"number": 1, "value": 2.0}

    example = replace(EXAMPLE, measure=stopped)
    with pytest.raises(LabStopError, match="stopped; what was measured is kept in .*: the same command continues"):
        run_experiment(example, out=tmp_path)
    assert (tmp_path / "seeds" / "1.part.jsonl").read_text() == '{"number": 0, "value": 1.0}\n'
    result = run_experiment(example, out=tmp_path)
    assert measured == [0, 1, 1, 2]
    assert [row["seed"] for row in result.rows] == [0, 0, 1, 1, 2, 2]


def test_ctrl_c_is_one_line(regard_command, registered, monkeypatch):
    def interrupted(lab: Lab, settings: Numbers) -> Iterator[dict[str, Any]]:
        yield {"number": 0, "value": 1.0}
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setitem(EXPERIMENTS._items, registered, replace(EXAMPLE, measure=interrupted))
    done = regard_command("lab", registered)
    assert (done.code, done.out) == (130, "")
    assert done.err == "regard: stopped; what was measured is kept in lab/example: the same command continues there\n"


def killed(lab: Lab, settings: Numbers) -> Iterator[dict[str, Any]]:
    yield {"number": 0, "value": float(lab.seed)}
    if lab.seed == 1:
        os.kill(os.getpid(), signal.SIGKILL)


def run_and_die(folder: Path) -> None:
    run_experiment(replace(EXAMPLE, measure=killed), out=folder)


def test_a_killed_lab_continues(tmp_path):
    assert Forked(run_and_die, tmp_path / "x").end().code == -signal.SIGKILL
    assert (tmp_path / "x" / "seeds" / "0.jsonl").is_file()

    def others(lab: Lab, settings: Numbers) -> Iterator[dict[str, Any]]:
        assert lab.seed > 0
        yield {"number": 0, "value": float(lab.seed)}

    result = run_experiment(replace(EXAMPLE, measure=others), out=tmp_path / "x")
    assert [row["value"] for row in result.rows] == [0.0, 1.0, 2.0]


def test_a_signal_while_a_model_is_trained_is_the_lab_s_own_message(tmp_path):
    def trained(lab: Lab, settings: Numbers) -> Iterator[dict[str, Any]]:
        raise StopError("stopped at step 3", lab.folder / "runs" / "x", 15)

    with pytest.raises(LabStopError, match="the same command continues") as caught:
        run_experiment(replace(EXAMPLE, measure=trained), out=tmp_path)
    assert caught.value.exit_code == 128 + 15


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scale": "full"}, "scale is 'default' there and 'full' here"),
        ({"changes": ("factor=2",)}, r"changes is \[\] there and \['factor=2'\] here"),
    ],
)
def test_a_folder_with_other_settings_is_refused(tmp_path, change, message):
    run_experiment(EXAMPLE, seeds=1, out=tmp_path)
    changes = change.pop("changes", ())
    with pytest.raises(RegardError, match=rf"holds results of other settings: {message}; choose another folder"):
        run_experiment(EXAMPLE, *changes, **change, seeds=1, out=tmp_path)


def test_a_folder_with_something_else_is_refused_and_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(RegardError, match="holds something else; choose another folder with --out"):
        run_experiment(EXAMPLE, out=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_settings_can_be_changed(tmp_path):
    result = run_experiment(EXAMPLE, "count=1", "factor=100", "places=[4]", seeds=1, out=tmp_path)
    assert len(result.rows) == 1
    assert result.settings["values"] == {"count": 1, "factor": 100.0, "places": [4]}
    assert "regard lab example count=1 factor=100" in result.page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"changes": ("cuont=1",)}, "cuont: is not a setting of example; did you mean 'count'"),
        ({"changes": ("count=x",)}, "count: 'x' must be of the kind of 3"),
        ({"scale": "tiney"}, "scale='tiney' is not a scale of example; did you mean 'tiny'"),
        ({"recipe": "gpt2"}, "recipe='gpt2': example does not take a recipe"),
        ({"seeds": 0}, "seeds=0 must be at least 1"),
        ({"seed": -1}, "seed=-1 must be at least 0"),
        ({"seed": 2**32}, "seed=4294967296 must be at least 0, and with the seeds after it at most 4294967295"),
        ({"changes": ("factor=nan",)}, "factor: nan must be a finite number"),
    ],
)
def test_mistakes_are_found_before_anything_is_written(tmp_path, arguments, message):
    changes = arguments.pop("changes", ())
    with pytest.raises(RegardError, match=re.escape(message)):
        run_experiment(EXAMPLE, *changes, **arguments, out=tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_settings_that_cannot_be_measured_are_one_line(tmp_path):
    with pytest.raises(RegardError, match=r"^example: cannot be measured with count=0: "):
        run_experiment(EXAMPLE, "count=0", out=tmp_path)


def test_a_folder_in_which_a_wrong_setting_has_measured_nothing_is_taken(tmp_path):
    def built(lab: Lab, settings: Numbers) -> Iterator[dict[str, Any]]:
        lab.build("gpt2", *SMALL, f"model.vocabulary={settings.count + 5}")
        lab.build("gpt2", *SMALL, "model.vocabulary=5", f"model.depth={settings.count}")
        yield {"number": 0, "value": 1.0}

    example = replace(EXAMPLE, measure=built)
    with pytest.raises(RegardError, match="^model.depth: 0 must be"):
        run_experiment(example, "count=0", out=tmp_path)
    result = run_experiment(example, "count=1", seeds=1, out=tmp_path)
    assert len(result.rows) == 1
    assert [recipe.count("vocabulary = 6") for recipe in result.recipes.values()] == [1, 0]


def test_the_table_of_the_page_averages_over_seeds():
    rows = [{"seed": s, "model": "a", "width": 8, "loss": loss} for s, loss in enumerate((1.0, 2.0, 3.0))]
    assert average_seeds(rows) == [{"model": "a", "width": "8", "loss": "2 ± 1"}]
    rows = [{"seed": s, "text": text, "loss": loss} for s, text, loss in ((0, "a b", 1.0), (1, "c", float("inf")))]
    assert average_seeds(rows) == [{"text": "a b", "loss": "1, inf"}]


def test_models_are_trained_once_and_their_recipes_kept(tmp_path):
    trained = []

    def train(lab: Lab, settings: Numbers) -> Iterator[dict[str, Any]]:
        text = lab.file("text.txt", "to be or not to be\n" * 40)
        changes = ["tokenizer.kind=byte", "train.tokens=64", "task.window=16", *SMALL]
        run = lab.train("small", "language", [text], recipe="gpt2", steps=2, overrides=changes)
        assert (run.config.train.steps, run.config.train.validate_every) == (2, 2)
        trained.append((run.folder / "model.safetensors").stat().st_mtime_ns)
        model = lab.build("gpt2", *SMALL, "model.vocabulary=10")
        yield {"parameters": sum(weight.numel() for weight in model.parameters())}

    example = replace(EXAMPLE, measure=train, draw=lambda rows: [], judge=lambda rows: Verdict(None, "-"), seeds=1)
    run_experiment(example, out=tmp_path)
    (tmp_path / "seeds" / "0.jsonl").unlink()
    result = run_experiment(example, out=tmp_path)
    assert trained[0] == trained[1]
    assert sorted(result.recipes) == ["gpt2.toml", "small.toml"]
    assert f"regard look -m {tmp_path / 'runs' / 'small-0'}" in result.page.read_text(encoding="utf-8")


def test_every_shipped_experiment_has_the_listed_title_and_all_scales():
    for name, listed in EXPERIMENTS.items():
        if isinstance(listed, ShippedExperiment):
            experiment = find_experiment(name)
            assert (experiment.name, experiment.title) == (name, listed.title)
            assert set(experiment.scales) == {"tiny", "default", "full"}


def test_a_wrong_name_names_the_nearest(regard_command):
    assert regard_command.refused("lab", "lokup").startswith("'lokup' is not an experiment; did you mean 'lookup'?")


def test_the_command_lists_and_runs_an_experiment_of_the_user(regard_command, registered, tmp_path):
    assert "An <example>" in regard_command("lab").out
    done = regard_command("lab", "example", "--scale", "tiny", "factor=2")
    assert done.code == 0, done
    assert "example: holds. The mean is " in done.out
    assert (tmp_path / "lab-tiny" / "example" / "index.html").is_file()
    again = json.loads(regard_command("lab", "example", "--scale", "tiny", "factor=2", "--json").out)
    assert again["holds"] is True
    refused = regard_command.refused("lab", "example", "--scale", "tiny", "factor=3")
    assert refused.startswith("lab-tiny/example: holds results of other settings")


def test_the_report_has_all_verdicts_and_names_what_could_not_be_run(tmp_path):
    results = [run_experiment(EXAMPLE, out=tmp_path / "a")]
    results.append(
        run_experiment(
            replace(EXAMPLE, name="other", judge=lambda rows: Verdict(False, "It is not.")), out=tmp_path / "b"
        )
    )
    write_lab_report(tmp_path / "index.html", results, {"third": "there is no data"})
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "1 of 2 claims hold" in page
    assert page.count('<a href="#other">') == page.count('<section id="other">') == 1
    assert "does not hold" in page
    assert "there is no data" in page


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("lab", "lookup", "--all"), "--all runs all experiments"),
        (("lab", "--all", "depth=4"), "--all runs all experiments; leave it out, or leave out depth=4, a setting"),
        (("lab", "--all", "--recipe", "gpt2"), "--recipe needs the NAME"),
    ],
)
def test_options_that_do_not_fit_together_are_one_line(regard_command, arguments, message):
    assert regard_command.refused(*arguments).startswith(message)
