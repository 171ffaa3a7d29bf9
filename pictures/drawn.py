"""Pictures of `regard.draw`: the attention of the translator in the box, a position table, a tree."""

from collections.abc import Mapping
from functools import cache

import numpy as np
import torch

import regard
from regard import draw
from regard.data.trees import parse_tree
from regard.draw.tree import draw_tree
from regard.parts.position import Sinusoidal
from regard.viewer.export import read_head_weights
from regard.viewer.query import Query
from regard.viewer.record import record
from regard.viewer.recording import Recording

SENTENCE = "She gave him a beautiful red book."
TREE = "(S (NP (DT The) (NN cat)) (VP (VBD sat) (PP (IN on) (NP (DT the) (NN mat)))) (. .))"


@cache
def recorded() -> Recording:
    """Record the translator in the box on the sentence."""
    return record(regard.load("en-fr", "cpu"), Query(SENTENCE))


def draw_attention(look: draw.Look) -> Mapping[str, bytes]:
    """Draw the head that the viewer begins with as ribbons and as a heat map, and all heads of the cross-attention."""
    recording = recorded()
    crosses = [one for one in recording.manifest()["attentions"] if one["kind"] == "cross"]
    layers = [
        np.stack([read_head_weights(recording, one["id"], head + 1).weights for head in range(one["heads"])])
        for one in crosses
    ]
    head = read_head_weights(recording)
    title = head.title.split(" · ", 1)[1] + "-attention"
    written, source = ([token.strip() for token in tokens] for tokens in (head.queries, head.keys))
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
