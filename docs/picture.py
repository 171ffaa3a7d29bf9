"""Draw the output of `regard show gpt2` for the README: `python docs/picture.py`."""

import re
from pathlib import Path

from rich.console import Console

from regard.cli.show import render
from regard.models.count import cost
from regard.models.recipe import build_empty, load_recipe

if __name__ == "__main__":
    with Path("/dev/null").open("w") as nowhere:
        console = Console(record=True, width=72, force_terminal=True, color_system="truecolor", file=nowhere)
        recipe = load_recipe("gpt2")
        render(console, "gpt2", recipe, cost(build_empty(recipe.model)))
        picture = console.export_svg(title="regard show gpt2")
    picture = re.sub(r"@font-face \{.*?\}\s*", "", picture, flags=re.DOTALL)  # no fonts from the web
    picture = picture.replace("Fira Code", "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono'")
    Path(__file__).with_name("show-gpt2.svg").write_text(picture, encoding="utf-8")
