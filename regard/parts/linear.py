"""y = Wx + b, in the form that is fast where it is computed."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import Function, once_differentiable

from regard.parts.onednn import affine

Product = Callable[[Tensor], Tensor]  # x -> Wx + b, in whatever form W is stored


def linear(
    x: Float[Tensor, "*rows D"], weight: Float[Tensor, "O D"], bias: Float[Tensor, "O"] | None
) -> Float[Tensor, "*rows O"]:
    """Return Wx + b. For a single vector, torch.compile fuses the product only if the bias is added separately."""
    if bias is not None and torch.compiler.is_compiling() and x.numel() == x.shape[-1]:
        return F.linear(x, weight) + bias
    return affine(x, weight, bias)


class Source(NamedTuple):
    """What a product was made from: a parameter or module, where it is registered, and the address of its numbers."""

    registry: dict[str, Any]
    name: str
    value: Tensor | nn.Module | None
    address: int = 0


def sources_of(module: nn.Module) -> list[Source]:
    """Return the parameters of a module, without those of its parts."""
    registry = module._parameters
    return [Source(registry, name, own, 0 if own is None else own.data_ptr()) for name, own in registry.items()]


class Repackable(nn.Module):
    """A module whose main product may be computed from another form of its weights while a model is decoded.

    `product` is None, or set by `regard.decode` (packed, widened or int8 weights). `sources` are what it was made from;
    none, if that is gone (int8). A product with sources is used only inside `using_products`, which leaves out those
    whose sources were replaced. Moving, casting or copying the model makes that form stale, so it is dropped then.
    """

    def __init__(self) -> None:
        super().__init__()
        self.product: Product | None = None
        self.sources: list[Source] = []

    def use_product(self, product: Product, sources: list[Source]) -> None:
        """Compute the main product in another form from now on."""
        self.product, self.sources = product, sources

    def current_product(self) -> Product | None:
        """Return the product, if it is to be used now."""
        if not self.sources or self in _CURRENT.get():
            return self.product
        return self.product if torch.compiler.is_compiling() and not torch.is_grad_enabled() else None

    def is_current(self) -> bool:
        """Return whether there is a product, and the weights and modules that it was made from are still in place."""
        return bool(self.sources) and all(
            registry.get(name) is value and (not address or value.data_ptr() == address)  # type: ignore[union-attr]
            for registry, name, value, address in self.sources
        )

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy needs: its parameters are other ones."""
        return {**vars(self), **({"product": None, "sources": []} if "product" in vars(self) else {})}

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "Repackable":
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.product, self.sources = None, []
        return self


_CURRENT: ContextVar[frozenset[nn.Module]] = ContextVar("current", default=frozenset())


@contextmanager
def using_products(modules: Iterable[nn.Module]) -> Iterator[None]:
    """Compute with the products of these modules in this thread, except those that are stale now.

    Staleness is checked here and not in every product, of which a decode step has dozens. So inside the `with`, weights
    may be changed in place, but not replaced.
    """
    before = _CURRENT.get()
    _CURRENT.set(before.union(each for each in modules if isinstance(each, Repackable) and each.is_current()))
    try:
        yield
    finally:
        _CURRENT.set(before)


class Linear(nn.Linear, Repackable):
    """y = Wx + b."""

    def forward(self, x: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows O"]:
        """Return Wx + b."""
        if (product := self.current_product()) is not None:
            return product(x)
        if (cast := _cast_of(self)) is not None:
            return _product(x, *cast)
        return linear(x, self.weight, self.bias)


def linears(x: Float[Tensor, "*rows D"], *layers: nn.Module) -> tuple[Tensor, ...]:
    """Return the products of several layers with the same vectors: by one product, if they were cast together.

    While a model is decoded, they may be other modules than `Linear`, which have their weights in another form.
    """
    if (cast := _cast_of(*layers)) is None or any(map(is_hooked, layers)):
        return tuple(layer(x) for layer in layers)
    widths = [layer.out_features for layer in layers if isinstance(layer, Linear)]
    return torch.split(_product(x, *cast), widths, -1)


def is_hooked(module: nn.Module) -> bool:
    """Return whether a module has hooks, so that it must be called itself."""
    hooks = module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
    return bool(hooks)


def _product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return Wx + b for cast weights."""
    if bias is None or not x.is_cuda:
        return affine(x, weight, bias)
    found: Tensor = _Affine.apply(x.to(weight.dtype), weight, bias)  # type: ignore[no-untyped-call]
    return found


class _Affine(Function):
    """Wx + b. The gradient of b is a product with ones: a sum over thousands of rows takes twice as long on CUDA."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """Return Wx + b."""
        ctx.save_for_backward(x, weight)
        return F.linear(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the gradients of x, W and b."""
        x, weight = ctx.saved_tensors
        rows = gradient.reshape(-1, gradient.shape[-1])
        ones = _ones(len(rows), rows.dtype, rows.device)
        return (rows @ weight).view_as(x), rows.mT @ x.reshape(-1, x.shape[-1]), (ones @ rows)[0]


@cache
def _ones(count: int, dtype: torch.dtype, device: torch.device) -> Float[Tensor, "1 count"]:
    return torch.ones(1, count, dtype=dtype, device=device)


# --- weights in another precision ------------------------------------------------------------------------------------

Cast = tuple[Tensor, Tensor | None]  # weight and bias in the precision of a pass; those of several layers joined
_CASTS: ContextVar[Mapping[Any, Cast] | None] = ContextVar("casts", default=None)


def _cast_of(*layers: nn.Module) -> Cast | None:
    """Return the cast weights of layers, if this pass has them."""
    if torch.compiler.is_compiling() or (casts := _CASTS.get()) is None:
        return None
    return casts.get(layers)


@contextmanager
def using_casts(casts: Mapping[tuple[Linear, ...], Cast]) -> Iterator[None]:
    """Compute with these weights in this thread, instead of those of the layers."""
    token = _CASTS.set(casts)
    try:
        yield
    finally:
        _CASTS.reset(token)
