"""Hugging Face models: the viewer shows the attention that `transformers` computes."""

import numpy as np
import pytest
import torch
import transformers

import regard
from regard.viewer.query import Query
from regard.viewer.record import record

from ..use import theirs
from . import read_blobs as blobs

TEXT = "two blue cats"


@pytest.fixture(params=["gpt2", "llama", "bert", "bert-classes", "roberta", "distilbert", "marian", "bart", "t5"])
def both(request, tmp_path):
    """Our recording, and the output of their model for the same tokens."""
    folder = theirs.write(request.param, tmp_path / request.param)
    loaded = regard.load(folder, "cpu")
    recording = record(loaded, Query(TEXT, tokens=3 if "generate" in loaded.bundle.verbs else 0))
    kind = getattr(transformers, theirs.KINDS[request.param][0].architecture)
    model = kind.from_pretrained(folder, attn_implementation="eager").eval()
    sequences = recording.manifest()["sequences"]
    ids = {name: torch.tensor([[token["id"] for token in tokens]]) for name, tokens in sequences.items()}
    given = {"input_ids": ids.get("tokens", ids.get("source"))}
    given |= {"decoder_input_ids": ids["target"]} if "target" in ids else {}
    with torch.no_grad():
        return recording, model(**given, output_attentions=True, output_hidden_states=True)


def test_attentions_are_theirs(both):
    recording, out = both
    names = {"self": "attentions", "encoder": "encoder_attentions", "decoder": "decoder_attentions"}
    names["cross"] = "cross_attentions"
    found = blobs.weights(recording)
    for one in recording.manifest()["attentions"]:
        wanted = getattr(out, names[one["kind"]])[one["layer"] - 1][0].numpy()
        np.testing.assert_allclose(found[one["id"]], wanted, atol=1e-3)
    assert len(found) == sum(len(getattr(out, name, None) or ()) for name in names.values())


def test_hidden_states_are_theirs(both):
    recording, out = both
    names = {"tokens": "hidden_states", "source": "encoder_hidden_states", "target": "decoder_hidden_states"}
    for said in recording.manifest()["hidden"]:
        wanted = getattr(out, names[said["sequence"]])
        found = blobs.hidden(recording, said["sequence"])
        assert len(found) == len(wanted)
        for layer in range(len(found) - 1):  # their last one is normalised
            np.testing.assert_allclose(found[layer], wanted[layer][0].numpy(), atol=1e-4)


def test_next_token_scores_are_theirs(both):
    recording, out = both
    if recording.manifest()["next"] is not None:
        np.testing.assert_allclose(blobs.following(recording), out.logits[0].numpy(), atol=1e-3)


def test_an_image(tmp_path):
    folder = theirs.write("vit", tmp_path)
    ready = regard.load(folder, "cpu")
    patches = ready.model.patches
    pixels = np.random.default_rng(0).integers(0, 255, (patches.height, patches.width, 3), dtype=np.uint8)
    recording = record(ready, Query(image=pixels))
    kind = transformers.ViTForImageClassification
    model = kind.from_pretrained(folder, attn_implementation="eager").eval()
    given = torch.tensor((pixels / 255 - 0.4) / 0.2, dtype=torch.float32).permute(2, 0, 1)[None]
    with torch.no_grad():
        out = model(given, output_attentions=True)
    for weights, wanted in zip(blobs.weights(recording).values(), out.attentions, strict=True):
        np.testing.assert_allclose(weights, wanted[0].numpy(), atol=1e-3)
    (answer,) = recording.manifest()["answers"]
    chances = out.logits[0].softmax(-1)
    found = {guess["text"]: guess["probability"] for guess in answer["guesses"]}
    assert found == pytest.approx({"cat": float(chances[0]), "dog": float(chances[1])}, abs=1e-4)
