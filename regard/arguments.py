"""Checks of what is passed to functions from Python, where nothing has checked its type: texts, counts, paths."""

import os
from collections.abc import Iterable, Iterator, Mapping
from numbers import Integral
from pathlib import Path
from reprlib import repr as shortened

from regard.errors import InputError

LONGEST_NAME = 255  # bytes in the name of a file or a folder: the limit of the usual file systems


def check_texts(texts: object, name: str, kinds: tuple[type, ...] = (str,)) -> Iterator[str]:
    """Check that an argument is an ordered collection of texts (or paths, if `kinds` has them); yield them lazily."""
    if isinstance(texts, str):
        raise InputError("one text was given where a list of texts belongs; put it into brackets: [text]")
    if not isinstance(texts, Iterable) or isinstance(texts, Mapping | set | frozenset | bytes):
        raise InputError(f"{name}={shortened(texts)} must be a list of texts")

    def each(texts: Iterable[object]) -> Iterator[str]:
        for place, text in enumerate(texts):
            if not isinstance(text, kinds):
                raise InputError(f"{name}[{place}]={shortened(text)} must be a text")
            yield str(text)

    return each(texts)


def check_text(text: object, name: str) -> str:
    """Check that an argument is one text."""
    if not isinstance(text, str):
        raise InputError(f"{name}={shortened(text)} must be one text")
    return text


def check_count(number: object, name: str) -> int:
    """Check that an argument is a whole number, at least 1; it may be one of NumPy's."""
    if not isinstance(number, Integral) or isinstance(number, bool) or number < 1:
        raise InputError(f"{name}={number!r} must be a whole number, at least 1")
    return int(number)


def check_path(path: object, name: str) -> Path:
    """Check that an argument is a path: a text that is not empty, or an object that stands for a path, as a `Run`."""
    if not isinstance(path, str | os.PathLike) or path == "" or "\0" in str(path):
        raise InputError(f"{name}={shortened(path)} must be a path")
    if isinstance(path, str) and has_long_name(path):  # of a path of the command line, the system says the same
        raise InputError(f"{name}={shortened(path)} must be a path; a name in it has more than {LONGEST_NAME} bytes")
    return Path(path)


def has_long_name(path: str | os.PathLike[str]) -> bool:
    """Return whether a path has a name that no file can have, such as a text that was given in place of a path."""
    return any(len(part.encode(errors="surrogatepass")) > LONGEST_NAME for part in Path(path).parts)


def check_files(files: object, name: str) -> list[str]:
    """Check that an argument names one file, or several; None names none."""
    several = [] if files is None else [files] if isinstance(files, str | os.PathLike) else files
    if not isinstance(several, Iterable) or isinstance(several, Mapping | set | frozenset | bytes):
        raise InputError(f"{name}={shortened(files)} must be a path, or a list of paths")
    return [str(check_path(file, f"{name}[{place}]")) for place, file in enumerate(several)]
