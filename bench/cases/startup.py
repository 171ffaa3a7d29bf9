"""Commands from start to end: what a person waits for."""

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

from bench.case import Case, Prepared, Setting

MAXRSS_BYTES = 1 if sys.platform == "darwin" else 1024  # the unit of `ru_maxrss`


def command(arguments: tuple[str, ...], setting: Setting) -> Prepared:
    """Return a contestant that runs Python with these arguments; with bytecode, as an installed package has it.

    Its memory is that of the started process, as `wait4` reports it. Linux never reports less than the process had that
    started it, so this file imports nothing large.
    """
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    peaks: list[float] = []  # megabytes of each run

    def run() -> None:
        line = [sys.executable, *arguments]
        with (setting.folder / "output").open("wb") as output:
            process = subprocess.Popen(line, stdout=output, stderr=output, cwd=setting.folder, env=environment)
            try:
                _, status, usage = os.wait4(process.pid, 0)
            except BaseException:
                process.kill()
                process.wait()
                raise
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, line)
        peaks.append(usage.ru_maxrss * MAXRSS_BYTES / 1e6)

    return Prepared(run, peak_megabytes=lambda: max(peaks))


def on_a_run(arguments: tuple[str, ...], setting: Setting) -> Prepared:
    """Train a tiny run first, then return a contestant that uses it."""
    words = " ".join(f"word{number % 97}" for number in range(20_000))
    (setting.folder / "text.txt").write_text(words, encoding="utf-8")
    train = ("-m", "regard", "train", "language", "text.txt", "--run", "run", "train.steps=2", "train.tokens=256")
    command(train, setting).run()
    return command(arguments, setting)


def regard(*arguments: str) -> partial[Prepared]:
    """Return the contestant `regard ARGUMENTS`."""
    return partial(command, ("-m", "regard", *arguments))


TEXT = str(Path(__file__))
IMPORT = partial(command, ("-c", "import torch"))
CASES = [
    Case("start: help", "`regard --help`", "call", {"regard": regard("--help")}, ("cpu",), limit=150.0),
    Case("start: show", "`regard show gpt2`", "call", {"regard": regard("show", "gpt2")}, ("cpu",), limit=1000.0),
    Case(
        "start: show, changed",
        "`regard show gpt2 model.depth=4`, which builds the model without memory",
        "call",
        {"regard": regard("show", "gpt2", "model.depth=4"), "import torch": IMPORT},
        ("cpu",),
    ),
    Case(
        "start: first token",
        "`regard generate` of one token with a small run",
        "call",
        {
            "regard": partial(on_a_run, ("-m", "regard", "generate", "word1", "-m", "run", "--tokens", "1")),
            "import torch": IMPORT,
        },
        ("cpu",),
        limit=2000.0,
    ),
    Case(
        "start: plan",
        "`regard train language FILE --dry-run`: the plan, with updates on trial",
        "call",
        {"regard": regard("train", "language", TEXT, "--run", "run", "--dry-run"), "import torch": IMPORT},
        ("cpu",),
        limit=5000.0,
    ),
]
