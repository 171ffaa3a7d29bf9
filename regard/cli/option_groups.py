"""Options that several commands share, as one parameter: a dataclass whose fields are the options.

typer makes an option of every parameter of a function, so commands would repeat their common options one by one.
"""

from collections.abc import Callable
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any


def expand_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command with an option for each field of its parameters that are dataclasses, in their places."""
    given = signature(command).parameters
    groups: dict[str, Any] = {name: each.annotation for name, each in given.items() if is_dataclass(each.annotation)}

    @wraps(command)
    def expanded(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{each.name: values.pop(each.name) for each in fields(group)})
        command(**values)

    flat: list[Parameter] = []
    for name, each in given.items():
        flat += map(_parameter, fields(groups[name])) if name in groups else [each]
    expanded.__signature__ = Signature(flat)  # type: ignore[attr-defined]
    return expanded


def _parameter(field: Field[Any]) -> Parameter:
    default = Parameter.empty if field.default is MISSING else field.default
    return Parameter(field.name, Parameter.KEYWORD_ONLY, default=default, annotation=field.type)
