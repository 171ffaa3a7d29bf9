"""The page in a real browser: Arithmetic shows the model's numbers, and the copied script runs and agrees."""

import re
import subprocess
import sys
from pathlib import Path
from threading import Lock

import numpy as np
import pytest
from playwright.sync_api import expect

from regard.parts.attend import Explanation
from regard.parts.watch import Record
from regard.viewer.query import Query
from regard.viewer.record import record as record_query

from ..use.made import loaded
from .browser import Tab, number, rows
from .shown import Shown

CELLS = [
    ("translator", "cross.1", 2, 1, 3),
    ("translator", "decoder.1", 1, 2, 3),  # hidden by the mask
    ("writer", "self.2", 4, 5, 2),
    ("biased", "self.1", 2, 6, 4),
    ("aligner", "cross.1", 1, 2, 1),
    ("seer", "self.1", 3, 4, 0),
]


def call(shown: Shown, name: str, id: str, query: int) -> tuple[Record, int]:
    """Return the call that has this query, and its row there: a recurrent model calls attention once per token."""
    tape, _ = shown.watched(name)
    calls = tape[shown.attention(name, id)["name"]]
    return (calls[query], 0) if len(calls) > 1 else (calls[0], query)


def terms(record: Record, head: int, row: int, key: int) -> np.ndarray:
    """Compute the terms of the score of a cell, in plain NumPy."""
    q, k = record.query[0, head, row].double().numpy(), record.key_of(head)[0, 0, key].double().numpy()
    if record.terms.score.is_dot:
        return q * k
    return record.terms.score.energy.weight[0].detach().double().numpy() * np.tanh(q + k)


@pytest.mark.parametrize(("name", "id", "head", "query", "key"), CELLS)
def test_the_arithmetic_of_a_cell(
    tab: Tab, shown: Shown, tmp_path: Path, name: str, id: str, head: int, query: int, key: int
):
    record, row = call(shown, name, id, query)
    tab.open(shown.ids[name], "arithmetic", attention=id, head=head, query=query, key=key)
    check_line(tab, float(record.explain(head - 1).weights[0, 0, row, key]))
    check_score(tab, record, head - 1, row, key)
    check_softmax(tab, record, head - 1, row)
    check_script(tab, record.explain(head - 1), row, key, tmp_path / "cell.py")


def check_line(tab: Tab, weight: float) -> None:
    """The page's own check is right, and finds no difference."""
    line = tab.page.locator("[data-check]")
    expect(line).to_contain_text("Check: weight recomputed")
    recomputed, own = (number(part) for part in re.findall(r"(?:recomputed|own) (\S+?),", line.inner_text()))
    assert recomputed == pytest.approx(weight, abs=6e-5)
    assert own == pytest.approx(weight, abs=6e-5)
    assert number(line.inner_text().rsplit(" is ", 1)[1]) < 1e-5
    expect(line).to_have_class("soft")  # not a failure


def check_score(tab: Tab, record: Record, head: int, row: int, key: int) -> None:
    """The largest terms, their sum, and the score."""
    explained, parts = record.explain(head), terms(record, head, row, key)
    ledger = rows(tab.page.get_by_role("table", name="The largest terms of the score"))
    order = np.argsort(-np.abs(parts), kind="stable")[:6]
    for place, (said, product) in zip(order, ledger, strict=False):
        assert said.startswith(f"dim {place}: ")
        assert number(product) == pytest.approx(parts[place], abs=6e-4)
    lines = {said.split(",")[0].split(" ×")[0]: number(value) for said, value in ledger if value}
    if len(parts) > 6:
        assert lines[f"{len(parts) - 6} others together"] == pytest.approx(parts.sum() - parts[order].sum(), abs=6e-4)
    assert lines["their sum"] == pytest.approx(parts.sum(), abs=6e-4)
    score = float(explained.scores[0, 0, row, key])
    if record.terms.score.is_dot:
        (scaled,) = (value for said, value in lines.items() if said.startswith("× the scale"))
        assert scaled == pytest.approx(score, abs=6e-4)
    if explained.bias is not None:
        bias = float(explained.bias[0, 0, row, key])
        assert bias < 0
        (total,) = (value for said, value in lines.items() if said.startswith("plus the bias"))
        assert total == pytest.approx(score + bias, abs=6e-4)
    hidden = explained.allowed is not None and not bool(explained.allowed.expand_as(explained.scores)[0, 0, row, key])
    assert any("the mask hides" in said for said, _ in ledger) == hidden == (explained.weights[0, 0, row, key] == 0)


def check_softmax(tab: Tab, record: Record, head: int, row: int) -> None:
    """All scores and weights of the row, and the weighted values."""
    explained = record.explain(head)
    softmax = rows(tab.page.get_by_role("table", name="The row: score"))
    np.testing.assert_allclose([number(cells[1]) for cells in softmax], explained.scores[0, 0, row], atol=6e-4)
    np.testing.assert_allclose([number(cells[-1]) for cells in softmax], explained.weights[0, 0, row], atol=6e-5)
    output = tab.page.locator(".total output").inner_text().split()[:4]
    np.testing.assert_allclose([number(text) for text in output], record.mixed[0, head, row, :4], atol=6e-4)


def check_script(tab: Tab, explained: Explanation, row: int, key: int, script: Path) -> None:
    """The copied script runs, and computes the model's numbers."""
    tab.page.get_by_role("button", name="Copy as NumPy").click()
    expect(tab.page.get_by_text(re.compile(r"^Copied, \d+ kB"))).to_be_visible()
    script.write_text(tab.page.evaluate("navigator.clipboard.readText()"), encoding="utf-8")
    ran = subprocess.run([sys.executable, "-I", script], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    printed = dict(re.findall(r"(score|weight) +(\S+?),", ran.stdout))
    assert float(printed["score"]) == pytest.approx(float(explained.scores[0, 0, row, key]), abs=1e-5)
    assert float(printed["weight"]) == pytest.approx(float(explained.weights[0, 0, row, key]), abs=1e-5)


def test_a_bias_is_called_what_it_is(tab: Tab, shown: Shown):
    tab.open(shown.ids["biased"], "arithmetic", attention="self.1", head=2, query=6, key=4)
    said = tab.page.get_by_role("rowheader", name="plus the bias of this pair")
    expect(said).to_have_text(re.compile(r"plus the bias of this pair, −\d\.\d+ \(ALiBi\)"))
    scene = record_query(loaded("trajectories"), Query("0 a 0 0; 10 a 1 0; 20 a 2 0; 10 b 5 1; 20 b 6 1"))
    tab.open(shown.store.put(scene, Lock()), "arithmetic")
    expect(said).to_have_text(re.compile(r"plus the bias of this pair, [+−]\S+"))  # and nothing of positions


def test_without_clipboard_access_the_script_can_be_copied_by_hand(tab: Tab, shown: Shown):
    tab.open(shown.ids["aligner"], "arithmetic")
    tab.page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(new Error('no')); }")
    tab.page.get_by_role("button", name="Copy as NumPy").click()
    script = tab.page.get_by_label("NumPy script")
    expect(script).to_have_value(re.compile("^# cross.1, L1.H1: [^$]*import numpy as np"))
    chosen = script.evaluate("area => area.value.slice(area.selectionStart, area.selectionEnd) === area.value")
    assert chosen  # so that Ctrl-C copies it


def test_a_wrong_number_is_not_explained_away(tab: Tab, shown: Shown):
    """The check works: a row that does not follow from the vectors is reported."""

    def spoil(route) -> None:
        body = np.frombuffer(route.fetch().body(), "<f4").copy()
        body[-1] += 0.01
        route.fulfill(body=body.tobytes(), content_type="application/octet-stream")

    tab.page.route("**/row/cross.1/0/1.f32", spoil)
    last = len(shown.words("translator", "source")) - 1
    tab.open(shown.ids["translator"], "arithmetic", attention="cross.1", head=1, query=1, key=last)
    expect(tab.page.locator("[data-check]")).to_contain_text("difference 1.0e-2")
    expect(tab.page.locator("[data-check]")).to_contain_text("That is more than rounding explains")


def test_keys_that_are_all_masked_have_no_power_together(tab: Tab, shown: Shown):
    text = "one red dog runs two blue cats " * 5
    id = shown.store.put(record_query(shown.models["writer"], Query(text, tokens=0)), Lock())
    tab.open(id, "arithmetic", attention="self.2", head=1, query=2, key=0)
    for query in range(2, 9):
        expect(tab.page.get_by_label("The word that looks")).to_have_value(str(query))
        rest = tab.page.locator("table.softmax tfoot tr").first
        expect(rest).to_contain_text("others")
        expect(tab.page.locator("table.softmax tbody .hatched-cell")).to_have_count(12 - query - 1)
        expect(rest.locator("td").nth(1)).to_have_text("0.000")
        tab.press("j")
