"""The page in a real browser: it is accessible, and no text can become markup.

`Tab` checks in every test that the page contacts only its own server, and reports no errors.
"""

import re
import shutil
from pathlib import Path
from threading import Lock
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect

from regard.viewer.recording_store import RecordingStore

from . import browser
from .browser import Tab, browsing
from .fake import EVIL
from .serving import running
from .shown import Shown, random_recording

# --- nothing is left out ---------------------------------------------------------------------------------------------


def test_without_a_browser_tests_fail(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(shutil, "which", lambda program: None)
    with pytest.raises(pytest.fail.Exception, match="the tests of the page need Chromium"), browsing():
        pass


def test_without_axe_tests_fail(tab: Tab, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(browser, "AXE", Path("/nowhere/axe.min.js"))
    with pytest.raises(
        pytest.fail.Exception, match="there is no axe-core to test the page with; `make page` installs it"
    ):
        tab.violations()


# --- everybody can use it --------------------------------------------------------------------------------------------

VIEWS = {"look": "translator", "heads": "translator", "arithmetic": "translator", "words": "writer"}
VIEWS |= {"next": "translator", "position": "writer", "training": "trained", "image": "seer", "compare": "aligner"}


@pytest.fixture(scope="module")
def ids(shown: Shown) -> dict[str, str]:
    return shown.ids | {"trained": shown.store.put(random_recording(steps=[0, 10, 100]), Lock(), keep=True)}


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
def test_axe_finds_nothing_in_any_view(tab: Tab, ids: dict[str, str], scheme: str, width: int):
    tab.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    tab.page.set_viewport_size({"width": width, "height": 800})
    for view, name in VIEWS.items():
        tab.open(ids[name], view)
        expect(tab.main(view).locator("table, canvas, svg").first).to_be_visible()
        assert (view, tab.violations()) == (view, [])
        # nothing makes the whole page wider than the window
        assert tab.page.evaluate("document.documentElement.scrollWidth") <= width, view


def test_headings_are_in_order_while_heads_are_loading(tab: Tab, ids: dict[str, str]):
    tab.page.route("**/overview/*", lambda route: None)  # never answered
    for view, name in VIEWS.items():
        tab.open(ids[name], view)
        expect(tab.main(view).get_by_role("heading", name=view.capitalize(), exact=True)).to_be_attached()
        assert (view, tab.violations("heading-order", "page-has-heading-one")) == (view, [])


def test_three_recordings_are_offered_for_a_view_at_most(tab: Tab, ids: dict[str, str]):
    tab.open(ids["recurrent"], "states")
    tab.press("1")  # which needs attention
    others = tab.page.locator(".unavailable button").filter(has_text="Open")
    expect(others.first).to_be_visible()
    assert others.count() == 3


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_in_what_opens(tab: Tab, ids: dict[str, str], scheme: str):
    tab.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    tab.page.set_viewport_size({"width": 390, "height": 800})
    tab.open(ids["aligner"], "look")
    tab.press("8")  # which explains why, and offers other recordings
    expect(tab.page.get_by_role("button", name=re.compile("^Open seer")).first).to_be_visible()
    tab.press("e")
    expect(tab.page.get_by_role("button", name="Picture (SVG)")).to_be_visible()
    assert tab.violations() == []
    tab.press("Escape", "?")
    expect(tab.page.get_by_role("dialog")).to_be_visible()
    assert tab.violations() == []


def test_axe_would_find_something(tab: Tab, ids: dict[str, str]):
    tab.open(ids["translator"], "look")
    tab.page.evaluate("document.querySelector('h1').innerHTML = '<img src=\"data:,\">'")
    assert any(each.startswith("image-alt") for each in tab.violations())


def test_every_tab_stop_is_seen_and_has_a_name(tab: Tab, ids: dict[str, str]):
    tab.open(ids["translator"], "look")
    expect(tab.page.locator("g.word").first).to_be_visible()
    tab.expect_whole()
    names = []
    for _ in range(60):
        tab.press("Tab")
        found = tab.page.evaluate(
            """() => {
                const at = document.activeElement, style = getComputedStyle(at);
                const name = at.ariaLabel || at.labels?.[0]?.innerText || at.innerText || at.textContent;
                const box = at.getBoundingClientRect();
                const frame = at.matches("g") ? getComputedStyle(at.querySelector("rect")).stroke : style.outlineStyle;
                const seen = box.width > 0 && box.height > 0 && frame !== "none";
                return at === document.body ? null : { name: name.trim(), seen };
            }"""
        )
        if found is None:
            break
        assert found["seen"], found
        names.append(found["name"])
    assert all(names)
    assert len(names) > 20
    assert len([name for name in names if name.startswith(("Encoder L", "Decoder L", "Cross L"))]) == 1


def test_reduced_motion_is_respected(tab: Tab, ids: dict[str, str]):
    tab.open(ids["translator"], "look")
    expect(tab.page.locator("path.ribbon").first).to_be_visible()
    durations = """() => {
        const every = [...document.querySelectorAll("*")];
        return [...new Set(every.map((each) => getComputedStyle(each).transitionDuration))];
    }"""
    assert len(tab.page.evaluate(durations)) > 1
    tab.page.emulate_media(reduced_motion="reduce")
    assert tab.page.evaluate(durations) == ["0s"]


# --- only with the token ---------------------------------------------------------------------------------------------


def test_the_page_works_with_its_token_after_a_reload_and_not_without(shown: Shown, window: Tab, tmp_path: Path):
    store = RecordingStore({"one": random_recording("ein Hund")})
    with running(store, token="secret") as port:
        window.begin(f"http://127.0.0.1:{port}")
        window.refused += [window.address + "/", "/favicon.ico"]
        window.page.goto(window.address)
        expect(window.page.locator("body")).to_contain_text("wrong or missing token; use the address that the viewer")
        window.page.goto(f"{window.address}/?token=secret#view=heads")
        for _ in range(2):
            expect(window.main("heads").locator("canvas").first).to_be_visible()
            assert "?token=secret#" in window.page.evaluate("location.href")
            window.page.reload()
        assert window.download("This page as one file (HTML)", tmp_path).stat().st_size > 10_000
        window.page.goto(f"{window.address}/#view=look")  # the cookie is enough
        expect(window.page.locator(".sentence")).to_contain_text("looks mostly at")
        assert window.page.evaluate("document.cookie") == ""  # no script can read it
        window.check()
        window.begin("")


# --- no word does harm -----------------------------------------------------------------------------------------------


def check_harmless(tab: Tab, keys: str) -> None:
    """Check that no view turns a word into an element; an alert would be reported as an error."""
    for key in keys:
        tab.press(key)
        expect(tab.page.get_by_role("tab", selected=True)).to_have_text(re.compile(f" {key.upper()}$"))
        expect(tab.page.locator("main").locator("table, canvas, svg").first).to_be_visible()  # so the words are shown
        assert tab.page.locator("img, script:not([type=module]):not([type='text/plain'])").count() == 0
    assert not [url for url in tab.requests if url.endswith("/x")]


def test_a_tag_among_the_words_is_text(tab: Tab, shown: Shown, tmp_path: Path):
    answers = [{"question": EVIL, "guesses": [{"text": EVIL, "probability": 1.0}]}]
    one = random_recording(f"ein {EVIL}", EVIL, model=EVIL, notes=[EVIL], answers=answers)
    id = shown.store.put(one, Lock())
    tab.open(id, "look", attention="cross.1", head=1, query=2, key=0)
    expect(tab.page.locator(".sentence")).to_contain_text(f"{EVIL} looks mostly at")
    expect(tab.page.locator(".note")).to_have_text(EVIL)
    check_harmless(tab, "25c1")
    expect(tab.page.locator("path.ribbon").first).to_be_visible()
    assert "<img" not in tab.download("Picture (SVG)", tmp_path).read_text(encoding="utf-8")
    tab.download("Picture (PNG)", tmp_path)
    tab.page.get_by_role("button", name="Heat map").click()
    assert "<img" not in tab.download("Picture (SVG)", tmp_path).read_text(encoding="utf-8")

    path, chosen = tab.download("This page as one file (HTML)", tmp_path), urlsplit(tab.page.url).fragment
    tab.check()
    tab.begin("file://")
    tab.page.goto(f"{path.as_uri()}#{chosen}")
    expect(tab.page.locator(".sentence")).to_contain_text(f"{EVIL} looks mostly at")
    check_harmless(tab, "25c1")


def test_a_typed_tag_is_text(tab: Tab, shown: Shown):
    tab.open(shown.ids["translator"], "look")
    tab.field("Translation (optional)").fill(EVIL)
    tab.page.locator("[data-text]").fill(EVIL)
    tab.press("Enter")
    expect(tab.page).not_to_have_url(re.compile(shown.ids["translator"]))
    expect(tab.field("Recording").locator("option").first).to_have_text(re.compile(f"^translator: {EVIL[:20]}"))
    expect(tab.page.locator("[data-text]")).to_have_value(EVIL)
    tab.page.locator("[data-text]").blur()
    check_harmless(tab, "123456c")


def test_an_address_with_a_tag(tab: Tab, shown: Shown):
    tab.refused.append("/manifest.json")
    tab.page.goto(f"{tab.address}/#recording={EVIL}&view={EVIL}&attention={EVIL}&with={EVIL}*{EVIL}")
    expect(tab.page.locator(".sentence").first).to_be_visible()
    check_harmless(tab, "1")
