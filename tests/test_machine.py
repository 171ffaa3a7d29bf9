"""What this process may use: limits of containers of both versions, limits of the shell, busy cores."""

import os
import resource
from pathlib import Path

import pytest
import torch

from regard import machine
from regard.cli import main
from regard.machine import allowed_cores, available_memory, prefers_onednn, suggest_threads

from .cli.command import Command

GB = 10**9


def system(root: Path, files: dict[str, str]) -> Path:
    """Write the files of a machine with 8 GB, and one running program."""
    usual = {
        "proc/meminfo": "MemTotal: 16000000 kB\nMemAvailable: 7812500 kB\n",
        "proc/loadavg": "0.5 0.5 0.5 1/100 4242\n",
        "proc/self/cgroup": "0::/\n",
        "proc/self/statm": "1000 500 100 1 0 500 0\n",
    }
    for name, text in {**usual, **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.fixture(autouse=True)
def _eight_cores(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)), raising=False)
    monkeypatch.setattr(machine, "sleep", lambda seconds: None)


V1 = {"proc/self/cgroup": "4:memory:/box\n1:cpu,cpuacct:/box\n0::/\n"}


def test_an_idle_machine_gives_all_its_cores(tmp_path):
    assert suggest_threads(system(tmp_path, {})) == 8


@pytest.mark.parametrize(
    "files",
    [
        {"sys/fs/cgroup/cpu.max": "200000 100000\n"},
        {"proc/self/cgroup": "0::/box/inner\n", "sys/fs/cgroup/box/cpu.max": "200000 100000\n"},
        V1
        | {"sys/fs/cgroup/cpu/box/cpu.cfs_quota_us": "200000\n", "sys/fs/cgroup/cpu/box/cpu.cfs_period_us": "100000\n"},
    ],
)
def test_the_quota_of_a_container_limits_the_threads(tmp_path, files):
    assert allowed_cores(system(tmp_path, files)) == 2


@pytest.mark.parametrize(
    "files", [{"sys/fs/cgroup/cpu.max": "max 100000\n"}, V1 | {"sys/fs/cgroup/cpu/box/cpu.cfs_quota_us": "-1\n"}]
)
def test_a_container_without_a_quota_has_all_cores(tmp_path, files):
    assert allowed_cores(system(tmp_path, files)) == 8


def test_a_small_quota_leaves_one_thread(tmp_path):
    assert allowed_cores(system(tmp_path, {"sys/fs/cgroup/cpu.max": "50000 100000\n"})) == 1


@pytest.mark.parametrize(("running", "threads"), [(1, 8), (4, 5), (9, 1), (40, 1)])
def test_cores_that_are_busy_are_left_to_others(tmp_path, running, threads):
    assert suggest_threads(system(tmp_path, {"proc/loadavg": f"0.5 0.5 0.5 {running}/100 4242\n"})) == threads


def test_the_affinity_limits_the_threads(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {1, 5, 6}, raising=False)
    assert suggest_threads(system(tmp_path, {})) == 3


def test_the_memory_of_the_machine(tmp_path):
    assert available_memory(system(tmp_path, {})) == 8 * GB


@pytest.mark.parametrize(
    "files",
    [
        {"sys/fs/cgroup/memory.max": f"{4 * GB}\n", "sys/fs/cgroup/memory.current": f"{3 * GB}\n"},
        V1
        | {
            "sys/fs/cgroup/memory/box/memory.limit_in_bytes": f"{4 * GB}\n",
            "sys/fs/cgroup/memory/box/memory.usage_in_bytes": f"{3 * GB}\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        },
    ],
)
def test_the_limit_of_a_container(tmp_path, files):
    assert available_memory(system(tmp_path, files)) == GB


def test_files_in_the_cache_of_a_container_do_not_count(tmp_path):
    files = {
        "memory.max": f"{4 * GB}\n",
        "memory.current": f"{4 * GB}\n",
        "memory.stat": f"anon 5\ninactive_file {GB}\n",
    }
    assert available_memory(system(tmp_path, {f"sys/fs/cgroup/{name}": text for name, text in files.items()})) == GB


def test_the_limit_of_the_shell(tmp_path, monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (2 * GB, 2 * GB))
    page = os.sysconf("SC_PAGE_SIZE")
    assert available_memory(system(tmp_path, {})) == 2 * GB - 1000 * page


def test_a_system_that_says_nothing(tmp_path):
    assert available_memory(tmp_path) is None
    assert suggest_threads(tmp_path) == 8


def test_threads_may_be_chosen_before_or_after_the_verb(monkeypatch, capsys):
    """Where nothing is chosen, no more than the free cores are used."""
    used: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", used.append)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 6)
    monkeypatch.setattr(main, "suggest_threads", lambda: 3)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    regard = Command(monkeypatch, capsys)
    for words in (["--threads", "5", "recipes"], ["recipes", "--threads=5"], ["recipes"]):
        assert regard(*words).code == 0
    assert used == [5, 5, 3]
    assert regard("recipes", "--threads", "0").code == 2
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert regard("recipes").code == 0
    assert used == [5, 5, 3]


def test_what_compiling_lacks_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(machine, "which", lambda name: None)
    assert machine.what_compiling_lacks("cpu") == "there is no C++ compiler (c++, g++, clang++, cl)"
    assert machine.what_compiling_lacks("mps") == ""
    monkeypatch.setattr(machine, "find_spec", lambda name: None)
    assert machine.what_compiling_lacks("cuda") == "Triton is not installed"
    assert not machine.has_triton()
    monkeypatch.setattr(machine, "find_spec", lambda name: name)
    assert machine.what_compiling_lacks("cuda") == "there is no C compiler (cc, gcc, clang)"
    monkeypatch.setattr(machine, "which", lambda name: name if name == "clang" else None)
    assert machine.what_compiling_lacks("cuda") == ""
    assert machine.has_triton()


@pytest.mark.parametrize(
    ("vendor", "family", "wanted"),
    [("AuthenticAMD", 26, True), ("AuthenticAMD", 25, False), ("GenuineIntel", 26, False)],
)
def test_onednn_is_preferred_on_processors_of_amd_from_zen_5_on(tmp_path: Path, vendor: str, family: int, wanted: bool):
    root = system(tmp_path, {"proc/cpuinfo": f"vendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: 2\n\n" * 2})
    assert prefers_onednn(root) == wanted


def test_without_a_description_of_the_processor_torch_decides(tmp_path: Path):
    assert not prefers_onednn(tmp_path)
