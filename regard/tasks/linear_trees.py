"""Trees as sequences of tokens, and back: what a model reads and writes to parse (Vinyals et al. 2015).

    (S (NP (DT the) (NN cat)) (VP (VBD slept)))   becomes   (S (NP (DT) the (NN) cat )NP (VP (VBD) slept )VP )S

A constituent is an opening and a closing token with its label. A word is the token of its tag, followed by the word's
own tokens, which are copied from the source. Vinyals et al. and Vaswani et al. 2017 write XX for each word: then a
model has to count words to know which one comes next. A copied word shows it, and its tag is one more thing to learn
from, which matters if there are only a few thousand trees.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from regard.data.tokenizer import Tokenizer
from regard.data.trees import DEEPEST, Tree
from regard.decode.constrain import Constraint
from regard.errors import InputError

LONGEST_CHAIN = 8  # opening tokens one after the other
MOST_DEEP = DEEPEST // 2  # open constituents
Pieces = Sequence[Sequence[int]]  # the tokens of each word of a sentence


def symbol_names(trees: Iterable[Tree]) -> list[str]:
    """Return the names of all tokens that trees need besides their words, sorted."""
    labels: set[str] = set()
    tags: set[str] = set()

    def visit(node: Tree) -> None:
        (tags if node.is_tag else labels).add(node.label)
        for part in node.trees:
            visit(part)

    for tree in trees:
        visit(tree)
    return [*(f"({label}" for label in sorted(labels)), *(f"){label}" for label in sorted(labels)), *_tag_names(tags)]


def _tag_names(tags: Iterable[str]) -> list[str]:
    return [f"({tag})" for tag in sorted(tags)]


@dataclass(frozen=True)
class TreeSymbols:
    """The ids of the tokens that are not words: opening and closing of each label, and tags."""

    opening: dict[str, int]
    closing: dict[str, int]
    tags: dict[str, int]
    end: int
    unk: int

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> "TreeSymbols":
        """Find them among the tokens that were added to a tokenizer, by their names."""
        opening, closing, tags = {}, {}, {}
        for name, id in tokenizer.added().items():
            if name.startswith(")") and len(name) > 1:
                closing[name[1:]] = id
            elif name.startswith("(") and name.endswith(")") and len(name) > 2:
                tags[name[1:-1]] = id
            elif name.startswith("(") and len(name) > 1:
                opening[name[1:]] = id
        labels = sorted(opening.keys() & closing.keys())
        opening, closing = ({label: side[label] for label in labels} for side in (opening, closing))
        return cls(opening, closing, tags, tokenizer.end, tokenizer.unk)

    def __bool__(self) -> bool:
        return bool(self.opening and self.tags)

    def __hash__(self) -> int:
        return id(self)

    @cached_property
    def meanings(self) -> dict[int, tuple[str, str]]:
        """What each token does, with its label: "open", "close" or "tag"."""
        sides = {"open": self.opening, "close": self.closing, "tag": self.tags}
        return {id: (what, label) for what, side in sides.items() for label, id in side.items()}


def word_pieces(tokenizer: Tokenizer, words: Sequence[str]) -> list[list[int]]:
    """Return the tokens of each word: at least one."""
    return [ids.tolist() or [tokenizer.unk] for ids in tokenizer.encode([f" {word}" for word in words])]


def linearise(tree: Tree, pieces: Pieces, symbols: TreeSymbols) -> list[int]:
    """Return a tree as tokens; `pieces` are those of its words. A label without a token becomes <unk>."""
    words = iter(pieces)

    def visit(node: Tree) -> Iterator[int]:
        if node.is_tag:
            yield symbols.tags.get(node.label, symbols.unk)
            yield from next(words)
            return
        yield symbols.opening.get(node.label, symbols.unk)
        for part in node.trees:
            yield from visit(part)
        yield symbols.closing.get(node.label, symbols.unk)

    return list(visit(tree))


def delinearise(ids: Sequence[int], words: Sequence[str], pieces: Pieces, symbols: TreeSymbols) -> Tree:
    """Return the tree of a well-formed sequence of tokens over these words: the inverse of `linearise`."""
    stack: list[tuple[str, list[Tree]]] = [("", [])]
    place = word = 0
    try:
        while place < len(ids):
            what, label = symbols.meanings[ids[place]]
            place += 1
            if what == "open":
                stack.append((label, []))
            elif what == "tag":
                stack[-1][1].append(Tree(label, (words[word],)))
                place, word = place + len(pieces[word]), word + 1
            else:
                opened, parts = stack.pop()
                if opened != label or not parts:
                    raise KeyError
                stack[-1][1].append(Tree(label, tuple(parts)))
        ((_, (tree,)),) = stack
    except (KeyError, IndexError, ValueError):
        raise InputError(
            f"token {place} of {len(ids)} does not continue a tree; decode with `WellFormedTrees`"
        ) from None
    if word != len(words):
        raise InputError(f"the tree has {word} of {len(words)} words; decode with `WellFormedTrees`")
    return tree


class TreeState(NamedTuple):
    """What is written of a tree: open constituents, complete words, tokens of the next word, tokens in all."""

    stack: tuple[str, ...] = ()
    word: int = 0
    piece: int = 0  # 1 after the tag of the word, one more after each of its tokens
    chain: int = 0  # opening tokens since the last other token
    written: int = 0


class WellFormedTrees(Constraint):
    """Allow only trees over the words of each row: with matching brackets, all words in order, and the end in time.

    A constituent is opened only if all words and closing brackets still fit into the limit of the row, so every tree is
    complete there; it is closed only when it holds something, and the root only when all words are written.
    """

    def __init__(self, symbols: TreeSymbols, rows: Sequence[Pieces], limits: Sequence[int]) -> None:
        self.symbols, self.rows, self.limits = symbols, rows, limits
        self.opening = np.array(sorted(symbols.opening.values()), np.int64)
        self.tags = np.array(sorted(symbols.tags.values()), np.int64)
        self.left = [_tokens_left(pieces) for pieces in rows]
        for left, limit in zip(self.left, limits, strict=True):
            if limit < left[0] + 3:  # a root, its end, and the end of the text
                rule = f"a sentence of {len(left) - 1} words needs {left[0] + 3} tokens, and {limit} fit"
                raise InputError(f"{rule}; give a shorter sentence")
        self._choices: dict[tuple[str | None, bool, bool], np.ndarray] = {}

    def start(self, row: int) -> tuple[int, TreeState]:
        """Return the state before the root."""
        return row, TreeState()

    def allowed(self, state: tuple[int, TreeState]) -> Sequence[int] | np.ndarray:
        """Return the tokens that may follow."""
        row, (stack, word, piece, chain, written) = state
        pieces = self.rows[row]
        if piece:
            return [pieces[word][piece - 1]]
        complete = word == len(pieces)
        if complete and not stack:
            return [self.symbols.end]
        needed = self.left[row][word] + len(stack) + 3  # with one more constituent, its end, and the end of the text
        opens = (
            not complete and chain < LONGEST_CHAIN and len(stack) < MOST_DEEP and written + needed <= self.limits[row]
        )
        closes = stack and not chain and (complete or len(stack) > 1)
        return self._choice(stack[-1] if closes else None, opens, bool(stack) and not complete)

    def _choice(self, close: str | None, opens: bool, tags: bool) -> np.ndarray:
        key = (close, opens, tags)
        if key not in self._choices:
            closing = [] if close is None else [np.array([self.symbols.closing[close]], np.int64)]
            self._choices[key] = np.concatenate([*closing, *[self.opening] * opens, *[self.tags] * tags])
        return self._choices[key]

    def advance(self, state: tuple[int, TreeState], token: int) -> tuple[int, TreeState]:
        """Return the state after a token."""
        row, (stack, word, piece, chain, written) = state
        if piece:
            done = piece == len(self.rows[row][word])
            return row, TreeState(stack, word + done, 0 if done else piece + 1, 0, written + 1)
        what, label = self.symbols.meanings[token]
        if what == "open":
            return row, TreeState((*stack, label), word, 0, chain + 1, written + 1)
        if what == "tag":
            return row, TreeState(stack, word, 1, 0, written + 1)
        return row, TreeState(stack[:-1], word, 0, 0, written + 1)


def _tokens_left(pieces: Pieces) -> list[int]:
    """Return how many tokens the words from each place on need, with their tags."""
    left = [0]
    for word in reversed(pieces):
        left.append(left[-1] + len(word) + 1)
    return left[::-1]


def tree_limit(pieces: Pieces) -> int:
    """Return the most tokens of a tree: half as many constituents again as words; sentences have fewer than words."""
    return _tokens_left(pieces)[0] + 3 * len(pieces) + 21
