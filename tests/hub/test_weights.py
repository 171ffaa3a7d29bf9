"""Files that are not weights or contain more than weights, attacks included."""

import json
import pickle

import pytest
import torch
from safetensors.torch import load_file

from regard.hub.folder import load_huggingface
from tests.hub.cases import case_named
from tests.hub.spoil import WEIGHTS, refused


def test_no_weights_at_all(gpt2) -> None:
    (gpt2 / WEIGHTS).unlink()
    refused(gpt2, "contains no weights")


def test_sizes_in_a_header_are_checked(gpt2) -> None:
    """A header that promises more than the file contains is rejected before anything is allocated."""
    header = {"huge": {"dtype": "F32", "shape": [10**12], "data_offsets": [0, 4 * 10**12]}}
    text = json.dumps(header).encode()
    (gpt2 / WEIGHTS).write_bytes(len(text).to_bytes(8, "little") + text)
    refused(gpt2, "cannot read weights")


@pytest.mark.parametrize("content", [b"", b"not weights", b"\xff" * 100])
def test_files_that_are_not_weights(gpt2, content) -> None:
    (gpt2 / WEIGHTS).write_bytes(content)
    refused(gpt2, "model.safetensors: cannot read weights")


class Evil:
    """An object whose pickle runs code."""

    def __init__(self, path) -> None:
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


def test_a_pickle_is_refused_and_a_program_in_it_never_runs(gpt2, tmp_path) -> None:
    weights = load_file(gpt2 / WEIGHTS)
    (gpt2 / WEIGHTS).unlink()
    torch.save(weights, gpt2 / "pytorch_model.bin")
    refused(gpt2, "pytorch_model.bin: is a pickle, which can contain programs, .*--allow-pickle")
    model = load_huggingface(gpt2, allow_pickle=True)
    assert torch.equal(model.embed.tokens.table.weight, weights["transformer.wte.weight"])
    trap = tmp_path / "trap"
    with (gpt2 / "pytorch_model.bin").open("wb") as file:
        pickle.dump({"transformer.wte.weight": Evil(trap)}, file)
    refused(gpt2, "pytorch_model.bin: cannot read weights", allow_pickle=True)
    torch.save({"transformer.wte.weight": Evil(trap)}, gpt2 / "pytorch_model.bin")
    refused(gpt2, "pytorch_model.bin: cannot read weights", allow_pickle=True)
    assert not trap.exists()
    torch.save({"a": 3}, gpt2 / "pytorch_model.bin")
    refused(gpt2, "must contain a table of tensors and nothing else", allow_pickle=True)


@pytest.fixture
def sharded(tmp_path):
    case_named("gpt2-sharded").save(tmp_path)
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 2
    return tmp_path / "model.safetensors.index.json"


def change_index(index, edit) -> None:
    table = json.loads(index.read_text())
    edit(table["weight_map"])
    index.write_text(json.dumps(table))


def test_a_missing_file(sharded) -> None:
    next(iter(sharded.parent.glob("model-00002*"))).unlink()
    refused(sharded.parent, "index.json: the file model-00002-of-.* is missing")


def test_a_file_elsewhere_is_not_opened(sharded) -> None:
    change_index(sharded, lambda where: where.update({"transformer.wte.weight": "../secret.safetensors"}))
    refused(sharded.parent, "index.json: '../secret.safetensors' must be the name of a file in the same folder")


def test_an_index_that_is_wrong(sharded) -> None:
    first = next(iter(sharded.parent.glob("model-00001*"))).name
    change_index(sharded, lambda where: where.update({"more": first}))
    refused(sharded.parent, f"the weight 'more' is not in {first}")
    change_index(sharded, lambda where: (where.pop("more"), where.pop("transformer.wte.weight")))
    refused(sharded.parent, "the weight 'transformer.wte.weight' is in a file but not in the index")
    sharded.write_text("{}")
    refused(sharded.parent, "index.json: has no weight_map")
