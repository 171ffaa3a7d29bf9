"""Steps of static shapes: on CUDA captured as a graph of kernels for each shape, and if wanted compiled before.

A small step is over before Python has asked for its kernels; a graph asks for all of them at once. It needs tensors
that stay where they are: caches with fixed slots, and numbers of rows and widths of a source rounded up to a few.
Capturing takes a fraction of a second; compiling takes many, and pays where single rows are written all day.
"""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from regard.decode.engine import Engine, Given, Steps, Work, start
from regard.errors import RegardError
from regard.models.model import StepModel
from regard.parts.state import State, Step

SHAPES = 24  # so many are kept at hand; the one that was not asked for longest goes
WORKS = 8  # ways to search or to sample that are kept at hand for each of them
MANY = 64  # rows beyond this are rounded up to its multiples
CUDA_OPTIONS = {
    "coordinate_descent_tuning": True,  # without it, products of single rows are not joined with what surrounds them
    "combo_kernels": True,
    "realize_opcount_threshold": 8,  # else a product works out its activation again for each number that it makes
}


def captured(model: StepModel) -> Engine:
    """Give the engine that captures the steps of a model on CUDA as graphs."""
    if device_of(model).type != "cuda":
        raise RegardError("the engine 'captured' is for CUDA only; choose another, or another device")
    shapes = Shapes(model, slots=64, width=16)
    return lambda given, room: StaticSteps(shapes, given, room)


def compiled(model: StepModel) -> Engine:
    """Give the engine that compiles the steps of a model; on CUDA it captures them, too."""
    shapes = Shapes(model, slots=256, width=64)
    options: Any = CUDA_OPTIONS if device_of(model).type == "cuda" else {}
    shapes.score = torch.compile(shapes.score, dynamic=False, options=options)
    return lambda given, room: StaticSteps(shapes, given, room)


class StaticSteps(Steps):
    """Reads what is given as the model is, then goes on with the step of the shape that fits."""

    def __init__(self, shapes: "Shapes", given: Given, room: int) -> None:
        self.shapes = shapes
        self.given = widened(given, shapes.width)
        self.state = start(shapes.model, self.given, multiple(room, shapes.slots))
        self.rows, self.share = len(given.tokens), 1
        self.shape: Shape | None = None  # where the state is now; None: in `state`

    def begin(self) -> Float[Tensor, "B V"]:
        """Read what is given; score what follows it."""
        logits, self.state = self.shapes.model.step(self.given.tokens, self.state, self.given.lengths)
        return logits

    def step(self, tokens: Int[Tensor, "B"]) -> Float[Tensor, "B V"]:
        """Read the next token of each row; score what follows it. The next step overwrites these scores."""
        if self.shape is None:
            self._fill_up()
            self.shape = self.shapes.find(self.state)
            self.shape.load(self.state)
        self.shape.tokens[: self.rows] = tokens
        self.shape.step()
        assert self.shape.logits is not None
        return self.shape.logits[: self.rows]

    def apply(
        self, work: Work, logits: Float[Tensor, "B V"], rows: tuple[Tensor, ...], fixed: tuple[Tensor, ...]
    ) -> tuple[Tensor, ...]:
        """Give work(logits, *rows, *fixed), where the scores of a step are, and not of the beginning."""
        if self.shape is None:
            return super().apply(work, logits, rows, fixed)
        return self.shape.apply(work, self.rows // self.share, rows, fixed)

    def repeat(self, times: int) -> None:
        """Let each row become `times` neighbouring rows."""
        self.state.repeat(times)
        self.rows, self.share = self.rows * times, self.share * times

    def reorder(self, index: Int[Tensor, "_b"]) -> None:
        """Let row i become what row index[i] was; fewer rows go on in a smaller shape."""
        if self.shape is not None and len(index) == self.rows:
            self.shape.index[: self.rows] = index
            self.shape.reorder()
            return
        if self.shape is not None:
            self.state.put(tuple(tensor.clone() for tensor in self.shape.state.tensors()))
            self.shape = None
        self.state.reorder(index)
        self.rows = len(index)

    def _fill_up(self) -> None:
        """Add copies of the first rows, which nobody asks for, up to one of a few numbers of rows."""
        groups = self.rows // self.share
        if spare := rounded(groups) - groups:
            index = torch.arange(self.rows, device=self.state.length.device)
            self.state.reorder(torch.cat((index, index[: self.share].repeat(spare))))


class Shape:
    """A state whose tensors stay where they are, and the step on them."""

    def __init__(self, shapes: "Shapes", state: State) -> None:
        self.shapes = shapes
        self.state = state
        state.rewind()
        rows = len(state.length)
        self.tokens = torch.zeros(rows, dtype=torch.long, device=state.length.device)
        self.index = torch.arange(rows, device=state.length.device)
        self.logits: Tensor | None = None
        self.works: dict[tuple[Any, ...], Repeated] = {}
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
        """Write what a change makes of the state into the tensors it was in."""
        before = self.state.tensors()
        change()
        for old, new in zip(before, self.state.tensors(), strict=True):
            if new is not old:
                old.copy_(new)
        self.state.put(before)

    def capture(self, work: Callable[[], None]) -> Callable[[], None]:
        """Give a function that repeats some work: on CUDA as a graph."""
        if self.tokens.device.type != "cuda":
            return work
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(2):  # kernels are chosen and compiled at first use, which a graph cannot hold
                work()
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.shapes.pool):
            work()
        return graph.replay

    def apply(self, work: Work, count: int, rows: tuple[Tensor, ...], fixed: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Work on the scores of this shape, of which the first `count` rows are asked for."""
        key = (work, *((tensor.shape[1:], tensor.dtype) for tensor in rows), *(tensor.shape for tensor in fixed))
        if key not in self.works:
            if len(self.works) == WORKS:
                self.works.clear()
            self.works[key] = Repeated(self, work, rounded(count), rows, fixed)
        return self.works[key](count, rows, fixed)

    def load(self, state: State) -> None:
        """Begin with what another state of this shape holds."""
        for own, other in zip(self.state.tensors(), state.tensors(), strict=True):
            own.copy_(other)
        self.state.rewind()


class Repeated:
    """The work of a search on the scores of a shape, on arguments that stay where they are."""

    def __init__(
        self, shape: Shape, work: Work, count: int, rows: tuple[Tensor, ...], fixed: tuple[Tensor, ...]
    ) -> None:
        self.rows = tuple(tensor.new_zeros(count, *tensor.shape[1:]) for tensor in rows)
        self.fixed = tuple(tensor.clone() for tensor in fixed)
        self.last = fixed
        self.found: tuple[Tensor, ...] = ()
        assert shape.logits is not None
        before = shape.logits.clone()  # the work may change them, and capturing does it before its time

        def run() -> None:
            self.found = work(shape.logits, *self.rows, *self.fixed)

        self.run = shape.capture(run)
        shape.logits.copy_(before)

    def __call__(self, count: int, rows: tuple[Tensor, ...], fixed: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Do it again for the first `count` rows."""
        for own, other in zip(self.rows, rows, strict=True):
            own[:count] = other
        for own, other, last in zip(self.fixed, fixed, self.last, strict=True):
            if other is not last:  # a search gives the same tensors all the time
                own.copy_(other)
        self.last = fixed
        self.run()
        return tuple(tensor[:count].clone() for tensor in self.found)


class Shapes:
    """The shapes of one model that were met so far; `slots` and `width` of a source are rounded up to multiples."""

    def __init__(self, model: StepModel, slots: int, width: int) -> None:
        self.model, self.slots, self.width = model, slots, width
        self.known: dict[tuple[Any, ...], Shape] = {}
        self.pool = torch.cuda.graph_pool_handle() if device_of(model).type == "cuda" else None
        self.score: Callable[[Tensor, Step], Tensor] = self._score

    def _score(self, tokens: Int[Tensor, "B 1"], step: Step) -> Float[Tensor, "B V"]:
        """Score what follows the tokens of a step."""
        return self.model.logits(self.model.decode(tokens, step)[:, -1])

    def find(self, state: State) -> Shape:
        """Give the shape of a state."""
        key = tuple((tensor.shape, tensor.dtype) for tensor in state.tensors())
        shape = self.known.pop(key, None) or Shape(self, deepcopy(state))
        self.known[key] = shape
        if len(self.known) > SHAPES:
            del self.known[next(iter(self.known))]
        return shape


def widened(given: Given, to: int) -> Given:
    """Widen the source to a multiple."""
    if given.source is None:
        return given
    rows, width = given.source.shape
    lengths = given.source_lengths
    if lengths is None:
        lengths = torch.full((rows,), width, device=given.source.device)
    source = F.pad(given.source, (0, multiple(width, to) - width))
    return replace(given, source=source, source_lengths=lengths)


def device_of(model: StepModel) -> torch.device:
    """Where a model is."""
    return model.embed.tokens.table.weight.device


def multiple(size: int, of: int) -> int:
    """Round up to a multiple."""
    return -(-size // of) * of


def rounded(rows: int) -> int:
    """Round up to a power of two, or to a multiple of many."""
    return 1 << (rows - 1).bit_length() if rows <= MANY else multiple(rows, MANY)
