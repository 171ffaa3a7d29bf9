"""The page in a real browser: changes of a model, and what it does then, beside what it did before."""

import json
from threading import Lock

import numpy as np
import pytest
import torch
from playwright.sync_api import Locator, expect

import regard
from regard.viewer.query import Query
from regard.viewer.record import record
from regard.viewer.recording import pack_recordings, unpack_recordings

from .browser import Tab, close, number, rows
from .shown import Shown, random_recording


def chips(tab: Tab) -> Locator:
    return tab.page.get_by_role("list", name="Changes").get_by_role("listitem")


def pair(tab: Tab, name: str) -> tuple[list[str], np.ndarray]:
    """Return the names and the two columns of a table of shares before and after."""
    found = rows(tab.page.get_by_role("table", name=name))
    return [row[0] for row in found], np.array([[number(cell) for cell in row[1:]] for row in found])


def test_a_head_is_switched_off_and_probabilities_and_heads_follow(tab: Tab, shown: Shown):
    tab.open(shown.ids["writer"], "change", attention="self.1", head=3, query=4, key=1)
    expect(tab.page.get_by_text("Nothing is changed")).to_be_visible()
    tab.page.get_by_role("button", name="Switch off").click()
    expect(chips(tab).locator("label")).to_have_text(["Self-attention L1.H3: off"])
    word = shown.names("writer", "tokens")[4]
    _, shares = pair(tab, f"After {word}, the most likely next tokens")
    model, inputs = shown.models["writer"].model, shown.inputs("writer")
    with torch.no_grad():
        before = model(**inputs)[0, 4].softmax(-1)
        with regard.intervene(model, "self.1", heads=2, attention="zero"):
            after = model(**inputs)[0, 4].softmax(-1)
    close(np.sort(shares[:, 0])[::-1][:6], before.sort(descending=True).values[:6].numpy(), 3)
    close(np.sort(shares[:, 1])[::-1][:6], after.sort(descending=True).values[:6].numpy(), 3)
    moved = tab.page.get_by_role("region", name="Heads that moved").get_by_role("button")
    expect(moved.filter(has_text="changed")).to_have_count(1)
    expect(moved.filter(has_text="changed")).to_contain_text("L1.H3")
    expect(moved.filter(has_text="L2.")).to_have_count(4)  # every head above
    mark, card = (each.bounding_box() for each in (moved.locator(".mark"), moved.filter(has_text="changed")))
    assert mark
    assert card
    assert mark["x"] + mark["width"] <= card["x"] + card["width"]  # it hides no other name
    expect(tab.page.locator(".sentence")).to_contain_text("Loss of this text:")
    assert json.loads(tab.chosen()["changes"]) == [{"place": "self.1", "heads": [2], "attention": "zero"}]


def test_changes_are_in_the_address_and_can_be_switched_off_and_removed(tab: Tab, shown: Shown):
    changes = [{"place": "self.1", "attention": "uniform"}, {"place": "self.2", "heads": [0], "weight": [3, 1, 0.5]}]
    tab.open(shown.ids["writer"], "change", changes=json.dumps(changes))
    expect(chips(tab)).to_have_count(2)
    expect(chips(tab).first).to_contain_text("Self-attention L1, all heads: looks evenly")
    expect(tab.page.get_by_role("region", name="Heads that moved")).to_be_visible()
    for box in chips(tab).get_by_role("checkbox").all():
        box.uncheck()
    expect(tab.page.get_by_text("Nothing is changed")).to_be_visible()
    expect(tab.page.get_by_role("region", name="Heads that moved")).to_be_hidden()
    tab.page.get_by_role("button", name="Move up").click()
    expect(chips(tab).first).to_contain_text("is 0.5")
    tab.page.get_by_role("button", name="Remove").first.click()
    expect(chips(tab)).to_have_count(1)
    assert json.loads(tab.chosen()["changes"]) == [{"place": "self.1", "attention": "uniform", "off": True}]


def test_a_weight_is_set_for_the_chosen_words(tab: Tab, shown: Shown):
    tab.open(shown.ids["translator"], "change", attention="cross.2", head=2, query=1, key=0)
    field = tab.page.get_by_label("Weight of")
    field.fill("2")
    expect(tab.page.get_by_role("button", name="Set", exact=True)).to_be_disabled()
    field.fill("0.75")
    tab.page.get_by_role("button", name="Set", exact=True).click()
    expect(chips(tab)).to_contain_text("is 0.75")
    expect(tab.page.get_by_role("heading", name="Cross L2.H2, after")).to_be_visible()
    expect(tab.page.locator("dl.written dd")).to_have_count(2)


def test_a_vector_comes_from_another_text(tab: Tab, shown: Shown):
    tab.open(shown.ids["recurrent"], "change")
    tab.page.get_by_text("Replace a vector").click()
    tab.field("in another text (optional)").fill("two blue cats")
    tab.field("token number").fill("3")
    tab.page.get_by_role("button", name="Replace", exact=True).click()
    expect(chips(tab)).to_contain_text("from “two blue cats”")
    expect(tab.page.locator(".sentence")).to_contain_text("Loss of this text:")


def test_a_model_of_images_is_offered_no_other_text(tab: Tab, shown: Shown):
    tab.open(shown.ids["seer"], "change")
    tab.page.get_by_text("Replace a vector").click()
    expect(tab.page.get_by_role("button", name="Replace", exact=True)).to_be_visible()
    expect(tab.page.get_by_text("in another text")).to_have_count(0)


def test_the_output_of_a_head_comes_from_another_head(tab: Tab, shown: Shown):
    tab.open(shown.ids["writer"], "change")
    tab.page.get_by_text("Replace a vector").click()
    tab.field("Replace").select_option("self.2")
    tab.field("head to replace").select_option("1")
    tab.field("by").select_option("self.1")
    tab.field("head to copy").select_option("3")
    tab.page.get_by_role("button", name="Replace", exact=True).click()
    expect(chips(tab)).to_contain_text("Self-attention L2.H2")
    expect(chips(tab)).to_contain_text("from the output of Self-attention L1.H4")
    expect(tab.page.locator(".sentence")).to_contain_text("Loss of this text:")
    vector = {"place": "self.1", "position": 0, "head": 3}
    assert json.loads(tab.chosen()["changes"]) == [
        {"place": "self.2", "heads": [1], "positions": [0], "vector": vector}
    ]


def test_a_stored_recording_is_run_again_to_be_changed(tab: Tab, shown: Shown):
    live = record(shown.models["writer"], Query("one red dog runs", tokens=0))
    stored = unpack_recordings(pack_recordings({"stored": live}, without=["next"]))["stored"]
    id = shown.store.put(stored, Lock())
    tab.open(id, "look")
    tab.page.get_by_role("tab", name="Change").click(force=True)
    expect(tab.page.locator(".unavailable")).to_contain_text("this recording was stored without it")
    tab.page.get_by_role("button", name="Run writer on this text").click()
    expect(tab.main("change")).to_be_visible()
    tab.page.get_by_role("button", name="Switch off").click()
    expect(tab.page.get_by_role("region", name="Heads that moved")).to_be_visible()
    tab.page.go_back()
    expect(tab.main("look")).to_be_visible()


def test_the_changed_model_opens_in_the_other_views_and_as_code(tab: Tab, shown: Shown):
    tab.open(shown.ids["writer"], "change", attention="self.1", head=1, query=4, key=1)
    tab.page.get_by_role("button", name="Look at", exact=False).last.click()
    expect(chips(tab)).to_have_count(1)
    tab.page.get_by_role("button", name="Copy as Python").click()
    expect(tab.page.get_by_text("Copied.")).to_be_visible()
    button = tab.page.get_by_role("button", name="Copy as Python")
    place = button.bounding_box()
    code = tab.page.evaluate("navigator.clipboard.readText()")
    assert code == "with regard.intervene(model, 'self.1', heads=[0], attention=1):\n    ..."
    tab.page.get_by_role("button", name="Look evenly").click()
    expect(chips(tab)).to_have_count(2)
    expect(tab.page.get_by_text("Copied.")).to_be_hidden()  # these are other changes
    assert button.bounding_box()["x"] == place["x"]
    tab.page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(new Error('no')); }")
    button.click()
    code = tab.page.get_by_label("Python code").input_value()
    assert code.count("regard.intervene(model") == 2
    tab.page.get_by_role("button", name="Remove", exact=False).last.click()
    expect(chips(tab)).to_have_count(1)
    expect(tab.page.get_by_label("Python code")).to_be_hidden()
    tab.page.get_by_role("button", name="Open the changed model").click()
    expect(tab.main("look")).to_be_visible()
    key = shown.names("writer", "tokens")[1]
    expect(tab.page.locator(".sentence")).to_contain_text(f"looks mostly at {key} (1.00)")
    expect(tab.field("Model")).to_have_value("writer")
    expect(tab.field("Recording").locator("option:checked")).to_contain_text("writer (changed): one red dog")
    changed = tab.chosen()["recording"]
    tab.page.reload()
    expect(tab.page.locator(".sentence")).to_contain_text(f"looks mostly at {key} (1.00)")
    tab.expect_chosen(recording=changed)
    tab.press("x")  # a changed model is not changed again
    expect(tab.page.get_by_text("This recording has no model that could be changed")).to_be_visible()
    tab.page.go_back()
    expect(tab.main("change")).to_be_visible()


def test_bars_before_and_after_can_be_compared(tab: Tab, shown: Shown):
    off = json.dumps([{"place": "self.1", "heads": [0], "attention": "zero"}])
    tab.open(shown.ids["writer"], "change", attention="self.1", head=1, query=4, key=1, changes=off)
    cells = tab.page.locator(".pairs tbody tr").first.locator("td")
    expect(cells).to_have_count(2)
    widths = [cells.nth(at).bounding_box()["width"] for at in range(2)]
    assert widths[0] == pytest.approx(widths[1], abs=1)
    tops = tab.page.locator(".cards canvas").evaluate_all("all => all.map(each => each.getBoundingClientRect().top)")
    assert len(set(tops[:2])) == 1 < len(tops)  # with the mark of a changed head below, and without


def test_a_head_that_is_off_looks_at_nothing(tab: Tab, shown: Shown):
    tab.open(shown.ids["writer"], "change", attention="self.1", head=1, query=4, key=1)
    tab.page.get_by_role("button", name="Switch off").click()
    tab.page.get_by_role("button", name="Open the changed model").click()
    word = shown.names("writer", "tokens")[4]
    expect(tab.page.locator(".sentence")).to_have_text(f"{word} looks at nothing: all weights are 0, layer 1, head 1")


def test_a_model_without_heads_is_asked_for_a_vector(tab: Tab, shown: Shown):
    tab.open(shown.ids["recurrent"], "change")
    expect(tab.page.get_by_text("Nothing is changed: replace the vector")).to_be_visible()


def test_answers_are_compared_too(tab: Tab, shown: Shown):
    tab.open(shown.ids["seer"], "change", attention="self.1", head=1)
    tab.page.get_by_role("button", name="Look evenly").click()
    (answer,) = shown.manifest("seer")["answers"]
    names, shares = pair(tab, answer["question"])
    head = tab.page.get_by_role("table", name=answer["question"]).get_by_role("columnheader")
    expect(head).to_have_text(["answer", "before", "after"])
    wanted = {guess["text"]: guess["probability"] for guess in answer["guesses"]}
    close(shares[:, 0], [wanted[name] for name in names], 3)


def test_the_states_of_residues_before_and_after_are_below_their_letters(tab: Tab, shown: Shown):
    letters, states = "MKTAYIAKQRQI", ["__HHHHHHHH__", "__HHHHHH__EE"]
    tokens = [{"text": each, "id": 0, "special": False, "word": 0} for each in letters]
    common = {"noun": "residue", "sequences": {"tokens": tokens}, "attentions": []}
    answers = [[{"question": "Which states?", "guesses": [{"text": each, "probability": 0.5}]}] for each in states]
    before, after = (shown.store.put(random_recording(answers=each, **common), Lock()) for each in answers)
    manifest = {**shown.store.find(before).recording.manifest(), "places": ["tokens.0"]}
    tab.page.route(f"**/{before}/manifest.json", lambda route: route.fulfill(json=manifest))
    tab.page.route("**/change", lambda route: route.fulfill(json={"id": after, "moved": {}, "loss": None, "code": ""}))
    vector = {"place": "tokens.0", "position": 0}
    changes = json.dumps([{"place": "tokens.0", "positions": [1], "vector": vector}])
    tab.open(before, "change", changes=changes)
    blocks = tab.page.locator(".residues > span")
    wanted = ["1", letters[:10], states[0][:10], states[1][:10]]
    expect(blocks.first.locator(":scope > *")).to_have_text(wanted)
    expect(tab.page.locator(".residues mark")).to_have_text(["_", "_", "E", "E"])
    names, shares = pair(tab, "Which states?")
    assert names == ["mean probability"]
    assert (shares == 0.5).all()


def test_an_impossible_change_is_one_sentence(tab: Tab, shown: Shown):
    tab.refused.append("/change")
    changes = [{"place": "self.1", "heads": [99], "attention": "zero"}]
    tab.open(shown.ids["writer"], "change", changes=json.dumps(changes))
    expect(tab.page.locator(".failure")).to_have_text("self.1: no head 99; the heads are 0 to 3")


def test_the_view_is_accessible(tab: Tab, shown: Shown):
    changes = [{"place": "self.1", "heads": [0], "attention": "zero"}]
    tab.open(shown.ids["writer"], "change", changes=json.dumps(changes))
    expect(tab.page.get_by_role("region", name="Heads that moved")).to_be_visible()
    assert tab.violations() == []
