"""What the tests of experiments share."""

import pytest

from regard.runs.layout import REPORT
from regard.training import start


@pytest.fixture
def no_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the report of a training run, which takes longer than a tiny run."""
    monkeypatch.setattr(start, "finish", lambda run, *rest: (run.folder / REPORT).write_text("left out by a test"))
