"""Labelled bracketing: precision, recall and F1 of the constituents of trees (Black et al. 1991), as EVALB computes
them with Collins's settings (Sekine, Collins 1997).

A constituent is its label with the words from its first to its last. Words whose tag in the reference is punctuation
are deleted from both trees; the root TOP does not count; PRT equals ADVP; equal constituents count as often as they
occur. All counts are summed over the corpus:

    precision = matched / made, recall = matched / wanted, F1 = 2 matched / (made + wanted)
"""

from collections import Counter
from collections.abc import Sequence

from regard.data.trees import EMPTY, ROOT, Tree
from regard.errors import InputError

PUNCTUATION = frozenset({",", ":", "``", "''", ".", EMPTY})  # tags of words that do not count
EQUAL = {"PRT": "ADVP"}

Bracket = tuple[str, int, int]


def bracketing_scores(made: Sequence[Tree], wanted: Sequence[Tree]) -> dict[str, float]:
    """Score trees against the reference of each, from 0 to 100; `exact_trees` have all constituents right."""
    if len(made) != len(wanted) or not made:
        raise InputError(f"{len(made)} trees cannot be scored against {len(wanted)} references; give one for each")
    matched = guessed = right = exact = tags = words = 0
    for number, (one, other) in enumerate(zip(made, wanted, strict=True), 1):
        counted = _counted_words(one, other, number)
        ours, theirs = brackets(one, counted), brackets(other, counted)
        common = (ours & theirs).total()
        matched, guessed, right = matched + common, guessed + ours.total(), right + theirs.total()
        exact += ours == theirs
        pairs = [
            pair for pair, counts in zip(zip(one.tags(), other.tags(), strict=True), counted, strict=True) if counts
        ]
        tags += sum(ours.label == theirs.label for ours, theirs in pairs)
        words += len(pairs)
    return {
        "bracket_f1": _percent(2 * matched, guessed + right),
        "bracket_precision": _percent(matched, guessed),
        "bracket_recall": _percent(matched, right),
        "exact_trees": _percent(exact, len(wanted)),
        "tag_accuracy": _percent(tags, words),
    }


def bracket_f1(made: Sequence[Tree], wanted: Sequence[Tree]) -> float:
    """Return only the F1 of `bracketing_scores`."""
    return bracketing_scores(made, wanted)["bracket_f1"]


def brackets(tree: Tree, counted: Sequence[bool]) -> Counter[Bracket]:
    """Count the constituents of a tree, with their first and last word among the words that are `counted`."""
    before = [0]  # how many of the words before each count
    for counts in counted:
        before.append(before[-1] + counts)
    found: Counter[Bracket] = Counter()

    def visit(node: Tree, begin: int) -> int:
        if node.is_tag:
            return begin + 1
        end = begin
        for part in node.trees:
            end = visit(part, end)
        if node.label != ROOT and before[end] > before[begin]:
            found[EQUAL.get(node.label, node.label), before[begin], before[end]] += 1
        return end

    visit(tree, 0)
    return found


def _counted_words(made: Tree, wanted: Tree, number: int) -> list[bool]:
    """Return which words count: those that are not punctuation in the reference."""
    if made.words() != wanted.words():
        rule = f"{len(made.words())} words of tree {number} differ from the {len(wanted.words())} of its reference"
        raise InputError(f"{rule}; both trees must have the same words")
    return [tag.label not in PUNCTUATION for tag in wanted.tags()]


def _percent(part: int, whole: int) -> float:
    return 100.0 * part / whole if whole else 0.0
