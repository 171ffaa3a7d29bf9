"""`regard show`: what is stored about the recipes of the package is what their models cost."""

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from regard.cli import architecture
from regard.cli.architecture import ARCHITECTURES, describe, open_recipe, shipped_architecture
from regard.errors import ConfigError, InputError
from regard.models.recurrent_seq2seq import RecurrentSeq2SeqConfig
from regard.recipe_files import recipe_names, result_names
from regard.training.request import check_training_tables
from tests.cli.command import Command
from tests.processes import PATIENCE

REMEDY = "write it again: python -m regard.cli.architecture"


@pytest.mark.parametrize("recipe", recipe_names())
def test_the_stored_cost_of_a_recipe_is_that_of_the_model_that_it_builds(recipe):
    stored, built = shipped_architecture(recipe), describe(open_recipe(recipe, []))
    assert stored is not None, REMEDY
    assert asdict(stored) == json.loads(json.dumps(asdict(built))) | {"cost": asdict(built.cost)}, REMEDY


def test_nothing_is_stored_about_other_recipes():
    assert sorted(json.loads(ARCHITECTURES.read_text())) == recipe_names(), REMEDY
    assert shipped_architecture("mine.toml") is None


def test_what_is_stored_is_not_used_after_the_recipe_was_edited(monkeypatch):
    monkeypatch.setattr(architecture, "read_recipe", lambda name: {"model": {"kind": "language"}})
    assert shipped_architecture("gpt2") is None


def test_tables_about_training_are_checked_as_far_as_they_go(tmp_path: Path):
    recipe = tmp_path / "my.toml"
    task = '[task]\nkind = "language"\ntrain = ["a.txt"]\nstride = 8\n'
    right = task + '[train]\nsteps = 9\noptimizer = { decay = 0.1 }\nschedule = { kind = "linear" }\n'
    recipe.write_text(f'like = "gpt2"\n{right}')
    assert open_recipe(str(recipe), ["model.depth=2"]).model.depth == 2
    wrong = right.replace("stride", "strid").replace("steps = 9", "stepps = 9\nclip = -1").replace("decay", "rat")
    recipe.write_text(f'like = "gpt2"\n{wrong}')
    with pytest.raises(ConfigError) as found:
        open_recipe(str(recipe), [])
    begins = ["task.strid: unknown key; did you mean 'stride'?", "train.clip: -1.0 must be above 0"]
    begins += ["train.optimizer.rat: unknown key; did you mean 'rate'?"]
    begins += ["train.stepps: unknown key; did you mean 'steps'?"]
    for line, begin in zip(sorted(str(found.value).split("\n")), begins, strict=True):
        assert line.startswith(f"{recipe}: {begin}")


def test_every_recipe_of_the_package_has_right_tables_about_training():
    for name in recipe_names() + [f"results/{each}" for each in result_names()]:
        check_training_tables(name)


@pytest.mark.parametrize("name", ["results/fashion-mnist", "results/trec"])  # with a few values of a model, and none
def test_a_model_that_depends_on_the_data_is_shown_by_a_dry_run(name):
    with pytest.raises(ConfigError) as found:
        open_recipe(name, [])
    remedy = f"`regard train {name} --dry-run` shows it"
    assert str(found.value) == f"model: this recipe describes a training whose model depends on the data; {remedy}"
    with pytest.raises(ConfigError, match="depends on the data"):
        open_recipe(name, ["model.depth=2"])


def test_a_recipe_of_the_box_with_a_model_is_shown():
    assert isinstance(open_recipe("box/en-fr-rnn", []).model, RecurrentSeq2SeqConfig)


def test_a_folder_with_the_name_of_a_recipe_is_shown_itself(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gpt2").mkdir()
    assert shipped_architecture("gpt2") is None


@pytest.mark.parametrize("options", [[], ["--json"], ["--toml"]])
def test_showing_a_recipe_of_the_package_does_not_import_torch(options):
    call = f"app({['show', 'gpt2', *options]}, standalone_mode=False)"
    program = f"import sys; from regard.cli.main import app; {call}; print('torch' in sys.modules)"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE)
    assert done.stdout.splitlines()[-1] == "False"


def test_the_folder_of_another_program_is_named(tmp_path: Path):
    for name in ("model.bin", "config.json"):
        (tmp_path / name).write_text("{}")
    with pytest.raises(InputError, match="is a CTranslate2 folder; show the model that it was converted from"):
        open_recipe(str(tmp_path), [])


def test_one_format_at_a_time(monkeypatch, capsys):
    refused = Command(monkeypatch, capsys).refused("show", "gpt2", "--json", "--toml")
    assert refused == "--json and --toml each decide what is printed; give one of them"
