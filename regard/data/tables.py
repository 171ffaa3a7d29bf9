"""Read rows of tables (TSV, CSV, JSON lines, Parquet, saved Hugging Face datasets): streaming, every value as text."""

from __future__ import annotations

import csv
import json
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeVar

from regard.data.columns import ColumnOptions, FileReading, TableHead, choose_columns, describe_table, find_header
from regard.data.lines import PACKED, content_suffix, read_lines
from regard.errors import InputError, RegardError
from regard.untrusted import JsonError, most_unpacked, parse_json, too_much

Row = dict[str, str]
Values = dict[str, Any]
Item = TypeVar("Item", list[str], Values)

TABLES = (".tsv", ".csv", ".jsonl", ".ndjson", ".parquet")
SAVED_DATASET, SAVED_SPLITS = "state.json", "dataset_dict.json"  # files that Hugging Face datasets writes
TRANSLATION = "translation"  # an object with the same sentence in two languages
BATCH = 64  # rows of a binary table that are in memory together; each may hold a long text
FIELD_SIZE_LOCK = threading.Lock()
LONGEST_ROW = 16 * 1024 * 1024  # characters of a row of a text table
MOST_COLUMNS = 10_000
PEEK = 100  # rows from which the header and the columns are decided
PEEK_CHARACTERS = 1_000_000  # of these rows, at most
SAMPLE = 1_000_000  # bytes of cells from which those of all tables are estimated
UNPACKED = 3  # times the size of a compressed text, about


def is_table(path: Path) -> bool:
    """Return whether `read_rows` reads a path: by its suffix, or as a folder saved by Hugging Face datasets."""
    if path.is_dir():
        return (path / SAVED_DATASET).exists() or (path / SAVED_SPLITS).exists()
    return content_suffix(path) in TABLES


@dataclass(frozen=True)
class OpenTable:
    """A table that was opened: what is known of its columns, and its rows, each with its place."""

    head: TableHead
    rows: Iterator[tuple[str, Row]]


def open_table(path: Path, header: bool | None = None, named: Sequence[str] = ()) -> OpenTable:
    """Open a table and read its first rows.

    The first line of a TSV or CSV is a header if `header` says so, or if it looks like one, above all if it has one of
    the columns `named`; without a header the columns are "1", "2", ... TSV has no quotes. Blank lines are skipped.
    """
    if not is_table(path):
        what = "is a folder, but not one saved by Hugging Face datasets" if path.is_dir() else "is not a table"
        raise InputError(f"{path}: {what}; tables are {', '.join(TABLES)} and folders of Hugging Face datasets")
    suffix = "" if path.is_dir() else content_suffix(path)
    if suffix in _SPLIT:
        return _open_cells(path, _SPLIT[suffix](path), header, named)
    return _open_objects(path, _READERS[suffix](path))


def read_columns(path: Path, options: ColumnOptions) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield (place, the cell of each role) from a table; the place is `file:line`, or `file:row` in binary formats."""
    table = open_table(path, options.header, options.named())
    columns = choose_columns(table.head, options, str(path))
    for place, row in table.rows:
        yield place, tuple(_cell(row, column, place) for column in columns)


def find_columns(path: Path, options: ColumnOptions) -> tuple[str, ...]:
    """Return the columns that `read_columns` reads."""
    return choose_columns(open_table(path, options.header, options.named()).head, options, str(path))


def read_reading(path: Path, options: ColumnOptions) -> FileReading:
    """Return how `read_columns` reads a table, with its first row that has no blank cell."""
    table = open_table(path, options.header, options.named())
    columns = choose_columns(table.head, options, str(path))
    rows = [tuple(row.get(column, "") for column in columns) for _, row in islice(table.rows, PEEK)]
    example = next((row for row in rows if all(cell.strip() for cell in row)), rows[0])
    return describe_table(str(path), table.head, options, columns, example)


def estimate_cells(paths: Iterable[Path], options: ColumnOptions) -> int:
    """Estimate how many bytes `read_columns` reads from tables, with a separator after each cell, as CSV has it.

    Tables that hold at most a megabyte of cells are counted, of others the first rows. Of tables after that megabyte
    only the size is known; one that cannot be read counts nothing, since it is reported when it is read.
    """
    cells = counted = size = 0.0
    for path in paths:
        files = path.iterdir() if path.is_dir() else [path]
        here = sum(file.stat().st_size for file in files if file.is_file())
        size += here
        if cells < SAMPLE:
            cells += _estimate_cells(path, path.stat().st_mtime_ns, options, int(SAMPLE - cells))
            counted += here
    return round(cells * size / max(counted, 1))


@lru_cache  # a plan asks several times
def _estimate_cells(path: Path, changed: int, options: ColumnOptions, most: int) -> float:
    """Estimate the bytes of the cells of a table, last changed at `changed`, from its first rows, up to `most`."""
    cells, count = 0, 0
    try:
        for place, row in read_columns(path, options):
            if cells > most:
                return cells / count * _count_rows(path, count, place)
            cells += sum(len(cell.encode()) + 1 for cell in row)
            count += 1
    except RegardError:
        return 0
    return cells


def _count_rows(path: Path, known: int, place: str) -> float:
    """Return the number of rows of a table, of a text table estimated from the `known` ones before a place."""
    if path.is_dir():
        import datasets  # type: ignore[import-untyped]

        return len(datasets.load_from_disk(str(path)))
    if content_suffix(path) == ".parquet":
        from pyarrow import parquet  # type: ignore[import-untyped]

        return int(parquet.read_metadata(path).num_rows)
    lines = islice(_row_lines(path), int(place.rpartition(":")[2]) - 1)
    packed = path.name.lower().endswith(PACKED)
    return known * path.stat().st_size * (UNPACKED if packed else 1) / sum(len(line.encode()) + 1 for line in lines)


def _cell(row: Row, column: str, place: str) -> str:
    if column not in row:  # the lines of a JSONL file need not agree
        raise InputError(f"{place}: has no {column!r}, which every row needs; it has {', '.join(row) or 'nothing'}")
    return row[column]


def _peek(items: Iterator[tuple[int, Item]], path: Path) -> list[tuple[int, Item]]:
    """Return the first items, at least one, and the header of a table with its first row."""
    found, size = [], 0
    for number, item in items:
        found.append((number, item))
        values = item if isinstance(item, list) else item.values()
        size += sum(len(value) for value in values if isinstance(value, str | bytes))
        if len(found) == PEEK or (len(found) > 1 and size > PEEK_CHARACTERS):
            break
    if not found:
        raise InputError(f"{path}: has no rows; it must hold at least one")
    return found


# --- lines of cells --------------------------------------------------------------------------------------------------


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
            remedy = "check that commas separate the columns, and the quotes from here on"
            raise InputError(f"{path}:{row}: not valid CSV ({error}); {remedy}") from None
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


def _open_cells(
    path: Path, lines: Iterator[tuple[int, list[str]]], header: bool | None, named: Sequence[str]
) -> OpenTable:
    lines = ((number, cells) for number, cells in lines if len(cells) > 1 or "".join(cells).strip())
    first = _peek(lines, path)
    number, cells = first[0]
    found = find_header([row for _, row in first], named, header)
    names = [cell.strip() for cell in cells] if found.present else [str(place) for place in range(1, len(cells) + 1)]
    if len(set(names)) < len(names):
        raise InputError(f"{path}:{number}: two columns have the same name; rename one of them")
    first = first[found.present :]
    if not first:
        raise InputError(f"{path}: has no rows; it must hold at least one")
    values = {name: [row[place] for _, row in first if place < len(row)] for place, name in enumerate(names)}
    return OpenTable(TableHead(values, found), _name_cells(path, chain(first, lines), names))


def _name_cells(path: Path, lines: Iterable[tuple[int, list[str]]], names: Sequence[str]) -> Iterator[tuple[str, Row]]:
    for number, cells in lines:
        if len(cells) != len(names):
            here = f"{len(cells)} column{'s' * (len(cells) != 1)}"
            raise InputError(
                f"{path}:{number}: {here}, but the first line has {len(names)}; every line needs the same number"
            )
        yield f"{path}:{number}", dict(zip(names, cells, strict=True))


# --- rows of values --------------------------------------------------------------------------------------------------


def _open_objects(path: Path, rows: Iterator[tuple[int, Values]]) -> OpenTable:
    first = _peek(rows, path)
    found = [_to_text(row, f"{path}:{number}") for number, row in first]
    values = {name: [row[name] for row in found if name in row] for name in found[0]}
    languages = first[0][1].get(TRANSLATION)
    head = TableHead(values, languages=tuple(languages) if isinstance(languages, dict) else ())
    every = ((f"{path}:{number}", _to_text(row, f"{path}:{number}")) for number, row in chain(first, rows))
    return OpenTable(head, every)


def _read_json(path: Path) -> Iterator[tuple[int, Values]]:
    for number, line in enumerate(_row_lines(path), 1):
        if not line.strip():
            continue
        place = f"{path}:{number}"
        try:
            value = parse_json(line, place, parse_int=str, parse_float=str)  # numbers stay as written
        except JsonError as error:
            reason = error.reason.removeprefix("is not valid JSON: ")
            raise InputError(f"{place}: not valid JSON ({reason}); every line must be one object") from None
        if not isinstance(value, dict) or not value:
            raise InputError(f'{place}: must be a JSON object such as {{"text": "..."}}')
        yield number, value


def _read_parquet(path: Path) -> Iterator[tuple[int, Values]]:
    if not path.is_file():
        raise InputError(f"{path}: no such file; check the path")
    if path.name.lower().endswith(PACKED):
        raise InputError(f"{path}: Parquet is compressed inside; unpack the file")
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise RegardError(f'{path}: reading Parquet needs pyarrow: pip install "regard[parquet]"') from None
    try:
        with parquet.ParquetFile(path, pre_buffer=False) as file:  # to hold one group of rows at a time
            _check_groups(path, file)
            yield from enumerate((row for batch in file.iter_batches(BATCH) for row in _rows_of(batch)), 1)
    except (pyarrow.ArrowException, OSError) as error:
        raise InputError(f"{path}: not valid Parquet ({_first_line(error)}); download or write it again") from None
    except (ValueError, OverflowError) as error:  # in a list; in a column of its own, see `_values_of`
        raise InputError(f"{path}: cannot be read ({_first_line(error)}); write it again without this column") from None


def _check_groups(path: Path, file: Any) -> None:
    """Reject a Parquet file with a group of rows that decodes to far more than the file holds, before it is decoded.

    Values that repeat take hardly any place in a file. A column without lists is decoded some rows at a time, so only
    its packed values count; a row of lists is decoded as a whole.
    """
    most = most_unpacked(path.stat().st_size)
    for number in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(number)
        columns = [group.column(column) for column in range(group.num_columns)]
        lists = [file.schema.column(column).max_repetition_level > 0 for column in range(group.num_columns)]
        values = sum(column.num_values for column, is_list in zip(columns, lists, strict=True) if is_list)
        if values + sum(column.total_uncompressed_size for column in columns) > most:
            raise InputError(f"{path}: a group of rows {too_much(most)}; write it again with smaller groups of rows")


def _read_saved(path: Path) -> Iterator[tuple[int, Values]]:
    if (path / SAVED_SPLITS).exists():
        splits = sorted(folder.parent.name for folder in path.glob(f"*/{SAVED_DATASET}"))
        raise InputError(f"{path}: holds several splits; name one of its folders ({', '.join(splits)})")
    try:
        import datasets
    except ImportError:
        raise RegardError(f'{path}: reading this folder needs datasets: pip install "regard[datasets]"') from None
    try:
        saved = datasets.load_from_disk(str(path))
    except Exception as error:  # the library raises many kinds of errors
        raise InputError(f"{path}: cannot be read as a data set ({_first_line(error)}); save it again") from None
    batches = saved.with_format("arrow").iter(BATCH)
    yield from enumerate((row for batch in batches for row in _rows_of(batch)), 1)


def _rows_of(batch: Any) -> Iterator[Values]:
    """Yield the rows of a batch of Arrow."""
    columns = [_values_of(column) for column in batch.columns]
    for row in zip(*columns, strict=True):
        yield dict(zip(batch.schema.names, row, strict=True))


def _values_of(column: Any) -> list[Any]:
    """Return the values of a column; dates and times that Python cannot hold as the numbers that Arrow stores.

    Such are years above 9999, unknown time zones and, without pandas, nanoseconds. They are hardly what is read, and
    the other columns must not fail for them.
    """
    import pyarrow

    try:
        values: list[Any] = column.to_pylist()
    except (pyarrow.ArrowException, ValueError, OverflowError):
        if not pyarrow.types.is_temporal(column.type):
            raise
        values = column.cast(pyarrow.int32() if column.type.bit_width == 32 else pyarrow.int64()).to_pylist()
    return values


def _to_text(row: Values, place: str) -> Row:
    """Turn every value into text; `"translation": {"de": ..., "en": ...}` becomes the columns de and en."""
    if isinstance(row.get(TRANSLATION), dict):
        row = {**row, **row[TRANSLATION]}
        del row[TRANSLATION]
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


_SPLIT: dict[str, Callable[[Path], Iterator[tuple[int, list[str]]]]] = {".tsv": _split_tabs, ".csv": _split_commas}
_READERS: dict[str, Callable[[Path], Iterator[tuple[int, Values]]]] = {
    ".jsonl": _read_json,
    ".ndjson": _read_json,
    ".parquet": _read_parquet,
    "": _read_saved,
}
