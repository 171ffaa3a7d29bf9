"""Ways to damage a file: bits, lengths, values of JSON and TOML, names."""

import json
import re
from pathlib import Path
from random import Random
from typing import Any

WEIRD: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 3, 0.5, -0.0, 1e308, float("nan"), float("inf"), 2**31, 2**63, 2**64, 10**30),
    *("", "x", "a" * 300, "\ud800", "\x00", "[bold]", "[/]", "../../x", "x\ny"),
    *([], [[]], {}, {"kind": "x"}, [1, "x", None], {"": {}}),
)
ODD_NAMES = (
    *("a b", "-x", "--help", "a=b", "é", "\udcff", "日本", "[bold]", "[/]", "{x}", "%s", "'", '"', "$(x)", "~"),
    *("a" * 200, "…", ".hidden", "a.", "#", "*", "\x1b[31m", "a\tb", "a:b", ":1", "\u202e", "a\nb"),
    *("model.safetensors", "recipe.toml"),
)
NOISE = (
    *(b"\xef\xbb\xbf", b"\xff\xfe", b"\x00" * 9, b"\r", b"\r\n", b"\xff", b"\xed\xa0\x80", b"\t" * 50, b'"'),
    *(b"\n" * 50, b"\x1b[2J", "\u2028\u0085\ufeff\u200b".encode(), b"[" * 3000, b"{" * 3000, b"9" * 5000),
    *(b"\\ud800", b"x" * 70_000, b"PK\x03\x04", b"\x1f\x8b\x08", b"<unk><s></s><pad>", b"[MASK]"),
    *("e\u0301\U0001f600".encode(), b"=1+1", b"nan", b"Infinity"),
)


def damage_file(path: Path, chance: Random) -> str:
    """Damage a file in one of many ways, often inside its first bytes; return what was done."""
    data = path.read_bytes()
    ways = [_flip, _flip, _cut, _insert, _overwrite, _repeat, _empty]
    if path.suffix == ".json" or path.suffix == ".jsonl":
        ways += [_change_json] * 8
    if path.suffix in (".toml", ".tsv", ".csv", ".txt"):
        ways += [_change_text] * 4
    if path.suffix == ".safetensors":
        ways += [_change_header] * 6
    way = chance.choice(ways)
    path.write_bytes(way(data, chance))
    return way.__name__.strip("_")


def damage_tree(path: Path, chance: Random) -> str:
    """Damage one file of a folder, remove it, or put something else in its place."""
    files = sorted(each for each in path.rglob("*") if each.is_file())
    if not files:
        return ""
    important = [one for one in files if one.suffix in (".json", ".safetensors", ".toml", ".jsonl")]
    one = chance.choice(important if important and chance.random() < 0.8 else files)
    name = one.relative_to(path)
    match chance.randrange(16):
        case 0:
            one.unlink()
            return f"{name} removed"
        case 1:
            one.unlink()
            one.mkdir()
            return f"{name} is a folder"
        case 2:
            other = chance.choice(files)
            one.write_bytes(other.read_bytes())
            return f"{name} is a copy of {other.relative_to(path)}"
        case 3:
            one.unlink()
            one.symlink_to(chance.choice([one.name, "nowhere", "/dev/null", ".", path.parent / "a.txt"]))
            return f"{name} is a link"
    return f"{name}: {damage_file(one, chance)}"


def _place(data: bytes, chance: Random) -> int:
    """Return a place in the data: any, or one near its beginning, where formats keep what they say about themselves."""
    return chance.randrange(min(len(data), chance.choice([16, 200, 10**9])) or 1)


def _flip(data: bytes, chance: Random) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.choice([1, 1, 3, 20])):
        if changed:
            changed[_place(data, chance)] ^= 1 << chance.randrange(8)
    return bytes(changed)


def _cut(data: bytes, chance: Random) -> bytes:
    return data[: _place(data, chance)]


def _insert(data: bytes, chance: Random) -> bytes:
    place = _place(data, chance)
    return data[:place] + chance.choice(NOISE) + data[place:]


def _overwrite(data: bytes, chance: Random) -> bytes:
    place, noise = _place(data, chance), chance.choice([*NOISE, chance.randbytes(8)])
    return data[:place] + noise + data[place + len(noise) :]


def _repeat(data: bytes, chance: Random) -> bytes:
    begin = _place(data, chance)
    piece = data[begin : begin + chance.choice([1, 10, 1000])]
    return data[:begin] + piece * chance.choice([2, 50]) + data[begin:]


def _empty(data: bytes, chance: Random) -> bytes:
    return chance.choice([b"", b"\n", b"{}", b"[]", b"null", b"0"])


def _change_json(data: bytes, chance: Random) -> bytes:
    """Replace, remove or add a value somewhere in JSON, or in one line of JSON."""
    lines = data.split(b"\n")
    number = chance.randrange(len(lines))
    for begin, end in ((0, len(lines)), (number, number + 1)):
        try:
            value = json.loads(b"\n".join(lines[begin:end]))
        except ValueError:
            continue
        return b"\n".join([*lines[:begin], json.dumps(change_value(value, chance)).encode(), *lines[end:]])
    return _flip(data, chance)


def change_value(value: Any, chance: Random) -> Any:
    """Return a value with one of its parts changed."""
    if isinstance(value, dict) and value and chance.random() < 0.9:
        key = chance.choice(sorted(value))
        match chance.randrange(8):
            case 0:
                return {other: item for other, item in value.items() if other != key}
            case 1:
                return value | {chance.choice(["", "x", "kind", key + "x"]): value[key]}
        return value | {key: change_value(value[key], chance)}
    if isinstance(value, list) and value and chance.random() < 0.9:
        place = chance.randrange(len(value))
        match chance.randrange(8):
            case 0:
                return [*value[:place], *value[place + 1 :]]
            case 1:
                return [*value, value[place]]
        return [*value[:place], change_value(value[place], chance), *value[place + 1 :]]
    if isinstance(value, bool | dict | list) or value is None or chance.random() < 0.5:
        return chance.choice(WEIRD)
    if isinstance(value, int | float):
        return chance.choice(
            [value + 1, value - 1, -value, value * 2, value / 2, float(value), value * 1000, str(value)]
        )
    return chance.choice([value * 2, value[:-1], value.upper(), value + "\n", [value]])


def _change_text(data: bytes, chance: Random) -> bytes:
    """Change the value of a key, or a cell, or the order of lines."""
    lines = data.decode(errors="replace").split("\n")
    place = chance.randrange(len(lines))
    match chance.randrange(5):
        case 0:
            del lines[place]
        case 1:
            lines.insert(place, chance.choice(lines))
        case 2:
            lines[place] = re.sub("[\t,=]", chance.choice(["", "\t", ",", "=", "\t\t", " "]), lines[place])
        case _:
            weird = chance.choice(WEIRD)
            text = weird if isinstance(weird, str) and chance.random() < 0.5 else json.dumps(weird)
            lines[place] = re.sub(r"(?<=[\t,=])[^\t,=]*$", lambda _: text, lines[place])
    return "\n".join(lines).encode("utf-8", "surrogatepass")


def _change_header(data: bytes, chance: Random) -> bytes:
    """Change the JSON header of a safetensors file."""
    size = int.from_bytes(data[:8], "little")
    try:
        header = json.dumps(change_value(json.loads(data[8 : 8 + size]), chance)).encode()
    except ValueError:
        return _flip(data, chance)
    length = len(header) if chance.random() < 0.9 else chance.choice([0, 1, 2**31, 2**63 - 1])
    return length.to_bytes(8, "little") + header + data[8 + size :]
