"""`regard.look(model, text)`: the viewer in a notebook, as a widget, or inline where widgets are missing."""

import sys
from collections.abc import Collection, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from regard.errors import RegardError
from regard.viewer.export import check_output_file, pack_to_fit
from regard.viewer.html import SCRIPT, STYLE, page_as_iframe, page_with_recordings, read_page_file
from regard.viewer.model_handle import ModelHandle, Question
from regard.viewer.recording import Recording
from regard.viewer.sample import sample_recordings


def look(
    model: Any = None,
    text: str | Sequence[int] | None = None,
    *,
    image: Any = None,
    target: str | None = None,
    tokens: int | None = None,
    tokenizer: Any = None,
    layers: Collection[int] | None = None,
    widget: bool = True,
    height: int = 720,
) -> "Page":
    """Show what a model attends to: one that was loaded or built, or a folder, or a list of such, to compare them.

    It reads a text (ids of tokens where a bare model has no `tokenizer`), or sees an `image`: a file, its bytes, or
    pixels. A translator can be shown at writing a `target`, a language model writes so many `tokens`. Without anything
    to read the snapshots of the run's training are shown; without a model, the bundled sample. What is too large for a
    page needs a choice of `layers`.
    """
    if model is None:
        return Page(sample_recordings(), layers, widget, height)
    question = None if text is None and image is None else Question("" if text is None else text, target, tokens, image)
    models = model if isinstance(model, list | tuple) else [model]
    found = [recording for one in models for recording in _open(one, tokenizer).all(question)]
    return Page({str(number): one for number, one in enumerate(found, 1)}, layers, widget, height)


def _open(model: Any, tokenizer: Any) -> ModelHandle:
    if isinstance(model, str | Path):
        return ModelHandle(Path(model), str(model))
    from regard.viewer.record import make_bundle

    ready = make_bundle(model, tokenizer)
    handle = ModelHandle(Path(ready.name), ready.name)
    handle.loaded = ready
    return handle


class Page:
    """Recordings that show themselves in a notebook, and can be saved as a page to send."""

    def __init__(
        self,
        recordings: dict[str, Recording],
        layers: Collection[int] | None = None,
        widget: bool = True,
        height: int = 720,
    ) -> None:
        self.container, self.note = pack_to_fit(recordings, layers)
        self.titles = [recording.manifest()["title"] for recording in recordings.values()]
        self.as_widget, self.height = widget, height

    def save(self, path: str | Path) -> None:
        """Write one file that needs nothing but itself."""
        from regard.draw.file import put

        check_output_file(Path(path), ".html")
        put(Path(path), page_with_recordings(self.container).encode())

    @cached_property
    def widget(self) -> Any:
        """The widget, to be shown among others; it needs anywidget."""
        try:
            import anywidget
            import traitlets
        except ImportError:
            raise RegardError('widgets need a package: pip install "regard[notebook]"') from None

        class Widget(anywidget.AnyWidget):
            _esm = read_page_file(SCRIPT)
            _css = read_page_file(STYLE)
            container = traitlets.Bytes().tag(sync=True)

        return Widget(container=self.container)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        """Be shown: by Jupyter's protocol."""
        if self.as_widget and has_widgets():
            return self.widget._repr_mimebundle_()
        return {"text/plain": repr(self), "text/html": page_as_iframe(self.container, self.height)}

    def __repr__(self) -> str:
        return f"<regard: {', '.join(self.titles)}; shown in a notebook, or as a file by .save('page.html')>"


def has_widgets() -> bool:
    """Tell whether this runs in a kernel of Jupyter, and widgets can be made for it."""
    if "IPython" not in sys.modules:
        return False
    try:
        import anywidget  # noqa: F401
        from IPython.core.getipython import get_ipython
    except ImportError:
        return False
    return getattr(get_ipython(), "kernel", None) is not None
