"""`regard models`, and the verbs without `-m`, which use the models in the box."""

import json
from pathlib import Path

import pytest

from regard.use import box

from ..tasks.corpora import sentences
from ..use.made import image
from ..use.tiny_box import KINDS, put_box
from .command import Command

TEXT = sentences(1)[0]
NOTE = "regard: using {}, which comes with regard; -m RUN uses another model\n"


@pytest.fixture
def regard(monkeypatch, capsys, tmp_path) -> Command:
    monkeypatch.chdir(tmp_path)
    put_box(tmp_path / "box", monkeypatch)
    return Command(monkeypatch, capsys)


def test_lists_them_with_size_and_score(regard):
    lines = regard("models").out.splitlines()
    for name, kind in KINDS.items():
        (line,) = [line for line in lines if line.split()[:1] == [name]]
        assert line.rstrip().endswith(f"A tiny model for {kind}")
        assert "50.0 %" in line
        assert f"{box.box_model(name).size / 1e6:.1f} MB" in line
    assert "embed*" in next(line for line in lines if line.startswith("english"))
    assert "embed*" not in next(line for line in lines if line.startswith("topics"))


def test_a_narrow_terminal_has_whole_names_sizes_and_scores(regard, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    out = regard("models").out
    assert "…" not in out
    assert all(any(line.split()[:1] == [name] and " MB" in line for line in out.splitlines()) for name in KINDS)


def test_a_card_and_json(regard):
    assert regard("models", "topics").out == "# topics\n"
    found = json.loads(regard("models", "--json").out)
    assert [one["name"] for one in found] == sorted(KINDS)
    one = json.loads(regard("models", "topics", "--json").out)
    assert one == found[sorted(KINDS).index("topics")]
    assert one["check"]["files"] == ["check.tsv"]
    assert regard.refused("models", "topic").startswith("no model in the box has the name 'topic'; did you mean")


@pytest.mark.parametrize(
    ("verb", "arguments", "name"),
    [
        ("translate", (TEXT,), "en-fr"),
        ("generate", (TEXT, "--tokens", "3", "--seed", "1"), "shakespeare"),
        ("fill", ("one [MASK]",), "english"),
        ("embed", (TEXT,), "english"),
        ("embed", ("a.png",), "fashion"),
        ("classify", (TEXT,), "topics"),
        ("classify", ("a.png",), "fashion"),
        ("parse", (TEXT, "--beam", "2"), "trees"),
        ("annotate", ("--alignment", "rows.fasta"), "proteins"),
        ("evaluate", (), "en-fr"),
        ("look", (TEXT, "--csv", "out.csv"), "en-fr"),
        ("look", (TEXT, "--tokens", "2", "--csv", "out.csv"), "shakespeare"),
        ("look", ("a.png", "--csv", "out.csv"), "fashion"),
    ],
)
def test_a_verb_works_without_a_model(regard, verb, arguments, name):
    image(Path("a.png"))
    Path("rows.fasta").write_text(">one\nACDEFG\n>other\nACD-FG\n")  # the tiny model reads alignments
    done = regard(verb, *arguments)
    assert done.code == 0, done.err
    assert done.out
    assert done.err == NOTE.format(name)
    named = regard(verb, *arguments, "-m", name)
    assert (named.out, named.err) == (done.out, "")


def test_ablate_measures_on_the_data_that_comes_with_a_model(regard):
    done = regard("ablate", "--json")
    assert done.err == NOTE.format("en-fr")
    found = json.loads(done.out)
    assert found["model"].endswith("en-fr")
    assert found["heads"]
    assert regard("ablate", "en-fr", "--json").out == done.out  # a name works where a folder does


def test_own_runs_are_not_chosen(regard):
    Path("runs/translation-1").mkdir(parents=True)
    assert regard("translate", TEXT).err == NOTE.format("en-fr")


def test_a_name_works_where_a_folder_does(regard):
    assert regard("look", TEXT, "-m", "en-fr", "-m", "shakespeare", "--export", "p.html").code == 0
    assert regard("convert", "shakespeare", "out", "--to", "huggingface").out == "out\n"
    assert Path("out/config.json").exists()
    Path("rows.txt").write_text("".join(f"{text}\n" for text in sentences(600)))
    done = regard("train", "language", "rows.txt", "--init-from", "shakespeare", "train.steps=1", "--run", "run")
    assert done.code == 0, done.err


def test_a_damaged_model_is_one_line(regard):
    path = box.FOLDER / "topics/tokenizer.json"
    path.write_text("{}")
    done = regard("classify", TEXT)
    assert done.code == 2
    assert done.err.splitlines()[1].startswith(f"regard: {path}: is damaged (size or checksum differ from card.json)")
