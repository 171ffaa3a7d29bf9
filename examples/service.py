"""A translation service: texts that wait while the model works are answered together, as one batch.

python examples/service.py en-fr                       # or the folder of a run
curl -d '{"text": "Where is the station?"}' http://127.0.0.1:8000/translate
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

import regard
from regard.errors import RegardError
from regard.untrusted import parse_json

BATCH, WAITING, LONGEST = 32, 256, 2000  # texts of a batch, texts that may wait, characters of a text: at most


class Batches:
    """One thread runs the model; the event loop collects texts meanwhile."""

    def __init__(self, answer: Callable[[list[str]], list[str]]) -> None:
        self.answer = answer
        self.queue: asyncio.Queue[tuple[str, asyncio.Future[str]]] = asyncio.Queue(WAITING)

    async def ask(self, text: str) -> str:
        """Wait for the answer to a text; raise `QueueFull` if too many wait already."""
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.queue.put_nowait((text, future))
        return await future

    async def work(self) -> None:
        """Answer whatever waits, again and again."""
        while True:
            waiting = [await self.queue.get()]
            while len(waiting) < BATCH and not self.queue.empty():
                waiting.append(self.queue.get_nowait())
            waiting = [(text, future) for text, future in waiting if not future.cancelled()]
            try:
                answers = await asyncio.to_thread(self.answer, [text for text, _ in waiting])
                results = [(future.set_result, answer) for (_, future), answer in zip(waiting, answers, strict=True)]
            except Exception as error:  # this batch has failed, the service has not
                results = [(future.set_exception, error) for _, future in waiting]
            for (_, future), (settle, result) in zip(waiting, results, strict=True):
                if not future.cancelled():  # the caller may have left
                    settle(result)


def make_app(answer: Callable[[list[str]], list[str]]) -> Starlette:
    """Return the application; `answer` takes a list of texts and returns a list of texts."""
    batches = Batches(answer)

    async def translate(request: Request) -> JSONResponse:
        try:
            given = parse_json(await request.body(), "the request")
        except RegardError as error:
            return JSONResponse({"error": str(error)}, 400)
        text = given.get("text") if isinstance(given, dict) else None
        if not isinstance(text, str) or len(text) > LONGEST:
            return JSONResponse({"error": f"text: must be a string of at most {LONGEST} characters"}, 400)
        try:
            return JSONResponse({"translation": await batches.ask(text)})
        except asyncio.QueueFull:
            return JSONResponse({"error": "too many texts are waiting; try again"}, 503)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        worker = asyncio.create_task(batches.work())
        yield
        worker.cancel()

    app = Starlette(routes=[Route("/translate", translate, methods=["POST"])], lifespan=lifespan)
    app.state.waiting = batches.queue
    return app


if __name__ == "__main__":
    model = regard.load(sys.argv[1] if len(sys.argv) > 1 else "en-fr")
    model.translate(["Warm up."])
    uvicorn.run(make_app(lambda texts: model.translate(texts, beam=1)), host="127.0.0.1", port=8000)
