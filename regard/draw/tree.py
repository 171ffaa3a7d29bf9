"""A tree: as lines of text for a terminal, or as a picture with the words below."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from regard.draw.labels import short_label, text_width, visible
from regard.draw.style import (
    HEAD,
    MARGIN,
    TEXT,
    TITLE,
    Look,
    add_axes,
    current_look,
    new_figure,
    regard_style,
    write_title,
)
from regard.errors import RegardError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST = 400  # words of a picture; a wider one could not be looked at
GAP = 0.12  # inches between neighbouring words
LEVEL = 0.36  # from a label to those below it
EDGE = 0.11  # between a label and the lines to it


@runtime_checkable
class TreeNode(Protocol):
    """A node of a tree: its label, and its parts, which are nodes or words."""

    @property
    def label(self) -> str:
        """The name of the node."""

    @property
    def parts(self) -> Sequence[TreeNode | str]:
        """What it consists of."""


def tree_lines(node: TreeNode, width: int | None = None) -> list[str]:
    """Return a tree as lines: each constituent below the one that it is part of, a tag with its word on one line.

    If the lines of a deep tree are longer than `width`, they are indented less.
    """

    def below(parts: Sequence[TreeNode | str], before: str, indent: int) -> Iterator[str]:
        for place, part in enumerate(parts, 1):
            last = place == len(parts)
            yield f"{before}{('└─ ' if last else '├─ ')[:indent]}{_line(part)}"
            if not isinstance(part, str) and _word(part) is None:
                yield from below(part.parts, before + (" " if last else "│").ljust(indent), indent)

    for indent in (3, 2, 1):
        lines = [_line(node), *(() if _word(node) is not None else below(node.parts, "", indent))]
        if width is None or max(map(len, lines)) <= width:
            break
    return lines


def _word(node: TreeNode) -> str | None:
    """Return the only word of a node that has no other parts."""
    return node.parts[0] if len(node.parts) == 1 and isinstance(node.parts[0], str) else None


def _line(part: TreeNode | str) -> str:
    if isinstance(part, str):
        return visible(part)
    word = _word(part)
    return visible(part.label) if word is None else f"{visible(part.label)} {visible(word)}"


def draw_tree(node: TreeNode, *, title: str = "", look: Look | None = None) -> Figure:
    """Draw a tree with its root at the top and all words in one line at the bottom."""
    look = look or current_look()
    with regard_style(look):
        placed = _Placed(node)
        if len(placed.words) > MOST:
            raise RegardError(f"a tree of {len(placed.words)} words is too wide; draw at most {MOST} words")
        head = HEAD if visible(title) else 0.0
        width = max(placed.width, text_width(visible(title), TITLE)) + 2 * MARGIN
        height = head + (placed.depth + 0.7) * LEVEL
        figure = new_figure(width, height + 2 * MARGIN)
        write_title(figure, visible(title))
        axes = add_axes(figure, MARGIN, MARGIN + head, placed.width, height - head)
        axes.set(xlim=(0, placed.width), ylim=(height - head, 0))
        axes.set_axis_off()
        placed.draw(axes, look)
        return figure


class _Placed:
    """Where the words and the labels of a tree are, in inches: a label is above the middle of its parts."""

    def __init__(self, root: TreeNode) -> None:
        self.words: list[tuple[str, float]] = []
        self.labels: list[tuple[str, float, int]] = []
        self.edges: list[tuple[float, int, float, int | None]] = []  # from (x, level) to (x, level; None: the words)
        self.depth, self._right = 0, 0.0
        self._place(root, 0)
        self.depth += 1
        self.width = max(self._right, max(x + text_width(name, TEXT) / 2 for name, x, _ in self.labels))

    def _place(self, node: TreeNode, level: int) -> float:
        self.depth = max(self.depth, level)
        name = short_label(node.label)
        if _word(node) is not None:
            word = short_label(str(node.parts[0]))
            size = max(text_width(word, TEXT), text_width(name, TEXT))
            x = self._right + size / 2
            self._right += size + GAP
            self.words.append((word, x))
            self.edges.append((x, level, x, None))
        else:
            ends = [self._place(part, level + 1) for part in node.parts if not isinstance(part, str)]
            x = max((ends[0] + ends[-1]) / 2, text_width(name, TEXT) / 2)
            self.edges += [(x, level, end, level + 1) for end in ends]
        self.labels.append((name, x, level))
        return x

    def draw(self, axes: Axes, look: Look) -> None:
        """Draw the lines, then the labels and the words."""

        def height(level: int | None) -> float:
            return (self.depth if level is None else level) * LEVEL + LEVEL / 2

        for x, level, end, below in self.edges:
            axes.plot([x, end], [height(level) + EDGE, height(below) - EDGE], color=look.faint, linewidth=0.8)
        style: dict[str, Any] = {"size": TEXT, "horizontalalignment": "center", "verticalalignment": "center"}
        for name, x, level in self.labels:
            axes.text(x, height(level), name, color=look.blue, **style)
        for word, x in self.words:
            axes.text(x, height(None), word, color=look.ink, **style)
