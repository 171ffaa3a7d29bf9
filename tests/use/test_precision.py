"""The precision in which a model computes, and combinations that are not supported."""

import pytest
import torch

import regard
from regard.decode.quantise import Int8
from regard.errors import InputError
from regard.models.store import read_model, save_model
from regard.use.precision import check_combination, dtype_for

from .made import CLASSES, image, model_of, run
from .theirs import write

TEXTS = ["one red dog sleeps", "", "two blue cats", "the dog", "red", "the cat runs and the dog sleeps"]


def folder_of(kind, path, dtype=torch.float32):
    """A run whose weights are in this precision."""
    folder = run(kind, path)
    save_model(read_model(folder).to(dtype), folder)
    return folder


def numbers(model):
    return {parameter.dtype for parameter in model.parameters()}


@pytest.mark.parametrize("stored", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_on_the_cpu_nothing_is_below_float32(stored, tmp_path):
    folder = folder_of("language", tmp_path / "run", stored)
    assert numbers(regard.load(folder, "cpu").model) == {torch.promote_types(stored, torch.float32)}
    assert numbers(regard.load(folder, "cpu", precision="float32").model) == {torch.float32}


def test_a_folder_in_half_precision_is_used_as_it_would_be_in_float32(tmp_path):
    folder = write("gpt2", tmp_path / "theirs")
    table = (folder / "config.json").read_text()
    assert '"float32"' in table
    (folder / "config.json").write_text(table.replace('"float32"', '"bfloat16"'))
    assert numbers(regard.load(folder, "cpu").model) == {torch.float32}


@pytest.mark.parametrize("kind", ["translation", "language", "masked", "classification", "vision"])
def test_int8_answers_nearly_as_float32(kind, tmp_path, monkeypatch):
    folder = folder_of(kind, tmp_path / "run")
    plain, small = (regard.load(folder, "cpu", precision=name) for name in ("float32", "int8"))
    assert not any(isinstance(module, Int8) for module in plain.model.modules())
    assert any(isinstance(module, Int8) for module in small.model.modules())
    assert not small.model.training
    texts = [str(image(tmp_path / f"{seed}.png", seed)) for seed in range(3)] if kind == "vision" else TEXTS[2:]
    wanted, found = (torch.from_numpy(loaded.embed(texts)) for loaded in (plain, small))
    assert torch.cosine_similarity(wanted, found).min() > 0.99
    if kind in ("language", "translation"):
        monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
        beam = 1 if kind == "translation" else None
        assert small.evaluate(beam=beam)["loss"] == pytest.approx(plain.evaluate(beam=beam)["loss"], rel=0.05)
    if kind == "translation":
        assert [text != "" for text in small.translate(TEXTS)] == [text != "" for text in TEXTS]
    if kind == "classification":
        for one, other in zip(plain.classify(TEXTS, top=3), small.classify(TEXTS, top=3), strict=True):
            chances = {guess.label: guess.probability for guess in one}
            assert all(abs(guess.probability - chances[guess.label]) < 0.1 for guess in other)


def test_pictures_fit_a_model_in_bfloat16():
    model = model_of("vision")
    wanted = model(torch.zeros(2, 3, 8, 12))
    assert wanted.dtype == torch.float64
    half = regard.build(model.config, dtype=torch.bfloat16, seed=0)
    assert half(torch.zeros(2, 3, 8, 12)).shape == (2, len(CLASSES))


def test_on_cuda_what_writes_is_in_bfloat16_and_what_reads_as_it_was_stored():
    writer, reader = model_of("language"), model_of("classification")
    assert dtype_for(writer, "auto", "cuda") == torch.bfloat16
    assert dtype_for(writer, "auto", "mps") == torch.float64
    assert dtype_for(reader, "auto", "cuda") == torch.float64
    for model in (writer, reader):
        assert dtype_for(model, "float32", "cuda") == torch.float32
        assert dtype_for(model, "bfloat16", "cuda") == torch.bfloat16
    check_combination("bfloat16", "cuda", "captured")


WRONG = {
    ("int4", "auto"): "unknown precision 'int4'; did you mean 'int8'? (one of auto, bfloat16, float32, int8)",
    ("bfloat16", "auto"): "bfloat16 is slow on the CPU; use --precision int8 or float32, or another --device",
    ("int8", "compiled"): "int8 does not work with the engine 'compiled'; leave one of them out",
}


@pytest.mark.parametrize(("precision", "engine"), WRONG)
def test_unsupported_combinations(precision, engine, tmp_path):
    folder = run("language", tmp_path / "run")
    with pytest.raises(InputError) as found:
        regard.load(folder, "cpu", engine=engine, precision=precision)
    assert str(found.value) == WRONG[precision, engine]


def test_int8_is_for_the_cpu():
    with pytest.raises(
        InputError, match="^int8 works on the CPU only, not on cuda; use --device cpu, or --precision bf"
    ):
        check_combination("int8", "cuda", "auto")
