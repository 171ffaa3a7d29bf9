"""One update: splitting does not change what is learned, NaN is skipped, and too little memory splits it further."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from regard.config import from_table, to_table
from regard.data.device import out_of_memory
from regard.errors import RegardError
from regard.models.store import tensors
from regard.parts.moe import Router
from regard.tasks import chunked_loss
from regard.tasks.loss import IGNORE, Losses
from regard.tasks.task import Batch
from regard.training.config import RunConfig
from regard.training.draft import RunPlan
from regard.training.ranks import Ranks
from regard.training.seeds import step_seed
from regard.training.trial import build_model
from regard.training.update import Update

from .tiny import ALONE, data, plan, planned, shrunk, training

ADAM = ("train.optimizer.kind=adamw", "train.optimizer.rate=0.001")
CASES = {
    "language": ("language", "gpt2", []),
    "language, carried": ("language", "lstm", []),
    "language, experts": ("language", "deepseek-like", ["train.balance=0.0"]),
    "masked": ("masked", "bert", []),
    "classification": ("classification", "bert", ["task.smoothing=0.1"]),
    "translation, packed": ("translation", "translator", []),
    "translation, in buckets": ("translation", "rnn-attention", []),
    "translation, R-Drop": ("translation", "translator", ["task.r_drop=1.0", "task.smoothing=0.2"]),
    "vision": ("vision", "vit", []),
}


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))


def make(found: RunPlan, accumulate: int = 1, dtype: torch.dtype = torch.float64) -> Update:
    model = build_model(found.config, ALONE).to(dtype)
    return Update(model, found.task, replace(found.config.train, accumulate=accumulate), ALONE)


def batches(found: RunPlan, count: int, dtype: torch.dtype = torch.float64) -> list[Batch]:
    """Return the first batches in another precision; some labels of the first rows do not count."""
    config = found.config.train
    feed = found.task.feed(build_model(found.config, ALONE), config.tokens, config.seed)
    made = []
    for number, draw in enumerate(islice(feed.order.epoch(0), count)):
        torch.manual_seed(number)
        batch = feed.batch(draw, 0)
        batch["labels"] = batch["labels"].clone()
        batch["labels"][:2] = IGNORE  # so that parts count very differently
        made.append(
            {name: tensor.to(dtype) if tensor.is_floating_point() else tensor for name, tensor in batch.items()}
        )
    return made


def learn(update: Update, found: list[Batch]) -> dict[str, Tensor]:
    """Take updates; return everything that they changed."""
    for step, batch in enumerate(found, 1):
        update(dict(batch), step)
    return everything(update)


def everything(update: Update) -> dict[str, Tensor]:
    state = {**tensors(update.model), **update.optimizer.tensors(), **update.carried}
    return {name: tensor.detach().clone() for name, tensor in state.items()}


def largest_difference(one: dict[str, Tensor], other: dict[str, Tensor]) -> float:
    assert one.keys() == other.keys()
    return max(float((one[name].double() - other[name].double()).abs().max()) for name in one)


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


# --- accelerators ----------------------------------------------------------------------------------------------------


@pytest.fixture
def without_values() -> Ranks:
    """A device with shapes but no values: reading a value fails, where CUDA would wait."""
    return Ranks(0, 1, torch.device("meta"))


@pytest.fixture
def _fused_without_values() -> Iterator[None]:
    """Register for torch's fused AdamW an implementation for tensors without values, which does nothing."""
    library = torch.library.Library("aten", "IMPL", "Meta")
    library.impl("_fused_adamw_.tensor_lr", lambda *tensors, **options: None)
    yield
    library._destroy()


@pytest.mark.usefixtures("_fused_without_values")
@pytest.mark.parametrize(("case", "optimizer"), [*((case, "adamw") for case in CASES), ("translation, packed", "muon")])
def test_an_update_waits_for_nothing(tmp_path: Path, case: str, optimizer: str, without_values: Ranks) -> None:
    kind, recipe, changes = CASES[case]
    asked = [f"train.optimizer.kind={optimizer}", "train.optimizer.rate=0.01", "train.ema=0.9"]
    found = planned(kind, tmp_path, *changes, *asked, recipe=recipe)
    model = build_model(found.config, ALONE).to(without_values.device)
    update = Update(model, found.task, replace(found.config.train, accumulate=2), without_values)
    for step, batch in enumerate(batches(found, 2, torch.float32), 1):
        outcome = update({name: tensor.to(without_values.device) for name, tensor in batch.items()}, step)
        assert {tensor.device.type for tensor in (*outcome, *everything(update).values())} == {"meta"}


@pytest.mark.usefixtures("_fused_without_values")
@pytest.mark.parametrize("case", ["language", "masked", "translation, packed"])
def test_a_loss_in_chunks_waits_for_nothing(
    tmp_path: Path, case: str, without_values: Ranks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunked_loss, "LARGE", 0)
    test_an_update_waits_for_nothing(tmp_path, case, "adamw", without_values)


@pytest.mark.parametrize("case", ["language", "masked", "translation, packed"])
def test_a_loss_in_chunks_changes_nothing(tmp_path: Path, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, recipe, changes = CASES[case]
    found = planned(kind, tmp_path, *changes, *ADAM, recipe=recipe)
    data = batches(found, 2)
    whole = learn(make(found), data)
    monkeypatch.setattr(chunked_loss, "LARGE", 0)
    assert largest_difference(learn(make(found), data), whole) < 1e-9


def test_an_update_that_waits_is_detected(without_values: Ranks) -> None:
    with pytest.raises(RuntimeError, match="cannot be called on meta tensors"):
        torch.zeros((), device=without_values.device).item()


# --- splitting -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES)
def test_splitting_an_update_changes_nothing(tmp_path: Path, case: str) -> None:
    """Law 7, with parts of which one is smaller than the others and one counts hardly at all."""
    kind, recipe, changes = CASES[case]
    found = planned(kind, tmp_path, *changes, recipe=recipe, still=True)
    given = batches(found, 3)
    rows = {len(batch["labels"]) for batch in given}
    assert min(rows) >= 4
    whole = learn(make(found), given)
    for parts in (2, 3):
        assert largest_difference(whole, learn(make(found, parts), given)) < 1e-8
    before = tensors(make(found).model)
    assert largest_difference({n: whole[n] for n in before}, {n: t.detach() for n, t in before.items()}) > 1e-5


def test_there_may_be_more_parts_than_rows(tmp_path: Path) -> None:
    found = planned("language", tmp_path, still=True)
    given = batches(found, 2)
    assert len(given[0]["labels"]) < 11
    assert largest_difference(learn(make(found), given), learn(make(found, 11), given)) < 1e-8


def test_dropout_is_the_same_again_and_another_in_every_step_and_part() -> None:
    seeds = {step_seed(seed, step, part) for seed in (-1, 0, 5) for step in range(50) for part in range(-1, 20)}
    assert len(seeds) == 3 * 50 * 21
    torch.manual_seed(max(seeds))  # which takes no more than 64 bits
    assert step_seed(2**70, 3, 0) < 2**63


def test_the_random_state_before_an_update_does_not_matter(tmp_path: Path) -> None:
    found = planned("language", tmp_path)
    given = batches(found, 2)
    one = learn(make(found, 2), given)
    torch.manual_seed(4321)
    assert same(one, learn(make(found, 2), given))
    assert not same(one, learn(make(found, 4), given))  # there is dropout, in every part another


def test_the_loss_is_exact_where_the_program_creates_tensors_of_low_precision(tmp_path: Path) -> None:
    found = planned("language", tmp_path)
    given = batches(found, 1, torch.float32)[0]
    wanted = make(found, 2, torch.float32)(dict(given), 1).loss
    torch.set_default_dtype(torch.bfloat16)
    try:
        assert torch.equal(make(found, 2, torch.float32)(dict(given), 1).loss, wanted)
    finally:
        torch.set_default_dtype(torch.float32)


def test_a_batch_without_labels_is_not_an_error(tmp_path: Path) -> None:
    found = planned("masked", tmp_path)
    (batch,) = batches(found, 1)
    batch["labels"] = torch.full_like(batch["labels"], IGNORE)
    outcome = make(found)(batch, 1)
    assert (float(outcome.bad), float(outcome.loss)) == (0.0, 0.0)


# --- what is added to the loss ---------------------------------------------------------------------------------------


def first_gradient(found: RunPlan, batch: Batch) -> dict[str, Tensor]:
    """Return the gradient of Adam's first step: ten times its first moment."""
    update = make(found)
    learn(update, [batch])
    state = update.optimizer.tensors()
    return {name: tensor * 10 for name, tensor in state.items() if name.startswith("exp_avg/")}


@pytest.mark.parametrize("change", ["task.smoothing=0.0", "task.smoothing=0.3", "task.r_drop=2.0"])
def test_what_is_minimised_is_the_mean_over_all_that_counts(tmp_path: Path, change: str) -> None:
    """Against the formulas, by hand and on the whole batch; R-Drop of two equal passes adds nothing."""
    found = planned("translation", tmp_path, "task.smoothing=0.0", change, "train.clip=1e9", *ADAM, still=True)
    (batch,) = batches(found, 1)
    model = build_model(found.config, ALONE).double()
    inputs = {name: batch[name] for name in ("source_documents", "documents")}
    log_p = model(batch["source"], batch["target"], **inputs).log_softmax(-1)[batch["labels"] != IGNORE]
    labels = batch["labels"][batch["labels"] != IGNORE]
    smoothing = found.config.task.smoothing
    picked = log_p.gather(1, labels[:, None])[:, 0]
    (-((1 - smoothing) * picked + smoothing * log_p.mean(1)).sum() / len(labels)).backward()
    wanted = {f"exp_avg/{name}": parameter.grad for name, parameter in model.named_parameters()}
    assert largest_difference(first_gradient(found, batch), wanted) < 1e-9


def test_r_drop_pulls_two_passes_together(tmp_path: Path) -> None:
    """With dropout the passes differ, and so the gradient differs from that without R-Drop."""
    plain, pulled = (planned("translation", tmp_path, f"task.r_drop={alpha}", *ADAM) for alpha in (0.0, 5.0))
    (batch,) = batches(plain, 1)
    assert largest_difference(first_gradient(plain, batch), first_gradient(pulled, batch)) > 1e-3


@pytest.mark.parametrize("accumulate", [1, 16])
def test_routers_are_balanced_by_the_tokens_of_rows_that_count(
    monkeypatch: pytest.MonkeyPatch, experts: RunPlan, accumulate: int
) -> None:
    """Neither the two empty rows of the batch nor the rows that stand for empty parts are counted."""
    loads: list[int] = []
    monkeypatch.setattr(Router, "balance", lambda router, rate: loads.append(int(router.load.sum())))
    (batch,) = batches(experts, 1)
    rows, width = batch["labels"].shape
    update = make(experts, accumulate)
    update(batch, 1)
    assert loads == [(rows - 2) * width * router.chosen for router in update.routers]
    assert all(router.counted is None for router in update.routers)


def test_routers_of_an_unpacked_translator_count_neither_padding_of_the_source_nor_of_the_target(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With a recurrent mixer pairs are not packed, so every row is one pair with padding on both sides."""
    kinds = ["mixer.kind=lstm", 'feedforward={kind="moe", experts=4, chosen=2, hidden=8}']
    changes = [f"model.{side}.layers.block.{kind}" for side in ("encoder", "decoder") for kind in kinds]
    small = [change for change in shrunk("translator") if "block.mixer." not in change]
    words = ["tokenizer.kind=word", *training(tokens=512)]
    found = plan(data("translation", tmp_path), *small, *changes, *words, recipe="translator")
    loads: list[int] = []
    monkeypatch.setattr(Router, "balance", lambda router, rate: loads.append(int(router.load.sum())))
    (batch,) = batches(found, 1)
    assert "documents" not in batch
    update = make(found)
    update(batch, 1)
    source, target = int(batch["source_lengths"][2:].sum()), int((batch["labels"] != IGNORE).sum())
    assert target < batch["labels"][2:].numel()  # there is padding
    half = len(loads) // 2
    assert loads == [2 * source] * half + [2 * target] * half


def test_the_moving_average_is_the_one_computed_by_hand(tmp_path: Path) -> None:
    """It has the given decay, but a smaller one at first, so that the initial weights are forgotten."""
    found = planned("language", tmp_path, "train.ema=0.3")
    update = make(found)
    average = {name: tensor.detach().clone() for name, tensor in tensors(update.model).items()}
    for step, batch in enumerate(batches(found, 4), 1):
        update(batch, step)
        for name, tensor in tensors(update.model).items():
            decay = min(0.3, (1 + step) / (10 + step))  # 2/11, 3/12, then 0.3
            average[name] = decay * average[name] + (1 - decay) * tensor.detach()
    assert update.average is not None
    assert largest_difference(average, update.average) < 1e-12
    assert largest_difference(average, {n: t.detach() for n, t in tensors(update.model).items()}) > 1e-4


def test_gradients_are_clipped_over_all_parts_together(tmp_path: Path) -> None:
    adam = ("train.optimizer.kind=adamw", "train.optimizer.rate=0.001")
    found = planned("language", tmp_path, "train.clip=1e-3", "train.accumulate=2", *adam, still=True)
    given = batches(found, 1)
    gradient = first_gradient(found, given[0])
    norm = sum(float(tensor.square().sum()) for tensor in gradient.values()) ** 0.5
    assert norm == pytest.approx(1e-3, rel=1e-3)


# --- not finite ------------------------------------------------------------------------------------------------------


@pytest.fixture
def experts(tmp_path: Path) -> RunPlan:
    """A model with experts, whose routers are balanced, and with batch norm, which counts its passes."""
    found = planned("language", tmp_path, "train.balance=0.1", recipe="deepseek-like")
    table = to_table(found.config)
    table["model"]["layers"]["dense"]["norm"] = {"kind": "batch"}
    return replace(found, config=from_table(table, RunConfig))


Wrap = Callable[[Losses], Losses]


def spoil(found: RunPlan, monkeypatch: pytest.MonkeyPatch, change: Callable[[Batch, Losses], Losses]) -> None:
    original = found.task.loss
    monkeypatch.setattr(
        found.task,
        "loss",
        lambda model, batch: (lambda losses, kept: (change(batch, losses), kept))(*original(model, batch)),
    )


@pytest.mark.parametrize("recipe", ["gpt2", "lstm", "deepseek-like"])
def test_what_is_not_finite_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, experts: RunPlan, recipe: str
) -> None:
    """Not a bit of weights, optimizer, routers, batch norm and carried state."""
    found = experts if recipe == "deepseek-like" else planned("language", tmp_path, recipe=recipe)
    given = batches(found, 3, torch.float32)
    update = make(found, 2, torch.float32)
    learn(update, given[:1])
    before = everything(update)
    for factor in (torch.nan, torch.inf):
        with monkeypatch.context() as patch:
            spoil(found, patch, lambda _, losses, factor=factor: Losses(*(part * factor for part in losses)))
            assert float(update(dict(given[1]), 2).bad) == 1
        assert same(before, everything(update))
    hook = next(iter(update.model.parameters())).register_hook(lambda gradient: gradient * torch.inf)
    assert float(update(dict(given[1]), 2).bad) == 1  # the loss is fine, only its gradient is not
    hook.remove()
    assert same(before, everything(update))
    assert float(update(dict(given[2]), 3).bad) == 0
    assert not same(before, everything(update))


# --- memory ----------------------------------------------------------------------------------------------------------


def limit_rows(found: RunPlan, monkeypatch: pytest.MonkeyPatch, most: int) -> list[int]:
    """Make memory run out above some rows, after the forward pass; return the rows of every pass."""
    seen: list[int] = []

    def check(batch: Batch, losses: Losses) -> Losses:
        seen.append(len(batch["labels"]))
        if seen[-1] > most:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return losses

    spoil(found, monkeypatch, check)
    return seen


@pytest.mark.parametrize("recipe", ["gpt2", "lstm", "deepseek-like"])
def test_out_of_memory_halves_the_parts_and_changes_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, experts: RunPlan, recipe: str
) -> None:
    if recipe == "deepseek-like":
        table = to_table(experts.config)
        table["model"]["layers"]["dense"]["norm"] = {"kind": "rms"}  # what batch norm makes depends on the parts
        found = replace(experts, config=from_table(table, RunConfig))
    else:
        found = planned("language", tmp_path, recipe=recipe, still=True)
    given = batches(found, 3)
    whole = learn(make(found), given)
    seen = limit_rows(found, monkeypatch, 3)
    update = make(found)
    assert largest_difference(whole, learn(update, given)) < 1e-8
    assert len(given[0]["labels"]) == 8
    assert update.split == 4
    assert seen == [8, 4, *[2] * 4 * 3]  # noticed in the first update, and remembered
    assert float(update(dict(given[0]), 4).count) == float((given[0]["labels"] != IGNORE).sum())


def test_batch_norm_counts_no_pass_that_ran_out_of_memory(monkeypatch: pytest.MonkeyPatch, experts: RunPlan) -> None:
    given = batches(experts, 1)
    limit_rows(experts, monkeypatch, 4)
    update = make(experts)
    learn(update, given)
    norms = [module for module in update.model.modules() if isinstance(module, nn.BatchNorm1d)]
    assert {int(norm.num_batches_tracked) for norm in norms} == {2}


def test_when_a_single_row_is_too_much_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = planned("language", tmp_path)
    limit_rows(found, monkeypatch, 0)
    update = make(found)
    before = everything(update)
    with pytest.raises(RegardError) as error:
        learn(update, batches(found, 1))
    assert str(error.value) == (
        "there is not enough memory for a single row of the data; choose a smaller model, or shorter rows "
        "(task.window, task.longest)"
    )
    assert same(before, everything(update))


def test_other_errors_are_not_treated_as_out_of_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert out_of_memory(RuntimeError("[enforce fail] . DefaultCPUAllocator: can't allocate memory: you tried ..."))
    found = planned("language", tmp_path)

    def fail(batch: Batch, losses: Losses) -> Losses:
        raise RuntimeError("shapes do not fit")

    spoil(found, monkeypatch, fail)
    with pytest.raises(RuntimeError, match="shapes do not fit"):
        learn(make(found), batches(found, 1))
