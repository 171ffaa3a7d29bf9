"""What is chosen when nobody says: larger for more data, never beyond it, and always something that can be built."""

from itertools import pairwise
from typing import get_args

import pytest

from regard.config import from_table
from regard.errors import ConfigError
from regard.models.recipe import ModelConfig, Recipe, build_empty
from regard.recipe_files import merge, read_recipe, recipe_names
from regard.tasks.kinds import TASKS
from regard.training.config import TrainConfig
from regard.training.optimizer import OPTIMIZERS
from regard.training.plan import (
    KINDS,
    RECIPES,
    SIZES,
    Amount,
    Said,
    SizeName,
    check_kind,
    choose_size,
    fit_patches,
    plan_model,
    plan_task,
    plan_tokenizer,
    plan_train,
    plan_vocabulary,
    text_bytes,
)
from regard.training.schedule import SCHEDULES

AMOUNTS = [Amount(tokens // 20 + 1, tokens) for tokens in (500, 50_000, 5_000_000, 500_000_000, 50_000_000_000)]
every_task = pytest.mark.parametrize("kind", TASKS)
every_device = pytest.mark.parametrize("device", ["cpu", "cuda"])


def model_of(kind: str, size: str, amount: Amount) -> ModelConfig:
    return from_table({"model": plan_model(kind, size, amount)}, Recipe).model


def test_every_task_has_a_recipe_of_a_fitting_kind():
    assert set(RECIPES) == set(KINDS) == set(TASKS)
    for kind in TASKS:
        check_kind(kind, read_recipe(RECIPES[kind])["model"]["kind"])


# --- sizes -----------------------------------------------------------------------------------------------------------


@every_device
def test_more_data_never_means_a_smaller_model(device: str):
    chosen = [choose_size("auto", amount, device) for amount in AMOUNTS]
    places = [list(SIZES).index(size) for size in chosen]
    assert all(one <= other for one, other in pairwise(places))
    assert places[0] == 0
    assert places[-1] > 0


@every_device
def test_a_size_that_was_asked_for_is_taken(device: str):
    for size in SIZES:
        assert {choose_size(size, amount, device) for amount in AMOUNTS} == {size}
    assert {"auto", *SIZES} == set(get_args(SizeName))


def test_an_unknown_size():
    with pytest.raises(
        ConfigError, match="size: 'smal' is unknown; did you mean 'small'. .one of auto, base, big, small"
    ):
        choose_size("smal", AMOUNTS[0], "cpu")


# --- models ----------------------------------------------------------------------------------------------------------


@every_task
def test_every_size_can_be_built_and_is_larger_than_the_last(kind: str):
    counts = []
    for size, shape in SIZES.items():
        config = model_of(kind, size, AMOUNTS[1])
        assert config.dim == shape.dim
        counts.append(sum(parameter.numel() for parameter in build_empty(config).parameters()))
    assert counts == sorted(set(counts))


def test_little_data_gets_more_dropout():
    few, many = (model_of("translation", "small", amount).embed.dropout for amount in (AMOUNTS[0], AMOUNTS[-1]))
    assert few > many


def test_a_classifier_has_classes():
    assert plan_model("classification", "tiny", AMOUNTS[0])["head"]["kind"] == "classes"
    assert plan_model("masked", "tiny", AMOUNTS[0])["head"]["kind"] == "tokens"


@pytest.mark.parametrize(("height", "width"), [(8, 8), (28, 28), (32, 32), (224, 224), (96, 64), (7, 7), (7, 5)])
def test_patches_divide_the_image_and_every_one_has_a_position(height: int, width: int):
    base = merge(plan_model("vision", "tiny", AMOUNTS[0]), {"patches": {"height": height, "width": width}})
    table = fit_patches(base, height, width)
    patch = table["patches"]["patch"]
    assert height % patch == width % patch == 0
    assert table["position"]["length"] == height // patch * (width // patch) + 1  # one for the class token
    build_empty(from_table({"model": table}, Recipe).model)


def test_patches_without_a_class_token_need_no_position_for_it():
    base = merge(plan_model("vision", "tiny", AMOUNTS[0]), {"head": {"pool": {"kind": "mean"}}})
    assert fit_patches(base, 32, 32)["position"]["length"] == 64


@pytest.mark.parametrize("name", recipe_names())
def test_which_recipes_can_learn_which_tasks(name: str):
    kind = read_recipe(name)["model"]["kind"]
    fitting = [task for task in TASKS if kind in KINDS[task]]
    assert fitting
    for task in set(TASKS) - set(fitting):
        with pytest.raises(
            ConfigError, match=f"^model.kind: a model of the kind '{kind}' cannot be trained for {task}; "
        ):
            check_kind(task, kind)


def test_a_wrong_kind_is_told_which_recipes_are_right():
    with pytest.raises(ConfigError) as caught:
        check_kind("vision", "language")
    assert str(caught.value).endswith("; recipes that can: vit")
    with pytest.raises(ConfigError) as caught:
        check_kind("language", "vision")
    fitting = str(caught.value).partition("recipes that can: ")[2].split(", ")
    assert {"gpt2", "lstm", "writer"} <= set(fitting)
    assert "vit" not in fitting


# --- text ------------------------------------------------------------------------------------------------------------


def test_bytes_of_text_are_estimated(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"x" * 100)
    (tmp_path / "a.txt.gz").write_bytes(b"x" * 100)
    assert text_bytes(str(tmp_path / "a.txt")) == 100
    assert (
        text_bytes([str(tmp_path / "a.txt"), str(tmp_path / "a.txt.gz")]) > 200
    )  # packed text is longer than it looks
    assert text_bytes([str(tmp_path / "missing.txt")]) == 0  # which is found out later, and said better


def grow(path, size: int) -> str:
    """A file that says it has so many bytes, though it holds none."""
    with path.open("wb") as file:
        file.truncate(size)
    return str(path)


def test_letters_for_a_little_text_and_pieces_for_more(tmp_path):
    files = [grow(tmp_path / f"{size}.txt", size) for size in (10**4, 10**7, 10**8, 10**10)]
    plans = [plan_tokenizer({"kind": "language", "train": [file]}) for file in files]
    assert plans == [{"kind": "char"}, {"kind": "bpe"}, {"kind": "bpe"}, {"kind": "bpe"}]
    assert plan_tokenizer({"kind": "language", "train": files[:1]}, pieces=True) == {"kind": "bpe"}
    vocabularies = [plan_vocabulary({"kind": "language", "train": [file]}) for file in files]
    assert vocabularies == sorted(vocabularies)
    assert vocabularies[0] < vocabularies[-1]
    for kind in ("masked", "classification", "translation"):
        assert plan_tokenizer({"kind": kind, "train": files[:1], "source": files[:1]})["kind"] == "bpe"
    assert plan_tokenizer({"kind": "vision", "train": "images"}) is None


@every_device
def test_the_window_is_chosen_unless_it_is_given(tmp_path, device: str):
    file = grow(tmp_path / "a.txt", 1000)
    assert plan_task({"kind": "language", "train": [file]}, device)["window"] > 0
    assert plan_task({"kind": "language", "train": [file], "window": 7}, device)["window"] == 7
    assert plan_task({"kind": "translation", "source": [file]}, device) == {"kind": "translation", "source": [file]}


@every_device
@pytest.mark.parametrize("kind", ["language", "masked"])
def test_a_little_text_has_several_windows_also_for_validation(tmp_path, device: str, kind: str):
    for size in (300, 1000, 3000):
        window = plan_task({"kind": kind, "train": [grow(tmp_path / "a.txt", size)]}, device)["window"]
        assert 8 <= window <= max(8, size / (16 if kind == "language" else 80))  # a tenth is kept for validation
    assert plan_task({"kind": kind, "train": [grow(tmp_path / "a.txt", 50_000)]}, device)["window"] >= 128


@every_task
def test_rows_are_not_longer_than_what_the_model_can_take(tmp_path, kind: str):
    if kind == "vision":
        return
    key = "window" if kind in ("language", "masked") else "longest"
    task = {"kind": kind, "train": [grow(tmp_path / "a.txt", 100_000)]}
    assert plan_task(task, "cpu", longest=20)[key] == 20
    assert plan_task(task | {key: 12}, "cpu", longest=20)[key] == 12
    assert 20 < plan_task(task, "cpu", longest=10_000)[key] <= 256  # more is not needed
    rule = f"^task.{key}: 21 tokens are more than the 20 positions of the model; lower it, or raise model.embed.pos"
    with pytest.raises(ConfigError, match=rule):
        plan_task({"kind": kind, key: 21}, "cpu", longest=20)


# --- training --------------------------------------------------------------------------------------------------------


@every_task
@every_device
@pytest.mark.parametrize("amount", AMOUNTS)
@pytest.mark.parametrize("attends", [True, False])
def test_a_plan_is_a_whole_one_and_within_the_data(kind: str, device: str, amount: Amount, attends: bool):
    config = from_table(plan_train(kind, 128, attends, amount, 1e7, device), TrainConfig)
    assert config.steps >= 100
    assert config.validate_every <= config.steps
    assert config.checkpoint_every <= config.steps
    assert config.tokens <= max(64, amount.tokens // 8)
    factors = [config.schedule.factor(step, config.steps) for step in (1, config.steps // 2, config.steps)]
    assert all(0 < factor <= 1 for factor in factors)


@every_task
@every_device
@pytest.mark.parametrize("attends", [True, False])
@pytest.mark.parametrize("steps", [1, 7, 50, 100_000])
def test_a_plan_for_so_many_steps_ends_its_warmup_and_looks_in_between(
    kind: str, device: str, attends: bool, steps: int
):
    config = from_table(plan_train(kind, 128, attends, AMOUNTS[3], 1e7, device, said=Said(steps=steps)), TrainConfig)
    assert config.steps == steps
    assert config.schedule.warmup <= steps / 4
    assert config.validate_every <= max(10, steps / 20)
    assert config.checkpoint_every <= max(10, steps / 20)


@every_task
@pytest.mark.parametrize("begun", [True, False])
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_plan_has_all_that_another_optimizer_or_schedule_needs(kind: str, optimizer: str, schedule: str, begun: bool):
    said = Said(optimizer=optimizer, schedule=schedule)
    table = plan_train(kind, 128, True, AMOUNTS[2], 1e7, "cpu", begun, said)
    config = from_table(table, TrainConfig)
    assert (table["optimizer"]["kind"], table["schedule"]["kind"]) == (optimizer, schedule)
    assert 0 < config.schedule.warmup <= config.steps / 4
    usual = plan_train(kind, 128, True, AMOUNTS[2], 1e7, "cpu", begun)
    same = plan_train(kind, 128, True, AMOUNTS[2], 1e7, "cpu", begun, Said(optimizer=usual["optimizer"]["kind"]))
    assert same == usual


@every_task
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_what_was_trained_before_learns_in_small_steps(kind: str, optimizer: str):
    said = Said(optimizer=optimizer)
    new, begun = (plan_train(kind, 128, True, AMOUNTS[2], 1e5, "cpu", begun, said) for begun in (False, True))
    assert begun["optimizer"]["rate"] == pytest.approx(new["optimizer"]["rate"] / 20)
    assert begun["steps"] < new["steps"]


@every_task
def test_costly_models_take_fewer_steps(kind: str):
    cheap, costly = (plan_train(kind, 128, True, AMOUNTS[3], flops, "cpu")["steps"] for flops in (1e6, 1e9))
    assert costly < cheap


@every_task
def test_wide_models_learn_at_a_lower_rate(kind: str):
    def rate(wide: int) -> float:
        optimizer = plan_train(kind, wide, True, AMOUNTS[2], 1e7, "cpu")["optimizer"]
        return optimizer.get("rest", optimizer)["rate"]

    assert rate(1024) < rate(128)
