"""Large numbers, shortened to be read: 124M, 6.4 GB."""

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
