"""Linear attention, gated DeltaNet and Mamba-2 against sums over all tokens, loops over time and `transformers`."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import regard
from regard.errors import ConfigError, InputError
from regard.parts.linear_attention import GatedDeltaNetConfig, LinearAttentionConfig, Mamba2Config, MatrixMemory
from regard.parts.mask import Causal, Documents, Padding
from regard.parts.mixer import MixerConfig

D, H = 12, 3
CONFIGS = [
    LinearAttentionConfig(H),
    GatedDeltaNetConfig(H),
    GatedDeltaNetConfig(H, expand=2, kernel=3),
    Mamba2Config(H, state_width=5),
    Mamba2Config(H, state_width=4, expand=1, kernel=2),
]


def mixer(config: MixerConfig, std: float = 0.5) -> MatrixMemory:
    torch.manual_seed(0)
    built = config.build(D).double().eval()
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.normal_(std=std)
    return built


def some_vectors(rows: int = 2, tokens: int = 70) -> Tensor:
    return torch.randn(rows, tokens, D, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def heads(x: Tensor) -> Tensor:
    return x.unflatten(-1, (H, -1))


@torch.no_grad()
def test_linear_attention_is_a_weighted_mean_of_all_values_so_far() -> None:
    part, x = mixer(LinearAttentionConfig(H)), some_vectors()
    q, k, v = (heads(x @ layer.weight.T) for layer in (part.to_query, part.to_key, part.to_value))
    weights = torch.einsum("bthe,bshe->bhts", F.elu(q) + 1, F.elu(k) + 1).tril()
    weights = weights / weights.sum(-1, keepdim=True)
    wanted = torch.einsum("bhts,bshe->bthe", weights, v).flatten(2) @ part.to_output.weight.T
    torch.testing.assert_close(part(x, mask=Causal()), wanted, rtol=1e-9, atol=1e-9)


def convolved(part: MatrixMemory, x: Tensor) -> Tensor:
    """Return the mixture of neighbours, token by token."""
    weight, mixed = part.conv.conv.weight[:, 0], x @ part.to_mixed.weight.T
    kernel, out = weight.shape[1], []
    for t in range(x.shape[1]):
        parts = [weight[:, kernel - 1 - j] * mixed[:, t - j] for j in range(min(kernel, t + 1))]
        out.append(sum(parts) + (0 if part.conv.conv.bias is None else part.conv.conv.bias))
    return F.silu(torch.stack(out, 1))


def time_steps(part: MatrixMemory, x: Tensor) -> tuple[Tensor, Tensor]:
    step = torch.log1p(torch.exp(x @ part.to_step.weight.T + part.to_step.bias))
    return step, torch.exp(-torch.exp(part.decay) * step)


@torch.no_grad()
@pytest.mark.parametrize("config", [config for config in CONFIGS if isinstance(config, GatedDeltaNetConfig)])
def test_gated_deltanet_is_the_loop_of_its_equation(config: GatedDeltaNetConfig) -> None:
    part, x = mixer(config), some_vectors()
    q, k, v = (heads(part) for part in convolved(part, x).split((D, D, config.expand * D), -1))
    q, k = (vectors / (vectors.square().sum(-1, keepdim=True) + 1e-6).sqrt() for vectors in (q, k))
    _, decay = time_steps(part, x)
    share = torch.sigmoid(x @ part.to_share.weight.T)
    state, outs = x.new_zeros(2, H, v.shape[-1], D // H), []
    for t in range(x.shape[1]):
        state = state * decay[:, t, :, None, None]
        stored = torch.einsum("bhvk,bhk->bhv", state, k[:, t])
        change = share[:, t, :, None] * (v[:, t] - stored)
        state = state + torch.einsum("bhv,bhk->bhvk", change, k[:, t])
        outs.append(torch.einsum("bhvk,bhk->bhv", state, q[:, t]) / (D // H) ** 0.5)
    out = torch.stack(outs, 1)
    out = out / (out.square().mean(-1, keepdim=True) + 1e-6).sqrt() * part.norm.weight
    wanted = (out.flatten(2) * F.silu(x @ part.to_gate.weight.T)) @ part.to_output.weight.T
    torch.testing.assert_close(part(x, mask=Causal()), wanted, rtol=1e-8, atol=1e-8)


@torch.no_grad()
@pytest.mark.parametrize("config", [config for config in CONFIGS if isinstance(config, Mamba2Config)])
def test_mamba2_is_the_loop_of_its_equation(config: Mamba2Config) -> None:
    part, x = mixer(config), some_vectors()
    sizes = (config.expand * D, config.state_width, config.state_width)
    v, b, c = convolved(part, x).split(sizes, -1)
    v = heads(v)
    step, decay = time_steps(part, x)
    state, outs = x.new_zeros(2, H, v.shape[-1], config.state_width), []
    for t in range(x.shape[1]):
        added = torch.einsum("bh,bhv,bn->bhvn", step[:, t], v[:, t], b[:, t])
        state = state * decay[:, t, :, None, None] + added
        outs.append(torch.einsum("bhvn,bn->bhv", state, c[:, t]) + part.skip[:, None] * v[:, t])
    out = torch.stack(outs, 1).flatten(2) * F.silu(x @ part.to_gate.weight.T)
    out = out / (out.square().mean(-1, keepdim=True) + 1e-5).sqrt() * part.norm.weight
    torch.testing.assert_close(part(x, mask=Causal()), out @ part.to_output.weight.T, rtol=1e-8, atol=1e-8)


@torch.no_grad()
def test_gated_deltanet_computes_what_transformers_computes() -> None:
    from transformers.models.qwen3_next.configuration_qwen3_next import Qwen3NextConfig
    from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextGatedDeltaNet

    torch.manual_seed(0)
    settings = {"linear_num_key_heads": H, "linear_num_value_heads": H, "linear_conv_kernel_dim": 4}
    settings |= {"linear_key_head_dim": 4, "linear_value_head_dim": 8, "hidden_size": D, "num_hidden_layers": 1}
    other = Qwen3NextGatedDeltaNet(Qwen3NextConfig(**settings, layer_types=["linear_attention"]), 0).eval()
    draw_all(other)
    part = GatedDeltaNetConfig(H, expand=2).build(D).eval()
    # There, the rows of the four products are in the order of the heads.
    q, k, v, z = other.in_proj_qkvz.weight.unflatten(0, (H, -1)).split((4, 4, 8, 8), 1)
    b, a = other.in_proj_ba.weight.unflatten(0, (H, -1)).split((1, 1), 1)
    part.to_mixed.weight.copy_(torch.cat([rows.flatten(0, 1) for rows in (q, k, v)]))
    part.to_gate.weight.copy_(z.flatten(0, 1))
    part.to_share.weight.copy_(b.flatten(0, 1))
    part.to_step.weight.copy_(a.flatten(0, 1))
    part.to_step.bias.copy_(other.dt_bias)
    part.decay.copy_(other.A_log)
    part.conv.conv.weight.copy_(other.conv1d.weight)
    part.norm.weight.copy_(other.norm.weight)
    part.to_output.weight.copy_(other.out_proj.weight)
    x = some_vectors().float()
    torch.testing.assert_close(part(x, mask=Causal()), other(x), rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_mamba2_computes_what_transformers_computes() -> None:
    from transformers.models.mamba2.configuration_mamba2 import Mamba2Config as OtherConfig
    from transformers.models.mamba2.modeling_mamba2 import Mamba2Mixer

    torch.manual_seed(0)
    settings = {"num_heads": H, "head_dim": 8, "state_size": 5, "n_groups": 1, "expand": 2, "chunk_size": 16}
    other = Mamba2Mixer(OtherConfig(hidden_size=D, num_hidden_layers=1, **settings), 0).eval()
    draw_all(other)
    part = Mamba2Config(H, state_width=5).build(D).eval()
    z, mixed, step = other.in_proj.weight.split((2 * D, 2 * D + 10, H))
    part.to_gate.weight.copy_(z)
    part.to_mixed.weight.copy_(mixed)
    part.to_step.weight.copy_(step)
    part.to_step.bias.copy_(other.dt_bias)
    part.decay.copy_(other.A_log)
    part.skip.copy_(other.D)
    part.conv.conv.load_state_dict(other.conv1d.state_dict())
    part.norm.weight.copy_(other.norm.weight)
    part.to_output.weight.copy_(other.out_proj.weight)
    x = some_vectors().float()
    torch.testing.assert_close(part(x, mask=Causal()), other(x), rtol=1e-5, atol=1e-5)


def draw_all(module: nn.Module) -> None:
    """Draw values that matter for every parameter; decays become slow, usual and fast."""
    for name, parameter in module.named_parameters():
        parameter.normal_(std=0.5)
        if name == "A_log":
            parameter.copy_(torch.linspace(-3, 2, len(parameter)))


@pytest.mark.parametrize("config", CONFIGS)
def test_padding_changes_no_state(config: MixerConfig) -> None:
    part, x, lengths = mixer(config), some_vectors(3, 9), [9, 4, 0]
    positions = torch.tensor([[t if t < length else -1 for t in range(9)] for length in lengths])
    state = part.start(3)
    part(x, mask=Causal() & Padding(), positions=positions, state=state)
    for row, length in enumerate(lengths):
        alone = part.start(1)
        if length:
            part(x[row : row + 1, :length], mask=Causal(), state=alone)
        for found, wanted in zip(state.values, alone.values, strict=True):
            torch.testing.assert_close(found[row], wanted[0], rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("config", CONFIGS)
def test_a_state_of_constant_size_continues_the_text(config: MixerConfig) -> None:
    part, x = mixer(config), some_vectors()
    state = part.start(2)
    shapes = [value.shape for value in state.values]
    pieces = []
    for piece in x.split((33, 1, 1, 35), 1):
        pieces.append(part(piece, mask=Causal(), state=state))
        assert [value.shape for value in state.values] == shapes
    torch.testing.assert_close(torch.cat(pieces, 1), part(x, mask=Causal()), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("config", CONFIGS)
def test_packed_documents_are_rejected(config: MixerConfig) -> None:
    with pytest.raises(InputError, match="packed documents and prefixes need attention"):
        mixer(config)(some_vectors(1, 3), mask=Causal() & Documents(torch.tensor([[0, 0, 1]])))


@pytest.mark.parametrize("kind", [LinearAttentionConfig, GatedDeltaNetConfig, Mamba2Config])
def test_heads_must_divide_the_width(kind: type[MixerConfig]) -> None:
    with pytest.raises(ConfigError, match="heads=5 must divide dim=12"):
        kind(5).build(12)


@pytest.mark.parametrize("recipe", ["gated-deltanet", "mamba2"])
def test_memories_start_from_long_to_short(recipe: str) -> None:
    """The slowest head keeps a token for about a thousand steps, the fastest for less than one."""
    overrides = ["model.dim=32", "model.depth=1", "model.vocabulary=9"]
    part = regard.build(recipe, *overrides, "model.layers.block.mixer.heads=4", seed=0).stack.layers[0].mixer
    rates = torch.exp(part.decay.detach()) * F.softplus(part.to_step.bias.detach())
    assert rates[0] == pytest.approx(0.001, rel=1e-3)
    assert rates[-1] == pytest.approx(1.6, rel=1e-3)
    assert (part.conv.conv.weight == torch.tensor([0.0, 0.0, 0.0, 1.0])).all()
