"""Labels of texts and of image files."""

import numpy as np
import pytest
import torch

from regard.errors import InputError

from ..tasks.corpora import sentences
from .made import CLASSES, image, loaded

LINES = [*sentences(10, seed=2), "", "red"]


def test_labels_and_probabilities_are_the_models():
    classifier = loaded("classification")
    found = classifier.classify(LINES, top=3)
    assert found[10] == []
    for line, guesses in zip(LINES, found, strict=True):
        if line:
            ids = [
                classifier.tokenizer.start,
                *classifier.tokenizer.encode([line])[0].tolist(),
                classifier.tokenizer.end,
            ]
            with torch.no_grad():
                wanted = classifier.model(torch.tensor([ids]))[0].softmax(-1)
            assert {guess.label: guess.probability for guess in guesses} == pytest.approx(
                dict(zip(CLASSES, wanted.tolist(), strict=True)), abs=1e-6
            )
            assert guesses[0].label == CLASSES[wanted.argmax()]
    assert [guesses[:1] for guesses in found] == classifier.classify(LINES)
    assert len({round(guesses[0].probability, 3) for guesses in found if guesses}) > 5


def test_a_long_text_is_cut_with_a_warning():
    classifier = loaded("classification", longest=6)
    with pytest.warns(UserWarning, match="1 line was cut at the end, being over 4 tokens"):
        assert classifier.classify(["one red dog runs two"], top=3) == classifier.classify(["one red dog runs"], top=3)


def test_classes_without_names_are_numbered():
    named = loaded("classification").classify(["red"], top=3)[0]
    counted = loaded("classification", classes=()).classify(["red"], top=3)[0]
    assert [CLASSES[int(guess.label)] for guess in counted] == [guess.label for guess in named]


def test_at_least_one_label():
    with pytest.raises(InputError, match="top=0 must be a whole number, at least 1"):
        loaded("classification").classify(["red"], top=0)


def test_image_files(tmp_path):
    classifier = loaded("vision")
    paths = [image(tmp_path / f"{seed}.png", seed) for seed in range(5)]
    found = classifier.classify(paths, top=3)
    from PIL.Image import open as open_image

    for path, guesses in zip(paths, found, strict=True):
        with open_image(path) as file:
            pixels = torch.from_numpy(np.array(file)).double()
        x = ((pixels / 255 - 0.5) / 0.2).permute(2, 0, 1)[None]
        with torch.no_grad():
            wanted = classifier.model(x)[0].softmax(-1)
        assert guesses[0].label == CLASSES[wanted.argmax()]
        assert guesses[0].probability == pytest.approx(float(wanted.max()), abs=1e-4)


def test_an_image_of_another_size_is_fitted(tmp_path):
    (guesses,) = loaded("vision").classify([image(tmp_path / "large.png", size=(40, 30))])
    assert guesses[0].label in CLASSES


def test_files_that_are_not_images(tmp_path):
    classifier = loaded("vision")
    with pytest.raises(InputError, match=r"missing.png: no such image file; give paths of images, one per line"):
        classifier.classify([tmp_path / "missing.png"])
    with pytest.raises(InputError, match=r"^no picture no picture .*\.\.\.: no such image file"):
        classifier.classify(["no picture " * 500])
    (tmp_path / "broken.png").write_bytes(b"nothing")
    with pytest.raises(InputError, match=r"broken.png: cannot be decoded as an image; give a complete"):
        classifier.classify([tmp_path / "broken.png"])


def test_one_text_is_not_taken_for_a_list_of_letters():
    ready = loaded("classification")
    for verb in (ready.classify, ready.embed):
        with pytest.raises(InputError, match="one text was given where a list of texts belongs"):
            verb("red")
