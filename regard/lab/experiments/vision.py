"""Vision: a Vision Transformer against a small ConvNet as the training set shrinks.

Claim: a convolution knows that neighbouring pixels belong together and that a pattern can be anywhere; a Vision
Transformer has to learn it, so it needs more data (Dosovitskiy et al. 2020, section 4.3).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from regard import draw
from regard.data.images import Images, read_images
from regard.data.read import Skipped
from regard.lab.experiment import DATA, Experiment, Lab, Picture, Row, Verdict
from regard.lab.shipped import shipped
from regard.lab.spread import over_seeds

VIT, CONVNET = "Vision Transformer", "ConvNet"
IMAGES, ACCURACY = "training images", "accuracy"


@dataclass(frozen=True)
class _Settings:
    """The images, the models, and how long they are trained."""

    images: tuple[int, ...]  # of the training sets
    tested: int
    dim: int
    depth: int  # of the Vision Transformer
    stem: int  # convolutions of the ConvNet
    steps: int
    batch: int
    data: str  # a folder as `regard data fashion-mnist` makes it; "": the images that the package ships


def _measure(lab: Lab, settings: _Settings) -> Iterator[Row]:
    """Train both models on the same images, for the same number of updates; classify the same other images."""
    found = read_images(Path(settings.data) if settings.data else shipped("fashion-mnist"), Skipped(), None, None)
    order = _balanced_order(found["train"].labels, np.random.default_rng(lab.seed))
    trained = [(size, name) for size in settings.images for name in (VIT, CONVNET)]
    for number, (size, name) in enumerate(trained):
        lab.progress(f"training: {name}, {size} images", number / len(trained))
        file = _write(lab, found["train"], order[:size], found["test"], settings.tested)
        overrides = [f"train.tokens={49 * settings.batch}", f"model.dim={settings.dim}", "task.shift=0"]
        overrides += _architecture(name, settings)
        run_name = f"{name.lower().replace(' ', '-')}-{size}"
        run = lab.train(run_name, "vision", [file], recipe="seer", steps=settings.steps, overrides=overrides)
        model = run.model(lab.device)
        yield {
            "model": name,
            IMAGES: size,
            ACCURACY: run.task(device=lab.device).measure(model)["accuracy"],
            "parameters": sum(weight.numel() for weight in model.parameters()),
        }


def _balanced_order(labels: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Return a random order of the images in which every class comes equally often, from the beginning on."""
    order = random.permutation(len(labels))
    turns = np.empty(len(labels), int)  # the first image of each class, the second, ...
    for label in np.unique(labels):
        mine = order[labels[order] == label]
        turns[mine] = np.arange(len(mine))
    return order[np.argsort(turns[order], kind="stable")]


def _architecture(name: str, settings: _Settings) -> list[str]:
    """Return both models as changes of one recipe: linear patches and attention, or convolutions and no attention."""
    block = "model.layers.block"
    hidden = f"{block}.feedforward.hidden={2 * settings.dim}"
    if name == VIT:
        attention = ["model.patches.stem=0", f"model.depth={settings.depth}", f"{block}.mixer.heads.heads=4"]
        return [*attention, hidden, f"{block}.dropout=0"]
    pointwise = [f"{block}.mixer.kind=conv", f"{block}.mixer.kernel=1"]  # sees one place only
    return [f"model.patches.stem={settings.stem}", "model.depth=1", hidden, f"{block}.dropout=0", *pointwise]


def _write(lab: Lab, train: Images, rows: np.ndarray, test: Images, tested: int) -> Path:
    """Write a training set and the images to classify as one file."""
    path = lab.folder / DATA / f"{lab.seed}" / f"images-{len(rows)}.npz"
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays = {"x_train": train.pixels[rows], "y_train": train.labels[rows]}
    np.savez(path, **arrays, x_valid=test.pixels[:tested], y_valid=test.labels[:tested])
    return path


def _draw(rows: Sequence[Row]) -> Iterable[Picture]:
    """Draw the accuracy over the size of the training set."""
    yield Picture(
        "accuracy",
        "Accuracy on other images after the same number of updates, for training sets of several sizes. The band spans "
        "the seeds.",
        draw.lines(rows, x=IMAGES, y=ACCURACY, by="model", log="x", title="Accuracy by the number of training images"),
    )


def _judge(rows: Sequence[Row]) -> Verdict:
    """Say yes if the ConvNet is ahead in every seed on the smallest set, by more than on the largest."""
    sizes = sorted({row[IMAGES] for row in rows})
    by_place = {(row["model"], row[IMAGES], row["seed"]): row[ACCURACY] for row in rows}
    seeds = sorted({row["seed"] for row in rows})
    gaps = [
        {IMAGES: size, "ahead": by_place[CONVNET, size, seed] - by_place[VIT, size, seed]}
        for size in sizes
        for seed in seeds
    ]
    small, large = (over_seeds(gaps, "ahead", {IMAGES: size}) for size in (sizes[0], sizes[-1]))
    found = {
        (name, size): over_seeds(rows, ACCURACY, {"model": name, IMAGES: size})
        for name in (VIT, CONVNET)
        for size in (sizes[0], sizes[-1])
    }
    ahead, closing = small.low > 0, small.mean > large.mean
    return Verdict(
        True if ahead and closing else (False if small.high < 0 else None),
        f"With {sizes[0]} images the accuracy is {found[VIT, sizes[0]]} for the Vision Transformer and "
        f"{found[CONVNET, sizes[0]]} for the ConvNet, with {sizes[-1]} images {found[VIT, sizes[-1]]} and "
        f"{found[CONVNET, sizes[-1]]}: the ConvNet is ahead by {small}, then by {large}.",
    )


EXPERIMENT = Experiment(
    name="vision",
    title="Vision Transformer against ConvNet as the training set shrinks",
    claim="Vision Transformers use self-attention to capture global dependencies, where ConvNets rely on local "
    "receptive fields. They require large datasets for effective training, and often underperform ConvNets on "
    "smaller ones.",
    source="Lecture on the Transformer for LLMs and ViT, 'Pros and cons of ViT'; Dosovitskiy et al. 2020, An Image "
    "is Worth 16x16 Words, section 4.3.",
    method="Both models are made of the recipe `seer`. The Vision Transformer maps patches of 4 x 4 pixels linearly "
    "and has layers of attention; the ConvNet has 3 x 3 convolutions, which halve the image twice, then one layer "
    "that looks at one place at a time, and the mean over all places. Both are trained on the same random images of "
    "clothes (Fashion-MNIST, equally many of each class) for the same number of updates, without augmentation, and "
    "classify the same other images.",
    vary="`regard lab vision images='[100, 4000]' steps=400`; all 60,000 images with `data=FOLDER` after `regard data "
    "fashion-mnist`. Augmentation helps the Vision Transformer most: `regard train vision` uses it.",
    scales={
        "tiny": _Settings((20, 40), 20, 16, 1, 2, 2, 8, ""),
        "default": _Settings((250, 1000, 4000), 1000, 64, 2, 3, 120, 64, ""),
        "full": _Settings((125, 250, 500, 1000, 2000, 4000), 1000, 256, 6, 5, 2000, 256, ""),
    },
    measure=_measure,
    draw=_draw,
    judge=_judge,
)
