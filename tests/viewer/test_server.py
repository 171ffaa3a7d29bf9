"""The viewer's server: its answers, what it rejects, and that errors do not stop it."""

import base64
import http.client
import json
import socket
import threading
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from regard.errors import RegardError
from regard.viewer import server
from regard.viewer.model_handle import load_in_background
from regard.viewer.query import Query
from regard.viewer.recording import unpack_recordings
from regard.viewer.recording_store import RecordingStore
from regard.viewer.server import listen, make_app

from .fake import EVIL, INDEX, SCRIPT, STYLE, Model, Slow, manifest, recording
from .serving import running

ADDRESS = "http://127.0.0.1:7348"


def client(store: RecordingStore | None = None, *models: Model, **options: object) -> TestClient:
    store = RecordingStore({"one": recording()}) if store is None else store
    return TestClient(make_app(store, models, None), base_url=ADDRESS, **options)


def ready(*models: Model, store: RecordingStore | None = None, question: Query | None = None) -> TestClient:
    store = store or RecordingStore({"one": recording()})
    load_in_background(models, store, question, patience=0.0).join()
    return client(store, *models)


@pytest.fixture
def model(tmp_path: Path) -> Model:
    return Model(tmp_path / "run", "run")


# --- what is shown ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "text", "kind"),
    [("/", INDEX, "text/html"), ("/page.js", SCRIPT, "text/javascript"), ("/page.css", STYLE, "text/css")],
)
def test_the_page(page, path, text, kind):
    answer = client().get(path)
    assert (answer.status_code, answer.text) == (200, text)
    assert answer.headers["content-type"] == f"{kind}; charset=utf-8"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-security-policy"] == (
        "default-src 'self'; img-src 'self' blob: data:; style-src 'self'; object-src 'none'; base-uri 'none'; "
        "frame-ancestors 'none'"
    )


def test_a_page_that_was_not_built_is_an_error_and_the_rest_works(page):
    (page / "index.html").unlink()
    browser = client()
    answer = browser.get("/")
    assert answer.status_code == 400
    assert "the page has not been built; install a wheel of regard, or build the page" in answer.json()["error"]
    assert browser.get("/recordings.json").status_code == 200


def test_recordings_are_as_they_were_stored():
    one = recording()
    browser = client(RecordingStore({"one": one}))
    listed = browser.get("/recordings.json")
    assert listed.json() == [{"id": "one", "title": "a run", "model": "a translator", "text": "ein Hund"}]
    assert (listed.headers["content-type"], listed.headers["cache-control"]) == ("application/json", "no-store")
    found = browser.get("/recordings/one/manifest.json")
    assert found.json() == one.manifest()
    assert (found.headers["content-type"], found.headers["cache-control"]) == ("application/json", "no-store")
    for name in one.names():
        assert browser.get(f"/recordings/one/{name}").content == one.blob(name)


def test_blobs_have_types_and_only_those_with_random_ids_are_cached(model):
    said = manifest() | {"image": {"rows": 1}}
    store = RecordingStore({"one": recording(said)})
    id = store.put(recording(said), model.lock)
    browser = client(store)
    kinds = {"attention/0.f16": "application/octet-stream", "image.png": "image/png"}
    for name, kind in kinds.items():
        headers = browser.get(f"/recordings/{id}/{name}").headers
        assert (headers["content-type"], headers["cache-control"]) == (kind, "private, max-age=31536000, immutable")
        assert browser.get(f"/recordings/one/{name}").headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    "path",
    [
        "/recordings/two/manifest.json",
        "/recordings/one/attention/1.f16",
        "/recordings/one/",
        "/recordings/one",
        "/recordings/..%2f..%2fsecret/manifest.json",
        "/recordings/one/..%2f..%2f..%2f..%2fetc%2fpasswd",
        "/recordings/%2e%2e/%2e%2e/etc/passwd",
        "/recordings/one/%00",
        "/export/..%2fone.html",
        "/export/two.html",
        "/page/index.html",
        "/..%2fserver.py",
        "/favicon.ico",
    ],
)
def test_unknown_paths_are_404(page, path):
    answer = client().get(path)
    assert answer.status_code == 404
    assert list(answer.json()) == ["error"]


def test_a_wrong_method_is_rejected():
    assert client().get("/record").status_code == 405
    assert client().post("/recordings.json", json={}).status_code == 405


# --- models ----------------------------------------------------------------------------------------------------------


def test_a_model_is_listed_before_and_after_it_is_loaded(tmp_path, model):
    about = {"name": "run", "path": str(tmp_path / "run"), "image": False, "error": None}
    store = RecordingStore({})
    before = client(store, model).get("/models.json")
    assert before.json() == [about | {"what": "", "verbs": [], "ready": False}]
    assert before.headers["cache-control"] == "no-store"
    load_in_background([model], store, None).join()  # the store is empty, so it does not wait
    after = client(store, model).get("/models.json").json()
    assert after == [about | {"what": "a translator", "verbs": ["translate", "embed"], "ready": True}]


def test_the_first_query_is_answered_and_listed_first(model):
    model.trained = True
    browser = ready(model, question=Query("der Baum"))
    assert [one["text"] for one in browser.get("/recordings.json").json()] == ["der Baum", "im Training", "ein Hund"]
    assert browser.get("/models.json").json()[0]["ready"]


def test_a_first_query_that_fails_leaves_the_model_ready(model, capfd):
    browser = ready(model, question=Query(""))
    about = browser.get("/models.json").json()[0]
    assert (about["ready"], about["error"]) == (True, "there is nothing to read; give a text")
    assert capfd.readouterr().err == "regard: there is nothing to read; give a text\n"
    assert browser.post("/record", json={"model": "run", "text": "der Baum"}).status_code == 200


@pytest.mark.parametrize(
    ("trouble", "sentence"),
    [
        (RegardError("run: is not the folder of a run"), "run: is not the folder of a run"),
        (FileNotFoundError(2, "No such file or directory"), "cannot be shown: [Errno 2] No such file or directory"),
        (RuntimeError("out of memory\nand much more"), "cannot be shown: out of memory"),
    ],
)
def test_a_model_that_cannot_be_loaded_is_one_sentence_and_others_are_loaded(tmp_path, capfd, trouble, sentence):
    gone, there = Model(tmp_path / "gone", "gone", trouble), Model(tmp_path / "there", "there")
    browser = ready(gone, there)
    first, second = browser.get("/models.json").json()
    assert first["error"].endswith(sentence)
    assert (first["ready"], second["ready"], second["error"]) == (False, True, None)
    assert capfd.readouterr().err.count("\n") == 1
    refused = browser.post("/record", json={"model": "gone", "text": "der Baum"})
    assert (refused.status_code, refused.json()["error"]) == (409, first["error"])


# --- queries ---------------------------------------------------------------------------------------------------------


def test_a_query_becomes_a_recording(model):
    browser = ready(model)
    prepared = {"model": "run", "text": f"der {EVIL}", "target": "the tree", "tokens": 3}
    answer = browser.post("/record", json=prepared, headers={"origin": ADDRESS})
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "no-store"
    assert model.queries == [Query(f"der {EVIL}", "the tree", 3)]
    id = answer.json()["id"]
    assert [one["id"] for one in browser.get("/recordings.json").json()] == [id, "one"]
    assert browser.get(f"/recordings/{id}/manifest.json").json()["text"] == f"der {EVIL}"
    assert browser.get(f"/recordings/{id}/attention/0.f16").status_code == 200


def test_an_image_is_sent_as_base64(model):
    browser = ready(model)
    model.reads_images, model.what = True, "a classifier of images"
    refused = browser.post("/record", json={"model": "run", "text": "/etc/passwd"})
    assert (refused.status_code, refused.json()["error"]) == (400, "run is a classifier of images; choose an image")
    assert not model.queries
    image = base64.b64encode(b"\x89PNG").decode()
    assert browser.post("/record", json={"model": "run", "image": image, "target": None}).status_code == 200
    assert model.queries == [Query(image=b"\x89PNG")]


def test_the_name_of_a_file_is_not_read_as_tracks(model):
    browser = ready(model)
    model.reads_tracks, model.what = True, "a model of trajectories"
    for name in ("/etc/passwd", "walks.txt@100"):
        refused = browser.post("/record", json={"model": "run", "text": name})
        assert (refused.status_code, refused.json()["error"]) == (
            400,
            "run is a model of trajectories; write rows: frame agent x y; frame agent x y",
        )
    assert not model.queries
    assert browser.post("/record", json={"model": "run", "text": "0 a 1 2; 10 a 2 2"}).status_code == 200


def test_half_a_character_and_a_long_text_do_no_harm_to_the_list(model):
    browser = ready(model)
    model.reads_images = True
    image = base64.b64encode(b"\x89PNG").decode()
    body = json.dumps({"model": "run", "text": "a\ud800" + "b" * 30_000, "image": image})
    answer = browser.post("/record", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 200
    listed = browser.get("/recordings.json")
    assert (listed.status_code, listed.json()[0]["text"]) == (200, "a?" + "b" * 198)
    assert browser.get(f"/recordings/{answer.json()['id']}/manifest.json").status_code == 200


@pytest.mark.parametrize(
    ("query", "status", "sentence"),
    [
        ({"model": "run", "text": ""}, 400, "there is nothing to read; give a text"),
        ({"model": "other", "text": "x"}, 404, "no such model"),
        ({"model": "../run", "text": "x"}, 404, "no such model"),
        ({"text": "x"}, 400, 'a query must be an object with the name of a "model"'),
        ([], 400, 'a query must be an object with the name of a "model"'),
        ({"model": ["run"]}, 400, 'a query must be an object with the name of a "model"'),
        ({"model": "run", "text": 3}, 400, "wrong type for 'text': it must be a string"),
        ({"model": "run", "tokens": True}, 400, "wrong type for 'tokens': it must be a whole number"),
        ({"model": "run", "lock": "x"}, 400, "unknown field 'lock'; a query has model, text, target"),
        ({"model": "run", "image": "not base64!"}, 400, "the image must be a file encoded in base64"),
        ({"model": "run", "image": "é"}, 400, "the image must be a file encoded in base64"),
    ],
)
def test_a_wrong_query_is_one_sentence(model, query, status, sentence):
    answer = ready(model).post("/record", json=query)
    assert answer.status_code == status
    assert sentence in answer.json()["error"]


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 100_000])
def test_a_query_that_is_not_json(model, body):
    answer = ready(model).post("/record", content=body, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["error"]) == (400, "a query must be JSON")


def test_a_query_to_a_model_that_is_still_loading(model):
    answer = client(None, model).post("/record", json={"model": "run", "text": "x"})
    assert (answer.status_code, answer.json()["error"]) == (409, "run is still loading; wait a moment")


def test_a_query_that_is_too_long(model, monkeypatch):
    monkeypatch.setattr(server, "BODY", 1024**2)
    browser = ready(model)
    fits = {"model": "run", "text": "x" * 1_000_000}
    assert browser.post("/record", json=fits).status_code == 200
    answer = browser.post("/record", json=fits | {"target": "x" * 50_000})
    assert answer.status_code == 413
    assert answer.json()["error"] == "a query may have at most 1 MB; choose a smaller image"
    assert len(model.queries) == 1


# --- allowed hosts ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:7348", "127.0.0.1", "127.0.0.1:80", "127.0.0.1.evil.example:7348", "", "@"]
)
def test_a_foreign_host_is_rejected(page, model, host):
    browser = ready(model)
    for answer in (browser.get("/", headers={"host": host}), browser.get("/recordings.json", headers={"host": host})):
        assert (answer.status_code, list(answer.json())) == (400, ["error"])
    assert browser.post("/record", json={"model": "run", "text": "x"}, headers={"host": host}).status_code == 400
    assert not model.queries


@pytest.mark.parametrize("host", ["127.0.0.1:7348", "localhost:7348", "LocalHost:7348", "[::1]:7348"])
def test_our_own_names(host):
    assert client().get("/recordings.json", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "", "https://127.0.0.1:7348", "http://127.0.0.1:80", "http://127.0.0.1"]
)
def test_requests_of_a_foreign_page_are_rejected(model, origin):
    answer = ready(model).post("/record", json={"model": "run", "text": "x"}, headers={"origin": origin})
    assert (answer.status_code, list(answer.json())) == (403, ["error"])
    assert not model.queries


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "application/jsonp", ""])
def test_what_a_form_can_send_is_rejected(model, kind):
    body = json.dumps({"model": "run", "text": "x"}).encode()
    answer = ready(model).post("/record", content=body, headers={"content-type": kind})
    assert (answer.status_code, list(answer.json())) == (415, ["error"])
    assert not model.queries


def test_error_responses_have_the_guard_headers_too():
    for answer in (client().get("/", headers={"host": "evil.example"}), client().get("/nothing")):
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "default-src 'self'" in answer.headers["content-security-policy"]


# --- the token -------------------------------------------------------------------------------------------------------


def with_token(*models: Model) -> TestClient:
    return TestClient(make_app(RecordingStore({"one": recording()}), models, "secret"), base_url=ADDRESS)


WITHOUT = {"error": "wrong or missing token; use the address that the viewer printed, to its end"}


@pytest.mark.parametrize("path", ["/", "/page.js", "/recordings.json", "/recordings/one/attention/0.f16", "/nothing"])
@pytest.mark.parametrize("given", ["", "?token=", "?token=Secret", "?token=secre", "?token=%ff", "?token=\u20ac"])
def test_without_the_token_every_request_is_refused(page, path, given):
    answer = with_token().get(path + given)
    assert (answer.status_code, answer.json(), "set-cookie" in answer.headers) == (403, WITHOUT, False)
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_without_the_token_no_model_runs(model):
    load_in_background([model], RecordingStore({}), None).join()
    query = {"model": "run", "text": "x"}
    refused = with_token(model).post("/record", json=query, headers={"origin": ADDRESS})
    assert (refused.status_code, refused.json(), model.queries) == (403, WITHOUT, [])
    assert with_token(model).post("/record?token=secret", json=query).status_code == 200


def test_the_address_with_the_token_sets_a_cookie_that_only_this_port_uses(page):
    browser = with_token()
    first = browser.get("/?token=secret")
    assert (first.status_code, first.text) == (200, INDEX)
    assert first.headers["set-cookie"] == "regard-7348=secret; Path=/; HttpOnly; SameSite=Strict"
    for path in ("/", "/page.js", "/recordings.json", "/recordings/one/attention/0.f16", "/export/one.html"):
        assert browser.get(path).status_code == 200
    other = with_token()  # a viewer at another port, to which a browser sends the same cookies
    other.base_url = "http://127.0.0.1:7349"
    assert other.get("/", headers={"cookie": "regard-7348=secret"}).status_code == 403
    assert other.get("/", headers={"cookie": "a=b; regard-7349=secret"}).status_code == 200


def test_a_foreign_host_gets_no_cookie_even_with_the_token(page):
    answer = with_token().get("/?token=secret", headers={"host": "evil.example:7348"})
    assert (answer.status_code, "set-cookie" in answer.headers) == (400, False)


def test_without_a_token_set_no_request_needs_one(page):
    answer = client().get("/?token=anything")
    assert (answer.status_code, "set-cookie" in answer.headers) == (200, False)


# --- what stays, and what goes wrong ---------------------------------------------------------------------------------


def test_the_sixteen_last_used_live_recordings_stay_and_all_others_too(model):
    model.trained = True
    browser = ready(model)
    ids = [browser.post("/record", json={"model": "run", "text": f"Satz {n}"}).json()["id"] for n in range(16)]
    assert len(set(ids)) == 16
    assert browser.get(f"/recordings/{ids[0]}/manifest.json").status_code == 200
    newest = browser.post("/record", json={"model": "run", "text": "Satz 16"}).json()["id"]
    gone = browser.get(f"/recordings/{ids[1]}/manifest.json")
    assert gone.status_code == 404
    assert "no such recording; only the last ones are kept" in gone.json()["error"]
    listed = browser.get("/recordings.json").json()
    assert [one["id"] for one in listed[:-2]] == [newest, *reversed(ids[2:]), ids[0]]
    assert [one["text"] for one in listed[-2:]] == ["im Training", "ein Hund"]


@pytest.mark.parametrize(
    ("trouble", "sentence"),
    [
        (FileNotFoundError(2, "No such file or directory", "probe"), "a run: cannot be shown: [Errno 2] No such"),
        (RegardError("probe: is missing"), "probe: is missing"),
    ],
)
def test_a_run_deleted_under_the_server(model, trouble, sentence):
    one = recording()
    store = RecordingStore({"one": recording()})
    id = store.put(one, model.lock)
    browser = client(store, model)
    assert browser.get(f"/recordings/{id}/attention/0.f16").status_code == 200

    def gone(name: str) -> bytes:
        raise trouble

    one.blob = gone
    answer = browser.get(f"/recordings/{id}/attention/0.f16")
    assert (answer.status_code, answer.json()["error"].startswith(sentence)) == (400, True)
    assert not model.lock.locked()
    assert browser.get("/recordings/one/attention/0.f16").status_code == 200


def test_an_internal_error_is_printed_and_the_server_continues(capfd):
    one = recording()
    one.blob = lambda name: 1 / 0
    browser = client(RecordingStore({"one": one}), raise_server_exceptions=False)
    answer = browser.get("/recordings/one/attention/0.f16")
    assert answer.status_code == 500
    assert answer.json()["error"] == "internal error of the viewer (ZeroDivisionError); see the terminal for details"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "ZeroDivisionError" in capfd.readouterr().err
    assert browser.get("/recordings.json").status_code == 200


# --- a page to keep --------------------------------------------------------------------------------------------------


def embedded(html: str) -> dict[str, object]:
    _, _, after = html.partition('id="regard-recordings">')
    return {id: one.manifest() for id, one in unpack_recordings(base64.b64decode(after.partition("<")[0])).items()}


def test_a_recording_can_be_exported_as_a_page(page):
    answer = client().get("/export/one.html")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["content-disposition"] == 'attachment; filename="regard-one.html"'
    assert embedded(answer.text) == {"one": manifest()}


def test_layers_of_a_page(page):
    html = client().get("/export/one.html?layers=1,3").text
    assert [one["id"] for one in embedded(html)["one"]["attentions"]] == ["cross.1", "cross.3"]
    refused = client().get("/export/one.html?layers=x")
    assert (refused.status_code, "'x' is not a layer" in refused.json()["error"]) == (400, True)
    refused = client().get("/export/one.html?layers=7")
    assert (refused.status_code, refused.json()["error"]) == (
        400,
        "layer 7 has no attention to show; choose from the layers 1-3",
    )


# --- over real sockets -----------------------------------------------------------------------------------------------


def ask(port: int, path: str, host: str = "127.0.0.1", **headers: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.putrequest("GET", path, skip_host=True)
    for name, value in {"Host": f"{host}:{port}", **headers}.items():
        connection.putheader(name, value)
    connection.endheaders()
    answer = connection.getresponse()
    found = answer.status, answer.read()
    connection.close()
    return found


def test_a_real_server_answers_and_is_not_fooled(page, capfd):
    with running(RecordingStore({"one": recording()})) as port:
        assert ask(port, "/") == (200, INDEX.encode())
        assert ask(port, "/recordings/one/attention/0.f16") == (200, recording().blob("attention/0.f16"))
        for path in ("/../server.py", "/recordings/one/../../../server.py", "/recordings/../../../../etc/passwd"):
            assert ask(port, path)[0] == 404
        assert ask(port, "/", "evil.example")[0] == 400
        with pytest.raises(ConnectionRefusedError):  # it listens on no other address
            socket.create_connection(("127.0.0.2", port))
    assert capfd.readouterr() == ("", "")


def test_blobs_are_computed_in_parallel_but_a_model_does_one_thing_at_a_time(model):
    begun, may_end = threading.Semaphore(0), threading.Semaphore(0)
    store = RecordingStore({"one": recording()})
    slow = [store.put(Slow(begun, may_end), model.lock) for _ in range(2)]
    answers: list[tuple[int, bytes]] = []
    with running(store, model) as port:
        threads = [
            threading.Thread(target=lambda id=id: answers.append(ask(port, f"/recordings/{id}/row.f32"))) for id in slow
        ]
        for thread in threads:
            thread.start()
        begun.acquire()
        assert ask(port, "/recordings/one/attention/0.f16")[0] == 200
        assert ask(port, "/models.json")[0] == 200
        assert not begun.acquire(blocking=False)  # the second waits for the first
        may_end.release(2)
        for thread in threads:
            thread.join()
    assert answers == [(200, b"slow")] * 2


def test_if_a_port_is_in_use_the_next_is_taken():
    with listen(0) as first:
        port = first.getsockname()[1]
        with listen(port) as second:
            assert port < second.getsockname()[1] < port + 100
            assert second.getsockname()[0] == "127.0.0.1"


def test_no_port_is_left():
    try:
        last = listen(65535)
    except RegardError:
        last = socket.socket()  # taken by another program
    with last, pytest.raises(RegardError, match="port 65535: is in use, and so are the 99 after it; choose another"):
        listen(65535)
