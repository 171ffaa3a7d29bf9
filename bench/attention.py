"""`Attention` against the same projections with a direct call of torch's kernel; and its memory, linear in T.

`python -m bench.attention [--device cuda]`. On CUDA: bf16, forward and backward, plain and compiled, and peak memory
from 1k to 32k tokens. A tensor of size T x S at 32k tokens and 16 heads would take 32 GiB.
"""

import argparse
from collections.abc import Callable

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor

from bench.timing import Row, milliseconds, show
from regard.parts.attention import Attention, AttentionConfig
from regard.parts.heads import MultiHeadsConfig
from regard.parts.mask import Causal, Padding, padded_positions
from regard.parts.position import RopeConfig

SIZES = {
    "cpu": (4, 256, 256, 4),
    "cuda": (64, 1024, 1024, 16),
}  # B, T, D, H; large enough that kernels, not launches, take the time


def direct(attention: Attention) -> Callable[[Tensor], Tensor]:
    """Return the same projections with scaled_dot_product_attention between them."""
    heads = attention.heads

    def call(x: Tensor) -> Tensor:
        q, k, v = (
            rearrange(linear(x), "B T (H E) -> B H T E", H=heads.heads)
            for linear in (heads.to_query, heads.to_key, heads.to_value)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return heads.output(rearrange(y, "B H T E -> B T (H E)"))

    return call


def rows(device: str = "cpu") -> list[Row]:
    """Time ours against the direct call."""
    torch.set_num_threads(1)
    B, T, D, H = SIZES[device]
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    attention = AttentionConfig(MultiHeadsConfig(H)).build(D).to(device, dtype)
    x = torch.randn(B, T, D, device=device, dtype=dtype, requires_grad=True)
    ours: Callable[[Tensor], Tensor] = lambda x: attention(x, mask=Causal())  # noqa: E731
    theirs = direct(attention)
    pairs = {"": (ours, theirs)}
    if device == "cuda":
        pairs[" compiled"] = (torch.compile(ours, fullgraph=True), torch.compile(theirs, fullgraph=True))
    result = []
    for suffix, (a, b) in pairs.items():
        calls = {"ours": lambda a=a: a(x).sum().backward(), "theirs": lambda b=b: b(x).sum().backward()}
        medians = milliseconds(calls, device, repeats=201 if device == "cuda" else 41)
        what, against = f"causal self-attention{suffix}", f"direct SDPA{suffix}"
        result.append(Row("attention", what, against, medians["ours"], medians["theirs"], 1.03))
    return result


def memory() -> list[tuple[str, int, float, float]]:
    """Return peak CUDA memory of forward and backward above the input, in MiB and in bytes per token, as T grows."""
    D, H = 1024, 16
    forms = {
        "causal": (AttentionConfig(MultiHeadsConfig(H)), lambda T: {"mask": Causal()}),
        "causal, rope, grouped": (
            AttentionConfig(MultiHeadsConfig(H, kv_heads=4), position=RopeConfig()),
            lambda T: {"mask": Causal()},
        ),
        "padding": (
            AttentionConfig(MultiHeadsConfig(H)),
            lambda T: {"mask": Padding(), "positions": padded_positions(torch.tensor([T - 5], device="cuda"), T)},
        ),
    }
    found = []
    for name, (config, arguments) in forms.items():
        attention = config.build(D).to("cuda", torch.bfloat16)
        for T in (1024, 2048, 4096, 8192, 16384, 32768):
            x = torch.randn(1, T, D, device="cuda", dtype=torch.bfloat16, requires_grad=True)
            attention(x, **arguments(T)).sum().backward()  # allocates the gradients of the weights
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            attention(x, **arguments(T)).sum().backward()
            torch.cuda.synchronize()
            peak = torch.cuda.max_memory_allocated() - before
            found.append((name, T, peak / 2**20, peak / T))
    return found


def show_memory() -> None:
    """Print the memory table."""
    print(f"{'attention':26}{'tokens':>8}{'MiB':>9}{'bytes/token':>13}")
    for name, T, mebibytes, per_token in memory():
        print(f"{name:26}{T:8}{mebibytes:9.1f}{per_token:13.0f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=SIZES, default="cpu")
    device = parser.parse_args().device
    show(rows(device))
    if device == "cuda":
        show_memory()
