"""`regard look`: see what models attend to, in the browser or in files."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from html import escape
from pathlib import Path
from secrets import token_hex
from tempfile import NamedTemporaryFile
from threading import Event, Thread
from types import FrameType
from typing import TYPE_CHECKING, Annotated, NoReturn
from urllib.parse import urlencode

import typer

from regard.cli.complete import complete_model
from regard.cli.console import complain, print_line
from regard.cli.lines import warn_of_run
from regard.cli.text import AllowPickle, DeviceName, choose_box_model
from regard.errors import InputError
from regard.quantity import short_size

if TYPE_CHECKING:
    from regard.viewer.model_handle import ModelHandle
    from regard.viewer.query import Query
    from regard.viewer.recording import Recording

PORT = 7348


def _file(name: str, help: str) -> typer.models.OptionInfo:
    return typer.Option(name, metavar="FILE", help=help, show_default=False)


def look_command(
    text: Annotated[
        str | None,
        typer.Argument(
            metavar="TEXT",
            help="The text that the model reads; an image file for a vision model; FILE or FILE@FRAME for tracks.",
            show_default=False,
        ),
    ] = None,
    models: Annotated[
        list[Path] | None,
        typer.Option(
            "--model",
            "-m",
            metavar="FOLDER",
            help="The folder of a run or of a Hugging Face model, or a name of `regard models`; repeat it to compare.",
            show_default=False,
            autocompletion=complete_model,
        ),
    ] = None,
    export: Annotated[Path | None, _file("--export", "Write a self-contained HTML page.")] = None,
    png: Annotated[Path | None, _file("--png", "Draw one head as PNG.")] = None,
    svg: Annotated[Path | None, _file("--svg", "Draw one head as SVG.")] = None,
    csv: Annotated[Path | None, _file("--csv", "Write the weights of one head as CSV.")] = None,
    attention: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Which attention: cross.2, self.1, ... Default: the most informative one.",
            show_default=False,
        ),
    ] = None,
    head: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Which of its heads, counted from 1. Default: the most informative one.",
            show_default=False,
        ),
    ] = None,
    layers: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="Export only these layers: 1,3-4. Default: all.", show_default=False),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="Make a translator write this translation, or a parser this tree in brackets, instead of its own.",
            show_default=False,
        ),
    ] = None,
    tokens: Annotated[
        int | None,
        typer.Option(
            min=0, metavar="N", help="How many tokens a language model generates. Default: 12.", show_default=False
        ),
    ] = None,
    port: Annotated[
        int, typer.Option(min=0, max=65535, metavar="N", help="Port of the server; if it is in use, the next free one.")
    ] = PORT,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Only print the address.")] = False,
    no_token: Annotated[
        bool, typer.Option("--no-token", help="Let every user of this machine in, not only those with the address.")
    ] = False,
    device: DeviceName = "auto",
    allow_pickle: AllowPickle = False,
) -> None:
    """Show what a model attends to, in the browser. Without a model, show those that come with regard.

    Examples:
      regard look
      regard look "The animal didn't cross the street because it was too tired."
      regard look "She drank a cup of [MASK]." -m english
      regard look "the river bank" -m runs/translation-1
      regard look "Once upon a time" -m runs/language-1 --tokens 20
      regard look photo.jpg -m runs/vision-1
      regard look tracks.txt@7800 -m runs/trajectories-1
      regard look "a text" -m runs/a -m runs/b --export page.html
    """
    from regard.viewer.model_handle import make_handles
    from regard.viewer.query import Query

    if text is None and (target is not None or tokens is not None):
        raise InputError("--target and --tokens need a text for the model to read")
    if layers is not None and export is None:
        raise InputError("--layers chooses what an exported page contains; add --export NAME.html")
    if text is not None:
        warn_of_run(text)
    wanted = models or _box_models(text, tokens, bool(export or png or svg or csv))
    handles = make_handles(wanted, device, allow_pickle)
    query = None if text is None else Query(text, target, tokens)
    if export or png or svg or csv:
        _write({".html": export, ".png": png, ".svg": svg, ".csv": csv}, handles, query, (attention, head), layers)
    else:
        with suppress(KeyboardInterrupt):  # Ctrl-C is the normal end
            _serve(handles, query, (attention, head), port, not no_browser, None if no_token else token_hex(16))
        if any(handle.lock.locked() for handle in handles):
            os._exit(0)  # a thread that computes cannot be stopped, and its result is not needed


def _box_models(text: str | None, tokens: int | None, writes: bool) -> list[Path]:
    """Return the models in the box to show: the one that fits a text, all of them beside the sample in the browser."""
    if text is not None:
        return [choose_box_model("generate" if tokens is not None else "look", [text])]
    from regard.use.box import box_models

    return [] if writes else [model.folder for model in box_models()]


ChosenHead = tuple[str | None, int | None]  # an attention, and a head


def _write(
    files: dict[str, Path | None],
    handles: "list[ModelHandle]",
    query: "Query | None",
    chosen: ChosenHead,
    layers: str | None,
) -> None:
    """Write the requested files, without a server."""
    from regard.draw.file import write_bytes
    from regard.viewer.export import (
        begun_at,
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
        raise InputError("a picture or a table shows one model; name one with -m, or --export a page of several")
    recordings = _record(handles, query) if handles else sample_recordings()

    made: dict[str, bytes] = {}  # everything is made before anything is written
    if ".html" in wanted:
        page, note = export_page({id: begun_at(one, *chosen) for id, one in recordings.items()}, only)
        made[".html"] = page.encode()
        if note:
            complain(note)
    if set(wanted) - {".html"}:
        head = read_head_weights(next(iter(recordings.values())), *chosen)
        for suffix in wanted.keys() - {".html"}:
            made[suffix] = head_to_csv(head).encode() if suffix == ".csv" else draw_head(head, suffix[1:])
    for suffix, path in wanted.items():
        write_bytes(path, made[suffix])
        print_line(f"{path} ({short_size(len(made[suffix]))})")


def _record(handles: "list[ModelHandle]", query: "Query | None") -> "dict[str, Recording]":
    """Return the recordings of every model: of the query, and of its training."""
    found = [recording for handle in handles for recording in handle.recordings(query)]
    return {str(number): recording for number, recording in enumerate(found, 1)}


def _serve(
    handles: "list[ModelHandle]",
    query: "Query | None",
    chosen: ChosenHead,
    port: int,
    browser: bool,
    token: str | None,
) -> None:
    """Serve the page until Ctrl-C, and load the models in the background."""
    from regard.viewer.model_handle import load_in_background
    from regard.viewer.recording_store import RecordingStore
    from regard.viewer.sample import bundled_recordings
    from regard.viewer.server import HOST, listen, make_app, serve

    store, listening = RecordingStore(bundled_recordings()), listen(port)
    number = listening.getsockname()[1]
    fields = {"attention": chosen[0], "head": chosen[1]}
    begin = urlencode({name: value for name, value in fields.items() if value is not None})
    address = f"http://{HOST}:{number}/" + (f"?token={token}" if token else "") + (f"#{begin}" if begin else "")
    moved = f"port {port} is in use; " if port and number != port else ""
    app = make_app(store, handles, token)
    print(f"{address} ({moved}press Ctrl-C to stop)", flush=True)
    with _end_by_signals(), _open_browser(address, store.seen) if browser else nullcontext():
        load_in_background(handles, store, query)
        serve(app, listening)


@contextmanager
def _end_by_signals() -> Iterator[None]:
    """End the block as Ctrl-C does if the process is terminated or its terminal closed, so that no file is left."""

    def end(number: int, frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    usual = [number for number in numbers if signal.getsignal(number) is signal.SIG_DFL]  # `nohup` ignores one
    for number in usual:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in usual:
            signal.signal(number, signal.SIG_DFL)


@contextmanager
def _open_browser(address: str, seen: Event) -> Iterator[None]:
    """Open the browser in a process of its own, so that its messages do not appear in this terminal.

    The address is in a file that only this user can read, since all users can read the arguments of a process. The file
    is in the home folder, because some browsers cannot read temporary folders; it is removed once the page was `seen`.
    """
    if sys.platform == "linux" and not any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))):
        yield
        return
    target, nowhere = escape(address), subprocess.DEVNULL
    page = f'<!doctype html><meta http-equiv="refresh" content="0; url={target}"><a href="{target}">{target}</a>\n'
    home = os.path.expanduser("~")
    with NamedTemporaryFile(
        "w", prefix="regard-look-", suffix=".html", dir=home if os.access(home, os.W_OK) else None, encoding="utf-8"
    ) as file:
        file.write(page)
        file.flush()
        command = [sys.executable, "-I", "-m", "webbrowser", Path(file.name).as_uri()]
        subprocess.Popen(command, stdin=nowhere, stdout=nowhere, stderr=nowhere, start_new_session=True)

        def remove() -> None:
            seen.wait()
            file.close()

        Thread(target=remove, daemon=True).start()
        yield
