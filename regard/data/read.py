"""Read text for training: parallel sentences, labelled texts, documents; count what is skipped.

Tables are read by `read_columns`, which decides the columns for all of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Literal

from regard.data.columns import DOCUMENTS, LABELLED, PAIRED, ColumnOptions, FileReading
from regard.data.lines import BLOCK, LONGEST, NOT_TEXT, content_suffix, read_blocks, read_line_parts, read_lines
from regard.data.tables import TABLES, is_table, read_columns, read_reading
from regard.errors import InputError

PAIR_COLUMNS = ColumnOptions(PAIRED, (None, None))
LABELLED_COLUMNS = ColumnOptions(LABELLED, (None, None))
TEXT_COLUMN = ColumnOptions(DOCUMENTS, (None,))

CUT = f"end of a text of more than {LONGEST:,} characters"


class Skipped:
    """Counts what was skipped and why, to be reported once instead of line by line."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.first: dict[str, str] = {}

    def note(self, reason: str, place: str, count: int = 1) -> None:
        """Count skipped items; `reason` names one in the singular, such as "blank line"."""
        self.counts[reason] = self.counts.get(reason, 0) + count
        self.first.setdefault(reason, place)

    def __bool__(self) -> bool:
        return bool(self.counts)

    def report(self) -> list[str]:
        """List how many of each kind were skipped, and where the first one is."""
        return [
            f"{_counted(count, reason)} skipped (first: {self.first[reason]})" for reason, count in self.counts.items()
        ]


def _counted(count: int, noun: str) -> str:
    """Write a number with a noun: 1 blank line, 2 blank lines, 2 pairs of more than 100 tokens."""
    head, of, rest = noun.partition(" of ")
    return f"{count} {head}{'s' if count > 1 else ''}{of}{rest}"


# --- files -----------------------------------------------------------------------------------------------------------


def files_below(path: Path) -> list[Path]:
    """Return the text files and tables of a folder, at any depth and sorted; a file or table is returned as it is."""
    if not path.is_dir() or is_table(path):
        return [path]
    found: list[Path] = []
    for folder, inner, names in os.walk(path):
        inner[:] = sorted(name for name in inner if not name.startswith("."))
        below = [Path(folder, name) for name in sorted(names) if not name.startswith(".")]
        found += [file for file in below if is_table(file) or content_suffix(file) not in NOT_TEXT]
    if not found:
        raise InputError(f"{path}: is a folder without text files or tables; name a file, or a folder that has some")
    return found


# --- pairs and labels ------------------------------------------------------------------------------------------------


def read_pairs(
    source: Path, target: Path | None, skipped: Skipped, columns: ColumnOptions = PAIR_COLUMNS
) -> Iterator[tuple[str, str]]:
    """Yield (source, target) sentences from two files, line by line, or from two columns of one table."""
    check_sides(source, target)
    pairs = read_columns(source, columns) if target is None else _zip_lines(source, target, skipped)
    for place, (one, other) in pairs:
        if one.strip() and other.strip():
            yield _shortened(one, place, skipped), _shortened(other, place, skipped)
        else:
            skipped.note("blank line", place)


def check_sides(source: Path, target: Path | None) -> None:
    """Check that there is one table, or two files of lines."""
    if target is None and not is_table(source):
        remedy = f"name a second file with its translations, or one table of pairs ({', '.join(TABLES)})"
        raise InputError(f"{source}: holds only one side; {remedy}")
    for path, other in ((source, target), (target, source)):
        if path is not None and other is not None and is_table(path):
            rule = f"is a table, which holds both sides, so {other} cannot be its other side"
            raise InputError(f"{path}: {rule}; give tables alone, or two files with a sentence in each line")


def _zip_lines(source: Path, target: Path, skipped: Skipped) -> Iterator[tuple[str, tuple[str, str]]]:
    sources = targets = 0
    only_blank = True  # of the lines that the longer file has more
    cut = partial(skipped.note, CUT)
    for one, other in zip_longest(read_lines(source, cut), read_lines(target, cut)):
        sources += one is not None
        targets += other is not None
        if one is not None and other is not None:
            yield f"{source if not one.strip() else target}:{sources}", (one, other)
        else:
            only_blank &= not (one or other or "").strip()
    if sources != targets:
        totals = f"{source} has {sources} line{'s' * (sources != 1)} but {target} has {targets}"
        longer, more = (source, sources - targets) if sources > targets else (target, targets - sources)
        remedy = f"; remove the blank lines at the end of {longer} ({more})" if only_blank else ""
        raise InputError(f"{totals}; they must match line by line{remedy}")


def pairs_reading(source: Path, target: Path | None, columns: ColumnOptions = PAIR_COLUMNS) -> FileReading:
    """Return how `read_pairs` reads its files."""
    check_sides(source, target)
    if target is None:
        return read_reading(source, columns)
    examples = next((pair for _, pair in _zip_lines(source, target, Skipped()) if all(map(str.strip, pair))), ("", ""))
    names = [role.name for role in columns.roles]
    return FileReading(
        (str(source), str(target)), f"{' and '.join(names)}, line by line", dict(zip(names, examples, strict=True))
    )


def read_labelled(path: Path, skipped: Skipped, columns: ColumnOptions = LABELLED_COLUMNS) -> Iterator[tuple[str, str]]:
    """Yield (text, label) from a table."""
    for place, (words, label) in read_columns(path, columns):
        if words.strip() and label.strip():
            yield _shortened(words, place, skipped), label.strip()
        else:
            skipped.note("blank label" if words.strip() else "blank text", place)


def _shortened(text: str, place: str, skipped: Skipped) -> str:
    """Return a text without what exceeds the longest text that is read."""
    if len(text) > LONGEST:
        skipped.note(CUT, place)
    return text[:LONGEST]


# --- documents -------------------------------------------------------------------------------------------------------


By = Literal["file", "line", "blank-line"]  # what one document is in a plain file


@dataclass(frozen=True)
class DocumentPart:
    """A part of a document; `ends` says that the document ends after it."""

    text: str
    ends: bool


def read_documents(
    path: Path, skipped: Skipped, by: By = "file", columns: ColumnOptions = TEXT_COLUMN
) -> Iterator[DocumentPart]:
    """Yield documents in parts of bounded size: a text file, its lines or its paragraphs; the rows of a table.

    A file comes in parts of about 64 KiB that end with a line; joined, they are exactly its text.
    """
    if is_table(path):
        yield from _rows_as_documents(path, skipped, columns)
    elif by == "file":
        yield from _file_as_document(path)
    elif by == "line":
        yield from _lines_as_documents(path, skipped)
    else:
        yield from _paragraphs(path)


def documents_reading(path: Path, by: By = "file", columns: ColumnOptions = TEXT_COLUMN) -> FileReading:
    """Return how `read_documents` reads a file."""
    if is_table(path):
        return read_reading(path, columns)
    example = next((part.text for part in read_documents(path, Skipped(), by, columns) if part.text.strip()), "")
    how = {"file": "one text", "line": "each line is a text", "blank-line": "texts are separated by blank lines"}[by]
    return FileReading((str(path),), how, {columns.roles[0].name: example.strip()})


def _rows_as_documents(path: Path, skipped: Skipped, columns: ColumnOptions) -> Iterator[DocumentPart]:
    for place, (text,) in read_columns(path, columns):
        if text.strip():
            yield from _cut(text)
        else:
            skipped.note("blank text", place)


def _cut(text: str) -> Iterator[DocumentPart]:
    """Yield a text in parts of at most 1 MiB, cut after a space where there is one."""
    begin = 0
    while len(text) - begin > LONGEST:
        end = text.rfind(" ", begin, begin + LONGEST) + 1 or begin + LONGEST
        yield DocumentPart(text[begin:end], ends=False)
        begin = end
    yield DocumentPart(text[begin:], ends=True)


def _lines_as_documents(path: Path, skipped: Skipped) -> Iterator[DocumentPart]:
    number, begun = 1, False
    for text, ends in read_line_parts(path):
        if begun or text.strip():
            yield DocumentPart(text, ends)
            begun = not ends
        elif ends:
            skipped.note("blank line", f"{path}:{number}")
        number += ends


def _file_as_document(path: Path) -> Iterator[DocumentPart]:
    before: str | None = None
    for _, text in read_blocks(path):
        if before is not None:
            yield DocumentPart(before, ends=False)
        before = text
    if before is not None:
        yield DocumentPart(before, ends=True)


def _paragraphs(path: Path) -> Iterator[DocumentPart]:
    pieces: list[str] = []
    size, begun = 0, False  # `begun`: a line whose first part came already
    for text, ends in read_line_parts(path):
        if ends and not begun and not text.strip():
            if pieces:
                yield DocumentPart("".join(pieces).removesuffix("\n"), ends=True)
            pieces, size = [], 0
            continue
        if size > BLOCK:  # only when another line follows, so that the last part is never empty
            yield DocumentPart("".join(pieces), ends=False)
            pieces, size = [], 0
        pieces.append(f"{text}\n" if ends else text)
        size += len(text)
        begun = not ends
    if pieces:
        yield DocumentPart("".join(pieces).removesuffix("\n"), ends=True)
