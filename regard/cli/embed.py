"""`regard embed`: print a vector for each text or image file."""

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.option_groups import expand_groups
from regard.cli.sink import Sink
from regard.cli.text import AllowPickle, AnswerOptions, TextArguments, answer_all, as_object
from regard.errors import InputError

if TYPE_CHECKING:
    import numpy as np


@expand_groups
def embed_command(
    *,
    given: TextArguments,
    pool: Annotated[
        str | None,
        typer.Option(
            metavar="WAY",
            help="Pool the vectors of the tokens by mean, first, last, max, mean-sqrt or position-weighted. "
            "Default: as above.",
            show_default=False,
        ),
    ] = None,
    nearest: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Print the N nearest words instead: of a word, or of 'king - man + woman'.",
            min=1,
            show_default=False,
        ),
    ] = None,
    running: AnswerOptions,
    allow_pickle: AllowPickle = False,
) -> None:
    """Print a vector for each text or image.

    Vectors are printed as JSON, or written as an array with -o NAME.npy. The vector is what a sentence-transformers
    folder says, else what a classifier pools, else the mean over the tokens: of an encoder, of a translator's encoder,
    or of the last layer of a language model. For a vision model the texts are paths of image files. A blank line has
    no vector: it gives [], or NaN in an array.

    Examples:
      regard embed "a text"
      regard embed "a text" -m runs/masked-1
      regard embed -m runs/masked-1 -f lines.txt -o vectors.npy
      regard embed "a text" -m all-MiniLM-L6-v2 --json
      regard embed "a text" -m runs/masked-1 --pool max
      regard embed river "king - man + woman" -m runs/vectors-1 --nearest 5
    """
    output, as_json = given.output, running.as_json
    as_array = output is not None and output.suffix == ".npy"
    if as_array and as_json:
        raise InputError(f"{output} would be an array, but --json asks for text; leave one of them out")
    if output is not None and output.suffix == ".npz":
        raise InputError(f"{output}: an array is written as .npy, and text under any other name; name it NAME.npy")
    if nearest is not None and (as_array or pool is not None):
        other = "-o NAME.npy" if as_array else "--pool"
        raise InputError(f"--nearest prints words, so {other} has no use; leave it out")
    lines = given.lines()
    with ArraySink(output) if as_array else Sink(output) as sink:
        loaded = running.open(given, "embed", allow_pickle=allow_pickle)

        if nearest is not None:
            answer_all(lines, loaded.nearest_lines(lines.chunks(loaded), nearest), sink, partial(_show_words, as_json))
            return

        def show(number: int, line: str, found: "np.ndarray | None") -> str | None:
            if isinstance(sink, ArraySink):
                sink.add(found)
                return None
            vector = [] if found is None else [round(value, 6) for value in found.tolist()]
            return as_object(line, vector=vector) if as_json else json.dumps(vector)

        answers = loaded.embed_lines(lines.chunks(loaded), lines.feedback(), running.batch_tokens, pool=pool)
        answer_all(lines, answers, sink, show)
        if isinstance(sink, ArraySink) and sink.rows and sink.width is None:
            sink.begin(loaded.vector_width(pool))  # no line had a vector


def _show_words(as_json: bool, number: int, line: str, found: "list[tuple[str, float]] | None") -> str:
    """Return the nearest words of a line, with their cosines."""
    near = found or []
    if as_json:
        return as_object(line, nearest=[{"word": word, "cosine": round(cosine, 6)} for word, cosine in near])
    return ", ".join(f"{word} {cosine:.2f}" for word, cosine in near)


class ArraySink(Sink):
    """A .npy file that grows row by row; its header holds the number of rows, and is written again at the end."""

    def __init__(self, path: Path | None) -> None:
        super().__init__(path, "wb")
        if self.direct and path is not None and not path.is_dir():
            raise InputError(f"{path}: an array needs a file, since its beginning is written last; choose another -o")
        self.width: int | None = None
        self.rows = 0

    def add(self, vector: "np.ndarray | None") -> None:
        """Add a row; NaN for a line that has no vector."""
        import numpy as np

        if vector is not None and self.width is None:
            self.begin(len(vector))
        self.rows += 1
        if self.width is not None:
            row = np.full(self.width, np.nan) if vector is None else vector
            self.write(row.astype("<f4").tobytes())

    def begin(self, width: int) -> None:
        """Write the header, and the blank lines so far, once it is known how wide a row is."""
        import numpy as np

        self.width = width
        self._header()
        for _ in range(self.rows):
            self.write(np.full(width, np.nan, "<f4").tobytes())

    def _header(self) -> None:
        """Write the header; its padding lets a later header with more rows replace it."""
        import numpy as np

        shape = self.rows, self.width or 0
        np.lib.format.write_array_header_1_0(self.file, {"descr": "<f4", "fortran_order": False, "shape": shape})

    def finish(self) -> None:
        """Write the header again, now that the number of rows is known."""
        self.file.seek(0)
        self._header()
