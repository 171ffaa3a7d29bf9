"""Lines that are too long: cut and counted, or split at the end of a sentence where possible."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import InputError
from regard.use.fit import Breaks, Fit, as_long

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
    assert text[: Breaks(text).nearest_to_middle(0, len(text))] == first


@given(st.text("ab. ,é日!", max_size=80), st.integers(4, 20))
def test_a_split_line_loses_only_blanks_and_fits(text, limit):
    fit = Fit(tokenizer_of("byte"), limit, "split")
    (parts,) = fit([text])
    assert all(len(part.ids) <= limit for part in parts)
    assert all(part.text.strip() for part in parts)
    assert "".join("".join(part.text for part in parts).split()) == "".join(text.split())
    assert fit.cut == 0


def test_blanks_alone_are_no_part():
    blanks = " " * 1000
    (parts,) = Fit(tokenizer_of("byte"), 8, "split")([f"red{blanks}dog{blanks}cat"])
    assert [part.text.strip() for part in parts] == ["red", "dog", "cat"]
    assert [part.words for part in parts] == [0, 1, 2]


def test_a_character_of_more_tokens_than_fit():
    (parts,) = Fit(tokenizer_of("byte"), 2, "split")(["日a"])
    assert [len(part.ids) for part in parts] == [2, 1]


def test_of_a_long_line_only_what_can_matter_is_encoded(monkeypatch):
    tokenizer = tokenizer_of("byte")
    seen: list[int] = []
    encode = tokenizer.encode
    monkeypatch.setattr(tokenizer, "encode", lambda texts: seen.extend(map(len, texts)) or encode(texts))
    line = "red dog, " * 100_000
    for side, kept in (("end", line[:5]), ("beginning", line[-5:])):
        ((part,),) = Fit(tokenizer, 5, side=side)([line])
        assert tokenizer.decode([part.ids]) == [kept]
    assert sum(seen) < 10_000


def test_a_long_text_of_few_tokens_is_not_cut():
    tokenizer = tokenizer_of("word")
    text = "red" + " " * 100_000 + "dog"
    fit = Fit(tokenizer, 5)
    assert [part.ids.tolist() for part in fit([text])[0]] == [tokenizer.encode(text).tolist()]
    assert fit.cut == 0


def test_splitting_takes_linear_time(monkeypatch):
    tokenizer = tokenizer_of("byte")
    seen: list[int] = []
    encode = tokenizer.encode

    def counted(texts, special=False):
        seen.append(sum(map(len, texts)))
        return encode(texts)

    monkeypatch.setattr(tokenizer, "encode", counted)
    for count in (1000, 8000):
        seen.clear()
        line = "A dog runs. " * count
        (parts,) = Fit(tokenizer, 24, "split")([line])
        assert "".join(part.text for part in parts) == line
        assert parts[-1].words == 3 * count - len(parts[-1].text.split())
        assert sum(seen) < 16 * len(line)  # encoding one text calls `encode` twice


def test_a_word_that_is_split_stays_one_word():
    line = "ab 日本語日本語日本語 cd"
    (parts,) = Fit(tokenizer_of("byte"), 9, "split")([line])
    assert [(part.text, part.words) for part in parts] == [
        ("ab ", 0),
        ("日本", 1),
        ("語日本", 1),
        ("語日", 1),
        ("本語 ", 1),
        ("cd", 2),
    ]


def test_ways_to_treat_long_lines():
    assert as_long("split") == "split"
    with pytest.raises(InputError, match=r"long='splt' is unknown; did you mean 'split'\?"):
        as_long("splt")
