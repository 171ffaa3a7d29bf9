"""The page in a real browser: new queries, models that are loading, and errors in one sentence."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Lock

import numpy as np
import pytest
from playwright.sync_api import expect

from regard.viewer.model_handle import load_in_background
from regard.viewer.query import Query
from regard.viewer.record import record
from regard.viewer.recording_store import RecordingStore

from ..use.made import image
from .browser import Tab, close, number, rows
from .serving import running
from .shown import Known, Shown, random_recording


def ask(tab: Tab, shown: Shown, name: str, text: str) -> Shown:
    """Type a text for a model, run it, and return the recording that is shown."""
    if tab.field("Model").input_value() != name:
        tab.field("Model").select_option(name)
    tab.page.locator("[data-text]").fill(text)
    before = tab.chosen()["recording"]
    tab.press("Enter")
    expect(tab.page).not_to_have_url(re.compile(before))
    expect(tab.page.locator("[data-text]")).to_have_value(text)
    return replace(shown, ids=shown.ids | {name: tab.chosen()["recording"]})


# --- something new ---------------------------------------------------------------------------------------------------


def test_a_new_sentence_is_run_and_shown(tab: Tab, shown: Shown):
    tab.open(shown.ids["translator"], "look")
    prepared = ask(tab, shown, "writer", "two blue cats and one red dog")
    assert prepared.manifest("writer")["text"] == "two blue cats and one red dog"
    begin = prepared.manifest("writer")["begin"]
    tab.expect_chosen(attention=begin["attention"], head=begin["head"] + 1, query=begin["query"], key=begin["key"])
    words = prepared.words("writer", "tokens")
    expect(tab.page.locator("g.word")).to_have_count(2 * len(words))
    weights = prepared.looked("writer")[begin["attention"]][begin["head"], begin["query"]].numpy()
    table = tab.page.get_by_role("table", name=f"{prepared.names('writer', 'tokens')[begin['query']]} looks at")
    close([number(row[1]) for row in rows(table)], np.sort(weights[: begin["query"] + 1])[::-1][:12], 3)
    listed = tab.field("Recording").locator("option")
    expect(listed.first).to_have_text("writer: two blue cats and one red dog")
    expect(tab.field("Recording")).to_have_value(prepared.ids["writer"])


def test_line_breaks_are_seen_kept_typed_and_pasted(tab: Tab, shown: Shown):
    id = shown.store.put(record(shown.models["writer"], Query("one red\ndog", tokens=0)), Lock())
    tab.open(id, "look")
    box = tab.page.locator("[data-text]")
    expect(box).to_have_value("one red⏎dog")
    box.press("End")
    box.press("Shift+Enter")
    tab.page.evaluate("navigator.clipboard.writeText('two\\r\\nblue')")
    box.press("ControlOrMeta+v")
    expect(box).to_have_value("one red⏎dog⏎two⏎blue")
    box.press("Enter")
    expect(tab.page).not_to_have_url(re.compile(id))
    expect(box).to_have_value("one red⏎dog⏎two⏎blue")
    assert shown.store.find(tab.chosen()["recording"]).recording.manifest()["text"] == "one red\ndog\ntwo\nblue"


def test_a_given_translation_is_forced(tab: Tab, shown: Shown):
    tab.open(shown.ids["translator"], "next")
    tab.field("Translation (optional)").fill("red dogs")
    prepared = ask(tab, shown, "translator", "one cat")
    line = tab.page.get_by_role("group", name="Text so far").get_by_role("button")
    expect(line).to_have_text(prepared.words("translator", "target"))
    assert prepared.manifest("translator")["written"] == "red dogs"


def test_the_form_uses_the_model_of_the_recording_until_another_is_chosen(tab: Tab, shown: Shown):
    tab.open(shown.ids["aligner"], "look")
    expect(tab.field("Model")).to_have_value("aligner")
    tab.field("Translation (optional)").fill("dog")
    tab.field("Recording").select_option(shown.ids["writer"])
    expect(tab.field("Model")).to_have_value("writer")
    expect(tab.field("Translation (optional)")).to_have_count(0)  # a language model cannot use one
    prepared = ask(tab, shown, "writer", "blue")
    tab.field("Model").select_option("recurrent")
    tab.field("Recording").select_option(shown.ids["aligner"])
    expect(tab.page.locator("[data-text]")).to_have_value(shown.manifest("aligner")["text"])
    expect(tab.field("Model")).to_have_value("recurrent")
    assert prepared.words("writer", "tokens")[1] == "blue"


def test_an_image_is_sent_as_a_file(tab: Tab, shown: Shown, tmp_path: Path):
    tab.open(shown.ids["seer"], "image")
    tab.page.locator("[data-text]").set_input_files(image(tmp_path / "image.png", seed=5))
    tab.page.get_by_role("button", name="Run", exact=True).click()
    expect(tab.page).not_to_have_url(re.compile(shown.ids["seer"]))
    expect(tab.page.locator(".tiles button")).to_have_count(4)
    prepared = replace(shown, ids=shown.ids | {"seer": tab.chosen()["recording"]})
    (answer,) = prepared.manifest("seer")["answers"]
    assert answer != shown.manifest("seer")["answers"][0]
    found = rows(tab.page.get_by_role("table", name=answer["question"]))
    close([number(row[1]) for row in found], [guess["probability"] for guess in answer["guesses"]], 3)


# --- a model that is not ready ---------------------------------------------------------------------------------------


@pytest.fixture
def loading(shown: Shown, window: Tab) -> Iterator[tuple[Tab, Known, RecordingStore]]:
    """A viewer with a recording, whose model is still loading."""
    model, store = Known(shown.models["writer"]), RecordingStore({"sample": random_recording()})
    model.may_load.clear()
    thread = load_in_background([model], store, Query("one red dog"), patience=0.0)
    with running(store, model) as port:
        window.begin(f"http://127.0.0.1:{port}")
        yield window, model, store
        model.may_load.set()
        thread.join()
        window.check()
        window.begin("")


def test_the_sample_is_there_while_the_model_loads_and_then_its_answer(loading: tuple[Tab, Known, RecordingStore]):
    tab, model, store = loading
    tab.page.goto(tab.address)
    expect(tab.page.locator(".sentence")).to_contain_text("looks mostly at")
    expect(tab.page.get_by_text("The model is loading …")).to_be_visible()
    expect(tab.field("Model").locator("option")).to_have_text(model.name)
    run = tab.page.get_by_role("button", name="Run", exact=True)
    expect(run).to_be_disabled()
    model.may_load.set()
    expect(run).to_be_enabled()
    expect(tab.page.get_by_text("The model is loading …")).to_be_hidden()
    expect(tab.page.locator("[data-text]")).to_have_value("one red dog")  # the query of the command line
    assert tab.chosen()["recording"] == store.listing()[0]["id"] != "sample"


def test_a_model_that_cannot_be_loaded_says_why(
    loading: tuple[Tab, Known, RecordingStore], capfd: pytest.CaptureFixture[str]
):
    tab, model, _ = loading
    model.trouble = "run: there is no model.safetensors; train it first"
    tab.page.goto(tab.address)
    expect(tab.page.locator(".sentence")).to_contain_text("looks mostly at")
    model.may_load.set()
    expect(tab.page.get_by_role("status").filter(has_text=model.trouble)).to_be_visible()
    expect(tab.page.get_by_role("button", name="Run", exact=True)).to_be_disabled()


def test_a_server_that_ends_while_the_model_loads(loading: tuple[Tab, Known, RecordingStore]):
    tab, _, _ = loading
    tab.page.goto(tab.address)
    expect(tab.page.get_by_text("The model is loading …")).to_be_visible()
    tab.refused.append("/models.json")
    tab.page.route("**/models.json", lambda route: route.abort())
    said = "The viewer's server does not answer; is it still running?"
    expect(tab.page.get_by_role("status").filter(has_text=said)).to_be_visible()
    expect(tab.page.get_by_text("The model is loading …")).to_be_hidden()


def test_the_first_of_two_models_is_shown_and_stays(shown: Shown, window: Tab):
    store, models = RecordingStore({}), [Known(shown.models[name]) for name in ("writer", "recurrent")]
    models[1].may_load.clear()
    thread = load_in_background(models, store, Query("one red dog"), patience=0.0)
    with running(store, *models) as port:
        window.begin(f"http://127.0.0.1:{port}")
        window.page.goto(window.address)
        expect(window.page.locator(".sentence")).to_contain_text("looks mostly at")
        models[1].may_load.set()
        thread.join()
        expect(window.field("Recording").locator("option")).to_have_text(
            ["writer: one red dog", "recurrent: one red dog"]
        )
        assert window.chosen()["recording"] == store.listing()[0]["id"]
        window.page.goto("about:blank")
        window.page.goto(window.address)  # and when both are there from the beginning
        expect(window.page.locator(".sentence")).to_contain_text("looks mostly at")
        window.check()
        window.begin("")


# --- mistakes --------------------------------------------------------------------------------------------------------


def test_an_empty_text_is_one_sentence_and_changes_nothing(tab: Tab, shown: Shown):
    tab.refused.append("/record")
    tab.open(shown.ids["writer"], "look")
    before = tab.chosen()
    tab.page.locator("[data-text]").fill("  ")
    tab.page.get_by_role("button", name="Run", exact=True).click()
    expect(tab.page.locator("header .failure")).to_have_text("the text is empty; write at least one word")
    assert tab.chosen() == before
    expect(tab.page.get_by_role("button", name="Run", exact=True)).to_be_enabled()


def test_nothing_moves_when_a_status_is_shown(tab: Tab, shown: Shown):
    tab.refused.append("/record")
    tab.open(shown.ids["writer"], "look")
    tab.expect_whole()
    parts = [tab.page.locator(part) for part in ("h1", "header form", "header > .field", ".actions", ".tabs")]
    before = [part.bounding_box() for part in parts]
    tab.page.locator("[data-text]").fill("  ")
    tab.page.get_by_role("button", name="Run", exact=True).click()
    expect(tab.page.locator("header .failure")).to_be_visible()
    assert [part.bounding_box() for part in parts] == before


def test_a_text_over_the_limit_says_what_was_kept(tab: Tab, shown: Shown):
    tab.open(shown.ids["writer"], "look")
    text = "one red dog and two blue cats " * 6
    prepared = ask(tab, shown, "writer", text)
    (note,) = prepared.manifest("writer")["notes"]
    assert re.fullmatch(r"Cut to the last \d+ of 42 tokens; this model cannot read more\.", note)
    expect(tab.page.locator(".note")).to_have_text(note)
    assert len(prepared.words("writer", "tokens")) <= 32
    expect(tab.page.locator("g.word")).to_have_count(2 * len(prepared.words("writer", "tokens")))


def test_a_model_without_attention_names_the_available_views(tab: Tab, shown: Shown):
    tab.open(shown.ids["recurrent"], "words")
    expect(tab.page.locator(".note")).to_have_text(shown.manifest("recurrent")["notes"][0])
    expect(tab.page.locator(".note")).to_contain_text("Available views: States, Words, Next and Change.")
    expect(tab.page.locator("footer")).to_have_text("A weight is not an explanation.")  # and no rows and columns
    tabs = tab.page.get_by_role("tab")
    expect(tabs).to_have_count(11)
    found = tabs.evaluate_all("all => all.map(each => [each.textContent.split(' ')[0], each.ariaDisabled, each.title])")
    assert [name for name, disabled, _ in found if disabled == "false"] == ["Words", "Next", "States", "Change"]
    reasons = {name: why for name, disabled, why in found if disabled == "true"}
    assert {reasons[name] for name in ("Look", "Heads", "Arithmetic", "Compare")} == {"This model has no attention."}
    assert reasons["Position"] == "This model has no position encoding: its recurrence carries the order."
    tab.page.get_by_role("tab", name="Look").click(force=True)
    expect(tab.page.locator(".unavailable")).to_contain_text("This model has no attention.")
    expect(tab.page.get_by_role("tab", selected=True)).to_have_text(re.compile("^Words"))
    tab.press("5")
    expect(tab.page.get_by_role("table", name=re.compile("The most likely next tokens"))).to_be_visible()


def test_a_recording_that_was_dropped(tab: Tab, shown: Shown):
    tab.refused.append("/manifest.json")
    gone = shown.store.put(random_recording(text="gone"), Lock())
    listed = shown.store.listing()  # the list that the page still has
    tab.page.route("**/recordings.json", lambda route: route.fulfill(json=listed))
    for _ in range(shown.store.capacity):
        shown.store.put(random_recording(), Lock())
    tab.open(shown.ids["writer"], "look")
    tab.field("Recording").select_option(gone)
    said = "no such recording; only the last ones are kept; choose another, or run the model again"
    expect(tab.page.locator(".closed .failure")).to_have_text(said)
    tab.field("Recording").select_option(shown.ids["aligner"])
    expect(tab.main("look")).to_be_visible()


def test_a_run_that_is_deleted_under_the_server(tab: Tab, shown: Shown):
    tab.refused.append("/attention/0.f16")
    one = random_recording()
    id = shown.store.put(one, Lock())
    plain = one.blob

    def blob(name: str) -> bytes:
        if name.startswith("attention"):
            raise FileNotFoundError(2, "No such file or directory", "probe/step-0.safetensors")
        return plain(name)

    one.blob = blob
    tab.open(id, "look")
    said = "a run: cannot be shown: [Errno 2] No such file or directory: 'probe/step-0.safetensors'"
    expect(tab.main("look").locator(".failure").first).to_have_text(said)


def test_a_server_that_is_gone(tab: Tab, shown: Shown):
    tab.refused.append(".f32")
    tab.open(shown.ids["translator"], "arithmetic", attention="cross.1", head=1, query=0, key=0)
    expect(tab.page.locator("[data-check]")).to_be_visible()
    tab.page.route("**/row/**", lambda route: route.abort("connectionrefused"))  # other requests may still be pending
    tab.page.wait_for_function("() => fetch('row/0.f32').then(() => false, () => true)")  # it holds a little later
    tab.press("j")
    expect(tab.page.locator("main .failure")).to_have_text("The viewer's server does not answer; is it still running?")
    tab.page.unroute("**/row/**")
    for key, word in zip("kj", shown.names("translator", "written")[:2], strict=True):
        tab.press(key)  # a blob that failed can be requested again
        expect(tab.page.get_by_role("img", name=re.compile(f"^Query of {re.escape(word)}: "))).to_be_visible()
