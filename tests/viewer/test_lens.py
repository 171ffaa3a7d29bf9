"""The logit lens: what each layer would write next."""

import json

import pytest
import torch
from playwright.sync_api import expect

from regard.viewer.query import Query
from regard.viewer.record import record

from ..use.made import loaded
from .browser import Tab, close, number, rows
from .shown import Shown, hidden, in_float32


@pytest.mark.parametrize("recipe", ["gpt2", "lstm"])
def test_every_layer_is_read_through_the_final_norm_and_the_head(recipe: str):
    bundle = in_float32("writer", loaded("language", "word", recipe).bundle)
    live = record(bundle, Query("one red dog runs", tokens=2))
    tokens = torch.tensor([[token["id"] for token in live.manifest()["sequences"]["tokens"]]])
    model, at = bundle.model, 3
    found = json.loads(live.blob(f"lens/{at}.json"))
    assert [one["layer"] for one in found] == [0, 1, 2]
    with torch.no_grad():
        said = model(tokens)[0, at].softmax(-1)
        for one, vectors in zip(found, hidden(model, tokens), strict=True):
            wanted = model.logits(model.stack.norm(vectors[at].float())).softmax(-1).sort(descending=True)
            shares = [guess["probability"] for guess in one["guesses"]]
            assert shares == pytest.approx(wanted.values[: len(shares)].tolist(), abs=1e-5)
    assert found[-1]["guesses"][0]["probability"] == pytest.approx(float(said.max()), abs=1e-5)


def test_translators_have_a_lens_and_readers_have_none():
    translator = in_float32("translator", loaded("translation", "bpe", "transformer-base").bundle)
    live = record(translator, Query("one cat", target="one cat sleeps"))
    assert live.manifest()["lens"]
    last = json.loads(live.blob("lens/2.json"))[-1]["guesses"]
    logits = translator.model(live.prepared.arguments["source"], live.prepared.arguments["target"])[0, 2]
    assert last[0]["probability"] == pytest.approx(float(logits.softmax(-1).max()), abs=1e-5)
    reader = in_float32("reader", loaded("masked").bundle)
    assert not record(reader, Query("one [MASK] dog")).manifest()["lens"]


def test_the_page_shows_what_each_layer_would_write(tab: Tab, shown: Shown):
    tab.open(shown.ids["writer"], "next", attention="self.1", head=1, query=3, key=1)
    tab.page.get_by_text("What each layer would write").click()
    found = rows(tab.page.get_by_role("table", name="logit lens"))
    assert [row[0] for row in found] == ["embedding", "layer 1", "layer 2"]
    layers = json.loads(shown.recording("writer").blob("lens/3.json"))
    shares = [[number(cell.rsplit(" ", 1)[1]) for cell in row[1:]] for row in found]
    close(shares, [[guess["probability"] for guess in one["guesses"]] for one in layers], 2)
    expect(tab.page.get_by_text("Only the last layer was trained to be read like this")).to_be_visible()
