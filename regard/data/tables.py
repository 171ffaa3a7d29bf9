"""Read rows of tables (TSV, CSV, JSON lines, Parquet, saved Hugging Face datasets): streaming, every value as text."""

from __future__ import annotations

import csv
import json
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from regard.data.lines import PACKED, content_suffix, read_lines
from regard.errors import InputError, RegardError

Row = dict[str, str]

# Usual names of columns, the most common first.
TEXT_NAMES = (
    *("text", "sentence", "review", "review_body", "comment", "content", "body", "document", "message", "tweet"),
    *("utterance", "question", "sentence1", "premise", "description", "headline", "title"),
)
LABEL_NAMES = (
    *("label", "labels", "class", "category", "sentiment", "polarity", "intent", "emotion", "topic", "rating"),
    *("stars", "score", "target"),
)
SOURCE_NAMES, TARGET_NAMES = ("source", "src"), ("target", "tgt", "trg")
OTHER_NAMES = ("id", "idx", "index", "sentence2", "hypothesis", "answer", "author", "date", "language", "url")
HEADER_NAMES = {*TEXT_NAMES, *LABEL_NAMES, *SOURCE_NAMES, *TARGET_NAMES, *OTHER_NAMES}

TABLES = (".tsv", ".csv", ".jsonl", ".ndjson", ".parquet")
SAVED_DATASET, SAVED_SPLITS = "state.json", "dataset_dict.json"  # files that Hugging Face datasets writes
BATCH = 1024
FIELD_SIZE_LOCK = threading.Lock()
LONGEST_ROW = 16 * 1024 * 1024  # characters of a row of a text table
MOST_COLUMNS = 10_000


def is_table(path: Path) -> bool:
    """Return whether `read_rows` reads a path: by its suffix, or as a folder saved by Hugging Face datasets."""
    if path.is_dir():
        return (path / SAVED_DATASET).exists() or (path / SAVED_SPLITS).exists()
    return content_suffix(path) in TABLES


def read_rows(path: Path) -> Iterator[tuple[str, Row]]:
    """Yield (place, row by column name) from a table; the place is `file:line`, or `file:row` in binary formats.

    The first line of a TSV or CSV is its header if one of its cells is a usual name of a column; without a header the
    columns are "1", "2", ... TSV has no quotes. Blank lines are skipped.
    """
    if not is_table(path):
        what = "is a folder, but not one saved by Hugging Face datasets" if path.is_dir() else "is not a table"
        raise InputError(f"{path}: {what}; tables are {', '.join(TABLES)} and folders of Hugging Face datasets")
    empty = True
    for number, row in _READERS["" if path.is_dir() else content_suffix(path)](path):
        yield f"{path}:{number}", row
        empty = False
    if empty:
        raise InputError(f"{path}: has no rows; it must hold at least one")


# --- lines of cells --------------------------------------------------------------------------------------------------


def _read_tsv(path: Path) -> Iterator[tuple[int, Row]]:
    return _name_columns(_split_tabs(path), path)


def _read_csv(path: Path) -> Iterator[tuple[int, Row]]:
    return _name_columns(_split_commas(path), path)


def _row_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a table; one that is too long is an error, since a row without its end is another row."""

    def reject(place: str) -> None:
        raise _long_row(place)

    return read_lines(path, reject, LONGEST_ROW)


def _long_row(place: str) -> InputError:
    rule = f"a row of more than {LONGEST_ROW:,} characters is not read"
    return InputError(f"{place}: {rule}; check line ends and quotes, or use Parquet for longer texts")


def _split_tabs(path: Path) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(_row_lines(path), 1):
        if line.count("\t") >= MOST_COLUMNS:
            raise InputError(f"{path}:{number}: more than {MOST_COLUMNS:,} columns are not read; check the tabs")
        yield number, line.split("\t")


def _split_commas(path: Path) -> Iterator[tuple[int, list[str]]]:
    row = size = 0  # where the row begins, and its characters: a quoted cell may hold line ends

    def lines() -> Iterator[str]:
        nonlocal size
        for line in _row_lines(path):
            size += len(line) + 1
            if size > LONGEST_ROW + 1:
                raise _long_row(f"{path}:{row}")
            yield line + "\n"

    reader = csv.reader(lines(), strict=True)
    while True:
        row, size = reader.line_num + 1, 0
        try:
            with _any_field_size():
                cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise InputError(f"{path}:{row}: not valid CSV ({error}); check the quotes from here on") from None
        if len(cells) > MOST_COLUMNS:
            raise InputError(f"{path}:{row}: more than {MOST_COLUMNS:,} columns are not read; check the commas")
        yield row, cells


@contextmanager
def _any_field_size() -> Iterator[None]:
    """Lift the limit of a field inside the `with`; it belongs to the whole process, so one thread at a time."""
    with FIELD_SIZE_LOCK:
        before = csv.field_size_limit(2**31 - 1)  # larger numbers fail on some systems
        try:
            yield
        finally:
            csv.field_size_limit(before)


def _name_columns(lines: Iterator[tuple[int, list[str]]], path: Path) -> Iterator[tuple[int, Row]]:
    names: list[str] | None = None
    for number, cells in lines:
        if len(cells) < 2 and not "".join(cells).strip():  # a blank line
            continue
        if names is None:
            trimmed = [cell.strip() for cell in cells]
            headed = any(name.casefold() in HEADER_NAMES for name in trimmed)
            names = trimmed if headed else [str(index) for index in range(1, len(cells) + 1)]
            if len(set(names)) < len(names):
                raise InputError(f"{path}:{number}: two columns have the same name; rename one of them")
            if headed:
                continue
        if len(cells) != len(names):
            here = f"{len(cells)} column{'s' * (len(cells) != 1)}"
            raise InputError(
                f"{path}:{number}: {here}, but the first line has {len(names)}; every line needs the same number"
            )
        yield number, dict(zip(names, cells, strict=True))


# --- rows of values --------------------------------------------------------------------------------------------------


def _read_json(path: Path) -> Iterator[tuple[int, Row]]:
    for number, line in enumerate(_row_lines(path), 1):
        if not line.strip():
            continue
        place = f"{path}:{number}"
        try:
            value = json.loads(line, parse_int=str, parse_float=str)  # numbers stay as written
        except (ValueError, RecursionError) as error:
            raise InputError(f"{place}: not valid JSON ({error}); every line must be one object") from None
        if not isinstance(value, dict) or not value:
            raise InputError(f'{place}: must be a JSON object such as {{"text": "..."}}')
        yield number, _to_text(value, place)


def _read_parquet(path: Path) -> Iterator[tuple[int, Row]]:
    if not path.is_file():
        raise InputError(f"{path}: no such file; check the path")
    if path.name.lower().endswith(PACKED):
        raise InputError(f"{path}: Parquet is compressed inside; unpack the file")
    try:
        import pyarrow  # type: ignore[import-untyped]
        from pyarrow import parquet
    except ImportError:
        raise RegardError(f'{path}: reading Parquet needs pyarrow: pip install "regard[parquet]"') from None
    try:
        with parquet.ParquetFile(path, pre_buffer=False) as file:  # to hold one group of rows at a time
            rows = (row for batch in file.iter_batches(BATCH) for row in batch.to_pylist())
            yield from _number_rows(path, rows)
    except (pyarrow.ArrowException, OSError) as error:
        raise InputError(f"{path}: not valid Parquet ({_first_line(error)}); download or write it again") from None


def _read_saved(path: Path) -> Iterator[tuple[int, Row]]:
    if (path / SAVED_SPLITS).exists():
        splits = sorted(folder.parent.name for folder in path.glob(f"*/{SAVED_DATASET}"))
        raise InputError(f"{path}: holds several splits; name one of its folders ({', '.join(splits)})")
    try:
        import datasets  # type: ignore[import-untyped]
    except ImportError:
        raise RegardError(f'{path}: reading this folder needs datasets: pip install "regard[datasets]"') from None
    try:
        saved = datasets.load_from_disk(str(path))
    except Exception as error:  # the library raises many kinds of errors
        raise InputError(f"{path}: cannot be read as a data set ({_first_line(error)}); save it again") from None
    batches = saved.with_format("arrow").iter(BATCH)
    yield from _number_rows(path, (row for batch in batches for row in batch.to_pylist()))


def _number_rows(path: Path, rows: Iterable[dict[str, Any]]) -> Iterator[tuple[int, Row]]:
    for number, row in enumerate(rows, 1):
        yield number, _to_text(row, f"{path}:{number}")


def _to_text(row: dict[str, Any], place: str) -> Row:
    """Turn every value into text; `"translation": {"de": ..., "en": ...}` becomes the columns de and en."""
    if isinstance(row.get("translation"), dict):
        row = {**row, **row["translation"]}
        del row["translation"]
    try:
        return {name: _value_to_text(value) for name, value in row.items()}
    except UnicodeError:
        raise InputError(f"{place}: a value is not valid Unicode text; repair or remove this row") from None


def _value_to_text(value: Any) -> str:
    if isinstance(value, str):
        if not value.isascii():
            value.encode("utf-8")  # JSON can hold a lone surrogate (\ud83d), which cannot be written as UTF-8
        return value
    if value is None:
        return ""
    if isinstance(value, bytes):
        return value.decode("utf-8")
    if isinstance(value, bool | int | float | list | dict):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0]


_READERS: dict[str, Callable[[Path], Iterator[tuple[int, Row]]]] = {
    ".tsv": _read_tsv,
    ".csv": _read_csv,
    ".jsonl": _read_json,
    ".ndjson": _read_json,
    ".parquet": _read_parquet,
    "": _read_saved,
}
