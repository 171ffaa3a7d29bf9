"""Parse the sentences of a text with a grammar, as training data for a parser: silver trees.

    python -m bench.silver_trees TEXT --trees train.mrg --out silver.mrg [--count 20000]

Vinyals et al. 2015 and Vaswani et al. 2017 trained their best parsers also on sentences that another parser had parsed.
Here that parser is the probabilistic grammar of the training trees (regard/tasks/grammar.py), and the text WikiText-2.
Sentences of 5 to 30 words without unknown words are used, the first of the text up to `--count`.
"""

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

from regard.atomic import write_text
from regard.data.lines import read_lines
from regard.data.read import Skipped
from regard.data.trees import read_trees, split_words

SHORTEST, LONGEST = 5, 30


def sentences(path: Path) -> Iterator[list[str]]:
    """Yield the sentences of WikiText as the Penn Treebank writes them."""
    for line in read_lines(path):
        if line.strip().startswith("="):
            continue
        text = re.sub(r" @([-,.])@ ", r"\1", line)
        text = re.sub(r"n 't\b", " n't", text).replace(" 't ", " n't ")
        for sentence in re.split(r"(?<= [.?!]) ", text):
            words = split_words(sentence.strip())
            if SHORTEST <= len(words) <= LONGEST and "<unk>" not in sentence and words[-1] in ".?!":
                yield words


def main() -> None:
    from itertools import islice

    import torch

    from regard.tasks.grammar import learn_grammar

    parser = argparse.ArgumentParser(description="Parse the sentences of a text with a grammar.")
    parser.add_argument("text", type=Path, help="the text, such as WikiText-2's train.txt")
    parser.add_argument("--trees", type=Path, required=True, help="the trees to learn the grammar from")
    parser.add_argument("--out", type=Path, required=True, help="the file for the trees")
    parser.add_argument("--count", type=int, default=20_000, help="how many sentences")
    options = parser.parse_args()
    grammar = learn_grammar(read_trees(options.trees, Skipped()))
    words = list(islice(sentences(options.text), options.count))
    trees = grammar.parse(words, "cuda" if torch.cuda.is_available() else "cpu")
    write_text(options.out, "".join(f"{tree}\n" for tree in trees))
    print(f"{len(trees):,} trees in {options.out}")


if __name__ == "__main__":
    main()
