"""Small HTML tables, as objects show themselves in a notebook. All text is escaped."""

from collections.abc import Iterable, Sequence

from regard.escape import html_text


def html_table(head: Sequence[str], rows: Iterable[Sequence[object]], caption: str = "") -> str:
    """Return a table; numbers are aligned to the right."""
    title = f"<caption style='text-align: left'>{html_text(caption)}</caption>" if caption else ""
    names = "".join(f"<th style='text-align: left'>{html_text(name)}</th>" for name in head)
    lines = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return f"<table>{title}{f'<thead><tr>{names}</tr></thead>' if head else ''}<tbody>{lines}</tbody></table>"


def _cell(value: object) -> str:
    side = "right" if isinstance(value, int | float) else "left"
    shown = f"{value:,}" if isinstance(value, int) else f"{value:.4g}" if isinstance(value, float) else value
    return f"<td style='text-align: {side}'>{html_text(shown)}</td>"
