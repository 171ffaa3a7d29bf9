"""Write the interactive pages of the tour: `python docs/tour/pages.py`.

A chapter says itself which page it needs: every command `regard look ... --export pages/NAME.html` in it is run here.
The models come with the package, so the pages take about a minute. They are not kept in the repository: each has 1 to
3 MB.
"""

import os
import shlex
import sys
from contextlib import suppress

from chapters import CHAPTERS, HERE, read_commands, read_pieces

from regard.cli.main import main


def page_commands() -> dict[str, list[str]]:
    """Return for each page the arguments of the command that writes it."""
    commands = [
        shlex.split(command)[1:]
        for chapter in CHAPTERS
        for piece in read_pieces(chapter)
        if piece.kind == ""
        for command in read_commands(piece.text)
    ]
    return {words[words.index("--export") + 1]: words for words in commands if "--export" in words}


def write_pages() -> None:
    """Run the commands in the folder of the tour, as a reader would."""
    os.chdir(HERE)
    for page, words in page_commands().items():
        (HERE / page).parent.mkdir(exist_ok=True)
        sys.argv = ["regard", *words]
        with suppress(SystemExit):
            main()
        if not (HERE / page).is_file():
            sys.exit(f"{page} was not written by: regard {shlex.join(words)}")


if __name__ == "__main__":
    write_pages()
