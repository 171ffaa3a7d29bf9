"""`regard.look(model, text)`: the viewer in a notebook, as a widget, or as an iframe where widgets are missing."""

import os
from base64 import b64encode
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from html import escape
from pathlib import Path
from reprlib import repr as shortened
from typing import Any

from regard.errors import InputError, choices
from regard.kernel import CellContents, get_kernel
from regard.use.box import find_model
from regard.viewer.export import begun_at, check_output_file, draw_head, pack_to_fit, read_head_weights
from regard.viewer.html import page_as_iframe, page_with_recordings
from regard.viewer.model_handle import LoadStatus, ModelHandle
from regard.viewer.query import Query, QueryText
from regard.viewer.recording import Recording
from regard.viewer.recording_store import RecordingStore
from regard.viewer.sample import sample_recordings
from regard.viewer.widget import make_widget

HEIGHT = 720  # pixels of an iframe, which cannot follow its content
THEMES = ("light", "dark")

CELLS = CellContents()


def look(
    model: Any = None,
    text: QueryText | None = None,
    *,
    image: Any = None,
    target: str | None = None,
    tokens: int | None = None,
    tokenizer: Any = None,
    attention: str | None = None,
    head: int | None = None,
    interventions: Sequence[Mapping[str, Any]] = (),
    layers: Collection[int] | None = None,
    widget: bool = True,
    height: int | None = None,
    theme: str | None = None,
) -> "Page":
    """Show what a model attends to, in a notebook.

    `model` is a model that was loaded or built, a run that `regard.train` returned, a folder, or a list of these, to
    compare them. It reads a text (or token ids, if a bare model has no `tokenizer`), or an `image`: a file, its bytes,
    or pixels. A translator is shown while it writes the `target` if that is given (teacher forcing), otherwise
    its own translation; a language model generates `tokens` tokens. Without a text or image, the training snapshots of
    the run are shown; without a model, the bundled sample. While the kernel runs, a text box asks the model for more.

    `interventions` are arguments of `regard.intervene`, such as `[{"place": "cross.2", "heads": [3], "attention":
    "zero"}]`; the changed model is shown on the same tokens, and the unchanged one beside it.

    The page begins with an `attention` ("cross.2") and one of its heads, counted from 1. `height` is in pixels; by
    default a widget is as high as its content. The `theme` is that of the notebook unless it is "light" or "dark". If
    the page would be too large, choose some `layers`.
    """
    if theme is not None and theme not in THEMES:
        raise InputError(f"theme {theme!r}: no such theme; {choices(theme, THEMES)}")
    if layers is not None and (isinstance(layers, str) or not isinstance(layers, Collection)):
        raise InputError(f"layers={layers!r} must be a list of layers, such as [1, 3]")
    if not isinstance(interventions, Sequence) or not all(isinstance(one, Mapping) for one in interventions):
        example = "[{'place': 'cross.2', 'attention': 'zero'}]"
        raise InputError(f"interventions={shortened(interventions)} must be a list of arguments, such as {example}")
    as_widget = widget and has_widgets()
    handles = _handles(model, tokenizer)
    if model is None:
        if interventions:
            raise InputError("interventions need a model to change; the sample has none")
        recordings = sample_recordings()
    else:
        query = None if text is None and image is None else Query("" if text is None else text, target, tokens, image)
        found = [one for handle in handles for one in _recordings(handle, query, as_widget)]
        found = [*_changed(found, interventions), *found]
        recordings = {str(number): one for number, one in enumerate(found, 1)}
    begun = {id: begun_at(one, attention, head) for id, one in recordings.items()}
    return Page(begun, handles, layers=layers, widget=widget, height=height, theme=theme)


def _handles(model: Any, tokenizer: Any) -> list[ModelHandle]:
    """Return a handle for each model; those of folders are named after the folder, or after the path if two agree."""
    models = [] if model is None else list(model) if isinstance(model, list | tuple) else [model]
    folders = [find_model(one) for one in models if isinstance(one, str | os.PathLike)]  # a `Run` is a path, too
    last = [folder.resolve().name for folder in folders]
    return [_handle(one, tokenizer, last) for one in models]


def _handle(model: Any, tokenizer: Any, last: Sequence[str]) -> ModelHandle:
    if isinstance(model, str | os.PathLike):
        folder = find_model(model)
        name = folder.resolve().name
        return ModelHandle(folder, name if last.count(name) == 1 else str(folder))
    from regard.viewer.record import make_bundle

    bundle = make_bundle(model, tokenizer)
    handle = ModelHandle(Path(bundle.name), Path(bundle.name).name)
    handle.hold(bundle)
    handle.status = LoadStatus(ready=True)
    return handle


def _recordings(handle: ModelHandle, query: Query | None, as_widget: bool) -> list[Recording]:
    """Return what a model shows at first: it may be nothing if there is a text box to ask for more."""
    if not as_widget or query is not None:
        found = handle.recordings(query)
        handle.status = LoadStatus(ready=handle.loaded is not None)
        return found
    training = handle.training()
    if training is not None:
        handle.load_if_possible()
        return [training]
    if handle.loaded is None:
        handle.load()  # there is nothing to show if this fails
    handle.status = LoadStatus(ready=True)
    return []


def _changed(recordings: Sequence[Recording], interventions: Sequence[Mapping[str, Any]]) -> list[Recording]:
    """Return the recordings of the changed models."""
    if not interventions:
        return []
    from regard.models.intervention import Intervention
    from regard.viewer.live_recording import LiveRecording

    live = [recording for recording in recordings if isinstance(recording, LiveRecording)]
    if not live:
        raise InputError("interventions need a text to change; give one: regard.look(model, text, interventions=[...])")
    given = []
    for one in interventions:
        unknown = [name for name in one if name not in Intervention._fields]
        if unknown or "place" not in one:
            wrong = f"unknown argument {unknown[0]!r}" if unknown else "no place"
            raise InputError(f"intervention {dict(one)}: {wrong}; {choices(unknown[:1] or '', Intervention._fields)}")
        given.append(Intervention(**one))
    return [recording.changed_by(given) for recording in live]


class Page:
    """Recordings that a notebook displays, and that can be saved as an HTML file."""

    def __init__(
        self,
        recordings: dict[str, Recording],
        handles: Sequence[ModelHandle] = (),
        *,
        layers: Collection[int] | None = None,
        widget: bool = True,
        height: int | None = None,
        theme: str | None = None,
    ) -> None:
        self.archive, self.note = pack_to_fit(recordings, layers)
        self.titles = [recording.manifest()["title"] for recording in recordings.values()]
        self.titles = self.titles or [handle.name for handle in handles]
        self.recordings, self.handles = recordings, handles
        self.as_widget, self.height, self.theme = widget, height, theme

    def save(self, path: str | Path) -> None:
        """Write a self-contained HTML file."""
        from regard.draw.file import write_bytes

        check_output_file(Path(path), ".html")
        write_bytes(Path(path), page_with_recordings(self.archive, self.theme).encode())

    @cached_property
    def widget(self) -> Any:
        """The widget, to be combined with other widgets; it needs anywidget."""
        from regard.viewer.server import make_open_app

        app = make_open_app(RecordingStore(self.recordings), self.handles) if self.handles else None
        return make_widget(self.archive, app, self.height, self.theme)

    def close(self) -> None:
        """Remove the widget from all outputs and from the state of the notebook."""
        widget = self.__dict__.pop("widget", None)
        if widget is not None:
            widget.close()

    @cached_property
    def picture(self) -> bytes | None:
        """The first head as a PNG; None if there is no attention, or too much of it."""
        from regard.draw import DARK, LIGHT, use_look

        for recording in self.recordings.values():
            try:
                head = read_head_weights(recording)
            except InputError:
                continue
            with use_look(DARK if self.theme == "dark" else LIGHT):
                return draw_head(head, "png")
        return None

    def _ipython_display_(self) -> None:
        """Display the page in a notebook."""
        from IPython import display

        publish: Any = display.publish_display_data
        if not (self.as_widget and has_widgets()):
            publish({"text/plain": repr(self), "text/html": self._repr_html_()})
            return
        CELLS.show(id(self), self.close)
        bundle = self.widget._repr_mimebundle_()
        data = bundle[0] if isinstance(bundle, tuple) else bundle
        publish({**data, "text/plain": repr(self)})
        publish(self._left_behind())

    def _repr_html_(self) -> str:
        """Return the page as an iframe, which needs no widgets."""
        return page_as_iframe(self.archive, self.height or HEIGHT, self.theme)

    def _left_behind(self) -> dict[str, Any]:
        """Return what is shown instead of the widget where there is no kernel, or no widgets.

        It is an output of its own, since a front end that knows widgets shows an error instead of any alternative.
        While the widget is shown, this output is hidden; while the widget is missing, its error is.
        """
        shown = f"<p>{escape(', '.join(self.titles))}: run the cell to look at it.</p>"
        picture = self.picture
        if picture is not None:
            title = escape(", ".join(self.titles), quote=True)
            code = b64encode(picture).decode()
            shown = f'<img alt="{title}" style="max-width: 100%; height: auto" src="data:image/png;base64,{code}">'
        data: dict[str, Any] = {
            "text/plain": repr(self),
            "text/html": f'{HIDING}<div class="regard-picture">{shown}</div>',
        }
        if picture is not None:
            data["image/png"] = b64encode(picture).decode()
        return data

    def __repr__(self) -> str:
        return f"<regard: {', '.join(self.titles)}; display it in a notebook, or write it with .save('page.html')>"


# The classes are those of JupyterLab, Notebook 7 and nbconvert; a widget that failed has text only, no element.
HIDING = """<style>
.jp-OutputArea-child:has(.regard) + .jp-OutputArea-child:has(.regard-picture),
.jp-OutputArea-child:has(+ .jp-OutputArea-child .regard-picture) .jupyter-widgets:not(:has(*)) { display: none; }
</style>"""


def has_widgets() -> bool:
    """Return whether this is a Jupyter kernel with anywidget installed."""
    if get_kernel() is None:
        return False
    try:
        import anywidget  # noqa: F401
    except ImportError:
        return False
    return True
