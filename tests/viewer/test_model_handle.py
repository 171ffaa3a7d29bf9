"""Model handles: names, loading, queries, and training snapshots."""

import json
import shutil
from dataclasses import replace
from io import StringIO
from pathlib import Path
from threading import Event, Thread

import pytest
import torch
from rich.console import Console

from regard.errors import InputError, RegardError
from regard.training import start
from regard.use import load as use_load
from regard.use.bundle import Bundle
from regard.viewer.model_handle import ModelHandle, load_in_background, make_handles
from regard.viewer.query import Query
from regard.viewer.recording import encode_json
from regard.viewer.recording_store import RecordingStore

from ..tasks.corpora import sentences, write
from ..use.made import loaded, run
from .fake import Model, manifest, recording

TEXT = sentences(1)[0]
TINY = ["model.dim=16", "model.depth=2", "model.layers.block.mixer.heads.heads=2", "task.window=8", "train.tokens=64"]
TINY += ["model.layers.block.feedforward.hidden=24", "tokenizer.kind=word"]
BRIEF = ["train.steps=2", "train.validate_every=2", "train.checkpoint_every=2"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """The folder of a run that was trained for two steps."""
    folder = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REGARD_CACHE", str(folder / "cache"))
        patch.setattr(start, "finish", lambda *arguments: None)  # drawing the report takes longer than training
        table = {"kind": "language", "train": [str(write(folder / "a.txt", sentences(80)))]}
        quiet = Console(file=StringIO())
        start.train(table, *TINY, *BRIEF, recipe="gpt2", run=folder / "run", device="cpu", console=quiet)
    return folder / "run"


# --- names -----------------------------------------------------------------------------------------------------------


def test_models_are_named_after_their_folders_or_by_their_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a/run", "b/run", "c"):
        Path(name).mkdir(parents=True)
    assert [one.name for one in make_handles([Path("a/run"), Path("c")])] == ["run", "c"]
    assert [one.name for one in make_handles([Path("a/run"), Path("b/run"), Path("c")])] == ["a/run", "b/run", "c"]
    monkeypatch.chdir("c")
    assert [one.name for one in make_handles([Path()])] == ["c"]


def test_a_folder_whose_name_is_not_utf8_can_be_listed_and_selected(tmp_path):
    folder = tmp_path / "run\udcff"
    folder.mkdir()
    (handle,) = make_handles([folder])
    assert json.loads(encode_json(handle.info()))["name"] == handle.name == "run?"


def test_a_missing_folder_and_a_repeated_one(tmp_path):
    with pytest.raises(RegardError, match="nowhere: no such folder; give the folder that `regard train`"):
        make_handles([tmp_path / "nowhere"])
    with pytest.raises(RegardError, match="was given twice; give two different models to compare them"):
        make_handles([tmp_path, tmp_path])


# --- loading and asking ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "what", "verbs", "of_images"),
    [
        ("translation", "a translator", ["translate", "embed"], False),
        ("vision", "a classifier of images", ["classify", "embed"], True),
    ],
)
def test_a_loaded_model_says_what_it_is(tmp_path, kind, what, verbs, of_images):
    (handle,) = make_handles([run(kind, tmp_path / "run")], "cpu")
    assert handle.info() == {
        "name": "run",
        "what": "",
        "verbs": [],
        "ready": False,
        "error": None,
        "image": False,
        "path": str(tmp_path / "run"),
    }
    handle.load()
    about = handle.info()
    assert (about["what"], about["verbs"], about["image"]) == (what, verbs, of_images)


def test_a_query_reaches_the_model_unchanged(tmp_path):
    handle = ModelHandle(run("translation", tmp_path / "run"), "run")
    with pytest.raises(InputError, match="run: is still loading; wait a moment"):
        handle.record(Query(TEXT))
    handle.load()
    target = " ".join(reversed(TEXT.split()))
    said = handle.record(Query(TEXT, target)).manifest()
    assert (said["title"], said["text"]) == ("run", TEXT)
    assert [token["text"].strip() for token in said["sequences"]["target"] if not token["special"]] == target.split()


def test_the_number_of_tokens(tmp_path):
    handle = ModelHandle(run("language", tmp_path / "run"), "run")
    handle.load()
    lengths = [len(handle.record(Query(TEXT, tokens=n)).manifest()["sequences"]["tokens"]) for n in (0, 3)]
    assert 0 < lengths[1] - lengths[0] <= 3


def test_half_precision_is_loaded_as_float32(tmp_path, monkeypatch):
    plain = use_load.open_folder

    def halved(*arguments: object) -> Bundle:
        ready = plain(*arguments)
        ready.model.to(torch.bfloat16)
        return ready

    monkeypatch.setattr(use_load, "open_folder", halved)
    handle = ModelHandle(run("language", tmp_path / "run"), "run")
    handle.load()
    assert {parameter.dtype for parameter in handle.loaded.model.parameters()} == {torch.float32}


def test_a_ctranslate2_model_is_rejected(tmp_path, monkeypatch):
    converted = replace(loaded("translation").bundle, name="run", external=object())
    monkeypatch.setattr(use_load, "open_folder", lambda *arguments: converted)
    with pytest.raises(
        InputError, match="run: CTranslate2 does not expose attention; use the model that it was converted from"
    ):
        ModelHandle(tmp_path / "run", "run").load()


# --- training --------------------------------------------------------------------------------------------------------


def test_a_run_shows_its_training_too(trained):
    handle = ModelHandle(trained, "run")
    answer, training = handle.recordings(Query(TEXT))
    assert (answer.manifest()["text"], answer.manifest()["steps"]) == (TEXT, [])
    assert training.manifest()["steps"][0] == 0
    assert training.manifest()["steps"][-1] == 2
    assert training.blob("attention/1.f16")


def test_a_run_that_is_still_training_has_no_model_yet(trained, tmp_path, capfd):
    going = tmp_path / "going"
    shutil.copytree(trained, going)
    (going / "model.safetensors").unlink()
    (training,) = ModelHandle(going, "going").recordings(None)
    assert training.manifest()["steps"]
    handle, store = ModelHandle(going, "going"), RecordingStore({})
    load_in_background([handle], store, Query(TEXT)).join()
    assert [one["title"] for one in store.listing()] == ["going, training"]
    assert "going" in handle.status.error
    assert not handle.status.ready
    assert capfd.readouterr().err == f"regard: {handle.status.error}\n"


def test_a_run_deleted_under_the_viewer(trained, tmp_path):
    gone = tmp_path / "gone"
    shutil.copytree(trained, gone)
    handle, store = ModelHandle(gone, "gone"), RecordingStore({})
    load_in_background([handle], store, None).join()
    shutil.rmtree(gone)
    (listed,) = store.listing()
    with pytest.raises(RegardError, match="probe"):
        store.find(listed["id"]).recording.blob("attention/1.f16")
    assert handle.record(Query(TEXT)).manifest()["text"] == TEXT  # the loaded model still works
    late = ModelHandle(gone, "gone")
    load_in_background([late], store, None).join()
    assert "gone: no such folder" in late.status.error


# --- behind the page -------------------------------------------------------------------------------------------------


def test_models_wait_until_the_sample_was_seen(tmp_path):
    store, model = RecordingStore({"one": recording()}), Model(tmp_path, "run")
    began = Event()
    model.load = began.set
    thread = load_in_background([model], store, None, patience=60.0)
    assert not began.wait(0.05)
    store.seen.set()
    thread.join()
    assert began.is_set()


def test_the_first_model_is_listed_first_and_new_queries_before_it(tmp_path):
    store = RecordingStore({"one": recording()})
    models = [Model(tmp_path / name, name, trained=name != "b") for name in "abc"]
    load_in_background(models, store, Query("x"), patience=0.0).join()
    titles = [(one["title"], one["text"]) for one in store.listing()]
    trained = "im Training"
    assert titles == [("a", "x"), ("a", trained), ("b", "x"), ("c", "x"), ("c", trained), ("a run", "ein Hund")]
    store.put(recording(manifest("later")), models[0].lock)
    assert store.listing()[0]["text"] == "later"


class Panic(BaseException):
    """As pyo3_runtime.PanicException, which is not an Exception."""


@pytest.mark.parametrize("trouble", [Panic("index out of bounds"), SystemExit(3), KeyboardInterrupt()])
def test_a_model_whose_library_panics_is_reported_and_the_others_are_loaded(tmp_path, capfd, trouble):
    models = [Model(tmp_path / "a", "a", trouble), Model(tmp_path / "b", "b")]
    load_in_background(models, RecordingStore({}), None).join()
    first, second = (model.info() for model in models)
    assert (first["ready"], first["error"].count("\n"), second["ready"]) == (False, 0, True)
    assert type(trouble).__name__ in first["error"] or "cannot be shown: index out of bounds" in first["error"]


def test_an_error_is_never_shown_before_the_model_is_ready(tmp_path):
    """The page stops polling when it sees an error, so a model that has one and is ready must report both."""
    heard = []
    for _ in range(20):
        model = Model(tmp_path, "run")
        thread = load_in_background([model], RecordingStore({}), Query(""))
        while model.info()["error"] is None:
            pass
        heard.append(model.info()["ready"])
        thread.join()
    assert all(heard)


def test_a_damaged_training_does_not_stop_the_model(trained, tmp_path, capfd):
    damaged = tmp_path / "damaged"
    shutil.copytree(trained, damaged)
    for path in (damaged / "probe").iterdir():
        path.write_bytes(b"x" * 20)
    handle, store = ModelHandle(damaged, "damaged"), RecordingStore({})
    load_in_background([handle], store, Query(TEXT)).join()
    assert handle.status.ready
    assert "is damaged" in handle.status.error
    assert [one["text"] for one in store.listing()] == [TEXT]
    assert capfd.readouterr().err == f"regard: {handle.status.error}\n"


def test_an_internal_error_is_shown_and_printed_and_the_next_model_is_loaded(tmp_path, capfd):
    first, second = Model(tmp_path / "first", "first", KeyError("x")), Model(tmp_path / "second", "second")
    load_in_background([first, second], RecordingStore({}), None).join()
    assert first.status.error.endswith("first: internal error of the viewer (KeyError); see the terminal for details")
    assert "Traceback" in capfd.readouterr().err
    assert (first.status.ready, second.status.ready, second.status.error) == (False, True, None)


def test_training_snapshots_are_shown_while_the_model_is_loading(tmp_path):
    store, model = RecordingStore({}), Model(tmp_path, "run", trained=True)
    locked: list[bool] = []

    def load() -> None:
        (listed,) = store.listing()
        locked.extend([model.lock.locked(), store.find(listed["id"]).lock.locked()])

    model.load = load
    load_in_background([model], store, None).join()
    assert locked == [True, False]


def test_one_model_after_the_other(tmp_path):
    order: list[str] = []
    models = [Model(tmp_path, name) for name in ("first", "second", "third")]
    for model in models:
        model.load = lambda name=model.name: order.append(name)
    thread = load_in_background(models, RecordingStore({}), None)
    assert isinstance(thread, Thread)
    assert thread.daemon
    thread.join()
    assert order == ["first", "second", "third"]
