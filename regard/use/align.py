"""Word alignments: which words of a translation come from which words of the source, by cross-attention.

A token is aligned with the source token that it attends to most; a word with the words of its tokens' sources.
"""

from collections.abc import Sequence
from itertools import pairwise

from jaxtyping import Float
from torch import Tensor

from regard.data.tokenizer import Tokenizer
from regard.use.fit import Part

Alignment = tuple[tuple[int, int], ...]


def align_words(
    tokenizer: Tokenizer, part: Part, written: Sequence[int], text: str, weights: Float[Tensor, "T S"]
) -> Alignment:
    """Return pairs of words (between blanks, counted from 0) of a line and the translation of a part of it.

    The end token, which follows the tokens of the part, belongs to no word.
    """
    source = words_of(part.text, tokenizer.spans([part.text])[0][: len(part.ids)])
    target = words_of(text, _spans(tokenizer, written))
    attended = weights[: len(target), : len(source)].argmax(-1).tolist()
    pairs = {(source[place], word) for place, word in zip(attended, target, strict=True)}
    return tuple(sorted((one + part.words, other) for one, other in pairs if one is not None and other is not None))


def words_of(text: str, spans: Sequence[tuple[int, int]]) -> list[int | None]:
    """Return the number of the word in which each span of characters begins; None for a span of blanks."""
    number, inside, numbers = -1, False, []
    for letter in text:
        begins = not letter.isspace() and not inside
        inside = not letter.isspace()
        number += begins
        numbers.append(number if inside else None)
    return [next((word for word in numbers[begin:end] if word is not None), None) for begin, end in spans]


def _spans(tokenizer: Tokenizer, ids: Sequence[int]) -> list[tuple[int, int]]:
    """Return the span of characters that each id adds to the text."""
    ends = [len(text) for text in tokenizer.decode([ids[:count] for count in range(len(ids) + 1)])]
    return list(pairwise(ends))


def pharaoh(alignment: Alignment) -> str:
    """Return an alignment in Pharaoh format: `0-0 1-2`."""
    return " ".join(f"{source}-{target}" for source, target in alignment)
