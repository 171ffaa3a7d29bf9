"""The laws: what must hold for every recipe, and for every variant that an override reaches."""

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch.nn.attention import SDPBackend, sdpa_kernel

import regard
from regard.config import from_table, to_json, to_table, to_toml
from regard.models.recipe import Recipe, load_recipe
from regard.models.store import read_model, save_model, tensors
from regard.parts.attend import explicit
from regard.parts.fused_cells import Fused
from regard.parts.moe import Experts
from regard.parts.watch import Watchable
from regard.recipe_files import recipe_names

from .cases import SHRINK, Case, batch, call, cases, decodable, name_of, start

every = pytest.mark.parametrize("case", cases(), ids=name_of)
every_decodable = pytest.mark.parametrize("case", decodable(), ids=name_of)


def close(a: torch.Tensor, b: torch.Tensor) -> None:
    torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


def test_every_recipe_is_a_case_of_the_laws():
    assert set(SHRINK) == set(recipe_names())


# 1. The future does not change the past.


@every_decodable
def test_the_future_does_not_change_the_past(case: Case):
    model, data = case.build(), batch(case)
    tokens, before = data.tokens.clone(), call(model, data)
    for t in (3, 7):
        data.tokens = torch.cat((tokens[:, :t], (tokens[:, t:] + 1) % 23), 1)
        after = call(model, data)
        close(after[:, :t], before[:, :t])
        assert not torch.allclose(after[:, t:], before[:, t:])


# 2. Steps with state equal the full pass.


@every_decodable
@pytest.mark.parametrize("capacity", [None, 9], ids=["growing", "static"])
@torch.no_grad()
def test_steps_equal_the_full_pass(case: Case, capacity: int | None):
    model, data = case.build(), batch(case)
    full, state = call(model, data), start(model, data, capacity)
    for t in range(data.tokens.shape[1]):
        logits, state = model.step(data.tokens[:, t : t + 1], state)
        close(logits, full[:, t])


@every_decodable
@torch.no_grad()
def test_ragged_prompts_then_steps_equal_the_full_pass(case: Case):
    """Rows of different lengths are read in one step, then each continues from its own end."""
    model, data = case.build(), batch(case)
    full, state = call(model, data), start(model, data)
    rows = torch.arange(len(data.tokens))
    prompt = torch.tensor([6, 2, 4])
    logits, state = model.step(data.tokens[:, :6], state, prompt)
    close(logits, full[rows, prompt - 1])
    for k in range(3):
        here = prompt + k
        logits, state = model.step(data.tokens[rows, here][:, None], state)
        close(logits, full[rows, here])


@every_decodable
@torch.no_grad()
def test_a_row_that_gets_no_tokens_in_a_step_is_left_as_it_was(case: Case):
    model, data = case.build(), batch(case)
    full, state = call(model, data), start(model, data)
    for lengths in ([3, 0, 2], [0, 1, 0]):
        rows = torch.tensor(lengths)
        read = state.length
        tokens = torch.stack([row[n : n + 3] for row, n in zip(data.tokens, read.tolist(), strict=True)])
        _, state = model.step(tokens, state, rows)
    read = state.length
    logits, _ = model.step(data.tokens.gather(1, read[:, None]), state)
    close(logits, full[torch.arange(3), read])


@every_decodable
@torch.no_grad()
def test_beams_that_get_no_token_wait(case: Case):
    """A row with all its beams may begin later than others, and miss steps."""
    model, data = case.build(), batch(case)
    full, state = call(model, data), start(model, data)
    rows, read = torch.arange(len(data.tokens)), torch.tensor([3, 1, 0])
    _, state = model.step(data.tokens[:, :3], state, read)
    state.repeat(2)
    for count in ([0, 1, 1], [1, 0, 1], [1, 1, 0], [1, 1, 1]):
        lengths = torch.tensor(count)
        tokens = data.tokens[rows, read].repeat_interleave(2)[:, None]
        logits, state = model.step(tokens, state, lengths.repeat_interleave(2))
        read = read + lengths
        for row in rows[lengths > 0]:
            close(logits[2 * row : 2 * row + 2], full[row, read[row] - 1].expand(2, -1))


@every_decodable
@torch.no_grad()
def test_a_reordered_state_continues_like_the_reordered_rows(case: Case):
    model, data = case.build(), batch(case)
    index = torch.tensor([2, 0, 0])
    full, state = call(model, data), start(model, data)
    _, state = model.step(data.tokens[:, :4], state)
    state.reorder(index)
    logits, _ = model.step(data.tokens[index, 4:5], state)
    close(logits, full[index, 4])


# 3. Padding and the other rows of the batch change nothing.


@every
@torch.no_grad()
def test_padding_and_other_rows_change_nothing(case: Case):
    model, data = case.build(), batch(case)
    together = call(model, data)
    for row in range(len(data)):
        alone = data.rows(slice(row, row + 1))
        if alone.tokens is not None:
            alone.tokens = alone.tokens[:, : int(alone.lengths)]
            alone.lengths = None
        if alone.alignment is not None:
            width = alone.tokens.shape[1]
            alone.alignment = alone.alignment[:, : int(alone.depths), :width]
            alone.profile, alone.depths = alone.profile[:, :width], None
        if alone.source is not None:
            alone.source = alone.source[:, : int(alone.source_lengths)]
            alone.source_lengths = None
        if alone.tracks is not None:
            agents = int(alone.present.any(0).nonzero().max()) // 3 + 1
            alone.tracks, alone.present = alone.tracks[:, : 3 * agents], alone.present[:, : 3 * agents]
        out = call(model, alone)[0]
        each = tuple(slice(size) for size in out.shape[:-1])  # one for each token, or for each pair of tokens
        close(together[row][each], out)


# 4. Config and checkpoint round trips are exact.


@every
def test_round_trips_are_exact(case: Case, tmp_path):
    import json
    import tomllib

    recipe = load_recipe(case.recipe, *case.overrides)
    assert from_table(tomllib.loads(to_toml(recipe)), Recipe) == recipe
    assert from_table(json.loads(to_json(recipe)), Recipe) == recipe
    assert from_table(to_table(recipe), Recipe) == recipe

    model, data = case.build(), batch(case)
    save_model(model, tmp_path / "a")
    loaded = read_model(tmp_path / "a").eval()
    assert loaded.config == model.config
    assert torch.equal(call(loaded, data), call(model, data))
    save_model(loaded, tmp_path / "b")
    first, second = load_file(tmp_path / "a" / "model.safetensors"), load_file(tmp_path / "b" / "model.safetensors")
    assert first.keys() == second.keys() == tensors(model).keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


@every
def test_the_seed_decides_the_weights(case: Case):
    one, two, other = (regard.build(case.config, seed=seed) for seed in (1, 1, 2))
    pairs = list(zip(one.parameters(), two.parameters(), strict=True))
    assert all(torch.equal(a, b) for a, b in pairs)
    assert any(not torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
    assert all(torch.isfinite(a).all() for a, _ in pairs)
    assert all(torch.isfinite(buffer).all() for buffer in one.buffers())


# 5. Every parameter gets a gradient.


@every
def test_every_parameter_gets_a_gradient(case: Case):
    model, data = case.build(), batch(case)
    call(model, data).square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name
        # A bias of the keys, or of all pairs, adds the same number to all scores of a query, which does not change a
        # softmax.
        if not name.endswith(("to_key.bias", "row_update.bias.norm.bias")):
            assert parameter.grad.abs().max() > 1e-12, name


@every
def test_forward_mode_gives_the_derivative_of_the_gradient(case: Case):
    """Along a direction v, torch.func.jvp gives grad . v; an operator without a formula for it would give 0."""
    model, data = case.build(), batch(case)
    generator = torch.Generator().manual_seed(2)
    values = {name: value.detach() for name, value in model.named_parameters()}
    direction = {name: torch.randn(value.shape, generator=generator).to(value) for name, value in values.items()}

    def loss(values: dict[str, torch.Tensor]) -> torch.Tensor:
        with torch.nn.utils.stateless._reparametrize_module(model, values):
            return call(model, data).square().sum()

    call(model, data).square().sum().backward()
    expected = sum((parameter.grad * direction[name]).sum() for name, parameter in model.named_parameters())
    with sdpa_kernel(SDPBackend.MATH):  # torch's other kernels have no formula, and say so
        gradient = torch.func.grad(loss)(values)
        _, found = torch.func.jvp(loss, (values,), (direction,))
    torch.testing.assert_close(found, expected, rtol=1e-7, atol=0)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(gradient[name], parameter.grad, rtol=1e-7, atol=1e-9)


@every_decodable
def test_gradients_of_each_row_are_those_of_the_row_alone(case: Case):
    """torch.func.vmap computes them all at once; torch has no batching for its own recurrent kernels."""
    model, data = case.build(), batch(case)
    if any(isinstance(part, Fused | Experts) for part in model.modules()):
        pytest.skip("reads numbers, or calls a kernel of torch that vmap cannot batch")
    rows = (data.tokens,) if data.source is None else (data.source, data.tokens)
    values = {name: value.detach() for name, value in model.named_parameters()}

    def loss(values: dict[str, torch.Tensor], *row: torch.Tensor) -> torch.Tensor:
        with torch.nn.utils.stateless._reparametrize_module(model, values):
            return model(*(tokens[None] for tokens in row)).square().sum()

    with sdpa_kernel(SDPBackend.MATH):
        found = torch.func.vmap(torch.func.grad(loss), in_dims=(None, *(0 for _ in rows)))(values, *rows)
    for number in range(len(data.tokens)):
        model.zero_grad()
        model(*(tokens[number : number + 1] for tokens in rows)).square().sum().backward()
        for name, parameter in model.named_parameters():
            torch.testing.assert_close(found[name][number], parameter.grad, rtol=1e-7, atol=1e-7)


# 6. All kernels agree with the definition.


@every
@torch.no_grad()
def test_watching_changes_nothing(case: Case):
    model, data = case.build(), batch(case)
    attentions = [name for name, module in model.named_modules() if isinstance(module, Watchable)]
    if not attentions:
        with pytest.raises(regard.RegardError, match="no attention"), regard.watch(model):
            pass
        return
    with regard.watch(model) as tape:
        watched = call(model, data)
    assert torch.equal(watched, call(model, data))
    assert sorted(tape) == sorted(attentions)
    for name in attentions:
        rows = tape.weights(name).sum(-1)
        close(rows[rows != 0], torch.ones_like(rows[rows != 0]))
        assert (rows != 0).any()
        for record in tape[name]:
            close(explicit(record.query, record.key, record.value, record.terms), record.mixed)


# 7. Splitting a batch for accumulation changes nothing.


@every
def test_accumulation_changes_nothing(case: Case):
    model, data = case.build(), batch(case)

    def gradients(parts: list[slice]) -> list[torch.Tensor]:
        model.zero_grad()
        for part in parts:
            rows = data.rows(part)
            out = call(model, rows)
            F.log_softmax(out.flatten(0, -2), -1)[:, 0].sum().backward()
        return [parameter.grad.clone() for parameter in model.parameters()]

    whole = gradients([slice(0, 3)])
    split = gradients([slice(0, 1), slice(1, 3)])
    for a, b in zip(whole, split, strict=True):
        close(a, b)


# 8. Lower precision: under autocast the outputs are finite and close.


@every
def test_autocast_is_finite_and_close(case: Case):
    model, data = case.build(torch.float32), batch(case, dtype=torch.float32)
    exact = call(model, data)
    with torch.autocast("cpu", torch.bfloat16):
        rough = call(model, data)
    rough.float().square().sum().backward()
    assert torch.isfinite(rough).all()
    assert (rough.float() - exact).norm() < 0.2 * exact.norm()
    assert all(torch.isfinite(parameter.grad).all() for parameter in model.parameters())
