"""Images as models read them."""

from io import BytesIO

import numpy as np
import pytest
import torch
from PIL.Image import open as open_image

from regard.errors import InputError
from regard.viewer.patched_image import image_tensor, read_image
from regard.viewer.query import Query
from regard.viewer.record import record

from ..use.made import image, loaded

PIXELS = np.random.default_rng(3).integers(0, 255, (8, 12, 3), dtype=np.uint8)


def test_a_file_its_bytes_and_pixels_are_the_same(tmp_path):
    model = loaded("vision").model
    path = image(tmp_path / "a.png", 3)
    with open_image(path) as file:
        pixels = np.array(file)
    for given in (path, str(path), path.read_bytes(), pixels):
        assert np.array_equal(read_image(model.image, given).pixels, pixels)


def test_an_image_of_another_size_is_shown_as_the_model_reads_it(tmp_path):
    picture = read_image(loaded("vision").model.image, image(tmp_path / "large.png", size=(40, 30)))
    assert picture.pixels.shape == (8, 12, 3)
    with open_image(BytesIO(picture.png())) as file:
        assert np.array_equal(np.array(file), picture.pixels)


def test_patches_are_named_by_row_and_column():
    picture = read_image(loaded("vision").model.image, PIXELS)
    assert picture.info() == {"rows": 2, "columns": 3, "first": 1, "width": 12, "height": 8}
    assert [token["text"] for token in picture.tokens()] == ["[class]", "1,1", "1,2", "1,3", "2,1", "2,2", "2,3"]
    assert [token["word"] for token in picture.tokens()] == [-1, 0, 1, 2, 3, 4, 5]
    assert [token["special"] for token in picture.tokens()] == [True] + [False] * 6


def test_pixels_are_normalised_as_in_training():
    ready = loaded("vision", mean=(0.1, 0.2, 0.3), std=(0.5, 0.6, 0.7))
    found = image_tensor(ready.bundle, read_image(ready.model.image, PIXELS))[0]
    wanted = (PIXELS / 255 - [0.1, 0.2, 0.3]) / [0.5, 0.6, 0.7]
    np.testing.assert_allclose(found.permute(1, 2, 0).numpy(), wanted, atol=1e-6)
    assert found.dtype == torch.float64


def test_a_recording_of_an_image(tmp_path):
    ready = loaded("vision")
    path = image(tmp_path / "a.png", 3)
    recording = record(ready, Query(image=path.read_bytes()), title="my image")
    manifest = recording.manifest()
    assert (manifest["title"], manifest["model"], manifest["text"]) == (
        "my image",
        "a classifier of images",
        "an image",
    )
    (answer,) = manifest["answers"]
    ((*guesses,),) = ready.classify([path], top=3)
    assert answer["question"] == "What is in this image?"
    assert [guess["text"] for guess in answer["guesses"]] == [guess.label for guess in guesses]
    found = [guess["probability"] for guess in answer["guesses"]]
    assert found == pytest.approx([guess.probability for guess in guesses])
    with open_image(BytesIO(recording.blob("image.png"))) as file, open_image(path) as wanted:
        assert np.array_equal(np.array(file), np.array(wanted))
    by_path = record(ready, Query(str(path)))  # for a vision model, the text is the path of a file
    assert by_path.manifest()["text"] == str(path)
    assert by_path.blob("attention/0.f16") == recording.blob("attention/0.f16")


def test_grey_pixels():
    grey = loaded("vision", "word", None, "model.patches.channels=1", mean=(0.5,), std=(0.5,))
    flat = PIXELS[..., 0]
    for pixels in (flat, flat[..., None]):
        assert np.array_equal(read_image(grey.model.image, pixels).pixels, flat[..., None])


def test_errors(tmp_path):
    ready = loaded("vision")
    with pytest.raises(InputError, match="here: is a classifier of images and needs an image; give a file"):
        record(ready, Query())
    with pytest.raises(InputError, match=r"nowhere.png: there is no such image file; give the path of a PNG"):
        record(ready, Query("nowhere.png"))
    with pytest.raises(InputError, match="the image: cannot be decoded as an image; use a complete PNG"):
        record(ready, Query(image=b"nothing"))
    (tmp_path / "b.png").write_bytes(b"nothing")
    with pytest.raises(InputError, match=r"b.png: cannot be decoded as an image"):
        record(ready, Query(image=tmp_path / "b.png"))
    with pytest.raises(InputError, match=r"pixels must be uint8, height x width .* not float64 of shape \(3, 3\)"):
        record(ready, Query(image=np.zeros((3, 3))))
    with pytest.raises(InputError, match=r"not uint8 of shape \(3, 3, 4\)"):
        record(ready, Query(image=np.zeros((3, 3, 4), np.uint8)))
    with pytest.raises(InputError, match="here: is a language model and reads text; leave the image out"):
        record(loaded("language"), Query("red", image=b"x"))
