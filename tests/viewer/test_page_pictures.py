"""The page in a real browser: Training, Image and Compare show the numbers that the models have."""

import re
from base64 import b64decode
from io import BytesIO
from threading import Lock

import numpy as np
import pytest
from PIL.Image import open as open_image
from playwright.sync_api import Locator, expect

import regard
from regard.viewer.export import read_head_weights
from regard.viewer.training_recording import record_training

from .browser import Tab, close, number, rows
from .fake import attention
from .shown import Shown, random_recording, statistics
from .snapshots import STEPS, write

# --- Training --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(shown: Shown, tmp_path_factory: pytest.TempPathFactory):
    """The training snapshots of a run: the id of the recording, and the weights of every head at each step."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REGARD_CACHE", str(tmp_path_factory.mktemp("cache")))
        run, models = write(tmp_path_factory.mktemp("trained"), "language", "gpt2")
    training = record_training(run)
    tokens = training.probe.inputs["tokens"]
    looked = [look(model, tokens) for model in models]
    return shown.store.put(training, Lock(), keep=True), looked


def look(model, tokens):
    with regard.watch(model.eval()) as tape:
        model(tokens)
    return [tape.weights(name)[0].detach() for name in tape]


def test_training_shows_the_heads_of_each_step(tab: Tab, trained):
    id, looked = trained
    entropies = [statistics(step[1])["Entropy"][2] for step in looked]  # of L2.H3
    tab.open(id, "training", attention="self.2", head=3, query=4, key=0, step=2)
    main = tab.main("training")
    expect(main.get_by_role("heading", name="L2.H3 at step 30")).to_be_visible()
    told = main.locator("p[aria-live]").filter(has_text="entropy")
    ends = re.match(r"L2.H3: entropy (.*) bits at step 0, (.*?) at step 30\.", told.inner_text())
    close([number(ends[1]), number(ends[2])], [entropies[0], entropies[2]], 1)
    main.get_by_text("L2.H3 in numbers").click()
    table = rows(main.get_by_role("table", name="L2.H3, by step"))
    assert [row[0] for row in table] == [str(step) for step in STEPS]
    np.testing.assert_allclose([number(row[1]) for row in table], entropies, atol=5e-3)
    firsts = [statistics(step[1])["First"][2] for step in looked]
    np.testing.assert_allclose([number(row[4]) for row in table], firsts, atol=2e-3)
    for step in (1, 0):
        tab.press("[")
        tab.expect_chosen(step=step)
        expect(main.get_by_role("heading", name=f"L2.H3 at step {STEPS[step]}", exact=True)).to_be_visible()
        weights = looked[step][1][2, 4].numpy()
        sentence = tab.page.locator(".sentence")
        expect(sentence).to_contain_text(f"after {STEPS[step]} steps")
        close(number(re.search(r"\((.*?)\)", sentence.inner_text())[1]), weights.max(), 2)
    main.get_by_label("Training step").fill("2")
    expect(main.locator(".scrubber output")).to_have_text("step 30 of 30")


def test_training_plays_through_the_steps(tab: Tab, trained):
    id, _ = trained
    tab.open(id, "training", attention="self.1", head=1, query=0, key=0, step=0)
    tab.press("Space")
    expect(tab.page.get_by_role("button", name=re.compile("^Stop"))).to_have_attribute("aria-pressed", "true")
    tab.expect_passing(step=1)
    tab.expect_passing(step=2)
    tab.expect_passing(step=0)
    tab.press("Space")
    expect(tab.page.get_by_role("button", name=re.compile("^Play"))).to_be_visible()


def test_a_wide_heat_map_leaves_room_for_the_curves(tab: Tab, shown: Shown):
    words = " ".join(f"w{number}" for number in range(48))
    numbers = {name: [[1.0, 2.0]] * 3 for name in ("entropy", "distance", "previous", "first")}
    one = attention("encoder.1", "source", "source", 48, 48, statistics=numbers)
    id = shown.store.put(random_recording(text=words, steps=(0, 1, 5), attentions=[one]), Lock())
    tab.open(id, "training")
    heat, curves = (tab.page.locator(each) for each in (".both .pane canvas", ".lines svg"))
    expect(heat).to_be_visible()
    expect(curves).to_be_visible()
    (left, right) = (each.bounding_box() for each in (heat, curves))
    assert left
    assert right
    assert left["x"] + left["width"] <= right["x"]


def test_two_steps_of_training_are_compared(tab: Tab, trained):
    id, looked = trained
    tab.open(id, "compare", attention="self.1", head=2, query=3, key=0, step=2)
    difference = (looked[2][0][1] - looked[0][0][1]).numpy()
    expect(tab.page.get_by_role("heading", name="L1.H2 at step 30", exact=True)).to_be_visible()
    expect(tab.page.get_by_role("heading", name="L1.H2 at step 0", exact=True)).to_be_visible()
    top = tab.page.get_by_role("heading", name=re.compile("^Their difference, up to"))
    close(number(top.inner_text()), np.abs(difference).max(), 2)


# --- Image -----------------------------------------------------------------------------------------------------------


def test_image_shows_what_a_patch_looks_at(tab: Tab, shown: Shown):
    weights = shown.looked("seer")["self.1"].numpy()
    said = shown.manifest("seer")["image"]
    tab.open(shown.ids["seer"], "image", attention="self.1", head=2, query=0, key=0)
    large = tab.page.get_by_role("img", name=re.compile("^L1.H2: where the class token looks"))
    expect(large).to_be_visible()
    tab.expect_whole()  # so that nothing moves under the pointer
    caption = tab.page.locator(".large p.number")
    expect(caption).to_contain_text("is on the class token")
    close(number(caption.inner_text().split("is")[1]), weights[1, 0, 1:].max(), 3)

    def place(row: int, column: int) -> dict[str, float]:
        box = tab.page.locator(".large canvas").bounding_box()
        return {"x": (column + 0.5) * box["width"] / said["columns"], "y": (row + 0.5) * box["height"] / said["rows"]}

    canvas = tab.page.locator(".large canvas")
    canvas.hover(position=place(1, 2))
    expect(caption).to_have_text(re.compile("^row 2, column 3: "))
    close(number(caption.inner_text().split(":")[1]), weights[1, 0, 6], 4)
    canvas.click(position=place(0, 1))
    tab.expect_chosen(query=2)
    expect(tab.page.get_by_text("the patch in row 1, column 2 looks")).to_be_visible()
    tab.page.mouse.move(0, 0)
    tiles = tab.page.locator(".tiles button")
    expect(tiles).to_have_count(4)
    close([number(text.split("up to")[1]) for text in tiles.all_inner_texts()], weights[:, 2, 1:].max(-1), 3)
    expect(tab.page.get_by_text("derived (Abnar & Zuidema 2020)")).to_be_visible()

    _, output = shown.watched("seer")
    found = rows(tab.page.get_by_role("table", name="What is in this image?"))
    close([number(row[1]) for row in found], np.sort(output[0].softmax(-1).numpy())[::-1], 3)


def pixels_of(canvas: Locator) -> np.ndarray:
    """Return the pixels of a canvas: H W and four channels."""
    address = canvas.evaluate("canvas => canvas.toDataURL('image/png')")
    with open_image(BytesIO(b64decode(address.partition(",")[2]))) as file:
        return np.array(file.convert("RGBA"))


def test_a_larger_weight_makes_a_lighter_patch(tab: Tab, shown: Shown):
    weights = shown.looked("seer")["self.2"][:, 3, 1:].numpy()
    tab.open(shown.ids["seer"], "image", attention="self.2", head=1, query=3, key=0)
    tiles = tab.page.locator(".tiles canvas")
    expect(tiles).to_have_count(4)
    tab.page.get_by_label("Opacity of the weights").fill("1")  # only the weights, not the image
    expect(tab.page.get_by_label("Opacity of the weights")).to_have_value("1")
    for head in range(4):
        pixels = pixels_of(tiles.nth(head))
        height, width, _ = pixels.shape
        middles = pixels[height // 4 :: height // 2, width // 6 :: width // 3].reshape(6, 4)
        lightness = middles[:, :3] @ [0.2126, 0.7152, 0.0722]
        order = np.argsort(weights[head])
        assert (np.diff(lightness[order]) >= -1).all()
        assert lightness[order[-1]] > lightness[order[0]] + 20


# --- Compare ---------------------------------------------------------------------------------------------------------


def test_compare_shows_the_difference_of_two_heads(tab: Tab, shown: Shown):
    every = shown.looked("translator")
    tab.open(shown.ids["translator"], "compare", attention="cross.1", head=1, query=0, key=0)
    tab.field("Layer").select_option("cross.2")
    tab.field("Head").select_option(label="H3")
    difference = (every["cross.1"][0] - every["cross.2"][2]).numpy()
    expect(tab.page.get_by_role("heading", name="L2.H3", exact=True)).to_be_visible()
    top = tab.page.get_by_role("heading", name=re.compile("^Their difference, up to"))
    close(number(top.inner_text()), np.abs(difference).max(), 2)
    found = rows(tab.page.get_by_role("table", name="The largest differences"))
    lookers, keys = shown.words("translator", "written"), shown.words("translator", "source")
    order = np.argsort(-np.abs(difference), axis=None)[: len(found)]
    places = [np.unravel_index(place, difference.shape) for place in order]
    close([number(row[3]) for row in found], difference.flatten()[order], 3)
    close([number(row[1]) for row in found], [every["cross.1"][0][place] for place in places], 3)
    close([number(row[2]) for row in found], [every["cross.2"][2][place] for place in places], 3)
    assert found[0][0] == f"{lookers[places[0][0]]} → {keys[places[0][1]]}"
    kept = tab.chosen()["with"]
    tab.page.reload()
    expect(top).to_be_visible()
    assert tab.chosen()["with"] == kept
    assert rows(tab.page.get_by_role("table", name="The largest differences")) == found
    tab.page.get_by_role("button", name="Swap").click()
    tab.expect_chosen(attention="cross.2", head=3)
    expect(tab.main("compare").get_by_role("heading")).to_contain_text(
        ["Compare", "L2.H3", "L1.H1", "Their difference"]
    )
    swapped = rows(tab.page.get_by_role("table", name="The largest differences"))
    close([number(row[3]) for row in swapped], -difference.flatten()[order], 3)


def test_compare_says_that_two_texts_are_of_different_lengths(tab: Tab, shown: Shown):
    tab.open(shown.ids["translator"], "compare", attention="encoder.1", head=1, query=0, key=0)
    tab.field("Compare with").select_option(shown.ids["seer"])
    length = len(shown.words("translator", "source"))
    said = f"One has {length} × {length} tokens, the other 7 × 7, so their cells cannot be compared"
    expect(tab.page.locator("main .sentence")).to_contain_text(said)


@pytest.mark.parametrize(
    ("queries", "noun"), [("tokens", "word"), ("written", "word"), ("tokens", "residue"), ("patches", "patch")]
)
def test_the_page_and_a_picture_say_the_same_of_what_looks(tab: Tab, shown: Shown, queries: str, noun: str):
    numbers = {name: [[1.0, 2.0]] for name in ("entropy", "distance", "previous", "first")}
    one = attention("self.1", queries, queries, 2, 2, statistics=numbers)
    tokens = random_recording("ein Hund").manifest()["sequences"]["source"]
    made = random_recording(noun=noun, sequences={queries: tokens}, attentions=[one])
    tab.open(shown.store.put(made, Lock()), "look")
    expect(tab.page.locator(".axis").first).to_have_text(read_head_weights(made).beside)
