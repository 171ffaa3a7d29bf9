"""Recurrences that are linear in their state, so that many steps can be computed at once.

`state_recurrence` has a matrix as its state, which every step lets decay, corrects in one direction and adds to. RWKV-7
(Peng et al. 2025), Mamba-2 (Dao, Gu 2024), the delta rule (Schlag et al. 2021), the gated delta rule (Yang et al. 2025)
and linear attention (Katharopoulos et al. 2020) are forms of it. It is computed in chunks: within a chunk by products
of matrices (Yang et al. 2024), from chunk to chunk one after the other. `weighted_average` is the recurrence of RWKV-4
(Peng et al. 2023), a softmax whose weights decay with distance; it is computed in log2(T) rounds, each of which joins
spans twice as long, or on CUDA by a kernel.

Shapes: B batch, T time, H heads, K width of keys, V width of values, W decays of a head (K or 1), C chunks, L tokens of
a chunk, D channels.
"""

from typing import Any

import torch
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import pad
from torch.utils.checkpoint import checkpoint

from regard.machine import has_triton
from regard.parts.precision import at_least_float32, without_autocast
from regard.parts.recurrent import after_last_real
from regard.parts.transforms import is_transformed

HAS_TRITON = has_triton()

CHUNK = 64  # tokens, if the decays allow it
CHUNK_OF_CPU = 32  # with a system to solve for each chunk; with 64 it takes 5 to 30 % longer, for keys of 32 to 128
RANGE = 80.0  # of the logarithms of decays in a chunk: e^40 and e^-40 are far from the limits of float32
FASTEST = -5.0  # the logarithm of the fastest decay of a channel in one step: what is left is then 0.7 percent


Removal = tuple[Tensor, Tensor | None]


def state_recurrence(
    r: Float[Tensor, "B T H K"],
    log_w: Float[Tensor, "B T H W"],
    k: Float[Tensor, "B T H K"],
    v: Float[Tensor, "B T H V"],
    removal: Removal | None,
    start: Float[Tensor, "B H V K"],
    fastest: float = FASTEST,
) -> tuple[Float[Tensor, "B T H V"], Float[Tensor, "B H V K"]]:
    """Return all o_t = S_t r_t and the last S, where S_t = S_{t-1} diag(w_t) + (S_{t-1} a_t) b_t' + v_t k_t'.

    `removal` is (a, b), both like k, where None for b means k itself; None for no removal. w is one decay for the whole
    head (W = 1), which may be any, or one for each channel of the keys: then a decay below e^`fastest` is replaced by
    it, which limits the length of a chunk. Computed in float32 at least.
    """
    with without_autocast(r):
        r, log_w, k, v, start = (at_least_float32(x) for x in (r, log_w, k, v, start))
        if removal is not None:
            a, b = removal
            removal = at_least_float32(a), None if b is None else at_least_float32(b)
        length = CHUNK if removal is None or r.is_cuda else CHUNK_OF_CPU
        if log_w.shape[-1] > 1:
            log_w = log_w.clamp(min=fastest)
            length = min(length, int(RANGE / -fastest))
        if r.shape[1] == 1:
            return _one_step(r, log_w, k, v, removal, start)
        return _chunks(r, log_w, k, v, removal, start, length)


def _one_step(
    r: Tensor, log_w: Tensor, k: Tensor, v: Tensor, removal: Removal | None, start: Tensor
) -> tuple[Tensor, Tensor]:
    """Compute the recurrence as it is written, for one token."""
    state = start * log_w[:, 0, :, None].exp() + v[:, 0, :, :, None] * k[:, 0, :, None]
    if removal is not None:
        a, b = removal
        state = state + (start @ a[:, 0, :, :, None]) * (k if b is None else b)[:, 0, :, None]
    return (state @ r[:, 0, :, :, None]).squeeze(-1)[:, None], state


def _chunks(
    r: Tensor, log_w: Tensor, k: Tensor, v: Tensor, removal: Removal | None, start: Tensor, length: int
) -> tuple[Tensor, Tensor]:
    """Compute the recurrence in chunks of `length` tokens.

    With c_t = log w_1 + .. + log w_t inside a chunk, and u_t = S_{t-1} a_t, the recurrence unrolls to

        u_t = S_0 (e^{c_{t-1}} a_t) + sum_{i<t} u_i (b_i . e^{c_{t-1} - c_i} a_t) + v_i (k_i . e^{c_{t-1} - c_i} a_t)
        o_t = S_0 (e^{c_t} r_t)     + sum_{i<=t} u_i (b_i . e^{c_t - c_i} r_t)    + v_i (k_i . e^{c_t - c_i} r_t)

    The first is a triangular system for all u of a chunk.
    """
    T = r.shape[1]
    tokens = [r, log_w, k, v, *(x for x in removal or () if x is not None)]
    r, log_w, k, v, *rest = (_split(x, min(length, T)) for x in tokens)
    decays = HeadDecays(log_w) if log_w.shape[-1] == 1 else ChannelDecays(log_w)
    c = log_w.cumsum(-2)
    decay, keys = c[..., -1:, :].exp(), k * decays.to_end
    written, from_state, scores = v, None, decays.products(r, k).tril()
    if rest:
        a, b = rest[0], rest[-1] if len(rest) > 1 else k
        by_b = decays.products_before(a, b).tril(-1)
        by_k = decays.products_before(a, k).tril(-1) if len(rest) > 1 else by_b
        system = torch.eye(r.shape[-2], device=r.device, dtype=r.dtype) - by_b
        wanted = torch.cat((a * (c - log_w).exp(), by_k @ v), -1)
        solved = torch.linalg.solve_triangular(system, wanted, upper=False, unitriangular=True)
        from_state, written = solved.split((k.shape[-1], v.shape[-1]), -1)
        if len(rest) > 1:  # u is added by b, and v by k: as if b and k were the keys of twice as many tokens
            written, from_state = torch.cat((written, v), -2), pad(from_state, (0, 0, 0, v.shape[-2]))
            keys, scores = (
                torch.cat((b * decays.to_end, keys), -2),
                torch.cat((decays.products(r, b).tril(), scores), -1),
            )
        else:
            written = written + v
    state, states, values = start, [], []
    for chunk in range(r.shape[2]):
        value = written[:, :, chunk]
        if from_state is not None:
            value = value + from_state[:, :, chunk] @ state.mT
        states.append(state)
        values.append(value)
        state = state * decay[:, :, chunk] + value.mT @ keys[:, :, chunk]
    out = scores @ torch.stack(values, 2) + r * c.exp() @ torch.stack(states, 2).mT
    return rearrange(out, "B H C L V -> B (C L) H V")[:, :T], state


class HeadDecays:
    """The decays between two tokens of a chunk, for one decay of the whole head, which may be any.

    They multiply the products of vectors. The sums of logarithms are not differences of two large ones, which would
    lose digits: sum_{i<j<=t} log w_j is summed for each i.
    """

    def __init__(self, log_w: Float[Tensor, "B H C L 1"]) -> None:
        length = log_w.shape[-2]
        self.ratios = log_w.expand(*log_w.shape[:-1], length).tril(-1).cumsum(-2).exp()  # e^{c_t - c_i} at (t, i)
        self.to_end = self.ratios[..., -1, :, None]

    def products(self, x: Float[Tensor, "B H C L K"], y: Float[Tensor, "B H C L K"]) -> Float[Tensor, "B H C L L"]:
        """Return x_t . y_i e^{c_t - c_i} where i <= t, otherwise anything."""
        return (x @ y.mT) * self.ratios

    def products_before(
        self, x: Float[Tensor, "B H C L K"], y: Float[Tensor, "B H C L K"]
    ) -> Float[Tensor, "B H C L L"]:
        """Return x_t . y_i e^{c_{t-1} - c_i} where i < t, otherwise anything."""
        return (x @ y.mT) * pad(self.ratios, (0, 0, 1, -1))


class ChannelDecays:
    """The decays between two tokens of a chunk, for one decay of each channel.

    They are split between the two vectors of a product, relative to the middle of the chunk, so that no exponent is too
    large.
    """

    def __init__(self, log_w: Float[Tensor, "B H C L K"]) -> None:
        c = log_w.cumsum(-2)
        whole = c[..., -1:, :]
        self.to_end = (whole - c).exp()
        self.later, self.earlier = (c - whole / 2).exp(), (whole / 2 - c).exp()
        self.before = (c - log_w - whole / 2).exp()

    def products(self, x: Float[Tensor, "B H C L K"], y: Float[Tensor, "B H C L K"]) -> Float[Tensor, "B H C L L"]:
        """Return x_t . y_i e^{c_t - c_i} where i <= t, otherwise anything."""
        return x * self.later @ (y * self.earlier).mT

    def products_before(
        self, x: Float[Tensor, "B H C L K"], y: Float[Tensor, "B H C L K"]
    ) -> Float[Tensor, "B H C L L"]:
        """Return x_t . y_i e^{c_{t-1} - c_i} where i < t, otherwise anything."""
        return x * self.before @ (y * self.earlier).mT


def _split(x: Float[Tensor, "B T H E"], length: int) -> Float[Tensor, "B H C L E"]:
    """Split time into chunks; the last is filled with zeros, which change no state."""
    x = pad(x, (0, 0, 0, 0, 0, -x.shape[1] % length))
    return rearrange(x, "B (C L) H E -> B H C L E", L=length)


# --- RWKV-4 ----------------------------------------------------------------------------------------------------------

Averages = tuple[Tensor, Tensor, Tensor]  # m, e^-m sum of weights * values, e^-m sum of weights


def weighted_average(
    k: Float[Tensor, "B T D"],
    v: Float[Tensor, "B T D"],
    decay: Float[Tensor, "D"],
    bonus: Float[Tensor, "D"],
    start: Averages,
    lengths: Int[Tensor, "B"] | None = None,
) -> tuple[Float[Tensor, "B T D"], Averages]:
    """Return the averages y_t of each channel, and the sums for the next token.

        y_t = (sum_{i<t} e^{k_i - (t-1-i) d} v_i + e^{u + k_t} v_t) / (the same without v)

    d is the decay, at least 0, and u the bonus of the token itself. `start` and the second result are the sums over all
    tokens before the first, and up to each row's last real token, the last of its `lengths`; exponents are relative to
    m, so that none is too large. Computed in float32 at least, on CUDA by a kernel of Triton.
    """
    if not (k.is_cuda and HAS_TRITON) or is_transformed():
        return average_by_rounds(k, v, decay, bonus, start, lengths)
    with without_autocast(k):
        vectors = [at_least_float32(x) for x in (decay, bonus, *start)]
        if lengths is None:
            lengths = torch.full((len(k),), k.shape[1], device=k.device)
        y, *sums = average_by_kernel(k.contiguous(), v.contiguous(), *vectors, lengths)
    return y, (sums[0], sums[1], sums[2])


def average_by_rounds(
    k: Float[Tensor, "B T D"],
    v: Float[Tensor, "B T D"],
    decay: Float[Tensor, "D"],
    bonus: Float[Tensor, "D"],
    start: Averages,
    lengths: Int[Tensor, "B"] | None = None,
) -> tuple[Float[Tensor, "B T D"], Averages]:
    """Return what `weighted_average` returns, by operations of torch on any device.

    What a gradient needs is computed again in the backward pass: the rounds would keep too much.
    """
    with without_autocast(k):
        values = [at_least_float32(x) for x in (k, v, decay, bonus, *start)]
        if torch.is_grad_enabled() and not is_transformed():
            y, *sums = checkpoint(_weighted_average, *values, use_reentrant=False)
        else:
            y, *sums = _weighted_average(*values)
    last = [after_last_real(new, old, lengths) for new, old in zip(sums, start, strict=True)]
    return y, (last[0], last[1], last[2])


def _weighted_average(
    k: Tensor, v: Tensor, decay: Tensor, bonus: Tensor, m: Tensor, total: Tensor, weight: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Join the sums of ever longer spans that end at each token; place 0 holds the sums before the first token."""
    sums = (
        torch.cat((m[:, None], k), 1),
        torch.cat((total[:, None], v), 1),
        torch.cat((weight[:, None], torch.ones_like(k)), 1),
    )
    span = 1
    while span < sums[0].shape[1]:
        earlier = (sums[0][:, :-span] - span * decay, sums[1][:, :-span], sums[2][:, :-span])
        joined = _join(earlier, (sums[0][:, span:], sums[1][:, span:], sums[2][:, span:]))
        sums = (
            torch.cat((sums[0][:, :span], joined[0]), 1),
            torch.cat((sums[1][:, :span], joined[1]), 1),
            torch.cat((sums[2][:, :span], joined[2]), 1),
        )
        span *= 2
    past = (sums[0][:, :-1], sums[1][:, :-1], sums[2][:, :-1])
    _, top, bottom = _join(past, (k + bonus, v, torch.ones_like(k)))
    return top / bottom, sums[0][:, 1:], sums[1][:, 1:], sums[2][:, 1:]


def _join(one: Averages, other: Averages) -> Averages:
    """Add two pairs of sums, each relative to its own m."""
    m = torch.maximum(one[0], other[0])
    scale, other_scale = (one[0] - m).exp(), (other[0] - m).exp()
    return m, scale * one[1] + other_scale * other[1], scale * one[2] + other_scale * other[2]


# --- RWKV-4 on CUDA --------------------------------------------------------------------------------------------------


@torch.library.custom_op("regard::weighted_average", mutates_args=())
def average_by_kernel(
    k: Tensor, v: Tensor, decay: Tensor, bonus: Tensor, m: Tensor, total: Tensor, weight: Tensor, lengths: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Run the kernel of `weighted_average` as one operator, which torch.compile does not look into."""
    from regard.parts.averaging_kernel import average

    rest = tuple(x.contiguous() for x in (decay, bonus, m, total, weight))
    return average(k, v, rest, lengths.contiguous())


@average_by_kernel.register_fake
def _(
    k: Tensor, v: Tensor, decay: Tensor, bonus: Tensor, m: Tensor, total: Tensor, weight: Tensor, lengths: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return k.new_empty(k.shape, dtype=m.dtype), torch.empty_like(m), torch.empty_like(m), torch.empty_like(m)


@torch.library.custom_op("regard::weighted_average_backward", mutates_args=())
def average_by_kernel_backward(
    d_y: Tensor,
    d_total: Tensor,
    d_weight: Tensor,
    k: Tensor,
    v: Tensor,
    decay: Tensor,
    bonus: Tensor,
    m: Tensor,
    total: Tensor,
    weight: Tensor,
    lengths: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of k, v, decay, bonus, total and weight."""
    from regard.parts.averaging_kernel import average_backward

    rest = tuple(x.contiguous() for x in (decay, bonus, m, total, weight))
    gradients = (d_y.contiguous(), d_total.contiguous(), d_weight.contiguous())
    return average_backward(*gradients, k, v, rest, lengths.contiguous())


@average_by_kernel_backward.register_fake
def _(
    d_y: Tensor,
    d_total: Tensor,
    d_weight: Tensor,
    k: Tensor,
    v: Tensor,
    decay: Tensor,
    bonus: Tensor,
    m: Tensor,
    total: Tensor,
    weight: Tensor,
    lengths: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    shapes = (k, v, decay, bonus, m, m)
    empty = [torch.empty_like(x, memory_format=torch.contiguous_format) for x in shapes]
    return empty[0], empty[1], empty[2], empty[3], empty[4], empty[5]


def _keep_for_average_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*inputs)


def _average_backward(
    ctx: Any, d_y: Tensor, d_m: Tensor, d_total: Tensor, d_weight: Tensor
) -> tuple[Tensor | None, ...]:
    to_k, to_v, to_decay, to_bonus, to_total, to_weight = average_by_kernel_backward(
        d_y, d_total, d_weight, *ctx.saved_tensors
    )
    return to_k, to_v, to_decay, to_bonus, None, to_total, to_weight, None  # m is only a scale


average_by_kernel.register_autograd(_average_backward, setup_context=_keep_for_average_backward)
