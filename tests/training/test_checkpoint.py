"""Checkpoints are exact to the bit, damage is detected, and a run killed at any moment leaves a good one."""

import json
import os
import resource
import shutil
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from safetensors.torch import load as load_bytes
from safetensors.torch import load_file
from torch import Tensor

from regard.atomic import sha256
from regard.errors import RegardError
from regard.runs.checkpoint import Checkpoint, checkpoint_steps, is_good, load_checkpoint
from regard.training import checkpoint
from regard.training.checkpoint import save_checkpoint

from ..processes import Forked

CHANGES = {"open", "write", "flush", "mkdir", "rename", "unlink", "rmdir"}
FILES = ["checksums.json", "facts.json", "state.safetensors"]


def state(step: int) -> dict[str, Tensor]:
    """Return some tensors that depend on the step."""
    return {"weight": torch.full((3, 2), float(step)), "count": torch.tensor(step)}


def save(folder: Path, step: int, keep: int = 2) -> Path:
    return save_checkpoint(folder, step, state(step), {"step": step}, keep)


def load(folder: Path) -> Checkpoint | None:
    """Load a checkpoint; a warning is an error."""
    return load_checkpoint(folder, pytest.fail)


def is_state(found: Checkpoint | None, step: int) -> bool:
    assert found is not None
    same = all(torch.equal(found.tensors[name], tensor) for name, tensor in state(step).items())
    return same and found.tensors.keys() == state(step).keys() and (found.step, found.facts) == (step, {"step": step})


# --- round trips -----------------------------------------------------------------------------------------------------

WIDTHS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
BASE = torch.arange(24, dtype=torch.float32).reshape(4, 6)
TENSORS = {
    **{f"random/{width}": torch.randint(0, 100, (5, 3)).to(dtype) for width, dtype in WIDTHS.items()},
    "half": torch.randn(3, dtype=torch.float16),
    "brain": torch.randn(3, 3).bfloat16(),
    "double": torch.randn(7, dtype=torch.float64),
    "small": torch.tensor([1, -2, 3], dtype=torch.int8),
    "wide": torch.tensor([2**63 + 1], dtype=torch.uint64),
    "eight": torch.randn(5).to(torch.float8_e4m3fn),
    "yes": torch.tensor([True, False, True]),
    "number": torch.tensor(3.5),
    "empty": torch.zeros(0, 4),
    "not a number": torch.tensor([0x7FC00001, 0x7F800001, -1, -(2**31)], dtype=torch.int32).view(torch.float32),
    "transposed": BASE.T,
    "strided": torch.arange(10)[::3],
    "expanded": torch.ones(1, 3).expand(4, 3),
    "shared": BASE,
    "row of shared": BASE[1],
    "parameter": torch.nn.Parameter(torch.randn(2, 2)),
    'a "name" wie ä/β': torch.ones(1),
}


def bits(tensor: Tensor) -> Tensor:
    return tensor.detach().contiguous().view(WIDTHS[tensor.element_size()])


def test_every_bit_comes_back(tmp_path: Path) -> None:
    path = save_checkpoint(tmp_path / "new" / "folder", 7, TENSORS, {})
    found = load(tmp_path / "new" / "folder")
    assert found is not None
    assert (found.step, found.path) == (7, path)
    assert found.tensors.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert found.tensors[name].dtype == tensor.dtype, name
        assert found.tensors[name].shape == tensor.shape, name
        assert torch.equal(bits(found.tensors[name]), bits(tensor)), name


def test_the_state_is_a_safetensors_file(tmp_path: Path) -> None:
    path = save(tmp_path, 100)
    assert path == tmp_path / "step-00000100"
    assert sorted(os.listdir(path)) == FILES
    assert load_file(path / "state.safetensors").keys() == state(100).keys()


def test_facts_come_back(tmp_path: Path) -> None:
    facts = {"loss": 0.1 + 0.2, "names": ["ä", None, True], "more": {"best": float("inf")}, "big": 2**70}
    save_checkpoint(tmp_path, 1, {}, facts)
    found = load(tmp_path)
    assert found is not None
    assert found.facts == facts
    assert json.loads((tmp_path / "step-00000001/facts.json").read_text())["format"] == 2


def test_facts_that_are_not_json_write_nothing(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="not JSON serializable"):
        save_checkpoint(tmp_path / "run", 1, {}, {"path": tmp_path})
    assert not (tmp_path / "run").exists()


def test_a_loaded_checkpoint_outlives_its_folder(tmp_path: Path) -> None:
    save(tmp_path, 1)
    found = load(tmp_path)
    shutil.rmtree(tmp_path)
    assert is_state(found, 1)


# --- which are kept --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keep", [1, 2, 3])
def test_the_newest_are_kept(tmp_path: Path, keep: int) -> None:
    for step in (5, 10, 100, 123456789):
        save(tmp_path, step, keep)
    assert checkpoint_steps(tmp_path) == [5, 10, 100, 123456789][-keep:]
    assert len(os.listdir(tmp_path)) == keep
    assert is_state(load(tmp_path), 123456789)


def test_an_empty_folder_has_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "step-00000005.part").mkdir()
    (tmp_path / "notes.txt").touch()
    for folder in (tmp_path, tmp_path / "missing", tmp_path / "notes.txt"):
        assert load(folder) is None
        assert checkpoint_steps(folder) == []


def test_later_steps_are_neither_removed_nor_counted(tmp_path: Path) -> None:
    """A run continued from step 10, since step 30 is damaged: what it saves must stay."""
    save(tmp_path, 10)
    (save(tmp_path, 30) / "facts.json").unlink()
    save(tmp_path, 20, keep=1)
    assert checkpoint_steps(tmp_path) == [20, 30]
    save(tmp_path, 30, keep=1)
    assert checkpoint_steps(tmp_path) == [30]
    assert is_state(load(tmp_path), 30)


def test_a_step_may_be_saved_again(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 4, {}, {}, keep=1)
    save(tmp_path, 4, keep=1)
    assert os.listdir(tmp_path) == ["step-00000004"]
    assert is_state(load(tmp_path), 4)


def test_a_folder_that_was_moved_aside_counts_only_while_its_place_is_empty(tmp_path: Path) -> None:
    save(tmp_path, 4).rename(tmp_path / "step-00000004.old")
    assert checkpoint_steps(tmp_path) == [4]
    assert is_state(load(tmp_path), 4)
    shutil.copytree(tmp_path / "step-00000004.old", tmp_path / "step-00000004")
    found = load(tmp_path)
    assert found is not None
    assert found.path == tmp_path / "step-00000004"


# --- damage ----------------------------------------------------------------------------------------------------------


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-2] ^= 1
    path.write_bytes(data)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def replace(text: str) -> Callable[[Path], None]:
    return lambda path: path.write_text(text) and None


def become_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def rewrite(path: Path, name: str, data: bytes) -> None:
    """Write another file, with its checksum."""
    (path / name).write_bytes(data)
    checksums = json.loads((path / "checksums.json").read_text())
    checksums[name] = sha256(path / name)
    (path / "checksums.json").write_text(json.dumps(checksums))


DAMAGE = [
    ("state.safetensors", flip, "state.safetensors does not match its checksum"),
    ("state.safetensors", truncate, "state.safetensors does not match its checksum"),
    ("state.safetensors", Path.unlink, "state.safetensors is missing"),
    ("state.safetensors", become_folder, "state.safetensors cannot be read: Is a directory"),
    ("facts.json", flip, "facts.json does not match its checksum"),
    ("facts.json", truncate, "facts.json does not match its checksum"),
    ("facts.json", Path.unlink, "facts.json is missing"),
    ("facts.json", lambda path: rewrite(path.parent, path.name, b"{"), "facts.json is not valid JSON"),
    ("facts.json", lambda path: rewrite(path.parent, path.name, b"\xff"), "facts.json is not valid JSON"),
    (
        "facts.json",
        lambda path: rewrite(path.parent, path.name, b'{"format": 3}'),
        "facts.json has format 3, but this version reads format 2",
    ),
    ("checksums.json", Path.unlink, "checksums.json is missing"),
    ("checksums.json", truncate, "checksums.json is not valid JSON"),
    ("checksums.json", replace("[]"), "checksums.json must contain a table, not list"),
    ("checksums.json", replace("{}"), "checksums.json does not list state.safetensors and facts.json"),
    (
        "state.safetensors",
        lambda path: rewrite(path.parent, path.name, b"12345678"),
        "state.safetensors cannot be read: Error while deserializing header: header too large",
    ),
]


@pytest.mark.parametrize(("name", "damage", "fault"), DAMAGE)
def test_damage_is_detected_and_the_previous_checkpoint_is_used(
    tmp_path: Path, name: str, damage: Callable[[Path], None], fault: str
) -> None:
    save(tmp_path, 90)
    damage(save(tmp_path, 100) / name)
    warnings: list[str] = []
    assert is_state(load_checkpoint(tmp_path, warnings.append), 90)
    assert warnings == [f"checkpoint step-00000100 is damaged ({fault}); using step-00000090"]


def test_every_single_bit_counts(tmp_path: Path) -> None:
    """A checkpoint with any changed byte, in any file, is not used."""
    save(tmp_path, 1)
    path = save(tmp_path, 2)
    for name in FILES:
        whole = (path / name).read_bytes()
        for place in range(len(whole)):
            (path / name).write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
            found = load_checkpoint(tmp_path, str)
            # only white space between the checksums may change
            assert is_state(found, 1) or (name == "checksums.json" and is_state(found, 2)), (name, place)
        (path / name).write_bytes(whole)
    assert is_state(load(tmp_path), 2)


def test_all_warnings_name_the_one_that_is_used(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        save(tmp_path, step, keep=3)
    for step in (2, 3):
        truncate(tmp_path / f"step-0000000{step}" / "facts.json")
    warnings: list[str] = []
    assert is_state(load_checkpoint(tmp_path, warnings.append), 1)
    fault = "facts.json does not match its checksum"
    assert warnings == [f"checkpoint step-0000000{step} is damaged ({fault}); using step-00000001" for step in (3, 2)]


def test_damage_everywhere_is_an_error(tmp_path: Path) -> None:
    for step in (1, 2):
        (save(tmp_path, step) / "facts.json").unlink()
    with pytest.raises(RegardError) as error:
        load(tmp_path)
    listed = "step-00000002 (facts.json is missing), step-00000001 (facts.json is missing)"
    remedy = "restore one, or remove them to start again"
    assert str(error.value) == f"{tmp_path}: every checkpoint is damaged: {listed}; {remedy}"


# --- disks that refuse -----------------------------------------------------------------------------------------------


def test_a_full_disk_keeps_the_last_good_one(tmp_path: Path) -> None:
    """A limit on the size of files simulates a full disk: writing begins, then fails."""
    save(tmp_path, 1)
    truncate(save(tmp_path, 2) / "facts.json")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(RegardError) as error:
            save_checkpoint(tmp_path, 3, {"large": torch.zeros(50_000)}, {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert str(error.value) == (
        f"{tmp_path}: cannot save step-00000003 (0.2 MB): File too large; free some space there or choose another "
        "folder; the last good checkpoint, step-00000001, is kept"
    )
    assert sorted(os.listdir(tmp_path)) == ["step-00000001", "step-00000002"]


@pytest.mark.parametrize("code", ["ENOSPC", "EDQUOT"])
def test_a_full_disk_is_reported_in_the_words_of_the_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    number = getattr(__import__("errno"), code)

    def refuse(_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(RegardError) as error:
        save(tmp_path, 3)
    assert str(error.value) == (
        f"{tmp_path}: cannot save step-00000003 (0.0 MB): {os.strerror(number)}; free some space there or "
        "choose another folder; there is no earlier checkpoint"
    )
    assert os.listdir(tmp_path) == []


def test_a_folder_that_was_moved_aside_is_put_back_before_anything_can_fail(tmp_path: Path) -> None:
    save(tmp_path, 4).rename(tmp_path / "step-00000004.old")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: os.stat(tmp_path / "missing"))
        with pytest.raises(RegardError, match="the last good checkpoint, step-00000004, is kept"):
            save(tmp_path, 6)
    assert (tmp_path / "step-00000004").is_dir()


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "run").touch()
    with pytest.raises(RegardError) as error:
        save(tmp_path / "run", 3)
    assert str(error.value) == (
        f"{tmp_path / 'run'}: cannot save step-00000003 (0.0 MB): File exists; make the folder writable or choose "
        "another folder; there is no earlier checkpoint"
    )


def test_a_folder_that_cannot_be_listed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", refuse)  # the user who runs the tests may be root
    with pytest.raises(RegardError) as error:
        load(tmp_path)
    assert str(error.value) == f"{tmp_path}: cannot list the checkpoints: Permission denied; make it readable"


def test_everything_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[object] = []
    sync, rename = os.fsync, Path.rename

    def record_sync(handle: int) -> None:
        events.append(os.fstat(handle).st_ino)
        sync(handle)

    def record_rename(path: Path, target: Path) -> Path:
        events.append(target.name)
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", record_sync)
    monkeypatch.setattr(Path, "rename", record_rename)
    path = save(tmp_path, 1)
    files = [(path / name).stat().st_ino for name in ("state.safetensors", "facts.json", "checksums.json")]
    assert events == [*files, path.stat().st_ino, "step-00000001", tmp_path.stat().st_ino]


# --- killed ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a killed process has written stays written, so the tests do not wait for the disk."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


def work_and_die(work: Callable[[], Any], calls: int) -> None:
    """Do some work; this process is killed before change number `calls` on the disk.

    Nothing on the disk changes between two such calls, so these are all moments that differ.
    """
    os.fsync = lambda _: None
    left = calls

    def count(_: FrameType, event: str, function: Any) -> None:
        nonlocal left
        left -= event == "c_call" and function.__name__ in CHANGES
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(count)
    work()
    sys.setprofile(None)


def run_and_kill(work: Callable[[], Any], calls: int) -> bool:
    """Do some work in another process; return whether it was killed before the end."""
    ended = Forked(work_and_die, work, calls).end()
    assert ended.code in (0, -signal.SIGKILL), ended.said
    return ended.code != 0


def save_new(folder: Path, step: int, keep: int) -> None:
    save_checkpoint(folder, step, state(7), {"new": 1}, keep)


def save_repeatedly(folder: Path) -> None:
    """Continue from the newest checkpoint."""
    found = load(folder)
    for step in range(0 if found is None else found.step, 1000):
        save(folder, step + 1, keep=1 + step % 2)


@pytest.mark.parametrize(
    ("before", "after", "keep"),
    [((), 1, 1), ((1,), 2, 1), ((1, 2), 3, 2), ((2,), 2, 1)],
    ids=["the first", "next, keep one", "next, keep two", "again"],
)
@pytest.mark.usefixtures("quick_disk")
def test_a_run_killed_at_any_moment_leaves_a_good_checkpoint(
    tmp_path: Path, before: tuple[int, ...], after: int, keep: int
) -> None:
    moment, seen = 0, set()
    killed = True
    while killed:
        moment += 1
        folder = tmp_path / str(moment)
        for step in before:
            save(folder, step, keep)
        killed = run_and_kill(partial(save_new, folder, after, keep), moment)
        found = load(folder)
        new = found is not None and found.facts == {"new": 1}
        seen.add(new)
        if new:
            assert found.step == after
            assert torch.equal(found.tensors["weight"], state(7)["weight"])
        elif before:
            assert is_state(found, before[-1])
        else:
            assert found is None
        assert [path for path in folder.glob("step-????????") if not is_good(path)] == []
        save(folder, 9, keep=1)  # which also tidies up
        assert os.listdir(folder) == ["step-00000009"]
        assert is_state(load(folder), 9)
    assert moment > 15
    assert seen == {False, True}


@pytest.mark.usefixtures("quick_disk")
def test_a_run_that_is_killed_repeatedly_continues(tmp_path: Path) -> None:
    """Each process saves until it is killed; the next continues from what it finds, which is never older."""
    reached = 0
    for life in range(40):
        assert run_and_kill(partial(save_repeatedly, tmp_path), 20 + 7 * life)
        found = load(tmp_path)
        assert is_state(found, found.step if found else 0)
        assert found is not None
        assert found.step >= reached
        reached = found.step
    assert reached > 40


def test_tensors_of_an_accelerator_are_copied_in_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "TOGETHER", 100)
    sizes = [10, 10, 5, 30, 1, 1]  # of four bytes each
    away = [torch.empty(size, device="meta") for size in sizes]
    assert [[len(each) for each in group] for group in checkpoint._groups(away)] == [[10, 10, 5], [30], [1, 1]]
    assert [len(group) for group in checkpoint._groups([torch.empty(size) for size in sizes])] == [1] * 6


def test_a_file_does_not_depend_on_the_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = (torch.float32, torch.bfloat16, torch.int64, torch.bool)
    tensors = {str(kind): (10 * torch.randn(3, 4)).to(kind).T for kind in kinds}
    alone = b"".join(bytes(piece) for piece in checkpoint._safetensors(tensors))
    monkeypatch.setattr(checkpoint, "_groups", lambda tensors: [tensors])
    assert b"".join(bytes(piece) for piece in checkpoint._safetensors(tensors)) == alone
    found = load_bytes(alone)
    assert all(torch.equal(found[name], tensor) for name, tensor in tensors.items())
