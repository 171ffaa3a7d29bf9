"""The experiments by name; each is a file of this package, imported when it is run.

The titles are here, too, so that `regard lab` can list them without importing torch; a test compares them.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from regard.errors import RegardError, choices
from regard.limits import Registry

if TYPE_CHECKING:
    from regard.lab.experiment import Experiment


@dataclass(frozen=True)
class ShippedExperiment:
    """An experiment of the package that is not imported yet."""

    title: str


EXPERIMENTS: Registry[ShippedExperiment | Experiment] = Registry(
    "experiment",
    {  # in the order of the lectures
        "vanishing": ShippedExperiment("Gradients vanish in an Elman network; gates and attention keep them"),
        "truncation": ShippedExperiment("Truncated backpropagation: what is longer than a chunk is not learned"),
        "recall": ShippedExperiment("Remembering a symbol: recurrence, convolution and attention at equal size"),
        "bottleneck": ShippedExperiment(
            "One vector for a whole sentence: BLEU against length with and without attention"
        ),
        "alignment": ShippedExperiment(
            "Attention aligns words: diagonal where the order agrees, crossing where it does not"
        ),
        "lookup": ShippedExperiment("Attention is a soft look-up: from the mean to a dictionary"),
        "scores": ShippedExperiment("Why the dot product is scaled: score functions as the width grows"),
        "arithmetic": ShippedExperiment("Self-attention by hand: the worked example and the parameter quiz"),
        "order": ShippedExperiment("Self-attention does not see the order of words; positions break the symmetry"),
        "mask": ShippedExperiment("Training without the causal mask: the loss that looks too good"),
        "heads": ShippedExperiment("One head or many at the same cost, and which heads can be removed"),
        "positions": ShippedExperiment("Positional encodings beyond the length of training"),
        "depth": ShippedExperiment("Residual connections and norms make deep stacks trainable"),
        "nonlinearity": ShippedExperiment("Attention without a feed-forward only averages"),
        "interaction": ShippedExperiment(
            "Tokens see each other in attention only; norm and feed-forward act on each alone"
        ),
        "three-ways": ShippedExperiment("Three ways to process a sequence: recurrence, convolution, attention"),
        "words": ShippedExperiment("Word vectors: one-hot, co-occurrence with PCA, Word2Vec, contextual"),
        "bank": ShippedExperiment("A homograph in two contexts, layer by layer; what 'it' and 'she' attend to"),
        "vision": ShippedExperiment("Vision Transformer against ConvNet as the training set shrinks"),
        "formal": ShippedExperiment("The 15 formal algorithms beside the fast implementation"),
    },
)


def find_experiment(name: str) -> Experiment:
    """Return an experiment by its name: one of the package, or one that the user registered."""
    if name not in EXPERIMENTS:
        remedy = "to run your own, import the file that registers it (--import FILE)"
        raise RegardError(f"{name!r} is not an experiment; {choices(name, EXPERIMENTS)}; {remedy}")
    found = EXPERIMENTS[name]
    if not isinstance(found, ShippedExperiment):
        return found
    module = import_module(f"regard.lab.experiments.{name.replace('-', '_')}")
    experiment: Experiment = module.EXPERIMENT
    return experiment
