"""Every model compiles into one graph, forward and backward, and gives the same results."""

import pytest
import torch

from .cases import Case, batch, call, cases, name_of

pytestmark = pytest.mark.compile

# Inductor generates code, which takes long, so it runs on a few; capturing is checked for all. Recurrent cells are
# compiled by it in tests/parts/test_recurrent.py.
INDUCTOR = {"gpt2", "deepseek-like"}


def gradients(model, data):
    model.zero_grad()
    out = call(model, data)
    out.square().mean().backward()
    return out.detach(), [parameter.grad.clone() for parameter in model.parameters()]


@pytest.mark.parametrize("case", cases(), ids=name_of)
def test_compiles_into_one_graph(case: Case):
    torch._dynamo.reset()
    case = case.shallow()
    model, data = case.build(torch.float32), batch(case, rows=2, length=5, dtype=torch.float32)  # a cell is unrolled
    expected, expected_gradients = gradients(model, data)
    backend = "inductor" if case.name in INDUCTOR else "aot_eager"
    compiled = torch.compile(model, fullgraph=True, backend=backend)
    out, found = gradients(compiled, data)
    torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-4)
    for a, b in zip(found, expected_gradients, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)
