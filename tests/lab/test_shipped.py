"""The data that the package ships."""

import numpy as np
import pytest

from regard.data.images import read_images
from regard.data.lines import read_lines
from regard.data.read import Skipped
from regard.errors import InputError
from regard.lab.shipped import FOLDER, SHIPPED, shipped


def test_shipped_data_is_small_and_named_with_its_licence():
    assert sum(path.stat().st_size for path in FOLDER.rglob("*")) < 3_500_000
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert all(word in readme for word in ("CC BY 2.0", "tatoeba.org", "MIT", "Zalando SE"))
    assert all(shipped(name).exists() for name in SHIPPED)


def test_every_reader_opens_shipped_data():
    for split, count in (("train", 42_878), ("test", 1_234)):
        sides = [list(read_lines(shipped(f"tatoeba/{split}.{side}"))) for side in ("en", "fr")]
        assert [len(side) for side in sides] == [count, count]
    images = read_images(shipped("fashion-mnist"), Skipped(), None, None)
    assert images["train"].pixels.shape == (4000, 28, 28, 1)
    assert images["test"].pixels.shape == (1000, 28, 28, 1)
    assert np.bincount(images["train"].labels).min() > 300


def test_an_unknown_name_is_one_line():
    with pytest.raises(InputError, match="no shipped data has the name 'shakespear'; .*shakespeare.txt"):
        shipped("shakespear")
