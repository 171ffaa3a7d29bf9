"""Tokens as the page shows them: the text of each, and which of them are pieces of one word."""

from collections.abc import Sequence
from itertools import accumulate, groupby, pairwise

from regard.data.tokenizer import Tokenizer
from regard.errors import InputError
from regard.use.align import words_of
from regard.use.stream import BROKEN, CONTEXT
from regard.viewer.manifest import Token


def describe_tokens(tokenizer: Tokenizer | None, ids: Sequence[int], has_words: bool = True) -> list[Token]:
    """Describe token ids; without a tokenizer, the text of a token is its id.

    Without words, as in a protein, every token is a word of its own.
    """
    if tokenizer is None:
        return [Token(text=str(id), id=id, special=False, word=index) for index, id in enumerate(ids)]
    special = [is_special(tokenizer, id) for id in ids]
    kinds = ["special" if mark else "text" for mark in special]
    kinds = ["alone" if id in (tokenizer.unk, tokenizer.mask) else kind for id, kind in zip(ids, kinds, strict=True)]
    words: list[int] = []
    count = 0
    for kind, run in groupby(range(len(ids)), kinds.__getitem__):
        indices = list(run)
        if kind == "text":
            texts = added_texts(tokenizer, [ids[index] for index in indices])
            words += [count + number for number in (number_words(texts) if has_words else range(len(texts)))]
        else:
            words += [-1] * len(indices) if kind == "special" else range(count, count + len(indices))
        count = max([count, *(word + 1 for word in words[-len(indices) :])])
    rows = zip(ids, special, words, strict=True)
    return [Token(text=token_text(tokenizer, id), id=id, special=mark, word=word) for id, mark, word in rows]


def step_tokens(agents: Sequence[str], present: Sequence[Sequence[bool]]) -> list[Token]:
    """Name the steps of agents: agent@step, counted from 1. The steps of an agent are pieces of one word.

    A step at which the agent is absent is special: nothing looks at it.
    """
    return [
        Token(text=f"{agent}@{step}", id=step, special=not seen, word=number if seen else -1)
        for number, (agent, steps) in enumerate(zip(agents, present, strict=True))
        for step, seen in enumerate(steps, 1)
    ]


def is_special(tokenizer: Tokenizer, id: int) -> bool:
    """Return whether a token is not part of the text; the mask and the unknown token are, unless they are padding."""
    if id in (tokenizer.pad, tokenizer.start, tokenizer.end):
        return True
    return id in tokenizer.specials and id not in (tokenizer.unk, tokenizer.mask)


def token_text(tokenizer: Tokenizer | None, id: int) -> str:
    """Return the text of one token; a model may have more tokens than its tokenizer."""
    if tokenizer is None:
        return str(id)
    try:
        return tokenizer.pieces([id])[0]
    except InputError:
        return f"<unused {id}>"


def added_texts(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    """Return what each token adds to the decoded text; a few tokens before it are enough context to decode it."""
    begins = [max(end - CONTEXT, 0) for end in range(len(ids))]
    known = [id if id < tokenizer.size else tokenizer.pad for id in ids]
    before = tokenizer.decode([known[begin:end] for end, begin in enumerate(begins)])
    after = tokenizer.decode([known[begin : end + 1] for end, begin in enumerate(begins)])
    return [new[len(old) :] for old, new in zip(before, after, strict=True)]


def number_words(texts: Sequence[str]) -> list[int]:
    """Number the words that consecutive token texts belong to, from 0.

    Words are separated by blanks. Punctuation before or after a word is a word of its own; so is a blank.
    """
    spans = list(pairwise(accumulate(map(len, texts), initial=0)))
    between = words_of("".join(texts), spans)
    for index, text in enumerate(texts):
        if not text and index:  # the rest of a character
            between[index] = between[index - 1]
    numbers: list[int] = []
    for word, run in groupby(range(len(texts)), between.__getitem__):
        indices = list(run)
        parts = [1] * len(indices) if word is None else _split_punctuation([texts[index] for index in indices])
        for size in parts:
            numbers += [numbers[-1] + 1 if numbers else 0] * size
    return numbers


def _split_punctuation(texts: Sequence[str]) -> list[int]:
    """Split the pieces between two blanks into punctuation, the word, and punctuation; return the number of pieces."""
    inside = [index for index, text in enumerate(texts) if not text or BROKEN in text or any(map(str.isalnum, text))]
    if not inside:
        return [len(texts)]
    begin, end = inside[0], inside[-1] + 1
    return [size for size in (begin, end - begin, len(texts) - end) if size]
