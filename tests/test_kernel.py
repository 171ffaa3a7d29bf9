"""A Jupyter kernel around the process: which cell runs, outputs that are replaced, messages in the terms of Python."""

import sys
from types import SimpleNamespace

import IPython.core.getipython
import IPython.display
import pytest

from regard import errors
from regard.errors import ConfigError, RegardError, options_as_arguments
from regard.html_table import html_table
from regard.kernel import CellContents, CellDisplay, get_kernel, give_back_display, running_cell, take_display


class Shell:
    """IPython in a kernel that runs a cell."""

    def __init__(self) -> None:
        self.kernel = self
        self.parent: dict[str, object] = {}

    def get_parent(self, channel: str) -> dict[str, object]:
        return self.parent

    def run(self, cell: str, execution: str) -> None:
        self.parent = {"metadata": {"cellId": cell}, "header": {"msg_id": execution}}


@pytest.fixture
def shell(monkeypatch) -> Shell:
    one = Shell()
    monkeypatch.setattr(IPython.core.getipython, "get_ipython", lambda: one)
    return one


def test_the_running_cell(shell, monkeypatch):
    assert get_kernel() is shell
    assert running_cell() is None  # the front end says nothing
    shell.run("a", "1")
    assert running_cell() == ("a", "1")
    shell.kernel = None
    assert (get_kernel(), running_cell()) == (None, None)
    monkeypatch.delitem(sys.modules, "IPython")
    assert get_kernel() is None


def test_what_a_cell_showed_is_closed_when_it_is_run_again(shell):
    contents, closed = CellContents(), []
    contents.show("nowhere", lambda: closed.append("nowhere"))
    for cell, execution, shown in [("a", "1", "x"), ("a", "1", "y"), ("b", "2", "y"), ("a", "3", "z"), ("a", "3", "u")]:
        shell.run(cell, execution)
        contents.show(shown, lambda shown=shown: closed.append(shown))
    assert closed == ["x"]  # y is still in cell b
    shell.run("b", "4")
    contents.show("z", lambda: closed.append("z again"))
    assert closed == ["x", "y"]


def test_an_output_is_replaced(shell, monkeypatch):
    done = []

    def handle() -> SimpleNamespace:
        number = len(done)
        return SimpleNamespace(
            display=lambda data, raw: done.append(("new", number, data["text/plain"])),
            update=lambda data, raw: done.append(("update", number, data["text/html"])),
        )

    monkeypatch.setattr(IPython.display, "DisplayHandle", handle)
    shell.run("a", "1")
    first = take_display()
    first.show("<b>one</b>", "one")
    first.show("<b>two</b>", "two")
    give_back_display(first)
    assert take_display() is first
    assert take_display() is not first  # it was given back once
    give_back_display(first)
    shell.run("a", "2")
    assert take_display() is not first  # its output is gone
    CellDisplay().show("", "three")
    assert done == [("new", 0, "one"), ("update", 0, "<b>two</b>"), ("new", 2, "three")]


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("choose another --run", "choose another run="),
        ("use --resume runs/a, or --overwrite", "use regard.resume('runs/a'), or overwrite=True"),
        ("regard train --resume 'my runs/a'", "regard.resume('my runs/a')"),
        ("use --device cpu, or --precision bfloat16", "use device='cpu', or precision='bfloat16'"),
        ("`regard train x --run OTHER` makes new ones", "`regard train x --run OTHER` makes new ones"),
        ("begin a new run with --init-from", "begin a new run with init_from="),
        ("a--b, -- and ---", "a--b, -- and ---"),
    ],
)
def test_remedies_name_arguments_in_a_notebook(said, shown, monkeypatch):
    assert str(RegardError(said)) == said
    assert options_as_arguments(said) == shown
    monkeypatch.setattr(errors, "get_kernel", object)
    assert str(RegardError(said)) == shown
    assert str(ConfigError(said, "model.depth")) == f"model.depth: {shown}"


def test_tables_are_escaped():
    made = html_table(("<a>", "b"), [("<script>\x1b", 12345), ("x", 0.123456)], "a & b")
    assert "<script>" not in made
    for part in ("&lt;a&gt;", r"&lt;script&gt;\x1b", "12,345", "0.1235", "a &amp; b"):
        assert part in made
