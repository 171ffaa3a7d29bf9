"""The command line as a person uses it: real processes, piped and on a terminal, with mistakes."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import tomllib

import pytest

from regard import __version__
from regard.cli.console import print_paragraph
from regard.cli.help import fit_example
from regard.cli.main import VERBS, main
from regard.cli.task_help import TASKS
from regard.recipe_files import recipe_names, result_names

from ..processes import PATIENCE, patient
from .command import Command

PROGRAM = [sys.executable, "-c", "from regard.cli.main import main; main()"]


@pytest.fixture
def regard(monkeypatch, capsys, tmp_path) -> Command:
    """The command in an empty folder; the width of its output is not set."""
    command = Command(monkeypatch, capsys)
    monkeypatch.delenv("COLUMNS")
    monkeypatch.chdir(tmp_path)
    return command


def test_show_prints_a_plain_tree_when_piped(tmp_path):
    done = subprocess.run([*PROGRAM, "show", "transformer-base"], capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    assert "63,045,632" in done.stdout
    assert re.search(r"0-5 6 x Layer .* 3\.15M", done.stdout)
    assert re.search(r"to_query Linear +512 -> 512 +262k", done.stdout)
    assert re.search(r"decoding +25\.2 MB", done.stdout)
    assert re.search(r"forward +\d+ MFLOP ", done.stdout)


def test_show_with_overrides_and_length(regard):
    done = regard("show", "gpt2", "model.depth=3", "--length", "100")
    assert "0-2 3 x Layer" in done.out
    assert "at 100 tokens" in done.out


def test_a_narrow_screen_loses_the_shapes_not_the_numbers(regard, monkeypatch):
    monkeypatch.setenv("COLUMNS", "50")
    done = regard("show", "gpt2")
    assert re.search(r"to_query Li\S+ +591k +1\.21G", done.out)
    assert "768 -> 768" not in done.out


def test_show_json_is_for_programs(regard):
    data = json.loads(regard("show", "gpt2", "--json").out)
    assert data["cost"]["parameters"] == 124_439_808
    assert data["cost"]["tree"]["kind"] == "LanguageModel"
    assert data["recipe"]["model"]["layers"]["block"]["mixer"]["heads"]["heads"] == 12


def test_show_toml_is_a_recipe_again(regard, tmp_path):
    text = regard("show", "transformer-big", "model.dim=512", "--toml").out
    assert tomllib.loads(text)["model"]["dim"] == 512
    (tmp_path / "mine.toml").write_text(text)
    again = regard("show", "mine.toml", "--toml").out
    assert again == text


def test_a_recipe_without_words_shows_its_tree(regard, tmp_path):
    table = json.loads(regard("show", "elman", "--json").out)["recipe"]
    text = regard("show", "elman", "--toml").out
    text = text.replace(f'about = "{table["about"]}"\n', "").replace(f'paper = "{table["paper"]}"\n', "")
    (tmp_path / "mine.toml").write_text(text)
    assert regard("show", "mine.toml").out.startswith("mine.toml\n\npart")


def test_recipes_lists_every_recipe(regard):
    done = regard("recipes")
    assert done.code == 0
    for name in recipe_names():
        assert re.search(rf"^{name} +\S", done.out, re.MULTILINE), name
    listing = json.loads(regard("recipes", "--json").out)
    assert [row["name"] for row in listing] == recipe_names()
    assert all(row["about"] and row["paper"] for row in listing)


def test_colour_on_a_terminal_and_none_if_unwanted():
    def on_terminal(**environment: str) -> str:
        leader, follower = pty.openpty()
        env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "60", **environment}
        process = subprocess.Popen([*PROGRAM, "recipes"], stdout=follower, stderr=follower, env=env)
        os.close(follower)
        output = b""
        with patient(process):
            while True:
                try:
                    block = os.read(leader, 4096)
                except OSError:
                    break
                output += block
                if not block:
                    break
            assert process.wait() == 0, output.decode()
        os.close(leader)
        return output.decode()

    assert "\x1b[1;36m" in on_terminal()
    assert "36m" not in on_terminal(NO_COLOR="1")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["show", "gpt3"], "no recipe has the name 'gpt3'; did you mean 'gpt2'"),
        (["show", "missing.toml"], "missing.toml: cannot read the recipe"),
        (["show", "gpt2", "model.dept=3"], "model.dept: unknown key; did you mean 'depth'"),
        (["show", "gpt2", "model.depth"], "override 'model.depth' must have the form path.to.key=value"),
        (["show", "gpt2", "model.dim=100"], "model.layers.block.mixer.heads: dim=100 must be a multiple of heads=12"),
    ],
)
def test_a_mistake_is_one_message_and_no_traceback(arguments, message, regard):
    assert message in regard.refused(*arguments)


def test_a_mistake_ends_a_process_with_its_code():
    done = subprocess.run([*PROGRAM, "show", "gpt3"], capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stdout, done.stderr[:8]) == (2, "", "regard: ")


@pytest.mark.parametrize(
    ("folder", "shown"), [("a\nb", r"a\nb"), ("\x1b[2J", r"\x1b[2J"), ("\u202eb", r"\u202eb"), ("\udcff", r"\udcff")]
)
def test_an_error_shows_line_breaks_and_escape_sequences_instead_of_sending_them(folder, shown, monkeypatch, capsys):
    assert f"{shown}: no such folder" in Command(monkeypatch, capsys).refused("generate", "x", "-m", folder)


def test_a_name_that_the_file_system_refuses_is_one_line(monkeypatch, capsys):
    said = Command(monkeypatch, capsys).refused("generate", "x", "-m", "a" * 300)
    assert said == f"{'a' * 300}/recipe.toml: File name too long; check its name and permissions"


@pytest.mark.parametrize("length", [2**31 + 1, 2**63 - 1, 2**63])
def test_a_length_that_cannot_be_counted_is_one_line(length, monkeypatch, capsys):
    said = Command(monkeypatch, capsys).refused("show", "gpt2", "--length", length)
    assert said == f"{length:,} tokens cannot be counted; use at most 2,147,483,648"


@pytest.mark.parametrize(
    ("threads", "rule"), [("0", "must be at least 1"), ("1025", "must be at most 1024"), ("1" * 40, "must be at most")]
)
def test_a_number_of_threads_that_cannot_be_started_is_refused(threads, rule, monkeypatch, capsys):
    said = Command(monkeypatch, capsys).refused("--threads", threads, "recipes")
    assert said.startswith(f"--threads {threads}: {rule}")


def test_a_paragraph_is_broken_between_words_only_in_a_terminal(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "20")
    for is_terminal, printed in ((True, "one two-three four\nfive\n"), (False, "one two-three four five\n")):
        monkeypatch.setattr(sys.stdout, "isatty", lambda answer=is_terminal: answer)
        print_paragraph("one two-three four five")
        assert capsys.readouterr().out == printed


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["generate", "a", "--tokens", "x"], "--tokens x: must be a whole number; see regard generate -h"),
        (["evaluate", "--beam", "1.5"], "--beam 1.5: must be a whole number; see regard evaluate -h"),
        (["generate", "a", "--temperature", "hot"], "--temperature hot: must be a number; see regard generate -h"),
        (["look", "--port", "99999"], "--port 99999: must be at most 65535; see regard look -h"),
        (["generate", "a", "--beams", "4"], "no such option --beams; did you mean --beam? (see regard generate -h)"),
        (
            ["train", "vision", "a", "--over"],
            "no such option --over; did you mean --overwrite? (see regard train vision -h)",
        ),
        (
            ["train", "vision", "a", "--minutes", "1"],
            "no such option --minutes; write train.minutes=N (see regard train vision -h)",
        ),
        (
            ["train", "vision", "a", "--steps", "9"],
            "no such option --steps; write train.steps=N (see regard train vision -h)",
        ),
        (["tune", "vision", "a", "--seed", "3"], "no such option --seed; write train.seed=N (see regard tune -h)"),
        (["generate", "a", "--steps", "4"], "no such option --steps; did you mean --step? (see regard generate -h)"),
        (["train", "results/parsing", "--xyz", "4"], "no such option --xyz (see regard train -h)"),
        (["generate", "a", "--xyz", "4"], "no such option --xyz (see regard generate -h)"),
        (["shwo"], "no such command 'shwo'; did you mean 'show'? (see regard -h)"),
        (["resume", "runs/a"], "no such command 'resume'; use `regard train --resume RUN`; see regard -h"),
        (["convert"], "missing argument 'MODEL'; see regard convert -h"),
        (["data", "a", "b"], "got unexpected extra argument(s) (b); see regard data -h"),
    ],
)
def test_a_mistake_in_options_is_one_line_that_names_the_help(arguments, said, monkeypatch, capsys):
    assert Command(monkeypatch, capsys).refused(*arguments) == said


def test_the_command_alone_prints_its_help(monkeypatch, capsys):
    done = Command(monkeypatch, capsys)()
    assert (done.code, done.err.startswith("Usage: regard"), "Commands:" in done.err) == (2, True, True)


def test_several_mistakes_are_reported_together(regard):
    done = regard("show", "gpt2", "model.dept=3", "model.dim=wide")
    assert "model.dept: unknown key" in done.err
    assert 'model.dim: "wide" must be a whole number' in done.err


@pytest.mark.parametrize("error", ["KeyboardInterrupt()", "StopError('stopped', Path('run'), signal.SIGINT)"])
def test_another_interrupt_while_python_ends_prints_no_traceback(error):
    """The exit handlers of libraries take a while, and a person presses Ctrl-C again."""
    program = f"""
import atexit, os, signal
from pathlib import Path
from regard.cli import main
from regard.training.stop import StopError
def app(**settings): raise {error}
signal.signal(signal.SIGINT, signal.default_int_handler)  # the tests may run where it is ignored
atexit.register(os.kill, os.getpid(), signal.SIGINT)
main.app = app
main.main()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == -signal.SIGINT
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("columns", [40, 60, 80, 120])
def test_results_on_any_screen_have_names_in_one_piece_and_goals(regard, monkeypatch, columns):
    from regard.runs.results import read_result_recipe
    from regard.runs.results_table import result_rows

    monkeypatch.setenv("COLUMNS", str(columns))
    shown = regard("results").out
    lines = [line.rstrip() for line in shown.splitlines()]
    for row in result_rows([read_result_recipe(name) for name in result_names()]):
        assert row.name in lines
        assert row.goal in shown
        assert row.published in shown
        assert columns < 80 or row.distance in shown or "less than" in row.distance  # in one line
        assert not row.time or (row.time in shown) is (columns == 120)
        assert set(row.metric.split()) <= set(shown.split())
    assert "…" not in shown
    assert max(map(len, lines)) <= columns


def test_the_columns_of_all_results_are_aligned(regard, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines = regard("results", "cifar10", "ptb").out.splitlines()
    starts = {line.index(each) for line in lines for each in ("goal", "> 95.0", "< 58.8") if each in line}
    assert len(starts) == 1


@pytest.mark.parametrize("is_ignored", [False, True])
def test_an_interrupt_while_the_command_is_imported_prints_no_traceback(is_ignored):
    program = f"""
import os, signal, sys
class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == "typer": os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupt())
signal.signal(signal.SIGINT, {"signal.SIG_IGN" if is_ignored else "signal.default_int_handler"})
sys.argv = ["regard", "--version"]
from regard.__main__ import start_command
start_command()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE)
    wanted = (0, f"regard {__version__}\n") if is_ignored else (-signal.SIGINT, "")
    assert (done.returncode, done.stdout, done.stderr) == (*wanted, "")


def writing_to(output: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Print into an open file, which is buffered as usual."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.run(
        [*PROGRAM, *arguments], stdout=output, stderr=subprocess.PIPE, text=True, timeout=120, env=env
    )


@pytest.mark.parametrize("arguments", ["show gpt2 --json", "recipes --json", "recipes", "--version", "--help"])
def test_a_closed_pipe_ends_it_quietly(arguments):
    """The exit code is 141, as for `seq 1000000 | head`."""
    reader, writer = os.pipe()
    os.close(reader)
    done = writing_to(writer, *arguments.split())
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize(
    "arguments",
    [
        "data",
        "data --json",
        "lab",
        "results",
        "show gpt2",
        "show gpt2 --toml",
        "show --keys",
        "show --keys model",
        "train language a.txt --size tiny train.steps=2 --dry-run",
        "train language --help",
    ],
)
def test_every_verb_without_a_model_ends_quietly_if_nobody_reads(arguments, tmp_path, monkeypatch, capsys):
    (tmp_path / "a.txt").write_text("one red dog\n" * 50)
    monkeypatch.chdir(tmp_path)
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as closed, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", closed)
        patch.setattr(sys, "argv", ["regard", *arguments.split()])
        with pytest.raises(SystemExit) as done:
            main()
        os.dup2(os.open(os.devnull, os.O_WRONLY), writer)  # what is still buffered cannot be written
    code = 0 if "--dry-run" in arguments else 141  # a plan that is not read prevents neither training nor its trial
    assert (done.value.code, capsys.readouterr().err) == (code, "")


@pytest.mark.parametrize(("closed", "prints"), [("0<&-", True), ("1>&-", False), ("0<&- 1>&- 2>&-", False)])
def test_closed_streams_are_the_null_device(closed, prints):
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}', "sh", *PROGRAM, "recipes"], capture_output=True, text=True, timeout=PATIENCE
    )
    assert (done.returncode, "gpt2" in done.stdout, done.stderr) == (0, prints, "")


@pytest.mark.parametrize("arguments", ["recipes", "recipes --json"])
def test_a_full_disk_behind_the_output_is_one_line(arguments):
    with open("/dev/full", "wb") as full:
        done = writing_to(full.fileno(), *arguments.split())
    assert done.returncode == 2
    assert done.stderr == "regard: no space left for the output; free some space, or write it elsewhere\n"


def test_help_and_version(regard):
    assert "show" in regard("--help").out
    assert regard("--version").out == f"regard {__version__}\n"
    assert "recipe" in regard("show", "--help").out.lower()


def test_help_is_wrapped_at_the_width_of_the_terminal(regard, monkeypatch):
    """Not at the line ends of the source code."""
    monkeypatch.setenv("COLUMNS", "80")
    lines = [line.strip() for line in regard("embed", "--help").out.splitlines()]
    begin = next(place for place, line in enumerate(lines) if line.startswith("Vectors are printed as JSON"))
    paragraph = lines[begin : lines.index("", begin)]
    assert all(60 < len(line) <= 80 for line in paragraph[:-1]), paragraph


@pytest.mark.parametrize("width", [50, 80])
def test_help_has_examples_fits_the_terminal_and_shows_no_python(width, monkeypatch, capsys):
    command = Command(monkeypatch, capsys)
    monkeypatch.setenv("COLUMNS", str(width))
    text = command("--help").out
    assert text.partition("Commands:\n")[2].split()[0] == "train"
    assert "<=" not in text
    for words in [*map(str.split, VERBS), *(["train", task] for task in TASKS)]:
        text = command(*words, "--help").out
        assert "  Examples:\n    regard " in text, words
        assert re.search(r"[<{]\w|\bx[<>]=|list\[", text) is None, text
        assert "[default" not in text
        long = [line for line in text.splitlines() if len(line) > width]
        assert [line for line in long if not re.fullmatch(r' +"[^"]+"', line)] == []  # a text in quotes is not broken


def test_a_long_example_is_broken_so_that_a_shell_reads_it_as_one():
    line = '  regard look "a text" -m runs/a --export page.html --no-browser'
    lines = ['  regard look "a text" \\', "    -m runs/a \\", "    --export page.html \\", "    --no-browser"]
    assert fit_example(line, 26).splitlines() == lines
    assert fit_example(line, len(line)) == line
