"""Recurrent layers against plain NumPy loops, torch's own modules, and themselves cut into pieces."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from regard.errors import ConfigError
from regard.parts.cells import RECURRENT
from regard.parts.fused_cells import LSTM, Elman, TorchGRU
from regard.parts.gated_cells import GRU, MUT1, MUT2, MUT3
from regard.parts.mask import Padding
from regard.parts.recurrent import Bidirectional

LAYERS = [Elman, LSTM, GRU, TorchGRU, MUT1, MUT2, MUT3]
CLOSE = {"atol": 1e-10, "rtol": 0}


def make(layer, width=5, seed=0, dtype=torch.float64):
    """A layer whose every parameter is random: zero biases would hide a forgotten one."""
    torch.manual_seed(seed)
    module = layer(width, width).to(dtype)
    for weight in module.parameters():
        nn.init.normal_(weight, std=0.5)
    return module


def random(*shape, seed=1, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def padded(lengths, T):
    time = torch.arange(T)
    return torch.where(time < torch.tensor(lengths)[:, None], time, -1)


# --- The definitions, one token and one row at a time ------------------------------------------------------------


def sigmoid(a):
    return 1 / (1 + np.exp(-a))


def step_elman(w, x, h):
    return (np.tanh(np.concatenate([w["W_h"], w["W_x"]], 1) @ np.concatenate([h, x]) + w["b_x"] + w["b_h"]),)


def step_lstm(w, x, h, c):
    i, f, g, o = np.split(w["W_x"] @ x + w["W_h"] @ h + w["b_x"] + w["b_h"], 4)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


def step_gru(w, x, h):
    x_r, x_z, x_h = np.split(w["W_x.weight"] @ x + w["W_x.bias"], 3)
    r = sigmoid(x_r + w["W_hr.weight"] @ h)
    z = sigmoid(x_z + w["W_hz.weight"] @ h)
    candidate = np.tanh(x_h + w["W_hh.weight"] @ (r * h))
    return (z * h + (1 - z) * candidate,)


def step_torch_gru(w, x, h):
    x_r, x_z, x_h = np.split(w["W_x"] @ x + w["b_x"], 3)
    h_r, h_z, h_h = np.split(w["W_h"] @ h + w["b_h"], 3)
    z = sigmoid(x_z + h_z)
    return (z * h + (1 - z) * np.tanh(x_h + sigmoid(x_r + h_r) * h_h),)


def step_mut1(w, x, h):
    x_r, x_z = np.split(w["W_x.weight"] @ x + w["W_x.bias"], 2)
    z = sigmoid(x_z)
    r = sigmoid(x_r + w["W_hr.weight"] @ h)
    return (np.tanh(w["W_hh.weight"] @ (r * h) + np.tanh(x) + w["b_h"]) * z + h * (1 - z),)


def step_mut2(w, x, h):
    x_z, x_h = np.split(w["W_x.weight"] @ x + w["W_x.bias"], 2)
    z = sigmoid(x_z + w["W_hz.weight"] @ h)
    r = sigmoid(x + w["W_hr.weight"] @ h + w["b_r"])
    return (np.tanh(w["W_hh.weight"] @ (r * h) + x_h) * z + h * (1 - z),)


def step_mut3(w, x, h):
    x_r, x_z, x_h = np.split(w["W_x.weight"] @ x + w["W_x.bias"], 3)
    z = sigmoid(x_z + w["W_hz.weight"] @ np.tanh(h))
    r = sigmoid(x_r + w["W_hr.weight"] @ h)
    return (np.tanh(w["W_hh.weight"] @ (r * h) + x_h) * z + h * (1 - z),)


STEPS = dict(
    zip(LAYERS, [step_elman, step_lstm, step_gru, step_torch_gru, step_mut1, step_mut2, step_mut3], strict=True)
)


def plain(module, row):
    """The hidden states of one row (T, D), and the final state."""
    weights = {name: weight.detach().numpy() for name, weight in module.named_parameters()}
    state = tuple(np.zeros(module.hidden) for _ in module.state_names)
    states = []
    for x in row.numpy():
        state = STEPS[type(module)](weights, x, *state)
        states.append(state[0])
    return torch.from_numpy(np.stack(states)), [torch.from_numpy(value) for value in state]


@pytest.mark.parametrize("layer", LAYERS)
def test_equals_the_definition(layer):
    module, x = make(layer), random(3, 7, 5)
    state = module.start(3)
    out = module(x, state=state)
    torch.testing.assert_close(module(x), out, **CLOSE)
    for row in range(3):
        expected, last = plain(module, x[row])
        torch.testing.assert_close(out[row], expected, **CLOSE)
        for value, final in zip(state.values, last, strict=True):
            torch.testing.assert_close(value[row], final, **CLOSE)


@pytest.mark.parametrize("layer", LAYERS)
def test_gradients(layer):
    """Of the input, the starting state and every weight; through the outputs and through the final state."""
    module, x = make(layer, width=3), random(2, 4, 3).requires_grad_()
    names = [name for name, _ in module.named_parameters()]
    start = [random(2, 3, seed=9 + i).requires_grad_() for i in range(len(module.state_names))]

    def call(x, *rest):
        state = module.start(2)
        state.values = rest[: len(start)]
        weights = dict(zip(names, rest[len(start) :], strict=True))
        return torch.func.functional_call(module, weights, (x,), {"state": state}), *state.values

    assert torch.autograd.gradcheck(call, (x, *start, *module.parameters()))


@pytest.mark.parametrize(
    ("layer", "reference"), [(LSTM, nn.LSTM), (TorchGRU, nn.GRU), (Elman, nn.RNN)], ids=["lstm", "gru", "rnn"]
)
def test_equals_torch(layer, reference):
    module = layer(4, 6).double()
    theirs = reference(4, 6, batch_first=True).double()
    with torch.no_grad():
        for weight, their in zip(module.weights(), theirs.parameters(), strict=True):
            assert weight.shape == their.shape
            their.copy_(weight)
    x = random(2, 9, 4)
    torch.testing.assert_close(module(x), theirs(x)[0], **CLOSE)


# --- State ------------------------------------------------------------------------------------------------------


@settings(max_examples=25)
@given(st.sampled_from(LAYERS), st.lists(st.integers(1, 4), min_size=1, max_size=5), st.integers(0, 1000))
def test_pieces_equal_the_whole(layer, pieces, seed):
    module, x = make(layer, seed=seed), random(2, sum(pieces), 5, seed=seed)
    whole, state = module.start(2), module.start(2)
    out = module(x, state=whole)
    parts = [module(piece, state=state) for piece in x.split(pieces, 1)]
    torch.testing.assert_close(torch.cat(parts, 1), out, **CLOSE)
    for value, expected in zip(state.values, whole.values, strict=True):
        torch.testing.assert_close(value, expected, **CLOSE)


@pytest.mark.parametrize("T", [1, 6])
@pytest.mark.parametrize("layer", LAYERS)
def test_ragged_rows_keep_their_own_state(layer, T):
    """Twice in a row, so that the second call starts from a state; a row may have nothing new."""
    module, x = make(layer), random(4, 2 * T, 5)
    first, second = [T, 1, T - 1, 1], [0, T, 1, T - 1]
    state = module.start(4)
    out_first = module(x[:, :T], mask=Padding(), positions=padded(first, T), state=state)
    out_second = module(x[:, T:], mask=Padding(), positions=padded(second, T), state=state)
    for row, (n, m) in enumerate(zip(first, second, strict=True)):
        alone = module.start(1)
        real = torch.cat([x[row, :n], x[row, T : T + m]]).unsqueeze(0)
        out = module(real, state=alone) if n + m else real
        torch.testing.assert_close(torch.cat([out_first[row, :n], out_second[row, :m]]), out[0], **CLOSE)
        for value, expected in zip(state.values, alone.values, strict=True):
            torch.testing.assert_close(value[row], expected[0], **CLOSE)


@pytest.mark.parametrize("layer", LAYERS)
def test_start_and_reorder(layer):
    module, x = make(layer, dtype=torch.float32), random(3, 4, 5, dtype=torch.float32)
    state = module.start(3)
    assert len(state.values) == (2 if layer is LSTM else 1)
    assert all(value.shape == (3, 5) and value.dtype == torch.float32 and not value.any() for value in state.values)
    module(x, state=state)
    before = state.values
    state.reorder(torch.tensor([2, 0, 0]))
    for value, old in zip(state.values, before, strict=True):
        assert torch.equal(value, old[[2, 0, 0]])
        assert not torch.equal(value, old)


# --- Padding and both directions --------------------------------------------------------------------------------


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("layer", LAYERS)
def test_padding_changes_nothing(layer, bidirectional):
    module = Bidirectional(make(layer), make(layer, seed=3)) if bidirectional else make(layer)
    x, lengths = random(3, 6, 5), [6, 2, 4]
    positions = padded(lengths, 6)
    out = module(x, mask=Padding(), positions=positions)
    noisy = torch.where(positions[:, :, None] >= 0, x, random(3, 6, 5, seed=8))
    other = module(noisy, mask=Padding(), positions=positions)
    for row, n in enumerate(lengths):
        alone = module(x[row : row + 1, :n])
        torch.testing.assert_close(out[row, :n], alone[0], **CLOSE)
        torch.testing.assert_close(other[row, :n], alone[0], **CLOSE)


def test_both_directions():
    ahead, back, x = make(GRU), make(LSTM, seed=3), random(2, 6, 5)
    out = Bidirectional(ahead, back)(x)
    torch.testing.assert_close(out[..., :5], ahead(x), **CLOSE)
    torch.testing.assert_close(out[..., 5:], back(x.flip(1)).flip(1), **CLOSE)


def test_both_directions_reject_a_state():
    module = Bidirectional(make(GRU), make(GRU))
    with pytest.raises(ConfigError, match="cannot continue from a state"):
        module(random(2, 6, 5), state=module.forward_layer.start(2))


# --- Configs and dtypes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("layer", [MUT1, MUT2])
def test_widths_must_be_equal(layer):
    with pytest.raises(ConfigError, match=r"input_dim 4, hidden 6: they must be equal"):
        layer(4, 6)


@pytest.mark.parametrize("layer", [Elman, LSTM, GRU, TorchGRU, MUT3])
def test_widths_may_differ(layer):
    assert layer(4, 6)(random(2, 3, 4, dtype=torch.float32)).shape == (2, 3, 6)


def test_an_lstm_with_a_wider_state_is_torchs_lstm_and_a_matrix():
    module = RECURRENT["lstm"](hidden=7).build(4).double()
    theirs = nn.LSTM(4, 7, batch_first=True).double()
    with torch.no_grad():
        for weight, their in zip(module.weights(), theirs.parameters(), strict=True):
            their.copy_(weight)
    x, state = random(2, 9, 4), module.start(2)
    h, last = theirs(x)
    out = torch.cat([module(piece, state=state) for piece in x.split([5, 4], 1)], 1)
    torch.testing.assert_close(out, h @ module.to_output.weight.T, **CLOSE)
    for value, their in zip(state.values, last, strict=True):
        torch.testing.assert_close(value, their[0], **CLOSE)
    assert RECURRENT["lstm"](hidden=7, bidirectional=True).build(4)(x.float()).shape == (2, 9, 4)


@pytest.mark.parametrize("kind", RECURRENT)
def test_config_builds_its_layer(kind):
    module = RECURRENT[kind]().build(6)
    assert type(module).__name__.lower() == kind.replace("-", "")
    assert (module.input_dim, module.hidden) == (6, 6)
    both = RECURRENT[kind](bidirectional=True).build(6, input_dim=3)
    assert type(both.forward_layer) is type(both.backward_layer) is type(module)
    assert both.forward_layer is not both.backward_layer
    assert both(random(2, 4, 3, dtype=torch.float32)).shape == (2, 4, 6)


def test_config_rejects_an_odd_width_for_both_directions():
    with pytest.raises(ConfigError, match="must be even"):
        RECURRENT["gru"](bidirectional=True).build(7)


@pytest.mark.parametrize("layer", LAYERS)
def test_autocast(layer):
    """Near the float32 result, forward and backward, and the state keeps its dtype."""
    module, x = make(layer, dtype=torch.float32), random(2, 6, 5, dtype=torch.float32)
    module(x).square().sum().backward()
    expected = [weight.grad.clone() for weight in module.parameters()]
    module.zero_grad()
    state = module.start(2)
    with torch.autocast("cpu", torch.bfloat16):
        out = module(x.bfloat16(), state=state, mask=Padding(), positions=padded([6, 3], 6))
        torch.testing.assert_close(module(x).float(), module(x.bfloat16()).float(), atol=0.1, rtol=0.1)
        module(x).float().square().sum().backward()
    assert out.shape == (2, 6, 5)
    assert all(value.dtype == torch.float32 for value in state.values)
    for weight, gradient in zip(module.parameters(), expected, strict=True):
        assert (weight.grad - gradient).norm() < 0.1 * gradient.norm()


# --- Compiled ---------------------------------------------------------------------------------------------------


@pytest.mark.compile
@pytest.mark.parametrize(
    ("layer", "backend"), [(layer, "aot_eager") for layer in LAYERS] + [(LSTM, "inductor"), (GRU, "inductor")]
)
def test_compiled_equals_eager(layer, backend):
    """Forward, backward and state, in one graph each."""
    torch._dynamo.reset()
    module, x, positions = make(layer), random(3, 64, 5).requires_grad_(), padded([64, 10, 30], 64)
    compiled = torch.compile(module, fullgraph=True, backend=backend)
    results = []
    for call in (module, compiled):
        state = module.start(3)
        out = call(x, mask=Padding(), positions=positions)
        one = call(x[:, :1], mask=Padding(), positions=padded([1, 0, 1], 1), state=state)
        loss = out.square().sum() + one.sum() + state.values[-1].square().sum()
        results.append((out, *state.values, *torch.autograd.grad(loss, [x, *module.parameters()])))
    for eager, got in zip(*results, strict=True):
        torch.testing.assert_close(got, eager, **CLOSE)


@pytest.mark.compile
def test_compiled_both_directions():
    torch._dynamo.reset()
    module, x, positions = Bidirectional(make(TorchGRU), make(MUT1)), random(3, 9, 5), padded([9, 2, 5], 9)
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(
        compiled(x, mask=Padding(), positions=positions), module(x, mask=Padding(), positions=positions), **CLOSE
    )


@pytest.mark.compile
@pytest.mark.parametrize("layer", [LSTM, MUT1])
def test_compiled_under_autocast(layer):
    torch._dynamo.reset()
    module, x = make(layer, dtype=torch.float32), random(2, 6, 5, dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        compiled = torch.compile(module, fullgraph=True, backend="aot_eager")(x)
        eager = module(x)
    assert compiled.dtype == eager.dtype
    torch.testing.assert_close(compiled, eager, atol=0.02, rtol=0)
    compiled.square().sum().backward()
    assert all(weight.grad.any() for weight in module.parameters())
