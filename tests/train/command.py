"""The command in a process of its own, forked so that torch need not be imported again; it may be killed any time."""

import os
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sacrebleu.metrics  # noqa: F401  # here and not in every process, as the next two
import torch._dynamo
import torch.utils.tensorboard  # noqa: F401

from regard.cli.main import main
from regard.train import start
from regard.train.update import Update

CHANGES = {"os.mkdir", "os.rename", "os.remove", "os.rmdir"}


@dataclass(frozen=True)
class Ended:
    """How a process ended: its exit code, or minus the signal; and what it said."""

    code: int
    said: str


def regard(*arguments: str | Path, before: Callable[[], None] = lambda: None) -> Ended:
    """Run `regard` with arguments; `before` prepares the process."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        _run([str(argument) for argument in arguments], writing, before)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as pipe:
        said = pipe.read()
    return Ended(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), said)


def _run(arguments: list[str], output: int, before: Callable[[], None]) -> None:
    """Be the command; never return."""
    code = 1
    try:
        for stream in (1, 2):
            os.dup2(output, stream)
        os.close(output)
        sys.stdout, sys.stderr = (os.fdopen(stream, "w", encoding="utf-8", closefd=False) for stream in (1, 2))
        sys.argv = ["regard", *arguments]
        signal.signal(signal.SIGINT, signal.default_int_handler)
        start.finish = lambda *given: None  # which draws pictures, the longest part of a tiny run
        before()
        main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def at_moment(folder: Path, moment: int, act: Callable[[], Any]) -> Callable[[], None]:
    """Prepare a process to act at a moment: the given change in a folder, counted with updates.

    What TensorBoard does does not count, for when it does it depends on the clock.
    """

    def prepare() -> None:
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
        at_update(0, lambda: None, count)()

    return prepare


def at_update(number: int, act: Callable[[], Any], always: Callable[[], Any] = lambda: None) -> Callable[[], None]:
    """Prepare a process to act at the beginning of an update, counted from 1."""

    def prepare() -> None:
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

    return prepare


def send(*numbers: signal.Signals) -> None:
    """Send signals to this process."""
    for number in numbers:
        os.kill(os.getpid(), number)
