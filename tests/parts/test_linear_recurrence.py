"""Linear recurrences against loops over time that follow their definitions, and their gradients."""

import os
from functools import partial

import pytest
import torch
from torch import Tensor

from regard.parts.linear_recurrence import CHUNK, FASTEST, average_by_kernel, state_recurrence, weighted_average


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def by_definition(r, log_w, k, v, removal, start):
    """Multiply by the matrix of every step, in float64."""
    state, out = start.double(), []
    for t in range(r.shape[1]):
        matrix = torch.diag_embed(log_w[:, t].double().exp().expand(k[:, t].shape))
        if removal is not None:
            a, b = (x[:, t].double() for x in removal)
            matrix = matrix + a[..., :, None] * b[..., None, :]
        state = state @ matrix + v[:, t].double()[..., :, None] * k[:, t].double()[..., None, :]
        out.append((state @ r[:, t].double()[..., None]).squeeze(-1))
    return torch.stack(out, 1), state


def inputs(T: int, fastest: float = -0.6065, removes: bool = True, decays: int = 4):
    """Return what `state_recurrence` takes; `decays` is 4, one for each channel, or 1 for the whole head."""
    B, H, K, V = 2, 3, 4, 5
    direction = torch.nn.functional.normalize(draw(B, T, H, K, seed=4), dim=-1)
    share = draw(B, T, H, K, seed=5).sigmoid()
    return (
        draw(B, T, H, K),
        fastest * draw(B, T, H, decays, seed=1).sigmoid(),
        draw(B, T, H, K, seed=2),
        draw(B, T, H, V, seed=3),
        (-direction, direction * share) if removes else None,
        draw(B, H, V, K, seed=6),
    )


SLOW = -0.6065  # the bound of RWKV-7, whose chunks are the longest


@pytest.mark.parametrize("removes", [True, False])
@pytest.mark.parametrize("decays", [4, 1])
@pytest.mark.parametrize("T", [1, 2, 15, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + 5])
@pytest.mark.parametrize("fastest", [SLOW, FASTEST])
def test_chunks_compute_what_the_definition_says(T: int, decays: int, removes: bool, fastest: float) -> None:
    given = inputs(T, fastest=fastest, removes=removes, decays=decays)
    for found, wanted in zip(state_recurrence(*given, fastest=fastest), by_definition(*given), strict=True):
        assert torch.allclose(found.double(), wanted, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_fastest_decays_lose_no_digits(dtype: torch.dtype) -> None:
    given = [x.to(dtype) for x in inputs(140, removes=False) if x is not None]
    for fastest in (FASTEST, SLOW):
        log_w = torch.full_like(given[1], fastest)
        values = (given[0], log_w, *given[2:4], None, given[4])
        for found, wanted in zip(state_recurrence(*values, fastest=fastest), by_definition(*values), strict=True):
            assert torch.allclose(found.double(), wanted, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("removes", [True, False])
def test_a_head_may_decay_as_fast_as_it_likes(removes: bool) -> None:
    """Its gradient stays finite, too, also where the ratio of two decays is more than float32 can hold."""
    given = [x if x is None or isinstance(x, tuple) else x.float() for x in inputs(70, removes=removes, decays=1)]
    given[1] = (given[1] - 60 * (torch.arange(70) % 3 == 0)[:, None, None]).requires_grad_()
    if removes:
        given[4] = tuple(x.float() for x in given[4])
    out, state = state_recurrence(*given)
    for found, wanted in zip((out, state), by_definition(*given), strict=True):
        assert torch.allclose(found.double(), wanted, atol=1e-5, rtol=1e-4)
    (gradient,) = torch.autograd.grad(out.sum(), given[1])
    assert gradient.isfinite().all()


def test_the_last_state_continues_the_recurrence() -> None:
    r, log_w, k, v, (a, b), start = inputs(37)
    whole, last = state_recurrence(r, log_w, k, v, (a, b), start)
    first, state = state_recurrence(*(x[:, :21] for x in (r, log_w, k, v)), (a[:, :21], b[:, :21]), start)
    second, state = state_recurrence(*(x[:, 21:] for x in (r, log_w, k, v)), (a[:, 21:], b[:, 21:]), state)
    assert torch.allclose(torch.cat((first, second), 1), whole, atol=1e-5)
    assert torch.allclose(state, last, atol=1e-5)


@pytest.mark.parametrize("decays", [4, 1])
def test_the_gradient_of_chunks_is_that_of_the_definition(decays: int) -> None:
    r, log_w, k, v, (a, b), start = inputs(CHUNK + 3, decays=decays)
    given = [x.requires_grad_() for x in (r, log_w, k, v, a, b, start)]
    found = torch.autograd.grad(state_recurrence(r, log_w, k, v, (a, b), start)[0].sin().sum(), given)
    wanted = torch.autograd.grad(by_definition(r, log_w, k, v, (a, b), start)[0].sin().sum(), given)
    for one, other in zip(found, wanted, strict=True):
        assert torch.allclose(one, other, atol=1e-4, rtol=1e-3)


# --- RWKV-4 ----------------------------------------------------------------------------------------------------------


def average_by_definition(k: Tensor, v: Tensor, decay: Tensor, bonus: Tensor) -> Tensor:
    """Sum over all earlier tokens, for each token."""
    out = []
    for t in range(k.shape[1]):
        i = torch.arange(t)[:, None]
        weights = torch.cat(((k[:, :t] - (t - 1 - i) * decay), (bonus + k[:, t])[:, None]), 1).softmax(1)
        out.append((weights * v[:, : t + 1]).sum(1))
    return torch.stack(out, 1)


def nothing(B: int, D: int) -> tuple[Tensor, Tensor, Tensor]:
    return torch.full((B, D), -1e38), torch.zeros(B, D), torch.zeros(B, D)


def average_inputs(T: int, size: float = 1.0) -> list[Tensor]:
    return [size * draw(2, T, 3), draw(2, T, 3, seed=1), draw(3, seed=2).exp(), draw(3, seed=3)]


@pytest.mark.parametrize("T", [1, 2, 3, 7, 8, 33])
@pytest.mark.parametrize("size", [1.0, 40.0])  # e^40 squared is more than float32 can hold
def test_the_average_is_that_of_the_definition(T: int, size: float) -> None:
    given = average_inputs(T, size)
    found, _ = weighted_average(*(x.float() for x in given), nothing(2, 3))
    assert found.dtype == torch.float32
    assert torch.allclose(found.double(), average_by_definition(*given), atol=1e-4)


def test_the_sums_after_a_token_continue_the_average() -> None:
    k, v, decay, bonus = average_inputs(20)
    whole, _ = weighted_average(k, v, decay, bonus, nothing(2, 3))
    first, sums = weighted_average(k[:, :13], v[:, :13], decay, bonus, nothing(2, 3))
    second, _ = weighted_average(k[:, 13:], v[:, 13:], decay, bonus, sums)
    assert torch.allclose(torch.cat((first, second), 1), whole, atol=1e-5)


def test_the_gradient_of_the_average_is_that_of_the_definition() -> None:
    given = [x.requires_grad_() for x in average_inputs(11)]
    average = partial(weighted_average, start=nothing(2, 3))
    found = torch.autograd.grad(average(*given)[0].sin().sum(), given)
    wanted = torch.autograd.grad(average_by_definition(*given).sin().sum(), given)
    for one, other in zip(found, wanted, strict=True):
        assert torch.allclose(one, other, atol=1e-5, rtol=1e-4)


def run_with_gradients(average, k, v, decay, bonus, start, lengths):
    """Return the averages, the last sums and all gradients of a function of both."""
    given = [x.detach().requires_grad_() for x in (k, v, decay, bonus, *start[1:])]
    y, (m, total, weight) = average(*given[:4], (start[0], *given[4:]), lengths)
    # What follows from sums depends on e^m total and e^m weight; m itself is only a scale.
    ratio = total / weight.where(weight > 0, 1)
    gradients = torch.autograd.grad(y.sin().sum() + ratio.square().sum(), given)
    return [y, ratio, weight * m.exp(), *gradients]


def by_kernel(k, v, decay, bonus, start, lengths):
    lengths = torch.full((len(k),), k.shape[1], device=k.device) if lengths is None else lengths
    y, *sums = average_by_kernel(k, v, decay, bonus, *start, lengths)
    return y, tuple(sums)


@pytest.mark.parametrize("T", [1, 2, 7, 33])
@pytest.mark.parametrize("lengths", [None, "short"])
@pytest.mark.parametrize("begun", [False, True])
def test_the_kernel_computes_the_same(T: int, lengths: str | None, begun: bool) -> None:
    """On CUDA, or with TRITON_INTERPRET=1 on the CPU."""
    pytest.importorskip("triton", reason="triton comes with torch for CUDA")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu" and os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("set TRITON_INTERPRET=1 to run the kernel without CUDA")
    B, D = 3, 40  # more channels than a program has
    k, v, decay, bonus = 4 * draw(B, T, D), draw(B, T, D, seed=1), draw(D, seed=2).exp(), draw(D, seed=3)
    start = nothing(B, D)
    if begun:
        start = (draw(B, D, seed=4), draw(B, D, seed=5), draw(B, D, seed=6).exp())
    real = torch.tensor([T, T // 2, int(not begun)]) if lengths else None
    values = [x.float().to(device) for x in (k, v, decay, bonus)]
    begin, count = tuple(x.float().to(device) for x in start), None if real is None else real.to(device)
    found = run_with_gradients(by_kernel, *values, begin, count)
    wanted = run_with_gradients(weighted_average, k, v, decay, bonus, tuple(x.double() for x in start), real)
    for one, other in zip(found, wanted, strict=True):
        assert torch.allclose(one.double().cpu(), other, atol=2e-5, rtol=2e-4)
