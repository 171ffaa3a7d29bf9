"""Copy or download the files of a known data set into a folder, and check them."""

from __future__ import annotations

import gzip
import hashlib
import lzma
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from regard.atomic import explain_write_errors, make_folder, sha256, write_file
from regard.data.download import Progress, download
from regard.data.known_datasets import DatasetFile, KnownDataset, find_dataset
from regard.errors import InputError, RegardError

BLOCK = 1024 * 1024
PACKED = ("", ".gz", ".xz")
REMEDY = "free some space, or choose another folder with --to"


def fetch(name: str, to: Path, source: Path | None, show: Progress) -> list[Path]:
    """Put the files of a data set into the folder `to`, from the folder `source` or, without one, from the network.

    A file that is already there and correct is kept. A file with wrong content never gets the final name.
    """
    known = find_dataset(name)
    if source is not None and not source.is_dir():
        raise InputError(f"{source}: no such folder; --from must name a folder with the files of {name}")
    make_folder(to, REMEDY)
    with explain_write_errors(to, REMEDY):
        if known.made:
            return _make_dataset(name, known, to, source, show)
        return [_fetch_file(name, known, file, to, source, show) for file in known.files]


def _fetch_file(
    name: str, known: KnownDataset, file: DatasetFile, to: Path, source: Path | None, show: Progress
) -> Path:
    """Put one file into the folder `to`, unless it is there already."""
    path = to / file.name
    if _is_correct(path, file):
        return path
    if path.exists():
        remedy = "move it away, or choose another folder with --to"
        raise RegardError(f"{path}: has other content than {file.name} of {name}; {remedy}")
    if source is not None:
        copy = _find(source, name, file)
        _write(path, _checked_copy(copy, file))
        return path
    if known.shipped is not None:
        copy = Path(__file__).parents[1] / known.shipped
        _write(path, _checked(_unpack(copy, copy.suffix), file, str(copy)))
        return path
    if known.url is None:
        other = f", or {known.instead}" if known.instead else ""
        names = " and ".join(file.name for file in known.files)
        remedy = f"give a folder that has {names} with --from{other}"
        raise RegardError(f"{name}: cannot be downloaded: no public file has this content ({known.source}); {remedy}")
    part = to / f".{file.name}.regard-download"  # kept when a download breaks off, to be continued
    url = known.url.format(name=file.name, stem=Path(file.name).stem)
    download(url, part, show, file.name)
    try:
        packing = "" if url.endswith(file.name) else Path(url).suffix
        _write(path, _checked(_fix(_unpack(part, packing), known.fix), file, url))
    finally:
        part.unlink()
    return path


def _make_dataset(name: str, known: KnownDataset, to: Path, source: Path | None, show: Progress) -> list[Path]:
    """Make the results from the files, unless they are there already."""
    from regard.data.cifar import pack_cifar
    from regard.data.ethucy import pack_ethucy
    from regard.data.proteins import pack_cb513
    from regard.data.trec import pack_trec
    from regard.data.treebank import pack_treebank

    packers = {"cifar": pack_cifar, "trec": pack_trec, "ethucy": pack_ethucy, "treebank": pack_treebank}
    pack = {**packers, "cb513": pack_cb513}[known.packer]
    made = [to / kept for kept in known.made]
    if all(path.is_file() for path in made):
        return made
    if source is None:
        there = {file.name for file in known.files if (to / file.name).exists()}  # the user's, so they stay
        fetched = {file.name: _fetch_file(name, known, file, to, None, show) for file in known.files}
        pack(fetched, to)
        for path in (path for file, path in fetched.items() if file not in there):
            path.unlink()
        return made
    complete = all(len(_local_copies(source, name, file)) == 1 for file in known.files)
    found = {file: _find(source, name, file) for file in (known.files if complete else known.sheets or known.files)}
    for file, path in found.items():
        for _ in _checked_copy(path, file):
            pass
    pack({file.name: path for file, path in found.items()}, to)
    return made


def _local_copies(source: Path, name: str, file: DatasetFile) -> list[Path]:
    """Find the local copy, plain or compressed, in the data set's own folder, or else those in all other folders."""
    for folder in (source / name, source / name.replace("-", "_"), source):
        if copy := _packed_copy(folder, file):
            return [copy]
    return [copy for folder in sorted(source.iterdir()) if (copy := _packed_copy(folder, file))]


def _packed_copy(folder: Path, file: DatasetFile) -> Path | None:
    places = (folder / f"{file.name}{suffix}" for suffix in PACKED)
    with suppress(PermissionError):  # a folder of the system or of another user, such as lost+found
        return next((place for place in places if place.is_file()), None)
    return None


def _find(source: Path, name: str, file: DatasetFile) -> Path:
    copies = _local_copies(source, name, file)
    if not copies:
        raise InputError(f"{source}: has no {file.name} (or .gz, .xz), and neither has its folder {name}; check --from")
    if len(copies) > 1:
        folders = ", ".join(copy.parent.name for copy in copies)
        raise InputError(f"{source}: several folders have {file.name}: {folders}; name one of them with --from")
    return copies[0]


# --- content ---------------------------------------------------------------------------------------------------------


def _is_correct(path: Path, file: DatasetFile) -> bool:
    if not path.is_file() or path.stat().st_size != file.size:
        return False
    return sha256(path) == file.sha256


def _unpack(path: Path, packing: str) -> Iterator[bytes]:
    """Yield the content in blocks that end with a line, unless a line is longer than a block."""
    try:
        with (
            gzip.open(path) if packing == ".gz" else lzma.open(path) if packing == ".xz" else path.open("rb") as stream
        ):
            while block := stream.read(BLOCK):
                yield block + stream.readline(BLOCK)
    except (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError) as error:
        raise RegardError(f"{path}: broken or truncated ({error}); nothing was kept; get another copy") from None
    except OSError as error:
        raise RegardError(f"{path}: cannot be read: {error.strerror}; get another copy") from None


def _checked_copy(copy: Path, file: DatasetFile) -> Iterator[bytes]:
    return _checked(_unpack(copy, copy.name.removeprefix(file.name)), file, str(copy))


def _fix(blocks: Iterable[bytes], fix: tuple[bytes, bytes] | None) -> Iterator[bytes]:
    return (block.replace(*fix) if fix else block for block in blocks)


def _checked(blocks: Iterable[bytes], file: DatasetFile, origin: str) -> Iterator[bytes]:
    """Yield the content, and raise an error at its end if it is not what the file must contain."""
    digest, size = hashlib.sha256(), 0
    for block in blocks:
        digest.update(block)
        size += len(block)
        yield block
    if (size, digest.hexdigest()) != (file.size, file.sha256):
        found = f"{size} bytes with sha256 {digest.hexdigest()[:12]}..."
        expected = f"expected {file.size} with {file.sha256[:12]}..."
        cause = f"not the content of {file.name} ({found}, {expected})"
        raise RegardError(f"{origin}: {cause}; nothing was kept; get another copy")


def _write(path: Path, blocks: Iterable[bytes]) -> None:
    """Write a file completely or not at all."""
    with write_file(path, REMEDY) as part, part.open("wb") as file:
        file.writelines(blocks)
