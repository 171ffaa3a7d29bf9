"""The States view in a real browser: hidden states and gates of recurrent models over time."""

import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from playwright.sync_api import expect

from regard.viewer.query import Query
from regard.viewer.record import record

from ..use.made import loaded
from .browser import Tab
from .shown import Shown

SVG = "{http://www.w3.org/2000/svg}"


def numbers(tab: Tab) -> np.ndarray:
    """Read the table of the numbers at the chosen token."""
    folded = tab.page.locator(".states details")
    if folded.get_attribute("open") is None:
        folded.locator("summary").click()
    expect(folded.locator("td").first).to_be_visible()
    cells = folded.locator("td").all_inner_texts()
    return np.array([float(cell.replace("−", "-")) for cell in cells])


def test_the_states_of_an_lstm(tab: Tab, shown: Shown):
    model, (recurrence, *_) = shown.models["recurrent"].model, shown.manifest("recurrent")["recurrences"]
    tab.open(shown.ids["recurrent"], "states")
    names = tab.page.get_by_role("group", name="State or gate").locator("button")
    assert names.all_inner_texts() == ["h", "c", "i", "f", "o", "g"]
    expect(tab.page.locator(".states canvas").first).to_be_visible()
    words = tab.page.get_by_role("group", name="Tokens of tokens").locator("button")
    assert words.all_inner_texts() == shown.words("recurrent", "tokens")
    words.nth(2).click()
    layer = model.get_submodule(recurrence["name"])
    outputs = []
    with torch.no_grad(), layer.register_forward_hook(lambda module, given, output: outputs.append(output)):
        model(**shown.inputs("recurrent"))
    assert numbers(tab) == pytest.approx(outputs[0][0, 2].numpy(), abs=2e-3)
    names.nth(3).click()
    expect(tab.page.locator(".states .sentence")).to_have_text(
        re.compile(rf"At .*, the forget gate is open \(above 0.5\) in \d+ of {recurrence['width']} units")
    )
    gates = numbers(tab)
    assert ((gates > 0) & (gates < 1)).all()


def test_units_can_be_sorted_and_tokens_picked_in_the_picture(tab: Tab, shown: Shown):
    tab.open(shown.ids["recurrent"], "states")
    canvas = tab.page.locator(".states canvas").first
    canvas.hover()
    under = tab.page.locator(".states .under")
    expect(under).to_have_text(re.compile(r"unit \d+ at .+: −?\d"))
    tab.page.get_by_role("button", name="value at this token").click()
    expect(tab.page.get_by_role("button", name="value at this token")).to_have_attribute("aria-pressed", "true")
    chosen = tab.page.get_by_role("group", name="Tokens of tokens").locator("[aria-pressed=true]")
    before = chosen.inner_text()
    box = canvas.bounding_box()
    canvas.click(position={"x": 3 + box["width"] / 3, "y": box["height"] / 2})
    expect(chosen).not_to_have_text(before)
    assert tab.violations() == []


def test_the_picture_of_many_units_is_as_wide_as_its_tokens_are_readable(tab: Tab, shown: Shown, tmp_path: Path):
    tab.open(shown.ids["recurrent"], "states")
    expect(tab.page.locator(".states canvas").first).to_be_visible()
    drawing = ElementTree.parse(tab.download("Picture (SVG)", tmp_path)).getroot()
    (recurrence, *_) = shown.manifest("recurrent")["recurrences"]
    cells = [each for each in drawing.iter(f"{SVG}rect") if each.get("x")]
    assert len(cells) == recurrence["rows"] * recurrence["width"]
    assert float(cells[0].get("width")) == 60 > float(cells[0].get("height"))
    words = [text.text for text in drawing.iter(f"{SVG}text")]
    assert words[-recurrence["rows"] :] == shown.words("recurrent", "tokens")


def test_both_directions_of_an_encoder_and_a_decoder_that_attends(tab: Tab, shown: Shown):
    tab.open(shown.ids["aligner"], "states")
    layers = tab.page.get_by_role("group", name="Layer").locator("button")
    assert [re.sub(r"\s+", " ", text) for text in layers.all_inner_texts()] == [
        f"{one['sequence']} L{one['layer']}" + (" ← (backward)" if one["backward"] else "")
        for one in shown.manifest("aligner")["recurrences"]
    ]
    layers.last.click()
    expect(tab.page.get_by_role("group", name="Tokens of target")).to_be_visible()


def test_a_model_without_attention_begins_with_its_states(tab: Tab, shown: Shown):
    tab.page.goto(f"{tab.address}/#recording={shown.ids['recurrent']}&view=look")
    expect(tab.main("states")).to_be_visible()


def test_a_model_without_recurrence_says_so(tab: Tab, shown: Shown):
    tab.open(shown.ids["writer"], "look")
    tab.press("9")
    expect(tab.page.locator(".unavailable")).to_contain_text("This model has no recurrent layer.")


@pytest.mark.parametrize("recipe", ["elman", "lstm", "gru", "mut1", "mut2", "mut3", "rwkv4", "rwkv7", "rwkv-hybrid"])
def test_every_recurrent_recipe_has_states(recipe: str):
    found = record(loaded("language", "word", recipe), Query("one red dog runs", tokens=2))
    said = found.manifest()
    assert said["recurrences"]
    for one in said["recurrences"]:
        assert one["rows"] == len(said["sequences"][one["sequence"]])
        for number, signal in enumerate(one["signals"]):
            values = np.frombuffer(found.blob(f"signal/{one['id']}/{number}.f16"), "<f2")
            assert values.shape == (one["rows"] * one["width"],)
            assert np.isfinite(values).all()
            assert not signal["gate"] or ((values >= 0) & (values <= 1)).all()
