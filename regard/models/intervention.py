"""Interventions: places of a model that can be changed, and changes of one place while the model computes.

A place is an attention, by its kind and layer (`cross.2`) or by the name of its module, or the vectors of a sequence
after a layer (`target.2`; layer 0 is the embedding). The weights of the model stay as they are.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from threading import get_ident
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.errors import InputError, choices
from regard.models.introspection import Tap
from regard.models.model import Model, unwrapped
from regard.parts.attention import Attention
from regard.parts.edit import (
    Edit,
    LookAt,
    LookEverywhere,
    OutputPatch,
    SetWeight,
    SwitchOff,
    VectorPatch,
    edited,
    edits_of,
)
from regard.parts.mask import explicit_positions
from regard.parts.watch import HasModule, Record, module_of, uncompiled, watch

PATTERNS = ("zero", "uniform", "previous", "first")  # what `attention` may be, besides the position of a key

Numbers = int | Sequence[int] | None


class EditableAttention(NamedTuple):
    """An attention that can be changed; `same` says that its queries and keys are the same tokens."""

    name: str
    module: Attention
    same: bool


class EditableVectors(NamedTuple):
    """The vectors of a sequence at one depth."""

    sequence: str
    tap: Tap
    width: int | None  # None: unknown, of a model without a config


Place = EditableAttention | EditableVectors


def find_places(model: nn.Module) -> dict[str, Place]:
    """Return the places of a model that can be changed, by their names."""
    found: dict[str, Place] = {}
    named = {
        path.replace("_orig_mod.", ""): module
        for path, module in model.named_modules()
        if isinstance(module, Attention)
    }
    plain = unwrapped(model)
    if isinstance(plain, Model):
        for role in plain.attentions():
            if role.name in named:
                found[role.id] = EditableAttention(role.name, named.pop(role.name), role.queries == role.keys)
        for sequence, (taps, _) in plain.sequences().items():
            for depth, tap in enumerate(taps):
                if not tap.last and tap.module is not plain.head:  # their calls do not say which token is which
                    found[f"{sequence}.{depth}"] = EditableVectors(sequence, tap, getattr(plain.config, "dim", None))
    return found | {name: EditableAttention(name, module, same=False) for name, module in named.items()}


def find_place(model: nn.Module, name: str) -> Place:
    """Return a place of a model by its name; an attention also by the name of its module."""
    places = find_places(model)
    aliases = {place.name: place for place in places.values() if isinstance(place, EditableAttention)}
    place = places.get(name) or aliases.get(name)
    if place is None:
        if not places:
            raise InputError("this model has no attention and no layers that can be changed; use another model")
        raise InputError(f"no attention or vectors {name!r}; {choices(name, places)}")
    return place


class Intervention(NamedTuple):
    """One change of one place, as `regard.intervene` takes it."""

    place: str
    heads: Numbers = None
    attention: str | int | None = None
    weight: tuple[int, int, float] | None = None
    vector: Any = None
    positions: Numbers = None

    def edit(self, model: nn.Module) -> tuple[Place, Edit]:
        """Return what is edited in a model, and how; raise an error for what does not exist."""
        place = find_place(model, self.place)
        given = [name for name in ("attention", "weight", "vector") if getattr(self, name) is not None]
        if len(given) != 1:
            what = f"{' and '.join(given)} were given" if given else "nothing to change was given"
            raise InputError(f"{self.place}: {what}; give one of attention, weight and vector")
        if isinstance(place, EditableVectors):
            if given != ["vector"] or self.heads is not None:
                named = "heads" if given == ["vector"] else given[0]
                raise InputError(
                    f"{self.place}: are vectors, which have no {named}; give a vector, or name an attention"
                )
            vectors, positions = self._vectors(place.width)
            return place, VectorPatch(positions, vectors)
        heads = check_heads(self.place, self.heads, place.module.heads.heads)
        if self.vector is not None:
            every = tuple(range(place.module.heads.heads)) if heads is None else heads
            vectors, positions = self._vectors(place.module.heads.value_dim, len(every))
            return place, OutputPatch(every, positions, vectors)
        positions = numbers_from_zero(self.place, "position", self.positions)
        if self.weight is not None:
            if positions is not None:
                raise InputError(f"{self.place}: a weight names its own query; leave positions out")
            query, key, value = check_weight(self.place, self.weight)
            return place, SetWeight(heads, (query,), key=key, value=value)
        return place, self._pattern(place, heads, positions)

    def _pattern(
        self, place: EditableAttention, heads: tuple[int, ...] | None, positions: tuple[int, ...] | None
    ) -> Edit:
        wanted = plain_numbers(self.attention)
        if isinstance(wanted, int) and not isinstance(wanted, bool):
            return LookAt(heads, positions, key=number_from_zero(self.place, "key", wanted))
        if wanted == "previous" and not place.same:
            rule = "is not an attention of tokens to their own sequence, so there is no previous token"
            raise InputError(f"{self.place}: {rule}; use zero, uniform, first or the position of a key")
        match wanted:
            case "zero":
                return SwitchOff(heads, positions)
            case "uniform":
                return LookEverywhere(heads, positions)
            case "previous":
                return LookAt(heads, positions, back=1)
            case "first":
                return LookAt(heads, positions, key=0)
        rule = f"attention must be the position of a key or one of {', '.join(PATTERNS)}"
        raise InputError(f"{self.place}: {rule}, not {wanted!r}")

    def _vectors(self, width: int | None, heads: int | None = None) -> tuple[Tensor, tuple[int, ...] | None]:
        """Return the vectors to write, (P, D) or (H, P, D), and their positions.

        One vector is for all positions and heads; of heads, there may be one for each. Vectors for several positions
        are for 0, 1, 2, ... unless `positions` says otherwise.
        """
        positions = numbers_from_zero(self.place, "position", self.positions)
        try:
            vectors = torch.as_tensor(self.vector)
        except (TypeError, ValueError, RuntimeError):
            raise InputError(f"{self.place}: vector must be a tensor or numbers, not {self.vector!r}") from None
        shape = tuple(vectors.shape)
        rank = 2 if heads is None else 3
        if positions is None and len(shape) == rank:
            positions = tuple(range(shape[-2]))
        many = 1 if positions is None else len(positions)
        width = width or (shape[-1] if shape else 0)
        by_position = (many, width) if heads is None else (heads, many, width)
        if shape not in ((width,), (*by_position[:-2], width), by_position):
            expected = f"{width} numbers" if heads is None else f"{width} numbers for each of {heads} heads"
            expected += "" if many == 1 else f" at each of {many} positions"
            raise InputError(f"{self.place}: a vector has {expected}, but this one has the shape {list(shape)}")
        if shape != by_position:
            vectors = vectors.unsqueeze(-2)
        return vectors.expand(*by_position[:-2], *vectors.shape[-2:]), positions


@contextmanager
def apply_interventions(model: nn.Module, changes: Sequence[Intervention], strict: bool = True) -> Iterator[None]:
    """Change a model in this thread inside the `with`; later changes see what earlier ones made.

    If `strict`, raise an error at the end if the model was never called, or if no call had the positions named.
    """
    edits = [(change, *change.edit(model)) for change in changes]
    modules = [
        (place.module if isinstance(place, EditableAttention) else place.tap.module, edit) for _, place, edit in edits
    ]
    with ExitStack() as stack:
        for _, place, edit in edits:
            if isinstance(place, EditableVectors) and isinstance(edit, VectorPatch):
                stack.callback(_patch_at(place.tap, edit).remove)
        stack.enter_context(edited(modules))
        stack.enter_context(uncompiled)
        yield
    for change, _, edit in edits if strict else ():
        _check_seen(change, edit)


def _patch_at(tap: Tap, edit: VectorPatch) -> Any:
    """Patch the vectors at a tap. Hooks run in all threads, so each looks whether its edit is active in this one."""

    def patched(module: nn.Module, x: Tensor, named: Mapping[str, Any]) -> Tensor:
        if edit not in edits_of(module):
            return x
        return edit.apply(x, explicit_positions(named.get("positions"), x.shape[1], x.device))

    def before(module: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> Any:
        return (patched(module, inputs[0], named), *inputs[1:]), named

    def after(module: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any], output: Tensor) -> Tensor:
        return patched(module, output, named)

    if tap.side == "input":
        return tap.module.register_forward_pre_hook(before, with_kwargs=True)
    return tap.module.register_forward_hook(after, with_kwargs=True)


def _check_seen(change: Intervention, edit: Edit) -> None:
    """Raise an error if the change could never have an effect."""
    seen = edit.seen
    if seen.calls == 0:
        raise InputError(f"{change.place}: nothing was changed; call the model inside the `with intervene(...)` block")
    missing = [position for position in edit.positions or () if position > seen.query]
    if missing:
        raise InputError(f"{change.place}: no token at position {missing[0]}; the last one is {seen.query}")
    key = edit.key if isinstance(edit, LookAt | SetWeight) else None
    if key is not None and key > seen.key:
        raise InputError(f"{change.place}: no key at position {key}; the last one is {seen.key}")


# --- checks ----------------------------------------------------------------------------------------------------------


def numbers_from_zero(place: str, what: str, given: Numbers) -> tuple[int, ...] | None:
    """Return whole numbers, one or several, as a tuple; None stays None."""
    if given is None:
        return None
    given = plain_numbers(given)
    several = given if isinstance(given, Sequence) and not isinstance(given, str) else (given,)
    return tuple(number_from_zero(place, what, number) for number in several)


def number_from_zero(place: str, what: str, given: Any) -> int:
    """Return one whole number, which must be at least 0 and an index that torch can hold."""
    number = plain_numbers(given)
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        raise InputError(f"{place}: a {what} must be a whole number from 0, not {number!r}")
    if number >= 2**63:
        raise InputError(f"{place}: a {what} must be below 2^63, not {number:,}")
    return number


def plain_numbers(given: Any) -> Any:
    """Return numbers of NumPy or torch as those of Python, and anything else as it is."""
    return given.tolist() if hasattr(given, "tolist") else given


def check_heads(place: str, given: Numbers, count: int) -> tuple[int, ...] | None:
    """Return the numbers of heads, which must exist; None stays None and means all."""
    heads = numbers_from_zero(place, "head", given)
    for head in heads or ():
        if head >= count:
            there = "there is only head 0" if count == 1 else f"the heads are 0 to {count - 1}"
            raise InputError(f"{place}: no head {head}; {there}")
    return heads


def check_weight(place: str, given: Any) -> tuple[int, int, float]:
    """Return query, key and value of a weight."""
    try:
        query, key, value = given
        value = float(value)
    except (TypeError, ValueError):
        raise InputError(f"{place}: a weight must be (query, key, value), not {given!r}") from None
    if not 0 <= value <= 1:
        raise InputError(f"{place}: the value of a weight must be between 0 and 1, not {value:g}")
    return number_from_zero(place, "query", query), number_from_zero(place, "key", key), value


# --- reading ---------------------------------------------------------------------------------------------------------


def read_vectors(
    model: nn.Module | HasModule, place: str, *inputs: Tensor, **named: Tensor
) -> Float[Tensor, "B *H T D"]:
    """Run a model and return the vectors of a place: (B, T, D) of a sequence, (B, H, T, G) of an attention's heads.

    `model` is a module, or what `regard.load` returned; the inputs are those of the module. The vectors can be written
    into another pass: `intervene(model, place, vector=...)`.
    """
    model = module_of(model)
    found = find_place(model, place)
    with torch.no_grad():
        if isinstance(found, EditableAttention):
            with watch(model, found.name) as tape:
                model(*inputs, **named)
            calls: list[Record] = tape[found.name]
            return torch.cat([call.mixed for call in calls], 2)
        seen: list[Tensor] = []
        hook = _read_at(found.tap, seen)
        try:
            with uncompiled:
                model(*inputs, **named)
        finally:
            hook.remove()
    return torch.cat(seen, 1)


def _read_at(tap: Tap, seen: list[Tensor]) -> Any:
    """Keep the vectors at a tap, those of this thread only: hooks run in all of them."""
    thread = get_ident()

    def keep(x: Tensor) -> None:
        if get_ident() == thread:
            seen.append(x)

    if tap.side == "input":
        return tap.module.register_forward_pre_hook(lambda module, inputs: keep(inputs[0]))
    return tap.module.register_forward_hook(lambda module, inputs, output: keep(output))
