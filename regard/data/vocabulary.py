"""Vocabularies: how the tokens of a tokenizer are learned from text, as tokenizers of the `tokenizers` library.

Words, byte-level BPE (Sennrich et al. 2016; Radford et al. 2019), unigram pieces (Kudo 2018), and the two that need
no learning: characters and bytes. Special tokens come first, with the same ids in all.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers

from regard.errors import ConfigError, InputError, RegardError

SPECIAL = ("<pad>", "<unk>", "<s>", "</s>", "<mask>")
SAMPLE = 100_000_000  # bytes of text that a vocabulary is learned from
LONGEST = 100_000  # characters of a text that are sampled as one
COVERAGE = 0.9995  # of the text is spelled by the characters of a unigram vocabulary, as in sentencepiece
GOLDEN = (5**0.5 - 1) / 2
POINTS = 0x110000  # Unicode ends here


# --- nothing to learn ----------------------------------------------------------------------------------------------


def letter_tokens(letters: Sequence[str]) -> tokenizers.Tokenizer:
    """Make the tokenizer in which each letter is a token: BPE that never merges."""
    vocabulary = {name: id for id, name in enumerate([*SPECIAL, *letters])}
    backend = tokenizers.Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>"))
    backend.add_special_tokens(list(SPECIAL))
    backend.decoder = decoders.Fuse()
    return backend


def byte_tokens() -> tokenizers.Tokenizer:
    """Make the tokenizer in which each byte of UTF-8 is a token."""
    backend = letter_tokens(byte_letters())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    return backend


def byte_letters() -> list[str]:
    """Give the letter by which byte-level vocabularies write each byte: itself, or one from 256 on if invisible."""
    visible = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return [chr(byte if byte in visible else next(others)) for byte in range(256)]


# --- what the texts hold -------------------------------------------------------------------------------------------


def numbers(text: str, encoding: str = "utf-32-le", dtype: type[np.unsignedinteger[Any]] = np.uint32) -> np.ndarray:
    """Give the characters of a text as numbers, or in another encoding its bytes."""
    try:
        return np.frombuffer(text.encode(encoding), dtype=dtype)
    except UnicodeEncodeError:
        raise half_character() from None


def half_character() -> InputError:
    """Say that a text is no Unicode."""
    return InputError(r"a text holds half a character (a lone surrogate such as \ud800); remove or replace it")


def letters_of(texts: Iterable[str]) -> list[str]:
    """List every character of the texts, in the order of Unicode."""
    seen = np.zeros(POINTS, dtype=bool)
    for text in texts:
        seen[numbers(text)] = True
    if not seen.any():
        raise _empty()
    return [chr(point) for point in np.flatnonzero(seen)]


def sample(texts: Iterable[str], limit: int = SAMPLE) -> list[str]:
    """Take every text until they exceed `limit` bytes; then half of them, then a quarter, and so on.

    Text number i stays if the fraction of i times the golden ratio is below the part that is taken. This spreads the
    sample evenly over all texts, also where two kinds take turns (a sentence and its translation). A text of more than
    100 000 characters counts as several.
    """
    kept: list[tuple[float, str]] = []
    size, part = 0, 1.0
    for number, text in enumerate(_cut(texts)):
        place = number * GOLDEN % 1
        if place < part:
            kept.append((place, text))
            size += len(numbers(text, "utf-8", np.uint8))
        while size > limit and len(kept) > 1:
            part /= 2
            kept = [(place, text) for place, text in kept if place < part]
            size = sum(len(text.encode()) for _, text in kept)
    if not any(text.strip() for _, text in kept):
        raise _empty()
    return [text for _, text in kept]


def _cut(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        for start in range(0, len(text), LONGEST):
            yield text[start : start + LONGEST]


def _empty() -> RegardError:
    return RegardError("the text is empty, so no tokenizer can be learned from it; give files that hold text")


# --- learning ------------------------------------------------------------------------------------------------------


def learn_words(texts: list[str], vocabulary: int, progress: bool) -> tokenizers.Tokenizer:
    """Learn the most frequent words; whatever is neither letter nor blank is a word of its own."""
    backend = tokenizers.Tokenizer(models.WordLevel(unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    trainer = trainers.WordLevelTrainer(vocab_size=vocabulary, special_tokens=list(SPECIAL), show_progress=progress)
    backend.train_from_iterator(texts, trainer)
    return backend


def learn_bpe(texts: list[str], vocabulary: int, progress: bool) -> tokenizers.Tokenizer:
    """Learn to merge bytes, the most frequent pair first."""
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        min_frequency=2,  # what occurs once is no pattern
        special_tokens=list(SPECIAL),
        initial_alphabet=byte_letters(),
        show_progress=progress,
    )
    backend.train_from_iterator(texts, trainer)
    return backend


def learn_unigram(texts: list[str], vocabulary: int, progress: bool) -> tokenizers.Tokenizer:
    """Learn the pieces that make the text most probable."""
    backend = tokenizers.Tokenizer(models.Unigram())
    blanks = normalizers.Replace(Regex(" {2,}"), " ")
    backend.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC(), blanks])
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=vocabulary, special_tokens=list(SPECIAL), unk_token="<unk>", show_progress=progress
    )
    texts = [backend.normalizer.normalize_str(text) for text in texts]
    common = _common(texts)
    if len(common) + len(SPECIAL) > vocabulary:
        needed = f"the text has {len(common)} characters, and there are {len(SPECIAL)} special tokens"
        raise ConfigError(f"{vocabulary} is too small: {needed}; raise it, or use kind='bpe'", "vocabulary")
    keep = np.full(POINTS, ord(" "), dtype=np.uint32)
    keep[common] = common
    backend.train_from_iterator((keep[numbers(text)].tobytes().decode("utf-32-le") for text in texts), trainer)
    return _steadied(backend)


def _common(texts: list[str]) -> np.ndarray:
    """Find the characters that spell nearly all of the texts; the others are too rare to take room. A blank is one."""
    counts = np.zeros(POINTS, dtype=np.int64)
    for text in texts:
        np.add.at(counts, numbers(text), 1)
    order = np.argsort(-counts, kind="stable")
    before = np.cumsum(counts[order]) - counts[order]
    return np.union1d(order[before < COVERAGE * counts.sum()], ord(" "))


def _steadied(backend: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """Remove from the scores of a unigram model what differs from run to run.

    The trainer adds up in any order, hence the rounding; and it gives the letters that it had pruned the lowest score
    plus 0, 0.0001, 0.0002, ... in any order.
    """
    state = json.loads(backend.to_str())
    pieces = dict(state["model"]["vocab"][len(SPECIAL) :])
    lowest = min(pieces.values())
    nearly = lowest + 0.0001 * sum(len(piece) == 1 for piece in pieces)
    scores = {
        piece: round(lowest if len(piece) == 1 and score < nearly else score, 6) for piece, score in pieces.items()
    }
    ordered = sorted(scores.items(), key=lambda pair: (-pair[1], pair[0]))
    state["model"]["vocab"] = state["model"]["vocab"][: len(SPECIAL)] + ordered
    return tokenizers.Tokenizer.from_str(json.dumps(state))
