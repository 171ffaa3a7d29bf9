"""The table of known data sets is complete, and its entries are distinct."""

import re
import string

import pytest

from regard.data.known_datasets import DATASETS, find_dataset
from regard.errors import InputError

every = pytest.mark.parametrize("name", DATASETS)


def test_the_sets():
    texts = {"multi30k", "iwslt15-envi", "tatoeba", "tinyshakespeare", "wikitext2", "ptb", "sst2", "trec"}
    assert set(DATASETS) == texts | {"fashion-mnist", "cifar10", "ethucy", "treebank-sample", "cb513", "structures"}
    assert find_dataset("ptb") is DATASETS["ptb"]
    with pytest.raises(InputError, match="^no known data set has the name 'multi30'; did you mean 'multi30k'"):
        find_dataset("multi30")


@every
def test_every_set_says_what_it_is(name):
    known = DATASETS[name]
    assert known.about
    assert known.licence
    assert known.source
    assert known.size == sum(file.size for file in known.files) > 0


@every
def test_files_are_pinned(name):
    files = (*DATASETS[name].files, *DATASETS[name].sheets)
    assert len({file.name for file in files}) == len({file.sha256 for file in files}) == len(files)
    for file in files:
        assert re.fullmatch("[0-9a-f]{64}", file.sha256)
        assert file.size > 0
        assert "/" not in file.name


@every
def test_addresses_are_pinned_to_a_commit(name):
    url = DATASETS[name].url
    if url is None:
        return
    assert {field for _, field, _, _ in string.Formatter().parse(url) if field} <= {"name", "stem"}
    assert re.match(r"https://raw\.githubusercontent\.com/[\w-]+/[\w-]+/[0-9a-f]{40}/", url) or name == "cifar10"


@every
def test_the_command_names_files_that_will_be_there(name):
    known = DATASETS[name]
    words = known.train.split()
    assert words[:2] == ["regard", "train"]
    paths = [word for word in words if "{to}" in word]
    assert paths
    names = [*known.made, *(file.name for file in known.files)]
    if name == "ethucy":  # whose archive has folders
        names += [f"zara1/{part}" for part in ("train", "val")]
    assert {"{to}", *("{to}/" + name for name in names)}.issuperset(paths)
    assert not any("test" in path or "tst2013" in path for path in paths)  # never train or select a model on a test set
