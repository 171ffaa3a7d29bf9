"""Metrics: BLEU (Papineni et al. 2002) and chrF (Popović 2015) by sacreBLEU (Post 2018), perplexity per token and per
word, bits per byte, accuracy and F1, and displacement errors of trajectories.
"""

from collections.abc import Sequence
from html import unescape
from math import exp, inf, isnan, log, nan
from re import findall, fullmatch
from typing import TYPE_CHECKING

import numpy as np

from regard.errors import ConfigError, InputError, choices

if TYPE_CHECKING:
    from jaxtyping import Float
    from sacrebleu.metrics.base import Metric
    from torch import Tensor

CONTACTS = tuple(f"precision_{top}_{apart}" for apart in (6, 12, 24) for top in ("l5", "l2", "l"))
HIGHER_IS_BETTER = {
    "bleu": True,
    "bleu_lowercase": True,
    "bleu_tokenised": True,
    "bleu_detokenised": True,
    "chrf": True,
    "accuracy": True,
    "f1": True,
    "bracket_f1": True,
    "bracket_precision": True,
    "bracket_recall": True,
    "exact_trees": True,
    "tag_accuracy": True,
    "q3": True,
    "q3_strict": True,
    "q8": True,
    **dict.fromkeys(CONTACTS, True),
    "loss": False,
    "perplexity": False,
    "word_perplexity": False,
    "bits_per_byte": False,
    "cached_perplexity": False,
    "cached_word_perplexity": False,
    "ade": False,
    "fde": False,
    "ade_likely": False,
    "fde_likely": False,
}

UP_TO_100 = ("bleu", "chrf", "bracket", "exact_trees", "tag_accuracy")  # beginnings of metrics; others end at 1

# Measured, but not put forward: perplexity per word says little about models of characters.
DETAILS = frozenset(
    {
        "bleu_lowercase",
        "word_perplexity",
        "cached_word_perplexity",
        "bracket_precision",
        "bracket_recall",
        "exact_trees",
    }
    | {*CONTACTS} - {"precision_l_6", "precision_l5_24"}
)


# Letters of scripts without blanks between words: Chinese; and Thai, Lao, Burmese, Khmer and the kana of Japanese.
HAN = r"[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]"
UNSPACED = r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff]"
LONG_WORD = 4  # letters: more than a word of these scripts has, fewer than a sentence


def bleu_tokenizer(references: Sequence[str]) -> str:
    """Name sacreBLEU's tokenizer for references: `13a` splits at blanks and punctuation, `zh` and `char` at characters.

    A sentence of a script without blanks would be a single word, which no translation matches. `zh` splits Chinese
    characters only, `char` all. Where such a text has blanks between its words, these count.
    """
    text = "\n".join(references[:10_000])
    chinese, others = (len(findall(script, text)) for script in (HAN, UNSPACED))
    unspaced = chinese + others
    if 2 * unspaced <= len(findall(r"\w", text)) or unspaced <= LONG_WORD * len(text.split()):
        return "13a"
    return "char" if others > 0.1 * unspaced else "zh"


def translation_scores(made: Sequence[str], wanted: Sequence[str]) -> dict[str, float]:
    """Score translations, as plain text, against one reference each; from 0 to 100."""
    _check_references(made, wanted)
    metrics = _translation_metrics(bleu_tokenizer(wanted))
    return {name: metric.corpus_score(made, [wanted]).score for name, metric in metrics.items()}


def bleu(made: Sequence[str], wanted: Sequence[str]) -> float:
    """Return only the BLEU of `translation_scores`, which takes a fraction of the time."""
    from sacrebleu.metrics.bleu import BLEU

    _check_references(made, wanted)
    return BLEU(force=True, tokenize=bleu_tokenizer(wanted)).corpus_score(list(made), [list(wanted)]).score


class TranslationScorer:
    """Computes `translation_scores` against the same references again and again, in half the time.

    What is counted in the references is kept, which takes far more memory than their text.
    """

    def __init__(self, wanted: Sequence[str]) -> None:
        self.wanted = list(wanted)
        self._metrics = _translation_metrics(bleu_tokenizer(self.wanted), [self.wanted])

    def __call__(self, made: Sequence[str]) -> dict[str, float]:
        """Score translations, as plain text, against their references."""
        _check_references(made, self.wanted)
        return {name: metric.corpus_score(made, None).score for name, metric in self._metrics.items()}


def _check_references(made: Sequence[str], wanted: Sequence[str]) -> None:
    if len(made) != len(wanted) or not made:
        raise InputError(
            f"{len(made)} translations cannot be scored against {len(wanted)} references; give one for each"
        )


def translation_signatures(wanted: Sequence[str]) -> dict[str, str]:
    """Return how each score of `translation_scores` is computed, in sacreBLEU's short form, to be quoted."""
    metrics = _translation_metrics(bleu_tokenizer(wanted), [[""]])
    return {name: metric.get_signature().format() for name, metric in metrics.items()}


def tokenised_scores(made: Sequence[str], wanted: Sequence[str]) -> dict[str, tuple[float, str]]:
    """Score translations of data that is tokenised already: BLEU of the tokens as they are, and of the joined text.

    Each score comes with its signature.
    """
    from sacrebleu.metrics.bleu import BLEU

    _check_references(made, wanted)
    texts = [[join_tokens(text) for text in side] for side in (made, wanted)]
    found = {}
    for name, tokenize, (ours, theirs) in (
        ("bleu_tokenised", "none", (made, wanted)),
        ("bleu_detokenised", "13a", texts),
    ):
        metric = BLEU(force=True, tokenize=tokenize)
        found[name] = metric.corpus_score(list(ours), [list(theirs)]).score, metric.get_signature().format()
    return found


def join_tokens(text: str) -> str:
    """Return the plain text of a tokenised line: entities as characters, and no blanks around punctuation."""
    words: list[str] = []
    joined, quoted = True, False  # whether the next word continues the last one; whether inside quotation marks
    for word in unescape(text).split():
        closes = word == '"' and quoted
        apart = not (joined or closes or fullmatch(r"[.,!?:;%)\]}…]+|'(s|m|d|re|ve|ll)?|n't", word))
        words.append(" " + word if apart else word)
        joined = word in ("(", "[", "{", "$") or (word == '"' and not quoted)
        quoted ^= word == '"'
    return "".join(words)


def perplexities(loss_sum: float, tokens: int, words: int, bytes_: int) -> dict[str, float]:
    """Return exp(L / tokens), exp(L / words) and L / (bytes ln 2), where L = -sum_t log p(x_t | x_<t) over one text.

    A word is what is between blanks, or the end of a line. This is the perplexity that is published for texts that are
    tokenised already (Penn Treebank, WikiText-2), where the end of a line is called <eos> and rare words are <unk>.
    Only the last two compare models with different tokenizers. A value too large for a float is inf; without words or
    bytes it is nan.
    """

    def per(unit: int) -> float:
        return loss_sum / unit if unit else nan

    return {
        "perplexity": perplexity_of(per(tokens)),
        "word_perplexity": perplexity_of(per(words)),
        "bits_per_byte": per(bytes_) / log(2),
    }


def perplexity_of(loss: float) -> float:
    """Return exp(loss), where `loss` is the mean of -log p; inf if it is too large for a float."""
    try:
        return exp(loss)
    except OverflowError:
        return inf


def classification_scores(predicted: np.ndarray, wanted: np.ndarray, classes: Sequence[str]) -> dict[str, float]:
    """Return the accuracy, and the mean of F1 = 2 right / (predicted + wanted) over the classes that occur."""
    if predicted.shape != wanted.shape or not predicted.size:
        raise InputError(
            f"{predicted.size} predictions cannot be scored against {wanted.size} labels; give one for each"
        )
    for side, ids in (("prediction", predicted), ("label", wanted)):
        if wrong := ids[(ids < 0) | (ids >= len(classes))].tolist():
            raise InputError(
                f"{side} {wrong[0]} is not one of the {len(classes)} classes (0 to {len(classes) - 1}); "
                f"use a model that was trained for this data"
            )
    right = np.bincount(wanted[predicted == wanted], minlength=len(classes))
    both = np.bincount(predicted, minlength=len(classes)) + np.bincount(wanted, minlength=len(classes))
    occurs = both > 0
    f1 = 2 * right[occurs] / both[occurs]
    return {"accuracy": float(right.sum() / wanted.size), "f1": float(f1.mean())}


def displacement_errors(
    paths: "Float[Tensor, '*agents futures F 2']", truth: "Float[Tensor, '*agents F 2']"
) -> "tuple[Float[Tensor, '*agents futures'], Float[Tensor, '*agents futures']]":
    """Return the average and the final displacement error of each future: mean_t |x_t - y_t| and |x_F - y_F|."""
    away = (paths - truth[..., None, :, :]).norm(dim=-1)
    return away.mean(-1), away[..., -1]


def check_metric(metric: str) -> None:
    """Raise an error if it is not known whether high values of a metric are good."""
    if metric not in HIGHER_IS_BETTER:
        raise ConfigError(f"unknown metric {metric!r}; {choices(metric, HIGHER_IS_BETTER)}")


def better(metric: str, new: float, old: float | None) -> bool:
    """Return whether a new value of the metric is better than the best so far, if there is one; NaN never is."""
    check_metric(metric)
    if isnan(new) or old is None or isnan(old):
        return not isnan(new)
    return new > old if HIGHER_IS_BETTER[metric] else new < old


def range_of(metric: str) -> tuple[float, float]:
    """Return the least and the largest value that a metric can have."""
    if HIGHER_IS_BETTER[metric]:
        return 0.0, 100.0 if metric.startswith(UP_TO_100) else 1.0
    return 1.0 if "perplexity" in metric else 0.0, inf


def is_perfect(metric: str, score: float) -> bool:
    """Return whether no model can have a better score than this one."""
    least, largest = range_of(metric)
    return score == (largest if HIGHER_IS_BETTER[metric] else least)


def _translation_metrics(tokenize: str, references: Sequence[Sequence[str]] | None = None) -> "dict[str, Metric]":
    """Build sacreBLEU's metrics; with the references they know their signature before they score."""
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    # `force` only silences a warning about text that looks tokenized.
    return {
        "bleu": BLEU(force=True, tokenize=tokenize, references=references),
        "bleu_lowercase": BLEU(lowercase=True, force=True, tokenize=tokenize, references=references),
        "chrf": CHRF(references=references),
    }
