"""Tokens as a person reads them: each by itself, and which of them are pieces of one word."""

from collections.abc import Sequence
from itertools import accumulate, groupby, pairwise
from typing import TypedDict

from regard.data.tokenizer import Tokenizer
from regard.errors import InputError
from regard.use.align import words_of
from regard.use.stream import BROKEN, CONTEXT


class Token(TypedDict):
    """A token of a manifest; those with the same `word` are pieces of one, and -1 is no word at all."""

    text: str
    id: int
    special: bool
    word: int


def describe_tokens(tokenizer: Tokenizer | None, ids: Sequence[int]) -> list[Token]:
    """Show ids as tokens; without a tokenizer, each is its number."""
    if tokenizer is None:
        return [Token(text=str(id), id=id, special=False, word=place) for place, id in enumerate(ids)]
    special = [is_special(tokenizer, id) for id in ids]
    kinds = ["special" if mark else "text" for mark in special]
    kinds = ["alone" if id in (tokenizer.unk, tokenizer.mask) else kind for id, kind in zip(ids, kinds, strict=True)]
    words: list[int] = []
    count = 0
    for kind, run in groupby(range(len(ids)), kinds.__getitem__):
        places = list(run)
        numbers = (
            number_words(added_texts(tokenizer, [ids[place] for place in places]))
            if kind == "text"
            else range(len(places))
        )
        words += [-1] * len(places) if kind == "special" else [count + number for number in numbers]
        count = max([count, *(word + 1 for word in words[-len(places) :])])
    texts = [token_text(tokenizer, id) for id in ids]
    rows = zip(texts, ids, special, words, strict=True)
    return [Token(text=text, id=id, special=mark, word=word) for text, id, mark, word in rows]


def is_special(tokenizer: Tokenizer, id: int) -> bool:
    """Tell whether a token stands for no text: what is masked or unknown does, unless one token is all of them."""
    if id in (tokenizer.pad, tokenizer.start, tokenizer.end):
        return True
    return id in tokenizer.specials and id not in (tokenizer.unk, tokenizer.mask)


def token_text(tokenizer: Tokenizer | None, id: int) -> str:
    """Show one token; models may have more tokens than their tokenizers."""
    if tokenizer is None:
        return str(id)
    try:
        return tokenizer.pieces([id])[0]
    except InputError:
        return f"<unused {id}>"


def added_texts(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    """Give what each token adds to the text of those before it; of a few before it, since more change nothing."""
    begins = [max(end - CONTEXT, 0) for end in range(len(ids))]
    known = [id if id < tokenizer.size else tokenizer.pad for id in ids]
    before = tokenizer.decode([known[begin:end] for end, begin in enumerate(begins)])
    after = tokenizer.decode([known[begin : end + 1] for end, begin in enumerate(begins)])
    return [new[len(old) :] for old, new in zip(before, after, strict=True)]


def number_words(texts: Sequence[str]) -> list[int]:
    """Number the words that texts in a row belong to, from 0.

    Words stand between blanks. Punctuation before and after a word is one of its own; a blank is, too.
    """
    spans = list(pairwise(accumulate(map(len, texts), initial=0)))
    between = words_of("".join(texts), spans)
    for place, text in enumerate(texts):
        if not text and place:  # the rest of a character
            between[place] = between[place - 1]
    numbers: list[int] = []
    for word, run in groupby(range(len(texts)), between.__getitem__):
        places = list(run)
        parts = [1] * len(places) if word is None else _parts([texts[place] for place in places])
        for size in parts:
            numbers += [numbers[-1] + 1 if numbers else 0] * size
    return numbers


def _parts(texts: Sequence[str]) -> list[int]:
    """Cut what stands between blanks into what comes before a word, the word, and what comes after: their sizes."""
    inside = [place for place, text in enumerate(texts) if not text or BROKEN in text or any(map(str.isalnum, text))]
    if not inside:
        return [len(texts)]
    begin, end = inside[0], inside[-1] + 1
    return [size for size in (begin, end - begin, len(texts) - end) if size]
