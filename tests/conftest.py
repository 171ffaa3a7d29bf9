"""Every test runs with shapes checked against the signatures, unless REGARD_CHECK_SHAPES=0."""

import faulthandler
import os
import signal
import threading

# Some virtual machines announce matrix instructions (AMX) that they do not let a program use.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE")
# A program that hangs is aborted (tests/processes.py), and then says where it was.
os.environ.setdefault("PYTHONFAULTHANDLER", "1")

import pytest
import torch
from _pytest.faulthandler import fault_handler_stderr_fd_key
from hypothesis import HealthCheck, settings

CHECK_SHAPES = os.environ.get("REGARD_CHECK_SHAPES", "1") != "0"

if CHECK_SHAPES:
    from jaxtyping import install_import_hook

    install_import_hook("regard", "beartype.beartype")


def pytest_collection_modifyitems(config, items):
    """Compiled code cannot carry the shape checker: tests of it have a run of their own, without the checker."""
    unfit = [item for item in items if ("compile" in item.keywords) == CHECK_SHAPES]
    config.hook.pytest_deselected(items=unfit)
    items[:] = [item for item in items if item not in unfit]


@pytest.hookimpl(trylast=True)
def pytest_exception_interact(node):
    """Watch over the end of a failed test too, which may hang as well: pytest, with a debugger in mind, does not."""
    seconds = float(node.config.getini("faulthandler_timeout"))
    if seconds and isinstance(node, pytest.Item):
        faulthandler.dump_traceback_later(seconds, file=node.config.stash[fault_handler_stderr_fd_key], exit=True)


# A shell starts background jobs with SIGINT ignored, and every process that a test starts would inherit that.
if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})

# Machines are noisy, so nothing depends on time; in CI the examples are the same every time.
settings.register_profile(
    "regard", deadline=None, derandomize="CI" in os.environ, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("regard")

torch.set_num_threads(1)  # two worker processes share two cores
