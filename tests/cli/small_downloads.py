"""The files of known data sets as they are downloaded, but small: what `regard data` makes data sets of."""

import hashlib
import tarfile
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

import numpy as np

from regard.data.known_datasets import DATASETS, DatasetFile, KnownDataset

from ..data.test_image_arrays import write_idx
from ..tasks.corpora import sentences, write, write_chains, write_structures


def write_downloads(folder: Path) -> dict[str, KnownDataset]:
    """Write a folder for each data set, and return the data sets whose files have this content."""
    lines = sentences(80)
    for name in ("tinyshakespeare", "multi30k", "sst2", "fashion-mnist", "treebank-sample", "cb513", "structures"):
        (folder / name).mkdir(parents=True)
    write(folder / "tinyshakespeare/input.txt", [*lines, *["the king and the man and the woman"] * 20])
    for language in ("en", "de", "fr"):
        write(folder / f"multi30k/train.{language}", [f"{line} {language}" for line in lines])
    write(folder / "sst2/train.tsv", ["text\tlabel", *(f"{line}\t{line[0]}" for line in lines)])
    chance = np.random.default_rng(0)
    for name in ("train-", "t10k-"):
        images, labels = chance.integers(0, 255, (40, 8, 12), dtype=np.uint8), chance.integers(0, 3, 40, dtype=np.uint8)
        write_idx(folder / "fashion-mnist", name, images, labels)
    with ZipFile(folder / "treebank-sample/treebank.zip", "w") as archive:
        trees = "".join(f"( (S (NP-SBJ (NN {letter})) (VP (VBZ runs))) )\n" for letter in "abcdefgh" * 4)
        archive.writestr("treebank/combined/wsj_0001.mrg", trees)
    _write_cb513(folder / "cb513")
    write_structures(folder / "structures/structures.jsonl")
    (folder / "ethucy").mkdir()
    steps = "".join(f"{10 * step} {agent} {step + agent} {agent}\n" for step in range(12) for agent in (1, 2))
    scenes = (*DATASETS["ethucy"].made, "zara1/train/crowds_zara02.txt", "zara1/val/crowds_zara02.txt")
    _write_tar(folder / "ethucy/ethucy.tar", dict.fromkeys(scenes, steps))
    return {each.name: _with_content(each) for each in folder.iterdir()}


def _write_cb513(folder: Path) -> None:
    """Write the chains of a table as CB513 has them: a table, and an archive with the alignment of each chain."""
    _, *rows = Path(write_chains(folder / "chains.tsv")).read_text().splitlines()
    (folder / "chains.tsv").unlink()
    chains = [row.split("\t") for row in rows]
    write(folder / "cb513.tsv", ["id\tsequence\tdssp8", *("\t".join(chain[:3]) for chain in chains)])
    alignments = {
        f"CB513/{name}.all": "".join(
            f"align{number}:{','.join(row)}\n" for number, row in enumerate([sequence, *alignment.split()], 1)
        )
        for name, sequence, _, alignment in chains
    }
    _write_tar(folder / "cb513_alignments.tar", alignments)


def _write_tar(path: Path, files: dict[str, str]) -> None:
    with tarfile.open(path, "w") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            archive.addfile(member, BytesIO(text.encode()))


def _with_content(folder: Path) -> KnownDataset:
    """Return the data set of a folder's name, of the files there."""
    files = tuple(
        DatasetFile(path.name, path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest())
        for path in sorted(folder.iterdir())
    )
    return replace(DATASETS[folder.name], files=files)
