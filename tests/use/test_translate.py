"""Translation of lines: each by itself, in order, in bounded memory."""

import warnings
from concurrent.futures import ThreadPoolExecutor
from gc import collect, get_objects
from math import inf, nan
from threading import Barrier

import numpy as np
import pytest
import torch

from regard.decode.align import cross_weights
from regard.decode.beam import beam_search, coverage
from regard.decode.engine import Given, eager, in_use
from regard.errors import ConfigError, InputError
from regard.models.template import Template
from regard.parts.watch import Record
from regard.use.batches import CHUNK
from regard.use.translate import SPARE, Candidate, TranslatedLine, TranslateOptions, join_parts

from ..tasks.corpora import sentences
from .made import answers, loaded, tokenizer_of

LINES = [*sentences(5, seed=3), "", "  ", "red", *sentences(2, seed=4, longest=12)]


@pytest.fixture(scope="module")
def translator():
    return loaded("translation")


def test_each_line_is_translated_as_if_it_were_alone(translator):
    alone = [translator.translate([line])[0] for line in LINES]
    assert translator.translate(LINES) == alone
    small = answers(translator.translate_lines(LINES, TranslateOptions(batch_tokens=60)))
    assert [one.text for one in small] == alone
    assert alone[5:7] == ["", ""]
    assert len(set(alone)) > 3


def test_it_is_the_search_over_the_text_with_its_special_tokens(translator):
    words = translator.tokenizer
    source = torch.tensor([[*words.encode(["red dog runs"])[0].tolist(), words.end]])
    with in_use(translator.model):
        ((best,),) = beam_search(
            eager(translator.model),
            Given(torch.tensor([[words.start]]), None, source),
            end=words.end,
            limits=[18],
            beam=5,
        )
    ((found,),) = (one.candidates for one in answers(translator.translate_lines(["red dog runs"])))
    assert (found.text, found.score) == (words.decode([best.ids])[0], pytest.approx(best.score))


def test_lines_are_read_as_they_are_asked_for(translator):
    read = 0

    def source():
        nonlocal read
        while True:
            read += 1
            yield ""

    found = answers(translator.translate_lines(source()))
    assert next(found) == TranslatedLine((Candidate("", 0.0),))
    assert read == CHUNK


def test_n_best(translator):
    found = list(answers(translator.translate_lines(LINES, TranslateOptions(beam=4, n_best=3))))
    for line, one in zip(LINES, found, strict=True):
        scores = [candidate.score for candidate in one.candidates]
        assert scores == sorted(scores, reverse=True)
        assert len(scores) == (3 if line.strip() else 1)
    assert [one.text for one in found] == translator.translate(LINES, beam=4)


def test_a_translation_is_made_to_begin(translator):
    made = translator.translate(["two cats", "dog"], prefix="blue dog")
    assert all(text.startswith("blue dog") for text in made)
    assert not any(text.startswith("blue dog") for text in translator.translate(["two cats", "dog"]))


def test_the_limit_is_that_of_each_source():
    words = tokenizer_of("char")
    translator = loaded("translation", "char", template=Template((), (words.end,), words.start, never=tuple(range(5))))
    made = translator.translate(["red", "red dog runs"], beam=1, longest_ratio=1.5)
    longest = [int(1.5 * (len(text) + 1)) + SPARE for text in ("red", "red dog runs")]
    assert [len(text) for text in made] == longest
    assert len(translator.translate(["red"], beam=1)[0]) == 8 + SPARE


def test_coverage_ranks_again(translator):
    beam = TranslateOptions(beam=5, n_best=5)
    (plain,) = answers(translator.translate_lines(["one red dog sleeps"], beam))
    (ranked,) = answers(
        translator.translate_lines(["one red dog sleeps"], TranslateOptions(beam=5, n_best=5, coverage=3.0))
    )
    words = translator.tokenizer
    source = torch.tensor([[*words.encode(["one red dog sleeps"])[0].tolist(), words.end]])

    def score(candidate: Candidate) -> float:
        ids = words.encode([candidate.text])[0].tolist()
        (weights,) = cross_weights(translator.model, source, None, words.start, [ids])
        return candidate.score + 3.0 * coverage(weights)

    wanted = sorted(((score(one), one.text) for one in plain.candidates), reverse=True)
    assert [(one.score, one.text) for one in ranked.candidates] == [
        (pytest.approx(score), text) for score, text in wanted
    ]
    (best,) = answers(translator.translate_lines(["one red dog sleeps"], TranslateOptions(beam=5, coverage=3.0)))
    assert best.candidates == ranked.candidates[:1]


def test_a_long_line_is_cut_with_a_warning():
    translator = loaded("translation", longest=6)
    line = "one red dog runs two blue cats sleep"
    counted = r"^1 line was cut at the end, being over 5 tokens \(first: line 2\)"
    with pytest.warns(UserWarning, match=f'{counted}; long="split" \\(--long split\\) keeps all of it$'):
        made = translator.translate(["red", line])
    assert made == translator.translate(["red", "one red dog runs two"])


def test_ways_to_treat_long_lines_are_checked():
    with pytest.raises(InputError, match=r"^long='splt' is unknown; did you mean 'split'"):
        loaded("translation").translate(["red"], long="splt")


def test_a_long_line_is_split():
    translator = loaded("translation", longest=6)
    line = "one red dog runs two blue cats sleep"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (made,) = translator.translate([line], long="split")
    assert made == " ".join(translator.translate(["one red dog runs", "two blue cats sleep"]))
    assert made != " ".join(translator.translate([line[:16]]))


def test_parts_are_joined_rank_by_rank():
    one = TranslatedLine((Candidate("a b", -1.0), Candidate("c", -2.0)), ((0, 0), (1, 1)))
    other = TranslatedLine((Candidate("d", -0.5), Candidate("e", -3.0), Candidate("f", -4.0)), ((2, 0),))
    assert join_parts([one, other]) == TranslatedLine(
        (Candidate("a b d", -1.5), Candidate("c e", -5.0)), ((0, 0), (1, 1), (2, 2))
    )
    assert join_parts([one]) is one
    assert join_parts([TranslatedLine((Candidate("a", 0.0),))] * 2).alignment is None


def test_alignments(translator):
    lines = ["one red dog", "", "two"]
    found = list(answers(translator.translate_lines(lines, TranslateOptions(alignments=True))))
    assert [one.text for one in found] == translator.translate(lines)
    words = translator.tokenizer
    source = torch.tensor([[*words.encode([lines[0]])[0].tolist(), words.end]])
    ids = words.encode([found[0].text])[0].tolist()
    (weights,) = cross_weights(translator.model, source, None, words.start, [ids])
    wanted = {(int(row[:3].argmax()), place) for place, row in enumerate(weights)}
    assert set(found[0].alignment) == wanted
    assert found[1].alignment == ()
    unasked = answers(translator.translate_lines(["red", ""]))
    assert [one.alignment for one in unasked] == [None, None]


def test_a_model_without_attention_aligns_nothing():
    plain = loaded("translation", "word", "rnn-seq2seq")
    assert len(plain.translate(["red dog", "two"])) == 2
    with pytest.raises(InputError, match="has no attention to its source"):
        list(answers(plain.translate_lines(["red"], TranslateOptions(alignments=True))))


def test_a_recurrent_translator_answers_alike_in_any_batch():
    translator = loaded("translation", "word", "rnn-attention")
    assert translator.translate(LINES) == [translator.translate([line])[0] for line in LINES]


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"beam": 0}, "beam=0 must be at least 1"),
        (
            {"beam": 2, "n_best": 3},
            "n_best=3 must be between 1 and beam=2; search with a wider beam",
        ),
        ({"longest_ratio": 0.0}, "longest_ratio=0.0 must be above 0 and at most 1000"),
        ({"longest_ratio": inf}, "longest_ratio=inf must be a finite number"),
        ({"longest_ratio": 1e308}, "longest_ratio=1e[+]308 must be above 0 and at most 1000"),
        ({"length_penalty": inf}, "length_penalty=inf must be a finite number"),
        ({"length_penalty": 1e308}, "length_penalty=1e[+]308 must be between 0 and 10"),
        ({"coverage": nan}, "coverage=nan must be a finite number"),
    ],
)
def test_options_that_cannot_be(changes, rule):
    with pytest.raises(ConfigError, match=f"{rule}$"):
        TranslateOptions(**changes)


def test_half_a_character_is_refused(translator):
    with pytest.raises(InputError, match="Unicode|character"):
        translator.translate([b"\xff".decode(errors="surrogateescape")])


def test_what_is_unknown_is_left_out(translator):
    assert tokenizer_of().encode(["xyz"])[0].tolist() == [translator.tokenizer.unk]
    assert isinstance(translator.translate(["xyz"])[0], str)
    assert np.isfinite(next(answers(translator.translate_lines(["xyz"]))).candidates[0].score)


def test_alignments_and_coverage_are_right_in_several_threads():
    """Each thread records its own calls of the one model, and nothing is recorded afterwards."""
    translator = loaded("translation")
    parts = [LINES[start::3] for start in range(3)]
    options = TranslateOptions(beam=2, alignments=True, coverage=0.5)
    alone = [list(translator.translate_lines(part, options)) for part in parts]
    start = Barrier(len(parts))

    def work(part: list[str]) -> list[tuple[str, TranslatedLine]]:
        start.wait()
        return [pair for _ in range(3) for pair in translator.translate_lines(part, options)]

    with ThreadPoolExecutor(len(parts)) as pool:
        assert list(pool.map(work, parts)) == [3 * found for found in alone]
    before = _records()
    translator.translate(LINES)
    assert _records() == before


def _records() -> int:
    collect()
    return sum(isinstance(each, Record) for each in get_objects())
