"""What `regard tune` searches: a few settings of a task, and the overrides that they stand for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch.quasirandom import SobolEngine

from regard.config import to_table
from regard.data.tokenizer import LEAST
from regard.errors import ConfigError
from regard.recipe_files import override_path
from regard.training.draft import RunPlan
from regard.training.request import RunRequest


def search_space(plan: RunPlan, request: RunRequest, named: bool, device: str) -> Mapping[str, Sequence[Any]]:
    """Return what is searched: the space of the task, without what the user has decided."""
    space = dict(plan.config.task.suggest_search(device))
    decided = [override_path(change) for change in request.overrides]
    tokenizer = plan.config.tokenizer
    fixed = {
        "rate": any(path.startswith("train.optimizer") for path in decided),
        "size": named or request.size != "auto" or any(path in ("model.dim", "model.depth") for path in decided),
        "dropout": any(path.endswith("dropout") for path in decided) or not find_dropouts(plan),
        "vocabulary": any(path.startswith("tokenizer.") for path in decided)
        or tokenizer is None
        or tokenizer.path is not None
        or tokenizer.kind not in LEAST,
    }
    found = {name: values for name, values in space.items() if not fixed.get(name, False)}
    if not found:
        raise ConfigError("nothing is left to search; leave out some of the settings that you have decided")
    return found


def suggested_settings(plan: RunPlan, space: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """Return what the task suggests as a setting of the space."""
    dropouts = set(find_dropouts(plan).values())
    dropout = dropouts.pop() if len(dropouts) == 1 else None  # None: no single value for all
    values = {"rate": 1.0, "size": plan.size, "dropout": dropout, "vocabulary": 1.0}
    return {name: values.get(name) for name in space}


def draw_settings(space: Mapping[str, Sequence[Any]], count: int, suggested: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return different settings, spread evenly over the space; the first is empty: what the task suggests."""
    found: list[dict[str, Any]] = [{}]
    points = SobolEngine(len(space), scramble=True, seed=0).draw(64 * count).tolist()
    for point in points:
        settings = {
            name: values[int(place * len(values))] for place, (name, values) in zip(point, space.items(), strict=True)
        }
        if settings not in found and settings != suggested:
            found.append(settings)
        if len(found) == count:
            break
    return found


def find_dropouts(plan: RunPlan) -> dict[str, float]:
    """Return the dropout of each layer and of the embedding of a model, by their dotted paths."""

    def walk(table: Mapping[str, Any], path: str) -> Iterator[tuple[str, float]]:
        for key, value in table.items():
            place = path.split(".")
            if key == "dropout" and (place[-1] in ("embed", "model") or place[-2:-1] == ["layers"]):
                yield f"{path}.{key}", value
            elif isinstance(value, Mapping):
                yield from walk(value, f"{path}.{key}")

    return {} if plan.config.model is None else dict(walk(to_table(plan.config.model), "model"))


def changes_for(settings: Mapping[str, Any], plan: RunPlan) -> list[str]:
    """Return the overrides that settings stand for; rate and vocabulary are factors of what is suggested."""
    changes: list[str] = []
    if "rate" in settings:
        optimizer = to_table(plan.config.train.optimizer)
        rates = {"rate": optimizer["rate"], **({"rest.rate": optimizer["rest"]["rate"]} if "rest" in optimizer else {})}
        changes += [f"train.optimizer.{key}={settings['rate'] * rate:.4g}" for key, rate in rates.items()]
    if "dropout" in settings:
        changes += [f"{path}={settings['dropout']}" for path in find_dropouts(plan)]
    if "vocabulary" in settings:
        assert plan.config.tokenizer is not None
        assert plan.config.tokenizer.vocabulary is not None
        pieces = round(settings["vocabulary"] * plan.config.tokenizer.vocabulary)
        changes.append(f"tokenizer.vocabulary={max(pieces, LEAST[plan.config.tokenizer.kind][0])}")
    return changes
