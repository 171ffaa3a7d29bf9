"""ModelHandle: a model by its folder. Loading takes seconds, so the viewer does it in the background.

Nothing here imports torch before a model is loaded.
"""

import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Lock, Thread
from typing import Any, NamedTuple

from regard.errors import InputError, RegardError
from regard.escape import escape_controls
from regard.use.box import find_model, folder_remedy, shown_name
from regard.viewer.manifest import ModelInfo
from regard.viewer.query import Query
from regard.viewer.recording import Recording
from regard.viewer.recording_store import RecordingStore

PATIENCE = 2.0  # seconds


class LoadStatus(NamedTuple):
    """How far loading has come; one object, since the page reads it while it changes."""

    ready: bool = False  # loaded, and the first query is answered
    error: str | None = None  # why the model cannot be loaded, or why the first query failed


class ModelHandle:
    """A model by its folder, loaded or not yet."""

    def __init__(self, folder: Path, name: str, device: str = "auto", allow_pickle: bool = False) -> None:
        self.folder, self.name, self.device, self.allow_pickle = folder, name, device, allow_pickle
        self.lock = Lock()  # the model does one thing at a time
        self.loaded: Any = None  # a `regard.use.bundle.Bundle`
        self.status = LoadStatus()
        self.what, self.reads_images, self.reads_tracks = "", False, False
        self.verbs: tuple[str, ...] = ()

    def load(self) -> None:
        """Load the model in float32, so that the numbers shown are exact, and without compiling it."""
        import torch

        from regard.data.device import choose_device
        from regard.use.load import make_engine, open_folder

        device = choose_device(self.device)
        bundle = open_folder(self.folder, device, self.allow_pickle)
        bundle.need_weights("does not expose attention")
        model = bundle.model.eval()
        if next(model.parameters()).dtype in (torch.bfloat16, torch.float16):
            model = model.float()
        self.hold(replace(bundle, model=model, device=device, engine=make_engine("eager", model)))

    def hold(self, bundle: Any) -> None:
        """Use a model that is in memory."""
        model = bundle.model
        self.what, self.verbs = bundle.description, bundle.verbs
        self.reads_images, self.reads_tracks = model.reads == "image", model.reads == "tracks"
        self.loaded = bundle

    def load_if_possible(self) -> None:
        """Load the model for a page that is shown in any case; the page says why it cannot be loaded."""
        try:
            with one_line_errors(str(self.folder)):
                if self.loaded is None:
                    self.load()
        except RegardError as error:
            self.status = LoadStatus(error=str(error))
        else:
            self.status = LoadStatus(ready=True)

    def record(self, query: Query) -> Recording:
        """Run the model on a query; the caller holds the lock."""
        from regard.viewer.record import record

        if self.loaded is None:
            raise InputError(self.status.error or f"{self.name}: is still loading; wait a moment")
        return record(self.loaded, query)

    def training(self) -> Recording | None:
        """Return the recording of the run's training, if it has one; the model need not be loaded."""
        from regard.viewer.training_recording import record_training

        return record_training(self.folder)

    def recordings(self, query: Query | None) -> list[Recording]:
        """Return the recording of a query, if there is one, and that of the run's training, if it has one."""
        training = self.training()
        if self.loaded is None and (query is not None or training is None):
            self.load()
        answer = None if query is None else self.record(query)
        found = [recording for recording in (answer, training) if recording is not None]
        if not found:
            wanted = "an image" if self.reads_images else "a file of tracks" if self.reads_tracks else "a text"
            raise InputError(f"{self.name}: has no snapshots of its training; give {wanted} to look at")
        return found

    def info(self) -> ModelInfo:
        """Describe the model for the page."""
        return {
            "name": self.name,
            "what": self.what,
            "verbs": list(self.verbs),
            "ready": self.status.ready,
            "error": self.status.error,
            "image": self.reads_images,
            "path": str(self.folder),
        }


def make_handles(folders: Sequence[Path], device: str = "auto", allow_pickle: bool = False) -> list[ModelHandle]:
    """Make a handle for each folder, named after the folder, or after the whole path if two have the same name.

    A folder may be the name of a model in the box. The page selects models by these names, so a byte that is not UTF-8
    is a question mark in both.
    """
    folders = [find_model(folder) for folder in folders]
    last = [folder.resolve().name for folder in folders]
    names = [name if last.count(name) == 1 else str(folder) for name, folder in zip(last, folders, strict=True)]
    names = [name.encode("utf-8", "replace").decode() for name in names]
    for name, folder in zip(names, folders, strict=True):
        if not folder.is_dir():
            raise RegardError(f"{folder}: no such folder; {folder_remedy(folder)}")
        if names.count(name) > 1:
            raise RegardError(f"{shown_name(folder)}: was given twice; give two different models to compare them")
    return [ModelHandle(folder, name, device, allow_pickle) for name, folder in zip(names, folders, strict=True)]


def load_in_background(
    handles: Sequence[ModelHandle], store: RecordingStore, query: Query | None, patience: float = PATIENCE
) -> Thread:
    """Load the models one after the other in a thread; run each on the first query, if there is one.

    Their recordings are listed in the order of the models, so the page shows the first model, and stays there.
    Importing torch would delay the first response, so loading waits until a bundled recording was seen, but no longer
    than `patience` seconds.
    """

    def work() -> None:
        if store.listing():
            store.seen.wait(patience)
        last: str | None = None  # the last recording of the models so far
        for handle in handles:
            ids, error = _load(handle, store, query, last)
            last = ids[0] if ids else last
            if error is not None:
                print(f"regard: {escape_controls(str(error))}", file=sys.stderr, flush=True)
            handle.status = LoadStatus(handle.loaded is not None, error)

    thread = Thread(target=work, name="models", daemon=True)
    thread.start()
    return thread


def _load(
    handle: ModelHandle, store: RecordingStore, query: Query | None, after: str | None
) -> tuple[list[str], str | None]:
    """Put the training snapshots into the store, then the answer to the first query; return their ids and what failed.

    Nothing may end the thread, or the page would wait for this model and all others forever.
    """
    ids: list[str] = []

    def show_training() -> None:
        training = handle.training()
        if training is not None:  # it has a lock of its own, since it does not use the model
            ids.append(store.put(training, Lock(), keep=True, after=after))

    def answer() -> None:
        if query is not None:
            ids.append(store.put(handle.record(query), handle.lock, after=after))

    errors = []
    for work in (show_training, handle.load, answer):
        try:
            with handle.lock, one_line_errors(str(handle.folder)):
                work()
        except RegardError as error:
            errors.append(str(error))
        except BaseException as error:
            traceback.print_exception(error)
            errors.append(f"{handle.folder}: {internal_error(error)}")
        if work == handle.load and handle.loaded is None:
            break
    return ids, errors[0] if errors else None


@contextmanager
def one_line_errors(place: str) -> Iterator[None]:
    """Turn a missing or damaged file, exhausted memory, or the panic of a library into an error of one line."""
    try:
        yield
    except (RegardError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        # torch reports exhausted memory as a RuntimeError, and a panic in Rust is not an Exception
        if isinstance(error, Exception) and not isinstance(error, OSError | RuntimeError | MemoryError):
            raise
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise RegardError(f"{place}: cannot be shown: {reason}") from error


def internal_error(error: BaseException) -> str:
    """Describe a bug of the viewer for the page."""
    return f"internal error of the viewer ({type(error).__name__}); see the terminal for details"
