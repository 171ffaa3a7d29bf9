"""Models written for Hugging Face: `transformers` loads them without warnings and gives the same results."""

import json
import logging

import pytest
import torch
import transformers
from rich.console import Console
from safetensors.torch import load_file

import regard
from regard.errors import InputError, RegardError
from regard.models.store import save_model
from regard.use import convert as conversion

from ..tasks.corpora import sentences
from ..tasks.corpora import write as write_lines
from . import made
from .made import CLASSES, image, model_of, run
from .theirs import LINES, theirs, write

TEXTS = ["one red dog sleeps", "two blue cats", "the dog, red", "x"]
AUTO = {
    "translation": transformers.AutoModelForSeq2SeqLM,
    "language": transformers.AutoModelForCausalLM,
    "masked": transformers.AutoModelForMaskedLM,
    "classification": transformers.AutoModelForSequenceClassification,
    "vision": transformers.AutoModelForImageClassification,
}


@pytest.fixture
def written(tmp_path, monkeypatch, caplog):
    """Write a run of some kind for Hugging Face and load it with `transformers`, which must not warn."""

    def write_and_read(kind, tokenizer="word"):
        if kind == "translation":  # Marian has another order of sines and cosines than the paper
            monkeypatch.setitem(made.RECIPE, "translation", "translator")
        folder = run(kind, tmp_path / kind, tokenizer)
        if kind == "classification":  # BERT has one more layer there
            save_model(model_of(kind, tokenizer, None, "model.head.transform=tanh"), folder)
        out = tmp_path / f"{kind}-theirs"
        regard.convert(folder, "huggingface", out)
        assert not list(tmp_path.glob("*.part"))
        logging.getLogger("transformers").propagate = True
        with caplog.at_level(logging.INFO, "transformers"):
            model, report = AUTO[kind].from_pretrained(out, output_loading_info=True)
            words = None if kind == "vision" else transformers.AutoTokenizer.from_pretrained(out)
        assert not any(report.values()), report
        assert not [record.message for record in caplog.records if record.levelno >= logging.WARNING]
        return regard.load(folder, "cpu"), model.eval(), words

    return write_and_read


def test_another_recipe_is_another_model_whatever_was_tested_before(monkeypatch):
    before = model_of("translation", "word").config
    monkeypatch.setitem(made.RECIPE, "translation", "translator")
    assert model_of("translation", "word").config != before


@pytest.mark.parametrize("tokenizer", ["word", "char", "bpe", "unigram"])
def test_texts_become_the_same_ids(written, tokenizer):
    ours, _, words = written("language", tokenizer)
    for text in TEXTS:
        wanted = [*ours.bundle.template.before, *ours.tokenizer.encode([text])[0].tolist(), *ours.bundle.template.after]
        assert words(text)["input_ids"] == wanted
        assert words.decode(wanted, skip_special_tokens=True) == ours.tokenizer.decode([wanted])[0]
    names = ("pad", "unk", "eos", "mask")
    found = [getattr(words, f"{name}_token_id") for name in names]
    assert found == [ours.tokenizer.pad, ours.tokenizer.unk, ours.tokenizer.end, ours.tokenizer.mask]


def test_a_language_model_writes_the_same(written):
    ours, model, words = written("language", "bpe")
    for text in TEXTS:
        given = words([text], return_tensors="pt")
        wanted = ours.model(given["input_ids"])
        torch.testing.assert_close(model(**given).logits, wanted, atol=1e-8, rtol=0)
        made = model.generate(**given, do_sample=False, max_new_tokens=9)
        (mine,) = ours.generate([text], tokens=9, temperature=0.0)
        assert words.decode(made[0], skip_special_tokens=True) == text + mine
    assert model.generation_config.suppress_tokens == list(ours.bundle.template.never)


def test_a_translator_writes_the_same(written):
    ours, model, words = written("translation", "bpe")
    for text in TEXTS:
        given = words([text], return_tensors="pt")
        limit = 2 * given["input_ids"].shape[1] + 10
        given.pop("token_type_ids", None)
        made = model.generate(**given, do_sample=False, num_beams=1, max_new_tokens=limit)
        assert ours.translate([text], beam=1) == [words.decode(made[0], skip_special_tokens=True)]
    long = words([" ".join(TEXTS * 9)], return_tensors="pt", truncation=True)
    assert long["input_ids"].shape[1] == ours.bundle.context  # the length that it was trained on
    model.generate(**long, min_new_tokens=200, max_new_tokens=200)  # their position table is long enough


@pytest.mark.parametrize("tokenizer", ["bpe", "unigram"])
def test_a_mask_includes_the_space_before_it_as_the_token_of_a_word_does(written, tokenizer):
    ours, model, words = written("masked", tokenizer)
    given = words([f"two {words.mask_token} cats"], return_tensors="pt")
    scores = model(**given).logits[given["input_ids"] == words.mask_token_id][0]
    scores[list(ours.bundle.template.never)] = -torch.inf
    ((guesses,),) = ours.fill(["two [MASK] cats"], top=3)
    found = scores.softmax(-1).topk(3)
    assert [one.probability for one in guesses] == pytest.approx(found.values.tolist())


def test_masked_words_are_the_same(written):
    ours, model, words = written("masked")
    given = words(["two [MASK] cats".replace("[MASK]", words.mask_token)], return_tensors="pt")
    scores = model(**given).logits[given["input_ids"] == words.mask_token_id][0]
    scores[list(ours.bundle.template.never)] = -torch.inf
    ((guesses,),) = ours.fill(["two [MASK] cats"], top=3)
    found = scores.softmax(-1).topk(3)
    assert [one.probability for one in guesses] == pytest.approx(found.values.tolist())
    assert [one.label for one in guesses] == words.convert_ids_to_tokens(found.indices.tolist())


def test_classes_are_the_same(written):
    ours, model, words = written("classification")
    assert tuple(model.config.id2label.values()) == CLASSES
    for text in TEXTS[:2]:
        chances = model(**words([text], return_tensors="pt")).logits.softmax(-1)[0]
        ((best,),) = ours.classify([text])
        assert (best.label, best.probability) == (CLASSES[int(chances.argmax())], pytest.approx(float(chances.max())))


def test_images_are_the_same(written, tmp_path):
    ours, _, _ = written("vision")
    again = regard.load(tmp_path / "vision-theirs", "cpu")
    path = image(tmp_path / "a.png")
    assert again.classify([path], top=3) == ours.classify([path], top=3)
    one, two = again.bundle, ours.bundle
    assert (one.mean, one.std, one.classes) == (two.mean, two.std, two.classes)
    table = json.loads((tmp_path / "vision-theirs" / "preprocessor_config.json").read_text())
    patches = ours.model.patches
    assert table["size"] == {"height": patches.height, "width": patches.width}


@pytest.mark.parametrize("kind", ["language", "translation"])
def test_the_written_folder_works_like_the_run(written, kind, tmp_path):
    ours, _, _ = written(kind, "bpe")
    again = regard.load(tmp_path / f"{kind}-theirs", "cpu")
    if kind == "language":
        assert again.generate(TEXTS, tokens=8) == ours.generate(TEXTS, tokens=8)
    else:
        assert again.translate(TEXTS) == ours.translate(TEXTS)


# --- errors ----------------------------------------------------------------------------------------------------------


def test_models_that_cannot_be_expressed_are_rejected_before_anything_is_written(tmp_path):
    folder = run("translation", tmp_path / "run")
    with pytest.raises(RegardError) as found:
        regard.convert(folder, "huggingface", tmp_path / "out")
    reason = "the nearest is marian: model.embed.position.layout: interleaved instead of halves"
    assert str(found.value).startswith(f"{folder}: cannot be written for Hugging Face: no Hugging Face architecture")
    assert reason in str(found.value)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_mistakes(tmp_path, monkeypatch):
    folder = run("language", tmp_path / "run")
    with pytest.raises(InputError, match=r"unknown format 'hugingface'; did you mean 'huggingface'\?"):
        regard.convert(folder, "hugingface", tmp_path / "out")
    with pytest.raises(InputError, match="quantization='int8' is for ctranslate2 only; leave it out"):
        regard.convert(folder, "huggingface", tmp_path / "out", quantization="int8")
    with pytest.raises(InputError, match=r"unknown quantization 'int9'; did you mean 'int8'\?"):
        regard.convert(folder, "ctranslate2", tmp_path / "out", quantization="int9")
    with pytest.raises(RegardError, match=r"run: is not empty; choose another folder"):
        regard.convert(folder, "huggingface", folder)
    with pytest.raises(RegardError, match=r"recipe.toml: is a file; choose another folder"):
        regard.convert(folder, "huggingface", folder / "recipe.toml")
    with pytest.raises(RegardError, match="nowhere: no such folder"):
        regard.convert(tmp_path / "nowhere", "huggingface", tmp_path / "out")
    with pytest.raises(RegardError, match="recipe.toml: cannot be written: File exists; choose another folder"):
        regard.convert(folder, "huggingface", folder / "recipe.toml" / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"^\.: is the current folder; name a new folder$"):
        regard.convert(folder, "huggingface", ".")
    (tmp_path / "empty").mkdir()
    regard.convert(folder, "huggingface", tmp_path / "empty")
    assert (tmp_path / "empty" / "config.json").exists()


def test_other_folders_are_left_alone(tmp_path, monkeypatch):
    """A folder named out.part belongs to the user; after an error nothing of ours is left."""
    folder = run("language", tmp_path / "run")
    (tmp_path / "out.part").mkdir()
    (tmp_path / "out.part" / "precious").touch()

    def fail(*arguments: object) -> None:
        raise KeyError

    with monkeypatch.context() as patch:
        patch.setattr(conversion, "write_huggingface_folder", fail)
        with pytest.raises(KeyError):
            regard.convert(folder, "huggingface", tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.part", "run"]
    regard.convert(folder, "huggingface", tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "out.part", "run"]
    assert (tmp_path / "out.part" / "precious").exists()


# --- from Hugging Face folders ---------------------------------------------------------------------------------------


def test_an_old_folder_is_written_again(tmp_path):
    """From a pickle to safetensors; everything else stays the same."""
    folder = write("gpt2", tmp_path / "old", do_sample=True, temperature=0.6)
    weights = load_file(folder / "model.safetensors")
    torch.save(weights, folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    with pytest.raises(RegardError, match="is a pickle"):
        regard.convert(folder, "huggingface", tmp_path / "new")
    regard.convert(folder, "huggingface", tmp_path / "new", allow_pickle=True)
    again = load_file(tmp_path / "new" / "model.safetensors")
    assert all(torch.equal(tensor, again[name]) for name, tensor in weights.items() if name in again)
    ours = regard.load(tmp_path / "new", "cpu")
    assert ours.bundle.defaults["temperature"] == 0.6
    model, words = theirs("gpt2", tmp_path / "new")
    ids = words(LINES[0], return_tensors="pt")["input_ids"]
    torch.testing.assert_close(model(ids).logits, ours.model(ids), atol=1e-5, rtol=0)


def test_imported_trained_and_exported_again(tmp_path, monkeypatch):
    """From a Hugging Face folder through training back to a Hugging Face folder, with the same tokens."""
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    text = write_lines(tmp_path / "a.txt", sentences(120))
    brief = ["train.steps=3", "train.validate_every=3", "train.checkpoint_every=3", "train.tokens=64"]
    for kind in ("llama", "bart"):
        folder = write(kind, tmp_path / kind, spare=2)
        task = {"kind": "language", "train": [text], "window": 16}
        if kind == "bart":
            task = {"kind": "translation", "source": [text], "target": [text]}
        regard.train(task, *brief, init_from=folder, run=f"{kind}-run", console=Console(quiet=True))
        regard.convert(f"{kind}-run", "huggingface", f"{kind}-back")
        ours = regard.load(f"{kind}-run", "cpu")
        model, words = theirs(kind, tmp_path / f"{kind}-back")
        before = transformers.AutoTokenizer.from_pretrained(folder)
        plain = [tokenizer(LINES[0], add_special_tokens=False)["input_ids"] for tokenizer in (before, words)]
        assert plain[0] == plain[1]
        given = words([LINES[0]], return_tensors="pt")
        given.pop("token_type_ids", None)
        made = model.generate(**given, do_sample=False, max_new_tokens=12)
        if kind == "llama":
            (mine,) = ours.generate(LINES[:1], tokens=12, temperature=0.0)
            assert words.decode(made[0], skip_special_tokens=True) == LINES[0] + mine
        else:
            ids = given["input_ids"]
            target = torch.tensor([[ours.bundle.first, 7, 9]])
            wanted = model(input_ids=ids, decoder_input_ids=target).logits
            torch.testing.assert_close(ours.model(ids, target), wanted, atol=1e-4, rtol=1e-4)
