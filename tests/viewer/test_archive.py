"""Archives: what is packed can be unpacked again, also by the page."""

import json
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import InputError
from regard.viewer.archive import pack_archive, unpack_archive


@given(st.dictionaries(st.text(min_size=1), st.binary()))
def test_what_is_packed_comes_out_again(entries):
    assert unpack_archive(pack_archive(entries.items())) == entries


def test_it_is_laid_out_as_the_page_reads_it():
    entries = {"recordings.json": b"[]", "ünd/b": b"", "c": b"\x00\xff"}
    whole = zlib.decompress(pack_archive(entries.items()))
    length = int.from_bytes(whole[:4], "little")
    index, data = json.loads(whole[4 : 4 + length].decode()), whole[4 + length :]
    assert index == {"recordings.json": [0, 2], "ünd/b": [2, 0], "c": [2, 2]}
    assert data == b"[]\x00\xff"


def test_the_same_entries_give_the_same_bytes():
    assert pack_archive([("a", b"1"), ("b", b"2")]) == pack_archive([("a", b"1"), ("b", b"2")])


def test_a_path_is_packed_once():
    with pytest.raises(ValueError, match="'a' is packed twice"):
        pack_archive([("a", b"1"), ("a", b"2")])


def damaged() -> dict[str, bytes]:
    good = pack_archive([("a", b"1234567890")])
    whole = zlib.decompress(good)
    return {
        "empty": b"",
        "text": b"hello",
        "cut": good[:-3],
        "short": zlib.compress(whole[:-2]),
        "no index": zlib.compress(b"\x02\x00\x00\x00{"),
        "a list": zlib.compress(b"\x02\x00\x00\x00[]"),
        "wrong index": zlib.compress(b'\x07\x00\x00\x00{"a":1}'),
    }


@pytest.mark.parametrize("name", damaged())
def test_bytes_that_are_not_an_archive(name):
    with pytest.raises(InputError, match="not a recording file, or truncated; export it again"):
        unpack_archive(damaged()[name])


def test_an_archive_that_unpacks_to_far_more_than_its_size_is_refused(monkeypatch):
    monkeypatch.setattr("regard.untrusted.SPARE", 1000)
    with pytest.raises(InputError, match="not a recording file, or truncated"):
        unpack_archive(pack_archive([("a", bytes(10_000_000))]))


def test_paths_of_an_archive_do_not_share_bytes():
    header = json.dumps({str(number): [0, 1000] for number in range(1000)}).encode()
    whole = len(header).to_bytes(4, "little") + header + bytes(1000)
    with pytest.raises(InputError, match="not a recording file, or truncated"):
        unpack_archive(zlib.compress(whole))
