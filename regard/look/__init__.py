"""Looking inside: what any model attends to, and why, in a browser, a notebook, or a file to send."""

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any


class _Package(ModuleType):
    """Importing this package binds it to the name `regard.look`, which is also a function; so it is called as that."""

    @property
    def __call__(self) -> Callable[..., Any]:
        """The function."""
        from regard.look.notebook import look

        return look


sys.modules[__name__].__class__ = _Package
