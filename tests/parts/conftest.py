"""What tests of several parts share."""

from importlib import import_module

import pytest
import torch

attend_module = import_module("regard.parts.attend")  # `regard.parts.attend` is the function


@pytest.fixture
def calls(monkeypatch):
    """Record which kernels run, and how the fused one is called."""
    noted = []
    for name in ("explicit", "fused", "flex"):
        kernel = getattr(attend_module, name)
        monkeypatch.setattr(
            attend_module, name, lambda *a, kernel=kernel, name=name: (noted.append(name), kernel(*a))[1]
        )
    inner = torch.nn.functional.scaled_dot_product_attention

    def torchs(query, key, value, mask, dropout, causal, **options):
        noted.append(("causal" if causal else "open", None if mask is None else tuple(mask.shape)))
        return inner(query, key, value, mask, dropout, causal, **options)

    monkeypatch.setattr(attend_module.F, "scaled_dot_product_attention", torchs)
    return noted
