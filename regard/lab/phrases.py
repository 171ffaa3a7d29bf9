"""Generated English sentences with their French translations, from a small grammar in which every word has one source.

A sentence is a chain of clauses such as "the black cat sees a small house". Most French adjectives follow their noun
("le chat noir"), a few precede it ("une petite maison"), and determiners and adjectives agree with the noun's gender;
so a translator must reorder and look at several words, but can be right about every word.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

DETERMINERS = {"the": ("le", "la"), "a": ("un", "une"), "my": ("mon", "ma"), "this": ("ce", "cette")}
MASCULINE = {
    "cat": "chat",
    "dog": "chien",
    "book": "livre",
    "boy": "garçon",
    "truck": "camion",
    "bread": "pain",
    "king": "roi",
}
FEMININE = {
    "house": "maison",
    "table": "table",
    "girl": "fille",
    "flower": "fleur",
    "door": "porte",
    "lamp": "lampe",
    "queen": "reine",
}
AFTER = {
    "black": ("noir", "noire"),
    "white": ("blanc", "blanche"),
    "green": ("vert", "verte"),
    "red": ("rouge", "rouge"),
    "heavy": ("lourd", "lourde"),
    "round": ("rond", "ronde"),
}
BEFORE = {"small": ("petit", "petite"), "big": ("grand", "grande"), "good": ("bon", "bonne")}
VERBS = {
    "sees": "voit",
    "wants": "veut",
    "finds": "trouve",
    "sells": "vend",
    "paints": "peint",
    "hides": "cache",
    "takes": "prend",
}
LINKS = {"and": "et", "but": "mais", "because": "car"}


@dataclass(frozen=True)
class PhrasePair:
    """A sentence and its translation, as words, and the pairs of places (English, French) that belong together."""

    english: tuple[str, ...]
    french: tuple[str, ...]
    links: tuple[tuple[int, int], ...]


def make_phrases(clauses: int, random: Random) -> PhrasePair:
    """Generate a sentence of this many clauses."""
    pairs: list[list[tuple[str, str]]] = []  # of each phrase, in English order
    for clause in range(clauses):
        if clause:
            pairs.append([random.choice(list(LINKS.items()))])
        pairs += [_noun_phrase(random), [random.choice(list(VERBS.items()))], _noun_phrase(random)]
    english: list[str] = []
    french: list[str] = []
    links: list[tuple[int, int]] = []
    for phrase in pairs:
        order = list(range(len(phrase)))
        if len(phrase) == 3 and phrase[1][0] in AFTER:  # determiner, adjective, noun
            order = [0, 2, 1]
        links += [(len(english) + place, len(french) + order.index(place)) for place in range(len(phrase))]
        english += [word for word, _ in phrase]
        french += [phrase[place][1] for place in order]
    return PhrasePair(tuple(english), tuple(french), tuple(links))


def _noun_phrase(random: Random) -> list[tuple[str, str]]:
    """Return a determiner, perhaps an adjective, and a noun with their translations, in English order."""
    gender = random.randrange(2)
    determiner, forms = random.choice(list(DETERMINERS.items()))
    noun = random.choice(list((MASCULINE, FEMININE)[gender].items()))
    if random.random() < 0.4:
        return [(determiner, forms[gender]), noun]
    adjective, agreed = random.choice(list({**AFTER, **BEFORE}.items()))
    return [(determiner, forms[gender]), (adjective, agreed[gender]), noun]


def phrase_lines(pairs: Sequence[PhrasePair]) -> tuple[str, str]:
    """Return the contents of a source and a target file."""
    english = "".join(" ".join(pair.english) + "\n" for pair in pairs)
    return english, "".join(" ".join(pair.french) + "\n" for pair in pairs)
