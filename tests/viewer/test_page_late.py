"""The page in a real browser: late responses. The last request wins, and no input is lost."""

import re
from collections.abc import Callable
from pathlib import Path
from threading import Lock

import pytest
from playwright.sync_api import expect

from ..use.made import image
from .browser import Tab
from .shown import Shown, random_recording

Hold = Callable[[str], Callable[[], None]]


@pytest.fixture
def hold(tab: Tab, shown: Shown) -> Hold:
    """Hold back the next response to a path with this ending; return a function that releases it and waits for it.

    The server holds it, not the browser, where the interception of requests begins and ends at times of its own.
    """

    def keep(ending: str) -> Callable[[], None]:
        event = shown.gate.hold(ending)

        def let_go() -> None:
            with tab.page.expect_response(f"**{ending}") as answer:
                event.set()
            answer.value.finished()

        return let_go

    return keep


def run(tab: Tab, text: str) -> None:
    tab.page.locator("[data-text]").fill(text)
    tab.press("Enter")


# --- the query form --------------------------------------------------------------------------------------------------


def test_what_is_typed_while_a_model_runs_stays(tab: Tab, shown: Shown, hold: Hold):
    tab.open(shown.ids["writer"], "look")
    let_go, box = hold("/record"), tab.page.locator("[data-text]")
    run(tab, "one red dog")
    expect(tab.page.get_by_text("Running …")).to_be_visible()
    box.fill("two blue cats")
    let_go()
    expect(tab.field("Recording").locator("option").first).to_have_text("writer: one red dog")
    expect(tab.main("look")).to_be_visible()
    expect(tab.page.get_by_text("Running …")).to_be_hidden()
    expect(box).to_have_value("two blue cats")


def test_the_query_stays_in_the_box_until_its_recording_is_shown(tab: Tab, shown: Shown, hold: Hold):
    tab.open(shown.ids["writer"], "look")
    expect(tab.page.locator("header form")).to_be_visible()
    let_go, box = hold("/manifest.json"), tab.page.locator("[data-text]")
    run(tab, "blue blue dog")
    expect(tab.page).not_to_have_url(re.compile(shown.ids["writer"]))
    expect(tab.page.get_by_text("Opening …")).to_be_visible()
    assert box.input_value() == "blue blue dog"
    let_go()
    expect(tab.main("look")).to_be_visible()
    expect(box).to_have_value("blue blue dog")
    tab.field("Recording").select_option(shown.ids["aligner"])
    expect(box).to_have_value(shown.manifest("aligner")["text"])


def test_an_image_that_is_run_before_it_is_read(tab: Tab, shown: Shown, tmp_path: Path):
    tab.open(shown.ids["seer"], "image")
    box = tab.page.locator("[data-text]")
    expect(box).to_be_visible()
    tab.page.evaluate(
        """() => {
            const read = Blob.prototype.arrayBuffer, gate = new Promise((open) => (window.open_gate = open));
            Blob.prototype.arrayBuffer = function () { return gate.then(() => read.call(this)); };
        }"""
    )
    box.set_input_files(image(tmp_path / "image.png", seed=6))
    tab.page.get_by_role("button", name="Run", exact=True).click()
    tab.page.evaluate("open_gate()")
    expect(tab.page).not_to_have_url(re.compile(shown.ids["seer"]))
    expect(tab.main("image").locator("canvas").first).to_be_visible()


# --- recordings ------------------------------------------------------------------------------------------------------


def test_an_old_list_of_recordings_does_not_replace_a_new_one(tab: Tab, shown: Shown, hold: Hold):
    listed = hold("/models.json")  # after which the recordings are listed again
    tab.open(shown.ids["writer"], "look")
    let_go = hold("/recordings.json")
    listed()
    first = tab.field("Recording").locator("option").first
    run(tab, "red red dog")
    expect(first).to_have_text("writer: red red dog")
    let_go()
    expect(tab.main("look")).to_be_visible()
    tab.page.get_by_role("button", name="Help").click()  # handled after all of these
    expect(tab.page.get_by_role("dialog")).to_be_visible()
    expect(first).to_have_text("writer: red red dog")
    expect(tab.field("Recording").locator("option:checked")).to_have_text("writer: red red dog")


def test_a_view_can_be_chosen_before_the_recording_is_there(tab: Tab, shown: Shown, hold: Hold):
    tab.open(shown.ids["writer"], "look")
    let_go = hold("/manifest.json")
    tab.field("Recording").select_option(shown.ids["translator"])
    expect(tab.page.get_by_text("Opening …")).to_be_visible()
    tab.field("Recording").blur()
    tab.press("2")
    let_go()
    expect(tab.main("heads")).to_be_visible()
    tab.expect_chosen(recording=shown.ids["translator"], view="heads")


def test_of_two_second_texts_the_last_one_asked_for_is_shown(tab: Tab, shown: Shown, hold: Hold):
    slow, quick = shown.ids["biased"], shown.ids["recurrent"]
    tab.open(shown.ids["writer"], "words")
    choice, line = tab.field("Second text"), tab.page.get_by_role("group", name="Second text").get_by_role("button")
    words = shown.words("recurrent", "tokens")
    expect(line.first).to_be_visible()
    let_go = hold(f"/{slow}/manifest.json")
    choice.select_option(slow)
    expect(choice).to_have_value(slow)  # although it is not loaded yet
    choice.select_option(quick)
    tab.expect_chosen(**{"with": quick})
    expect(line).to_have_text(words)
    let_go()
    tab.page.get_by_role("button", name="Help").click()  # handled after that
    expect(tab.page.get_by_role("dialog")).to_be_visible()
    expect(choice).to_have_value(quick)
    expect(line).to_have_text(words)


# --- steps -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def steps(shown: Shown) -> str:
    return shown.store.put(random_recording(steps=[0, 10]), Lock())


@pytest.mark.parametrize("view", ["look", "heads"])
def test_heads_of_the_previous_step_stay_until_the_next_are_loaded(tab: Tab, steps: str, view: str, hold: Hold):
    tab.open(steps, view, attention="cross.1", head=1, query=0, key=0, step=0)
    head = tab.page.locator("main .head" if view == "heads" else "nav .head").nth(1)
    let_go = hold("/overview/1.u8")
    head.focus()
    tab.press("]")
    tab.expect_chosen(step=1)
    expect(head).to_be_focused()
    let_go()
    expect(tab.page.locator(".sentence")).to_contain_text("after 10 steps")
    expect(head).to_be_focused()


def test_a_picture_of_training_names_its_step(tab: Tab, steps: str, hold: Hold):
    tab.open(steps, "training", attention="cross.1", head=1, query=0, key=0, step=0)
    expect(tab.main("training").locator(".pane canvas")).to_be_visible()
    let_go = hold("/attention/1.f16")
    tab.press("]")
    expect(tab.page.locator(".scrubber output")).to_have_text("step 10 of 10")
    expect(tab.page.get_by_role("heading", name="Cross L1.H1 at step 0", exact=True)).to_be_visible()
    let_go()
    expect(tab.page.get_by_role("heading", name="Cross L1.H1 at step 10", exact=True)).to_be_visible()


def test_steps_that_come_slowly_are_played_slowly(tab: Tab, steps: str, hold: Hold):
    tab.open(steps, "training", attention="cross.1", head=1, query=0, key=0, step=0)
    expect(tab.main("training").locator(".pane canvas")).to_be_visible()
    let_go = hold("/attention/1.f16")
    # the test is the clock
    tab.page.evaluate("() => { window.setInterval = (act) => { window.tick = act; return 0; }; }")
    tab.press("Space")
    for _ in range(2):
        tab.page.evaluate("tick()")
        assert tab.chosen()["step"] == "1"
    let_go()
    expect(tab.page.get_by_role("heading", name="Cross L1.H1 at step 10", exact=True)).to_be_visible()
    tab.page.evaluate("tick()")
    assert tab.chosen()["step"] == "0"


# --- keys that follow each other -------------------------------------------------------------------------------------


def test_a_key_reaches_what_the_key_before_it_opened(tab: Tab, shown: Shown):
    """The keys come in consecutive tasks, without a repaint between them."""
    tab.open(shown.ids["translator"], "look")
    expect(tab.page.locator("g.word").first).to_be_visible()
    press = """async (keys) => {
        const focused = [];
        for (const key of keys) {
            const event = new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true });
            document.activeElement.dispatchEvent(event);
            const { port1, port2 } = new MessageChannel();
            await new Promise((done) => { port1.onmessage = done; port2.postMessage(0); });
            focused.push(document.activeElement.textContent);
        }
        return focused;
    }"""
    assert tab.page.evaluate(press, ["e", "e"])[0] == "Picture (SVG)"
    dialog = tab.page.get_by_role("dialog", name="Help")
    tab.page.evaluate(press, ["?", "Escape", "?"])
    expect(dialog).to_be_visible()
    tab.press("Escape")
    expect(dialog).to_be_hidden()
