"""Planning: laws over all tasks, recipes and sizes; what the user says wins, the rest follows from it."""

import gzip
import json
import sys
from dataclasses import replace
from importlib import import_module
from itertools import pairwise
from pathlib import Path

import datasets
import pyarrow
import pytest
import torch
from pyarrow import parquet

from regard.config import from_table, to_table, to_toml
from regard.data import tables
from regard.errors import ConfigError, RegardError
from regard.machine import THREADS
from regard.models.recipe import Recipe, build, build_empty, load_recipe
from regard.models.scale import SIZES, Size, scale_model
from regard.models.store import tensors
from regard.recipe_files import merge, override, read_recipe, recipe_names
from regard.runs.layout import RECIPE
from regard.tasks.defaults import Amount, TaskConfig, suggest_schedule
from regard.tasks.kinds import TASKS
from regard.tasks.long_text import LongTextTask
from regard.tasks.vision import fit_patches
from regard.training import memory, planning
from regard.training.config import TrainConfig
from regard.training.draft import RunPlan
from regard.training.memory import bytes_of_state, memory_of_update, peak_memory
from regard.training.model_table import check_kind, fit_to_data
from regard.training.optimizer import OPTIMIZERS, MuonConfig
from regard.training.run import write_config
from regard.training.schedule import SCHEDULES
from regard.training.suggestions import (
    check_size,
    choose_size,
    count_affordable,
    suggest_intervals,
    suggest_part,
    suggest_rare_until,
    suggest_steps,
    suggest_tokens,
)
from regard.training.time_left import is_validated
from regard.training.trial import Trial
from regard.training.validation import measured_rows

from ..tasks.corpora import sentences, write
from .tiny import data, make_trainer, plan, training

AMOUNTS = [Amount(tokens // 20 + 1, tokens) for tokens in (500, 50_000, 5_000_000, 500_000_000, 50_000_000_000)]
BLOCK = "model.layers.block"


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))


def planned(kind: str, folder, *changes: str, **options) -> RunPlan:
    words = [] if kind in ("vision", "residues", "distances") else ["tokenizer.kind=word"]
    return plan(data(kind, folder), *words, *changes, **options)


def grow(path: Path, size: int) -> str:
    """Make a sparse file of this size."""
    with path.open("wb") as file:
        file.truncate(size)
    return str(path)


def config_of(kind: str, *files: str) -> TaskConfig:
    return TASKS[kind](**{key: _fixed(value) for key, value in TASKS[kind].from_files(files, []).items()})


def _fixed(value):
    return tuple(value) if isinstance(value, list) else value


# --- laws over tasks, recipes and sizes ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", recipe_names())
def test_a_recipe_scales_as_a_whole(name: str):
    """Every size and many widths can be built; more width means more parameters; its own width changes nothing."""
    table = to_table(load_recipe(name).model)
    assert scale_model(table, Size(table["dim"])) == table
    for sizes in (SIZES.values(), (Size(16), Size(50), Size(64), Size(128), Size(1000), Size(2048))):
        counts = []
        for size in sizes:
            config = from_table({"model": scale_model(table, size)}, Recipe).model
            assert config.dim == size.dim
            counts.append(sum(parameter.numel() for parameter in build_empty(config).parameters()))
        assert counts == sorted(set(counts))


def test_ratios_of_a_recipe_are_kept():
    gpt2 = scale_model(to_table(load_recipe("gpt2").model), Size(128))
    block = gpt2["layers"]["block"]
    assert (gpt2["depth"], block["mixer"]["heads"]["heads"], block["feedforward"]["hidden"]) == (5, 2, 512)
    heads = scale_model(to_table(load_recipe("llama-like").model), SIZES["base"])["layers"]["block"]["mixer"]["heads"]
    assert (heads["heads"], heads["kv_heads"]) == (8, 2)
    deepseek = scale_model(to_table(load_recipe("deepseek-like").model), SIZES["small"])
    assert deepseek["pattern"] == ["dense", "5*sparse"]
    assert deepseek["layers"]["sparse"]["mixer"]["heads"]["rank"] == 64
    assert deepseek["layers"]["sparse"]["feedforward"]["hidden"] == 128
    assert scale_model(to_table(load_recipe("lstm").model), SIZES["tiny"])["depth"] == 2  # a shallow one keeps its own


@pytest.mark.parametrize(
    "wrong",
    [
        "model.dim=0",
        "model.depth=-1",
        "model.pattern=[3]",
        'model.pattern=["x*dense", "sparse"]',
        'model.pattern=["0*dense", "sparse"]',
        "model.layers.sparse.mixer.heads.heads=0",
        "model.layers.sparse.mixer.heads={kind='multi', heads=100000}",
        "model.layers.sparse.mixer.heads.value=none",
        "model.layers.dense.mixer.heads={kind='multi', heads=4, kv_heads='a'}",
        f"model.layers.dense.feedforward.hidden={10**400}",
    ],
)
def test_a_model_that_is_not_valid_is_reported_as_it_was_written(wrong: str):
    table = override({"model": to_table(load_recipe("deepseek-like").model)}, [wrong])["model"]
    for size in (SIZES["tiny"], Size(128), Size(10**400)):
        with pytest.raises(ConfigError) as error:
            build_empty(from_table({"model": scale_model(table, size)}, Recipe).model)
        with pytest.raises(ConfigError) as before:
            build_empty(from_table({"model": table}, Recipe).model)
        assert str(error.value).partition(":")[0] == str(before.value).partition(":")[0]


@pytest.mark.parametrize("kind", TASKS)
def test_every_task_starts_from_a_recipe_that_can_learn_it(kind: str):
    config = TASKS[kind]
    table = read_recipe(config.recipe)["model"]
    check_kind(kind, table["kind"])
    for name in recipe_names():
        other = read_recipe(name)["model"]["kind"]
        if other not in config.models:
            with pytest.raises(ConfigError, match=f"^model.kind: a model of the kind '{other}' cannot be trained for"):
                check_kind(kind, other)


@pytest.mark.parametrize("kind", TASKS)
def test_a_plan_is_within_the_data_and_complete_for_every_optimizer_and_schedule(kind: str):
    config = config_of(kind, "missing")
    for device in ("cpu", "cuda"):
        for amount in AMOUNTS:
            assert suggest_tokens(config, amount, device) <= max(64, amount.tokens // 8)
            assert suggest_tokens(config, amount, device) >= suggest_tokens(config, amount, "cpu")
        places = [list(SIZES).index(choose_size("auto", config, amount, device)) for amount in AMOUNTS]
        assert all(one <= other for one, other in pairwise(places))
        assert places[0] < places[-1]
    for size in SIZES:
        model = scale_model(read_recipe(config.recipe)["model"], SIZES[size])
        build_empty(from_table({"model": merge(model, config.suggest_model(size, AMOUNTS[1]))}, Recipe).model)
    for optimizer in OPTIMIZERS:
        for schedule in SCHEDULES:
            for pretrained in (True, False):
                for steps in (1, 7, 50, 100_000):
                    table = {"steps": steps, "tokens": 64, **suggest_intervals(steps)}
                    table["optimizer"] = config.suggest_optimizer(optimizer, 128, pretrained)
                    table["schedule"] = suggest_schedule(schedule, steps, pretrained)
                    found = from_table(table | config.suggest_training(), TrainConfig)
                    assert found.schedule.warmup <= steps / 4
                    assert all(0 < found.schedule.factor(step, steps) <= 1 for step in {1, (steps + 1) // 2, steps})
                    assert found.validate_every <= max(10, steps / 20)
        new, pretrained_rate, wide = (
            config.suggest_optimizer(optimizer, dim, pretrained)
            for dim, pretrained in ((128, False), (128, True), (1024, False))
        )
        assert pretrained_rate["rate"] == pytest.approx(new["rate"] / 4)
        assert wide.get("rest", wide)["rate"] < new.get("rest", new)["rate"]
    assert config.suggest_optimizer_kind(pretrained=False) in OPTIMIZERS
    assert config.suggest_schedule_kind("adamw", pretrained=True) == "linear"
    if "word2vec" not in config.models:  # a table needs a higher rate
        rate = config.suggest_optimizer("adamw", 768, True)["rate"]
        assert rate == pytest.approx(4.5e-5, rel=0.01)  # usual for a BERT


def test_costly_models_take_fewer_steps_and_time_allows_more():
    cheap, costly = (count_affordable(1200.0, flops, 2048, "cpu") for flops in (1e6, 1e9))
    assert costly < cheap
    assert suggest_steps(1e9, costly) < suggest_steps(1e9, cheap)
    assert suggest_steps(1.0, 1.0) == 100


def test_an_unknown_size_is_an_error_before_the_data_is_read(tmp_path: Path):
    rule = "^size='smal' is unknown; did you mean 'small'. .one of auto, base, big, mini, small"
    with pytest.raises(ConfigError, match=rule):
        check_size("smal")
    with pytest.raises(ConfigError, match=rule):
        plan(write(tmp_path / "own.toml", ["[task]", 'kind = "language"', 'train = ["missing.txt"]']), size="smal")


# --- what the tasks suggest ------------------------------------------------------------------------------------------


def test_little_data_gets_more_dropout():
    few, many = (config_of("translation", "a").suggest_model("small", amount) for amount in (AMOUNTS[0], AMOUNTS[-1]))
    assert few["embed"]["dropout"] > many["embed"]["dropout"]


@pytest.mark.parametrize(("height", "width"), [(8, 8), (28, 28), (224, 224), (96, 64), (7, 7), (7, 5)])
@pytest.mark.parametrize("pool", ["first", "mean"])
def test_patches_divide_the_image_and_every_one_has_a_position(height: int, width: int, pool: str):
    base = scale_model(read_recipe("vit")["model"], SIZES["tiny"])
    base = merge(base, {"patches": {"height": height, "width": width}, "head": {"pool": {"kind": pool}}})
    table = fit_patches(base, height, width)
    patch = table["patches"]["patch"]
    assert height % patch == width % patch == 0
    assert table["position"]["length"] == height // patch * (width // patch) + (pool == "first")  # the class token
    build_empty(from_table({"model": table}, Recipe).model)


def test_images_get_a_cheaper_model_on_a_cpu_only():
    config, amount = config_of("vision", "missing"), Amount(58_000, 58_000 * 64)
    assert choose_size("auto", config, amount, "cpu") == "mini"
    assert choose_size("auto", config, amount, "cuda") == "small"
    assert choose_size("auto", config_of("language", "missing"), amount, "cpu") == "tiny"
    assert config.suggest_model("mini", amount) == {"patches": {"stem": 2}, "layers": {"block": {"dropout": 0.0}}}
    for size in ("tiny", "small"):
        assert config.suggest_model(size, amount) == {"layers": {"block": {"dropout": 0.1}}}


@pytest.mark.parametrize("pool", ["first", "mean"])
def test_positions_follow_the_patches_and_the_pooling_that_the_user_chose(tmp_path, pool: str):
    found = planned("vision", tmp_path, "model.patches.patch=2", f"model.head.pool.kind={pool}").config.model
    assert found.patches.patch == 2
    assert found.position.length == found.patches.height // 2 * (found.patches.width // 2) + (pool == "first")


def test_bytes_of_text_are_estimated(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"x" * 100)
    (tmp_path / "a.txt.gz").write_bytes(b"x" * 100)
    plain, packed = str(tmp_path / "a.txt"), str(tmp_path / "a.txt.gz")
    config = config_of("language", plain)
    assert config.text_bytes([plain]) == 100
    assert config.text_bytes([plain, packed]) > 200  # compressed text is longer than its file
    assert config.text_bytes([str(tmp_path / "missing.txt")]) == 0  # a missing file is reported when it is read
    assert config.text_bytes([grow(tmp_path / "broken.jsonl", 10)]) == 0  # and so is one that cannot be read


@pytest.mark.parametrize("sample", [10**6, 10_000], ids=["counted", "estimated"])
def test_bytes_of_text_do_not_depend_on_the_format_of_a_table(tmp_path, monkeypatch, sample: int):
    """The same texts and labels, and where it is not a plain TSV, another column."""
    monkeypatch.setattr(tables, "SAMPLE", sample)
    texts = [f"text {number} of {number % 7 * 10 * 'very '}many" for number in range(1000)]
    rows = [{"id": "0" * 30, "text": text, "label": "ab"[len(text) % 2]} for text in texts]
    cells = [f"{row['text']}\t{row['label']}\n" for row in rows]
    lines = [json.dumps(row) + "\n" for row in rows]
    (tmp_path / "a.tsv").write_text("".join(cells))
    (tmp_path / "a.tsv.gz").write_bytes(gzip.compress("".join(cells).encode()))
    broken = [f'{row["id"]},"{row["text"].replace(" ", chr(10))}",{row["label"]}\n' for row in rows]
    (tmp_path / "a.csv").write_text("".join(["id,text,label\n", *broken]))
    (tmp_path / "a.jsonl").write_text("".join(lines))
    (tmp_path / "b.jsonl").write_text("".join(lines[:500]))
    (tmp_path / "c.jsonl").write_text("".join(lines[500:]))
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "a.parquet")
    datasets.Dataset.from_list(rows).save_to_disk(str(tmp_path / "saved"))
    whole = config_of("classification", str(tmp_path / "a.tsv")).text_bytes([str(tmp_path / "a.tsv")])
    assert whole == pytest.approx(len("".join(cells)), rel=0.0 if sample == 10**6 else 0.05)
    for names in (["a.tsv.gz"], ["a.csv"], ["a.jsonl"], ["b.jsonl", "c.jsonl"], ["a.parquet"], ["saved"]):
        if names == ["a.tsv.gz"] and sample < 10**6:
            continue  # how far it is compressed is not known before it is read
        config = config_of("classification", *(str(tmp_path / name) for name in names))
        assert config.text_bytes(config.training_files()) == pytest.approx(whole, rel=0.0 if sample == 10**6 else 0.05)


def test_an_update_on_an_accelerator_is_larger_unless_a_pass_would_be_a_few_updates():
    config = config_of("classification", "missing")
    assert [suggest_tokens(config, Amount(10, tokens), "cuda") for tokens in (800, 75_000, 200_000, 10**6)] == [
        100,
        2048,
        5000,
        8192,
    ]


def test_characters_for_a_little_text_and_pieces_for_more(tmp_path):
    configs = [config_of("language", grow(tmp_path / f"{size}.txt", size)) for size in (10**4, 10**7, 10**8, 10**10)]
    assert [config.suggest_tokenizer(pieces=False)["kind"] for config in configs] == ["char", "bpe", "bpe", "bpe"]
    assert configs[0].suggest_tokenizer(pieces=True) == {"kind": "bpe"}
    vocabularies = [config.suggest_vocabulary() for config in configs]
    assert vocabularies == sorted(vocabularies)
    assert vocabularies[0] < vocabularies[-1]
    for kind in ("masked", "translation"):
        assert config_of(kind, configs[0].train[0]).suggest_tokenizer(pieces=False) == {"kind": "bpe"}
    classifiers = [config_of("classification", config.train[0]) for config in configs]
    kinds = [config.suggest_tokenizer(pieces=False)["kind"] for config in classifiers]
    assert kinds == ["word", "word", "bpe", "bpe"]
    assert [config.suggest_vocabulary() for config in classifiers[:2]] == [1000, 10_000]  # rare words are unknown
    assert config_of("vision", "images").suggest_tokenizer(pieces=False) is None


@pytest.mark.parametrize("kind", ["language", "masked"])
def test_a_little_text_has_several_windows_also_for_validation(tmp_path, kind: str):
    for device in ("cpu", "cuda"):
        for size in (300, 1000, 3000):
            window = config_of(kind, grow(tmp_path / "a.txt", size)).suggest_length(device, None)
            assert 8 <= window <= max(8, size / (16 if kind == "language" else 80))  # a tenth is for validation
        assert config_of(kind, grow(tmp_path / "a.txt", 50_000)).suggest_length(device, None) >= 128


@pytest.mark.parametrize("kind", ["language", "masked", "classification", "translation"])
def test_rows_are_not_longer_than_what_the_model_can_take(tmp_path, kind: str):
    config = config_of(kind, grow(tmp_path / "a.txt", 100_000))
    assert config.suggest_length("cpu", 20) == 20
    assert 20 < config.suggest_length("cpu", 10_000) <= 256  # more is not needed


# --- one rule for all recipes of a task ------------------------------------------------------------------------------

HYBRID = """like = "lstm"
[model]
pattern = ["recurrent", "block"]
[model.layers.block]
residual = "plain"
mixer = { kind = "attention", heads = { kind = "multi", heads = 5 } }
"""


def test_all_recipes_of_a_task_get_one_optimizer_and_recurrent_ones_higher_rates(tmp_path):
    (tmp_path / "hybrid.toml").write_text(HYBRID)
    names = ("gpt2", "conv", str(tmp_path / "hybrid.toml"), "rwkv4", "lstm", "mut1")
    found = [planned("language", tmp_path, "model.dim=100", recipe=name).config.train for name in names]
    assert all(train.schedule == found[0].schedule for train in found)
    rates = [
        (train.optimizer.rate, train.optimizer.rest.rate) for train in found if isinstance(train.optimizer, MuonConfig)
    ]
    assert rates[:4] == [rates[0]] * 4
    assert rates[4:] == [pytest.approx((1.5 * rates[0][0], 4 * rates[0][1]))] * 2
    own = planned("language", tmp_path, "train.optimizer.rate=0.02", recipe="lstm").config.train.optimizer
    assert own.rate == 0.02


# --- scaling on the command line -------------------------------------------------------------------------------------


def test_a_size_scales_any_recipe(tmp_path):
    found = planned("language", tmp_path, recipe="gpt2", size="tiny")
    block = found.config.model.layers["block"]
    assert (found.size, found.config.model.dim, found.config.model.depth) == ("tiny", 128, 4)
    assert (block.mixer.heads.heads, block.feedforward.hidden) == (4, 512)
    assert found.sources["model.depth"] == "size tiny (scale_model)"


def test_a_width_scales_a_recipe_and_explicit_values_win(tmp_path):
    model = planned("language", tmp_path, "model.dim=128", recipe="gpt2").config.model
    assert (model.depth, model.layers["block"].mixer.heads.heads, model.layers["block"].feedforward.hidden) == (
        5,
        2,
        512,
    )
    model = planned("language", tmp_path, "model.dim=128", "model.depth=3", recipe="gpt2").config.model
    assert (model.dim, model.depth) == (128, 3)
    assert planned("language", tmp_path, recipe="gpt2").config.model.dim == 768


def test_blanks_in_an_override_change_nothing(tmp_path):
    plain = ("model.dim=128", "task.window=16", "train.steps=7", "train.optimizer.kind=adamw", "tokenizer.kind=byte")
    spaced = (
        " model.dim = 128",
        "task . window=16 ",
        "train.steps =7",
        "train.optimizer. kind = adamw",
        "tokenizer.kind= byte",
    )
    found, same = (planned("language", tmp_path, *changes, recipe="gpt2") for changes in (spaced, plain))
    assert found.config == same.config
    assert found.sources == same.sources


def test_the_width_of_the_task_s_own_model_reaches_its_layers(tmp_path):
    for dim in (64, 512):
        found = planned("language", tmp_path, f"model.dim={dim}").config.model
        assert (found.dim, found.depth, found.layers["block"].feedforward.hidden) == (dim, 4, 4 * dim)
    with pytest.raises(ConfigError, match='model.dim: "wide" must be a whole number'):
        planned("language", tmp_path, "model.dim=wide")


# --- the length of a run ---------------------------------------------------------------------------------------------


def test_a_run_that_is_too_short_for_its_model_warns(tmp_path):
    source = grow(tmp_path / "a.txt", 0)
    write(Path(source), sentences(4000))
    task = {"kind": "translation", "source": [source], "target": [source]}
    (warning,) = plan(task, "tokenizer.kind=word", recipe="transformer-big").warnings
    assert "updates fit into 20 min, too few for this model to learn; use --size base" in warning
    assert "train.steps or train.minutes" in warning
    assert plan(task, "tokenizer.kind=word", "train.steps=3", recipe="transformer-big").warnings == ()
    assert plan(task, "tokenizer.kind=word").warnings == ()


def test_a_time_can_be_asked_for(tmp_path, monkeypatch):
    monkeypatch.setattr(planning, "time_updates", lambda *arguments: Trial(0.05, 0))
    found = planned("language", tmp_path, "train.minutes=2.5")
    train = found.config.train
    assert (train.steps, train.minutes) == (2400, 2.5)  # 150 s, a fifth of it for validations
    assert train.validate_every == 120  # derived from the steps
    assert found.sources["train.steps"].endswith("(fit_to_minutes)")
    with pytest.raises(ConfigError, match="train.steps and train.minutes each decide the length of the run; give one"):
        planned("language", tmp_path, "train.minutes=1", "train.steps=7")
    with pytest.raises(ConfigError, match="train.minutes: -1.0 must be above 0"):
        planned("language", tmp_path, "train.minutes=-1")


def test_the_recipe_of_a_timed_run_repeats_its_steps(tmp_path, monkeypatch):
    monkeypatch.setattr(planning, "time_updates", lambda *arguments: Trial(0.05, 0))
    first = planned("language", tmp_path, "train.minutes=2.5").config
    (tmp_path / "again.toml").write_text(to_toml(first))
    monkeypatch.setattr(planning, "time_updates", lambda *arguments: Trial(0.1, 0))
    assert plan(tmp_path / "again.toml").config == first
    assert plan(tmp_path / "again.toml", "train.minutes=5").config.train.steps == 2400
    other = plan(tmp_path / "again.toml", "train.steps=9").config.train
    assert (other.steps, other.minutes) == (9, None)


# --- where values come from ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", TASKS)
def test_every_value_of_the_plan_names_where_it_comes_from(tmp_path, kind: str):
    """A source with a function's name in brackets names one that exists in the code."""
    found = planned(kind, tmp_path, "train.log_every=3")
    table = to_table(found.config)
    assert {f"train.{key}" for key in table["train"] if key in planning.NEEDED} <= {
        ".".join(path.split(".")[:2]) for path in found.sources
    }
    assert found.sources["train.log_every"] == "command line"
    homes = [module for name, module in sys.modules.items() if name.startswith(("regard.tasks", "regard.training"))]
    homes.append(import_module("regard.models.scale"))
    for source in set(found.sources.values()):
        if source.endswith(")"):
            first, *rest = source.rpartition("(")[2].removesuffix(")").split(".")
            (home, *_) = [getattr(module, first) for module in homes if hasattr(module, first)]
            for name in rest:
                home = getattr(home, name)
            assert callable(home)
        else:
            assert source.startswith(("command line", "recipe ", THREADS))


# --- parts by their kind alone ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "place", "name", "sizes"),
    [
        ("language", f"{BLOCK}.feedforward", "glu", {"hidden": 352}),
        ("language", f"{BLOCK}.feedforward", "moe", {"experts": 8, "chosen": 2, "hidden": 176}),
        ("classification", f"{BLOCK}.feedforward", "mlp", {"hidden": 512}),  # and not the one layer that none means
        ("translation", "model.encoder.layers.block.feedforward", "glu", {"hidden": 352}),
        (
            "language",
            f"{BLOCK}.mixer.heads",
            "latent",
            {"heads": 4, "rank": 128, "plain": 32, "turned": 16, "value": 32},
        ),
        ("language", f"{BLOCK}.mixer", "gated-deltanet", {"heads": 4}),
        ("language", f"{BLOCK}.mixer", "rwkv7", {"heads": 4}),
        ("language", "model.embed.position", "learned", {"length": 8}),
        ("translation", "model.embed.position", "learned", {"length": 128}),
    ],
)
def test_a_part_gets_the_sizes_that_it_needs(tmp_path, kind: str, place: str, name: str, sizes: dict):
    model = planned(kind, tmp_path, f"{place}.kind={name}").config.model
    build(model)
    table = {"model": to_table(model)}
    for key in place.split("."):
        table = table[key]
    assert {key: table[key] for key in sizes} == sizes


def test_sizes_that_are_given_stay_and_others_follow_the_width(tmp_path):
    changes = [f"{BLOCK}.feedforward.kind=moe", f"{BLOCK}.feedforward.experts=3", "model.dim=48"]
    found = planned("language", tmp_path, *changes).config.model.layers["block"].feedforward
    assert (found.experts, found.chosen, found.hidden) == (3, 2, 64)


def test_another_model_is_chosen_by_a_recipe(tmp_path):
    rule = "model.kind: 'recurrent-seq2seq' is another architecture than 'seq2seq', .* --recipe: rnn-attention, rnn-seq"
    with pytest.raises(ConfigError, match=rule):
        planned("translation", tmp_path, "model.kind=recurrent-seq2seq")


# --- tables of positions ---------------------------------------------------------------------------------------------


def pairs(folder) -> dict[str, object]:
    """Write pairs of 2 to 7 words, and two of 30."""
    lines = [*sentences(100), *sentences(2, shortest=30, longest=30)]
    return {"kind": "translation", "source": [write(folder / "a.de", lines)], "target": [write(folder / "a.en", lines)]}


SHORT = ["model.embed.position.kind=learned", "model.embed.position.length=9", "tokenizer.kind=word"]
SMALL = ["model.dim=16", "model.encoder.depth=1", "model.decoder.depth=1"]


def test_pairs_that_are_longer_than_the_table_of_positions_are_left_out_and_counted(tmp_path):
    found = plan(pairs(tmp_path), *SHORT, *SMALL, *training(4))
    assert found.config.task.longest == 9
    assert found.task.facts()["pairs"] + found.task.facts()["validation pairs"] == 100
    (report,) = found.task.skipped.report()
    assert report.startswith("2 pairs of more than 9 tokens")
    trainer, _ = make_trainer(found, tmp_path / "run")
    trainer.train()
    assert trainer.step == 4


def test_rows_that_the_model_cannot_take_are_refused_before_anything_is_read(tmp_path):
    rule = "task.longest: 10 tokens are more than the 9 positions of the model; lower it, or raise model.embed.position"
    with pytest.raises(ConfigError, match=rule):
        plan(pairs(tmp_path) | {"source": ["missing"]}, *SHORT, "task.longest=10")


def test_a_table_that_is_asked_for_is_as_long_as_the_longest_pair_may_be(tmp_path):
    found = planned("translation", tmp_path, "model.embed.position.kind=learned", "task.longest=12").config
    assert found.model.embed.position.length == found.task.longest == 12


@pytest.mark.parametrize("kind", ["language", "masked", "classification"])
def test_windows_and_texts_are_no_longer_than_the_table(tmp_path, kind: str):
    table = data(kind, tmp_path)
    table.pop("window", None)
    found = plan(table, *SHORT, *SMALL[:1], "model.depth=1").config
    assert getattr(found.task, "longest" if kind == "classification" else "window") == 9


@pytest.mark.parametrize("kind", ["language", "classification", "translation"])
def test_every_task_stops_when_nothing_gets_better(tmp_path, kind):
    found = plan(data(kind, tmp_path), "train.steps=400").config.train
    assert (found.patience, found.validate_every) == (8, 20)
    often = plan(data(kind, tmp_path), "train.steps=400", "train.validate_every=1").config.train
    assert often.patience == 160  # the same share of the run
    few = plan(data(kind, tmp_path), "train.steps=20").config.train
    assert (few.patience, few.validate_every) == (5, 10)
    assert plan(data(kind, tmp_path), "train.patience=none").config.train.patience is None


def test_who_says_how_often_to_validate_gets_every_validation(tmp_path):
    """Also if it is what the planner suggests, on the command line or in a recipe; `train.rare_until` itself wins."""
    table = data("language", tmp_path)
    found = plan(table, "train.steps=400").config.train
    assert (found.validate_every, found.rare_until) == (20, 0.6)
    assert plan(table, "train.steps=400", "train.validate_every=20").config.train.rare_until == 0.0
    both = plan(table, "train.steps=400", "train.validate_every=20", "train.rare_until=0.3").config.train
    assert both.rare_until == 0.3
    own = f'[task]\nkind = "language"\ntrain = {table["train"]}\n[train]\nsteps = 400\nvalidate_every = 20\n'
    (tmp_path / "own.toml").write_text(own)
    assert plan(tmp_path / "own.toml").config.train.rare_until == 0.0


def validated(config: TrainConfig) -> list[int]:
    """Return the steps at which a run is validated if each validation is better than the last."""
    return [step for step in range(1, config.steps + 1) if is_validated(step, config, config.rare_until)]


def test_the_more_validations_cost_the_fewer_are_made(tmp_path):
    """Unknown costs count as none; the average of the last weights is one more validation."""
    config = plan(data("language", tmp_path), "train.steps=400").config.train
    costs = [0.0, 3.6, 3.7, 5.0, 7.9, 8.0, 1000.0]
    shares = [suggest_rare_until(config, cost) for cost in costs]
    assert shares == [0.6, 0.6, 0.7, 0.8, 1.0, 1.0, 1.0]
    for share, cost in zip(shares[:-1], costs, strict=False):
        assert len(validated(replace(config, rare_until=share))) * cost <= 40
    assert validated(replace(config, rare_until=1.0)) == [80, 160, 240, 320, 400]
    averaging = replace(config, average=5)
    assert [suggest_rare_until(averaging, cost) for cost in (3.3, 3.4)] == [0.6, 0.7]  # 12 of them, with the average
    assert suggest_rare_until(averaging, 1000.0) == 1.0


def test_a_validation_that_costs_too_much_measures_a_part(tmp_path):
    config = replace(plan(data("language", tmp_path), "train.steps=400").config.train, rare_until=1.0)  # five of them

    def cost(rows: int | None) -> float:
        return (1000 if rows is None else rows) / 10

    assert suggest_part(config, cost, least=50) == 80  # 5 x 8 is a tenth of 400
    assert suggest_part(config, cost, least=100) == 100
    assert suggest_part(config, lambda rows: cost(rows) / 12.5, least=50) is None
    assert suggest_part(config, lambda rows: cost(min(rows or 40, 40)), least=50) is None  # there are only 40
    assert suggest_part(config, lambda rows: 2 + cost(rows), least=10, most=500) == 60  # two updates for the loss
    assert suggest_part(config, lambda rows: 9 + cost(rows), least=10, most=500) == 10
    assert suggest_part(config, lambda rows: cost(rows) / 10, least=10, most=500) is None


@pytest.mark.parametrize("kind", TASKS)
def test_validations_are_a_tenth_of_a_run_or_as_few_as_are_useful(tmp_path, kind: str, monkeypatch):
    monkeypatch.setattr(LongTextTask, "least_rows", 3)
    found = planned(kind, tmp_path, "train.steps=100", "train.tokens=64")
    train, rows = found.config.train, measured_rows(found.task, found.config.train)
    cost = len(validated(train)) * found.task.validation_cost(rows) / (3 * 64)
    assert found.task.validation_cost(rows) > 0
    least = found.task.least_rows or found.task.least_written
    assert cost <= 10 or (train.rare_until == 1.0 and rows in (None, least, 500))
    assert "limit_validations" in found.sources["train.rare_until"]
    if train.valid_part is not None:
        assert "limit_validations" in found.sources["train.valid_part"]


def test_what_the_user_says_of_validations_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(LongTextTask, "least_rows", 3)
    table = data("language", tmp_path)
    short = ("tokenizer.kind=char", "train.steps=10", "train.tokens=24")
    assert plan(table, *short).config.train.valid_part == 9  # windows of 8 tokens: a tenth of 3 x 10 x 24
    every = plan(table, *short, "train.validate_every=10").config.train
    assert (every.rare_until, every.valid_part) == (0.0, None)
    rare = plan(table, *short, "train.rare_until=0.2").config.train
    assert (rare.rare_until, rare.valid_part) == (0.2, None)
    assert plan(table, *short, "train.valid_part=7").config.train.valid_part == 7
    write_config(tmp_path, plan(table, *short).config)
    assert plan(tmp_path / RECIPE).config.train == plan(table, *short).config.train
    with pytest.raises(ConfigError, match=r"^train.valid_part: translation always measures all validation data; leave"):
        planned("translation", tmp_path / "pairs", "train.valid_part=7")


def test_a_value_in_place_of_a_table_that_the_data_decides_is_a_mistake():
    with pytest.raises(ConfigError, match="model.head: 'null' must be a table"):
        fit_to_data({"head": "null"}, {"head": {"classes": 3}}, strict=True)


# --- memory and threads ----------------------------------------------------------------------------------------------


def test_a_model_that_cannot_fit_is_rejected_before_anything_is_allocated(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "available_memory", lambda: 10**9)
    rule = (
        r"^not enough memory: training needs at least \S+ [GT]B .*and this machine has 1 GB left; use a smaller --size"
    )
    with pytest.raises(RegardError, match=rule):
        plan(data("language", tmp_path), "model.dim=16384")
    monkeypatch.setattr(memory, "available_memory", lambda: 10**12)
    monkeypatch.setattr(memory, "free_memory", lambda device: 10**6)
    with pytest.raises(RegardError, match="and cpu has 1 MB left"):
        plan(data("language", tmp_path))


@pytest.mark.parametrize("kind", ["language", "masked", "classification", "translation", "vision"])
def test_updates_that_do_not_fit_are_split(tmp_path, monkeypatch, kind):
    whole = planned(kind, tmp_path)
    assert whole.config.model is not None
    model = build_empty(whole.config.model)
    state = bytes_of_state(sum(tensor.numel() * 4 for tensor in tensors(model).values()), whole.config.train)
    update = memory_of_update(model, whole.task)
    assert update is not None
    assert update.token > 4 * whole.config.model.dim
    assert whole.config.train.accumulate == 1
    tokens = min(whole.config.train.tokens, whole.task.amount().tokens)
    monkeypatch.setattr(memory, "available_memory", lambda: state + update.of(tokens / 3))
    found = planned(kind, tmp_path)
    assert found.config.train.accumulate == 4
    (warning,) = found.warnings
    assert "; it is split into 4 parts (train.accumulate), with the same result" in warning


def test_what_an_update_needs_once_is_not_counted_for_every_token(tmp_path):
    found = {}
    for share in (0.0, 0.5):
        change = f"model.layers.recurrent.mixer.weight_dropout={share}"
        run = planned("language", tmp_path, change, recipe="lstm")
        found[share] = memory_of_update(build_empty(run.config.model), run.task)
    assert found[0.5].token == found[0.0].token
    matrices = 4 * run.config.model.depth * 4 * run.config.model.dim**2  # bytes of what multiplies the state
    assert matrices <= found[0.5].once - found[0.0].once <= 4 * matrices


def test_an_update_that_runs_the_model_twice_needs_twice_the_memory(tmp_path):
    found = [planned("translation", tmp_path, f"task.r_drop={weight}") for weight in (0, 5)]
    once, twice = (memory_of_update(build_empty(run.config.model), run.task).token for run in found)
    assert twice == pytest.approx(2 * once, abs=1)


def test_the_memory_of_a_process_is_its_peak():
    before = peak_memory(torch.device("cpu"))
    torch.ones(before + 2**25, dtype=torch.uint8)
    assert peak_memory(torch.device("cpu")) > before + 2**25 or before == 0  # not known on every system


def test_threads_follow_the_free_cores_and_are_recorded(tmp_path, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)
    monkeypatch.setattr(planning, "suggest_threads", lambda: 3)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    first = planned("language", tmp_path)
    assert first.config.train.threads == 3
    assert first.sources["train.threads"].endswith("(choose_threads)")
    monkeypatch.setattr(planning, "suggest_threads", lambda: 5)
    (tmp_path / "again.toml").write_text(to_toml(first.config))
    assert plan(tmp_path / "again.toml").config.train.threads == 3
    assert planned("language", tmp_path, "train.threads=2").config.train.threads == 2
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    chosen = planned("language", tmp_path)
    assert (chosen.config.train.threads, chosen.sources["train.threads"]) == (8, "OMP_NUM_THREADS")
    monkeypatch.setenv("REGARD_FREE_CORES", "8")  # the command has set the variable
    found = planned("language", tmp_path)
    assert (found.config.train.threads, found.sources["train.threads"]) == (8, first.sources["train.threads"])


@pytest.mark.parametrize("change", ["train.kind=1", "train.validate_every=x", "train.validate_every=[]"])
def test_a_wrong_value_of_the_training_is_a_mistake_and_not_computed_with(tmp_path, change):
    with pytest.raises(ConfigError, match=r"^train\.\w+: "):
        planned("language", tmp_path, change)


def test_r_drop_is_suggested_for_little_data_on_an_accelerator(tmp_path: Path):
    little, much = grow(tmp_path / "a.txt", 50_000), grow(tmp_path / "b.txt", 13_000_000)
    assert config_of("translation", little, little).suggest_settings("cuda") == {"r_drop": 5.0}
    assert config_of("translation", little, little).suggest_settings("cpu") == {}
    assert config_of("translation", much, much).suggest_settings("cuda") == {}
