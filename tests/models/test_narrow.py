"""In training, the last layer computes only the vectors that the head reads: the same outputs and gradients."""

import pytest
import torch
from torch import Tensor

from regard.models.model import Model
from regard.models.recipe import build
from regard.models.stack import Stack

VIT = (
    *("vit", "model.dim=16", "model.depth=2", "model.layers.block.mixer.heads.heads=2"),
    *("model.layers.block.feedforward.hidden=24", "model.layers.block.dropout=0.0", "model.patches.patch=4"),
    *("model.patches.height=8", "model.patches.width=8", "model.patches.channels=1", "model.position.length=5"),
    "model.head.classes=3",
)
BERT = (
    *("bert", "model.vocabulary=23", "model.dim=16", "model.depth=2", "model.layers.block.mixer.heads.heads=2"),
    *("model.layers.block.feedforward.hidden=24", "model.layers.block.dropout=0.0", "model.embed.dropout=0.0"),
    *("model.layers.block.mixer.dropout=0.0", "model.head.kind=classes", "model.head.classes=3"),
)
CASES = {
    "vit": VIT,
    "vit, post": (*VIT, "model.layers.block.residual=post"),
    "vit, around": (*VIT, "model.layers.block.residual=around"),
    "vit, gate and bias": (
        *VIT,
        "model.layers.block.mixer.gate=true",
        "model.layers.block.mixer.position.kind=relative-bias",
    ),
    "bert": BERT,
    "bert, rotary": (*BERT, "model.embed.position=none", "model.layers.block.mixer.position.kind=rope"),
    "bert, window": (*BERT, "model.layers.block.mixer.window=2"),
}
WHOLE = {
    "vit, mean": (*VIT, "model.head.pool.kind=mean", "model.position.length=4"),
    "vit, parallel": (*VIT, "model.layers.block.residual=parallel"),
}


def call(model: Model) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    if model.reads == "image":
        return model(torch.randn(3, 1, 8, 8, generator=generator, dtype=torch.float64))
    tokens = torch.randint(5, 23, (3, 6), generator=generator)
    return model(tokens, lengths=torch.tensor([6, 4, 1]))


def learned(model: Model) -> list[Tensor]:
    model.zero_grad()
    found = call(model)
    found.square().sum().backward()
    return [found.detach(), *(weight.grad for weight in model.parameters() if weight.grad is not None)]


@pytest.fixture
def tops(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record how many vectors leave the stack."""
    found: list[int] = []
    forward = Stack.forward

    def note(self: Stack, *given: Tensor, **named: object) -> Tensor:
        x = forward(self, *given, **named)  # type: ignore[arg-type]
        found.append(x.shape[1])
        return x

    monkeypatch.setattr(Stack, "forward", note)
    return found


@pytest.mark.parametrize("changes", CASES.values(), ids=CASES.keys())
def test_a_head_that_reads_the_first_vector_gets_the_same_one(changes: tuple[str, ...], tops: list[int]) -> None:
    model = build(*changes).double()
    whole, narrow = learned(model.eval()), learned(model.train())
    assert tops[0] > 1
    assert tops[1] == 1
    for a, b in zip(narrow, whole, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("changes", WHOLE.values(), ids=WHOLE.keys())
def test_other_heads_and_layers_get_all(changes: tuple[str, ...], tops: list[int]) -> None:
    model = build(*changes).double()
    whole, same = learned(model.eval()), learned(model.train())
    assert min(tops) > 1
    for a, b in zip(same, whole, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)
