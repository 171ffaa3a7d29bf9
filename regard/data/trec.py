"""Make train.tsv and test.tsv of TREC's questions (Li, Roth 2002) from lines such as `DESC:manner How did ... ?`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from regard.atomic import write_text
from regard.data.lines import read_lines
from regard.errors import InputError


def pack_trec(found: Mapping[str, Path], to: Path) -> None:
    """Write the questions with their coarse class, one of six, as tables with a text and a label in each row."""
    for split in ("train", "test"):
        rows = ["text\tlabel"]
        for number, line in enumerate(read_lines(found[f"{split}.label"]), start=1):
            label, _, text = line.partition(" ")
            coarse, colon, _ = label.partition(":")
            if not (colon and text.strip()):
                raise InputError(f"trec {split}.label:{number}: {line[:40]!r} is not CLASS:class and a question")
            rows.append(f"{' '.join(text.split())}\t{coarse}")
        write_text(to / f"{split}.tsv", "\n".join(rows) + "\n")
