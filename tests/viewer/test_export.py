"""Recordings as files: pages, and tables and pictures of one head."""

import base64
import csv
import io
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from PIL import Image

from regard.errors import InputError, RegardError
from regard.viewer import export, html
from regard.viewer.export import (
    HeadWeights,
    check_output_file,
    choose_head,
    draw_head,
    export_page,
    format_layers,
    head_to_csv,
    pack_to_fit,
    parse_layers,
    read_head_weights,
)
from regard.viewer.html import page_as_iframe, page_with_recordings
from regard.viewer.recording import StoredRecording, encode_json, pack_recordings, unpack_recordings

from .fake import EVIL, SCRIPT, attention, manifest, recording


class Tags(HTMLParser):
    """The tags of a page with their attributes, and the contents of scripts and styles, as a browser parses them."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.inside: dict[str, str] = {}
        self.open = ""  # the script or style that is being read
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))
        self.open = (dict(attributes).get("id") or tag) if tag in ("script", "style") else ""

    def handle_endtag(self, tag: str) -> None:
        self.open = ""

    def handle_data(self, data: str) -> None:
        if self.open:
            self.inside[self.open] = self.inside.get(self.open, "") + data

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.tags)


# --- a page ----------------------------------------------------------------------------------------------------------


def test_one_file_contains_everything_and_may_load_nothing(page):
    one = recording(manifest(f"ein {EVIL}", EVIL))
    html, note = export_page({"one": one})
    found = Tags(html)
    assert note == ""
    assert EVIL not in html
    assert "onerror" not in html
    assert (found.count("script"), found.count("style"), found.count("img"), found.count("link")) == (2, 1, 0, 1)
    assert not any("src" in attributes for _, attributes in found.tags)
    assert [one["href"] for tag, one in found.tags if tag == "link"] == ["data:,"]
    policies = [one for tag, one in found.tags if one.get("http-equiv") == "Content-Security-Policy"]
    assert [one["content"] for one in policies] == [
        "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
    ]
    assert html.index("Content-Security-Policy") < html.index("<style") < html.index("<script")
    assert found.tags[[tag for tag, _ in found.tags].index("script")][1].get("type") == "module"
    (carried,) = unpack_recordings(base64.b64decode(found.inside["regard-recordings"], validate=True)).items()
    assert (carried[0], carried[1].manifest()) == ("one", one.manifest())
    for name in one.names():
        assert carried[1].blob(name) == one.blob(name)


def test_script_and_style_are_not_changed(page):
    found = Tags(page_with_recordings(b""))
    assert found.inside["script"] == SCRIPT.replace("</script", r"<\/script")
    assert found.inside["style"] == '.regard::after { content: "<\\/style>"; }\n'


def test_the_built_page_can_become_one_file():
    """The page that is shipped."""
    found = Tags(page_with_recordings(b"nothing"))
    assert (found.count("script"), found.count("style")) == (2, 1)
    assert base64.b64decode(found.inside["regard-recordings"]) == b"nothing"
    assert "<!--" not in html.read_page_file(html.SCRIPT)


@pytest.mark.parametrize("name", [html.INDEX, html.SCRIPT, html.STYLE])
def test_a_page_that_was_not_built(page, name):
    (page / name).unlink()
    with pytest.raises(RegardError, match=f"{name}: the page has not been built; install a wheel of regard, or build"):
        page_with_recordings(b"")


def test_an_index_that_has_no_place_for_the_script(page):
    (page / html.INDEX).write_text("<head></head><link href='page.css'><body></body>")
    with pytest.raises(RegardError, match="matches .* 0 times instead of once; build the page again"):
        page_with_recordings(b"")


def test_an_iframe_is_sandboxed(page):
    archive = pack_recordings({"one": recording()})
    ((tag, attributes),) = Tags(page_as_iframe(archive, 500)).tags
    assert tag == "iframe"
    assert attributes["srcdoc"] == page_with_recordings(archive)
    assert attributes["sandbox"] == "allow-scripts allow-downloads"
    assert "height: 500px" in attributes["style"]


# --- its size --------------------------------------------------------------------------------------------------------


def large() -> StoredRecording:
    """Return a recording with all large parts: weights (144 bytes), arithmetic, hidden states, scores."""
    said = manifest()
    said["attentions"] = [one | {"arithmetic": True} for one in said["attentions"]]
    said["hidden"] = [{"sequence": "target", "layers": 2, "width": 500}]
    said["next"] = {"sequence": "target", "begin": 1, "vocabulary": 5000}
    gate = {"name": "f", "about": "forget gate", "gate": True}
    layer = {"id": "target-1", "name": "cells.0", "cell": "LSTM", "sequence": "target", "layer": 1, "backward": False}
    said["recurrences"] = [layer | {"rows": 3, "width": 700, "unit": "unit", "signals": [gate]}]
    return recording(said)


def test_a_large_page_leaves_out_what_is_not_attention_and_says_so(monkeypatch):
    one = large()
    whole, note = pack_to_fit({"one": one})
    assert note == ""
    sizes = [len(whole)]
    for without, words in (
        (["next"], "the scores of the Next view were left out"),
        (["next", "hidden"], "the scores of the Next view and the vectors of the Words view were"),
        (["next", "hidden", "recurrences"], "the vectors of the Words view and the numbers of the States view were"),
        (
            ["next", "hidden", "recurrences", "arithmetic"],
            "the vectors of the Words view, the numbers of the States view and the numbers of the Arithmetic view were",
        ),
    ):
        monkeypatch.setattr(export, "LARGEST", sizes[-1] - 1)
        archive, note = pack_to_fit({"one": one})
        assert words in note
        said = unpack_recordings(archive)["one"].manifest()
        assert said["notes"] == [note]
        assert (said["next"] is None) == ("next" in without)
        assert (said["hidden"] == []) == ("hidden" in without)
        assert (said["recurrences"] == []) == ("recurrences" in without)
        assert any(one["arithmetic"] for one in said["attentions"]) == ("arithmetic" not in without)
        sizes.append(len(archive))
    assert sizes == sorted(sizes, reverse=True)
    monkeypatch.setattr(export, "LARGEST", 10)
    message = "the page would have 2 MB, and the limit is 20 MB; choose some of the layers 1-3, for example 1 "
    with pytest.raises(RegardError, match=message):
        pack_to_fit({"one": one})


def test_what_can_never_fit_is_rejected_before_it_is_packed():
    tall = [attention(f"self.{n}", "source", "source", 1024, 1024, heads=12) for n in range(1, 13)]
    said = manifest(" ".join(["x"] * 1024), attentions=tall) | {"whole": False, "begin": None}
    message = "the page would have 405 MB, and the limit is 20 MB; choose some of the layers 1-12, for example 1-3 "
    with pytest.raises(RegardError, match=message):
        pack_to_fit({"one": StoredRecording(said, {})})


def test_chosen_layers_are_a_smaller_page(page):
    html, _ = export_page({"one": recording()}, parse_layers("2"))
    (one,) = unpack_recordings(base64.b64decode(Tags(html).inside["regard-recordings"])).values()
    assert [each["id"] for each in one.manifest()["attentions"]] == ["cross.2"]
    whole = np.frombuffer(recording().blob("attention/0.f16"), "<f2").reshape(3, -1)
    assert np.array_equal(np.frombuffer(one.blob("attention/0.f16"), "<f2"), whole[1])


@pytest.mark.parametrize(
    ("text", "layers"), [("1", {1}), ("1,3-4", {1, 3, 4}), (" 2 - 3 , 9", {2, 3, 9}), ("5-5", {5}), ("1,1", {1})]
)
def test_lists_of_layers(text, layers):
    assert parse_layers(text) == layers
    assert parse_layers(format_layers(sorted(layers))) == layers


@pytest.mark.parametrize("text", ["", "x", "0", "3-1", "1,,2", "1-2-3", "-1", "²", "9999999", "1;2"])
def test_wrong_lists_of_layers(text):
    with pytest.raises(
        InputError, match=rf"--layers {re.escape(text)}: .* is not a layer; write layers as 1,3-4, counted from 1"
    ):
        parse_layers(text)


# --- one head --------------------------------------------------------------------------------------------------------


def halves(one: StoredRecording) -> np.ndarray:
    """The weights of all three attentions: L H T S."""
    return np.frombuffer(one.blob("attention/0.f16"), "<f2").reshape(3, 2, 3, 2)


def test_a_head_is_the_one_chosen_or_where_the_page_begins():
    one = recording()
    for chosen, (layer, head) in {(): (1, 1), ("cross.3",): (2, 0), (None, 1): (1, 0), ("cross.1", 2): (0, 1)}.items():
        found = read_head_weights(one, *chosen)
        assert np.array_equal(found.weights, halves(one)[layer, head])
        assert found.title == f"a run · L{layer + 1}.H{head + 1} · cross"
    assert (found.queries, found.keys, found.allowed) == (["<s>", "a", EVIL], ["ein", "Hund"], None)


def test_the_number_of_a_head_may_be_one_of_numpy():
    _, number = choose_head(manifest(), "cross.1", np.int64(2))
    assert encode_json(number) == b"1"


def test_the_last_step_of_a_training_is_shown():
    one = recording(manifest() | {"steps": [0, 10]})
    found = read_head_weights(one)
    assert found.title == "a run · L2.H2 · cross · step 10"
    assert np.array_equal(found.weights, np.frombuffer(one.blob("attention/1.f16"), "<f2").reshape(3, 2, 3, 2)[1, 1])


def test_heads_one_by_one():
    one = recording(manifest() | {"whole": False})
    expected = np.frombuffer(one.blob("attention/0/cross.2/1.f16"), "<f2").reshape(3, 2)
    assert np.array_equal(read_head_weights(one).weights, expected, equal_nan=True)


def test_exact_numbers_if_they_are_stored():
    said = manifest(attentions=[attention("self.1", "source", "source", 2, 2, arithmetic=True, bias=True)])
    one = recording(said | {"begin": None})
    found = read_head_weights(one, head=2)
    assert found.weights.dtype == np.float32
    for query in range(2):
        assert one.blob(f"row/self.1/1/{query}.f32")[-8:] == found.weights[query].tobytes()
    assert found.title == "a run · L1.H2"


def test_masked_keys():
    said = manifest(attentions=[attention("self.1", "source", "source", 3, 3, mask="causal")]) | {"begin": None}
    said["sequences"]["source"] = said["sequences"]["target"]
    one = recording(said)
    allowed = np.tril(np.ones((3, 3), bool))
    one._blobs["mask/causal.bits"] = np.packbits(allowed, bitorder="little").tobytes()
    head = read_head_weights(one)
    assert np.array_equal(head.allowed, allowed)
    rows = list(csv.reader(io.StringIO(head_to_csv(head))))
    assert [[cell != "" for cell in row[1:]] for row in rows[1:]] == allowed.tolist()


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        (("cros.2", None), "attention cros.2: no such attention; did you mean 'cross.2'?"),
        (("self.1", None), "attention self.1: no such attention; .*one of cross.1, cross.2, cross.3"),
        (("cross.2", 3), "head 3: cross.2 has heads 1 to 2"),
        ((None, 0), "head 0: cross.2 has heads 1 to 2"),
    ],
)
def test_a_missing_head(chosen, message):
    with pytest.raises(InputError, match=message):
        choose_head(manifest(), *chosen)


def test_no_attention_to_draw():
    with pytest.raises(InputError, match="a run: has no attention to draw; --export NAME.html writes a page"):
        read_head_weights(recording(manifest(attentions=[])))


def test_a_stored_head_that_is_too_large():
    said = manifest(attentions=[attention("self.1", "source", "source", 2, 2, pooled=[1, 1])]) | {"whole": False}
    with pytest.raises(InputError, match="a run: 2 x 2 weights are not stored; give a shorter text"):
        read_head_weights(recording(said | {"begin": None}))


def test_a_table_has_words_and_every_digit():
    one = recording(manifest('ein "Hund,'))
    head = read_head_weights(one)
    rows = list(csv.reader(io.StringIO(head_to_csv(head))))
    assert rows[0] == ["", "ein", '"Hund,']
    assert [row[0] for row in rows[1:]] == ["<s>", "a", EVIL]
    assert np.array_equal(np.array([row[1:] for row in rows[1:]], np.float16), halves(one)[1, 1])


def test_a_picture_has_words_and_is_the_same_every_time():
    head = read_head_weights(recording(manifest("ein Hund")))
    svg = draw_head(head, "svg")
    assert b"Hund" in svg
    assert b"L2.H2" in svg
    assert b"<img" not in svg
    assert svg == draw_head(head, "svg")
    with Image.open(io.BytesIO(draw_head(head, "png"))) as image:
        assert image.format == "PNG"
        assert min(image.size) > 100


@pytest.mark.parametrize(
    ("queries", "noun", "beside"),
    [
        ("source", "word", "this word looks"),
        ("tokens", "residue", "this residue looks"),
        ("patches", "patch", "this patch looks"),
        ("written", "word", "to write this, it looks"),
    ],
)
def test_a_picture_says_what_looks(queries, noun, beside):
    said = manifest(attentions=[attention("self.1", queries, queries, 2, 2)])
    said["sequences"][queries] = said["sequences"]["source"]
    assert beside.encode() in draw_head(read_head_weights(recording(said | {"begin": None, "noun": noun})), "svg")


# --- files -----------------------------------------------------------------------------------------------------------


def test_files_that_cannot_be_written(tmp_path):
    check_output_file(tmp_path / "PAGE.HTML", ".html")
    with pytest.raises(InputError, match="page.htm: the name of this file must end in .html"):
        check_output_file(tmp_path / "page.htm", ".html")
    with pytest.raises(InputError, match="nowhere/a.png: no folder .*nowhere; create it first"):
        check_output_file(tmp_path / "nowhere" / "a.png", ".png")
    (tmp_path / "b.png").mkdir()
    with pytest.raises(InputError, match="b.png: is a folder; name a file"):
        check_output_file(tmp_path / "b.png", ".png")


@pytest.mark.parametrize("token", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", " =1", "\r1", "＝1", '=HYPERLINK("x")'])
def test_no_token_of_a_table_is_a_formula(token):
    head = HeadWeights(np.ones((1, 2)), None, [token], [token, "a=b"], "title", "")
    first, second = csv.reader(io.StringIO(head_to_csv(head), newline=""))
    assert (first, second[0]) == (["", f"'{token}", "a=b"], f"'{token}")
