"""Updates per second of small models: eager, captured, compiled, and compiled and captured; CUDA only.

`python -m bench.updates [CASE ...] [--source train.en --target train.de] [--modes eager captured ...]`. Each row gives
the time until the first update is done, until ten are, and then updates a second of the whole loop (batches, schedule,
logs) with the peak of memory. The GPT is compared with the same arithmetic in plain PyTorch, also compiled.
"""

import argparse
import json
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from bench.train import our_round, text, trainer
from bench.train_step import PlainGPT
from regard.training.planning import plan_run
from regard.training.ranks import Ranks
from regard.training.request import RunRequest

MODES = {
    "eager": ("train.capture=never", "train.compile=never"),
    "captured": ("train.capture=always", "train.compile=never"),
    "compiled": ("train.capture=never", "train.compile=always"),
    "both": ("train.capture=always", "train.compile=always"),
}
ENDLESS = ("train.steps=100000", "train.validate_every=100000", "train.checkpoint_every=100000")
LAYERS, D, H, T, B = 6, 384, 6, 256, 64  # nanoGPT's model of Shakespeare's characters
GPT = (
    *(f"model.{key}=0.0" for key in ("embed.dropout", "layers.block.dropout", "layers.block.mixer.dropout")),
    *(f"model.dim={D}", f"model.depth={LAYERS}", f"model.embed.position.length={T}", f"task.window={T}"),
    *(f"model.layers.block.feedforward.hidden={4 * D}", f"model.layers.block.mixer.heads.heads={H}"),
    *("train.optimizer.kind=adamw", "train.optimizer.rate=0.001", f"train.tokens={T * B}"),
)
SECONDS = 4.0  # of updates that are timed


def cases(folder: Path, source: str | None, target: str | None) -> dict[str, RunRequest]:
    """Return the runs to time."""
    letters, pairs, images = folder / "text.txt", folder / "pairs.tsv", folder / "images.npz"
    letters.write_text(text(2_000_000), encoding="utf-8")
    chance = np.random.default_rng(0)
    words = [f"w{number}" for number in range(8000)]
    lines = (" ".join(chance.choice(words, chance.integers(5, 25))) for _ in range(20_000))
    pairs.write_text("".join(f"{line}\t{line}\n" for line in lines), encoding="utf-8")
    pixels = chance.integers(0, 255, (20_000, 28, 28, 1), dtype=np.uint8)
    np.savez(images, images=pixels, labels=chance.integers(0, 10, 20_000))
    sides = {"source": [str(pairs)]} if source is None else {"source": [source], "target": [str(target)]}
    language = {"kind": "language", "train": [str(letters)]}
    return {
        "translator small": RunRequest({"kind": "translation", **sides}, ("train.tokens=8192",), size="small"),
        "translator tiny": RunRequest({"kind": "translation", **sides}, ("train.tokens=8192",), size="tiny"),
        "translator base": RunRequest({"kind": "translation", **sides}, ("train.tokens=8192",), size="base"),
        "writer small": RunRequest(language, ("train.tokens=16384",), size="small"),
        "gpt 6L/384": RunRequest(language, GPT, recipe="gpt2"),
        "lstm 2 x 650": RunRequest(language, ("model.dim=650", "model.depth=2", "train.tokens=8192"), recipe="lstm"),
        "vit small": RunRequest({"kind": "vision", "train": str(images)}, ("train.tokens=32768",), size="small"),
    }


def rate(work: Callable[[], None], updates: int) -> tuple[float, float]:
    """Return updates a second, in the median of a few rounds and in the slowest."""
    times = []
    while sum(times) < SECONDS or len(times) < 3:
        begin = time.perf_counter()
        work()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    return updates / float(np.median(times)), updates / max(times)


def time_mode(request: RunRequest, mode: str, folder: Path) -> dict[str, float]:
    """Time the updates of a run in one mode."""
    torch._dynamo.reset()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    ranks = Ranks(0, 1, torch.device("cuda"))
    plan = plan_run(
        RunRequest(request.what, (*request.overrides, *ENDLESS, *MODES[mode]), request.size, request.recipe), ranks
    )
    begin = time.perf_counter()
    ours = trainer(plan, ranks, folder)
    first, more, work = our_round(ours, 1), our_round(ours, 9), our_round(ours, 50)
    first()
    torch.cuda.synchronize()
    found = {"first_update_s": time.perf_counter() - begin}
    more()
    torch.cuda.synchronize()
    found["ten_updates_s"] = time.perf_counter() - begin
    work()
    found["updates_per_s"], found["slowest_per_s"] = rate(work, 50)
    found["memory_MiB"] = torch.cuda.max_memory_allocated() / 2**20
    found["reserved_MiB"] = torch.cuda.memory_reserved() / 2**20
    found["parameters_M"] = sum(parameter.numel() for parameter in ours.model.parameters()) / 1e6
    captured = ours.update.captured
    found["graphs"] = 0 if captured is None else len(captured.graphs)
    if captured is not None and captured.failure is not None:
        print(f"  not captured: {captured.failure}", flush=True)
    batches = list(zip(range(20), ours.draws(), strict=False))
    begin = time.perf_counter()
    for _, (draw, epoch, _) in batches:
        ours.feed.batch(draw, epoch)
    found["batch_ms"] = 1000 * (time.perf_counter() - begin) / len(batches)
    return found


def time_plain(compiles: bool) -> dict[str, float]:
    """Time a plain loop: random windows of a text on the device, bf16, AdamW, clipping."""
    torch._dynamo.reset()
    begin = time.perf_counter()
    data = torch.randint(70, (2_000_000,), device="cuda")
    model = PlainGPT(75, LAYERS, D, H, T).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    forward = torch.compile(model) if compiles else model
    span = torch.arange(T + 1, device="cuda")

    def work(updates: int = 50) -> None:
        for _ in range(updates):
            rows = data[torch.randint(len(data) - T - 1, (B, 1), device="cuda") + span]
            with torch.autocast("cuda", torch.bfloat16):
                loss = F.cross_entropy(forward(rows[:, :-1]).flatten(0, 1).float(), rows[:, 1:].flatten())
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    work(1)
    torch.cuda.synchronize()
    first = time.perf_counter() - begin
    work()
    median, slowest = rate(work, 50)
    return {"first_update_s": first, "updates_per_s": median, "slowest_per_s": slowest}


def main() -> None:
    """Time what the command line asks for; a case that fails is reported, and the others continue."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE")
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES))
    parser.add_argument("--source")
    parser.add_argument("--target")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    print(f"torch {torch.__version__} on {torch.cuda.get_device_name()}")
    results: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        works: dict[str, Callable[[], dict[str, float]]] = {}
        for case, request in cases(folder, asked.source, asked.target).items():
            for mode in asked.modes if not asked.cases or case in asked.cases else ():
                place = folder / f"{case}-{mode}"
                works[f"{case}, {mode}"] = lambda r=request, m=mode, p=place: time_mode(r, m, p)  # type: ignore[misc]
        if not asked.cases or "gpt 6L/384" in asked.cases:
            works["gpt 6L/384, plain PyTorch"] = lambda: time_plain(compiles=False)
            if "compiled" in asked.modes:
                works["gpt 6L/384, plain PyTorch compiled"] = lambda: time_plain(compiles=True)
        for what, work in works.items():
            try:
                results[what] = work()
                print(what, "  ".join(f"{key} {value:.4g}" for key, value in results[what].items()), flush=True)
            except Exception:
                print(f"{what} failed:\n{traceback.format_exc()[-1500:]}", flush=True)
    if asked.json is not None:
        asked.json.write_text(json.dumps(results, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
