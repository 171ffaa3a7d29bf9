"""Pictures of the viewer: the real page in a real browser, driven by a script.

`regard look` is started as a user starts it. An animation is a list of screenshots, each with the time that it is
shown; the mouse is drawn into the page, since a browser without a display has none.
"""

import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from io import BytesIO
from itertools import takewhile
from urllib.parse import parse_qsl, urlencode, urlsplit

from PIL import Image
from playwright.sync_api import Locator, Page, expect, sync_playwright

import regard
from pictures.drawn import SENTENCE, aligning_head, recorded
from regard.draw import DARK, Look
from regard.viewer.export import choose_head, read_head_weights

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--font-render-hinting=none"]
WORDS = (5, 6, 9, 10)  # of the translation, to point at: chat, noir, vieille, chaise
PATIENCE = 120_000  # milliseconds until something that does not appear is an error
WINDOW = {"width": 1200, "height": 690}
MOVE, STEPS, READ, END = 40, 7, 900, 3200  # milliseconds: a step of the mouse; how many; a look at something; the end
MOUSE = """([x, y]) => {
  let mouse = document.getElementById("drawn-mouse");
  if (!mouse) {
    mouse = document.createElement("div");
    mouse.id = "drawn-mouse";
    mouse.style.cssText = "position:fixed;z-index:9999;pointer-events:none";
    mouse.innerHTML = `<svg width="20" height="28" viewBox="0 0 10 14"><path fill="#111" stroke="#fff" stroke-width=".8"
      d="M0 0v11l2.6-2.4 1.8 4.2 1.9-.8-1.8-4.1h3.5z"/></svg>`;
    document.body.append(mouse);
  }
  mouse.style.left = x + "px"; mouse.style.top = y + "px";
}"""


def photograph_viewer(look: Look) -> Mapping[str, bytes]:
    """Return an animation of the page, and pictures of some views."""
    with serving() as address, browsing(look) as page:
        page.goto(address)
        # the model is loaded, and has read the sentence
        expect(page.get_by_label("Recording").locator("option:checked")).to_contain_text(SENTENCE[:20])
        expect(page.get_by_role("tab", name="Change")).not_to_have_attribute("aria-disabled", "true")
        expect(page.locator("nav .head").first).to_be_visible()
        film = Film(page)
        show_words_and_heads(film)
        switch_a_head_off(film)
        made = {"look.webp": film.animation(), "view-change.png": still(page, 1240)}
        attention, head = aligning_head()
        word = WORDS[0]
        key = int(read_head_weights(recorded(), attention, head).weights[word].argmax())
        recording = dict(parse_qsl(urlsplit(page.evaluate("location.href")).fragment))["recording"]
        shown = {"recording": recording, "attention": attention, "head": head, "query": word, "key": key}
        for view, text, height in (("Arithmetic", "Check", 1560), ("Heads", "Cross, layer 1", 800)):
            page.goto(f"{address.partition('#')[0]}#{urlencode(shown | {'view': view.lower()})}")
            expect(page.get_by_role("main", name=view, exact=True).get_by_role("heading", name=text)).to_be_visible()
            page.wait_for_load_state("networkidle")
            made[f"view-{view.lower()}.png"] = still(page, height)
    return made


@contextmanager
def serving() -> Iterator[str]:
    """Run `regard look` with the translator in the box; yield its address."""
    attention, head = aligning_head()
    command = [sys.executable, "-m", "regard", "look", SENTENCE, "-m", "en-fr", "--device", "cpu"]
    command += ["--attention", attention, "--head", str(head)]
    with subprocess.Popen(
        [*command, "--no-browser", "--no-token", "--port", "0"], stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stdout is not None
            yield server.stdout.readline().split()[0]
        finally:
            server.terminate()


@contextmanager
def browsing(look: Look) -> Iterator[Page]:
    """Start a browser with one page in it."""
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    assert program, f"pictures of the viewer need one of {', '.join(BROWSERS)}; `make browser` says how to install it"
    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=ARGUMENTS)
        context = browser.new_context(
            viewport=WINDOW, color_scheme="dark" if look == DARK else "light", reduced_motion="reduce"
        )
        context.set_default_timeout(PATIENCE)
        yield context.new_page()
        browser.close()


def show_words_and_heads(film: "Film") -> None:
    """Point at the words that the translator wrote, then choose other heads."""
    page = film.page
    film.keep(READ)
    words = page.locator(".ribbons svg g.word")
    for number in WORDS:
        film.move_to(words.nth(number))
        film.keep(READ)
    heads = page.get_by_role("region", name="Heads: Cross").locator(".head")
    for number in (0, heads.count() - 1):
        film.click(heads.nth(number))
        film.keep(READ)


def switch_a_head_off(film: "Film") -> None:
    """Switch a head off in the view Change, and wait for what the model writes without it."""
    page = film.page
    attention, head, word = decisive_head()
    film.click(head_button(page, attention, head))
    film.keep(READ)
    film.click(page.get_by_role("tab", name="Change"))
    expect(page.get_by_role("main", name="Change", exact=True)).to_be_visible()
    film.keep(READ)
    film.move_to(page.get_by_role("button", name="Switch off"))
    film.keep(READ // 2)
    film.click(page.get_by_role("button", name="Switch off"))
    expect(page.locator("dl.written dd").last).to_contain_text(".")  # the end of the sentence, when it is written
    expect(page.get_by_role("heading", name=", after")).to_be_visible()
    page.wait_for_load_state("networkidle")
    film.keep(2 * READ)
    film.click(page.get_by_role("main").locator(".line").get_by_role("button", name=word, exact=True))
    page.wait_for_load_state("networkidle")
    film.keep(END)


def head_button(page: Page, attention: str, head: int) -> Locator:
    """Return the thumbnail of a head in the grid on the left."""
    kind, _, layer = attention.rpartition(".")
    return page.get_by_title(f"{kind.capitalize()} L{layer}.H{head}", exact=True).first


@cache
def decisive_head() -> tuple[str, int, str]:
    """Return the attention and the head, counted from 1, without which the translation changes, and the word before.

    The head that the viewer begins with is tried first, then the others from the last attention on.
    """
    model, manifest = regard.load("en-fr", "cpu"), recorded().manifest()
    chosen, number = choose_head(manifest, None, None)
    others = [(one["id"], head) for one in reversed(manifest["attentions"]) for head in reversed(range(one["heads"]))]
    (before,) = model.translate([SENTENCE])
    for attention, head in [(chosen["id"], number), *others]:
        with regard.intervene(model, attention, heads=[head], attention="zero"):
            (after,) = model.translate([SENTENCE])
        if after != before:
            same = takewhile(lambda pair: pair[0] == pair[1], zip(before.split(), after.split(), strict=False))
            return attention, head + 1, [word for word, _ in same][-1]
    raise AssertionError(f"no head changes the translation of {SENTENCE!r}; choose another sentence")


class Film:
    """Screenshots of a page with the times that they are shown, and a mouse that moves in steps."""

    def __init__(self, page: Page) -> None:
        self.page, self.frames = page, list[tuple[bytes, int]]()
        self.x, self.y = WINDOW["width"] * 0.62, WINDOW["height"] * 0.5
        self._place()

    def _place(self) -> None:
        self.page.mouse.move(self.x, self.y)
        self.page.evaluate(MOUSE, [self.x, self.y])

    def keep(self, milliseconds: int) -> None:
        """Take a screenshot. If nothing has changed, show the last one longer."""
        self.page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        frame = self.page.screenshot()
        if self.frames and self.frames[-1][0] == frame:
            self.frames[-1] = (frame, self.frames[-1][1] + milliseconds)
        else:
            self.frames.append((frame, milliseconds))

    def move_to(self, target: Locator) -> None:
        """Move the mouse to the middle of an element: fast at first, slowly at the end."""
        target.scroll_into_view_if_needed()
        box = target.bounding_box()
        assert box is not None
        begin, end = (self.x, self.y), (box["x"] + box["width"] / 2, box["y"] + box["height"] * 0.6)
        for step in range(1, STEPS + 1):
            share = 1 - (1 - step / STEPS) ** 2
            self.x, self.y = (a + share * (b - a) for a, b in zip(begin, end, strict=True))
            self._place()
            self.keep(MOVE)

    def click(self, target: Locator) -> None:
        """Move to an element, and click it."""
        self.move_to(target)
        target.click()

    def animation(self) -> bytes:
        """Return the frames as an animated WebP that repeats."""
        pictures = [Image.open(BytesIO(frame)).convert("RGB") for frame, _ in self.frames]
        file = BytesIO()
        times = [time for _, time in self.frames]
        pictures[0].save(
            file, "WEBP", save_all=True, append_images=pictures[1:], duration=times, loop=0, quality=72, method=4
        )
        return file.getvalue()


def still(page: Page, height: int) -> bytes:
    """Return a picture of the page down to this height, without the mouse."""
    page.evaluate("document.getElementById('drawn-mouse')?.remove()")
    page.mouse.move(0, 0)
    page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    file = BytesIO()
    clip = {"x": 0, "y": 0, "width": WINDOW["width"], "height": height}
    picture = Image.open(BytesIO(page.screenshot(full_page=True, clip=clip))).convert("RGB")
    picture.quantize(256, dither=Image.Dither.NONE).save(file, "PNG", optimize=True)
    return file.getvalue()
