"""The viewer's HTTP server: the page, recordings and models, on this machine only.

It listens on 127.0.0.1, answers only requests with its token and its own Host header, and records only for its own
page. Ids and blob names are looked up, never joined to paths. Handlers that are not coroutines run in threads, so that
a slow one does not block the others.
"""

import errno
import os
import socket
import traceback
from base64 import b64decode
from collections.abc import Iterable, Mapping, Sequence
from hmac import compare_digest
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import Request, cookie_parser
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regard.errors import RegardError
from regard.untrusted import JsonError, parse_json
from regard.viewer.export import export_page, parse_layers
from regard.viewer.html import INDEX, SCRIPT, STYLE, read_page_file
from regard.viewer.model_handle import ModelHandle, internal_error, one_line_errors
from regard.viewer.query import Query
from regard.viewer.recording import LIST, encode_json
from regard.viewer.recording_store import RecordingStore, StoreEntry

HOST, TRIES = "127.0.0.1", 100
BODY = 32 * 1024 * 1024  # bytes of a query, at most
TYPES = {"html": "text/html", "js": "text/javascript", "css": "text/css"}
TYPES |= {"json": "application/json", "png": "image/png"}
BYTES = "application/octet-stream"
NO_CACHE, CACHE_FOREVER = "no-store", "private, max-age=31536000, immutable"


class Viewer:
    """The request handlers: they serve the recordings in a store, and let models record new ones."""

    def __init__(self, store: RecordingStore, handles: Sequence[ModelHandle]) -> None:
        self.store = store
        self.handles = {handle.name: handle for handle in handles}

    def page(self, request: Request) -> Response:
        """Return a file of the page."""
        name = request.url.path.removeprefix("/") or INDEX
        return _response(read_page_file(name).encode(), name, NO_CACHE)

    def recordings(self, request: Request) -> Response:
        """List the recordings."""
        return _json(self.store.listing())

    def models(self, request: Request) -> Response:
        """List the models, and whether each is ready."""
        return _json([handle.info() for handle in self.handles.values()])

    def blob(self, request: Request) -> Response:
        """Return the manifest of a recording, or one of its blobs."""
        entry, name = self._find(request), request.path_params["name"]
        with entry.lock, one_line_errors(entry.info["title"]):
            if name == "manifest.json":
                return _json(entry.recording.manifest())
            try:
                data = entry.recording.blob(name)
            except KeyError:
                raise HTTPException(404, f"this recording has no {name}") from None
        self.store.seen.set()
        return _response(data, name, NO_CACHE if entry.bundled else CACHE_FOREVER)

    def export(self, request: Request) -> Response:
        """Return a recording as a page of its own; `?layers=1,3-4` keeps only these layers."""
        entry, layers = self._find(request), request.query_params.get("layers")
        id = request.path_params["id"]
        with entry.lock, one_line_errors(entry.info["title"]):
            page, _ = export_page({id: entry.recording}, None if layers is None else parse_layers(layers))
        response = _response(page.encode(), INDEX, NO_CACHE)
        response.headers["content-disposition"] = f'attachment; filename="regard-{id}.html"'
        return response

    async def record(self, request: Request) -> Response:
        """Run a model on a query, and return the id of the recording."""
        given = _fields(await _body(request))
        handle = self.handles.get(given.pop("model"))
        if handle is None:
            raise HTTPException(404, "no such model")
        if not handle.status.ready:
            raise HTTPException(409, handle.status.error or f"{handle.name} is still loading; wait a moment")
        query = Query(**given)
        if handle.reads_images and query.image is None:  # otherwise its text would be read as the path of a file
            raise HTTPException(400, f"{handle.name} is {handle.what}; choose an image")
        if handle.reads_tracks and not _holds_rows(str(query.text)):  # likewise
            raise HTTPException(400, f"{handle.name} is {handle.what}; write rows: frame agent x y; frame agent x y")

        def work() -> str:
            with handle.lock, one_line_errors(handle.name):
                return self.store.put(handle.record(query), handle.lock)

        return _json({"id": await run_in_threadpool(work)})

    async def change(self, request: Request) -> Response:
        """Change the model of a recording: return the id of what it does with the same tokens, and the differences.

        With `write`, return what the model writes by itself instead, which takes longer.
        """
        given = _object(await _body(request))
        entry, write = self._entry(str(given.get("recording"))), bool(given.get("write"))

        def work() -> Any:
            with entry.lock, one_line_errors(entry.info["title"]):
                if write:
                    return entry.recording.write(given.get("changes"))
                recording, result = entry.recording.change(given.get("changes"))
                return {"id": self.store.put(recording, entry.lock, listed=False), **result}

        return _json(await run_in_threadpool(work))

    async def heads(self, request: Request) -> Response:
        """Measure known behaviours and importance of all heads of a recording's model."""
        entry = self._entry(str(_object(await _body(request)).get("recording")))

        def work() -> Any:
            with entry.lock, one_line_errors(entry.info["title"]):
                return entry.recording.head_scores()

        return _json(await run_in_threadpool(work))

    def _find(self, request: Request) -> StoreEntry:
        return self._entry(request.path_params["id"])

    def _entry(self, id: str) -> StoreEntry:
        try:
            return self.store.find(id)
        except KeyError:
            remedy = "only the last ones are kept; choose another, or run the model again"
            raise HTTPException(404, f"no such recording; {remedy}") from None


def _holds_rows(text: str) -> bool:
    """Return whether a text holds rows of tracks; numpy is imported only for a model that is loaded."""
    from regard.data.tracks import holds_rows

    return holds_rows(text)


def make_app(store: RecordingStore, handles: Sequence[ModelHandle], token: str | None) -> ASGIApp:
    """Return the ASGI application that serves the recordings in a store and runs models, for those with the token."""
    return Guard(make_open_app(store, handles), token)


def make_open_app(store: RecordingStore, handles: Sequence[ModelHandle]) -> ASGIApp:
    """Return the same application without a guard, for requests that do not come from a network."""
    viewer = Viewer(store, handles)
    app = Starlette(
        routes=[
            *(Route(path, viewer.page) for path in ("/", f"/{SCRIPT}", f"/{STYLE}")),
            Route(f"/{LIST}", viewer.recordings),
            Route("/models.json", viewer.models),
            Route("/recordings/{id}/{name:path}", viewer.blob),
            Route("/export/{id}.html", viewer.export),
            Route("/record", viewer.record, methods=["POST"]),
            Route("/change", viewer.change, methods=["POST"]),
            Route("/heads", viewer.heads, methods=["POST"]),
        ],
        exception_handlers={HTTPException: _client_error, RegardError: _client_error, Exception: _server_error},
    )
    app.router.redirect_slashes = False
    return app


def _response(data: bytes, name: str, caching: str) -> Response:
    kind = TYPES.get(name.rpartition(".")[2], BYTES)
    return Response(data, headers={"cache-control": caching}, media_type=kind)


def _json(value: Any, status: int = 200) -> Response:
    return Response(encode_json(value), status, {"cache-control": NO_CACHE}, TYPES["json"])


def _client_error(request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException):
        return _json({"error": error.detail}, error.status_code)
    return _json({"error": str(error)}, 400)


def _server_error(request: Request, error: Exception) -> Response:
    traceback.print_exception(error)
    return _json({"error": internal_error(error)}, 500)


# --- queries ---------------------------------------------------------------------------------------------------------


async def _body(request: Request) -> bytes:
    """Read the body of a request, which must be JSON and not too long."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise HTTPException(415, "a query must be application/json")
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > BODY:
            raise HTTPException(413, f"a query may have at most {BODY // 1024**2} MB; choose a smaller image")
        parts.append(part)
    return b"".join(parts)


def _object(body: bytes) -> dict[str, Any]:
    """Return the JSON object of a request."""
    try:
        given = parse_json(body, "query")
    except JsonError:
        raise HTTPException(400, "a query must be JSON") from None
    return given if isinstance(given, dict) else {}


def _fields(body: bytes) -> dict[str, Any]:
    """Return the fields of a query, checked."""
    kinds: Mapping[str, type] = {"model": str, "text": str, "target": str, "tokens": int, "image": str}
    names = {str: "a string", int: "a whole number"}
    given = _object(body)
    if not isinstance(given.get("model"), str):
        raise HTTPException(400, 'a query must be an object with the name of a "model"')
    given = {name: value for name, value in given.items() if value is not None}
    for name, value in given.items():
        if name not in kinds:
            raise HTTPException(400, f"unknown field {name!r}; a query has {', '.join(kinds)}")
        if type(value) is not kinds[name]:
            raise HTTPException(400, f"wrong type for {name!r}: it must be {names[kinds[name]]}")
    if "image" in given:
        try:
            given["image"] = b64decode(given["image"], validate=True)
        except ValueError:
            raise HTTPException(400, "the image must be a file encoded in base64") from None
    return given


# --- access ----------------------------------------------------------------------------------------------------------


class Guard:
    """Rejects requests without the token or with a foreign Host or Origin; the page may load only from this server.

    Every user of this machine can reach the port, so requests need the token: in the address (`?token=...`) or in the
    cookie that such an address sets. A foreign page can make a browser send requests here: through a name that resolves
    to 127.0.0.1 (then the Host is foreign), or by a form or script of its own (then the Origin is).
    """

    ALWAYS = {  # noqa: RUF012
        "content-security-policy": "default-src 'self'; img-src 'self' blob: data:; style-src 'self'; "
        "object-src 'none'; base-uri 'none'; frame-ancestors 'none'",
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cross-origin-resource-policy": "same-origin",
    }

    def __init__(self, app: ASGIApp, token: str | None) -> None:
        self.app, self.token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request to the application, or reject it."""
        if scope["type"] != "http":
            return
        has_token = self._is_token(QueryParams(scope["query_string"]).getlist("token"))
        rejection, added = self._rejection(scope, has_token), dict(self.ALWAYS)
        if has_token and rejection is None:
            added["set-cookie"] = f"{_cookie_name(scope)}={self.token}; Path=/; HttpOnly; SameSite=Strict"

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(added)
            await send(message)

        await (rejection or self.app)(scope, receive, send_guarded)

    def _rejection(self, scope: Scope, has_token: bool) -> Response | None:
        headers, port = Headers(scope=scope), scope["server"][1]
        ours = [f"{name}:{port}" for name in (HOST, "localhost", "[::1]")]
        if len(headers.getlist("host")) != 1 or headers["host"].lower() not in ours:
            return _json({"error": "wrong Host header; use the address that the viewer printed"}, 400)
        cookies = cookie_parser(headers.get("cookie", ""))
        if not (self.token is None or has_token or self._is_token([cookies.get(_cookie_name(scope), "")])):
            return _json({"error": "wrong or missing token; use the address that the viewer printed, to its end"}, 403)
        foreign = "origin" in headers and headers["origin"].removeprefix("http://").lower() not in ours
        if scope["method"] not in ("GET", "HEAD") and foreign:
            return _json({"error": "wrong Origin header; only the viewer's own page may record"}, 403)
        return None

    def _is_token(self, given: Iterable[str]) -> bool:
        """Return whether one of these is the token, in a time that does not depend on how much of it is right."""
        if self.token is None:
            return False
        return any(compare_digest(one.encode("utf-8", "replace"), self.token.encode()) for one in given)


def _cookie_name(scope: Scope) -> str:
    """Return a name of its own for each port, since all ports of a host share their cookies."""
    return f"regard-{scope['server'][1]}"


# --- socket -----------------------------------------------------------------------------------------------------------


def listen(port: int) -> socket.socket:
    """Listen on a port of this machine: this one, or the next free one if it is in use; 0 takes any."""
    for number in range(port, min(port + TRIES, 65536)):
        listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        if os.name == "posix":  # reuse a port that was just closed; Windows gives the option another meaning
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((HOST, number))
            listening.listen(128)  # at once, since two processes can bind a port but only one can listen
        except OSError as error:
            listening.close()
            if error.errno != errno.EADDRINUSE:
                raise RegardError(f"port {number}: cannot be opened: {error.strerror}; choose another --port") from None
            continue
        return listening
    raise RegardError(f"port {port}: is in use, and so are the {TRIES - 1} after it; choose another --port")


def serve(app: ASGIApp, listening: socket.socket) -> None:
    """Serve until a KeyboardInterrupt."""
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
