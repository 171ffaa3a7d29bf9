"""Tiny attentions that are fed step by step, and what they are compared with."""

import torch

from regard.parts.attention import AttentionConfig
from regard.parts.heads import LatentHeadsConfig, MultiHeadsConfig
from regard.parts.position import AlibiConfig, RelativeBiasConfig, RopeConfig
from regard.parts.state import State

DIM = 8


def random(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed + sum(shape)))


def close(found, expected):
    torch.testing.assert_close(found, expected, atol=1e-10, rtol=0)


def make(heads, position=None, window=None, **options):
    attention = AttentionConfig(heads, position=position, window=window, **options).build(DIM).double()
    generator = torch.Generator().manual_seed(7)
    for parameter in attention.parameters():
        parameter.data.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) / 2)
    return attention.eval().requires_grad_(False)


HEADS = [MultiHeadsConfig(4, 2), LatentHeadsConfig(2, 3, 2, 2, 3)]
POSITIONS = [None, RopeConfig(), AlibiConfig(), RelativeBiasConfig(8, 6)]


def start(attention, rows, capacity=None):
    """Return the state of a model of one attention."""
    return State([{"mixer": attention.start(rows, capacity)}], torch.zeros(rows, dtype=torch.long))


def caches(count, *windows, capacity=None):
    attentions = [make(MultiHeadsConfig(4, 2), RopeConfig(), window) for window in (windows or [None] * count)]
    state = State([{"mixer": a.start(2, capacity)} for a in attentions], torch.zeros(2, dtype=torch.long))
    return attentions, state


def feed(attentions, state, x, lengths=None):
    """Run x through every attention, each on its own, as a step of a model would."""
    step = state.advance(torch.zeros(x.shape[:2], dtype=torch.long), lengths)
    return [attention(x, state=layer["mixer"]) for attention, layer in zip(attentions, step.layers, strict=True)]
