"""`regard ablate` on tiny runs: the loss without each head, as a table, CSV, JSON and a picture."""

import csv
import json
from pathlib import Path

import pytest
import torch

import regard as package
from regard.tasks.language import Language
from regard.use.ablate import HeadAblation
from regard.use.bundle import Bundle

from ..use.made import run
from .command import Command


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    for kind in ("language", "translation", "masked"):
        run(kind, folder / kind, "bpe")
    return folder


@pytest.fixture
def regard(monkeypatch, capsys, runs) -> Command:
    monkeypatch.setenv("REGARD_CACHE", str(runs / "cache"))
    monkeypatch.chdir(runs)
    return Command(monkeypatch, capsys)


@pytest.mark.parametrize("kind", ["language", "translation", "masked"])
def test_the_loss_without_a_head_is_that_of_a_model_whose_head_writes_nothing(regard, runs, kind):
    found = package.load(runs / kind).ablate()
    loaded = package.load(runs / kind)
    assert found.loss == pytest.approx(loaded.evaluate()["loss"])
    roles = loaded.model.attentions()
    counts = {role.id: loaded.model.get_submodule(role.name).heads.heads for role in roles}
    assert sorted((one.attention, one.head) for one in found.heads) == sorted(
        (name, head) for name, count in counts.items() for head in range(count)
    )
    assert [one.rise for one in found.heads] == sorted((one.rise for one in found.heads), reverse=True)
    one = found.heads[-1]
    heads = next(loaded.model.get_submodule(role.name).heads for role in roles if role.id == one.attention)
    with torch.no_grad():
        heads.output.weight[:, one.head * heads.head_dim : (one.head + 1) * heads.head_dim] = 0
    assert HeadAblation(loaded.bundle).whole == pytest.approx(one.loss, abs=1e-5)
    assert one.rise == pytest.approx(one.loss - found.loss)


def test_a_table_a_picture_and_numbers(regard, runs, tmp_path):
    done = regard("ablate", "language", "--csv", tmp_path / "a.csv", "--svg", tmp_path / "a.svg")
    assert done.code == 0, done.err
    assert "loss of the whole model" in done.out
    assert "self L1.H1" in done.out
    rows = list(csv.DictReader((tmp_path / "a.csv").read_text().splitlines()))
    assert rows[0].keys() == {"attention", "head", "name", "loss", "rise"}
    assert {row["attention"] for row in rows} == {
        role.id for role in package.load(runs / "language").model.attentions()
    }
    assert "Rise of the loss" in (tmp_path / "a.svg").read_text()
    numbers = regard("ablate", "-m", "language", "--json")
    found = json.loads(numbers.out)
    assert found["missing"] == 0
    assert [one["rise"] for one in found["heads"]] == pytest.approx([float(row["rise"]) for row in rows if row["head"]])


def test_files_are_read_as_in_evaluate(regard, runs, tmp_path):
    text = tmp_path / "other.txt"
    text.write_text("one red dog sleeps\ntwo blue cats run\n" * 40, encoding="utf-8")
    done = regard("ablate", "language", text, "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["loss"] == pytest.approx(package.load(runs / "language").evaluate(text)["loss"])


def test_ctrl_c_shows_what_was_measured(regard, monkeypatch):
    measured = []
    whole = Language.validation_loss

    def interrupted(task: Language, model: torch.nn.Module) -> float:
        measured.append(1)
        if len(measured) > 3:
            raise KeyboardInterrupt
        return whole(task, model)

    monkeypatch.setattr(Language, "validation_loss", interrupted)
    done = regard("ablate", "language")
    assert done.code == 130
    assert "stopped after 2 of" in done.err
    assert done.out.count("self L1.H") == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["language", "nowhere.txt"], "nowhere.txt"),
        (["language", "--svg", "heads.gif"], "heads.gif: unknown picture format '.gif'; use .svg, .png or .pdf"),
        (["language", "--csv", "no/where/a.csv"], "no/where"),
        (["language", "task.text=body"], "is for files, but none is named"),
    ],
)
def test_mistakes_are_one_line(regard, arguments, message):
    done = regard("ablate", *arguments)
    assert done.code == 2
    assert message in done.err
    assert done.err.count("\n") == 1


def test_a_model_without_attention_has_no_heads(tmp_path):
    model = package.build("lstm", "model.vocabulary=9", "model.dim=8")
    with pytest.raises(package.InputError, match="without attention, so it has no heads"):
        HeadAblation(Bundle(model, "mine"))
