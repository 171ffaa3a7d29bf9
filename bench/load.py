"""Load a Hugging Face model: GPT-2 124M in float32, against reading its file once; and the memory that it takes.

`python -m bench.load` writes such a folder with random weights and reads it: the file itself, the model by
`load_huggingface` of `regard.hub.folder` (its weights stay in the file until they are used, so all of them are touched
here), and by `regard.load`, which prepares them for decoding. Memory is the peak resident size of a process of its own.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from torch import Tensor

from bench.timing import Row, milliseconds, show
from regard.hub.folder import load_huggingface, save_huggingface
from regard.models.recipe import build
from regard.use.load import load as open_folder

GOAL = 1.2


def touched(weights: list[Tensor]) -> int:
    """Read one byte of every memory page of the weights, whatever their layout."""
    total = 0
    for tensor in weights:
        pages = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())[::4096]
        total += int(pages.sum())
    return total


def read_file(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


def read_model(folder: Path) -> object:
    model = load_huggingface(folder)
    touched([parameter.data for parameter in model.parameters()])
    return model


def peak() -> int:
    """Return the peak resident memory of this process in kilobytes."""
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1])


WAYS = {"file": read_file, "model": read_model, "ready": lambda folder: open_folder(folder, "cpu")}


def memory(way: str, folder: Path) -> float:
    """Return the megabytes that a process needs to load in this way, beyond those for importing."""
    command = [sys.executable, "-m", "bench.load", way, str(folder)]
    before, after = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return (after - before) / 1000


def rows(folder: Path) -> list[Row]:
    """Compare the times."""
    calls = {name: (lambda way=way: way(folder)) for name, way in WAYS.items()}
    times = milliseconds(calls, "cpu", repeats=7)
    whats = {"model": "hub, all weights touched", "ready": "regard.load, laid out"}
    return [Row("load", whats[name], "reading the file", times[name], times["file"], GOAL) for name in whats]


def main() -> None:
    if len(sys.argv) == 3:
        before = peak()
        kept = WAYS[sys.argv[1]](Path(sys.argv[2]))
        print(json.dumps([before, peak()]))
        del kept
        return
    with tempfile.TemporaryDirectory() as name:
        save_huggingface(build("gpt2", seed=0), name)
        show(rows(Path(name)))
        size = (Path(name) / "model.safetensors").stat().st_size / 1e6
        for way in WAYS:
            print(f"{way:8}{memory(way, Path(name)):8.0f} MB of memory for a file of {size:.0f} MB")


if __name__ == "__main__":
    torch.set_num_threads(2)
    main()
