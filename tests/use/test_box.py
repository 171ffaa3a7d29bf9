"""The models in the box: found by name, chosen by verb, checked before they are loaded."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import regard
from regard.errors import InputError, RegardError
from regard.runs.layout import FOLDER_REMEDY
from regard.use import box
from regard.use.box import (
    box_model,
    box_names,
    default_model,
    find_model,
    folder_remedy,
    is_image_file,
    is_scene,
    shown_name,
)

from ..tasks.corpora import sentences
from .made import image
from .tiny_box import KINDS, put_box


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return put_box(tmp_path / "box", monkeypatch)


def test_names_and_sizes(folder: Path) -> None:
    assert box_names() == sorted(KINDS)
    model = box_model("english")
    kept = [path for path in (folder / "english").iterdir() if path.name not in (box.CARD, box.README)]
    assert model.size == sum(path.stat().st_size for path in kept)
    with pytest.raises(InputError, match="no model in the box has the name 'englisch'; did you mean 'english'"):
        box_model("englisch")


def test_a_name_is_loaded_unless_a_folder_has_it(folder: Path) -> None:
    assert find_model("english") == folder / "english"
    assert find_model("runs/english") == Path("runs/english")
    text = sentences(1)
    assert regard.load("english", "cpu").embed(text).shape[0] == 1
    Path("english").mkdir()
    assert find_model("english") == Path("english")
    with pytest.raises(RegardError, match="english: is not the folder of a run"):
        regard.load("english", "cpu")


def test_messages_have_its_name_instead_of_where_it_is_installed(folder: Path) -> None:
    assert shown_name(folder / "english") == "english"
    assert shown_name(Path("runs/english")) == "runs/english"
    model = regard.load("english", "cpu")
    with pytest.raises(InputError, match="^english: is .* and cannot translate; use"):
        model.translate(["a"])
    assert repr(model).startswith("<english: ")
    with pytest.raises(InputError, match="^english: step=5: comes with its best weights only; leave --step out"):
        regard.load("english", "cpu", step=5)
    with pytest.raises(RegardError, match="^english: cannot be written for CTranslate2"):
        regard.convert("english", "ctranslate2", "converted")


def test_the_default_follows_the_verb_and_the_first_text(folder: Path) -> None:
    picture = image(Path("a.PNG"))
    wanted = {"translate": "en-fr", "generate": "shakespeare", "fill": "english", "classify": "topics"}
    for verb, name in wanted.items():
        found = default_model(verb, ["a text"])
        assert found is not None
        assert found.name == name
    for verb in ("classify", "embed", "look"):
        found = default_model(verb, [str(picture), "a text"])
        assert found is not None
        assert found.name == "fashion"
    assert default_model("compare") is None
    translator = default_model("translate", [str(picture)])  # no verb translates images, so it is a text
    assert translator is not None
    assert translator.name == "en-fr"
    assert not is_image_file("no.png")
    assert not is_image_file("x" * 5000 + ".png")
    assert not is_image_file("\0.png")


def test_a_frame_of_a_recording_is_a_scene() -> None:
    (file,) = box_model("crossing").check_files()
    found = default_model("look", [f"{file}@600"])
    assert found is not None
    assert found.name == "crossing"
    assert not any(map(is_scene, (file, f"{file}@", "nowhere.txt@600", "me@home", "@", "\0@1", "x" * 5000 + "@1")))


def test_without_a_box_there_is_no_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(box, "FOLDER", tmp_path / "nowhere")
    assert box_names() == []
    assert default_model("translate") is None
    assert find_model("en-fr") == Path("en-fr")


@pytest.mark.parametrize("damage", ["changed", "shorter", "missing"])
def test_a_damaged_model_names_the_file_and_the_remedy(folder: Path, damage: str) -> None:
    path = folder / "english/model.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(data if damage == "changed" else data[:-10])
    with pytest.raises(RegardError) as found:
        regard.load("english", "cpu")
    fault = "is missing" if damage == "missing" else "is damaged (size or checksum differ from card.json)"
    remedy = "restore it with `pip install --force-reinstall --no-deps regard`, or name another model with -m"
    assert str(found.value) == f"{path}: {fault}; {remedy}"


def test_in_a_clone_git_restores_it(folder: Path) -> None:
    (folder.parent.parent / ".git").mkdir()
    (folder / "english/config.json").unlink()
    with pytest.raises(RegardError, match=f"restore it with `git checkout -- {folder / 'english'}`"):
        regard.load("english", "cpu")


def test_a_damaged_card(folder: Path) -> None:
    path = folder / "english" / box.CARD
    card = json.loads(path.read_text())
    del card["licence"]
    path.write_text(json.dumps(card))
    with pytest.raises(RegardError, match="card.json: is damaged: .*licence.*; restore it with"):
        box_model("english")
    path.write_text("{")
    with pytest.raises(RegardError, match="card.json: is damaged: .*; restore it with"):
        regard.load("english", "cpu")


@pytest.mark.parametrize("name", KINDS)
def test_without_files_it_is_measured_on_those_that_come_with_it(folder: Path, name: str) -> None:
    found = regard.load(name, "cpu").evaluate()
    files = box_model(name).check_files()
    assert found.metrics == pytest.approx(regard.load(folder / name, "cpu").evaluate(*files).metrics, nan_ok=True)


def test_it_is_known_without_torch() -> None:
    code = "import regard.use.box as box, sys; box.box_models(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_the_nearest_name_is_suggested(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "translation-1").mkdir(parents=True)
    assert "did you mean 'en-fr'?" in folder_remedy(Path("en-frr"))
    assert "did you mean 'runs/translation-1'?" in folder_remedy(Path("runs/translaton-1"))
    (tmp_path / "runs" / "translation-2").mkdir()
    for name in ("runs/translation-2", "runs/en-frr", "runs/quite-another", "nowhere/translation-1"):
        assert folder_remedy(Path(name)) == FOLDER_REMEDY


def test_a_folder_that_hides_a_model_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trees").mkdir()
    with pytest.raises(RegardError, match="no recipe.toml; it hides the model 'trees' of `regard models`; rename the"):
        regard.load("trees", "cpu")
    with pytest.raises(RegardError, match="no recipe.toml; give the folder"):
        regard.load(tmp_path / "trees", "cpu")
