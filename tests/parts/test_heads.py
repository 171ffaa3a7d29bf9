"""Heads against plain multi-head attention, and against transformers."""

import pytest
import torch
from torch import nn

from regard.errors import ConfigError, InputError
from regard.parts.attend import explicit
from regard.parts.attention import AttentionConfig
from regard.parts.heads import (
    AgentHeads,
    AgentHeadsConfig,
    BareHeads,
    BareHeadsConfig,
    Heads,
    LatentHeads,
    LatentHeadsConfig,
    MultiHeads,
    MultiHeadsConfig,
)
from regard.parts.mask import Agents, Causal
from regard.parts.norm import LayerNormConfig, RMSNormConfig
from regard.parts.position import Relative, RopeConfig
from regard.parts.score import DotConfig
from regard.parts.watch import watch

identity = Relative().rotation(torch.zeros(1, 1, dtype=torch.long))


def random(*shape, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(sum(shape)))


def close(found, expected, tolerance=1e-10):
    torch.testing.assert_close(found, expected, atol=tolerance, rtol=0)


def fill(module):
    """Set every parameter to values that it does not start with, norms and biases included."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype) / 2 + 0.2)
    return module


def config(heads, **options):
    return AttentionConfig(heads, **options)


# --- multi-head ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kv_heads", [1, 2, 3, 6])
def test_shapes(kv_heads):
    heads = MultiHeadsConfig(6, kv_heads, head_dim=5).build(8, 8).double()
    x = random(2, 3, 8)
    assert heads.query(x, identity).shape == (2, 6, 3, 5)
    keys, values = heads.expand(heads.keep(x, identity))
    assert keys.shape == values.shape == (2, kv_heads, 3, 5)
    assert heads.merge(random(2, 6, 3, 5)).shape == (2, 3, 8)
    assert (heads.heads, heads.query_dim, heads.key_dim, heads.value_dim, heads.rope_dim) == (6, 5, 5, 5, 5)


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_grouped_heads_are_plain_heads_with_repeated_weights(kv_heads):
    grouped = fill(config(MultiHeadsConfig(4, kv_heads, bias="all"), position=RopeConfig()).build(8).double())
    plain = config(MultiHeadsConfig(4, bias="all"), position=RopeConfig()).build(8).double()
    state = grouped.state_dict()
    for name in ("to_key", "to_value"):
        for kind in ("weight", "bias"):
            per_head = state[f"heads.{name}.{kind}"].unflatten(0, (kv_heads, 2))
            state[f"heads.{name}.{kind}"] = per_head.repeat_interleave(4 // kv_heads, 0).flatten(0, 1)
    plain.load_state_dict(state)
    x = random(2, 5, 8)
    for mask in (None, Causal()):
        close(grouped(x, mask=mask), plain(x, mask=mask))


def test_a_head_is_a_block_of_the_weights():
    heads = fill(MultiHeads(6, heads=2, bias="qkv").double())
    x = random(1, 4, 6)
    for h in range(2):
        block = slice(3 * h, 3 * h + 3)
        query = x[0] @ heads.to_query.weight[block].T + heads.to_query.bias[block]
        close(heads.query(x, identity)[0, h], query)
    mixed = random(1, 2, 4, 3)
    close(heads.merge(mixed)[0], torch.cat((mixed[0, 0], mixed[0, 1]), -1) @ heads.output.weight.T)


@pytest.mark.parametrize(("bias", "biases"), [("no", set()), ("qkv", {"query", "key", "value"}), ("all", None)])
def test_bias(bias, biases):
    heads = MultiHeadsConfig(2, bias=bias).build(4, 4)
    found = {name for name, _ in heads.named_parameters() if name.endswith("bias")}
    expected = {"to_query.bias", "to_key.bias", "to_value.bias", "output.bias"}
    assert found == (expected if biases is None else {f"to_{name}.bias" for name in biases})


def test_full_width_per_head_costs_more_parameters():
    with torch.device("meta"):
        heads = MultiHeads(4096, heads=12, head_dim=4096)
    assert sum(parameter.numel() for parameter in heads.parameters()) == 805_306_368


def test_the_norm_acts_on_each_query_and_key_before_the_rotation():
    heads = fill(MultiHeadsConfig(2, 1, head_dim=4, qk_norm=RMSNormConfig(eps=1e-3)).build(6, 6).double())
    assert heads.query_norm is not heads.key_norm
    rope = RopeConfig().build(4, 2).double()
    x, positions = random(2, 3, 6), torch.arange(3)[None]
    rotate = rope.rotation(positions)

    def normal(vectors, gamma):
        return vectors / (vectors.square().mean(-1, keepdim=True) + 1e-3).sqrt() * gamma

    query = (x @ heads.to_query.weight.T).view(2, 3, 2, 4).transpose(1, 2)
    key = (x @ heads.to_key.weight.T).view(2, 3, 1, 4).transpose(1, 2)
    close(heads.query(x, rotate), rotate(normal(query, heads.query_norm.weight)))
    kept_key, kept_value = heads.keep(x, rotate)
    close(kept_key, rotate(normal(key, heads.key_norm.weight)))
    close(kept_value, (x @ heads.to_value.weight.T).view(2, 3, 1, 4).transpose(1, 2))


def hidden_future(T):
    return torch.full((T, T), -torch.inf).triu(1)[None, None]


def test_qwen3():
    from transformers import Qwen3Config
    from transformers.models.qwen3.modeling_qwen3 import Qwen3Attention, Qwen3RotaryEmbedding

    theirs_config = Qwen3Config(
        hidden_size=12,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=6,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 1000.0},
        attn_implementation="eager",
    )
    theirs = fill(Qwen3Attention(theirs_config, 0)).eval()
    ours = config(
        MultiHeadsConfig(4, 2, head_dim=6, qk_norm=RMSNormConfig(eps=1e-5)), position=RopeConfig(base=1000.0)
    ).build(12)
    names = {
        "to_query": theirs.q_proj,
        "to_key": theirs.k_proj,
        "to_value": theirs.v_proj,
        "output": theirs.o_proj,
        "query_norm": theirs.q_norm,
        "key_norm": theirs.k_norm,
    }
    ours.load_state_dict({f"heads.{name}.weight": module.weight for name, module in names.items()})
    x = random(2, 5, 12, dtype=torch.float32)
    rotations = Qwen3RotaryEmbedding(theirs_config)(x, torch.arange(5)[None])
    close(ours(x, mask=Causal()), theirs(x, rotations, hidden_future(5))[0], 1e-5)


# --- latent ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("query_rank", [None, 5])
def test_deepseek_v3(query_rank):
    from transformers import DeepseekV3Config
    from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3Attention, DeepseekV3RotaryEmbedding

    theirs_config = DeepseekV3Config(
        hidden_size=12,
        num_attention_heads=3,
        num_key_value_heads=3,
        q_lora_rank=query_rank,
        kv_lora_rank=7,
        qk_nope_head_dim=6,
        qk_rope_head_dim=4,
        v_head_dim=5,
        rope_interleave=True,
        rope_parameters={"rope_type": "default", "rope_theta": 1000.0},
        attn_implementation="eager",
    )
    theirs = fill(DeepseekV3Attention(theirs_config, 0)).eval()
    heads = LatentHeadsConfig(3, rank=7, plain=6, turned=4, value=5, query_rank=query_rank)
    ours = config(heads, position=RopeConfig(base=1000.0, layout="interleaved")).build(12)
    names = {
        "squeeze": theirs.kv_a_proj_with_mqa,
        "norm": theirs.kv_a_layernorm,
        "to_key_value": theirs.kv_b_proj,
        "output": theirs.o_proj,
        "to_query": theirs.q_proj if query_rank is None else theirs.q_b_proj,
    }
    if query_rank is not None:
        names |= {"squeeze_query": theirs.q_a_proj, "query_norm": theirs.q_a_layernorm}
    ours.load_state_dict({f"heads.{name}.weight": module.weight for name, module in names.items()})
    x = random(2, 5, 12, dtype=torch.float32)
    rotations = DeepseekV3RotaryEmbedding(theirs_config)(x, torch.arange(5)[None])
    close(ours(x, mask=Causal()), theirs(x, rotations, hidden_future(5))[0], 1e-5)


def test_latent_heads_keep_only_the_latent_and_one_key():
    heads = fill(LatentHeadsConfig(3, rank=7, plain=6, turned=4, value=5).build(12, 12).double())
    assert isinstance(heads, LatentHeads)
    rotate = RopeConfig().build(heads.rope_dim, 3).double().rotation(torch.arange(2)[None])
    x = random(2, 2, 12)
    latent, rotated = heads.keep(x, rotate)
    assert latent.shape == (2, 1, 2, 7)
    assert rotated.shape == (2, 1, 2, 4)
    keys, values = heads.expand((latent, rotated))
    assert keys.shape == (2, 3, 2, 10)
    assert values.shape == (2, 3, 2, 5)
    for h in range(3):  # the rotated part is shared
        close(keys[:, h, :, 6:], rotated[:, 0])


def test_latent_heads_take_any_norm():
    heads = LatentHeadsConfig(2, 4, 2, 2, 2, query_rank=3, norm=LayerNormConfig()).build(6, 6)
    assert isinstance(heads.norm, nn.LayerNorm)
    assert isinstance(heads.query_norm, nn.LayerNorm)


# --- bare ------------------------------------------------------------------------------------------------------------


def test_bare_heads_change_nothing():
    heads = BareHeadsConfig().build(4, 6)
    assert isinstance(heads, BareHeads)
    assert list(heads.parameters()) == []
    x, memory = random(2, 3, 4), random(2, 5, 6)
    assert torch.equal(heads.query(x, identity)[:, 0], x)
    keys, values = heads.expand(heads.keep(memory, identity))
    assert torch.equal(keys[:, 0], memory)
    assert torch.equal(values[:, 0], memory)
    assert torch.equal(heads.merge(memory[:, None]), memory)


# --- mistakes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MultiHeadsConfig(6, 4), r"heads=6 must be a multiple of kv_heads=4"),
        (lambda: MultiHeadsConfig(3).build(8, 8), r"dim=8 must be a multiple of heads=3; or give head_dim"),
        (lambda: MultiHeadsConfig(2).build(8, 6), r"multi-head.*memory of width 8, not 6"),
        (lambda: LatentHeadsConfig(2, 4, 2, 2, 2).build(8, 6), r"latent.*memory of width 8, not 6"),
    ],
)
def test_mistakes(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


def test_the_mistake_says_where():
    with pytest.raises(ConfigError, match=r"^heads: dim=8 must be a multiple of heads=3"):
        config(MultiHeadsConfig(3)).build(8)
    with pytest.raises(ConfigError, match=r"^position: width=3 must be even"):
        config(MultiHeadsConfig(2), position=RopeConfig()).build(6)
    with pytest.raises(ConfigError, match=r"^score: queries of width 4 and keys of width 6"):
        config(BareHeadsConfig()).build(4, 6)


def test_the_base_class_implements_nothing():
    heads = Heads()
    x = random(1, 2, 3)
    for undefined in (lambda: heads.query(x, identity), lambda: heads.keep(x, identity), lambda: heads.merge(x[None])):
        with pytest.raises(NotImplementedError):
            undefined()


# --- agents ----------------------------------------------------------------------------------------------------------


def agent_attention_by_loops(
    heads: AgentHeads, x: torch.Tensor, agents: torch.Tensor, cap: float | None
) -> torch.Tensor:
    """Yuan et al. 2021, equations 5 to 7, pair by pair: which projections are used depends on the two agents."""
    rows, tokens, width = len(x), x.shape[1], heads.key_dim
    mixed = torch.zeros(rows, tokens, heads.heads * width, dtype=x.dtype)
    for row in range(rows):
        for head in range(heads.heads):
            part = slice(head * width, (head + 1) * width)
            for i in range(tokens):
                scores = torch.full((tokens,), -torch.inf, dtype=x.dtype)
                for j in range(tokens):
                    same = agents[row, i] == agents[row, j]
                    to_query, to_key = (
                        (heads.to_query, heads.to_key) if same else (heads.to_other_query, heads.to_other_key)
                    )
                    if agents[row, j] >= 0:
                        score = to_query(x[row, i])[part] @ to_key(x[row, j])[part] / width**0.5
                        scores[j] = score if cap is None else cap * torch.tanh(score / cap)
                for j, weight in enumerate(scores.softmax(0)):
                    mixed[row, i, part] += weight * heads.to_value(x[row, j])[part]
    return heads.output(mixed)


@pytest.mark.parametrize(("bias", "cap"), [(False, None), (True, None), (False, 0.5)])
@torch.no_grad()
def test_agent_aware_attention_is_what_two_loops_compute(bias, cap):
    attention = fill(config(AgentHeadsConfig(2, head_dim=3, bias=bias), score=DotConfig(cap=cap)).build(6).double())
    x, agents = random(2, 7, 6), torch.tensor([[0, 0, 0, 1, 1, 2, 2], [0, 1, 0, 1, 0, -1, -1]])
    with watch(attention) as tape:
        found = attention(x, mask=Agents(agents))
    close(found, agent_attention_by_loops(attention.heads, x, agents, cap))
    ((record,),) = tape.values()
    close(explicit(record.query, record.key, record.value, record.terms), record.mixed)
    assert record.weights.shape == (2, 2, 7, 7)
    assert (record.weights[1, :, :, 5:] == 0).all()


@torch.no_grad()
def test_agents_that_share_their_projections_are_plain_multi_head_attention():
    aware, plain = fill(config(AgentHeadsConfig(2)).build(6).double()), config(MultiHeadsConfig(2)).build(6).double()
    aware.heads.to_other_query.load_state_dict(aware.heads.to_query.state_dict())
    aware.heads.to_other_key.load_state_dict(aware.heads.to_key.state_dict())
    shared = {name: weight for name, weight in aware.state_dict().items() if "other" not in name}
    plain.load_state_dict(shared)
    x = random(2, 5, 6)
    close(aware(x, mask=Agents(torch.tensor([[0, 1, 1, 2, 0]] * 2))), plain(x))


def test_mistakes_in_agent_aware_heads():
    with pytest.raises(ConfigError, match=r"heads: dim=8 must be a multiple of heads=3; or give head_dim"):
        config(AgentHeadsConfig(3)).build(8)
    with pytest.raises(ConfigError, match="agent-aware attention needs a memory of width 8, not 4"):
        config(AgentHeadsConfig(2)).build(8, 4)
    with pytest.raises(InputError, match="need to know the agent of each token; use them in a trajectory model"):
        config(AgentHeadsConfig(2)).build(8)(random(1, 3, 8, dtype=torch.float32))


def test_columns_of_tokens_that_share_a_time_are_their_indices():
    attention = config(AgentHeadsConfig(2)).build(8)
    times, agents = torch.tensor([[0, 1, 0, 1, -1]]), torch.tensor([[0, 0, 1, 1, -1]])
    with watch(attention, "*") as tape:
        attention(random(1, 5, 8, dtype=torch.float32), mask=Agents(agents), positions=times)
    ((name, (record,)),) = tape.items()
    assert record.columns().tolist() == [[0, 1, 2, 3, -1]]
    torch.testing.assert_close(tape.weights(name), record.weights[..., :4])
