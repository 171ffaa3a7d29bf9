"""`regard.look(model, text)`: as a widget, as an iframe, and as a file."""

import json
import subprocess
import sys
from base64 import b64decode
from pathlib import Path
from types import SimpleNamespace

import IPython.core.getipython
import IPython.display
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


@pytest.fixture
def outputs(monkeypatch) -> list[dict[str, object]]:
    """What is displayed."""
    found: list[dict[str, object]] = []
    monkeypatch.setattr(IPython.display, "publish_display_data", found.append)
    return found


def run_cell(kernel: SimpleNamespace, cell: str, execution: str) -> None:
    """Pretend that the kernel runs this cell."""
    parent = {"metadata": {"cellId": cell}, "header": {"msg_id": execution}}
    kernel.kernel = SimpleNamespace(get_parent=lambda channel: parent)


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


def test_without_a_kernel_it_is_an_iframe(page, bundle, outputs):
    assert not has_widgets()
    one = look(height=300, theme="dark")
    one._ipython_display_()
    frame = page_as_iframe(one.archive, 300, "dark")
    assert outputs == [{"text/plain": repr(one), "text/html": frame}]
    assert (one._repr_html_(), look()._repr_html_()) == (frame, page_as_iframe(one.archive, 720))
    assert "data-theme=&quot;dark&quot;" in frame
    assert repr(one) == "<regard: first, second; display it in a notebook, or write it with .save('page.html')>"
    assert list(unpack_recordings(one.archive)) == ["one", "two"]


def test_a_shell_without_a_kernel_has_no_widgets(page, bundle, kernel):
    assert has_widgets()
    kernel.kernel = None
    assert not has_widgets()


def test_in_a_kernel_it_is_a_widget_with_the_archive(page, bundle, kernel, outputs):
    one = look()
    one._ipython_display_()
    widget = one.widget
    assert outputs[0] == {WIDGET: outputs[0][WIDGET], "text/plain": repr(one)}
    assert outputs[0][WIDGET]["model_id"] == widget.model_id
    assert (widget.archive, widget.height, widget.theme) == (one.archive, None, None)
    state = widget.get_state()
    assert bytes(state["archive"]) == one.archive
    assert state["_esm"] == (page / html.SCRIPT).read_text()
    assert state["_css"] == (page / html.STYLE).read_text()


def test_a_widget_leaves_a_picture_behind(page, bundle, kernel, outputs):
    one = look(theme="light")
    one._ipython_display_()
    _, left = outputs
    assert b64decode(left["image/png"]) == one.picture
    assert one.picture.startswith(b"\x89PNG")
    assert f"data:image/png;base64,{left['image/png']}" in left["text/html"]
    outputs.clear()
    Page({"one": recording(manifest(title="<b>", attentions=[]) | {"begin": None})})._ipython_display_()
    assert set(outputs[1]) == {"text/plain", "text/html"}
    assert "&lt;b&gt;: run the cell to look at it." in outputs[1]["text/html"]


def test_a_cell_that_is_run_again_closes_its_widgets(page, bundle, kernel, outputs):
    run_cell(kernel, "a", "1")
    first, second = look(), look()
    for one in (first, second):
        one._ipython_display_()
    kept = [one.widget for one in (first, second)]
    run_cell(kernel, "b", "2")
    second._ipython_display_()
    run_cell(kernel, "a", "3")
    third = look()
    third._ipython_display_()
    assert [widget.comm is None for widget in kept] == [True, False]  # the second is still in cell b
    run_cell(kernel, "b", "4")
    third._ipython_display_()
    assert kept[1].comm is None
    first._ipython_display_()  # with a new widget
    assert first.widget is not kept[0]


def test_an_iframe_on_request_or_where_anywidget_is_missing(page, bundle, kernel, outputs, monkeypatch):
    look(widget=False)._ipython_display_()
    monkeypatch.setitem(sys.modules, "anywidget", None)
    one = look()
    one._ipython_display_()
    assert [set(output) for output in outputs] == [{"text/html", "text/plain"}] * 2
    with pytest.raises(RegardError, match=r'widgets need anywidget: pip install "regard\[notebook\]"'):
        _ = one.widget


# --- requests of the page --------------------------------------------------------------------------------------------


class Asked:
    """A page that asks the kernel."""

    def __init__(self, one: Page) -> None:
        self.widget, self.answers = one.widget, []
        self.widget.send = lambda content, buffers: self.answers.append((content, buffers))

    def __call__(self, method: str, path: str, body: object = None) -> tuple[int, object]:
        request = f"page {len(self.answers)}"
        message = {"request": request, "method": method, "path": path, "body": body}
        self.widget._handle_custom_msg(message, [])
        content, (data,) = self.answers[-1]
        assert content["request"] == request
        return content["status"], json.loads(data) if data[:1] in (b"{", b"[") else data


def test_the_page_asks_the_model_in_the_kernel(page, kernel):
    text = sentences(1)[0]
    one = look(loaded("language"), text, tokens=1)
    ask = Asked(one)
    (model,) = ask("GET", "models.json")[1]
    assert (model["name"], model["ready"], model["error"]) == (one.titles[0], True, None)
    status, made = ask("POST", "record", {"model": model["name"], "text": sentences(2)[1]})
    assert status == 200
    listed = ask("GET", "recordings.json")[1]
    assert [each["id"] for each in listed] == [made["id"], "1"]
    said = ask("GET", f"recordings/{made['id']}/manifest.json")[1]
    assert said["text"] == sentences(2)[1]
    assert ask("GET", f"recordings/{made['id']}/overview/0.u8")[0] == 200
    assert ask("POST", "record", {"model": model["name"], "text": ""}) == (
        400,
        {"error": "the text is empty; write at least one word"},
    )
    assert ask("GET", "nothing")[0] == 404


def test_without_a_text_only_a_widget_can_begin(page, kernel, tmp_path, monkeypatch):
    folder = run("language", tmp_path / "run")
    one = look(folder)
    assert (unpack_recordings(one.archive), one.titles, one.picture) == ({}, ["run"], None)
    ask = Asked(one)
    status, _ = ask("POST", "record", {"model": "run", "text": sentences(1)[0]})
    assert (status, len(ask("GET", "recordings.json")[1])) == (200, 1)
    with pytest.raises(InputError, match="give a text to look at"):
        look(folder, widget=False)


def test_training_snapshots_of_a_model_that_cannot_be_loaded(page, kernel, tmp_path):
    folder, _ = write(tmp_path, "language", "gpt2")
    (folder / "model.safetensors").unlink(missing_ok=True)
    (model,) = Asked(look(folder))("GET", "models.json")[1]
    assert not model["ready"]
    assert model["error"]


def test_interventions_show_the_changed_model_beside_the_original(page):
    model, text = loaded("language"), sentences(1)[0]
    off = {"place": "self.1", "heads": [0], "attention": "uniform"}
    found = unpack_recordings(look(model, text, tokens=0, interventions=[off]).archive)
    changed, original = (one.manifest() for one in found.values())
    assert (changed["title"], changed["text"]) == (f"{original['title']} (changed)", original["text"])
    entropy = [said["attentions"][0]["statistics"]["entropy"][0] for said in (changed, original)]
    assert entropy[0][0] > entropy[1][0]
    assert entropy[0][1] == entropy[1][1]
    for wrong, rule in [
        ({"place": "self.9", "attention": "zero"}, "no attention or vectors 'self.9'"),
        ({"heads": [1]}, "no place"),
        ({"place": "self.1", "head": 1}, "unknown argument 'head'"),
    ]:
        with pytest.raises(InputError, match=rule):
            look(model, text, interventions=[wrong])
    with pytest.raises(InputError, match="interventions need a model to change"):
        look(interventions=[off])


def test_the_page_changes_the_model_in_the_kernel(page, kernel):
    one = look(loaded("language"), sentences(1)[0], tokens=0, attention="self.1", head=2)
    ask = Asked(one)
    change = {"place": "self.1", "heads": [0], "attention": "zero"}
    status, result = ask("POST", "change", {"recording": "1", "changes": [change]})
    assert (status, result["moved"]["self.1"][1]) == (200, 0.0)
    assert ask("GET", f"recordings/{result['id']}/manifest.json")[1]["title"].endswith("(changed)")


def test_where_the_page_begins(page, bundle):
    first = unpack_recordings(look(attention="cross.1", head=2).archive)["one"].manifest()["begin"]
    assert (first["attention"], first["head"]) == ("cross.1", 1)
    with pytest.raises(InputError, match="head 9: cross.2 has heads 1 to 2"):
        look(head=9)
    with pytest.raises(InputError, match="attention cros.1: no such attention; did you mean 'cross.1'?"):
        look(attention="cros.1")
    with pytest.raises(InputError, match="theme 'dim': no such theme; use one of dark, light"):
        look(theme="dim")


WRONG = [
    ({"text": 3}, "3 is not a text; give a string, or the token ids of one"),
    ({"text": [1.5]}, r"\[1\.5\] is not a text; give a string, or the token ids of one"),
    ({"text": {"red": 1}}, r"\{'red': 1\} is not a text; give a string, or the token ids of one"),
    ({"target": 3}, "3 is not a text; give a string, or the token ids of one"),
    ({"tokens": "3"}, "tokens=3 must be 0 or more"),
    ({"head": "2"}, r"head 2: .* has heads 1 to"),
    ({"layers": "1"}, r"layers='1' must be a list of layers, such as \[1, 3\]"),
    ({"interventions": {"place": "cross.1"}}, r"interventions=.* must be a list of arguments, such as"),
    ({"interventions": ["cross.1"]}, r"interventions=\['cross.1'\] must be a list of arguments, such as"),
]


@pytest.mark.unchecked
@pytest.mark.parametrize(("wrong", "rule"), WRONG)
def test_a_wrong_argument_is_an_error_of_one_line(page, wrong, rule):
    with pytest.raises(InputError, match=rule):
        look(loaded("translation"), **{"text": "one red dog", **wrong})


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
    one = Page({"one": recording()}, layers={2})
    assert [each["id"] for each in unpack_recordings(one.archive)["one"].manifest()["attentions"]] == ["cross.2"]
    monkeypatch.setattr(export, "LARGEST", 10)
    with pytest.raises(
        RegardError, match="the page would have 2 MB, and the limit is 20 MB; choose some of the layers"
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
    assert prepared == [("run", Path("a/run"), question), ("b", Path("b"), question)]
    assert one.titles == ["run", "b"]
    said = {"1": manifest("ein Hund", "run"), "2": manifest("ein Hund", "b")}
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
