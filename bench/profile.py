"""Profiles of training: how the time of an update is spent, by kernels on a GPU and by operators on a CPU.

`python -m bench CASE --profile` profiles each contestant after it was timed. All names are stored with their times, so
that the page can group them (`group_of`).
"""

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from bench.machine import wait

KEPT = 60  # names that are stored; the time of all others is added up
LONGEST_NAME = 160
OTHERS = "(others)"
REST = "norms, activations, sums"
IDLE = {"cuda": "idle", "cpu": "Python"}

# The first rule that finds its pattern in a name decides; names of compiled kernels list the operators in them.
# _forward and _backward are the kernels of regard/parts/short_attention_kernel.py.
GROUPS = {
    "attention": r"sdpa|fmha|flash|attention|^_(forward|backward)$|cudnn::fusion|scaled_dot_product",
    "loss": r"^_compare_rows|log_softmax|nll_loss|cross_entropy",
    "products": r"nvjet|gemm|cutlass|cublas|splitK|triton_tem|^aten::(mm|addmm|bmm|baddbmm|linear|.*convolution)",
    "copies": r"^Mem(cpy|set)|copy_kernel|[cC]opyFunctor|CatArray|^triton_poi_fused__to_copy(_t)?(_view)?(_\d+)?$"
    r"|^aten::(copy_|_to_copy|clone|cat|contiguous|zero_|fill_|empty.*|zeros|to|index|index_select|_foreach_copy_)$",
    "optimizer": r"multi_tensor_apply|Adam|LpNorm|^aten::(_foreach|_fused_adam|linalg_vector_norm)|^Optimizer",
}
NOISE = re.compile(r"at::native::|\(anonymous namespace\)::|^void |std::")


def group_of(name: str) -> str:
    """Return what a kernel or operator belongs to."""
    return next((group for group, pattern in GROUPS.items() if re.search(pattern, name)), REST)


def profile_updates(run: Callable[[], object], updates: int, device: str) -> dict[str, Any]:
    """Profile a run of several updates: milliseconds of one, by name, and that in which nothing was computed."""
    from torch.profiler import ProfilerActivity, profile

    run()
    wait(device)
    activity = ProfilerActivity.CUDA if device == "cuda" else ProfilerActivity.CPU
    with profile(activities=[activity]) as found:
        begun = time.perf_counter()
        run()
        wait(device)
        clock = 1000 * (time.perf_counter() - begun)
    events = list(_kernels(found) if device == "cuda" else _operators(found))
    times: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for name, start, end in events:
        times[name] += (end - start) / 1000  # type: ignore[assignment]
        counts[name] += 1
    idle = clock - sum(times.values())
    if device == "cuda":
        idle = _idle([(start, end) for _, start, end in events]) / 1000
    rows = [[name, ms / updates, counts[name] / updates] for name, ms in times.most_common(KEPT)]
    left = [(ms / updates, counts[name] / updates) for name, ms in times.most_common()[KEPT:]]
    if left:
        rows.append([OTHERS, sum(ms for ms, _ in left), sum(count for _, count in left)])
    return {"device": device, "idle_ms": idle / updates, "kernels": rows}


Event = tuple[str, float, float]  # its name, start and end in microseconds


def _kernels(found: Any) -> Iterator[Event]:
    """Yield what ran on the GPU."""
    from torch.autograd import DeviceType

    for event in found.events():
        if event.device_type == DeviceType.CUDA and not getattr(event, "is_user_annotation", False):
            yield short_name(event.name), event.time_range.start, event.time_range.end


def _operators(found: Any) -> Iterator[Event]:
    """Yield the operators of the CPU, each with the time that it did not spend in others."""
    for event in found.events():
        if event.name.startswith("aten::"):
            yield event.name, 0.0, event.self_cpu_time_total


def _idle(spans: Iterable[tuple[float, float]]) -> float:
    """Return the time between the first start and the last end in which nothing ran."""
    idle, until = 0.0, None
    for start, end in sorted(spans):
        if until is not None:
            idle += max(0.0, start - until)
        until = end if until is None else max(until, end)
    return idle


def short_name(name: str) -> str:
    """Return the name of a kernel without what all have in common."""
    return NOISE.sub("", name)[:LONGEST_NAME]


def grouped(profile: Mapping[str, Any]) -> dict[str, float]:
    """Return the milliseconds of each group, and those in which nothing was computed."""
    found = dict.fromkeys((*GROUPS, REST), 0.0)
    for name, ms, _ in profile["kernels"]:
        found[group_of(name)] += ms
    return found | {IDLE[profile["device"]]: profile["idle_ms"]}


def profile_lines(contestants: Mapping[str, Any]) -> Iterator[str]:
    """Yield the table of the profiles of a case, if it has some."""
    tables = {who: grouped(each["profile"]) for who, each in contestants.items() if each.get("profile")}
    if not tables:
        return
    groups = list(next(iter(tables.values())))
    yield "Milliseconds of an update, by torch's profiler:\n"
    yield f"| | {' | '.join(groups)} | sum |"
    yield f"|---|{'---|' * (len(groups) + 1)}"
    for who, table in tables.items():
        cells = [f"{table[group]:.3g}" for group in groups]
        yield f"| {who} | {' | '.join(cells)} | {sum(table.values()):.3g} |"
    yield ""
