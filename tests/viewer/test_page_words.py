"""The page in a real browser: Words, Next and Position show the numbers that the models have."""

import re
from threading import Lock

import numpy as np
import pytest
import torch
from playwright.sync_api import Locator, expect

import regard
from regard.viewer.query import Query
from regard.viewer.record import record

from .browser import Tab, close, number, rows
from .shown import Shown, hidden, random_recording, readable

# --- Words -----------------------------------------------------------------------------------------------------------


def test_words_shows_the_cosine_after_each_layer(tab: Tab, shown: Shown):
    words, names = shown.words("writer", "tokens"), shown.names("writer", "tokens")
    first, second = [place for place, word in enumerate(words) if word == "dog"][:2]
    states = hidden(shown.models["writer"].model, shown.inputs("writer")["tokens"])
    cosines = [float(torch.cosine_similarity(layer[first], layer[second], 0)) for layer in states]
    tab.open(shown.ids["writer"], "words", attention="self.1", head=1, query=first, key=0)
    table = tab.page.get_by_role("table", name=re.compile("^Cosine after each layer"))
    assert [name for name, _ in rows(table)] == ["embedding", "layer 1", "layer 2"]
    close([number(value) for _, value in rows(table)], cosines, 3)
    expect(tab.page.locator(".sentence")).to_contain_text(f"{names[first]} and {names[second]}: cosine")

    tab.page.get_by_role("group", name="Second text").get_by_role("button", name="red", exact=True).first.click()
    other = words.index("red")
    cosines = [float(torch.cosine_similarity(layer[first], layer[other], 0)) for layer in states]
    expect(tab.page.locator(".sentence")).to_contain_text(f"{names[first]} and red: cosine")
    close([number(value) for _, value in rows(table)], cosines, 3)


@pytest.mark.parametrize(
    ("name", "noun", "whole"), [("writer", "word", "text"), ("seer", "patch", "image"), (None, "residue", "protein")]
)
def test_words_names_what_is_compared(tab: Tab, shown: Shown, name: str | None, noun: str, whole: str):
    if name is None:
        hidden = [{"sequence": "source", "layers": 2, "width": 4}]
        id = shown.store.put(random_recording("M K T A", noun=noun, hidden=hidden), Lock())
    else:
        id = shown.ids[name]
    tab.open(id, "words")
    for which in ("First", "Second"):
        expect(tab.page.get_by_role("heading", name=f"{which} {noun}")).to_be_visible()
        expect(tab.page.get_by_role("group", name=f"{which} {whole}")).to_be_visible()
    expect(tab.field(f"Second {whole}").locator("option", has_text=f"the same {whole}")).to_have_count(1)


def test_words_of_another_text_and_their_plane(tab: Tab, shown: Shown):
    tab.open(shown.ids["writer"], "words")
    tab.page.get_by_label(re.compile("or a new text")).fill("two cats one red dog")
    tab.page.get_by_role("button", name="Read", exact=True).click()
    second = tab.page.get_by_role("group", name="Second text").get_by_role("button")
    expect(second.nth(1)).to_have_text("two")
    share = tab.page.locator("main figcaption").filter(has_text="of the variance")
    whole, x, y = map(int, re.findall(r"(\d+) %", share.inner_text()))
    # the plane is that of the singular vectors of all words that are shown
    tab.page.get_by_text("All points as numbers").click()
    points = rows(tab.page.get_by_role("table", name="After layer 2"))
    found = np.array([[number(cell) for cell in row[1:]] for row in points])
    partner = tab.chosen()["with"].split("*")[0]
    other = shown.store.find(partner).recording.manifest()["sequences"]["tokens"]
    model = shown.models["writer"].model
    states = []
    for tokens in (shown.manifest("writer")["sequences"]["tokens"], other):
        last = hidden(model, torch.tensor([[token["id"] for token in tokens]]))[-1].numpy()
        states += [last[place] for place, token in enumerate(tokens) if not token["special"]]
    assert len(states) == len(found)
    middle = np.array(states) - np.mean(states, 0)
    _, spread, directions = np.linalg.svd(middle, full_matrices=False)
    shares = 100 * spread**2 / (spread**2).sum()
    np.testing.assert_allclose([whole, x, y], [shares[:2].sum(), *shares[:2]], atol=0.51)
    wanted = middle @ directions[:2].T
    np.testing.assert_allclose(np.abs(found), np.abs(wanted), atol=1e-4)


# --- Next ------------------------------------------------------------------------------------------------------------


def check_guesses(table: Locator, logits: np.ndarray, vocabulary: list[str], temperature: float) -> None:
    powers = np.exp((logits - logits.max()) / max(temperature, 1e-9))
    chances = powers / powers.sum()
    found, order = rows(table), np.argsort(-logits, kind="stable")
    wanted = [vocabulary[id] for id in order[:10]]
    assert [re.sub("(written|in the text)$", "", row[0]) for row in found[:10]] == wanted
    np.testing.assert_allclose([number(row[1]) for row in found[:10]], chances[order[:10]], atol=1e-4)
    np.testing.assert_allclose([number(row[2]) for row in found[:10]], logits[order[:10]], atol=6e-3)


@pytest.mark.parametrize(("name", "id"), [("writer", "self.1"), ("translator", "cross.1")])
def test_next_shows_probabilities_at_any_temperature(tab: Tab, shown: Shown, name: str, id: str):
    _, logits = shown.watched(name)
    scores = logits[0].double().numpy()
    vocabulary = [readable(text) for text in shown.models[name].tokenizer.pieces(range(scores.shape[1]))]
    sequence, place = shown.manifest(name)["next"]["sequence"], shown.manifest(name)["next"]["begin"]
    tab.open(shown.ids[name], "next", attention=id, head=1, query=place, key=0)
    table = tab.page.get_by_role("table", name=f"The most likely next tokens, of {scores.shape[1]}")
    check_guesses(table, scores[place], vocabulary, 1.0)
    sentence = tab.page.locator("main .sentence")
    expect(sentence).to_contain_text(f"{vocabulary[scores[place].argmax()]} is the most likely (")
    for temperature in (0.5, 2, 0):
        tab.page.get_by_label("Temperature").fill(str(temperature))
        expect(sentence).to_contain_text(f"at temperature {temperature},")
        check_guesses(table, scores[place], vocabulary, temperature)
    tab.page.get_by_label("Temperature").fill("1")
    tab.page.get_by_role("button", name=re.compile("^← Back")).click()
    tab.expect_chosen(query=place - 1)
    expect(sentence).to_contain_text(f"After {shown.names(name, sequence)[place - 1]}, ")
    check_guesses(table, scores[place - 1], vocabulary, 1.0)


def test_next_tokens_that_differ_only_in_a_blank_are_listed_apart(tab: Tab, shown: Shown):
    _, logits = shown.watched("writer")
    place = shown.manifest("writer")["next"]["begin"]
    texts = [f"t{id}" for id in range(logits.shape[-1])]
    first, second = logits[0, place].argsort(descending=True, stable=True)[:2].tolist()
    texts[first], texts[second] = " ouv", "ouv"
    tab.page.route("**/vocabulary.json", lambda route: route.fulfill(json=texts))
    tab.open(shown.ids["writer"], "next", attention="self.1", head=1, query=place, key=0)
    table = tab.page.get_by_role("table", name=re.compile("The most likely next tokens.*; ␣ is a blank"))
    assert [re.sub("(written|in the text)$", "", row[0]) for row in rows(table)[:2]] == ["␣ouv", "ouv"]
    expect(tab.page.locator("main .sentence")).to_contain_text("␣ouv is the most likely")


@pytest.mark.parametrize(("name", "id"), [("writer", "self.2"), ("translator", "cross.2")])
def test_next_shows_where_the_head_looks(tab: Tab, shown: Shown, name: str, id: str):
    one, weights = shown.attention(name, id), shown.looked(name)[id][1].numpy()
    lookers = shown.names(name, one["queries"])
    tab.open(shown.ids[name], "next", attention=id, head=2, query=1, key=0)
    for query in (1, 2, 3):
        table = tab.page.get_by_role("table", name=f"{lookers[query]} looks at", exact=True)
        seen = query + 1 if one["mask"] else one["columns"]  # the row grows with the text
        close([number(row[1]) for row in rows(table)], np.sort(weights[query, :seen])[::-1][:12], 3)
        tab.press("j")


def test_next_shows_the_chosen_token_of_a_long_text(tab: Tab, shown: Shown):
    id = shown.store.put(record(shown.models["writer"], Query("one red dog runs " * 60, tokens=1)), Lock())
    last = len(shown.store.find(id).recording.manifest()["sequences"]["tokens"]) - 1
    tab.open(id, "next", attention="self.1", head=1, query=last, key=0)
    line = tab.page.get_by_role("group", name="Text so far")
    inside = "word => { const [a, b] = [word, word.parentElement].map(each => each.getBoundingClientRect()); "
    inside += "return b.height < 200 && a.top >= b.top && a.bottom <= b.bottom }"
    for at in (last, 0):
        word = line.get_by_role("button").nth(at)
        word.dispatch_event("click")
        expect(word).to_have_attribute("aria-pressed", "true")
        assert word.evaluate(inside)


def test_next_continues_with_another_token(tab: Tab, shown: Shown):
    words = shown.words("writer", "tokens")
    begin = shown.manifest("writer")["next"]["begin"]
    tab.open(shown.ids["writer"], "next", attention="self.1", head=1, query=begin - 1, key=0)
    table = tab.page.get_by_role("table", name=re.compile("The most likely next tokens"))
    other = table.get_by_role("button").nth(2)
    word = other.inner_text()
    other.click()
    line = tab.page.get_by_role("group", name="Text so far").get_by_role("button")
    expect(line.nth(begin)).to_have_text(word)
    tab.expect_chosen(query=begin)
    assert line.all_inner_texts()[:begin] == words[:begin]


def test_next_of_a_model_that_fills_in(tab: Tab, shown: Shown):
    _, logits = shown.watched("reader")
    place = shown.words("reader", "tokens").index("<mask>")
    scores = logits[0, place].double()
    scores[list(shown.models["reader"].template.never)] = -torch.inf  # these are never written
    chances = scores.softmax(-1).numpy()
    tab.open(shown.ids["reader"], "next")
    (answer,) = shown.manifest("reader")["answers"]
    found = rows(tab.page.get_by_role("table", name=answer["question"]))
    assert len(found) >= 3
    np.testing.assert_allclose([number(row[1]) for row in found], np.sort(chances)[::-1][: len(found)], atol=1e-4)


def test_an_answer_for_every_residue_of_a_long_protein_is_readable(tab: Tab, shown: Shown):
    states = "_" * 500 + "H" * 500
    answer = {"question": "Which states?", "guesses": [{"text": states, "probability": 0.5}]}
    tab.open(shown.store.put(random_recording(answers=[answer]), Lock()), "next")
    expect(tab.page.locator("main .sentence")).to_have_text(f"{'_' * 30} … {'H' * 15} (0.50)")
    expect(tab.page.get_by_text(" ".join(["_" * 10] * 50 + ["H" * 10] * 50), exact=True)).to_be_visible()


def test_the_states_of_residues_are_below_their_letters(tab: Tab, shown: Shown):
    letters, states = "MKTAYIAKQRQISF", "__HHHHHHHH__EE"
    answer = {"question": "Which states?", "guesses": [{"text": states, "probability": 0.5}]}
    sequences = {"tokens": [{"text": each, "id": 0, "special": False, "word": 0} for each in letters]}
    id = shown.store.put(random_recording(noun="residue", answers=[answer], sequences=sequences, attentions=[]), Lock())
    tab.open(id, "next")
    blocks = tab.page.locator(".residues > span")
    found = [blocks.nth(at).locator(":scope > *").all_inner_texts() for at in range(2)]
    assert found == [["1", letters[:10], states[:10]], ["11", letters[10:], states[10:]]]
    widths = [each.bounding_box()["width"] for each in blocks.first.locator(":scope > :not(.soft)").all()]
    assert widths[0] == pytest.approx(widths[1], abs=1)


def test_what_each_layer_would_write_is_in_columns_that_do_not_touch(tab: Tab, shown: Shown):
    for width in (1400, 390):
        tab.page.set_viewport_size({"width": width, "height": 900})
        tab.open(shown.ids["writer"], "next")
        tab.page.get_by_text("What each layer would write").click()
        lines = tab.page.locator("table.lens tbody tr")
        expect(lines).to_have_count(3)
        texts = "row => [...row.cells].map(cell => { const range = document.createRange(); "
        texts += "range.selectNodeContents(cell); const box = range.getBoundingClientRect(); "
        texts += "return [box.left, box.right] })"
        places = np.array([line.evaluate(texts) for line in lines.all()])
        assert (places[:, 1:, 0] - places[:, :-1, 1] >= 8).all()  # a gap between each text and the next
        assert np.ptp(places[..., 0], axis=0).max() <= 1  # each column begins at one place
        assert tab.page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_mark_of_the_next_token_is_whole_on_a_phone(tab: Tab, shown: Shown):
    tab.page.set_viewport_size({"width": 390, "height": 844})
    tab.open(shown.ids["translator"], "next")
    mark = tab.page.locator("table.bars .mark")
    expect(mark).to_be_visible()
    inside = "mark => mark.getBoundingClientRect().right <= mark.closest('th').getBoundingClientRect().right"
    assert mark.evaluate(inside)


# --- Position --------------------------------------------------------------------------------------------------------


def test_position_shows_the_table_and_the_similarity_of_positions(tab: Tab, shown: Shown):
    table = shown.models["writer"].model.embed.position.table.weight.detach().double().numpy()
    unit = table / np.linalg.norm(table, axis=1, keepdims=True)
    alike = unit @ unit.T
    tab.open(shown.ids["writer"], "position", attention="self.1", head=1, query=3, key=0)
    heading = f"The table: {len(table)} positions, {table.shape[1]} numbers each"
    expect(tab.page.get_by_role("heading", name=heading)).to_be_visible()
    others = np.delete(np.arange(len(table)), 3)
    best, worst = others[alike[3, others].argmax()], others[alike[3, others].argmin()]
    sentence = tab.page.locator("main .sentence")
    expect(sentence).to_have_text(re.compile(rf"^Position 3 is most like position {best} \(.*, least like {worst} \("))
    tab.page.get_by_text("These numbers as tables").click()
    for place in (3, 7):
        tab.page.get_by_role("slider").fill(str(place))
        own = tab.page.get_by_role("table", name=f"Position {place}", exact=True)
        likeness = tab.page.get_by_role("table", name=f"Similarity to position {place}", exact=True)
        np.testing.assert_allclose([number(row[1]) for row in rows(own)], table[place], atol=1e-6)
        np.testing.assert_allclose([number(row[1]) for row in rows(likeness)], alike[place], atol=1e-5)


def test_a_wide_table_fits_into_a_narrow_window(tab: Tab, shown: Shown):
    sizes = ("model.depth=1", "model.dim=240", "model.vocabulary=100")
    id = shown.store.put(record(regard.build("gpt2", *sizes).eval(), Query([5, 12, 7], tokens=0)), Lock())
    tab.page.set_viewport_size({"width": 390, "height": 800})
    tab.open(id, "position")
    expect(tab.page.locator("canvas[role=img]").first).to_be_visible()
    assert tab.page.evaluate("document.documentElement.scrollWidth") <= 390


def test_hovering_reads_a_cell_of_the_table(tab: Tab, shown: Shown):
    tab.open(shown.ids["translator"], "position")
    picture = tab.page.get_by_role("img", name=re.compile("^Sinusoidal positions"))
    under = tab.page.locator("figcaption .under").first
    expect(picture).to_be_visible()
    tab.expect_whole()  # so that nothing moves under the pointer
    before = ""
    for x, y in ((0.5, 0.3), (0.8, 0.7), (0.99, 0.9)):
        box = picture.bounding_box()
        tab.page.mouse.move(box["x"] + x * box["width"], box["y"] + y * box["height"])
        expect(under).to_have_text(re.compile(r"^position \d+, feature \d+: "))
        expect(under).not_to_have_text(before)
        before = under.inner_text()
        position, feature, value = map(number, re.split("feature|:", before))
        angle = position / 10000 ** (2 * (feature // 2) / 16)
        close(value, np.cos(angle) if feature % 2 else np.sin(angle), 3)


def test_position_shows_the_bias_of_a_head(tab: Tab, shown: Shown):
    tab.open(shown.ids["biased"], "position", attention="self.1", head=2, query=4, key=0)
    expect(tab.page.locator("main .sentence")).to_contain_text("From position 4, head 2 adds most to position 4 (0.00)")
    tab.page.get_by_text("These numbers as tables").click()
    table = tab.page.get_by_role("table", name="From position 4")
    found = np.array([number(row[1]) for row in rows(table)])
    slope = 2.0 ** (-8 * 2 / 4)  # of the second of four heads
    np.testing.assert_allclose(found[:5], -slope * np.arange(4, -1, -1), atol=1e-6)
