"""NLTK's sample of the Penn Treebank: articles go to one part each."""

from zipfile import ZipFile

import pytest

from regard.data.treebank import pack_treebank, split_of
from regard.errors import InputError


def test_articles_are_split_by_their_number(tmp_path):
    path = tmp_path / "treebank.zip"
    with ZipFile(path, "w") as archive:
        for number in (1, 8, 9, 18, 28, 199):
            archive.writestr(f"treebank/combined/wsj_{number:04}.mrg", f"( (S-X\n  (CD n{number}) ))\n")
        archive.writestr("treebank/combined/README", "not a tree")
        archive.writestr("treebank/parsed/wsj_0001.prd", "( (S (CD other)) )")
    pack_treebank({"treebank.zip": path}, tmp_path)
    found = {part: (tmp_path / f"{part}.mrg").read_text().split("\n") for part in ("train", "valid", "test")}
    assert found == {
        "train": ["(S (CD n1))", "(S (CD n18))", ""],
        "valid": ["(S (CD n8))", "(S (CD n28))", ""],
        "test": ["(S (CD n9))", "(S (CD n199))", ""],
    }


def test_a_part_is_about_a_tenth():
    parts = [split_of(article) for article in range(1, 200)]
    assert {part: parts.count(part) for part in parts} == {"train": 169, "valid": 10, "test": 20}


def test_a_broken_archive_is_named(tmp_path):
    (tmp_path / "treebank.zip").write_bytes(b"not an archive")
    with pytest.raises(InputError, match="cannot be unpacked"):
        pack_treebank({"treebank.zip": tmp_path / "treebank.zip"}, tmp_path)
