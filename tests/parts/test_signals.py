"""The states and gates that recurrent layers show are those that they compute."""

import pytest
import torch

from regard.parts.cells import RECURRENT
from regard.parts.linear_attention import GatedDeltaNetConfig, LinearAttentionConfig, Mamba2Config
from regard.parts.rwkv import RWKV4Config, RWKV7Config


def close(found: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", [*RECURRENT])
@pytest.mark.parametrize("begin", [0.0, 0.5])
def test_the_hidden_state_is_the_output_and_the_gates_make_it(kind, begin):
    layer = RECURRENT[kind]().build(6).double()
    x = torch.randn(2, 5, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    start = tuple(value + begin for value in layer.start(2).values)
    found = dict(zip(layer.signals, layer.trace(x, start), strict=True))
    out, _ = layer.run(x, start, None)
    close(found["h"], out)
    assert all(values.shape == out.shape for values in found.values())
    for name, signal in layer.signals.items():
        assert bool(((found[name] > 0) & (found[name] < 1)).all()) or not signal.is_gate
    before = torch.cat((start[0][:, None], out[:, :-1]), 1)
    if kind == "lstm":
        cells = torch.cat((start[1][:, None], found["c"][:, :-1]), 1)
        close(found["f"] * cells + found["i"] * found["g"], found["c"])
        close(found["o"] * found["c"].tanh(), out)
    elif "z" in found:
        old, new = (
            (found["z"], 1 - found["z"]) if "old state" in layer.signals["z"].about else (1 - found["z"], found["z"])
        )
        close(old * before + new * found["h~"], out)


@pytest.mark.parametrize("kind", [*RECURRENT])
def test_signals_have_the_gradients_of_small_steps(kind):
    layer = RECURRENT[kind]().build(3).double()
    x = torch.randn(2, 4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: layer.trace(x, layer.start(2).values), (x,))


def test_rwkv_shows_what_its_output_is_made_of():
    x = torch.randn(2, 5, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    layer = RWKV4Config().build(8).double()
    torch.manual_seed(0)
    for weight in layer.parameters():
        torch.nn.init.normal_(weight, std=0.5)
    average, gate, _, _ = layer.trace(x, layer.start(2).values)
    close(layer.to_output(gate * average), layer(x))


def test_the_matrices_of_rwkv_7_are_those_of_its_state():
    x = torch.randn(2, 5, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    layer = RWKV7Config(heads=2, rank=3, gate_rank=3).build(8).double()
    torch.manual_seed(0)
    for weight in layer.parameters():
        torch.nn.init.normal_(weight, std=0.5)
    lengths, *_ = layer.trace(x, layer.start(2).values)
    state = layer.start(2)
    for t in range(5):
        layer(x[:, t : t + 1], state=state)
        close(lengths[:, t], state.values[1].norm(dim=-1).flatten(1))


@pytest.mark.parametrize(
    "config", [LinearAttentionConfig(heads=2), GatedDeltaNetConfig(heads=2), Mamba2Config(heads=2)]
)
def test_the_matrices_of_linear_attention_are_those_of_its_state(config):
    x = torch.randn(2, 9, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    layer = config.build(8).double()
    torch.manual_seed(0)
    for weight in layer.parameters():
        torch.nn.init.normal_(weight, std=0.5)
    first = layer.start(2)
    layer(x[:, :4], state=first)  # the signals continue from a state
    found = dict(zip(layer.signals, layer.trace(x[:, 4:], first.values), strict=True))
    state = layer.start(2)
    layer(x[:, :4], state=state)
    for t in range(5):
        before = state.values[0]
        layer(x[:, t + 4 : t + 5], state=state)
        rows = state.values[0][:, :, : layer.value]
        close(found["S"][:, t], rows.norm(dim=(2, 3)))
        if isinstance(config, Mamba2Config):  # what a token adds is of rank one: S - w S_before
            added = state.values[0] - found["w"][:, t, :, None, None] * before
            assert int(torch.linalg.matrix_rank(added, atol=1e-9).max()) == 1
    for name, signal in layer.signals.items():
        assert found[name].shape == (2, 5, 2)
        assert bool(((found[name] > 0) & (found[name] < 1)).all()) or not signal.is_gate
