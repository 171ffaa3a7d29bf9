"""Pairs, labels and documents as a person's files give them; what is left out is counted."""

import gzip
import re
import tempfile
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data import read
from regard.data.columns import DOCUMENTS, LABELLED, PAIRED, ColumnOptions
from regard.data.read import (
    DocumentPart,
    Skipped,
    documents_reading,
    files_below,
    pairs_reading,
    read_documents,
    read_labelled,
    read_pairs,
)
from regard.data.tables import read_columns
from regard.errors import InputError


def write(folder: Path, name: str, content: str) -> Path:
    path = folder / name
    path.write_bytes(gzip.compress(content.encode()) if name.endswith(".gz") else content.encode())
    return path


def raises(message: str):
    return pytest.raises(InputError, match="^" + re.escape(message) + "$")


def test_skipped_counts_and_reports_once():
    skipped = Skipped()
    assert not skipped
    assert skipped.report() == []
    for place in ("a.de:17", "a.de:18"):
        skipped.note("blank line", place)
        skipped.note("pair of more than 9 tokens", place)
    skipped.note("corrupt image", "cats/7.png")
    assert skipped
    assert skipped.counts == {"blank line": 2, "pair of more than 9 tokens": 2, "corrupt image": 1}
    assert skipped.report() == [
        "2 blank lines skipped (first: a.de:17)",
        "2 pairs of more than 9 tokens skipped (first: a.de:17)",
        "1 corrupt image skipped (first: cats/7.png)",
    ]


# --- pairs ---


def test_pairs_of_two_files(tmp_path):
    skipped = Skipped()
    source = write(tmp_path, "a.de", "eins\n\nzwei\ndrei\r\n \n")
    target = write(tmp_path, "a.en.gz", "one\nx\n\nthree\n\n")
    assert list(read_pairs(source, target, skipped)) == [("eins", "one"), ("drei", "three")]
    assert skipped.report() == [f"3 blank lines skipped (first: {source}:2)"]


def test_the_place_of_a_blank_line_names_the_side(tmp_path):
    skipped = Skipped()
    source, target = write(tmp_path, "a.de", "eins\nzwei\n"), write(tmp_path, "a.en", "one\n\n")
    list(read_pairs(source, target, skipped))
    assert skipped.report() == [f"1 blank line skipped (first: {target}:2)"]


@pytest.mark.parametrize(("first", "second"), [(7, 5), (5, 7), (1, 70_000)])
def test_files_of_different_lengths(tmp_path, first, second):
    source, target = write(tmp_path, "a.de", "ja\n" * first), write(tmp_path, "a.en", "yes\n" * second)
    pairs = read_pairs(source, target, Skipped())
    assert [next(pairs) for _ in range(min(first, second))] == [("ja", "yes")] * min(first, second)
    counted = f"{first} line{'s' if first > 1 else ''}"
    with raises(f"{source} has {counted} but {target} has {second}; they must match line by line"):
        next(pairs)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.tsv", "ja\tyes\n\tblank\nnein\tno\n"),
        ("a.tsv", "id\ttarget\tsource\n1\tyes\tja\n2\tblank\t\n3\tno\tnein\n"),
        ("a.tsv", "id\tTGT\tSrc\n1\tyes\tja\n2\tblank\t\n3\tno\tnein\n"),
        ("a.csv", "source,english\nja,yes\n,blank\nnein,no\n"),
        ("a.csv", "german,id,target\nja,1,yes\n,2,blank\nnein,3,no\n"),
        (
            "a.jsonl",
            '{"translation": {"de": "ja", "en": "yes"}}\n{"translation": {"de": "", "en": "blank"}}\n'
            '{"translation": {"de": "nein", "en": "no"}}',
        ),
    ],
)
def test_pairs_of_a_table(tmp_path, name, content):
    skipped = Skipped()
    assert list(read_pairs(write(tmp_path, name, content), None, skipped)) == [("ja", "yes"), ("nein", "no")]
    assert skipped.counts == {"blank line": 1}


def test_mistakes_in_pairs(tmp_path):
    path = write(tmp_path, "a.de", "ja\n")
    remedy = "name a second file with its translations, or one table of pairs (.tsv, .csv, .jsonl, .ndjson, .parquet)"
    with raises(f"{path}: holds only one side; {remedy}"):
        list(read_pairs(path, None, Skipped()))
    path = write(tmp_path, "a.tsv", "source\nja\n")
    with raises(f"{path}: has one column (source), but two are needed; check how columns are separated"):
        list(read_pairs(path, None, Skipped()))
    path = write(tmp_path, "a.jsonl", '{"source": "ja", "target": "yes"}\n{"source": "nein"}\n')
    with raises(f"{path}:2: has no 'target', which every row needs; it has source"):
        list(read_pairs(path, None, Skipped()))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl", '{"id": 1, "translation": {"de": "Hallo", "en": "Hello"}}\n'),
        ("a.jsonl", '{"translation": {"xx1": "Hallo", "xx2": "Hello"}, "de": "ein anderer Text"}\n'),
        ("a.tsv", "id\tde\ten\n1\tHallo\tHello\n"),
        ("a.tsv", "score\tde\ten\n0.5\tHallo\tHello\n"),
        ("a.tsv", "1276\tHallo\t5350\tHello\n"),
        ("a.csv", "de,en\nHallo,Hello\n"),
        ("a.csv", ",German,laser_score,English\n0,Hallo,1.2,Hello\n"),
    ],
)
def test_numbers_and_scores_are_never_a_side_of_a_pair(tmp_path, name, content):
    assert list(read_pairs(write(tmp_path, name, content), None, Skipped())) == [("Hallo", "Hello")]


def test_a_table_is_not_one_side(tmp_path):
    table, text = write(tmp_path, "a.tsv", "ja\tyes\n"), write(tmp_path, "a.en", "yes\n")
    for source, target in ((table, text), (text, table)):
        with pytest.raises(InputError, match=r"a\.tsv: is a table, which holds both sides, so .*a\.en cannot be"):
            list(read_pairs(source, target, Skipped()))


def test_how_pairs_are_read(tmp_path):
    path = write(tmp_path, "a.csv", "id,de,en\n1,,blank\n2,Hallo,Hello\n")
    found = pairs_reading(path, None)
    assert found.heading() == f"{path}: with header, source = column 2 (de), target = column 3 (en)"
    assert found.examples == {"source": "Hallo", "target": "Hello"}
    other = pairs_reading(path, None, ColumnOptions(PAIRED, ("3", "de")))
    assert other.examples == {"source": "Hello", "target": "Hallo"}
    source, target = write(tmp_path, "a.de", "\nHallo\n"), write(tmp_path, "a.en", "x\nHello\n")
    found = pairs_reading(source, target)
    assert found.heading() == f"{source}, {target}: source and target, line by line"
    assert found.examples == {"source": "Hallo", "target": "Hello"}


# --- labels ---


@pytest.mark.parametrize(
    ("content", "names"),
    [
        ("good\t1\nbad\t0\n", {}),
        ("1\tgood\n0\tbad\n", {}),
        ("good\tx\t1\nbad\tx\t0\n", {"text": "1", "label": "3"}),
        ("Label\tid\tSentence\n1\tx\tgood\n0\tx\tbad\n", {}),
        ("title\ttext\tlabel\nx\tgood\t1\nx\tbad\t0\n", {}),
        ("label\twords\n1\tgood\n0\tbad\n", {}),
        ("text\tid\tanswers\ngood\tx\t1\nbad\tx\t0\n", {}),
        ("text\tlabel\tstars\nx\tgood\t1\nx\tbad\t0\n", {"text": "label"}),
        ("text\tlabel\tmark\nx\tgood\t1\nx\tbad\t0\n", {"text": "LABEL", "label": "mark"}),
        ("text\tother\n1\tgood\n0\tbad\n", {"label": "text"}),
        ("1\tx\tgood\n0\tx\tbad\n", {"text": "3", "label": "1"}),
    ],
)
def test_labelled_columns(tmp_path, content, names):
    columns = ColumnOptions(LABELLED, (names.get("text"), names.get("label")))
    rows = list(read_labelled(write(tmp_path, "a.tsv", content), Skipped(), columns))
    assert rows == [("good", "1"), ("bad", "0")]


def test_blank_texts_and_labels_are_skipped(tmp_path):
    skipped = Skipped()
    path = write(tmp_path, "a.tsv", "text\tlabel\n a \t 1 \n \t1\nb\t \nc\t2\n\t\n")
    assert list(read_labelled(path, skipped)) == [(" a ", "1"), ("c", "2")]
    assert skipped.report() == [
        f"2 blank texts skipped (first: {path}:3)",
        f"1 blank label skipped (first: {path}:4)",
    ]


def test_mistakes_in_labelled(tmp_path):
    path = write(tmp_path, "a.csv", "text,label\na,1\n")
    rest = "did you mean 'label'? (one of label, text), or a number up to 2"
    with raises(f"{path}: has no column 'lable' for the label (task.label); {rest}"):
        list(read_labelled(path, Skipped(), ColumnOptions(LABELLED, (None, "lable"))))
    with raises(f"{path}: has no column '3' for the text (task.text); use one of label, text, or a number up to 2"):
        list(read_labelled(path, Skipped(), ColumnOptions(LABELLED, ("3", None))))
    path = write(tmp_path, "b.csv", "text\na\n")
    with raises(f"{path}: has one column (text), but two are needed; check how columns are separated"):
        list(read_labelled(path, Skipped()))


@pytest.mark.parametrize("content", ['{"id": 1, "utt": "book a flight", "label": "x"}\n'])
def test_the_number_of_a_row_is_not_its_text(tmp_path, content):
    assert list(read_labelled(write(tmp_path, "a.jsonl", content), Skipped())) == [("book a flight", "x")]


def test_a_first_row_that_looks_like_a_header_is_data_if_its_label_occurs_again(tmp_path):
    path = write(tmp_path, "a.tsv", "title\tgood\nso dull\tbad\nso fine\tgood\n")
    assert len(list(read_labelled(path, Skipped()))) == 3


# --- documents ---


def test_a_file_is_one_document_in_pieces(tmp_path):
    text = "".join(f"line {number}\n" for number in range(30_000)) + "\n\nno line end"
    pieces = list(read_documents(write(tmp_path, "a", text.replace("\n", "\r\n")), Skipped()))
    assert "".join(piece.text for piece in pieces) == text
    assert [piece.ends for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    assert len(pieces) == 6
    assert all(piece.text.endswith("\n") and len(piece.text) < 66_000 for piece in pieces[:-1])


def test_lines_are_documents(tmp_path):
    skipped = Skipped()
    path = write(tmp_path, "a.md", "one\n\n two \n\t\n")
    assert list(read_documents(path, skipped, by="line")) == [
        DocumentPart("one", ends=True),
        DocumentPart(" two ", ends=True),
    ]
    assert skipped.report() == [f"2 blank lines skipped (first: {path}:2)"]


def test_paragraphs_are_documents(tmp_path):
    skipped = Skipped()
    path = write(tmp_path, "a.txt", "\n\none\ntwo\n \n\nthree\n")
    assert list(read_documents(path, skipped, by="blank-line")) == [
        DocumentPart("one\ntwo", ends=True),
        DocumentPart("three", ends=True),
    ]
    assert not skipped


@given(
    paragraphs=st.lists(
        st.lists(st.text(st.sampled_from("ab ä"), min_size=1).map(lambda line: line + "."), min_size=1), min_size=1
    ),
    block=st.integers(0, 12),
)
def test_long_paragraphs_come_in_pieces(paragraphs, block):
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(read, "BLOCK", block):
        path = write(Path(folder), "a.txt", "\n\n\n".join("\n".join(lines) for lines in paragraphs))
        pieces = list(read_documents(path, Skipped(), by="blank-line"))
    documents, text = [], ""
    longest = max(len(line) for lines in paragraphs for line in lines)
    for piece in pieces:
        assert piece.text
        assert len(piece.text) - piece.text.count("\n") <= block + longest
        text += piece.text
        if piece.ends:
            documents.append(text)
            text = ""
    assert text == ""
    assert documents == ["\n".join(lines) for lines in paragraphs]


@pytest.mark.parametrize(
    ("content", "column"),
    [("id,Text\n1,one\n2,\n3,two\n", None), ("title,id\none,1\n,2\ntwo,3\n", None), ("id,x\n1,one\n2,\n3,two\n", "X")],
)
def test_rows_are_documents(tmp_path, content, column):
    skipped = Skipped()
    path = write(tmp_path, "a.csv.gz", content)
    pieces = list(read_documents(path, skipped, columns=ColumnOptions(DOCUMENTS, (column,))))
    assert pieces == [DocumentPart("one", ends=True), DocumentPart("two", ends=True)]
    assert skipped.report() == [f"1 blank text skipped (first: {path}:3)"]


def test_addresses_are_not_texts(tmp_path):
    path = write(tmp_path, "a.tsv", "url\tcontent\nhttps://a.b/1\tone\n")
    assert list(read_documents(path, Skipped())) == [DocumentPart("one", ends=True)]


def test_how_documents_are_read(tmp_path):
    path = write(tmp_path, "a.txt", "\n\none\ntwo\n\nthree\n")
    assert documents_reading(path).how == "one text"
    assert documents_reading(path, "blank-line").examples == {"text": "one\ntwo"}
    assert documents_reading(path, "line").examples == {"text": "one"}
    table = write(tmp_path, "a.tsv", "title\tgut\nbody\tbad\n")
    column = ColumnOptions(DOCUMENTS, ("1",))
    assert documents_reading(table, columns=column).doubt == "its first row may be data: task.header=false"
    column = ColumnOptions(DOCUMENTS, ("1",), header=False)
    assert documents_reading(table, columns=column).heading() == f"{table}: no header, text = column 1"
    assert documents_reading(table, columns=column).examples == {"text": "title"}


def test_the_texts_and_tables_of_a_folder(tmp_path):
    names = ["b.txt", "a/2.md", "a/1.csv.gz", "a/picture.png", ".hidden", ".git/x.txt"]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write(tmp_path, name, "text")
    assert [str(path.relative_to(tmp_path)) for path in files_below(tmp_path)] == ["b.txt", "a/1.csv.gz", "a/2.md"]
    assert files_below(tmp_path / "b.txt") == [tmp_path / "b.txt"]
    (tmp_path / "empty").mkdir()
    with raises(f"{tmp_path}/empty: is a folder without text files or tables; name a file, or a folder that has some"):
        files_below(tmp_path / "empty")


def test_mistakes_in_documents(tmp_path):
    path = write(tmp_path, "a.csv", "text,id\na,1\n")
    rest = "did you mean 'text'? (one of id, text), or a number up to 2"
    with raises(f"{path}: has no column 'txt' for the text (task.column); {rest}"):
        list(read_documents(path, Skipped(), columns=ColumnOptions(DOCUMENTS, ("txt",))))
    for by in ("file", "line", "blank-line"):
        with pytest.raises(InputError, match=r"a\.docx: cannot be read as text; what can be read: text \(\.txt"):
            list(read_documents(write(tmp_path, "a.docx", "x"), Skipped(), by=by))
        with pytest.raises(InputError, match=r"a\.txt: is empty; it must hold at least one line"):
            list(read_documents(write(tmp_path, "a.txt", ""), Skipped(), by=by))
    with pytest.raises(InputError, match="is a folder; name a file in it"):
        list(read_documents(tmp_path, Skipped()))


def test_long_lines_and_cells_come_in_parts_or_are_cut_and_counted(tmp_path, monkeypatch):
    for module in ("lines", "read"):
        monkeypatch.setattr(f"regard.data.{module}.LONGEST", 16)
        monkeypatch.setattr(f"regard.data.{module}.BLOCK", 4)
    long = "one two three four five six seven"
    path = write(tmp_path, "a.txt", f"short\n\n{long}\n\nlast")
    for by in ("line", "blank-line"):
        pieces = list(read_documents(path, Skipped(), by=by))
        assert "".join(piece.text + "|" * piece.ends for piece in pieces) == f"short|{long}|last|"
        assert max(len(piece.text) for piece in pieces) < len(long)
    table = write(tmp_path, "a.tsv", f"text\tlabel\n{long}\tx\n")
    pieces = list(read_documents(table, Skipped()))
    assert [piece.text for piece in pieces] == ["one two three ", "four five six ", "seven"]
    skipped = Skipped()
    assert list(read_labelled(table, skipped)) == [(long[:16], "x")]
    assert list(read_pairs(path, path, skipped)) == [("short", "short"), (long[:16],) * 2, ("last", "last")]
    assert skipped.counts["end of a text of more than 1,048,576 characters"] == 3


def test_blank_lines_at_the_end_of_one_side_are_named(tmp_path):
    source, target = write(tmp_path, "a.de", "ja\nnein\n"), write(tmp_path, "a.en", "yes\nno\n\n \n")
    remedy = f"remove the blank lines at the end of {target} (2)"
    with raises(f"{source} has 2 lines but {target} has 4; they must match line by line; {remedy}"):
        list(read_pairs(source, target, Skipped()))


@pytest.mark.parametrize(
    ("name", "mark", "shown"), [("a.csv", ";", "';'"), ("a.csv", "\t", "tab"), ("a.tsv", ",", "comma")]
)
def test_a_table_with_another_separator_is_recognised(tmp_path, name, mark, shown):
    """Also where commas in the text of a .csv split some of its rows, which then lack the separator."""
    path = write(tmp_path, name, "text;label\na film;1\na book;0\ngood, and cheap;1\n".replace(";", mark))
    rule = "has one column (1), but two are needed; check how columns are separated"
    with raises(f"{path}: {rule}: most rows have a {shown}, but a .csv needs commas, a .tsv tabs"):
        list(read_labelled(path, Skipped()))


@pytest.mark.parametrize(("text", "column"), [("2", None), ("What they said", "1")])
def test_a_header_is_recognised_by_columns_that_are_not_read(tmp_path, text, column):
    """Classifying the table of the training reads its first row as the training did, though labels are not read."""
    path = write(tmp_path, "a.csv", "Row #,What they said,Overall rating\n1,a film,good\n2,a book,bad\n")
    options = ColumnOptions(LABELLED, (text, "Overall rating"))
    assert [row for _, row in read_columns(path, options)] == [("a film", "good"), ("a book", "bad")]
    [(_, first), _] = read_columns(path, options.first(column, "--column"))
    assert first == ("1" if column else "a film",)


def test_a_table_with_quotes_and_semicolons_is_recognised(tmp_path):
    path = write(tmp_path, "a.csv", 'text;label\n"a film";1\n')
    remedy = "check that commas separate the columns, and the quotes from here on"
    with raises(f"{path}:2: not valid CSV (',' expected after '\"'); {remedy}"):
        list(read_labelled(path, Skipped()))
