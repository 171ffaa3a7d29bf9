"""Learn vocabularies from text, as tokenizers of the `tokenizers` library.

Words, words between blanks, byte-level BPE (Sennrich et al. 2016; Radford et al. 2019), unigram pieces (Kudo 2018), and
two that need no learning: characters and bytes. Special tokens come first, with the same ids in all.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from re import findall

import numpy as np
import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers

from regard.errors import ConfigError, InputError, RegardError

SPECIAL = ("<pad>", "<unk>", "<s>", "</s>", "<mask>")
SAMPLE = 100_000_000  # bytes of text that a vocabulary is learned from
LONGEST = 100_000  # characters; a longer text is sampled in parts
COVERAGE = 0.9995  # share of the text that the characters of a unigram vocabulary cover, as in sentencepiece
GOLDEN = (5**0.5 - 1) / 2
CODE_POINTS = 0x110000  # of Unicode


# --- nothing to learn ----------------------------------------------------------------------------------------------


def character_tokenizer(characters: Sequence[str]) -> tokenizers.Tokenizer:
    """Make a tokenizer in which each character is a token: BPE without merges."""
    vocabulary = {name: id for id, name in enumerate([*SPECIAL, *characters])}
    backend = tokenizers.Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>"))
    backend.add_special_tokens(list(SPECIAL))
    backend.decoder = decoders.Fuse()
    return backend


def byte_tokenizer() -> tokenizers.Tokenizer:
    """Make a tokenizer in which each byte of UTF-8 is a token."""
    backend = character_tokenizer(byte_characters())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    return backend


def byte_characters() -> list[str]:
    """List the character that byte-level vocabularies write for each byte: itself if visible, else one from 256 on."""
    visible = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return [chr(byte if byte in visible else next(others)) for byte in range(256)]


# --- the characters of texts ---------------------------------------------------------------------------------------


def code_points(text: str) -> np.ndarray:
    """Return the code points of a text, uint32."""
    return np.frombuffer(_encoded(text, "utf-32-le"), dtype=np.uint32)


def utf8_bytes(text: str) -> np.ndarray:
    """Return the bytes of a text in UTF-8, uint8."""
    return np.frombuffer(_encoded(text, "utf-8"), dtype=np.uint8)


def _encoded(text: str, encoding: str) -> bytes:
    try:
        return text.encode(encoding)
    except UnicodeEncodeError:
        raise surrogate_error() from None


def surrogate_error() -> InputError:
    """Return the error for a text that is not valid Unicode."""
    return InputError(r"a text holds half a character (a lone surrogate such as \ud800); remove or replace it")


def characters_of(texts: Iterable[str]) -> list[str]:
    """List every character of the texts, in Unicode order."""
    seen = np.zeros(CODE_POINTS, dtype=bool)
    for text in texts:
        seen[code_points(text)] = True
    if not seen.any():
        raise _empty()
    return [chr(point) for point in np.flatnonzero(seen)]


def sample_texts(texts: Iterable[str], limit: int = SAMPLE) -> list[str]:
    """Keep every text until they exceed `limit` bytes; then half of them, then a quarter, and so on.

    Text number i is kept if the fractional part of i times the golden ratio is below the share that is kept. This
    spreads the sample evenly over all texts, also where two kinds alternate (a sentence and its translation). A text of
    more than 100 000 characters is sampled in parts.
    """
    kept: list[tuple[float, str]] = []
    size, share = 0, 1.0
    for number, text in enumerate(_cut(texts)):
        place = number * GOLDEN % 1
        if place < share:
            kept.append((place, text))
            size += len(utf8_bytes(text))
        while size > limit and len(kept) > 1:
            share /= 2
            kept = [(place, text) for place, text in kept if place < share]
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
    """Learn the most frequent words; a run of punctuation is a word of its own."""
    backend = tokenizers.Tokenizer(models.WordLevel(unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    trainer = trainers.WordLevelTrainer(vocab_size=vocabulary, special_tokens=list(SPECIAL), show_progress=progress)
    backend.train_from_iterator(texts, trainer)
    return backend


def learn_spaced(texts: list[str], vocabulary: int, progress: bool) -> tokenizers.Tokenizer:
    """Learn the most frequent words between blanks, for a text that is tokenised already; the end of a line is a word.

    This is the vocabulary of word-level benchmarks (Penn Treebank, WikiText-2), which call the end of a line <eos>. A
    word <unk> of the text is the unknown word.
    """
    counts = Counter(word for text in texts for word in findall(r"\n|\S+", text))
    words = sorted(counts.keys() - set(SPECIAL), key=lambda word: (-counts[word], word))
    ids = {word: id for id, word in enumerate([*SPECIAL, *words][:vocabulary])}
    backend = tokenizers.Tokenizer(models.WordLevel(ids, unk_token="<unk>"))
    backend.add_special_tokens(list(SPECIAL))
    lines = pre_tokenizers.Split(Regex(r"\n"), "isolated")
    blanks = pre_tokenizers.Split(Regex(r"[^\S\n]+"), "removed")
    backend.pre_tokenizer = pre_tokenizers.Sequence([lines, blanks])
    return backend


def learn_bpe(texts: list[str], vocabulary: int, progress: bool) -> tokenizers.Tokenizer:
    """Learn byte-level BPE: merge the most frequent pair first."""
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        min_frequency=2,  # a pair that occurs once is not worth a merge
        special_tokens=list(SPECIAL),
        initial_alphabet=byte_characters(),
        show_progress=progress,
    )
    backend.train_from_iterator(texts, trainer)
    return backend


def learn_unigram(texts: list[str], vocabulary: int, progress: bool) -> tokenizers.Tokenizer:
    """Learn the unigram pieces that make the text most probable."""
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
    keep = np.full(CODE_POINTS, ord(" "), dtype=np.uint32)
    keep[common] = common
    backend.train_from_iterator((keep[code_points(text)].tobytes().decode("utf-32-le") for text in texts), trainer)
    return _made_reproducible(backend)


def _common(texts: list[str]) -> np.ndarray:
    """Find the characters that cover nearly all of the texts, and the space; others are too rare for a token."""
    counts = np.zeros(CODE_POINTS, dtype=np.int64)
    for text in texts:
        np.add.at(counts, code_points(text), 1)
    order = np.argsort(-counts, kind="stable")
    before = np.cumsum(counts[order]) - counts[order]
    return np.union1d(order[before < COVERAGE * counts.sum()], ord(" "))


def _made_reproducible(backend: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """Remove the differences between two runs from the scores of a unigram model.

    The trainer sums in no fixed order, so scores are rounded. The characters that it pruned and added again have the
    lowest score plus 0, 0.0001, 0.0002, ... in no fixed order, so they all get the lowest score.
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
