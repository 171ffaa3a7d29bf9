"""Signals end a run after it has saved; what was ignored before stays ignored."""

import os
import signal
from pathlib import Path

import pytest

from regard.training.stop import StopError, stoppable


@pytest.fixture
def hang_up():
    before = signal.getsignal(signal.SIGHUP)
    yield lambda: os.kill(os.getpid(), signal.SIGHUP)
    signal.signal(signal.SIGHUP, before)


def test_a_closed_terminal_is_noted(hang_up, tmp_path: Path):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    with stoppable(tmp_path, prints=False) as stop:
        hang_up()
        assert stop.number == signal.SIGHUP
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL


def test_what_nohup_ignores_stays_ignored(hang_up, tmp_path: Path):
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with stoppable(tmp_path, prints=False) as stop:
        hang_up()
        assert stop.number is None


def test_a_compiler_that_is_stopped_does_not_hide_why(hang_up, tmp_path: Path):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

    def compile_for_long() -> None:
        hang_up()
        try:
            hang_up()
        except StopError as stopped:
            raise RuntimeError("the compiler failed") from stopped

    with pytest.raises(StopError, match="stopped at once"), stoppable(tmp_path, prints=False):
        compile_for_long()


def test_other_errors_are_as_they_were(tmp_path: Path):
    with pytest.raises(ZeroDivisionError), stoppable(tmp_path, prints=False):
        raise ZeroDivisionError
