"""Run folders: what is read from one."""

import pytest

import regard
from regard.errors import RegardError
from regard.runs.folder import is_run, read_run

from ..use.made import run


def test_a_run_says_what_using_it_needs(tmp_path):
    folder = run("translation", tmp_path / "run")
    found = read_run(folder)
    assert is_run(folder)
    assert (found.path, found.task_config.longest, found.tokenizer_config.kind, found.seed) == (folder, 12, "word", 0)
    assert found.tokenizer().size == regard.load(folder, device="cpu").tokenizer.size


def test_folders_that_are_not_runs(tmp_path):
    remedy = "give the folder that `regard train` printed"
    with pytest.raises(RegardError) as error:
        regard.open_run(tmp_path / "absent")
    assert str(error.value) == f"{tmp_path}/absent: no such folder; {remedy}"
    with pytest.raises(RegardError) as error:
        regard.open_run(tmp_path)
    assert str(error.value) == f"{tmp_path}: is not the folder of a run: there is no recipe.toml; {remedy}"
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(RegardError, match=r"holds a model but no run: there is no recipe\.toml"):
        regard.open_run(tmp_path)


@pytest.mark.parametrize("text", ["train = []", "[train]\nseed = []", '[train]\nseed = "x"', "[train]\nseed = 0.5"])
def test_a_recipe_whose_seed_cannot_be_read_is_a_mistake(tmp_path, text):
    folder = run("language", tmp_path / "run")
    recipe = folder / "recipe.toml"
    recipe.write_text(f"{text}\n" + recipe.read_text() if "]\n" not in text else f"{recipe.read_text()}\n{text}\n")
    with pytest.raises(RegardError, match=r"recipe.toml: train.seed: .* must be a whole number"):
        read_run(folder)
