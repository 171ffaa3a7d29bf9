"""Rows of tables: every format gives the same rows, every mistake its place, and memory stays bounded."""

import csv
import gzip
import io
import json
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import datasets
import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from regard import untrusted
from regard.data.tables import is_table, open_table
from regard.errors import InputError, RegardError

ROWS = [{"text": "a, b", "label": "1"}, {"text": 'say "hi"', "label": "0"}, {"text": "  ä€", "label": ""}]


def read_rows(path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    return open_table(path).rows


def rows(path: Path) -> list[dict[str, str]]:
    return [row for _, row in read_rows(path)]


def write(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def write_table(folder: Path, kind: str) -> Path:
    path = folder / f"table{kind}"
    if kind == ".parquet":
        parquet.write_table(pyarrow.Table.from_pylist(ROWS), path)
    elif kind == "":
        datasets.Dataset.from_list(ROWS).save_to_disk(path)
    elif kind == ".tsv":
        path.write_text("".join(f"{text}\t{label}\n" for text, label in [("text", "label"), *map(dict.values, ROWS)]))
    elif kind == ".csv":
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, ["text", "label"])
            writer.writeheader()
            writer.writerows(ROWS)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return path


@pytest.mark.parametrize("kind", [".tsv", ".csv", ".jsonl", ".ndjson", ".parquet", ""])
def test_every_format_gives_the_same_rows(tmp_path, kind):
    path = write_table(tmp_path, kind)
    assert is_table(path)
    assert rows(path) == ROWS
    first = 2 if kind in (".tsv", ".csv") else 1
    assert [place for place, _ in read_rows(path)] == [f"{path}:{first + index}" for index in range(3)]


@pytest.mark.parametrize("kind", [".tsv", ".csv", ".jsonl"])
def test_text_formats_may_be_packed(tmp_path, kind):
    path = write_table(tmp_path, kind)
    again = write(tmp_path, f"again{kind}.gz", gzip.compress(path.read_bytes()))
    assert is_table(again)
    assert rows(again) == ROWS


def test_not_a_table(tmp_path):
    assert not is_table(tmp_path / "a.txt")
    assert not is_table(tmp_path)
    with pytest.raises(InputError, match=r"a\.txt: is not a table; tables are \.tsv, \.csv, \.jsonl"):
        rows(write(tmp_path, "a.txt", "text"))
    with pytest.raises(InputError, match="is a folder, but not one saved by Hugging Face datasets; tables are"):
        rows(tmp_path)


@pytest.mark.parametrize("name", ["Label", "SENTENCE", " source ", "text"])
def test_a_usual_name_makes_a_header(tmp_path, name):
    assert rows(write(tmp_path, "a.tsv", f"{name}\tother\none\ttwo\n")) == [{name.strip(): "one", "other": "two"}]


def test_without_a_header_columns_are_numbered(tmp_path):
    path = write(tmp_path, "a.tsv", "a good text\t1\n\n   \nbad\t0\n")
    assert list(read_rows(path)) == [
        (f"{path}:1", {"1": "a good text", "2": "1"}),
        (f"{path}:4", {"1": "bad", "2": "0"}),
    ]


def test_a_row_of_blank_cells_is_a_row(tmp_path):
    assert rows(write(tmp_path, "a.tsv", "a\tb\n\t\n")) == [{"1": "a", "2": "b"}, {"1": "", "2": ""}]
    assert rows(write(tmp_path, "a.csv", "a,b\n , \n")) == [{"1": "a", "2": "b"}, {"1": " ", "2": " "}]


def test_tsv_has_no_quotes(tmp_path):
    assert rows(write(tmp_path, "a.tsv", "\"open\t'x\n a, \tb \n")) == [
        {"1": '"open', "2": "'x"},
        {"1": " a, ", "2": "b "},
    ]


def test_csv_cells_may_hold_line_ends_and_places_are_where_rows_begin(tmp_path):
    path = write(tmp_path, "a.csv", 'text,label\r\n"one\r\n\r\ntwo",1\r\n\r\nthree,2\r\n')
    assert list(read_rows(path)) == [
        (f"{path}:2", {"text": "one\n\ntwo", "label": "1"}),
        (f"{path}:6", {"text": "three", "label": "2"}),
    ]


def test_csv_cells_may_be_big(tmp_path):
    big = "word " * 2_000_000
    assert rows(write(tmp_path, "a.csv", f"text,label\n{big},1\n")) == [{"text": big, "label": "1"}]


cells = st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), max_size=8)


@given(table=st.lists(st.tuples(cells, cells), min_size=1, max_size=5))
def test_csv_reads_what_csv_writes(table):
    buffer = io.StringIO()
    csv.writer(buffer).writerows([("text", "label"), *table])
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder), "a.csv", buffer.getvalue())
        assert rows(path) == [{"text": text, "label": label} for text, label in table]


def test_json_values_become_their_text(tmp_path):
    line = '{"i": 1, "f": 0.10, "e": 1e3, "b": true, "n": null, "l": ["ä", 2], "long": %s}' % ("9" * 5000)
    (row,) = rows(write(tmp_path, "a.jsonl", line + "\n\n"))
    long = row.pop("long")
    assert long == "9" * 5000
    assert row == {"i": "1", "f": "0.10", "e": "1e3", "b": "true", "n": "", "l": '["ä", "2"]'}


def test_columns_of_other_types_become_text(tmp_path):
    table = {"i": [3], "b": [False], "n": [None], "raw": ["ä".encode()], "f": [0.5]}
    parquet.write_table(pyarrow.table(table), tmp_path / "a.parquet")
    assert rows(tmp_path / "a.parquet") == [{"i": "3", "b": "false", "n": "", "raw": "ä", "f": "0.5"}]


@pytest.mark.parametrize(
    ("values", "stored"),
    [
        (pyarrow.array([2**30], pyarrow.date32()), str(2**30)),
        (pyarrow.array([2**62], pyarrow.duration("s")), str(2**62)),
        (pyarrow.array([7], pyarrow.timestamp("s")), "1970-01-01 00:00:07"),
    ],
)
def test_times_that_python_cannot_hold_become_the_numbers_that_are_stored(tmp_path, values, stored):
    parquet.write_table(pyarrow.table({"text": ["a"], "time": values}), tmp_path / "a.parquet")
    assert rows(tmp_path / "a.parquet") == [{"text": "a", "time": stored}]


def test_a_list_of_times_that_python_cannot_hold_is_an_error(tmp_path):
    times = pyarrow.array([[2**30]], pyarrow.list_(pyarrow.date32()))
    parquet.write_table(pyarrow.table({"text": ["a"], "times": times}), tmp_path / "a.parquet")
    with pytest.raises(InputError, match=r"a.parquet: cannot be read \(.*999999999"):
        rows(tmp_path / "a.parquet")


@pytest.mark.parametrize("kind", [".jsonl", ".parquet", ""])
def test_translations_are_flattened(tmp_path, kind):
    row = {"id": "7", "translation": {"de": "ja", "en": "yes"}}
    path = tmp_path / f"a{kind}"
    if kind == ".jsonl":
        path.write_text(json.dumps(row))
    elif kind == ".parquet":
        parquet.write_table(pyarrow.Table.from_pylist([row]), path)
    else:
        datasets.Dataset.from_list([row]).save_to_disk(path)
    assert rows(path) == [{"id": "7", "de": "ja", "en": "yes"}]


def test_emoji_written_as_two_escapes_are_text(tmp_path):
    assert rows(write(tmp_path, "a.jsonl", r'{"text": "\ud83d\ude00"}')) == [{"text": "😀"}]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.tsv", "a\tb\nc\n", "a.tsv:2: 1 column, but the first line has 2; every line needs the same number"),
        (
            "a.csv",
            'a,b\n"x\ny",b\na,b,c\n',
            "a.csv:4: 3 columns, but the first line has 2; every line needs the same number",
        ),
        ("a.csv", 'text,label\nfine,1\n"never closed,1\nx,2\n', "a.csv:3: not valid CSV ("),
        ("a.csv", "text,label\n", "a.csv: has no rows; it must hold at least one"),
        ("a.tsv", "text\ttext\n", "a.tsv:1: two columns have the same name; rename one of them"),
        ("a.tsv", "", "a.tsv: is empty; it must hold at least one line"),
        ("a.jsonl", '{"a": 1}\n\n{"a": \n', "a.jsonl:3: not valid JSON ("),
        ("a.jsonl", "[" * 100_000, "a.jsonl:1: not valid JSON ("),
        ("a.jsonl", '["a"]\n', 'a.jsonl:1: must be a JSON object such as {"text": "..."}'),
        ("a.jsonl", "{}\n", 'a.jsonl:1: must be a JSON object such as {"text": "..."}'),
        ("a.jsonl", r'{"a": "\ud83d"}', "a.jsonl:1: a value is not valid Unicode text; repair or remove this row"),
        ("a.jsonl", "\n\n", "a.jsonl: has no rows; it must hold at least one"),
        ("a.parquet", "PAR1 no", "a.parquet: not valid Parquet ("),
        ("a.parquet.gz", "", "a.parquet.gz: Parquet is compressed inside; unpack the file"),
    ],
)
def test_mistakes(tmp_path, name, content, message):
    path = write(tmp_path, name, content)
    with pytest.raises(InputError, match="^" + re.escape(f"{tmp_path}/{message}")) as raised:
        rows(path)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("kind", [".tsv", ".csv", ".jsonl", ".parquet"])
def test_missing_files(tmp_path, kind):
    with pytest.raises(InputError, match="no such file; check the path"):
        rows(tmp_path / f"none{kind}")


def test_parquet_without_rows(tmp_path):
    parquet.write_table(pyarrow.table({"text": pyarrow.array([], pyarrow.string())}), tmp_path / "a.parquet")
    with pytest.raises(InputError, match="has no rows; it must hold at least one"):
        rows(tmp_path / "a.parquet")


def test_a_folder_of_several_splits(tmp_path):
    split = datasets.Dataset.from_list(ROWS)
    datasets.DatasetDict({"train": split, "test": split}).save_to_disk(tmp_path / "saved")
    assert is_table(tmp_path / "saved")
    with pytest.raises(InputError, match=r"saved: holds several splits; name one of its folders \(test, train\)$"):
        rows(tmp_path / "saved")
    assert rows(tmp_path / "saved" / "train") == ROWS


def test_a_broken_folder(tmp_path):
    write_table(tmp_path, "")
    (tmp_path / "table" / "state.json").write_text("{")
    with pytest.raises(InputError, match=r"table: cannot be read as a data set \(.+\); save it again$"):
        rows(tmp_path / "table")


@pytest.mark.parametrize(
    ("kind", "package", "extra"), [(".parquet", "pyarrow", "parquet"), ("", "datasets", "datasets")]
)
def test_without_the_package(tmp_path, monkeypatch, kind, package, extra):
    path = write_table(tmp_path, kind)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(RegardError, match=re.escape(f'needs {package}: pip install "regard[{extra}]"')):
        rows(path)


def test_text_rows_come_before_the_file_is_read(tmp_path):
    path = write(tmp_path, "a.jsonl", '{"text": "first"}\n' * 5_000 + "broken")
    reader = read_rows(path)
    assert next(reader)[1] == {"text": "first"}
    with pytest.raises(InputError, match=r"a\.jsonl:5001: not valid JSON"):
        list(reader)


@pytest.mark.parametrize("kind", ["one long text", "one long list"])
def test_a_small_parquet_file_that_decodes_to_much_more_is_rejected_before_it_is_decoded(tmp_path, kind, monkeypatch):
    """Both columns take 2 MB when they are decoded, and a few kilobytes in the file."""
    monkeypatch.setattr(untrusted, "SPARE", 0)
    count = 2_000_000
    repeated = pyarrow.repeat(pyarrow.scalar(0, pyarrow.int8()), count)
    lists = pyarrow.ListArray.from_arrays(pyarrow.array([0, count], pyarrow.int32()), repeated)
    column = pyarrow.array(["a" * count]) if kind == "one long text" else lists
    parquet.write_table(
        pyarrow.table({"text": column}), tmp_path / "a.parquet", compression="zstd", use_dictionary=True
    )
    assert (tmp_path / "a.parquet").stat().st_size < 10_000
    before = pyarrow.default_memory_pool().max_memory()
    with pytest.raises(
        InputError, match=r"a\.parquet: a group of rows holds more than [\d,]+ bytes, over 100 times its"
    ):
        rows(tmp_path / "a.parquet")
    assert pyarrow.default_memory_pool().max_memory() == before


def test_a_text_that_repeats_in_every_row_is_decoded_a_few_rows_at_a_time(tmp_path):
    """A dictionary of one text of 1 MB, and 10,000 rows: 10 GB in a file of 50 KB."""
    same = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * 10_000, pyarrow.int32()), ["a" * 1_000_000])
    parquet.write_table(pyarrow.table({"text": same}), tmp_path / "a.parquet")
    before = pyarrow.default_memory_pool().max_memory()
    assert len(next(read_rows(tmp_path / "a.parquet"))[1]["text"]) == 1_000_000
    assert pyarrow.default_memory_pool().max_memory() - before < 200_000_000


def test_parquet_is_read_in_batches(tmp_path):
    path = tmp_path / "a.parquet"
    table = pyarrow.table({"text": [f"{number:01000}" for number in range(20_000)]})
    parquet.write_table(table, path, row_group_size=1_000, compression="none", use_dictionary=False)
    del table
    before, most = pyarrow.total_allocated_bytes(), 0
    for count, (_, row) in enumerate(read_rows(path)):
        assert int(row["text"]) == count
        if count % 100 == 0:
            most = max(most, pyarrow.total_allocated_bytes() - before)
    assert count == 19_999
    assert 0 < most < 8_000_000  # of 20 MB


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.tsv", "text\tlabel\n" + "a" * 90 + "\tb\n"),
        ("a.jsonl", '{"text": "' + "a" * 90 + '"}\n'),
        ("a.csv", 'text,label\n"' + "many\nlines\n" * 9 + '",b\n'),
        ("a.csv", "text,label\n" + 'a,"\n",' * 20),
    ],
)
def test_a_row_that_is_too_long_is_one_line(tmp_path, monkeypatch, name, content):
    monkeypatch.setattr("regard.data.tables.LONGEST_ROW", 80)
    with pytest.raises(InputError, match=r"a\.\w+:[12]: a row of more than 80 characters is not read; check line ends"):
        rows(write(tmp_path, name, content))


@pytest.mark.parametrize(("name", "separator"), [("a.tsv", "\t"), ("a.csv", ",")])
def test_a_row_of_too_many_columns_is_one_line(tmp_path, name, separator):
    with pytest.raises(InputError, match=r":1: more than 10,000 columns are not read; check the"):
        rows(write(tmp_path, name, "text" + separator * 20_000))
