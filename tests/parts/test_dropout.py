"""Dropout that all tokens of a row share, dropout of words, and dropout of an LSTM's weights."""

import torch

from regard.parts.dropout import RowDropout
from regard.parts.embed import EmbedConfig
from regard.parts.fused_cells import LSTMConfig


def test_all_tokens_of_a_row_lose_the_same_features_and_rows_lose_different_ones() -> None:
    torch.manual_seed(0)
    dropout = RowDropout(0.25)
    y = dropout(torch.ones(500, 3, 8))
    assert torch.equal(y, y[:, :1].expand_as(y))
    assert set(y.unique().tolist()) == {0.0, torch.tensor(1 / 0.75).item()}
    assert 0.22 < float((y == 0).float().mean()) < 0.28
    assert not torch.equal(y[0], y[1])
    assert torch.equal(dropout.eval()(y), y)


def test_a_dropped_word_is_zero_wherever_it_stands_and_the_others_are_scaled() -> None:
    torch.manual_seed(0)
    embed = EmbedConfig(word_dropout=0.5).build(40, 6)
    tokens = torch.arange(40).repeat(2)[None]
    kept = embed.tokens(tokens)
    dropped = embed(tokens)
    assert torch.equal(dropped[:, :40], dropped[:, 40:])
    zero = (dropped == 0).all(-1)
    assert 5 < int(zero[:, :40].sum()) < 35
    torch.testing.assert_close(dropped[~zero], 2 * kept[~zero])
    torch.testing.assert_close(embed.eval()(tokens), kept, rtol=0, atol=0)


def test_an_lstm_drops_weights_from_state_to_state_in_training_only_and_learns_the_others() -> None:
    torch.manual_seed(0)
    layer = LSTMConfig(weight_dropout=0.5).build(4)
    plain = LSTMConfig().build(4)
    plain.load_state_dict(layer.state_dict())
    x = torch.randn(2, 6, 4)
    out = layer(x)
    assert torch.equal(out[:, 0], plain(x)[:, 0])  # the first step has no state yet
    assert not torch.equal(out[:, 1:], plain(x)[:, 1:])
    out.sum().backward()
    zeros = float((layer.W_h.grad == 0).float().mean())
    assert 0.2 < zeros < 0.8
    assert torch.equal(layer.eval()(x), plain.eval()(x))
