"""The curve in a notebook: one output, replaced at most once a second, with all text escaped."""

from xml.etree import ElementTree

import pytest
from rich.console import Console

from regard.tasks.sample import Sample
from regard.training import notebook_progress
from regard.training.notebook_progress import MOST_POINTS, NotebookProgress, curve_svg, thin_out
from regard.training.progress import Standing


@pytest.fixture
def shown(monkeypatch) -> list[tuple[str, str]]:
    """What the output showed, one after the other."""
    found: list[tuple[str, str]] = []

    class Display:
        def show(self, html: str, text: str) -> None:
            found.append((html, text))

    monkeypatch.setattr(notebook_progress, "take_display", Display)
    return found


@pytest.fixture
def clock(monkeypatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(notebook_progress, "monotonic", lambda: now[0])
    return now


def standing(step: int, loss: float) -> Standing:
    return Standing(step, 100, loss, 1e-3, 1000.0, 0, 60.0)


def test_many_steps_are_few_updates(shown, clock):
    with NotebookProgress(Console(), 100, 10) as progress:
        for step in range(1, 101):
            clock[0] += 0.1
            progress.step(standing(step, 5 - step / 50))
    assert 9 <= len(shown) <= 12
    html, text = shown[-1]
    assert text.startswith("step 100/100  loss 3.00")
    assert "<svg" in html
    assert "<progress" not in html  # it is done
    assert "<progress" in shown[0][0]


def test_validations_samples_and_messages(shown, clock):
    with NotebookProgress(Console(), 100, 10) as progress:
        for step in (10, 20):
            progress.step(standing(step, 5 - step / 50))
            progress.validation(step, {"loss": 3.5, "bleu": 12.0}, best=True, method="greedy")
        progress.samples([Sample("<b>given</b>", "wanted", "made")])
        progress.say("warning: <script>")
        progress.result("step 20", {"loss": 3.5}, "beam 5")
    html, text = shown[-1]
    assert text.splitlines()[1:] == [
        "valid 10 best: loss 3.50, bleu 12.0 (greedy)",
        "valid 20 best: loss 3.50, bleu 12.0 (greedy)",
        "warning: <script>",
        "weights of step 20: loss 3.50 (beam 5)",
    ]
    assert "&lt;b&gt;given&lt;/b&gt;" in html
    assert "<script>" not in html


def test_a_process_that_is_not_the_first_shows_nothing(shown):
    with NotebookProgress(Console(quiet=True), 100, 10) as progress:
        progress.step(standing(1, 2.0))
        progress.say("text")
    assert shown == []


def test_the_curve_is_svg_with_a_point_for_each_loss():
    assert curve_svg([(1, 2.0)], []) == ""
    drawn = ElementTree.fromstring(curve_svg([(1, 4.0), (2, 3.0), (3, 2.0)], [(2, 3.5)]))
    train, valid = (line.get("points").split() for line in drawn.iter("polyline"))
    places = [tuple(map(float, point.split(","))) for point in train]
    assert [x for x, _ in places] == sorted(x for x, _ in places)
    assert [y for _, y in places] == sorted(y for _, y in places)  # downwards
    assert (len(valid), len(list(drawn.iter("circle")))) == (1, 1)
    assert drawn.get("aria-label") == "loss of training 2.00, of validation 3.50"
    assert curve_svg([(1, 2.0), (2, 2.0)], [])  # a flat line


def test_long_curves_are_thinned_out():
    points = [(float(step), float(step)) for step in range(10_000)]
    few = thin_out(points)
    assert len(few) <= MOST_POINTS
    assert few[-1] == points[-1]
    assert thin_out(points[:10]) == points[:10]
