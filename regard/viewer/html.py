"""The built page, and how it becomes one HTML file that contains its recordings.

Recordings are embedded as base64, so no text of a user or model can be read as markup.
"""

import re
from base64 import b64encode
from html import escape
from pathlib import Path

from regard.errors import RegardError

FOLDER = Path(__file__).parent / "page"
INDEX, SCRIPT, STYLE = "index.html", "page.js", "page.css"
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
RECORDINGS = "regard-recordings"  # the id of the element that holds them


def read_page_file(name: str) -> str:
    """Read a file of the page."""
    try:
        return (FOLDER / name).read_text(encoding="utf-8")
    except OSError:
        remedy = "install a wheel of regard, or build the page with `npm ci && npm run build` in web/"
        raise RegardError(f"{FOLDER / name}: the page has not been built; {remedy}") from None


def page_with_recordings(archive: bytes, theme: str | None = None) -> str:
    """Return the page as one HTML file that contains its recordings, and whose policy lets it load nothing else.

    `theme` is "light" or "dark"; by default the page follows the system.
    """
    chosen = "" if theme is None else f' data-theme="{theme}"'
    recordings = f'<script type="text/plain" id="{RECORDINGS}"{chosen}>{b64encode(archive).decode()}</script>\n'
    policy = f'\n<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
    style = read_page_file(STYLE).replace("</style", r"<\/style")
    script = re.sub("</script", r"<\\/script", read_page_file(SCRIPT), flags=re.IGNORECASE)
    page = _put(read_page_file(INDEX), "(?<=<head>)", policy)
    page = _put(page, "(?=</body>)", recordings)
    page = _put(page, r'<link\b[^>]*\bhref="[^"]*page\.css"[^>]*>', f"<style>{style}</style>")
    module = f'<script type="module">{script}</script>'
    return _put(page, r'<script\b[^>]*\bsrc="[^"]*page\.js"[^>]*>\s*</script>', module)


def page_as_iframe(archive: bytes, height: int, theme: str | None = None) -> str:
    """Return an iframe that shows such a page inside another page, without access to it."""
    permissions = 'sandbox="allow-scripts allow-downloads" allow="clipboard-write; fullscreen"'
    style = f"width: 100%; height: {height}px; border: 0"
    page = escape(page_with_recordings(archive, theme))
    return f'<iframe title="regard" {permissions} style="{style}" srcdoc="{page}"></iframe>'


def _put(page: str, place: str, what: str) -> str:
    """Insert something at a place of index.html that must exist exactly once."""
    changed, times = re.subn(place, lambda _: what, page)
    if times != 1:
        raise RegardError(f"{FOLDER / INDEX}: matches {place} {times} times instead of once; build the page again")
    return changed
