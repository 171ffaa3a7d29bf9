"""Trees of English sentences by a grammar written by hand: the training data of the parser in the box.

    python -m bench.english_trees "I saw the man with the telescope."

Treebanks made by annotators may not be passed on. Here both the rules (english_grammar.txt) and the words
(english_lexicon.txt) were written for this package, with labels and tags of the Penn Treebank (Marcus et al. 1993), and
the CKY algorithm (regard/tasks/grammar.py) finds the best tree of each sentence. So the trees are what this grammar
says, not what a reader would say: it decides by weights where a phrase is attached.
"""

import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from math import log
from pathlib import Path

from regard.data.trees import Tree, plain_label, split_words
from regard.tasks.grammar import Counts, Grammar, Symbol, right_branching

RULES = Path(__file__).with_name("english_grammar.txt")
WORDS = Path(__file__).with_name("english_lexicon.txt")
FORMS = ("VB", "VBZ", "VBP", "VBD", "VBN", "VBG")
ROOT = "TOP"
RARELY = 0.02  # the weight of a reading that is marked with ?
SHORTEST, LONGEST = 3, 16  # words of a sentence
MOST_UNKNOWN = 1  # words of a sentence that are not in the lexicon
AT_ONCE = 500  # sentences
SIZES = {"train": 30_000, "val": 500, "test": 500}  # trees of each part
WITHOUT_MARKS = 10  # every tenth training tree is without its end mark and its first capital letter, as people type

Readings = Mapping[str, float]  # the tags of a word, with weights


# --- words -----------------------------------------------------------------------------------------------------------

DOUBLED = {
    "admit",
    "begin",
    "commit",
    "control",
    "forbid",
    "forget",
    "occur",
    "permit",
    "prefer",
    "regret",
    "submit",
    "upset",
}
ENDINGS: tuple[tuple[str, Readings], ...] = (  # of words that are not in the lexicon
    (r"[A-Z].*", {"NNP": 1.0}),
    (r".*ly", {"RB": 1.0, "JJ": 0.05}),
    (r".*ing", {"VBG-V": 1.0, "NN": 0.3, "JJ": 0.1}),
    (r".*ed", {"VBD-V": 1.0, "VBN-V": 1.0, "JJ": 0.3}),
    (r".*(tion|ment|ness|ity|ship|ism|ist|er|or|age|ance|ence)", {"NN": 1.0}),
    (r".*(ous|ful|ive|able|ible|al|ic|less|ish|ant|ent)", {"JJ": 1.0, "NN": 0.2}),
    (r".*[^s]s", {"NNS": 1.0, "VBZ-V": 0.3}),
    (r".*", {"NN": 1.0, "JJ": 0.3, "VB-V": 0.1, "VBP-V": 0.05}),
)


class EnglishLexicon:
    """The tags that words may have, with the logarithms of their weights."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.words: dict[str, dict[str, float]] = {}
        for line in lines:
            if line.strip() and not line.startswith("#"):
                kind, listed = line.rstrip().split(": ", 1)
                for item in listed.split():
                    self._add(kind, item.rstrip("?") or item, RARELY if item.endswith("?") and item != "?" else 1.0)

    def _add(self, kind: str, item: str, weight: float) -> None:
        for tag, word in inflected(kind, item):
            tags = self.words.setdefault(word, {})
            tags[tag] = max(weight, tags.get(tag, 0.0))

    @property
    def tags(self) -> set[str]:
        """All tags of known and unknown words."""
        return {tag for tags in (*self.words.values(), *(tags for _, tags in ENDINGS), {"CD": 1.0}) for tag in tags}

    def knows(self, word: str) -> bool:
        """Return whether a word, or its form in small letters, is in the lexicon; numbers always are."""
        return word in self.words or word.lower() in self.words or bool(re.fullmatch(r"\d[\d,.:]*", word))

    def scores(self, word: str) -> dict[str, float]:
        """Return the score of each tag that a word may have."""
        return {tag: log(weight) for tag, weight in self.readings(word).items()}

    def readings(self, word: str) -> Readings:
        """Return the tags of a word with their weights; of an unknown word, by its ending."""
        small = self.words.get(word.lower(), {})
        if found := self.words.get(word, small):
            return found if found is small else {**{tag: RARELY * weight for tag, weight in small.items()}, **found}
        if re.fullmatch(r"\d[\d,.:]*", word):
            return {"CD": 1.0}
        return next(tags for pattern, tags in ENDINGS if re.fullmatch(pattern, word))


def inflected(kind: str, item: str) -> Iterator[tuple[str, str]]:
    """Yield the forms of a word with their tags: `verb V` and give/gave/given have six, of which five differ."""
    forms = item.split("/")
    name, *classes = kind.split()
    if name == "verb":
        base, past, participle = forms if len(forms) == 3 else (item, *[past_form(item)] * 2)
        for tag, word in zip(FORMS, (base, third_person(base), base, past, participle, gerund(base)), strict=True):
            yield from ((f"{tag}-{one}", word) for one in classes)
    elif name == "noun":
        yield "NN", forms[0]
        yield "NNS", forms[1] if len(forms) > 1 else with_s(item)
    elif name == "adjective":
        yield from zip(("JJ", "JJR", "JJS"), forms, strict=False)
    else:
        yield {"adverb": "RB", "name": "NNP"}.get(name, name), item


def with_s(word: str) -> str:
    """Return the plural of a regular noun, which is also the third person of a regular verb."""
    if re.search(r"([sxz]|[cs]h)$", word):
        return f"{word}es"
    return f"{word[:-1]}ies" if re.search(r"[^aeiou]y$", word) else f"{word}s"


def third_person(base: str) -> str:
    """Return the third person singular of a verb."""
    if base == "have":
        return "has"
    return f"{base}es" if base.endswith("o") else with_s(base)


def past_form(base: str) -> str:
    """Return the past of a regular verb."""
    if base.endswith("e"):
        return f"{base}d"
    return f"{base[:-1]}ied" if re.search(r"[^aeiou]y$", base) else f"{doubled(base)}ed"


def gerund(base: str) -> str:
    """Return the form in -ing."""
    if base.endswith("ie"):
        return f"{base[:-2]}ying"
    return f"{base[:-1]}ing" if re.search(r"[^eoy]e$", base) else f"{doubled(base)}ing"


def doubled(base: str) -> str:
    """Return a verb with its last consonant doubled, where -ed and -ing double it: stop, begin, but not open."""
    short = re.fullmatch(r"[^aeiou]*(qu)?[aeiou][bdgklmnprt]", base) is not None
    return base + base[-1] if short or base in DOUBLED else base


# --- trees -----------------------------------------------------------------------------------------------------------


def read_grammar(rules: Iterable[str], lexicon: EnglishLexicon) -> Grammar:
    """Return the grammar of rules such as `40 _NPB -> DT _N`."""
    counts = Counts(Counter(), Counter(), Counter(), [(tag, "") for tag in sorted(lexicon.tags)])
    for line in rules:
        if line.strip() and not line.startswith("#"):
            for form in FORMS if "*" in line else ("",):
                _add_rule(counts, line.replace("*", form))
    grammar = Grammar(counts)
    grammar.lexicon = lexicon  # type: ignore[assignment]  # it scores words likewise
    return grammar


def _add_rule(counts: Counts, line: str) -> None:
    """Add a rule; one of several parts is split into steps that know all parts before, so that no other arises."""
    (number, name), parts = (side.split() for side in line.split("->"))
    *before, last = map(Symbol, parts)
    up, weight = Symbol(name), round(10 * float(number))
    if name == ROOT:
        counts.roots[last] += weight
    elif not before:
        counts.unary[up, last] += weight
    for place, part in enumerate(before):
        rest = last if place == len(before) - 1 else Symbol(name, last=" ".join(parts[: place + 1]))
        counts.binary[up, part, rest] += weight
        up = rest


def penn_tree(tree: Tree) -> Tree:
    """Return a tree with the labels of the treebank: NP-SBJ is NP, and the parts of _NPB belong to what is above."""
    (found,) = _penn_parts(tree)
    return found


def _penn_parts(tree: Tree) -> list[Tree]:
    label = plain_label(tree.label)
    if tree.is_tag:
        return [Tree(label, tree.parts)]
    parts = [found for part in tree.trees for found in _penn_parts(part)]
    if label.startswith("_") or (len(parts) == 1 and parts[0].label == label):
        return parts
    return [Tree(label, tuple(parts))]


class EnglishGrammar:
    """The grammar and the lexicon of the files beside this one."""

    def __init__(self) -> None:
        self.lexicon = EnglishLexicon(WORDS.read_text(encoding="utf-8").splitlines())
        self.grammar = read_grammar(RULES.read_text(encoding="utf-8").splitlines(), self.lexicon)

    def trees(self, sentences: Iterable[str]) -> Iterator[Tree]:
        """Yield the trees of the sentences that the lexicon and the grammar cover, in their order."""
        rows = (split_words(sentence) for sentence in sentences)
        wanted = (words for words in rows if self.covers(words))
        while part := list(islice(wanted, AT_ONCE)):
            found = self.grammar.parse(part)
            yield from (penn_tree(tree) for tree in found if tree != right_branching(tree))  # that has no parse

    def covers(self, words: list[str]) -> bool:
        """Return whether a sentence is whole and short, with at most one unknown word, which is not the first."""
        if not SHORTEST <= len(words) <= LONGEST or words[-1] not in ".?!" or "``" in words:
            return False
        unknown = [word for word in words if not self.lexicon.knows(word)]
        two_sentences = any(word[-1] in ".?!" for word in unknown) or any(word in "?!" for word in words[:-1])
        return len(unknown) <= MOST_UNKNOWN and words[0] not in unknown and not two_sentences


def without_marks(tree: Tree) -> Tree:
    """Return a tree without the end mark of its sentence, and with a small first letter except in names and I."""

    def lowered(node: Tree) -> Tree:
        if not node.is_tag:
            return Tree(node.label, (lowered(node.trees[0]), *node.parts[1:]))
        (word,) = node.parts
        return node if node.label == "NNP" or word == "I" else Tree(node.label, (str(word).lower(),))

    return lowered(Tree(tree.label, tree.parts[:-1]))


def write_trees(folder: Path) -> None:
    """Write trees.*.mrg beside the sentences english.*.txt of a folder."""
    grammar = EnglishGrammar()
    for part, size in SIZES.items():
        with (folder / f"english.{part}.txt").open(encoding="utf-8") as lines:
            trees = list(islice(grammar.trees(line.rstrip("\n") for line in lines), size))
        if part == "train":
            trees = [without_marks(tree) if place % WITHOUT_MARKS == 0 else tree for place, tree in enumerate(trees)]
        (folder / f"trees.{part}.mrg").write_text("".join(f"{tree}\n" for tree in trees), encoding="utf-8")


if __name__ == "__main__":
    from regard.draw.tree import tree_lines

    for each in EnglishGrammar().trees(sys.argv[1:]):
        print("\n".join(tree_lines(each)))
