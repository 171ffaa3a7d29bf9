"""The data that the package ships for its experiments: small cuts of free data sets (sources in `data/README.md`)."""

from pathlib import Path

from regard.errors import InputError, choices

FOLDER = Path(__file__).parent / "data"
SHIPPED = {
    "shakespeare.txt": "shakespeare.txt.xz",
    "tatoeba/train.en": "tatoeba/train.en.xz",
    "tatoeba/train.fr": "tatoeba/train.fr.xz",
    "tatoeba/test.en": "tatoeba/test.en.xz",
    "tatoeba/test.fr": "tatoeba/test.fr.xz",
    "fashion-mnist": "fashion-mnist",
}


def shipped(name: str) -> Path:
    """Return the path of shipped data, which every reader of the package opens: a compressed text, a folder of images.

    The names are `shakespeare.txt` (1.1 million characters), `tatoeba/train.en`, `.fr`, `tatoeba/test.en`, `.fr`
    (42,878 and 1,234 pairs of short sentences, line by line) and `fashion-mnist` (4,000 and 1,000 images).
    """
    if name not in SHIPPED:
        raise InputError(f"no shipped data has the name {name!r}; {choices(name, SHIPPED)}")
    return FOLDER / SHIPPED[name]
