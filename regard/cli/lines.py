"""Where the verbs on text read their lines from: the command, a file, a column of a table, or standard input."""

import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from regard.cli.console import complain
from regard.cli.sink import named
from regard.config import is_unicode
from regard.errors import InputError

if TYPE_CHECKING:
    from regard.data.columns import ColumnOptions
    from regard.use.batches import Chunks, Feedback
    from regard.use.loaded_model import LoadedModel


READ_AS_TEXT = "is read as a text; a vision model reads the image, such as -m fashion"


def warn_of_run(text: str) -> None:
    """Say it if a text is the folder of a run, which was perhaps meant as the model."""
    from regard.use.box import is_run_folder

    if is_run_folder(text):
        complain(f"{text} is read as a text; -m {shlex.quote(text)} uses the model in this folder")


class Lines:
    """The lines to answer: texts of the command, a file, a column of a table, or standard input."""

    def __init__(self, texts: list[str] | None, file: Path | None, column: str | None = None) -> None:
        if texts and file is not None:
            raise InputError(f"both texts and the file {file} were given; leave one of them out")
        for text in texts or ():
            if not is_unicode(text):
                raise InputError(f"the text {text!a} is not valid UTF-8; give it in UTF-8")
        self.texts, self.file, self.column = texts, named(file), column
        if column is not None and not self._is_table():
            what = "no file was given" if file is None else f"{file} is not one"
            raise InputError(f"--column {column}: is for a table, and {what}; leave it out")
        self.live = not texts and self.file is None  # a person or another program may be waiting for each answer
        self.advance: Callable[[int], None] | None = None  # moves the progress bar, if there is one
        self.cut, self.first_cut = 0, ""  # lines that are too long to be read in full
        self.total = self._count()

    @property
    def typed(self) -> bool:
        """Whether a person types the lines."""
        return self.live and sys.stdin.isatty()

    def _count(self) -> int | None:
        """Count the lines of a file; None for a pipe. This also checks the complete file before any work starts."""
        if self.file is None or self.file.is_fifo() or self.file.is_char_device():
            return None
        from regard.data.lines import EmptyError, read_blocks
        from regard.data.tables import open_table

        if self._is_table():
            return sum(1 for _ in open_table(self.file).rows)
        ends, last = 0, "\n"
        try:
            for _, text in read_blocks(self.file):
                ends += text.count("\n")
                last = text[-1]
        except EmptyError:
            return 0
        return ends + (last != "\n")

    def _is_table(self) -> bool:
        from regard.data.tables import is_table

        return self.file is not None and is_table(self.file)

    def chunks(self, loaded: "LoadedModel | None" = None) -> "Chunks":
        """Return the lines in lists: what has arrived on standard input, or a few thousand at a time.

        Of a table they are the column that the model reads, which is said on standard error.
        """
        from regard.use.batches import Chunks, chunk_lines

        if self.live:
            from regard.cli.stdin import read_available

            if self.typed:
                print("type one line after another; Ctrl-D ends the input", file=sys.stderr)
            arrived = (part for chunk in read_available(self._cut) for part in chunk_lines(chunk))
            return Chunks(self._read(_warn_of_images(arrived, loaded)))
        if self.file is None:
            self._warn_of_files(loaded)
            return Chunks(self._read(chunk_lines(self.texts or [])))
        columns = self._columns(loaded)
        if columns is None:
            return Chunks(self._read(_warn_of_images(chunk_lines(_lines_of(self.file, self._cut)), loaded)))
        return Chunks(chunk_lines(cell for _, cell in _cells_of(self.file, columns)))

    def checked(self, check: "Callable[[str, str], object]", loaded: "LoadedModel | None" = None) -> "Chunks":
        """Return the lines as `chunks` does, after `check` was called with each that is not blank, and its place."""
        from regard.use.batches import Chunks, chunk_lines

        columns = self._columns(loaded)
        if self.file is not None and columns is not None:
            return Chunks(chunk_lines(_checked(_cells_of(self.file, columns), check)))
        where = "text " if self.texts else "line " if self.file is None else f"{self.file}:"

        def each() -> Iterator[Sequence[str]]:
            before = 0
            for chunk in self.chunks(loaded).lists:
                for number, line in enumerate(chunk, before + 1):
                    if line.strip():
                        check(line, f"{where}{number}")
                before += len(chunk)
                yield chunk

        return Chunks(each())

    def _columns(self, loaded: "LoadedModel | None") -> "ColumnOptions | None":
        """Return the column of a table that the model reads, or the text if there is no model; None: lines are read."""
        if not self._is_table():
            return None
        if loaded is None:
            from regard.data.columns import DOCUMENTS, ColumnOptions

            return ColumnOptions(DOCUMENTS, (None,)).first(self.column, "--column")
        columns = loaded.bundle.text_column(self.column, "--column")
        if columns is None and self.column is not None:
            rule = f"--column {self.column}: this model reads images, whose paths are the lines of a file"
            raise InputError(f"{rule}; leave it out")
        return columns

    def _warn_of_files(self, loaded: "LoadedModel | None") -> None:
        """Say it if a text is the name of a file, which a model of texts reads as a text."""
        if loaded is None or loaded.model.reads == "image":
            return
        from regard.use.box import is_file, is_image_file

        for text in self.texts or ():
            if is_image_file(text):
                complain(f"{text} {READ_AS_TEXT}")
            elif is_file(text):
                complain(f"{text} is read as a text; -f {shlex.quote(text)} reads the lines of the file")
            else:
                warn_of_run(text)

    def _cut(self, place: str) -> None:
        self.cut += 1
        self.first_cut = self.first_cut or place

    def _read(self, chunks: Iterator[list[str]]) -> Iterator[list[str]]:
        """Pass lines on; after the last one, warn about those that were too long to be read in full."""
        yield from chunks
        if self.cut:
            counted = "1 line was" if self.cut == 1 else f"{self.cut:,} lines were"
            complain(f"{counted} cut at the end, being over 1 MiB (first: {self.first_cut})")

    def feedback(self) -> "Feedback":
        """Return the callbacks of a model while it answers: the progress bar, and warnings on standard error."""
        from regard.use.batches import Feedback

        return Feedback(done=self._done, warn=complain)

    def _done(self, count: int) -> None:
        if self.advance is not None:
            self.advance(count)


def _warn_of_images(chunks: Iterator[list[str]], loaded: "LoadedModel | None") -> Iterator[list[str]]:
    """Pass lines on, and say it at the first that is the path of an image, which a model of texts reads as a text."""
    from regard.use.box import is_image_file

    said = loaded is None or loaded.model.reads == "image"
    for chunk in chunks:
        path = None if said else next(filter(is_image_file, chunk), None)
        if path is not None:
            complain(f"{path} {READ_AS_TEXT}")
            said = True
        yield chunk


def _lines_of(file: Path, cut: Callable[[str], None]) -> Iterator[str]:
    """Yield the lines of a file, which may be empty, unlike a file to train on."""
    from regard.data.lines import EmptyError, read_lines

    with suppress(EmptyError):
        yield from read_lines(file, cut)


def _checked(cells: Iterator[tuple[str, str]], check: Callable[[str, str], object]) -> Iterator[str]:
    """Yield texts after `check` was called with each that is not blank, and its place."""
    for place, text in cells:
        if text.strip():
            check(text, place)
        yield text


def _cells_of(file: Path, columns: "ColumnOptions") -> Iterator[tuple[str, str]]:
    """Say how a table is read, and yield its texts with their places."""
    from regard.data.tables import read_columns, read_reading

    complain(f"{file}: {read_reading(file, columns).how}")
    return ((place, text) for place, (text,) in read_columns(file, columns))
