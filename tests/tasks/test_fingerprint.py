"""The fingerprint of a task's data: the same data gives the same, any other data another."""

from pathlib import Path

import numpy as np
import pytest

from regard.data.tokenizer import TokenizerConfig

from .corpora import prepare, sentences, write


def _files(kind: str, lines: list[str], folder: Path) -> dict:
    folder.mkdir()
    if kind == "translation":
        return {
            "source": (write(folder / "a.de", lines),),
            "target": (write(folder / "a.en", [line.upper() for line in lines]),),
        }
    if kind == "classification":
        rows = [f"{line}\t{'even' if len(line) % 2 else 'odd'}" for line in lines]
        return {"train": (write(folder / "a.tsv", ["text\tlabel", *rows]),)}
    if kind == "vision":
        pixels = np.frombuffer(b"".join(line.encode().ljust(64)[:64] for line in lines), np.uint8).reshape(-1, 8, 8)
        np.savez(folder / "a.npz", x_train=pixels, y_train=np.arange(len(lines)) % 2)
        return {"train": str(folder / "a.npz")}
    return {"train": (write(folder / "a.txt", lines),), "window": 8, "documents": "line"}


KINDS = ["translation", "classification", "language", "masked", "vision"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_fingerprint_follows_the_content_of_the_data_and_nothing_else(kind: str, tmp_path: Path, monkeypatch):
    lines = sentences(60, shortest=4)
    first = prepare(kind, **_files(kind, lines, tmp_path / "first")).fingerprint()
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "other-cache"))
    same = prepare(kind, **_files(kind, lines, tmp_path / "other-folder")).fingerprint()
    assert same == first
    reverse = prepare(kind, **_files(kind, lines[::-1], tmp_path / "reverse"))  # the same counts
    assert reverse.fingerprint() != first


@pytest.mark.parametrize("kind", ["translation", "classification", "vision"])
def test_runs_with_other_seeds_have_the_same_data(kind: str, tmp_path: Path):
    files = _files(kind, sentences(60), tmp_path / "one")
    tokenizer = TokenizerConfig("word", 50)
    assert len({prepare(kind, tokenizer, seed, **files).fingerprint() for seed in (0, 1, 2)}) == 1
