"""Single parts, forward and backward: attention against direct calls of torch's kernel, recurrence against torch's."""

from collections.abc import Callable, Iterator
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench.case import Case, Floor, Prepared, Setting
from regard.parts.attention import Attention, AttentionConfig
from regard.parts.fused_cells import LSTM, Elman, TorchGRU
from regard.parts.gated_cells import GRU, MUT1, MUT2, MUT3, Gated
from regard.parts.heads import MultiHeads, MultiHeadsConfig
from regard.parts.mask import Causal

ATTENTION = {"cpu": (4, 256, 256, 4), "cuda": (64, 1024, 1024, 16)}  # B, T, D, H
RECURRENCE = {"cpu": (16, 64, 128), "cuda": (64, 128, 512)}  # B, T, D
Layer = Callable[[Tensor], Tensor]


def passes(layer: Layer, x: Tensor, compiles: bool) -> Prepared:
    """Return a contestant that runs forward and backward; its facts are sums of output and gradient."""
    call = torch.compile(layer, fullgraph=True) if compiles else layer
    x.requires_grad_()

    def run() -> None:
        x.grad = None
        y = call(x)
        (y if isinstance(y, Tensor) else y[0]).sum().backward()

    with torch.no_grad():
        y = layer(x)
    run()
    assert x.grad is not None
    y = y if isinstance(y, Tensor) else y[0]
    return Prepared(run, 1.0, {"output": float(y.double().abs().sum()), "gradient": float(x.grad.double().abs().sum())})


def own_attention(device: str) -> tuple[Attention, Tensor]:
    B, T, D, H = ATTENTION[device]
    torch.manual_seed(0)
    attention, x = AttentionConfig(MultiHeadsConfig(H)).build(D), torch.randn(B, T, D)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    return attention.to(device, dtype), x.to(device, dtype)


def our_attention(compiles: bool, setting: Setting) -> Prepared:
    attention, x = own_attention(setting.device)
    return passes(lambda x: attention(x, mask=Causal()), x, compiles)


def direct_attention(compiles: bool, setting: Setting) -> Prepared:
    """Return the same projections with scaled_dot_product_attention between them."""
    attention, x = own_attention(setting.device)
    heads = attention.heads
    assert isinstance(heads, MultiHeads)

    def layer(x: Tensor) -> Tensor:
        q, k, v = (
            linear(x).unflatten(2, (heads.heads, -1)).transpose(1, 2)
            for linear in (heads.to_query, heads.to_key, heads.to_value)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return heads.output(y.transpose(1, 2).flatten(2))

    return passes(layer, x, compiles)


def plain_loop(layer: Gated) -> Layer:
    """Return a function that computes the equations of `gated_recurrence` token by token."""

    def call(x: Tensor) -> Tensor:
        W_r, W_z, W_n = layer.W_hr.weight, layer.update_weight(), layer.W_hh.weight
        h, states = x.new_zeros(x.shape[0], layer.hidden), []
        for x_r, x_z, x_n in zip(*(part.unbind(0) for part in layer.products(x.transpose(0, 1))), strict=True):
            r = torch.sigmoid(x_r + h @ W_r.t())
            if W_z is not None:
                x_z = x_z + (h.tanh() if layer.squash else h) @ W_z.t()
            h = torch.lerp(h, torch.tanh(x_n + (r * h) @ W_n.t()), torch.sigmoid(x_z))
            states.append(h)
        return torch.stack(states, 1)

    return call


def recurrent_layer(kind: type[nn.Module], way: str, setting: Setting) -> Prepared:
    """Return a recurrent layer of ours, compiled or not, or as a plain loop."""
    B, T, D = RECURRENCE[setting.device]
    torch.manual_seed(0)
    layer, x = kind(D, D).to(setting.device), torch.randn(B, T, D).to(setting.device)
    return passes(plain_loop(layer) if way == "loop" and isinstance(layer, Gated) else layer, x, way == "compiled")


def torch_layer(kind: type[nn.Module], setting: Setting) -> Prepared:
    B, T, D = RECURRENCE[setting.device]
    torch.manual_seed(0)
    layer = kind(D, D, batch_first=True).to(setting.device)
    return Prepared(passes(layer, torch.randn(B, T, D).to(setting.device), compiles=False).run)


def attention_cases() -> Iterator[Case]:
    for device, (B, T, D, H) in ATTENTION.items():
        about = f"Causal attention, {B} rows of {T} tokens, {H} heads of {D // H}, forward and backward"
        for name, compiles in (("", False), (", compiled", True)) if device == "cuda" else (("", False),):
            yield Case(
                f"attention{name}",
                f"{about}{name}",
                "call",
                {"regard": partial(our_attention, compiles), "direct SDPA": partial(direct_attention, compiles)},
                (device,),
                {"output": 0.01, "gradient": 0.01},
                {"direct SDPA": 1.03},
                floor=Floor(3.0 * B * T * (8 * D * D + 2 * T * D)),
                seconds=10.0,
            )


def recurrent_cases() -> Iterator[Case]:
    for device, (B, T, D) in RECURRENCE.items():
        about = f"{B} rows of {T} tokens, width {D}, forward and backward"
        for kind, theirs in ((Elman, nn.RNN), (LSTM, nn.LSTM), (TorchGRU, nn.GRU)):
            peer = f"torch.nn.{theirs.__name__}"
            yield Case(
                f"recurrence: {kind.__name__}",
                about,
                "call",
                {"regard": partial(recurrent_layer, kind, ""), peer: partial(torch_layer, theirs)},
                (device,),
                goals={peer: 1.05},
                seconds=8.0,
            )
        for gated in (GRU, MUT1, MUT2, MUT3):
            yield Case(
                f"recurrence: {gated.__name__}",
                about,
                "call",
                {
                    "regard": partial(recurrent_layer, gated, ""),
                    "regard, compiled": partial(recurrent_layer, gated, "compiled"),
                    "plain loop": partial(recurrent_layer, gated, "loop"),
                },
                (device,),
                {"output": 1e-3, "gradient": 1e-3},
                {"plain loop": 1.0},
                seconds=8.0,
            )


CASES = [*attention_cases(), *recurrent_cases()]
