"""Fixtures: a fake page and sample for the tests in Python, the real page in a browser."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from regard.viewer.recording import Recording

from .fake import put_page, put_sample

if TYPE_CHECKING:
    from .browser import Tab
    from .jupyter import Lab
    from .shown import Shown


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return put_page(tmp_path / "page", monkeypatch)


@pytest.fixture
def bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Recording]:
    return put_sample(tmp_path / "sample", monkeypatch)


@pytest.fixture(scope="package")
def shown() -> Iterator["Shown"]:
    """The viewer with models of every kind, for tests in a browser."""
    from .shown import show

    with show() as running:
        yield running


@pytest.fixture(scope="package")
def window() -> Iterator["Tab"]:
    """The browser. It is closed after this package, since its event loop would disturb other tests."""
    from .browser import browsing

    with browsing() as opened:
        yield opened


@pytest.fixture
def tab(window: "Tab", shown: "Shown") -> Iterator["Tab"]:
    """The page of the viewer, which must contact no other host and report no errors."""
    window.begin(shown.address)
    try:
        yield window
    finally:
        shown.gate.release()
    window.check()


@pytest.fixture(scope="package")
def lab(window: "Tab", tmp_path_factory: pytest.TempPathFactory) -> Iterator["Lab"]:
    """A notebook in a real JupyterLab."""
    from .jupyter import notebook

    with notebook(window.context.browser, tmp_path_factory.mktemp("jupyter")) as opened:
        yield opened
