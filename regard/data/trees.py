"""Constituency trees in brackets, as in the Penn Treebank (Marcus et al. 1993): `(S (NP (DT the) (NN cat)) (VP ...))`.

A file may hold one tree per line, or trees over many lines; it may be compressed, and a folder stands for the tree
files in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

from regard.data.columns import FileReading
from regard.data.lines import content_suffix, read_lines
from regard.data.read import Skipped, files_below
from regard.errors import InputError

SUFFIXES = (".mrg", ".ptb", ".psd", ".tree", ".trees", ".parse")  # the files of a folder that are read
DEEPEST = 200  # brackets inside each other; sentences have some ten
MOST_WORDS = 1000  # of a tree
EMPTY = "-NONE-"  # the tag of an element without a word: a trace, or an omitted "that"
ROOT = "TOP"  # the label of a root that has none, or that holds several constituents
ROOTS = frozenset({"", ROOT, "ROOT", "S1", "VROOT"})  # labels of the node above a sentence
BRACKETS = {"(": "-LRB-", ")": "-RRB-", "[": "-LSB-", "]": "-RSB-", "{": "-LCB-", "}": "-RCB-"}
_PIECES = re.compile(r"[()]|[^\s()]+")


@dataclass(frozen=True, slots=True)
class Tree:
    """A constituent: its label, and its parts. The part of a word's tag is the word itself."""

    label: str
    parts: tuple[Tree | str, ...]

    @property
    def is_tag(self) -> bool:
        """Whether this is a tag with its word."""
        return len(self.parts) == 1 and isinstance(self.parts[0], str)

    @property
    def trees(self) -> tuple[Tree, ...]:
        """The parts that are trees: all, unless this is a tag."""
        return tuple(part for part in self.parts if isinstance(part, Tree))

    def tags(self) -> list[Tree]:
        """Return the tags with their words, from left to right."""
        return [self] if self.is_tag else [tag for tree in self.trees for tag in tree.tags()]

    def words(self) -> list[str]:
        """Return the words, from left to right."""
        return [str(tag.parts[0]) for tag in self.tags()]

    def __str__(self) -> str:
        return f"({self.label} {' '.join(map(str, self.parts))})"


# --- reading ---------------------------------------------------------------------------------------------------------


def tree_files(path: Path) -> list[Path]:
    """Return the tree files of a folder, at any depth and sorted; a file is returned as it is."""
    if not path.is_dir():
        return [path]
    found = [file for file in files_below(path) if content_suffix(file) in SUFFIXES]
    if not found:
        raise InputError(f"{path}: is a folder without tree files ({', '.join(SUFFIXES)}); name a file of trees")
    return found


def read_trees(path: Path, skipped: Skipped) -> Iterator[Tree]:
    """Yield the trees of a file as models learn them (see `normalised`); trees without a word are skipped."""
    for place, tree in _read_raw(path):
        plain = normalised(tree)
        if plain is None:
            skipped.note("tree without a word", place)
        else:
            yield plain


def parse_tree(text: str) -> Tree:
    """Return the one tree that a text holds, as it is written."""
    found = [tree for _, tree in _parse(enumerate(text.split("\n"), 1), "line ")]
    if len(found) != 1:
        raise InputError(f"{text[:40]!r} holds {len(found)} trees; give one tree in brackets, such as (NP (DT the))")
    return found[0]


def holds_tags(text: str) -> bool:
    """Return whether a text holds a tag with its word in brackets, as trees do, unlike the tokens of linear trees."""
    return re.search(r"\([^\s()]+\s+[^\s()]+\s*\)", text) is not None


def trees_reading(path: Path) -> FileReading:
    """Return how a file of trees is read, with its first tree."""
    first = next(iter(read_trees(path, Skipped())), None)
    example = {} if first is None else {"sentence": " ".join(first.words()), "tree": str(first)}
    return FileReading((str(path),), "trees in brackets, without traces and functions", example)


def _read_raw(path: Path) -> Iterator[tuple[str, Tree]]:
    cut: list[str] = []
    lines = enumerate(read_lines(path, cut.append), 1)
    for found in _parse(lines, f"{path}:"):
        if cut:
            raise InputError(f"{cut[0]}: a line of more than 1 MiB; write a tree over several lines, or one in each")
        yield found


def _parse(lines: Iterator[tuple[int, str]], place: str) -> Iterator[tuple[str, Tree]]:
    """Yield each tree with the place where it begins: a stack of (line, label or None, parts) of open brackets."""
    stack: list[tuple[int, str | None, list[Tree | str]]] = []
    words = 0
    for number, line in lines:
        for piece in _PIECES.findall(line):
            if piece == "(":
                stack.append((number, None, []))
                if len(stack) > DEEPEST:
                    rule = f"a tree with more than {DEEPEST} brackets inside each other"
                    raise InputError(f"{place}{stack[0][0]}: {rule}; close those that are open")
            elif piece == ")":
                if not stack:
                    raise InputError(f"{place}{number}: a closing bracket without an opening one; remove it")
                begun, label, parts = stack.pop()
                tree = _closed(label, parts, f"{place}{number}")
                if stack:
                    stack[-1][2].append(tree)
                else:
                    yield f"{place}{begun}", tree
                    words = 0
            elif not stack:
                rule = f"{piece[:20]!r} is outside of any bracket; trees look like (S (NP (DT the) (NN cat)))"
                raise InputError(f"{place}{number}: {rule}")
            elif stack[-1][1] is None and not stack[-1][2]:
                stack[-1] = (stack[-1][0], piece, stack[-1][2])
            else:
                stack[-1][2].append(piece)
                words += 1
                if words > MOST_WORDS:
                    rule = f"a tree of more than {MOST_WORDS:,} words"
                    raise InputError(f"{place}{stack[0][0]}: {rule}; close the brackets that are open")
    if stack:
        opened = f"a bracket that is never closed{f' ({stack[-1][1]})' if stack[-1][1] else ''}"
        raise InputError(f"{place}{stack[-1][0]}: {opened}; close it, or remove it")


def _closed(label: str | None, parts: list[Tree | str], place: str) -> Tree:
    """Return a constituent that is complete: it has either one word, or constituents."""
    words = [part for part in parts if isinstance(part, str)]
    if not parts:
        raise InputError(f"{place}: an empty constituent ({label or ''}); write a word or constituents into it")
    if words and (len(parts) > 1 or label is None):
        rule = f"{words[0][:20]!r} has no tag of its own; write each word with its tag, such as (NN cat)"
        raise InputError(f"{place}: {rule}")
    return Tree(label or "", tuple(parts))


# --- as models learn them --------------------------------------------------------------------------------------------


def normalised(tree: Tree) -> Tree | None:
    """Return a tree as parsers learn and EVALB scores it; None if no word is left.

    Traces and other elements without a word are removed, with the constituents that hold nothing else. Labels lose
    their functions and indices: NP-SBJ-1 becomes NP. A node above the sentence is removed; if it holds several
    constituents, or only a word, its label is TOP.
    """
    found = _stripped(tree)
    if found is None:
        return None
    while found.label in ROOTS and len(found.parts) == 1 and not found.is_tag:
        found = found.trees[0]
    if found.is_tag:
        return Tree(ROOT, (found,))
    return Tree(ROOT, found.parts) if found.label in ROOTS else found


def _stripped(tree: Tree) -> Tree | None:
    if tree.is_tag:
        return None if tree.label == EMPTY else Tree(plain_label(tree.label), tree.parts)
    parts = tuple(part for part in map(_stripped, tree.trees) if part is not None)
    return Tree(plain_label(tree.label), parts) if parts else None


def plain_label(label: str) -> str:
    """Return a label without functions and indices: NP-SBJ=2 is NP; -LRB- stays."""
    return label if label.startswith("-") else re.split(r"[-=|]", label, maxsplit=1)[0]


# --- words of a text -------------------------------------------------------------------------------------------------


_FULL_STOP = re.compile(r"([^.\s])(\.)([\]\)}>\"'”]*)\s*$")  # with the quotation marks and brackets that follow it
_SPLIT = (
    (re.compile(r"\.\.\."), " ... "),
    (re.compile(r"([,;:@#$%&?!()\[\]{}<>]|--)(?![\d])|([;@#$%&?!()\[\]{}<>]|--)"), r" \1\2 "),
    (re.compile(r"(?<=\S)('s|'m|'d|'ll|'re|'ve|n't)\b", re.IGNORECASE), r" \1"),
    (re.compile(r"(?<=\w)'(?=\s|$)"), " '"),
    (re.compile(r"\b(can(?=not\b)|(?:gon|wan)(?=na\b)|got(?=ta\b))", re.IGNORECASE), r"\1 "),
)


def split_words(text: str) -> list[str]:
    """Split a sentence into words as the Penn Treebank does: `don't (yet).` is do n't -LRB- yet -RRB- .

    Words that are separated already stay as they are. Straight quotation marks are opening and closing ones in turn.
    """
    turns = cycle((" `` ", " '' "))
    marks = {"“": " `` ", "”": " '' "}
    text = _FULL_STOP.sub(r"\1 \2 \3 ", text.replace("’", "'"))  # before blanks separate the marks after it
    text = re.sub('["“”]', lambda found: marks.get(found[0]) or next(turns), text)
    for pattern, replacement in _SPLIT:
        text = pattern.sub(replacement, text)
    return as_words(text.split())


def as_words(words: Sequence[str]) -> list[str]:
    """Return words as they are written in trees, without brackets in them."""
    return [BRACKETS.get(word) or re.sub("[()]", lambda found: BRACKETS[found[0]], word) for word in words]
