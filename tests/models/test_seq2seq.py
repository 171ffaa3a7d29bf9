"""What both sides of an encoder-decoder share."""

import pytest
import torch

import regard
from regard.errors import ConfigError, InputError
from regard.models.store import read_model, save_model
from regard.parts.attend import Terms

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


def test_the_documents_of_one_side_alone_are_rejected() -> None:
    model = regard.build("transformer-base", *SMALL)
    documents = torch.tensor([[0, 0, 1, 1, -1]])
    tokens = torch.ones_like(documents)
    for given in ("documents", "source_documents"):
        with pytest.raises(InputError, match="packed pairs need the documents of both sides"):
            model(tokens, tokens, **{given: documents})


def test_a_mask_is_computed_once_for_all_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in every layer: in a small model, masks would take most of the kernels."""
    model = regard.build("transformer-base", *SMALL, "model.encoder.depth=3", "model.decoder.depth=3")
    calls, compute = [], Terms.allowed
    monkeypatch.setattr(Terms, "allowed", lambda *given: calls.append(given) or compute(*given))
    documents = torch.tensor([[0, 0, 1, 1, -1]])
    tokens = torch.ones_like(documents)
    model(tokens, tokens, source_documents=documents, documents=documents)
    assert len(calls) == 3  # of the encoder, of the decoder, and between them
