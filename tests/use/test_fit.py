"""Lines that are too long: cut and counted, or split at the end of a sentence where possible."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import InputError
from regard.use.fit import Fit, as_long, find_middle_break

from .made import tokenizer_of


def texts(fit: Fit, *lines: str) -> list[list[str]]:
    return [fit.tokenizer.decode([part.ids for part in parts]) for parts in fit(lines)]


def test_a_blank_line_has_no_part():
    fit = Fit(tokenizer_of("char"), 10)
    assert texts(fit, "red dog", "", "  ", "cat") == [["red dog"], [], [], ["cat"]]
    assert fit.report() == []


def test_a_long_line_is_cut_and_counted():
    fit = Fit(tokenizer_of("char"), 5)
    assert texts(fit, "cat", "red dog") == [["cat"], ["red d"]]
    what = "1 line was cut at the end, being over 5 tokens (first: line 2)"
    assert fit.report() == [what]
    assert fit.report("split it") == [f"{what}; split it"]
    fit(["dog", "three cats", "red dogs"])
    assert fit.report()[0].startswith("3 lines were cut at the end, being over 5 tokens (first: line 2)")


def test_a_prompt_loses_its_beginning():
    fit = Fit(tokenizer_of("char"), 5, side="beginning")
    assert texts(fit, "red dog") == [["d dog"]]
    assert fit.report() == ["1 line was cut at the beginning, being over 5 tokens (first: line 1)"]


def test_without_a_limit_nothing_is_cut():
    fit = Fit(tokenizer_of("char"), None)
    assert texts(fit, "red " * 1000) == [["red " * 1000]]


def test_splitting_prefers_the_ends_of_sentences():
    fit = Fit(tokenizer_of("byte"), 24, "split")
    assert texts(fit, "A dog runs. Two cats sleep, one dog runs.") == [
        ["A dog runs. ", "Two cats sleep, ", "one dog runs."]
    ]
    assert fit.report() == []
    parts = fit(["A dog runs. Two cats sleep, one dog runs."])[0]
    assert [part.words for part in parts] == [0, 3, 6]


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("One. Two and three. Four, five", "One. Two and three. "),
        ('He said "no!" She left', 'He said "no!" '),
        ("これは犬。あれは猫。", "これは犬。"),
        ("red cats, and dogs", "red cats, "),
        ("red cats and dogs", "red cats "),
        ("redcatsdogs", "redca"),
        ("Version 2.5 is out", "Version "),
    ],
)
def test_the_middle_of_a_text(text, first):
    assert text[: find_middle_break(text)] == first


@given(st.text("ab. ,é日!", max_size=80), st.integers(4, 20))
def test_a_split_line_loses_nothing_and_fits(text, limit):
    fit = Fit(tokenizer_of("byte"), limit, "split")
    (parts,) = fit([text])
    assert all(len(part.ids) <= limit for part in parts)
    assert "".join(part.text for part in parts) == (text if text.strip() else "")
    assert fit.cut == 0


def test_a_character_of_more_tokens_than_fit():
    (parts,) = Fit(tokenizer_of("byte"), 2, "split")(["日a"])
    assert [len(part.ids) for part in parts] == [2, 1]


def test_ways_to_treat_long_lines():
    assert as_long("split") == "split"
    with pytest.raises(InputError, match=r"unknown long='splt'; did you mean 'split'\?"):
        as_long("splt")
