"""Make train.mrg, valid.mrg and test.mrg of NLTK's sample of the Penn Treebank (Marcus et al. 1993).

The sample has the articles wsj_0001 to wsj_0199 and no split of its own. Articles stay together: those whose number
ends in 9 are for testing, those whose number divided by 20 leaves 8 for validation, all others for training.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import BadZipFile, ZipFile

from regard.atomic import write_text
from regard.data.read import Skipped
from regard.data.trees import read_trees
from regard.errors import InputError

ARTICLE = re.compile(r"treebank/combined/wsj_(\d{4})\.mrg")


def pack_treebank(found: Mapping[str, Path], to: Path) -> None:
    """Write the trees of each part, one per line, without traces and functions."""
    parts: dict[str, list[str]] = {"train": [], "valid": [], "test": []}
    try:
        with ZipFile(found["treebank.zip"]) as archive, TemporaryDirectory() as folder:
            for name in sorted(archive.namelist()):
                if article := ARTICLE.fullmatch(name):
                    path = Path(folder, Path(name).name)
                    path.write_bytes(archive.read(name))
                    parts[split_of(int(article[1]))] += map(str, read_trees(path, Skipped()))
    except (BadZipFile, OSError) as error:
        raise InputError(f"{found['treebank.zip']}: cannot be unpacked ({error}); get another copy") from None
    for part, trees in parts.items():
        write_text(to / f"{part}.mrg", "".join(f"{tree}\n" for tree in trees))


def split_of(article: int) -> str:
    """Return the part that an article belongs to, by its number."""
    if article % 10 == 9:
        return "test"
    return "valid" if article % 20 == 8 else "train"
