"""Fetching a file over HTTP; what an interruption leaves is continued the next time."""

from __future__ import annotations

from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from regard.errors import RegardError

Show = Callable[[str, int, int | None], None]  # (name, bytes so far, bytes in all, if the server says so)
BLOCK = 256 * 1024
PATIENCE = 60.0  # seconds without a byte


def download(url: str, part: Path, show: Show, name: str) -> None:
    """Fetch `url` into the file `part`, or the rest of it where `part` holds a beginning.

    Whether the content is right is for the caller to check.
    """
    begun = part.stat().st_size if part.exists() else 0
    try:
        _receive(url, part, begun, show, name)
    except HTTPError as error:
        if error.code == 416 and begun:  # nothing comes after what is here: it is complete, or not of this file
            if error.headers.get("Content-Range") != f"bytes */{begun}":
                part.unlink()
                download(url, part, show, name)
            return
        raise RegardError(f"{url}: the server answers {error.code} {error.reason}; {_remedy()}") from None
    except (OSError, HTTPException) as error:
        raise RegardError(f"{url}: {_cause(error)}; {_remedy()}") from None


def _receive(url: str, part: Path, begun: int, show: Show, name: str) -> None:
    headers = {"User-Agent": "regard", **({"Range": f"bytes={begun}-"} if begun else {})}
    with urlopen(Request(url, headers=headers), timeout=PATIENCE) as reply:
        goes_on = reply.status == 206 and reply.headers.get("Content-Range", "").startswith(f"bytes {begun}-")
        done = begun if goes_on else 0  # a server may not know ranges and begin anew
        length = reply.headers.get("Content-Length")
        total = done + int(length) if length else None
        with part.open("ab" if goes_on else "wb") as file:
            while block := reply.read(BLOCK):
                file.write(block)
                done += len(block)
                show(name, done, total)
    if total is not None and done < total:
        raise HTTPException(f"the connection broke after {done} of {total} bytes")


def _cause(error: Exception) -> str:
    return str(getattr(error, "reason", None) or error or type(error).__name__)


def _remedy() -> str:
    return "run the command again to go on, or give a folder that has the files with --from"
