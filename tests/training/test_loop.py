"""The loop: what is kept, when it stops, what it prints, and that only config and step decide what is learned."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from regard.data.batches import Draw
from regard.errors import ConfigError, RegardError
from regard.models.count import forward_flops
from regard.models.model import Model
from regard.models.store import tensors
from regard.runs.checkpoint import checkpoint_steps, load_checkpoint
from regard.runs.layout import CHECKPOINTS
from regard.runs.records import read_metrics
from regard.tasks.loss import Losses
from regard.tasks.task import Batch
from regard.tasks.translation import Translation
from regard.training.draft import RunPlan
from regard.training.loop import Trainer
from regard.training.trial import build_model
from regard.training.update import Outcome

from .tiny import ALONE, make_trainer, plan, planned


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))


def changed(found: RunPlan, **values: object) -> RunPlan:
    """Return the same run with other settings."""
    return replace(found, config=replace(found.config, train=replace(found.config.train, **values)))


def weights(trainer: Trainer) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in tensors(trainer.model).items()}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def script(trainer: Trainer, monkeypatch: pytest.MonkeyPatch, losses: list[float]) -> dict[int, dict[str, Tensor]]:
    """Make validations return the given values, then the last one; return the weights they saw, by step."""
    values: Iterator[float] = iter(losses)
    last = losses[-1]
    seen: dict[int, dict[str, Tensor]] = {}

    def measure(model: Model, rows: int | None = None) -> dict[str, float]:
        seen.setdefault(trainer.step, {name: tensor.detach().clone() for name, tensor in tensors(model).items()})
        return {"loss": next(values, last)}

    monkeypatch.setattr(trainer.task, "measure", measure)
    return seen


# --- what is kept ----------------------------------------------------------------------------------------------------


def test_the_model_that_is_kept_did_best_on_the_validation_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer, said = make_trainer(planned("language", tmp_path), tmp_path / "run")
    seen = script(trainer, monkeypatch, [3.0, 2.0, float("nan"), 2.5])
    trainer.train()
    assert list(seen) == [4, 8, 12]
    assert (trainer.best.value, trainer.best.step) == (2.0, 8)
    assert same(load_file(tmp_path / "run/model.safetensors"), seen[8])
    marked = [line.split()[1:3] for line in said.getvalue().splitlines() if line.startswith("valid")]
    assert marked[:3] == [["4", "best"], ["8", "best"], ["12", "loss"]]


def test_of_equal_metrics_the_one_with_the_lower_loss_is_best(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer, _ = make_trainer(planned("classification", tmp_path), tmp_path / "run")
    losses = iter([3.0, 2.0, 2.5, 2.0])

    def measure(model: Model, rows: int | None = None) -> dict[str, float]:
        return {"loss": next(losses), "accuracy": 0.5, "f1": 0.5}

    monkeypatch.setattr(trainer.task, "measure", measure)
    trainer.train()
    assert (trainer.best.value, trainer.best.step) == (0.5, 8)


def test_a_task_that_does_not_measure_its_metric_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer, _ = make_trainer(planned("classification", tmp_path), tmp_path / "run")
    script(trainer, monkeypatch, [1.0])
    with pytest.raises(ConfigError, match=r"^task 'classification': .* its metric, 'accuracy', but returned loss; "):
        trainer.train()


def test_a_task_with_an_unknown_metric_is_refused_before_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regard.tasks.classification.Classification.metric", "recall")
    with pytest.raises(ConfigError, match=r"^unknown metric 'recall'"):
        planned("classification", tmp_path)


def test_with_a_moving_average_that_is_what_is_measured_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer, _ = make_trainer(planned("language", tmp_path, "train.ema=0.9"), tmp_path / "run")
    seen = script(trainer, monkeypatch, [3.0, 2.0, 1.0])
    trainer.train()
    assert trainer.update.average is not None
    assert same(seen[12], trainer.update.average)
    assert same(load_file(tmp_path / "run/model.safetensors"), trainer.update.average)
    assert not same(weights(trainer), trainer.update.average)  # training continues with the weights themselves


@pytest.mark.parametrize("mean_loss", [1.0, 1.9])
def test_the_average_of_the_last_validations_is_kept_if_it_is_better(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mean_loss: float
) -> None:
    """The run ends with a validation before the next one is due; the best single validation is that of step 8."""
    trainer, said = make_trainer(planned("language", tmp_path, "train.average=2", "train.steps=10"), tmp_path / "run")
    seen = script(trainer, monkeypatch, [3.0, 1.5, 2.0, mean_loss])
    trainer.train()
    mean = {name: (seen[8][name] + seen[10][name]) / 2 for name in seen[8]}
    kept = load_file(tmp_path / "run/model.safetensors")
    if mean_loss < 1.5:
        assert all(torch.allclose(kept[name], tensor, atol=1e-7) for name, tensor in mean.items())
    else:
        assert same(kept, seen[8])
    found = load_checkpoint(tmp_path / "run/checkpoints", pytest.fail)
    assert found is not None
    assert found.facts["best"] == min(mean_loss, 1.5)  # which a resumed run must beat
    continued = {name: found.tensors[f"model/{name}"] for name in mean}
    assert same(continued, seen[10])  # not the average
    assert "average of the weights of steps 8, 10:" in said.getvalue()
    assert not (tmp_path / "run/averaging").exists()  # which only a run in progress needs
    weights = "the average of the last 2 weights" if mean_loss < 1.5 else "step 8"
    assert (trainer.best.weights, found.facts["best_weights"]) == (weights, weights)


@pytest.mark.parametrize("ema", [None, 0.9])
def test_weights_are_averaged_also_where_validations_are_rare(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ema: float | None
) -> None:
    """Validations are made at steps 8 and 16; the last three weights are those of 8, 12 and 16."""
    changes = ["train.steps=16", *([] if ema is None else [f"train.ema={ema}"])]
    often, _ = make_trainer(planned("language", tmp_path, *changes), tmp_path / "often")
    rare = planned("language", tmp_path, *changes, "train.rare_until=1.0", "train.average=3")
    rarely, _ = make_trainer(rare, tmp_path / "rarely")
    every, few = script(often, monkeypatch, [3.0]), script(rarely, monkeypatch, [3.0, 2.0, 1.0])
    monkeypatch.setattr("regard.training.time_left.RARE", 2)
    often.train()
    rarely.train()
    assert (list(every), list(few)) == ([4, 8, 12, 16], [8, 16])
    kept = load_file(tmp_path / "rarely/model.safetensors")
    for name, tensor in kept.items():
        assert torch.allclose(tensor, (every[8][name] + every[12][name] + every[16][name]) / 3, atol=1e-6)
    assert not same(kept, every[16])
    assert rarely.best.weights == "the average of the last 3 weights"


def test_if_no_validation_gives_a_number_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer, _ = make_trainer(planned("language", tmp_path), tmp_path / "run")
    script(trainer, monkeypatch, [float("nan")])
    with pytest.raises(RegardError, match=r"^no validation gave a number, so no model is kept; the checkpoint of step"):
        trainer.train()


def test_a_validation_that_is_not_finite_in_bfloat16_is_repeated_in_float32(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = planned("language", tmp_path, "train.precision=bfloat16", "train.valid_part=7")
    trainer, said = make_trainer(found, tmp_path / "run")
    lowered: list[bool] = []

    def measure(model: Model, rows: int | None = None) -> dict[str, float]:
        if rows is not None:
            lowered.append(torch.is_autocast_enabled("cpu"))
        return {"loss": float("nan") if torch.is_autocast_enabled("cpu") else 2.0}

    monkeypatch.setattr(trainer.task, "measure", measure)
    trainer.train()
    assert lowered == [True, False, False, False]
    rule = "the validation loss is not finite in bfloat16; it is measured again, and from now on, in float32"
    assert [line for line in said.getvalue().splitlines() if "finite" in line] == [f"step 4: {rule}"]
    logged = [record["loss"] for record in read_metrics(tmp_path / "run") if record["kind"] == "valid"]
    assert logged == [2.0, 2.0, 2.0]
    again, _ = make_trainer(found, tmp_path / "run")
    assert not again.validator.measures_precisely
    assert again.resume()
    assert again.validator.measures_precisely  # or its validations would differ from those of a run without a pause
    checkpoint = load_checkpoint(tmp_path / "run" / CHECKPOINTS, print, again.state())
    assert checkpoint is not None
    earlier = {name: value for name, value in checkpoint.facts.items() if name != "measures_precisely"}
    again.load(replace(checkpoint, facts=earlier))
    assert not again.validator.measures_precisely


def test_weights_whose_validation_loss_is_not_finite_are_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the metric says: here it is best where the loss is not finite."""
    trainer, said = make_trainer(planned("classification", tmp_path), tmp_path / "run")
    values = iter([(float("nan"), 0.9), (2.0, 0.5), (float("inf"), 0.8), (2.0, 0.5)])

    def measure(model: Model, rows: int | None = None) -> dict[str, float]:
        loss, accuracy = next(values)
        return {"loss": loss, "accuracy": accuracy, "f1": accuracy}

    monkeypatch.setattr(trainer.task, "measure", measure)
    trainer.train()
    assert (trainer.best.value, trainer.best.step) == (0.5, 8)
    rule = "the validation loss is not finite, so these weights are not kept"
    lines = [line for line in said.getvalue().splitlines() if "finite" in line]
    assert lines == [f"step 4: {rule}", f"step 12: {rule}"]


def test_a_translator_that_diverged_is_validated_and_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its greedy search finds no text, which is a translation that is empty."""
    trainer, said = make_trainer(planned("translation", tmp_path, "train.steps=4"), tmp_path / "run")
    measure = trainer.task.measure

    def diverged(model: Model, rows: int | None = None) -> dict[str, float]:
        with torch.no_grad():
            for weights in model.parameters():
                weights.fill_(float("nan"))
        return measure(model, rows)

    monkeypatch.setattr(trainer.task, "measure", diverged)
    with pytest.raises(RegardError, match="step 4: the weights are no longer finite; the checkpoint of step 3 is good"):
        trainer.train()
    assert "step 4: the validation loss is not finite, so these weights are not kept" in said.getvalue()
    assert trainer.best.value is None


def test_patience_ends_a_run_that_does_not_get_better(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = planned("language", tmp_path, "train.steps=100", "train.validate_every=3", "train.patience=2")
    trainer, _ = make_trainer(found, tmp_path / "run")
    seen = script(trainer, monkeypatch, [3.0, 2.0, 2.5, 1.0, 1.5, 1.2, 0.5])
    trainer.train()
    assert list(seen) == [3, 6, 9, 12, 15, 18]
    assert (trainer.step, trainer.best.step) == (18, 12)
    assert checkpoint_steps(tmp_path / "run/checkpoints") == [18]  # the older one was kept until the end
    assert [record["step"] for record in read_metrics(tmp_path / "run") if record["kind"] == "train"] == [5, 10, 15, 18]


def test_validations_are_rare_at_first_while_they_get_better(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changes = ("train.steps=40", "train.validate_every=2", "train.patience=none", "train.rare_until=0.6")
    found = planned("language", tmp_path, *changes)
    losses = [3.0, 3.5, 2.9, *(2.8 - 0.1 * number for number in range(20))]
    whole, _ = make_trainer(found, tmp_path / "run")
    seen = script(whole, monkeypatch, losses)
    whole.train()
    assert list(seen) == [8, 16, 18, 24, *range(26, 42, 2)]  # 16 was worse than 8, and 18 was better
    again, _ = make_trainer(found, tmp_path / "run")
    assert again.resume()
    assert again.best == whole.best
    assert (whole.best.validated_step, whole.best.improved_step) == (40, 40)
    again.step, again.best.validated_step, again.best.improved_step = 18, 16, 8
    assert again._must_validate()
    again.best.improved_step = 16
    assert not again._must_validate()


def test_a_run_goes_on_while_its_loss_falls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The accuracy stays at chance for a while before it rises; then both get worse: the model overfits."""
    found = planned("classification", tmp_path, "train.steps=100", "train.validate_every=3", "train.patience=2")
    trainer, said = make_trainer(found, tmp_path / "run")
    values = iter([(3.0, 0.5), (2.9, 0.5), (2.8, 0.5), (2.7, 0.5), (2.6, 0.7), (2.8, 0.6), (2.9, 0.7)])

    def measure(model: Model, rows: int | None = None) -> dict[str, float]:
        loss, accuracy = next(values, (9.0, 0.1))
        return {"loss": loss, "accuracy": accuracy}

    monkeypatch.setattr(trainer.task, "measure", measure)
    trainer.train()
    assert (trainer.step, trainer.best.step, trainer.best.improved_step) == (21, 15, 15)
    end = "step 21: training ends early: no validation was better since step 15 (train.patience=2)"
    assert end in said.getvalue()
    again, _ = make_trainer(found, tmp_path / "run")
    assert again.resume()
    assert again.is_done()
    assert (again.best.improved_step, again.best.lowest_loss) == (15, 2.6)


def test_a_finished_run_keeps_as_many_checkpoints_as_asked(tmp_path: Path) -> None:
    trainer, _ = make_trainer(planned("language", tmp_path, "train.keep=3"), tmp_path / "run")
    trainer.train()
    assert checkpoint_steps(tmp_path / "run/checkpoints") == [6, 9, 12]


# --- what is logged --------------------------------------------------------------------------------------------------


def test_the_log_of_a_mixture_of_experts_says_how_busy_the_busiest_expert_is(tmp_path: Path) -> None:
    experts = 'model.layers.block.feedforward={kind="moe", experts=4, chosen=1, hidden=8}'
    trainer, _ = make_trainer(
        planned("language", tmp_path, "train.steps=2", "train.log_every=1", experts), tmp_path / "run"
    )
    loads: list[Tensor] = []
    for router in trainer.update.routers:
        balance = router.balance

        def noted(rate: float, router: Any = router, balance: Any = balance) -> None:
            loads.append(router.load.clone())
            balance(rate)

        router.balance = noted
    trainer.train()
    assert sum(int(load.sum()) for load in loads) > 0
    ratios = torch.stack([load.max() / load.float().mean() for load in loads]).reshape(2, -1).mean(1)
    logged = [record["busiest_expert"] for record in read_metrics(tmp_path / "run") if record["kind"] == "train"]
    assert logged == pytest.approx(ratios.tolist())


@pytest.mark.parametrize(("kind", "passes"), [("language", 1), ("translation", 2), ("vision", 1)])
def test_every_line_says_what_training_has_cost_so_far(tmp_path: Path, kind: str, passes: int) -> None:
    changes = ["task.r_drop=0.5"] if passes == 2 else []
    trainer, _ = make_trainer(planned(kind, tmp_path, "train.steps=6", "train.log_every=2", *changes), tmp_path / "run")
    counts, rows = {}, {}
    advance = trainer.advance

    def noted(draws: Any) -> Any:
        outcome = advance(draws)
        counts[trainer.step] = int(outcome.count)
        return outcome

    trainer.advance = noted  # type: ignore[method-assign]
    epoch = trainer.feed.order.epoch
    drawn = [draw for number in range(6) for draw in epoch(number)][:6]
    for step, draw in enumerate(drawn, 1):
        length = max(draw.shape, default=1)
        rows[step] = 3 * passes * len(draw.rows) * forward_flops(trainer.model, length)
    trainer.train()
    records = read_metrics(tmp_path / "run")
    assert [(record["kind"], record["step"]) for record in records] == [
        ("train", 2),
        ("train", 4),
        ("valid", 4),
        ("train", 6),
        ("valid", 6),
    ]
    for record in records:
        assert record["tokens"] == sum(counts[step] for step in range(1, record["step"] + 1))
        assert record["flops"] == sum(rows[step] for step in range(1, record["step"] + 1))
    seconds = [record["seconds"] for record in records]
    assert seconds == sorted(seconds)
    assert seconds[0] > 0


class KilledError(BaseException):
    """Simulates SIGKILL."""


def watch(
    trainer: Trainer, monkeypatch: pytest.MonkeyPatch, seen: dict[int, Outcome], kill_at: int | None = None
) -> None:
    """Record the outcome of every update; kill the run before the update after a step."""
    advance = trainer.advance

    def note(draws: Iterator[tuple[Draw, int, int]]) -> Outcome:
        if trainer.step == kill_at:
            raise KilledError
        outcome = advance(draws)
        seen[trainer.step] = outcome
        return outcome

    monkeypatch.setattr(trainer, "advance", note)


def test_every_update_is_logged_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each line has the mean over the tokens since the previous line, even if the run was killed in between."""
    found = planned("language", tmp_path, "train.checkpoint_every=2")
    outcomes: dict[int, Outcome] = {}
    for number, kill_at in enumerate((5, 9, None)):
        trainer, _ = make_trainer(found, tmp_path / "run")
        assert trainer.resume() == (number > 0)
        assert trainer.step == (0, 4, 8)[number]
        watch(trainer, monkeypatch, outcomes, kill_at)
        with suppress(KilledError):
            trainer.train()
    records = read_metrics(tmp_path / "run")
    assert [(record["kind"], record["step"]) for record in records] == [
        ("valid", 4),
        ("train", 5),
        ("valid", 8),
        ("train", 10),
        ("train", 12),
        ("valid", 12),
    ]
    lines = [record for record in records if record["kind"] == "train"]
    for line, steps in zip(lines, (range(1, 6), range(6, 11), range(11, 13)), strict=True):
        loss, count, norm = (
            sum(float(getattr(outcomes[step], name)) for step in steps) for name in ("loss", "count", "norm")
        )
        assert line["loss"] == pytest.approx(loss / count, rel=1e-5)
        assert line["norm"] == pytest.approx(norm / len(steps), rel=1e-5)
        training = found.config.train
        assert line["rate"] == training.optimizer.rate * training.schedule.factor(steps[-1], 12)


@pytest.mark.parametrize("kind", ["masked", "vision"])
def test_validations_leave_no_trace_in_what_is_learned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Batches and dropout are random, but do not depend on how many random numbers a validation draws."""
    often, _ = make_trainer(planned(kind, tmp_path, "train.validate_every=1"), tmp_path / "often")
    measure = often.task.measure
    monkeypatch.setattr(often.task, "measure", lambda *given: (torch.rand(len(given) + 3), measure(*given))[1])
    often.train()
    never, _ = make_trainer(planned(kind, tmp_path, "train.validate_every=100"), tmp_path / "never")
    torch.manual_seed(12345)
    never.train()
    assert same(weights(often), weights(never))
    other, _ = make_trainer(planned(kind, tmp_path, "train.seed=1"), tmp_path / "other")
    other.train()
    assert not same(weights(often), weights(other))


# --- not finite ------------------------------------------------------------------------------------------------------


def spoil(trainer: Trainer, monkeypatch: pytest.MonkeyPatch, steps: range) -> None:
    """Make the loss of some steps NaN."""
    loss = trainer.task.loss

    def spoiled(model: Model, batch: Batch) -> tuple[Losses, Batch]:
        losses, kept = loss(model, batch)
        bad = model.training and trainer.step + 1 in steps
        return (Losses(*(part * torch.nan for part in losses)) if bad else losses), kept

    monkeypatch.setattr(trainer.task, "loss", spoiled)


def test_an_update_that_is_not_finite_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer, _ = make_trainer(planned("language", tmp_path), tmp_path / "run")
    spoil(trainer, monkeypatch, range(3, 5))
    seen: dict[int, dict[str, Tensor]] = {}
    draws = trainer.draws()
    for step in range(1, 6):
        trainer.advance(draws)
        seen[step] = {name: tensor.clone() for name, tensor in trainer.state().items()}
    assert same(seen[2], seen[3])
    assert same(seen[2], seen[4])
    assert not same(seen[2], seen[5])
    assert int(trainer.bad_in_a_row) == 0


def test_skipped_updates_are_reported_and_not_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer, said = make_trainer(planned("language", tmp_path), tmp_path / "run")
    spoil(trainer, monkeypatch, range(3, 5))
    outcomes: dict[int, Outcome] = {}
    watch(trainer, monkeypatch, outcomes)
    trainer.train()
    assert "step 5: the loss was not finite; updates skipped: 2\n" in said.getvalue()
    line = next(record for record in read_metrics(tmp_path / "run") if record["kind"] == "train")
    good = [outcomes[step] for step in (1, 2, 5)]
    mean = sum(float(each.loss) for each in good) / sum(float(each.count) for each in good)
    assert (line["step"], line["loss"]) == (5, pytest.approx(mean, rel=1e-5))


@pytest.mark.parametrize(("first", "kept"), [(8, 9), (2, 3), (1, 3)])
def test_five_in_a_row_end_the_run_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: int, kept: int
) -> None:
    """Not only when something is logged; a checkpoint in between is as good as the one before."""
    found = planned("language", tmp_path, "train.log_every=100", "train.steps=30")
    trainer, _ = make_trainer(found, tmp_path / "a run")
    spoil(trainer, monkeypatch, range(first, 100))
    with pytest.raises(RegardError) as error:
        trainer.train()
    assert trainer.step == first + 4
    folder = tmp_path / "a run"
    command = f"regard train --resume '{folder}' train.optimizer.rate=..."
    assert str(error.value) == (
        f"5 updates in a row were not finite; the checkpoint of step {kept} is good: lower the rate with: {command}"
    )
    assert checkpoint_steps(folder / "checkpoints")[-1] == kept
    again, _ = make_trainer(found, folder)
    assert again.resume()
    assert all(bool(tensor.isfinite().all()) for tensor in again.state().values())


def test_before_the_first_checkpoint_the_error_says_that_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer, _ = make_trainer(planned("language", tmp_path, "train.checkpoint_every=50"), tmp_path / "run")
    spoil(trainer, monkeypatch, range(1, 100))
    with pytest.raises(RegardError) as error:
        trainer.train()
    assert str(error.value) == (
        "5 updates in a row were not finite; there is no checkpoint yet: "
        "start again with a lower train.optimizer.rate or train.clip"
    )


def test_if_losses_are_not_checked_in_every_step_saving_checks_them(tmp_path: Path) -> None:
    """As on an accelerator, where the loop does not wait for each loss."""
    trainer, _ = make_trainer(planned("language", tmp_path), tmp_path / "run")
    trainer.bad_in_a_row.fill_(5)
    with pytest.raises(RegardError, match="^5 updates in a row were not finite; "):
        trainer.save()
    assert not (tmp_path / "run" / "checkpoints").exists()


@pytest.mark.parametrize("step", [5, 6])
def test_weights_that_are_not_finite_are_never_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """Loss and gradient were fine, but the step was so large that the weights are not: before, or at, a checkpoint."""
    trainer, _ = make_trainer(planned("language", tmp_path), tmp_path / "run")
    move = trainer.update.optimizer.step

    def leap(bad: Tensor | None = None) -> None:
        move(bad)
        if trainer.step + 1 == step:
            next(iter(trainer.model.parameters())).data.fill_(torch.inf)

    monkeypatch.setattr(trainer.update.optimizer, "step", leap)
    with pytest.raises(RegardError, match=r"^step 6: the weights are no longer finite; the checkpoint of step 3"):
        trainer.train()
    assert checkpoint_steps(tmp_path / "run/checkpoints") == [3]
    assert torch.isfinite(load_file(tmp_path / "run/model.safetensors")["embed.tokens.table.weight"]).all()


# --- memory ----------------------------------------------------------------------------------------------------------


def test_out_of_memory_is_reported_and_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = planned("language", tmp_path, still=True)
    whole, _ = make_trainer(found, tmp_path / "whole")
    whole.train()
    trainer, said = make_trainer(found, tmp_path / "run")
    loss = trainer.task.loss

    def limited(model: Model, batch: Batch) -> tuple[Losses, Batch]:
        if model.training and len(batch["labels"]) > 5:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return loss(model, batch)

    monkeypatch.setattr(trainer.task, "loss", limited)
    trainer.train()
    line = "step 1: out of memory; from now on updates are split into 2 parts, with the same result in less memory"
    assert said.getvalue().count("out of memory") == 1
    assert line in said.getvalue()
    for name, tensor in weights(whole).items():
        if "to_key.bias" not in name:  # its gradient is only rounding, which Adam enlarges
            assert torch.allclose(tensor, weights(trainer)[name], atol=1e-6), name
    again, _ = make_trainer(found, tmp_path / "run")
    assert again.resume()
    assert again.update.split == 2


@pytest.mark.parametrize(
    ("kind", "recipe"),
    [
        ("language", "gpt2"),
        ("language", "lstm"),
        ("masked", "bert"),
        ("classification", "bert"),
        ("translation", "translator"),
        ("vision", "vit"),
    ],
)
def test_validation_in_little_memory_gives_the_same_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, recipe: str
) -> None:
    found = planned(kind, tmp_path, recipe=recipe)
    task, model = found.task, build_model(found.config, ALONE).eval()
    whole = task.measure(model, 2)
    rows: list[int] = []

    def limited(module: object, inputs: tuple[Tensor, ...]) -> None:
        rows.append(len(inputs[0]))
        if rows[-1] > 1:
            raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(Translation, "at_once", 1)
    model.register_forward_pre_hook(limited)
    assert task.within_memory(lambda: task.measure(model, 2)) == pytest.approx(whole, rel=1e-5)
    assert max(rows) > 1
    assert task.parts > 1
    done = len(rows)
    task.within_memory(lambda: task.measure(model, 2))  # which is remembered
    assert max(rows[done:]) == 1


def test_validation_that_runs_out_of_memory_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer, said = make_trainer(planned("language", tmp_path), tmp_path / "run")
    loss = trainer.task.loss

    def limited(model: Model, batch: Batch) -> tuple[Losses, Batch]:
        if not model.training and len(batch["labels"]) > 3:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return loss(model, batch)

    monkeypatch.setattr(trainer.task, "loss", limited)
    trainer.train()
    assert said.getvalue().count("out of memory") == 1
    assert "validation: out of memory; its batches are now split into" in said.getvalue()


def test_validation_that_never_fits_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = planned("language", tmp_path)

    def fail(model: Model, batch: Batch) -> tuple[Losses, Batch]:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(found.task, "loss", fail)
    model = build_model(found.config, ALONE).eval()
    with pytest.raises(torch.OutOfMemoryError):
        found.task.within_memory(lambda: found.task.measure(model))


# --- resuming --------------------------------------------------------------------------------------------------------


@pytest.fixture
def ended(tmp_path: Path) -> RunPlan:
    """A run that has ended, in the folder `run`."""
    found = planned("language", tmp_path, "train.steps=6")
    make_trainer(found, tmp_path / "run")[0].train()
    return found


def test_a_run_whose_data_has_changed_is_not_resumed(tmp_path: Path, ended: RunPlan) -> None:
    (tmp_path / "text.txt").write_text("one two three\n" * 50, encoding="utf-8")
    other = planned_again(tmp_path)
    trainer, _ = make_trainer(replace(ended, task=other.task), tmp_path / "run")
    with pytest.raises(RegardError) as error:
        trainer.resume()
    before, now = (", ".join(f"{name} {count:,}" for name, count in one.task.facts().items()) for one in (ended, other))
    remedy = "restore the files, or accept the change with --accept-changed-data"
    changed = f"the data has changed since the checkpoint: it had {before}, and now {now}"
    assert str(error.value) == f"{tmp_path / 'run'}: {changed}; {remedy}"


def planned_again(folder: Path) -> RunPlan:
    """The tiny run again, on the text as it is now."""
    return plan({"kind": "language", "train": [str(folder / "text.txt")], "window": 8}, "tokenizer.kind=word")


def test_a_model_that_was_changed_by_hand_is_refused(tmp_path: Path, ended: RunPlan) -> None:
    other = planned("language", tmp_path, "model.depth=1")
    trainer, _ = make_trainer(other, tmp_path / "run")
    with pytest.raises(RegardError) as error:
        trainer.resume()
    what = "the checkpoint is of another model than recipe.toml describes"
    remedy = "undo the change, or begin a new run with --init-from"
    assert str(error.value) == f"{tmp_path / 'run'}: {what}; {remedy}"


def test_a_moving_average_may_begin_later(tmp_path: Path, ended: RunPlan) -> None:
    trainer, _ = make_trainer(changed(ended, ema=0.5), tmp_path / "run")
    assert trainer.resume()
    assert trainer.update.average is not None
    assert same(trainer.update.average, weights(trainer))


@pytest.mark.parametrize("kind", ["language", "masked", "classification", "translation", "vision"])
def test_into_how_many_parts_an_update_is_split_does_not_change_what_it_learns_from(tmp_path: Path, kind: str) -> None:
    """So a run that ran out of memory can continue with more parts."""
    found = planned(kind, tmp_path)
    orders = [make_trainer(changed(found, accumulate=parts), tmp_path / "run")[0].feed.order for parts in (1, 3)]
    drawn = [[(draw.shape, draw.rows.tolist()) for draw in order.epoch(0)] for order in orders]
    assert drawn[0] == drawn[1]


def test_other_lanes_begin_without_a_state(tmp_path: Path) -> None:
    found = planned("language", tmp_path, "train.steps=4", recipe="lstm")
    trainer, _ = make_trainer(found, tmp_path / "run")
    trainer.train()
    for tokens, carries in ((64, True), (32, False)):
        again, _ = make_trainer(changed(found, tokens=tokens, steps=6), tmp_path / "run")
        assert again.resume()
        assert bool(again.update.carried) == carries
    again.train()
    assert again.step == 6
