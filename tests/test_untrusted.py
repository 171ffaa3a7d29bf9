"""JSON and TOML from outside: one line for every mistake, and one function that reads it."""

from pathlib import Path

import pytest

import regard
from regard.errors import ConfigError, RegardError
from regard.recipe_files import override, read_recipe
from regard.untrusted import DEEPEST, most_unpacked, parse_json, parse_toml, read_json


@pytest.mark.parametrize(
    "content",
    [b"[" * 100_000, b'{"a":' * 5000 + b"1" + b"}" * 5000, b'{"a": \xff}', b"{", b"1" * 5000, b"[]", b"", b"\0"],
)
def test_damaged_json_is_one_line_with_the_place(tmp_path, content):
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(RegardError, match=r"config\.json: (is not valid JSON: |must contain a table, not )") as caught:
        read_json(path)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_json_that_is_missing_or_fine(tmp_path):
    with pytest.raises(RegardError, match=r"none\.json: cannot be read: No such file or directory"):
        read_json(tmp_path / "none.json")
    assert parse_json('{"a": [1, 2.5, "x"]}', "here") == {"a": [1, 2.5, "x"]}


@pytest.mark.parametrize("content", ["a = " + "[" * 3000, ".".join("a" * 3000) + " = 1", "a = 1" + "0" * 5000, "a ="])
def test_damaged_toml_is_one_line_with_the_place(tmp_path, content):
    path = tmp_path / "recipe.toml"
    path.write_text(content)
    with pytest.raises(ConfigError, match=r"recipe\.toml: is not valid TOML: ") as caught:
        read_recipe(path)
    assert "\n" not in str(caught.value)
    with pytest.raises(ConfigError, match="^here: is not valid TOML"):
        parse_toml(content, "here")


def test_toml_may_begin_with_a_byte_order_mark(tmp_path):
    path = tmp_path / "recipe.toml"
    path.write_bytes(b"\xef\xbb\xbfabout = 'saved by an editor'\r\n")
    assert read_recipe(path) == {"about": "saved by an editor"}


def test_an_override_below_too_many_tables_is_one_line():
    with pytest.raises(ConfigError, match=r"must have the form path\.to\.key=value"):
        override({}, [".".join("a" * (DEEPEST + 1)) + "=1"])
    assert override({}, ["a=" + "[" * 5000])["a"] == "[" * 5000


def test_json_of_files_is_read_by_one_function():
    """`json.loads` elsewhere only reads what the tokenizers library wrote itself."""
    files = [path for path in Path(regard.__file__).parent.rglob("*.py") if path.name != "untrusted.py"]
    lines = [line for path in files for line in path.read_text().splitlines() if "json.load" in line]
    assert [line for line in lines if ".to_str()" not in line] == []
    assert not any("tomllib.load" in path.read_text() for path in files)


def test_an_archive_may_hold_a_hundred_times_its_size():
    assert most_unpacked(1_000_000) == 100_000_000 + 64 * 1024**2
