"""Requests to the viewer's application from the same process, without a network, for the widget in a notebook."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from starlette.types import ASGIApp, Message, Scope


def request_in_process(app: ASGIApp, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
    """Send one request, and return the status and the body of the response.

    A kernel may run an event loop in this thread, so the application runs in another one.
    """
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, _request(app, method, path, body)).result()


async def _request(app: ASGIApp, method: str, path: str, body: bytes) -> tuple[int, bytes]:
    path, _, query = f"/{path}".partition("?")
    scope: Scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": query.encode(),
        "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")],
        "client": None,
        "server": ("localhost", 80),
    }
    status, parts = 500, []

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
        else:
            parts.append(message.get("body", b""))

    await app(scope, receive, send)
    return status, b"".join(parts)
