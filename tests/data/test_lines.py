"""Lines and blocks of text files: every packing, every mistake, and bounded memory."""

import bz2
import gzip
import lzma
import random
import re
import sys
import tempfile
import tracemalloc
from pathlib import Path
from unittest import mock

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from regard.data import lines
from regard.data.lines import NOT_TEXT, content_suffix, read_blocks, read_line_parts, read_lines
from regard.errors import InputError, RegardError

PACK = {
    "": bytes,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
    ".zst": zstandard.ZstdCompressor().compress,
}
NOISE = "".join(random.Random(0).choices("abcdefghij \n", k=300_000))  # hard to compress: fills several blocks
packed = pytest.mark.parametrize("suffix", PACK)
truncatable = pytest.mark.parametrize("suffix", [suffix for suffix in PACK if suffix])


def write(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


@packed
def test_lines_of_every_packing(tmp_path, suffix):
    path = write(tmp_path, f"a.txt{suffix}", PACK[suffix]("one\ntwo\n\nvier ä €".encode()))
    assert list(read_lines(path)) == ["one", "two", "", "vier ä €"]


@packed
def test_many_blocks_of_every_packing(tmp_path, suffix):
    path = write(tmp_path, f"a.txt{suffix}", PACK[suffix](NOISE.encode()))
    assert "".join(text for _, text in read_blocks(path)) == NOISE
    assert list(read_lines(path)) == NOISE.removesuffix("\n").split("\n")


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".bz2", ".zst"])
def test_archives_joined_end_to_end_are_one_text(tmp_path, suffix):
    path = write(tmp_path, f"a.txt{suffix}", PACK[suffix](b"one\ntw") + PACK[suffix](b"o\nthree\n"))
    assert list(read_lines(path)) == ["one", "two", "three"]


def test_byte_order_mark_and_windows_line_ends_go_other_separators_stay(tmp_path):
    path = write(tmp_path, "a.txt", "\ufeffone\r\ntwo\u2028still two\x85\x0c\rtwo\r\n\ufeffthree\r".encode())
    assert list(read_lines(path)) == ["one", "two\u2028still two\x85\x0c\rtwo", "\ufeffthree\r"]


def test_a_last_line_end_begins_no_line(tmp_path):
    assert list(read_lines(write(tmp_path, "a", b"one\n"))) == ["one"]
    assert list(read_lines(write(tmp_path, "a", b"one"))) == ["one"]
    assert list(read_lines(write(tmp_path, "a", b"\n\n"))) == ["", ""]


@given(
    text=st.text(st.sampled_from(" \n\r\tabä€😀\ufeff\u2028"), min_size=1, max_size=80),
    block=st.integers(1, 9),
    longest=st.integers(8, 12),
)
def test_whatever_the_blocks_nothing_is_lost(text, block, longest):
    expected = text.removeprefix("\ufeff").replace("\r\n", "\n")
    if not expected:
        return
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.multiple(lines, BLOCK=block, LONGEST=longest),
    ):
        path = write(Path(folder), "a.txt", text.encode())
        blocks = list(read_blocks(path))
        assert "".join(text for _, text in blocks) == expected
        whole = expected.removesuffix("\n").split("\n")
        assert list(read_lines(path, longest=80)) == whole
        cuts: list[str] = []
        assert list(read_lines(path, cuts.append)) == [line[:longest] for line in whole]
        assert cuts == [f"{path}:{number}" for number, line in enumerate(whole, 1) if len(line) > longest]
        joined = "".join(text + "\n" * ends for text, ends in read_line_parts(path))
        assert joined.removesuffix("\n") == expected.removesuffix("\n")
    before = ""
    for number, text in blocks:
        assert text
        assert number == 1 + before.count("\n")
        before += text


def test_a_long_line_is_cut_after_a_space(tmp_path):
    words = " ".join(f"word{number}" for number in range(300_000))
    blocks = [text for _, text in read_blocks(write(tmp_path, "a.txt", words.encode()))]
    assert len(blocks) > 2
    assert "".join(blocks) == words
    assert all(text.endswith(" ") for text in blocks[:-1])


def test_reading_takes_bounded_memory(tmp_path):
    path = write(tmp_path, "a.txt.gz", gzip.compress(b"no line end " * 2_000_000, 1))
    tracemalloc.start()
    size = sum(len(text) for _, text in read_blocks(path))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert size == 24_000_000
    assert peak < 9_000_000


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_a_line_without_an_end_takes_bounded_memory(tmp_path, suffix):
    path = write(tmp_path, f"a.txt{suffix}", PACK[suffix](b"no line end " * 3_000_000 + b"\nnext"))
    cuts: list[str] = []
    tracemalloc.start()
    long, following = read_lines(path, cuts.append)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (len(long), following) == (lines.LONGEST, "next")
    assert cuts == [f"{path}:1"]
    assert peak < 24_000_000


def test_many_small_frames_of_zst_that_unpack_to_64_megabytes_are_read(tmp_path):
    frame = zstandard.ZstdCompressor(level=1).compress(bytes(1 << 20).replace(b"\0", b"a"))
    path = write(tmp_path, "a.zst", frame * 64)
    assert sum(len(text) for _, text in read_blocks(path)) == 64 << 20


@pytest.mark.parametrize("suffix", [".xz", ".zst"])
def test_an_archive_that_asks_for_too_large_a_window_is_refused(tmp_path, suffix):
    if suffix == ".xz":
        content = lzma.compress(b"text\n", filters=[{"id": lzma.FILTER_LZMA2, "dict_size": (1 << 29)}])
    else:
        parameters = zstandard.ZstdCompressionParameters(window_log=29, enable_ldm=True)
        compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
        content = compressor.compress(b"text\n") + compressor.flush()
    rule = "needs more than 256 MiB of memory to be unpacked; compress it again with a smaller window"
    with pytest.raises(InputError, match=rule):
        list(read_lines(write(tmp_path, f"a{suffix}", content)))


def test_padding_between_and_after_xz_archives_is_ignored(tmp_path):
    content = lzma.compress(b"one\n") + bytes(1024) + lzma.compress(b"two\n") + bytes(4)
    assert list(read_lines(write(tmp_path, "a.xz", content))) == ["one", "two"]


@truncatable
def test_a_truncated_archive_gives_its_beginning_and_then_an_error(tmp_path, suffix):
    content = PACK[suffix](NOISE.encode() * 4)  # more than one block of bz2
    path = write(tmp_path, f"a.txt{suffix}", content[: len(content) * 2 // 3])
    reader = read_lines(path)
    assert next(reader) == NOISE.split("\n")[0]
    with pytest.raises(
        InputError, match=r"a\.txt\.\w+: broken or truncated archive \(.+\); download or compress it again$"
    ):
        list(reader)


@truncatable
def test_a_file_that_is_not_an_archive_is_called_broken(tmp_path, suffix):
    path = write(tmp_path, f"a.txt{suffix}", b"plain text that only claims to be packed\n")
    with pytest.raises(InputError, match="broken or truncated archive"):
        list(read_lines(path))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"good\n" * 16 + b"caf\xe9\n", "a.txt:17: not valid UTF-8 (byte 0xe9); save the file as UTF-8"),
        ("a.txt", b"\r\n" * 70_000 + b"\xff", "a.txt:70001: not valid UTF-8 (byte 0xff); save the file as UTF-8"),
        ("a.txt", b"cut \xe2\x82", "a.txt:1: not valid UTF-8 (byte 0xe2); save the file as UTF-8"),
        ("a.txt", "one\ntwo".encode("utf-16-le"), "a.txt:1: not text (it holds NUL bytes); if it is UTF-16, save"),
        ("a.txt", b"one\ntwo\0", "a.txt:2: not text (it holds NUL bytes)"),
        ("a.txt", b"", "a.txt: is empty; it must hold at least one line"),
        ("a.txt", b"\xef\xbb\xbf", "a.txt: is empty; it must hold at least one line"),
        ("a.txt.gz", gzip.compress(b"", mtime=0), "a.txt.gz: is empty; it must hold at least one line"),
        (
            "a.pdf",
            b"%PDF",
            "a.pdf: cannot be read as text; what can be read: text (.txt, .md, .de, ...) and tables (.tsv",
        ),
        ("a.TAR.gz", b"", "a.TAR.gz: cannot be read as text"),
    ],
)
def test_mistakes(tmp_path, name, content, message):
    path = write(tmp_path, name, content)
    with pytest.raises(InputError, match="^" + re.escape(f"{tmp_path}/{message}")):
        list(read_lines(path))


def test_missing_files_and_folders(tmp_path):
    with pytest.raises(InputError, match=r"none\.txt: no such file; check the path$"):
        list(read_lines(tmp_path / "none.txt"))
    with pytest.raises(InputError, match=f"^{tmp_path}: is a folder; name a file in it$"):
        list(read_lines(tmp_path))


def test_a_file_that_may_not_be_read(tmp_path):
    path = write(tmp_path, "a.txt", b"text")
    with (
        mock.patch.object(Path, "open", side_effect=PermissionError(13, "Permission denied")),
        pytest.raises(InputError, match=r"a\.txt: cannot be read \(Permission denied\)$"),
    ):
        list(read_lines(path))


def test_a_disk_that_fails(tmp_path):
    path = write(tmp_path, "a.txt", b"text")
    stream = mock.MagicMock()
    stream.__enter__.return_value.read.side_effect = OSError(5, "Input/output error")
    with (
        mock.patch.object(lines, "open_unpacked", return_value=stream),
        pytest.raises(InputError, match=r"a\.txt: cannot be read \(.*Input/output error\)$"),
    ):
        list(read_lines(path))


def test_zst_with_a_long_window(tmp_path):
    parameters = zstandard.ZstdCompressionParameters(window_log=28, enable_ldm=True)
    compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    content = compressor.compress(b"one\ntwo\n") + compressor.flush()
    assert list(read_lines(write(tmp_path, "a.zst", content))) == ["one", "two"]


def test_without_the_package_for_zst(tmp_path, monkeypatch):
    path = write(tmp_path, "a.zst", PACK[".zst"](b"text"))
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(RegardError, match=re.escape('.zst needs zstandard: pip install "regard[zst]"')):
        list(read_lines(path))


def test_kinds():
    assert content_suffix(Path("a/b.c.TSV.gz")) == ".tsv"
    assert content_suffix(Path("a/b.de")) == ".de"
    assert content_suffix(Path("README")) == ""
    assert content_suffix(Path("README.xz")) == ""


def test_languages_are_text():
    languages = ("ar", "cs", "de", "en", "es", "et", "fr", "hi", "ja", "pl", "pt", "ro", "ru", "so", "tr", "vi", "zh")
    assert NOT_TEXT.isdisjoint(f".{language}" for language in languages)
