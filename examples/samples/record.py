"""Record the sample that `regard look` shows without arguments: three small models on freely licensed data.

    regard data tatoeba && regard data tinyshakespeare && regard data fashion-mnist
    for name in translator writer vision; do regard train examples/samples/$name.toml --run runs/$name; done
    python examples/samples/record.py runs

It writes `regard/viewer/sample/*.regard`. Sentences of Tatoeba are CC BY 2.0 (tatoeba.org, manythings.org),
Fashion-MNIST is MIT, Shakespeare is in the public domain.
"""

import sys
from dataclasses import replace
from pathlib import Path

import regard
from regard.data.images import read_images
from regard.data.read import Skipped
from regard.viewer.query import Query
from regard.viewer.record import record
from regard.viewer.recording import PartialRecording, Recording, pack_recordings
from regard.viewer.sample import FOLDER
from regard.viewer.training_recording import record_training

BOOK = "She gave him a beautiful red book."
BANKS = {"money": "I went to the bank to take out some money.", "water": "He sat on the bank of the river."}
LINE = "ROMEO:\nWhat light is t"
CLOTHES = ("T-shirt", "trousers", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")


def translator(run: Path) -> dict[str, Recording]:
    """Record a sentence whose words change their order, two sentences that share a word, and the training."""
    model = regard.load(run)
    words = {
        f"bank-{name}": PartialRecording(record(model, Query(text)), without=("arithmetic", "next"))
        for name, text in BANKS.items()
    }
    return {"book": PartialRecording(record(model, Query(BOOK)), without=("next",)), **words, "training": training(run)}


def writer(run: Path) -> dict[str, Recording]:
    """Record a line that the model continues."""
    return {
        "romeo": PartialRecording(record(regard.load(run), Query(LINE, tokens=14)), without=("hidden", "arithmetic"))
    }


def vision(run: Path) -> dict[str, Recording]:
    """Record an image of trousers, with the names of the classes, which the files do not have."""
    trousers = read_images(Path("data/fashion-mnist"), Skipped())["test"].pixels[2]
    model = replace(regard.load(run).bundle, classes=CLOTHES)
    whole = record(model, Query("trousers of Fashion-MNIST", image=trousers))
    return {"trousers": PartialRecording(whole, without=("hidden", "arithmetic"))}


def training(run: Path) -> Recording:
    """Return the training snapshots of a run."""
    found = record_training(run)
    assert found is not None, f"{run} has no training snapshots"
    return found


if __name__ == "__main__":
    runs = Path(sys.argv[1])
    for number, make in enumerate((translator, writer, vision), 1):
        path = FOLDER / f"{number}-{make.__name__}.regard"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(pack_recordings(make(runs / make.__name__)))
        print(f"{path.name}: {path.stat().st_size // 1024} kB")
