"""Heads: what they scale and what they add."""

import torch

from regard.models.head import ClassesConfig, LogitsConfig
from regard.parts.embed import Tokens
from regard.parts.pool import LastConfig


def test_logits_can_be_scaled_by_the_width() -> None:
    tokens = Tokens(7, 16)
    x = torch.randn(2, 3, 16)
    table = tokens.table.weight
    scaled = LogitsConfig(tied=True, scale=True).build(16, tokens)(x, table)
    torch.testing.assert_close(scaled, x @ table.T / 4)


def test_the_bias_is_not_scaled() -> None:
    tokens = Tokens(7, 16)
    head = LogitsConfig(tied=True, scale=True, bias=True).build(16, tokens)
    with torch.no_grad():
        head.bias += torch.arange(7)
    torch.testing.assert_close(head(torch.zeros(1, 16), tokens.table.weight)[0], torch.arange(7.0))


def test_classes_without_a_bias() -> None:
    head = ClassesConfig(LastConfig(), classes=3, bias=False).build(4)
    assert [name for name, _ in head.named_parameters()] == ["classify.weight"]
    x = torch.randn(2, 5, 4)
    torch.testing.assert_close(head(x), x[:, -1] @ head.classify.weight.T)
