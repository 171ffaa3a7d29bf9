"""The letters of proteins: residues, gaps, and the states of secondary structure (DSSP, Kabsch, Sander 1983)."""

from regard.errors import InputError

AMINO_ACIDS = "ACDEFGHIKLMNPQRSTVWY"
UNKNOWN = "X"
AMBIGUOUS = "BZJXUO"  # one of two residues (B, Z, J), any (X), and two rare ones that are in no alphabet of 20
GAP = "-"
GAPS = "-.~"
ALPHABET = AMINO_ACIDS + UNKNOWN + GAP
STATES = "HGIEBTS_"  # helices (alpha, 3-10, pi), strand, bridge, turn, bend, and the rest
COIL = "_-CLP"  # ways to write the rest; P is the polyproline helix of newer versions
UNLABELLED = "?X"
CLASSES = {"H": "H", "G": "H", "I": "H", "E": "E", "B": "E"}  # 3 states: helix, strand, and coil (C) for the rest
STRICT_CLASSES = {"H": "H", "E": "E"}  # 3 states, of which only alpha helices and strands are not coil
SHOWN = 24  # characters of a text in a message

_RESIDUES = {letter: letter for letter in AMINO_ACIDS} | dict.fromkeys(AMBIGUOUS, UNKNOWN)
_ALIGNED = _RESIDUES | dict.fromkeys(GAPS, GAP)
_STATES = {state: state for state in STATES} | dict.fromkeys(COIL, "_") | dict.fromkeys(UNLABELLED, "?")


def clean_sequence(text: str, place: str = "the sequence", aligned: bool = False) -> str:
    """Return a sequence in capital letters and without blanks, with X for residues that are not one of the 20.

    Gaps are only allowed in an `aligned` sequence, and are written as "-" there.
    """
    letters = _ALIGNED if aligned else _RESIDUES
    written = "".join(text.split()).upper()
    for number, letter in enumerate(written, 1):
        if letter not in letters:
            gap = letter in GAPS and not aligned
            remedy = "remove gaps, which only alignments have" if gap else f"use {AMINO_ACIDS}, or X for any other"
            raise InputError(f"{place}: {letter!r} at place {number} is not a residue; {remedy}")
    if not written:
        raise InputError(f"{place}: has no residues; write them as letters, such as {AMINO_ACIDS[:4]}")
    return "".join(letters[letter] for letter in written)


def clean_states(text: str, place: str = "the structure") -> str:
    """Return the states of DSSP, one letter for each residue, with "_" for coil and "?" where none is known."""
    written = text.upper()
    for number, letter in enumerate(written, 1):
        if letter not in _STATES:
            raise InputError(f"{place}: {letter!r} at place {number} is not a state of DSSP; use {STATES} or ?")
    return "".join(_STATES[letter] for letter in written)
