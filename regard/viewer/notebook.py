"""`regard.look(model, text)`: the viewer in a notebook, as a widget, or as an iframe where widgets are missing."""

import os
import sys
from collections.abc import Collection
from functools import cached_property
from pathlib import Path
from typing import Any

from regard.errors import RegardError
from regard.viewer.export import check_output_file, pack_to_fit
from regard.viewer.html import SCRIPT, STYLE, page_as_iframe, page_with_recordings, read_page_file
from regard.viewer.model_handle import ModelHandle
from regard.viewer.query import Query, QueryText
from regard.viewer.recording import Recording
from regard.viewer.sample import sample_recordings


def look(
    model: Any = None,
    text: QueryText | None = None,
    *,
    image: Any = None,
    target: str | None = None,
    tokens: int | None = None,
    tokenizer: Any = None,
    layers: Collection[int] | None = None,
    widget: bool = True,
    height: int = 720,
) -> "Page":
    """Show what a model attends to, in a notebook.

    `model` is a model that was loaded or built, a run that `regard.train` returned, a folder, or a list of these, to
    compare them. It reads a text (or token ids, if a bare model has no `tokenizer`), or an `image`: a file, its bytes,
    or pixels. A translator is shown while it writes the `target` if that is given (teacher forcing), otherwise
    its own translation; a language model generates `tokens` tokens. Without a text or image, the training snapshots of
    the run are shown; without a model, the bundled sample. If the page would be too large, choose some `layers`.
    """
    if model is None:
        return Page(sample_recordings(), layers, widget, height)
    query = None if text is None and image is None else Query("" if text is None else text, target, tokens, image)
    models = model if isinstance(model, list | tuple) else [model]
    found = [recording for one in models for recording in _handle(one, tokenizer).recordings(query)]
    return Page({str(number): one for number, one in enumerate(found, 1)}, layers, widget, height)


def _handle(model: Any, tokenizer: Any) -> ModelHandle:
    if isinstance(model, str | os.PathLike):  # a run that `regard.train` returned is a path, too
        return ModelHandle(Path(model), str(Path(model)))
    from regard.viewer.record import make_bundle

    bundle = make_bundle(model, tokenizer)
    handle = ModelHandle(Path(bundle.name), bundle.name)
    handle.loaded = bundle
    return handle


class Page:
    """Recordings that a notebook displays, and that can be saved as an HTML file."""

    def __init__(
        self,
        recordings: dict[str, Recording],
        layers: Collection[int] | None = None,
        widget: bool = True,
        height: int = 720,
    ) -> None:
        self.archive, self.note = pack_to_fit(recordings, layers)
        self.titles = [recording.manifest()["title"] for recording in recordings.values()]
        self.as_widget, self.height = widget, height

    def save(self, path: str | Path) -> None:
        """Write a self-contained HTML file."""
        from regard.draw.file import write_bytes

        check_output_file(Path(path), ".html")
        write_bytes(Path(path), page_with_recordings(self.archive).encode())

    @cached_property
    def widget(self) -> Any:
        """The widget, to be combined with other widgets; it needs anywidget."""
        try:
            import anywidget
            import traitlets
        except ImportError:
            raise RegardError('widgets need anywidget: pip install "regard[notebook]"') from None

        class Widget(anywidget.AnyWidget):
            _esm = read_page_file(SCRIPT)
            _css = read_page_file(STYLE)
            archive = traitlets.Bytes().tag(sync=True)

        return Widget(archive=self.archive)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        """Return what Jupyter displays."""
        if self.as_widget and has_widgets():
            return self.widget._repr_mimebundle_()
        return {"text/plain": repr(self), "text/html": page_as_iframe(self.archive, self.height)}

    def __repr__(self) -> str:
        return f"<regard: {', '.join(self.titles)}; display it in a notebook, or write it with .save('page.html')>"


def has_widgets() -> bool:
    """Return whether this is a Jupyter kernel with anywidget installed."""
    if "IPython" not in sys.modules:
        return False
    try:
        import anywidget  # noqa: F401
        from IPython.core.getipython import get_ipython
    except ImportError:
        return False
    return getattr(get_ipython(), "kernel", None) is not None
