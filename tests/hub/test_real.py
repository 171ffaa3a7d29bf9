"""Real pretrained weights: BERTs of chemical reactions in the package `rxnfp` (Schwaller et al. 2021).

Skipped if it is not installed: `pip install --no-deps rxnfp` installs it without its dependencies.
"""

import json
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
import transformers

from regard.hub.details import read_details
from regard.hub.folder import load_huggingface, save_huggingface

FOUND = find_spec("rxnfp")
pytestmark = pytest.mark.skipif(FOUND is None, reason="needs the weights in the package rxnfp")
ARCHITECTURES = {
    "bert_ft": "BertModel",
    "bert_ft_10k_25s": "BertForSequenceClassification",
    "bert_pretrained": "BertForMaskedLM",
}


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_outputs_are_the_same(name, tmp_path) -> None:
    assert FOUND is not None
    assert FOUND.submodule_search_locations is not None
    home = Path(next(iter(FOUND.submodule_search_locations))) / "models" / "transformers" / name
    config = json.loads((home / "config.json").read_text())
    config |= {"model_type": "bert", "architectures": [ARCHITECTURES[name]]}  # two are older than these keys
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "pytorch_model.bin").symlink_to(home / "pytorch_model.bin")
    theirs = getattr(transformers, ARCHITECTURES[name]).from_pretrained(tmp_path).eval()
    ours = load_huggingface(tmp_path, allow_pickle=True).eval()
    tokens = torch.randint(5, config["vocab_size"], (3, 40), generator=torch.Generator().manual_seed(0))
    lengths = torch.tensor([40, 25, 9])
    mask = (torch.arange(40) < lengths[:, None]).long()
    with torch.no_grad():
        answer = theirs(input_ids=tokens, attention_mask=mask)
        said = ours(tokens, lengths=lengths)
    expected = answer.logits if "logits" in answer else answer.pooler_output
    if said.ndim == 3:
        said, expected = said[mask.bool()], expected[mask.bool()]
    scale = float(expected.abs().max())
    torch.testing.assert_close(said / scale, expected / scale, rtol=0, atol=1e-5)
    save_huggingface(ours, tmp_path / "out", read_details(tmp_path))
    again = load_huggingface(tmp_path / "out")
    assert again.config == ours.config
    assert all(torch.equal(tensor, again.state_dict()[key]) for key, tensor in ours.state_dict().items())
