"""The page in a real browser, as the widget of a notebook: it adapts to its own width, and its keys stay in it."""

import base64

from playwright.sync_api import expect

from regard.viewer.recording import pack_recordings

from .browser import Tab
from .shown import Shown

RENDER = """async ([archive, width]) => {
  const { default: widget } = await import("/page.js");
  const bytes = Uint8Array.from(atob(archive), (character) => character.charCodeAt(0));
  const element = document.createElement("div");
  element.style.width = `${width}px`;
  document.body.replaceChildren(element);
  window.notebookKeys = [];
  document.addEventListener("keydown", (event) => window.notebookKeys.push(event.key));
  const state = { archive: new DataView(bytes.buffer), height: null, theme: null };
  const nothing = () => undefined;  // no kernel answers
  const model = { get: (name) => state[name], send: nothing, on: nothing, off: nothing };
  await widget.render({ model, el: element });
}"""
COLUMNS = "element => getComputedStyle(element).gridTemplateColumns.split(' ').length"


def render(tab: Tab, shown: Shown, width: int) -> None:
    archive = pack_recordings({"one": shown.recording("writer")}, without=["arithmetic", "hidden", "next"])
    tab.open(shown.ids["writer"], "look")
    tab.page.evaluate(RENDER, [base64.b64encode(archive).decode(), width])
    expect(tab.page.locator(".ribbons svg")).to_be_visible()


def test_keys_act_on_the_widget_and_do_not_reach_the_notebook(tab: Tab, shown: Shown):
    render(tab, shown, 1000)
    tab.page.locator("nav .head").first.focus()
    tab.press("j", "d", "d", "ArrowRight", "2")
    expect(tab.main("heads")).to_be_visible()
    assert tab.page.evaluate("window.notebookKeys") == []


def test_the_theme_is_that_of_the_notebook_not_that_of_the_system(tab: Tab, shown: Shown):
    widget = tab.page.locator(".regard")
    tab.page.emulate_media(color_scheme="dark")
    render(tab, shown, 1000)
    expect(widget).to_have_attribute("data-theme", "dark")
    tab.page.evaluate("document.body.dataset.jpThemeLight = 'true'")  # as JupyterLab writes it
    expect(widget).to_have_attribute("data-theme", "light")
    expect(widget).to_have_css("background-color", "rgb(251, 250, 247)")
    tab.page.evaluate("document.body.dataset.jpThemeLight = 'false'")
    tab.page.emulate_media(color_scheme="light")
    expect(widget).to_have_css("background-color", "rgb(21, 23, 27)")


def test_the_layout_follows_the_width_of_the_widget(tab: Tab, shown: Shown):
    render(tab, shown, 1200)
    assert tab.page.locator(".look").evaluate(COLUMNS) == 2
    tab.page.evaluate("document.body.firstElementChild.style.width = '500px'")
    expect(tab.page.locator(".ribbons svg")).to_have_attribute("width", "468")
    assert tab.page.locator(".look").evaluate(COLUMNS) == 1
    assert tab.page.locator(".shell").evaluate("element => getComputedStyle(element).minHeight") == "0px"
