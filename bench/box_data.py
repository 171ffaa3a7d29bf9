"""Data for the models in the box that is derived from other data: sentences, topics, and chains of proteins.

`english.*.txt` are the English sides of both Tatoeba sets without duplicates. A sentence of a validation or test part
is in no training file, whatever its case and punctuation. `topics.*.tsv` are those sentences that contain keywords of
exactly one topic (topics.tsv), and some without any, so their labels were not made by people. `proteins.*.tsv` are the
chains of `regard data structures` with their secondary structure; related chains are in the same part.
"""

import json
import re
from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path

from regard.data.proteins import fold_of
from regard.tasks.proteins import related_groups

PARTS = ("train", "val", "test")
OTHER, KEPT_WITHOUT = "other", 5  # the label of sentences without keywords, and how many there are to one that is kept
KEYWORDS = Path(__file__).with_name("topics.tsv")  # a topic and its keywords in each line
STATES = str.maketrans("abc", "HE_")  # helix, strand and coil, as P-SEA and as DSSP write them
FOLDS = ("test", "val", "train", "train")  # the part of each fold of the chains without a relative
RELATED = 0.04  # the share of common words of four residues from which two chains are related


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


def write_chains(structures: Path, folder: Path) -> None:
    """Write proteins.*.tsv into `folder` from the file of `regard data structures`.

    States are those that P-SEA (Labesse et al. 1997) finds from C-alpha atoms: a helix, b strand, c coil. Chains with
    relatives are trained on, so that each chain that is held back counts once, and has no relative on another side.
    """
    chains = [json.loads(line) for line in structures.read_text(encoding="utf-8").splitlines()]
    sequences = [chain["seq"] for chain in chains]
    groups = related_groups(sequences, RELATED).tolist()
    rows: dict[str, list[str]] = {part: ["id\tsequence\tstructure"] for part in PARTS}
    for chain, group in zip(chains, groups, strict=True):
        alone = groups.count(group) == 1
        part = FOLDS[fold_of(chain["seq"], len(FOLDS)) - 1] if alone else "train"
        cells = (f"{chain['id']}{chain['chain']}", chain["seq"], chain["sse_psea"].translate(STATES))
        rows[part].append("\t".join(cells))
    for part, lines in rows.items():
        (folder / f"proteins.{part}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
