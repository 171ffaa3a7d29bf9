"""A translator in half a minute: pairs of sentences from a tiny grammar, and the commands that train and use it.

In German, the subject follows the verb, and the participle comes last: "gestern hat sie drei rote Hunde gesehen" is
"yesterday she saw three red dogs". The model is trained on one tenth of all sentences of the grammar; the sentences
translated at the end are not among them.
"""

import random
import shlex
import subprocess
import sys
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

TIMES = {"gestern": "yesterday", "heute": "today", "am Montag": "on Monday", "im Sommer": "in summer"}
PEOPLE = {"habe ich": "I", "hat sie": "she", "hat er": "he", "haben wir": "we", "hat Anna": "Anna"}
NUMBERS = {"zwei": "two", "drei": "three", "vier": "four", "fünf": "five", "sechs": "six", "sieben": "seven"}
KINDS = {"rote": "red", "grüne": "green", "kleine": "small", "schöne": "beautiful", "alte": "old"}
THINGS = {"Hunde": "dogs", "Katzen": "cats", "Häuser": "houses", "Bäume": "trees", "Bücher": "books"}
DEEDS = {"gesehen": "saw", "gekauft": "bought", "gezeichnet": "drew", "gefunden": "found", "verloren": "lost"}


def grammar() -> list[tuple[str, str]]:
    """Return every sentence of the grammar, in German and English."""
    return [
        (
            f"{time} {who} {number} {kind} {thing} {deed}",
            f"{TIMES[time]} {PEOPLE[who]} {DEEDS[deed]} {NUMBERS[number]} {KINDS[kind]} {THINGS[thing]}",
        )
        for time, who, number, kind, thing, deed in product(TIMES, PEOPLE, NUMBERS, KINDS, THINGS, DEEDS)
    ]


def regard(folder: Path, command: str) -> str:
    """Run a command in the folder, and return its output."""
    print(f"\n$ regard {command}", flush=True)
    arguments = [sys.executable, "-m", "regard", *shlex.split(command)]
    return subprocess.run(arguments, cwd=folder, check=True, stdout=subprocess.PIPE, text=True).stdout.rstrip()


def main(folder: Path) -> None:
    """Write the pairs, train, translate new sentences, and align their words."""
    sentences = grammar()
    random.Random(0).shuffle(sentences)
    known, new = sentences[: len(sentences) // 10], sentences[-300:]
    for name, pairs in (("train", known), ("test", new)):
        for side, language in enumerate(("de", "en")):
            text = "".join(f"{pair[side]}\n" for pair in pairs)
            (folder / f"{name}.{language}").write_text(text, encoding="utf-8")
    print(f"\nA translator from German, trained on {len(known):,} of {len(sentences):,} sentences of a tiny grammar")
    model = "tokenizer.kind=word model.dim=64 model.encoder.depth=2 model.decoder.depth=2"
    steps = "train.steps=150 train.tokens=1024 train.validate_every=150 train.average=0"
    trained = regard(folder, f"train translation --source train.de --target train.en --run run {model} {steps}")
    print(trained.splitlines()[-1])
    print(regard(folder, f'translate "{new[0][0]}" -m run'))
    print(regard(folder, f'translate "{new[1][0]}" -m run --n-best 2'))
    print(regard(folder, f'translate "{new[2][0]}" -m run --json --alignments words.txt'))
    print(regard(folder, "evaluate test.de test.en -m run"))


if __name__ == "__main__":
    with TemporaryDirectory() as temporary:
        main(Path(temporary))
