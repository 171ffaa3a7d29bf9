"""Settings for all tests.

`make test` has two passes. The first checks all shapes against the signatures at run time; it runs the tests of the
modules that have such signatures (`CHECKED`). The second, with REGARD_CHECK_SHAPES=0, runs the others: checking would
double their time and find nothing new. Compiled code cannot carry the checker, so tests marked `compile` are in the
second pass, too, and so are those marked `unchecked`, such as trainings. `pytest --quick` runs the fast tier. A file or
test named on the command line runs in either pass.
"""

import faulthandler
import gc
import os
import signal
import sys
import threading
from pathlib import Path

# Some virtual machines announce matrix instructions (AMX) that programs cannot use.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE")
# A program that hangs is aborted (tests/processes.py) and then prints its stacks.
os.environ.setdefault("PYTHONFAULTHANDLER", "1")

import pytest
import torch
from _pytest.faulthandler import fault_handler_stderr_fd_key
from hypothesis import HealthCheck, settings

TESTS = Path(__file__).parent
CHECK_SHAPES = os.environ.get("REGARD_CHECK_SHAPES", "1") != "0"

if CHECK_SHAPES:
    from jaxtyping import install_import_hook

    install_import_hook("regard", "beartype.beartype")


CHECKED = {"parts", "models", "decode", "laws", "tasks", "test_formal.py"}
UNCHECKED = ("compile", "unchecked")  # marks of tests that are in the second pass nevertheless

# The fast tier: the core of the package, and the laws of a few recipes that use most of its parts between them.
QUICK = {"parts", "models", "decode", "laws"}
QUICK_CASES = {"gpt2", "deepseek-like", "bert", "vit", "translator", "rnn-attention", "hybrid"}


def pytest_addoption(parser):
    parser.addoption(
        "--quick", action="store_true", help=f"only tests of {', '.join(sorted(QUICK))}, without slow ones"
    )


def pytest_ignore_collect(collection_path, config):
    """Do not even import what this run leaves out."""
    if not collection_path.is_relative_to(TESTS) or collection_path == TESTS or is_named(collection_path, config):
        return None
    inside = collection_path.relative_to(TESTS).parts
    if config.option.quick and len(inside) > 1 and inside[0] not in QUICK:
        return True
    if inside[0] not in CHECKED:
        return CHECK_SHAPES or None
    if not CHECK_SHAPES and collection_path.is_file():
        text = collection_path.read_text("utf-8")
        return None if any(f"mark.{mark}" in text for mark in UNCHECKED) else True
    return None


def is_named(path: Path, config: pytest.Config) -> bool:
    """Return whether the command line names this file or a folder above it, other than the folder of all tests."""
    named = [Path(argument.partition("::")[0]).absolute() for argument in config.invocation_params.args]
    return any(each != TESTS and TESTS in each.parents and path.is_relative_to(each) for each in named)


def pytest_collection_modifyitems(config, items):
    """Leave some tests to the pass without the shape checker, and slow tests out of the fast tier."""
    unchecked = {item for item in items if any(mark in item.keywords for mark in UNCHECKED)}
    unfit = list(unchecked)
    if not CHECK_SHAPES:
        inside = [item for item in items if item.path.relative_to(TESTS).parts[0] in CHECKED]
        unfit = [item for item in inside if item not in unchecked and not is_named(item.path, config)]
    if config.option.quick:
        unfit += [item for item in items if "slow" in item.keywords or not has_quick_case(item)]
    config.hook.pytest_deselected(items=unfit)
    left_out = set(unfit)
    items[:] = [item for item in items if item not in left_out]


def has_quick_case(item: pytest.Item) -> bool:
    """Return whether a test is of no recipe in particular, or of one in the fast tier; see laws/cases.py."""
    case = item.callspec.params.get("case") if hasattr(item, "callspec") else None
    return getattr(case, "name", None) in {None, *QUICK_CASES}


def pytest_collection_finish() -> None:
    """Keep the garbage collector from looking through all that is imported by now, again and again."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_exception_interact(node):
    """Apply the time limit to the teardown of a failed test too; pytest lifts it, for debuggers."""
    seconds = float(node.config.getini("faulthandler_timeout"))
    if seconds and isinstance(node, pytest.Item):
        faulthandler.dump_traceback_later(seconds, file=node.config.stash[fault_handler_stderr_fd_key], exit=True)


def pytest_runtest_setup() -> None:
    """Make an interrupt raise KeyboardInterrupt again: a command that ended in this process made it end the process."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)


# A shell starts background jobs with SIGINT ignored, and every process that a test starts would inherit that.
if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})

# Machines are loaded, so nothing depends on time; in CI the examples are the same every time.
settings.register_profile(
    "regard", deadline=None, derandomize="CI" in os.environ, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("regard")

# jsonschema, which reads notebooks, would compile a grammar of addresses for seconds; no notebook here has any.
sys.modules.setdefault("rfc3987_syntax", None)
torch.set_num_threads(1)  # two worker processes share two cores
gc.set_threshold(50_000, 20, 20)  # the default looks through all that is imported again and again
