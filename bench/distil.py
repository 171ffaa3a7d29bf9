"""Translations by a large model, from which the small translator in the box learns beside those of people.

Sequence-level distillation (Kim, Rush 2016): a small model learns more easily from the translations that a large one
finds by beam search, since they vary less than those of people. Here the large model (teacher.toml) also translates the
English sentences of the German set of Tatoeba, which have no French translation there; learning from them is
self-training (He et al. 2020). No sentence of a validation or test part is among them, whatever its case and
punctuation (bench/box_data.py).

    python -m bench.distil RUN --sentences data/box/english.train.txt --to data/box/distilled      write .en and .fr
"""

import argparse
from pathlib import Path

import regard
from regard.atomic import write_text

TEACHER = Path(__file__).with_name("teacher.toml")
SENTENCES, DISTILLED = Path("data/box/english.train.txt"), Path("data/box/distilled")
AT_ONCE = 20_000  # sentences between two reports


def write_distilled(run: Path, sentences: Path = SENTENCES, to: Path = DISTILLED) -> None:
    """Write the sentences to `to`.en, and their translations by the model of a run to `to`.fr."""
    teacher, english = regard.load(run), sentences.read_text(encoding="utf-8").splitlines()
    french: list[str] = []
    for start in range(0, len(english), AT_ONCE):
        french += teacher.translate(english[start : start + AT_ONCE])
        print(f"{len(french):,} of {len(english):,} sentences translated", flush=True)
    for suffix, lines in ((".en", english), (".fr", french)):
        write_text(to.with_suffix(suffix), "".join(f"{line}\n" for line in lines))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Translate sentences for the translator in the box to learn from.")
    parser.add_argument("run", type=Path, help="the run of the large model")
    parser.add_argument("--sentences", type=Path, default=SENTENCES)
    parser.add_argument("--to", type=Path, default=DISTILLED, help="name without ending")
    given = parser.parse_args()
    write_distilled(given.run, given.sentences, given.to)
