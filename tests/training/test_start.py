"""Starting a run: what the user says wins, contradictions are rejected, and a run can be repeated."""

import io
import tomllib
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file

import regard
from regard.config import to_table, to_toml
from regard.errors import ConfigError, InputError, RegardError
from regard.models.recipe import load_recipe
from regard.tasks.defaults import ADAM_RATE, REST_RATE
from regard.training import start, trial
from regard.training.optimizer import AdamWConfig, MuonConfig
from regard.training.ranks import Ranks
from regard.training.resumed_config import resumed_config
from regard.training.run import Run
from regard.training.schedule import CosineScheduleConfig, LinearScheduleConfig

from ..tasks.corpora import sentences, write
from .tiny import ALONE, make_trainer, plan, planned

TINY = ["model.dim=16", "model.depth=1", "model.layers.block.mixer.heads.heads=2"]
TINY += ["model.layers.block.feedforward.hidden=24"]
BRIEF = ["train.steps=3", "train.validate_every=3", "train.checkpoint_every=3", "train.log_every=1", "train.tokens=64"]
QUIET = Console(quiet=True)


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(start, "finish", lambda *arguments: None)  # drawing curves takes longer than training


@pytest.fixture
def text(tmp_path) -> dict[str, object]:
    return {"kind": "language", "train": [write(tmp_path / "a.txt", sentences(120))], "window": 16}


@pytest.fixture
def size(text) -> int:
    """The vocabulary of the text."""
    return plan(text).task.tokenizer.size


def recipe(text: dict[str, object], rest: str) -> Path:
    """Write a recipe for the text."""
    task = f'[task]\nkind = "language"\ntrain = ["{text["train"][0]}"]\nwindow = 16\n'
    Path("mine.toml").write_text(task + rest)
    return Path("mine.toml")


def test_the_memory_of_an_earlier_run_does_not_count(tmp_path, monkeypatch):
    """Otherwise a small model that is trained after a large one would not be captured."""
    found = planned("language", tmp_path)
    trainer, _ = make_trainer(found, tmp_path / "run")
    reset = []
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", reset.append)
    monkeypatch.setattr(torch, "set_float32_matmul_precision", lambda precision: None)
    monkeypatch.setattr(start, "Trainer", lambda *arguments: trainer)
    monkeypatch.setattr(found.task, "to", lambda device: None)
    for device in ("cuda", "cpu"):
        ranks = Ranks(0, 1, torch.device(device))
        start._trainer(trainer.run, found.task, trainer.model, ranks, trainer.progress, ())
    assert reset == [torch.device("cuda")]


def test_a_model_that_is_not_better_than_counting_is_told_so_loudly(text, capsys):
    regard.train(text, *TINY, *BRIEF, run="short", console=Console(width=200))
    out = capsys.readouterr().out
    found = [line for line in out.splitlines() if line.startswith("NOT BETTER than a simple model, ")]
    assert [line.partition(", ")[2].partition(":")[0] for line in found] == ["unigram", "bigram"]
    assert all("; train longer (train.steps)" in line for line in found)


# --- what is decided -------------------------------------------------------------------------------------------------


def test_everything_is_decided_from_the_data(text, size):
    found = plan(text)
    assert found.size == "tiny"
    assert to_table(found.config.model)["vocabulary"] == size
    assert found.config.tokenizer.kind == "char"
    assert found.config.train.steps >= 100
    assert found.config.task.window == 16


def test_what_the_user_says_wins(text):
    changes = ["train.steps=7", "tokenizer.kind=bpe", "tokenizer.vocabulary=270", "task.window=9"]
    found = plan(text, *changes, "model.layers.block.dropout=0.25", "model.dim=64", size="small")
    assert found.config.train.steps == 7
    assert found.config.tokenizer.vocabulary == 270
    assert found.config.task.window == 9
    assert found.config.model.dim == 64
    assert found.config.model.depth == 6  # the rest is that of the size
    assert found.config.model.layers["block"].dropout == 0.25
    assert found.size == "small"


def test_a_head_that_cannot_learn_the_task_is_a_mistake(text):
    with pytest.raises(ConfigError, match="model.head.kind: vector differs from the data, which has tokens; leave it"):
        plan({**text, "kind": "masked"}, "model.head.kind=vector")


def test_the_schedule_follows_the_given_steps(tmp_path):
    source = [write(tmp_path / "a.de", sentences(60))]
    table = {"kind": "translation", "source": source, "target": source}
    found = plan(table, "train.steps=40").config.train
    assert (found.steps, found.schedule.warmup, found.validate_every, found.checkpoint_every) == (40, 2, 10, 10)
    long = plan(table, "train.steps=2000").config.train
    assert (long.schedule.warmup, long.validate_every) == (100, 100)
    given = plan(table, "train.steps=40", "train.schedule.warmup=3", "train.validate_every=7").config.train
    assert (given.schedule.warmup, given.validate_every) == (3, 7)


def test_with_more_tokens_in_an_update_there_are_fewer_updates(text):
    few, many = (plan(text, f"train.tokens={tokens}").config.train for tokens in (64, 128))
    assert (few.tokens, many.tokens) == (64, 128)
    assert many.steps == pytest.approx(few.steps / 2, rel=0.01)
    recipes = plan(recipe(text, "[train]\ntokens = 128\n")).config.train
    assert recipes == many


def test_the_kind_of_an_optimizer_or_a_schedule_is_enough(text):
    usual, adam = (plan(text, *changes).config.train for changes in ((), ("train.optimizer.kind=adamw",)))
    assert isinstance(usual.optimizer, MuonConfig)
    assert adam.optimizer == AdamWConfig(rate=usual.optimizer.rest.rate * ADAM_RATE / REST_RATE, decay=0.05)
    assert (adam.steps, adam.tokens, adam.clip) == (usual.steps, usual.tokens, usual.clip)
    slow = plan(text, "train.optimizer.kind=adamw", "train.optimizer.rate=1e-4").config.train.optimizer
    assert slow == AdamWConfig(rate=1e-4, decay=0.05)
    cosine = plan(text, "train.schedule.kind=cosine", "train.steps=50").config.train
    assert (cosine.schedule, cosine.optimizer) == (CosineScheduleConfig(warmup=5), usual.optimizer)


def test_a_recipe_may_choose_only_the_kind_and_a_change_another(text):
    path = recipe(text, '[train]\noptimizer = { kind = "adamw" }\nschedule = { kind = "cosine", warmup = 7 }\n')
    found = plan(path).config.train
    assert found.optimizer == plan(text, "train.optimizer.kind=adamw").config.train.optimizer
    assert found.schedule == CosineScheduleConfig(warmup=7)
    changed = plan(path, "train.optimizer.kind=muon", "train.schedule.kind=linear", "train.steps=40").config.train
    assert changed.optimizer == plan(text).config.train.optimizer
    assert changed.schedule == LinearScheduleConfig(warmup=2, cooldown=0.6)


def test_a_run_can_be_repeated_with_another_optimizer(text):
    first = plan(text, "train.clip=none", "train.steps=40").config
    Path("again.toml").write_text(to_toml(first))
    again = plan("again.toml", "train.optimizer.kind=adamw").config.train
    assert again.optimizer == AdamWConfig(rate=first.train.optimizer.rest.rate * ADAM_RATE / REST_RATE, decay=0.05)
    assert again == replace(first.train, optimizer=again.optimizer)  # settings that were left out stay absent


def test_a_vocabulary_asks_for_pieces(text):
    found = plan(text, "tokenizer.vocabulary=270").config.tokenizer
    assert (found.kind, found.vocabulary) == ("bpe", 270)
    assert plan(recipe(text, "[tokenizer]\nvocabulary = 270\n")).config.tokenizer == found
    for kind in ("bpe", "word"):  # and the kind of pieces is enough, too
        assert plan(text, f"tokenizer.kind={kind}").config.tokenizer.vocabulary == 6000
    rule = "tokenizer.vocabulary: 400 is not for kind 'char', whose size the text decides; leave it out, or use "
    with pytest.raises(ConfigError, match=f"{rule}tokenizer.kind=bpe or word or space or unigram"):
        plan(text, "tokenizer.vocabulary=400", "tokenizer.kind=char")


def test_files_may_be_paths(text):
    assert plan(text | {"train": [Path(text["train"][0])]}).config == plan(text).config


def test_removing_a_default(text):
    path = recipe(text, "[train]\nclip = 0.5\n")
    assert plan(path).config.train.clip == 0.5
    with pytest.raises(ConfigError, match="train.clop: there is no 'clop' to remove; did you mean 'clip'"):
        plan(path, "train.clop=none")


@pytest.mark.parametrize("key", ["valid_part", "ema", "threads", "clip"])
def test_an_optional_key_can_be_left_out_whether_it_is_there_or_not(text, key):
    assert getattr(plan(text, f"train.{key}=none").config.train, key) is None
    run = regard.train(text, *BRIEF, *TINY, run="run", console=QUIET)
    more = ("train.steps=4", f"train.{key}=none")
    regard.resume(run.folder, *more, console=QUIET)
    assert getattr(regard.open_run("run").config.train, key) is None


def test_a_recipe_may_set_most_values(text):
    rest = 'about = "mine"\n[train]\nsteps = 9\nseed = 3\n[tokenizer]\nkind = "byte"\n'
    path = recipe(text, rest)
    path.write_text('about = "mine"\n' + path.read_text().replace('about = "mine"\n', ""))
    found = plan(path, "train.steps=11").config
    assert (found.about, found.train.steps, found.train.seed, found.tokenizer.kind) == ("mine", 11, 3, "byte")


def test_a_part_of_a_model_is_laid_over_the_tasks_own(text, size):
    found = plan(recipe(text, "[model]\ndepth = 2\nembed = { dropout = 0.3 }\n"))
    assert found.size == "tiny"
    assert found.config.model.depth == 2
    assert found.config.model.embed.dropout == 0.3
    assert found.config.model.vocabulary == size
    own = plan(text).config.model
    assert found.config.model.layers == own.layers
    assert found.config.model.dim == own.dim


def test_another_architecture_is_fitted_to_the_data(text, size):
    found = plan(text, recipe="lstm")
    assert found.size is None
    assert found.config.model.vocabulary == size
    assert found.config.model.dim == load_recipe("lstm").model.dim
    assert to_table(found.config.model)["layers"]["recurrent"]["mixer"]["kind"] == "lstm"


def test_a_recipe_of_ones_own_may_be_the_architecture(text, size):
    Path("small.toml").write_text('like = "lstm"\n[model]\ndim = 24\n')
    found = plan(text, recipe="small.toml")
    assert (found.config.model.dim, found.config.model.vocabulary) == (24, size)
    found = plan(recipe(text, "[model]\ndepth = 1\n"), recipe="small.toml")  # with a change of it
    assert (found.config.model.dim, found.config.model.depth) == (24, 1)


def test_what_a_recipe_inherits_gives_way_to_the_data(text, size, tmp_path):
    """What it says itself must agree with the data."""
    table = f'like = "lstm"\n[task]\nkind = "language"\ntrain = ["{text["train"][0]}"]\n[model]\ndim = 24\n'
    Path("mine.toml").write_text(table)
    found = plan("mine.toml")
    assert (found.config.model.dim, found.config.model.vocabulary) == (24, size)
    assert to_table(found.config.model)["layers"]["recurrent"]["mixer"]["kind"] == "lstm"
    Path("mine.toml").write_text(f"{table}vocabulary = 7\n")
    with pytest.raises(ConfigError, match="model.vocabulary: 7 differs from the data"):
        plan("mine.toml")


def test_patches_of_the_recipe_stay(tmp_path):
    np.savez(tmp_path / "a.npz", x_train=np.zeros((30, 12, 20), np.uint8), y_train=np.arange(30) % 3)
    table = f'like = "vit"\n[task]\nkind = "vision"\ntrain = "{tmp_path / "a.npz"}"\n[model.patches]\npatch = 2\n'
    (tmp_path / "mine.toml").write_text(f"{table}[model.position]\nlength = 61\n")
    model = plan(tmp_path / "mine.toml").config.model
    assert (model.patches.patch, model.patches.height, model.position.length) == (2, 12, 61)


def test_an_encoder_gets_a_head_for_the_classes(tmp_path):
    rows = [f"{text}\t{text.split()[0]}" for text in sentences(100)]
    table = write(tmp_path / "a.tsv", ["text\tlabel", *rows])
    found = plan({"kind": "classification", "train": [table]}, recipe="bert")
    head = to_table(found.config.model)["head"]
    assert (head["kind"], head["classes"]) == ("classes", 10)
    assert found.config.task.classes == tuple(sorted({row.split("\t")[1] for row in rows}))


def test_images_get_patches_that_fit(tmp_path):
    np.savez(tmp_path / "a.npz", x_train=np.zeros((30, 12, 20), np.uint8), y_train=np.arange(30) % 3)
    found = plan({"kind": "vision", "train": str(tmp_path / "a.npz")})
    patches = found.config.model.patches
    assert (patches.height, patches.width, patches.channels) == (12, 20, 1)
    assert found.config.model.head.classes == 3
    assert found.config.tokenizer is None


# --- contradictions --------------------------------------------------------------------------------------------------

WHOLE = """[model]
kind = "language"
vocabulary = {vocabulary}
dim = 16
depth = 1
layers.block = {{ residual = "plain", mixer = {{ kind = "gru" }} }}
"""


def test_a_whole_model_is_taken_as_it_is(text, size):
    found = plan(recipe(text, WHOLE.format(vocabulary=size)))
    assert found.size is None
    assert found.config.model.dim == 16


def test_the_vocabulary_must_be_that_of_the_tokenizer(text, size):
    rule = f"model.vocabulary: 999 differs from the data, which has {size}; leave it out"
    with pytest.raises(ConfigError, match=rule):
        plan(recipe(text, WHOLE.format(vocabulary=999)))
    with pytest.raises(ConfigError, match=rule):
        plan(text, "model.vocabulary=999")
    with pytest.raises(ConfigError, match=rule):
        plan(recipe(text, "[model]\nvocabulary = 999\n"))  # a part of a model, laid over the task's own
    assert plan(text, f"model.vocabulary={size}").config.model.vocabulary == size


def test_only_one_may_decide_the_model(text, size):
    path = recipe(text, WHOLE.format(vocabulary=size))
    with pytest.raises(ConfigError, match="--recipe and the recipe's .model. each decide the model; give one of them"):
        plan(path, recipe="lstm")
    with pytest.raises(ConfigError, match="--init-from and --size each decide the model; give one of them"):
        plan(text, init_from="somewhere", size="tiny")
    with pytest.raises(ConfigError, match="--recipe and --init-from each decide the model; give one of them"):
        plan(text, recipe="lstm", init_from="somewhere")


def test_a_model_of_the_wrong_kind(text):
    rule = "model.kind: a model of the kind 'vision' cannot be trained for language; recipes that can: .*gpt2.*writer"
    with pytest.raises(ConfigError, match=rule):
        plan(text, recipe="vit")
    with pytest.raises(ConfigError, match="model.kind: a model of the kind 'encoder' cannot be trained for language"):
        plan(text, "model.kind=encoder")
    with pytest.raises(ConfigError, match="model.kind: a model of the kind 'lnguage' cannot be trained for language"):
        plan(recipe(text, WHOLE.format(vocabulary=9).replace('"language"', '"lnguage"')))


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ("stpes=3", "override 'stpes=3' must have the form table.key=value; tables: task, tokenizer, model, train"),
        ("steps=3", "override 'steps=3' must have the form table.key=value; did you mean train.steps=3?"),
        ("dim=64", "override 'dim=64' must have the form table.key=value; did you mean model.dim=64?"),
        ("window=8", "override 'window=8' must have the form table.key=value; did you mean task.window=8?"),
        ("train.steps", "override 'train.steps' must have the form table.key=value; tables: "),
        ("trian.steps=3", "override 'trian.steps=3' must have the form table.key=value; tables: "),
        ("train.stpes=3", "train.stpes: unknown key; did you mean 'steps'"),
        ("train.steps=0", "train.steps: 0 must be at least 1"),
        ("train.steps=-5", "^train.steps: -5 must be at least 1$"),
        ("train.tokens=-5", "^train.tokens: -5 must be at least 1$"),
        (
            "train.optimizer=adamw",
            'train.optimizer: "adamw" must be a table; write .kind=adamw instead of =adamw',
        ),
        ("train.steps=many", 'train.steps: "many" must be a whole number'),
        ("train.seed=-1", "train.seed: -1 must be between 0 and "),
        ("train.seed=x", 'train.seed: "x" must be a whole number'),
        ("train=3", "override 'train=3' must have the form table.key=value; tables: "),
        ("task=none", "override 'task=none' must have the form table.key=value; tables: "),
        ("task.widnow=3", "task.widnow: unknown key; did you mean 'window'"),
        ("task.train=5", "task.train: 5 must be a list, each text"),
        ("task.kind=lnguage", "task.kind: 'lnguage' is not a known task; did you mean 'language'"),
        ("model.layers.block.mixer.kind={}", "model.layers.block.mixer.kind: "),
        ("tokenizer.kind=bpee", 'tokenizer.kind: "bpee" is unknown; did you mean .bpe.'),
        ("tokenizer.vocabluary=9", "tokenizer.vocabluary: unknown key; did you mean 'vocabulary'"),
        ("model.dpeth=3", "model.dpeth: unknown key; did you mean 'depth'"),
        ("model.depth=0", "model.depth: 0 must be between 1 and 4096"),
        ("model.layers.block.mixer.heads.heads=7", "heads=7"),
    ],
)
def test_wrong_overrides(text, change: str, rule: str):
    with pytest.raises(ConfigError, match=rule):
        plan(text, change)


@pytest.mark.parametrize(
    ("rest", "rule"),
    [
        ("[trian]\nsteps = 3\n", "trian: unknown key; did you mean 'train'"),
        ("[model]\nvocabulry = 3\n", "model.vocabulry: unknown key; did you mean 'vocabulary'"),
        ("[train]\nsteps = 3\noptimizer = 3\n", "train.optimizer: 3 must be a table"),
    ],
)
def test_wrong_recipes(text, rest: str, rule: str):
    with pytest.raises(ConfigError, match=rule):
        plan(recipe(text, rest))


def test_wrong_types(text):
    with pytest.raises(ConfigError, match="3 is not a task: give its table, such as .*, or the path of a recipe"):
        plan(3)
    with pytest.raises(ConfigError, match="'languge' is neither a task nor a recipe; did you mean the task 'language'"):
        plan("languge")
    with pytest.raises(ConfigError, match="'x' is neither a task nor a recipe; tasks: translation, language, masked"):
        plan("x")
    with pytest.raises(ConfigError, match="override 5 must be text of the form table.key=value"):
        plan(text, 5)


def test_a_value_where_a_table_belongs(text):
    for name in ("tokenizer", "model", "train"):
        path = recipe(text, "")
        path.write_text(f"{name} = 3\n" + path.read_text())
        with pytest.raises(ConfigError, match=f"{name}: 3 must be a table"):
            plan(path)
    Path("none.toml").write_text('task = "language"\n')
    with pytest.raises(ConfigError, match="task: 'language' must be a table"):
        plan("none.toml")


def test_a_recipe_without_a_task():
    with pytest.raises(ConfigError, match="gpt2: has no .task. table; add it, or name .* --recipe gpt2`; tasks: tran"):
        plan("gpt2")
    Path("bare.toml").write_text('about = "nothing"\n')
    with pytest.raises(ConfigError, match="model: missing; must be a table"):
        plan({"kind": "language", "train": [write(Path("b.txt"), sentences(90))], "window": 9}, recipe="bare.toml")


# --- runs ------------------------------------------------------------------------------------------------------------


def first_loss(run: Run) -> float:
    return next(record["loss"] for record in run.metrics if record["kind"] == "train")


def test_a_run_can_be_repeated_from_its_own_recipe(text):
    first = regard.train(text, *BRIEF, *TINY, "train.seed=5", run="one", console=QUIET)
    again = regard.train("one/recipe.toml", run="two", console=QUIET)
    assert again.config == first.config
    assert first_loss(again) == first_loss(first)
    assert Path("two/recipe.toml").read_bytes() == Path("one/recipe.toml").read_bytes()
    one, two = load_file("one/model.safetensors"), load_file("two/model.safetensors")
    assert all(torch.equal(one[name], two[name]) for name in one)
    other = regard.train("one/recipe.toml", "train.seed=6", run="three", console=QUIET)
    assert first_loss(other) != first_loss(first)


def test_a_task_by_its_name_and_files_as_on_the_command_line(text):
    (file,) = text["train"]
    small = ["task.window=16", *BRIEF, *TINY]
    found = regard.train("language", file, *small, valid=Path(file), run="one", console=QUIET)
    table = {**text, "valid": [file]}
    assert found.config == regard.train(table, *BRIEF, *TINY, run="two", console=QUIET).config
    with pytest.raises(ConfigError, match=r"language needs files to train on: regard.train\('language', FILE, ...\)"):
        regard.train("language", *small, console=QUIET)
    with pytest.raises(ConfigError, match="--valid belongs to the files of a task; here, write them into the table"):
        regard.train(text, *small, valid=[file], console=QUIET)
    with pytest.raises(ConfigError, match=r"language needs files to train on"):
        regard.train("language", *small, valid=None, console=QUIET)


@pytest.mark.unchecked  # the checker of signatures would reject the number first
def test_an_argument_that_is_not_text_is_a_mistake(text):
    for given in (list(text["train"]), tuple(text["train"])):
        with pytest.raises(ConfigError, match=r"must be one file; put a star .*: regard.train\('language', \*files\)"):
            regard.train("language", given, console=QUIET)
    with pytest.raises(ConfigError, match="override 5 must be text"):
        regard.train("language", *text["train"], 5, console=QUIET)
    with pytest.raises(InputError, match="valid=5 must be a path, or a list of paths"):
        regard.train("language", *text["train"], valid=5, console=QUIET)
    regard.train(text, *BRIEF, *TINY, run="one", console=QUIET)
    with pytest.raises(ConfigError, match=r"5: a resumed run keeps its data, .*; only train.\* can change"):
        regard.resume("one", 5, console=QUIET)


def test_a_cell_of_a_notebook_replaces_only_the_run_that_it_made(text, monkeypatch):
    cell = ["a", "1"]
    monkeypatch.setattr(start, "running_cell", lambda: tuple(cell))
    first = regard.train(text, *BRIEF, *TINY, "train.seed=5", run="one", console=QUIET)
    cell[1] = "2"  # the same cell again
    second = regard.train(text, *BRIEF, *TINY, "train.seed=6", run="one", console=QUIET)
    assert (first.config.train.seed, regard.open_run("one").config.train.seed) == (5, 6)
    cell[0] = "b"
    with pytest.raises(RegardError, match="one: .*replace it with overwrite=True"):
        regard.train(text, *BRIEF, *TINY, run="one", console=QUIET)
    shown = second._repr_html_()
    assert "<svg" in shown
    for part in ("one", "language", "3 of 3", "perplexity"):
        assert part in shown


def test_a_recipe_finds_its_tokenizer_from_any_folder(text, tmp_path, monkeypatch):
    regard.train(text, *BRIEF, *TINY, run="one", console=QUIET)
    found = plan(text, "tokenizer.path=one/tokenizer.json").config
    Path("again.toml").write_text(to_toml(found))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert plan("../again.toml").config == found


def test_a_removed_default_stays_removed_when_a_run_is_repeated(tmp_path):
    source = [write(tmp_path / "a.de", sentences(60))]
    table = {"kind": "translation", "source": source, "target": source}
    assert plan(table).config.train.patience is not None
    without = plan(table, "train.patience=none", "train.tokens=100").config
    assert without.train.patience is None
    Path("again.toml").write_text(to_toml(without))
    assert plan("again.toml").config == without


def test_the_recipe_of_a_run_describes_its_model(text):
    run = regard.train(text, *BRIEF, *TINY, run="one", console=QUIET)
    assert {"task", "tokenizer", "model", "train"} <= set(tomllib.loads(Path("one/recipe.toml").read_text()))
    loaded = load_recipe("one/recipe.toml")
    assert loaded.model == run.config.model == run.model().config
    assert load_recipe("one/recipe.toml", "model.depth=3").model.depth == 3
    with pytest.raises(ConfigError, match="train: unknown key"):
        load_recipe("one/recipe.toml", "train.steps=3")  # a setting of training does not belong to the model


def test_a_free_folder_is_chosen_and_never_used_twice(text):
    first = regard.train(text, *BRIEF, *TINY, console=QUIET)
    second = regard.train(text, *BRIEF, *TINY, console=QUIET)
    assert (first.folder, second.folder) == (Path("runs/language-1"), Path("runs/language-2"))
    assert str(first) == f"Run(folder={first.folder!r})"
    with pytest.raises(RegardError, match="runs/language-1: already holds a run; continue it with regard.resume"):
        regard.train(text, *BRIEF, *TINY, run=first.folder, console=QUIET)


def test_a_used_folder_is_rejected_before_the_data_is_read(text):
    regard.train(text, *BRIEF, *TINY, run="one", console=QUIET)
    with pytest.raises(RegardError, match="one: already holds a run"):
        regard.train(text | {"train": ["missing.txt"]}, run="one", console=QUIET)


@pytest.mark.parametrize("count", ["TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT"])
def test_a_command_that_is_started_again_continues_its_run(text, monkeypatch, count):
    """As torchrun and Slurm do when a process was lost: the same command, with a count of restarts."""
    command = (text, *BRIEF, *TINY)
    monkeypatch.setenv(count, "1")
    first = regard.train(*command, run="one", overwrite=True, console=QUIET)  # there is no checkpoint yet
    wanted = load_file("one/model.safetensors")
    console = Console(record=True, width=200, file=io.StringIO())
    again = regard.train(*command, run="one", overwrite=True, console=console)  # nothing is overwritten
    assert again.folder == first.folder
    assert "training ended at step 3" in console.export_text()
    torch.testing.assert_close(load_file("one/model.safetensors"), wanted, rtol=0, atol=0)
    monkeypatch.setenv(count, "0")
    with pytest.raises(RegardError, match="one: already holds a run"):
        regard.train(*command, run="one", console=QUIET)


def test_starting_from_another_model(text, tmp_path):
    first = regard.train(text, *BRIEF, *TINY, run="one", console=QUIET)
    other = text | {"train": [write(tmp_path / "b.txt", sentences(80, seed=7))]}
    found = plan(other, init_from="one")
    assert found.config.model == first.config.model
    assert found.config.tokenizer.path == str(Path("one").absolute())
    still = ["train.optimizer.kind=adamw", "train.optimizer.rate=1e-9", "train.optimizer.decay=0.0"]
    second = regard.train(other, *BRIEF, *still, init_from="one", run="two", console=QUIET)
    one, two = load_file("one/model.safetensors"), load_file("two/model.safetensors")
    assert all(torch.allclose(one[name], two[name], atol=1e-6) for name in one)
    assert second.tokenizer().fingerprint() == first.tokenizer().fingerprint()


def test_vectors_of_other_tokens_are_not_taken(text, tmp_path):
    """A tokenizer of the same size that was learned from another text gives the ids to other tokens."""
    settings = [*TINY, "tokenizer.kind=bpe", "tokenizer.vocabulary=270"]
    regard.train(text, *BRIEF, *settings, run="one", console=QUIET)
    other = text | {"train": [write(tmp_path / "b.txt", ["zebras zoom past quickly"] * 60)]}
    regard.train(other, *BRIEF, *settings, run="other", console=QUIET)
    console = Console(record=True, width=300, file=io.StringIO())
    still = ["train.optimizer.kind=adamw", "train.optimizer.rate=1e-9", "train.optimizer.decay=0.0"]
    regard.train(other, *BRIEF, *still, "tokenizer.path=other", init_from="one", run="two", console=console)
    assert "its tokens are not those of" in console.export_text()
    one, two = load_file("one/model.safetensors"), load_file("two/model.safetensors")
    assert {one[name].shape == tensor.shape for name, tensor in two.items()} == {True}
    changed = {name for name, tensor in two.items() if not torch.allclose(tensor, one[name], atol=1e-6)}
    assert changed
    assert all("embed" in name or "head" in name for name in changed)


def test_a_model_that_has_nothing_in_common(text):
    regard.train(text, *BRIEF, *TINY, run="one", console=QUIET)
    whole = WHOLE.format(vocabulary=plan(text).task.tokenizer.size).replace("dim = 16", "dim = 20")
    with pytest.raises(
        RegardError, match="one: none of its weights fits this model; --init-from needs a similar model"
    ):
        regard.train(recipe(text, whole), *BRIEF, init_from="one", run="two", console=QUIET)


def test_updates_that_take_long_are_tried_once(text, monkeypatch):
    clock = count(0.0, 30.0)  # half a minute passes between two readings
    monkeypatch.setattr(trial, "time", SimpleNamespace(perf_counter=clock.__next__))
    found = plan(text, *BRIEF, *TINY)
    assert trial.time_updates(found.config, found.task, ALONE).seconds == 30
    assert next(clock) == 60  # one update, with a reading before and after it


def test_the_time_of_an_update_is_measured_after_compiling(text, monkeypatch):
    """The first update takes a minute, since it compiles; the others take 20 ms."""
    readings = iter([0.0, 60.0] + [60 + 0.02 * (number // 2) for number in range(1, 99)])
    monkeypatch.setattr(trial, "time", SimpleNamespace(perf_counter=readings.__next__))
    monkeypatch.setattr(torch, "compile", lambda model, **options: model)
    found = plan(text, *BRIEF, *TINY, "train.compile=always")
    measured = trial.time_updates(found.config, found.task, ALONE)
    assert measured.seconds == pytest.approx(0.02)
    assert measured.compiling == pytest.approx(60 - 0.02)


# --- resuming --------------------------------------------------------------------------------------------------------


def test_values_derived_from_the_steps_follow_them_when_a_run_is_resumed(text):
    config = plan(text, "train.steps=400").config
    longer = resumed_config(config, ["train.steps=2000"]).train
    assert longer == plan(text, "train.steps=2000").config.train
    given = resumed_config(config, ["train.steps=2000", "train.validate_every=7"]).train
    assert (given.validate_every, given.checkpoint_every, given.rare_until) == (7, 100, 0.0)
    own = plan(text, "train.steps=400", "train.validate_every=33", "train.schedule.warmup=3").config
    kept = resumed_config(own, ["train.steps=2000"]).train
    assert (kept.validate_every, kept.checkpoint_every, kept.schedule.warmup) == (33, 100, 3)
    with pytest.raises(ConfigError, match="'train.minutes=3': a resumed run counts updates; ask for more with train"):
        resumed_config(config, ["train.minutes=3"])
