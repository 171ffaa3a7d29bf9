"""The Jupyter kernel around this process, if there is one, and the cell of the notebook that it runs."""

import sys
from collections.abc import Callable, Hashable
from typing import Any


def get_kernel() -> Any:
    """Return the Jupyter kernel that this process is, or None."""
    if "IPython" not in sys.modules:
        return None
    from IPython.core.getipython import get_ipython

    return getattr(get_ipython(), "kernel", None)


def running_cell() -> tuple[str, str] | None:
    """Return the id of the cell that is running, and that of its execution; None if the front end sends no ids."""
    try:
        parent = get_kernel().get_parent("shell")
        return str(parent["metadata"]["cellId"]), str(parent["header"]["msg_id"])
    except (AttributeError, KeyError, TypeError):
        return None


class CellContents:
    """What each cell shows. When a cell is run again, what no cell shows any more is closed."""

    def __init__(self) -> None:
        self._cells: dict[str, tuple[str, dict[Hashable, Callable[[], None]]]] = {}

    def show(self, key: Hashable, close: Callable[[], None]) -> None:
        """Note that the running cell shows something, and close what only its earlier executions showed."""
        found = running_cell()
        if found is None:
            return
        cell, execution = found
        before, contents = self._cells.get(cell, ("", {}))
        if before == execution:
            contents[key] = close
            return
        self._cells[cell] = execution, {key: close}
        kept = {each for _, shown in self._cells.values() for each in shown}
        for each, end in contents.items():
            if each not in kept:
                end()


class CellDisplay:
    """One output of the running cell, whose content can be replaced."""

    def __init__(self) -> None:
        self._handle: Any = None

    def show(self, html: str, text: str) -> None:
        """Show this instead of what was shown before; `text` is for front ends without HTML."""
        from IPython import display

        data = {"text/html": html, "text/plain": text}
        if self._handle is None:
            self._handle = display.DisplayHandle()  # type: ignore[no-untyped-call]
            self._handle.display(data, raw=True)
        else:
            self._handle.update(data, raw=True)


_FREE: dict[tuple[str, str] | None, CellDisplay] = {}  # an output of each execution whose content is out of date


def take_display() -> CellDisplay:
    """Return an output of the running cell: one that was given back, or a new one."""
    return _FREE.pop(running_cell(), None) or CellDisplay()


def give_back_display(display: CellDisplay) -> None:
    """Mark an output as free: the next `take_display` in this execution of the cell returns it."""
    _FREE.clear()
    _FREE[running_cell()] = display
