"""Activations by the names of both sides; where they have several names for one, the first is written."""

from regard.parts.feedforward import Activation

ACTIVATIONS: dict[str, Activation] = {
    "relu": "relu",
    "relu2": "relu2",
    "gelu": "gelu",
    "gelu_new": "gelu-tanh",
    "gelu_pytorch_tanh": "gelu-tanh",
    "gelu_fast": "gelu-tanh",
    "silu": "silu",
    "swish": "silu",
    "sigmoid": "sigmoid",
    "tanh": "tanh",
}


def their_activation(ours: Activation) -> str:
    """Name an activation as they do."""
    return next(theirs for theirs, meaning in ACTIVATIONS.items() if meaning == ours)
