"""Decode steps of static shapes: on CUDA captured as a CUDA graph for each shape, optionally compiled first.

A small step is limited by launching its kernels from Python; a graph launches all of them at once. It needs tensors
at fixed addresses: static caches, and numbers of rows and widths of a source rounded up to a few values. Capturing
takes a fraction of a second. Compiling takes many seconds, and pays where single rows are decoded for a long time.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from regard.decode.engine import EagerSteps, Engine, Given, Steps, Work, eager, in_use, start
from regard.errors import RegardError
from regard.models.model import Model, StepModel
from regard.parts.state import State, Step
from regard.parts.watch import is_observed

SHAPES = 24  # shapes that are kept; the least recently used one is dropped
WORKS = 8  # ways to search or to sample that are kept for each shape
MANY = 64  # larger numbers of rows are rounded up to multiples of this
CUDA_OPTIONS = {
    "coordinate_descent_tuning": True,  # otherwise products of single rows are not fused with their neighbours
    "combo_kernels": True,
    "realize_opcount_threshold": 8,  # otherwise a product recomputes its activation for each output
}


def captured(model: StepModel) -> Engine:
    """Return the engine that captures the steps of a model as CUDA graphs."""
    if device_of(model).type != "cuda":
        raise RegardError("the engine 'captured' is for CUDA only; choose another engine or device")
    return StaticEngine(captured, StaticShapes(model, slots=64, width=16))


def compiled(model: StepModel) -> Engine:
    """Return the engine that compiles the steps of a model; on CUDA it captures them, too."""
    shapes = StaticShapes(model, slots=256, width=64)
    options: Any = CUDA_OPTIONS if device_of(model).type == "cuda" else {}
    shapes.score = torch.compile(shapes.score, dynamic=False, options=options)
    return StaticEngine(compiled, shapes)


class StaticEngine:
    """The engine of some shapes, which `make` made; inside `watch` and `intervene` the model is called directly.

    A copy is made again for the copy of the model, since graphs and compiled code belong to one model.
    """

    def __init__(self, make: Callable[[StepModel], Engine], shapes: "StaticShapes") -> None:
        self.make, self.shapes = make, shapes

    def __call__(self, given: Given, capacity: int) -> Steps:
        """Return the steps of a batch."""
        return EagerSteps(self.shapes.model, given) if is_observed() else StaticSteps(self.shapes, given, capacity)

    def __reduce__(self) -> tuple[Callable[[StepModel], Engine], tuple[StepModel]]:
        return self.make, (self.shapes.model,)


class KeptEngine:
    """The engine of the model that was used last: validations of one model reuse its graphs, whatever its weights are.

    On CUDA it captures, in the precision of the weights: autocast keeps copies of them, which a graph would read later.
    """

    def __init__(self) -> None:
        self.model: StepModel | None = None
        self.engine: Engine | None = None

    @contextmanager
    def of(self, model: StepModel) -> Iterator[Engine]:
        """Yield the engine of a model, to be used inside the `with`."""
        captures = is_capturable(model)
        if self.engine is None or model is not self.model:
            self.model, self.engine = model, (captured if captures else eager)(model)
        with in_use(model), torch.autocast("cuda", enabled=False) if captures else nullcontext():
            yield self.engine


def is_capturable(model: StepModel) -> bool:
    """Return whether the steps of a model can be captured; those of a module of the user may not be."""
    if not isinstance(model, Model):
        return False
    weight = next(model.parameters())
    return weight.device.type == "cuda" and model.is_static(weight.dtype)


class StaticSteps(Steps):
    """Steps that read what is given eagerly, and continue with the captured step of a shape that fits."""

    def __init__(self, shapes: "StaticShapes", given: Given, capacity: int) -> None:
        self.shapes = shapes
        self.given = pad_source(given, shapes.width)
        self.state = start(shapes.model, self.given, padded_size(capacity, shapes.slots))
        self.rows, self.beams = len(given.tokens), 1
        self.shape: StaticShape | None = None  # where the state is now; None: in `self.state`

    def begin(self) -> Float[Tensor, "B V"]:
        """Read what is given (prefill); score what follows."""
        logits, self.state = self.shapes.model.step(self.given.tokens, self.state, self.given.lengths)
        return logits

    def step(self, tokens: Int[Tensor, "B"]) -> Float[Tensor, "B V"]:
        """Read the next token of each row; score what follows. The next step overwrites these scores."""
        if self.shape is None:
            self._pad_rows()
            self.shape = self.shapes.find(self.state)
            self.shape.load(self.state)
        self.shape.tokens[: self.rows] = tokens
        self.shape.step()
        assert self.shape.logits is not None
        return self.shape.logits[: self.rows]

    def apply(
        self, work: Work, logits: Float[Tensor, "B V"], rows: tuple[Tensor, ...], fixed: tuple[Tensor, ...]
    ) -> tuple[Tensor, ...]:
        """Return work(logits, *rows, *fixed), captured if the scores are those of a step, not of the prefill."""
        if self.shape is None:
            return super().apply(work, logits, rows, fixed)
        return self.shape.apply(work, self.rows // self.beams, rows, fixed)

    def repeat(self, times: int) -> None:
        """Make each row `times` neighbouring rows."""
        self.state.repeat(times)
        self.rows, self.beams = self.rows * times, self.beams * times

    def reorder(self, index: Int[Tensor, "_b"]) -> None:
        """Make row i what row index[i] was; fewer rows continue in a smaller shape."""
        if self.shape is not None and len(index) == self.rows:
            self.shape.index[: self.rows] = index
            self.shape.reorder()
            return
        if self.shape is not None:
            self.state.put(tuple(tensor.clone() for tensor in self.shape.state.tensors()))
            self.shape = None
        self.state.reorder(index)
        self.rows = len(index)

    def _pad_rows(self) -> None:
        """Add unused copies of the first rows, up to one of a few numbers of rows."""
        groups = self.rows // self.beams
        if spare := round_rows(groups) - groups:
            index = torch.arange(self.rows, device=self.state.length.device)
            self.state.reorder(torch.cat((index, index[: self.beams].repeat(spare))))


class StaticShape:
    """A state whose tensors stay at fixed addresses, and the step on them."""

    def __init__(self, shapes: "StaticShapes", state: State) -> None:
        self.shapes = shapes
        self.state = state
        state.rewind()
        rows = len(state.length)
        self.tokens = torch.zeros(rows, dtype=torch.long, device=state.length.device)
        self.index = torch.arange(rows, device=state.length.device)
        self.logits: Tensor | None = None
        self.works: dict[tuple[Any, ...], CapturedWork] = {}
        self.step = self.capture(self._step)
        self.reorder = self.capture(self._reorder)

    def _step(self) -> None:
        def step() -> None:
            tokens = self.tokens[:, None]
            self.logits = self.shapes.score(tokens, self.state.advance(tokens))

        self.in_place(step)

    def _reorder(self) -> None:
        self.in_place(lambda: self.state.reorder(self.index))

    def in_place(self, change: Callable[[], None]) -> None:
        """Apply a change to the state, and write the result into the same tensors."""
        before = self.state.tensors()
        change()
        for old, new in zip(before, self.state.tensors(), strict=True):
            if new is not old:
                old.copy_(new)
        self.state.put(before)

    def capture(self, work: Callable[[], None]) -> Callable[[], None]:
        """Return a function that does some work: on CUDA as a captured graph."""
        if self.tokens.device.type != "cuda":
            return work
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):  # kernels are chosen and compiled at first use, which cannot be captured
                work()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        try:
            # the thread that writes files of a run waits for the device meanwhile (training/background.py)
            with torch.cuda.graph(graph, pool=self.shapes.pool, capture_error_mode="thread_local"):
                work()
        except RuntimeError:  # out of memory; torch cannot capture into the pool of a capture that failed
            self.shapes.pool = torch.cuda.graph_pool_handle()
            raise
        return graph.replay

    def apply(self, work: Work, count: int, rows: tuple[Tensor, ...], fixed: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Apply work to the scores of this shape; return the results of the first `count` rows."""
        key = (work, *((tensor.shape[1:], tensor.dtype) for tensor in rows), *(tensor.shape for tensor in fixed))
        if key not in self.works:
            if len(self.works) == WORKS:
                self.works.clear()
            self.works[key] = CapturedWork(self, work, round_rows(count), rows, fixed)
        return self.works[key](count, rows, fixed)

    def load(self, state: State) -> None:
        """Copy another state of this shape into this one."""
        for own, other in zip(self.state.tensors(), state.tensors(), strict=True):
            own.copy_(other)
        self.state.rewind()


class CapturedWork:
    """The work of a search on the scores of a shape, captured with arguments at fixed addresses."""

    def __init__(
        self, shape: StaticShape, work: Work, count: int, rows: tuple[Tensor, ...], fixed: tuple[Tensor, ...]
    ) -> None:
        self.rows = tuple(tensor.new_zeros(count, *tensor.shape[1:]) for tensor in rows)
        self.fixed = tuple(tensor.clone() for tensor in fixed)
        self.last = fixed
        self.found: tuple[Tensor, ...] = ()
        assert shape.logits is not None
        before = shape.logits.clone()  # the work may change them, and capturing runs it

        def run() -> None:
            self.found = work(shape.logits, *self.rows, *self.fixed)

        self.run = shape.capture(run)
        shape.logits.copy_(before)

    def __call__(self, count: int, rows: tuple[Tensor, ...], fixed: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Repeat the work for the first `count` rows."""
        for own, other in zip(self.rows, rows, strict=True):
            own[:count] = other
        for own, other, last in zip(self.fixed, fixed, self.last, strict=True):
            if other is not last:  # a search passes the same tensors at every step
                own.copy_(other)
        self.last = fixed
        self.run()
        return tuple(tensor[:count].clone() for tensor in self.found)


class StaticShapes:
    """The shapes of one model so far; slots and source widths are rounded up to multiples."""

    def __init__(self, model: StepModel, slots: int, width: int) -> None:
        self.model, self.slots, self.width = model, slots, width
        self.known: dict[tuple[Any, ...], StaticShape] = {}
        self.pool = torch.cuda.graph_pool_handle() if device_of(model).type == "cuda" else None
        self.score: Callable[[Tensor, Step], Tensor] = self._score

    def _score(self, tokens: Int[Tensor, "B 1"], step: Step) -> Float[Tensor, "B V"]:
        """Score what follows the tokens of a step."""
        return self.model.logits(self.model.decode(tokens, step)[:, -1])

    def find(self, state: State) -> StaticShape:
        """Return the shape that a state fits; create it on first use."""
        key = tuple((tensor.shape, tensor.dtype) for tensor in state.tensors())
        shape = self.known.pop(key, None) or StaticShape(self, deepcopy(state))
        self.known[key] = shape
        if len(self.known) > SHAPES:
            del self.known[next(iter(self.known))]
        return shape


def pad_source(given: Given, to: int) -> Given:
    """Pad the source to a multiple of `to`."""
    if given.source is None:
        return given
    rows, width = given.source.shape
    lengths = given.source_lengths
    if lengths is None:
        lengths = torch.full((rows,), width, device=given.source.device)
    source = F.pad(given.source, (0, padded_size(width, to) - width))
    return replace(given, source=source, source_lengths=lengths)


def device_of(model: StepModel) -> torch.device:
    """Return the device of a model."""
    return model.embed.tokens.table.weight.device


def padded_size(size: int, to: int) -> int:
    """Round up to a multiple of `to`."""
    return -(-size // to) * to


def round_rows(rows: int) -> int:
    """Round up to a power of two, or from 64 on to a multiple of 64."""
    return 1 << (rows - 1).bit_length() if rows <= MANY else padded_size(rows, MANY)
