"""The documentation as a site: it builds without a warning, is complete, and works from a folder without a network."""

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config
from playwright.sync_api import expect

import regard
import regard.draw
import regard.lab
import regard.parts
from docs.site import commands

from .pages import PAGES, ROOT, name
from .viewer.browser import Tab, browsing

LOADED = re.compile(
    r"<(?:script|img|source|iframe)[^>]*?\bsrc(?:set)?=\"(https?:[^\"]*)|<link[^>]*?href=\"(https?:[^\"]*)"
)
ENTRY = re.compile(r'<h3 id="(\w+)"')


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` builds it: warnings about links, anchors and pages outside the nav are errors."""
    folder = tmp_path_factory.mktemp("site")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_MKDOCS_2_WARNING", "1")
        config = load_config(str(ROOT / "mkdocs.yml"), strict=True, site_dir=str(folder))
        config.plugins.on_startup(command="build", dirty=False)
        build(config)
    return folder


@pytest.fixture(scope="module")
def tab(site: Path) -> Iterator[Tab]:
    with browsing() as tab:
        yield tab


def test_every_page_is_in_the_site(site: Path) -> None:
    expected = [name(page).removeprefix("docs/").removesuffix(".md") for page in PAGES if ROOT / "docs" in page.parents]
    assert [page for page in expected if not (site / f"{page}.html").is_file()] == []


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    pages = [path for path in site.rglob("*.html") if "source" not in path.relative_to(site).parts]
    assert [(path.name, found) for path in pages for found in LOADED.findall(path.read_text(encoding="utf-8"))] == []


def test_formulas_are_mathml(site: Path) -> None:
    for path in (site / "tour").glob("[0-9]*.html"):
        text = path.read_text(encoding="utf-8")
        assert "<math" in text
        assert "arithmatex" not in text
        assert "merror" not in text


@pytest.mark.parametrize("module", [regard, regard.parts, regard.draw, regard.lab], ids=lambda module: module.__name__)
def test_the_reference_has_every_public_name(site: Path, module: ModuleType) -> None:
    found = {anchor for path in (site / "api").glob("*.html") for anchor in ENTRY.findall(path.read_text("utf-8"))}
    assert {each for each in module.__all__ if callable(getattr(module, each))} - found == set()


def test_the_page_of_commands_is_current() -> None:
    written = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    assert written == commands.page(), "docs/commands.md does not say what the commands do; write it: make reference"


def test_the_search_works_without_a_server(site: Path, tab: Tab) -> None:
    tab.page.goto((site / "index.html").as_uri())
    tab.page.get_by_role("textbox", name="Search").click()
    tab.page.keyboard.type("vanishing gradients")
    results = tab.page.locator(".md-search-result__link")
    expect(results.first).to_be_visible()
    assert any("tour/1-recurrence" in (each.get_attribute("href") or "") for each in results.all())
    assert [url for url in tab.requests if not url.startswith(("file:", "data:", "about:"))] == []
    assert tab.complaints == []


def test_guides_are_in_the_order_of_their_index(site: Path) -> None:
    index = (ROOT / "docs" / "guides" / "index.md").read_text(encoding="utf-8")
    expected = list(dict.fromkeys(re.findall(r"\]\(([a-z-]+)\.md\)", index)))
    for guide, following in pairwise(expected):
        text = (site / "guides" / f"{guide}.html").read_text(encoding="utf-8")
        footer = text.partition('<footer class="md-footer"')[2]
        assert re.findall(r'href="([^"]+)"[^>]*aria-label="Next', footer) == [f"{following}.html"]


@pytest.mark.parametrize("page", ["index", "tour/3-attention", "guides/classify", "results", "architecture"])
def test_pages_fit_a_narrow_screen(site: Path, tab: Tab, page: str) -> None:
    tab.page.set_viewport_size({"width": 400, "height": 800})
    tab.page.goto((site / f"{page}.html").as_uri())
    assert tab.page.evaluate("document.documentElement.scrollWidth") == 400
    broken = "[...document.images].filter((image) => image.offsetParent && !image.naturalWidth).length"
    assert tab.page.evaluate(broken) == 0
