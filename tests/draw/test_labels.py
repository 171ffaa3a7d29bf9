"""Labels: control characters are visible, and odd tokens cause no warnings."""

import logging
import warnings
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard import draw
from regard.draw.labels import LONGEST, short_label, visible

from .read import panels

ODD = {
    "\n": "↵",
    "\t": "⇥",
    " ": "␣",
    " the": "␣the",
    "a b ": "a b␣",
    "\u00a0": "␣",
    "a\nb": "a↵b",
    "\x00": r"\x00",
    "\x1b[31m": r"\x1b[31m",
    "\u202eevil": r"\u202eevil",
    "\u200b": r"\u200b",
    "\ud800": r"\ud800",
    "\u2028": r"\u2028",
    "\u0301": "◌\u0301",
    "e\u0301": "e\u0301",
    "中文": "中文",
    "שלום": "שלום",
    "می\u200cروم": "می\u200cروم",
    "$x$": "$x$",
    r"\frac{1": r"\frac{1",
    r"$\foo": r"$\foo",
    "<b>&amp;": "<b>&amp;",
    "_^{": "_^{",
    "": "",
    "\U000f0000": "\U000f0000",
    "🤷🏽\u200d♀️": "🤷🏽\u200d♀️",
}


@pytest.mark.parametrize(("token", "wanted"), ODD.items())
def test_odd_tokens(token, wanted):
    assert visible(token) == short_label(token) == wanted


@given(st.text(st.characters(codec=None), max_size=40))
def test_a_label_is_short_and_has_no_control_characters(token):
    text = short_label(token)
    assert len(text) <= max(LONGEST, 1) + 10 * (len(token) <= LONGEST)  # an escape may be longer than its character
    assert not any(letter in text for letter in "\n\r\t\x00\x1b\u202e\u2066\u2028")
    text.encode()


@pytest.mark.parametrize(
    ("token", "wanted"),
    [("a" * 16, "a" * 16), ("a" * 17, "a" * 15 + "…"), ("字" * 8, "字" * 8), ("字" * 9, "字" * 7 + "…")],
)
def test_a_long_token_is_shortened(token, wanted):
    assert short_label(token) == wanted


@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
def test_odd_tokens_are_drawn_without_warnings(kind, tmp_path, caplog, capfd):
    caplog.set_level(logging.WARNING)
    tokens = list(ODD)
    weights = np.full((len(ODD), len(ODD)), 1 / len(ODD))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        heatmap = draw.heatmap(weights, tokens, tokens, title="$x$ 中\n")
        draw.write_figure(heatmap, tmp_path / f"odd.{kind}")
        ribbons = draw.alignment(weights, tokens, tokens, title="$x$ 中\n")
        ribbons.savefig(tmp_path / f"by-hand.{kind}")  # also without write_figure
    [axes] = panels(heatmap)
    assert [text.get_text() for text in axes.get_yticklabels()] == list(ODD.values())
    assert (caplog.text, *capfd.readouterr()) == ("", "", "")


def test_the_text_of_an_svg_is_text(tmp_path):
    tokens = [token for token in ODD if token]
    path = tmp_path / "odd.svg"
    draw.write_figure(draw.heatmap(np.full((1, len(tokens)), 0.01), ["$y$"], tokens, title="a < b"), path)
    found = [element.text for element in ElementTree.parse(path).iter("{http://www.w3.org/2000/svg}text")]
    assert {*map(visible, tokens), "$y$", "a < b", "this word looks …", "… at these"} <= set(found)
