"""The parts of README.md that are measured: `python -m bench.readme` (`make readme`) writes them again.

A part is between `<!-- NAME -->` and `<!-- end of NAME -->`: the output of commands, and the table of results.
"""

import re
import textwrap
from pathlib import Path
from tempfile import TemporaryDirectory

from pictures.terminal import run_in_terminal
from regard.atomic import write_text
from regard.runs.results_table import results_summary

README = Path(__file__).parents[1] / "README.md"
WIDTH = 100  # of a line of output, in characters


def blocks() -> dict[str, str]:
    """Return the parts of the README by name, with the blank lines around them."""
    found = re.findall(r"<!-- ([a-z]+) -->\n(.*?)<!-- end of \1 -->", README.read_text(encoding="utf-8"), re.DOTALL)
    return dict(found)


def write_blocks(**parts: str) -> None:
    """Replace parts of the README."""
    text = README.read_text(encoding="utf-8")
    for name, part in parts.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        before, _, rest = text.partition(begin)
        assert end in rest, f"README.md: no part between {begin.strip()} and {end}"
        text = f"{before}{begin}\n{part}\n{end}{rest.partition(end)[2]}"
    write_text(README, text)


def commands() -> list[str]:
    """Return the commands whose output is in the README."""
    return [line[2:] for line in blocks()["commands"].splitlines() if line.startswith("$ ")]


def run_commands() -> str:
    """Run the commands; return them with their output, as a block of code."""
    lines = []
    for command in commands():
        with TemporaryDirectory() as folder:
            output = run_in_terminal(command, Path(folder), colours=False)
        kept = [line for line in output.rstrip().splitlines() if not line.startswith("page: ")]
        wrapped = [part for line in kept for part in textwrap.wrap(line, WIDTH) or [""]]
        lines += [f"$ {command}", *wrapped, ""]
    return "\n".join(["```console", *lines[:-1], "```", ""])


if __name__ == "__main__":
    write_blocks(commands=run_commands(), results=results_summary())
