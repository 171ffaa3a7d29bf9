"""The fuzzer in small: no command ends in a traceback, hangs, touches other files, or explains itself in many lines."""

import sys
from pathlib import Path

import pytest

from regard.cli import main as cli

from . import run
from .cases import Case, bases, draw_case, keys, verbs
from .run import Fuzzer
from .world import make_world

FIRST, CASES = 1, 60  # always the same; `make fuzz` tries others


@pytest.fixture(scope="module")
def fuzzer(tmp_path_factory: pytest.TempPathFactory) -> Fuzzer:
    folder = tmp_path_factory.mktemp("fuzz")
    return Fuzzer(make_world(folder / "world"), folder)


def test_random_commands_keep_the_rules(fuzzer: Fuzzer):
    failures = [failure for seed in range(FIRST, FIRST + CASES) if (failure := fuzzer.try_seed(seed))]
    told = [f"python -m tests.fuzz --seed {one.case.seed}\n{one.details}" for one in failures]
    assert not told, "\n\n".join(told)


def test_a_valid_command_of_every_verb_works(fuzzer: Fuzzer, monkeypatch: pytest.MonkeyPatch):
    """Otherwise random options would be tried only on errors. Training is tried elsewhere."""
    for name, (base, *_) in bases().items():
        if not name.startswith(("train", "compare", "tune")):
            ended = []
            monkeypatch.setattr(run, "_broken", lambda *facts, ended=ended: ended.append(facts[2:4]))
            fuzzer.try_case(Case(0, [*name.split(), *base], b"one red dog\n", outputs=["out", *base]))
            assert [code for code, _ in ended] == [0], (name, ended)


def test_every_verb_and_key_is_found():
    assert {name.split()[0] for name in verbs() if name} == {"train", *cli.VERBS}
    assert bases().keys() == verbs().keys() - {"", "train task"}
    paths = {path for path, _ in keys()}
    assert {"train.optimizer.rate", "model.layers.block.mixer", "task.column", "tokenizer.vocabulary"} <= paths


def test_a_case_follows_from_its_seed():
    assert [draw_case(seed) for seed in range(50)] == [draw_case(seed) for seed in range(50)]


# --- the rules are checked -------------------------------------------------------------------------------------------


def act(fuzzer: Fuzzer, monkeypatch: pytest.MonkeyPatch, program: str, *outputs: str) -> str | None:
    """Run a program in place of the command; return the rule that it breaks."""
    monkeypatch.setattr(run, "main", lambda: exec(program, {"sys": sys, "Path": Path}))
    failure = fuzzer.try_case(Case(0, ["show", *outputs], outputs=list(outputs)))
    return None if failure is None else failure.rule


@pytest.mark.parametrize(
    ("program", "rule"),
    [
        ("print('fine')", None),
        ("1 / 0", "an exception: ZeroDivisionError"),
        ("sys.exit(3)", "exit code 3"),
        ("sys.exit(2)", "an error without a message"),
        ("print('regard: a\\nb', file=sys.stderr); sys.exit(2)", "an error of several lines"),
        ("print('regard: a.txt: x; y', file=sys.stderr); sys.exit(2)", None),
        ("print('regard: train.x: a\\ntrain.y: b', file=sys.stderr); sys.exit(2)", None),
        ("print('regard: \\x1b[2J', file=sys.stderr); sys.exit(2)", "the error has an escape sequence"),
        ("import os; os.write(2, b'thread panicked at x')", "standard error has 'panicked at'"),
        ("print('a.py:1: UserWarning: x', file=sys.stderr)", "standard error has 'a.py:1: UserWarning'"),
        ("Path('new').touch()", "touched here/new"),
        ("Path('a.txt').unlink()", "touched here/a.txt"),
        ("Path('language/model.safetensors').touch()", "touched here/language/model.safetensors"),
        ("Path.home().joinpath('x').touch()", "touched home/x"),
        ("import tempfile; tempfile.mkstemp(prefix='x', suffix='x')", "touched tmp/"),
        ("Path('out').mkdir(); Path('out/x').touch(); Path('runs').mkdir()", None),
    ],
)
def test_a_broken_rule_is_noticed(fuzzer: Fuzzer, monkeypatch: pytest.MonkeyPatch, program: str, rule: str | None):
    found = act(fuzzer, monkeypatch, program, "out")
    assert found == rule or (found and rule and rule.endswith("/") and found.startswith(rule))


@pytest.mark.parametrize(
    "program",
    [
        "Path('{0}/x').write_text('new')",
        "Path('{0}/x').unlink()",
        "Path('a.txt').rename('{0}/x')",
        "Path('{0}/x').rename('out')",
        "import shutil; shutil.rmtree('{0}')",
        "Path('out').symlink_to('{0}/x'); Path('out').write_text('new')",
    ],
)
def test_a_change_elsewhere_is_noticed_and_prevented(
    fuzzer: Fuzzer, monkeypatch: pytest.MonkeyPatch, program: str, tmp_path: Path
):
    (tmp_path / "x").write_text("old")
    assert act(fuzzer, monkeypatch, program.format(tmp_path), "out") in (
        f"touched {tmp_path}/x",
        "an exception: PermissionError",
    )
    assert (tmp_path / "x").read_text() == "old"


def test_a_hang_is_noticed(fuzzer: Fuzzer, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(run, "SECONDS", 0.01)
    assert act(fuzzer, monkeypatch, "while True: pass") == "no end in time"
