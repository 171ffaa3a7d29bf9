"""The files that commands are tried on: texts, tables, images, recipes, runs, Hugging Face folders. All are valid."""

import gzip
import json
from pathlib import Path

import matplotlib.font_manager  # noqa: F401  # writes its cache when it is imported
import numpy as np

from ..tasks.corpora import sentences, walks, write, write_chains, write_structures
from ..use.made import CLASSES, TREES, image, run, tokenizer_of

KINDS = ("translation", "language", "masked", "classification", "vision", "trajectories", "parsing", "residues")
RECIPE = """
like = "gpt2"

[model]
dim = 24
depth = 1

[task]
kind = "language"
train = ["a.txt"]
window = 8

[tokenizer]
kind = "word"

[train]
steps = 2
"""
PART = """
from dataclasses import dataclass
import regard
from regard.parts.score import ScoreConfig


@dataclass(frozen=True)
class FuzzConfig(ScoreConfig):
    pass


if "fuzz" not in regard.extend.open_registry("score"):
    regard.register("score", "fuzz")(FuzzConfig)
"""


def make_world(folder: Path) -> Path:
    """Write the files."""
    folder.mkdir(parents=True)
    lines = sentences(60)
    turned = [" ".join(reversed(line.split())) for line in lines]
    labels = [CLASSES[len(line.split()) % len(CLASSES)] for line in lines]
    write(folder / "a.txt", lines)
    write(folder / "b.txt", turned)
    write(folder / "empty.txt", [])
    write(folder / "trees.mrg", [*TREES] * 9)
    write(folder / "masks.txt", [f"{line} [MASK]" for line in lines[:9]])
    (folder / "a.txt.gz").write_bytes(gzip.compress("\n".join(lines).encode(), mtime=0))
    write(folder / "pairs.tsv", ["de\ten", *map("\t".join, zip(lines, turned, strict=True))])
    write(folder / "labels.tsv", ["text\tlabel", *map("\t".join, zip(lines, labels, strict=True))])
    write(folder / "labels.csv", ["text,label", *map(",".join, zip(lines, labels, strict=True))])
    rows = [
        json.dumps({"id": number, "text": line, "label": label})
        for number, (line, label) in enumerate(zip(lines, labels, strict=True))
    ]
    write(folder / "rows.jsonl", rows)
    rows = [json.dumps({"translation": {"de": one, "en": other}}) for one, other in zip(lines, turned, strict=True)]
    write(folder / "books.jsonl", rows)
    for name in ("x", "y"):
        (folder / "images" / name).mkdir(parents=True)
        for number in range(8):
            image(folder / "images" / name / f"{number}.png", seed=number)
    write_chains(folder / "chains.tsv")
    write_structures(folder / "structures.jsonl")
    image(folder / "photo.png")
    walks(folder / "walks.txt")
    chance = np.random.default_rng(0)
    np.savez(folder / "digits.npz", x=chance.integers(0, 255, (12, 8, 8), dtype=np.uint8), y=np.arange(12) % 3)
    (folder / "recipe.toml").write_text(RECIPE, encoding="utf-8")
    (folder / "part.py").write_text(PART, encoding="utf-8")
    tokenizer_of("bpe").save(folder / "tokenizer")
    for kind in KINDS:
        run(kind, folder / kind)
    for kind in ("bpe", "unigram", "char"):
        run("language", folder / kind, kind)
    _write_other_formats(folder, lines)
    _convert(folder)
    _train(folder)
    return folder


def _write_other_formats(folder: Path, lines: list[str]) -> None:
    """Write files of formats that need other packages."""
    import pyarrow
    import pyarrow.parquet
    import sentencepiece

    pyarrow.parquet.write_table(pyarrow.table({"text": lines}), folder / "rows.parquet")
    with (folder / "pieces.model").open("wb") as file:
        settings = {"vocab_size": 40, "hard_vocab_limit": False, "minloglevel": 2, "num_threads": 1}
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=file, **settings)


def _convert(folder: Path) -> None:
    from regard.use.convert import convert

    for kind in ("language", "masked"):
        convert(folder / kind, "huggingface", folder / f"hf-{kind}")


def _train(folder: Path) -> None:
    """Write a run that was really trained, so that it has checkpoints, metrics and snapshots."""
    from io import StringIO

    import pytest
    from rich.console import Console

    from regard.training import start

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(start, "finish", lambda *arguments: None)  # drawing the report takes longer than training
        patch.chdir(folder)
        start.train(
            "recipe.toml",
            "train.checkpoint_every=1",
            run=Path("trained"),
            device="cpu",
            console=Console(file=StringIO()),
        )
