"""The page in a real browser: a long text needs few marks and few blobs, and the page stays responsive."""

from pathlib import Path
from threading import Lock

import numpy as np
from PIL.Image import open as open_image
from playwright.sync_api import expect

from regard.viewer.manifest import Manifest
from regard.viewer.recording import Recording

from .browser import Tab
from .fake import attention, manifest
from .shown import Shown

LONG = 1024
PEAK = 0.75


class Long(Recording):
    """A fake recording of 12 x 12 heads over 1024 tokens: head h looks h tokens back, and a little everywhere."""

    def __init__(self, pooled: int | None = None) -> None:
        shape = None if pooled is None else [pooled, pooled]
        numbers = {name: [[float(head) for head in range(12)]] for name in ("entropy", "distance", "previous", "first")}
        more = {"heads": 12, "mask": "past", "pooled": shape, "statistics": numbers}
        layers = [attention(f"self.{n}", "tokens", "tokens", LONG, LONG, **more) for n in range(1, 13)]
        tokens = [{"text": f"w{place}", "id": place, "special": False, "word": place} for place in range(LONG)]
        begin = {"attention": "self.6", "head": 5, "query": 500, "key": 495}
        said = manifest("a long text", "long", layers) | {"whole": False, "begin": begin, "model": "a language model"}
        self.said = said | {"sequences": {"tokens": tokens}}
        self.past = np.tri(LONG, dtype=np.float32)
        self.little = (self.past * (1 - PEAK) / np.arange(1, LONG + 1)[:, None]).astype("<f2")
        self.pooled = pooled

    def manifest(self) -> Manifest:
        return self.said

    def weights(self, head: int) -> np.ndarray:
        found, queries = self.little.copy(), np.arange(LONG)
        found[queries, np.maximum(queries - head, 0)] += np.float16(PEAK)
        return found

    def blob(self, name: str) -> bytes:
        kind, *_, last = name.split("/")
        if kind == "overview":
            return bytes(range(256)) * (12 * 12 * 32 * 32 // 256)
        if kind == "mask":
            return np.packbits(self.past.astype(bool), bitorder="little").tobytes()
        if kind == "row":
            row = self.weights(int(name.split("/")[2]))[int(last.partition(".")[0])].astype("<f4")
            return row.tobytes() * 2
        weights = self.weights(int(last.partition(".")[0]))
        if kind == "pooled":
            size = LONG // self.pooled
            small = weights.reshape(self.pooled, size, self.pooled, size).max((1, 3))
            return np.rint(small.astype(np.float32) * 255).astype(np.uint8).tobytes()
        return weights.tobytes()


def blobs(tab: Tab, kind: str) -> list[str]:
    return [url.partition(f"/{kind}/")[2] for url in tab.requests if f"/{kind}/" in url]


def neighbours(layer: int, head: int) -> set[str]:
    """Return the blobs of a head and of its neighbours, which are prefetched."""
    places = [(layer, head), (layer, head + 1), (layer, head - 1), (layer + 1, head), (layer - 1, head)]
    return {f"0/self.{each}/{other}.f16" for each, other in places}


def test_1024_tokens_and_144_heads_stay_few_marks_and_few_blobs(tab: Tab, shown: Shown):
    tab.open(shown.store.put(Long(), Lock()), "look")
    sentence = tab.page.locator(".sentence")
    expect(sentence).to_contain_text("w500 looks mostly at w495 (0.75), layer 6, head 6")
    expect(tab.page.locator("main canvas").first).to_be_visible()
    layer, head, allowed = 6, 5, neighbours(6, 5)
    for key, down, right in (("ArrowRight", 0, 1), ("ArrowDown", 1, 0), ("ArrowLeft", 0, -1), ("ArrowUp", -1, 0)) * 2:
        tab.press(key)
        layer, head = layer + down, head + right
        allowed |= neighbours(layer, head)
        said = f"w500 looks mostly at w{500 - head} (0.75), layer {layer}, head {head + 1}"
        expect(sentence).to_contain_text(said)
    prepared = blobs(tab, "attention")
    assert len(prepared) == len(set(prepared))  # none twice
    assert set(prepared) <= allowed
    assert len(blobs(tab, "overview")) == len(blobs(tab, "mask")) == 1

    larger = tab.page.get_by_role("button", name="Larger cells")
    larger.click(click_count=4)
    tab.page.locator(".pane").evaluate("pane => pane.scrollTo(pane.scrollWidth, pane.scrollHeight)")
    sizes = tab.page.locator("main canvas").evaluate_all("all => all.map(each => each.width * each.height)")
    assert max(sizes) <= 1280 * 800  # the visible part of the matrix, not all of it
    assert tab.page.locator("svg *").count() <= 2000
    assert tab.page.locator("*").count() <= 2000
    tab.press("j")
    expect(sentence).to_contain_text(f"w501 looks mostly at w{501 - head} (0.75)")
    tab.press("2")
    expect(tab.page.locator("main .head")).to_have_count(144)
    assert tab.page.locator("*").count() <= 3000
    tab.press("c")
    expect(tab.main("compare").locator("canvas").nth(2)).to_be_visible()
    tab.press("k")
    tab.expect_chosen(query=500)


def test_a_large_picture_is_saved_with_hatched_masks(tab: Tab, shown: Shown, tmp_path: Path):
    tab.open(shown.store.put(Long(), Lock()), "look")
    expect(tab.page.locator("main canvas").first).to_be_visible()
    with open_image(tab.download("Picture (PNG)", tmp_path)) as picture:
        colours = picture.convert("RGB")
        width, height = colours.size
        places = [(0.5, 0.7), (0.7, 0.3)]  # below the diagonal, and above it, where the future is
        below, above = (
            {colours.getpixel((int(x * width) + a, int(y * height) + b)) for a in range(40) for b in range(40)}
            for x, y in places
        )
    assert all(blue > red for red, _, blue in below)  # small weights
    assert (255, 255, 255) in above  # the paper between the strokes
    assert len(above) > 1


def test_longer_inputs_show_a_pooled_picture_and_single_rows(tab: Tab, shown: Shown):
    tab.open(shown.store.put(Long(pooled=64), Lock()), "look")
    sentence = tab.page.locator(".sentence")
    expect(sentence).to_contain_text("w500 looks mostly at w495 (0.75), layer 6, head 6")
    expect(tab.page.get_by_text("each cell is the largest weight of a block of tokens")).to_be_visible()
    tab.press("j", "ArrowRight")
    expect(sentence).to_contain_text("w501 looks mostly at w495 (0.75), layer 6, head 7")
    assert blobs(tab, "attention") == []
    assert set(blobs(tab, "pooled")) == {"0/self.6/5.u8", "0/self.6/6.u8"}
    assert set(blobs(tab, "row")) <= {f"self.6/{head}/{row}.f32" for head in (5, 6) for row in (500, 501)}


def test_twelve_heads_of_a_layer_are_in_one_line(tab: Tab, shown: Shown):
    tab.page.set_viewport_size({"width": 1400, "height": 900})
    tab.open(shown.store.put(Long(), Lock()), "heads")
    cards = tab.page.locator("main section").first.locator(".head")
    expect(cards).to_have_count(12)
    assert len({each.bounding_box()["y"] for each in cards.all()}) == 1
