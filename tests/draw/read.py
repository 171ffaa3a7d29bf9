"""Read the content of a figure back from matplotlib."""

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch


def panels(figure: Figure):
    """Return the axes with an image, without colour bars."""
    return [axes for axes in figure.axes if axes.images]


def cells(axes) -> np.ma.MaskedArray:
    """Return the values of an image."""
    [image] = axes.images
    return image.get_array()


def hatched(axes, shape) -> np.ndarray:
    """Return which cells are hatched; no cell is hatched in part."""
    found = np.zeros((4, *shape), bool)
    centres = np.argwhere(~found[0])[:, ::-1]
    for patch in axes.patches:
        assert isinstance(patch, PathPatch)
        assert patch.get_hatch()
        for number, corner in enumerate(((-0.45, -0.45), (-0.45, 0.45), (0.45, -0.45), (0.45, 0.45))):
            found[number] |= patch.get_path().contains_points(centres + corner).reshape(shape)
    assert (found.any(0) == found.all(0)).all()
    return found[0]


def texts(figure: Figure) -> list[str]:
    """Return the texts outside of axes."""
    return [text.get_text() for text in figure.texts]


def boxes(labels) -> list:
    """Return the rectangles of labels in a figure that is laid out."""
    return [label.get_window_extent() for label in labels if label.get_text()]


def inside(figure: Figure, label) -> bool:
    """Return whether all of a text is inside the figure."""
    box = label.get_window_extent()
    width, height = figure.canvas.get_width_height()
    return bool(box.x0 >= 0 and box.y0 >= 0 and box.x1 <= width and box.y1 <= height)


def softmax(scores: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
    """Return the weights of scores."""
    scores = scores if mask is None else np.where(mask, scores, -1e30)
    exponents = np.exp(scores - scores.max(-1, keepdims=True))
    weights = exponents / exponents.sum(-1, keepdims=True)
    return weights if mask is None else np.where(mask, weights, 0)
