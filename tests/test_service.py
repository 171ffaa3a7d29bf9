"""The example of a service: batches, mistakes, failures, and the model that comes with the package."""

import runpy
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from starlette.testclient import TestClient

import regard

EXAMPLE = runpy.run_path(str(Path(__file__).parent.parent / "examples" / "service.py"))


def client(answer: Callable[[list[str]], list[str]]) -> TestClient:
    return TestClient(EXAMPLE["make_app"](answer), raise_server_exceptions=False)


def test_it_translates_as_the_model_does() -> None:
    model = regard.load("en-fr", "cpu")
    with client(lambda texts: model.translate(texts, beam=1)) as service:
        found = service.post("/translate", json={"text": "Good morning."})
    assert found.json() == {"translation": model.translate(["Good morning."], beam=1)[0]}


def test_texts_that_wait_are_one_batch_and_each_gets_its_own_answer() -> None:
    batches: list[list[str]] = []
    arrived, go = threading.Event(), threading.Event()

    def answer(texts: list[str]) -> list[str]:
        batches.append(texts)
        arrived.set()
        assert go.wait(60)
        return [text.upper() for text in texts]

    texts = [f"text {number}" for number in range(20)]
    with client(answer) as service, ThreadPoolExecutor(21) as threads:
        ask = lambda text: service.post("/translate", json={"text": text}).json()["translation"]  # noqa: E731
        first = threads.submit(ask, "first")
        assert arrived.wait(60)
        others = [threads.submit(ask, text) for text in texts]
        queue = service.app.state.waiting
        while queue.qsize() < len(texts):
            threading.Event().wait(0.01)
        go.set()
        assert first.result() == "FIRST"
        assert [other.result() for other in others] == [text.upper() for text in texts]
    assert [len(batch) for batch in batches] == [1, 20]


@pytest.mark.parametrize("given", [b"", b"[1]", b'{"text": 5}', b'{"text": "' + b"x" * 3000 + b'"}', b"[" * 100_000])
def test_a_wrong_request_is_answered_with_its_mistake(given: bytes) -> None:
    with client(lambda texts: texts) as service:
        found = service.post("/translate", content=given)
    assert found.status_code == 400
    assert list(found.json()) == ["error"]


def test_a_failure_is_that_of_its_batch_only() -> None:
    def answer(texts: list[str]) -> list[str]:
        if "bad" in texts:
            raise RuntimeError("the model failed")
        return texts

    with client(answer) as service:
        assert service.post("/translate", json={"text": "bad"}).status_code == 500
        assert service.post("/translate", json={"text": "good"}).json() == {"translation": "good"}
