"""Pictures of `regard.draw`: the attention of the translator in the box, a position table, a tree, a scene."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np
import torch

import regard
from regard import draw
from regard.data.read import Skipped
from regard.data.tracks import observe_scene, read_tracks
from regard.data.trees import parse_tree
from regard.draw.tree import draw_tree
from regard.parts.absolute_position import Sinusoidal
from regard.use.evaluate import shipped_files
from regard.use.forecast import scene_steps
from regard.viewer.export import read_head_weights
from regard.viewer.query import Query
from regard.viewer.record import record
from regard.viewer.recording import Recording

SENTENCE = "I saw a black cat on the old chair."
TREE = "(S (NP (DT The) (NN cat)) (VP (VBD sat) (PP (IN on) (NP (DT the) (NN mat)))) (. .))"


@cache
def recorded() -> Recording:
    """Record the translator in the box on the sentence."""
    return record(regard.load("en-fr", "cpu"), Query(SENTENCE))


def cross_weights() -> dict[str, np.ndarray]:
    """Return the weights (heads, rows, columns) of every cross-attention of the recording."""
    crosses = [one for one in recorded().manifest()["attentions"] if one["kind"] == "cross"]
    heads = {one["id"]: range(1, one["heads"] + 1) for one in crosses}
    return {
        name: np.stack([read_head_weights(recorded(), name, head).weights for head in numbers])
        for name, numbers in heads.items()
    }


def aligning_head() -> tuple[str, int]:
    """Return the head, counted from 1, that shows best which words belong together.

    The mean of the heads of the second-to-last layer says which do (Garg et al. 2019).
    """
    layers = cross_weights()
    aligned = list(layers.values())[-2].mean(0).argmax(-1)
    shares = {
        (name, head + 1): float(weights[np.arange(len(aligned)), aligned].mean())
        for name, layer in layers.items()
        for head, weights in enumerate(layer)
    }
    return max(shares, key=lambda head: shares[head])


def draw_attention(look: draw.Look) -> Mapping[str, bytes]:
    """Draw the head that aligns as ribbons and as a heat map, and all heads of the cross-attention."""
    head = read_head_weights(recorded(), *aligning_head())
    title = head.title.split(" · ", 1)[1] + "-attention"
    written, source = ([token.strip() for token in tokens] for tokens in (head.queries, head.keys))
    layers = list(cross_weights().values())
    figures = {
        "alignment.svg": draw.alignment(head.weights, written, source, title=title, look=look),
        "attention.svg": draw.heatmap(head.weights, written, source, title=title, look=look),
        "heads.svg": draw.heads(layers, title="cross-attention of all heads", look=look),
    }
    return {name: draw.encode_figure(figure, "svg") for name, figure in figures.items()}


def draw_positions(look: draw.Look) -> Mapping[str, bytes]:
    """Draw the sinusoidal encoding (Vaswani et al. 2017) of 64 positions, and how similar two positions are."""
    table = Sinusoidal(64).vectors(torch.arange(64)[None])[0].numpy()
    length = np.linalg.norm(table, axis=-1)
    figure = draw.positions(table, table @ table.T / np.outer(length, length), title="sinusoidal positions", look=look)
    return {"positions.svg": draw.encode_figure(figure, "svg")}


def draw_sentence_tree(look: draw.Look) -> Mapping[str, bytes]:
    """Draw a constituency tree, as `regard parse --svg` does."""
    return {"tree.svg": draw.encode_figure(draw_tree(parse_tree(TREE), look=look), "svg")}


def draw_forecast(look: draw.Look) -> Mapping[str, bytes]:
    """Draw the futures of simulated pedestrians, as `regard forecast --picture` does."""
    loaded = regard.load("crossing", "cpu")
    observed, predicted = scene_steps(loaded.bundle)
    tracks = read_tracks(Path(shipped_files(loaded.bundle)[0]), Skipped())
    frame = tracks.frame(int(tracks.times.max()) - predicted)
    found = loaded.forecast(observe_scene(tracks, frame, observed, predicted))
    seen = found.scene
    figure = draw.scene(
        seen.positions, found.paths, found.probabilities, seen.agents, truth=seen.truth, title="pedestrians", look=look
    )
    return {"forecast.svg": draw.encode_figure(figure, "svg")}
