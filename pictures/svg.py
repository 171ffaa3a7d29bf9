"""SVG as text: elements, and a document in a look."""

from html import escape

from regard.draw import Look
from regard.draw.style import SANS


def element(name: str, content: str = "", **attributes: str | float) -> str:
    """Return an element; `content` is SVG already, and an underscore in the name of an attribute becomes a hyphen."""
    pairs = "".join(f' {key.strip("_").replace("_", "-")}="{_value(value)}"' for key, value in attributes.items())
    return f"<{name}{pairs}>{content}</{name}>" if content else f"<{name}{pairs}/>"


def text(words: str, x: float, y: float, **attributes: str | float) -> str:
    """Return a line of text; blanks are kept."""
    return element("text", escape(words).replace(" ", "\N{NO-BREAK SPACE}"), x=x, y=y, **attributes)


def document(width: float, height: float, parts: list[str], look: Look) -> bytes:
    """Return an SVG file: a card with rounded corners, and the parts on it."""
    ground = element("rect", x=0.5, y=0.5, width=width - 1, height=height - 1, rx=8, fill=look.card, stroke=look.line)
    inside = "\n".join(["", ground, *parts, ""])
    size = {"width": width, "height": height, "viewBox": f"0 0 {_value(width)} {_value(height)}"}
    fonts = ", ".join((*SANS, "sans-serif"))
    drawing = element("svg", inside, xmlns="http://www.w3.org/2000/svg", font_family=fonts, **size)
    return f"{drawing}\n".encode()


def _value(value: str | float) -> str:
    return escape(value) if isinstance(value, str) else f"{round(value, 2):g}"
