"""The command in a process of its own, which may be killed at any time; a function prepares the process."""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from regard.cli.main import main
from regard.training import start
from regard.training.update import Update

from ..processes import Ended, Forked

CHANGES = {"os.mkdir", "os.rename", "os.remove", "os.rmdir"}


def regard(*arguments: str | Path, before: Callable[[], Any] | None = None) -> Ended:
    """Run `regard` with arguments; `before` prepares the process."""
    return begin_regard(*arguments, before=before).end()


def begin_regard(*arguments: str | Path, before: Callable[[], Any] | None = None) -> Forked:
    """Start `regard` with arguments; `before` prepares the process."""
    return Forked(_run, Path.cwd(), [str(argument) for argument in arguments], before)


def _run(folder: Path, arguments: list[str], before: Callable[[], Any] | None) -> None:
    """Run the command in this process."""
    os.chdir(folder)
    sys.argv = ["regard", *arguments]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    start.finish = lambda *given: None  # drawing the pictures is the longest part of a tiny run
    if before is not None:
        before()
    main()


def at_moment(folder: Path, moment: int, act: Callable[[], Any]) -> None:
    """Make this process act at a moment: the given change in a folder, counted with updates.

    Writes of TensorBoard are not counted, since their time depends on the clock.
    """
    left = moment

    def count() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            act()

    def audit(event: str, arguments: tuple[Any, ...]) -> None:
        writes = event == "open" and isinstance(arguments[1], str) and arguments[1][:1] in "wa"
        path = str(arguments[0]) if writes or event in CHANGES else ""
        if path.startswith(f"{folder}/") and not path.startswith(f"{folder}/tensorboard"):
            count()

    sys.addaudithook(audit)
    at_update(0, lambda: None, count)


def at_update(number: int, act: Callable[[], Any], always: Callable[[], Any] = lambda: None) -> None:
    """Make this process act at the beginning of an update, counted from 1."""
    learn = Update.__call__
    done = 0

    def counted(update: Update, *given: Any) -> Any:
        nonlocal done
        done += 1
        always()
        if done == number:
            act()
        return learn(update, *given)

    Update.__call__ = counted  # type: ignore[method-assign]


def close_output() -> None:
    """Make the standard output of this process a pipe that is not read any more."""
    reader, writer = os.pipe()
    os.dup2(writer, 1)
    os.close(reader)


def wait_for_writer(fifo: Path) -> None:
    """Wait until another process has opened a named pipe for writing, and then closed it."""
    fifo.read_bytes()


def wait_for_reader(fifo: Path) -> None:
    """Wait until another process reads a named pipe."""
    fifo.write_bytes(b"")


def send(*numbers: signal.Signals) -> None:
    """Send signals to this process."""
    for number in numbers:
        os.kill(os.getpid(), number)
