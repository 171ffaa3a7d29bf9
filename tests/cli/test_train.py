"""`regard train` with the files that users have: good ones, and bad ones of every sort."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from rich.cells import cell_len
from safetensors.torch import load_file

from regard.cli.plan import reading_lines
from regard.data.columns import FileReading
from regard.errors import ConfigError
from regard.tasks.kinds import TASKS
from regard.training import start

from ..processes import Ended
from ..tasks.corpora import sentences, write
from ..training.command import close_output
from ..training.command import regard as in_process
from ..use.theirs import write as write_theirs
from .command import Command

TINY = ["model.dim=16", "model.depth=1", "model.layers.block.mixer.heads.heads=2"]
TINY += ["model.layers.block.feedforward.hidden=24"]
BRIEF = ["train.steps=2", "train.validate_every=2", "train.checkpoint_every=2", "train.tokens=64"]
SHORT = "task.window=16"


@pytest.fixture
def regard(monkeypatch, capsys, tmp_path) -> Command:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(start, "finish", lambda *arguments: None)  # drawing curves takes longer than training
    return Command(monkeypatch, capsys)


def file(name: str, lines: list[str]) -> str:
    write(Path(name), lines)
    return name


def text(name: str = "a.txt", count: int = 120) -> str:
    return file(name, sentences(count))


def table(name: str, rows: list[tuple[str, str]]) -> str:
    return file(name, ["text\tlabel", *("\t".join(row) for row in rows)])


def images(folder: str, count: int = 12) -> Path:
    chance = np.random.default_rng(0)
    for label in ("cat", "dog"):
        Path(folder, label).mkdir(parents=True)
        for number in range(count):
            pixels = chance.integers(0, 255, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(Path(folder, label, f"{number}.png"))
    return Path(folder)


# --- what works ------------------------------------------------------------------------------------------------------


def test_a_run_from_a_file(regard):
    done = regard("train", "language", text(), SHORT, *BRIEF, *TINY)
    assert (done.code, done.err) == (0, "")
    assert "runs/language-1" in done.out
    assert Path("runs/language-1/model.safetensors").exists()
    shown = regard("show", "runs/language-1/recipe.toml")
    assert (shown.code, shown.err) == (0, "")
    assert "LanguageModel" in shown.out


def test_a_dry_run_writes_nothing(regard):
    done = regard("train", "language", text(), SHORT, *BRIEF, *TINY, "--dry-run")
    assert done.code == 0
    assert re.search(r"tokenizer +char, \d+ tokens", done.out)
    assert re.search(r"data +1 text, [\d,]+ tokens", done.out)
    assert re.search(r"about \d+ ms an update, \d+ s in all", done.out)
    assert re.search(r"command line +task.kind=language", done.out)
    assert re.search(r"\(TextConfig.suggest_tokenizer\) +tokenizer.kind=char", done.out)
    assert "Nothing was written" in done.out
    assert not Path("runs").exists()


@pytest.mark.usefixtures("regard")
def test_a_closed_output_does_not_prevent_training():
    """In a process of its own, whose standard output is a closed pipe."""
    command = ["train", "language", text(), SHORT, *BRIEF, *TINY, "--run", "run"]
    assert in_process(*command, before=close_output) == Ended(0, "")  # nothing on standard error
    assert Path("run/model.safetensors").exists()


def test_blank_lines_are_counted_and_reported(regard):
    source = file("a.de", ["", *sentences(60), " "])
    target = file("a.en", ["x", *sentences(60), "y"])
    changes = ["model.dim=16", "model.encoder.depth=1", "model.decoder.depth=1"]
    done = regard("train", "translation", "--source", source, "--target", target, *BRIEF, *changes, "--dry-run")
    assert done.code == 0
    assert "2 blank lines skipped (first: a.de:1)" in done.out


def test_a_line_of_ten_megabytes(regard):
    huge = "one two three four " * 550_000
    assert len(huge) > 10_000_000
    source = file("a.de", [*sentences(60), huge])
    changes = ["model.dim=16", "model.encoder.depth=1", "model.decoder.depth=1", "tokenizer.kind=char"]
    done = regard("train", "translation", "--source", source, "--target", source, *BRIEF, *changes, "--dry-run")
    assert (done.code, done.err) == (0, "")
    assert "1 pair of more than 128 tokens skipped (first: a.de, pair 61)" in done.out
    done = regard("train", "language", source, SHORT, *BRIEF, *TINY, "tokenizer.kind=char", "--dry-run")
    assert (done.code, done.err) == (0, "")


def test_a_broken_image_is_counted_and_reported(regard):
    folder = images("pictures")
    (folder / "cat" / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n and no more")
    done = regard("train", "vision", folder, *BRIEF, *TINY, "--dry-run")
    assert done.code == 0, done.err
    assert "1 broken image skipped (first: pictures/cat/broken.png)" in done.out


# --- what is read from files -----------------------------------------------------------------------------------------

SHORTEST_PAIRS = [*BRIEF, "model.dim=16", "model.encoder.depth=1", "model.decoder.depth=1", "--dry-run"]


def plan(done) -> str:
    assert (done.code, done.err) == (0, "")
    return done.out.partition("where the values")[0]


@pytest.mark.parametrize(
    ("name", "header", "columns", "how"),
    [
        ("a.csv", "id,de,en", "{0},{1},{2}", "with header, source = column 2 (de), target = column 3 (en)"),
        ("a.csv", "de,en", "{1},{2}", "with header, source = column 1 (de), target = column 2 (en)"),
        ("a.tsv", "", "{0}\t{1}\t5{0}\t{2}", "no header, source = column 2, target = column 4"),
        (
            "a.jsonl",
            "",
            '{{"id": "{0}", "translation": {{"de": "{1}", "en": "{2}"}}}}',
            "source = column 2 (de), target = column 3 (en)",
        ),
    ],
)
def test_the_plan_says_which_columns_are_read_with_an_example(regard, name, header, columns, how):
    rows = [columns.format(number, text, text[::-1]) for number, text in enumerate(sentences(60))]
    shown = plan(regard("train", "translation", file(name, [header, *rows] if header else rows), *SHORTEST_PAIRS))
    first = sentences(60)[0]
    lines = [line.strip() for line in shown.splitlines()]
    place = next(number for number, line in enumerate(lines) if line.startswith("files"))
    assert lines[place].split(maxsplit=1)[1] == f"{name}: {how}"
    examples = [line.split(maxsplit=1) for line in lines[place + 1 : place + 3]]
    assert examples == [["source", first], ["target", first[::-1]]]
    assert "57 pairs" in shown  # all rows but those held out; the header is not a pair


def test_columns_by_name_or_number_are_kept_in_the_recipe(regard):
    table = file("a.csv", ["fr,en,de", *(f"x,{text[::-1]},{text}" for text in sentences(60))])
    arguments = ["train", "translation", table, *SHORTEST_PAIRS]
    found = regard.refused(*arguments)
    listed = "3 columns could be the source and the target: fr, en, de"
    assert found == f"a.csv: {listed}; choose with task.source_column=... task.target_column=..."
    shown = plan(regard(*arguments, "task.source_column=de", "task.target_column=2"))
    assert "source = column 3 (de), target = column 2 (en)" in shown
    Path("b.csv").write_text("de,en\n" + "".join(f"{text},{text[::-1]}\n" for text in sentences(60)))
    done = regard("train", "translation", "b.csv", *SHORTEST_PAIRS[:-1], "--run", "run")
    assert done.code == 0, done.err
    recipe = Path("run/recipe.toml").read_text()
    assert 'source_column = "de"' in recipe
    assert 'target_column = "en"' in recipe


def test_a_table_with_other_columns_is_not_read_by_position(regard):
    one = table("a.tsv", [(line, "ab"[number % 2]) for number, line in enumerate(sentences(40))])
    other = file("b.tsv", ["kind\tbody", *(f"a\t{line}" for line in sentences(9))])
    found = regard.refused("train", "classification", one, "--valid", other, *BRIEF, *TINY)
    assert found.startswith("b.tsv: has no column 'text' for the text (task.text); ")
    swapped = file("c.tsv", ["label\ttext", *(f"a\t{line}" for line in sentences(9))])
    shown = plan(regard("train", "classification", one, "--valid", swapped, *BRIEF, *TINY, "--dry-run"))
    assert "a.tsv: with header, text = column 1 (text), label = column 2 (label)" in shown
    assert "c.tsv: with header, text = column 2 (text), label = column 1 (label)" in shown


def test_a_first_row_that_can_be_read_in_two_ways_is_said(regard):
    rows = [f"{line}\t{['yes', 'no'][number % 2]}" for number, line in enumerate(sentences(40))]
    arguments = ["train", "classification", file("a.tsv", ["title\tgood", *rows]), *BRIEF, *TINY, "--dry-run"]
    shown = plan(regard(*arguments))
    assert "a.tsv: with header, text = column 1 (title), label = column 2 (good)" in shown
    assert "(its first row may be data: task.header=false)" in shown
    assert "38 texts" in shown
    assert "2 classes" in shown
    shown = plan(regard(*arguments, "task.header=false", "task.text=1", "task.label=2"))
    assert "a.tsv: no header, text = column 1, label = column 2" in shown
    assert "3 classes" in shown


def test_examples_fit_the_terminal(regard, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    long = [f"{'word ' * 60}{number}" for number in range(30)]
    shown = plan(regard("train", "translation", file("a.de", long), file("a.en", long), *SHORTEST_PAIRS))
    lines = [line for line in shown.splitlines() if "word" in line]
    assert len(lines) == 2
    assert all(len(line.rstrip()) <= 80 and line.rstrip().endswith("...") for line in lines)
    wide = FileReading(("a.ja",), "one text", {"text": "\u72ac" * 99})
    assert all(cell_len(line) <= 60 for line in reading_lines([wide], 60))


def test_names_of_examples_are_apart_from_them():
    found = reading_lines([FileReading(("a.mrg",), "trees", {"sentence": "I saw it", "tree": "(S it)"})], 60)
    assert list(found)[1:] == ["  sentence  I saw it", "  tree      (S it)"]
    assert len(list(reading_lines([FileReading(("a.jsonl",), "places", {})], 60))) == 1  # without an example


def test_a_folder_of_texts(regard):
    for number, part in enumerate(("one", "two/three")):
        Path("texts", part).parent.mkdir(parents=True, exist_ok=True)
        write(Path("texts", f"{part}.txt"), sentences(60, seed=number))
    write(Path("texts/more.jsonl"), [f'{{"id": 1, "text": "{line}"}}' for line in sentences(20)])
    shown = plan(regard("train", "language", "texts", SHORT, *BRIEF, *TINY, "--dry-run"))
    assert "texts/one.txt: one text" in shown
    assert "texts/more.jsonl: text = column 2 (text)" in shown


def test_labels_of_images_are_in_the_plan(regard):
    shown = plan(regard("train", "vision", images("pictures"), *BRIEF, *TINY, "--dry-run"))
    assert "pictures: label = the folder of an image (cat, dog)" in shown
    assert "pictures/cat/0.png" in shown
    assert re.search(r"to beat +majority class: accuracy .*\n +linear: accuracy .* \(pixels of \d+ images\)", shown)


@pytest.mark.parametrize("kind", list(TASKS))
def test_a_task_without_files_asks_for_some(kind):
    with pytest.raises(ConfigError, match="name a"):
        TASKS[kind].from_files([], [])


def test_a_key_without_its_table_is_suggested_with_it(regard):
    assert regard.refused("show", "gpt2", "depth=5") == "depth: unknown key; did you mean 'model.depth'?"
    found = regard.refused("train", "language", text(), "depth=2")
    assert found == "override 'depth=2' must have the form table.key=value; did you mean model.depth=2?"


def test_whole_numbers_may_be_written_as_powers_of_ten(regard):
    shown = plan(regard("train", "language", text(), SHORT, *BRIEF[1:], *TINY, "train.steps=1e3", "--dry-run"))
    assert "1,000 updates" in shown
    found = regard.refused("train", "language", "a.txt", SHORT, "train.steps=1.5")
    assert found == "train.steps: 1.5 must be a whole number"


# --- files that are not what they should be --------------------------------------------------------------------------


def test_files_that_do_not_match_line_by_line(regard):
    one, other = text("a.de", 60), text("a.en", 59)
    found = regard.refused("train", "translation", "--source", one, "--target", other)
    assert found == "a.de has 60 lines but a.en has 59; they must match line by line"


@pytest.mark.parametrize("task", ["language", "masked", "classification"])
def test_an_empty_file(regard, task):
    name = "a.tsv" if task == "classification" else "a.txt"
    Path(name).write_bytes(b"")
    assert regard.refused("train", task, name).startswith(f"{name}: is empty; it must hold at least one line")


def test_nothing_but_blanks(regard):
    assert regard.refused("train", "masked", file("a.txt", [" "] * 30)) == (
        "a.txt: holds no text to learn from; give files that hold some"
    )


def test_bytes_that_are_not_text(regard):
    Path("a.txt").write_bytes(b"fine\nstill fine\nnot \xff fine\n")
    found = regard.refused("train", "language", "a.txt")
    assert found.startswith("a.txt:3: not valid UTF-8 (")
    assert found.endswith("; save the file as UTF-8")


@pytest.mark.parametrize("task", ["language", "masked", "classification", "vision"])
def test_a_missing_file(regard, task):
    found = regard.refused("train", task, "missing.tsv")
    assert found.startswith("missing.tsv: ")
    assert "no such file" in found.lower()


def test_a_missing_side(regard):
    found = regard.refused("train", "translation", "--source", text(), "--target", "missing.en")
    assert found.startswith("missing.en: ")
    assert regard.refused("train", "translation", "--source", text()).startswith("a.txt: holds only one side; ")


@pytest.mark.parametrize("name", ["a.pdf", "a.docx", "a.zip"])
def test_a_file_of_an_unknown_kind(regard, name):
    Path(name).write_bytes(b"something")
    assert regard.refused("train", "language", name).startswith(f"{name}: cannot be read as text; what can be read: ")


def test_a_text_is_not_a_table_or_an_image(regard):
    assert regard.refused("train", "classification", text()).startswith("a.txt: is not a table; tables are ")
    assert regard.refused("train", "vision", text()).startswith("a.txt: no images can be read from .txt; give ")


def test_a_folder_without_texts(regard):
    Path("folder").mkdir()
    found = regard.refused("train", "language", "folder")
    assert found.startswith("folder: is a folder without text files or tables; name a file")


def test_too_little_text(regard):
    found = regard.refused("train", "language", text(count=2))
    assert re.fullmatch(
        r"a.txt: \d+ tokens for \w+ are too few for windows of \d+; give more text or lower task.window", found
    )


def test_a_label_that_only_the_validation_has(regard):
    train = table("a.tsv", [(line, "ab"[number % 2]) for number, line in enumerate(sentences(30))])
    valid = table("b.tsv", [("red dog", "c")])
    found = regard.refused("train", "classification", train, "--valid", valid)
    assert found.startswith("b.tsv: none of its labels (c) occurs in the training data (a, b); choose the column of")


def test_one_class_only(regard):
    train = table("a.tsv", [(line, "a") for line in sentences(30)])
    found = regard.refused("train", "classification", train)
    assert found == "a.tsv: all texts have the label 'a'; a classifier needs at least two classes"
    images("pictures")
    Path("pictures/dog").rename("dog")
    assert "all images for train are of one class, 'cat'" in regard.refused("train", "vision", "pictures")


def test_a_file_that_is_not_a_tokenizer(regard):
    Path("tokenizer.json").write_text('{"hello": 1}')
    found = regard.refused("train", "language", text(), SHORT, "tokenizer.path=tokenizer.json")
    assert found.startswith("tokenizer.json: cannot be read as a tokenizer: ")
    found = regard.refused("train", "language", text(), SHORT, "tokenizer.path=a.txt")
    assert found.startswith("a.txt: unknown kind of file; a tokenizer is a tokenizer.json, a sentencepiece .model")
    Path("m.model").write_bytes(b"nonsense")
    assert regard.refused("train", "language", text(), SHORT, "tokenizer.path=m.model").startswith("m.model: ")


# --- what is asked for cannot be -------------------------------------------------------------------------------------


def test_a_folder_that_cannot_be_written(regard):
    text()
    found = regard.refused("train", "language", "a.txt", SHORT, *BRIEF, *TINY, "--run", "a.txt/run")
    assert found.startswith("a.txt/run")
    assert "cannot be written" in found


def test_a_folder_that_has_another_run(regard):
    arguments = ["train", "language", text(), SHORT, *BRIEF, *TINY, "--run", "mine"]
    assert regard(*arguments).code == 0
    before = Path("mine/model.safetensors").read_bytes()
    found = regard.refused(*arguments[:2], "missing.txt", *arguments[3:])  # before anything is read
    remedy = "continue it with --resume mine, replace it with --overwrite, or choose another --run FOLDER"
    assert found == f"mine: already holds a run; {remedy}"
    assert Path("mine/model.safetensors").read_bytes() == before
    needs = "--overwrite needs the folder of the run that it replaces; name it with --run FOLDER"
    assert regard.refused(*arguments[:-2], "--overwrite") == needs


def test_a_vocabulary_that_is_not_the_tokenizers(regard):
    found = regard.refused("train", "language", text(), SHORT, "model.vocabulary=99")
    assert re.fullmatch(r"model.vocabulary: 99 differs from the data, which has \d+; leave it out", found)


def test_an_unknown_key(regard):
    assert "train.stpes: unknown key; did you mean 'steps'" in regard.refused(
        "train", "language", text(), SHORT, "train.stpes=3"
    )
    assert regard.refused("train", "language", text(), SHORT, "stpes=3").startswith(
        "override 'stpes=3' must have the form table.key=value; tables: "
    )


def test_an_unknown_size(regard):
    found = regard.refused("train", "language", text(), SHORT, "--size", "smal")
    assert found.startswith("--size 'smal' is unknown; did you mean 'small'?")


def test_a_recipe_of_the_wrong_kind(regard):
    found = regard.refused("train", "language", text(), SHORT, "--recipe", "vit")
    assert found.startswith(
        "model.kind: a model of the kind 'vision' cannot be trained for language; recipes that can:"
    )
    assert "gpt2" in found
    assert "vit," not in found


def test_recipes_that_do_not_exist(regard):
    assert "no recipe has the name 'ltsm'; did you mean 'lstm'" in regard.refused(
        "train", "language", text(), SHORT, "--recipe", "ltsm"
    )
    assert regard.refused("train", "missing.toml").startswith("missing.toml: cannot read the recipe: ")
    assert regard.refused("train", "gpt2").startswith("gpt2: has no [task] table; add it, or name a task")
    Path("bad.toml").write_text("[task\n")
    assert regard.refused("train", "bad.toml").startswith("bad.toml: is not valid TOML: ")


def test_a_mistake_in_a_recipe_names_its_file(regard):
    task = f'[task]\nkind = "language"\ntrain = ["{text()}"]\n'
    mistakes = {
        "task.windw: unknown key; did you mean 'window'?": f"{task}windw = 9\n",
        "train.minuts: unknown key; did you mean 'minutes'?": f"{task}[train]\nminuts = 3\n",
        'model.depth: "x" must be a whole number': f'{task}[model]\ndepth = "x"\n',
        "modle: unknown key; did you mean 'model'?": f"{task}[modle]\ndepth = 3\n",
    }
    for rule, recipe in mistakes.items():
        Path("mine.toml").write_text(recipe)
        assert regard.refused("train", "mine.toml").startswith(f"mine.toml: {rule}")
    Path("mine.toml").write_text(task)
    assert regard.refused("train", "mine.toml", "task.windw=9").startswith("task.windw: unknown key")


def test_the_plan_and_the_architecture_caution_of_keys_that_are_not_inherited(regard):
    task = f'[task]\nkind = "translation"\nsource = ["{text("a.de")}"]\ntarget = ["{text("a.en")}"]\n'
    mixer = '[model.encoder.layers.recurrent.mixer]\nkind = "lstm"\n'
    Path("mine.toml").write_text(f'like = "rnn-attention"\n{task}{mixer}')
    rule = "mine.toml does not inherit model.encoder.layers.recurrent.mixer.bidirectional=true"
    assert rule in " ".join(regard("train", "mine.toml", "--dry-run", "model.dim=16", "train.steps=3").out.split())
    assert rule in " ".join(regard("show", "mine.toml").out.split())


def test_the_plan_cautions_of_texts_that_the_tokenizer_does_not_know(regard):
    """Their perplexity is low, since the next token is nearly always the unknown one."""
    brief, dry = ["model.dim=16", "model.depth=1", *BRIEF, SHORT], "--dry-run"
    rule = "% of the tokens are unknown to the tokenizer, so the score says little; "
    given = file("rare.txt", [f"word{number}" for number in range(400)])
    plan = " ".join(
        regard("train", "language", given, *brief, "tokenizer.kind=word", "tokenizer.vocabulary=9", dry).out.split()
    )
    assert f"{rule}choose tokenizer.kind=bpe" in plan
    regard("train", "language", text(), *brief, "--run", "run")
    other = file("other.txt", ["\u65e5\u672c\u8a9e"] * 400)
    plan = " ".join(regard("train", "language", other, *BRIEF, SHORT, "--init-from", "run", dry).out.split())
    assert f"{rule}give texts like those that the model was trained on" in plan
    plan = " ".join(regard("train", "language", text(), *BRIEF, SHORT, "--init-from", "run", dry).out.split())
    assert "unknown to the tokenizer" not in plan


def test_a_misspelt_task(regard):
    found = regard.refused("train", "langauge", text())
    assert found == "'langauge' is neither a task nor a recipe; did you mean the task 'language'?"


def test_a_task_left_out(regard):
    found = regard.refused("train", text())
    assert found == f"a.txt: name the task before the files: {', '.join(TASKS)}"
    Path("old").mkdir()
    file("old/recipe.toml", [])
    assert regard.refused("train", "old") == (
        "old: is a run; continue it with --resume old, or repeat it with old/recipe.toml"
    )


def test_a_word_that_is_not_a_task_lists_the_tasks(regard):
    found = regard.refused("train", "foo", text())
    tasks = ", ".join(TASKS)
    assert found == f"'foo' is neither a task nor a recipe; tasks: {tasks}; `regard recipes` lists the recipes"


OWN_TASK = """
from dataclasses import dataclass

import regard
from regard.tasks.language import LanguageTaskConfig


@regard.register("task", "own-language")
@dataclass(frozen=True, kw_only=True)
class OwnLanguageConfig(LanguageTaskConfig):
    passes = 1
"""


def test_a_registered_task_is_trained_like_any_other(regard):
    file("own.py", OWN_TASK.splitlines())
    try:
        done = regard("--import", "own.py", "train", "own-language", text(), SHORT, *BRIEF, *TINY)
        assert (done.code, done.err) == (0, "")
        assert Path("runs/own-language-1/model.safetensors").exists()
    finally:
        TASKS._items.pop("own-language")
    found = regard.refused("train", "own-language", "a.txt")
    assert "'own-language' is neither a task nor a recipe; " in found


def test_pairs_are_given_in_order_or_by_options(regard):
    source, target = text("a.de", 60), text("a.en", 60)
    changes = ["model.dim=16", "model.encoder.depth=1", "model.decoder.depth=1"]
    shown = [
        regard("train", "translation", *files, *BRIEF, *changes, "--dry-run").out.partition("where the values")[0]
        for files in ((source, target), ("--source", source, "--target", target))
    ]
    assert "pairs" in shown[0]
    assert shown[0] == shown[1]
    found = regard.refused("train", "translation", "--source", source, target)
    assert found == "a.en: files are given either in order or by --source, not both"
    found = regard.refused("train", "translation", "--source", source, "--target", target, "--valid", source)
    assert found == "--valid is for files in order; beside options, use --valid-source and --valid-target"
    assert regard.refused("train", "translation", "a", "b", "c").startswith(
        "3 files (a, b, c) for pairs of sentences; "
    )
    assert regard.refused("train", "translation").startswith("translation needs files to train on: ")


@pytest.mark.parametrize("option", [["--resume", "missing"], ["--resume=missing"]])
def test_nothing_to_resume(regard, option):
    found = regard.refused("train", *option)
    assert found.startswith("missing: no such folder; ")


@pytest.mark.parametrize("option", [["--resume", "old"], ["--resume=old"]])
def test_resuming_takes_no_task(regard, option):
    found = regard.refused("train", "language", text(), *option)
    assert found == "--resume must be the first option, without task and files: regard train --resume RUN"


def test_an_unknown_device(regard):
    found = regard.refused("train", "language", text(), SHORT, "--device", "abacus")
    assert found.startswith("unknown device 'abacus'; use auto, ")


def test_a_model_in_a_pickle_is_read_if_that_is_allowed(regard, tmp_path):
    folder = write_theirs("gpt2", tmp_path / "gpt2")
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    arguments = ["train", "language", text(), "task.window=8", *BRIEF, "--init-from", folder]
    assert "is a pickle" in regard.refused(*arguments)
    assert regard(*arguments, "--allow-pickle").code == 0


def test_starting_from_a_missing_model(regard):
    found = regard.refused("train", "language", text(), SHORT, "--init-from", "missing")
    assert found.startswith("missing: no such folder; ")
