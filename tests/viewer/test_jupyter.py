"""The viewer in a real JupyterLab: a widget that behaves as a part of the notebook."""

import nbformat
import pytest
from playwright.sync_api import Locator, expect

from .jupyter import Lab

MODEL = """
from tests.use.made import loaded
import regard
model = loaded("language")
"""

TRAINING = """
from pathlib import Path
from tests.training.tiny import data, shrunk, training
import regard
task = data("language", Path("data"))
changes = [*shrunk("gpt2"), "tokenizer.kind=word", *training()]
run = regard.train(task, *changes, recipe="gpt2", run="runs/tiny", device="cpu")
"""


@pytest.fixture(scope="module")
def sample(lab: Lab) -> int:
    """The cell that shows the bundled sample."""
    output = lab.run("import regard\nregard.look()")
    expect(output.locator(".ribbons svg")).to_be_visible()
    return lab.active()


def width(element: Locator) -> float:
    return element.evaluate("element => element.getBoundingClientRect().width")


def top(element: Locator) -> float:
    return element.evaluate("element => element.getBoundingClientRect().top")


def test_ribbons_follow_the_width_of_the_widget_not_of_the_window(lab: Lab, sample: int):
    output = lab.cell(sample)
    ribbons, column = output.locator(".ribbons svg"), output.locator(".ribbons")
    wide = width(ribbons)
    for size in (900, 1100, 1400):  # narrower, then wider again; the side bar takes some 300 of them
        lab.page.set_viewport_size({"width": size, "height": 900})
        lab.page.wait_for_function(
            "([ribbons, column]) => Math.abs(ribbons.getBoundingClientRect().width - column.clientWidth) < 2",
            arg=[ribbons.element_handle(), column.element_handle()],
        )
        assert width(ribbons) > 250
    assert width(ribbons) == wide
    layout = output.locator(".look")
    columns = "element => getComputedStyle(element).gridTemplateColumns.split(' ').length"
    lab.page.set_viewport_size({"width": 1150, "height": 900})  # a query of the window would still say: two columns
    lab.page.wait_for_function(f"element => ({columns})(element) === 1", arg=layout.element_handle())
    lab.page.set_viewport_size({"width": 1400, "height": 900})


def test_nothing_moves_under_the_pointer(lab: Lab, sample: int):
    output = lab.cell(sample)
    ribbons, sentence = output.locator(".ribbons svg"), output.locator("main > .sentence")
    for size in (1000, 1400):
        lab.page.set_viewport_size({"width": size, "height": 900})
        ribbons.scroll_into_view_if_needed()
        words = output.locator(".ribbons .word")
        said = set()
        before = top(ribbons) - top(sentence)
        for index in range(words.count()):
            words.nth(index).hover()
            said.add(sentence.inner_text())
            assert top(ribbons) - top(sentence) == before
        assert len(said) > 5
    lab.page.mouse.move(0, 0)


def test_the_widget_is_as_high_as_its_content_or_as_asked(lab: Lab, sample: int):
    widget = lab.cell(sample).locator(".regard")
    high = "element => element.getBoundingClientRect().height"
    before = widget.evaluate(high)
    lab.page.set_viewport_size({"width": 1400, "height": 2400})
    assert widget.evaluate(high) == before < 1500
    lab.page.set_viewport_size({"width": 1400, "height": 900})
    fixed = lab.run("regard.look(height=400, theme='dark')").locator(".regard")
    expect(fixed.locator(".ribbons svg")).to_be_visible()
    assert fixed.evaluate(high) == 400
    expect(fixed).to_have_attribute("data-theme", "dark")


def test_keys_stay_in_the_widget(lab: Lab, sample: int):
    output, cells = lab.cell(sample), lab.page.locator(".jp-Notebook .jp-Cell").count()
    recordings = output.locator("header select")
    lab.activate(sample)
    output.locator("nav .head").first.focus()
    lab.press("d", "d", "j", "ArrowDown", "ArrowUp", "a", "b", "x")  # what deletes, adds and moves cells
    recordings.focus()
    before = recordings.input_value()
    lab.press("ArrowDown")
    expect(recordings).not_to_have_value(before)
    lab.press("d", "d", "ArrowUp")
    expect(recordings).to_have_value(before)
    assert lab.page.locator(".jp-Notebook .jp-Cell").count() == cells
    assert lab.active() == sample


def test_the_wheel_over_the_heat_map_scrolls_the_notebook(lab: Lab, sample: int):
    output = lab.cell(sample)
    output.locator("nav .head").first.click()
    output.get_by_role("button", name="Heat map").click()
    pane = output.locator(".pane")
    pane.scroll_into_view_if_needed()
    pane.hover()
    before = top(pane)
    lab.page.mouse.wheel(0, 120)
    lab.page.wait_for_function(
        "([pane, before]) => pane.getBoundingClientRect().top < before", arg=[pane.element_handle(), before]
    )
    output.get_by_role("button", name="Ribbons").click()


def test_the_theme_is_that_of_the_notebook(lab: Lab, sample: int):
    widget = lab.cell(sample).locator(".regard")
    expect(widget).to_have_attribute("data-theme", "light")
    lab.command("apputils:change-theme", theme="JupyterLab Dark")
    expect(widget).to_have_attribute("data-theme", "dark")
    lab.command("apputils:change-theme", theme="JupyterLab Light")
    expect(widget).to_have_attribute("data-theme", "light")


def test_a_figure_shows_itself_without_a_magic_command(lab: Lab):
    output = lab.run("from regard import draw\nimport numpy\ndraw.heatmap(numpy.eye(2), ['a', 'b'], ['a', 'b'])")
    expect(output.locator("img[src^='data:image/png']")).to_be_visible()


def test_an_error_is_its_own_sentence(lab: Lab):
    output = lab.run("import regard\nregard.build('gpt2', 'model.depth=0')")
    expect(output).to_contain_text("ConfigError: model.depth: 0 must be between 1 and 4096")
    expect(output).not_to_contain_text("ExceptionGroup")
    expect(output).not_to_contain_text("another exception occurred")


def test_a_text_box_asks_the_model_in_the_kernel(lab: Lab):
    output = lab.run(f"{MODEL}regard.look(model, 'one red dog runs', tokens=2, attention='self.1', head=2)")
    expect(output.locator("nav .head[aria-pressed=true]")).to_have_attribute("aria-label", "Self-attention L1.H2")
    box = output.get_by_role("textbox", name="Text")
    expect(box).to_have_value("one red dog runs")
    box.fill("two blue cats sleep")
    box.press("Enter")
    expect(output.locator(".ribbons")).to_contain_text("blue")
    expect(output.locator("header select").last).to_contain_text("two blue cats sleep")
    box.fill(" ")
    box.press("Enter")
    expect(output.locator("header .failure")).to_have_text("the text is empty; write at least one word")


def test_a_model_without_a_text_begins_with_an_empty_box(lab: Lab):
    output = lab.run(f"{MODEL}regard.look(model)")
    box = output.get_by_role("textbox", name="Text")
    box.fill("two blue cats sleep")
    box.press("Enter")
    expect(output.locator(".ribbons")).to_contain_text("blue")


def test_training_shows_a_curve_that_grows_in_one_output(lab: Lab):
    output = lab.run(TRAINING)
    expect(output.locator("svg polyline").first).to_be_visible()
    expect(output).to_contain_text("step 12/12")
    expect(output).to_contain_text("done: ")
    expect(output.locator(".jp-OutputArea-output")).to_have_count(1)
    index = lab.active()
    expect(lab.run(None, index)).to_contain_text("step 12/12")  # again, into the same folder
    table = lab.run("run")
    expect(table.locator("table")).to_contain_text("12 of 12")
    expect(table.locator("svg polyline").first).to_be_visible()
    expect(lab.run("regard.look(run)").locator("main.closed, .ribbons svg").first).to_be_visible()


def test_a_tape_is_a_table(lab: Lab):
    code = "import torch\nwith regard.watch(model.model) as tape:\n    model.model(torch.tensor([[1, 2, 3]]))\ntape"
    output = lab.run(f"{MODEL}{code}")
    expect(output.locator("table tr")).to_have_count(3)
    expect(output).to_contain_text("stack.layers.0.mixer")


def test_a_picture_stays_where_there_is_no_kernel_and_no_state(lab: Lab, sample: int):
    for _ in range(2):
        expect(lab.run(None, sample).locator(".ribbons svg")).to_be_visible()
    expect(lab.cell(sample).locator(".regard-picture")).to_be_hidden()
    saved = lab.save()
    states = saved.metadata.widgets["application/vnd.jupyter.widget-state+json"]["state"].values()
    archives = [one for one in states if ["archive"] in [buffer["path"] for buffer in one.get("buffers", ())]]
    assert len(archives) == lab.page.locator(".regard").count()  # those of earlier runs are gone
    del saved.metadata["widgets"]
    nbformat.write(saved, lab.folder / "again.ipynb")
    before = lab.name
    lab.open("again.ipynb")
    output = lab.cell(sample)
    expect(output.locator(".regard-picture img")).to_be_visible()
    expect(output.get_by_text("model not found")).to_be_hidden()
    lab.open(before)


def test_a_model_is_changed_in_a_cell(lab: Lab):
    output = lab.run(f"{MODEL}regard.look(model, 'one red dog runs', tokens=2)")
    output.get_by_role("tab", name="Change").click()
    output.get_by_role("button", name="Switch off").first.click()
    expect(output.locator(".chips li")).to_have_count(1)
    expect(output.locator(".change .failure")).to_have_count(0)


def test_a_kernel_that_has_ended_is_said_to_have_ended(lab: Lab):
    output = lab.run(f"{MODEL}regard.look(model, 'one red dog runs', tokens=2)")
    box = output.get_by_role("textbox", name="Text")
    expect(box).to_have_value("one red dog runs")
    lab.restart()
    box.fill("two blue dogs")
    box.press("Enter")
    expect(output.locator("header .failure")).to_contain_text(
        "The kernel of this notebook has ended; run the cell again."
    )


def test_no_other_host_is_contacted(lab: Lab):
    assert [url for url in lab.requests if not url.startswith((lab.address, "data:", "blob:"))] == []
