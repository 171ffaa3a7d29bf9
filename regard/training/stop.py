"""Stopping a run from outside: the first signal saves before it stops, the second one stops at once."""

import os
import shlex
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

from regard.errors import RegardError

SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")  # Ctrl-C, a request, a terminal that was closed; not every system has all


class StopError(RegardError):
    """Somebody stopped the run; it says how to go on, and ends the command with the code that shells expect."""

    def __init__(self, state: str, folder: Path, number: int) -> None:
        super().__init__(f"{state}; go on with: regard train --resume {shlex.quote(str(folder))}")
        self.exit_code = 128 + number


class Stop:
    """The signal that came, if one came. Once `saved`, there is no reason to wait for the end of a step."""

    def __init__(self, folder: Path, speaks: bool) -> None:
        self.folder, self.speaks = folder, speaks
        self.number: int | None = None
        self.saved = False
        self.raised: StopError | None = None

    def note(self, number: int, frame: FrameType | None) -> None:
        """Take a signal."""
        if self.saved:
            self._give_up("before the last measurement, all is saved", number)
        if self.number is not None:
            self._give_up("at once, what came after the last checkpoint is lost", number)
        self.number = number
        if self.speaks:  # not by print: a signal may come in the middle of one
            os.write(2, b"\nstopping after this step; a second signal stops at once\n")

    def _give_up(self, state: str, number: int) -> NoReturn:
        self.raised = StopError(f"stopped {state}", self.folder, number)
        raise self.raised


@contextmanager
def stoppable(folder: Path, speaks: bool) -> Iterator[Stop]:
    """Take note of signals that would end the run; of several processes, one `speaks`."""
    stop = Stop(folder, speaks)
    numbers = [getattr(signal, name) for name in SIGNALS if hasattr(signal, name)]
    heard = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]  # `nohup` ignores some
    try:
        before = {number: signal.signal(number, stop.note) for number in heard}
    except ValueError:  # not in the main thread, as in some notebooks: there nobody sends signals
        yield stop
        return
    try:
        yield stop
    except Exception:
        if stop.raised is not None:  # a compiler that is stopped makes another error of it
            raise stop.raised from None
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
