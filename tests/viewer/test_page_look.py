"""The page in a real browser: Look and Heads show what the models attend to."""

import re
from io import BytesIO
from threading import Lock

import numpy as np
import pytest
from PIL.Image import open as open_image
from playwright.sync_api import expect

from .browser import Tab, close, number, rows
from .shown import Shown, random_recording, statistics

# --- Look ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "id", "head", "query"),
    [
        ("translator", "encoder.1", 2, 3),
        ("translator", "decoder.2", 4, 2),
        ("translator", "cross.2", 1, 1),
        ("aligner", "cross.1", 1, 2),
        ("writer", "self.2", 3, 6),
        ("reader", "self.1", 4, 1),
        ("seer", "self.2", 2, 5),
    ],
)
def test_look_says_where_a_word_looks(tab: Tab, shown: Shown, name: str, id: str, head: int, query: int):
    one, weights = shown.attention(name, id), shown.looked(name)[id][head - 1, query].numpy()
    tab.open(shown.ids[name], "look", attention=id, head=head, query=query, key=0)
    looker, keys = shown.names(name, one["queries"])[query], shown.names(name, one["keys"])
    allowed = query + 1 if one["mask"] else len(keys)  # the masks here hide what comes later
    order = np.argsort(-weights[:allowed], kind="stable")

    kind = f"{one['kind']} " if len({each["kind"] for each in shown.manifest(name)["attentions"]}) > 1 else ""
    best = keys[order[0]]
    said = rf"^{re.escape(looker)} looks mostly at {re.escape(best)} \((.+?)\), {kind}layer {one['layer']}, head {head}"
    sentence = tab.page.locator(".sentence")
    expect(sentence).to_have_text(re.compile(said))
    close(number(re.match(said, sentence.inner_text())[1]), weights[order[0]], 2)

    table = tab.page.get_by_role("table", name=f"{looker} looks at")
    found = [(key, number(weight)) for key, weight in rows(table)]
    close([weight for _, weight in found], weights[order[:12]], 3)
    for key, weight in found:  # keys with equal float16 weights may come in any order
        assert any(word == key and abs(own - weight) < 1.1e-3 for word, own in zip(keys, weights, strict=True))


def test_the_numbers_of_the_chosen_word_are_those_of_float32(tab: Tab, shown: Shown):
    found = shown.looked("writer")
    rounded = {id: weights.half().float() for id, weights in found.items()}
    off = {id: (weights * 1e3).round() != (rounded[id] * 1e3).round() for id, weights in found.items()}
    id, places = next((id, places.nonzero().tolist()) for id, places in off.items() if places.any())
    head, query, key = places[0]
    tab.open(shown.ids["writer"], "look", attention=id, head=head + 1, query=query, key=key)
    tab.page.mouse.move(0, 0)
    row = tab.page.locator("table.row tr.chosen .number")
    expect(row).to_have_text(f"{float(found[id][head, query, key]):.3f}")


def test_a_ribbon_begins_as_wide_as_its_weight(tab: Tab, shown: Shown):
    weights = shown.looked("translator")["encoder.2"][1].numpy()
    tab.open(shown.ids["translator"], "look", attention="encoder.2", head=2, query=0, key=0)
    seen = weights >= 0.015  # smaller weights are not drawn
    ribbons = tab.page.locator("path.ribbon")
    expect(ribbons).to_have_count(int(seen.sum()))
    shapes = ribbons.evaluate_all("all => all.map(each => each.getAttribute('d'))")
    ends = [[float(part) for part in re.findall(r"-?[\d.]+", shape)] for shape in shapes]
    widths = [abs(each[-2] - each[0]) for each in ends]  # from the start of the outline to its end
    for row, drawn, found in zip(weights, seen, np.split(widths, np.cumsum(seen.sum(1))[:-1]), strict=True):
        np.testing.assert_allclose(found / found.sum(), row[drawn] / row[drawn].sum(), atol=0.02)


def test_hover_previews_click_selects_shift_click_adds_up(tab: Tab, shown: Shown):
    weights = shown.looked("translator")["cross.1"][0].numpy()
    lookers, keys = shown.names("translator", "written"), shown.names("translator", "source")
    tab.open(shown.ids["translator"], "look", attention="cross.1", head=1, query=0, key=0)
    words, sentence = tab.page.locator("g.word"), tab.page.locator(".sentence")
    expect(words).to_have_count(len(lookers) + len(keys))
    tab.expect_whole()  # so that nothing moves under the pointer
    words.nth(1).hover()
    expect(sentence).to_contain_text(f"{lookers[1]} looks mostly at {keys[weights[1].argmax()]}")
    tab.expect_chosen(query=0)
    words.nth(1).click()
    tab.expect_chosen(query=1)
    words.nth(2).click(modifiers=["Shift"])
    tab.expect_chosen(query=1, pinned=2)
    tab.page.mouse.move(0, 0)
    both = weights[1] + weights[2]
    expect(sentence).to_contain_text(f"{lookers[1]} and {lookers[2]} together look mostly at {keys[both.argmax()]}")
    close([number(cell) for _, cell in rows(tab.page.locator("table.row"))], np.sort(both)[::-1][:12], 3)


def test_hovering_reads_a_cell_of_the_heat_map_and_a_click_selects_it(tab: Tab, shown: Shown):
    weights = shown.looked("writer")["self.2"][0].numpy()
    words, last = shown.names("writer", "tokens"), len(weights) - 1
    tab.open(shown.ids["writer"], "look", attention="self.2", head=1, query=0, key=0, map=1)
    picture, under = tab.page.locator("main .pane canvas"), tab.page.locator("figcaption .under")
    expect(picture).to_be_visible()
    tab.expect_whole()  # so that nothing moves under the pointer
    box = picture.bounding_box()
    seen = set()
    for x, y in ((0.5, 0.9), (0.7, 0.95), (0.95, 0.5)):
        picture.click(position={"x": x * box["width"], "y": y * box["height"]})
        expect(under).to_have_text(re.compile("→"))
        query, key = int(tab.chosen()["query"]), int(tab.chosen()["key"])
        assert under.inner_text().startswith(f"{words[query]} → {words[key]} ")
        seen.add((query, key))
        if key > query:
            expect(under).to_have_text(re.compile("masked$"))
        else:
            close(number(under.inner_text().rsplit(" ", 1)[1]), weights[query, key], 3)
    assert len(seen) == 3
    assert {key > query for query, key in seen} == {True, False}
    assert max(max(each) for each in seen) <= last


def test_pieces_are_merged_and_special_tokens_hidden(tab: Tab, shown: Shown):
    weights = shown.looked("translator")["encoder.1"][0].numpy().astype(np.float64)
    tokens = shown.manifest("translator")["sequences"]["source"]
    numbers = [token["word"] for token in tokens]
    word = next(each for each in set(numbers) if numbers.count(each) > 1)
    pieces = [place for place, each in enumerate(numbers) if each == word]
    whole = "".join(tokens[place]["text"].strip() for place in pieces)
    tab.open(shown.ids["translator"], "look", attention="encoder.1", head=1, query=pieces[0], key=0)
    tab.page.get_by_label("Merge pieces into words").check()
    table = tab.page.get_by_role("table", name=f"{whole} looks at")
    row = weights[pieces].mean(0)
    sums = {each: sum(row[place] for place, of in enumerate(numbers) if of == each) for each in dict.fromkeys(numbers)}
    close([number(cell) for _, cell in rows(table)], sorted(sums.values(), reverse=True)[:12], 3)

    tab.page.get_by_label("Hide special tokens").check()
    outside = sums.pop(-1)
    aside = tab.page.locator(".sentence .aside").last
    expect(aside).to_contain_text("is on hidden special tokens")
    close(number(aside.inner_text()), outside, 2)
    close([number(cell) for _, cell in rows(table)], sorted(sums.values(), reverse=True), 3)
    tab.page.get_by_label("Renormalise the rest to 1").check()
    expect(aside).to_contain_text("the rest is renormalised to 1")
    scaled = [value / (1 - outside) for value in sorted(sums.values(), reverse=True)]
    close([number(cell) for _, cell in rows(table)], scaled, 3)
    tab.expect_chosen(merge=1, hide=1, renormalise=1)


def test_the_names_of_patches_and_bytes_are_explained(tab: Tab, shown: Shown):
    tab.open(shown.ids["seer"], "look")
    expect(tab.main("look").get_by_text("1,2 is the patch in row 1, column 2.")).to_be_visible()
    tab.open(shown.ids["seer"], "position")  # which has none
    expect(tab.page.locator(".notation")).to_have_count(0)
    tab.open(shown.store.put(random_recording("ein \\xd7 \\xa9"), Lock()), "look")
    expect(tab.main("look").get_by_text("\\xd7 is a byte in hexadecimal")).to_be_visible()


def test_the_frame_of_the_chosen_word_is_seen_on_every_colour(tab: Tab, shown: Shown):
    for scheme in ("light", "dark"):
        tab.begin(shown.address)  # a new page
        tab.page.emulate_media(color_scheme=scheme)
        tab.open(shown.ids["translator"], "look", attention="encoder.1", head=1, query=3, key=0, map=1)
        canvas = tab.page.locator("main .pane canvas")
        expect(canvas).to_be_visible()
        style = "name => { const context = document.createElement('canvas').getContext('2d'); "
        style += "const computed = getComputedStyle(document.querySelector('.regard')); "
        style += "context.fillStyle = computed.getPropertyValue(name).trim(); return context.fillStyle }"
        for name in ("--accent", "--accent-ink"):  # one is light, the other dark
            colour = list(bytes.fromhex(tab.page.evaluate(style, name)[1:]))
            pixels = np.asarray(open_image(BytesIO(canvas.screenshot())).convert("RGB"), dtype=int)[:, -6]
            assert np.abs(pixels - colour).max(1).min() <= 2, (scheme, name)


# --- Heads -----------------------------------------------------------------------------------------------------------


def test_importance_has_a_real_minus_but_none_before_a_zero(tab: Tab, shown: Shown):
    rises = {"self.1": [0.5, 0.0, -0.25, -0.00001], "self.2": [0.4, 0.3, 0.2, 0.1]}
    tab.page.route("**/heads", lambda route: route.fulfill(json={"scores": {"importance": rises}}))
    tab.open(shown.ids["writer"], "heads")
    tab.page.get_by_role("button", name="Importance").click()
    numbers = tab.page.locator("main .head .number")
    expect(numbers).to_have_text(["0.5000", "0.4000", "0.3000", "0.2000", "0.1000", "0.0000", "0.0000", "−0.2500"])


def test_heads_are_sorted_by_their_statistics(tab: Tab, shown: Shown):
    every = {id: statistics(weights) for id, weights in shown.looked("translator").items()}
    tab.open(shown.ids["translator"], "heads")
    cards = tab.page.locator("main .head")
    expect(cards).to_have_count(24)
    entropies = np.concatenate([each["Entropy"] for each in every.values()])
    close([number(text.split()[-2]) for text in cards.all_inner_texts()], entropies, 2)
    for name, digits, sign in (("Entropy", 2, 1), ("Distance", 1, -1), ("Previous", 2, -1), ("First", 2, -1)):
        order = tab.page.get_by_role("button", name=name, exact=True)
        order.click()
        expect(order).to_have_attribute("aria-pressed", "true")
        texts = [" ".join(text.split()) for text in cards.all_inner_texts()]
        found = [re.fullmatch(r"L(\d)\.H(\d) (\w+) (.+?)(?: bits)?", text) for text in texts]
        values = [every[f"{card[3].lower()}.{card[1]}"][name][int(card[2]) - 1] for card in found]
        close([number(card[4]) for card in found], values, digits)
        assert (sign * np.diff(values) > -1e-5).all()
    cards.nth(3).click()
    expect(cards.nth(3)).to_have_attribute("aria-pressed", "true")
    tab.expect_chosen(attention=f"{found[3][3].lower()}.{found[3][1]}", head=found[3][2])


def test_the_heads_of_a_layer_are_in_one_line_on_a_phone(tab: Tab, shown: Shown):
    tab.page.set_viewport_size({"width": 390, "height": 844})
    tab.open(shown.ids["writer"], "heads")
    cards = tab.page.locator("main section").first.locator(".head")
    expect(cards).to_have_count(4)
    assert len({each.bounding_box()["y"] for each in cards.all()}) == 1


def test_layers_of_few_heads_are_side_by_side(tab: Tab, shown: Shown):
    tab.page.set_viewport_size({"width": 1400, "height": 900})
    tab.open(shown.ids["writer"], "heads")
    layers = tab.page.locator("main section")
    expect(layers).to_have_count(2)
    first, second = (each.bounding_box() for each in layers.all())
    assert first["y"] == second["y"]
    assert first["x"] + first["width"] < second["x"]


# --- The page around the views ---------------------------------------------------------------------------------------


def test_the_tabs_and_the_text_fit_into_a_window_of_1000_pixels(tab: Tab, shown: Shown):
    tab.page.set_viewport_size({"width": 1000, "height": 800})
    tab.open(shown.ids["translator"], "look")
    tab.expect_whole()
    assert tab.page.get_by_role("tablist").evaluate("list => list.scrollWidth <= list.clientWidth")
    assert tab.page.locator("header form").bounding_box()["height"] < 70  # one line
    assert tab.page.get_by_label("Text", exact=True).bounding_box()["width"] > 380
