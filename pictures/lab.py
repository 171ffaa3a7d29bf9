"""Pictures of `regard lab`: experiments that take about a minute on a CPU."""

from collections.abc import Mapping, Sequence
from functools import cache
from tempfile import TemporaryDirectory

from regard import draw
from regard.lab import run_experiment
from regard.lab.experiment import Row
from regard.lab.experiments import find_experiment

PLOTS = {"lab-gradients.svg": ("vanishing", "cells"), "lab-lookup.svg": ("lookup", "distance")}


@cache
def measured(name: str) -> Sequence[Row]:
    """Run an experiment; return its rows."""
    with TemporaryDirectory() as folder:
        return run_experiment(name, device="cpu", out=folder).rows


def draw_lab(look: draw.Look) -> Mapping[str, bytes]:
    """Draw one plot of each experiment."""
    made = {}
    for file, (name, plot) in PLOTS.items():
        rows = measured(name)
        with draw.use_look(look):
            figures = {picture.name: picture.figure for picture in find_experiment(name).draw(rows)}
        made[file] = draw.encode_figure(figures[plot], "svg")
    return made
