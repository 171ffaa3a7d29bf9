"""`regard convert`: write a model for Hugging Face or CTranslate2."""

from pathlib import Path
from typing import Annotated

import typer

from regard.cli.text import AllowPickle


def convert(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="The folder of a run, or one of Hugging Face.")],
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A new folder to write.")],
    to: Annotated[str, typer.Option("--to", metavar="FORMAT", help="huggingface or ctranslate2.")],
    quantization: Annotated[
        str | None,
        typer.Option(help="For ctranslate2: int8, int8_float32, float16, ... None: float32.", show_default=False),
    ] = None,
    allow_pickle: AllowPickle = False,
) -> None:
    """Write a model for others to use: regard convert RUN --to huggingface FOLDER.

    All of it is written, or nothing: what the other side cannot express is refused with the reason.
    """
    from regard.use.convert import convert as write

    write(model, to, folder, quantization=quantization, allow_pickle=allow_pickle)
    print(folder)
