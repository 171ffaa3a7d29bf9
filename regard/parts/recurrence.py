"""The loops over time behind the recurrent layers, as operators that torch.compile does not look into.

Time is therefore never unrolled. `fused_recurrence` runs torch's own kernels (cuDNN on CUDA) for Elman, LSTM and
torch's GRU. `gated_recurrence` is the one recurrence of which GRU and MUT1 to MUT3 are forms, with a hand-written
gradient: the products of the inputs are computed before the loop, and the gradient of each weight is one product
after it.

Shapes: T time, B batch, D width of the input, H width of the hidden state.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from regard.parts.precision import without_autocast
from regard.parts.transforms import is_transformed

# --- torch's kernels -------------------------------------------------------------------------------------------------

KERNELS: dict[str, Callable[..., Any]] = {
    "RNN_TANH": torch._VF.rnn_tanh,
    "LSTM": torch._VF.lstm,
    "GRU": torch._VF.gru,
}


def run_kernel(
    kind: str, x: Tensor, start: tuple[Tensor, ...], weights: tuple[Tensor, ...]
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Run one layer of torch's RNN over x (T, B, D); return the hidden states (T, B, H) and the last state.

    Autocast is off, because torch's kernels (and `out=` products) take tensors of one dtype only.
    """
    with without_autocast(x):
        hidden = [value.unsqueeze(0).contiguous() for value in start]  # cuDNN does not accept views
        # The flag `train` keeps what the gradient needs; without dropout it has no other effect.
        out, *last = KERNELS[kind](
            x, hidden if kind == "LSTM" else hidden[0], weights, True, 1, 0.0, torch.is_grad_enabled(), False, False
        )
    return out, tuple(value.squeeze(0) for value in last)


@torch.library.custom_op("regard::fused_recurrence", mutates_args=())
def fused_recurrence(
    kind: str, x: Tensor, h: Tensor, c: Tensor | None, W_x: Tensor, W_h: Tensor, b_x: Tensor, b_h: Tensor
) -> tuple[Tensor, Tensor]:
    """Run `run_kernel` as one operator; return the hidden states, and the last c of an LSTM (otherwise empty)."""
    out, last = run_kernel(kind, x, (h,) if c is None else (h, c), (W_x, W_h, b_x, b_h))
    # An operator's outputs may not share memory.
    return out.contiguous(), x.new_empty(0) if c is None else last[1].clone()


@fused_recurrence.register_fake
def _(
    kind: str, x: Tensor, h: Tensor, c: Tensor | None, W_x: Tensor, W_h: Tensor, b_x: Tensor, b_h: Tensor
) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape[0], *h.shape), x.new_empty(0) if c is None else torch.empty_like(c)


DISPATCH_OUTSIDE = (torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set())


@torch.library.custom_op("regard::fused_recurrence_backward", mutates_args=())
def fused_recurrence_backward(
    kind: str,
    d_out: Tensor,
    d_last: Tensor,
    x: Tensor,
    h: Tensor,
    c: Tensor | None,
    W_x: Tensor,
    W_h: Tensor,
    b_x: Tensor,
    b_h: Tensor,
) -> list[Tensor]:
    """Return the gradients of x, of the start and of the weights.

    The kernel is run again: what it keeps for its gradient differs between devices and cannot be an output of the
    operator.
    """
    given = [x, h, W_x, W_h, b_x, b_h] if c is None else [x, h, c, W_x, W_h, b_x, b_h]
    leaves = [value.detach().requires_grad_() for value in given]
    # Inside an operator torch records no gradients, even with enable_grad, unless it dispatches as outside.
    with torch._C._ForceDispatchKeyGuard(*DISPATCH_OUTSIDE), torch.enable_grad():
        out, last = run_kernel(kind, leaves[0], tuple(leaves[1:-4]), tuple(leaves[-4:]))
        outs, d_outs = ([out], [d_out]) if c is None else ([out, last[1]], [d_out, d_last])
        gradients = torch.autograd.grad(outs, leaves, d_outs)
    return [gradient.clone(memory_format=torch.contiguous_format) for gradient in gradients]


@fused_recurrence_backward.register_fake
def _(
    kind: str,
    d_out: Tensor,
    d_last: Tensor,
    x: Tensor,
    h: Tensor,
    c: Tensor | None,
    W_x: Tensor,
    W_h: Tensor,
    b_x: Tensor,
    b_h: Tensor,
) -> list[Tensor]:
    given = [x, h, W_x, W_h, b_x, b_h] if c is None else [x, h, c, W_x, W_h, b_x, b_h]
    return [value.new_empty(value.shape) for value in given]


def _keep_for_fused_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.kind, *tensors = inputs
    ctx.save_for_backward(*tensors)


def _fused_backward(ctx: Any, d_out: Tensor, d_last: Tensor) -> tuple[Tensor | None, ...]:
    x, h, c, *weights = ctx.saved_tensors
    gradients = fused_recurrence_backward(ctx.kind, d_out, d_last, x, h, c, *weights)
    if c is None:
        gradients.insert(2, None)
    return None, *gradients


fused_recurrence.register_autograd(_fused_backward, setup_context=_keep_for_fused_backward)


# --- the gated recurrence ------------------------------------------------------------------------------------------


def gated_states(
    x_r: Tensor, x_z: Tensor, x_n: Tensor, h: Tensor, W_r: Tensor, W_z: Tensor | None, W_n: Tensor, squash: bool
) -> Tensor:
    """Return h_t of all steps (T, B, H), see `gated_recurrence`; step by step where torch.func needs derivatives."""
    if not is_transformed():
        hs: Tensor = gated_recurrence(x_r, x_z, x_n, h, W_r, W_z, W_n, squash)[0]
        return hs
    states = []
    for products in zip(x_r, x_z, x_n, strict=True):
        _, z, n = gates(*products, h, W_r, W_z, W_n, squash)
        h = torch.lerp(h, n, z)
        states.append(h)
    return torch.stack(states)


def gates(
    x_r: Tensor, x_z: Tensor, x_n: Tensor, h: Tensor, W_r: Tensor, W_z: Tensor | None, W_n: Tensor, squash: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return r, z and n of steps that begin with the hidden states h, see `gated_recurrence`."""
    with without_autocast(h):
        r = torch.sigmoid(x_r + h @ W_r.t())
        z = torch.sigmoid(x_z if W_z is None else x_z + (h.tanh() if squash else h) @ W_z.t())
        return r, z, torch.tanh(x_n + (r * h) @ W_n.t())


@torch.library.custom_op("regard::gated_recurrence", mutates_args=())
def gated_recurrence(
    x_r: Tensor, x_z: Tensor, x_n: Tensor, h: Tensor, W_r: Tensor, W_z: Tensor | None, W_n: Tensor, squash: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return h_t, r_t, z_t and n_t of all steps, each (T, B, H), from the input products and the start h (B, H).

    r = σ(x_r + W_r h); z = σ(x_z + W_z φ(h)); n = tanh(x_n + W_n (r * h)); h' = h + z * (n - h),
    where φ is tanh if `squash`, otherwise the identity; without W_z, z does not see h.
    """
    hs, rs, ns = torch.empty_like(x_r), torch.empty_like(x_r), torch.empty_like(x_r)
    zs = torch.empty_like(x_r) if W_z is not None else torch.sigmoid(x_z)
    with without_autocast(h):
        # Results are written in place: on CUDA the cost of this loop is the number of kernels it starts.
        for t in range(x_r.shape[0]):
            r, z, n = rs[t], zs[t], ns[t]
            torch.addmm(x_r[t], h, W_r.t(), out=r).sigmoid_()
            if W_z is not None:
                torch.addmm(x_z[t], h.tanh() if squash else h, W_z.t(), out=z).sigmoid_()
            torch.addmm(x_n[t], r * h, W_n.t(), out=n).tanh_()
            h = torch.lerp(h, n, z, out=hs[t])
    return hs, rs, zs, ns


@gated_recurrence.register_fake
def _(
    x_r: Tensor, x_z: Tensor, x_n: Tensor, h: Tensor, W_r: Tensor, W_z: Tensor | None, W_n: Tensor, squash: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return torch.empty_like(x_r), torch.empty_like(x_r), torch.empty_like(x_r), torch.empty_like(x_r)


@torch.library.custom_op("regard::gated_recurrence_backward", mutates_args=())
def gated_recurrence_backward(
    d_hs: Tensor,
    rs: Tensor,
    keep: Tensor,
    by_r: Tensor,
    by_z: Tensor,
    by_n: Tensor,
    slope: Tensor | None,
    W_r: Tensor,
    W_z: Tensor | None,
    W_n: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Loop over the gradient, last step first; return those of x_r, x_z, x_n (T, B, H) and of the start (B, H).

    With d the gradient of h_t: d_n = d * by_n, d_z = d * by_z, u = d_n W_n, d_r = u * by_r, and that of h_{t-1} is
    d * keep + u * r + d_r W_r + (d_z W_z) * slope.
    """
    d_r, d_z, d_n = torch.empty_like(rs), torch.empty_like(rs), torch.empty_like(rs)
    d = d_hs[-1]
    with without_autocast(d):
        for t in reversed(range(rs.shape[0])):
            torch.mul(d, by_n[t], out=d_n[t])
            torch.mul(d, by_z[t], out=d_z[t])
            u = d_n[t] @ W_n
            torch.mul(u, by_r[t], out=d_r[t])
            d = torch.addcmul(d_hs[t - 1], d, keep[t]) if t > 0 else d * keep[t]
            d.addcmul_(u, rs[t]).addmm_(d_r[t], W_r)
            if W_z is not None:
                d = d.addmm_(d_z[t], W_z) if slope is None else d.addcmul_(d_z[t] @ W_z, slope[t])
    return d_r, d_z, d_n, d


@gated_recurrence_backward.register_fake
def _(
    d_hs: Tensor,
    rs: Tensor,
    keep: Tensor,
    by_r: Tensor,
    by_z: Tensor,
    by_n: Tensor,
    slope: Tensor | None,
    W_r: Tensor,
    W_z: Tensor | None,
    W_n: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return torch.empty_like(rs), torch.empty_like(rs), torch.empty_like(rs), rs.new_empty(rs.shape[1:])


def _keep_for_gated_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    _, _, _, h, W_r, W_z, W_n, ctx.squash = inputs
    ctx.save_for_backward(h, W_r, W_z, W_n, *output)


def _gated_backward(ctx: Any, d_hs: Tensor, *unused: Tensor) -> tuple[Tensor | None, ...]:
    h, W_r, W_z, W_n, hs, rs, zs, ns = ctx.saved_tensors
    with without_autocast(h):
        before = torch.cat([h.unsqueeze(0), hs[:-1]])
        seen = before.tanh() if ctx.squash else before
        d_r, d_z, d_n, d_start = gated_recurrence_backward(
            d_hs,
            rs,
            1 - zs,
            before * rs * (1 - rs),
            (ns - before) * zs * (1 - zs),
            zs * (1 - ns * ns),
            1 - seen * seen if ctx.squash else None,
            W_r,
            W_z,
            W_n,
        )
        # One product over all time steps for each weight.
        d_W_r = torch.einsum("tbo,tbi->oi", d_r, before)
        d_W_z = torch.einsum("tbo,tbi->oi", d_z, seen) if W_z is not None else None
        d_W_n = torch.einsum("tbo,tbi->oi", d_n, rs * before)
    return d_r, d_z, d_n, d_start, d_W_r, d_W_z, d_W_n, None


gated_recurrence.register_autograd(_gated_backward, setup_context=_keep_for_gated_backward)
