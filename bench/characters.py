"""Time to a validation loss of 1.88 on tinyshakespeare: `regard train language` against nanoGPT's settings.

`python -m bench.characters data/tinyshakespeare/input.txt` (`regard data tinyshakespeare` downloads it). The reference
is `PlainGPT` with the settings of nanoGPT's README for a CPU: 2000 updates of 12 rows of 64 characters, AdamW, cosine
from 1e-3, no dropout; 1.88 is the loss that README reports. Time is that of the updates alone.
"""

import sys
import tempfile
import time
from collections.abc import Iterator
from math import cos, pi
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from bench.case import Setting
from bench.cases.ours import start_trainer
from bench.cases.plain import PlainGPT
from bench.cases.small import LAYERS, B, D, H, T
from regard.training.request import RunRequest

GOAL = 1.88
UPDATES = 2000
EVERY = 50


def reference(text: str) -> Iterator[tuple[float, float]]:
    """Train the plain model; yield (seconds, validation loss) over time."""
    letters = sorted(set(text))
    ids = torch.tensor([letters.index(letter) for letter in text])
    train, valid = ids[: int(0.9 * len(ids))], ids[int(0.9 * len(ids)) :]
    torch.manual_seed(0)
    model = PlainGPT(len(letters), LAYERS, D, H, T)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.99), weight_decay=0.1)
    seconds = 0.0
    for step in range(1, UPDATES + 1):
        begun = time.perf_counter()
        height = (1 + cos(pi * max(step - 100, 0) / (UPDATES - 100))) / 2
        optimizer.param_groups[0]["lr"] = min(step / 100, 0.1 + 0.9 * height) * 1e-3
        starts = torch.randint(len(train) - T, (B,))
        rows = torch.stack([train[start : start + T + 1] for start in starts])
        loss = F.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        seconds += time.perf_counter() - begun
        if step % EVERY == 0:
            yield seconds, plain_loss(model, valid)


@torch.no_grad()
def plain_loss(model: PlainGPT, valid: Tensor) -> float:
    """Return the loss over all validation windows."""
    rows = valid[: (len(valid) - 1) // T * T].view(-1, T)
    labels = valid[1 : (len(valid) - 1) // T * T + 1].view(-1, T)
    return float(F.cross_entropy(model(rows).flatten(0, 1), labels.flatten()))


def ours(path: Path, folder: Path) -> Iterator[tuple[float, float]]:
    """Train as the command does; yield (seconds, validation loss) over time."""
    setting = Setting("cpu", torch.get_num_threads(), folder)
    running = start_trainer(setting, RunRequest({"kind": "language", "train": [str(path)]}), endless=False)
    draws, seconds = running.draws(), 0.0
    while running.step < running.config.steps:
        begun = time.perf_counter()
        running.advance(draws)
        seconds += time.perf_counter() - begun
        if running.step % EVERY == 0:
            running.model.eval()
            yield seconds, running.task.measure(running.model)["loss"]


def seconds_to(goal: float, curve: Iterator[tuple[float, float]], name: str) -> float:
    """Return the seconds until the loss is at most `goal`, or those of the whole training if it never is."""
    best = (0.0, float("inf"))
    seconds = 0.0
    for seconds, loss in curve:
        best = min(best, (seconds, loss), key=lambda point: point[1])
        if loss <= goal:
            break
    print(f"{name}: loss {best[1]:.3f} after {best[0]:.1f} s{'' if best[1] <= goal else f', above the goal of {goal}'}")
    return seconds


if __name__ == "__main__":
    corpus = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as scratch:
        mine = seconds_to(GOAL, ours(corpus, Path(scratch)), "regard train language")
    theirs = seconds_to(GOAL, reference(corpus.read_text(encoding="utf-8")), "nanoGPT's settings, plain PyTorch")
    print(f"ratio {mine / theirs:.2f}")
