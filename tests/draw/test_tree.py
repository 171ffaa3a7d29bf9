"""Trees: lines by hand, and a picture in which every word and label is found, in order and without overlap."""

import pytest

from regard.data.trees import parse_tree
from regard.draw.file import encode_figure
from regard.draw.tree import MOST, draw_tree, tree_lines
from regard.errors import RegardError

TREE = parse_tree("(S (NP (DT the) (NN cat)) (VP (VBD slept) (ADVP (RB extraordinarily))) (. .))")


def test_lines_by_hand():
    assert tree_lines(TREE) == [
        "S",
        "├─ NP",
        "│  ├─ DT the",
        "│  └─ NN cat",
        "├─ VP",
        "│  ├─ VBD slept",
        "│  └─ ADVP",
        "│     └─ RB extraordinarily",
        "└─ . .",
    ]
    assert tree_lines(parse_tree("(NN cat)")) == ["NN cat"]


def test_lines_of_a_deep_tree_are_indented_less_if_they_would_not_fit():
    assert tree_lines(TREE, 27) == tree_lines(TREE)
    assert tree_lines(TREE, 26)[5:8] == ["│ ├─VBD slept", "│ └─ADVP", "│   └─RB extraordinarily"]
    assert tree_lines(TREE, 23)[5:8] == ["│├VBD slept", "│└ADVP", "│ └RB extraordinarily"]
    assert tree_lines(TREE, 5) == tree_lines(TREE, 23)


def test_lines_do_not_hold_control_characters():
    assert tree_lines(parse_tree("(N\x1b (X a\x07))")) == ["N\\x1b", "└─ X a\\x07"]


def test_the_picture_has_all_words_in_one_line_and_parents_above_their_parts():
    figure = draw_tree(TREE, title="a cat")
    (axes,) = figure.axes
    places = {text.get_text(): text.get_position() for text in axes.texts}
    words = [places[word] for word in TREE.words()]
    assert len({y for _, y in words}) == 1
    assert [x for x, _ in words] == sorted(x for x, _ in words)
    assert places["S"][1] < places["NP"][1] < places["DT"][1] < words[0][1]
    assert places["NP"][0] == pytest.approx((places["DT"][0] + places["NN"][0]) / 2)
    figure.canvas.draw()
    boxes = [text.get_window_extent() for text in axes.texts]
    for place, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[:place])


def test_the_svg_holds_the_words_as_text():
    svg = encode_figure(draw_tree(TREE), "svg").decode()
    assert all(f">{word}<" in svg for word in TREE.words()[:-1])


def test_a_tree_that_is_too_wide_is_an_error():
    with pytest.raises(RegardError, match=f"draw at most {MOST} words"):
        draw_tree(parse_tree(f"(S {'(N a)' * (MOST + 1)})"))
