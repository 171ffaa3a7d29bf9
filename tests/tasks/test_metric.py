"""Metrics against counts by hand, and the direction in which each is better."""

from collections import Counter
from math import exp, inf, isnan, log, nan

import numpy as np
import pytest
import sacrebleu
from hypothesis import assume, given
from hypothesis import strategies as st

from regard.data.trees import parse_tree
from regard.errors import ConfigError, InputError
from regard.tasks.bracketing import bracketing_scores
from regard.tasks.distances import contact_precision
from regard.tasks.metric import (
    HIGHER_IS_BETTER,
    TranslationScorer,
    better,
    bleu,
    bleu_tokenizer,
    classification_scores,
    join_tokens,
    perplexities,
    tokenised_scores,
    translation_scores,
    translation_signatures,
)
from regard.tasks.residues import state_scores

MADE = ["The cat sat on a red mat", "two dogs run through the tall grass"]
WANTED = ["the cat sat on the red mat", "two dogs run through tall grass"]


def bleu_by_hand(made: list[str], wanted: list[str]) -> float:
    """100 BP (p_1 p_2 p_3 p_4)^(1/4), for words without punctuation."""
    precision = 1.0
    for n in range(1, 5):
        hits, all_made = 0, 0
        for a, b in zip(made, wanted, strict=True):
            found, there = (
                Counter(zip(*(words[i:] for i in range(n)), strict=False)) for words in (a.split(), b.split())
            )
            hits += sum((found & there).values())
            all_made += sum(found.values())
        precision *= hits / all_made
    made_words, wanted_words = (sum(len(text.split()) for text in texts) for texts in (made, wanted))
    return 100 * min(1.0, exp(1 - wanted_words / made_words)) * precision**0.25


def lower(texts: list[str]) -> list[str]:
    return [text.lower() for text in texts]


@pytest.mark.parametrize("made", [MADE, [MADE[0], "two dogs run through"]], ids=["longer", "shorter"])
def test_bleu_is_counted_by_hand_cased_and_lowercased(made: list[str]) -> None:
    scores = translation_scores(made, WANTED)
    assert scores["bleu"] == pytest.approx(bleu_by_hand(made, WANTED))
    assert scores["bleu_lowercase"] == pytest.approx(bleu_by_hand(lower(made), lower(WANTED)))
    assert scores["bleu"] < scores["bleu_lowercase"] < 100


def test_chrf_is_counted_by_hand() -> None:
    """Of "ab" against "abb": 2/2 and 2/3 of the letters, 1/1 and 1/2 of the pairs; F with beta = 2 of the means."""
    precision, recall = (2 / 2 + 1 / 1) / 2, (2 / 3 + 1 / 2) / 2
    wanted = 100 * 5 * precision * recall / (4 * precision + recall)
    assert translation_scores(["ab"], ["abb"])["chrf"] == pytest.approx(wanted)


def test_a_perfect_translation_has_a_hundred_of_everything() -> None:
    assert translation_scores(WANTED, WANTED) == pytest.approx({"bleu": 100, "bleu_lowercase": 100, "chrf": 100})


def test_scores_against_references_that_are_kept_are_the_same() -> None:
    scorer = TranslationScorer(WANTED)
    for made in (MADE, WANTED, MADE):
        assert scorer(made) == translation_scores(made, WANTED)


def test_an_empty_translation_has_nothing() -> None:
    assert translation_scores([""], ["the cat"]) == {"bleu": 0, "bleu_lowercase": 0, "chrf": 0}


def test_signatures_say_how_it_was_scored() -> None:
    signatures = translation_signatures(WANTED)
    assert signatures.keys() == translation_scores(MADE, WANTED).keys()
    assert signatures["bleu"].startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")
    assert signatures["bleu_lowercase"].startswith("nrefs:1|case:lc|eff:no|tok:13a|smooth:exp|version:")
    assert signatures["chrf"].startswith("nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:")


@pytest.mark.parametrize(
    ("tokenizer", "wanted", "made"),
    [
        ("zh", "我昨天在火车站遇到了一位老朋友。", "我昨天在火车站遇到一个老朋友。"),
        ("char", "昨日、駅で古い友だちに会いました。", "昨日、駅で昔の友だちに会いました。"),
        ("char", "เมื่อวานฉันพบเพื่อนเก่าที่สถานีรถไฟ", "เมื่อวานฉันพบเพื่อนที่สถานีรถไฟ"),
        ("13a", "我 昨天 在 火车站 遇到 了 一位 老 朋友 。", "我 昨天 在 火车站 遇到 一个 老 朋友 。"),
        ("13a", "어제 기차역에서 옛 친구를 만났어요.", "어제 기차역에서 옛날 친구를 만났어요."),
        ("13a", "Yesterday I met 老朋友 at the station.", "Yesterday I met an old friend there."),
    ],
)
def test_scripts_without_blanks_are_scored_by_characters(tokenizer: str, wanted: str, made: str) -> None:
    """A sentence would be one word otherwise, so that only perfect translations would count."""
    assert bleu_tokenizer([wanted]) == tokenizer
    score = sacrebleu.corpus_bleu([made], [[wanted]], tokenize=tokenizer, force=True).score
    assert bleu([made], [wanted]) == translation_scores([made], [wanted])["bleu"] == score
    if tokenizer != "13a":
        assert score > 40 > sacrebleu.corpus_bleu([made], [[wanted]], force=True).score
    assert f"tok:{tokenizer}|" in translation_signatures([wanted])["bleu"]


@pytest.mark.parametrize(("made", "wanted"), [(["a"], ["a", "b"]), ([], [])])
def test_every_translation_needs_its_reference(made: list[str], wanted: list[str]) -> None:
    message = f"^{len(made)} translations cannot be scored against {len(wanted)} references; give one for each$"
    with pytest.raises(InputError, match=message):
        translation_scores(made, wanted)


def test_perplexities_of_a_fair_coin() -> None:
    """Eight tokens of one bit each, over four words of two tokens and two bytes."""
    found = perplexities(8 * log(2), 8, 4, 16)
    assert found == pytest.approx({"perplexity": 2, "word_perplexity": 4, "bits_per_byte": 0.5})


def test_perplexity_too_large_for_a_float_is_infinite() -> None:
    found = perplexities(1e6, 10, 1, 100)
    assert (found["perplexity"], found["word_perplexity"]) == (inf, inf)
    assert found["bits_per_byte"] == pytest.approx(1e4 / log(2))


def test_perplexity_per_nothing_is_not_a_number() -> None:
    assert all(isnan(value) for value in perplexities(0.0, 0, 0, 0).values())
    assert all(isnan(value) for value in perplexities(nan, 1, 1, 1).values())


def test_classification_by_hand() -> None:
    """a: 2 right, 2 predicted, 3 wanted; b: 1 right, 2 predicted, 2 wanted; c does not occur; d: predicted once."""
    predicted, wanted = np.array([0, 0, 1, 1, 3]), np.array([0, 0, 0, 1, 1])
    found = classification_scores(predicted, wanted, ["a", "b", "c", "d"])
    assert found == pytest.approx({"accuracy": 3 / 5, "f1": (4 / 5 + 2 / 4 + 0) / 3})


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1))
def test_f1_is_the_harmonic_mean_of_precision_and_recall(pairs: list[tuple[int, int]]) -> None:
    scores = []
    for kind in {kind for pair in pairs for kind in pair}:
        right = pairs.count((kind, kind))
        precision = right / max(1, sum(predicted == kind for predicted, _ in pairs))
        recall = right / max(1, sum(wanted == kind for _, wanted in pairs))
        scores.append(2 * precision * recall / (precision + recall) if right else 0)
    found = classification_scores(*np.array(pairs).T, ["a", "b", "c", "d"])
    assert found["f1"] == pytest.approx(sum(scores) / len(scores))
    assert found["accuracy"] == pytest.approx(sum(a == b for a, b in pairs) / len(pairs))


@pytest.mark.parametrize(("predicted", "wanted"), [([0, 1], [0]), ([], [])])
def test_every_prediction_needs_its_label(predicted: list[int], wanted: list[int]) -> None:
    message = f"^{len(predicted)} predictions cannot be scored against {len(wanted)} labels; give one for each$"
    with pytest.raises(InputError, match=message):
        classification_scores(np.array(predicted, int), np.array(wanted, int), ["a", "b"])


@pytest.mark.parametrize(
    ("predicted", "wanted", "message"),
    [
        (
            [0, 2],
            [0, 1],
            r"^prediction 2 is not one of the 2 classes \(0 to 1\); use a model that was trained",
        ),
        (
            [0, 1],
            [-1, 1],
            r"^label -1 is not one of the 2 classes \(0 to 1\); use a model that was trained",
        ),
    ],
)
def test_a_class_must_exist(predicted: list[int], wanted: list[int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        classification_scores(np.array(predicted), np.array(wanted), ["a", "b"])


def test_every_score_has_a_direction() -> None:
    made = {*translation_scores(["a"], ["a"]), *tokenised_scores(["a"], ["a"]), *perplexities(1.0, 1, 1, 1), "loss"}
    made |= {*classification_scores(np.array([0]), np.array([0]), ["a"])}
    tree, square = parse_tree("(S (NN a))"), np.zeros((1, 1), np.float32)
    made |= {*bracketing_scores([tree], [tree]), *contact_precision(square, square)}
    made |= {*state_scores(np.eye(8, dtype=np.float32)[:1], np.array([0]))}
    made |= {"ade", "fde", "ade_likely", "fde_likely", "cached_perplexity", "cached_word_perplexity"}
    assert made == HIGHER_IS_BETTER.keys()


@pytest.mark.parametrize("metric", ["bleu", "bleu_lowercase", "chrf", "accuracy", "f1"])
@given(low=st.floats(allow_nan=False), high=st.floats(allow_nan=False))
def test_more_is_better(metric: str, low: float, high: float) -> None:
    assume(low < high)
    assert better(metric, high, low)
    assert not better(metric, low, high)
    assert not better(metric, low, low)


@pytest.mark.parametrize("metric", ["loss", "perplexity", "cached_perplexity", "bits_per_byte"])
@given(low=st.floats(allow_nan=False), high=st.floats(allow_nan=False))
def test_less_is_better(metric: str, low: float, high: float) -> None:
    assume(low < high)
    assert better(metric, low, high)
    assert not better(metric, high, low)
    assert not better(metric, low, low)


@pytest.mark.parametrize("metric", HIGHER_IS_BETTER)
def test_not_a_number_is_never_better_and_anything_is_better_than_nothing(metric: str) -> None:
    assert not any(better(metric, nan, old) for old in (None, nan, 1.0, inf, -inf))
    assert all(better(metric, new, old) for old in (None, nan) for new in (1.0, inf, -inf))


def test_an_unknown_metric_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"^unknown metric 'blue'; did you mean 'bleu'\? \(one of accuracy, "):
        better("blue", 1.0, None)


def test_tokens_are_joined_to_plain_text() -> None:
    tokens = "He said : &quot; It &apos;s 5 % ( of $ 9 ) , is n&apos;t it ? &quot; And"
    assert join_tokens(tokens) == "He said: \"It's 5% (of $9), isn't it?\" And"


def test_scores_of_tokenised_data_are_those_of_sacrebleu() -> None:
    made, wanted = ["the cat , sat on the mat ."], ["the cat sat , on the mat ."]
    found = tokenised_scores(made, wanted)
    assert found["bleu_tokenised"][0] == pytest.approx(sacrebleu.corpus_bleu(made, [wanted], tokenize="none").score)
    assert "tok:none" in found["bleu_tokenised"][1]
    plain = sacrebleu.corpus_bleu(["the cat, sat on the mat."], [["the cat sat, on the mat."]])
    assert found["bleu_detokenised"][0] == pytest.approx(plain.score)
    assert "tok:13a" in found["bleu_detokenised"][1]
