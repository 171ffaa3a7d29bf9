"""A real browser (Chromium, driven by Playwright), with the requests and the errors of the page in it."""

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit

import numpy as np
import pytest
from playwright.sync_api import BrowserContext, ConsoleMessage, Dialog, Locator, expect, sync_playwright

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
MISSING = f"the tests of the page need Chromium (one of {', '.join(PROGRAMS)}); `make browser` says how to install it"
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
ARGUMENTS += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
PATIENCE = 60_000  # milliseconds until a missing event is a failure; no test waits for them to pass
AXE = Path(__file__).parents[2] / "web/node_modules/axe-core/axe.min.js"


@contextmanager
def browsing() -> Iterator["Tab"]:
    """Start the browser, with one page in it; without a browser, tests fail."""
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        pytest.fail(MISSING, pytrace=False)
    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=ARGUMENTS)
        context = browser.new_context(permissions=["clipboard-read", "clipboard-write"])
        context.set_default_timeout(PATIENCE)
        yield Tab(context)
        browser.close()


class Tab:
    """The page. It keeps no state except its address, so tests share it."""

    def __init__(self, context: BrowserContext) -> None:
        self.context, self.page = context, context.new_page()
        self.address = ""
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.refused: list[str] = []  # requests that are meant to fail, by the end of their address
        context.on("request", lambda request: self.requests.append(request.url))
        context.on("weberror", lambda error: self.complaints.append(str(error.error)))
        context.on("console", self._hear)
        self.page.on("dialog", self._dismiss)

    def _hear(self, message: ConsoleMessage) -> None:
        meant = any(message.location["url"].endswith(ending) for ending in self.refused)
        if message.type in ("error", "warning") and not meant:
            self.complaints.append(f"{message.text} {message.location['url']}")

    def _dismiss(self, dialog: Dialog) -> None:
        self.complaints.append(f"a window: {dialog.message}")
        dialog.dismiss()

    def begin(self, address: str) -> None:
        """Close what was open, and reset the page."""
        self.page.goto("about:blank")
        self.page.unroute_all()
        self.page.emulate_media(color_scheme="light", reduced_motion="no-preference")
        self.page.set_viewport_size({"width": 1280, "height": 800})
        self.page.mouse.move(0, 0)
        self.context.set_offline(False)
        self.address = address
        for each in (self.requests, self.complaints, self.refused):
            each.clear()

    def check(self) -> None:
        """Check that the page contacted no other host, and that there were no errors or warnings."""
        elsewhere = [url for url in self.requests if not url.startswith((f"{self.address}/", "data:", "blob:"))]
        assert not elsewhere, elsewhere
        assert not self.complaints, self.complaints

    # --- what is shown -----------------------------------------------------------------------------------------------

    def open(self, recording: str, view: str, **chosen: object) -> None:
        """Show a view of a recording; heads are counted from 1, as in the address."""
        self.page.goto(f"{self.address}/#{urlencode({'recording': recording, 'view': view, **chosen})}")
        expect(self.main(view)).to_be_visible()

    def main(self, view: str) -> Locator:
        return self.page.get_by_role("main", name=view.capitalize(), exact=True)

    def field(self, name: str) -> Locator:
        """Return the control with this label."""
        fields = self.page.locator("label.field").filter(has=self.page.get_by_text(name, exact=True))
        return fields.locator("select, input")

    def chosen(self) -> dict[str, str]:
        """Return the selection in the address, as the page has it; Playwright sees it a little later."""
        return dict(parse_qsl(urlsplit(self.page.evaluate("location.href")).fragment))

    def expect_chosen(self, **wanted: object) -> None:
        """Wait until the address has these fields; a field with an empty text must be missing."""
        expect(self.page).to_have_url(re.compile(_address(wanted)))

    def expect_passing(self, **wanted: object) -> None:
        """Wait until the address has these fields, even if only for a moment."""
        self.page.wait_for_function("pattern => new RegExp(pattern).test(location.href)", arg=_address(wanted))

    def expect_whole(self) -> None:
        """Wait for what appears late and moves the rest: the query form and the grid of heads."""
        expect(self.page.locator("header form")).to_be_visible()
        expect(self.page.locator("nav .head").first).to_be_visible()

    # --- what is done ------------------------------------------------------------------------------------------------

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def download(self, name: str, folder: Path) -> Path:
        """Choose an entry of the export menu, and save the file under its suggested name."""
        with self.page.expect_download() as waiting:
            self.press("e")
            self.page.locator(".menu").get_by_text(name).click()
        path = folder / waiting.value.suggested_filename
        waiting.value.save_as(path)
        return path

    def violations(self, *rules: str) -> list[str]:
        """Return the violations that axe finds, of these rules or of all: the rule and the element."""
        if not AXE.exists():
            pytest.fail("there is no axe-core to test the page with; `make page` installs it", pytrace=False)
        if not self.page.evaluate("typeof axe === 'object'"):
            self.page.evaluate(AXE.read_text(encoding="utf-8"))
        found = self.page.evaluate(
            "async (only) => (await axe.run({ resultTypes: ['violations'], ...only })).violations",
            {"runOnly": list(rules)} if rules else {},
        )
        return [f"{each['id']}: {node['target']} {node['html']}" for each in found for node in each["nodes"]]


# --- what is read from it --------------------------------------------------------------------------------------------


def _address(wanted: dict[str, object]) -> str:
    """Return a pattern of addresses with these fields."""
    parts = [re.escape(urlencode({key: value})) for key, value in wanted.items() if value != ""]
    absent = [f"(?!.*[#&]{key}=)" for key, value in wanted.items() if value == ""]
    return "".join(["^", *absent, *(f"(?=.*[#&]{part}(&|$))" for part in parts)])


def number(text: str) -> float:
    """Read a number as the page writes it; `<0.01` is read as half of it."""
    found = re.search(r"(<?)([+−-]?)(\d+(?:\.\d+)?(?:e[+-]?\d+)?)", text)
    assert found, text
    size = float(found[3]) / (2 if found[1] else 1)
    return -size if found[2] in ("−", "-") else size


def rows(table: Locator) -> list[list[str]]:
    """Wait for a table, and return its cells without the header."""
    expect(table).to_be_visible()
    return table.locator("tbody tr").evaluate_all(
        "rows => rows.map(row => [...row.cells].map(cell => cell.textContent.trim()))"
    )


def close(found: object, wanted: object, digits: int) -> None:
    """Compare numbers that are rounded to some digits; float16 weights add a small error."""
    np.testing.assert_allclose(found, wanted, atol=0.5 * 10**-digits + 6e-4)
