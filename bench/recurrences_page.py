"""The page docs/recurrences.md: its tables are rendered from bench/measured, so that no figure is typed by hand.

`python -m bench --render` writes it. A comparison is a file in bench/measured/comparisons: the rows of the table and of
the curves that `regard compare` writes into a folder, with its command. `python -m bench.recurrences_page NAME FOLDER
COMMAND MACHINE` adds one.
"""

import csv
import json
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from textwrap import wrap
from typing import Any

from bench.report import MEASURED, PAGE, Result, case_lines, is_busy, short, short_bytes, short_time

RECURRENCES = PAGE.with_name("recurrences.md")
COMPARISONS = MEASURED / "comparisons"
CELLS, OURS = Path(__file__).with_name("recurrences") / "cells.json", "ours"
DECODING = "decode after "
LONGEST_LINE = 110  # characters of a command
OPERATORS = ("recurrence: RWKV-4", "recurrence: gated delta rule")

TEXT = """# Recurrences

<!-- The tables are rendered by `python -m bench --render`; the text is in bench/recurrences_page.py. -->

Attention keeps every token, so a step of decoding reads a cache that grows with the text. A recurrence keeps a state of
constant size. This page lists the recurrences of the package, how they are computed, what they cost, and how well they
learn in short runs.

The classic ones (Elman, LSTM, GRU, MUT1 to MUT3) compute their state token by token. The linear ones below also train
in parallel over time, as attention does. Their state is made of products v k' of a value and a key:

| kind of mixer | state | what a token does to it |
|---|---|---|
| `linear-attention` (Katharopoulos et al. 2020) | a matrix for each head | adds v k' |
| `mamba2` (Dao, Gu 2024) | a matrix for each head | lets it decay, adds v k' |
| `gated-deltanet` (Yang et al. 2025) | a matrix for each head | lets it decay, replaces what k has stored |
| `rwkv7` (Peng et al. 2025) | a matrix for each head | lets channels decay, removes in one direction, adds v k' |
| `rwkv4` (Peng et al. 2023) | two sums for each channel | adds to an average whose weights decay |

Each has a recipe of the same name, and `rwkv-hybrid` has attention in every fourth layer:

```
regard train language corpus.txt --recipe rwkv7 --run runs/rwkv
regard generate "To be" -m runs/rwkv
regard show linear-attention model.layers.block.mixer.kind=rwkv4
```

A mixer is one table of a recipe, so any layer of any language model can have one. Generation, beam search, the laws in
`tests/laws` and the viewer work with all of them. RWKV-4 can be imported from Hugging Face and exported to it
([hugging-face.md](hugging-face.md)).

## How they are computed

All but RWKV-4 are one operator, `state_recurrence` in `regard/parts/linear_recurrence.py`:

```
S_t = S_{t-1} diag(w_t) + (S_{t-1} a_t) b_t' + v_t k_t',    o_t = S_t r_t
```

Here w is the decay, a and b say what is removed from the state, v and k what is added, and r reads the output.

In training it is computed in chunks of up to 64 tokens (32 on a CPU for kinds that remove something). Inside a chunk
everything is a product of matrices (the corrections a b' are a triangular system); the only loop is over chunks.
Decoding a token is one step of the equation. Tests compare the operator with a loop over time in float64, the mixers
with loops over the equations of their papers, and RWKV-4, gated DeltaNet and Mamba-2 with `transformers`, to 1e-5.

RWKV-4 is a softmax with weights that decay. On CUDA a Triton kernel computes it, which runs over time with its sums in
registers, forward and backward. Without Triton, spans of tokens are joined in log2(T) rounds. Both give the same
numbers. Below, *first* is the time until the first run is done, and *ratio* is our time over the peer's
([benchmarks.md](benchmarks.md) has all such cases).

{operators}
## Decoding

The time of one token and the size of the state, after reading texts of different lengths. Each model has the same
width, depth and vocabulary; the Transformer is the recipe `writer`, whose cache grows with the text. The cache doubles
its capacity when it is full. After these lengths that has just happened, so half of it is empty here.

{decoding}
## Quality

Each table is one `regard compare` ([compare.md](compare.md)): equal data, tokenizer, number of parameters and budget,
one run each, so small differences mean nothing. These are short runs; what a model reaches in hours is another
question. The budget decides which model is ahead:

- *Equal time.* In nine seconds on an H200 (models of 12 M parameters in `bench/recurrences`, WikiText-2, one run at a
  time) the Transformer learns most, since it sees two to nine times as many tokens per second.
- *Equal updates.* After the same number of tokens, RWKV, gated DeltaNet and the hybrid are close to the Transformer;
  Mamba-2, the mixture of experts (deepseek) and the LSTM are far behind.

The pictures show both. With `--minutes`, a trial before the first run decides how many updates fit into the time; where
other work slowed the machine later, a run took longer than the others, as its last column shows.

<picture>
  <source media="(prefers-color-scheme: dark)" srcset="pictures/recurrences-time-dark.svg">
  <img alt="Validation loss over seconds of training: a line for each model" src="pictures/recurrences-time-light.svg">
</picture>

<picture>
  <source media="(prefers-color-scheme: dark)" srcset="pictures/recurrences-updates-dark.svg">
  <img alt="Validation loss over updates: a line for each model" src="pictures/recurrences-updates-light.svg">
</picture>

{comparisons}
## Against plain torch

Are the recurrent recipes as good as the same cell in a few lines of plain torch? All are better (`bench/cells.py`). The
table shows the validation loss in nats per token, at equal width, depth, data and updates:

- The cells learn letters of Tiny Shakespeare, in 600 updates of 2,048 letters on a CPU. `rnn-attention` translates
  Multi30k from German to English, in 300 updates of 2,048 tokens.
- The plain model is trained by Adam with clipping and a schedule, at the best of five rates. That rate is chosen by the
  same loss that is shown, which favours the plain model.
- A plain translator whose head reads state and context directly, with 1 M more weights and without label smoothing, has
  2.236 at a rate of 0.008. Without label smoothing, `rnn-attention` has 2.246.

{cells}
## Measure it yourself

```
python -m bench.accelerator rwkv linear-attention gated-deltanet mamba2
python -m bench --device cuda "recurrence: RWKV-4" "gated delta" "decode after"
regard compare lstm rwkv4 rwkv7 writer --on data/tinyshakespeare/input.txt --parameters 3M --minutes 5
python -m bench.recurrences_page NAME comparisons/language-1 "COMMAND" "MACHINE"
python -m bench.cells data/tinyshakespeare/input.txt data/multi30k
python -m bench --render
```
"""


def render_recurrences(
    results: Mapping[str, Result], comparisons: Mapping[str, Result], cells: Mapping[str, Any]
) -> str:
    """Return the page."""
    parts = {
        "operators": [line for result in results.values() for line in operator_lines(result)],
        "decoding": [line for result in results.values() for line in decoding_lines(result)],
        "comparisons": [line for name, found in comparisons.items() for line in comparison_lines(name, found)],
        "cells": list(cell_lines(cells)),
    }
    page = TEXT
    for name, lines in parts.items():
        page = page.replace(f"{{{name}}}", "\n".join(lines))
    return page


def read_comparisons() -> dict[str, Result]:
    """Read all comparisons, by their names."""
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(COMPARISONS.glob("*.json"))}


def operator_lines(result: Result) -> Iterator[str]:
    """Yield the operators on one machine."""
    for name in OPERATORS:
        if name in result["cases"]:
            _, *lines = case_lines(name, result["cases"][name])
            yield f"**{name.partition(': ')[2]}**, on {result['machine']['name']}:\n"
            yield from lines


def decoding_lines(result: Result) -> Iterator[str]:
    """Yield one row for each length and one column for each model, on one machine."""
    cases = {name.removeprefix(DECODING): case for name, case in result["cases"].items() if name.startswith(DECODING)}
    cases = {length: case for length, case in cases.items() if not case["wrong"]}
    if not cases:
        return
    first = next(iter(cases.values()))
    models = list(first["contestants"])
    sizes = first["about"].partition("; ")[2].partition(";")[0]
    busy = ", which was busy with other work" if any(map(is_busy, cases.values())) else ""
    yield f"On {result['machine']['name']}{busy}; {sizes}:\n"
    yield f"| after | {' | '.join(name.removeprefix('regard, ') for name in models)} |"
    yield "|---" * (1 + len(models)) + "|"
    for length, case in cases.items():
        cells = [decoding_cell(case["contestants"][name]) for name in models]
        yield f"| {length} | {' | '.join(cells)} |"
    yield ""


def decoding_cell(timing: Mapping[str, Any]) -> str:
    """Return time and state of one model after one length."""
    if "absent" in timing:
        return str(timing["absent"])
    return f"{short_time(timing['median_ms'])}, state {short_bytes(timing['facts']['state_bytes'])}"


def comparison_lines(name: str, found: Result) -> Iterator[str]:
    """Yield the table of one comparison."""
    yield f"### {name}\n"
    yield f"{found['date']}, {found['machine']}.\n"
    yield "```"
    yield from command_lines(found["command"])
    yield "```\n"
    yield "| | loss | perplexity | bits per byte | parameters | tokens | tokens/s | time |"
    yield "|---|---|---|---|---|---|---|---|"
    for row in found["rows"]:
        yield (
            f"| {row['model']} | {row['loss']:.3f} | {row['perplexity']:.2f} | {row['bits_per_byte']:.3f} "
            f"| {short(row['parameters'])} | {short(row['tokens'])} | {short(row['tokens_per_second'])} "
            f"| {row['seconds']:.0f} s |"
        )
    yield ""


def command_lines(command: str) -> Iterator[str]:
    """Yield a command in lines that a shell joins again."""
    lines = wrap(command, LONGEST_LINE, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    yield from (f"{line} \\" for line in lines[:-1])
    yield lines[-1]


def read_cells() -> dict[str, Any]:
    """Read the losses of the recurrent recipes and of the same cells in plain torch."""
    found: dict[str, Any] = json.loads(CELLS.read_text(encoding="utf-8"))
    return found


def cell_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield the table of cells: ours, plain torch at its best rate, and at each rate."""
    rates = sorted({rate for losses in found["losses"].values() for rate in losses} - {OURS}, key=float)
    yield f"| | regard | plain torch, best rate | {' | '.join(f'at {rate}' for rate in rates)} |"
    yield "|---|---:|---:" + "|---:" * len(rates) + "|"
    for cell, losses in found["losses"].items():
        plain = [losses[rate] for rate in rates]
        shown = " | ".join(f"{loss:.3f}" for loss in plain)
        yield f"| `{cell}` | {losses[OURS]:.3f} | {min(plain):.3f} | {shown} |"
    yield f"\n{found['date']}, on {found['machine']}.\n"


def add_comparison(name: str, folder: Path, command: str, machine: str) -> None:
    """Store what a comparison has measured."""
    kept = ("loss", "perplexity", "bits_per_byte", "parameters", "tokens", "tokens_per_second", "seconds", "flops")
    with (folder / "table.csv").open(encoding="utf-8", newline="") as file:
        rows = [{"model": row["model"], **{key: float(row[key]) for key in kept}} for row in csv.DictReader(file)]
    lines = (folder / "curves.jsonl").read_text(encoding="utf-8").splitlines()
    curves = [{key: record[key] for key in ("model", "step", "seconds", "loss")} for record in map(json.loads, lines)]
    date = datetime.now(UTC).strftime("%Y-%m-%d")
    COMPARISONS.mkdir(exist_ok=True)
    found = {"date": date, "machine": machine, "command": command, "rows": rows, "curves": curves}
    (COMPARISONS / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    add_comparison(sys.argv[1], Path(sys.argv[2]), sys.argv[3], sys.argv[4])
