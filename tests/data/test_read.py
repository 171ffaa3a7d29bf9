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
from regard.data.read import DocumentPart, Skipped, read_documents, read_labelled, read_pairs
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
    with raises(f"{source} has {first} lines but {target} has {second}; they must match line by line"):
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


# --- labels ---


@pytest.mark.parametrize(
    ("content", "names"),
    [
        ("good\tx\t1\nbad\tx\t0\n", {}),
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
    rows = list(read_labelled(write(tmp_path, "a.tsv", content), Skipped(), **names))
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
    with raises(f"{path}: has no column 'lable'; did you mean 'label'? (one of label, text)"):
        list(read_labelled(path, Skipped(), label="lable"))
    with raises(f"{path}: has no column 'words'; use one of label, text"):
        list(read_labelled(path, Skipped(), text="words"))
    path = write(tmp_path, "b.csv", "text\na\n")
    with raises(f"{path}: has one column (text), but two are needed; check how columns are separated"):
        list(read_labelled(path, Skipped()))


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
    pieces = list(read_documents(path, skipped, column=column))
    assert pieces == [DocumentPart("one", ends=True), DocumentPart("two", ends=True)]
    assert skipped.report() == [f"1 blank text skipped (first: {path}:3)"]


def test_mistakes_in_documents(tmp_path):
    path = write(tmp_path, "a.csv", "text,id\na,1\n")
    with raises(f"{path}: has no column 'txt'; did you mean 'text'? (one of id, text)"):
        list(read_documents(path, Skipped(), column="txt"))
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
    pieces = list(read_documents(table, Skipped(), column="text"))
    assert [piece.text for piece in pieces] == ["one two three ", "four five six ", "seven"]
    skipped = Skipped()
    assert list(read_labelled(table, skipped)) == [(long[:16], "x")]
    assert list(read_pairs(path, path, skipped)) == [("short", "short"), (long[:16],) * 2, ("last", "last")]
    assert skipped.counts["end of a text of more than 1,048,576 characters"] == 3
