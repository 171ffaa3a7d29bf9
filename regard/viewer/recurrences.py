"""What the manifest says of each recurrent layer, and its state and gates over time."""

from collections.abc import Mapping, Sequence
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from regard.models.model import Model
from regard.parts.mixer import Mixer
from regard.viewer.capture import RecurrentCall
from regard.viewer.manifest import RecurrenceInfo, Token

BACKWARD = "backward_layer"  # the layer of `Bidirectional` that reads from the end


class RecurrenceTrace:
    """The state and the gates of one recurrent layer at each token, joined from all of its calls."""

    def __init__(self, name: str, module: Mixer, calls: Sequence[RecurrentCall]) -> None:
        self.name, self.module, self.calls = name, module, calls
        self.backward = name.endswith(BACKWARD)

    @property
    def shape(self) -> tuple[int, int]:
        """The number of tokens, and the width of a signal."""
        return sum(call.x.shape[1] for call in self.calls), self.calls[0].start[0].shape[1]

    @cached_property
    def signals(self) -> list[Float[Tensor, "T H"]]:
        """The signals, in the order of the layer; computed on first use, since a loop over time may take long."""
        calls = zip(*(call.trace(self.module) for call in self.calls), strict=True)
        found = [torch.cat(parts, 1)[0] for parts in calls]
        return [values.flip(0) for values in found] if self.backward else found

    def describe(self, sequence: str, layer: int) -> RecurrenceInfo:
        """Return what the manifest says."""
        rows, width = self.shape
        return {
            "id": f"{sequence}-{layer}{'-backward' if self.backward else ''}",
            "name": self.name,
            "cell": type(self.module).__name__,
            "sequence": sequence,
            "layer": layer,
            "backward": self.backward,
            "rows": rows,
            "width": width,
            "unit": self.module.signal_unit,
            "signals": [
                {"name": name, "about": signal.about, "gate": signal.is_gate}
                for name, signal in self.module.signals.items()
            ],
        }


def trace_recurrences(
    model: Model, recurrences: Mapping[str, Sequence[RecurrentCall]], sequences: Mapping[str, Sequence[Token]]
) -> dict[str, tuple[RecurrenceInfo, RecurrenceTrace]]:
    """Describe the recurrent layers of a model by their ids; a layer that does not read every token is left out."""
    found: dict[str, tuple[RecurrenceInfo, RecurrenceTrace]] = {}
    layers: dict[tuple[str, bool], int] = {}
    for name, calls in recurrences.items():
        module, sequence = model.get_submodule(name), _sequence(name, model)
        assert isinstance(module, Mixer)
        trace = RecurrenceTrace(name, module, calls)
        if not calls or trace.shape[0] != len(sequences.get(sequence, ())):
            continue
        side = (sequence, trace.backward)
        layers[side] = layers.get(side, 0) + 1
        info = trace.describe(sequence, layers[side])
        found[info["id"]] = info, trace
    return found


def _sequence(name: str, model: Model) -> str:
    """Return the sequence that a layer reads: the only one, or that of its side."""
    names = list(model.sequences())
    return names[0] if len(names) == 1 or name.startswith("encoder") else names[-1]
