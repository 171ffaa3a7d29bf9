"""The cache: keys that notice every change of a file, entries that survive damage, races and kills."""

import json
import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from regard.data import cache as module
from regard.data.cache import CacheKey, Entry, cache_folder, cached, digest, file_key
from regard.data.tokenizer import TokenizerConfig
from regard.errors import InputError, RegardError

from ..processes import Forked
from ..tasks.corpora import prepare, sentences, write


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "things"


def writes(content: str, calls: list[str] | None = None) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (calls if calls is not None else []).append(content)
        (folder / "a.txt").write_text(content)
        (folder / "inside").mkdir()
        (folder / "inside" / "b.txt").write_text(content * 2)

    return write


def get(content: str, calls: list[str] | None = None, **settings: object) -> Entry:
    return cached("things", CacheKey({}, settings), writes(content, calls))


def folders(cache: Path) -> list[Path]:
    return sorted(cache.iterdir())


# --- keys ------------------------------------------------------------------------------------------------------------


def test_every_change_of_a_file_changes_its_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.txt"
    path.write_text("abc")
    keys = [file_key(path)]
    monkeypatch.chdir(tmp_path)
    assert file_key(Path("a.txt")) == keys[0]
    path.write_text("abcd")
    keys.append(file_key(path))
    os.utime(path, ns=(1, 1))
    keys.append(file_key(path))
    path.with_name("b.txt").write_text("abcd")
    os.utime(path.with_name("b.txt"), ns=(1, 1))
    path.with_name("b.txt").replace(path)  # another file of the same size and the same time, as from tar or rsync
    keys.append(file_key(path))
    path.write_text("efgh")
    os.utime(path, ns=(1, 1))
    keys.append(file_key(path))
    assert len({json.dumps(key) for key in keys}) == len(keys)


def test_a_folder_is_identified_by_the_files_inside(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "c.txt").write_text("abc")
    first = file_key(tmp_path / "a")
    os.utime(tmp_path / "a" / "b" / "c.txt", ns=(1, 1))
    assert file_key(tmp_path / "a") != first


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(RegardError, match=r"b.txt: no such file; check the path$"):
        CacheKey({"files": [tmp_path / "b.txt"]}, {})


def test_files_roles_settings_and_versions_are_in_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "ab":
        (tmp_path / name).write_text(name)
    a, b = tmp_path / "a", tmp_path / "b"
    key = CacheKey({"source": [a], "target": [b]}, {"seed": 1})
    others = [
        CacheKey({"source": [b], "target": [a]}, {"seed": 1}),
        CacheKey({"source": [a, b]}, {"seed": 1}),
        CacheKey({"source": [a, b], "target": []}, {"seed": 1}),
        CacheKey({"source": [a], "target": [b]}, {"seed": 2}),
        key.adding(variant=1),
    ]
    names = {each.name() for each in (key, *others)}
    monkeypatch.setattr(module, "FORMAT", module.FORMAT + 1)
    names.add(key.name())
    monkeypatch.setattr(module, "__version__", "another")
    names.add(key.name())
    assert len(names) == len(others) + 3


def test_parts_of_a_digest_are_kept_apart() -> None:
    assert digest("ab", "c") != digest("a", "bc") != digest("abc")


# --- entries ---------------------------------------------------------------------------------------------------------


def test_an_entry_is_made_once(cache: Path) -> None:
    calls: list[str] = []
    first, again = (get("x", calls, file="a") for _ in range(2))
    assert first == again
    assert (calls, (first.folder / "a.txt").read_text()) == (["x"], "x")
    assert set(first.checksums) == {"a.txt", "inside/b.txt"}
    get("y", calls, file="b")
    assert (calls, len(folders(cache))) == (["x", "y"], 2)


@pytest.mark.parametrize("name", ["a.txt", "inside/b.txt", "checksums.json"])
@pytest.mark.parametrize("damage", ["missing", "empty", "short", "zeros", "a flipped bit"])
def test_a_damaged_entry_is_made_again(name: str, damage: str) -> None:
    path = get("some text").folder / name
    facts, content = path.stat(), path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        changes = {"empty": b"", "short": content[:-1], "zeros": bytes(len(content))}
        path.write_bytes(changes.get(damage, bytes([content[0] ^ 1]) + content[1:]))
        os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    calls: list[str] = []
    entry = get("some text", calls)
    assert calls == ["some text"]
    assert (entry.folder / "a.txt").read_text() == "some text"
    assert get("some text", calls) == entry
    assert calls == ["some text"]


def test_checksums_are_computed_once_for_files_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = get("x")
    read: list[str] = []
    checksum = module.file_checksum
    monkeypatch.setattr(module, "file_checksum", lambda path: read.append(path.name) or checksum(path))
    assert get("x") == entry
    assert read == []
    os.utime(entry.folder / "a.txt")  # may have been written
    assert get("x") == entry
    assert sorted(read) == ["a.txt", "b.txt"]
    monkeypatch.setattr(module, "BOOT", tmp_path / "boot")  # a crash may have lost what was written
    (tmp_path / "boot").write_text("another\n")
    assert get("x") == entry
    assert len(read) == 4
    (entry.folder / "checked.json").write_text("[")
    assert get("x") == entry
    assert len(read) == 6


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, OSError])
def test_a_failure_leaves_no_entry(error: type[BaseException], cache: Path) -> None:
    def write(folder: Path) -> None:
        (folder / "a.txt").write_text("half")
        raise error

    with pytest.raises(error):
        cached("things", CacheKey({}, {}), write)
    assert folders(cache) == []


CHANGED = r"a\.txt: has changed since this program began to read it; restore it, or start again when it is complete"


def test_a_file_that_has_changed_is_not_read_again(tmp_path: Path, cache: Path) -> None:
    """Later versions of BPE-dropout are made long after the key."""

    def never(folder: Path) -> None:
        pytest.fail("it is read")

    path = tmp_path / "a.txt"
    path.write_text("abc")
    key = CacheKey({"files": [path]}, {})
    cached("things", key, lambda folder: None)
    path.write_text("abcd")
    cached("things", key, never)  # what is in the cache needs no file
    with pytest.raises(InputError, match=CHANGED):
        cached("things", key.adding(variant=1), never)


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("abc")

    def write(folder: Path) -> None:
        (folder / "a.txt").write_text(path.read_text())
        path.write_text("abcd")

    with pytest.raises(InputError, match=CHANGED):
        cached("things", CacheKey({"files": [path]}, {}), write)
    assert folders(cache) == []


def test_a_cache_that_is_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "cache").touch()
    with pytest.raises(RegardError, match=r"cache/things: cannot be written: .*REGARD_CACHE"):
        get("x")


def test_the_place_of_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    monkeypatch.setenv("REGARD_CACHE", "~/own")
    assert cache_folder() == Path("/home/me/own")
    monkeypatch.delenv("REGARD_CACHE")
    assert cache_folder() == Path("/xdg/regard")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path("/home/me/.cache/regard")


# --- processes -------------------------------------------------------------------------------------------------------


def _log(path: Path, folder: Path) -> None:
    (folder / "a.txt").write_text("x" * 1000)
    with path.open("a") as log:
        log.write("made\n")


def _get_many(log: Path, keys: int) -> None:
    for number in range(keys):
        entry = cached("things", CacheKey({}, {"number": number}), partial(_log, log))
        assert (entry.folder / "a.txt").read_text() == "x" * 1000


def _die(folder: Path) -> None:
    (folder / "half").write_text("x")
    os.kill(os.getpid(), signal.SIGKILL)


def _get_and_die() -> None:
    cached("things", CacheKey({}, {}), _die)


def test_eight_processes_on_an_empty_cache_make_each_entry_once(tmp_path: Path, cache: Path) -> None:
    processes = [Forked(_get_many, tmp_path / "log", 20) for _ in range(8)]
    ended = [process.end() for process in processes]
    assert [each.code for each in ended] == [0] * 8, "\n".join(each.said for each in ended)
    assert (tmp_path / "log").read_text() == "made\n" * 20
    assert len(folders(cache)) == 20


def test_eight_processes_replace_damaged_entries_once(tmp_path: Path, cache: Path) -> None:
    _get_many(tmp_path / "first", 20)
    for folder in folders(cache):
        (folder / "a.txt").write_text("")
    processes = [Forked(_get_many, tmp_path / "log", 20) for _ in range(8)]
    ended = [process.end() for process in processes]
    assert [each.code for each in ended] == [0] * 8, "\n".join(each.said for each in ended)
    assert (tmp_path / "log").read_text() == "made\n" * 20
    assert len(folders(cache)) == 20


def _prepare_with_dropout(folder: Path) -> None:
    tokenizer = TokenizerConfig("bpe", 280, dropout=0.5)
    print(prepare("translation", tokenizer, 3, source=(f"{folder}/a.de",), target=(f"{folder}/a.en",)).fingerprint())


def test_eight_processes_prepare_the_same_data_on_an_empty_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "a.de", sentences(60))
    write(tmp_path / "a.en", sentences(60, seed=1))
    ended = [process.end() for process in [Forked(_prepare_with_dropout, tmp_path) for _ in range(8)]]
    assert [each.code for each in ended] == [0] * 8, ended[0].said
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "another"))
    alone = Forked(_prepare_with_dropout, tmp_path).end()
    assert {each.said.split()[-1] for each in ended} == {alone.said.split()[-1]}
    assert len(list((tmp_path / "cache" / "tokenizers").iterdir())) == 1
    assert len(list((tmp_path / "cache" / "corpora").iterdir())) == 1  # other variants are made while a model learns


def test_what_a_killed_process_left_is_removed_by_the_next(cache: Path) -> None:
    assert Forked(_get_and_die).end().code == -signal.SIGKILL
    [left] = folders(cache)
    assert left.name.endswith(".part")
    entry = get("x")
    assert folders(cache) == [entry.folder]
