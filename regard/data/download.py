"""Download a file over HTTP; an interrupted download continues the next time."""

from __future__ import annotations

from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from regard.errors import RegardError

Progress = Callable[[str, int, int | None], None]  # (name, bytes so far, bytes in total or None if unknown)
BLOCK = 256 * 1024
PATIENCE = 60.0  # seconds without a byte, after which the download fails


def download(url: str, part: Path, show: Progress, name: str) -> None:
    """Download `url` into the file `part`, or only the rest if `part` holds the beginning.

    The caller checks the content.
    """
    begun = part.stat().st_size if part.exists() else 0
    try:
        _receive(url, part, begun, show, name)
    except HTTPError as error:
        if error.code == 416 and begun:  # no bytes are left: the file is complete, or has other content
            if error.headers.get("Content-Range") != f"bytes */{begun}":
                part.unlink()
                download(url, part, show, name)
            return
        raise RegardError(f"{url}: the server answers {error.code} {error.reason}; {_remedy()}") from None
    except (OSError, HTTPException) as error:
        raise RegardError(f"{url}: {_cause(error)}; {_remedy()}") from None


def _receive(url: str, part: Path, begun: int, show: Progress, name: str) -> None:
    headers = {"User-Agent": "regard", **({"Range": f"bytes={begun}-"} if begun else {})}
    with urlopen(Request(url, headers=headers), timeout=PATIENCE) as reply:
        continues = reply.status == 206 and reply.headers.get("Content-Range", "").startswith(f"bytes {begun}-")
        done = begun if continues else 0  # a server without ranges starts again
        length = reply.headers.get("Content-Length")
        total = done + int(length) if length else None
        with part.open("ab" if continues else "wb") as file:
            while block := reply.read(BLOCK):
                file.write(block)
                done += len(block)
                show(name, done, total)
    if total is not None and done < total:
        raise HTTPException(f"the connection broke after {done} of {total} bytes")


def _cause(error: Exception) -> str:
    return str(getattr(error, "reason", None) or error or type(error).__name__)


def _remedy() -> str:
    return "run the command again to continue, or give a folder that has the files with --from"
