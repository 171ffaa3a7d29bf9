"""Files of a data set from a folder or a server: found, unpacked, repaired, checked; wrong ones leave no trace."""

import errno
import gzip
import hashlib
import lzma
import re
import tarfile
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest

from regard.data.fetch import fetch
from regard.data.known_datasets import DATASETS, DatasetFile, KnownDataset
from regard.errors import InputError, RegardError
from tests.data.cifar import archive_of, random_set, sheets_of
from tests.data.server import serve

TRAIN, TEST = b"eins\nzwei\n" * 50_000, b"drei\n"


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")


def file(name: str, content: bytes) -> DatasetFile:
    return DatasetFile(name, len(content), hashlib.sha256(content).hexdigest())


def know(monkeypatch, **fields) -> None:
    files = fields.pop("files", (file("train.de", TRAIN), file("test.de", TEST)))
    monkeypatch.setitem(
        DATASETS, "my-set", KnownDataset("about", "licence", "a place", "regard train", files, **fields)
    )


def get(to: Path, source: Path | None = None) -> list[Path]:
    return fetch("my-set", to, source, lambda *_: None)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# --- from a folder ---


@pytest.mark.parametrize("folder", [".", "my-set", "my_set"])
@pytest.mark.parametrize(("suffix", "pack"), [("", bytes), (".gz", gzip.compress), (".xz", lzma.compress)])
def test_from_a_folder_packed_or_not(tmp_path, monkeypatch, folder, suffix, pack):
    know(monkeypatch)
    source, to = tmp_path / "from", tmp_path / "a" / "b"
    (source / folder).mkdir(parents=True, exist_ok=True)
    (source / folder / f"train.de{suffix}").write_bytes(pack(TRAIN))
    (source / folder / f"test.de{suffix}").write_bytes(pack(TEST))
    assert get(to, source) == [to / "train.de", to / "test.de"]
    assert (to / "train.de").read_bytes() == TRAIN
    assert (to / "test.de").read_bytes() == TEST
    assert names(to) == ["test.de", "train.de"]


def test_the_folder_of_the_data_set_comes_first(tmp_path, monkeypatch):
    know(monkeypatch, files=(file("train.de", TRAIN),))
    (tmp_path / "my_set").mkdir()
    (tmp_path / "my_set" / "train.de").write_bytes(TRAIN)
    (tmp_path / "train.de").write_bytes(b"of another set")
    get(tmp_path / "to", tmp_path)
    assert (tmp_path / "to" / "train.de").read_bytes() == TRAIN


def test_the_only_other_folder_with_the_file_is_used(tmp_path, monkeypatch):
    know(monkeypatch, files=(file("train.de", TRAIN),))
    (tmp_path / "sentences").mkdir()
    (tmp_path / "sentences" / "train.de.gz").write_bytes(gzip.compress(TRAIN))
    get(tmp_path / "to", tmp_path)
    assert (tmp_path / "to" / "train.de").read_bytes() == TRAIN
    (tmp_path / "others").mkdir()
    (tmp_path / "others" / "train.de").write_bytes(TRAIN)
    with pytest.raises(InputError, match=r"several folders have train\.de: others, sentences, to; name one"):
        get(tmp_path / "new" / "to", tmp_path)


def test_folders_that_cannot_be_opened_are_skipped(tmp_path, monkeypatch):
    """Root may open every folder, so the error that others get is raised here."""
    know(monkeypatch, files=(file("train.de", TRAIN),))
    for folder in ("lost+found", "sentences"):
        (tmp_path / folder).mkdir()
    (tmp_path / "sentences" / "train.de").write_bytes(TRAIN)
    is_file = Path.is_file

    def guarded(path: Path) -> bool:
        if path.parent.name == "lost+found":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return is_file(path)

    monkeypatch.setattr(Path, "is_file", guarded)
    get(tmp_path / "to", tmp_path)
    assert (tmp_path / "to" / "train.de").read_bytes() == TRAIN


def test_what_is_right_stays_and_files_of_the_user_are_not_replaced(tmp_path, monkeypatch):
    know(monkeypatch)
    source, to = tmp_path / "from", tmp_path / "to"
    source.mkdir()
    to.mkdir()
    (to / "train.de").write_bytes(TRAIN)
    (to / "test.de").write_bytes(TEST.upper())
    (source / "test.de").write_bytes(TEST)
    with pytest.raises(RegardError, match=r"to/test.de: has other content than test.de of .*; move it away, or choose"):
        get(to, source)
    assert (to / "test.de").read_bytes() == TEST.upper()
    (to / "test.de").unlink()
    get(to, source)  # train.de is not in the source, and need not be
    assert (to / "test.de").read_bytes() == TEST


@pytest.mark.parametrize("wrong", [TRAIN.upper(), TRAIN + b"more", b""])
def test_wrong_content_is_refused_and_leaves_nothing(tmp_path, monkeypatch, wrong):
    know(monkeypatch)
    (tmp_path / "train.de").write_bytes(wrong)
    with pytest.raises(RegardError) as raised:
        get(tmp_path / "to", tmp_path)
    found = f"{len(wrong)} bytes with sha256 {hashlib.sha256(wrong).hexdigest()[:12]}..."
    expected = f"expected {len(TRAIN)} with {hashlib.sha256(TRAIN).hexdigest()[:12]}..."
    cause = f"not the content of train.de ({found}, {expected})"
    assert str(raised.value) == f"{tmp_path}/train.de: {cause}; nothing was kept; get another copy"
    assert names(tmp_path / "to") == []


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".xz", lzma.compress)])
def test_a_broken_archive_is_refused_and_leaves_nothing(tmp_path, monkeypatch, suffix, pack):
    know(monkeypatch)
    (tmp_path / f"train.de{suffix}").write_bytes(pack(TRAIN)[:-20])
    with pytest.raises(
        RegardError, match=r"train\.de\.\w+: broken or truncated \(.+\); nothing was kept; get another copy"
    ):
        get(tmp_path / "to", tmp_path)
    assert names(tmp_path / "to") == []


def test_mistakes(tmp_path, monkeypatch):
    know(monkeypatch)
    with pytest.raises(
        InputError, match=f"^{tmp_path}/none: no such folder; --from must name a folder with the files of my-set"
    ):
        get(tmp_path / "to", tmp_path / "none")
    with pytest.raises(
        InputError, match=rf"^{tmp_path}: has no train\.de \(or \.gz, \.xz\), and neither has its folder"
    ):
        get(tmp_path / "to", tmp_path)
    message = "my-set: cannot be downloaded: no public file has this content (a place)"
    remedy = "; give a folder that has train.de and test.de with --from"
    with pytest.raises(RegardError, match=re.escape(message + remedy) + "$"):
        get(tmp_path / "to")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(
        RegardError,
        match=f"^{tmp_path}/file: cannot be written: File exists; free some space, or choose another folder with --to$",
    ):
        get(tmp_path / "file", tmp_path)


# --- from a server ---


def test_from_a_server(tmp_path, monkeypatch):
    with serve({"/x/train.de.gz": gzip.compress(TRAIN), "/x/test.de.gz": gzip.compress(TEST)}) as served:
        know(monkeypatch, url=served.address + "/x/{name}.gz")
        get(tmp_path)
        assert (tmp_path / "train.de").read_bytes() == TRAIN
        assert names(tmp_path) == ["test.de", "train.de"]
        asked = list(served.asked)
        get(tmp_path)
        assert served.asked == asked  # nothing is fetched twice


def test_an_interrupted_download_is_continued(tmp_path, monkeypatch):
    with serve({"/train.de": TRAIN, "/test.de": TEST}) as served:
        know(monkeypatch, url=served.address + "/{name}")
        (tmp_path / "train.de.part").write_text("a file of the user")
        served.breaks_after = 1000
        with pytest.raises(RegardError, match="the connection broke after 1000 of 500000 bytes"):
            get(tmp_path)
        assert names(tmp_path) == [".train.de.regard-download", "train.de.part"]
        get(tmp_path)
        assert served.asked[1] == ("/train.de", "bytes=1000-")
        assert (tmp_path / "train.de").read_bytes() == TRAIN
        assert names(tmp_path) == ["test.de", "train.de", "train.de.part"]
        assert (tmp_path / "train.de.part").read_text() == "a file of the user"


def test_a_wrong_download_is_rejected_and_started_again(tmp_path, monkeypatch):
    with serve({"/train.de": TRAIN.upper(), "/test.de": TEST}) as served:
        know(monkeypatch, url=served.address + "/{name}")
        with pytest.raises(RegardError, match=re.escape(f"{served.address}/train.de: not the content of train.de (")):
            get(tmp_path)
        assert names(tmp_path) == []
        served.files["/train.de"] = TRAIN
        get(tmp_path)
        assert served.asked[1] == ("/train.de", None)
        assert (tmp_path / "train.de").read_bytes() == TRAIN


def test_a_small_repair_and_another_name(tmp_path, monkeypatch):
    table = b"a long film\t0\n" * 200_000  # several blocks
    with serve({"/sentiment-train": table.replace(b"\t", b" \t")}) as served:
        url = served.address + "/sentiment-{stem}"
        know(monkeypatch, url=url, fix=(b" \t", b"\t"), files=(file("train.tsv", table),))
        get(tmp_path)
    assert (tmp_path / "train.tsv").read_bytes() == table


# --- a set that is made ---


def know_made(monkeypatch, folder: Path, url: str | None = None) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    splits = {"train": random_set(30, 0), "test": random_set(6, 1)}
    archive = archive_of(splits)
    for name, content in sheets_of(splits).items():
        (folder / name).write_bytes(content)
    sheets = tuple(file(path.name, path.read_bytes()) for path in sorted(folder.iterdir()))
    labels = folder / "train_labels.txt"
    (folder / "train_labels.txt.xz").write_bytes(lzma.compress(labels.read_bytes()))
    labels.unlink()
    files = (file("cifar-10-binary.tar.gz", archive),)
    know(monkeypatch, files=files, url=url, made=("train.npz", "test.npz"), sheets=sheets)
    return splits


def check_made(to: Path, splits: dict[str, tuple[np.ndarray, np.ndarray]], *others: str) -> None:
    assert names(to) == [*others, "test.npz", "train.npz"]
    for split, (images, labels) in splits.items():
        made = np.load(to / f"{split}.npz", allow_pickle=False)
        np.testing.assert_array_equal(made["labels"], labels)
        assert made["images"].shape == images.shape


def test_made_of_sheets(tmp_path, monkeypatch):
    source, to = tmp_path / "from", tmp_path / "to"
    source.mkdir()
    splits = know_made(monkeypatch, source)
    assert get(to, source) == [to / "train.npz", to / "test.npz"]
    check_made(to, splits)
    before = (to / "train.npz").stat().st_mtime_ns
    assert get(to) == [to / "train.npz", to / "test.npz"]  # needs neither folder nor network now
    assert (to / "train.npz").stat().st_mtime_ns == before


def test_a_wrong_sheet_is_refused(tmp_path, monkeypatch):
    source, to = tmp_path / "from", tmp_path / "to"
    source.mkdir()
    know_made(monkeypatch, source)
    (source / "train_3.jpg").write_bytes((source / "train_2.jpg").read_bytes())
    with pytest.raises(RegardError, match=r"train_3\.jpg: not the content of train_3\.jpg"):
        get(to, source)
    assert names(to) == []


@pytest.mark.parametrize("local", [True, False])
def test_made_of_the_archive(tmp_path, monkeypatch, local):
    source, to, sheets = tmp_path / "from", tmp_path / "to", tmp_path / "sheets"
    source.mkdir()
    sheets.mkdir()
    with serve({}) as served:
        splits = know_made(monkeypatch, sheets, served.address + "/{name}")
        archive = archive_of(splits)
        if local:
            (source / "cifar-10-binary.tar.gz").write_bytes(archive)
        else:
            served.files["/cifar-10-binary.tar.gz"] = archive
        get(to, source if local else None)
        assert bool(served.asked) is not local
    check_made(to, splits)
    if local:
        assert names(source) == ["cifar-10-binary.tar.gz"]


def test_an_archive_of_the_user_stays(tmp_path, monkeypatch):
    sheets, to = tmp_path / "sheets", tmp_path / "to"
    sheets.mkdir()
    to.mkdir()
    splits = know_made(monkeypatch, sheets, "http://nowhere.invalid/{name}")
    (to / "cifar-10-binary.tar.gz").write_bytes(archive_of(splits))
    get(to, None)
    assert (to / "cifar-10-binary.tar.gz").exists()
    check_made(to, splits, "cifar-10-binary.tar.gz")


def test_questions_of_trec_become_tables_of_text_and_coarse_class(tmp_path, monkeypatch):
    lines = {
        "train.label": b"DESC:manner How did  it begin ?\nENTY:cremat What film ?\n",
        "test.label": b"NUM:dist How far ?\n",
    }
    files = tuple(file(name, content) for name, content in lines.items())
    know(monkeypatch, files=files, made=("train.tsv", "test.tsv"), packer="trec")
    (tmp_path / "from").mkdir()
    for name, content in lines.items():
        (tmp_path / "from" / f"{name}.xz").write_bytes(lzma.compress(content))
    train, test = get(tmp_path / "to", tmp_path / "from")
    assert train.read_text() == "text\tlabel\nHow did it begin ?\tDESC\nWhat film ?\tENTY\n"
    assert test.read_text() == "text\tlabel\nHow far ?\tNUM\n"
    with pytest.raises(RegardError, match="my-set: cannot be downloaded"):
        get(tmp_path / "other")


def test_the_scenes_of_ethucy_are_unpacked(tmp_path, monkeypatch):
    content = BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for name in ("eth/test/a.txt", "eth/train/b.txt"):
            member = tarfile.TarInfo(name)
            member.size = 4
            archive.addfile(member, BytesIO(b"row\n"))
    packed = file("ethucy.tar", content.getvalue())
    know(monkeypatch, files=(packed,), made=("eth/test/a.txt",), packer="ethucy")
    (tmp_path / "from").mkdir()
    (tmp_path / "from" / "ethucy.tar.xz").write_bytes(lzma.compress(content.getvalue()))
    assert [path.read_bytes() for path in get(tmp_path / "to", tmp_path / "from")] == [b"row\n"]
    assert (tmp_path / "to" / "eth" / "train" / "b.txt").read_bytes() == b"row\n"


def test_a_shipped_data_set_needs_no_network(tmp_path):
    (path,) = fetch("tinyshakespeare", tmp_path, None, lambda *_: pytest.fail("nothing is downloaded"))
    assert path.read_bytes().startswith(b"First Citizen:")
