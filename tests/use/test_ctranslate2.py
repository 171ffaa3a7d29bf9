"""CTranslate2 as an engine: the same greedy output as our own search, for runs, Hugging Face and converted folders."""

import json
import shutil
from copy import deepcopy
from types import SimpleNamespace

import pytest
import torch

import regard
from regard.decode.choose import Sampling
from regard.errors import InputError, RegardError
from regard.models.store import read_model, save_model
from regard.use.ctranslate2 import CTranslate2Engine, through_ctranslate2
from regard.use.generate import GenerateOptions
from regard.use.load import open_folder
from regard.use.translate import TranslateOptions

from . import made
from .made import answers, model_of, run
from .theirs import LINES, write

TEXTS = ["one red dog sleeps", "", "two blue cats", "the dog", "x y z", "red", "the cat runs and the dog sleeps"]


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(made.RECIPE, "translation", "translator")


def both(folder):
    """Return the same model, run here and by the library."""
    return regard.load(folder, "cpu"), regard.load(folder, "cpu", engine="ctranslate2")


def floats(folder):
    """Convert the weights of a run to float32, like those of a trained run."""
    save_model(read_model(folder).float(), folder)
    return folder


@pytest.mark.parametrize("tokenizer", ["bpe", "char", "word"])
def test_the_same_greedy_translations(tokenizer, tmp_path):
    ours, theirs = both(floats(run("translation", tmp_path / "run", tokenizer)))
    assert theirs.translate(TEXTS, beam=1) == ours.translate(TEXTS, beam=1)
    assert theirs.translate(TEXTS, beam=1, longest_ratio=0.5) == ours.translate(TEXTS, beam=1, longest_ratio=0.5)
    assert theirs.translate(TEXTS, beam=1, prefix="blue") == ours.translate(TEXTS, beam=1, prefix="blue")
    few = answers(theirs.translate_lines(TEXTS, TranslateOptions(beam=1, batch_tokens=20)))
    assert [one.text for one in few] == ours.translate(TEXTS, beam=1)


def test_a_translation_may_be_empty(tmp_path):
    """A model that has learned little may end at once; the library writes at least one token by default."""
    folder = floats(run("translation", tmp_path / "run", "bpe"))
    model = read_model(folder)
    with torch.no_grad():
        model.decoder.norm.weight.zero_()
        model.decoder.norm.bias.fill_(1.0)
        model.embed.tokens.table.weight[regard.load(folder, "cpu").tokenizer.end] = 1.0
    save_model(model, folder)
    ours, theirs = both(folder)
    for beam in (1, 3):
        assert theirs.translate(TEXTS, beam=beam) == ours.translate(TEXTS, beam=beam) == [""] * len(TEXTS)


def test_the_library_uses_the_chosen_accelerator(tmp_path, monkeypatch):
    folder, used = tmp_path / "converted", {}
    regard.convert(floats(run("translation", tmp_path / "run", "bpe")), "ctranslate2", folder)
    engine = CTranslate2Engine(folder, torch.device("cuda:1"))
    monkeypatch.setattr(engine, "module", SimpleNamespace(Translator=lambda path, **settings: used.update(settings)))
    assert engine.model is None
    assert (used["device"], used["device_index"]) == ("cuda", 1)


def test_several_beams(tmp_path):
    ours, theirs = both(floats(run("translation", tmp_path / "run", "bpe")))
    found = list(answers(theirs.translate_lines(TEXTS, TranslateOptions(beam=4, n_best=3, length_penalty=0.0))))
    assert [len(one.candidates) for one in found] == [3, 1, 3, 3, 3, 3, 3]
    for one in found:
        scores = [candidate.score for candidate in one.candidates]
        assert scores == sorted(scores, reverse=True)
    assert found[1].text == ""
    with pytest.raises(InputError, match="CTranslate2 has no alignments; use another --engine"):
        answers(theirs.translate_lines(TEXTS, TranslateOptions(alignments=True)))
    assert len(theirs.translate(TEXTS, coverage=0.2)) == len(TEXTS)
    assert ours.bundle.external is None
    with (
        pytest.raises(InputError, match="CTranslate2 computes by itself and cannot be changed"),
        regard.intervene(theirs, "cross.1", attention="zero"),
    ):
        theirs.translate(TEXTS)
    with regard.intervene(ours, "cross.1", attention="zero"):
        assert len(ours.translate(TEXTS)) == len(TEXTS)


def test_translations_are_measured(tmp_path):
    ours, theirs = both(floats(run("translation", tmp_path / "run", "bpe")))
    found, wanted = theirs.evaluate(beam=1), ours.evaluate(beam=1)
    assert found == {name: wanted[name] for name in ("bleu", "bleu_lowercase", "chrf") if name in wanted}
    _, writer = both(floats(run("language", tmp_path / "other", "bpe")))
    with pytest.raises(InputError, match="CTranslate2 computes no probabilities; choose another --engine"):
        writer.evaluate()


@pytest.mark.parametrize("tokenizer", ["bpe", "char"])
def test_the_same_greedy_text(tokenizer, tmp_path):
    ours, theirs = both(floats(run("language", tmp_path / "run", tokenizer)))
    assert theirs.generate(TEXTS, tokens=9, temperature=0.0) == ours.generate(TEXTS, tokens=9, temperature=0.0)
    assert theirs.generate(TEXTS, tokens=90, temperature=0.0) == ours.generate(TEXTS, tokens=90, temperature=0.0)
    for text in TEXTS[:3]:
        assert "".join(theirs.stream(text, tokens=9, temperature=0.0)) == "".join(
            ours.stream(text, tokens=9, temperature=0.0)
        )
    (whole,) = ours.generate(["red"], tokens=9, temperature=0.0)
    stop = whole[2:4]
    assert theirs.generate(["red"], tokens=9, temperature=0.0, stop=[stop]) == [whole[: whole.index(stop)]]
    assert "".join(theirs.stream("red", tokens=9, temperature=0.0, stop=[stop])) == whole[: whole.index(stop)]


def test_sampling_and_beam_search(tmp_path):
    _, theirs = both(floats(run("language", tmp_path / "run", "bpe")))
    drawn = theirs.generate(TEXTS, tokens=9, temperature=1.5, top_k=40, top_p=0.9, seed=3)
    assert drawn == theirs.generate(TEXTS, tokens=9, temperature=1.5, top_k=40, top_p=0.9, seed=3)
    assert drawn != theirs.generate(TEXTS, tokens=9, temperature=1.5, top_k=40, top_p=0.9, seed=4)
    tries = list(answers(theirs.generate_lines(["red"], GenerateOptions(tokens=9, tries=3))))
    assert len(set(tries[0])) > 1
    searched = list(answers(theirs.generate_lines(TEXTS, GenerateOptions(tokens=5, beam=3, tries=2))))
    assert [len(texts) for texts in searched] == [2] * len(TEXTS)
    assert "".join(theirs.stream("red", tokens=5)) != ""
    with pytest.raises(InputError, match="min_p=0.1 is not supported by CTranslate2; use another --engine"):
        answers(theirs.generate_lines(["red"], GenerateOptions(sampling=Sampling(min_p=0.1))))


def test_a_converted_folder_needs_no_other_files(tmp_path):
    for kind in ("translation", "language"):
        folder = floats(run(kind, tmp_path / kind, "bpe"))
        ours = regard.load(folder, "cpu")
        regard.convert(folder, "ctranslate2", tmp_path / "whole" / kind)
        regard.convert(folder, "ctranslate2", tmp_path / "small" / kind, quantization="int8")
        whole, small = (regard.load(tmp_path / size / kind, "cpu") for size in ("whole", "small"))
        shutil.rmtree(folder)
        if kind == "translation":
            assert whole.translate(TEXTS, beam=1) == ours.translate(TEXTS, beam=1)
            assert len(small.translate(TEXTS)) == len(TEXTS)
        else:
            assert whole.generate(TEXTS, tokens=9, temperature=0.0) == ours.generate(TEXTS, tokens=9, temperature=0.0)
            assert len(small.generate(TEXTS, tokens=9)) == len(TEXTS)
        assert small.bundle.external.model.compute_type.startswith("int8")
        with pytest.raises(InputError, match="CTranslate2 cannot embed; use the model that it was converted from"):
            whole.embed(["red"])
        with pytest.raises(InputError, match="is a model for CTranslate2; leave --engine eager out"):
            regard.load(tmp_path / "whole" / kind, "cpu", engine="eager")


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_hugging_face_folders(kind, tmp_path):
    ours, theirs = both(write(kind, tmp_path / kind, spare=3, max_new_tokens=6, do_sample=False))
    assert theirs.generate(LINES) == ours.generate(LINES)
    regard.convert(tmp_path / kind, "ctranslate2", tmp_path / "out")
    again = regard.load(tmp_path / "out", "cpu")
    assert again.bundle.defaults == ours.bundle.defaults
    assert again.generate(LINES) == ours.generate(LINES)


def test_a_hugging_face_translator(tmp_path):
    ours, theirs = both(write("marian", tmp_path / "marian", num_beams=1))
    assert theirs.translate(LINES) == ours.translate(LINES)


def test_the_cache_notices_that_a_run_has_changed(tmp_path):
    folder = floats(run("language", tmp_path / "run", "bpe"))
    before = regard.load(folder, "cpu", engine="ctranslate2").generate(TEXTS, tokens=9, temperature=0.0)
    kept = list((tmp_path / "cache" / "ctranslate2").iterdir())
    assert len(kept) == 1
    times = {path: path.stat().st_mtime_ns for path in kept[0].iterdir()}
    assert regard.load(folder, "cpu", engine="ctranslate2").generate(TEXTS, tokens=9, temperature=0.0) == before
    assert {path: path.stat().st_mtime_ns for path in kept[0].iterdir()} == times
    model = deepcopy(model_of("language", "bpe", None, "model.depth=1")).float()  # that of other tests stays as it is
    save_model(model, folder)
    ours, theirs = both(folder)
    assert (
        theirs.generate(TEXTS, tokens=9, temperature=0.0) == ours.generate(TEXTS, tokens=9, temperature=0.0) != before
    )


def test_other_weights_of_the_same_run_are_converted_for_themselves(tmp_path):
    """The weights of a step are not in the files that the best weights are in."""
    folder = floats(run("language", tmp_path / "run", "bpe"))
    device = torch.device("cpu")
    bundle = open_folder(folder, device)
    best = through_ctranslate2(bundle, folder, device).external
    assert through_ctranslate2(bundle, folder, device).external.folder == best.folder
    with torch.no_grad():
        next(bundle.model.parameters()).neg_()
    assert through_ctranslate2(bundle, folder, device).external.folder != best.folder


def test_models_that_cannot_be_run(tmp_path):
    with pytest.raises(RegardError, match="cannot be run by CTranslate2: model: CTranslate2 runs .*; use another"):
        regard.load(run("masked", tmp_path / "masked"), "cpu", engine="ctranslate2")
    with pytest.raises(RegardError, match="cannot be written for CTranslate2: model: CTranslate2 runs encoder-decoder"):
        regard.convert(tmp_path / "masked", "ctranslate2", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    regard.convert(floats(run("language", tmp_path / "run")), "ctranslate2", tmp_path / "out")
    (tmp_path / "out" / "model.bin").write_bytes(b"nothing")
    with pytest.raises(RegardError, match="out: CTranslate2 cannot load it"):
        regard.load(tmp_path / "out", "cpu").generate(["red"])
    (tmp_path / "out" / "regard.json").write_text(json.dumps({"frame": {}}))
    with pytest.raises(RegardError, match="model: missing; must be"):
        regard.load(tmp_path / "out", "cpu")
    (tmp_path / "out" / "regard.json").unlink()
    with pytest.raises(RegardError, match="has no regard.json, so it was not written by `regard convert`; convert the"):
        regard.load(tmp_path / "out", "cpu")


def test_the_precision_is_passed_to_the_library(tmp_path):
    """For a precision that this machine cannot compute, the error is the library's."""
    folder = floats(run("translation", tmp_path / "run"))
    ours = regard.load(folder, "cpu").translate(TEXTS, beam=1)
    for precision, numbers in (("float32", "float32"), ("int8", "int8_float32")):
        theirs = regard.load(folder, "cpu", engine="ctranslate2", precision=precision)
        assert [bool(text) for text in theirs.translate(TEXTS, beam=1)] == [bool(text) for text in ours]
        assert theirs.bundle.external.model.compute_type == numbers
    with pytest.raises(RegardError, match="CTranslate2 cannot load it: Requested float16 compute type"):
        _ = theirs.bundle.external.in_precision("float16").model
