"""Starting from a Hugging Face folder: its architecture, its tokenizer, its weights."""

import json
from pathlib import Path

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file

import regard
from regard.config import to_table
from regard.errors import ConfigError, RegardError
from regard.hub import folder as hub
from regard.models.store import read_model
from regard.training import start
from regard.training.pretrained import Pretrained, take_weights
from regard.training.ranks import Ranks
from regard.training.trial import build_model

from ..tasks.corpora import sentences
from ..tasks.corpora import write as write_lines
from ..use.theirs import KINDS, write
from .tiny import plan

BRIEF = ["train.steps=3", "train.validate_every=3", "train.checkpoint_every=3", "train.log_every=1", "train.tokens=64"]
STILL = ["train.optimizer.rate=1e-12", "train.optimizer.decay=0.0"]
QUIET = Console(quiet=True)


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(start, "finish", lambda *arguments: None)


@pytest.fixture
def text(tmp_path) -> str:
    return write_lines(tmp_path / "a.txt", sentences(120))


def tasks(text: str) -> dict[str, dict[str, object]]:
    rows = ["text\tlabel", *(f"{line}\t{'long' if len(line) > 20 else 'short'}" for line in sentences(60))]
    return {
        "gpt2": {"kind": "language", "train": [text]},
        "llama": {"kind": "language", "train": [text], "window": 16},
        "bert": {"kind": "masked", "train": [text]},
        "bert-classes": {"kind": "classification", "train": [write_lines(Path("t.tsv"), rows)]},
        "marian": {"kind": "translation", "source": [text], "target": [text]},
        "bart": {"kind": "translation", "source": [text], "target": [text]},
    }


@pytest.mark.parametrize("kind", ["gpt2", "llama", "bert", "bert-classes", "marian", "bart"])
def test_all_comes_from_the_folder(kind, text, tmp_path):
    """At a rate of almost zero the weights do not change, and ids and answers are those of the folder."""
    folder = write(kind, tmp_path / kind, spare=3)
    task = tasks(text)[kind]
    if kind == "bert-classes":
        task["classes"] = ["long", "short", "medium"]
    run = regard.train(task, *BRIEF, *STILL, init_from=folder, run="run", console=QUIET)
    before, after = hub.load_huggingface(folder), read_model("run")
    assert to_table(after.config) == to_table(before.config)
    wanted = before.state_dict()
    for name, tensor in after.state_dict().items():
        torch.testing.assert_close(tensor, wanted[name], atol=1e-6, rtol=0)
    theirs, ours = regard.load(folder, "cpu"), regard.load("run", "cpu")
    lines = ["two red dogs", "the cat"]
    assert [row.tolist() for row in ours.tokenizer.encode(lines)] == [
        row.tolist() for row in theirs.tokenizer.encode(lines)
    ]
    assert ours.tokenizer.roles == theirs.tokenizer.roles
    if kind in ("marian", "bart"):
        assert ours.translate(lines) == theirs.translate(lines)
    if kind == "bert-classes":
        assert ours.classes == ("long", "short", "medium")
    assert run.config.tokenizer.path == str(folder)


def test_its_positions_limit_the_window_and_its_rate_is_small(text, tmp_path):
    folder = write("gpt2", tmp_path / "gpt2")
    found = plan({"kind": "language", "train": [text]}, init_from=folder).config
    assert found.task.window == 32  # its number of positions
    assert found.train.optimizer.rate < 1e-3
    fresh = plan({"kind": "language", "train": [text]}).config
    assert fresh.task.window == 128
    assert to_table(fresh.train.optimizer)["kind"] == "muon"


def test_pairs_that_are_longer_than_its_positions_are_left_out(text, tmp_path, monkeypatch):
    monkeypatch.setitem(KINDS["bart"][0].values, "max_position_embeddings", 6)
    folder = write("bart", tmp_path / "bart")
    found = plan(tasks(text)["bart"], init_from=folder)
    assert found.config.task.longest == 6
    (report,) = found.task.skipped.report()
    left_out = int(report.split()[0])
    assert f"{left_out} pairs of more than 6 tokens" in report
    assert sum(found.task.facts()[name] for name in ("pairs", "validation pairs")) == 120 - left_out
    regard.train(tasks(text)["bart"], *BRIEF, init_from=folder, run="run", console=QUIET)
    assert read_model("run").longest() == 6


def test_it_learns_and_can_be_repeated_from_its_recipe(text, tmp_path):
    folder = write("marian", tmp_path / "marian", spare=5)
    task = tasks(text)["marian"]
    regard.train(task, *BRIEF, "train.optimizer.rate=0.01", init_from=folder, run="run", console=QUIET)
    before, after = hub.load_huggingface(folder).state_dict(), read_model("run").state_dict()
    assert not torch.equal(before["embed.tokens.table.weight"], after["embed.tokens.table.weight"])
    again = plan(Path("run/recipe.toml")).config
    assert again.model == read_model("run").config  # with its unused tokens


def test_another_head_comes_from_the_same_family(text, tmp_path):
    """A BERT for masked tokens that learned classes can be exported."""
    folder = write("bert", tmp_path / "bert")
    said = []
    found = plan(tasks(text)["bert-classes"], init_from=folder)
    table = to_table(found.config.model)["head"]
    assert (table["kind"], table["transform"], table["classes"]) == ("classes", "tanh", 2)
    assert hub.huggingface_obstacle(found.config.model) is None
    model = build_model(found.config, Ranks(0, 1, torch.device("cpu")))
    take_weights(model, Pretrained(folder), found.task.tokenizer, said.append)
    assert "weights taken from" in said[0]
    assert "new: head.classify.bias" in said[0]
    regard.train(tasks(text)["bert-classes"], *BRIEF, init_from=folder, run="run", console=QUIET)


def test_a_bert_that_classifies_can_be_exported(text):
    """`--recipe bert` gets the classification head of BERT, which has a dense layer with tanh."""
    small = ["model.dim=16", "model.depth=1", "model.layers.block.mixer.heads.heads=2"]
    model = plan(tasks(text)["bert-classes"], *small, recipe="bert").config.model
    assert to_table(model)["head"]["transform"] == "tanh"
    assert hub.huggingface_obstacle(model) is None


def test_a_name_on_the_hub_is_not_a_folder(text):
    with pytest.raises(RegardError, match="^gpt2: no such folder; .*hf download NAME --local-dir FOLDER"):
        plan(tasks(text)["gpt2"], init_from="gpt2")


def test_what_does_not_fit(text, tmp_path):
    folder = write("bert", tmp_path / "bert")
    with pytest.raises(ConfigError, match="a model of the kind 'encoder' cannot be trained for language"):
        plan({"kind": "language", "train": [text]}, init_from=folder)
    with pytest.raises(ConfigError, match="--recipe and --init-from each decide the model"):
        plan({"kind": "language", "train": [text]}, init_from=folder, recipe="gpt2")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "bort"}))
    with pytest.raises(RegardError, match="the family 'bort' .* is not supported; supported are bart, bert"):
        plan({"kind": "masked", "train": [text]}, init_from=folder)


def test_a_pickle_is_read_if_that_is_allowed(text, tmp_path):
    folder = write("gpt2", tmp_path / "gpt2")
    weights = hub.load_huggingface(folder).state_dict()
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    task = tasks(text)["gpt2"]
    with pytest.raises(
        RegardError, match=r"is a pickle.* not read; .*allow it with --allow-pickle if you trust its author"
    ):
        plan(task, init_from=folder)
    options = {"init_from": folder, "allow_pickle": True, "console": QUIET}
    regard.train(task, *BRIEF, *STILL, run="run", **options)
    after = read_model("run").state_dict()
    for name, tensor in weights.items():
        torch.testing.assert_close(after[name], tensor, atol=1e-6, rtol=0)
