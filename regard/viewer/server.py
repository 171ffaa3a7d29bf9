"""The viewer's server: the page, recordings and models over HTTP, to this machine alone.

It answers on 127.0.0.1, to nobody who calls it by another name, and takes orders from no page but its own. Ids and
names of blobs are looked up, never joined to paths. Answers that are no coroutines are worked out in threads, so that
one stops no other.
"""

import errno
import json
import os
import socket
import traceback
from base64 import b64decode
from collections.abc import Mapping, Sequence
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regard.errors import RegardError
from regard.viewer.export import export_page, parse_layers
from regard.viewer.html import INDEX, SCRIPT, STYLE, read_page_file
from regard.viewer.model_handle import ModelHandle, Question, internal_error, one_line_errors
from regard.viewer.recording import LIST, encode_json
from regard.viewer.recording_store import Entry, RecordingStore

HOST, TRIES = "127.0.0.1", 100
BODY = 32 * 1024 * 1024  # bytes of a question, at most
TYPES = {"html": "text/html", "js": "text/javascript", "css": "text/css"}
TYPES |= {"json": "application/json", "png": "image/png"}
BYTES = "application/octet-stream"
NOT_KEPT, FOR_EVER = "no-store", "private, max-age=31536000, immutable"


class Viewer:
    """The answers: what is on the shelf, and what models record when they are asked."""

    def __init__(self, store: RecordingStore, handles: Sequence[ModelHandle]) -> None:
        self.store = store
        self.handles = {handle.name: handle for handle in handles}

    def page(self, request: Request) -> Response:
        """Give a file of the page."""
        name = request.url.path.removeprefix("/") or INDEX
        return _answer(read_page_file(name).encode(), name, NOT_KEPT)

    def recordings(self, request: Request) -> Response:
        """List the recordings."""
        return _json(self.store.listing())

    def models(self, request: Request) -> Response:
        """List the models, and say which are ready."""
        return _json([handle.about() for handle in self.handles.values()])

    def blob(self, request: Request) -> Response:
        """Give the manifest of a recording, or one of its blobs."""
        place, name = self._find(request), request.path_params["name"]
        with place.lock, one_line_errors(place.about["title"]):
            if name == "manifest.json":
                return _json(place.recording.manifest())
            try:
                data = place.recording.blob(name)
            except KeyError:
                raise HTTPException(404, f"this recording has no {name}") from None
        self.store.seen.set()
        return _answer(data, name, NOT_KEPT if place.bundled else FOR_EVER)

    def export(self, request: Request) -> Response:
        """Give a recording as a page of its own; `?layers=1,3-4` leaves the other layers out."""
        place, layers = self._find(request), request.query_params.get("layers")
        id = request.path_params["id"]
        with place.lock, one_line_errors(place.about["title"]):
            page, _ = export_page({id: place.recording}, None if layers is None else parse_layers(layers))
        answer = _answer(page.encode(), INDEX, NOT_KEPT)
        answer.headers["content-disposition"] = f'attachment; filename="regard-{id}.html"'
        return answer

    async def record(self, request: Request) -> Response:
        """Let a model be asked; give the id of what was recorded."""
        given = _fields(await _body(request))
        handle = self.handles.get(given.pop("model"))
        if handle is None:
            raise HTTPException(404, "there is no such model here")
        settled, error = handle.opened
        if not settled:
            raise HTTPException(409, error or f"{handle.name} is still being loaded; wait a moment")
        question = Question(**given)
        if handle.of_images and question.image is None:  # its text would be the path of a file
            raise HTTPException(400, f"{handle.name} is {handle.what}; choose an image")

        def work() -> str:
            with handle.lock, one_line_errors(handle.name):
                return self.store.put(handle.record(question), handle.lock)

        return _json({"id": await run_in_threadpool(work)})

    def _find(self, request: Request) -> Entry:
        try:
            return self.store.find(request.path_params["id"])
        except KeyError:
            remedy = "it may have made room for others; choose another, or ask again"
            raise HTTPException(404, f"there is no such recording here; {remedy}") from None


def make_app(store: RecordingStore, handles: Sequence[ModelHandle]) -> ASGIApp:
    """Make the application that shows what is on the shelf, and lets models be asked."""
    viewer = Viewer(store, handles)
    app = Starlette(
        routes=[
            *(Route(path, viewer.page) for path in ("/", f"/{SCRIPT}", f"/{STYLE}")),
            Route(f"/{LIST}", viewer.recordings),
            Route("/models.json", viewer.models),
            Route("/recordings/{id}/{name:path}", viewer.blob),
            Route("/export/{id}.html", viewer.export),
            Route("/record", viewer.record, methods=["POST"]),
        ],
        exception_handlers={HTTPException: _refuse, RegardError: _refuse, Exception: _apologise},
    )
    app.router.redirect_slashes = False
    return Guard(app)


def _answer(data: bytes, name: str, memory: str) -> Response:
    kind = TYPES.get(name.rpartition(".")[2], BYTES)
    return Response(data, headers={"cache-control": memory}, media_type=kind)


def _json(value: Any, status: int = 200) -> Response:
    return Response(encode_json(value), status, {"cache-control": NOT_KEPT}, TYPES["json"])


def _refuse(request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException):
        return _json({"error": error.detail}, error.status_code)
    return _json({"error": str(error)}, 400)


def _apologise(request: Request, error: Exception) -> Response:
    traceback.print_exception(error)
    return _json({"error": internal_error(error)}, 500)


# --- questions -------------------------------------------------------------------------------------------------------


async def _body(request: Request) -> bytes:
    """Read what was sent, if it is JSON and not too much."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise HTTPException(415, "a question must be application/json")
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > BODY:
            raise HTTPException(413, f"a question may have {BODY // 1024**2} MB at most; choose a smaller image")
        parts.append(part)
    return b"".join(parts)


def _fields(body: bytes) -> dict[str, Any]:
    """Check what was asked."""
    kinds: Mapping[str, type] = {"model": str, "text": str, "target": str, "tokens": int, "image": str}
    try:
        given = json.loads(body)
    except (ValueError, RecursionError):
        raise HTTPException(400, "a question must be JSON") from None
    if not isinstance(given, dict) or not isinstance(given.get("model"), str):
        raise HTTPException(400, 'a question must be an object with the name of a "model"')
    given = {name: value for name, value in given.items() if value is not None}
    for name, value in given.items():
        if type(value) is not kinds.get(name):
            raise HTTPException(400, f"a question has {', '.join(kinds)}; it cannot have {name!r} as it is here")
    if "image" in given:
        try:
            given["image"] = b64decode(given["image"], validate=True)
        except ValueError:
            raise HTTPException(400, "the image must be a file in base64") from None
    return given


# --- who may ask -----------------------------------------------------------------------------------------------------


class Guard:
    """Refuses whoever calls this server by a foreign name, and orders of foreign pages; binds the page to this server.

    A page elsewhere can make a browser send requests here: by a name that it lets point to 127.0.0.1 (then the Host is
    foreign), or by a form or a script of its own (then the Origin is).
    """

    ALWAYS = {  # noqa: RUF012
        "content-security-policy": "default-src 'self'; img-src 'self' blob: data:; style-src 'self'; "
        "object-src 'none'; base-uri 'none'; frame-ancestors 'none'",
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cross-origin-resource-policy": "same-origin",
    }

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or refuse."""
        if scope["type"] != "http":
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(self.ALWAYS)
            await send(message)

        refusal = self._refusal(scope)
        await (refusal or self.app)(scope, receive, send_guarded)

    def _refusal(self, scope: Scope) -> Response | None:
        headers, port = Headers(scope=scope), scope["server"][1]
        ours = [f"{name}:{port}" for name in (HOST, "localhost", "[::1]")]
        if len(headers.getlist("host")) != 1 or headers["host"].lower() not in ours:
            return _json({"error": "this viewer answers only to the name that it printed"}, 400)
        foreign = "origin" in headers and headers["origin"].removeprefix("http://").lower() not in ours
        if scope["method"] not in ("GET", "HEAD") and foreign:
            return _json({"error": "this viewer takes orders only from its own page"}, 403)
        return None


# --- where ------------------------------------------------------------------------------------------------------------


def listen(port: int) -> socket.socket:
    """Take a port of this machine: this one, or if it is in use the next that is free; 0 takes any."""
    for number in range(port, min(port + TRIES, 65536)):
        taken = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        if os.name == "posix":  # a port that was just left may be taken again; elsewhere this means something else
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind((HOST, number))
            taken.listen(128)  # at once, since two may bind a port and only one listen
        except OSError as error:
            taken.close()
            if error.errno != errno.EADDRINUSE:
                raise RegardError(f"port {number}: cannot be opened: {error.strerror}; choose another --port") from None
            continue
        return taken
    raise RegardError(f"port {port}: is in use, and so are those after it; choose another --port")


def serve(app: ASGIApp, listening: socket.socket) -> None:
    """Answer until a KeyboardInterrupt."""
    config = uvicorn.Config(
        app,
        log_level="critical",
        access_log=False,
        lifespan="off",
        ws="none",
        loop="asyncio",
        http="h11",
        server_header=False,
        timeout_graceful_shutdown=1,
    )
    uvicorn.Server(config).run(sockets=[listening])
