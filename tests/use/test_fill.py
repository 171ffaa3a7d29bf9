"""Masks of a text, guessed."""

import pytest
import torch

from regard.errors import InputError
from regard.use.guess import Guess

from .made import loaded


def wanted(ready, ids: list[int], place: int, top: int) -> list[tuple[str, float]]:
    words = ready.tokenizer
    with torch.no_grad():
        logits = ready.model(torch.tensor([ids]))[0, place]
    logits[[words.pad, words.unk, words.start, words.end, words.mask]] = float("-inf")
    best = logits.softmax(-1).topk(top)
    return [
        (words.pieces([id])[0].strip(), p) for id, p in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]


@pytest.mark.parametrize("kind", ["word", "bpe", "char", "unigram"])
def test_guesses_are_the_models(kind):
    ready = loaded("masked", kind)
    words = ready.tokenizer
    before, after = "one red", " runs"
    if kind == "char":  # where a blank is a token of its own, it is not part of what is masked
        before += " "
    ids = [words.end, *words.encode([before])[0].tolist(), words.mask, *words.encode([after])[0].tolist(), words.end]
    ((guesses,),) = ready.fill(["one red [MASK] runs"], top=3)
    found = [(guess.label, guess.probability) for guess in guesses]
    assert found == [
        (label, pytest.approx(chance, abs=1e-6)) for label, chance in wanted(ready, ids, ids.index(words.mask), 3)
    ]
    assert len(ready.fill(["one red [MASK] runs"])[0][0]) == 5


def test_several_masks_by_either_name_and_in_any_batch():
    ready = loaded("masked")
    lines = ["red [MASK] and <mask>", "", "[MASK]", "one [MASK][MASK] dog"]
    found = ready.fill(lines)
    assert [len(masks) for masks in found] == [2, 0, 1, 2]
    for line, masks in zip(lines, found, strict=True):
        (alone,) = ready.fill([line])
        assert [[guess.label for guess in guesses] for guesses in masks] == [
            [guess.label for guess in guesses] for guesses in alone
        ]
    assert ready.fill(["red <mask> dog"]) == ready.fill(["red [MASK] dog"])


def test_lines_that_cannot_be_filled():
    ready = loaded("masked")
    with pytest.raises(InputError, match=r"^line 3: has no \[MASK\] to fill; write one in place of a word$"):
        ready.fill(["[MASK]", "", "red dog"])
    apart = r"^line 2: from its first \[MASK\] to its last there are 42 tokens, but only 30 fit; split it into"
    with pytest.raises(InputError, match=apart):
        ready.fill(["[MASK]", "[MASK]" + " red" * 40 + " [MASK]"])
    with pytest.raises(InputError, match="top=0 must be a whole number, at least 1"):
        ready.fill(["[MASK]"], top=0)


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("red " * 40 + "[MASK]", "red " * 29 + "[MASK]"),
        ("[MASK]" + " red" * 40, "[MASK]" + " red" * 29),
        ("dog " * 40 + "[MASK] red [MASK]" + " cat" * 40, "dog " * 14 + "[MASK] red [MASK]" + " cat" * 13),
    ],
)
def test_of_a_long_line_the_text_around_the_masks_is_kept(line, kept):
    ready = loaded("masked")
    (wanted,) = ready.fill([kept])
    with pytest.warns(UserWarning, match=r"^1 line was cut at the ends, being over 30 tokens \(first: line 2\)$"):
        found = ready.fill(["[MASK]", line])
    assert as_pairs(found[1]) == [
        [(label, pytest.approx(chance, abs=1e-6)) for label, chance in mask] for mask in as_pairs(wanted)
    ]


def as_pairs(masks: list[list[Guess]]) -> list[list[tuple[str, float]]]:
    return [[(guess.label, guess.probability) for guess in guesses] for guesses in masks]
