"""Proteins: letters, tables of chains, aligned FASTA, structures, folds, and CB513."""

import io
import lzma
import tarfile
from pathlib import Path

import numpy as np
import pytest

from regard.data.columns import RESIDUES, ColumnOptions
from regard.data.fetch import fetch
from regard.data.known_datasets import DATASETS
from regard.data.proteins import Chain, fold_of, pack_cb513, read_chains, read_fasta, read_structures
from regard.data.read import Skipped
from regard.errors import InputError, RegardError
from regard.models.residues import clean_sequence, clean_states

from ..tasks.corpora import write

OPTIONS = ColumnOptions(RESIDUES, (None, None))


def chains(path: Path, alignment: str | None = None, skipped: Skipped | None = None) -> list[Chain]:
    return list(read_chains(path, OPTIONS, alignment, Skipped() if skipped is None else skipped))


def test_letters_of_residues_and_states():
    assert clean_sequence(" acd\nEFX ") == "ACDEFX"
    assert clean_sequence("BZUOJ") == "XXXXX"
    assert clean_sequence("A-.~C", aligned=True) == "A---C"
    assert clean_states("hGIebts_-CLP?") == "HGIEBTS_____?"


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("AC1", "'1' at place 3 is not a residue; use ACDEFGHIKLMNPQRSTVWY, or X"),
        ("A-C", "'-' at place 2 is not a residue; remove gaps, which only alignments have"),
        (" ", "has no residues; write them as letters"),
        ("AÖ", "'Ö' at place 2"),
    ],
)
def test_wrong_letters_are_named(text: str, rule: str):
    with pytest.raises(InputError, match=rule.replace("?", r"\?")):
        clean_sequence(text)
    with pytest.raises(InputError, match="'9' at place 2 is not a state of DSSP"):
        clean_states("H9")


def test_chains_of_a_table(tmp_path: Path):
    path = Path(write(tmp_path / "a.tsv", ["id\tseq\tdssp\talignment", "a\tacD\tHE?\tA-C .CD ---", "b\tAC\tH_\t"]))
    assert chains(path) == [Chain("ACD", "HE?"), Chain("AC", "H_")]
    skipped = Skipped()
    found = chains(path, "alignment", skipped)
    assert found == [Chain("ACD", "HE?", ("A-C", "-CD")), Chain("AC", "H_")]
    assert skipped.counts == {"alignment of no other sequence": 1}


@pytest.mark.parametrize(
    ("row", "rule"),
    [
        ("ACD\tHE\t", "the sequence has length 3 but the structure 2; give one state for each residue"),
        ("ACD\tHE1\t", "'1' at place 3 is not a state"),
        ("AC*\tHEE\t", r"'\*' at place 3 is not a residue"),
        ("ACD\tHEE\tACD AC", "row 2 of the alignment has 2 letters but the sequence 3; write - for gaps"),
        ("ACD\tHEE\tAC7", "row 1: '7' at place 3 is not a residue"),
    ],
)
def test_mistakes_in_a_table_are_named_with_their_line(tmp_path: Path, row: str, rule: str):
    path = Path(write(tmp_path / "a.tsv", ["sequence\tstructure\talignment", "ACD\tHEE\tACD", row]))
    with pytest.raises(InputError, match=rf"a\.tsv:3: .*{rule}"):
        chains(path, "alignment")


def test_a_sequence_or_a_structure_alone_is_an_error(tmp_path: Path):
    for row, rule in (("\tHE", ":3: has no residues; write them"), ("AC\t", ":3: the sequence has length 2 but the")):
        with pytest.raises(InputError, match=rule):
            chains(Path(write(tmp_path / "a.tsv", ["sequence\tstructure", "ACD\tHEE", row])))


def test_a_first_row_that_does_not_fit_tells_how_the_columns_are_read(tmp_path: Path):
    unnamed = Path(write(tmp_path / "a.tsv", ["foo\tbar", "ACD\tHEE"]))
    how = r"no header, sequence = column 1, structure = column 2; its first row may name the columns: task\.header=true"
    with pytest.raises(InputError, match=rf"a\.tsv:1: 'A' at place 2 is not a state.* \(read as: {how}\)$"):
        chains(unnamed)
    swapped = Path(write(tmp_path / "b.tsv", ["sequence\tstructure", "HEE\tACD"]))
    how = r"with header, sequence = .*, structure = column 2 \(structure\); others: task\.sequence=\.\.\. task\.str"
    with pytest.raises(InputError, match=rf"b\.tsv:2: 'A' at place 1 is not a state.* \(read as: {how}"):
        chains(swapped)
    coordinates = Path(write(tmp_path / "c.jsonl", ['{"seq": "AC", "CA": [[0, 0, 0], [3, 0, 0]]}']))
    with pytest.raises(InputError, match=r"c\.jsonl:1: the structure is a list, .*; .* `regard train distances`"):
        chains(coordinates)


def test_a_blank_sequence_is_skipped_and_a_missing_column_named(tmp_path: Path):
    path = Path(write(tmp_path / "a.tsv", ["sequence\tstructure", "\t ", "AC\tHE"]))
    skipped = Skipped()
    assert len(chains(path, skipped=skipped)) == 1
    assert skipped.counts == {"blank sequence": 1}
    with pytest.raises(InputError, match="no column 'alignment' for the alignment"):
        chains(path, "alignment")


def test_aligned_fasta(tmp_path: Path):
    path = Path(write(tmp_path / "a.fasta", [">one", "AC-", "DE", ">two", "A.FDE", ">three", "-----"]))
    assert read_fasta(path) == ("ACDE", ("A-DE",))
    a3m = Path(write(tmp_path / "a.a3m", [">one", "ACDE", ">two", "AxyC-E", ">three", "-CDEgg"]))
    assert read_fasta(a3m) == ("ACDE", ("AC-E", "-CDE"))


@pytest.mark.parametrize(
    ("lines", "rule"),
    [
        (["ACD"], r":1: 'ACD' comes before the first line that begins with >"),
        ([">a", "ACD", ">b", "ACDE"], r"a.fasta:3: b has 4 columns but the first sequence 3; align them"),
        ([">a", "ACD", ">b", "", "A"], r"a.fasta:3: b has 1 column but the first sequence 3; align them"),
        ([">a", "ACD", ">b", "", ">c", "ACD"], r"a.fasta:3: b has no residues; write them in the lines after its name"),
        ([">a", "---"], "the first sequence has gaps only"),
        (["", ""], "holds no sequence"),
        ([">a", "AC1"], "a.fasta:2: '1' at place 3"),
        ([">a", "ACD", "DE", "", "w*-"], r"a.fasta:5: '\*' at place 2"),
    ],
)
def test_mistakes_in_fasta(tmp_path: Path, lines: list[str], rule: str):
    with pytest.raises(InputError, match=rule):
        read_fasta(Path(write(tmp_path / "a.fasta", lines)))


def test_structures(tmp_path: Path):
    line = '{"id": "1abc", "chain": "B", "seq": "acx", "CA": [[0, 0, 0], null, [3, 4, 0]]}'
    (found,) = read_structures(Path(write(tmp_path / "a.jsonl", [line, ""])), Skipped())
    assert (found.name, found.sequence) == ("1abcB", "ACX")
    assert np.isnan(found.places[1]).all()
    assert found.places[2].tolist() == [3, 4, 0]


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("7", "must be an object with seq"),
        ("{", r"is not valid JSON: .*; write one object in each line, such as \{"),
        ('{"seq": "AC"}', "must be an object with seq"),
        ('{"seq": "AC", "CA": [[0, 0, 0]]}', "seq has length 2 but CA 1; give one position for each residue, null"),
        ('{"seq": "AC", "CA": []}', "seq has length 2 but CA 0"),
        ('{"seq": "AC", "CA": [[0, 0, 0], [1, 1]]}', r"CA of residue 2 is \[1, 1\]; it must be \[x, y, z\] in ang"),
        ('{"seq": "AC", "CA": "no"}', "CA must be a list"),
        ('{"seq": "AC", "CA": [[0, 0, "1"], [1, 1, 1]]}', r'CA of residue 1 is \[0, 0, "1"\]'),
        ('{"seq": "AC", "CA": [[true, 0, 0], [1, 1, 1]]}', r"CA of residue 1 is \[true, 0, 0\]"),
        ('{"seq": "AC", "CA": [[Infinity, 0, 0], [1, 1, 1]]}', r"CA of residue 1 is \[Infinity, 0, 0\]"),
        ('{"seq": "AC", "CA": [[1e200, 0, 0], [1, 1, 1]]}', "numbers of at most 100,000"),
        (f'{{"seq": "AC", "CA": [[{10**400}, 0, 0], [1, 1, 1]]}}', r"is \[10{19}\.\.\.; it must"),
        ('{"seq": "A?", "CA": [[0, 0, 0], [1, 1, 1]]}', r"'\?' at place 2"),
    ],
)
def test_mistakes_in_structures(tmp_path: Path, line: str, rule: str):
    with pytest.raises(RegardError, match=rf"a\.jsonl:1: .*{rule}"):
        list(read_structures(Path(write(tmp_path / "a.jsonl", [line])), Skipped()))


def test_a_table_is_not_a_file_of_structures(tmp_path: Path):
    path = Path(write(tmp_path / "a.tsv", ["sequence\tstructure", "ACD\tHEE"]))
    with pytest.raises(InputError, match=r"a\.tsv: is a table, .* are for `regard train residues`"):
        list(read_structures(path, Skipped()))


def test_folds_are_a_function_of_the_sequence():
    found = [fold_of("ACD" * number, 7) for number in range(1, 400)]
    assert set(found) == set(range(1, 8))
    assert found == [fold_of("ACD" * number, 7) for number in range(1, 400)]


def test_cb513_is_made_from_its_files(tmp_path: Path):
    """The alignment of the second chain lacks a residue, as those of four chains do."""
    table = ["id\tsequence\tdssp8\tburial", "a\tACD\tHE_\tbbb", "b\tACDEF\tHEEE_\tbbbbb"]
    (tmp_path / "cb513.tsv.xz").write_bytes(lzma.compress("\n".join(table).encode()))
    files = {"a": "RES:A,C,D,\nalign1:A,C,D,\nalign2:A,.,F,\n", "b": "align1:A,C,E,F,\nalign2:G,C,.,F,\n"}
    archive = tmp_path / "cb513_alignments.tar"
    with tarfile.open(archive, "w") as out:
        for name, text in files.items():
            member = tarfile.TarInfo(f"CB513/{name}.all")
            member.size = len(text)
            out.addfile(member, io.BytesIO(text.encode()))
    pack_cb513({"cb513.tsv": tmp_path / "cb513.tsv.xz", "cb513_alignments.tar": archive}, tmp_path)
    found = chains(tmp_path / "chains.tsv", "alignment")
    assert found == [Chain("ACD", "HE_", ("A-F",)), Chain("ACDEF", "HEEE_", ("GC--F",))]
    archive.write_bytes(b"no archive")
    with pytest.raises(InputError, match="cannot be read as an archive"):
        pack_cb513({"cb513.tsv": tmp_path / "cb513.tsv.xz", "cb513_alignments.tar": archive}, tmp_path)


def test_cb513_needs_a_folder(tmp_path: Path):
    assert DATASETS["cb513"].url is None
    with pytest.raises(InputError, match=r"has no cb513\.tsv"):
        fetch("cb513", tmp_path / "to", tmp_path, lambda *done: None)
