"""The style of the pictures is readable."""

import matplotlib
import numpy as np
import pytest

from regard import draw
from regard.draw.style import regard_style


def luminance(colour):
    """Relative luminance (WCAG 2)."""
    parts = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def contrast(one, other):
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("look", [draw.LIGHT, draw.DARK])
def test_text_and_curves_contrast_with_the_background(look):
    for ground in (look.ground, look.card):
        assert contrast(look.ink, ground) >= 7
        assert contrast(look.soft, ground) >= 4.5
    assert contrast(look.blue, look.ground) >= 3
    assert contrast(look.orange, look.ground) >= 3
    assert contrast(look.faint, look.card) > contrast(look.line, look.card)


def test_the_style_ends_with_its_block_whatever_happens():
    def fail():
        with regard_style(draw.DARK):
            assert matplotlib.rcParams["text.color"] == draw.DARK.ink
            assert not matplotlib.rcParams["text.parse_math"]
            raise ZeroDivisionError

    before = dict(matplotlib.rcParams.copy())
    with pytest.raises(ZeroDivisionError):
        fail()
    assert dict(matplotlib.rcParams.copy()) == before
