"""Arguments of functions that are called from Python."""

from pathlib import Path

import numpy as np
import pytest

import regard
from regard.arguments import check_count, check_files, check_path, check_text, check_texts
from regard.errors import InputError


def test_one_text_is_not_taken_for_a_list_of_letters():
    with pytest.raises(InputError, match=r"one text was given where a list of texts belongs; put it into brackets"):
        check_texts("hello", "texts")


@pytest.mark.parametrize("wrong", [3, None, {"a": 1}, {"a"}, b"hello", len])
def test_an_argument_that_is_not_a_list_of_texts_is_rejected(wrong):
    with pytest.raises(InputError) as caught:
        check_texts(wrong, "prompts")
    assert str(caught.value) == f"prompts={wrong!r} must be a list of texts"
    with pytest.raises(InputError) as caught:
        check_text(wrong, "prompt")
    assert str(caught.value) == f"prompt={wrong!r} must be one text"


def test_an_item_that_is_not_a_text_is_rejected_with_its_index():
    texts = check_texts(("red", Path("a.png"), "dog"), "texts")
    assert next(texts) == "red"
    with pytest.raises(InputError, match=r"^texts\[1\]=PosixPath\('a.png'\) must be a text$"):
        next(texts)
    assert list(check_texts(["red", Path("a.png")], "texts", (str, Path))) == ["red", "a.png"]
    with pytest.raises(InputError, match=r"^texts\[0\]=None must be a text$"):
        list(check_texts([None], "texts", (str, Path)))


def test_texts_may_come_one_by_one():
    assert next(check_texts(iter(str, "never"), "texts")) == ""
    assert list(check_texts(np.array(["red", "dog"]), "texts")) == ["red", "dog"]
    assert list(check_texts({"red": 1, "dog": 2}.keys(), "texts")) == ["red", "dog"]
    assert check_text("red", "prompt") == "red"


@pytest.mark.parametrize("wrong", [True, 0, -1, 1.5, "3"])
def test_a_count_is_a_whole_number(wrong):
    with pytest.raises(InputError, match=f"^top={wrong!r} must be a whole number, at least 1$"):
        check_count(wrong, "top")


def test_a_count_of_numpy_becomes_a_plain_one():
    assert type(check_count(np.int64(3), "top")) is int
    assert check_count(np.int64(3), "top") == 3


@pytest.mark.parametrize("wrong", [5, None, b"run", ["run"], {}, "", "a\0b"])
def test_a_path_is_a_text_or_stands_for_a_path(wrong):
    with pytest.raises(InputError) as caught:
        check_path(wrong, "folder")
    assert str(caught.value) == f"folder={wrong!r} must be a path"
    assert check_path("a/b", "folder") == check_path(Path("a/b"), "folder") == Path("a/b")


def test_a_text_that_is_too_long_for_a_name_is_not_a_path():
    assert check_path("a/" * 300 + "é" * 127, "folder") == Path("a/" * 300 + "é" * 127)
    for wrong in ("é" * 128, f"a/{'b' * 256}/c", "\ud800" * 86):
        with pytest.raises(InputError, match=r"^folder='.+\.\.\..+' must be a path; .* more than 255 bytes$"):
            check_path(wrong, "folder")


def test_files_are_named_by_one_path_or_a_list():
    assert check_files(None, "valid") == check_files((), "valid") == []
    assert check_files("a.txt", "valid") == check_files([Path("a.txt")], "valid") == ["a.txt"]
    with pytest.raises(InputError, match=r"^valid=5 must be a path, or a list of paths$"):
        check_files(5, "valid")
    with pytest.raises(InputError, match=r"^valid\[1\]='' must be a path$"):
        check_files(["a.txt", ""], "valid")


CALLS = {
    "load": lambda: regard.load(5),
    "load_model": lambda: regard.load_model(5),
    "open_run": lambda: regard.open_run(5),
    "resume": lambda: regard.resume(5),
    "convert": lambda: regard.convert("en-fr", "huggingface", 5),
    "compare": lambda: regard.compare("gpt2", on="a.txt", valid=None, steps=1, out=5),
    "train": lambda: regard.train("language", "a.txt", run=5),
}


@pytest.mark.unchecked
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_number_in_place_of_a_folder_is_rejected(call):
    with pytest.raises(InputError, match=r"^(folder|run|out)=5 must be a path$"):
        call()
