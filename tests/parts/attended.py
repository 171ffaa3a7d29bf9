"""Random tensors and terms of an attention, and its definition with loops."""

import numpy as np
import torch
from hypothesis import strategies as st

from regard.parts.attend import Terms
from regard.parts.mask import Causal, Documents, Padding, Prefix, Window
from regard.parts.position import Alibi, Relative, RelativeBias
from regard.parts.score import Dot


def random(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed + sum(shape)))


def close(found, expected):
    torch.testing.assert_close(found, expected, atol=1e-10, rtol=0)


def fill(module):
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype) / 2)
    return module


def reference(query, key, value, scale, cap=None, bias=None, allowed=None):
    """The definition with loops: weights and mixed values, both NumPy; `bias` and `allowed` are called per pair."""
    query, key, value = query.numpy(), key.numpy(), value.numpy()
    (B, H, T, _), (_, K, S, _) = query.shape, key.shape
    weights = np.zeros((B, H, T, S))
    for b, h, i in np.ndindex(B, H, T):
        seen = [j for j in range(S) if allowed is None or allowed(b, i, j)]
        scores = [scale * query[b, h, i] @ key[b, h * K // H, j] for j in seen]
        scores = [s if cap is None else cap * np.tanh(s / cap) for s in scores]
        scores = [s + (0 if bias is None else bias(h, b, i, j)) for s, j in zip(scores, seen, strict=True)]
        powers = np.exp(np.array(scores) - max(scores, default=0))
        weights[b, h, i, seen] = powers / powers.sum() if seen else []
    grouped = np.repeat(value, H // K, axis=1)
    return torch.tensor(weights @ grouped), torch.tensor(weights)


@st.composite
def random_terms(draw):
    """Draw sizes and terms: any mask, bias, cap, grouping, lengths."""
    B, K, groups = draw(st.integers(1, 2)), draw(st.integers(1, 2)), draw(st.integers(1, 3))
    T, S = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    H = K * groups
    place = st.integers(-1, 6)
    q, k = (
        draw(
            st.none()
            | st.lists(st.lists(place, min_size=n, max_size=n), min_size=B, max_size=B).map(
                lambda rows: torch.tensor(rows, dtype=torch.long)
            )
        )
        for n in (T, S)
    )
    rules = [Causal(), Padding(), Window(draw(st.integers(1, 4)))]
    rules.append(Prefix(torch.tensor([draw(st.integers(0, 5)) for _ in range(B)])))
    long = max(T, S)
    rules.append(Documents(torch.tensor([[draw(st.integers(0, 1)) for _ in range(long)] for _ in range(B)])))
    mask = None
    for rule in draw(st.lists(st.sampled_from(rules), max_size=3)):
        mask = rule & mask
    position = draw(st.sampled_from([Relative(), Alibi(H).double(), fill(RelativeBias(H, 8, 6, True).double())]))
    score = draw(st.sampled_from([Dot(4), Dot(4, scale=1.0), Dot(4, cap=0.7)]))
    return (B, H, K, T, S), Terms(score, mask, position, q, k)
