"""The command in this process: importing torch once is enough."""

import sys
from typing import NamedTuple

import pytest

from regard.cli.main import main


class Done(NamedTuple):
    """The result of a command."""

    code: int
    out: str
    err: str


class Command:
    """Runs `regard` with arguments, as a shell does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.monkeypatch, self.capsys = monkeypatch, capsys
        monkeypatch.setenv("COLUMNS", "200")

    def __call__(self, *arguments: object) -> Done:
        """Run it; the only exception may be an exit."""
        self.monkeypatch.setattr(sys, "argv", ["regard", *map(str, arguments)])
        self.capsys.readouterr()
        code = 0
        try:
            main()
        except SystemExit as done:
            code = int(done.code or 0)
        return Done(code, *self.capsys.readouterr())

    def refused(self, *arguments: object) -> str:
        """Run a mistake: check that the exit code is 2 and the error is one line, and return the line."""
        done = self(*arguments)
        assert done.code == 2, done
        assert done.err.startswith("regard: "), done.err
        assert done.err.count("\n") == 1, done.err
        assert "Traceback" not in done.out + done.err
        return done.err.removeprefix("regard: ").rstrip("\n")
