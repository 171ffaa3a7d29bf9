"""An encoder that sees only the past."""

import pytest
import torch

import regard
from regard.errors import ConfigError

SMALL = ["model.vocabulary=23", "model.dim=16", "model.depth=2", "model.layers.block.mixer.heads.heads=4"]


def test_with_sight_past_the_future_changes_nothing() -> None:
    model = regard.build("bert", *SMALL, "model.sight=past", seed=0).eval()
    tokens = torch.randint(23, (2, 7))
    later = tokens.clone()
    later[:, 4:] = (later[:, 4:] + 1) % 23
    assert torch.equal(model.encode(tokens)[:, :4], model.encode(later)[:, :4])
    whole = regard.build("bert", *SMALL, seed=0).eval()
    assert not torch.allclose(whole.encode(tokens)[:, :4], whole.encode(later)[:, :4])


def test_padding_and_packing_keep_the_sight() -> None:
    model = regard.build("bert", *SMALL, "model.sight=past", seed=0, dtype=torch.float64).eval()
    tokens = torch.randint(23, (1, 7))
    padded = model.encode(tokens, lengths=torch.tensor([4]))[:, :4]
    torch.testing.assert_close(padded, model.encode(tokens[:, :4]))
    packed = model.encode(tokens, documents=torch.tensor([[0, 0, 0, 0, 1, 1, 1]]))
    torch.testing.assert_close(packed[:, :4], padded)
    torch.testing.assert_close(packed[:, 4:], model.encode(tokens[:, 4:]))


def test_a_bidirectional_layer_is_rejected() -> None:
    changes = ["model.layers.block.mixer.kind=lstm", "model.layers.block.mixer.bidirectional=true", "model.sight=past"]
    with pytest.raises(ConfigError, match="bidirectional=true reads the future"):
        regard.build("bert", "model.vocabulary=23", "model.dim=16", *changes)
