"""The viewer's server over a real socket."""

import threading
from contextlib import contextmanager

import pytest
import uvicorn
from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regard.viewer.recording_store import RecordingStore
from regard.viewer.server import listen, make_app, serve

from .fake import Model


class Gate:
    """An application that can hold back a response: computed when it is requested, but sent when a test says so."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.awaited: dict[str, threading.Event] = {}  # requests to come, by the end of their path
        self.events: list[threading.Event] = []

    def hold(self, ending: str) -> threading.Event:
        """Hold back the next response to a path with this ending, until the event is set."""
        event = threading.Event()
        self.awaited[ending] = event
        self.events.append(event)
        return event

    def release(self) -> None:
        """Send everything that is held back, and hold nothing any more."""
        self.awaited.clear()
        for event in self.events:
            event.set()
        self.events.clear()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        ending = next((each for each in self.awaited if scope.get("path", "").endswith(each)), None)
        await self.app(scope, receive, send if ending is None else _late(send, self.awaited.pop(ending)))


def _late(send: Send, event: threading.Event) -> Send:
    """Return a function that keeps the parts of a response, and sends them when the event is set."""
    kept: list[Message] = []

    async def keep(message: Message) -> None:
        kept.append(message)
        if not message.get("more_body") and message["type"] == "http.response.body":
            await run_in_threadpool(event.wait)
            for each in kept:
                await send(each)

    return keep


@contextmanager
def running(store: RecordingStore, *models: Model, token: str | None = None):
    """Run the server in a thread; yield its port."""
    with serving(make_app(store, models, token)) as port:
        yield port


@contextmanager
def serving(app: ASGIApp):
    """Run the server of an application in a thread; yield its port."""
    servers: list[uvicorn.Server] = []
    plain = uvicorn.Server.__init__

    def remember(self: uvicorn.Server, config: uvicorn.Config) -> None:
        plain(self, config)
        if config.app is app:  # a server of an earlier test may be created only now
            servers.append(self)

    listening = listen(0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(uvicorn.Server, "__init__", remember)
        thread = threading.Thread(target=serve, args=(app, listening))
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            while not servers and thread.is_alive():
                thread.join(0.01)
            for one in servers:
                one.should_exit = True
            thread.join()
