"""Attention step by step, each step against its equation."""

from math import exp, sqrt
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from regard import formal
from regard.errors import ConfigError, InputError
from regard.parts.attention import Attention, AttentionConfig
from regard.parts.heads import BareHeads, BareHeadsConfig, LatentHeadsConfig, MultiHeads, MultiHeadsConfig
from regard.parts.mask import (
    Causal,
    Documents,
    Padding,
    Strided,
    StridedConfig,
    Window,
    dense_mask,
    padded_positions,
)
from regard.parts.norm import RMSNormConfig
from regard.parts.position import AlibiConfig, RelativeBiasConfig, RopeConfig
from regard.parts.score import AdditiveConfig, BilinearConfig, CosineConfig, DotConfig, ReducedRankConfig
from regard.parts.state import State
from regard.parts.watch import watch


def random(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed + sum(shape)))


def close(found, expected):
    torch.testing.assert_close(found, torch.as_tensor(expected, dtype=torch.float64), atol=1e-10, rtol=0)


def fill(module):
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype) / 2)
    return module


def make(heads, dim=8, memory_dim=None, **options):
    return fill(AttentionConfig(heads, **options).build(dim, memory_dim).double())


def softmax(scores):
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


# --- the syllabus ----------------------------------------------------------------------------------------------------


def test_c1_one_query_over_vectors():
    """e_i = q.X_i / sqrt(D), a = softmax(e), y = sum_i a_i X_i."""
    q, X = [1.0, 2.0, -1.0, 0.5], [[1.0, 0.0, 0.0, 2.0], [0.0, 1.0, 1.0, 0.0], [-1.0, 0.5, 2.0, 1.0]]
    e = [sum(a * b for a, b in zip(q, row, strict=True)) / sqrt(4) for row in X]
    a = [exp(score) / sum(map(exp, e)) for score in e]
    y = [sum(a[i] * X[i][d] for i in range(3)) for d in range(4)]
    attention = make(BareHeadsConfig(), dim=4)
    memory = torch.tensor([X], dtype=torch.float64)
    with watch(attention) as tape:
        found = attention(torch.tensor([[q]], dtype=torch.float64), memory=memory)
    close(found, [[y]])
    close(tape.weights(""), [[[a]]])


def test_c2_many_queries_at_once():
    """Y = softmax(Q X^T / sqrt(D)) X; each row is what its query gets alone."""
    attention, Q, X = make(BareHeadsConfig(), dim=4), random(2, 3, 4), random(2, 5, 4)
    found = attention(Q, memory=X)
    expected = [softmax(q @ x.T / 2) @ x for q, x in zip(Q.numpy(), X.numpy(), strict=True)]
    close(found, np.stack(expected))
    for t in range(3):
        close(attention(Q[:, t : t + 1], memory=X), found[:, t : t + 1])


def test_c3_keys_and_values_apart():
    """K = XW_K, V = XW_V: what is compared is not what is mixed."""
    heads = fill(MultiHeads(4, heads=1, head_dim=3).double())
    attention = Attention(heads, DotConfig().build(3, 3))
    Q, X = random(1, 2, 4), random(1, 5, 4)
    W_Q, W_K, W_V, W_O = (
        linear.weight.detach().numpy().T for linear in (heads.to_query, heads.to_key, heads.to_value, heads.output)
    )
    q, x = Q[0].numpy(), X[0].numpy()
    close(attention(Q, memory=X)[0], softmax(q @ W_Q @ (x @ W_K).T / sqrt(3)) @ (x @ W_V) @ W_O)


@settings(max_examples=30)
@given(
    st.permutations(range(5)),
    st.sampled_from([BareHeadsConfig(), MultiHeadsConfig(4, 2), LatentHeadsConfig(2, 3, 2, 2, 3)]),
)
def test_c4_a_permutation_of_the_input_permutes_the_output(order, heads):
    attention, x = make(heads), random(2, 5, 8)
    close(attention(x[:, order]), attention(x)[:, order])


def test_c4_positions_and_masks_break_the_symmetry():
    x, order = random(1, 5, 8), [1, 0, 2, 3, 4]
    for attention, mask in (
        (make(MultiHeadsConfig(2), position=RopeConfig()), None),
        (make(MultiHeadsConfig(2)), Causal()),
    ):
        assert (attention(x[:, order], mask=mask) - attention(x, mask=mask)[:, order]).abs().max() > 1e-3


def test_c5_self_attention_without_parameters():
    """On unit vectors: Y = softmax(X X^T) X; every word becomes a mean of those at a small angle."""
    attention = make(BareHeadsConfig(), dim=4, score=CosineConfig())
    assert list(attention.parameters()) == []
    X = nn.functional.normalize(random(2, 5, 4), dim=-1)
    close(attention(X), np.stack([softmax(x @ x.T) @ x for x in X.numpy()]))
    with watch(attention) as tape:
        attention(X)
    weights = tape.weights("")[:, 0]
    assert torch.equal(weights.argmax(-1), torch.arange(5).expand(2, -1))  # each looks most at itself


def test_c6_causal_is_minus_infinity_before_the_softmax():
    attention, X = make(BareHeadsConfig(), dim=4), random(1, 5, 4)
    x = X[0].numpy()
    future = np.triu(np.full((5, 5), -np.inf), 1)
    close(attention(X, mask=Causal())[0], softmax(x @ x.T / 2 + future) @ x)
    close(attention(X, mask=Causal())[:, 0], X[:, 0])  # the first sees only itself


def test_c6_the_future_changes_nothing():
    attention, x = make(MultiHeadsConfig(2), position=RopeConfig()), random(1, 6, 8)
    other = torch.cat((x[:, :4], random(1, 2, 8, seed=5)), 1)
    assert torch.equal(attention(x, mask=Causal())[:, :4], attention(other, mask=Causal())[:, :4])


@pytest.mark.parametrize("heads", [MultiHeadsConfig(4, 2), LatentHeadsConfig(2, 3, 2, 2, 3), BareHeadsConfig()])
@pytest.mark.parametrize(
    "score", [DotConfig(), CosineConfig(), BilinearConfig(), ReducedRankConfig(2), AdditiveConfig(3)]
)
@pytest.mark.parametrize("lengths", [None, torch.tensor([5, 2])])
def test_c7_a_memory_remembered_is_a_memory_given(heads, score, lengths):
    attention = make(heads, score=score)
    x, memory, places = random(2, 3, 8), random(2, 5, 8), padded_positions(lengths, 5)
    remembered = attention.remember(memory, places)
    expected = attention(x, memory=memory, memory_positions=places)
    close(attention(x, state=remembered), expected)
    for t in range(3):  # step by step
        places_x = torch.full((2, 1), t)
        close(attention(x[:, t : t + 1], positions=places_x, state=remembered), expected[:, t : t + 1])
    if lengths is not None:
        close(expected[1:], attention(x[1:], memory=memory[1:, :2]))  # padding changes nothing
        assert (expected - attention(x, memory=memory))[1].abs().max() > 1e-3


def test_c7_cross_attention_of_unequal_widths():
    attention = make(BareHeadsConfig(), dim=4, memory_dim=6, score=AdditiveConfig(3))
    x, memory = random(2, 3, 4), random(2, 5, 6)
    W, U, v = (attention.score.get_submodule(name) for name in ("from_query", "from_key", "energy"))
    e = v(torch.tanh(W(x)[:, :, None] + U(memory)[:, None])).squeeze(-1)
    close(attention(x, memory=memory), e.softmax(-1) @ memory)


@pytest.mark.parametrize("mask", [None, Causal()])
def test_c8_heads_are_attentions_side_by_side(mask):
    heads = fill(MultiHeads(8, heads=4, bias="all").double())
    attention, X = Attention(heads, DotConfig().build(2, 2)), random(2, 5, 8)

    def parts(linear):
        return linear.weight.detach().numpy().T, linear.bias.detach().numpy()

    (W_Q, b_Q), (W_K, b_K), (W_V, b_V), (W_O, b_O) = map(
        parts, (heads.to_query, heads.to_key, heads.to_value, heads.output)
    )
    future = 0 if mask is None else np.triu(np.full((5, 5), -np.inf), 1)
    for x, found in zip(X.numpy(), attention(X, mask=mask), strict=True):
        mixed = []
        for h in range(4):
            part = slice(2 * h, 2 * h + 2)
            q, k, v = x @ W_Q[:, part] + b_Q[part], x @ W_K[:, part] + b_K[part], x @ W_V[:, part] + b_V[part]
            mixed.append(softmax(q @ k.T / sqrt(2) + future) @ v)
        close(found, np.concatenate(mixed, -1) @ W_O + b_O)


def test_the_worked_example():
    """Three inputs by hand: keys, values and queries are small whole numbers."""
    heads = MultiHeads(4, heads=1, head_dim=3).double()
    matrices = {
        "to_key": [[0, 0, 1], [1, 1, 0], [0, 1, 0], [1, 1, 0]],
        "to_value": [[0, 2, 0], [0, 3, 0], [1, 0, 3], [1, 1, 0]],
        "to_query": [[1, 0, 1], [1, 0, 0], [0, 0, 1], [0, 1, 1]],
        "output": [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]],
    }
    with torch.no_grad():
        for name, matrix in matrices.items():
            heads.get_submodule(name).weight.copy_(torch.tensor(matrix, dtype=torch.float64).T)
    attention = Attention(heads, DotConfig(scale=1.0).build(3, 3))
    x = torch.tensor([[[1, 0, 1, 0], [0, 2, 0, 2], [1, 1, 1, 1]]], dtype=torch.float64)
    with watch(attention) as tape:
        found = attention(x)
    (record,) = tape[""]
    close(record.key[0, 0], [[0, 1, 1], [4, 4, 0], [2, 3, 1]])
    close(record.value[0, 0], [[1, 2, 3], [2, 8, 0], [2, 6, 3]])
    close(record.query[0, 0], [[1, 0, 2], [2, 2, 2], [2, 1, 3]])
    scores = attention.score(record.query, record.key)[0, 0]
    close(scores[0], [2, 4, 4])
    small, large = exp(2) / (exp(2) + 2 * exp(4)), exp(4) / (exp(2) + 2 * exp(4))
    close(record.weights[0, 0, 0], [small, large, large])
    first = [small * 1 + large * 4, small * 2 + large * 14, small * 3 + large * 3]
    close(found[0, 0], [*first, 0])


# --- against others --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("cross", [False, True])
def test_torchs_multi_head_attention(causal, cross):
    theirs = fill(nn.MultiheadAttention(8, 4, batch_first=True).double())
    ours = AttentionConfig(MultiHeadsConfig(4, bias="all")).build(8).double()
    state = {"heads.output.weight": theirs.out_proj.weight, "heads.output.bias": theirs.out_proj.bias}
    for i, name in enumerate(("to_query", "to_key", "to_value")):
        state[f"heads.{name}.weight"] = theirs.in_proj_weight[8 * i : 8 * i + 8]
        state[f"heads.{name}.bias"] = theirs.in_proj_bias[8 * i : 8 * i + 8]
    ours.load_state_dict(state)
    x, memory = random(2, 5, 8), random(2, 4, 8) if cross else None
    lengths = torch.tensor([4, 2]) if cross else None
    source = x if memory is None else memory
    hidden = torch.ones(5, source.shape[1], dtype=torch.bool).triu(1) if causal else None
    absent = None if lengths is None else padded_positions(lengths, 4) < 0
    expected, weights = theirs(x, source, source, key_padding_mask=absent, attn_mask=hidden, average_attn_weights=False)
    with watch(ours) as tape:
        ours(x, memory=memory, mask=Causal() if causal else None, memory_positions=padded_positions(lengths, 4))
    found = ours(x, memory=memory, mask=Causal() if causal else None, memory_positions=padded_positions(lengths, 4))
    close(found, expected)
    close(tape.weights(""), weights)


def formal_head(heads, h):
    part = slice(h * heads.head_dim, (h + 1) * heads.head_dim)
    linears = heads.to_query, heads.to_key, heads.to_value
    return formal.AttentionWeights(
        *(p.detach()[part].numpy() for linear in linears for p in (linear.weight, linear.bias))
    )


def test_the_formal_algorithm_of_one_head():
    heads = fill(MultiHeads(4, heads=1, head_dim=3, bias="qkv").double())
    attention, x, z = Attention(heads, DotConfig().build(3, 3)), random(1, 3, 4), random(1, 5, 4)
    everything = formal.bidirectional_mask(5, 3)
    mixed = formal.attention(x[0].numpy().T, z[0].numpy().T, formal_head(heads, 0), everything)
    close(attention(x, memory=z)[0], mixed.T @ heads.output.weight.detach().numpy().T)


@pytest.mark.parametrize("causal", [False, True])
def test_the_formal_algorithm_of_many_heads(causal):
    heads = fill(MultiHeads(8, heads=2, bias="all").double())
    attention, x = Attention(heads, DotConfig().build(4, 4)), random(1, 5, 8)
    weights = formal.MultiHeadWeights(
        tuple(formal_head(heads, h) for h in range(2)),
        heads.output.weight.detach().numpy(),
        heads.output.bias.detach().numpy(),
    )
    visible = formal.unidirectional_mask(5) if causal else formal.bidirectional_mask(5, 5)
    X = x[0].numpy().T
    close(attention(x, mask=Causal() if causal else None)[0], formal.mh_attention(X, X, weights, visible).T)


# --- everyday --------------------------------------------------------------------------------------------------------

kinds = {
    "multi": {"heads": MultiHeadsConfig(4, bias="all")},
    "grouped": {"heads": MultiHeadsConfig(4, 2, qk_norm=RMSNormConfig()), "position": RopeConfig()},
    "latent": {"heads": LatentHeadsConfig(2, 3, 2, 2, 3, query_rank=4), "position": RopeConfig()},
    "alibi": {"heads": MultiHeadsConfig(4), "position": AlibiConfig()},
    "bias": {"heads": MultiHeadsConfig(4), "position": RelativeBiasConfig(8, 6, True)},
    "additive": {"heads": MultiHeadsConfig(2), "score": AdditiveConfig(3)},
    "bilinear": {"heads": MultiHeadsConfig(2), "score": BilinearConfig()},
    "reduced": {"heads": MultiHeadsConfig(2), "score": ReducedRankConfig(2)},
    "capped": {"heads": MultiHeadsConfig(2), "score": DotConfig(cap=1.0), "position": AlibiConfig()},
}


@pytest.mark.parametrize("kind", kinds)
@pytest.mark.parametrize("window", [None, 2])
@pytest.mark.parametrize("causal", [False, True])
def test_padding_changes_nothing(kind, window, causal):
    attention, x = make(**kinds[kind], window=window), random(2, 5, 8)
    mask = Padding() & (Causal() if causal else None)
    found = attention(x, mask=mask, positions=padded_positions(torch.tensor([5, 3]), 5))
    close(found[:1], attention(x[:1], mask=Causal() if causal else None))
    close(found[1:, :3], attention(x[1:, :3], mask=Causal() if causal else None))


@pytest.mark.parametrize("kind", kinds)
def test_gradients_reach_every_parameter(kind):
    attention = make(**kinds[kind])
    if kind == "multi":  # a bias of all keys does not change a softmax
        attention.heads.to_key.bias.requires_grad_(False)
    x = random(2, 5, 8).requires_grad_()
    (attention(x, mask=Causal()) * random(2, 5, 8, seed=1)).sum().backward()
    for name, parameter in attention.named_parameters():
        assert not parameter.requires_grad or parameter.grad.abs().max() > 1e-6, name
    assert x.grad.abs().min() > 0


@pytest.mark.parametrize("causal", [False, True])
def test_a_window_sees_only_what_is_near(causal):
    attention, x = make(MultiHeadsConfig(2), window=3), random(1, 7, 8)
    mask = Causal() if causal else None
    with watch(attention) as tape:
        attention(x, mask=mask)
    seen = tape.weights("")[0, 0] > 0
    assert seen.tolist() == [[abs(i - j) < 3 and (not causal or j <= i) for j in range(7)] for i in range(7)]
    plain = AttentionConfig(MultiHeadsConfig(2)).build(8).double()
    plain.load_state_dict(attention.state_dict())
    close(attention(x, mask=mask), plain(x, mask=Window(3) & mask))
    near = attention(x[:, 4:7], mask=Causal())[:, -1]
    close(attention(x, mask=Causal())[:, -1], near)


@pytest.mark.parametrize("position", [RopeConfig(), AlibiConfig(), RelativeBiasConfig(8, 6, True)])
def test_relative_positions_do_not_depend_on_where_the_text_begins(position):
    attention, x = make(MultiHeadsConfig(2), position=position), random(2, 5, 8)
    here = attention(x, mask=Causal())
    close(attention(x, mask=Causal(), positions=torch.arange(100, 105).expand(2, -1)), here)
    far = attention(x, mask=Causal(), positions=2 * torch.arange(5).expand(2, -1))
    assert (far - here).abs().max() > 1e-3


def start(attention, rows):
    return State([{"mixer": attention.start(rows)}], torch.zeros(rows, dtype=torch.long))


def test_a_cache_takes_no_packed_documents():
    documents = torch.zeros(1, 1, dtype=torch.long)
    with pytest.raises(InputError, match="one document per row"):
        start(make(MultiHeadsConfig(2)), 1).advance(documents, mask=Causal() & Documents(documents))


def test_a_memory_and_a_state_exclude_each_other():
    attention, x = make(MultiHeadsConfig(2)), random(1, 2, 8)
    with pytest.raises(InputError, match="attention takes a memory or a state, not both; leave one of them out"):
        attention(x, memory=x, state=attention.remember(x, None))


def test_rope_needs_queries_and_keys_of_one_width():
    config = AttentionConfig(BareHeadsConfig(), AdditiveConfig(), RopeConfig())
    with pytest.raises(ConfigError, match="position: queries of width 8 and keys of width 6 cannot both be rotated"):
        config.build(8, memory_dim=6)


def test_padding_is_hidden_whatever_the_mask():
    attention, x = make(MultiHeadsConfig(2)), random(1, 5, 8)
    positions = torch.tensor([[0, 1, 2, -1, -1]])
    for mask in (None, Causal(), Window(9)):
        close(attention(x, mask=mask, positions=positions)[:, :3], attention(x[:, :3], mask=mask))


def test_equal_positions_are_one_module():
    shared = {}
    config = AttentionConfig(MultiHeadsConfig(2), position=RelativeBiasConfig())
    first, second = config.build(8, shared=shared), config.build(8, shared=shared)
    assert first.position is second.position
    assert config.build(8).position is not first.position
    wider = AttentionConfig(MultiHeadsConfig(4), position=RelativeBiasConfig()).build(8, shared=shared)
    assert wider.position is not first.position
    assert wider.position.table.embedding_dim == 4


def test_the_recipe_of_an_attention():
    from regard.config import from_table, to_table

    table = {
        "heads": {"kind": "multi", "heads": 4, "kv_heads": 2},
        "score": {"kind": "dot", "cap": 3.0},
        "position": {"kind": "rope", "scaling": {"kind": "yarn", "factor": 4.0, "original_length": 64}},
        "window": 3,
    }
    config = from_table(table, AttentionConfig)
    attention = config.build(8)
    assert isinstance(attention.heads, MultiHeads)
    assert (attention.score.cap, attention.window, attention.heads.kv_heads) == (3.0, 3, 2)
    assert attention.position.magnitude > 1
    assert from_table(to_table(config), AttentionConfig) == config
    assert isinstance(AttentionConfig(BareHeadsConfig()).build(4).heads, BareHeads)


@pytest.mark.parametrize(("lengths", "causal"), [(None, [True]), (torch.tensor([5, 3]), [False])])
def test_a_prompt_is_read_by_the_causal_kernel_unless_it_is_ragged(monkeypatch, lengths, causal):
    noted, kernel = [], torch.nn.functional.scaled_dot_product_attention

    def note(*inputs, **options):
        noted.append(inputs[5])
        return kernel(*inputs, **options)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", note)
    attention, x = make(MultiHeadsConfig(2), position=RopeConfig()), random(2, 5, 8)
    state = start(attention, 2)
    for part, count in ((x, lengths), (x[:, :1], None)):
        step = state.advance(torch.zeros(part.shape[:2], dtype=torch.long), count)
        attention(part, state=step.layers[0]["mixer"])
    assert noted == [*causal, False]


# --- a mask of the layer's own ----------------------------------------------------------------------------------------


def test_a_rule_of_the_layer_is_added_to_the_mask() -> None:
    config = AttentionConfig(MultiHeadsConfig(2), mask=StridedConfig(2))
    attention = fill(config.build(4).double())
    x = torch.randn(2, 7, 4, dtype=torch.float64)
    plain = fill(AttentionConfig(MultiHeadsConfig(2)).build(4).double())
    plain.load_state_dict(attention.state_dict())
    whole = attention(x, mask=Causal())
    assert torch.allclose(whole, plain(x, mask=Strided(2) & Causal()))
    assert not torch.allclose(whole, plain(x, mask=Causal()))


def test_strided_sees_near_tokens_and_every_stride_th() -> None:
    positions = torch.arange(7)[None]
    seen = dense_mask(Strided(3) & Causal(), positions, positions, 1)[0, 6]
    assert seen.tolist() == [True, False, False, True, True, True, True]


def test_a_loaded_model_is_watched_by_its_module():
    attention = Attention(MultiHeads(8, heads=2), DotConfig().build(4, 4))
    with watch(attention) as direct, watch(SimpleNamespace(model=attention)) as loaded:
        attention(torch.randn(1, 3, 8))
    assert len(loaded) == 1
    assert all(torch.equal(direct.weights(name), loaded.weights(name)) for name in loaded)
