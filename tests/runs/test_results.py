"""Results: recipes with goals, and the runs that were measured with them."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from bench import results as bench
from regard import recipe_files
from regard.config import from_table
from regard.data.known_datasets import DATASETS
from regard.errors import ConfigError, RegardError
from regard.recipe_files import read_recipe, result_names
from regard.runs.results import read_result_recipe
from regard.runs.results_table import result_rows, results_page
from regard.tasks.kinds import TaskConfig
from regard.training import start
from tests.cli.command import Command

DOCS = Path(__file__).parents[2] / "docs" / "results.md"
REMEDY = "write it again: python -m bench.results --merge build/results"
TINY = """
about = "Tiny"

[task]
kind = "classification"
train = ["data/tiny/train.tsv"]

[model]
dim = 16
depth = 1

[train]
steps = 10

[result]
data = ["tiny"]
hardware = "a CPU"
device = "cpu"
test = ["data/tiny/test.tsv"]

[[result.goals]]
metric = "accuracy"
goal = 0.6
published = 0.7
source = "a paper"
"""


def test_the_page_in_docs_is_what_the_recipes_say() -> None:
    assert DOCS.read_text(encoding="utf-8") == results_page(), REMEDY


@pytest.mark.parametrize("name", result_names())
def test_every_result_can_be_trained_and_says_where_its_data_comes_from(name: str) -> None:
    result = read_result_recipe(name)
    assert result.config.expected == result.expected(), REMEDY
    if result.config.mean_of:  # nothing is trained
        assert all(read_result_recipe(each).config.data == result.config.data for each in result.config.mean_of)
        return
    task = from_table(result.table["task"], TaskConfig, "task")
    folders = {Path(file).parts[1] for file in (*task.training_files(), *result.config.test)}
    assert folders == set(result.config.data) or result.config.start
    assert folders <= DATASETS.keys()
    assert result.about
    start = None if result.config.start is None else read_result_recipe(result.config.start).table["task"]["kind"]
    assert start in (None, "masked", result.table["task"]["kind"])


def test_a_result_that_misses_a_goal_says_what_was_tried() -> None:
    missed = {
        row.name for row in result_rows([read_result_recipe(name) for name in result_names()]) if row.reached is False
    }
    assert missed
    silent = [name for name in sorted(missed) if not read_result_recipe(name).config.tried]
    assert not silent, "write result.tried, with figures, and what was not tried yet"
    assert results_page().count("\n- What was tried: ") == len(missed)


@pytest.mark.parametrize("name", result_names())
def test_a_repeated_measurement_names_its_reason(name: str) -> None:
    runs = read_result_recipe(name).runs
    keys = [(run["recipe"], run["resolved"], run["seed"]) for run in runs]
    assert all(run["again"] for number, run in enumerate(runs) if keys[number] in keys[:number])


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> bench.Place:
    """Data for a tiny result, the folder of recipes with that result only, and folders for runs and records."""
    recipes = tmp_path / "recipes"
    shutil.copytree(recipe_files._shipped(), recipes, ignore=shutil.ignore_patterns("results"))
    (recipes / "results").mkdir()
    (recipes / "results" / "tiny.toml").write_text(TINY)
    monkeypatch.setattr(recipe_files, "_shipped", lambda: recipes)
    monkeypatch.setattr(bench, "KEPT", recipes / "results")
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(start, "finish", lambda *facts: None)  # drawing a report takes longer than all the rest
    rows = [f"{'good' if number % 2 else 'bad'} film number {number}\t{number % 2}" for number in range(60)]
    (tmp_path / "files" / "tiny").mkdir(parents=True)
    (tmp_path / "files" / "tiny" / "train.tsv").write_text("\n".join(rows) + "\n")
    (tmp_path / "files" / "tiny" / "test.tsv").write_text("\n".join(rows[:10]) + "\n")
    found = bench.Place(tmp_path / "files", tmp_path / "runs", tmp_path / "out")
    found.runs.mkdir()
    found.out.mkdir()
    return found


def test_a_recipe_and_seed_is_measured_once_and_every_measurement_is_kept(
    place: bench.Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = bench.KEPT
    bench.perform("tiny", 1, place, jobs=1, again="")
    (record,) = bench.records(place.out)
    assert record["test"].keys() == {"loss", "accuracy", "f1"} == record["valid"].keys()
    assert record["updates"] == 10
    assert record["flops"] > 0
    assert record["seconds"] > 0
    with pytest.raises(RegardError, match="tiny, seed 1: was measured on"):
        bench.perform("tiny", 1, place, jobs=1, again="")
    assert bench.merge_records(place.out, kept) == ["tiny"]
    assert bench.merge_records(place.out, kept) == []  # each record is added once
    bench.write_expected("tiny", kept)
    result = read_result_recipe("tiny")
    assert result.config.expected == result.expected()
    assert read_recipe("results/tiny")["result"]["expected"]["seeds"] == 1
    (row,) = result_rows([result])
    assert row.score.endswith("(1 seed)")
    shutil.rmtree(place.out)
    place.out.mkdir()
    with pytest.raises(RegardError, match="tiny, seed 1: was measured on"):  # the record of the package counts
        bench.perform("tiny", 1, place, jobs=1, again="")
    bench.perform("tiny", 1, place, jobs=1, again="the metric was wrong")
    bench.merge_records(place.out, kept)
    first, second = read_result_recipe("tiny").runs
    assert (first["again"], second["again"]) == ("", "the metric was wrong")
    (kept / "tiny.toml").write_text((kept / "tiny.toml").read_text().replace("steps = 10", "steps = 11"))
    assert read_result_recipe("tiny").expected() is None
    (row,) = result_rows([read_result_recipe("tiny")])
    assert row.score == "not measured"
    assert "2 measurements of other versions" in results_page()
    shown = Command(monkeypatch, capsys)("results")
    assert "not measured" in shown.out


def test_only_what_decides_the_result_is_in_the_checksum(place: bench.Place) -> None:
    recipe = bench.KEPT / "tiny.toml"
    before = read_result_recipe("tiny").checksum
    recipe.write_text(recipe.read_text().replace("goal = 0.6", "goal = 0.9").replace('"Tiny"', '"Small"'))
    assert read_result_recipe("tiny").checksum == before
    recipe.write_text(recipe.read_text().replace("depth = 1", "depth = 2"))
    assert read_result_recipe("tiny").checksum != before


def test_the_spread_is_that_of_the_last_run_of_each_seed() -> None:
    run = {"recipe": "", "resolved": "a", "valid": {}, "seconds": 60.0, "flops": 1e9, "updates": 5, "machine": "x"}
    run["side_by_side"] = 1
    result = read_result_recipe("multi30k-en-de")
    run["recipe"] = result.checksum

    def measured(seed: int, bleu: float, resolved: str = "a") -> dict[str, object]:
        return {**run, "seed": seed, "resolved": resolved, "test": {"bleu": bleu, "bleu_lowercase": bleu + 1}}

    runs = [measured(1, 10.0, "old"), measured(1, 30.0), measured(2, 41.0), measured(3, 42.0), measured(1, 40.0)]
    runs[2] |= {"side_by_side": 5, "seconds": 300.0}
    expected = replace(result, runs=runs).expected()
    assert expected is not None
    assert (expected.seeds, expected.score["bleu"], expected.spread["bleu"]) == (3, 41.0, 1.0)
    assert (expected.seconds, expected.side_by_side) == (60.0, 1)  # of those that had the machine alone
    lower, cased = result_rows([replace(result, runs=runs)])
    assert (lower.score, lower.distance) == ("42.0 ± 1.0", "reached by 1.0")
    assert (cased.score, cased.distance, cased.time) == ("41.0 ± 1.0", "reached by 0.5", "1.0 min")


def test_runs_with_a_start_count_though_each_names_its_own_and_so_do_those_of_the_same_settings() -> None:
    result = read_result_recipe("sst2-pretrained")
    run = {"valid": {}, "seconds": 60.0, "flops": 1e9, "updates": 5, "machine": "x", "side_by_side": 1}
    recipes = (result.checksum, "earlier", "other")
    runs = [
        {**run, "recipe": recipe, "seed": seed, "resolved": f"{recipe}{seed}", "test": {"accuracy": 0.1 * seed}}
        for seed, recipe in enumerate(recipes, 1)
    ]
    config = replace(result.config, same_as=("earlier",))
    expected = replace(result, runs=runs, config=config).expected()
    assert expected is not None
    assert (expected.seeds, expected.score["accuracy"]) == (2, pytest.approx(0.15))
    one_text = [{**each, "recipe": "earlier"} for each in runs]
    assert len(replace(result, runs=one_text, config=config).counting()) == 3
    assert len(replace(result, runs=one_text, config=replace(config, start=None)).counting()) == 1  # of other settings


def test_a_cross_validation_without_all_folds_says_so_and_is_not_compared_with_its_goal() -> None:
    result = read_result_recipe("cb513")
    run = {"recipe": result.checksum, "resolved": "a", "valid": {}, "seconds": 60.0, "flops": 1e9, "updates": 5}
    scores = {"q3": 0.7, "q3_strict": 0.72, "q8": 0.6}
    run |= {"machine": "x", "date": "d", "side_by_side": 4}
    runs = [{**run, "seed": fold, "test": scores} for fold in range(1, 8)]
    some, every = (next(result_rows([replace(result, runs=runs[:count])])) for count in (3, 7))
    assert (some.score, some.distance, some.time) == ("70.0 % ± 0.0 % (3 of 7 folds)", "", "1.0 min (4)")
    assert (every.score, every.distance) == ("70.0 % ± 0.0 %", "reached by 0.0 %")


def test_a_goal_that_is_missed_by_little_is_not_missed_by_nothing() -> None:
    result = read_result_recipe("shakespeare-char")
    run = {"recipe": result.checksum, "resolved": "a", "seconds": 60.0, "flops": 1e9, "updates": 5, "machine": "x"}
    run["side_by_side"] = 1
    (row, *_) = result_rows([replace(result, runs=[{**run, "seed": 1, "valid": {"loss": 1.4004}, "test": {}}])])
    assert row.distance == "missed by less than 0.001"


def test_a_score_is_rounded_once() -> None:
    result = read_result_recipe("shakespeare-char")
    run = {"recipe": result.checksum, "resolved": "a", "seconds": 60.0, "flops": 1e9, "updates": 5, "machine": "x"}
    run["side_by_side"] = 1
    (row, *_) = result_rows([replace(result, runs=[{**run, "seed": 1, "valid": {"loss": 1.401501}, "test": {}}])])
    assert row.score == "1.402 (1 seed)"  # as in the line of the run


def test_a_mean_is_that_of_all_its_results_seed_by_seed(place: bench.Place) -> None:
    results = place.out.parent / "recipes" / "results"
    (results / "both.toml").write_text(
        'about = "Mean"\n[result]\ndata = ["tiny"]\nhardware = "a CPU"\nmean_of = ["tiny", "other"]\n'
        '[[result.goals]]\nmetric = "accuracy"\ngoal = 0.6\n'
    )
    shutil.copy(results / "tiny.toml", results / "other.toml")
    assert read_result_recipe("both").expected() is None
    common = {"recipe": read_result_recipe("tiny").checksum, "resolved": "a", "valid": {}, "machine": "x", "date": "d"}
    common["side_by_side"] = 1

    def write(name: str, seed_scores: dict[int, float]) -> None:
        cost = {"seconds": 60.0, "flops": 1e9, "updates": 5}
        runs = [{**common, **cost, "seed": seed, "test": {"accuracy": each}} for seed, each in seed_scores.items()]
        (results / f"{name}.json").write_text(json.dumps(runs))

    write("tiny", {1: 0.5, 2: 0.7, 3: 0.9})
    write("other", {1: 0.7, 2: 0.9})
    expected = read_result_recipe("both").expected()
    assert expected is not None
    assert (expected.seeds, expected.score["accuracy"], expected.updates) == (2, 0.7, 10)
    assert expected.spread["accuracy"] == pytest.approx(0.1414214)
    assert bench.trained_for("both") == ("tiny", "other")
    assert bench.trained_for("tiny") == ["tiny"]
    assert read_result_recipe("both").commands().count("regard data tiny") == 1
    assert "### both" in results_page()
    assert "in both.json" not in results_page()


def test_the_gain_of_a_start_is_that_over_the_result_without_it(place: bench.Place) -> None:
    results = place.out.parent / "recipes" / "results"
    text = (results / "tiny.toml").read_text()
    (results / "started.toml").write_text(text.replace("[result]\n", '[result]\nstart = "tiny"\nwithout = "tiny"\n'))
    common = {"resolved": "a", "valid": {}, "machine": "x", "date": "d", "side_by_side": 1}
    common |= {"seconds": 60.0, "flops": 1e9, "updates": 5}

    def write(name: str, *scores: float) -> None:
        recipe = read_result_recipe(name).checksum
        runs = [{**common, "recipe": recipe, "seed": n, "test": {"accuracy": each}} for n, each in enumerate(scores)]
        (results / f"{name}.json").write_text(json.dumps(runs))

    write("started", 0.9, 0.8)
    assert "gain from" not in results_page()  # as long as the other one is not measured
    assert "- measured through what starts from it ([started](#started)); time" in results_page()
    write("tiny", 0.5, 0.7)
    assert "gain from starting with tiny: accuracy +25.0 % (85.0 % against 60.0 % of [tiny](#tiny))" in results_page()
    write("tiny", 0.9)
    assert "gain from starting with tiny: accuracy -5.0 % (85.0 % against 90.0 % of" in results_page()


def test_data_lies_where_the_option_says() -> None:
    task = {"kind": "vision", "train": "data/cifar10", "valid": None, "files": ["data/a", "data/b"], "shift": 2}
    assert list(bench.with_data(task, Path("/d"))) == ['task.train="/d/cifar10"', 'task.files=["/d/a", "/d/b"]']


def test_processes_run_side_by_side_and_a_failure_is_counted(place: bench.Place, monkeypatch, capsys) -> None:
    script = "import sys; print('done', sys.argv[1:]); sys.exit(sys.argv[2] == '2')"
    monkeypatch.setattr(bench, "WORKER", [bench.sys.executable, "-c", script])
    assert bench.perform_all(["tiny"], [1, 2], place, 2, None, "") == 1
    out = capsys.readouterr().out
    assert "tiny 1: done ['tiny', '1'" in out
    assert "(exit code 1)" in out


def test_when_the_time_is_over_runs_save_and_can_be_continued(place: bench.Place, monkeypatch, capsys) -> None:
    monkeypatch.setattr(bench, "WORKER", [bench.sys.executable, "-c", "import signal; signal.pause()"])
    assert bench.perform_all(["tiny"], [1, 2], place, 1, bench.GRACE / 60, "") == 2
    out = capsys.readouterr().out
    assert "1 runs were not started" in out
    assert "tiny 1: stopped; the same command continues it" in out


def test_an_unknown_result_is_an_error_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match="no result has the name 'multi30k-en-d'; did you mean"):
        read_result_recipe("multi30k-en-d")


def test_records_are_plain_json(place: bench.Place) -> None:
    (place.out / "a.json").write_text(json.dumps({"other": 1}))
    assert bench.records(place.out) == []
