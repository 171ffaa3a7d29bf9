"""Numbers to be read: 124M, 6.4 GB, 1 text and 2,000 tokens."""

import re
from collections.abc import Mapping

LETTERS = ("", "k", "M", "G", "T", "P", "E")


def short_count(value: int | float) -> str:
    """Shorten a number to three digits and a letter: 950, 12.3k, 124M."""
    value = float(f"{value:.3g}")  # first, so that 999,999 is 1M and not 1000k
    for letter in LETTERS:
        if value < 1000 or letter == LETTERS[-1]:
            break
        value /= 1000
    return f"{value:.3g}{letter}"


def short_size(value: int | float, unit: str = "B") -> str:
    """Shorten a number with its unit: 248 MB."""
    short = short_count(value)
    digits = short.rstrip("".join(LETTERS))
    return f"{digits} {short.removeprefix(digits)}{unit}"


def list_counts(counts: Mapping[str, int]) -> str:
    """Return counts by the names of what is counted, in the plural: 1 text, 2,000 tokens."""
    names = {name: name if count != 1 else re.sub(r"s\b", "", name, count=1) for name, count in counts.items()}
    return ", ".join(f"{count:,} {names[name]}" for name, count in counts.items())
