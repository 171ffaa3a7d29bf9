"""The picture and the page of a report: what they show, and that no text in them becomes markup."""

import io
import json
import re
import sys
from base64 import b64decode
from html.parser import HTMLParser
from math import isnan

import numpy as np
import pytest
from PIL import Image

from regard.draw import DARK, LIGHT
from regard.errors import RegardError
from regard.tasks.baselines import Baseline
from regard.tasks.sample import Sample
from regard.training import report as report_module
from regard.training.finish import finish
from regard.training.report import draw_curves, write_report
from regard.use.evaluate import Evaluation

from ..processes import Forked
from .tiny import make_trainer, planned

EVIL = "</script></title></style><img src=x onerror=alert(1)>\"'&\x00\x1b[31m\u202e\ud800"


def make_run(folder, records, samples=()):
    folder.mkdir(exist_ok=True)
    lines = [json.dumps({"step": step, "kind": kind, "time": 0.0, **values}) for step, kind, values in records]
    (folder / "metrics.jsonl").write_text("".join(f"{line}\n" for line in lines))
    lines = [json.dumps({"step": step, **vars(sample)}) for step, sample in samples]
    (folder / "samples.jsonl").write_text("".join(f"{line}\n" for line in lines))
    return folder


RECORDS = [
    *[(step, "train", {"loss": 8.0 / step, "rate": 1e-4 * step}) for step in range(1, 11)],
    (4, "valid", {"loss": 3.0, "bleu": 10.0}),
    (6, "valid", {"loss": 2.0, "bleu": 12.0}),
    (8, "valid", {"loss": 2.5, "bleu": 20.0}),
    (10, "valid", {"loss": None, "bleu": 19.0}),
]


@pytest.fixture
def unpainted(monkeypatch):
    """Drawing four pictures takes a second, and most tests do not need them."""
    monkeypatch.setattr(report_module, "_picture", lambda records, look, columns: f"{look.ground} {columns}".encode())


class Page(HTMLParser):
    """A page as a browser sees it: its tags, and the text of its parts."""

    def __init__(self, source):
        super().__init__()
        self.tags, self.cells, self.cards, self.headings, self._open = [], [], [], [], []
        self.feed(source)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self._open.append(tag)
        for kind, store in ((("th", "td"), self.cells), (("h1", "h2"), self.headings)):
            if tag in kind:
                store.append("")
        if ("class", "card") in attributes:
            self.cards.append("")

    def handle_endtag(self, tag):
        while self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data):
        here = self._open[-1] if self._open else ""
        if here in {"th", "td"}:
            self.cells[-1] += data
        elif here in {"h1", "h2"}:
            self.headings[-1] += data
        elif "div" in self._open and self.cards and data.strip():
            self.cards[-1] += f"{data.strip()}|"


def report(folder, title="A run", facts=(), scores=(("bleu", 21.5),), measured="Weights of step 8."):
    return write_report(folder, title, dict(scores), measured, facts, "greedy, 5 of 9 pairs")


def page_of(folder, *given, **named):
    return Page(report(folder, *given, **named).read_text(encoding="utf-8"))


# --- the picture -----------------------------------------------------------------------------------------------------


def pixels(content, colour):
    """Return the rows and columns at which a picture has exactly this colour."""
    image = np.asarray(Image.open(io.BytesIO(content)).convert("RGB"))
    return np.argwhere((image == [int(colour[at : at + 2], 16) for at in (1, 3, 5)]).all(-1))


def test_the_picture_shows_the_curves(tmp_path):
    path = draw_curves(make_run(tmp_path, RECORDS))
    assert path == tmp_path / "curves.png"
    assert not list(tmp_path.glob("*.part"))
    with Image.open(path) as image:
        width, height = image.size
    assert width == 1400
    train, valid = (pixels(path.read_bytes(), colour) for colour in (LIGHT.blue, LIGHT.orange))
    (small_train, small_valid) = (found[found[:, 0] > 0.62 * height] for found in (train, valid))
    (large_train, large_valid) = (found[found[:, 0] < 0.55 * height] for found in (train, valid))
    # The training loss begins at the left above all; the validation loss begins where its first step is.
    top = large_train[large_train[:, 1] < width / 2]
    assert top[:, 0].min() < large_valid[large_valid[:, 1] < width / 2][:, 0].min()
    assert large_valid[:, 1].min() > large_train[:, 1].min() + 0.25 * width
    # Below: BLEU at the left, the learning rate, which rises, at the right.
    assert small_valid[:, 1].max() < width / 2 < small_train[:, 1].min()
    left, right = (small_train[small_train[:, 1] == edge(small_train[:, 1])][:, 0].mean() for edge in (np.min, np.max))
    assert right < left


def test_a_run_without_validation_has_one_plot(tmp_path):
    path = draw_curves(make_run(tmp_path, [(1, "train", {"loss": 2.0})]))
    with Image.open(path) as image:
        assert image.size == (1400, 520)
    found = pixels(path.read_bytes(), LIGHT.blue)
    assert len(found[found[:, 1] < 1000]) > 0  # a single point is a dot, and not only in the legend at the right
    assert len(pixels(path.read_bytes(), LIGHT.orange)) == 0


def test_matplotlib_keeps_no_figures():
    """Thousands of runs in one process, or a notebook with its own figures, must not be affected."""
    said = Forked(draw_and_list_modules).end().said.split()
    assert "matplotlib.figure" in said
    assert "matplotlib.pyplot" not in said


def draw_and_list_modules() -> None:
    report_module._picture([{"step": 1}], LIGHT, 1)
    print(*sys.modules)


def test_of_two_values_for_a_step_the_last_counts_and_a_missing_number_is_a_gap():
    records = [{"step": step, "kind": "train", "loss": loss} for step, loss in ((2, 5), (1, 4.0), (2, 3.0), (3, None))]
    records += [{"step": 4, "kind": "train", "loss": "x"}, {"step": 5, "kind": "valid", "loss": 1.0}, {"step": 6}]
    curve = report_module._curve(records, "train", "loss")
    assert list(curve) == [1, 2, 3, 4]
    assert (curve[1], curve[2], isnan(curve[3]), isnan(curve[4])) == (4.0, 3.0, True, True)


# --- the page --------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("unpainted")
def test_the_cards_say_what_the_best_weights_reach_and_the_curves_how_they_were_measured(tmp_path):
    """There is one BLEU of the best weights; validations while training used other rows and another search."""
    folder = make_run(tmp_path, RECORDS)
    page = page_of(folder, scores=(("bleu", 21.5), ("loss", 2.4)), measured="Weights of step 8, beam 5, 9 pairs.")
    assert page.cards == [
        "21.5|BLEU|",
        "2.40|Validation loss|",
        "0.800|Training loss|at step 10|",
    ]
    source = (folder / "report.html").read_text(encoding="utf-8")
    assert source.index("<p>Weights of step 8, beam 5, 9 pairs.</p>") < source.index('class="card"')
    assert source.index("Learning curves") < source.index("<p>Validations while training: greedy, 5 of 9 pairs.</p>")


@pytest.mark.usefixtures("unpainted")
def test_the_report_compares_the_model_with_simple_ones_and_warns_where_it_is_not_better(tmp_path):
    folder = make_run(tmp_path, RECORDS)
    baselines = [Baseline("copy of the source", 2.0), Baseline("dictionary", 25.0, "of 9 pairs")]
    write_report(folder, "A run", {"bleu": 21.5}, "", (), baselines=baselines)
    source = (folder / "report.html").read_text(encoding="utf-8")
    assert '<p class="warning">This model is not better than a simple one: dictionary.</p>' in source
    assert "<th>this model</th>" in source
    assert "bleu 25 (of 9 pairs)" in source
    write_report(folder, "A run", {"bleu": 31.5}, "", (), baselines=baselines)
    assert 'class="warning"' not in (folder / "report.html").read_text(encoding="utf-8")


@pytest.mark.usefixtures("unpainted")
def test_details_and_costs_have_no_curve(tmp_path):
    values = {"bits_per_byte": 2.0, "word_perplexity": 1e8, "seconds": 3.0, "tokens": 9}
    records = [{"step": step, "kind": "valid", **values} for step in (1, 2)]
    assert report_module._metrics(records) == ["bits_per_byte"]


@pytest.mark.usefixtures("unpainted")
def test_that_a_model_made_nothing_is_shown(tmp_path):
    page = page_of(make_run(tmp_path, RECORDS, [(10, Sample("ein Hund", "a dog", ""))]))
    assert page.cells == ["given", "ein Hund", "wanted", "a dog", "step 10", "(nothing)"]


@pytest.mark.usefixtures("unpainted")
def test_samples_over_time(tmp_path):
    samples = [(step, Sample("ein Hund", "a dog", f"made {step}")) for step in (10, 20, 30, 40, 50)]
    samples += [(50, Sample("", "", f"only {number}\nsecond line")) for number in range(4)]
    page = page_of(make_run(tmp_path, RECORDS, samples))
    first = ["given", "ein Hund", "wanted", "a dog", "step 10", "made 10", "step 30", "made 30", "step 50", "made 50"]
    second = ["step 50", "only 0\nsecond line", "step 50", "only 1\nsecond line"]
    assert page.cells == first + second
    assert "Samples" in page.headings


@pytest.mark.usefixtures("unpainted")
def test_facts_and_headings(tmp_path):
    page = page_of(make_run(tmp_path, RECORDS), "My run", [("Model", [("depth", "6"), ("width", "512")]), ("Data", [])])
    assert page.headings == ["My run", "Learning curves", "Model", "Data"]
    assert page.cells == ["depth", "6", "width", "512"]


@pytest.mark.usefixtures("unpainted")
def test_the_browser_takes_the_picture_that_fits(tmp_path):
    page = page_of(make_run(tmp_path, RECORDS))
    sources = [attributes for tag, attributes in page.tags if tag in {"source", "img"}]
    shown = [b64decode(each.get("srcset", each.get("src")).removeprefix("data:image/png;base64,")) for each in sources]
    narrow, dark = "(max-width: 600px)", "(prefers-color-scheme: dark)"
    assert [each.get("media") for each in sources] == [f"{narrow} and {dark}", narrow, dark, None]
    grounds = [f"{look.ground} {columns}".encode() for columns in (1, 2) for look in (DARK, LIGHT)]
    assert shown == grounds


@pytest.mark.usefixtures("unpainted")
def test_no_text_becomes_markup(tmp_path):
    folder = make_run(tmp_path / "evil", RECORDS, [(1, Sample(EVIL, EVIL, EVIL))])
    page = page_of(folder, EVIL, [(EVIL, [(EVIL, EVIL)])], [(EVIL, 1.0)], EVIL)
    calm = make_run(tmp_path / "calm", RECORDS, [(1, Sample("a", "b", "c"))])
    assert page.tags == page_of(calm, "t", [("h", [("n", "v")])], [("n", 1.0)], "m").tags
    shown = EVIL.replace("\x00", "\\x00").replace("\x1b", "\\x1b").replace("\u202e", "\\u202e")
    shown = shown.replace("\ud800", "\\ud800")
    assert page.headings == [shown, "Learning curves", "Samples", shown]
    assert page.cells == ["given", shown, "wanted", shown, "step 1", shown, shown, shown]


@pytest.mark.usefixtures("unpainted")
def test_the_page_loads_no_other_file(tmp_path):
    source = report(make_run(tmp_path, RECORDS)).read_text(encoding="utf-8")
    tags = Page(source).tags
    assert not {"script", "link", "iframe", "object"} & {tag for tag, _ in tags}
    addresses = [
        value for _, attributes in tags for name, value in attributes.items() if name in {"src", "srcset", "href"}
    ]
    assert len(addresses) == 4
    assert all(address.startswith("data:image/png;base64,") for address in addresses)
    assert not re.search(r"https?:|url\(|@import", source)
    [policy] = [each["content"] for tag, each in tags if tag == "meta" and "http-equiv" in each]
    assert policy.startswith("default-src 'none'; img-src data:;")


def test_the_same_run_gives_the_same_bytes(tmp_path):
    run = make_run(tmp_path, RECORDS, [(1, Sample("a", "b", "c"))])
    first = report(run, "A run", [("Model", [("depth", "6")])]).read_bytes()
    picture = draw_curves(run).read_bytes()
    assert report(run, "A run", [("Model", [("depth", "6")])]).read_bytes() == first
    assert draw_curves(run).read_bytes() == picture
    [embedded] = [each["src"] for tag, each in Page(first.decode()).tags if tag == "img"]
    assert b64decode(embedded.removeprefix("data:image/png;base64,")) == picture


@pytest.mark.parametrize("write", [draw_curves, page_of])
def test_a_run_without_a_log_is_named(tmp_path, write):
    with pytest.raises(RegardError) as caught:
        write(tmp_path)
    place = tmp_path / "metrics.jsonl"
    assert str(caught.value) == f"{place}: nothing is logged here, so there is nothing to draw; train first"


@pytest.mark.usefixtures("unpainted")
def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (make_run(tmp_path, RECORDS) / "report.html").mkdir()
    with pytest.raises(RegardError) as caught:
        report(tmp_path)
    message = "cannot be written: Is a directory; choose another folder"
    assert str(caught.value) == f"{tmp_path / 'report.html'}: {message}"


@pytest.mark.usefixtures("unpainted")
@pytest.mark.parametrize(
    ("measured", "first"),
    [({"loss": 1.5, "f1": 0.25, "accuracy": 0.5}, "Accuracy"), ({"loss": 1.5}, "Validation loss")],
)
def test_the_metric_of_the_task_comes_first_if_it_was_measured(measured, first, tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    trainer, _ = make_trainer(planned("classification", tmp_path), tmp_path / "run")
    make_run(tmp_path / "run", RECORDS)
    finish(trainer.run, trainer.task, Evaluation(measured), "step 4")
    page = Page((tmp_path / "run/report.html").read_text(encoding="utf-8"))
    assert page.cards[0].split("|")[1] == first
