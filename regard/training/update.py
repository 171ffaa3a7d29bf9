"""One update: forward, backward, clipping, optimizer, moving average. Nothing in it waits for an accelerator.

The loss is normalised by the tokens of the whole update, not of its parts, so that neither splitting an update into
parts (for memory) nor over processes changes what is learned:

    L = sum over all parts of sum_t -log p_t / number of all t
"""

import warnings
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from regard.data.device import out_of_memory, release_memory
from regard.errors import RegardError
from regard.models.store import tensors
from regard.parts.moe import Router
from regard.parts.onednn import fast_products
from regard.parts.region import compile_fixed, compiled_regions
from regard.parts.watch import is_observed
from regard.tasks.loss import IGNORE
from regard.tasks.task import Batch, Task
from regard.training.capture import CapturedUpdates, Passes
from regard.training.casting import CastWeights
from regard.training.config import TrainConfig
from regard.training.execution import choose_execution, why_compiling_failed
from regard.training.objective import Objective
from regard.training.ranks import Ranks
from regard.training.seeds import seed_generators
from regard.training.shard import local, shard, whole

SHAPES = 256  # shapes of batches that are compiled, each once; by default torch stops after the eighth


class Outcome(NamedTuple):
    """The results of an update, still on the device."""

    loss: Tensor  # summed over the tokens of this process
    count: Tensor  # type: ignore[assignment]  # of the tokens of all processes
    norm: Tensor
    bad: Tensor  # 1 if something was not finite and the update was skipped, else 0


class Gradient(NamedTuple):
    """The results of the backward passes of an update; the gradients are in the parameters."""

    loss: Tensor
    count: Tensor  # type: ignore[assignment]
    carried: list[tuple[slice, Batch]]  # the state after each part of the rows
    rows: int  # of the whole update


class Update:
    """Updates a model, batch by batch; `shapes` is the number of different shapes of batches."""

    def __init__(self, model: nn.Module, task: Task, config: TrainConfig, ranks: Ranks, shapes: int = 1) -> None:
        self.model, self.config, self.ranks = model, config, ranks
        self.execution = choose_execution(model, task, config, ranks, shapes)
        self.sharded = ranks.world > 1 and config.parallel == "fsdp"
        if self.sharded:
            shard(model, ranks)
        self.optimizer = config.optimizer.build(model)
        self.parameters = list(model.parameters())
        self.split = config.accumulate  # the number of parts that this process splits its share of an update into
        self.plain = Objective(model, task)
        self.objective: Any = self._wrap(self.plain)
        self.casts = self._casts()
        self.tensors = tensors(model)  # collected once, which takes time
        self.average = None if config.ema is None else {n: t.detach().clone() for n, t in self.tensors.items()}
        self.renewed = torch.zeros((), device=ranks.device, dtype=self.parameters[0].dtype)  # share of the average
        self.buffers = [tensor for tensor in self.tensors.values() if not isinstance(tensor, nn.Parameter)]
        self.routers = [module for module in model.modules() if isinstance(module, Router)]
        self.busiest = torch.ones(len(self.routers), device=ranks.device)  # see `_balance`
        self.carried: Batch = {}
        self.step = 0
        self.captured = self._captured()

    def _wrap(self, objective: nn.Module) -> Any:
        """Compile, and average gradients over processes."""
        wrapped: Any = objective
        if self.ranks.world > 1 and not self.sharded:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FutureWarning)  # the replacement API does not exist in older torch
                wrapped = DistributedDataParallel(objective, broadcast_buffers=False)  # `_balance` synchronises them
        if self.execution.whole:
            wrapped = compile_fixed(wrapped)
        return wrapped

    def _captured(self) -> CapturedUpdates | None:
        """Return what captures updates of this object, if they are to be captured."""
        if not self.execution.captures:
            return None
        return CapturedUpdates(self._learn, self._compute, self._undo, self.ranks.device)

    @property
    def capture_failure(self) -> str | None:
        """Return why updates cannot be captured, if that was tried."""
        return None if self.captured is None else self.captured.failure

    @property
    def parts(self) -> int:
        """Return the number of parts of an update, over all processes."""
        return self.split * self.ranks.world

    @property
    def lowers_precision(self) -> bool:
        """Return whether passes compute in bfloat16: where that is faster, or the user wants it."""
        kind = self.ranks.device.type
        return self.config.precision == "bfloat16" or (self.config.precision == "auto" and kind == "cuda")

    def autocast(self) -> AbstractContextManager[None]:
        """Compute in bfloat16 where that is faster."""
        return torch.autocast(self.ranks.device.type, torch.bfloat16) if self.lowers_precision else nullcontext()

    def _casts(self) -> CastWeights | None:
        """Return what casts and joins weights. The compiler does that itself; DDP shares gradients one by one."""
        joins = self.lowers_precision or self.ranks.device.type == "cpu"
        if self.execution.compiles or self.ranks.world > 1 or not joins:
            return None
        return CastWeights(self.model, alone=self.lowers_precision)

    def _cast_weights(self) -> AbstractContextManager[None]:
        """Cast the weights for a pass, all at once, and join those that multiply the same vectors."""
        if self.casts is None:
            return nullcontext()
        return self.casts.cast_to(torch.bfloat16 if self.lowers_precision else torch.float32)

    @contextmanager
    def _compiled(self) -> Iterator[None]:
        """Run regions compiled, for every shape of a batch; other code of the process keeps its own settings."""
        if not self.execution.compiles:
            yield
            return
        regions = nullcontext() if self.execution.whole else compiled_regions()
        with torch._dynamo.config.patch(recompile_limit=SHAPES), regions:
            yield

    def __call__(self, batch: Batch, step: int) -> Outcome:
        """Learn from a batch; skip it if something is not finite. When memory runs out, `split` grows."""
        if not self.model.training:  # `train()` visits all modules, which takes time
            self.model.train()
        self.step = step
        self.optimizer.set_factor(self.config.schedule.factor(step, self.config.steps))
        if self.config.ema is not None:  # a shorter horizon at first, so that the initial weights are forgotten
            self.renewed.fill_(1 - min(self.config.ema, (1 + step) / (10 + step)))
        self._seed()
        if self.captured is None or is_observed():  # which needs Python in every pass
            return self._learn(batch)
        carried = tuple(tensor.shape for tensor in self.carried.values())
        return Outcome(*self.captured(batch, self.split, carried))

    def _seed(self) -> None:
        """Seed the dropout of this process for the whole update; a graph cannot be seeded again in between."""
        seed_generators(self.ranks.device, self.config.seed, self.step, self.ranks.rank)

    def _learn(self, batch: Batch, passes: Passes = nullcontext) -> Outcome:
        """Learn from a batch, in more parts if memory runs out, and without the compiler if that fails."""
        before = [buffer.clone() for buffer in self.buffers]
        while (found := self._try_backward(batch, before, passes)) is None:
            release_memory(self.ranks.device)
        return self._apply(before, found)

    def _compute(self, batch: Batch) -> Outcome:
        """Learn from a batch by a fixed sequence of operations on the device."""
        before = [buffer.clone() for buffer in self.buffers]
        return self._apply(before, self._backward(batch))

    def _try_backward(self, batch: Batch, before: list[Tensor], passes: Passes) -> Gradient | None:
        """Accumulate the gradients of all parts; after an error, undo that, and return None if it can be avoided."""
        try:
            with passes():
                return self._backward(batch)
        except RuntimeError as error:
            self._undo()
            self._restore(before)
            if out_of_memory(error):
                self._halve(len(batch["labels"]))
            elif self.execution.compiles and self.ranks.world == 1 and (reason := why_compiling_failed(error)):
                self._compile_no_more(reason)
            else:
                raise
            return None

    def _undo(self) -> None:
        """Discard the gradients of an update, which then begins again."""
        self.optimizer.zero()
        self._seed()

    def _backward(self, batch: Batch) -> Gradient:
        """Accumulate the gradients of all parts."""
        loss = torch.zeros((), device=self.ranks.device, dtype=torch.float32)  # whatever the default is
        count = torch.count_nonzero(batch["labels"] != IGNORE)  # of all processes: each has the complete batch
        weight = float(self.ranks.world) / count.clamp(min=1)  # torch averages gradients over processes: sum them
        carried: list[tuple[slice, Batch]] = []
        for number, rows, part in self._parts(batch):
            with (
                self._share_gradients_after(number),
                self.autocast(),
                self._cast_weights(),
                fast_products(),
                self._compiled(),
            ):
                losses, kept = self.objective(part)
                (losses.objective * weight).backward()
            loss += losses.loss
            carried.append((rows, kept))
        return Gradient(loss, count, carried, len(batch["labels"]))

    def _apply(self, before: list[Tensor], gradient: Gradient) -> Outcome:
        """Change the weights by their gradients, and everything else that an update changes."""
        norm, bad = self._clip(gradient.loss)
        self.optimizer.step(bad)
        self.optimizer.zero()
        self._carry(gradient.carried, gradient.rows, bad)
        self._balance()
        self._restore([torch.where(bad > 0, old, new) for old, new in zip(before, self.buffers, strict=True)])
        self._update_average()
        return Outcome(gradient.loss, gradient.count, norm, bad)

    def _compile_no_more(self, reason: str) -> None:
        """Run all further updates as they are, after the compiler has failed."""
        self.execution = self.execution._replace(compiles=False, whole=False, obstacle=reason)
        self.objective, self.casts = self._wrap(self.plain), self._casts()
        self.captured = self._captured()  # whose first updates fill the caches of what now runs

    def _halve(self, rows: int) -> None:
        """Split updates into twice the number of parts."""
        if self.ranks.world > 1:  # other ranks are already blocked in all-reduce
            remedy = f"continue with --resume and train.accumulate={2 * self.split}"
            raise RegardError(f"process {self.ranks.rank} ran out of memory; {remedy}")
        if rows <= self.parts:
            remedy = "choose a smaller model, or shorter rows (task.window, task.longest)"
            raise RegardError(f"there is not enough memory for a single row of the data; {remedy}")
        self.split *= 2

    @torch.no_grad()
    def _restore(self, values: list[Tensor]) -> None:
        """Restore the buffers that a forward pass or `_balance` has changed: averages of batch norm, routers."""
        for buffer, value in zip(self.buffers, values, strict=True):
            buffer.copy_(value)

    def _parts(self, batch: Batch) -> Iterator[tuple[int, slice, Batch]]:
        """Yield this process's parts of the batch: contiguous rows, so that the carried state matches.

        If there are fewer rows than parts, the empty parts get a row that does not count.
        """
        whole = batch | self.carried
        count = len(batch["labels"])
        own = self._own_rows(count)
        size = -(-(own.stop - own.start) // self.split)
        for index in range(self.split):
            number = self.ranks.rank * self.split + index
            rows = slice(*(min(own.start + each * size, own.stop) for each in (index, index + 1)))
            if rows.start == rows.stop:
                spare = {name: tensor[:1] for name, tensor in whole.items()}
                yield number, rows, spare | {"labels": torch.full_like(spare["labels"], IGNORE)}
            else:
                yield number, rows, {name: tensor[rows] for name, tensor in whole.items()}

    def _own_rows(self, count: int) -> slice:
        """Return the rows of an update that belong to this process: the same in every update, however it is split."""
        share = -(-count // self.ranks.world)
        return slice(*(min(rank * share, count) for rank in (self.ranks.rank, self.ranks.rank + 1)))

    def _share_gradients_after(self, number: int) -> AbstractContextManager[None]:
        """Exchange gradients only after the last part."""
        last = number == (self.ranks.rank + 1) * self.split - 1
        wrapped = getattr(self.objective, "_orig_mod", self.objective)
        if last or not isinstance(wrapped, DistributedDataParallel):
            return nullcontext()
        return wrapped.no_sync()

    def _clip(self, loss: Tensor) -> tuple[Tensor, Tensor]:
        """Clip the norm of the gradient; return whether everything is finite."""
        parameters = [parameter for parameter in self.parameters if parameter.grad is not None]
        norm = get_total_norm([parameter.grad for parameter in parameters if parameter.grad is not None])
        norm = whole(norm)
        if self.config.clip is not None:
            clip_grads_with_norm_(parameters, self.config.clip, norm)
        bad = (~torch.isfinite(norm + loss)).float()
        return norm, self.ranks.sum(bad).clamp(max=1.0)

    @torch.no_grad()
    def _carry(self, carried: list[tuple[slice, Batch]], rows: int, bad: Tensor) -> None:
        """Keep the state of this process's rows for the next update, in place; the rows of others are zero here."""
        for name, example in carried[0][1].items():
            new = example.new_zeros(rows, *example.shape[1:])
            for part, kept in carried:
                new[part] = kept[name][: part.stop - part.start]
            old = self.carried.setdefault(name, torch.zeros_like(new))
            old.copy_(torch.where(bad > 0, old, new))

    def carried_by_all(self) -> Batch:
        """Return the state of all rows, each from the process that it belongs to."""
        states = {}
        for name, tensor in self.carried.items():
            own = self._own_rows(len(tensor))
            states[name] = torch.zeros_like(tensor)
            states[name][own] = tensor[own]
            self.ranks.sum(states[name])
        return states

    def state(self) -> dict[str, Tensor]:
        """Return everything that the next update depends on: model, optimizer, moving average, carried state."""
        state = {f"model/{name}": tensor.detach() for name, tensor in tensors(self.model).items()}
        state |= {f"optimizer/{name}": tensor for name, tensor in self.optimizer.tensors().items()}
        state |= {f"average/{name}": tensor for name, tensor in (self.average or {}).items()}
        return state | {f"carried/{name}": tensor for name, tensor in self.carried_by_all().items()}

    def fits(self, state: Mapping[str, Tensor]) -> bool:
        """Return whether a state is of a model with the same weights."""
        own = {name: tensor.shape for name, tensor in tensors(self.model).items()}
        return own == {name: tensor.shape for name, tensor in _below("model/", state).items()}

    def load(self, state: Mapping[str, Tensor], split: int, rows: int) -> None:
        """Continue from a state; `split` is how many parts an update had, `rows` how many rows a batch has now."""
        copy_weights(_below("model/", state), self.model)
        self.optimizer.load(_below("optimizer/", state))
        if self.average is not None:
            average = _below("average/", state) or tensors(self.model)  # train.ema may be new
            for name, tensor in average.items():
                self.average[name].copy_(tensor.detach())
        # with another train.tokens, rows start without a carried state
        carried = {name: tensor for name, tensor in _below("carried/", state).items() if len(tensor) == rows}
        self.carried = {name: tensor.to(self.ranks.device) for name, tensor in carried.items()}
        self.split = max(self.config.accumulate, split)
        self.captured = self._captured()  # graphs refer to the state that was carried before

    def _balance(self) -> None:
        """Balance the load of experts over all processes; synchronise the averages of batch norm."""
        for router, busiest in zip(self.routers, self.busiest, strict=True):
            load = self.ranks.sum(router.load).float()
            busiest.copy_(load.max() / load.mean().clamp(min=1e-9))  # of this update; 1: all have the same load
            router.balance(self.config.balance)
        if self.ranks.world > 1:
            for buffer in self.buffers:
                if buffer.is_floating_point():
                    self.ranks.sum(buffer.div_(self.ranks.world))

    @torch.no_grad()
    def _update_average(self) -> None:
        """Update the moving average: a <- a + (w - a) * renewed, where `renewed` is 1 - decay."""
        if self.average is None:
            return
        pairs = [(average, self.tensors[name]) for name, average in self.average.items()]
        moving = [(local(average), local(own)) for average, own in pairs if own.is_floating_point()]
        averages = [average for average, _ in moving]
        change = torch._foreach_sub([own for _, own in moving], averages)
        torch._foreach_mul_(change, self.renewed)
        torch._foreach_add_(averages, change)
        for average, own in pairs:
            if not own.is_floating_point():
                average.copy_(own)


@torch.no_grad()
def copy_weights(source: Mapping[str, Tensor], model: nn.Module) -> None:
    """Copy weights into a model."""
    for name, tensor in tensors(model).items():
        tensor.copy_(source[name])


def _below(prefix: str, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in state.items() if name.startswith(prefix)}
