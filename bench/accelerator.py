"""Every recipe on an accelerator: `python -m bench.accelerator`.

What tests cannot do on a machine without one. Each shrunk recipe is compiled whole (inductor, fullgraph), forward and
backward, and compared with the same model on the CPU; the attention kernels are compared with each other there, and a
query that sees nothing must get zeros and finite gradients on all of them. Exits with 1 if anything disagrees.
"""

import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor

from regard.parts.attend import Terms, explicit, flex, fused
from regard.parts.mask import Causal, Documents, Padding, Prefix, Rule, Window
from regard.parts.position import Alibi, RelativeBias
from regard.parts.score import Dot
from tests.laws.cases import Batch, Case, batch, call, cases

DEVICE = "cuda"


def moved(data: Batch) -> Batch:
    return Batch(*(None if value is None else value.to(DEVICE) for value in vars(data).values()))


def gradients(model: torch.nn.Module, data: Batch) -> list[Tensor]:
    model.zero_grad()
    out = call(model, data)
    out.square().mean().backward()
    return [tensor.to("cpu", copy=True) for tensor in (out.detach(), *(p.grad for p in model.parameters()))]


def difference(found: list[Tensor], wanted: list[Tensor]) -> float:
    """The largest error of all, relative to the largest number of each."""
    pairs = zip(found, wanted, strict=True)
    return max(float((a - b).abs().max() / (b.abs().max() + 1e-3)) for a, b in pairs)


def check_recipe(case: Case) -> bool:
    torch._dynamo.reset()
    model, data = case.build(torch.float32), batch(case, dtype=torch.float32)
    wanted = gradients(model, data)
    model = model.to(DEVICE)
    begin = time.perf_counter()
    compiled = torch.compile(model, fullgraph=True)
    error = difference(gradients(compiled, moved(data)), wanted)
    seconds = time.perf_counter() - begin
    with torch.autocast(DEVICE, torch.bfloat16):
        rough = difference(gradients(model, moved(data)), wanted)
    good = error < 2e-2 and rough < 1.0
    print(f"{case.name:32} compiled {error:.1e}  bf16 {rough:.1e}  {seconds:5.1f} s  {'' if good else 'WRONG'}")
    return good


def check_kernels() -> bool:
    """Compare all kernels on all kinds of rules and biases, with a row that sees nothing."""
    B, H, K, T, E = 2, 4, 2, 256, 64
    documents = torch.arange(T, device=DEVICE).div(100, rounding_mode="floor").expand(B, T)
    prefix = torch.tensor([10, 200], device=DEVICE)
    positions = torch.arange(T, device=DEVICE).repeat(B, 1)
    positions[1, 150:] = -1
    rules: dict[str, Rule | None] = {
        "all": None,
        "causal": Causal(),
        "window": Causal() & Window(17),
        "documents": Causal() & Documents(documents),
        "prefix": Prefix(prefix),
        "padding": Padding(),
        "causal padding": Causal() & Padding(),
    }
    biases = {"": None, "alibi": Alibi(H), "t5": RelativeBias(H, 32, 128, both_ways=False)}
    kernels: dict[str, Callable[..., Tensor]] = {"fused": fused, "flex": torch.compile(flex)}
    good = True
    for rule_name, rule in rules.items():
        for bias_name, bias in biases.items():
            torch._dynamo.reset()
            place = positions if "padding" in rule_name else None
            position = None if bias is None else bias.to(DEVICE)
            terms = Terms(Dot(E), rule, position, place, place)
            inputs = [torch.randn(B, n, T, E, device=DEVICE, requires_grad=True) for n in (H, K, K)]
            wanted = run(lambda *qkv: explicit(*qkv)[0], inputs, terms)
            errors = {name: difference(run(kernel, inputs, terms), wanted) for name, kernel in kernels.items()}
            right = all(error < 5e-3 for error in errors.values())
            good = good and right
            shown = "  ".join(f"{name} {error:.1e}" for name, error in errors.items())
            print(f"{rule_name + ' ' + bias_name:32} {shown}  {'' if right else 'WRONG'}")
    return good


def run(kernel: Callable[..., Tensor], inputs: list[Tensor], terms: Terms) -> list[Tensor]:
    for tensor in inputs:
        tensor.grad = None
    out = kernel(*inputs, terms)
    out.square().mean().backward()
    return [out.detach(), *(tensor.grad.clone() for tensor in inputs)]


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("highest")
    results = [check_kernels(), *(check_recipe(case) for case in cases())]
    sys.exit(0 if all(results) else 1)
