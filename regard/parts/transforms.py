"""Transforms of torch.func, and derivatives in forward mode, of which operators of this package have no formula."""

import torch
from torch.autograd import forward_ad


def is_transformed() -> bool:
    """Return whether a transform of torch.func or forward-mode differentiation is active.

    An operator of this package would lose their tangents without an error, so its definition is computed instead.
    """
    if torch.compiler.is_compiling():
        return False
    return torch._C._functorch.peek_interpreter_stack() is not None or forward_ad._current_level >= 0
