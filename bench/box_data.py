"""Data for the models in the box that is derived from Tatoeba: English sentences, and sentences labelled by topic.

`english.*.txt` are the English sides of both Tatoeba sets without duplicates. A sentence of a validation or test part
is in no training file, whatever its case and punctuation. `topics.*.tsv` are those sentences that contain keywords of
exactly one topic (topics.tsv), and some without any, so their labels were not made by people.
"""

import re
from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path

PARTS = ("train", "val", "test")
OTHER, KEPT_WITHOUT = "other", 5  # the label of sentences without keywords, and how many there are to one that is kept
KEYWORDS = Path(__file__).with_name("topics.tsv")  # a topic and its keywords in each line


def write_sentences(tatoeba: Path, folder: Path) -> None:
    """Write the derived files into `folder` from the files of `regard data tatoeba`."""
    folder.mkdir(parents=True, exist_ok=True)
    held_back: set[str] = set()
    for part in reversed(PARTS):  # what is in the test part is not validated on, and neither is trained on
        sentences = list(_sentences(tatoeba, part, held_back))
        held_back |= {_bare(sentence) for sentence in sentences}
        (folder / f"english.{part}.txt").write_text("".join(f"{one}\n" for one in sentences), encoding="utf-8")
        rows = (f"{label}\t{text}\n" for text, label in label_by_keywords(sentences))
        (folder / f"topics.{part}.tsv").write_text("label\ttext\n" + "".join(rows), encoding="utf-8")


def _sentences(tatoeba: Path, part: str, held_back: set[str]) -> Iterator[str]:
    """Yield the English sentences of a part, each once, in an order that does not depend on the files'."""
    names = (f"{pair}.{part}.en" for pair in ("de-en", "fr-en"))
    found = {line.strip() for name in names for line in (tatoeba / name).read_text(encoding="utf-8").splitlines()}
    ordered = sorted(found, key=lambda text: sha256(text.encode()).digest())
    return (text for text in ordered if "\t" not in text and _bare(text) and _bare(text) not in held_back)


def _bare(text: str) -> str:
    """Return a sentence without case and punctuation."""
    return " ".join(re.findall(r"\w+", text.lower()))


def label_by_keywords(sentences: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the sentences with keywords of exactly one topic, and the topic; every fifth of those without is OTHER."""
    rows = (line.split("\t") for line in KEYWORDS.read_text(encoding="utf-8").splitlines())
    topic_of = {word: topic for topic, words in rows for word in words.split()}
    without = 0
    for text in sentences:
        found = {topic_of[word] for word in _bare(text).split() if word in topic_of}
        if len(found) == 1:
            yield text, found.pop()
        elif not found:
            without += 1
            if without % KEPT_WITHOUT == 0:
                yield text, OTHER
