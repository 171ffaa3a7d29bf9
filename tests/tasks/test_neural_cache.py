"""The neural cache: against its definition written out, and in what the language task measures."""

from math import exp, log, sqrt

import pytest
import torch
from torch import Tensor, nn

from regard.errors import ConfigError
from regard.tasks import neural_cache
from regard.tasks.language import Language
from regard.tasks.neural_cache import BEGIN, SHARPNESS, NeuralCache

from .corpora import model_for
from .test_language import ids, long_text, task_of


def naive_p(
    vectors: list[list[float]], own: list[list[float]], tokens: list[int], size: int, piece: int
) -> list[float]:
    """Return p of each token: loops over the definition; `own` are the distributions of the model."""
    credit, found = list(BEGIN), []
    shares = [value / sum(credit) for value in credit]
    for t, h in enumerate(vectors):
        parts = [own[t][tokens[t]]]
        for sharpness in SHARPNESS:
            weights = {}
            for i in range(max(t - size, 0), t):
                dot = sum(a * b for a, b in zip(h, vectors[i], strict=True))
                weights[i] = exp(sharpness * dot / sqrt(sum(a * a for a in h) * sum(b * b for b in vectors[i])))
            right = sum(weight for i, weight in weights.items() if tokens[i] == tokens[t])
            parts.append(right / sum(weights.values()) if weights else parts[0])
        p = sum(share * part for share, part in zip(shares, parts, strict=True))
        found.append(p)
        credit = [value + share * part / p for value, share, part in zip(credit, shares, parts, strict=True)]
        if (t + 1) % piece == 0:
            shares = [value / sum(credit) for value in credit]
    return found


def random_text(tokens: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Return vectors, distributions over four words, and the words that follow."""
    generator = torch.Generator().manual_seed(seed)
    vectors = torch.randn(tokens, 3, generator=generator, dtype=torch.float64)
    own = torch.randn(tokens, 4, generator=generator, dtype=torch.float64).softmax(-1)
    return vectors, own, torch.randint(4, (tokens,), generator=generator)


@pytest.mark.parametrize("size", [1, 4, 100])
@pytest.mark.parametrize("windows", [[23], [1, 9, 13], [5, 5, 5, 5, 3]])
def test_equals_the_definition_however_the_text_is_cut(monkeypatch, size, windows):
    monkeypatch.setattr(neural_cache, "PIECE", 6)
    texts = [random_text(23, seed) for seed in (0, 1)]
    wanted = [log(p) for v, o, t in texts for p in naive_p(v.tolist(), o.tolist(), t.tolist(), size, 6)]
    vectors, own, tokens = (torch.stack(each) for each in zip(*texts, strict=True))
    log_p = own.gather(-1, tokens[..., None])[..., 0].log()
    cache = NeuralCache(size)
    parts = zip(*(each.split(windows, 1) for each in (vectors, log_p, tokens)), strict=True)
    alone, cached = sum(cache.losses(*part) for part in parts).tolist()
    assert alone == pytest.approx(-float(log_p.sum()), rel=1e-12)
    assert cached == pytest.approx(-sum(wanted), rel=1e-9)


def test_the_probabilities_of_all_words_sum_to_one():
    vectors, own, tokens = random_text(12)
    total = 0.0
    for word in range(4):
        labels = torch.cat((tokens[:-1], torch.tensor([word])))
        cache, before = NeuralCache(8), own[torch.arange(12), labels].log()
        cache.losses(vectors[None, :-1], before[None, :-1], labels[None, :-1])
        total += exp(-float(cache.losses(vectors[None, -1:], before[None, -1:], labels[None, -1:])[1]))
    assert total == pytest.approx(1, rel=1e-9)


def test_what_the_model_cannot_know_is_learned_from_the_text():
    """Vectors that tell the next word, and a model that does not: the shares move to the cache."""
    tokens = torch.arange(600) % 6
    vectors = torch.eye(6)[tokens][None]
    log_p = torch.full((1, 600), -log(6))
    alone, cached = (NeuralCache(50).losses(vectors, log_p, tokens[None]) / 600).tolist()
    assert alone == pytest.approx(log(6))
    assert cached < 0.5 * alone


# --- in the language task --------------------------------------------------------------------------------------------


def naive_measure(task: Language, model: nn.Module, valid: str, lanes: list[tuple[int, int]], window: int) -> float:
    """Return the mean of -log p with a cache of 7 tokens that is empty where a lane begins."""
    tokens = torch.tensor(ids(task, f"|{valid}|"))
    total = 0.0
    for begin, end in lanes:
        vectors = [model(tokens[None, i : min(i + window, end)], scores=False)[0] for i in range(begin, end, window)]
        h = torch.cat(vectors)
        own = model.logits(h).softmax(-1)
        total -= sum(map(log, naive_p(h.tolist(), own.tolist(), tokens[begin + 1 : end + 1].tolist(), 7, 128)))
    return total / (len(tokens) - 1)


@torch.no_grad()
def test_lanes_of_a_recurrence_have_a_cache_each(tmp_path):
    valid = long_text(16 * 10 + 1, seed=1)
    task = task_of(tmp_path, long_text(40), valid=valid, neural_cache=7)
    model = model_for(task, "lstm")
    values = task.measure(model)
    wanted = naive_measure(task, model, valid, [(i, i + 10) for i in range(0, 160, 10)], 10)
    assert log(values["cached_perplexity"]) == pytest.approx(wanted, rel=1e-9)
    plain = task_of(tmp_path, long_text(40), valid=valid).measure(model)
    assert plain.keys() == values.keys() - {"cached_perplexity", "cached_word_perplexity"}
    assert all(values[name] == pytest.approx(value, rel=1e-9) for name, value in plain.items())


@torch.no_grad()
def test_windows_of_attention_share_one_cache(tmp_path, monkeypatch):
    valid = long_text(5 * 7 + 4, seed=1)
    task = task_of(tmp_path, long_text(40), valid=valid, neural_cache=7)
    model = model_for(task, "writer")
    values = task.measure(model)
    assert log(values["cached_perplexity"]) == pytest.approx(naive_measure(task, model, valid, [(0, 38)], 5), rel=1e-9)
    task.parts = 3
    assert task.measure(model) == pytest.approx(values, rel=1e-9)


@torch.no_grad()
def test_tokens_that_are_only_context_are_not_kept_twice(tmp_path):
    valid = long_text(19, seed=1)
    task = task_of(tmp_path, long_text(40), valid=valid, stride=2, neural_cache=7)
    model, tokens = model_for(task, "writer"), torch.tensor(ids(task, f"|{valid}|"))
    h, done = [], 0
    for end in (5, 7, 9, 11, 13, 15, 17, 18):
        h.append(model(tokens[None, end - 5 : end], scores=False)[0, done - end :])
        done = end
    own = model.logits(torch.cat(h)).softmax(-1)
    wanted = -sum(map(log, naive_p(torch.cat(h).tolist(), own.tolist(), tokens[1:].tolist(), 7, 128))) / 18
    assert log(task.measure(model)["cached_perplexity"]) == pytest.approx(wanted, rel=1e-9)


def test_a_module_without_vectors_is_rejected(tmp_path):
    task = task_of(tmp_path, long_text(40), valid=long_text(30), neural_cache=7)

    class Unigram(nn.Module):
        def forward(self, tokens: Tensor) -> Tensor:
            return torch.zeros(*tokens.shape, task.tokenizer.size)

    with pytest.raises(ConfigError, match=r"task.neural_cache keeps vectors"):
        task.measure(Unigram())
