"""Record the sample that `regard look` shows without arguments: models in the box on a few inputs.

    regard data tatoeba && regard train box/en-fr --run runs/box/en-fr
    regard data fashion-mnist
    python examples/samples/record.py runs/box/en-fr

The run is needed for its training snapshots, which the model in the box does not have. It writes
`regard/viewer/sample/*.regard`. Sentences of Tatoeba are CC BY 2.0 (tatoeba.org, manythings.org), Fashion-MNIST is MIT,
Shakespeare is in the public domain.
"""

import sys
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


def translator(run: Path) -> dict[str, Recording]:
    """Record a sentence whose words change their order, two sentences that share a word, and the training."""
    model = regard.load("en-fr")
    words = {
        f"bank-{name}": PartialRecording(record(model, Query(text)), without=("arithmetic", "next"))
        for name, text in BANKS.items()
    }
    return {"book": PartialRecording(record(model, Query(BOOK)), without=("next",)), **words, "training": training(run)}


def writer() -> dict[str, Recording]:
    """Record a line that the model continues."""
    return {
        "romeo": PartialRecording(
            record(regard.load("shakespeare"), Query(LINE, tokens=14)), without=("hidden", "arithmetic")
        )
    }


def vision() -> dict[str, Recording]:
    """Record an image of trousers."""
    trousers = read_images(Path("data/fashion-mnist"), Skipped())["test"].pixels[2]
    whole = record(regard.load("fashion"), Query("trousers of Fashion-MNIST", image=trousers))
    return {"trousers": PartialRecording(whole, without=("hidden", "arithmetic"))}


def training(run: Path) -> Recording:
    """Return the training snapshots of a run."""
    found = record_training(run)
    assert found is not None, f"{run} has no training snapshots"
    return found


if __name__ == "__main__":
    made = {"translator": translator(Path(sys.argv[1])), "writer": writer(), "vision": vision()}
    for number, (name, recordings) in enumerate(made.items(), 1):
        path = FOLDER / f"{number}-{name}.regard"
        path.write_bytes(pack_recordings(recordings))
        print(f"{path.name}: {path.stat().st_size // 1024} kB")
