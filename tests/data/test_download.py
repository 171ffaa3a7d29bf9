"""Downloads that are interrupted, continued, restarted and refused."""

import re
from pathlib import Path

import pytest

from regard.data.download import download
from regard.errors import RegardError
from tests.data.server import serve

CONTENT = bytes(range(256)) * 4000


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")


def fetch(address: str, part: Path) -> list[tuple[str, int, int | None]]:
    shown: list[tuple[str, int, int | None]] = []
    download(f"{address}/a", part, lambda *seen: shown.append(seen), "a")
    return shown


def test_a_whole_download_shows_its_progress(tmp_path):
    with serve({"/a": CONTENT}) as served:
        shown = fetch(served.address, tmp_path / "a.part")
        assert (tmp_path / "a.part").read_bytes() == CONTENT
        assert shown[-1] == ("a", len(CONTENT), len(CONTENT))
        assert [done for _, done, _ in shown] == sorted({done for _, done, _ in shown})
        assert served.asked == [("/a", None)]


@pytest.mark.parametrize("ranges", [True, False])
def test_an_interrupted_download_continues(tmp_path, ranges):
    part = tmp_path / "a.part"
    with serve({"/a": CONTENT}, ranges) as served:
        served.breaks_after = 300_000
        cause = f"the connection broke after 300000 of {len(CONTENT)} bytes"
        remedy = "run the command again to continue, or give a folder that has the files with --from"
        with pytest.raises(RegardError, match=f"^{re.escape(f'{served.address}/a: {cause}; {remedy}')}$"):
            fetch(served.address, part)
        assert part.read_bytes() == CONTENT[:300_000]
        shown = fetch(served.address, part)
        assert part.read_bytes() == CONTENT
        assert shown[-1] == ("a", len(CONTENT), len(CONTENT))
        assert shown[0][1] > 300_000 if ranges else shown[0][1] <= 300_000
        assert served.asked == [("/a", None), ("/a", "bytes=300000-")]


def test_what_is_complete_is_not_fetched_again(tmp_path):
    part = tmp_path / "a.part"
    part.write_bytes(CONTENT)
    with serve({"/a": CONTENT}) as served:
        assert fetch(served.address, part) == []
        assert part.read_bytes() == CONTENT
        assert served.asked == [("/a", f"bytes={len(CONTENT)}-")]


def test_a_part_longer_than_the_file_is_dropped(tmp_path):
    part = tmp_path / "a.part"
    part.write_bytes(CONTENT + b"more")
    with serve({"/a": CONTENT}) as served:
        fetch(served.address, part)
        assert part.read_bytes() == CONTENT


def test_a_server_without_the_file(tmp_path):
    with (
        serve({}) as served,
        pytest.raises(
            RegardError, match="/a: the server answers 404 Not Found; run the command again to continue, or give"
        ),
    ):
        fetch(served.address, tmp_path / "a.part")


def test_no_server(tmp_path):
    with serve({}) as served:
        address = served.address
    with pytest.raises(RegardError, match="/a: .*refused; run the command again to continue, or give a folder"):
        fetch(address, tmp_path / "a.part")
