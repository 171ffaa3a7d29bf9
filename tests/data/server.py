"""A web server on this machine, with and without ranges, that can break the connection."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread


@dataclass
class Served:
    """The files of the server, its behaviour, and the requests it received."""

    files: dict[str, bytes]
    ranges: bool = True
    breaks_after: int | None = None  # bytes, of the next answer only
    address: str = ""
    asked: list[tuple[str, str | None]] = field(default_factory=list)  # (path, range)


@contextmanager
def serve(files: dict[str, bytes], ranges: bool = True) -> Iterator[Served]:
    served = Served(files, ranges)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers.get("Range")
            served.asked.append((self.path, wanted))
            if self.path not in served.files:
                self.send_error(404)
                return
            content = served.files[self.path]
            start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted and served.ranges else 0
            if start >= len(content):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(content)}")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            self.send_response(206 if start else 200)
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
            rest = content[start:]
            self.send_header("Content-Length", str(len(rest)))
            self.end_headers()
            self.wfile.write(rest[: served.breaks_after])
            served.breaks_after = None

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    served.address = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
