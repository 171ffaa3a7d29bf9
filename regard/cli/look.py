"""`regard look`: see what models attend to, in the browser, or in files."""

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlencode

import typer

from regard.cli.text import AllowPickle, DeviceName
from regard.errors import InputError

if TYPE_CHECKING:
    from regard.viewer.model_handle import ModelHandle, Question
    from regard.viewer.recording import Recording

PORT = 7348


def _file(name: str, what: str) -> typer.models.OptionInfo:
    return typer.Option(name, metavar="FILE", help=what, show_default=False)


def look(
    text: Annotated[
        str | None,
        typer.Argument(metavar="TEXT", help="What the model reads; for images, a file.", show_default=False),
    ] = None,
    models: Annotated[
        list[Path] | None,
        typer.Option(
            "--model", "-m", help="The folder of a run, or one of Hugging Face; several to compare.", show_default=False
        ),
    ] = None,
    export: Annotated[Path | None, _file("--export", "Write a page that needs nothing but itself: NAME.html.")] = None,
    png: Annotated[Path | None, _file("--png", "Draw one head into this file.")] = None,
    svg: Annotated[Path | None, _file("--svg", "Draw one head into this file.")] = None,
    csv: Annotated[Path | None, _file("--csv", "Write the weights of one head into this file.")] = None,
    attention: Annotated[
        str | None, typer.Option(help="Which attention: cross.2, self.1, ...; none: a telling one.", show_default=False)
    ] = None,
    head: Annotated[int | None, typer.Option(min=1, help="Which of its heads, from 1.", show_default=False)] = None,
    layers: Annotated[str | None, typer.Option(help="Export only these layers: 1,3-4.", show_default=False)] = None,
    target: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Show a translator at writing this.", show_default=False)
    ] = None,
    tokens: Annotated[
        int | None, typer.Option(min=0, help="Tokens to write, for models that do.", show_default=False)
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Where to answer; the next if it is in use.")] = PORT,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Only print the address.")] = False,
    device: DeviceName = "auto",
    allow_pickle: AllowPickle = False,
) -> None:
    """Look inside: what a model attends to, and why. Without arguments, a sample."""
    from regard.viewer.model_handle import Question, make_handles

    if text is not None and not models:
        raise InputError("name a model for this text: -m RUN, the folder that `regard train` printed")
    if text is None and (target is not None or tokens is not None):
        raise InputError("--target and --tokens need a text for the model to read")
    if layers is not None and export is None:
        raise InputError("--layers chooses what is in a page; give --export NAME.html, too")
    handles = make_handles(models or [], device, allow_pickle)
    question = None if text is None else Question(text, target, tokens)
    if export or png or svg or csv:
        _write({".html": export, ".png": png, ".svg": svg, ".csv": csv}, handles, question, (attention, head), layers)
    else:
        with suppress(KeyboardInterrupt):  # which is how it ends
            _show(handles, question, (attention, head), port, not no_browser)
        if any(handle.lock.locked() for handle in handles):
            os._exit(0)  # a thread that computes cannot be stopped, and nobody waits for its result


Chosen = tuple[str | None, int | None]  # an attention, and a head


def _write(
    files: dict[str, Path | None],
    handles: "list[ModelHandle]",
    question: "Question | None",
    chosen: Chosen,
    layers: str | None,
) -> None:
    """Write what was asked for, without a server."""
    from regard.draw.file import put
    from regard.viewer.export import (
        check_output_file,
        draw_head,
        export_page,
        head_to_csv,
        parse_layers,
        read_head_weights,
    )
    from regard.viewer.sample import sample_recordings

    wanted = {suffix: path for suffix, path in files.items() if path is not None}
    for suffix, path in wanted.items():
        check_output_file(path, suffix)
    only = None if layers is None else parse_layers(layers)
    if len(handles) > 1 and set(wanted) != {".html"}:
        raise InputError("a picture or a table is of one model; name one by -m, or --export a page of several")
    recordings = _record(handles, question) if handles else sample_recordings()

    made: dict[str, bytes] = {}  # all of it before anything is written
    if ".html" in wanted:
        page, note = export_page(recordings, only)
        made[".html"] = page.encode()
        if note:
            print(f"regard: {note}", file=sys.stderr)
    if set(wanted) - {".html"}:
        head = read_head_weights(next(iter(recordings.values())), *chosen)
        for suffix in wanted.keys() - {".html"}:
            made[suffix] = head_to_csv(head).encode() if suffix == ".csv" else draw_head(head, suffix[1:])
    for suffix, path in wanted.items():
        put(path, made[suffix])
        print(f"{path} ({len(made[suffix]) / 1000:.0f} kB)")


def _record(handles: "list[ModelHandle]", question: "Question | None") -> "dict[str, Recording]":
    """Record each model, and give what was recorded in training."""
    found = [recording for handle in handles for recording in handle.all(question)]
    return {str(number): recording for number, recording in enumerate(found, 1)}


def _show(handles: "list[ModelHandle]", question: "Question | None", chosen: Chosen, port: int, browser: bool) -> None:
    """Answer the browser until Ctrl-C; models are loaded meanwhile."""
    from regard.viewer.model_handle import load_in_background
    from regard.viewer.recording_store import RecordingStore
    from regard.viewer.sample import bundled_recordings
    from regard.viewer.server import HOST, listen, make_app, serve

    store, listening = RecordingStore(bundled_recordings()), listen(port)
    number = listening.getsockname()[1]
    fields = {"attention": chosen[0], "head": chosen[1]}
    begin = urlencode({name: value for name, value in fields.items() if value is not None})
    address = f"http://{HOST}:{number}/" + (f"#{begin}" if begin else "")
    moved = f"port {port} is in use; " if port and number != port else ""
    print(f"{address} ({moved}Ctrl-C ends)", flush=True)
    if browser:
        _open_browser(address)
    load_in_background(handles, store, question)
    serve(make_app(store, handles), listening)


def _open_browser(address: str) -> None:
    """Open the browser, in a process of its own: whatever it says or fails at is none of our reader's business."""
    if sys.platform == "linux" and not any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))):
        return
    command, nowhere = [sys.executable, "-I", "-m", "webbrowser", address], subprocess.DEVNULL
    subprocess.Popen(command, stdin=nowhere, stdout=nowhere, stderr=nowhere, start_new_session=True)
