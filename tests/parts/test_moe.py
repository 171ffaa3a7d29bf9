"""Router and mixture against plain loops over tokens and experts, and against DeepSeek-V3 in transformers."""

import copy
import math
import re
from unittest.mock import Mock

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.errors import ConfigError
from regard.models.recipe import build
from regard.parts.feedforward import MoEConfig
from regard.parts.moe import Experts, MixtureOfExperts, Router, grouped_product


def generator(seed: int = 1) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, dtype=dtype, generator=generator())


def fill(module: nn.Module, dtype: torch.dtype = torch.float64) -> None:
    module.to(dtype)
    for number, parameter in enumerate(module.parameters()):
        nn.init.normal_(parameter, generator=generator(10 + number))


def router(**sizes: int | float) -> Router:
    made = Router(4, **sizes)  # type: ignore[arg-type]
    fill(made)
    made.bias.copy_(0.3 * torch.randn(made.experts, dtype=torch.float64, generator=generator(3)))
    return made


def mixture(config: MoEConfig, dim: int, dtype: torch.dtype = torch.float64) -> MixtureOfExperts:
    made = config.build(dim)
    assert isinstance(made, MixtureOfExperts)
    fill(made, dtype)
    made.router.bias.copy_(0.3 * torch.randn(config.experts, generator=generator(3)))
    return made


def route(made: Router, token: list[float]) -> dict[int, float]:
    """Weights of the chosen experts of one token, by the equations of the paper."""
    affinity = [
        1 / (1 + math.exp(-sum(w * x for w, x in zip(row, token, strict=True))))
        for row in made.affinity.weight.tolist()
    ]
    biased = [s + b for s, b in zip(affinity, made.bias.tolist(), strict=True)]
    size = made.experts // made.groups
    groups = [range(first, first + size) for first in range(0, made.experts, size)]
    if made.groups > 1:
        strength = [sum(sorted(biased[e] for e in group)[-2:]) for group in groups]
        best = sorted(range(made.groups), key=lambda number: -strength[number])[: made.chosen_groups]
        allowed = [e for number in best for e in groups[number]]
    else:
        allowed = list(range(made.experts))
    chosen = sorted(allowed, key=lambda e: -biased[e])[: made.chosen]
    total = sum(affinity[e] for e in chosen)
    return {e: made.scale * affinity[e] / total for e in chosen}


def loop(moe: MixtureOfExperts, x: Tensor) -> Tensor:
    """Every token on its own, every one of its experts in turn."""
    made = moe.experts
    out = torch.zeros_like(x)
    for b, row in enumerate(x):
        for t, token in enumerate(row):
            answer = torch.zeros_like(token)
            for e, weight in route(moe.router, token.tolist()).items():
                hidden = F.silu(made.gate[e].T @ token) * (made.up[e].T @ token)
                answer = answer + weight * (made.down[e].T @ hidden)
            if moe.shared is not None:
                hidden = F.silu(moe.shared.gate.weight @ token) * (moe.shared.up.weight @ token)
                answer = answer + moe.shared.down.weight @ hidden
            out[b, t] = answer
    return out


# --- router ---------------------------------------------------------------------------------------------------------

ROUTERS = [
    {"experts": 5, "chosen": 2},
    {"experts": 5, "chosen": 5, "scale": 2.5},
    {"experts": 4, "chosen": 1, "scale": 0.5},
    {"experts": 8, "chosen": 3, "groups": 4, "chosen_groups": 2},
    {"experts": 12, "chosen": 2, "groups": 3, "chosen_groups": 1, "scale": 1.5},
    {"experts": 6, "chosen": 4, "groups": 2, "chosen_groups": 2},
]


@pytest.mark.parametrize("sizes", ROUTERS)
def test_router_is_the_loop(sizes: dict[str, int | float]) -> None:
    made = router(**sizes)
    x = random(20, 4)
    weights, index = made(x)
    assert weights.dtype == torch.float64
    for token, w, i in zip(x.tolist(), weights.tolist(), index.tolist(), strict=True):
        wanted = route(made, token)
        assert set(i) == set(wanted)
        assert dict(zip(i, w, strict=True)) == pytest.approx(wanted, rel=0, abs=1e-10)
        assert sum(w) == pytest.approx(made.scale, rel=0, abs=1e-10)


def identity_router(experts: int, **sizes: int | float) -> Router:
    """A router whose affinities are the sigmoids of its input."""
    made = Router(experts, experts, **sizes).double()  # type: ignore[arg-type]
    made.affinity.weight.data = torch.eye(experts, dtype=torch.float64)
    return made


def logits(*affinities: float) -> Tensor:
    return torch.tensor([affinities], dtype=torch.float64).logit()


def test_the_bias_affects_the_choice_but_not_the_weights() -> None:
    made = identity_router(3, chosen=2)
    x = logits(0.6, 0.3, 0.2)
    weights, index = made(x)
    assert index.tolist() == [[0, 1]]
    torch.testing.assert_close(weights, torch.tensor([[6 / 9, 3 / 9]], dtype=torch.float64), rtol=0, atol=1e-10)
    made.bias.copy_(torch.tensor([0.0, 0.0, 0.2]))
    weights, index = made(x)
    assert index.tolist() == [[0, 2]]
    torch.testing.assert_close(weights, torch.tensor([[6 / 8, 2 / 8]], dtype=torch.float64), rtol=0, atol=1e-10)


def test_a_group_is_as_strong_as_its_two_best() -> None:
    """The best expert is in group 0, the best pair in group 1, the best sum of three in group 2."""
    made = identity_router(9, chosen=2, groups=3, chosen_groups=1)
    _, index = made(logits(0.9, 0.1, 0.1, 0.6, 0.6, 0.01, 0.55, 0.5, 0.5))
    assert sorted(index[0].tolist()) == [3, 4]


def test_the_bias_counts_in_the_strength_of_a_group() -> None:
    made = identity_router(4, chosen=1, groups=2, chosen_groups=1)
    x = logits(0.5, 0.5, 0.6, 0.3)
    assert made(x)[1].tolist() == [[0]] or made(x)[1].tolist() == [[1]]
    made.bias.copy_(torch.tensor([0.0, 0.0, 0.0, 0.2]))
    assert made(x)[1].tolist() == [[2]]


def test_the_bias_has_no_gradient_and_the_affinity_has() -> None:
    made = router(experts=5, chosen=2)
    assert [name for name, _ in made.named_parameters()] == ["affinity.weight"]
    weights, _ = made(random(3, 4))
    weights[:, 0].sum().backward()
    assert made.affinity.weight.grad is not None
    assert (made.affinity.weight.grad != 0).any()


def test_bfloat16_chooses_in_float32() -> None:
    """Affinities 0.50025 and 0.5 are one number in bfloat16; a bias of 0.001 on top of them would be lost too."""
    made = identity_router(3, chosen=1).bfloat16()
    x = torch.tensor([[0.0, 0.001, -1.0]], dtype=torch.bfloat16)
    weights, index = made(x)
    assert index.tolist() == [[1]]
    assert weights.dtype == torch.bfloat16
    made.bias.copy_(torch.tensor([0.001, 0.0, 0.0]))
    assert made(x)[1].tolist() == [[0]]


def test_autocast_does_not_round_the_affinities() -> None:
    made = identity_router(3, chosen=1).float()
    made.affinity.weight.data[1, 1] = 1.001  # 1 in bfloat16, where expert 0 would be as good
    x = torch.tensor([[1.0, 1.0, 0.0]])
    with torch.autocast("cpu", torch.bfloat16):
        assert made(x)[1].tolist() == [[1]]
        assert made(x)[0].dtype == torch.float32


# --- balance --------------------------------------------------------------------------------------------------------


def test_load_counts_choices_in_training_only() -> None:
    made = identity_router(3, chosen=1)
    x = torch.cat((logits(0.9, 0.1, 0.1), logits(0.8, 0.1, 0.1), logits(0.1, 0.1, 0.9)))
    made(x)
    made(x[:1])
    assert made.load.tolist() == [3, 0, 1]
    made.eval()
    made(x)
    assert made.load.tolist() == [3, 0, 1]


def test_load_counts_neither_padding_nor_empty_rows() -> None:
    moe = mixture(MoEConfig(experts=4, chosen=2, hidden=8), 8)
    x, positions = random(3, 5, 8), torch.tensor([[0, 1, 2, -1, -1], [0, 1, 2, 3, 4], [0, -1, -1, -1, -1]])
    moe(x[0, :3][None])
    moe(x[1][None])
    wanted = moe.router.load.clone()
    moe.router.load.zero_()
    moe.router.counted = torch.tensor([True, True, False])
    moe(x, positions)
    assert moe.router.load.tolist() == wanted.tolist()
    moe.router.load.zero_()
    moe(x)
    assert int(moe.router.load.sum()) == 2 * 10
    moe.router.counted = positions >= 0
    moe.router.load.zero_()
    moe(x)
    assert int(moe.router.load.sum()) == 2 * 9
    moe.router.counted = None
    moe.router.load.zero_()
    moe(x, positions)
    assert int(moe.router.load.sum()) == 2 * 9


def test_a_padded_batch_counts_its_tokens_only() -> None:
    change = "model.layers.block.feedforward"
    sizes = ["model.dim=8", "model.depth=2", "model.layers.block.mixer.heads.heads=2", "model.embed.position.length=16"]
    experts = [f'{change}={{kind="moe", experts=4, chosen=2, hidden=8}}']
    model = build("bert", *sizes, *experts, seed=0).train()
    model(torch.ones(3, 9, dtype=torch.long), lengths=torch.tensor([9, 1, 4]))
    loads = [part.load.sum().item() for part in model.modules() if isinstance(part, Router)]
    assert loads == [2 * 14, 2 * 14]


def test_only_products_of_the_grouped_kernel_can_be_captured() -> None:
    experts = Experts(4, 8, 16)
    assert experts.is_static(torch.bfloat16)
    assert not experts.is_static(torch.float32)
    assert not Experts(4, 8, 12).is_static(torch.bfloat16)


def test_load_counts_exactly_in_a_low_precision_model() -> None:
    made = identity_router(3, chosen=1).bfloat16()
    x = logits(0.9, 0.1, 0.1).bfloat16()
    made(x.repeat(256, 1))
    made(x)  # 257 is not a number in bfloat16
    assert made.load.tolist() == [257, 0, 0]


def test_balance_raises_the_idle_lowers_the_busy_and_forgets_the_load() -> None:
    made = identity_router(4, chosen=1)
    made.bias.copy_(torch.tensor([0.5, 0.0, -0.5, 0.25]))
    made.load.copy_(torch.tensor([7, 0, 4, 5]))  # 4 on average
    made.balance(0.125)
    assert made.bias.tolist() == [0.375, 0.125, -0.5, 0.125]
    assert made.load.tolist() == [0, 0, 0, 0]


def test_balance_in_the_long_run_evens_the_load() -> None:
    made = router(experts=4, chosen=1)
    made.bias.copy_(torch.tensor([1.0, 0.0, 0.0, 0.0]))
    x = random(64, 4)
    made(x)
    assert made.load.tolist() == [64, 0, 0, 0]
    for _ in range(200):
        made.balance(0.01)
        made(x)
    assert (made.load - 16).abs().max() <= 2


# --- the whole ------------------------------------------------------------------------------------------------------

CONFIGS = [
    MoEConfig(experts=4, chosen=2, hidden=8),
    MoEConfig(experts=4, chosen=2, hidden=16, shared=1, scale=2.5),
    MoEConfig(experts=8, chosen=3, hidden=8, shared=2, groups=4, chosen_groups=2),
    MoEConfig(experts=12, chosen=1, hidden=8),
]


@pytest.mark.parametrize("config", CONFIGS)
def test_mixture_is_the_loop(config: MoEConfig) -> None:
    moe = mixture(config, 8)
    x = random(2, 5, 8)
    torch.testing.assert_close(moe(x), loop(moe, x), rtol=0, atol=1e-10)


@pytest.mark.parametrize("config", CONFIGS)
def test_mixture_is_the_loop_with_the_grouped_kernel(config: MoEConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Mock(wraps=F.grouped_mm)
    monkeypatch.setattr(F, "grouped_mm", kernel)
    moe = mixture(config, 8, torch.bfloat16)
    x = random(2, 5, 8).bfloat16()
    found, wanted = moe(x), loop(copy.deepcopy(moe).double(), x.double())
    assert found.dtype == torch.bfloat16
    assert (found.double() - wanted).norm() < 0.02 * wanted.norm()
    assert kernel.call_count == 3  # gate, up and down


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("dim", "hidden"), [(5, 3), (4, 4), (8, 6), (6, 8)])
def test_any_width_works(dim: int, hidden: int, dtype: torch.dtype) -> None:
    """The grouped kernel takes only rows of a multiple of 16 bytes."""
    moe = mixture(MoEConfig(experts=4, chosen=2, hidden=hidden, shared=1), dim, dtype)
    x = random(2, 3, dim).to(dtype)
    found, wanted = moe(x), loop(moe, x)
    assert found.dtype == dtype
    tolerance = {torch.float64: 1e-10, torch.float32: 1e-4, torch.bfloat16: 0.05}[dtype]
    torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance)


def test_it_can_be_built_and_run_without_memory() -> None:
    for dtype in (torch.float32, torch.bfloat16):
        with torch.device("meta"):
            moe = CONFIGS[2].build(8).to(dtype)
            assert moe(torch.zeros(2, 5, 8, dtype=dtype)).shape == (2, 5, 8)


def test_without_tokens_the_result_is_empty() -> None:
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        moe = mixture(CONFIGS[1], 8, dtype)
        assert moe(torch.zeros(2, 0, 8, dtype=dtype)).shape == (2, 0, 8)


def gradients(moe: MixtureOfExperts, x: Tensor) -> dict[str, Tensor]:
    x = x.clone().requires_grad_()
    moe(x).square().sum().backward()
    found = {name: parameter.grad for name, parameter in moe.named_parameters()}
    assert x.grad is not None
    assert all(grad is not None for grad in found.values())
    return {"x": x.grad, **{name: grad for name, grad in found.items() if grad is not None}}


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 0.05)])
@pytest.mark.parametrize("config", CONFIGS)
def test_gradients_agree_in_every_precision(config: MoEConfig, dtype: torch.dtype, tolerance: float) -> None:
    """In bfloat16 by the grouped kernel, else expert by expert.

    The gradient of a router that chooses one expert is exactly 0 (the weight is always 1): rounding errors of its
    terms, which are as large as the gradient of the input, remain.
    """
    low = mixture(config, 8, dtype)
    x = random(2, 5, 8).to(dtype)
    found, wanted = gradients(low, x), gradients(copy.deepcopy(low).double(), x.double())
    assert found.keys() == wanted.keys()
    rounding = torch.finfo(dtype).eps * wanted["x"].norm()
    for name, grad in found.items():
        assert (grad - wanted[name]).norm() <= tolerance * wanted[name].norm() + rounding, name


def test_gradients_are_those_of_the_loop() -> None:
    """The loop takes its weights as numbers, so only what lies behind the weights is compared."""
    moe = mixture(CONFIGS[1], 8)
    x = random(2, 5, 8)
    found = gradients(moe, x)
    moe.zero_grad()
    loop(moe, x).square().sum().backward()
    for name, parameter in moe.named_parameters():
        if name != "router.affinity.weight":
            assert parameter.grad is not None
            torch.testing.assert_close(found[name], parameter.grad, rtol=0, atol=1e-8, msg=name)


@pytest.mark.parametrize("parameter", ["router.affinity.weight", "experts.gate", "experts.up", "experts.down", "x"])
def test_gradients_are_those_of_small_steps(parameter: str) -> None:
    moe = mixture(MoEConfig(experts=3, chosen=2, hidden=2), 3)
    x = random(1, 2, 3)

    def run(value: Tensor) -> Tensor:
        if parameter == "x":
            return moe(value)
        return torch.func.functional_call(moe, {parameter: value}, (x,))

    value = x if parameter == "x" else moe.get_parameter(parameter).detach()
    assert torch.autograd.gradcheck(run, (value.clone().requires_grad_(),))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_an_expert_without_a_token_has_gradient_zero(dtype: torch.dtype) -> None:
    moe = mixture(MoEConfig(experts=4, chosen=2, hidden=8), 8, dtype)
    moe.router.bias.copy_(torch.tensor([0.0, -9.0, 0.0, -9.0]))
    found = gradients(moe, random(2, 5, 8).to(dtype))
    for name in ("experts.gate", "experts.up", "experts.down"):
        assert torch.equal(found[name][[1, 3]], torch.zeros_like(found[name][[1, 3]]))
        assert (found[name][[0, 2]] != 0).any(-1).all()
    assert all(grad.isfinite().all() for grad in found.values())


def test_grouped_product_by_hand() -> None:
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], dtype=torch.float64)
    weights = torch.tensor([[[1.0], [0.0]], [[9.0], [9.0]], [[0.0], [2.0]]], dtype=torch.float64)
    found = grouped_product(x, weights, torch.tensor([1, 0, 2]))
    assert found.tolist() == [[1.0], [8.0], [12.0]]


def test_autocast_runs_the_experts_in_low_precision_and_keeps_the_stream() -> None:
    moe = mixture(CONFIGS[1], 8, torch.float32)
    x = random(2, 5, 8, dtype=torch.float32)
    wanted = moe(x)
    with torch.autocast("cpu", torch.bfloat16):
        found = moe(x)
    assert found.dtype == torch.float32
    assert not torch.equal(found, wanted)
    assert (found - wanted).norm() < 0.03 * wanted.norm()


def test_equals_deepseek_v3() -> None:
    from transformers.models.deepseek_v3.configuration_deepseek_v3 import DeepseekV3Config
    from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3MoE

    theirs_config = DeepseekV3Config(
        hidden_size=16,
        moe_intermediate_size=8,
        n_routed_experts=8,
        num_experts_per_tok=3,
        n_shared_experts=2,
        n_group=4,
        topk_group=2,
        routed_scaling_factor=2.5,
        norm_topk_prob=True,
    )
    theirs = DeepseekV3MoE(theirs_config)
    config = MoEConfig(experts=8, chosen=3, hidden=8, shared=2, groups=4, chosen_groups=2, scale=2.5)
    ours = mixture(config, 16, torch.float32)
    for parameter in ours.parameters():
        parameter.data *= 0.3
    assert ours.shared is not None
    with torch.no_grad():
        theirs.gate.weight.copy_(ours.router.affinity.weight)
        theirs.gate.e_score_correction_bias.copy_(ours.router.bias)
        theirs.experts.gate_up_proj.copy_(torch.cat((ours.experts.gate, ours.experts.up), 2).transpose(1, 2))
        theirs.experts.down_proj.copy_(ours.experts.down.transpose(1, 2))
        theirs.shared_experts.gate_proj.weight.copy_(ours.shared.gate.weight)
        theirs.shared_experts.up_proj.weight.copy_(ours.shared.up.weight)
        theirs.shared_experts.down_proj.weight.copy_(ours.shared.down.weight)
    x = random(2, 7, 16, dtype=torch.float32)
    torch.testing.assert_close(ours(x), theirs(x), rtol=1e-5, atol=1e-5)


# --- config ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "rule"),
    [
        ({"experts": 6, "groups": 4}, "experts=6 must be a multiple of groups=4"),
        ({"experts": 6, "groups": 0}, "groups=0 must be at least 1"),
        ({"experts": 4, "groups": 4}, "experts=4 in groups=4 must give at least 2 to a group"),
        ({"experts": 8, "groups": 2, "chosen_groups": 3}, "chosen_groups=3 must be at most groups=2"),
        ({"experts": 8, "groups": 2, "chosen_groups": 0}, "chosen_groups=0 must be at least 1"),
        ({"experts": 8, "chosen": 0}, "chosen=0 must be at least 1"),
        ({"experts": 8, "chosen": 9}, "chosen=9 must be at most 8, the experts in the chosen groups"),
        ({"experts": 8, "groups": 4, "chosen": 3}, "chosen=3 must be at most 2, the experts in the chosen groups"),
    ],
)
def test_sizes_that_do_not_fit(sizes: dict[str, int], rule: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(rule)):
        MoEConfig(**{"chosen": 1, "hidden": 4, **sizes})


def test_the_edges_of_the_rules_are_allowed() -> None:
    for config in (
        MoEConfig(experts=1, chosen=1, hidden=1),
        MoEConfig(experts=4, chosen=4, hidden=2, groups=2, chosen_groups=2),
        MoEConfig(experts=4, chosen=2, hidden=2, groups=2),
    ):
        moe = mixture(config, 2)
        assert moe(random(1, 2, 2)).isfinite().all()


def test_build_makes_what_the_config_says() -> None:
    moe = mixture(MoEConfig(experts=4, chosen=2, hidden=6, shared=3), 5)
    assert isinstance(moe.experts, Experts)
    assert {name: tuple(p.shape) for name, p in moe.named_parameters()} == {
        "router.affinity.weight": (4, 5),
        "experts.gate": (4, 5, 6),
        "experts.up": (4, 5, 6),
        "experts.down": (4, 6, 5),
        "shared.gate.weight": (18, 5),
        "shared.up.weight": (18, 5),
        "shared.down.weight": (5, 18),
    }
    assert mixture(MoEConfig(experts=4, chosen=2, hidden=6), 5).shared is None


def test_experts_made_by_hand_have_weights() -> None:
    for weight in Experts(3, 4, 5).parameters():
        limit = weight.shape[1] ** -0.5
        assert 0.5 * limit < float(weight.detach().abs().max()) <= limit


def test_the_bias_is_not_rounded_with_the_model() -> None:
    router = Router(4, 3, 1).to(torch.bfloat16)
    router.bias.fill_(0.3)
    router.load.copy_(torch.tensor([0, 5, 10]))
    router.balance(1e-3)
    torch.testing.assert_close(router.bias, torch.tensor([0.301, 0.3, 0.299]))
