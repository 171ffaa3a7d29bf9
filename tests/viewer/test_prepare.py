"""Queries become what a model reads: special tokens, generated text, cut to fit; errors are one sentence."""

import copy
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from regard.decode.engine import eager
from regard.errors import InputError
from regard.models.residues import STATES
from regard.use.bundle import Bundle, ExternalEngine, Template
from regard.use.load import load as open_model
from regard.viewer.query import Query
from regard.viewer.record import record

from ..use.made import TREES, loaded, run
from . import read_blobs as blobs


def ids(recording, sequence: str) -> list[int]:
    return [token["id"] for token in recording.manifest()["sequences"][sequence]]


def texts(recording, sequence: str) -> list[str]:
    return [token["text"] for token in recording.manifest()["sequences"][sequence]]


# --- translators -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("recipe", ["transformer-base", "rnn-attention"])
@pytest.mark.parametrize("beam", [None, 1])
def test_a_translator_shows_the_translation_of_translate(recipe, beam):
    ready = loaded("translation", "bpe", recipe)
    recording = record(ready, Query("one red dog", beam=beam))
    (wanted,) = ready.translate(["one red dog"], beam=beam)
    manifest = recording.manifest()
    assert manifest["written"] == wanted
    assert manifest["next"] | {"vocabulary": 0} == {"sequence": "target", "begin": 1, "vocabulary": 0}
    words = ready.tokenizer
    assert ids(recording, "source") == [*words.encode(["one red dog"])[0].tolist(), words.end]
    written = ids(recording, "target")
    assert written[0] == words.start
    assert words.decode([written])[0] == wanted
    if beam == 1:  # each token was the most likely
        scores = blobs.following(recording)
        assert scores.argmax(1)[:-1].tolist() == written[1:]


def test_a_given_target():
    ready = loaded("translation", "bpe")
    recording = record(ready, Query("one red dog", target="two cats"))
    words = ready.tokenizer
    assert ids(recording, "target") == [words.start, *words.encode(["two cats"])[0].tolist()]
    assert recording.manifest()["written"] == "two cats"
    blank = record(ready, Query("one red dog", target=" "))  # is the same as no target
    assert ids(blank, "target") == ids(record(ready, Query("one red dog")), "target")


def test_a_given_tree(tmp_path: Path):
    ready = open_model(run("parsing", tmp_path / "run"), "cpu")
    recording = record(ready, Query("one red dog runs", target=TREES[0]))
    shown = "".join(texts(recording, "target"))
    assert shown == "<s>(S(NP(CD) one(JJ) red(NN) dog)NP(VP(VBZ) runs)VP)S</s>"
    assert recording.manifest()["written"] == TREES[0]
    assert recording.manifest()["model"] == "a parser"  # as `models.json` says, so that the page finds its model
    continued = record(ready, Query("one red dog runs", target="(S(NP(CD) one(JJ)"))  # tokens that the page continues
    assert ids(continued, "target") == ids(recording, "target")[: len(ids(continued, "target"))]
    with pytest.raises(InputError, match="the tree has the words 'one red', but the text has 'one red dog'"):
        record(ready, Query("one red dog", target="(NP (CD one) (JJ red))"))
    with pytest.raises(InputError, match="a bracket that is never closed"):
        record(ready, Query("one red", target="(NP (CD one) (JJ red)"))
    with pytest.raises(InputError, match="the target 'red dogs' is not a tree; write it in brackets"):
        record(ready, Query("one red", target="red dogs"))
    with pytest.raises(InputError, match="is a parser and reads text; leave the image out"):
        record(ready, Query("one red", image=b""))


def test_forced_first_tokens_of_a_translation():
    ready = loaded("translation", "bpe")
    forced = tuple(ready.tokenizer.encode(["two"])[0].tolist())
    template = Template((), (ready.tokenizer.end,), ready.tokenizer.start, forced=forced)
    framed = loaded("translation", "bpe", template=template)
    for recording in (record(framed, Query("one red dog")), record(framed, Query("one red dog", target="red"))):
        assert ids(recording, "target")[: 1 + len(forced)] == [framed.tokenizer.start, *forced]
        assert recording.manifest()["next"]["begin"] == 1 + len(forced)
        assert recording.manifest()["written"].startswith("two")


def test_a_translation_ends_where_the_table_of_positions_does():
    changes = ("model.embed.position.kind=learned", "model.embed.position.length=5")
    ready = loaded("translation", "word", None, *changes)
    assert ready.tokenizer.end not in ids(record(ready, Query("one red")), "target")
    assert len(ids(record(ready, Query("one red", beam=1)), "target")) <= 5


def test_a_long_source_and_a_long_target_are_cut():
    ready = loaded("translation", "word", longest=6)
    recording = record(ready, Query("one red dog runs two blue cats", target="red " * 9))
    assert recording.manifest()["notes"] == [
        "Cut to the first 5 of 7 tokens; this model cannot read more.",
        "Cut to the first 5 of 9 tokens; this model cannot read more.",
    ]
    assert [token.strip() for token in texts(recording, "source")] == ["one", "red", "dog", "runs", "two", "</s>"]
    assert len(ids(recording, "target")) == 6


# --- language models -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("recipe", ["gpt2", "llama-like", "deepseek-like", "lstm"])
def test_a_language_model_generates(recipe):
    ready = loaded("language", "bpe", recipe)
    recording = record(ready, Query("one red dog", tokens=5))
    manifest = recording.manifest()
    (wanted,) = ready.generate(["one red dog"], tokens=5, temperature=0.0)
    assert manifest["written"] == wanted
    begin = manifest["next"]["begin"]
    prompt = ready.tokenizer.encode(["one red dog"])[0].tolist()
    assert ids(recording, "tokens")[:begin] == [ready.tokenizer.end, *prompt]
    assert begin < len(ids(recording, "tokens")) <= begin + 5
    scores = blobs.following(recording)
    scores[:, list(ready.bundle.template.never)] = -1e9
    assert scores.argmax(1)[begin - 1 : -1].tolist() == ids(recording, "tokens")[begin:]


def test_only_reading():
    ready = loaded("language", "bpe")
    recording = record(ready, Query("one red dog", tokens=0))
    assert recording.manifest()["next"]["begin"] == len(ids(recording, "tokens"))
    assert recording.manifest()["written"] == ""
    assert len(ids(record(ready, Query("one red dog")), "tokens")) > len(ids(recording, "tokens"))


def test_a_long_prompt_loses_its_beginning():
    ready = loaded("language", "word", longest=10)
    recording = record(ready, Query("one red dog runs two blue cat one red dog", tokens=4))
    assert recording.manifest()["notes"] == ["Cut to the last 5 of 10 tokens; this model cannot read more."]
    assert [text.strip() for text in texts(recording, "tokens")[:6]] == ["</s>", "blue", "cat", "one", "red", "dog"]
    assert recording.manifest()["next"]["begin"] == 6
    assert len(ids(recording, "tokens")) <= 10


def test_half_of_the_context_is_for_the_prompt():
    ready = loaded("language", "word", longest=9)
    recording = record(ready, Query("one red dog runs two blue cats", tokens=100))
    assert recording.manifest()["next"]["begin"] == 5
    assert len(ids(recording, "tokens")) <= 9


def test_the_viewer_limits_the_number_of_tokens():
    ready = loaded("language", "word", "llama-like")
    recording = record(ready, Query("red " * 30, tokens=0, longest=20))
    assert recording.manifest()["notes"] == ["Cut to the last 19 of 30 tokens; the viewer does not show more."]
    assert len(ids(recording, "tokens")) == 20


# --- models that read ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tokenizer", ["word", "bpe", "unigram"])
def test_masks_are_filled(tokenizer):
    ready = loaded("masked", tokenizer)
    recording = record(ready, Query("one [MASK] dog [MASK] ."))
    manifest = recording.manifest()
    (wanted,) = ready.fill(["one [MASK] dog [MASK] ."], top=5)
    assert [answer["question"] for answer in manifest["answers"]] == [
        "Which word is [MASK] 1?",
        "Which word is [MASK] 2?",
    ]
    for answer, guesses in zip(manifest["answers"], wanted, strict=True):
        assert [guess["text"] for guess in answer["guesses"]] == [guess.label for guess in guesses]
        found = [guess["probability"] for guess in answer["guesses"]]
        assert found == pytest.approx([guess.probability for guess in guesses], abs=1e-6)
    assert texts(recording, "tokens").count("<mask>") == 2
    assert manifest["next"] is None
    assert manifest["notes"] == []
    (only,) = record(ready, Query("one [MASK] dog")).manifest()["answers"]
    assert only["question"] == "Which word is [MASK]?"


def test_without_a_mask_there_is_nothing_to_fill():
    manifest = record(loaded("masked"), Query("one red dog")).manifest()
    assert manifest["answers"] == []
    assert manifest["notes"] == ["The text contains no [MASK], so there is nothing to fill in."]


def test_a_classifier_answers():
    ready = loaded("classification")
    recording = record(ready, Query("one red dog"))
    (answer,) = recording.manifest()["answers"]
    assert answer["question"] == "Which label does this text have?"
    ((*guesses,),) = ready.classify(["one red dog"], top=3)
    assert [guess["text"] for guess in answer["guesses"]] == [guess.label for guess in guesses]
    assert [guess["probability"] for guess in answer["guesses"]] == pytest.approx([g.probability for g in guesses])
    words = ready.tokenizer
    assert ids(recording, "tokens") == [words.start, *words.encode(["one red dog"])[0].tolist(), words.end]
    counted = record(loaded("classification", classes=()), Query("one red dog")).manifest()["answers"][0]["guesses"]
    assert {guess["text"] for guess in counted} == {"0", "1", "2"}


def test_an_encoder_that_answers_nothing():
    ready = loaded("masked", "word", "bert", "model.head.kind=vector")
    manifest = record(ready, Query("one red dog")).manifest()
    assert (manifest["model"], manifest["answers"], manifest["next"]) == ("an encoder of texts", [], None)


def test_the_letters_of_a_secondary_structure_are_explained():
    (found,) = record(loaded("residues", "residues"), Query("MKTAY")).manifest()["answers"]
    (best,) = found["guesses"]
    assert len(best["text"]) == 5
    explained = found["question"].partition("? ")[2]
    assert all(re.search(rf"\b{state}\b", explained) for state in STATES)


def test_a_long_text_keeps_its_beginning():
    ready = loaded("classification", longest=5)
    recording = record(ready, Query("one red dog runs"))
    assert recording.manifest()["notes"] == ["Cut to the first 3 of 4 tokens; this model cannot read more."]
    assert [text.strip() for text in texts(recording, "tokens")] == ["<s>", "one", "red", "dog", "</s>"]
    assert recording.manifest()["text"] == "one red dog runs"


# --- what a model is, and is not -------------------------------------------------------------------------------------


def test_a_model_without_attention_names_the_available_views():
    said = "This model has no attention, so there are no weights to show. Available views: "
    manifest = record(loaded("language", "word", "lstm"), Query("one red dog")).manifest()
    assert (manifest["attentions"], manifest["begin"]) == ([], None)
    assert manifest["notes"] == [said + "States, Words, Next and Change."]
    tables = record(
        loaded("classification", "word", "bert", "model.layers.block.mixer={kind='lstm'}"), Query("red")
    ).manifest()
    assert tables["notes"] == [said + "States, Words, Position and Change."]


def test_a_bare_model_reads_text_with_a_tokenizer_or_ids_without():
    ready = loaded("language", "word")
    by_text = record(ready.model, Query("one red dog", tokens=3), tokenizer=ready.tokenizer)
    assert ids(by_text, "tokens") == ids(record(ready, Query("one red dog", tokens=3)), "tokens")
    assert by_text.manifest()["title"] == "a language model"
    as_they_are = record(ready, Query([7, 8, 9], tokens=0))
    assert ids(as_they_are, "tokens") == [7, 8, 9]
    assert as_they_are.manifest()["text"] == "7 8 9"
    for given in ([7, 8, 9], "7 8 9", "7, 8,9"):
        assert texts(record(ready.model, Query(given, tokens=0)), "tokens") == ["7", "8", "9"]
    assert len(ids(record(ready.model, Query([7, 8], tokens=4)), "tokens")) == 6  # no end token is known


def test_ids_of_both_sides():
    model = loaded("translation").model
    recording = record(model, Query([7, 8], target=[3, 9, 9]))
    assert (ids(recording, "source"), ids(recording, "target")) == ([7, 8], [3, 9, 9])
    assert recording.manifest()["written"] is None
    started = Bundle(model, template=Template(first=3, ends=(2,)), engine=eager(model))
    assert ids(record(started, Query([7, 8])), "target")[0] == 3


def test_a_translator_that_diverged_has_no_translation_to_show():
    model = copy.deepcopy(loaded("translation").model)
    with torch.no_grad():
        for weights in model.parameters():
            weights.fill_(torch.nan)
    bundle = replace(loaded("translation").bundle, model=model, engine=eager(model))
    with pytest.raises(InputError, match="here: the model computes numbers that are not finite"):
        record(bundle, Query("red dog"))


def test_a_compiled_model_is_recorded_uncompiled():
    model = loaded("language").model
    assert ids(record(torch.compile(model), Query([7, 8], tokens=0)), "tokens") == [7, 8]


def test_half_precision_is_recorded_in_float32():
    model = copy.deepcopy(loaded("language", "word").model).to(torch.bfloat16)
    recording = record(model, Query([7, 8, 9], tokens=0))
    full = record(copy.deepcopy(model).float(), Query([7, 8, 9], tokens=0))
    for name in full.names():
        assert recording.blob(name) == full.blob(name)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}


def test_the_title_is_the_name_of_the_folder():
    assert record(loaded("language", name="runs/first"), Query("red")).manifest()["title"] == "first"
    assert record(loaded("language"), Query("red"), title="mine").manifest()["title"] == "mine"


# --- mistakes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["translation", "language", "masked", "classification"])
@pytest.mark.parametrize("text", ["", " \n"])
def test_an_empty_text(kind, text):
    with pytest.raises(InputError, match="the text is empty; write at least one word"):
        record(loaded(kind), Query(text))


def test_no_tokens():
    with pytest.raises(InputError, match="the text has no tokens; write at least one word"):
        record(loaded("language"), Query([]))


def test_ids_outside_the_vocabulary():
    model = loaded("language").model
    last = model.config.vocabulary - 1
    for wrong in (last + 1, -1):
        with pytest.raises(InputError, match=rf"token id {wrong} at index 1 is outside the vocabulary \(0 to {last}\)"):
            record(model, Query([1, wrong]))


def test_words_for_a_model_without_a_tokenizer():
    with pytest.raises(InputError, match="a language model: has no tokenizer; write token ids, such as 5 12 7, put"):
        record(loaded("language").model, Query("one red dog"))
    with pytest.raises(
        InputError, match="a translator: has no tokenizer, so the first token of a translation is unknown; give"
    ):
        record(loaded("translation").model, Query([7, 8]))


def test_wrong_queries():
    with pytest.raises(InputError, match="tokens=-1 must be 0 or more, and longest=2048 at least 1"):
        record(loaded("language"), Query("red", tokens=-1))
    with pytest.raises(InputError, match="here: is a language model, not a translator; leave the target out"):
        record(loaded("language"), Query("red", target="dog"))
    with pytest.raises(InputError, match="here: is a model of trajectories, not a translator; leave the target out"):
        record(loaded("trajectories"), Query("0 a 1 2; 10 a 2 2", target="dog"))
    for kind, what in {"masked": "a masked language model", "trajectories": "a model of trajectories"}.items():
        with pytest.raises(InputError, match=f"here: is {what} and generates no tokens; leave tokens=4 out"):
            record(loaded(kind), Query("0 a 1 2; 10 a 2 2", tokens=4))
    with pytest.raises(
        InputError, match="Linear is not a model of regard; use one from `regard.load` or `regard.build`"
    ):
        record(torch.nn.Linear(2, 2), Query("red"))


def test_a_model_that_ctranslate2_runs():
    elsewhere = type("Elsewhere", (ExternalEngine,), dict.fromkeys(ExternalEngine.__abstractmethods__))
    with pytest.raises(InputError, match="here: CTranslate2 does not expose attention; use the model that it was"):
        record(loaded("translation", external=elsewhere()), Query("red"))


@pytest.mark.parametrize("query", [Query("a " * 60_000), Query("a", target="a" * 100_001), Query([5] * 100_001)])
def test_a_text_far_longer_than_what_is_shown_is_refused_before_it_is_encoded(query):
    with pytest.raises(InputError, match=r"characters or token ids, and the limit is 100,000; give a part of it"):
        record(loaded("translation"), query)
