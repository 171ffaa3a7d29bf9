"""Training: the loop, and what a person sees of it."""

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any


class _Package(ModuleType):
    """Importing this package binds it to the name `regard.train`, which is also a function; so it is called as that."""

    @property
    def __call__(self) -> Callable[..., Any]:
        """The function."""
        from regard.train.start import train

        return train


sys.modules[__name__].__class__ = _Package
