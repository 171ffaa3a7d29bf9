"""Hugging Face folders with every verb: the same results as `transformers`."""

import json
import re
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import regard
from regard.decode.choose import Sampling
from regard.errors import InputError, RegardError
from regard.hub.folder import save_huggingface
from regard.use.generate import generate_options
from regard.use.translate import translate_options

from ..tasks.corpora import sentences
from ..tasks.corpora import write as write_lines
from .made import image
from .theirs import KINDS, LINES, theirs, write


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A folder of each kind."""
    home = tmp_path_factory.mktemp("theirs")
    return {kind: write(kind, home / kind) for kind in KINDS}


def greedy(kind, folder, text, tokens):
    """Return what `transformers` generates."""
    model, tokenizer = theirs(kind, folder)
    given = {
        name: tensor for name, tensor in tokenizer([text], return_tensors="pt").items() if name != "token_type_ids"
    }
    length = given["input_ids"].shape[1]
    if not length:
        given = {"input_ids": torch.tensor([[model.config.bos_token_id]])}
        length = 1
    made = model.generate(**given, max_new_tokens=tokens, do_sample=False, num_beams=1, pad_token_id=1)[0]
    made = made if model.config.is_encoder_decoder else made[length:]
    return tokenizer.decode(made, skip_special_tokens=True)


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_the_same_greedy_text(kind, folders):
    ours = regard.load(folders[kind], "cpu")
    found = ours.generate(LINES, tokens=10, temperature=0.0)
    whole = [line + text for line, text in zip(LINES, found, strict=True)]
    assert whole == [line + greedy(kind, folders[kind], line, 10) for line in LINES]
    assert "".join(ours.stream(LINES[0], tokens=10, temperature=0.0)) == found[0]


def test_an_empty_prompt_starts_with_the_bos_token(folders):
    (found,) = regard.load(folders["gpt2"], "cpu").generate([""], tokens=8, temperature=0.0)
    assert found == greedy("gpt2", folders["gpt2"], "", 8)


@pytest.mark.parametrize("kind", ["marian", "bart", "t5"])
def test_the_same_greedy_translation(kind, folders):
    ours = regard.load(folders[kind], "cpu")
    limits = [
        2 * len(ours.bundle.template.before + ours.bundle.template.after) + 2 * len(ids) + 10
        for ids in ours.tokenizer.encode(LINES)
    ]
    wanted = [greedy(kind, folders[kind], line, limit) for line, limit in zip(LINES, limits, strict=True)]
    assert ours.translate(LINES, beam=1) == wanted
    assert any(wanted)


def test_the_same_classes(folders):
    for kind in ("bert-classes", "gpt2-classes"):
        ours = regard.load(folders[kind], "cpu")
        model, tokenizer = theirs(kind, folders[kind])
        for line, guesses in zip(LINES, ours.classify(LINES, top=3), strict=True):
            ids = tokenizer([line], return_tensors="pt")["input_ids"]
            chances = model(input_ids=ids).logits.softmax(-1)[0]
            names = model.config.id2label
            assert {one.label: pytest.approx(one.probability, abs=1e-5) for one in guesses} == {
                names[number]: pytest.approx(float(chance), abs=1e-5) for number, chance in enumerate(chances)
            }


def test_several_labels_of_a_text_have_probabilities_of_their_own(folders, tmp_path):
    """As in the pipeline of `transformers`: a sigmoid for each label, also where there is only one."""
    folder = tmp_path / "several"
    shutil.copytree(folders["bert-classes"], folder)
    table = json.loads((folder / "config.json").read_text())

    def check(folder):
        model, tokenizer = theirs("bert-classes", folder)
        (guesses,) = regard.load(folder, "cpu").classify(LINES[:1], top=3)
        with torch.no_grad():
            wanted = model(**tokenizer(LINES[:1], return_tensors="pt")).logits.sigmoid()[0].tolist()
        found = {guess.label: guess.probability for guess in guesses}
        assert found == pytest.approx(dict(zip(model.config.id2label.values(), wanted, strict=True)), abs=1e-5)

    (folder / "config.json").write_text(json.dumps({**table, "problem_type": "multi_label_classification"}))
    check(folder)
    regard.convert(folder, "huggingface", tmp_path / "again")
    check(tmp_path / "again")
    (folder / "config.json").write_text(json.dumps({**table, "problem_type": "regression"}))
    with pytest.raises(InputError, match="predicts a number and not a label"):
        regard.load(folder, "cpu").classify(LINES[:1])
    (folder / "config.json").write_text(json.dumps({**table, "problem_type": "ranking"}))
    with pytest.raises(RegardError, match="config.json: problem_type='ranking' must be one of single_label"):
        regard.load(folder, "cpu")
    (folder / "config.json").write_text(json.dumps({**table, "id2label": {"0": "fit"}, "label2id": {"fit": 0}}))
    weights = load_file(folder / "model.safetensors")
    small = {name: tensor[:1].clone() if name.startswith("classifier.") else tensor for name, tensor in weights.items()}
    save_file(small, folder / "model.safetensors", metadata={"format": "pt"})
    check(folder)


@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_the_same_words_for_a_mask(kind, folders):
    ours = regard.load(folders[kind], "cpu")
    model, tokenizer = theirs(kind, folders[kind])
    ((guesses,),) = ours.fill(["two [MASK] cats"], top=3)
    text = f"two{'' if kind == 'roberta' else ' '}{tokenizer.mask_token} cats"
    ids = tokenizer([text], return_tensors="pt")["input_ids"]
    chances = model(input_ids=ids).logits[ids == tokenizer.mask_token_id].softmax(-1)[0].topk(3)
    assert [one.probability for one in guesses] == pytest.approx(chances.values.tolist(), abs=1e-5)
    assert [one.label for one in guesses] == [
        piece.strip() for piece in ours.tokenizer.pieces(chances.indices.tolist())
    ]


@pytest.mark.parametrize("kind", ["distilbert", "bert-vector"])
def test_a_bare_encoder_gives_the_mean_over_tokens_and_not_its_pooler(kind, folders):
    ours = regard.load(folders[kind], "cpu")
    model, tokenizer = theirs(kind, folders[kind])
    rows = [model(**tokenizer([line], return_tensors="pt")).last_hidden_state[0] for line in LINES]
    np.testing.assert_allclose(ours.embed(LINES), [row.mean(0).tolist() for row in rows], atol=1e-5)
    np.testing.assert_allclose(ours.embed(LINES, pool="first"), [row[0].tolist() for row in rows], atol=1e-5)
    with pytest.raises(InputError, match="pool='cls' is unknown; use one of first, last, max, mean,"):
        ours.embed(LINES, pool="cls")


def test_images_are_normalised_as_the_folder_says(folders, tmp_path):
    ours = regard.load(folders["vit"], "cpu")
    model, _ = theirs("vit", folders["vit"])
    path = image(tmp_path / "a.png")
    from PIL.Image import open as open_image

    pixels = (torch.tensor(np.asarray(open_image(path))) / 255 - 0.4) / 0.2
    chances = model(pixel_values=pixels.permute(2, 0, 1)[None].float()).logits.softmax(-1)[0]
    ((best,),) = ours.classify([path])
    assert best.label == ("cat", "dog")[int(chances.argmax())]
    assert best.probability == pytest.approx(float(chances.max()), abs=1e-5)
    (folders["vit"] / "preprocessor_config.json").rename(tmp_path / "kept.json")
    assert regard.load(folders["vit"], "cpu").bundle.mean == (0.5,) * 3
    for said, mean in (({"do_normalize": False}, (0.0,) * 3), ({"image_mean": [1, 0, 1]}, (1.0, 0.0, 1.0))):
        (folders["vit"] / "preprocessor_config.json").write_text(json.dumps(said))
        assert regard.load(folders["vit"], "cpu").bundle.mean == mean
    for said in ("3", "[1, 1]", "[1, NaN, 1]"):
        (folders["vit"] / "preprocessor_config.json").write_text(f'{{"image_std": {said}}}')
        with pytest.raises(RegardError, match="must be a list of numbers, one for each of the 3 channels"):
            regard.load(folders["vit"], "cpu")
    (tmp_path / "kept.json").rename(folders["vit"] / "preprocessor_config.json")


def test_an_image_of_one_channel_has_one_mean_by_default(tmp_path):
    sizes = ("dim=16", "depth=1", "layers.block.mixer.heads.heads=2", "layers.block.feedforward.hidden=32")
    patches = ("patches.height=8", "patches.width=8", "patches.patch=4", "patches.channels=1", "position.length=5")
    model = regard.build("vit", *(f"model.{change}" for change in (*sizes, *patches, "head.classes=2")), seed=0)
    save_huggingface(model, tmp_path / "grey")
    ours = regard.load(tmp_path / "grey", "cpu")
    assert (ours.bundle.mean, ours.bundle.std) == ((0.5,), (0.5,))
    ((best,),) = ours.classify([image(tmp_path / "a.png")])
    assert best.label in ours.classes


def test_evaluation_on_files(folders, tmp_path):
    text = write_lines(tmp_path / "a.txt", sentences(60))
    found = regard.load(folders["gpt2"], "cpu").evaluate(text)
    assert found["loss"] == pytest.approx(np.log(found["perplexity"]))
    pairs = regard.load(folders["bart"], "cpu").evaluate(text, text, beam=1)
    assert {"loss", "bleu", "chrf"} <= set(pairs)
    assert regard.load(folders["bert"], "cpu").evaluate(text)["loss"] > 0
    table = write_lines(tmp_path / "t.tsv", ["text\tlabel", *(f"{line}\tlow" for line in LINES[:3]), "red\thigh"])
    assert 0 <= regard.load(folders["bert-classes"], "cpu").evaluate(table)["accuracy"] <= 1
    for label in ("cat", "dog"):
        (tmp_path / "images" / label).mkdir(parents=True)
        image(tmp_path / "images" / label / "a.png", size=(8, 8))
    with pytest.raises(InputError, match="is not a run, so it has no validation data; name files"):
        regard.load(folders["vit"], "cpu").evaluate()
    with pytest.raises(InputError, match="is an encoder of texts, which no task measures; use another model"):
        regard.load(folders["distilbert"], "cpu").evaluate(text)


# --- generation settings ---------------------------------------------------------------------------------------------


def test_generation_defaults(tmp_path):
    folder = write("gpt2", tmp_path, do_sample=True, temperature=0.6, top_p=0.9, min_p=0.1, repetition_penalty=1.3)
    ours = regard.load(folder, "cpu")
    assert generate_options(ours.bundle, {}).sampling == Sampling(0.6, 50, 0.9, 0.1, 1.3)
    assert generate_options(ours.bundle, {"temperature": 1.0, "top_k": 7, "top_p": 1.0}).sampling == Sampling(
        1.0, 7, 1.0, 0.1, 1.3
    )
    for said, options in (
        ({}, (200, None, 0.8)),
        ({"max_new_tokens": 7, "do_sample": False}, (7, None, 0.0)),
        ({"num_beams": 3}, (200, 3, 0.8)),
        ({"num_beams": 1}, (200, None, 0.8)),
        ({"num_beams": 3, "do_sample": True, "top_k": 0}, (200, None, 1.0)),
    ):
        (folder / "generation_config.json").write_text(json.dumps(said))
        found = generate_options(regard.load(folder, "cpu").bundle, {})
        assert (found.tokens, found.beam, found.sampling.temperature) == options, said
        assert found.sampling.top_k is None
    (folder / "generation_config.json").write_text('{"num_beams": 3}')
    ours = regard.load(folder, "cpu")
    assert translate_options(ours.bundle, {}).beam == 3
    assert translate_options(ours.bundle, {"beam": 2}).beam == 2
    assert generate_options(ours.bundle, {"temperature": 0.5}).beam is None  # a temperature means sampling
    assert len(ours.generate(["red"], tokens=3)) == 1
    for key, value in (("temperature", '"warm"'), ("temperature", "NaN"), ("top_k", "Infinity"), ("top_k", "1" * 400)):
        (folder / "generation_config.json").write_text(f'{{"do_sample": true, "{key}": {value}}}')
        with pytest.raises(RegardError, match=f"generation_config.json: {key}=.* must be a number"):
            regard.load(folder, "cpu")


def test_settings_that_are_not_used_are_named(tmp_path):
    folder = write("gpt2", tmp_path, no_repeat_ngram_size=3, min_length=2, length_penalty=2.0)
    asked = "asks for no_repeat_ngram_size=3, min_length=2; not used here, so texts differ from transformers'"
    with pytest.warns(UserWarning, match=re.escape(f"{folder} {asked}")):
        regard.load(folder, "cpu").generate(["red"], tokens=3)
    (folder / "generation_config.json").write_text('{"num_beams": 2, "length_penalty": 1.0, "min_length": 0}')
    assert regard.load(folder, "cpu").bundle.unused == ()
    (folder / "generation_config.json").write_text('{"num_beams": 2, "length_penalty": 2.0, "repetition_penalty": 1.2}')
    assert regard.load(folder, "cpu").bundle.unused == ("length_penalty=2.0", "repetition_penalty=1.2")


def test_several_end_tokens_and_suppressed_tokens(folders, tmp_path):
    plain = regard.load(folders["gpt2"], "cpu")
    prompt = LINES[1]
    model, tokenizer = theirs("gpt2", folders["gpt2"])
    given = tokenizer([prompt], return_tensors="pt")
    settings = {"max_new_tokens": 6, "do_sample": False, "pad_token_id": 0}
    ids = model.generate(**given, **settings)[0, given["input_ids"].shape[1] :].tolist()
    place = next(place for place in range(1, 6) if ids[place] not in ids[:place])
    folder = write("gpt2", tmp_path / "ends", eos_token_id=[0, ids[place]])
    assert regard.load(folder, "cpu").generate([prompt], tokens=6, temperature=0.0) == plain.tokenizer.decode(
        [ids[:place]]
    )
    folder = write("gpt2", tmp_path / "never", suppress_tokens=[ids[0]], bad_words_ids=[[ids[place]], [5, 6]])
    ours = regard.load(folder, "cpu")
    assert ours.bundle.template.never == tuple(sorted({ids[0], ids[place]}))
    made = model.generate(**given, **settings, suppress_tokens=list(ours.bundle.template.never))
    assert prompt + ours.generate([prompt], tokens=6, temperature=0.0)[0] == tokenizer.decode(made[0])
    for wrong in ({"suppress_tokens": ["x"]}, {"suppress_tokens": 5.5}, {"bad_words_ids": [[99999]]}):
        with pytest.raises(RegardError, match="generation_config.json: .* is not a token id"):
            regard.load(write("gpt2", tmp_path / "wrong", **wrong), "cpu")


def test_a_forced_first_token(folders, tmp_path):
    forced = regard.load(folders["bart"], "cpu").tokenizer.encode(["red"])[0].tolist()[:1]
    folder = write("bart", tmp_path, forced_bos_token_id=forced[0])
    ours = regard.load(folder, "cpu")
    assert ours.bundle.template.forced == tuple(forced)
    limit = 2 * (len(ours.tokenizer.encode(LINES[:1])[0]) + 2) + 10 + 1
    assert ours.translate(LINES[:1], beam=1) == [greedy("bart", folder, LINES[0], limit)]


# --- unusual folders -------------------------------------------------------------------------------------------------


def test_a_model_may_have_unused_tokens(tmp_path):
    ours = regard.load(write("marian", tmp_path, spare=7), "cpu")
    assert ours.model.config.vocabulary == ours.tokenizer.size + 7
    assert len(ours.translate(LINES[:2])) == 2


def test_a_tokenizer_of_another_model(folders, tmp_path):
    shutil.copytree(folders["gpt2"], tmp_path / "other")
    shutil.copy(folders["llama"] / "tokenizer.json", tmp_path / "other")
    with pytest.raises(RegardError, match="tokens, the model only .*; put the tokenizer of the model into"):
        regard.load(tmp_path / "other", "cpu")


def test_a_missing_tokenizer_is_an_error_when_it_is_needed(folders, tmp_path):
    shutil.copytree(folders["gpt2"], tmp_path / "other")
    for path in (tmp_path / "other").glob("*token*"):
        path.unlink()
    with pytest.raises(InputError, match="has no tokenizer.json; put the one it was trained with into its folder"):
        regard.load(tmp_path / "other", "cpu").generate(["red"])


def test_two_vocabularies(tmp_path):
    folder = write("marian", tmp_path)
    from ..hub.cases import Case

    values = {**KINDS["marian"][0].values, "vocab_size": 320, "share_encoder_decoder_embeddings": False}
    Case("", "MarianMTModel", values).save(folder)
    with pytest.raises(
        RegardError, match="models whose encoder and decoder have separate vocabularies cannot be used yet"
    ):
        regard.load(folder, "cpu")


def test_a_pickle_must_be_allowed(folders, tmp_path):
    shutil.copytree(folders["gpt2"], tmp_path / "old")
    weights = load_file(tmp_path / "old" / "model.safetensors")
    torch.save(weights, tmp_path / "old" / "pytorch_model.bin")
    (tmp_path / "old" / "model.safetensors").unlink()
    with pytest.raises(
        RegardError, match="pytorch_model.bin: is a pickle, which can contain programs, so it is not read"
    ):
        regard.load(tmp_path / "old", "cpu")
    new, old = regard.load(folders["gpt2"], "cpu"), regard.load(tmp_path / "old", "cpu", allow_pickle=True)
    assert old.generate(["red"], tokens=5) == new.generate(["red"], tokens=5)
