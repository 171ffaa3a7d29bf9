"""Sampling against a plain loop that reads everything again for every token."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from regard.decode import rows
from regard.decode.choose import Sampling, choose_tokens
from regard.decode.engine import Given, eager, in_use
from regard.decode.rows import fit_limits
from regard.decode.sample import Chances, each_in_use, sample, sample_all
from regard.errors import InputError, NotFiniteError

from ..laws.cases import SHRINK, VOCABULARY, Case
from .script import Script, prompts

END, V = 2, 9
GREEDY = Sampling(temperature=0.0)


def gpt2(*overrides: str) -> torch.nn.Module:
    return Case("gpt2", "gpt2", (*SHRINK["gpt2"], *overrides)).build()


def tokens(*shape: int) -> Tensor:
    return torch.randint(3, VOCABULARY, shape, generator=torch.Generator().manual_seed(0))


def naive(
    script: Script,
    prompt: Sequence[int],
    limit: int,
    sampling: Sampling,
    seed: int,
    ends: Sequence[int] = (END,),
    forbidden: Sequence[int] = (),
) -> list[int]:
    """Sample one row by itself."""
    random = np.random.Generator(np.random.Philox(key=seed))
    text = list(prompt)
    while len(text) < len(prompt) + limit:
        logits = script.logits(text).clone()
        logits[list(forbidden)] = -torch.inf
        seen = torch.tensor([[token in text for token in range(V)]])
        chance = torch.tensor([random.random()], dtype=torch.float64)
        token = choose_tokens(logits[None], sampling, chance, seen).item()
        if token in ends:
            break
        text.append(token)
    return text[len(prompt) :]


ROWS = [[5], [3, 4, 4], [6, 1], [5], [7, 7, 8, 3, 1], [0]]
LIMITS = [7, 4, 0, 12, 3, 9]
SEEDS = [3, 1, 4, 1, 5, 2**127]


@pytest.mark.parametrize("every", [1, 2, 3, 8, 50])
@pytest.mark.parametrize("sampling", [GREEDY, Sampling(), Sampling(1.5, 6, 0.9, 0.02, 1.4)])
def test_rows_together_are_plain_loops(sampling, every, monkeypatch):
    """However seldom the rows are read."""
    monkeypatch.setattr(rows, "check_interval", lambda device: every)
    for seed in range(5):
        script = Script(V, seed)
        found = sample_all(
            script, prompts(*ROWS), end=END, limits=LIMITS, sampling=sampling, seeds=SEEDS, forbidden=[7, 0]
        )
        pairs = zip(ROWS, LIMITS, SEEDS, strict=True)
        assert found == [naive(script, *pair[:2], sampling, pair[2], forbidden=[7, 0]) for pair in pairs]


class Diverged(Script):
    """Scores that are NaN after three tokens."""

    def logits(self, text: Sequence[int]) -> Tensor:
        return super().logits(text) * (torch.nan if len(text) == 3 else 1)


@pytest.mark.parametrize("every", [1, 4])
@pytest.mark.parametrize("sampling", [GREEDY, Sampling(), Sampling(repetition=2.0)])
def test_scores_that_are_not_finite_are_an_error_where_they_are_read(sampling, every, monkeypatch):
    monkeypatch.setattr(rows, "check_interval", lambda device: every)
    options = {"end": (), "sampling": sampling, "seeds": [0, 1]}
    with pytest.raises(NotFiniteError, match="the model computes numbers that are not finite"):
        sample_all(Diverged(V), prompts([5], [3, 4]), limits=[5, 1], **options)
    (first, second) = sample_all(Diverged(V), prompts([5], [3, 4]), limits=[2, 1], **options)
    assert (len(first), len(second)) == (2, 1)  # the row that is done is still in the batch


@given(seed=st.integers(0, 1000), every=st.integers(1, 5), ends=st.sets(st.integers(0, V - 1), max_size=4))
def test_any_ends(seed, every, ends):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "check_interval", lambda device: every)
        script, sampling = Script(V, seed), Sampling()
        found = sample_all(script, prompts(*ROWS), end=tuple(ends), limits=LIMITS, sampling=sampling, seeds=SEEDS)
    pairs = zip(ROWS, LIMITS, SEEDS, strict=True)
    assert found == [naive(script, *pair[:2], sampling, pair[2], tuple(ends)) for pair in pairs]


def test_the_seed_decides_in_any_batch():
    script, sampling = Script(V), Sampling()
    options = {"end": END, "sampling": sampling}
    together = sample_all(script, prompts(*[[5]] * 30), limits=[8] * 30, seeds=[*range(29), 0], **options)
    assert together[0] == together[29]
    assert len({tuple(row) for row in together}) > 10
    for row in (0, 7, 19):
        assert sample_all(script, prompts([5]), limits=[8], seeds=[row], **options) == [together[row]]
    longer = sample_all(script, prompts(*[[5]] * 30), limits=[20] * 30, seeds=list(range(30)), **options)
    assert [row[:8] for row in longer[:29]] == together[:29]  # a higher limit does not change the beginning


def test_new_tokens_are_yielded_as_they_are_written():
    told = {(5,): 6, (5, 6): 7, (5, 6, 7): END, (3,): END, (4,): 8, (4, 8): 8, (4, 8, 8): 8}
    news = sample(
        Script(V, told=told), prompts([5], [3], [4]), end=END, limits=[9, 9, 3], sampling=GREEDY, seeds=[0] * 3
    )
    assert list(news) == [[(0, [6]), (2, [8])], [(0, [7]), (2, [8])], [(2, [8])]]


def test_tokens_between_two_reads_are_yielded_together(monkeypatch):
    monkeypatch.setattr(rows, "check_interval", lambda device: 2)
    told = {(5,): 6, (5, 6): 7, (5, 6, 7): 6, (5, 6, 7, 6): END, (3,): END}
    news = sample(Script(V, told=told), prompts([5], [3]), end=END, limits=[9, 9], sampling=GREEDY, seeds=[0] * 2)
    assert list(news) == [[(0, [6, 7])], [(0, [6])]]


def lengths_script(*lengths: int) -> tuple[Script, Given]:
    """Row r writes the token r + 3 a given number of times and ends."""
    told = {}
    for row, length in enumerate(lengths):
        for count in range(length + 1):
            told[tuple([row + 3] * (count + 1))] = row + 3 if count < length else END
    return Script(V, told=told), prompts(*([row + 3] for row in range(len(lengths))))


def test_rows_leave_the_batch_when_half_of_it_is_done():
    script, beginning = lengths_script(2, 0, 4, 1, 5)
    found = sample_all(script, beginning, end=END, limits=[9] * 5, sampling=GREEDY, seeds=[0] * 5)
    assert [len(row) for row in found] == [2, 0, 4, 1, 5]
    assert script.asked == [5, 5, 5, 2, 2, 1]


def test_an_accelerator_is_read_every_few_steps(monkeypatch):
    monkeypatch.setattr(rows, "check_interval", lambda device: 8)
    script, beginning = lengths_script(2, 0, 4, 1, 12)
    script.told[(4, END)] = END
    found = sample_all(script, beginning, end=END, limits=[30] * 5, sampling=GREEDY, seeds=[0] * 5)
    assert [len(row) for row in found] == [2, 0, 4, 1, 12]
    assert script.asked == [5] * 8 + [1] * 8


def test_a_row_leaves_before_it_exceeds_the_capacity():
    """Although less than half are done: the longest prompt has the lowest limit. (The steps check the capacity.)"""
    script = Script(V)
    options = {"end": (), "sampling": GREEDY, "seeds": [0] * 4}
    found = sample_all(script, prompts([1] * 9, [3], [4], [5]), limits=[2, 10, 10, 10], **options)
    assert [len(row) for row in found] == [2, 10, 10, 10]
    assert script.asked == [4, 4, *[3] * 8]


def test_no_step_runs_if_nothing_may_be_written():
    script = Script(V)
    assert sample_all(script, prompts([5], [6]), end=END, limits=[0, 0], sampling=GREEDY, seeds=[0, 0]) == [[], []]
    assert script.asked == []


@pytest.mark.parametrize("every", [1, 8])
def test_the_caller_can_stop_a_row_after_any_token(every, monkeypatch):
    monkeypatch.setattr(rows, "check_interval", lambda device: every)
    script, asked = Script(V), []

    def stop(row: int, ids: list[int]) -> bool:
        asked.append((row, len(ids)))
        return row == 1 and len(ids) == 3

    options = {"end": (), "limits": [5, 5], "sampling": Sampling(), "seeds": [1, 2]}
    free = sample_all(script, prompts([5], [6]), **options)
    found = sample_all(script, prompts([5], [6]), **options, stop=stop)
    assert found == [free[0], free[1][:3]]
    assert sorted(asked) == [(0, 1), (0, 2), (0, 3), (0, 4), (1, 1), (1, 2), (1, 3)]


def test_padding_is_not_penalised():
    """The prompts are padded with 1, which is penalised only where it is in the text."""
    told = {(1, 5): 1, (6,): 1, (6, 1): 3, (1, 5, 3): END, (6, 1, 3): END}
    script = Script(V, told=told)
    script.logits = lambda text, plain=script.logits: plain(text) + torch.eye(V)[3] * 20
    options = {"end": END, "limits": [1, 1], "seeds": [0, 0]}
    sampling = Sampling(temperature=0.0, repetition=10.0)
    assert sample_all(script, prompts([1, 5], [6]), sampling=sampling, **options) == [[3], [1]]
    assert sample_all(script, prompts([1, 5], [6]), sampling=GREEDY, **options) == [[1], [1]]


@pytest.mark.parametrize("seed", [-1, 2**128])
def test_bad_seeds(seed):
    with pytest.raises(InputError, match=rf"^seed {seed} must be at least 0 and below 2\^128$"):
        sample_all(Script(V), prompts([5]), end=END, limits=[3], sampling=GREEDY, seeds=[seed])


# --- models ----------------------------------------------------------------------------------------------------------


def continued(model: torch.nn.Module, prompt: Tensor, limit: int) -> list[list[int]]:
    beginning = Given(prompt)
    limits = fit_limits(model, beginning, [limit] * len(prompt))
    with in_use(model):
        return sample_all(eager(model), beginning, end=(), limits=limits, sampling=GREEDY, seeds=[0] * len(prompt))


def test_a_text_stops_at_the_table_of_positions():
    """All 32 positions are read, and one more token follows."""
    model = gpt2()
    assert [len(row) for row in continued(model, tokens(2, 30), 50)] == [3, 3]
    assert [len(row) for row in continued(model, tokens(2, 32), 50)] == [1, 1]
    assert continued(model, tokens(2, 32), 0) == [[], []]
    with pytest.raises(InputError, match="^the input has 33 tokens, but the model has a table of 32 positions; "):
        continued(model, tokens(2, 33), 50)


@pytest.mark.parametrize("every", [1, 8])
def test_rows_of_any_length_fill_the_table_of_positions(every, monkeypatch):
    monkeypatch.setattr(rows, "check_interval", lambda device: every)
    model, text = gpt2(), tokens(5, 32)
    lengths = [32, 5, 29, 17, 1]
    beginning = Given(text, torch.tensor(lengths))
    limits = fit_limits(model, beginning, [50, 20, 50, 50, 50])
    assert limits == [1, 20, 4, 16, 32]
    with in_use(model):
        found = sample_all(eager(model), beginning, end=(), limits=limits, sampling=GREEDY, seeds=[0] * 5)
    alone = [
        continued(model, row[None, :length], limit) for row, length, limit in zip(text, lengths, limits, strict=True)
    ]
    assert found == [row for (row,) in alone]
    assert list(map(len, found)) == limits


def news_of(model: torch.nn.Module):
    return each_in_use(
        model,
        sample(eager(model), Given(tokens(2, 4)), end=(), limits=[6, 6], sampling=Sampling(), seeds=[0, 1]),
    )


def test_modes_and_gradients_are_restored_between_items():
    """The caller may train the model between items, and may stop reading early; sampling uses no dropout."""
    model = gpt2("model.embed.dropout=0.9").train()
    model.head.eval()  # a module in evaluation mode stays in it
    modes = [module.training for module in model.modules()]
    assert set(modes) == {True, False}
    stream, texts = news_of(model), [[], []]
    for new in stream:
        assert not torch.is_inference_mode_enabled()
        assert torch.is_grad_enabled()
        assert [module.training for module in model.modules()] == modes
        model(tokens(1, 4)).sum().backward()
        for row, ids in new:
            texts[row] += ids
    assert list(map(len, texts)) == [6, 6]
    plain = gpt2()
    assert [[ids for row, ids in new] for new in news_of(plain)] == [[[a], [b]] for a, b in zip(*texts, strict=True)]

    abandoned = news_of(model)
    next(abandoned)
    assert not torch.is_inference_mode_enabled()
    abandoned.close()
    assert torch.is_grad_enabled()
    assert [module.training for module in model.modules()] == modes


def test_modes_and_gradients_are_restored_after_an_error():
    model = gpt2().train()
    too_long = sample(eager(model), Given(tokens(1, 33)), end=(), limits=[1], sampling=GREEDY, seeds=[0])
    with pytest.raises(InputError, match="33 tokens"):
        next(each_in_use(model, too_long))
    assert model.training
    assert not torch.is_inference_mode_enabled()


def test_random_numbers_are_drawn_as_they_are_needed():
    """Two thousand million tokens may be asked for if the text ends by itself."""
    given = Given(tokens(2, 3))
    limits = [2**31 - 1, 2**31 - 1]
    model = gpt2("model.embed.position=none")
    texts = sample_all(
        eager(model),
        given,
        end=END,
        limits=limits,
        sampling=Sampling(),
        seeds=[1, 2],
        stop=lambda row, ids: len(ids) == 4,
    )
    assert [len(text) <= 4 for text in texts] == [True, True]


def test_random_numbers_are_the_same_in_any_portions_and_company(monkeypatch):
    together = torch.stack([numbers.next() for numbers in [Chances([5, 6], torch.device("cpu"))] for _ in range(9)])
    monkeypatch.setattr("regard.decode.sample.TOGETHER", 4)
    chances = Chances([4, 6, 5], torch.device("cpu"))
    first = [chances.next() for _ in range(3)]
    chances.keep([2, 1])
    assert torch.equal(torch.stack([*(row[[2, 1]] for row in first), *(chances.next() for _ in range(6))]), together)
    assert torch.equal(together[:, 0], torch.from_numpy(np.random.Generator(np.random.Philox(key=5)).random(9)))
