"""Classification of images: batches by hand, loss and measure against naive ones, what is kept with the run."""

from pathlib import Path

import numpy as np
import pytest
import torch

from regard.data.batches import EMPTY, Draw
from regard.errors import ConfigError, InputError
from regard.models.recipe import build
from regard.tasks.loss import IGNORE
from regard.tasks.metric import classification_scores
from regard.tasks.task import PASS_SECONDS
from regard.tasks.vision import Vision, VisionTaskConfig

from .corpora import nll, prepare

SMALL = ["model.dim=16", "model.depth=1", "model.layers.block.mixer.heads.heads=4"]
SMALL += ["model.layers.block.feedforward.hidden=24", "model.patches.patch=4", "model.position.length=5"]
SMALL += ["model.patches.height=8", "model.patches.width=8", "model.patches.channels=1", "model.head.classes=3"]


def archive(path: Path, count: int = 40, seed: int = 0, classes: int = 3, **more: np.ndarray) -> str:
    """Write grey images of 8 x 8 that are brighter from class to class."""
    chance = np.random.default_rng(seed)
    labels = np.arange(count) % classes
    images = (chance.integers(0, 100, (count, 8, 8)) + 70 * labels[:, None, None]).astype(np.uint8)
    np.savez(path, x_train=images, y_train=labels, **more)
    return str(path)


def model_for(*changes: str):
    model = build("vit", *SMALL, *changes, dtype=torch.float32, seed=0)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn(parameter.shape, generator=generator)
    return model.eval()


@pytest.fixture
def task(tmp_path) -> Vision:
    return prepare("vision", train=archive(tmp_path / "a.npz"), shift=0)


def draw(*rows: int) -> Draw:
    return Draw((4,), np.array(rows))


def test_a_batch_by_hand(task):
    batch = task.varied(draw(3, 0, EMPTY))
    rows = task.train_rows[[3, 0]]
    pixels = task.train.pixels[rows].astype(np.float64) / 255
    wanted = (pixels - task.config.mean[0]) / task.config.std[0]
    np.testing.assert_allclose(batch["images"][:2].numpy(), wanted.transpose(0, 3, 1, 2), atol=1e-5)
    assert batch["labels"].tolist() == [*(rows % 3).tolist(), IGNORE]


def test_statistics_and_classes_are_found_and_kept(task):
    pixels = task.train.pixels / 255
    assert task.config.mean == pytest.approx((pixels.mean(),))
    assert task.config.std == pytest.approx((pixels.std(),))
    assert task.config.classes == ("0", "1", "2")
    assert task.config.size == 8
    assert task.facts() == {"images": 38, "classes": 3, "validation images": 2}
    patches = {"height": 8, "width": 8, "channels": 1}
    assert task.needs() == {"patches": patches, "head": {"kind": "classes", "classes": 3}}


@pytest.mark.parametrize(
    ("mean", "std", "message"),
    [
        ((0.5,), (), "std: it has 0 numbers, mean has 1; give both"),
        ((), (0.5,), "std: it has 1 numbers, mean has 0; give both"),
        ((0.5,), (0.0,), "std: .*must be above 0"),
        (
            (0.5, 0.4),
            (0.2, 0.2),
            r"a.npz: its images have 1 channels, task.mean and task.std 2; give one for each",
        ),
    ],
)
def test_statistics_that_do_not_fit_are_refused(tmp_path, mean, std, message):
    with pytest.raises((ConfigError, InputError), match=message):
        prepare("vision", train=archive(tmp_path / "a.npz"), mean=mean, std=std)


def test_statistics_of_the_user_are_kept(tmp_path):
    task = prepare("vision", train=archive(tmp_path / "a.npz"), mean=(0.5,), std=(0.25,))
    assert (task.config.mean, task.config.std) == ((0.5,), (0.25,))


def test_a_source_without_training_images_is_an_error_whoever_names_the_classes(tmp_path):
    np.savez(tmp_path / "test.npz", images=np.zeros((4, 8, 8), np.uint8), labels=np.arange(4) % 2)
    for classes in ((), ("a", "b")):
        with pytest.raises(InputError, match=r"test.npz: there are images for test, but none for train"):
            prepare("vision", train=str(tmp_path / "test.npz"), classes=classes)


def test_training_images_are_varied_at_random(tmp_path):
    path = archive(tmp_path / "a.npz")
    moved = prepare("vision", train=path, shift=2)
    torch.manual_seed(0)
    one = moved.varied(draw(*range(20)))["images"]
    torch.manual_seed(0)
    assert torch.equal(moved.varied(draw(*range(20)))["images"], one)
    assert not torch.equal(moved.varied(draw(*range(20)))["images"], one)
    plain = prepare("vision", train=path, shift=0)
    assert torch.equal(plain.varied(draw(0, 1))["images"], plain.varied(draw(0, 1))["images"])
    mirrored = prepare("vision", train=path, shift=0, flip=True).varied(draw(*range(20)))["images"]
    original = plain.varied(draw(*range(20)))["images"]
    turned = [bool(torch.equal(a, b.flip(-1))) for a, b in zip(mirrored, original, strict=True)]
    kept = [bool(torch.equal(a, b)) for a, b in zip(mirrored, original, strict=True)]
    assert any(turned)
    assert any(kept)
    assert all(a != b for a, b in zip(turned, kept, strict=True))


def test_every_image_once_in_an_epoch(task):
    order = task.feed(model_for(), 20, 0).order
    assert order.batch == 5  # rows of four patches
    assert sorted(row for one in order.epoch(1) for row in one.rows if row >= 0) == list(range(38))


@torch.no_grad()
def naive(task: Vision, model, rows) -> tuple[float, list[int], list[int]]:
    loss, guesses = 0.0, []
    labels = (rows % 3).tolist()
    for row, label in zip(rows, labels, strict=True):
        pixels = (task.valid.pixels[row].astype(np.float32) / 255 - task.config.mean[0]) / task.config.std[0]
        logits = model(torch.from_numpy(pixels.transpose(2, 0, 1)[None].astype(np.float32)))
        guesses.append(int(logits.argmax()))
        loss += nll(logits, torch.tensor([label]))
    return loss, guesses, labels


@torch.no_grad()
def test_measure_and_loss_are_the_naive_ones(tmp_path, monkeypatch):
    other = archive(tmp_path / "v.npz", 31, seed=5)
    task = prepare("vision", train=archive(tmp_path / "a.npz"), valid=other, smoothing=0.2)
    model = model_for()
    rows = np.arange(31)
    loss, guesses, labels = naive(task, model, rows)
    assert len(set(guesses)) > 1
    values = task.measure(model)
    assert values["loss"] == pytest.approx(loss / 31, rel=1e-4)
    scores = classification_scores(np.array(guesses), np.array(labels), ("0", "1", "2"))
    assert {name: values[name] for name in scores} == scores
    part = task.measure(model, rows=4)
    assert part["loss"] == pytest.approx(naive(task, model, rows[::10])[0] / 4, rel=1e-4)
    assert part["accuracy"] == pytest.approx(np.mean(np.array(guesses)[::10] == np.array(labels)[::10]))
    assert [task.method(some) for some in (None, 4, 31)] == ["", "4 of 31 images", ""]
    assert [task.validation_cost(some) for some in (None, 4)] == [31 * 64, 4 * 64]
    monkeypatch.setattr("regard.tasks.vision.AT_ONCE", 10)
    assert [task.validation_latency(some) / PASS_SECONDS for some in (None, 4)] == [4, 1]
    losses, carried = task.loss(model, task.rows(task.valid, np.array([*rows, EMPTY, EMPTY])))
    assert float(losses.objective) == pytest.approx(loss, rel=1e-4)  # empty rows change nothing, nor does smoothing
    assert int(losses.count) == 31
    assert carried == {}
    smoothed, _ = task.loss(model.train(), task.rows(task.valid, rows))
    assert float(smoothed.objective) != pytest.approx(float(smoothed.loss), rel=1e-3)


def test_held_out_images_are_not_trained_on_and_always_the_same(tmp_path):
    path = archive(tmp_path / "a.npz", 100)
    one, again = (prepare("vision", train=path, seed=seed) for seed in (2, 3))
    assert sorted([*one.train_rows, *one.valid_rows]) == list(range(100))
    assert len(one.valid_rows) == 5
    assert one.valid_rows.tolist() == again.valid_rows.tolist()


def test_images_for_validation_are_used_where_the_source_has_them(tmp_path):
    valid = {"x_valid": np.full((6, 8, 8), 7, np.uint8), "y_valid": np.arange(6) % 3}
    task = prepare("vision", train=archive(tmp_path / "a.npz", **valid))
    assert (task.valid.pixels == 7).all()
    assert len(task.valid_rows) == 6
    assert len(task.train_rows) == 40


@pytest.mark.parametrize("count", [1, 2, 10])
def test_samples_are_images_with_both_names(tmp_path, count):
    valid = archive(tmp_path / "v.npz", count)
    task = prepare("vision", train=archive(tmp_path / "a.npz"), valid=valid)
    samples = task.samples(model_for())
    assert len(samples) == min(count, 3)
    for sample in samples:
        row = int(sample.given.removeprefix("image "))
        assert sample.wanted == str(row % 3)
        assert sample.made in ("0", "1", "2")


def test_evaluation_keeps_classes_and_statistics_of_training(task, tmp_path):
    test = {"x_test": np.full((4, 8, 8), 9, np.uint8), "y_test": np.array([2, 2, 1, 1])}
    path = archive(tmp_path / "other.npz", seed=9, **test)
    opened = task.config.evaluation(None, [path])
    assert (opened.config.mean, opened.config.std) == (task.config.mean, task.config.std)
    assert opened.valid.labels.tolist() == [2, 2, 1, 1]  # the test images, with the class numbers of training
    assert opened.config.classes == ("0", "1", "2")
    assert set(opened.measure(model_for())) == {"loss", "accuracy", "f1"}
    with pytest.raises(InputError, match="a vision model is measured on one folder or file of images"):
        task.config.evaluation(None, [path, path])


def test_a_model_of_coloured_images_reads_grey_ones(tmp_path):
    chance = np.random.default_rng(0)
    colours = tmp_path / "c.npz"
    np.savez(colours, x_train=chance.integers(0, 255, (30, 8, 8, 3), dtype=np.uint8), y_train=np.arange(30) % 3)
    task = prepare("vision", train=str(colours), valid=archive(tmp_path / "a.npz"))
    assert task.rows(task.valid, np.array([0]))["images"].shape == (1, 3, 8, 8)


def test_images_that_are_not_square_are_validated_as_they_are(tmp_path):
    for name, width in (("a", 12), ("b", 12), ("c", 16)):
        np.savez(tmp_path / f"{name}.npz", images=np.zeros((9, 8, width), np.uint8), labels=np.arange(9) % 3)
    task = prepare("vision", train=str(tmp_path / "a.npz"), valid=str(tmp_path / "b.npz"))
    assert task.valid.pixels.shape == task.train.pixels.shape == (9, 8, 12, 1)
    rule = "c.npz: its images are 8 x 16, those of training 8 x 12; give task.size=... to make all square"
    with pytest.raises(InputError, match=rule):
        prepare("vision", train=str(tmp_path / "a.npz"), valid=str(tmp_path / "c.npz"))


def test_a_model_of_grey_images_rejects_coloured_ones(task, tmp_path):
    colours = tmp_path / "c.npz"
    np.savez(colours, x_train=np.zeros((30, 8, 8, 3), np.uint8), y_train=np.arange(30) % 3)
    rule = "c.npz: its images have 3 channels, those of training 1; give images of the same kind"
    with pytest.raises(InputError, match=rule):
        prepare("vision", train=task.config.train, valid=str(colours))
    with pytest.raises(InputError, match=rule):
        task.config.evaluation(None, [str(colours)])


def test_a_class_that_training_does_not_have(task, tmp_path):
    rule = "train has images of the class '3', which the model does not have; "
    with pytest.raises(InputError, match=rule):
        task.config.evaluation(None, [archive(tmp_path / "four.npz", classes=4)])


def test_a_negative_shift_is_rejected():
    with pytest.raises(ConfigError, match="shift=-1 must be at least 0"):
        VisionTaskConfig(train="a", shift=-1)


def test_the_probe_is_a_held_out_image_as_it_is(tmp_path):
    task = prepare("vision", train=archive(tmp_path / "a.npz"), shift=2, flip=True)
    before = torch.get_rng_state()
    probe = task.probe()
    assert torch.equal(torch.get_rng_state(), before)
    pixels = task.valid.pixels[task.valid_rows[1:2]] / 255
    wanted = (pixels - task.config.mean[0]) / task.config.std[0]
    np.testing.assert_allclose(probe["images"].numpy(), wanted.transpose(0, 3, 1, 2), atol=1e-5)
    assert list(probe) == ["images"]
    assert model_for()(*probe.values()).shape == (1, 3)


def test_mixed_images_are_learned_with_both_labels(tmp_path):
    task = prepare("vision", train=archive(tmp_path / "a.npz"), mix=1.0, erase=0.5, distort=0.3, smoothing=0.0)
    torch.manual_seed(0)
    batch = task.varied(draw(*range(12)))
    assert torch.equal(batch["others"], batch["labels"].roll(1, 0))
    assert 0 <= batch["share"].min() < batch["share"].max() < 1  # a rectangle may cover a whole tiny image
    model = model_for()
    found = task.loss(model, batch)[0]
    with torch.no_grad():
        log_p = model(batch["images"]).log_softmax(-1)
    rows = torch.arange(12)
    expected = batch["share"] * log_p[rows, batch["labels"]] + (1 - batch["share"]) * log_p[rows, batch["others"]]
    assert float(found.loss) == pytest.approx(-float(expected.sum()), rel=1e-5)


def test_an_image_that_is_mixed_with_an_empty_row_has_the_label_of_what_that_shows(tmp_path):
    task = prepare("vision", train=archive(tmp_path / "a.npz"), mix=1.0)
    batch = task.varied(draw(3, 4, -1))
    assert batch["labels"][2] == IGNORE
    assert int(batch["others"][0]) == int(task.train.labels[0])  # an empty row repeats the first image
