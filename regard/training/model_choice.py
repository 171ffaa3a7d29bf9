"""The stages of planning that choose the model: which architecture, in which size, fitted to the data."""

from dataclasses import replace
from typing import NamedTuple

from torch import nn

from regard.arguments import check_path
from regard.config import Table, from_table, to_table
from regard.errors import ConfigError, RegardError
from regard.models.count import flops_per_token
from regard.models.recipe import ModelConfig, build_empty, load_recipe
from regard.models.scale import HEADS, SIZES, Size, part_sizes, scale_model
from regard.models.store import check_described
from regard.parts.recurrent import Bidirectional, Recurrent
from regard.recipe_files import merge, override, override_path, read_recipe
from regard.training.draft import Draft, chosen_by
from regard.training.model_table import (
    changed_values,
    check_complete,
    check_kind,
    fill_missing,
    find_size,
    fit_to_data,
    table_below,
)
from regard.training.pretrained import Pretrained
from regard.training.request import apply_named
from regard.training.suggestions import choose_size
from regard.use.box import find_model


def choose_architecture(draft: Draft) -> None:
    """Find the architecture that the user named, by a recipe or trained weights, or take the task's own."""
    request, given = draft.request, draft.given.get("model", {})
    if request.model is not None:
        _take_module(draft, request.model)
        return
    if request.recipe is not None and request.init_from is not None:
        raise ConfigError("--recipe and --init-from each decide the model; give one of them")
    draft.pretrained = None
    if request.init_from is not None:
        draft.pretrained = Pretrained(find_model(check_path(request.init_from, "init_from")), request.allow_pickle)
    whole = "kind" in given  # a complete model, not only some of its values
    if whole and request.recipe is not None:
        raise ConfigError("--recipe and the recipe's [model] each decide the model; give one of them")
    if draft.pretrained is not None and request.size != "auto":
        raise ConfigError("--init-from and --size each decide the model; give one of them")
    draft.named = True
    if request.recipe is not None:
        draft.base, source = to_table(load_recipe(request.recipe).model), f"recipe {request.recipe}"
        said = read_recipe(request.recipe)["model"]  # without the defaults of its parts
    elif whole:
        draft.base, source = dict(given), draft.origin
    elif draft.pretrained is not None:
        draft.base = to_table(draft.pretrained.config(draft.task_config.hub_task))
        source = f"--init-from {request.init_from}"
    else:
        draft.named = False
        name = draft.task_config.recipe
        draft.base, source = read_recipe(name)["model"], f"recipe {name}, {type(draft.task_config).__name__}.recipe"
    check_kind(draft.kind, draft.base["kind"])
    draft.note("model", draft.base if request.recipe is None else said, source)


def choose_model(draft: Draft) -> None:
    """Scale the architecture, adapt it to the data, and apply the user's changes."""
    draft.size, draft.model = None, None
    if not draft.base:
        return
    given, own, changes = draft.given.get("model", {}), draft.own.get("model", {}), draft.changes["model"]
    # a model that is given completely must fit the data; any other is made to fit
    whole = "kind" in own or draft.request.model is not None
    base = merge(_scaled(draft), {} if "kind" in given else given)
    needs = draft.task.needs()
    if draft.tokenizer is not None and draft.tokenizer.path is not None and isinstance(base.get("vocabulary"), int):
        # a tokenizer that was not learned from this data may leave some of the model's tokens unused
        needs = needs | {"vocabulary": max(base["vocabulary"], needs["vocabulary"])}
    said = apply_named({"model": own}, changes, "model.patches.patch", "model.head.pool.kind")["model"]
    if not whole and (adapted := draft.task.adapt(base, said)) is not base:
        draft.note("model", changed_values(base, adapted), chosen_by("the data", draft.task.adapt))
        base = merge(adapted, own)
    fit_to_data(own, needs, strict=True)  # a table with only some values must not contradict the data either
    remedy = "leave it out" if draft.request.model is None else "build the model with this value"
    base = fit_to_data(base, needs, whole, remedy)
    table = override({"model": base}, changes)["model"]
    check_complete(draft.kind, base["kind"], table)
    table = fit_to_data(table, needs, strict=True)
    table = _with_part_sizes(draft, table, base)
    draft.model = from_table(table, ModelConfig, "model")
    draft.note("model", given, draft.origin)
    draft.note("model", needs, chosen_by("the data", draft.task.needs))
    draft.note_changes("model")


def _take_module(draft: Draft, module: nn.Module) -> None:
    """Take the module that the user gave; one that `regard.build` made has a config, which is saved with the run."""
    request = draft.request
    options = {"recipe": request.recipe, "init_from": request.init_from, "size": request.size.removeprefix("auto")}
    clash = [f"{name}=..." for name, value in options.items() if value]
    clash += draft.changes["model"] + ["the recipe's [model]"] * ("model" in draft.given)
    if clash:
        raise ConfigError(f"model=... is trained as it is; leave {clash[0]} out")
    needed = draft.task_config.module_methods
    missing = [name for name in needed if not callable(getattr(module, name, None))]
    if missing:
        rule = f"{type(module).__name__} has no {' and no '.join(missing)}"
        raise ConfigError(f"{rule}; {draft.kind} needs a module with {', '.join(needed)}", "model")
    if not any(parameter.requires_grad for parameter in module.parameters()):
        raise ConfigError("no parameter of this module learns; set requires_grad of some of them", "model")
    config = getattr(module, "config", None)
    draft.pretrained, draft.named, draft.base = None, True, {}
    if isinstance(config, ModelConfig):
        try:
            check_described(module)
        except RegardError as error:
            raise ConfigError(f"{error}, or set its config to None to keep its weights only", "model") from None
        draft.base = to_table(config)
        check_kind(draft.kind, draft.base["kind"])
        draft.note("model", draft.base, "model=...")


class ModelFacts(NamedTuple):
    """What the number of updates and their rates follow from."""

    flops: float  # of a forward pass for one token
    dim: int
    recurrent: bool  # whether all its layers are recurrent cells: Elman, LSTM, GRU, MUT1 to MUT3


def find_facts(draft: Draft) -> ModelFacts:
    """Return the facts of the model; of a module of the user as far as they can be known."""
    if draft.model is not None:
        model = build_empty(draft.model)
        mixers = model.mixers()
        recurrent = bool(mixers) and all(isinstance(mixer, Recurrent | Bidirectional) for mixer in mixers)
        return ModelFacts(float(flops_per_token(model, draft.task.usual_length())), draft.model.dim, recurrent)
    module = draft.request.model
    assert module is not None
    dim = getattr(module, "dim", None)
    parameters = sum(parameter.numel() for parameter in module.parameters())
    width = dim if type(dim) is int and dim > 0 else SIZES["small"].dim
    return ModelFacts(2.0 * max(parameters, 1), width, recurrent=False)


def _scaled(draft: Draft) -> Table:
    """Return the architecture in the size that the user asked for, or that suits the data.

    An architecture that the user named keeps its own size if no size was asked for.
    """
    request, given = draft.request, draft.given.get("model", {})
    if not draft.named or request.size != "auto":
        draft.size = choose_size(request.size, draft.task_config, draft.task.amount(), draft.device)
    changes = [change for change in draft.changes["model"] if override_path(change) == "model.dim"]
    dim = find_size({} if "kind" in given else given, changes, "model", "dim")
    fixed = draft.pretrained is not None or request.model is not None
    if fixed or (draft.size is None and dim is None):
        return draft.base
    size = Size(dim or 0) if draft.size is None else SIZES[draft.size]
    scaled = scale_model(draft.base, replace(size, dim=dim or size.dim))
    reason = "model.dim" if draft.size is None else f"size {draft.size}"
    draft.note("model", changed_values(draft.base, scaled), chosen_by(reason, scale_model))
    if draft.named:
        return scaled
    suggested = draft.task_config.suggest_model(draft.size or "", draft.task.amount())
    draft.note("model", suggested, chosen_by(f"task {draft.kind} and the data", draft.task_config.suggest_model))
    return merge(scaled, suggested)


def _with_part_sizes(draft: Draft, table: Table, base: Table) -> Table:
    """Fill in the sizes of parts for which an override gives only the kind."""
    for change in draft.changes["model"]:
        *place, last = override_path(change).split(".")[1:]
        if place and last == "kind" and isinstance(table.get("dim"), int):
            heads = table_below(base, place).get("heads")
            kind = str(table_below(table, place).get("kind"))  # one that is not text is found when the table is read
            count = heads if isinstance(heads, int) else HEADS
            sizes = part_sizes(kind, table["dim"], count, draft.task.longest() or 0)
            table = fill_missing(table, place, sizes)
            draft.note(".".join(("model", *place)), sizes, chosen_by("model.dim", part_sizes))
    return table
