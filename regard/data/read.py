"""Read text for training: parallel sentences, labelled texts, documents; count what is skipped."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain, zip_longest
from pathlib import Path
from typing import Literal

from regard.data.lines import BLOCK, LONGEST, read_blocks, read_line_parts, read_lines
from regard.data.tables import LABEL_NAMES, SOURCE_NAMES, TABLES, TARGET_NAMES, TEXT_NAMES, Row, is_table, read_rows
from regard.errors import InputError, choices

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


# --- pairs and labels ------------------------------------------------------------------------------------------------


def read_pairs(source: Path, target: Path | None, skipped: Skipped) -> Iterator[tuple[str, str]]:
    """Yield (source, target) sentences from two files, line by line, or from two columns of one table."""
    if target is not None:
        pairs = _zip_lines(source, target, skipped)
    elif is_table(source):
        pairs = _pair_columns(source)
    else:
        remedy = f"name a second file with its translations, or one table of pairs ({', '.join(TABLES)})"
        raise InputError(f"{source}: holds only one side; {remedy}")
    for place, one, other in pairs:
        if one.strip() and other.strip():
            yield _shortened(one, place, skipped), _shortened(other, place, skipped)
        else:
            skipped.note("blank line", place)


def _zip_lines(source: Path, target: Path, skipped: Skipped) -> Iterator[tuple[str, str, str]]:
    sources = targets = 0
    cut = partial(skipped.note, CUT)
    for one, other in zip_longest(read_lines(source, cut), read_lines(target, cut)):
        sources += one is not None
        targets += other is not None
        if one is not None and other is not None:
            yield f"{source if not one.strip() else target}:{sources}", one, other
    if sources != targets:
        totals = f"{source} has {sources} lines but {target} has {targets}"
        raise InputError(f"{totals}; they must match line by line")


def _pair_columns(path: Path) -> Iterator[tuple[str, str, str]]:
    row, rows = _peek(path)
    source = _usual_column(row, SOURCE_NAMES)
    target = _usual_column(row, TARGET_NAMES)
    source = source or _others(row, target, path)[0]
    target = target or _others(row, source, path)[0]
    for place, row in rows:
        yield place, _cell(row, source, place), _cell(row, target, place)


def read_labelled(
    path: Path, skipped: Skipped, text: str | None = None, label: str | None = None
) -> Iterator[tuple[str, str]]:
    """Yield (text, label) from a table: the named columns, else those with usual names, else the first and the last."""
    row, rows = _peek(path)
    of_text = _named_column(row, text, path) if text else None
    of_label = _named_column(row, label, path) if label else _usual_column(row, LABEL_NAMES, of_text)
    of_text = of_text or _usual_column(row, TEXT_NAMES, of_label) or _others(row, of_label, path)[0]
    of_label = of_label or _others(row, of_text, path)[-1]
    for place, row in rows:
        words, answer = _cell(row, of_text, place), _cell(row, of_label, place).strip()
        if words.strip() and answer:
            yield _shortened(words, place, skipped), answer
        else:
            skipped.note("blank label" if words.strip() else "blank text", place)


def _shortened(text: str, place: str, skipped: Skipped) -> str:
    """Return a text without what exceeds the longest text that is read."""
    if len(text) > LONGEST:
        skipped.note(CUT, place)
    return text[:LONGEST]


def _peek(path: Path) -> tuple[Row, Iterator[tuple[str, Row]]]:
    """Return the first row, to choose columns by, and all rows."""
    rows = read_rows(path)
    first = next(rows)
    return first[1], chain([first], rows)


def _named_column(row: Row, name: str, path: Path) -> str:
    """Find a column by its name, exactly or ignoring case."""
    if name in row:
        return name
    for column in row:
        if column.casefold() == name.casefold():
            return column
    raise InputError(f"{path}: has no column {name!r}; {choices(name, row)}")


def _usual_column(row: Row, names: tuple[str, ...], except_for: str | None = None) -> str | None:
    """Find a column that has one of the usual names, the most usual first."""
    columns = {column.casefold(): column for column in row if column != except_for}
    return next((columns[name] for name in names if name in columns), None)


def _others(row: Row, taken: str | None, path: Path) -> list[str]:
    others = [column for column in row if column != taken]
    if not others or len(row) < 2:
        raise InputError(
            f"{path}: has one column ({', '.join(row)}), but two are needed; check how columns are separated"
        )
    return others


def _cell(row: Row, column: str, place: str) -> str:
    if column not in row:  # the lines of a JSONL file need not agree
        raise InputError(f"{place}: has no {column!r}, which every row needs; it has {', '.join(row) or 'nothing'}")
    return row[column]


# --- documents -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DocumentPart:
    """A part of a document; `ends` says that the document ends after it."""

    text: str
    ends: bool


def read_documents(
    path: Path, skipped: Skipped, by: Literal["file", "line", "blank-line"] = "file", column: str | None = None
) -> Iterator[DocumentPart]:
    """Yield documents in parts of bounded size: a text file, its lines or its paragraphs; the rows of a table.

    A file comes in parts of about 64 KiB that end with a line; joined, they are exactly its text. From a table, read
    `column`, else the column named "text", else the first.
    """
    if is_table(path):
        yield from _rows_as_documents(path, skipped, column)
    elif by == "file":
        yield from _file_as_document(path)
    elif by == "line":
        yield from _lines_as_documents(path, skipped)
    else:
        yield from _paragraphs(path)


def _rows_as_documents(path: Path, skipped: Skipped, column: str | None) -> Iterator[DocumentPart]:
    row, rows = _peek(path)
    chosen = _named_column(row, column, path) if column else _usual_column(row, ("text",)) or next(iter(row))
    for place, row in rows:
        text = _cell(row, chosen, place)
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
