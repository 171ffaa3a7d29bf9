"""Record the sample that `regard look` shows without a model: the models in the box on a few inputs (`make sample`).

    python -m bench.sample                      record all of it again, except for the training
    python -m bench.sample --training RUN       also the training snapshots of this run of box/en-fr

It writes `regard/viewer/sample/*.regard`, and the checksums of the weights that were used to weights.json, so that a
test finds a sample that is older than the models. `python -m bench.models` calls it whenever it has packed a model. The
image is one of those that `regard lab` comes with: Fashion-MNIST is MIT.
"""

import argparse
import json
import sys
from pathlib import Path

import regard
from regard.atomic import write_text
from regard.data.images import read_images
from regard.data.read import Skipped
from regard.errors import InputError, RegardError
from regard.models.store import WEIGHTS
from regard.use.box import box_model
from regard.viewer.query import Query
from regard.viewer.record import record
from regard.viewer.recording import PartialRecording, Recording, pack_recordings
from regard.viewer.sample import FOLDER
from regard.viewer.training_recording import record_training

CHECKSUMS = FOLDER / "weights.json"
TRANSLATOR, WRITER, VISION, FORECASTER = "en-fr", "shakespeare", "fashion", "crossing"
TRAINING = "4-training.regard"

BOOK = "She gave him a beautiful red book."
BANKS = {"money": "I went to the bank to take out some money.", "water": "He sat on the bank of the river."}
LINE = "ROMEO:\nWhat light is t"
IMAGES, TROUSERS = Path(regard.__file__).parent / "lab" / "data" / "fashion-mnist", 2
FRAME = 600  # of the scene that comes with the forecaster; few pedestrians are there


def record_translations() -> dict[str, Recording]:
    """Record a sentence whose words change their order, and two sentences that share a word."""
    model = regard.load(TRANSLATOR, "cpu")
    words = {
        f"bank-{name}": PartialRecording(record(model, Query(text)), without=("arithmetic", "next"))
        for name, text in BANKS.items()
    }
    return {"book": PartialRecording(record(model, Query(BOOK)), without=("next",)), **words}


def record_writing() -> dict[str, Recording]:
    """Record a line that the model continues."""
    whole = record(regard.load(WRITER, "cpu"), Query(LINE, tokens=14))
    return {"romeo": PartialRecording(whole, without=("hidden", "arithmetic"))}


def record_image() -> dict[str, Recording]:
    """Record an image of trousers."""
    trousers = read_images(IMAGES, Skipped())["test"].pixels[TROUSERS]
    whole = record(regard.load(VISION, "cpu"), Query("trousers of Fashion-MNIST", image=trousers))
    return {"trousers": PartialRecording(whole, without=("hidden", "arithmetic"))}


def record_scene() -> dict[str, Recording]:
    """Record pedestrians at a crossing."""
    (scene,) = box_model(FORECASTER).check_files()
    whole = record(regard.load(FORECASTER, "cpu"), Query(f"{scene}@{FRAME}"))
    return {"crossing": PartialRecording(whole, without=("hidden", "arithmetic"))}


def write_training(run: Path) -> None:
    """Write the training snapshots of a run."""
    found = record_training(run)
    if found is None:
        raise InputError(f"{run}: has no training snapshots; name the complete folder of a run of box/{TRANSLATOR}")
    write_recordings(TRAINING, {"training": found})


def write_sample() -> None:
    """Write everything but the training snapshots, and which weights it was made with."""
    write_recordings("1-translator.regard", record_translations())
    write_recordings("2-writer.regard", record_writing())
    write_recordings("3-vision.regard", record_image())
    write_recordings("5-crossing.regard", record_scene())
    write_text(CHECKSUMS, json.dumps(weight_checksums(), indent=2) + "\n")


def weight_checksums() -> dict[str, str]:
    """Return the SHA-256 of the weights of each model that the sample uses."""
    return {name: box_model(name).card.files[WEIGHTS].sha256 for name in (TRANSLATOR, WRITER, VISION, FORECASTER)}


def write_recordings(name: str, recordings: dict[str, Recording]) -> None:
    """Write a file of the sample, and print its size."""
    path = FOLDER / name
    path.write_bytes(pack_recordings(recordings))
    print(f"{path.name}: {path.stat().st_size // 1024} kB", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Record the sample that `regard look` shows without a model.")
    parser.add_argument("--training", type=Path, metavar="RUN", help="a run of box/en-fr, for its training snapshots")
    given = parser.parse_args()
    if given.training is not None:
        write_training(given.training)
    write_sample()


if __name__ == "__main__":
    try:
        main()
    except RegardError as error:
        sys.exit(f"bench.sample: {error}")
