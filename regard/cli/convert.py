"""`regard convert`: write a model for Hugging Face or CTranslate2."""

from pathlib import Path
from typing import Annotated

import typer

from regard.cli.complete import complete_model, offer
from regard.cli.console import print_line
from regard.cli.text import AllowPickle


def convert_command(
    model: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL",
            help="The folder of a run or of a Hugging Face model, or a name of `regard models`.",
            autocompletion=complete_model,
        ),
    ],
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder to write; it must be new or empty.")],
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="FORMAT",
            help="huggingface or ctranslate2.",
            autocompletion=offer("huggingface", "ctranslate2"),
        ),
    ],
    quantization: Annotated[
        str | None,
        typer.Option(
            metavar="TYPE",
            help="For ctranslate2: int8, int8_float32, float16, ... Default: float32.",
            show_default=False,
        ),
    ] = None,
    allow_pickle: AllowPickle = False,
) -> None:
    """Write a model for Hugging Face or CTranslate2.

    The folder is written completely or not at all. A model that the format cannot express is an error with the reason.

    Examples:
      regard convert runs/language-1 --to huggingface my-model
      regard convert runs/translation-1 --to ctranslate2 fast --quantization int8
    """
    from regard.use.convert import convert

    convert(model, to, folder, quantization=quantization, allow_pickle=allow_pickle)
    print_line(folder)
