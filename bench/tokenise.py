"""Tokenising: ours, including the conversion to arrays, against `encode_batch` of the `tokenizers` library alone.

The text is made up: words of random letters, whose frequencies follow Zipf's law. Run it by itself with
`python -m bench.tokenise`.
"""

import random
from itertools import accumulate

from tokenizers import Tokenizer as Library

from bench.timing import Row, milliseconds, show
from regard.data.tokenizer import TokenizerConfig, train_tokenizer

KINDS = ("char", "byte", "word", "bpe", "unigram")
GOAL = 1 / 0.9
VARIED_GOAL = 3.0  # BPE-dropout from a seed, against the library's own, which has none


def made_up(texts: int, words: int = 25, seed: int = 0) -> list[str]:
    """Make texts of made-up words."""
    rng = random.Random(seed)
    letters = "etaoinsrhldcumfpgwybvkxjqzäé"
    weights = [1 / rank for rank in range(1, len(letters) + 1)]
    known = ["".join(rng.choices(letters, weights, k=rng.randint(1, 9))) for _ in range(20_000)]
    frequent = list(accumulate(1 / rank for rank in range(1, len(known) + 1)))
    return [" ".join(rng.choices(known, cum_weights=frequent, k=words)) + "." for _ in range(texts)]


def rows() -> list[Row]:
    texts = made_up(5000)
    size = sum(len(text.encode()) for text in texts) / 1e6
    result = []
    for kind in KINDS:
        tokenizer = train_tokenizer(texts, TokenizerConfig(kind=kind))
        library = Library.from_str(tokenizer._backend.to_str())
        calls = {
            "ours": lambda tokenizer=tokenizer: tokenizer.encode(texts),
            "theirs": lambda library=library: library.encode_batch(texts, add_special_tokens=False),
        }
        times = milliseconds(calls, "cpu", repeats=9)
        result.append(Row("tokenise", f"{kind}, {size:.1f} MB", "encode_batch", times["ours"], times["theirs"], GOAL))
    tokenizer = train_tokenizer(texts, TokenizerConfig(kind="bpe", dropout=0.1))
    library = Library.from_str(tokenizer._plain.to_str())
    library.model.dropout = 0.1
    calls = {
        "ours": lambda: tokenizer.encode_varied(texts, [0]),
        "theirs": lambda: library.encode_batch(texts, add_special_tokens=False),
    }
    times = milliseconds(calls, "cpu", repeats=9)
    case = f"bpe with dropout, {size:.1f} MB"
    return [*result, Row("tokenise", case, "encode_batch", times["ours"], times["theirs"], VARIED_GOAL)]


if __name__ == "__main__":
    show(rows())
