"""The viewer's server over a real socket."""

import threading
from contextlib import contextmanager

import pytest
import uvicorn

from regard.viewer.recording_store import RecordingStore
from regard.viewer.server import listen, make_app, serve

from .fake import Model


@contextmanager
def running(store: RecordingStore, *models: Model, token: str | None = None):
    """Run the server in a thread; yield its port."""
    servers: list[uvicorn.Server] = []
    plain, app = uvicorn.Server.__init__, make_app(store, models, token)

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
