"""The widget: the page in the output of a notebook's cell, which talks to its kernel through messages.

The page sends the requests that it would send to a server: `{"request": name, "method": "POST", "path": "record",
"body": {...}}`. The answer has the same name, a status, and the bytes of the response.
"""

import json
from typing import Any

from starlette.types import ASGIApp

from regard.errors import RegardError
from regard.viewer.html import SCRIPT, STYLE, read_page_file
from regard.viewer.in_process import request_in_process


def make_widget(archive: bytes, app: ASGIApp | None, height: int | None, theme: str | None) -> Any:
    """Return a widget with these recordings; `app` answers its requests, if there is one."""
    try:
        import anywidget
        import traitlets
    except ImportError:
        raise RegardError('widgets need anywidget: pip install "regard[notebook]"') from None

    class Widget(anywidget.AnyWidget):
        _esm = read_page_file(SCRIPT)
        _css = read_page_file(STYLE)
        archive = traitlets.Bytes().tag(sync=True)
        height = traitlets.Int(None, allow_none=True).tag(sync=True)
        theme = traitlets.Unicode(None, allow_none=True).tag(sync=True)

    widget = Widget(archive=archive, height=height, theme=theme)
    if app is not None:
        widget.on_msg(lambda widget, message, buffers: answer_page(widget, app, message))
    return widget


def answer_page(widget: Any, app: ASGIApp, message: dict[str, Any]) -> None:
    """Answer one request of the page."""
    content = message.get("body")
    body = b"" if content is None else json.dumps(content).encode()
    status, data = request_in_process(app, message["method"], message["path"], body)
    widget.send({"request": message["request"], "status": status}, [data])
