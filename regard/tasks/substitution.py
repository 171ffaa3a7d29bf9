"""New training trees from old ones: constituents are replaced by others with the same label (Shi et al. 2021)."""

from collections.abc import Iterable
from random import Random

from regard.data.trees import Tree

MOST_WORDS = 20  # of a constituent that replaces another
MOST_KEPT = 20_000  # constituents of each label


class Substitutes:
    """The constituents of trees by their label, roots and tags excluded."""

    def __init__(self, trees: Iterable[Tree]) -> None:
        self.by_label: dict[str, list[Tree]] = {}
        for tree in trees:
            for part in tree.trees:
                self._add(part)

    def _add(self, node: Tree) -> int:
        """Add a node and all below it; return its number of words."""
        if node.is_tag:
            return 1
        words = sum(map(self._add, node.trees))
        known = self.by_label.setdefault(node.label, [])
        if words <= MOST_WORDS and len(known) < MOST_KEPT:
            known.append(node)
        return words


def substituted(tree: Tree, others: Substitutes, rate: float, chance: Random) -> Tree:
    """Return a tree in which each constituent below the root is replaced with this probability, the topmost first."""

    def visit(node: Tree) -> Tree:
        if node.is_tag:
            return node
        if chance.random() < rate and (choices := others.by_label.get(node.label)):
            return chance.choice(choices)
        return Tree(node.label, tuple(map(visit, node.trees)))

    return Tree(tree.label, tuple(map(visit, tree.trees)))
