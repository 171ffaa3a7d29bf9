"""Positions against their formulas, and against transformers."""

from math import cos, log, sin

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.errors import ConfigError, InputError
from regard.parts.absolute_position import Absolute, LearnedConfig, LinearPositionConfig, Sinusoidal, SinusoidalConfig
from regard.parts.constant import Constant
from regard.parts.position import (
    Alibi,
    AlibiConfig,
    Llama3Scaling,
    Relative,
    RelativeBias,
    RelativeBiasConfig,
    RopeConfig,
    YarnScaling,
)

CPU = torch.device("cpu")


def random(*shape, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(sum(shape)))


def close(found, expected, tolerance=1e-10):
    expected = torch.as_tensor(expected, dtype=found.dtype)
    torch.testing.assert_close(found, expected, atol=tolerance, rtol=0)


# --- constants -------------------------------------------------------------------------------------------------------

third = torch.tensor([1 / 3, 257.0], dtype=torch.float64)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_constant_is_not_rounded_below_float32(dtype):
    table = Constant(third).to(dtype)
    assert table.values.dtype == torch.float32
    assert torch.equal(table.values, third.float())


def test_a_constant_is_exact_in_float64():
    table = Constant(third).double()
    assert torch.equal(table.values, third)
    assert torch.equal(Constant(third).bfloat16().double().values, third)  # also after a detour through bfloat16
    assert table.float().values.dtype == torch.float32


def test_a_constant_survives_a_build_without_memory():
    with torch.device("meta"):
        model = torch.nn.Sequential(Constant(third), torch.nn.Linear(2, 2))
    assert model[0].values.device.type == "meta"
    model.to_empty(device="cpu")
    assert torch.equal(model[0].values, third.float())


def test_a_model_built_without_memory_runs_without_memory():
    with torch.device("meta"):
        rope, sinusoidal = RopeConfig().build(4, 1), SinusoidalConfig().build(4)
        rotated = rope.rotation(torch.arange(3)[None])(torch.zeros(1, 1, 3, 4))
    assert rotated.device.type == "meta"
    assert sinusoidal(None, 3, torch.device("meta")).device.type == "meta"


def test_a_constant_is_neither_trained_nor_saved():
    table = Constant(third)
    assert table.state_dict() == {}
    assert list(table.parameters()) == []


# --- absolute --------------------------------------------------------------------------------------------------------

somewhere = torch.tensor([[0, 1, 5, -1], [3, 2, -1, -1]])


def test_linear():
    place = LinearPositionConfig(slope=0.1, offset=-0.7).build(3).double()
    close(place(somewhere, 4, CPU), [[[0.1 * max(p, 0) - 0.7] * 3 for p in row] for row in somewhere.tolist()])
    close(LinearPositionConfig().build(2)(None, 3, CPU), [[[0, 0], [1, 1], [2, 2]]])


def wave(position, dim):
    """Return the pairs (sin, cos) of one position."""
    angles = [position / 10000 ** (2 * i / dim) for i in range(dim // 2)]
    return [(sin(angle), cos(angle)) for angle in angles]


def test_sinusoidal_interleaved():
    place = SinusoidalConfig().build(6).double()
    expected = [[[x for pair in wave(max(p, 0), 6) for x in pair] for p in row] for row in somewhere.tolist()]
    close(place(somewhere, 4, CPU), expected)


def test_sinusoidal_halves():
    place = SinusoidalConfig(layout="halves").build(6).double()
    expected = [[[s for s, _ in wave(p, 6)] + [c for _, c in wave(p, 6)] for p in range(5)]]
    close(place(None, 5, CPU), expected)


def test_sinusoidal_stays_sharp_in_bfloat16():
    place = Sinusoidal(4).bfloat16()
    assert torch.equal(place(torch.tensor([[257]]), 1, CPU), Sinusoidal(4)(torch.tensor([[257]]), 1, CPU))


def test_sinusoidal_needs_an_even_width():
    with pytest.raises(ConfigError, match=r"pairs.*width 5 must be even"):
        SinusoidalConfig().build(5)


def test_learned():
    place = LearnedConfig(length=6).build(3).double()
    table = place.table.weight
    assert table.shape == (6, 3)
    assert torch.equal(place(somewhere, 4, CPU), table[somewhere.clamp(min=0)])
    assert torch.equal(place(None, 6, CPU), table[None])


def test_padding_counts_as_position_0():
    for config in (LinearPositionConfig(slope=2.0, offset=1.0), SinusoidalConfig(), LearnedConfig(6)):
        place = config.build(4)
        found = place(torch.tensor([[-1, 0]]), 2, CPU)
        assert torch.equal(found[0, 0], found[0, 1])


def test_beyond_the_learned_table():
    place = LearnedConfig(length=6).build(3)
    with pytest.raises(InputError, match=r"7 tokens.*table of 6 positions.*shorten"):
        place(None, 7, CPU)
    with pytest.raises(InputError, match=r"9 tokens.*table of 6 positions"):
        place(torch.tensor([[0, 8]]), 2, CPU)
    assert place(torch.tensor([[5]]), 1, CPU).shape == (1, 1, 3)
    assert place(torch.zeros(1, 0, dtype=torch.long), 0, CPU).shape == (1, 0, 3)


def test_only_a_table_has_an_end():
    assert SinusoidalConfig().build(4)(None, 100, CPU).shape == (1, 100, 4)


def test_the_base_class_has_no_vectors():
    with pytest.raises(NotImplementedError):
        Absolute()(None, 2, CPU)


# --- rotary ----------------------------------------------------------------------------------------------------------

layouts = st.sampled_from(["halves", "interleaved"])
places = st.integers(0, 1000)


@settings(max_examples=60)
@given(layouts, st.sampled_from([2, 4, 6, 8]), places, places, st.integers(-500, 500))
def test_rope_sees_only_the_difference(layout, width, a, b, shift):
    a, b = a + 500, b + 500
    rope = RopeConfig(layout=layout, width=width).build(8, 1).double()
    q, k = random(1, 1, 1, 8), random(1, 1, 1, 8) + 1

    def score(at_query, at_key):
        rotated = rope.rotation(torch.tensor([[at_query]]))(q), rope.rotation(torch.tensor([[at_key]]))(k)
        return (rotated[0] * rotated[1]).sum()

    close(score(a, b), score(a + shift, b + shift))


def test_rope_scores_depend_on_the_difference():
    """The property above would also hold for a rotation by 0."""
    rope = RopeConfig().build(4, 1).double()
    x = torch.ones(1, 1, 1, 4, dtype=torch.float64)
    scores = [(x * rope.rotation(torch.tensor([[p]]))(x)).sum() for p in range(3)]
    close(torch.stack(scores), [2 * (cos(p) + cos(p / 100)) for p in range(3)])


def test_rope_by_hand():
    """Each pair is rotated by its own angle; features beyond `width` stay the same."""
    x, p = random(2, 3, 4, 7), torch.tensor([[0, 1, 2, 9], [5, 3, 1, -1]])
    for layout, pairs in {"halves": [(0, 2), (1, 3)], "interleaved": [(0, 1), (2, 3)]}.items():
        rope = RopeConfig(base=100.0, layout=layout, width=4).build(7, 3).double()
        expected = x.clone()
        for b in range(2):
            for t in range(4):
                for (i, j), frequency in zip(pairs, (1.0, 0.1), strict=True):
                    angle = int(p[b, t]) * frequency
                    expected[b, :, t, i] = x[b, :, t, i] * cos(angle) - x[b, :, t, j] * sin(angle)
                    expected[b, :, t, j] = x[b, :, t, i] * sin(angle) + x[b, :, t, j] * cos(angle)
        close(rope.rotation(p)(x), expected)


def test_rope_keeps_the_type_of_the_vectors():
    rope = RopeConfig().build(4, 1)
    assert rope.rotation(torch.arange(3)[None])(random(1, 1, 3, 4).bfloat16()).dtype == torch.bfloat16


@pytest.mark.parametrize(("width", "head_dim"), [(3, 8), (10, 8), (None, 5)])
def test_rope_width(width, head_dim):
    with pytest.raises(ConfigError, match=rf"width={width or head_dim} must be even and at most.* {head_dim}"):
        RopeConfig(width=width).build(head_dim, 1)


def llama(head_dim, base, **rope):
    from transformers import LlamaConfig

    return LlamaConfig(
        hidden_size=2 * head_dim,
        num_attention_heads=2,
        head_dim=head_dim,
        max_position_embeddings=1 << 14,
        rope_parameters={"rope_type": "default", "rope_theta": base, **rope},
    )


def test_rope_is_llamas():
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

    q, k = random(2, 3, 5, 8, dtype=torch.float32), random(2, 3, 5, 8, dtype=torch.float32)
    p = torch.tensor([[0, 1, 2, 3, 4], [7, 60, 31, 5, 0]])
    expected = apply_rotary_pos_emb(q, k, *LlamaRotaryEmbedding(llama(8, 500.0))(q, p))
    rotate = RopeConfig(base=500.0).build(8, 3).rotation(p)
    close(rotate(q), expected[0], 1e-5)
    close(rotate(k), expected[1], 1e-5)


def scaled(head_dim, base, scaling, **rope):
    """Compare our scaled frequencies with those of transformers."""
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    expected, magnitude = ROPE_INIT_FUNCTIONS[rope["rope_type"]](llama(head_dim, base, **rope), torch.device("cpu"))
    rope = RopeConfig(base=base, scaling=scaling).build(head_dim, 2)
    torch.testing.assert_close(rope.frequencies.values, expected, atol=0, rtol=1e-5)
    assert rope.magnitude == pytest.approx(magnitude, abs=1e-12)
    return rope


def test_the_limits_of_a_scaling_are_in_order():
    with pytest.raises(ConfigError, match=r"low=4\.0 must be below high=4\.0"):
        Llama3Scaling(factor=8.0, original_length=8192, low=4.0)
    with pytest.raises(ConfigError, match=r"slow=32\.0 must be below fast=32\.0"):
        YarnScaling(factor=8.0, original_length=8192, slow=32.0)


@pytest.mark.parametrize(("low", "high"), [(1.0, 4.0), (2.0, 32.0)])
def test_llama3_scaling(low, high):
    rope = scaled(
        64,
        500000.0,
        Llama3Scaling(factor=8.0, original_length=8192, low=low, high=high),
        rope_type="llama3",
        factor=8.0,
        original_max_position_embeddings=8192,
        low_freq_factor=low,
        high_freq_factor=high,
    )
    plain = RopeConfig(base=500000.0).build(64, 2).frequencies.values
    kept = rope.frequencies.values / plain
    assert kept.max() == 1  # some kept, some stretched, some between
    close(kept.min(), 1 / 8, 1e-6)
    assert ((kept > 0.13) & (kept < 0.99)).any()


@pytest.mark.parametrize(
    ("head_dim", "factor", "original", "fast", "slow", "magnitude"),
    [
        (64, 4.0, 4096, 32.0, 1.0, None),
        (64, 40.0, 4096, 32.0, 1.0, 1.0),
        (32, 16.0, 512, 16.0, 2.0, None),
        (8, 4.0, 64, 32.0, 1.0, None),  # the first bound falls below 0
        (8, 4.0, 1 << 20, 32.0, 1.0, None),  # the last bound lies beyond the features
    ],
)
def test_yarn_scaling(head_dim, factor, original, fast, slow, magnitude):
    rope = scaled(
        head_dim,
        10000.0,
        YarnScaling(factor, original, fast, slow, magnitude),
        rope_type="yarn",
        factor=factor,
        original_max_position_embeddings=original,
        beta_fast=fast,
        beta_slow=slow,
        **({} if magnitude is None else {"attention_factor": magnitude}),
    )
    assert rope.magnitude == pytest.approx(0.1 * log(factor) + 1 if magnitude is None else magnitude)


def test_the_magnitude_lengthens_rotated_vectors():
    scaling = YarnScaling(factor=4.0, original_length=64)
    rope = RopeConfig(width=4, scaling=scaling).build(6, 1).double()
    x = random(1, 1, 3, 6)
    rotated = rope.rotation(torch.arange(3)[None])(x)
    close(rotated[..., :4].norm(dim=-1), (0.1 * log(4) + 1) * x[..., :4].norm(dim=-1))
    assert torch.equal(rotated[..., 4:], x[..., 4:])


# --- biases ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("heads", [1, 2, 4, 8, 16])
def test_alibi_slopes_of_a_power_of_two(heads):
    close(Alibi.make_slopes(heads), [2 ** (-8 * h / heads) for h in range(1, heads + 1)])


@pytest.mark.parametrize("heads", [*range(1, 13), 20])
def test_alibi_slopes_are_blooms(heads):
    from transformers.models.bloom.modeling_bloom import build_alibi_tensor

    expected = build_alibi_tensor(torch.ones(1, 2), heads, torch.float32)[:, 0, 1]  # slope * 1
    close(Alibi.make_slopes(heads).float(), expected, 1e-6)


def test_alibi_bias():
    alibi = AlibiConfig().build(4, 3).double()
    slopes = [2**-4, 2**-8, 2**-2]
    head, query, key = torch.arange(3)[:, None, None], torch.tensor([[3], [5]]), torch.tensor([[0, 3, 9]])
    expected = [[[-slope * abs(q - k) for k in (0, 3, 9)] for q in (3, 5)] for slope in slopes]
    close(alibi.bias(head, query, key), expected)


@pytest.mark.parametrize("both_ways", [True, False])
@pytest.mark.parametrize(("buckets", "distance"), [(32, 128), (16, 40), (8, 20)])
def test_buckets_are_t5s(both_ways, buckets, distance):
    from transformers.models.t5.modeling_t5 import T5Attention

    offset = torch.arange(-300, 301)
    expected = T5Attention._relative_position_bucket(offset, both_ways, buckets, distance)
    assert expected.unique().numel() > buckets // 2
    assert torch.equal(RelativeBias(2, buckets, distance, both_ways).bucket(offset), expected)


def test_relative_bias_looks_up_the_bucket():
    position = RelativeBiasConfig(buckets=8, distance=20, both_ways=True).build(4, 3)
    query, key = torch.tensor([2, 30, 0]), torch.tensor([0, 2, 3, 31])
    found = position.bias(torch.arange(3)[:, None, None], query[None, :, None], key[None, None, :])
    for h in range(3):
        for i, q in enumerate(query):
            for j, k in enumerate(key):
                assert found[h, i, j] == position.table.weight[position.bucket(k - q), h]


@pytest.mark.parametrize("config", [RelativeBiasConfig(buckets=2, both_ways=True), RelativeBiasConfig(distance=16)])
def test_relative_bias_needs_buckets_to_grow(config):
    with pytest.raises(ConfigError, match=rf"buckets={config.buckets}.*distance={config.distance}"):
        config.build(4, 3)


def test_without_a_position_nothing_is_rotated_or_added():
    x = random(1, 2, 3, 4)
    assert Relative().rotation(torch.arange(3)[None])(x) is x
    assert not Relative().has_bias
    with pytest.raises(NotImplementedError):
        Relative().bias(torch.tensor(0), torch.tensor(0), torch.tensor(0))


def test_learned_positions_begin_after_the_offset() -> None:
    plain, shifted = LearnedConfig(5).build(4), LearnedConfig(5, offset=2).build(4)
    with torch.no_grad():
        shifted.table.weight[2:] = plain.table.weight
    assert shifted.table.weight.shape == (7, 4)
    positions = torch.tensor([[0, 4, -1, 2]])
    assert torch.equal(shifted(positions, 4, positions.device), plain(positions, 4, positions.device))
    with pytest.raises(InputError, match="6 tokens, but the model has a table of 5 positions"):
        shifted(None, 6, positions.device)
