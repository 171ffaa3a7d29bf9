"""`regard.look(model, text)`: as a widget, as an iframe, and as a file."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import IPython.core.getipython
import pytest

import regard
from regard.errors import InputError, RegardError
from regard.training.run import open_run
from regard.viewer import export, html, notebook
from regard.viewer.html import page_as_iframe, page_with_recordings
from regard.viewer.model_handle import ModelHandle
from regard.viewer.notebook import Page, has_widgets, look
from regard.viewer.recording import pack_recordings, unpack_recordings

from ..processes import PATIENCE
from ..tasks.corpora import sentences
from ..use.made import image, loaded, model_of, run, tokenizer_of
from .fake import manifest, recording
from .snapshots import STEPS, write

WIDGET = "application/vnd.jupyter.widget-view+json"


@pytest.fixture
def kernel(monkeypatch):
    """Pretend that this is a Jupyter kernel."""
    shell = SimpleNamespace(kernel=object())
    monkeypatch.setattr(IPython.core.getipython, "get_ipython", lambda: shell)
    return shell


def shown(page: Page) -> dict[str, object]:
    bundle = page._repr_mimebundle_(include=None, exclude=None)
    return bundle[0] if isinstance(bundle, tuple) else bundle


def test_importing_the_viewer_leaves_the_function_in_place(page, bundle):
    program = """
import regard
import regard.viewer.export
import regard.training
assert regard.look.__name__ == "look"
assert not callable(regard.viewer)
import sys
print("torch" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE)
    assert (done.stdout, done.stderr) == ("False\n", "")
    assert regard.look().archive == look().archive


def test_without_a_kernel_it_is_an_iframe(page, bundle):
    assert not has_widgets()
    one = look(height=300)
    assert shown(one) == {"text/plain": repr(one), "text/html": page_as_iframe(one.archive, 300)}
    assert repr(one) == "<regard: first, second; display it in a notebook, or write it with .save('page.html')>"
    assert list(unpack_recordings(one.archive)) == ["one", "two"]


def test_a_shell_without_a_kernel_has_no_widgets(page, bundle, kernel):
    assert has_widgets()
    kernel.kernel = None
    assert not has_widgets()


def test_in_a_kernel_it_is_a_widget_with_the_archive(page, bundle, kernel):
    one = look()
    assert set(shown(one)) == {WIDGET, "text/plain"}
    widget = one.widget
    assert shown(one)[WIDGET]["model_id"] == widget.model_id
    assert widget.archive == one.archive
    state = widget.get_state()
    assert bytes(state["archive"]) == one.archive
    assert state["_esm"] == (page / html.SCRIPT).read_text()
    assert state["_css"] == (page / html.STYLE).read_text()


def test_an_iframe_on_request_or_where_anywidget_is_missing(page, bundle, kernel, monkeypatch):
    assert set(shown(look(widget=False))) == {"text/html", "text/plain"}
    monkeypatch.setitem(sys.modules, "anywidget", None)
    one = look()
    assert set(shown(one)) == {"text/html", "text/plain"}
    with pytest.raises(RegardError, match=r'widgets need anywidget: pip install "regard\[notebook\]"'):
        _ = one.widget


def test_saved_as_a_file(page, bundle, tmp_path):
    one = look()
    (tmp_path / "page.html").write_text("old")
    one.save(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text() == page_with_recordings(one.archive)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["page", "page.html", "sample"]
    with pytest.raises(InputError, match="page.txt: the name of this file must end in .html"):
        one.save(str(tmp_path / "page.txt"))
    with pytest.raises(InputError, match="no folder .*nowhere; create it first"):
        one.save(tmp_path / "nowhere" / "page.html")


def test_layers_and_what_is_too_large(page, monkeypatch):
    one = Page({"one": recording()}, {2})
    assert [each["id"] for each in unpack_recordings(one.archive)["one"].manifest()["attentions"]] == ["cross.2"]
    monkeypatch.setattr(export, "LARGEST", 10)
    with pytest.raises(
        RegardError, match="the page would have 1 MB, and the limit is 20 MB; choose some of the layers"
    ):
        Page({"one": recording()})


def test_several_models_are_one_page(page, monkeypatch):
    prepared = []

    def all_of(handle: ModelHandle, question: object) -> list[object]:
        prepared.append((handle.name, handle.folder, question))
        return [recording(manifest(question.text, handle.name))]

    monkeypatch.setattr(ModelHandle, "recordings", all_of)
    one = look(["a/run", Path("b")], "ein Hund", target="a dog", tokens=3)
    question = notebook.Query("ein Hund", "a dog", 3)
    assert prepared == [("a/run", Path("a/run"), question), ("b", Path("b"), question)]
    assert one.titles == ["a/run", "b"]
    said = {"1": manifest("ein Hund", "a/run"), "2": manifest("ein Hund", "b")}
    assert one.archive == pack_recordings({id: recording(manifest) for id, manifest in said.items()})


# --- real models -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["translation", "language", "masked", "classification"])
def test_models_of_text(page, tmp_path, kind):
    text = sentences(1)[0]
    folder = run(kind, tmp_path / "run")
    by_folder, ready = (
        unpack_recordings(look(folder, text).archive),
        unpack_recordings(look(loaded(kind), text).archive),
    )
    assert list(by_folder) == list(ready) == ["1"]
    assert by_folder["1"].manifest()["title"] == "run"
    assert by_folder["1"].manifest()["text"] == ready["1"].manifest()["text"] == text
    assert by_folder["1"].manifest()["attentions"]


def test_a_run_that_training_returned(page, tmp_path):
    folder, _ = write(tmp_path, "language", "gpt2")
    found = unpack_recordings(look(open_run(folder)).archive)["1"].manifest()
    assert (found["title"], found["steps"]) == (f"{folder.name}, training", list(STEPS))


def test_an_image_by_its_path_and_by_its_bytes(page, tmp_path):
    path = image(tmp_path / "image.png")
    model = loaded("vision")
    by_path, by_bytes = (
        unpack_recordings(one.archive)["1"] for one in (look(model, str(path)), look(model, image=path.read_bytes()))
    )
    assert by_path.manifest()["sequences"] == by_bytes.manifest()["sequences"]
    assert by_path.blob("image.png") == by_bytes.blob("image.png")


def test_a_bare_model_with_and_without_a_tokenizer(page):
    model, tokenizer = model_of("language"), tokenizer_of()
    text = sentences(1)[0]
    named = unpack_recordings(look(model, text, tokenizer=tokenizer).archive)["1"].manifest()
    assert named["title"] == "a language model"
    ids = [token["id"] for token in named["sequences"]["tokens"]]
    bare = unpack_recordings(look(model, ids, tokens=0).archive)["1"].manifest()
    assert [token["id"] for token in bare["sequences"]["tokens"]] == ids


def test_nothing_to_look_at(tmp_path):
    with pytest.raises(InputError, match="run: has no snapshots of its training; give a text to look at"):
        look(run("language", tmp_path / "run"))
    with pytest.raises(RegardError, match="nowhere: no such folder"):
        look(tmp_path / "nowhere", "a text")
