"""RWKV-7 against its equations, token by token and head by head (Peng et al. 2025); padding, the memo, wrong sizes.

RWKV-4 is compared with Hugging Face's implementation in tests/hub.
"""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.errors import ConfigError, InputError
from regard.parts.feedforward import ChannelMixConfig
from regard.parts.mask import Causal, Documents, Padding
from regard.parts.rwkv import RWKV7, RWKV4Config, RWKV7Config

D, H = 12, 3


def mixer(value_rank: int | None = None) -> RWKV7:
    torch.manual_seed(0)
    built = RWKV7Config(H, rank=4, gate_rank=5, value_rank=value_rank).build(D).double().eval()
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.normal_(std=0.5)
    return built


def some_vectors(rows: int = 2, tokens: int = 21) -> Tensor:
    return torch.randn(rows, tokens, D, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


@torch.no_grad()
def by_the_equations(part: RWKV7, x: Tensor, first: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """One row, from the paper: equations 3 to 21; return the outputs, and the values that other layers mix in."""
    width = D // H
    states = [torch.zeros(width, width, dtype=x.dtype) for _ in range(H)]
    before, outs, all_values = torch.zeros(D, dtype=x.dtype), [], []
    for t, token in enumerate(x):
        mixed = {name: before + (token - before) * mu for name, mu in part.mix.items()}
        before = token
        r = part.to_query.weight @ mixed["r"]
        k = part.to_key.weight @ mixed["k"]
        v = part.to_value.weight @ mixed["v"]
        all_values.append(v)
        if part.first_share is not None and first is not None:
            share = part.first_share
            nu = torch.sigmoid(share.up.bias + share.up.weight @ (share.down.weight @ mixed["v"]))
            v = v + (first[t] - v) * nu
        d = part.decay.up.bias + part.decay.up.weight @ torch.tanh(part.decay.down.weight @ mixed["w"])
        w = torch.exp(-torch.exp(torch.tensor(-0.5, dtype=x.dtype)) * torch.sigmoid(d))
        a = torch.sigmoid(part.rate.up.bias + part.rate.up.weight @ (part.rate.down.weight @ mixed["a"]))
        g = part.gate.up.weight @ torch.sigmoid(part.gate.down.weight @ mixed["g"])
        removal, replacement = k * part.removal_scale, k * (1 + (a - 1) * part.rate_scale)
        heads = []
        for h in range(H):
            here = slice(h * width, (h + 1) * width)
            kappa = removal[here] / removal[here].norm()
            change = torch.diag(w[here]) - torch.outer(kappa, a[here] * kappa)
            states[h] = states[h] @ change + torch.outer(v[here], replacement[here])
            read = states[h] @ r[here]
            read = (read - read.mean()) / torch.sqrt(read.var(unbiased=False) + 64e-5)
            read = read * part.norm.weight[here] + part.norm.bias[here]
            heads.append(read + (r[here] @ (part.bonus[here] * replacement[here])) * v[here])
        outs.append(part.to_output.weight @ (torch.cat(heads) * g))
    return torch.stack(outs), torch.stack(all_values)


def test_rwkv7_computes_the_equations_of_the_paper() -> None:
    part, x = mixer(), some_vectors()
    wanted = torch.stack([by_the_equations(part, row)[0] for row in x])
    torch.testing.assert_close(part(x, mask=Causal()), wanted, rtol=1e-8, atol=1e-8)


def test_rwkv7_mixes_in_the_values_of_the_first_layer() -> None:
    first, second, x, memo = mixer(), mixer(value_rank=2), some_vectors(), {}
    first(x, mask=Causal(), memo=memo)
    found = second(x, mask=Causal(), memo=memo)
    wanted = torch.stack([by_the_equations(second, row, by_the_equations(first, row)[1])[0] for row in x])
    torch.testing.assert_close(found, wanted, rtol=1e-8, atol=1e-8)
    with pytest.raises(ConfigError, match="the first must not have it"):
        second(x, mask=Causal(), memo={})


@pytest.mark.parametrize("config", [RWKV4Config(), RWKV7Config(H), ChannelMixConfig(24), ChannelMixConfig(24, False)])
def test_padding_changes_no_state(config) -> None:
    torch.manual_seed(0)
    part = config.build(D).double().eval()
    with torch.no_grad():
        for parameter in part.parameters():
            parameter.normal_(std=0.5)
    x, lengths = some_vectors(3, 9), [9, 4, 0]
    positions = torch.tensor([[t if t < length else -1 for t in range(9)] for length in lengths])
    state = part.start(3)
    part(x, mask=Causal() & Padding(), positions=positions, state=state)
    for row, length in enumerate(lengths):
        alone = part.start(1)
        if length:
            part(x[row : row + 1, :length], mask=Causal(), state=alone)
        for found, wanted in zip(state.values, alone.values, strict=True):
            torch.testing.assert_close(found[row], wanted[0], rtol=1e-8, atol=1e-8)


def test_the_state_has_a_constant_size() -> None:
    part = mixer()
    state = part.start(2)
    shapes = [value.shape for value in state.values]
    for _ in range(3):
        part(some_vectors(2, 5), mask=Causal(), state=state)
        assert [value.shape for value in state.values] == shapes


def test_packed_documents_are_rejected() -> None:
    with pytest.raises(InputError, match="packed documents and prefixes need attention"):
        mixer()(some_vectors(1, 3), mask=Causal() & Documents(torch.tensor([[0, 0, 1]])))


def test_heads_must_divide_the_width() -> None:
    with pytest.raises(ConfigError, match="heads=5 must divide dim=12"):
        RWKV7Config(5).build(12)


def test_a_gate_is_part_of_version_4_only() -> None:
    x = some_vectors(1, 4)
    plain, gated = ChannelMixConfig(8, gated=False).build(D).double(), ChannelMixConfig(8).build(D).double()
    with torch.no_grad():
        for part in (plain, gated):
            for parameter in part.parameters():
                parameter.normal_(std=0.5)
        gated.load_state_dict(plain.state_dict(), strict=False)
        before = F.pad(x, (0, 0, 1, 0))[:, :-1]
        gate = torch.sigmoid((before + (x - before) * gated.mix_r) @ gated.to_gate.weight.T)
        torch.testing.assert_close(gated(x), gate * plain(x))
