"""Lines and bars from rows of measurements."""

import pytest

from regard.draw import DARK, LIGHT, bars, encode_figure, lines, use_look

ROWS = [
    {"model": model, "length": length, "loss": loss + seed, "name": f"n{length}"}
    for seed in (0, 1)
    for model, loss in (("a", 1.0), ("b", 3.0))
    for length in (1, 10, 100)
]


def curves(figure) -> dict[str, list[float]]:
    return {line.get_label(): list(line.get_ydata()) for line in figure.axes[0].lines}


def test_a_line_is_the_mean_over_seeds_and_a_band_their_range():
    figure = lines(ROWS, x="length", y="loss", by="model")
    assert curves(figure) == {"a": [1.5] * 3, "b": [3.5] * 3}
    low_and_high = {point[1] for band in figure.axes[0].collections for point in band.get_paths()[0].vertices}
    assert low_and_high == {1.0, 2.0, 3.0, 4.0}


def test_several_columns_are_a_line_each():
    rows = [{"x": x, "up": x, "down": -x} for x in (1, 2, 3)]
    assert curves(lines(rows, x="x", y=["up", "down"], label="value")) == {"up": [1, 2, 3], "down": [-1, -2, -3]}


def test_a_logarithmic_axis_has_plain_numbers_and_gaps_where_it_has_no_place():
    rows = [{"x": x, "y": y} for x, y in ((1, 1e-6), (2, 0.0), (4, 1.0), (8, float("nan")))]
    figure = lines(rows, x="x", y="y", log="xy")
    assert list(figure.axes[0].lines[0].get_xdata()) == [1, 4]
    figure.canvas.draw()
    texts = [text.get_text() for axis in (figure.axes[0].xaxis, figure.axes[0].yaxis) for text in axis.get_ticklabels()]
    assert "1" in texts
    assert not [text for text in texts if "$" in text]


def test_bars_are_means_with_their_range():
    axes = bars(ROWS, x="name", y="loss", by="model").axes[0]
    assert [bar.get_height() for bar in axes.patches] == [1.5] * 3 + [3.5] * 3
    assert [text.get_text() for text in axes.get_xticklabels()] == ["n1", "n10", "n100"]


def test_a_series_without_a_first_bar_is_in_the_legend():
    rows = [{"x": "p", "y": 1, "by": "a"}, {"x": "q", "y": 1, "by": "a"}, {"x": "q", "y": 2, "by": "b"}]
    [legend] = bars(rows, x="x", y="y", by="by").legends
    assert [text.get_text() for text in legend.get_texts()] == ["a", "b"]


def test_no_rows_are_an_empty_plot():
    assert not bars([], x="x", y="y", by="by").axes[0].patches
    assert not lines([], x="x", y="y", by="by").axes[0].lines


@pytest.mark.parametrize("look", [LIGHT, DARK])
def test_the_look_around_a_picture_counts(look):
    with use_look(look):
        figure = lines(ROWS, x="length", y="loss", by="model")
    assert figure.get_facecolor()[:3] == pytest.approx([int(look.ground[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    assert encode_figure(figure, "svg").count(look.ground.encode()) >= 1


def test_an_axis_of_whole_numbers_has_no_fractions():
    figure = lines([{"layer": layer, "value": layer / 7} for layer in range(4)], x="layer", y="value")
    assert all(float(tick).is_integer() for tick in figure.axes[0].get_xticks())
