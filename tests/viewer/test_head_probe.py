"""Scores of heads: importance on the text at hand, and known behaviours on a probe that is read twice."""

import pytest
import torch
from playwright.sync_api import expect

import regard
from regard.errors import InputError
from regard.viewer.head_probe import probe_rows
from regard.viewer.query import Query
from regard.viewer.record import record

from ..use.made import loaded
from .browser import Tab
from .fake import recording
from .shown import ASKED, Shown, in_float32

KINDS = {
    "writer": ("language", "word", "gpt2"),
    "translator": ("translation", "bpe", "transformer-base"),
    "aligner": ("translation", "word", "rnn-attention"),
    "reader": ("masked",),
    "seer": ("vision",),
}


@pytest.mark.parametrize("name", KINDS)
def test_importance_is_the_rise_of_the_loss_without_the_head(name: str):
    """One pass for all heads gives what a pass for each gives."""
    bundle = in_float32(name, loaded(*KINDS[name]).bundle)
    live = record(bundle, Query(**ASKED[name]))
    found = live.head_scores()["scores"]["importance"]
    inputs, model = live.prepared.arguments, live.model

    def losses() -> torch.Tensor:
        with torch.no_grad():
            output = model(**inputs)[0].log_softmax(-1)
        if live.prepared.begin is not None:
            ids = inputs[list(live.prepared.sequences)[-1]][0, 1:]
            return -output[torch.arange(len(ids)), ids].mean()
        rows = output[live.prepared.masks] if live.prepared.masks else output[None]
        return -rows.gather(1, wanted(rows)).mean()

    best: list[torch.Tensor] = []

    def wanted(rows: torch.Tensor) -> torch.Tensor:
        best.append(rows.argmax(-1, keepdim=True))
        return best[0]

    whole = losses()
    for role in model.attentions():
        for head, rise in enumerate(found[role.id]):
            with regard.intervene(model, role.id, heads=head, attention="zero"):
                assert float(losses() - whole) == pytest.approx(rise, abs=2e-5), (role.id, head)


def test_behaviours_are_those_of_heads_made_to_behave():
    bundle = in_float32("writer", loaded("language", "word", "gpt2").bundle)
    (row, half), *_ = probe_rows(bundle, bundle.model).values()
    assert row[-half:] == row[-2 * half : -half]
    assert len(set(row[-half:])) == half
    live = record(bundle, Query("one red dog", tokens=0))
    patterns = enumerate(("previous", "first"))
    first, second = (regard.intervene(bundle.model, "self.1", heads=head, attention=one) for head, one in patterns)
    with first, second:
        scores = live.head_scores()["scores"]
    assert scores["previous"]["self.1"][0] == 1
    assert scores["first"]["self.1"][1] == 1
    expected = torch.tensor(row)[None]
    with torch.no_grad(), regard.watch(bundle.model) as tape:
        bundle.model(expected)
    weights = tape.weights("stack.layers.1.mixer")[0]
    begin = len(row) - half
    plain = record(bundle, Query("one red dog", tokens=0)).head_scores()["scores"]
    for name, shift in (("matching", half), ("induction", half - 1), ("previous", 1)):
        wanted = [sum(float(head[i, i - shift]) for i in range(begin, len(row))) / half for head in weights]
        assert plain[name]["self.2"] == pytest.approx(wanted, abs=1e-5)


def test_images_have_no_probe_and_stored_recordings_no_scores():
    seer = in_float32("seer", loaded("vision").bundle)
    assert probe_rows(seer, seer.model) == {}
    assert set(record(seer, Query(**ASKED["seer"])).head_scores()["scores"]) == {"importance"}
    with pytest.raises(InputError, match="no model that could be changed"):
        recording().head_scores()


def test_the_page_sorts_heads_by_importance_and_behaviour(tab: Tab, shown: Shown):
    tab.open(shown.ids["writer"], "heads")
    tab.page.get_by_role("button", name="Importance").click()
    cards = tab.main("heads").locator(".head")
    expect(cards).to_have_count(8)
    scores = shown.recording("writer").head_scores()["scores"]
    for title, digits in (("Importance", 4), ("Induction", 2)):
        tab.page.get_by_role("button", name=title).click()
        values = sorted((one for each in scores[title.lower()].values() for one in each), reverse=True)
        wanted = [f"{value:z.{digits}f}".replace("-", "−") for value in values]  # a typographic minus, and none of zero
        expect(cards.locator(".number")).to_have_text(wanted)
