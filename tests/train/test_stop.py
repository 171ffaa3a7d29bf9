"""Signals end a run after it has saved; what was ignored before stays ignored."""

import os
import signal
from pathlib import Path

import pytest

from regard.train.stop import stoppable


@pytest.fixture
def hang_up():
    before = signal.getsignal(signal.SIGHUP)
    yield lambda: os.kill(os.getpid(), signal.SIGHUP)
    signal.signal(signal.SIGHUP, before)


def test_a_closed_terminal_is_noted(hang_up, tmp_path: Path):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    with stoppable(tmp_path, speaks=False) as stop:
        hang_up()
        assert stop.number == signal.SIGHUP
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL


def test_what_nohup_ignores_stays_ignored(hang_up, tmp_path: Path):
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with stoppable(tmp_path, speaks=False) as stop:
        hang_up()
        assert stop.number is None
