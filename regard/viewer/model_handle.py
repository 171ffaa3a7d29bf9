"""Subject: a model that can be looked at, by its folder. Loading takes seconds, so a viewer does it behind the page.

Nothing here imports torch before a model is loaded.
"""

import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock, Thread
from typing import Any, NamedTuple

from regard.errors import InputError, RegardError
from regard.viewer.recording import Recording
from regard.viewer.recording_store import RecordingStore

PATIENCE = 2.0  # seconds


@dataclass(frozen=True)
class Question:
    """What a model is to be recorded with: a text, or an image as a file; what it should write, or how much."""

    text: str | Sequence[int] = ""  # or the ids of tokens
    target: str | None = None  # what a translator should have written, instead of what it would
    tokens: int | None = None  # to write; None: as many as suit
    image: Any = None  # a file, its bytes, or pixels; None: the text for a model of images is the path of one


class LoadStatus(NamedTuple):
    """How far the opening of a model has come; in one piece, since pages ask for it meanwhile."""

    settled: bool = False  # loaded, and asked what it was to be asked first
    error: str | None = None  # why it cannot be loaded, or what was wrong with the first question


class ModelHandle:
    """A model by its folder, loaded or not yet."""

    def __init__(self, folder: Path, name: str, device: str = "auto", allow_pickle: bool = False) -> None:
        self.folder, self.name, self.device, self.allow_pickle = folder, name, device, allow_pickle
        self.lock = Lock()  # one thing at a time
        self.loaded: Any = None  # a `regard.use.ready.Ready`
        self.opened = LoadStatus()
        self.what, self.of_images = "", False
        self.verbs: tuple[str, ...] = ()

    def load(self) -> None:
        """Read the folder. Numbers are shown as they are, so they are float32, and nothing is captured or compiled."""
        import torch

        from regard.data.device import choose_device
        from regard.use.load import make_engine, open_folder
        from regard.use.ready import abilities

        device = choose_device(self.device)
        ready = open_folder(self.folder, device, self.allow_pickle)
        if ready.outside is not None:
            raise InputError(f"{self.folder}: CTranslate2 keeps its numbers to itself; look at what it was made from")
        model = ready.model.eval()
        if next(model.parameters()).dtype in (torch.bfloat16, torch.float16):
            model = model.float()
        self.what, self.verbs = abilities(model)
        self.of_images = self.what.endswith("of images")
        self.loaded = replace(ready, model=model, device=device, engine=make_engine("eager", model))

    def record(self, question: Question) -> Recording:
        """Let the model read, and write if it can; the caller holds the lock."""
        from regard.viewer.record import record

        if self.loaded is None:
            raise InputError(self.opened.error or f"{self.name}: is still being loaded; wait a moment")
        chosen = {name: value for name, value in vars(question).items() if value is not None}
        return record(self.loaded, **chosen)

    def training(self) -> Recording | None:
        """Give what was recorded while the model was, or is, trained, if anything was; it need not be loaded."""
        from regard.viewer.training_recording import record_training

        return record_training(self.folder)

    def all(self, question: Question | None) -> list[Recording]:
        """Give the answer to a question and what was recorded in training, as far as there are such."""
        training = self.training()
        if self.loaded is None and (question is not None or training is None):
            self.load()
        answer = None if question is None else self.record(question)
        found = [recording for recording in (answer, training) if recording is not None]
        if not found:
            raise InputError(f"{self.name}: was not recorded in training; give a text to look at")
        return found

    def about(self) -> dict[str, Any]:
        """Say what the page is to know of it."""
        settled, error = self.opened
        about = {"name": self.name, "what": self.what, "verbs": list(self.verbs), "ready": settled}
        return about | {"error": error, "image": self.of_images, "path": str(self.folder)}


def make_handles(folders: Sequence[Path], device: str = "auto", allow_pickle: bool = False) -> list[ModelHandle]:
    """Make subjects of folders, each with a name of its own: the folder's, or all of the path if two have the same."""
    last = [folder.resolve().name for folder in folders]
    names = [name if last.count(name) == 1 else str(folder) for name, folder in zip(last, folders, strict=True)]
    for name, folder in zip(names, folders, strict=True):
        if not folder.is_dir():
            remedy = "give the folder that `regard train` printed, or one of Hugging Face"
            raise RegardError(f"{folder}: there is no such folder; {remedy}")
        if names.count(name) > 1:
            raise RegardError(f"{folder}: was named twice; name two models to compare them")
    return [ModelHandle(folder, name, device, allow_pickle) for name, folder in zip(names, folders, strict=True)]


def load_in_background(
    handles: Sequence[ModelHandle], store: RecordingStore, question: Question | None, patience: float = PATIENCE
) -> Thread:
    """Load one model after the other, behind the page; ask each the first question, if there is one.

    Importing torch leaves little time for anything else, so a bundled recording may be seen first, within the patience.
    """

    def work() -> None:
        if store.listing():
            store.seen.wait(patience)
        for handle in handles:
            error = _open(handle, store, question)
            if error is not None:
                print(f"regard: {error}", file=sys.stderr, flush=True)
            handle.opened = LoadStatus(handle.loaded is not None, error)

    thread = Thread(target=work, name="models", daemon=True)
    thread.start()
    return thread


def _open(handle: ModelHandle, store: RecordingStore, question: Question | None) -> str | None:
    """Put on the shelf what was recorded in training, and above it the answer to the first question; say what fails."""

    def show_training() -> None:
        training = handle.training()
        if training is not None:
            store.put(training, Lock(), keep=True)  # it needs no model, so it need not wait for one

    def answer() -> None:
        if question is not None:
            store.put(handle.record(question), handle.lock)

    errors = []
    for work in (show_training, handle.load, answer):
        try:
            with handle.lock, one_line_errors(str(handle.folder)):
                work()
        except RegardError as error:
            errors.append(str(error))
        except Exception as error:
            traceback.print_exception(error)
            errors.append(f"{handle.folder}: {internal_error(error)}")
        if work == handle.load and handle.loaded is None:
            break
    return errors[0] if errors else None


@contextmanager
def one_line_errors(place: str) -> Iterator[None]:
    """Let a file that is gone or spoilt, or memory that does not suffice, be the one sentence that a person needs."""
    try:
        yield
    except RegardError:
        raise
    except (OSError, RuntimeError) as error:  # torch says by the latter that memory is used up
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise RegardError(f"{place}: cannot be looked at: {reason}") from error


def internal_error(error: Exception) -> str:
    """Say of a mistake of ours all that helps in a page."""
    return f"the viewer made a mistake ({type(error).__name__}); its terminal says more"
