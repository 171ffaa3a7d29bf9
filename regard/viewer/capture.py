"""Capture one pass of a model: a trace of every attention, hidden states, and the input of the output layer.

Everything kept is linear in the length of the input. Weights are computed from it, for the heads that are requested.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from threading import get_ident
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.decode.engine import in_use
from regard.models.model import Model
from regard.parts.attend import Explanation, Terms, explain
from regard.parts.cache import Memo
from regard.parts.mask import explicit_positions
from regard.parts.mixer import Mixer
from regard.parts.state import Hidden
from regard.parts.watch import Record, Tape, watch

BLOCK = 1 << 20  # numbers that are computed at a time


@dataclass(frozen=True, eq=False)
class AttentionTrace:
    """The trace of one attention over the whole input (batch size 1), joined from all of its calls."""

    query: Float[Tensor, "1 H T E"]
    key: Float[Tensor, "1 K S E"]
    value: Float[Tensor, "1 K S G"]
    mixed: Float[Tensor, "1 H T G"]
    terms: Terms

    @property
    def heads(self) -> int:
        """The number of query heads."""
        return self.query.shape[1]

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of queries and keys."""
        return self.query.shape[2], self.key.shape[2]

    def key_head(self, head: int) -> int:
        """Return the index of the key and value head that a query head uses."""
        return head * self.key.shape[1] // self.heads

    def explain(self, heads: range, rows: range) -> Explanation:
        """Compute scores, bias and weights of consecutive heads and queries."""
        query = self.query[:, heads.start : heads.stop, rows.start : rows.stop]
        key = self.key[:, [self.key_head(head) for head in heads]]
        with torch.inference_mode():
            return explain(query, key, self.terms_of(rows), heads.start)

    def terms_of(self, rows: range) -> Terms:
        """Return score, mask and positions for consecutive queries."""
        positions = explicit_positions(self.terms.query_positions, self.shape[0], self.query.device)
        pair = None if self.terms.pair is None else self.terms.pair[:, :, rows.start : rows.stop]
        return self.terms._replace(query_positions=positions[:, rows.start : rows.stop], pair=pair)

    @property
    def row_size(self) -> int:
        """The numbers that computing one query of one head needs; an additive score needs a vector for every pair."""
        return self.shape[1] * (1 if self.terms.score.is_dot else self.query.shape[3])

    def weights(self, heads: range) -> Float[Tensor, "_h T S"]:
        """Compute the weights of consecutive heads."""
        T, step = self.shape[0], max(BLOCK // (len(heads) * self.row_size), 1)
        blocks = [self.explain(heads, range(row, min(row + step, T))).weights for row in range(0, T, step)]
        return torch.cat(blocks, 2)[0]

    def blocks(self) -> Iterator[Float[Tensor, "_h T S"]]:
        """Compute the weights of all heads, a few at a time."""
        step = max(BLOCK // (self.shape[0] * self.row_size), 1)
        for head in range(0, self.heads, step):
            yield self.weights(range(head, min(head + step, self.heads)))

    def mean(self) -> Float[Tensor, "T S"]:
        """Compute the mean weights of all heads."""
        total = self.query.new_zeros(self.shape)
        for weights in self.blocks():
            total = total + weights.sum(0)
        return total / self.heads

    def allowed(self, rows: range) -> Tensor | None:
        """Return which keys consecutive queries may look at; None: all."""
        allowed = self.terms_of(rows).allowed(self.query[:, :1, rows.start : rows.stop], self.key[:, :1])
        return None if allowed is None else allowed[0, 0].expand(len(rows), self.shape[1])


@dataclass(frozen=True, eq=False)
class Capture:
    """What one pass recorded: a trace of every attention by name, and the hidden states of every layer."""

    traces: dict[str, AttentionTrace]
    inputs: dict[str, Float[Tensor, "_T _D"]]  # what queries are computed from
    memory: Float[Tensor, "_S _D"] | None  # what the keys of cross-attention are computed from
    hidden: dict[str, list[Float[Tensor, "_T _D"]]]  # of each sequence; layer 0 is the embedding
    below: Float[Tensor, "_T _D"] | None  # the input of an output layer that gives logits
    output: Tensor | tuple[Tensor, ...] | None  # of any other output layer
    recurrences: dict[str, list["RecurrentCall"]] = field(default_factory=dict)  # by the names of the modules


def capture(model: Model, arguments: Mapping[str, Tensor]) -> Capture:
    """Run a model on a batch of one, and record what happens inside."""
    seen = Observations()
    names = [role.name for role in model.attentions()]
    watched = watch(model) if names else nullcontext(Tape())
    output = None
    with in_use(model), watched as tape, observed(model, seen, tape), suppress(_StopError):
        output = model(**arguments)
    hidden = {
        name: [
            seen.last(f"{name} {depth}") if tap.last else seen.all(f"{name} {depth}")
            for depth, tap in enumerate(sequence.taps)
        ]
        for name, sequence in model.sequences().items()
    }
    return Capture(
        traces={name: join_calls(tape[name]) for name in names},
        inputs={name: seen.all(f"input {name}") for name in names},
        memory=seen.last("memory") if "memory" in seen.found else None,
        hidden=hidden,
        below=seen.last("below") if "below" in seen.found else None,
        output=None if output is None else _first_row(output),
        recurrences=seen.recurrent,
    )


def _first_row(output: Any) -> Any:
    """Return the output for the only row of a batch, which may be several tensors."""
    return tuple(each[0] for each in output) if isinstance(output, tuple) else output[0]


def join_calls(calls: Sequence[Record]) -> AttentionTrace:
    """Join the calls of one attention; a recurrent decoder calls it once for each token.

    Only the first row of a batch is kept: the sequence itself, where a model also reads its alignment.
    """
    first, terms = calls[0], calls[0].terms
    positions = None
    if terms.query_positions is not None:
        positions = torch.cat([call.terms.query_positions for call in calls], 1)[:1]  # type: ignore[misc]  # all have them
    keys = None if terms.key_positions is None else terms.key_positions[:1]
    pair = None if terms.pair is None else terms.pair[:1]
    return AttentionTrace(
        torch.cat([call.query[:1] for call in calls], 2),
        first.key[:1],
        first.value[:1],
        torch.cat([call.mixed[:1] for call in calls], 2),
        terms._replace(query_positions=positions, key_positions=keys, pair=pair),
    )


# --- hooks -----------------------------------------------------------------------------------------------------------


class _StopError(Exception):
    """Raised to end the pass below the output layer; logits are computed when they are requested."""


class RecurrentCall(NamedTuple):
    """One call of a recurrent layer: its input, and the state and the memo that it was given."""

    x: Float[Tensor, "1 T D"]
    start: tuple[Tensor, ...]
    memo: Memo | None

    def trace(self, module: Mixer) -> tuple[Float[Tensor, "1 T _H"], ...]:
        """Compute the state and the gates at each token."""
        with torch.inference_mode():
            return module.trace(self.x, self.start, self.memo)


@dataclass
class Observations:
    """Tensors seen by hooks, by name; one for each call."""

    found: dict[str, list[Tensor]] = field(default_factory=dict)
    recurrent: dict[str, list["RecurrentCall"]] = field(default_factory=dict)

    def __call__(self, name: str, vectors: Tensor) -> None:
        """Keep a tensor."""
        self.found.setdefault(name, []).append(vectors)

    def all(self, name: str) -> Float[Tensor, "T D"]:
        """Return the tensors of all calls, concatenated."""
        return torch.cat(self.found[name], 1)[0]

    def last(self, name: str) -> Float[Tensor, "T D"]:
        """Return the tensor of the last call."""
        return self.found[name][-1][0]


@contextmanager
def observed(model: Model, seen: Observations, tape: Tape) -> Iterator[None]:
    """Record the inputs of attentions and the outputs of layers; stop below an output layer that gives logits.

    Hooks run in all threads; those of others, which may use the model meanwhile, see nothing of this.
    """
    thread = get_ident()
    with ExitStack() as hooks:

        def before(module: nn.Module, do: Callable[[Tensor], None]) -> None:
            def hook(module: nn.Module, inputs: tuple[Any, ...]) -> None:
                if get_ident() == thread:
                    do(inputs[0])

            hooks.callback(module.register_forward_pre_hook(hook).remove)

        def after(module: nn.Module, do: Callable[[Tensor], None]) -> None:
            def hook(module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
                if get_ident() == thread:
                    do(output)

            hooks.callback(module.register_forward_hook(hook).remove)

        def note(name: str) -> Callable[[Tensor], None]:
            return lambda vectors: seen(name, vectors)

        def stop(vectors: Tensor) -> None:
            seen("below", vectors)
            raise _StopError

        for sequence, (taps, _) in model.sequences().items():
            for depth, tap in enumerate(taps):
                (before if tap.side == "input" else after)(tap.module, note(f"{sequence} {depth}"))
        for name in tape:
            attention = model.get_submodule(name)
            before(attention, note(f"input {name}"))
            after(attention, _sharing_keys(tape[name]))
        for name, module in model.named_modules():
            if isinstance(module, Mixer) and module.signals:
                calls = seen.recurrent.setdefault(name, [])
                noting = _noting_call(calls, thread)
                hooks.callback(module.register_forward_pre_hook(noting, with_kwargs=True).remove)
        if model.memory is not None:
            after(model.memory, note("memory"))
        if model.vocabulary_head() is not None:
            before(model.head, stop)
        yield


def _sharing_keys(calls: list[Record]) -> Callable[[Tensor], None]:
    """Keep the keys and values of a source once, however often the attention is called."""

    def share(output: Tensor) -> None:
        calls[-1] = replace(calls[-1], key=calls[0].key, value=calls[0].value)

    return share


def _noting_call(calls: list[RecurrentCall], thread: int) -> Callable[[Mixer, tuple[Any, ...], dict[str, Any]], None]:
    """Keep what a recurrent layer is called with in a thread; only the first row of a batch, as `join_calls` does."""

    def hook(module: Mixer, inputs: tuple[Any, ...], given: dict[str, Any]) -> None:
        if get_ident() != thread:
            return
        state = given.get("state")
        start = module.start(1) if state is None else state
        assert isinstance(start, Hidden)
        calls.append(RecurrentCall(inputs[0][:1], tuple(value[:1] for value in start.values), given.get("memo")))

    return hook
