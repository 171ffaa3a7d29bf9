"""Stop a run by a signal: after the first one the run saves and stops, after the second one it stops at once."""

import os
import shlex
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

from regard.errors import RegardError

SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")  # Ctrl-C, kill, a closed terminal; not every system has all


class StopError(RegardError):
    """A signal stopped the run; the message says how to continue, the exit code is the one that shells expect."""

    def __init__(self, state: str, folder: Path, number: int) -> None:
        super().__init__(f"{state}; continue with: regard train --resume {shlex.quote(str(folder))}")
        self.exit_code = 128 + number


class Stop:
    """The signal received, if any. Once `saved`, a signal stops at once instead of after the step."""

    def __init__(self, folder: Path, prints: bool) -> None:
        self.folder, self.prints = folder, prints
        self.number: int | None = None
        self.saved = False
        self.raised: StopError | None = None

    def note(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        if self.saved:
            self._stop_now("before the last measurement, everything is saved", number)
        if self.number is not None:
            self._stop_now("at once, what came after the last checkpoint is lost", number)
        self.number = number
        if self.prints:  # not with print, which the signal may interrupt
            os.write(2, b"\nstopping after this step; a second signal stops at once\n")

    def _stop_now(self, state: str, number: int) -> NoReturn:
        self.raised = StopError(f"stopped {state}", self.folder, number)
        raise self.raised


@contextmanager
def stoppable(folder: Path, prints: bool) -> Iterator[Stop]:
    """Record signals that would end the run; only the first process `prints` a message."""
    stop = Stop(folder, prints)
    numbers = [getattr(signal, name) for name in SIGNALS if hasattr(signal, name)]
    heard = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]  # `nohup` ignores some
    try:
        before = {number: signal.signal(number, stop.note) for number in heard}
    except ValueError:  # not in the main thread, as in some notebooks, where signals do not arrive
        yield stop
        return
    try:
        yield stop
    except Exception:
        if stop.raised is not None:  # the compiler wraps the interrupt in its own exception
            raise stop.raised from None
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
