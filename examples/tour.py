"""A tour of the package in about two minutes: `make demo`.

It translates with a model that comes with the package and draws what each French word attends to, compares the way from
one vector to attention, lets Shakespeare speak, trains a small model on shipped text while its writing gets better,
and writes a page to look into the translator.
"""

import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import regard
from regard.lab.shipped import shipped
from regard.runs.layout import SAMPLES
from regard.terminal import plain_console
from regard.untrusted import parse_json
from regard.viewer.export import read_head_weights
from regard.viewer.query import Query
from regard.viewer.record import record

SENTENCE = "I arrived at the bank after crossing the river."
LONG = "My father told me that the old man who lives next to the station had never been to the city before."
SHADES = " ░▒▓█"
UPDATES = 300  # of training


def heading(text: str) -> None:
    """Print what comes next."""
    print(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n== {text}", flush=True)


def translate() -> Any:
    """Translate a sentence, and draw the head that shows the alignment best."""
    heading("1. A translator that comes with the package (regard translate)")
    model = regard.load("en-fr", "cpu")
    (french,) = model.translate([SENTENCE])
    print(f"   {SENTENCE}\n   {french}\n")
    recording = record(model, Query(SENTENCE))
    head = read_head_weights(recording)
    print(f"   {head.title}: what it attends to (columns) to write each token (rows)\n")
    keys = [key.strip() or "·" for key in head.keys]
    width = max(map(len, head.queries)) + 5
    for letter in range(max(map(len, keys))):
        print(" " * width + " ".join(key[letter] if letter < len(key) else " " for key in keys))
    for query, row in zip(head.queries, head.weights, strict=True):
        cells = " ".join(SHADES[min(int(float(weight) * len(SHADES)), len(SHADES) - 1)] for weight in row)
        print(f"{query.strip() or '·':>{width - 1}} {cells}")
    return recording


def compare() -> None:
    """Translate a long sentence through one vector, and with attention."""
    heading("2. From one vector to attention: the same sentence by two models (regard models)")
    print(f"   {LONG}\n")
    names = {"en-fr-rnn": "one vector", "en-fr": "attention"}
    for name, what in names.items():
        (french,) = regard.load(name, "cpu").translate([LONG])
        print(f"   {what:>10}  {french}")


def speak() -> None:
    """Print a text as the language model writes it."""
    heading("3. Shakespeare, letter by letter (regard generate)")
    prompt = "ROMEO:\n"
    print(prompt, end="")
    for piece in regard.load("shakespeare", "cpu").stream(prompt, tokens=240, seed=3):
        print(piece, end="", flush=True)
    print()


class ShowWriting:
    """Prints the loss, and what the model writes, after each validation."""

    def __init__(self, run: Path) -> None:
        self.run, self.begun = run, time.monotonic()

    def on_validation(self, step: int, metrics: dict[str, float]) -> None:
        """Print a line."""
        lines = (self.run / SAMPLES).read_text(encoding="utf-8").splitlines() if (self.run / SAMPLES).exists() else []
        written = str(parse_json(lines[-1], SAMPLES)["made"]) if lines else ""
        shown = " ".join(written.split())[:64]
        passed = time.monotonic() - self.begun
        print(f"   {passed:4.0f} s  update {step:4}  loss {metrics['loss']:.2f}  {shown}", flush=True)


def train() -> None:
    """Train a small model of letters on shipped text."""
    heading(f"4. Training: a model of letters learns Shakespeare in {UPDATES} updates (regard train)")
    small = ["model.dim=64", "model.depth=2", "task.window=64", "train.tokens=2048", "tokenizer.kind=char"]
    with TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        text = shipped("shakespeare.txt")
        steps = [f"train.steps={UPDATES}", f"train.validate_every={UPDATES // 6}"]
        quiet = plain_console(quiet=True)
        shown = [ShowWriting(run)]
        regard.train("language", text, *small, *steps, run=run, console=quiet, callbacks=shown, device="cpu")


def write_page(recording: Any) -> None:
    """Write a page that shows every head of the translator."""
    heading("5. Look inside: every head of the translator, in a page of its own (regard look)")
    from regard.viewer.export import export_page

    page, _ = export_page({"1": recording})
    path = Path("build/demo/attention.html").absolute()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page, encoding="utf-8")
    print(f"   {path.as_uri()}")
    print('   regard look "a sentence of your own"   opens the same page with the model behind it')


if __name__ == "__main__":
    started = time.monotonic()
    shown = translate()
    compare()
    speak()
    train()
    write_page(shown)
    print(f"\n{time.monotonic() - started:.0f} seconds; next: the chapters of docs/tour/index.md, or regard --help")
    print("(. .venv/bin/activate puts regard on the path of this shell)")
