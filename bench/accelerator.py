"""Every recipe on an accelerator: `python -m bench.accelerator [NAME ...]`, or those whose names contain a NAME.

These checks need a GPU, so they are not part of the tests. Captured updates are compared with others
(bench/captured.py). Each shrunk recipe is compiled whole (inductor, fullgraph), forward and backward, and compared with
the same model on the CPU. The attention kernels are compared with each other on the GPU; a query that sees nothing must
get zeros and finite gradients from all of them. Exits with 1 if anything disagrees.
"""

import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from bench.captured import CAPTURE_CASES, CaptureCase, check_capture
from regard.parts.attend import NO_POSITION, Terms, explicit, flex, fused
from regard.parts.mask import Causal, Documents, Padding, Prefix, Rule, Window
from regard.parts.position import Alibi, Relative, RelativeBias
from regard.parts.score import Dot
from regard.parts.short_attention import short_attention
from regard.tasks.chunked_loss import _compare, compare_by_kernel
from regard.tasks.loss import IGNORE
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
    """Return the largest error of all tensors, relative to the largest number of each."""
    pairs = zip(found, wanted, strict=True)
    return max(float((a - b).abs().max() / (b.abs().max() + 1e-3)) for a, b in pairs)


def check_recipe(case: Case) -> tuple[bool, str]:
    """Compare a recipe, compiled on the accelerator, with the CPU; and check that bf16 is close."""
    model, data = case.build(torch.float32), batch(case, dtype=torch.float32)
    wanted = gradients(model, data)
    model = model.to(DEVICE)
    begin = time.perf_counter()
    error = difference(gradients(torch.compile(model, fullgraph=True), moved(data)), wanted)
    seconds = time.perf_counter() - begin
    with torch.autocast(DEVICE, torch.bfloat16):
        rough = difference(gradients(model, moved(data))[:1], wanted[:1])
    good = error < 2e-2 and rough < 0.2
    return good, f"{case.name:32} compiled {error:.1e}  bf16 {rough:.1e}  {seconds:5.1f} s"


RULES = ("all", "causal", "window", "documents", "prefix", "padding", "causal padding")
BIASES = ("", "alibi", "t5")
B, H, K, T, E = 2, 4, 2, 256, 64


def make_terms(rule_name: str, bias_name: str) -> Terms:
    """Return terms of attention in which some query sees nothing."""
    documents = torch.arange(T, device=DEVICE).div(100, rounding_mode="floor").expand(B, T)
    positions = torch.arange(T, device=DEVICE).repeat(B, 1)
    positions[1, 150:] = -1
    rules: dict[str, Rule | None] = {
        "all": None,
        "causal": Causal(),
        "window": Causal() & Window(17),
        "documents": Causal() & Documents(documents),
        "prefix": Prefix(torch.tensor([10, 200], device=DEVICE)),
        "padding": Padding(),
        "causal padding": Causal() & Padding(),
    }
    biases: dict[str, Relative] = {
        "": NO_POSITION,
        "alibi": Alibi(H).to(DEVICE),
        "t5": RelativeBias(H, 32, 128, both_ways=False).to(DEVICE),
    }
    positions_given = positions if "padding" in rule_name else None
    return Terms(Dot(E), rules[rule_name], biases[bias_name], positions_given, positions_given)


def check_kernels(rule_name: str, bias_name: str) -> tuple[bool, str]:
    """Compare all kernels under one rule and one bias."""
    terms = make_terms(rule_name, bias_name)
    inputs = [torch.randn(B, heads, T, E, device=DEVICE, requires_grad=True) for heads in (H, K, K)]
    wanted = run(explicit, inputs, terms)
    kernels: dict[str, Callable[..., Tensor]] = {"fused": fused, "flex": torch.compile(flex, fullgraph=True)}
    errors = {name: difference(run(kernel, inputs, terms), wanted) for name, kernel in kernels.items()}
    shown = "  ".join(f"{name} {error:.1e}" for name, error in errors.items())
    return all(error < 5e-3 for error in errors.values()), f"{rule_name + ' ' + bias_name:32} {shown}"


def run(kernel: Callable[..., Tensor], inputs: list[Tensor], terms: Terms) -> list[Tensor]:
    for tensor in inputs:
        tensor.grad = None
    out = kernel(*inputs, terms)
    out.square().mean().backward()
    return [out.detach(), *(tensor.grad.clone() for tensor in inputs)]


SHORT = {"causal": (64, 64, True), "mask": (50, 64, False), "long mask": (128, 124, False), "few": (7, 3, False)}
SHORT["blind mask"] = (40, 40, False)  # some queries see nothing


def check_short_attention(name: str) -> tuple[bool, str]:
    """Compare attention over short rows in bfloat16 with float64, forward and backward."""
    queries, keys, causal = SHORT[name]
    lengths = (queries, keys, keys)
    given = [torch.randn(B, n, H, E, device=DEVICE, dtype=torch.bfloat16).transpose(1, 2) for n in lengths]
    gradient = torch.randn(B, H, queries, E, device=DEVICE, dtype=torch.bfloat16)
    mask = None
    if "mask" in name:
        mask = torch.zeros(B, 1, queries, keys, device=DEVICE, dtype=torch.bfloat16)
        mask.masked_fill_(torch.rand_like(mask) < 0.4, -torch.inf)[..., 0] = 0
    blind = torch.zeros(B, 1, queries, 1, dtype=torch.bool, device=DEVICE)
    blind[:, :, ::3] = "blind" in name
    hidden = None if mask is None else mask.masked_fill(blind, -torch.inf)
    found = derive(partial(short_attention, mask=hidden, causal=causal, scale=0.2), given, gradient)
    terms = {"attn_mask": None if mask is None else mask.double(), "is_causal": causal, "scale": 0.2}

    def attend(*inputs: Tensor) -> Tensor:
        return scaled_dot_product_attention(*inputs, **terms).masked_fill(blind, 0)

    exact = derive(attend, [each.double() for each in given], gradient.double())
    errors = [float((a.double() - b).norm() / b.norm()) for a, b in zip(found, exact, strict=True)]
    return max(errors) < 1e-2, f"short attention, {name:15} {max(errors):.1e}"


def derive(attend: Callable[..., Tensor], given: list[Tensor], gradient: Tensor) -> list[Tensor]:
    """Return the result, and the gradients of what is given."""
    inputs = [each.detach().requires_grad_() for each in given]
    out = attend(*inputs)
    return [out.detach(), *torch.autograd.grad(out, inputs, gradient)]


def check_loss(smoothing: float, cap: float | None) -> tuple[bool, str]:
    """Compare the kernel of the loss with its definition in float64."""
    logits = 3 * torch.randn(70, 50_257, device=DEVICE)
    labels = torch.randint(50_257, (70,), device=DEVICE)
    labels[::3] = IGNORE
    sums, gradient = _compare(logits.double(), labels, smoothing, cap, True)
    found = compare_by_kernel(logits, labels, smoothing, cap, True)
    pairs = ((found, sums), (logits, gradient))
    error = max(float((a.double() - b).norm() / b.norm()) for a, b in pairs)
    return error < 1e-4, f"loss, smoothing {smoothing}, cap {cap!s:10} {error:.1e}"


def check(task: Case | CaptureCase | tuple[str, str] | Callable[[], tuple[bool, str]]) -> tuple[bool, str]:
    """Run one check in its own process, so that a failure is reported and the others continue."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    torch._dynamo.reset()
    try:
        if isinstance(task, CaptureCase):
            return check_capture(task)
        if isinstance(task, partial):
            return task()
        return check_recipe(task) if isinstance(task, Case) else check_kernels(*task)
    except Exception as error:
        return False, f"{task}: {type(error).__name__}: {str(error)[:300]}"


if __name__ == "__main__":
    # heads wide enough for Flex, in the variants that use it
    wide = [replace(case, name=f"{case.name}-wide", overrides=(*case.overrides, "model.dim=64")) for case in cases()]
    flexible = [case for case in wide if case.name.startswith(("llama-local", "gpt2-alibi", "gpt2-t5", "gpt2-capped"))]
    kernels = [partial(check_short_attention, name) for name in SHORT]
    kernels += [partial(check_loss, smoothing, cap) for smoothing in (0.0, 0.1) for cap in (None, 15.0)]
    tasks = [*kernels, *CAPTURE_CASES, *cases(), *flexible, *((rule, bias) for rule in RULES for bias in BIASES)]
    if names := sys.argv[1:]:
        tasks = [task for task in tasks if any(name in getattr(task, "recipe", "") for name in names)]
    workers = max(1, min(8, (os.cpu_count() or 1) // 2))  # most of the time is compiling
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        results = []
        for good, line in pool.map(check, tasks):
            print(line if good else f"{line}  WRONG", flush=True)
            results.append(good)
    print(f"{sum(results)} right, {len(results) - sum(results)} wrong")
    sys.exit(0 if all(results) else 1)
