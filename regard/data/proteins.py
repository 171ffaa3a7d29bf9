"""Read proteins: chains with their secondary structure and alignments from tables, and coordinates from JSON lines.

A table has a column with sequences, one with the states of DSSP, a letter for each residue, and optionally one with
alignments: further sequences with gaps, separated by blanks, each as long as the chain's own.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from tarfile import TarError
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.columns import PROTEIN, ColumnOptions, shorten
from regard.data.lines import content_suffix, read_lines
from regard.data.read import Skipped
from regard.data.tables import is_table, read_columns, read_reading
from regard.errors import InputError
from regard.models.residues import GAP, SHOWN, clean_sequence, clean_states
from regard.untrusted import JsonError, parse_json

FARTHEST = 1e5  # from the origin, in angstrom
OBJECT = '{"seq": "AC", "CA": [[0, 0, 0], [3.8, 0, 0]]}'  # an example of a structure


@dataclass(frozen=True)
class Chain:
    """A protein: its residues, their states ("?": unknown), and the other rows of its alignment, with gaps."""

    sequence: str
    structure: str
    alignment: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Structure:
    """A protein with the places of its C-alpha atoms, in angstrom; NaN where one is unknown."""

    name: str
    sequence: str
    places: NDArray[np.float32]  # (residues, 3)


def read_chains(path: Path, columns: ColumnOptions, alignment: str | None, skipped: Skipped) -> Iterator[Chain]:
    """Yield the chains of a table; `alignment` is the column with alignments, if they are read."""
    if alignment is not None:
        columns = ColumnOptions(PROTEIN, (*columns.chosen, alignment), columns.header)
    for number, (place, cells) in enumerate(read_columns(path, columns)):
        if not any(cell.strip() for cell in cells[:2]):
            skipped.note("blank sequence", place)
            continue
        if cells[1].lstrip().startswith("["):
            rule = "the structure is a list, not letters of DSSP"
            raise InputError(f"{place}: {rule}; structures with coordinates are for `regard train distances`")
        try:
            sequence, states = _read_chain(cells[0], cells[1], place)
        except InputError as error:
            if number:
                raise
            raise InputError(f"{error}{_columns_read(path, columns)}") from None
        rows = read_rows(cells[2], len(sequence), place) if alignment is not None else ()
        if alignment is not None and not rows:
            skipped.note("alignment of no other sequence", place)
        yield Chain(sequence, states, rows)


def _read_chain(sequence: str, structure: str, place: str) -> tuple[str, str]:
    """Return the residues and their states."""
    residues, states = clean_sequence(sequence, place), clean_states(structure.strip("\r\n"), place)
    if len(states) != len(residues):
        counts = f"the sequence has length {len(residues)} but the structure {len(states)}"
        raise InputError(f"{place}: {counts}; give one state for each residue, ? where it is unknown")
    return residues, states


def _columns_read(path: Path, columns: ColumnOptions) -> str:
    """Return how a table is read, for the message about its first row: other columns may be meant, or a header."""
    reading = read_reading(path, columns)
    other = reading.doubt or "others: task.sequence=... task.structure=..."
    return f" (read as: {reading.how}; {other})"


def read_rows(text: str, length: int, place: str) -> tuple[str, ...]:
    """Return the rows of an alignment, separated by blanks; a row of gaps only is left out."""
    rows = [clean_sequence(row, f"{place}: row {number}", aligned=True) for number, row in enumerate(text.split(), 1)]
    for number, row in enumerate(rows, 1):
        if len(row) != length:
            rule = (
                f"row {number} of the alignment has {len(row)} letter{'s' * (len(row) != 1)} but the sequence {length}"
            )
            raise InputError(f"{place}: {rule}; write - for gaps, and leave insertions out")
    return tuple(row for row in rows if row.strip(GAP))


def read_fasta(path: Path) -> tuple[str, tuple[str, ...]]:
    """Return the first sequence of an aligned FASTA file, and the others in its columns.

    Where the first sequence has a gap, the column is left out; so are small letters and dots, which A3M files have for
    insertions, if there is a dash or a capital letter in the file.
    """
    records = read_fasta_records(path, aligned=True)
    rows = [record.letters for record in records]
    if len({len(row) for row in rows}) > 1:  # A3M
        rows = ["".join(letter for letter in row if not (letter.islower() or letter == ".")) for row in rows]
    for record, row in zip(records, rows, strict=True):
        if len(row) != len(rows[0]):
            counted = f"{len(row)} column{'s' * (len(row) != 1)}"
            rule = f"{record.name} has {counted} but the first sequence {len(rows[0])}"
            raise InputError(f"{record.place}: {rule}; align them")
    clean = [clean_sequence(row, record.place, aligned=True) for record, row in zip(records, rows, strict=True)]
    kept = [place for place, letter in enumerate(clean[0]) if letter != GAP]
    if not kept:
        raise InputError(f"{path}: the first sequence has gaps only; give one with residues")
    first, *others = ("".join(row[place] for place in kept) for row in clean)
    return first, tuple(row for row in others if row.strip(GAP))


def is_fasta(path: Path) -> bool:
    """Return whether the first line with text begins with >; a pipe is not looked into."""
    return path.is_file() and next((line.startswith(">") for line in read_lines(path) if line.strip()), False)


@dataclass(frozen=True)
class FastaRecord:
    """A sequence of a FASTA file as it is written, its name, and the file and line where it begins."""

    name: str
    letters: str
    place: str

    @property
    def sequence(self) -> str:
        """The residues, if the sequence is not aligned: capital letters, with X for those that are not of the 20."""
        return clean_sequence(self.letters, self.place)


def read_fasta_records(path: Path, aligned: bool = False) -> list[FastaRecord]:
    """Return the sequences of a FASTA file, at least one; a letter that is not a residue is an error with its line.

    Gaps are only allowed if the sequences are `aligned`. Blanks and tabs in a name are single spaces.
    """
    heads: list[tuple[str, str]] = []  # name and place
    parts: list[list[str]] = []
    for number, line in enumerate(read_lines(path), 1):
        place = f"{path}:{number}"
        if line.startswith(">"):
            heads.append((" ".join(line[1:].split()) or f"row {len(heads) + 1}", place))
            parts.append([])
        elif line.strip() and not parts:
            raise InputError(f"{place}: {line[:20]!r} comes before the first line that begins with >")
        elif line.strip():
            clean_sequence(line, place, aligned)
            parts[-1].append("".join(line.split()))
    if not heads:
        raise InputError(f"{path}: holds no sequence; each begins with a line of > and its name")
    for (name, place), lines in zip(heads, parts, strict=True):
        if not lines:
            raise InputError(f"{place}: {name} has no residues; write them in the lines after its name")
    return [FastaRecord(name, "".join(lines), place) for (name, place), lines in zip(heads, parts, strict=True)]


def read_structures(path: Path, skipped: Skipped) -> Iterator[Structure]:
    """Yield the structures of a file with a JSON object in each line: `seq`, and `CA` with x, y, z of each residue."""
    if is_table(path) and content_suffix(path) not in (".jsonl", ".ndjson"):
        rule = f"is a table, but structures are lines of JSON such as {OBJECT}"
        raise InputError(f"{path}: {rule}; tables of sequences and states are for `regard train residues`")
    for number, line in enumerate(read_lines(path, longest=1 << 24), 1):
        place = f"{path}:{number}"
        if not line.strip():
            continue
        try:
            found = parse_json(line, place)
        except JsonError as error:
            raise InputError(f"{place}: {error.reason}; write one object in each line, such as {OBJECT}") from None
        if not isinstance(found, dict) or not isinstance(found.get("seq"), str) or "CA" not in found:
            rule = "must be an object with seq (letters) and CA (x, y, z of each residue)"
            raise InputError(f"{place}: {rule}, such as {OBJECT}")
        sequence = clean_sequence(found["seq"], place)
        places = _coordinates(found["CA"], place)
        if len(places) != len(sequence):
            counts = f"seq has length {len(sequence)} but CA {len(places)}"
            raise InputError(f"{place}: {counts}; give one position for each residue, null where it is unknown")
        name = f"{found.get('id', number)}{found.get('chain', '')}"
        if np.isfinite(places).all(1).sum() < 2:
            skipped.note("structure of fewer than 2 known residues", place)
            continue
        yield Structure(name, sequence, places)


def _coordinates(value: Any, place: str) -> NDArray[np.float32]:
    if not isinstance(value, list):
        raise InputError(f"{place}: CA must be a list with [x, y, z], in angstrom, or null for each residue")
    for number, each in enumerate(value, 1):
        if each is not None and not (isinstance(each, list) and len(each) == 3 and all(map(_is_coordinate, each))):
            rule = f"must be [x, y, z] in angstrom, numbers of at most {FARTHEST:,.0f}, or null if it is unknown"
            raise InputError(f"{place}: CA of residue {number} is {shorten(json.dumps(each), SHOWN)}; it {rule}")
    return np.array([[np.nan] * 3 if each is None else each for each in value], np.float32).reshape(-1, 3)


def _is_coordinate(value: Any) -> bool:
    """Return whether a value of JSON is a number in range; NaN is one that is unknown."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return value != value or abs(value) <= FARTHEST


def fold_of(sequence: str, folds: int) -> int:
    """Return the fold of a sequence, from 1 to `folds`: a function of its letters alone."""
    return int.from_bytes(hashlib.sha256(sequence.encode()).digest()[:8], "big") % folds + 1


# --- CB513 -----------------------------------------------------------------------------------------------------------


def pack_cb513(found: Mapping[str, Path], to: Path) -> None:
    """Write CB513 (Cuff, Barton 1999) as one table: id, sequence, structure, and the rows of the alignment."""
    from regard.atomic import write_text

    alignments = _read_archive(found["cb513_alignments.tar"])
    rows = ["id\tsequence\tstructure\talignment"]
    for number, line in enumerate(read_lines(found["cb513.tsv"]), 1):
        cells = line.split("\t")
        if number == 1:
            continue
        if len(cells) < 3 or cells[0] not in alignments:
            raise InputError(f"cb513.tsv:{number}: {line[:40]!r} has no alignment, or not three columns")
        name, sequence, states = cells[:3]
        rows.append("\t".join((name, sequence, states, " ".join(_matched(sequence, alignments[name])))))
    write_text(to / "chains.tsv", "\n".join(rows) + "\n")


def _read_archive(path: Path) -> dict[str, list[str]]:
    """Return the alignment of each chain: the lines `align1:A,C,-` of its file."""
    import lzma
    import tarfile

    found: dict[str, list[str]] = {}
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                stream = archive.extractfile(member) if member.isfile() else None
                if stream is None or not member.name.endswith(".all"):
                    continue
                lines = stream.read().decode("ascii", "replace").splitlines()
                rows = [line.partition(":")[2].replace(",", "").strip() for line in lines if line.startswith("align")]
                found[Path(member.name).name.removesuffix(".all")] = rows
    except (TarError, lzma.LZMAError, EOFError, OSError) as error:
        raise InputError(f"{path}: cannot be read as an archive ({error}); get another copy") from None
    return found


def _matched(sequence: str, rows: Sequence[str]) -> list[str]:
    """Return the rows after the first in the columns of the sequence: four chains differ from their alignment."""
    if not rows or rows[0] == sequence:
        return list(rows[1:])
    blocks = SequenceMatcher(None, sequence, rows[0], autojunk=False).get_matching_blocks()
    matched = [["."] * len(sequence) for _ in rows[1:]]
    for begin, other, size in blocks:
        for row, letters in zip(matched, rows[1:], strict=True):
            row[begin : begin + size] = letters[other : other + size]
    return ["".join(row) for row in matched]
