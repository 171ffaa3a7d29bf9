"""What a model says of its inside: where the vectors of its sequences can be read, and what its attentions are for.

The viewer, snapshots and interventions find everything through this; a model returns it from `sequences` and
`attentions`.
"""

from typing import Literal, NamedTuple

from torch import nn

from regard.models.stack import Stack
from regard.parts.watch import Watchable

AttentionKind = Literal["encoder", "decoder", "cross", "self"]  # in the order in which a viewer lists them


class Tap(NamedTuple):
    """A place where the vectors of a sequence can be read: the output of a module, or its input.

    If `last`, only the last call of the module counts, because the calls before are for another sequence.
    """

    module: nn.Module
    side: Literal["input", "output"] = "output"
    last: bool = False


class ModelSequence(NamedTuple):
    """A sequence that a model reads or writes: where its vectors can be read, from the embedding to the top layer."""

    taps: list[Tap]
    vocabulary: int | None = None  # how many ids its tokens can have; None: its vectors are not made of tokens

    @property
    def layers(self) -> int:
        """The number of layers above the embedding."""
        return len(self.taps) - 1


class AttentionRole(NamedTuple):
    """What an attention of a model is for: its kind, its layer (from 1), and the sequences it connects.

    A cross-attention looks at the source to choose the next token, so its queries are the `written` tokens.
    """

    name: str  # of the module in the model
    kind: AttentionKind
    layer: int
    queries: str
    keys: str

    @property
    def id(self) -> str:
        """Kind and layer."""
        return f"{self.kind}.{self.layer}"


def stack_taps(stack: Stack) -> list[Tap]:
    """Return where the vectors of a stack can be read: below its first layer, and above each."""
    layers = list(stack.layers)
    return [Tap(layers[0], "input"), *map(Tap, layers)]


def stack_attentions(stack: Stack, prefix: str, kind: AttentionKind, sequence: str) -> list[AttentionRole]:
    """List the attentions of a stack to its own `sequence`, then those to the source.

    `prefix` is the name of the stack in its model. Of a mixer that has several attentions, the first is listed.
    """
    own: list[AttentionRole] = []
    cross: list[AttentionRole] = []
    for layer, module in enumerate(stack.layers, 1):
        if name := attention_name(module, "mixer"):
            own.append(AttentionRole(f"{prefix}.layers.{layer - 1}.{name}", kind, layer, sequence, sequence))
        if name := attention_name(module, "cross"):
            cross.append(AttentionRole(f"{prefix}.layers.{layer - 1}.{name}", "cross", layer, "written", "source"))
    return own + cross


def attention_name(layer: nn.Module, part: str) -> str | None:
    """Name the attention in a part of a layer: the part itself, or the first one inside; None if there is none."""
    names = (name for name, module in layer.named_modules() if isinstance(module, Watchable))
    return next((name for name in names if name == part or name.startswith(f"{part}.")), None)
