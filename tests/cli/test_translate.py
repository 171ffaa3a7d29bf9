"""`regard translate`."""

import json
from pathlib import Path

import pytest

from regard.use.load import load
from regard.use.loaded_model import LoadedModel
from regard.use.translate import Candidate, TranslatedLine, TranslateOptions

from ..processes import Ended
from ..training.command import regard as in_process
from ..use.made import answers, run
from .command import Command

LINES = ["red dog", "", "two blue cats"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return run("translation", tmp_path_factory.mktemp("runs") / "run")


@pytest.fixture
def regard(monkeypatch, capsys, tmp_path) -> Command:
    monkeypatch.chdir(tmp_path)
    Path("in.txt").write_text("".join(f"{line}\n" for line in LINES))
    return Command(monkeypatch, capsys)


def test_the_command_does_what_python_does(regard, folder):
    model = load(folder, "cpu")
    assert regard("translate", "-m", folder, *LINES).out.splitlines() == model.translate(LINES)
    options = ["--beam", 3, "--prefix", "blue", "--length-penalty", 0, "--longest-ratio", 0.5, "--batch-tokens", 50]
    wanted = model.translate(LINES, beam=3, prefix="blue", length_penalty=0.0, longest_ratio=0.5)
    assert regard("translate", "-m", folder, "-f", "in.txt", *options).out.splitlines() == wanted
    covered = model.translate(LINES, coverage=3.0, longest_ratio=0.5)
    assert (
        regard("translate", *LINES, "-m", folder, "--coverage", 3, "--longest-ratio", 0.5).out.splitlines() == covered
    )


def test_a_table_gives_its_source_column(regard, folder):
    """Not whole lines: a model that reads both sides and the tab between them writes nonsense."""
    wanted = load(folder, "cpu").translate(["red dog", "two blue cats"])
    Path("in.tsv").write_text("id\ttarget\tsource\n1\tx\tred dog\n2\ty\ttwo blue cats\n")
    done = regard("translate", "-m", folder, "-f", "in.tsv")
    assert (done.out.splitlines(), done.err) == (wanted, "regard: in.tsv: with header, source = column 3 (source)\n")
    Path("in.jsonl").write_text('{"de": "red dog", "en": "x"}\n{"de": "two blue cats", "en": "y"}\n')
    assert regard.refused("translate", "-m", folder, "-f", "in.jsonl") == (
        "in.jsonl: 2 columns could be the source: de, en; choose with --column=..."
    )
    for column in ("de", "1"):
        assert regard("translate", "-m", folder, "-f", "in.jsonl", "--column", column).out.splitlines() == wanted
    assert regard.refused("translate", "red", "-m", folder, "--column", "de").startswith("--column de: is for a table")


def test_the_name_of_a_file_as_a_text_is_pointed_out(regard, folder):
    done = regard("translate", "-m", folder, "in.txt", "red dog")
    assert done.code == 0
    assert done.err == "regard: in.txt is read as a text; -f in.txt reads the lines of the file\n"
    assert len(done.out.splitlines()) == 2


def test_precision(regard, folder):
    wanted = load(folder, "cpu", precision="int8").translate(LINES)
    done = regard("translate", "-m", folder, *LINES, "--device", "cpu", "--precision", "int8")
    assert (done.out.splitlines(), done.err) == (wanted, "")
    said = regard.refused("translate", "-m", folder, *LINES, "--device", "cpu", "--precision", "bfloat16")
    assert said == "bfloat16 is slow on the CPU; use --precision int8 or float32, or another --device"


def test_int8_prints_no_warnings(folder):
    """Not even the warning that torch prints once per process, hence in a new one."""
    (wanted,) = load(folder, "cpu", precision="int8").translate(["red dog"])
    command = ["translate", "red dog", "-m", folder, "--precision", "int8", "--device", "cpu"]
    assert in_process(*command) == Ended(0, f"{wanted}\n")


def test_n_best(regard, folder):
    found = list(
        answers(load(folder, "cpu").translate_lines(LINES, TranslateOptions(beam=3, n_best=2, longest_ratio=0.5)))
    )
    verb = ["translate", "-m", folder, "-f", "in.txt", "--beam", 3, "--n-best", 2, "--longest-ratio", 0.5]
    rows = [line.split(" ||| ") for line in regard(*verb).out.splitlines()]
    wanted = [
        [str(number), one.text, f"{one.score:.4f}"] for number, line in enumerate(found) for one in line.candidates
    ]
    assert rows == wanted
    assert [row[0] for row in rows] == ["0", "0", "1", "2", "2"]
    objects = [json.loads(line) for line in regard(*verb, "--json").out.splitlines()]
    assert [len(one["candidates"]) for one in objects] == [2, 1, 2]
    assert regard.refused("translate", "red", "-m", folder, "--n-best", 9) == (
        "--n-best 9 must be between 1 and --beam 5; search with a wider beam"
    )
    for option in ("length_penalty", "coverage", "longest_ratio"):
        for value in ("inf", "nan"):
            said = regard.refused("translate", "red", "-m", folder, f"--{option.replace('_', '-')}", value)
            assert said == f"--{option.replace('_', '-')} {value} must be a finite number"


def test_a_translation_stays_on_its_line(regard, folder, monkeypatch):
    made = TranslatedLine((Candidate("two\r\nlines", -1.0),))
    monkeypatch.setattr(LoadedModel, "translate_lines", lambda *arguments: iter([("red", made)]))
    assert regard("translate", "red", "-m", folder).out == "two  lines\n"
    assert regard("translate", "red", "-m", folder, "--n-best", 1).out == "0 ||| two  lines ||| -1.0000\n"
    assert json.loads(regard("translate", "red", "-m", folder, "--json").out)["translation"] == "two\r\nlines"


def test_alignments(regard, folder):
    options = TranslateOptions(alignments=True, longest_ratio=0.5)
    found = list(answers(load(folder, "cpu").translate_lines(LINES, options)))
    verb = ["translate", "-m", folder, "-f", "in.txt", "--alignments", "align.txt", "--longest-ratio", 0.5]
    assert regard(*verb).out.splitlines() == [one.text for one in found]
    lines = Path("align.txt").read_text().splitlines()
    assert lines == [" ".join(f"{one}-{other}" for one, other in line.alignment) for line in found]
    assert lines[0]
    assert lines[1] == ""
    objects = [json.loads(line) for line in regard(*verb, "--json").out.splitlines()]
    assert [one["alignment"] for one in objects] == [[list(pair) for pair in line.alignment] for line in found]
    assert [one["text"] for one in objects] == LINES
    assert set(objects[0]) == {"text", "translation", "score", "alignment"}


def test_letters_are_not_escaped_in_json(regard, folder):
    assert '"text": "grüne Bäume"' in regard("translate", "grüne Bäume", "-m", folder, "--json", "--beam", 1).out


def test_a_narrow_terminal_does_not_break_answers(regard, folder, monkeypatch):
    whole = regard("translate", "-m", folder, "one two three red", "--json", "--n-best", 3).out
    monkeypatch.setenv("COLUMNS", "20")
    assert regard("translate", "-m", folder, "one two three red", "--json", "--n-best", 3).out == whole
    assert whole.count("\n") == 1


def test_translations_and_alignments_need_a_file_each(regard, folder):
    refusal = "would hold both the answers and the alignments; name another file for one of them"
    verb = ["translate", "red", "-m", folder]
    for alias in ("out.txt", "../" + Path.cwd().name + "/out.txt"):
        assert regard.refused(*verb, "-o", "out.txt", "--alignments", alias) == f"{alias}: {refusal}"
    assert regard.refused(*verb, "--alignments", "-") == f"standard output: {refusal}"
    regard(*verb, "-o", "out.txt", "--alignments", "align.txt")
    assert regard(*verb, "-o", "out.txt", "--alignments", "-").out == Path("align.txt").read_text()
