"""`regard convert`, `regard show` of folders, and their messages about what can be written."""

import json

import pytest
import torch
import transformers
from safetensors.torch import load_file

import regard as package
from regard.cli.architecture import exportable_recipe
from regard.config import to_table, to_toml
from regard.hub.folder import huggingface_obstacle
from regard.tasks.kinds import TASKS

from ..tasks.corpora import sentences
from ..tasks.corpora import write as write_lines
from ..training.tiny import data, plan
from ..use import made
from ..use.made import run
from ..use.theirs import LINES, write
from .command import Command


@pytest.fixture
def regard(monkeypatch, capsys, tmp_path) -> Command:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(made.RECIPE, "translation", "translator")
    return Command(monkeypatch, capsys)


def test_for_hugging_face(regard, tmp_path):
    folder = run("language", tmp_path / "run", "bpe")
    done = regard("convert", folder, "--to", "huggingface", "out")
    assert (done.code, done.out) == (0, "out\n")
    model = transformers.AutoModelForCausalLM.from_pretrained("out")
    assert model.config.model_type == "gpt2"
    assert (
        regard("generate", "red", "-m", "out", "--tokens", 5, "--seed", 0).out
        == regard("generate", "red", "-m", folder, "--tokens", 5, "--seed", 0).out
    )


def test_for_ctranslate2(regard, tmp_path):
    folder = run("translation", tmp_path / "run", "bpe")
    assert regard("convert", folder, "out", "--to", "ctranslate2", "--quantization", "int8").out == "out\n"
    assert regard("translate", "red dog", "-m", "out").code == 0
    plain = regard("translate", "-m", folder, "--beam", 1, *LINES).out
    assert regard("translate", "-m", folder, "--beam", 1, "--engine", "ctranslate2", *LINES).out == plain
    assert "CTranslate2 cannot embed" in regard.refused("embed", "red", "-m", "out")
    assert "leave --engine eager out" in regard.refused("translate", "red", "-m", "out", "--engine", "eager")


def test_mistakes(regard, tmp_path):
    folder = run("language", tmp_path / "run")
    assert regard.refused("convert", folder, "out", "--to", "onnx").startswith("unknown format 'onnx'; use one of")
    assert "out" not in {path.name for path in tmp_path.iterdir()}
    assert regard("convert", folder, "out").code == 2  # without --to
    assert regard.refused("convert", folder, ".", "--to", "huggingface").startswith(".: is the current folder")
    run("masked", tmp_path / "masked")
    assert "cannot be written for CTranslate2: model: " in regard.refused(
        "convert", "masked", "out", "--to", "ctranslate2"
    )


def test_a_pickle_must_be_allowed(regard, tmp_path):
    folder = write("gpt2", tmp_path / "old")
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    plain = regard("generate", "red", "-m", folder, "--tokens", 5, "--seed", 0).out
    (folder / "model.safetensors").unlink()
    for verb in (["generate", "red", "-m", folder, "--tokens", 5], ["convert", folder, "new", "--to", "huggingface"]):
        assert "is a pickle, which can contain programs, so it is not read" in regard.refused(*verb)
        assert regard(*verb, "--allow-pickle").code == 0
    assert regard("generate", "red", "-m", "new", "--tokens", 5, "--seed", 0).out == plain
    for verb in ("translate", "classify", "fill", "embed", "evaluate"):
        assert "is a pickle" in regard.refused(verb, "in.txt", "-m", folder)
        assert "is a pickle" not in regard(verb, "in.txt", "-m", folder, "--allow-pickle").err


@pytest.mark.parametrize(("kind", "name"), [("gpt2", "gpt2"), ("bart", "bart"), ("vit", "vit")])
def test_a_hugging_face_folder_is_shown(regard, tmp_path, kind, name):
    folder = write(kind, tmp_path / kind)
    found = regard("show", folder)
    assert found.code == 0
    (line,) = [line for line in found.out.splitlines() if line.startswith("Hugging Face")]
    assert line.split() == ["Hugging", "Face", name]
    table = json.loads(regard("show", folder, "--json").out)
    assert table["cost"]["parameters"] > 0
    assert table["written_for"]["Hugging Face"] == name
    changed = json.loads(regard("show", folder, "model.init.std=0.5", "--json").out)
    assert changed["recipe"]["model"]["init"]["std"] == 0.5


def test_a_run_or_a_model_is_shown(regard, tmp_path):
    package.save_model(made.model_of("language"), tmp_path / "model")
    shown = json.loads(regard("show", "model", "--json").out)
    assert shown["written_for"] == {"Hugging Face": "gpt2", "CTranslate2": "yes"}
    assert shown["recipe"]["model"] == to_table(made.model_of("language").config)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "recipe.toml").write_text(to_toml(package.load_recipe("gpt2")))
    assert json.loads(regard("show", "run", "--json").out)["recipe"] == to_table(package.load_recipe("gpt2"))
    assert "cannot be read as a model" in regard.refused("show", tmp_path)


def test_models_that_cannot_be_written_say_why(regard):
    out = regard("show", "lstm").out
    assert "Hugging Face  no Hugging Face architecture can express this model; the nearest is gpt2: " in out
    assert "CTranslate2   no: model.layers.recurrent.residual: 'plain' is not supported" in out
    assert "CTranslate2   yes" in regard("show", "translator").out


def test_the_start_of_training_says_what_can_be_written(regard, tmp_path):
    text = write_lines(tmp_path / "a.txt", sentences(120))
    verb = ["train", "language", text, "task.window=16", "--dry-run", "train.tokens=64"]
    out = " ".join(regard(*verb).out.split())
    assert "exports to nothing: neither Hugging Face nor CTranslate2 can express this model" in out
    assert "; a model for Hugging Face: --recipe gpt2" in out
    assert "--recipe" not in regard(*verb, "--recipe", "lstm", "model.dim=16").out  # which the user chose
    folder = write("gpt2", tmp_path / "gpt2")
    out = " ".join(regard(*verb, "--init-from", folder).out.split())
    assert "exports to Hugging Face (gpt2), CTranslate2" in out
    assert f"from {folder}" in out


@pytest.mark.parametrize(("kind", "recipe"), [("classification", "bert"), ("masked", "bert"), ("vision", "vit")])
def test_a_task_whose_own_model_cannot_be_exported_names_one_that_can(kind: str, recipe: str, tmp_path):
    assert exportable_recipe(TASKS[kind].models) == recipe
    found = plan(data(kind, tmp_path), "train.steps=10", "model.dim=16", recipe=recipe)
    assert huggingface_obstacle(found.config.model) is None
    assert exportable_recipe(["trajectory"]) is None
