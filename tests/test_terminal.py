"""What is printed on a terminal: names of files and folders are shown as they are, whatever is in them."""

import ast
import io
import re
from pathlib import Path

import pytest

import regard
from regard import terminal
from regard.terminal import plain_console, progress_bars, show_status, text_column

ROOT = Path(regard.__file__).parent
NAME = "[red]a[/] {b} :smile: [/nothing].txt"
READS_MARKUP = re.compile(
    r"rich\.(console|markup|prompt|spinner|status|print|progress\.(Progress|TextColumn|track|open)$)"
    r"|call (.*\.)?(from_markup|console\.status)$"
)
MARKUP = re.compile(r"\[/[a-z]*\]")


class Screen(io.StringIO):
    """A file that says it is a terminal."""

    def isatty(self):
        return True


@pytest.fixture
def screen():
    return plain_console(file=Screen(), force_terminal=True, width=100, color_system=None)


def test_a_console_prints_names_as_they_are(screen):
    screen.print(NAME)
    assert screen.file.getvalue() == f"{NAME}\n"


def test_a_status_line_shows_names_as_they_are_and_no_control_characters(screen):
    with show_status(screen, NAME) as say:
        say(f"reading {NAME}\x1b]0;title\x07")
    assert NAME in screen.file.getvalue()
    assert f"reading {NAME}\\x1b]0;title\\x07" in screen.file.getvalue()


def test_a_status_line_in_a_pipe_is_silent():
    console = plain_console(file=io.StringIO())
    with show_status(console, NAME) as say:
        say(NAME)
    assert console.file.getvalue() == ""


def test_a_progress_bar_shows_names_as_they_are(screen, monkeypatch):
    monkeypatch.setattr(terminal, "plain_console", lambda **settings: screen)
    with progress_bars(text_column(), text_column("files")) as progress:
        progress.add_task(NAME, total=1)
    assert f"{NAME} files" in screen.file.getvalue()


def offences(source):
    """Yield the lines that make a console or a progress bar, or that contain markup; annotations may name both."""
    tree = ast.parse(source)
    checked = [
        node for node in ast.walk(tree) if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    annotations = {id(inner) for node in checked for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and id(node) not in annotations:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            names = {alias.name for alias in node.names}
        elif isinstance(node, ast.Call):
            names = {f"call {ast.unparse(node.func)}"}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names = {"rich.markup"} if MARKUP.search(node.value) else set()
        else:
            continue
        if any(READS_MARKUP.match(name) for name in names):
            yield node.lineno


@pytest.mark.parametrize(
    "line",
    [
        "from rich.console import Console",
        "def f():\n    from rich.progress import BarColumn, Progress",
        "import rich.console",
        "from rich import print",
        "console.status('reading')",
        "Text.from_markup(name)",
        "console.print(f'[bold]{name}[/]')",
    ],
)
def test_the_search_for_markup_finds(line):
    assert list(offences(line))


def test_only_one_module_makes_consoles_and_nothing_prints_markup():
    others = [path for path in ROOT.rglob("*.py") if path != Path(terminal.__file__)]
    found = {path: list(offences(path.read_text(encoding="utf-8"))) for path in others}
    assert not {path: lines for path, lines in found.items() if lines}, "use regard.terminal, and styles as arguments"
