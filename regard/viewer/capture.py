"""One pass of a model under observation: what every attention saw, what every layer gave, what is below the head.

All that is kept is linear in the length of the input. Weights are worked out from it, for the heads that are asked for.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.decode.engine import in_use
from regard.models.head import Logits
from regard.models.model import Model
from regard.models.recurrent_seq2seq import RecurrentSeq2Seq
from regard.models.seq2seq import Seq2Seq
from regard.models.vision import VisionTransformer
from regard.parts.attend import Explanation, Record, Tape, Terms, Watchable, explain, watch
from regard.parts.embed import Embedding
from regard.parts.mask import explicit_positions

BLOCK = 1 << 20  # numbers that are worked on at a time, where more are not needed


@dataclass(frozen=True, eq=False)
class AttentionTrace:
    """One attention over the whole input, however many calls that took; of a batch of one."""

    query: Float[Tensor, "1 H T E"]
    key: Float[Tensor, "1 K S E"]
    value: Float[Tensor, "1 K S G"]
    mixed: Float[Tensor, "1 H T G"]
    terms: Terms

    @property
    def heads(self) -> int:
        """How many heads of queries there are."""
        return self.query.shape[1]

    @property
    def shape(self) -> tuple[int, int]:
        """How many queries and keys there are."""
        return self.query.shape[2], self.key.shape[2]

    def key_head(self, head: int) -> int:
        """Number the head of keys and values that a head of queries looks at."""
        return head * self.key.shape[1] // self.heads

    def explain(self, heads: range, rows: range) -> Explanation:
        """Explain the weights of neighbouring heads and queries."""
        query = self.query[:, heads.start : heads.stop, rows.start : rows.stop]
        key = self.key[:, [self.key_head(head) for head in heads]]
        with torch.inference_mode():
            return explain(query, key, self.terms_of(rows), heads.start)

    def terms_of(self, rows: range) -> Terms:
        """Give the terms on which neighbouring queries look."""
        positions = explicit_positions(self.terms.query_positions, self.shape[0], self.query.device)
        return self.terms._replace(query_positions=positions[:, rows.start : rows.stop])

    @property
    def row_size(self) -> int:
        """How many numbers one query of one head takes: an additive score makes a vector of every pair."""
        return self.shape[1] * (1 if self.terms.score.is_dot else self.query.shape[3])

    def weights(self, heads: range) -> Float[Tensor, "_h T S"]:
        """Work out the weights of neighbouring heads."""
        T, step = self.shape[0], max(BLOCK // (len(heads) * self.row_size), 1)
        blocks = [self.explain(heads, range(row, min(row + step, T))).weights for row in range(0, T, step)]
        return torch.cat(blocks, 2)[0]

    def blocks(self) -> Iterator[Float[Tensor, "_h T S"]]:
        """Work out the weights of all heads, some at a time."""
        step = max(BLOCK // (self.shape[0] * self.row_size), 1)
        for head in range(0, self.heads, step):
            yield self.weights(range(head, min(head + step, self.heads)))

    def mean(self) -> Float[Tensor, "T S"]:
        """Work out the mean weights of all heads."""
        total = self.query.new_zeros(self.shape)
        for weights in self.blocks():
            total = total + weights.sum(0)
        return total / self.heads

    def allowed(self, rows: range) -> Tensor | None:
        """Tell which keys some queries in a row may look at; None: all."""
        allowed = self.terms_of(rows).allowed(self.query[:, :1, rows.start : rows.stop], self.key[:, :1])
        return None if allowed is None else allowed[0, 0].expand(len(rows), self.shape[1])


@dataclass(frozen=True, eq=False)
class Capture:
    """What a pass left: attentions by name, what their queries were made of, and the vectors of every layer."""

    looked: dict[str, AttentionTrace]
    inputs: dict[str, Float[Tensor, "_T _D"]]
    memory: Float[Tensor, "_S _D"] | None  # what cross-attentions make their keys of
    hidden: dict[str, list[Float[Tensor, "_T _D"]]]  # of each sequence; the embedding first
    below: Float[Tensor, "_T _D"] | None  # what a head of logits scores
    output: Float[Tensor, "out"] | None  # of any other head


def capture(model: Model, arguments: Mapping[str, Tensor]) -> Capture:
    """Call a model with a batch of one, and note what happens inside."""
    notes = Observations()
    names = [name for name, module in model.named_modules() if isinstance(module, Watchable)]
    watched = watch(model) if names else nullcontext(Tape())
    output = None
    with in_use(model), watched as tape, observed(model, notes, tape), suppress(_EnoughError):
        output = model(**arguments)
    hidden = {sequence: _layers(model, sequence, notes) for sequence in _modules(model)}
    if isinstance(model, RecurrentSeq2Seq):
        hidden["target"][0] = notes.last("embed")
        hidden["target"] += [] if model.attention is None else [notes.last("below")]
    return Capture(
        looked={name: join_calls(tape[name]) for name in names},
        inputs={name: notes.all(f"input {name}") for name in names},
        memory=notes.last("memory") if "memory" in notes.found else None,
        hidden=hidden,
        below=notes.last("below") if "below" in notes.found else None,
        output=None if output is None else output[0],
    )


def embedding_of(model: Model) -> Embedding:
    """Give the embedding of a model of texts: that of what it writes, if it has two."""
    assert isinstance(model.embed, Embedding)
    return model.embed


def join_calls(calls: Sequence[Record]) -> AttentionTrace:
    """Make one of the calls of an attention: a recurrence that is fed looks once for each token."""
    first = calls[0]
    positions = None
    if first.terms.query_positions is not None:
        positions = torch.cat([call.terms.query_positions for call in calls], 1)  # type: ignore[misc]  # all have them
    return AttentionTrace(
        torch.cat([call.query for call in calls], 2),
        first.key,
        first.value,
        torch.cat([call.mixed for call in calls], 2),
        first.terms._replace(query_positions=positions),
    )


# --- noting ----------------------------------------------------------------------------------------------------------


class _EnoughError(Exception):
    """The pass has come to the head: what it makes of each token is worked out when somebody asks."""


@dataclass
class Observations:
    """What passed by, under a name; several calls give several."""

    found: dict[str, list[Tensor]] = field(default_factory=dict)

    def __call__(self, name: str, vectors: Tensor) -> None:
        """Note what passed by."""
        self.found.setdefault(name, []).append(vectors)

    def all(self, name: str) -> Float[Tensor, "T D"]:
        """Give what passed by in all calls, one after the other."""
        return torch.cat(self.found[name], 1)[0]

    def last(self, name: str) -> Float[Tensor, "T D"]:
        """Give what passed by in the last call."""
        return self.found[name][-1][0]


@contextmanager
def observed(model: Model, notes: Observations, tape: Tape) -> Iterator[None]:
    """Note inside what goes into attentions and comes out of layers; stop below a head of logits."""
    with ExitStack() as hooks:

        def before(module: nn.Module, do: Callable[[Tensor], None]) -> None:
            def hook(module: nn.Module, inputs: tuple[Any, ...]) -> None:
                do(inputs[0])

            hooks.callback(module.register_forward_pre_hook(hook).remove)

        def after(module: nn.Module, do: Callable[[Tensor], None]) -> None:
            def hook(module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
                do(output)

            hooks.callback(module.register_forward_hook(hook).remove)

        def note(name: str) -> Callable[[Tensor], None]:
            return lambda vectors: notes(name, vectors)

        def stop(vectors: Tensor) -> None:
            notes("below", vectors)
            raise _EnoughError

        for sequence, layers in _modules(model).items():
            before(layers[0], note(f"{sequence} 0"))
            for depth, layer in enumerate(layers, 1):
                after(layer, note(f"{sequence} {depth}"))
        for name in tape:
            attention = model.get_submodule(name)
            before(attention, note(f"input {name}"))
            after(attention, _forgetting(tape[name]))
        if isinstance(model, Seq2Seq | RecurrentSeq2Seq):
            after(model.encoder, note("memory"))
            after(model.embed, note("embed"))
        if isinstance(model.head, Logits):
            before(model.head, stop)
        yield


def _forgetting(calls: list[Record]) -> Callable[[Tensor], None]:
    """Keep the keys and values of a source once, however often it is looked at."""

    def forget(output: Tensor) -> None:
        calls[-1] = replace(calls[-1], key=calls[0].key, value=calls[0].value)

    return forget


def _modules(model: Model) -> dict[str, list[nn.Module]]:
    """Name the sequences that a model reads, with the layers that each goes through."""
    if isinstance(model, Seq2Seq):
        return {"source": [*model.encoder.layers], "target": [*model.decoder.layers]}
    if isinstance(model, RecurrentSeq2Seq):
        return {"source": [*model.encoder.layers], "target": [*model.cells]}
    stack: Any = model.stack
    return {"patches" if isinstance(model, VisionTransformer) else "tokens": [*stack.layers]}


def _layers(model: Model, sequence: str, notes: Observations) -> list[Tensor]:
    """Give the vectors of a sequence, layer by layer, its embedding first."""
    return [notes.all(f"{sequence} {depth}") for depth in range(len(_modules(model)[sequence]) + 1)]
