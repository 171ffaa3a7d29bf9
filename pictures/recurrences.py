"""Learning curves of recurrences beside attention, from the comparisons of docs/recurrences.md."""

from collections.abc import Mapping

from bench.recurrences_page import read_comparisons
from regard import draw

MODELS = ("transformer", "lstm", "rwkv4", "rwkv7", "hybrid", "gated-deltanet", "mamba2", "deepseek")  # one colour each
PLOTS = {  # the comparison, the column that is drawn over, and its name
    "recurrences-time.svg": ("wikitext2-nine-seconds", "seconds", "seconds of updates"),
    "recurrences-updates.svg": ("wikitext2-equal-updates", "step", "updates"),
}


def draw_recurrences(look: draw.Look) -> Mapping[str, bytes]:
    """Draw the loss of each model on validation data over time, and over updates."""
    made = {}
    for file, (name, column, axis) in PLOTS.items():
        found = read_comparisons()[name]
        curves = sorted(found["curves"], key=lambda point: MODELS.index(point["model"]))
        rows = [{"model": each["model"], axis: each[column], "validation loss": each["loss"]} for each in curves]
        figure = draw.lines(rows, x=axis, y="validation loss", by="model", look=look)
        made[file] = draw.encode_figure(figure, "svg")
    return made
