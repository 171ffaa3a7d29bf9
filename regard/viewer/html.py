"""The built page, and how it becomes one file that carries its recordings inside itself.

Nothing that a person or a model wrote goes into such a file as text: recordings are base64, so that no token can be
mistaken for a tag.
"""

import re
from base64 import b64encode
from html import escape
from pathlib import Path

from regard.errors import RegardError

FOLDER = Path(__file__).parent / "page"
INDEX, SCRIPT, STYLE = "index.html", "page.js", "page.css"
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
RECORDINGS = "regard-recordings"  # the id of the element that the page reads them from


def read_page_file(name: str) -> str:
    """Read a file of the page."""
    try:
        return (FOLDER / name).read_text(encoding="utf-8")
    except OSError:
        remedy = "install a wheel of regard, or build the page by `npm ci && npm run build` in web/"
        raise RegardError(f"{FOLDER / name}: the page has not been built; {remedy}") from None


def page_with_recordings(container: bytes) -> str:
    """Make a page that needs nothing but itself, and may ask for nothing else."""
    recordings = f'<script type="text/plain" id="{RECORDINGS}">{b64encode(container).decode()}</script>\n'
    policy = f'\n<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
    style = read_page_file(STYLE).replace("</style", r"<\/style")
    script = re.sub("</script", r"<\\/script", read_page_file(SCRIPT), flags=re.IGNORECASE)
    page = _put(read_page_file(INDEX), "(?<=<head>)", policy)
    page = _put(page, "(?=</body>)", recordings)
    page = _put(page, r'<link\b[^>]*\bhref="[^"]*page\.css"[^>]*>', f"<style>{style}</style>")
    module = f'<script type="module">{script}</script>'
    return _put(page, r'<script\b[^>]*\bsrc="[^"]*page\.js"[^>]*>\s*</script>', module)


def page_as_iframe(container: bytes, height: int) -> str:
    """Make the element that shows such a page inside another, with no right to anything there."""
    rights = 'sandbox="allow-scripts allow-downloads" allow="clipboard-write; fullscreen"'
    look = f"width: 100%; height: {height}px; border: 0"
    return (
        f'<iframe title="regard" {rights} style="{look}" srcdoc="{escape(page_with_recordings(container))}"></iframe>'
    )


def _put(page: str, place: str, what: str) -> str:
    """Put something in a place of index.html that must be there once."""
    changed, times = re.subn(place, lambda _: what, page)
    if times != 1:
        raise RegardError(f"{FOLDER / INDEX}: has {times} places for {place}, and must have one; build the page anew")
    return changed
