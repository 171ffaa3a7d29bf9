"""Optimizers: which parameters each updates, against torch's own; skipped steps and resuming are exact to the bit."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

import regard
from regard.config import from_table, to_table
from regard.errors import ConfigError, RegardError
from regard.training.optimizer import AdamWConfig, MuonConfig, Optimizer, OptimizerConfig
from tests.laws.cases import SHRINK

ADAMW = AdamWConfig(rate=0.01)
MUON = MuonConfig(rate=0.02, rest=ADAMW)
both = pytest.mark.parametrize("config", [ADAMW, MUON], ids=["adamw", "muon"])


@dataclass(frozen=True)
class Holder:
    optimizer: OptimizerConfig


def model(recipe: str = "gpt2") -> nn.Module:
    return regard.build(recipe, *SHRINK[recipe], seed=1)


def give_gradients(model: nn.Module, step: int) -> None:
    generator = torch.Generator().manual_seed(step)
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator)


def take(model: nn.Module, optimizer: Optimizer, steps: range) -> None:
    for step in steps:
        optimizer.set_factor(1 / step)
        give_gradients(model, step)
        optimizer.step()
        optimizer.zero()


def everything(model: nn.Module, optimizer: Optimizer) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in [*model.named_parameters(), *optimizer.tensors().items()]}


def same_bits(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(
        torch.equal(one[name].view(torch.int32), other[name].view(torch.int32)) for name in one
    )


def groups(optimizer: Optimizer) -> dict[str, tuple[str, float]]:
    """Return for every parameter which optimizer updates it, and its decay."""
    return {
        optimizer.names[parameter]: (type(part).__name__, group["weight_decay"])
        for part in optimizer.parts
        for group in part.param_groups
        for parameter in group["params"]
    }


# --- who belongs to which --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("recipe", sorted(SHRINK))
def test_every_parameter_has_one_optimizer_and_matrices_decay(recipe: str) -> None:
    built = model(recipe)
    found = groups(ADAMW.build(built))
    assert sorted(found) == sorted(dict(built.named_parameters()))
    tables = {f"{name}.weight" for name, module in built.named_modules() if isinstance(module, nn.Embedding)}
    for name, parameter in built.named_parameters():
        decays = parameter.squeeze().ndim >= 2 and name not in tables
        assert found[name] == ("AdamW", 0.1 if decays else 0.0), name


def test_what_decays_in_vit_and_gpt2() -> None:
    decays = {name for name, (_, decay) in groups(ADAMW.build(model("vit"))).items() if decay}
    assert {"patches.conv.weight", "head.classify.weight", "stack.layers.0.feedforward.up.weight"} <= decays
    assert not {"class_token", "position.table.weight", "stack.norm.weight", "head.classify.bias"} & decays
    assert "embed.tokens.table.weight" not in {
        name for name, (_, decay) in groups(ADAMW.build(model("gpt2"))).items() if decay
    }


def test_muon_takes_the_linear_maps_of_the_stack() -> None:
    moved = {name for name, (kind, _) in groups(MUON.build(model("gpt2"))).items() if kind == "Muon"}
    attention = [f"mixer.heads.{name}.weight" for name in ("to_query", "to_key", "to_value", "output")]
    maps = [*attention, "feedforward.up.weight", "feedforward.down.weight"]
    assert moved == {f"stack.layers.{layer}.{name}" for layer in (0, 1) for name in maps}


@pytest.mark.parametrize("recipe", ["deepseek-like", "bert", "vit", "transformer-base"])
def test_muon_leaves_the_rest_to_adamw(recipe: str) -> None:
    built = model(recipe)
    found = groups(MUON.build(built))
    assert sorted(found) == sorted(dict(built.named_parameters()))
    for name, parameter in built.named_parameters():
        inside = name.startswith(("stack.layers.", "encoder.layers.", "decoder.layers."))
        hidden = inside and parameter.ndim == 2 and "bias" not in name
        assert found[name][0] == ("Muon" if hidden else "AdamW"), name
    if recipe == "deepseek-like":
        assert any(parameter.ndim == 3 for parameter in built.parameters())  # the experts


@pytest.mark.parametrize("recipe", ["lstm", "mut1", "rnn-attention"])
def test_muon_takes_the_matrices_of_recurrent_layers(recipe: str) -> None:
    built = model(recipe)
    found = groups(MUON.build(built))
    for name, parameter in built.named_parameters():
        recurrent = parameter.ndim == 2 and name.startswith(("stack.layers.", "encoder.layers.", "cells."))
        assert found[name][0] == ("Muon" if recurrent else "AdamW"), name
    assert {kind for kind, _ in found.values()} == {"Muon", "AdamW"}


def test_muon_leaves_a_model_without_hidden_matrices_to_adamw() -> None:
    (only,) = MUON.build(nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 5))).parts
    assert isinstance(only, torch.optim.AdamW)


def test_muon_alone_needs_no_adamw() -> None:
    built = model("gpt2")
    for name, parameter in built.named_parameters():
        parameter.requires_grad_(name.endswith("up.weight"))
    optimizer = MUON.build(built)
    assert sorted(optimizer.tensors()) == [f"momentum/stack.layers.{layer}.feedforward.up.weight" for layer in (0, 1)]


@both
def test_frozen_parameters_have_no_state(config: OptimizerConfig) -> None:
    built = model()
    built.get_submodule("embed").requires_grad_(False)
    names = config.build(built).tensors()
    assert not [name for name in names if "/embed." in name]
    assert [name for name in names if "/stack." in name]


# --- steps -----------------------------------------------------------------------------------------------------------


def test_adamw_by_hand() -> None:
    layer = nn.Linear(2, 2)
    optimizer = AdamWConfig(rate=0.1, betas=(0.8, 0.9), decay=0.5, epsilon=1e-3).build(layer)
    wanted = {name: parameter.detach().double().clone() for name, parameter in layer.named_parameters()}
    first = {name: torch.zeros_like(value) for name, value in wanted.items()}
    second = {name: torch.zeros_like(value) for name, value in wanted.items()}
    for step in range(1, 4):
        give_gradients(layer, step)
        optimizer.set_factor(1 / step)
        optimizer.step()
        rate = 0.1 / step
        for name, parameter in layer.named_parameters():
            assert parameter.grad is not None
            gradient = parameter.grad.double()
            first[name] = 0.8 * first[name] + 0.2 * gradient
            second[name] = 0.9 * second[name] + 0.1 * gradient**2
            mean, square = first[name] / (1 - 0.8**step), second[name] / (1 - 0.9**step)
            decay = 0.5 if name == "weight" else 0.0
            wanted[name] = wanted[name] * (1 - rate * decay) - rate * mean / (square.sqrt() + 1e-3)
    for name, parameter in layer.named_parameters():
        torch.testing.assert_close(parameter.detach().double(), wanted[name], atol=1e-5, rtol=1e-5)


def test_the_factor_scales_every_rate_from_its_peak() -> None:
    optimizer = MUON.build(model("vit"))

    def rates() -> list[float]:
        return [group["lr"] for part in optimizer.parts for group in part.param_groups]

    assert rates() == [0.02, 0.01, 0.01]
    optimizer.set_factor(0.5)
    optimizer.set_factor(0.25)
    assert rates() == [0.005, 0.0025, 0.0025]


def test_a_rate_that_is_a_tensor_is_changed_in_place() -> None:
    optimizer = ADAMW.build(model())
    [part] = optimizer.parts
    rate = torch.tensor(0.01)
    part.param_groups[0]["lr"] = rate
    optimizer.set_factor(0.5)
    assert part.param_groups[0]["lr"] is rate
    assert rate.item() == pytest.approx(0.005)


@both
def test_zero_forgets_the_gradients(config: OptimizerConfig) -> None:
    built = model()
    optimizer = config.build(built)
    give_gradients(built, 1)
    optimizer.zero()
    assert all(parameter.grad is None for parameter in built.parameters())


@both
def test_a_bad_step_changes_no_bit(config: OptimizerConfig) -> None:
    built = model()
    optimizer = config.build(built)
    take(built, optimizer, range(1, 3))
    with torch.no_grad():
        next(built.parameters()).view(-1)[0] = -0.0
    before = everything(built, optimizer)
    give_gradients(built, 3)
    for parameter in built.parameters():
        assert parameter.grad is not None
        parameter.grad.view(-1)[0] = float("nan")
    optimizer.step(torch.tensor(1.0))
    assert same_bits(before, everything(built, optimizer))


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW, torch.optim.RMSprop])
def test_a_bad_step_is_skipped_for_optimizers_that_cannot_skip_it(kind: type[torch.optim.Optimizer]) -> None:
    """Unfused optimizers of torch fail if they are asked to skip a step, others know nothing of it."""
    built = nn.Linear(2, 2)
    optimizer = Optimizer(built, [kind(built.parameters(), lr=0.1)])  # type: ignore[call-arg]
    start = built.weight.detach().clone()
    give_gradients(built, 1)
    optimizer.step(torch.tensor(0.0))
    before = everything(built, optimizer)
    assert not torch.equal(start, before["weight"])
    built.weight.grad = torch.full((2, 2), torch.nan)
    optimizer.step(torch.tensor(1.0))
    assert same_bits(before, everything(built, optimizer))


@both
def test_a_good_step_is_a_step(config: OptimizerConfig) -> None:
    """The flag 0 skips nothing, also after a step that was skipped."""
    results = []
    for flag in (None, torch.tensor(0.0)):
        built = model()
        optimizer = config.build(built)
        if flag is not None:
            give_gradients(built, 9)
            optimizer.step(torch.tensor(1.0))
        give_gradients(built, 1)
        optimizer.step(flag)
        results.append(everything(built, optimizer))
    assert same_bits(*results)
    untouched = model()
    assert not same_bits(results[0], everything(untouched, config.build(untouched)))


# --- state -----------------------------------------------------------------------------------------------------------


def test_the_state_is_named_by_parameter_before_the_first_step() -> None:
    names = MUON.build(model()).tensors()
    assert "momentum/stack.layers.0.mixer.heads.to_query.weight" in names
    assert {f"{kind}/embed.tokens.table.weight" for kind in ("step", "exp_avg", "exp_avg_sq")} <= set(names)


@both
def test_resuming_from_a_state_is_exact_to_the_bit(config: OptimizerConfig) -> None:
    whole = model()
    optimizer = config.build(whole)
    take(whole, optimizer, range(1, 11))

    first = model()
    before = config.build(first)
    take(first, before, range(1, 6))
    saved = {name: tensor.clone() for name, tensor in before.tensors().items()}
    second = model()
    second.load_state_dict(first.state_dict())
    after = config.build(second)
    after.load(saved)
    take(second, after, range(6, 11))
    assert same_bits(everything(whole, optimizer), everything(second, after))


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW])
def test_optimizers_that_create_their_state_in_the_first_step_are_resumed(kind: type[torch.optim.Optimizer]) -> None:
    """Also with groups that do not name their peak: it is the rate that they begin with."""

    def build(found: nn.Module) -> Optimizer:
        options = {"momentum": 0.9} if kind is torch.optim.SGD else {}
        return Optimizer(found, [kind(found.parameters(), lr=0.1, **options)])  # type: ignore[call-arg]

    whole = nn.Linear(2, 3)
    optimizer = build(whole)
    take(whole, optimizer, range(1, 4))
    again = nn.Linear(2, 3)
    again.load_state_dict(whole.state_dict())
    resumed = build(again)
    saved = {name: tensor.clone() for name, tensor in optimizer.tensors().items()}
    resumed.load(saved)
    for found, each in ((whole, optimizer), (again, resumed)):
        take(found, each, range(4, 7))
    assert optimizer.parts[0].param_groups[0]["lr"] == 0.1 / 6
    assert same_bits(everything(whole, optimizer), everything(again, resumed))


@both
def test_a_loaded_state_is_a_copy(config: OptimizerConfig) -> None:
    built = model()
    optimizer = config.build(built)
    take(built, optimizer, range(1, 3))
    saved = {name: tensor.clone() for name, tensor in optimizer.tensors().items()}
    kept = {name: tensor.clone() for name, tensor in saved.items()}
    optimizer.load(saved)
    take(built, optimizer, range(3, 5))
    assert same_bits(saved, kept)


def drop(tensors: dict[str, Tensor]) -> None:
    del tensors["exp_avg/head.bias"]


def add(tensors: dict[str, Tensor]) -> None:
    tensors["exp_avg/foot.bias"] = torch.zeros(1)


def reshape(tensors: dict[str, Tensor]) -> None:
    tensors["exp_avg/head.bias"] = torch.zeros(24)


def convert(tensors: dict[str, Tensor]) -> None:
    tensors["exp_avg/head.bias"] = torch.zeros(23, dtype=torch.float64)


@pytest.mark.parametrize(
    ("spoil", "fault"),
    [
        (drop, "'exp_avg/head.bias' is missing"),
        (add, "'exp_avg/foot.bias' belongs to no parameter"),
        (reshape, "'exp_avg/head.bias' is (24,) of float32, not (23,) of float32"),
        (convert, "'exp_avg/head.bias' is (23,) of float64, not (23,) of float32"),
    ],
)
def test_a_state_of_something_else_is_refused_whole(spoil: Callable[[dict[str, Tensor]], None], fault: str) -> None:
    built = model("bert")
    optimizer = ADAMW.build(built)
    before = everything(built, optimizer)
    tensors = {name: tensor + 1 for name, tensor in optimizer.tensors().items()}
    spoil(tensors)
    with pytest.raises(RegardError) as error:
        optimizer.load(tensors)
    remedy = "continue with the model and the optimizer that the state was saved with"
    assert str(error.value) == f"optimizer state: {fault}; {remedy}"
    assert same_bits(before, everything(built, optimizer))


# --- configs ---------------------------------------------------------------------------------------------------------


def test_an_optimizer_is_a_table() -> None:
    table = {"kind": "muon", "rate": 0.05, "rest": {"rate": 0.001, "betas": [0.9, 0.99]}}
    config = from_table({"optimizer": table}, Holder).optimizer
    assert config == MuonConfig(rate=0.05, rest=AdamWConfig(rate=0.001, betas=(0.9, 0.99)))
    assert from_table({"optimizer": to_table(config)}, Holder).optimizer == config


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"kind": "adamw"}, "optimizer.rate: missing; must be a number, above 0"),
        ({"kind": "adamw", "rate": 0.0}, "optimizer.rate: 0.0 must be above 0"),
        ({"kind": "adamw", "rate": 0.1, "decay": -1.0}, "optimizer.decay: -1.0 must be at least 0"),
        (
            {"kind": "adamw", "rate": 0.1, "betas": [0.9]},
            "optimizer.betas: [0.9] must be two numbers, each at least 0 and below 1",
        ),
        (
            {"kind": "muon", "rest": {"rate": 0.1, "betas": [0.9, 1.0]}},
            "optimizer.rest.betas: [0.9, 1.0] must be two numbers, each at least 0 and below 1",
        ),
        ({"kind": "muon", "momentum": 1.0}, "optimizer.momentum: 1.0 never learns; it must be below 1"),
    ],
)
def test_mistakes_are_named(table: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        from_table({"optimizer": table}, Holder)
    assert str(error.value) == message
