"""Updates as CUDA graphs: a small update is limited by launching its kernels, and a graph launches all of them at once.

A graph needs tensors at fixed addresses. Weights, optimizer, moving average and carried state are changed in place; a
batch is copied into tensors of its shape; numbers that differ from step to step (rates, decay) are tensors that are
filled before a replay. Random numbers follow the seed of the generator at the replay, as they do without a graph. There
is one graph for each shape, and all share one pool of memory, since no two run at once and nothing stays in it.

No update is wasted: the first ones of a shape are ordinary updates, in which kernels are chosen and caches are filled.
One of them is a rehearsal, in whose passes it is an error to wait for the device, because that cannot be captured. Then
its gradients are discarded and computed again; what follows them could not be undone.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook

from regard.parts.linear import is_hooked
from regard.tasks.task import Batch, Task
from regard.training.optimizer import OptimizerConfig

GRAPHS = 64  # shapes that are captured, more than there are length buckets; further ones are not
LARGEST_SHARE = 0.3  # of the memory of a device that updates may take and be captured
WAITS = "called a synchronizing CUDA operation"  # torch's error in a rehearsal

Passes = Callable[[], AbstractContextManager[None]]  # in which an update passes through the model
Learn = Callable[..., tuple[Tensor, ...]]  # of a batch, and of `Passes`
Compute = Callable[[Batch], tuple[Tensor, ...]]
Key = tuple[Any, ...]


class CapturedUpdates:
    """Runs updates: the first ones of a shape by `learn`, then `compute` as a graph, if it can be captured.

    Both consist of the same operations and return numbers as tensors; only `learn` may try again when memory runs out.
    `undo` discards the gradients of an update that failed.
    """

    def __init__(self, learn: Learn, compute: Compute, undo: Callable[[], None], device: torch.device) -> None:
        self.learn, self.compute, self.undo = learn, compute, undo
        self.recorder = CudaRecorder() if device.type == "cuda" else Recorder()
        self.graphs: dict[Key, CapturedShape] = {}
        self.seen: set[Key] = set()
        self.is_rehearsed = False
        self.failure: str | None = None  # why updates are not captured

    def __call__(self, batch: Batch, *state: Any) -> tuple[Tensor, ...]:
        """Learn from a batch; `state` is what decides, besides the shapes, which operations that takes."""
        key = (*state, *((name, tensor.shape, tensor.dtype) for name, tensor in batch.items()))
        if key in self.graphs:
            return self.graphs[key](batch)
        if self.failure is not None:
            return self.learn(batch)
        if key not in self.seen:
            self.seen.add(key)
            with self.recorder.aside():
                return self.learn(batch)
        if not self.is_rehearsed:
            return self._rehearse(batch)
        return self._capture(key, batch)

    def _rehearse(self, batch: Batch) -> tuple[Tensor, ...]:
        """Learn from a batch as usual, but find out whether that waits for the device."""
        try:
            with self.recorder.aside():
                found = self.learn(batch, self.recorder.without_waiting)
        except RuntimeError as error:
            if WAITS not in str(error):
                raise
            self._give_up(error)
        else:
            self.is_rehearsed = True
            return found
        return self.learn(batch)

    def _capture(self, key: Key, batch: Batch) -> tuple[Tensor, ...]:
        """Capture the update of this shape, and replay it."""
        if len(self.graphs) == GRAPHS:
            return self.learn(batch)
        if not self.graphs and not self.recorder.has_room():
            self.failure = "it would keep too much memory"
            return self.learn(batch)
        try:
            self.graphs[key] = CapturedShape(self.compute, batch, self.recorder)
        except RuntimeError as error:  # nothing was computed, only recorded
            self._give_up(error)
        else:
            return self.graphs[key](batch)
        self.undo()
        return self.learn(batch)

    def _give_up(self, error: RuntimeError) -> None:
        """Run all further updates as usual."""
        self.failure = str(error).partition("\n")[0]
        self.graphs.clear()


class CapturedShape:
    """The graph of updates of one shape: the tensors of its batch, and the numbers that it computes."""

    def __init__(self, compute: Compute, batch: Batch, recorder: "Recorder") -> None:
        self.batch = {name: tensor.clone() for name, tensor in batch.items()}
        self.found: Tensor | None = None  # stays in the pool, so that no other graph overwrites it

        def work() -> None:
            self.found = torch.stack([number.detach().float() for number in compute(dict(self.batch))])

        self.replay = recorder.record(work)

    def __call__(self, batch: Batch) -> tuple[Tensor, ...]:
        """Learn from another batch of this shape."""
        torch._foreach_copy_(list(self.batch.values()), list(batch.values()))
        self.replay()
        assert self.found is not None
        return tuple(self.found.clone().unbind())  # the next replay overwrites them


class Recorder:
    """Repeats work by calling it again; on CUDA, `CudaRecorder` records it."""

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        """Return a function that repeats some work."""
        return work

    def has_room(self) -> bool:
        """Return whether there is memory enough for a graph, beside what other work needs at times."""
        return True

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Run the block where work is recorded."""
        yield

    @contextmanager
    def without_waiting(self) -> Iterator[None]:
        """Raise an error where the block waits for the device."""
        yield


class CudaRecorder(Recorder):
    """Records CUDA graphs on a stream of its own, in one pool of memory."""

    def __init__(self) -> None:
        self.stream = torch.cuda.Stream()
        self.pool = torch.cuda.graph_pool_handle()

    def has_room(self) -> bool:
        """Return whether updates so far took a small share of the memory: a graph keeps what they take for itself."""
        total: int = torch.cuda.get_device_properties(self.stream.device).total_memory
        return torch.cuda.max_memory_allocated(self.stream.device) < LARGEST_SHARE * total

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        """Return a function that replays some work, which is recorded now, but not run."""
        graph, before = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
        try:  # other threads may allocate meanwhile
            with torch.cuda.graph(graph, pool=self.pool, stream=self.stream, capture_error_mode="thread_local"):
                work()
        except RuntimeError:
            torch.cuda.set_stream(before)
            self._end_capture()
            raise
        return graph.replay

    def _end_capture(self) -> None:
        """After a capture that failed, do what torch leaves undone: generator and allocator still wait for its end."""
        index = torch.cuda.current_device()
        unused = torch.Generator(torch.device("cuda", index))
        torch.cuda.default_generators[index].graphsafe_set_state(unused.graphsafe_get_state())
        with suppress(RuntimeError):  # the pool is no longer in use
            torch._C._cuda_endAllocateToPool(index, self.pool)

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Run the block on the stream of the graphs: what is kept between updates must not belong to another."""
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            yield
        torch.cuda.current_stream().wait_stream(self.stream)

    @contextmanager
    def without_waiting(self) -> Iterator[None]:
        """Raise an error where the block waits for the device."""
        before = torch.cuda.get_sync_debug_mode()
        torch.cuda.set_sync_debug_mode("error")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode(before)


def can_capture(model: nn.Module, task: Task, optimizer: OptimizerConfig) -> bool:
    """Return whether nothing in an update can depend on Python values that change between updates.

    A replay runs no Python. Torch and this package are known not to need it; of parts and optimizers of the user, and
    of hooks, nothing is known.
    """
    modules = list(model.modules())
    parts = (value for module in modules for value in vars(module).values())  # activations, masks
    known = all(map(_is_known, (*modules, *parts, task, optimizer)))
    hooks = any(map(is_hooked, modules)) or _has_any_global_hook()
    return known and not hooks and not any(map(_has_hook, model.parameters()))


def _is_known(part: object) -> bool:
    """Return whether an object or a function is one of torch or of this package; plain values have no module."""
    home = getattr(part.func if isinstance(part, partial) else part, "__module__", None) or "torch"
    return home.partition(".")[0] in ("regard", "torch")


def _has_hook(parameter: nn.Parameter) -> bool:
    return bool(parameter._backward_hooks or parameter._post_accumulate_grad_hooks)
