"""The page in a real browser: exports match what is shown, and a page in one file needs nothing else."""

import csv
import re
from io import StringIO
from pathlib import Path
from urllib.parse import urlencode
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL.Image import open as open_image
from playwright.sync_api import expect

from .browser import Tab, rows
from .shown import Shown

SVG = "{http://www.w3.org/2000/svg}"


def test_ribbons_as_svg_and_png(tab: Tab, shown: Shown, tmp_path: Path):
    id = shown.ids["translator"]
    tab.open(id, "look", attention="cross.1", head=2, query=1, key=2)
    expect(tab.page.locator("path.ribbon").first).to_be_visible()
    path = tab.download("Picture (SVG)", tmp_path)
    assert path.name == f"{id}-cross.1-L1.H2.svg"
    drawing = ElementTree.parse(path).getroot()
    words = [text.text for text in drawing.iter(f"{SVG}text")]
    wanted = shown.words("translator", "written") + shown.words("translator", "source")
    assert [word for word in words if word in wanted] == wanted
    weights = shown.looked("translator")["cross.1"][1].numpy()
    assert len(list(drawing.iter(f"{SVG}path"))) == (weights >= 0.015).sum()
    assert not [each for each in drawing.iter() if each.tag == f"{SVG}image" or "href" in "".join(each.attrib)]
    expect(tab.page.get_by_role("button", name="Picture (SVG)")).to_be_hidden()  # the menu closes

    with open_image(tab.download("Picture (PNG)", tmp_path)) as picture:
        assert picture.format == "PNG"
        assert picture.size == (2 * float(drawing.get("width")), 2 * float(drawing.get("height")))
        assert len(picture.convert("RGB").getcolors(1 << 24)) > 20


@pytest.mark.parametrize(
    ("name", "view", "chosen"),
    [
        ("translator", "look", {"map": 1}),
        ("writer", "position", {}),
        ("biased", "position", {}),
        ("translator", "compare", {}),
        ("seer", "image", {}),
    ],
)
def test_every_picture_can_be_saved(
    tab: Tab, shown: Shown, tmp_path: Path, name: str, view: str, chosen: dict[str, int]
):
    tab.open(shown.ids[name], view, **chosen)
    expect(tab.main(view).locator("canvas").first).to_be_visible()
    drawing = ElementTree.parse(tab.download("Picture (SVG)", tmp_path)).getroot()
    assert drawing.tag == f"{SVG}svg"
    assert len(list(drawing.iter())) > 1
    if view == "look":
        begin = shown.manifest(name)["begin"]
        one = shown.attention(name, begin["attention"])
        cells = [each for each in drawing.iter(f"{SVG}rect") if each.get("x")]
        assert len(cells) == one["rows"] * one["columns"]


def test_a_head_as_csv(tab: Tab, shown: Shown, tmp_path: Path):
    tab.open(shown.ids["writer"], "look", attention="self.2", head=3, query=1, key=0)
    path = tab.download("This head (CSV)", tmp_path)
    assert path.name.endswith("-self.2-L2.H3.csv")
    head, *lines = csv.reader(StringIO(path.read_text(encoding="utf-8"), newline=""))
    words = shown.words("writer", "tokens")
    assert head == ["", *words]
    assert [line[0] for line in lines] == words
    weights = shown.looked("writer")["self.2"][2].numpy()
    for query, line in enumerate(lines):
        written = np.array([float(cell) for cell in line[1 : query + 2]], np.float32)
        np.testing.assert_array_equal(written, weights[query, : query + 1])  # every digit
        assert set(line[query + 2 :]) <= {""}  # masked cells are empty


def test_a_page_that_is_too_large_says_so(tab: Tab, shown: Shown):
    said = '{"error": "the page would have 30 MB, and the limit is 20 MB"}'
    tab.page.route("**/export/*.html", lambda route: route.fulfill(status=400, body=said))
    tab.refused += [".html"]
    tab.open(shown.ids["translator"], "look")
    tab.press("e")
    tab.page.get_by_role("button", name="This page as one file (HTML)").click()
    expect(tab.page.locator(".menu .failure")).to_have_text("the page would have 30 MB, and the limit is 20 MB")
    tab.press("Escape", "e")
    expect(tab.page.get_by_role("button", name="This page as one file (HTML)")).to_be_enabled()
    expect(tab.page.locator(".menu .failure")).to_be_hidden()


def test_a_page_in_one_file_shows_the_same_and_loads_nothing(tab: Tab, shown: Shown, tmp_path: Path):
    seen = {}
    for view in ("look", "arithmetic", "next", "compare"):
        tab.open(shown.ids["translator"], view, attention="decoder.2", head=3, query=2, key=1)
        tables = tab.main(view).locator("table")
        expect(tables.first).to_be_visible()
        seen[view] = tab.chosen(), tab.page.locator(".sentence").inner_text(), rows(tables.first)
    path = tab.download("This page as one file (HTML)", tmp_path)
    assert path.suffix == ".html"
    tab.check()

    tab.begin("file://")
    tab.context.set_offline(True)
    for view, (chosen, sentence, table) in seen.items():
        tab.page.goto(f"{path.as_uri()}#{urlencode(chosen)}")
        expect(tab.page.locator(".sentence")).to_have_text(sentence)
        assert rows(tab.main(view).locator("table").first) == table
        assert tab.chosen() == chosen
    expect(tab.page.get_by_role("button", name="Run", exact=True)).to_have_count(0)  # there is no server to run it
    for key in "246":
        tab.press(key)
        expect(tab.page.get_by_role("tab", selected=True)).to_have_text(re.compile(f" {key}$"))
        expect(tab.page.locator("main canvas, main svg").first).to_be_visible()
    assert tab.page.locator(".failure").count() == 0
    assert tab.requests == [path.as_uri()]
