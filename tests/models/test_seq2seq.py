"""What both sides of an encoder-decoder share."""

import pytest
import torch

import regard
from regard.errors import ConfigError
from regard.models.store import read_model, save_model

SMALL = ["model.vocabulary=23", "model.dim=16", "model.embed.position.kind=learned", "model.embed.position.length=9"]
SMALL += [f"model.{side}.depth=1" for side in ("encoder", "decoder")]


def test_shared_tokens_leave_each_side_its_positions(tmp_path) -> None:
    model = regard.build("transformer-base", *SMALL, "model.shared=tokens", seed=0).eval()
    names = {name for name, _ in model.named_parameters() if "embed" in name}
    assert names == {"embed.tokens.table.weight", "embed.position.table.weight", "source_embed.position.table.weight"}
    source, target = torch.randint(23, (2, 5)), torch.randint(23, (2, 4))
    before = model(source, target)
    save_model(model, tmp_path)
    again = read_model(tmp_path).eval()
    assert again.source_embed.tokens is again.embed.tokens
    assert torch.equal(again(source, target), before)
    with torch.no_grad():
        model.source_embed.position.table.weight.zero_()
    assert not torch.allclose(model(source, target), before)


def test_tokens_of_two_vocabularies_cannot_be_shared() -> None:
    with pytest.raises(ConfigError, match="model.shared: tokens cannot be shared with a source_vocabulary"):
        regard.build("transformer-base", *SMALL, "model.shared=tokens", "model.source_vocabulary=9")
