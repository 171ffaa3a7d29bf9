"""Recordings of every kind of model: each blob is what the model computes, and the arithmetic can be repeated."""

import json
from functools import cache

import numpy as np
import pytest
import torch

from regard import formal
from regard.models.evoformer import Evoformer
from regard.models.language import LanguageModel
from regard.models.model import EncoderDecoder, Model
from regard.models.recipe import build_empty
from regard.models.vision import VisionTransformer
from regard.parts.attention import Attention
from regard.parts.mask import Causal, Strided
from regard.viewer.blobs import all_blobs
from regard.viewer.query import Query
from regard.viewer.record import record
from regard.viewer.recording import Recording, pack_recordings, unpack_recordings

from ..laws.cases import Case, cases, name_of
from . import read_blobs as blobs

TOKENS = [3, 4, 5, 6, 7, 8, 3]
TARGET = [1, 2, 3, 9, 4]
IMAGE = np.random.default_rng(0).integers(0, 255, (8, 12, 3), dtype=np.uint8)


@cache
def recorded(case: Case) -> tuple[Model, Recording]:
    """Record a model of the laws, with large weights, on a few tokens or an image."""
    model = case.build(torch.float32)
    if isinstance(model, VisionTransformer):
        return model, record(model, Query(image=IMAGE))
    if isinstance(model, EncoderDecoder):
        return model, record(model, Query(TOKENS, target=TARGET))
    return model, record(model, Query(TOKENS, tokens=2 if "generate" in model.verbs else 0))


def inputs(recording: Recording) -> dict[str, torch.Tensor]:
    """Return the arguments that the model was called with, from the manifest."""
    if recording.manifest()["image"] is not None:
        pixels = torch.from_numpy(IMAGE).permute(2, 0, 1)[None] / 255
        return {"images": (pixels - 0.5) / 0.5}
    sequences = recording.manifest()["sequences"].items()
    return {name: torch.tensor([[token["id"] for token in tokens]]) for name, tokens in sequences if name != "written"}


def close(found: object, wanted: object, tolerance: float = 1e-5) -> None:
    np.testing.assert_allclose(np.asarray(found), np.asarray(wanted), atol=tolerance, rtol=tolerance)


def has_attention(case: Case) -> bool:
    return any(isinstance(module, Attention) for module in build_empty(case.config).modules())


ALIKE = {"elman", "gru", "mut1", "mut2", "mut3", "transformer-big", "writer", "bert-conv", "many-to-one"}  # like others
CASES = [case for case in cases() if case.name not in {*ALIKE, "forecaster"}]  # which reads scenes: see test_scene.py
every = pytest.mark.parametrize("case", CASES, ids=name_of)
attending = pytest.mark.parametrize("case", [case for case in CASES if has_attention(case)], ids=name_of)


@every
def test_every_blob_has_the_size_that_the_manifest_says(case: Case):
    _, recording = recorded(case)
    names = {blob.name: blob.size for blob in all_blobs(recording.manifest())}
    assert list(recording.names()) == list(names)
    for name, size in names.items():
        assert size is None or len(recording.blob(name)) == size, name
    json.loads(json.dumps(recording.manifest(), allow_nan=False))


@every
def test_a_stored_recording_is_the_same_byte_for_byte(case: Case):
    _, recording = recorded(case)
    (found,) = unpack_recordings(pack_recordings({"one": recording})).values()
    assert found.manifest() == json.loads(json.dumps(recording.manifest() | {"places": []}))  # it has no model
    assert {name: found.blob(name) for name in found.names()} == {
        name: recording.blob(name) for name in recording.names()
    }


@every
def test_an_unknown_blob_is_a_key_error(case: Case):
    _, recording = recorded(case)
    there = set(recording.names())
    manifest = recording.manifest()
    wrong = ["", "attention", "attention/1.f16", "overview/00.u8", "next/-1.f32", "next/999.f32", "manifest.json"]
    wrong += ["attention/0/self.1/0.f16", "pooled/0/self.1/0.u8", "mask/None.bits", "mask/x.bits", "image.png"]
    wrong += ["rollout.f16", "hidden/source/99.f32", "hidden/x/0.f32", "position/9.f32", "similarity/9.f32"]
    wrong += ["vocabulary.json", "overview/0.u8", "attention/0.f16", "input/self.9.f32", "row/self.1/0/1_0.f32"]
    for one in manifest["attentions"]:
        wrong += [f"vectors/{one['id']}/{one['heads']}.f32", f"row/{one['id']}/{one['heads']}/0.f32"]
        wrong += [f"row/{one['id']}/0/{one['rows']}.f32", f"attention/0/{one['id']}/0.f16"]
    for name in set(wrong) - there:
        with pytest.raises(KeyError):
            recording.blob(name)


# --- the arithmetic ------------------------------------------------------------------------------------------------


@attending
def test_the_arithmetic_of_every_cell(case: Case):
    """As the page computes it: from vectors to scores, weights and outputs."""
    _, recording = recorded(case)
    whole = blobs.weights(recording)
    for one, head in blobs.heads(recording):
        given, row, mask = (
            blobs.vectors(recording, one, head),
            blobs.rows(recording, one, head),
            blobs.mask(recording, one),
        )
        if one["score"]["kind"] == "additive":
            scores = np.tanh(given["query"][:, None] + given["key"]) @ given["energy"]
        else:
            scores = one["score"]["scale"] * given["query"] @ given["key"].T
        if one["score"]["cap"] is not None:
            scores = one["score"]["cap"] * np.tanh(scores / one["score"]["cap"])
        close(row["scores"], scores)
        total = np.where(mask, scores + row.get("bias", 0), -np.inf)
        powers = np.exp(total - total.max(-1, keepdims=True))
        weights = powers / powers.sum(-1, keepdims=True)
        close(row["weights"], weights)
        close(whole[one["id"]][head], weights, 1e-3)
        close(given["mixed"], weights @ given["value"])


@attending
def test_vectors_are_computed_from_the_recorded_inputs(case: Case):
    model, recording = recorded(case)
    for one, head in blobs.heads(recording):
        attention = model.get_submodule(one["name"])
        assert isinstance(attention, Attention)
        asks, told = (torch.tensor(x, dtype=torch.float32)[None] for x in blobs.inputs(recording, one))
        with torch.no_grad():
            query = attention.score.query(attention.heads.query(asks, attention.rotation(asks, None, None)))
            key, value = attention.heads.expand(attention.heads.keep(told, attention.rotation(told, None, None)))
            key = attention.score.key(key)
        given = blobs.vectors(recording, one, head)
        assert one["groups"] == attention.heads.heads // key.shape[1]
        close(given["query"], query[0, head])
        close(given["key"], key[0, head // one["groups"]])
        close(given["value"], value[0, head // one["groups"]])


@attending
def test_masks_and_biases_are_those_of_the_model(case: Case):
    model, recording = recorded(case)
    for one in recording.manifest()["attentions"]:
        i, j = np.arange(one["rows"])[:, None], np.arange(one["columns"])
        attention = model.get_submodule(one["name"])
        past = one["kind"] == "decoder" or isinstance(model, LanguageModel) or getattr(model, "sight", "") == "past"
        wanted = (j <= i) if past else np.full((len(i), len(j)), True)
        if attention.window is not None:
            wanted = wanted & (abs(i - j) < attention.window)
        if isinstance(attention.rule, Strided):
            stride = attention.rule.stride
            wanted = wanted & ((abs(i - j) < stride) | (abs(i - j) % stride == 0))
        assert np.array_equal(blobs.mask(recording, one), wanted)
        assert (one["mask"] is None) == wanted.all()
        assert one["bias"] == (attention.position.has_bias or isinstance(model, Evoformer))  # which adds that of pairs
        if attention.position.has_bias:
            for head in range(one["heads"]):
                bias = attention.position.bias(torch.tensor(head), torch.tensor(i), torch.tensor(j))
                close(blobs.rows(recording, one, head)["bias"], bias.detach())


def test_heads_are_those_of_the_formal_algorithm():
    """GPT-2 uses plain multi-head attention."""
    model, recording = recorded(next(case for case in cases() if case.name == "gpt2"))
    for one, head in blobs.heads(recording):
        heads = model.get_submodule(one["name"]).heads
        part = slice(head * heads.head_dim, (head + 1) * heads.head_dim)
        maps = [getattr(heads, f"to_{name}") for name in ("query", "key", "value")]
        each = [weight.detach().double().numpy()[part] for linear in maps for weight in (linear.weight, linear.bias)]
        X, _ = blobs.inputs(recording, one)
        mixed = formal.attention(X.T, X.T, formal.AttentionWeights(*each), formal.unidirectional_mask(len(X)))
        close(blobs.vectors(recording, one, head)["mixed"], mixed.T)


# --- vectors and scores ----------------------------------------------------------------------------------------------


@every
def test_each_layer_turns_one_hidden_state_into_the_next(case: Case):
    model, recording = recorded(case)
    for said in recording.manifest()["hidden"]:
        layers = [torch.tensor(x, dtype=torch.float32)[None] for x in blobs.hidden(recording, said["sequence"])]
        stacks = {"source": "encoder", "target": "decoder"}
        stack = getattr(model, stacks.get(said["sequence"], "stack"), None)
        if stack is None:  # the cells of a recurrent model also carry a state
            continue
        more = {}
        if said["sequence"] == "target":
            memory = torch.tensor(blobs.hidden(recording, "source")[-1], dtype=torch.float32)[None]
            more = {"memory": model.encoder.norm(memory)}
        past = said["sequence"] == "target" or isinstance(model, LanguageModel) or getattr(model, "sight", "") == "past"
        assert len(layers) == len(stack.layers) + 1
        more["memos"] = ({}, {})  # what layers leave for those above
        for layer, before, after in zip(stack.layers, layers, layers[1:], strict=False):
            with torch.no_grad():
                close(layer(before, mask=Causal() if past else None, **more), after)


@every
def test_the_first_hidden_state_is_the_embedding(case: Case):
    model, recording = recorded(case)
    given = inputs(recording)
    for said in recording.manifest()["hidden"]:
        first = blobs.hidden(recording, said["sequence"])[0]
        with torch.no_grad():
            if said["sequence"] == "patches":
                x = model.patches(given["images"])
                x = x if model.class_token is None else torch.cat((model.class_token, x), 1)
                wanted = x + model.position(None, x.shape[1], x.device)
            else:
                source = said["sequence"] == "source" and model.source_embed
                wanted = (source or model.embed)(given[said["sequence"]])
                if isinstance(model, Evoformer) and model.profile is not None:  # a sequence alone is its own profile
                    one_hot = torch.nn.functional.one_hot(given["tokens"], model.profile.in_features)
                    wanted = wanted + model.profile(torch.log1p(one_hot / 0.02))
                if isinstance(model, Evoformer) and model.window is not None:
                    wanted = torch.relu(model.window(wanted))
        close(first, wanted[0])


@every
def test_next_token_scores_are_those_of_the_model(case: Case):
    model, recording = recorded(case)
    said = recording.manifest()["next"]
    if said is None:
        assert not hasattr(model, "step")
        return
    with torch.no_grad():
        logits = model(**inputs(recording))[0]
    close(blobs.following(recording), logits)
    assert said["vocabulary"] == logits.shape[1]
    assert json.loads(recording.blob("vocabulary.json")) == [str(id) for id in range(logits.shape[1])]


@pytest.mark.parametrize("feed", ["rnn-attention", "rnn-attention-luong", "rnn-attention-input-feeding"])
def test_a_recurrent_model_shows_its_states(feed: str):
    model, recording = recorded(next(case for case in cases() if case.name == feed))
    layers = blobs.hidden(recording, "target")
    assert len(layers) == 1 + len(model.cells) + 1  # and the input of the output layer
    asks, _ = blobs.inputs(recording, blobs.attention(recording, "cross.1"))
    states = layers[-2]
    if model.feed == "context":  # the state before the token is read
        close(asks[1:], states[:-1])
    else:
        close(asks, states)
    mixed = blobs.vectors(recording, blobs.attention(recording, "cross.1"), 0)["mixed"]
    joined = torch.tensor(np.concatenate((mixed, states), 1), dtype=torch.float32)
    close(torch.tanh(model.readout(joined)).detach(), layers[-1])


@pytest.mark.parametrize(("name", "signals"), [("linear-attention", "S"), ("gated-deltanet", "Swβ"), ("mamba2", "Sw")])
def test_a_model_with_matrices_shows_how_much_each_head_holds(name: str, signals: str):
    _, recording = recorded(next(case for case in cases() if case.name == name))
    layers = recording.manifest()["recurrences"]
    assert layers
    for layer in layers:
        assert "".join(signal["name"] for signal in layer["signals"]) == signals
        assert layer["unit"] == "head"
        for number in range(len(signals)):
            values = np.frombuffer(recording.blob(f"signal/{layer['id']}/{number}.f16"), "<f2")
            assert len(values) == layer["rows"] * layer["width"]
            assert (values > 0).all()


@pytest.mark.parametrize("name", ["rnn-attention", "transformer-base"])
def test_the_queries_of_cross_attention_are_the_words_then_written(name: str):
    _, recording = recorded(next(case for case in cases() if case.name == name))
    sequences = recording.manifest()["sequences"]
    written = [token["id"] for token in sequences["written"]]
    assert written[:-1] == TARGET[1:]
    assert written[-1] == blobs.following(recording)[-1].argmax()
    assert blobs.attention(recording, "cross.1")["queries"] == "written"


def test_an_image_begins_with_the_class_token_in_the_last_layer():
    _, recording = recorded(next(case for case in cases() if case.name == "vit"))
    begin, last = recording.manifest()["begin"], recording.manifest()["attentions"][-1]
    assert (begin["attention"], begin["query"]) == (last["id"], 0)
    record = recording.captured.traces[last["name"]]
    weights = record.weights(range(last["heads"]))[:, 0, 1:]
    assert weights[begin["head"], begin["key"] - 1] == weights.max()


@every
def test_rollout_follows_attention_through_every_layer(case: Case):
    model, recording = recorded(case)
    manifest = recording.manifest()
    layers = len(getattr(getattr(model, "stack", model), "layers", ()))
    assert manifest["rollout"] == (0 < layers == len(manifest["attentions"]))
    if not manifest["rollout"]:
        return
    total = np.eye(manifest["attentions"][0]["rows"])
    for weights in blobs.weights(recording).values():
        total = (weights.mean(0) / 2 + np.eye(len(total)) / 2) @ total
    found = blobs.numbers(recording, "rollout").reshape(total.shape)
    close(found, total, 2e-3)
    close(found.sum(-1), np.ones(len(found)), 5e-3)
