"""A box of tiny models that were never trained, in place of the package's own."""

import json
from pathlib import Path

import pytest

from regard.atomic import sha256
from regard.use import box

from ..tasks.corpora import sentences, write, write_chains
from .made import CLASSES, TREES, image, run

KINDS = {
    "en-fr": "translation",
    "shakespeare": "language",
    "english": "masked",
    "topics": "classification",
    "fashion": "vision",
    "trees": "parsing",
    "proteins": "residues",
}


def put_box(folder: Path, monkeypatch: pytest.MonkeyPatch, *names: str) -> Path:
    """Write a box with these models, by default all, and use it instead of the package's."""
    folder.mkdir()
    for name in names or KINDS:
        put_model(folder / name)
    monkeypatch.setattr(box, "FOLDER", folder)
    return folder


def put_model(folder: Path) -> Path:
    """Write a model with its card."""
    kind = KINDS[folder.name]
    run(kind, folder)
    check = ["check.txt"]
    if kind == "vision":
        for number, name in enumerate(CLASSES):
            (folder / "images" / name).mkdir(parents=True)
            image(folder / "images" / name / "1.png", number)
        check = ["images"]
    elif kind == "classification":
        rows = [f"{CLASSES[number % 3]}\t{text}" for number, text in enumerate(sentences(6))]
        write(folder / "check.tsv", ["label\ttext", *rows])
        check = ["check.tsv"]
    elif kind == "translation":
        write(folder / "check.en", sentences(4))
        write(folder / "check.fr", sentences(4))
        check = ["check.en", "check.fr"]
    elif kind == "parsing":
        write(folder / "check.mrg", TREES)
        check = ["check.mrg"]
    elif kind == "residues":
        write_chains(folder / "check.tsv")
        check = ["check.tsv"]
    else:
        write(folder / "check.txt", sentences(20))
    score = {"metric": "accuracy", "value": 0.5, "data": "a few rows"}
    files = [path for path in folder.iterdir() if path.is_file()]
    card = {
        "about": f"A tiny model for {kind}",
        "verbs": ["embed"],
        "data": "sentences of a tiny grammar",
        "licence": "none",
        "attribution": "none",
        "limits": "It was never trained.",
        "recipe": f"box/{folder.name}",
        "command": "regard evaluate",
        "parameters": 1000,
        "training": "none",
        "score": score,
        "check": {**score, "files": check},
        "files": {path.name: {"size": path.stat().st_size, "sha256": sha256(path)} for path in files},
    }
    (folder / box.CARD).write_text(json.dumps(card))
    (folder / box.README).write_text(f"# {folder.name}\n")
    return folder
