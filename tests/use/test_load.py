"""Opening folders, and verbs that do not fit."""

import pickle
from copy import deepcopy
from pathlib import Path

import pytest
import torch

import regard
from regard.decode.static import StaticEngine
from regard.errors import NOT_FINITE, InputError, RegardError
from regard.models.store import save_model
from regard.models.template import Template
from regard.use.bundle import Bundle
from regard.use.generate import GenerateOptions
from regard.use.load import choose_engine, make_engine
from regard.use.loaded_model import LoadedModel

from ..tasks.corpora import walks
from .made import loaded, model_of, run, tokenizer_of


@pytest.mark.parametrize("kind", ["translation", "language", "masked", "classification", "vision"])
def test_a_folder_is_opened_with_what_its_task_says(kind, tmp_path):
    ready = regard.load(run(kind, tmp_path / "run"), device="cpu")
    wanted = loaded(kind)
    assert ready.bundle.name == str(tmp_path / "run")
    assert not ready.model.training
    assert (ready.bundle.template, ready.bundle.classes) == (wanted.bundle.template, wanted.bundle.classes)
    assert ready.bundle.longest == {"translation": 12, "classification": 256, "vision": None}.get(kind, 16)
    assert (ready.bundle.mean, ready.bundle.std) == (wanted.bundle.mean, wanted.bundle.std)
    assert (ready.tokenizer is None) == (kind == "vision")
    if kind == "language":
        assert ready.generate(["red dog"], tokens=5) == wanted.generate(["red dog"], tokens=5)


@pytest.mark.parametrize("kind", ["translation", "language", "classification"])
@pytest.mark.parametrize("copied", [deepcopy, lambda model: pickle.loads(pickle.dumps(model))], ids=["copy", "pickle"])
def test_a_copy_has_weights_of_its_own(kind, copied, tmp_path):
    """What changes the copy changes its answers, and not those of the original."""
    ready = regard.load(run(kind, tmp_path / "run"), device="cpu")
    answer = {
        "translation": lambda model: model.translate(["red dog"], beam=1),
        "language": lambda model: model.generate(["red dog"], tokens=5, temperature=0.0),
        "classification": lambda model: model.classify(["red dog"]),
    }[kind]
    other = copied(ready)
    before = answer(ready)
    assert answer(other) == before
    with torch.no_grad():
        for parameter in other.model.parameters():
            parameter.zero_()
    assert answer(ready) == before
    assert answer(other) != before


@pytest.mark.compile
def test_a_copy_of_a_compiled_model_is_compiled_for_the_copy(tmp_path):
    ready = regard.load(run("language", tmp_path / "run"), device="cpu", engine="compiled")
    other = deepcopy(ready)
    assert isinstance(other.bundle.engine, StaticEngine)
    assert other.bundle.engine.shapes.model is other.model


def test_templates_are_those_of_training():
    words = tokenizer_of()
    start, end = words.start, words.end
    assert model_of("translation").template(words) == Template((), (end,), start)
    assert model_of("language").template(words).before == (end,)
    assert model_of("classification").template(words) == Template((start,), (end,))
    assert end not in model_of("language").template(words).never
    assert end in model_of("masked").template(words).never


WRONG = {
    ("translation", "generate"): "here: is a translator and cannot generate; use `translate` or `embed`",
    ("language", "translate"): "here: is a language model and cannot translate; use `generate` or `embed`",
    ("masked", "classify"): "here: is a masked language model and cannot classify; use `fill` or `embed`",
    ("classification", "fill"): "here: is a classifier of texts and cannot fill; use `classify` or `embed`",
    ("vision", "translate"): "here: is a classifier of images and cannot translate; use `classify` or `embed`",
}


@pytest.mark.parametrize(("kind", "verb"), WRONG)
def test_the_wrong_verb_says_which_fits(kind, verb):
    with pytest.raises(InputError) as found:
        getattr(loaded(kind), verb)(["red"])
    assert str(found.value) == WRONG[kind, verb]
    if verb == "generate":
        with pytest.raises(InputError, match="cannot generate"):
            loaded(kind).stream("red")


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("kind", "verb", "arguments", "options", "message"),
    [
        ("language", "generate", 3, {}, "prompts=3 must be a list of texts"),
        ("language", "generate", ["red", 3], {}, "prompts[1]=3 must be a text"),
        ("language", "stream", ["red"], {}, "prompt=['red'] must be one text"),
        ("language", "stream", 3, {}, "prompt=3 must be one text"),
        ("language", "embed", {"red": 1}, {}, "texts={'red': 1} must be a list of texts"),
        ("translation", "translate", None, {}, "texts=None must be a list of texts"),
        ("translation", "translate", ["red"], {"beam": "5"}, 'beam="5" must be a whole number, at least 1'),
        ("translation", "translate", ["red"], {"prefix": 3}, "prefix=3 must be text"),
        ("language", "generate", ["red"], {"stop": 3}, "stop=3 must be a list of texts"),
        ("language", "generate", ["red"], {"stop": ["dog", 3]}, "stop[1]=3 must be a text"),
        ("classification", "classify", ["red"], {"top": 1.5}, "top=1.5 must be a whole number, at least 1"),
    ],
)
def test_arguments_that_are_not_texts(kind, verb, arguments, options, message):
    """The type checker would reject them first."""
    with pytest.raises(RegardError) as error:
        getattr(loaded(kind), verb)(arguments, **options)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("language", "tokens"),
        ("masked", "tokens"),
        ("translation", "tokens"),
        ("vision", "images"),
    ],
)
def test_a_list_in_place_of_a_tensor(kind, name):
    model = loaded(kind).model
    arguments = [[[1, 2]]] * (2 if model.has_source else 1)
    with pytest.raises(InputError, match=rf"^{name}=\[\[1, 2\]\] must be a tensor; torch.tensor makes one of a list$"):
        model(*arguments)


def test_a_model_says_in_a_line_what_it_is(tmp_path):
    assert repr(loaded("translation")) == "<here: a translator on cpu; can translate, embed>"
    assert str(loaded("vision")) == "<here: a classifier of images on cpu; can classify, embed>"


def test_folders_that_cannot_be_opened(tmp_path):
    with pytest.raises(RegardError, match=r"none: no such folder; give"):
        regard.load(tmp_path / "none")
    with pytest.raises(RegardError, match=r"is not the folder of a run: there is no recipe.toml; give the folder that"):
        regard.load(tmp_path)
    save_model(model_of("language"), tmp_path)
    with pytest.raises(RegardError, match="holds a model but no run"):
        regard.load(tmp_path)
    folder = run("language", tmp_path / "run")
    (folder / "tokenizer.json").unlink()
    with pytest.raises(RegardError, match=r"run: holds no tokenizer.json"):
        regard.load(folder)


def test_a_model_of_text_needs_a_tokenizer():
    with pytest.raises(InputError, match=r"^here: has no tokenizer.json; put the one it was trained with"):
        LoadedModel(Bundle(model_of("language"), "here")).generate(["red"])


def test_engines():
    with pytest.raises(InputError, match=r"unknown engine 'eagre'; did you mean 'eager'\?"):
        make_engine("eagre", model_of("language"))
    assert make_engine("auto", model_of("vision")) is None
    assert make_engine("eager", model_of("language")) is not None
    with pytest.raises(RegardError, match="the engine 'captured' is for CUDA only"):
        make_engine("captured", model_of("language"))


def test_experts_that_cannot_be_captured_are_decoded_eagerly():
    assert choose_engine("auto", "cuda", static=False) == "eager"
    assert choose_engine("auto", "cuda", static=True) == "captured"
    assert choose_engine("auto", "cpu", static=False) == choose_engine("eager", "cuda", static=False) == "eager"
    assert choose_engine("compiled", "cpu", static=False) == "compiled"  # nothing is captured there
    for name in ("captured", "compiled"):
        with pytest.raises(InputError, match=rf"'{name}' cannot capture experts in this precision.*use --precision"):
            choose_engine(name, "cuda", static=False)


def test_the_device_is_chosen(tmp_path):
    folder = run("language", tmp_path / "run")
    with pytest.raises(RegardError, match="unknown device 'quantum'; use auto, "):
        regard.load(folder, device="quantum")
    assert regard.load(folder, device="cpu").device == torch.device("cpu")


@pytest.mark.parametrize(
    ("kind", "ask"),
    [
        ("translation", lambda model: model.translate(["red dog"])),
        ("translation", lambda model: model.translate(["red dog"], coverage=0.2)),
        ("parsing", lambda model: model.parse(["red dog"])),
        ("language", lambda model: list(model.generate_lines(["red dog"], GenerateOptions(beam=2)))),
        ("language", lambda model: list(model.generate_lines(["red dog"]))),
        ("language", lambda model: list(model.stream("red dog"))),
        ("classification", lambda model: model.classify(["red dog"])),
        ("masked", lambda model: model.fill(["red [MASK]"])),
        ("masked", lambda model: model.embed(["red dog"])),
        ("language", lambda model: model.embed(["red dog"], pool="last")),
        ("language", lambda model: model.ablate()),
        ("residues", lambda model: model.annotate(["ACDEFG"])),
        ("trajectories", lambda model: model.forecast(walks(Path("walks.txt")))),
    ],
)
def test_weights_that_diverged_have_no_best_answer(kind, ask, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    model = regard.load(run(kind, tmp_path / "run"), device="cpu")
    with torch.no_grad():
        for weights in model.model.parameters():
            weights.fill_(torch.nan)
    with pytest.raises(InputError) as error:
        ask(model)
    assert str(error.value).removeprefix(f"{tmp_path / 'run'}: ") == NOT_FINITE
