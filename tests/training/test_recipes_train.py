"""Every recipe that comes with the package trains, by the real `train`, and learns something from a little text."""

import numpy as np
import pytest
from rich.console import Console

import regard
from regard.recipe_files import read_recipe, recipe_names
from regard.training import start

from ..laws.cases import SHRINK
from ..tasks.corpora import walks, write_chains

STEPS = 20
TRAINING = [
    f"train.steps={STEPS}",
    f"train.validate_every={STEPS}",
    f"train.checkpoint_every={STEPS}",
    "train.log_every=1",
    "train.tokens=256",
    "train.average=0",
    "train.optimizer.kind=adamw",
    "train.optimizer.rate=0.01",
    "train.schedule.kind=linear",
    "train.schedule.warmup=3",
]
TASKS = {
    "language": ("language",),
    "encoder": ("masked", "classification"),
    "seq2seq": ("translation",),
    "recurrent-seq2seq": ("translation",),
    "vision": ("vision",),
    "trajectory": ("trajectories",),
    "evoformer": ("residues",),
    "word2vec": ("vectors",),
}
PAIRS = [(name, task) for name in recipe_names() for task in TASKS[read_recipe(name)["model"]["kind"]]]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Write the same few sentences many times, as text, as pairs, with labels; images, tracks and chains."""
    folder = tmp_path_factory.mktemp("corpus")
    lines = ["the red dog runs", "a blue cat sleeps here", "one two three four"] * 40
    (folder / "a.txt").write_text("".join(f"{line}\n" for line in lines))
    (folder / "b.txt").write_text("".join(f"{line[::-1]}\n" for line in lines))
    (folder / "a.tsv").write_text("text\tlabel\n" + "".join(f"{line}\t{line.split()[1]}\n" for line in lines))
    images = np.random.default_rng(0).integers(0, 60, (80, 8, 12, 3)) + 190 * (np.arange(80) % 2)[:, None, None, None]
    walks(folder / "walks.txt", steps=200)
    write_chains(folder / "chains.tsv", count=60)
    np.savez(folder / "a.npz", x_train=images.astype(np.uint8), y_train=np.arange(80) % 2)
    return folder


def table(task: str, corpus) -> dict[str, object]:
    return {
        "language": {"train": [str(corpus / "a.txt")], "window": 16},
        "masked": {"train": [str(corpus / "a.txt")], "window": 16, "documents": "line"},
        "classification": {"train": [str(corpus / "a.tsv")]},
        "translation": {"source": [str(corpus / "a.txt")], "target": [str(corpus / "b.txt")]},
        "vision": {"train": str(corpus / "a.npz")},
        "trajectories": {"train": [str(corpus / "walks.txt")], "observed": 3, "predicted": 2},
        "residues": {"train": [str(corpus / "chains.tsv")], "alignment": "alignment"},
        "vectors": {"train": [str(corpus / "a.txt")], "window": 16},
    }[task] | {"kind": task}


@pytest.mark.parametrize(("name", "task"), PAIRS, ids=["-".join(pair) for pair in PAIRS])
def test_it_trains_and_the_loss_falls(name: str, task: str, corpus, tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_CACHE", str(corpus / "cache"))
    monkeypatch.setattr(start, "finish", lambda *arguments: None)  # drawing curves takes longer than training
    small = [change for change in SHRINK[name] if not change.startswith(("model.vocabulary=", "model.head.classes="))]
    text = [] if task in ("vision", "trajectories", "residues") else ["tokenizer.kind=bpe", "tokenizer.vocabulary=280"]
    # BERT's 0.02 is for a width of 768: at a width of 16, vectors would shrink from layer to layer
    start_larger = ["model.init.std=0.15"] if name == "bert" else []
    run = regard.train(
        table(task, corpus),
        *TRAINING,
        *small,
        *text,
        *start_larger,
        recipe=name,
        run=tmp_path / "run",
        console=Console(quiet=True),
    )
    losses = [record["loss"] for record in run.metrics if record["kind"] == "train"]
    assert len(losses) == STEPS
    assert np.mean(losses[-5:]) < 0.9 * np.mean(losses[:5])
    assert run.model().config.dim == 16
    assert np.isfinite(list(run.evaluate().values())).all()
