"""Ways to damage a folder, and the check that loading it is an error."""

import json

import pytest
from safetensors.torch import load_file, save_file

from regard.errors import RegardError
from regard.hub.folder import load_huggingface

WEIGHTS = "model.safetensors"


def change_weights(folder, edit) -> None:
    weights = load_file(folder / WEIGHTS)
    edit(weights)
    save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})


def change_config(folder, **values) -> None:
    table = json.loads((folder / "config.json").read_text())
    table.update(values)
    (folder / "config.json").write_text(json.dumps(table))


def refused(folder, message: str, **options) -> None:
    with pytest.raises(RegardError, match=message) as caught:
        load_huggingface(folder, **options)
    assert "\n" not in str(caught.value)
