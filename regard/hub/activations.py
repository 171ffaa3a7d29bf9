"""Names of activations in Hugging Face configs and here. Of several names for one activation, the first is written."""

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


def hub_activation(activation: Activation) -> str:
    """Return the Hugging Face name of an activation."""
    return next(theirs for theirs, ours in ACTIVATIONS.items() if ours == activation)
