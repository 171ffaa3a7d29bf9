"""Filters against Hugging Face's; draws against the probabilities, chance by chance."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from regard.decode import choose as module
from regard.decode.choose import NO_TOKEN, Sampling, choose_tokens, penalise, weigh
from regard.errors import ConfigError

V = 17


def random(*shape: int, seed: int = 0) -> Tensor:
    return 3 * torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def shares(weights: Tensor) -> Tensor:
    return weights.double() / weights.sum(-1, keepdim=True)


def theirs(sampling: Sampling) -> LogitsProcessorList:
    chain = [TemperatureLogitsWarper(sampling.temperature)]
    if sampling.top_k is not None:
        chain.append(TopKLogitsWarper(sampling.top_k))
    chain += [TopPLogitsWarper(sampling.top_p), MinPLogitsWarper(sampling.min_p)]
    return LogitsProcessorList(chain)


@given(
    seed=st.integers(0, 10**6),
    temperature=st.floats(0.1, 5),
    top_k=st.none() | st.integers(1, 2 * V),
    top_p=st.floats(0.01, 1),
    min_p=st.floats(0, 1),
)
def test_filters_leave_out_what_hugging_face_leaves_out(seed, temperature, top_k, top_p, min_p):
    logits = random(3, V, seed=seed)
    sampling = Sampling(temperature, top_k, top_p, min_p)
    wanted = theirs(sampling)(None, logits).softmax(-1)
    torch.testing.assert_close(shares(weigh(logits, sampling)), wanted, rtol=0, atol=1e-6)


def test_the_sort_of_accelerators_gives_the_same(monkeypatch):
    logits, sampling = random(4, 200), Sampling(top_p=0.8)
    found = weigh(logits, sampling)
    monkeypatch.setattr(module, "_descending", lambda weights: weights.sort(-1, descending=True).values)
    assert found.equal(weigh(logits, sampling))


def test_a_nucleus_takes_all_tied_tokens():
    logits = torch.tensor([[0.5, 0.2, 0.1, 0.1, 0.1]], dtype=torch.float64).log()
    assert (weigh(logits, Sampling(top_p=0.75)) > 0).tolist() == [[True] * 5]
    assert (weigh(logits, Sampling(top_p=0.65)) > 0).tolist() == [[True, True, False, False, False]]


def test_a_nucleus_is_as_small_as_possible():
    """The first token alone has a probability of 0.5."""
    logits = torch.tensor([[0.5, 0.25, 0.25]], dtype=torch.float64).log()
    assert weigh(logits, Sampling()).tolist() == [[2**40, 2**39, 2**39]]
    assert (weigh(logits, Sampling(top_p=0.5)) > 0).tolist() == [[True, False, False]]
    assert (weigh(logits, Sampling(top_p=0.51)) > 0).tolist() == [[True, True, True]]


@given(seed=st.integers(0, 10**6), penalty=st.floats(0.2, 5))
def test_the_repetition_penalty_is_that_of_hugging_face(seed, penalty):
    logits, text = random(2, V, seed=seed), torch.tensor([[3, 5, 3], [0, 1, 16]])
    wanted = RepetitionPenaltyLogitsProcessor(penalty)(text, logits.clone())
    seen = torch.zeros(2, V, dtype=torch.bool).scatter(1, text, True)
    torch.testing.assert_close(penalise(logits, seen, penalty), wanted)


def test_penalty_before_temperature_before_the_rest():
    """With the penalty, token 1 is no longer the best; without it, tokens 1 and 0 would be left."""
    logits = torch.tensor([[2.0, 2.1, 1.5, -4.0]])
    seen = torch.tensor([[False, True, False, False]])
    sampling = Sampling(temperature=0.5, top_k=2, repetition=3.0)
    drawn = [
        choose_tokens(logits, sampling, torch.tensor([chance]), seen).item() for chance in (0.0, 0.5, 0.72, 0.74, 0.99)
    ]
    assert drawn == [0, 0, 0, 2, 2]  # 1 / (1 + e^-1) = 0.731
    assert choose_tokens(logits, Sampling(temperature=0.0, repetition=3.0), torch.zeros(1), seen).item() == 0
    assert choose_tokens(logits, Sampling(temperature=0.0), torch.zeros(1)).item() == 1


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("sampling", [Sampling(), Sampling(2.0), Sampling(0.7, 9, 0.8, 0.05)])
def test_tokens_are_drawn_in_proportion_to_their_probability(dtype, sampling):
    """Of 10,000 chances at equal distances, each token gets its share, up to one."""
    logits, count = random(V).to(dtype), 10_000
    chances = (torch.arange(count, dtype=torch.float64) + 0.5) / count
    drawn = choose_tokens(logits.expand(count, -1), sampling, chances)
    wanted = theirs(sampling)(None, logits.double()[None]).softmax(-1)[0]
    assert (drawn.bincount(minlength=V) - count * wanted).abs().max() <= 1
    assert (drawn.diff() >= 0).all()  # in the order of the vocabulary


@pytest.mark.parametrize("chance", [0.0, 0.5, 1 - 2**-53])
@pytest.mark.parametrize("alive", [[4], [0], [16], [2, 3, 11]])
def test_impossible_tokens_are_never_drawn(chance, alive):
    logits = torch.full((1, V), -torch.inf).index_fill(1, torch.tensor(alive), 1.0)
    drawn = choose_tokens(logits, Sampling(), torch.tensor([chance], dtype=torch.float64)).item()
    assert drawn == alive[int(chance * len(alive))]


def test_a_chance_that_is_rounded_to_one_draws_the_last():
    logits = torch.tensor([[0.0, 0.3, 0.1, -torch.inf]])
    assert choose_tokens(logits, Sampling(), torch.tensor([1.0])).tolist() == [2]


@pytest.mark.parametrize("temperature", [0.0, 1e-320, 1e-30])
def test_very_low_temperatures_take_the_most_likely(temperature):
    logits = random(5, V).float() * 1e3
    assert choose_tokens(logits, Sampling(temperature), torch.full((5,), 0.999)).equal(logits.argmax(-1))


def test_other_rows_of_the_batch_change_nothing():
    logits, chances = random(40, V), torch.rand(40, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    sampling = Sampling(1.5, 12, 0.9, 0.01)
    together = choose_tokens(logits, sampling, chances)
    alone = [choose_tokens(logits[row : row + 1], sampling, chances[row : row + 1]).item() for row in range(40)]
    assert together.tolist() == alone
    assert len(set(alone)) > 5


@pytest.mark.parametrize(
    ("field", "value", "rule"),
    [
        ("temperature", -0.5, "at least 0"),
        ("temperature", float("nan"), "a finite number"),
        ("temperature", float("inf"), "a finite number"),
        ("top_k", 0, "at least 1"),
        ("top_p", 0.0, "above 0 and at most 1"),
        ("top_p", 1.5, "above 0 and at most 1"),
        ("min_p", -0.1, "between 0 and 1"),
        ("min_p", 1.1, "between 0 and 1"),
        ("repetition", 0.0, "between 0.01 and 100"),
        ("repetition", float("inf"), "a finite number"),
    ],
)
def test_bad_values(field, value, rule):
    with pytest.raises(ConfigError) as error:
        Sampling(**{field: value})
    assert str(error.value).removeprefix("Sampling: ") == f"{field}={value} must be {rule}"


@pytest.mark.parametrize("penalty", [1e-300, 0.0, 1e300])
def test_a_repetition_penalty_must_leave_logits_finite(penalty):
    with pytest.raises(ConfigError, match="repetition=.* must be between 0.01 and 100"):
        Sampling(repetition=penalty)


@pytest.mark.parametrize("size", [V, 600])
@pytest.mark.parametrize(
    "sampling",
    [Sampling(), *(Sampling(**{key: value}) for key, value in (("temperature", 0.0), ("top_k", 3), ("top_p", 0.5)))],
)
def test_scores_that_are_not_finite_give_no_token_and_leave_the_other_rows_alone(sampling, size):
    logits = random(5, size).float()
    chance = torch.linspace(0, 0.99, 5)
    wanted = choose_tokens(logits, sampling, chance)
    for row, value in enumerate((torch.nan, torch.inf)):
        logits[row, 3] = value
    logits[2] = -torch.inf
    found = choose_tokens(logits, sampling, chance)
    assert found[:3].tolist() == [NO_TOKEN] * 3
    assert torch.equal(found[3:], wanted[3:])
