"""A run folder has one owner: the process that trains in it.

A folder is taken before anything else is written into it: created under a name that did not exist, or found free, and
then locked. The lock lasts as long as the process trains; the operating system releases it, also after a kill. So two
runs that start at the same time get two folders, and a run that is being trained cannot be resumed or replaced.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

from regard.atomic import explain_write_errors, lock, remove_leftovers
from regard.config import is_unicode
from regard.data.tokenizer_folder import FILE as TOKENIZER
from regard.data.tokenizer_folder import SPECIAL_TOKENS
from regard.data.tokenizer_folder import TARGET as TARGET_TOKENIZER
from regard.errors import RegardError
from regard.models.store import CONFIG, WEIGHTS
from regard.runs.checkpoint import checkpoint_steps
from regard.runs.layout import (
    AVERAGING,
    CHECKPOINTS,
    CURVES,
    EVALUATION,
    EVENTS,
    LOCK,
    METRICS,
    PROBE,
    RECIPE,
    REPORT,
    SAMPLES,
    SESSIONS,
)

LEARNED = (CONFIG, WEIGHTS, CHECKPOINTS, AVERAGING, PROBE)
LOGGED = (METRICS, SAMPLES, SESSIONS, EVALUATION, EVENTS, CURVES, REPORT)
TOKENIZERS = (TOKENIZER, TARGET_TOKENIZER, SPECIAL_TOKENS)
FILES = (*LEARNED, *LOGGED, *TOKENIZERS, RECIPE)


@contextmanager
def hold_run(folder: Path) -> Iterator[None]:
    """Hold the lock of an existing run during the block; an error names the process that has it."""
    with lock(folder / LOCK, "wait until it ends, or stop it; then resume"):
        _reject_links(folder)
        remove_leftovers(folder)
        yield


@contextmanager
def take_folder(folder: Path, overwrite: bool = False) -> Iterator[None]:
    """Take a folder for a new run, and hold its lock during the block.

    If the block ends without a run in the folder, what was created is removed. With `overwrite` the folder may hold a
    run; `clear_run` removes it when the new one can begin.
    """
    check_free(folder, overwrite)
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    with explain_write_errors(folder, "choose another run=FOLDER"):
        folder.mkdir(parents=True, exist_ok=True)
    with _remove_unused(folder, made), lock(folder / LOCK, "wait until it ends, or choose another run=FOLDER"):
        check_free(folder, overwrite)  # again: another process may have been faster
        with _remove_tokenizer(folder):
            yield


@contextmanager
def take_next_folder(parent: Path, name: str) -> Iterator[int]:
    """Create `parent/name-1`, or the next number that does not exist; hold its lock during the block.

    Yield the number. If the block ends without a run in the folder, what was created is removed.
    """
    made = [path for path in (parent, *parent.parents) if not path.exists()]
    for number in count(1):
        folder = parent / f"{name}-{number}"
        with explain_write_errors(folder, "choose a folder with run=FOLDER"):
            parent.mkdir(parents=True, exist_ok=True)
            try:
                folder.mkdir()
            except FileExistsError:
                continue
        with _remove_unused(folder, [folder, *made]), lock(folder / LOCK), _remove_tokenizer(folder):
            yield number
        return


def check_free(folder: Path, overwrite: bool = False) -> None:
    """Raise an error if a folder cannot become a new run: it is a file, or it holds another run or parts of one.

    A run that has neither weights nor a checkpoint yet may be begun again. A tokenizer beside a lock file was written
    by a process that was killed before its run began.
    """
    if not is_unicode(str(folder)):
        raise RegardError(f"{str(folder)!a}: is not valid Unicode text; choose another run=FOLDER")
    if folder.exists() and not folder.is_dir():
        raise RegardError(f"{folder}: is a file, and a run needs a folder; choose another run=FOLDER")
    if (folder / RECIPE).exists():
        if overwrite or not ((folder / WEIGHTS).exists() or checkpoint_steps(folder / CHECKPOINTS)):
            return
        remedy = f"continue it with regard.resume({str(folder)!r}), replace it with overwrite=True"
        raise RegardError(f"{folder}: already holds a run; {remedy}, or choose another run=FOLDER")
    for name in (*LEARNED, *LOGGED, *(() if (folder / LOCK).exists() else TOKENIZERS)):
        if (folder / name).exists():
            raise RegardError(f"{folder}: holds {name} of something else; choose another run=FOLDER")


def clear_run(folder: Path) -> None:
    """Remove the files of a run, and nothing else: the recipe last, so that a half-removed run is still a run."""
    with explain_write_errors(folder):
        remove_leftovers(folder)
        for name in FILES:
            path = folder / name
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)


def _reject_links(folder: Path) -> None:
    """Raise an error if a file of a run is a link: writing the run would change a file elsewhere. Folders may be."""
    for path in (folder / name for name in FILES):
        if path.is_symlink() and not path.is_dir():
            rule = "is a link, and training would write to the file that it names"
            raise RegardError(f"{path}: {rule}; replace it with a copy of that file")


@contextmanager
def _remove_unused(folder: Path, made: list[Path]) -> Iterator[None]:
    """After the block, remove the folders that were made for a run, unless there is one; the deepest come first."""
    try:
        yield
    finally:
        if not (folder / RECIPE).exists():
            with suppress(OSError):  # they are not empty
                for path in made:
                    path.rmdir()


@contextmanager
def _remove_tokenizer(folder: Path) -> Iterator[None]:
    """After the block, remove the tokenizer, which is written before the recipe, unless there is a run.

    Call it where the folder is free and locked. Otherwise the tokenizer would count as that of something else.
    """
    try:
        yield
    finally:
        if not (folder / RECIPE).exists():
            with suppress(OSError):
                for name in TOKENIZERS:
                    (folder / name).unlink(missing_ok=True)
