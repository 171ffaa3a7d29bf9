"""The experiment `vision`."""

import pytest

from regard.lab import run_experiment
from regard.lab.experiments.vision import ACCURACY, CONVNET, IMAGES, VIT, _judge


@pytest.mark.usefixtures("no_reports")
def test_both_models_are_trained_on_the_same_images(tmp_path):
    rows = run_experiment("vision", scale="tiny", seeds=1, out=tmp_path).rows
    assert [(row[IMAGES], row["model"]) for row in rows] == [
        (size, name) for size in (20, 40) for name in (VIT, CONVNET)
    ]
    from regard import open_run

    vit, convnet = (open_run(tmp_path / "runs" / f"{name}-20-0").model() for name in ("vision-transformer", "convnet"))
    assert vit.attentions()
    assert not convnet.attentions()


@pytest.mark.parametrize(("vit", "holds"), [(0.5, True), (0.9, False), (0.75, None)])
def test_the_verdict_follows_the_smallest_set(vit, holds):
    rows = [
        {"seed": seed, "model": model, IMAGES: size, ACCURACY: accuracy + seed / 20}
        for seed in range(2)
        for model, size, accuracy in (
            (VIT, 10, vit),
            (CONVNET, 10, 0.7 + 0.1 * (vit == 0.75 and seed)),
            (VIT, 90, 0.9),
            (CONVNET, 90, 0.9),
        )
    ]
    assert _judge(rows).holds is holds
