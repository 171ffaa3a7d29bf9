"""The cross-entropy of a head in chunks: the same losses and gradients as from all logits at once."""

import os

import pytest
import torch
from torch import Tensor

from regard.models.head import Logits
from regard.models.model import Model
from regard.models.recipe import build
from regard.tasks import chunked_loss
from regard.tasks.chunked_loss import _compare, chunked_cross_entropy, compare_by_kernel, count_chunks, model_loss
from regard.tasks.loss import IGNORE, Losses, cross_entropy

DIM, WORDS = 16, 40


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def make_head(**options: object) -> Logits:
    head = Logits(DIM, WORDS, **options).double()  # type: ignore[arg-type]
    if head.bias is not None:
        head.bias.data = draw(WORDS, seed=3)
    return head


def labels_of(*shape: int) -> Tensor:
    labels = torch.randint(WORDS, shape, generator=torch.Generator().manual_seed(1))
    labels.view(-1)[::3] = IGNORE
    return labels


def learned(losses: Losses, *weights: Tensor) -> list[Tensor]:
    """Return losses, count and the gradients of weights for a part of the objective."""
    for weight in weights:
        weight.grad = None
    (0.3 * losses.objective).backward()
    return [*losses, *(weight.grad for weight in weights if weight.grad is not None)]


HEADS = {
    "tied": {},
    "untied": {"tied": False},
    "bias": {"bias": True},
    "capped": {"cap": 2.0},
    "scaled": {"scale": 0.25},
    "transform": {"transform": torch.nn.Sequential(torch.nn.Linear(DIM, DIM), torch.nn.Tanh())},
    "bias and cap": {"bias": True, "cap": 2.0},
}


@pytest.mark.parametrize("options", HEADS.values(), ids=HEADS.keys())
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("chunk", [1, 200, 250, 10**6])
def test_chunks_give_the_losses_and_gradients_of_all_logits(options: dict, smoothing: float, chunk: int) -> None:
    head, labels = make_head(**options), labels_of(3, 10)
    x, table = draw(3, 10, DIM).requires_grad_(), draw(WORDS, DIM, seed=2).requires_grad_()
    weights = (x, table, *head.parameters())
    whole = learned(cross_entropy(head(x, table), labels, smoothing), *weights)
    found = learned(chunked_cross_entropy(x, head, table, labels, smoothing, chunk), *weights)
    for a, b in zip(found, whole, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


def test_only_the_objective_has_a_gradient_and_without_gradients_none_is_computed() -> None:
    head, labels, x, table = make_head(), labels_of(8), draw(8, DIM).requires_grad_(), draw(WORDS, DIM, seed=2)
    found = chunked_cross_entropy(x, head, table, labels, 0.1, 100)
    assert [value.requires_grad for value in found] == [True, False, False]
    with torch.no_grad():
        again = chunked_cross_entropy(x, head, table, labels, 0.1, 100)
    assert not again.objective.requires_grad
    assert torch.equal(again.objective, found.objective.detach())


def test_where_nothing_counts_all_is_zero() -> None:
    x = draw(4, DIM).requires_grad_()
    found = chunked_cross_entropy(x, make_head(), draw(WORDS, DIM), torch.full((4,), IGNORE), 0.1, 60)
    found.objective.backward()
    assert [value.item() for value in found] == [0, 0, 0]
    assert x.grad is not None
    assert not x.grad.any()


def test_autocast_rounds_as_all_logits_at_once_do() -> None:
    """In bfloat16 both are as far from float64 as its rounding: 2^-9 for each number, less for their sums."""
    head, labels = make_head().float(), labels_of(64)
    x, table = draw(64, DIM).float().requires_grad_(), draw(WORDS, DIM, seed=2).float().requires_grad_()
    exact = learned(cross_entropy(head(x.double(), table.double()), labels, 0.1), x, table)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = learned(cross_entropy(head(x, table), labels, 0.1), x, table)
        found = learned(chunked_cross_entropy(x, head, table, labels, 0.1, 800), x, table)
    assert [each.dtype for each in found[3:]] == [torch.float32] * 2
    for a, b, c in zip(found, rounded, exact, strict=True):
        scale = c.double().norm()
        assert (a.double() - c.double()).norm() <= 2 * (b.double() - c.double()).norm() + 1e-3 * scale


@pytest.mark.parametrize(("rows", "chunk", "count"), [(8, 40, 8), (8, 80, 4), (8, 120, 4), (7, 120, 3), (8, 999, 1)])
def test_chunks_have_the_same_size_if_that_needs_few_more(rows: int, chunk: int, count: int) -> None:
    assert count_chunks(rows, WORDS, chunk) == count


SMALL = ("model.dim=32", "model.vocabulary=50")


def few_layers(recipe: str) -> Model:
    sides = ("encoder.", "decoder.") if recipe == "translator" else ("",)
    return build(recipe, *SMALL, *(f"model.{side}depth=1" for side in sides)).double()


@pytest.mark.parametrize("recipe", ["writer", "reader", "translator", "lstm"])
def test_models_give_the_same_loss_without_holding_their_logits(recipe: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = few_layers(recipe).eval()
    texts = [torch.randint(5, 50, (2, 6)) for _ in range(2 if recipe == "translator" else 1)]
    labels = labels_of(2, 6)
    whole = learned(model_loss(model, labels, 0.1, *texts), *model.parameters())
    made: list[int] = []
    monkeypatch.setattr(chunked_loss, "LARGE", 0)
    monkeypatch.setattr(Logits, "forward", lambda *given: made.append(1))
    found = learned(model_loss(model, labels, 0.1, *texts), *model.parameters())
    assert not made
    for a, b in zip(found, whole, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


def test_a_head_that_is_watched_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    model, seen = few_layers("writer"), []
    monkeypatch.setattr(chunked_loss, "LARGE", 0)
    model.head.register_forward_hook(lambda *given: seen.append(1))
    model_loss(model, labels_of(2, 6), 0.0, torch.randint(5, 50, (2, 6)))
    assert seen


@pytest.mark.parametrize("words", [40, 4096, 5000])  # a block of the kernel has 4,096
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("cap", [None, 15.0, 1.5])
@pytest.mark.parametrize("derives", [True, False])
def test_the_kernel_computes_the_same(words: int, smoothing: float, cap: float | None, derives: bool) -> None:
    """On CUDA, or with TRITON_INTERPRET=1 on the CPU."""
    pytest.importorskip("triton", reason="triton comes with torch for CUDA")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu" and os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("set TRITON_INTERPRET=1 to run the kernel without CUDA")
    logits, labels = 3 * draw(6, words), torch.tensor([IGNORE, 0, words - 1, 7, IGNORE, 12])
    logits[1] = 40.0
    logits[3, 7] = -1000.0
    wanted, gradient = _compare(logits.clone(), labels, smoothing, cap, True)
    changed = logits.float().to(device)
    found = compare_by_kernel(changed, labels.to(device), smoothing, cap, derives)
    torch.testing.assert_close(found.double().cpu(), wanted, rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(changed.double().cpu(), gradient if derives else logits, rtol=1e-5, atol=1e-6)


@pytest.mark.compile
def test_it_compiles_into_one_graph() -> None:
    torch._dynamo.reset()
    head, labels = make_head(bias=True, cap=2.0), labels_of(3, 10)
    x, table = draw(3, 10, DIM).requires_grad_(), draw(WORDS, DIM, seed=2).requires_grad_()
    compiled = torch.compile(chunked_cross_entropy, fullgraph=True, backend="aot_eager", dynamic=False)
    whole = learned(cross_entropy(head(x, table), labels, 0.1), x, table, head.bias)
    found = learned(compiled(x, head, table, labels, 0.1, 250), x, table, head.bias)
    for a, b in zip(found, whole, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)
