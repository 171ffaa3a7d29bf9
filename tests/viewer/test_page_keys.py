"""The page in a real browser: every key of the help does what it says, and the address keeps what is chosen."""

import re
from threading import Lock

import pytest
from playwright.sync_api import expect

from .browser import Tab
from .shown import Shown, random_recording

VIEWS = {"1": "look", "2": "heads", "3": "arithmetic", "4": "words", "5": "next", "6": "position", "c": "compare"}


@pytest.fixture
def begun(tab: Tab, shown: Shown) -> Tab:
    """A translator, with a head and word in the middle selected."""
    tab.open(shown.ids["translator"], "look", attention="cross.1", head=2, query=1, key=2)
    expect(tab.page.locator("g.word").first).to_be_visible()
    return tab


# --- keys ------------------------------------------------------------------------------------------------------------


def test_arrows_go_from_head_to_head_and_from_layer_to_layer(begun: Tab, shown: Shown):
    order = [one["id"] for one in shown.manifest("translator")["attentions"]]
    begun.press("ArrowRight")
    begun.expect_chosen(head=3)
    begun.press("ArrowLeft", "ArrowLeft")
    begun.expect_chosen(head=1)
    begun.press("ArrowLeft")  # nothing comes before the first
    begun.press("ArrowDown")
    begun.expect_chosen(attention=order[order.index("cross.1") + 1], head=1)
    begun.press("ArrowUp", "ArrowUp")
    begun.expect_chosen(attention=order[order.index("cross.1") - 1])
    expect(begun.page.locator("nav .head[aria-pressed=true]")).to_have_attribute("title", "Decoder L2.H1")


def test_letters_go_from_word_to_word(begun: Tab, shown: Shown):
    lookers, keys = shown.words("translator", "written"), shown.words("translator", "source")
    sentence, marked = begun.page.locator(".sentence"), begun.page.locator("g.word.marked")
    begun.press("j")
    begun.expect_chosen(query=2)
    expect(sentence).to_contain_text(re.compile(f"^{re.escape(lookers[2])} looks"))
    begun.press("K", "k")  # capital letters work too
    begun.expect_chosen(query=0)
    expect(sentence).to_contain_text(re.compile(f"^{re.escape(lookers[0])} looks"))
    begun.press("k")  # nothing comes before the first
    begun.expect_chosen(query=0)
    begun.press("l")
    begun.expect_chosen(key=3)
    expect(marked).to_contain_text(keys[3])
    begun.press("h", "h")
    begun.expect_chosen(key=1)
    expect(marked).to_contain_text(keys[1])


def test_numbers_go_from_view_to_view(begun: Tab):
    for key, view in VIEWS.items():
        begun.press(key)
        begun.expect_chosen(view=view)
        expect(begun.main(view)).to_be_visible()
        tab = begun.page.get_by_role("tab", selected=True)
        expect(tab).to_have_text(f"{view.capitalize()} {key.upper()}")
    begun.press("7")  # cannot show this recording
    expect(begun.page.locator(".unavailable")).to_contain_text("This recording has no training snapshots;")
    begun.expect_chosen(view="compare")
    begun.press("8")
    expect(begun.page.locator(".unavailable")).to_contain_text("This model does not read images.")
    begun.page.get_by_role("button", name=re.compile("^Open seer")).first.click()
    expect(begun.main("image")).to_be_visible()


def test_the_back_button_returns_to_the_view_and_the_recording_before(begun: Tab, shown: Shown):
    translator = shown.ids["translator"]
    begun.press("ArrowRight", "5")  # another head is the same place
    begun.expect_chosen(view="next", head=3)
    begun.field("Recording").select_option(shown.ids["writer"])
    begun.expect_chosen(recording=shown.ids["writer"], view="next")
    begun.page.go_back()
    begun.expect_chosen(recording=translator, view="next", attention="cross.1", head=3)
    begun.page.go_back()
    begun.expect_chosen(recording=translator, view="look", attention="cross.1", head=3)
    expect(begun.main("look")).to_be_visible()
    begun.page.go_forward()
    expect(begun.main("next")).to_be_visible()


def test_where_the_browser_has_gone_back_to_is_not_overwritten(begun: Tab):
    """The address changes before the page is told so; a recording that was loaded meanwhile wrote the view into it."""
    begun.press("5")
    begun.expect_chosen(view="next")
    begun.page.evaluate("history.replaceState(null, '', location.hash.replace('view=next', 'view=look'))")
    begun.press("ArrowRight")
    begun.expect_chosen(view="look")
    begun.page.evaluate("dispatchEvent(new HashChangeEvent('hashchange'))")
    expect(begun.main("look")).to_be_visible()
    begun.press("5", "ArrowRight")
    begun.expect_chosen(view="next")


def test_unavailable_tabs_are_dimmed(begun: Tab):
    training = begun.page.get_by_role("tab", name="Training")
    expect(training).to_have_css("opacity", "0.5")
    expect(training).to_have_css("text-decoration-line", "none")


def test_p_pins_and_escape_clears(begun: Tab, shown: Shown):
    lookers = shown.words("translator", "written")
    begun.press("p", "j")
    begun.expect_chosen(query=2, pinned=1)
    expect(begun.page.locator(".sentence")).to_contain_text(f"{lookers[2]} and {lookers[1]} together look mostly at")
    begun.press("?", "Escape", "e", "Escape")  # what is open is closed first
    expect(begun.page.get_by_role("dialog", name="Help")).to_be_hidden()
    begun.expect_chosen(query=2, pinned=1)
    begun.press("/", "Escape")  # and a text box is left first
    expect(begun.page.get_by_label("Text", exact=True)).not_to_be_focused()
    begun.expect_chosen(query=2, pinned=1)
    begun.press("Escape")
    begun.expect_chosen(query=2, pinned="")
    expect(begun.page.locator(".sentence")).to_contain_text(re.compile(f"^{re.escape(lookers[2])} looks mostly at"))


def test_e_opens_and_escape_closes_what_can_be_exported(begun: Tab):
    first = begun.page.get_by_role("button", name="Picture (SVG)")
    begun.press("e")
    expect(first).to_be_focused()
    begun.press("Escape")
    expect(first).to_be_hidden()
    begun.press("e", "e")
    expect(first).to_be_hidden()


def test_space_plays_word_by_word(begun: Tab):
    begun.press("Space")
    begun.expect_passing(query=2)
    begun.expect_passing(query=3)
    begun.press("Space")


def test_brackets_go_from_step_to_step(tab: Tab, shown: Shown):
    id = shown.store.put(random_recording(steps=[0, 10]), Lock())
    tab.open(id, "look", attention="cross.1", head=1, query=0, key=0, step=0)
    tab.press("]")
    tab.expect_chosen(step=1)
    expect(tab.page.locator(".sentence")).to_contain_text("after 10 steps")
    tab.press("]", "[")
    tab.expect_chosen(step=0)
    expect(tab.page.locator(".sentence")).to_contain_text("after 0 steps")


def test_the_help_lists_every_key_and_switches_them_off(begun: Tab):
    begun.press("?")
    dialog = begun.page.get_by_role("dialog", name="Help")
    expect(dialog).to_be_visible()
    keys = ["← →", "↑ ↓", "J K", "H L", "[ ]", "Space", "1 – 9", "/", "P", "X", "C", "E", "?", "Esc"]
    assert dialog.locator("kbd").all_inner_texts() == keys
    dialog.get_by_label("Keyboard shortcuts").uncheck()
    dialog.get_by_role("button", name="Close").click()
    expect(dialog).to_be_hidden()
    before = begun.chosen()
    begun.press("j", "ArrowRight", "2", "p", "e", "?", "Escape")
    expect(dialog).to_be_hidden()
    begun.page.get_by_role("button", name="Help").click()  # handled after all of these
    expect(dialog).to_be_visible()
    assert begun.chosen() == before
    dialog.get_by_label("Keyboard shortcuts").check()
    begun.press("Escape")
    expect(dialog).to_be_hidden()
    begun.press("j")
    begun.expect_chosen(query=2)


def test_a_text_box_keeps_its_letters(begun: Tab):
    box = begun.page.locator("[data-text]")
    expect(box).to_be_visible()
    begun.press("/")
    expect(box).to_be_focused()
    before = begun.chosen()
    box.fill("")
    begun.page.keyboard.type("j 2 pck/?e[]")
    begun.press("ArrowLeft", "Home")
    expect(box).to_have_value("j 2 pck/?e[]")
    assert begun.chosen() == before
    expect(begun.page.get_by_role("dialog")).to_be_hidden()
    box.blur()
    begun.press("j")
    begun.expect_chosen(query=2)


def test_controls_keep_their_own_keys(begun: Tab):
    begun.page.locator("nav .head").first.focus()
    begun.press("Space")  # chooses the head, does not play
    begun.expect_chosen(attention="encoder.1", head=1)
    begun.press("ArrowRight")  # which a button does not use
    begun.expect_chosen(head=2)
    begun.field("Model").focus()
    begun.press("ArrowDown")
    expect(begun.field("Model")).not_to_have_value("translator")
    begun.expect_chosen(attention="encoder.1", head=2)


def test_tab_reaches_one_head_of_the_grid_and_the_focus_follows_the_arrows(begun: Tab):
    chosen = begun.page.locator("nav .head[aria-pressed=true]")
    begun.page.get_by_role("tab", name="Compare").focus()
    begun.press("Tab")
    expect(chosen).to_be_focused()
    for key, head in (("ArrowRight", 3), ("ArrowUp", 3), ("ArrowLeft", 2)):
        begun.press(key)
        begun.expect_chosen(head=head)
        expect(chosen).to_be_focused()
    begun.press("Tab")
    assert not begun.page.evaluate("document.activeElement.matches('nav .head')")


def test_tab_reaches_every_head_if_the_arrows_are_off(begun: Tab):
    begun.press("?")
    begun.page.get_by_label("Keyboard shortcuts").uncheck()
    begun.page.get_by_role("button", name="Close").click()
    begun.page.locator("nav .head").first.focus()
    begun.press("Tab")
    expect(begun.page.locator("nav .head").nth(1)).to_be_focused()


def test_keys_of_the_browser_are_left_alone(begun: Tab):
    before = begun.chosen()
    begun.press("Control+j", "Alt+2", "Control+e")
    begun.press("h")  # handled after these
    begun.expect_chosen(key=1)
    assert begun.chosen() == before | {"key": "1"}


# --- the address -----------------------------------------------------------------------------------------------------


def test_a_reload_keeps_everything(begun: Tab):
    begun.press("ArrowRight", "j", "p", "j", "l")
    begun.page.get_by_label("Hide special tokens").check()
    begun.page.get_by_label("Merge pieces into words").check()
    begun.page.get_by_role("button", name="Heat map").click()
    begun.page.get_by_label("brighten (√)").check()
    begun.expect_chosen(head=3, query=3, pinned=2, hide=1, merge=1, map=1, root=1)
    before, sentence = begun.chosen(), begun.page.locator(".sentence").inner_text()
    begun.page.reload()
    expect(begun.page.locator(".sentence")).to_have_text(sentence)
    assert begun.chosen() == before
    for name in ("Hide special tokens", "Merge pieces into words", "brighten (√)"):
        expect(begun.page.get_by_label(name)).to_be_checked()
    expect(begun.page.get_by_role("button", name="Heat map")).to_have_attribute("aria-pressed", "true")


def test_an_address_typed_by_hand_is_followed(begun: Tab, shown: Shown):
    begun.open(shown.ids["aligner"], "arithmetic", attention="cross.1", head=1, query=2, key=1)
    expect(begun.page.get_by_label("The word that looks")).to_have_value("2")
    expect(begun.page.get_by_label("The word looked at")).to_have_value("1")


def test_an_invalid_address_is_clamped(tab: Tab, shown: Shown):
    tab.open(shown.ids["translator"], "look", attention="cross.2", head=99, query=999, key="x", step=7)
    rows = len(shown.words("translator", "written"))
    tab.expect_chosen(attention="cross.2", head=4, query=rows - 1, key=0, step=0)
    tab.page.goto("about:blank")
    tab.open(shown.ids["translator"], "look", attention="cross.9")
    begin = shown.manifest("translator")["begin"]
    tab.expect_chosen(attention=begin["attention"], head=begin["head"] + 1, query=begin["query"], key=begin["key"])


def test_an_address_of_a_recording_that_is_gone_shows_the_first_and_says_so(tab: Tab, shown: Shown):
    tab.refused.append("/manifest.json")
    tab.page.goto(f"{tab.address}/#recording=nowhere&view=heads")
    expect(tab.main("heads")).to_be_visible()
    assert tab.chosen()["recording"] != "nowhere"
    note = tab.page.get_by_text("The recording that this address names is gone")
    expect(note).to_be_visible()
    other = next(id for id in shown.ids.values() if id != tab.chosen()["recording"])
    tab.field("Recording").select_option(other)
    expect(note).to_have_count(0)
