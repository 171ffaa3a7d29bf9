"""Modules, callbacks and tasks of one's own."""

from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file
from torch import nn

import regard
from regard.errors import ConfigError, RegardError
from regard.tasks.kinds import TASKS
from regard.tasks.language import LanguageTaskConfig
from regard.training import start
from regard.training.optimizer import AdamWConfig

from .tiny import data, plan, training

QUIET = Console(quiet=True)


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(start, "finish", lambda *arguments: None)


class Bag(nn.Module):
    """The mean of the token vectors, then scores: of the next token, or of classes."""

    def __init__(self, tokens: int, scores: int, over_row: bool) -> None:
        super().__init__()
        self.table = nn.Embedding(tokens, 12)
        self.score = nn.Linear(12, scores)
        self.over_row = over_row
        self.register_buffer("used", torch.ones(3, dtype=torch.bool))  # weights of any type are read back

    def forward(self, tokens, lengths=None):
        x = self.table(tokens)
        return self.score(x.mean(1) if self.over_row else x)


def sizes(kind: str) -> tuple[int, int]:
    """Tokens and scores of a model for the tiny data of a task."""
    needs = plan(data(kind, Path("data"))).task.needs()
    return needs["vocabulary"], needs.get("head", {}).get("classes", needs["vocabulary"])


@pytest.mark.parametrize("kind", ["language", "masked", "classification"])
def test_a_module_of_ones_own_is_trained_and_its_weights_are_kept(kind: str):
    torch.manual_seed(0)
    module = Bag(*sizes(kind), over_row=kind == "classification")
    before = module.score.weight.detach().clone()
    run = regard.train(data(kind, Path("data")), *training(12), model=module, run="run", console=QUIET)
    assert not torch.equal(module.score.weight, before)
    assert load_file("run/model.safetensors").keys() == module.state_dict().keys()
    assert run.config.model is None
    assert regard.open_run("run").config == run.config
    with pytest.raises(RegardError, match="run: was trained with a module of your own; read its weights with module"):
        run.model()


def test_its_run_can_be_resumed_with_the_module():
    table = data("language", Path("data"))
    torch.manual_seed(0)
    whole = Bag(*sizes("language"), over_row=False)
    start_weights = {name: tensor.clone() for name, tensor in whole.state_dict().items()}
    regard.train(table, *training(12), model=whole, run="whole", console=QUIET)
    part = Bag(*sizes("language"), over_row=False)
    part.load_state_dict(start_weights)
    fixed = ["train.schedule.kind=inverse-sqrt", "train.schedule.warmup=1"]  # which does not depend on the last step
    regard.train(table, *training(6), *fixed, model=part, run="part", console=QUIET)
    with pytest.raises(RegardError, match="part: was trained with a module of your own; give it again: regard.resume"):
        regard.resume("part", console=QUIET)
    regard.resume("part", "train.steps=12", model=Bag(*sizes("language"), over_row=False), console=QUIET)
    assert [record["step"] for record in regard.open_run("part").metrics if record["kind"] == "valid"] == [4, 6, 8, 12]


def test_a_model_that_was_built_keeps_its_config_and_its_weights():
    tokens, _ = sizes("language")
    changes = ["model.dim=16", "model.depth=1", "model.layers.block.mixer.heads.heads=2"]
    model = regard.build("writer", *changes, f"model.vocabulary={tokens}")
    first = model.embed.tokens.table.weight.detach().clone()
    slow = ["train.optimizer.kind=adamw", "train.optimizer.rate=1e-9", "train.optimizer.decay=0.0"]
    run = regard.train(data("language", Path("data")), *training(4), *slow, model=model, run="run", console=QUIET)
    assert run.config.model == model.config
    torch.testing.assert_close(run.model().embed.tokens.table.weight, first, atol=1e-6, rtol=0)
    other = regard.build("writer", *changes, "model.vocabulary=7")
    rule = f"model.vocabulary: 7 differs from the data, which has {tokens}; build the model with this value"
    with pytest.raises(ConfigError, match=rule):
        regard.train(data("language", Path("data")), model=other, console=QUIET)


@pytest.mark.parametrize("built", [True, False])
def test_a_compiled_module_is_saved_by_the_names_of_the_module_itself(built: bool):
    tokens, scores = sizes("language")
    changes = ["model.dim=16", "model.depth=1", "model.layers.block.mixer.heads.heads=2", f"model.vocabulary={tokens}"]
    module = regard.build("writer", *changes) if built else Bag(tokens, scores, over_row=False)
    compiled = torch.compile(module, backend="eager")
    run = regard.train(data("language", Path("data")), *training(4), model=compiled, run="run", console=QUIET)
    assert load_file("run/model.safetensors").keys() == module.state_dict().keys()
    assert not built or run.model().config == module.config
    run = regard.resume("run", "train.steps=6", model=None if built else compiled, console=QUIET)
    assert run.metrics[-1]["step"] == 6


def test_a_part_that_was_replaced_by_hand_is_found_before_the_training():
    """As for LoRA; without its config it is a module of one's own."""
    tokens, _ = sizes("language")
    changes = ["model.dim=16", "model.depth=1", "model.layers.block.mixer.heads.heads=2"]
    model = regard.build("writer", *changes, f"model.vocabulary={tokens}")
    heads = model.stack.layers[0].mixer.heads
    heads.to_query = nn.Sequential(nn.Linear(16, 2), nn.Linear(2, 16))
    table, rule = data("language", Path("data")), "is not what the config describes: .*, or set its config to None"
    with pytest.raises(ConfigError, match=f"model: stack.layers.0.mixer.heads.to_query.* {rule}"):
        regard.train(table, *training(4), model=model, run="run", console=QUIET)
    assert not Path("run").exists()
    model.config = None
    regard.train(table, *training(4), model=model, run="run", console=QUIET)
    assert load_file("run/model.safetensors").keys() == model.state_dict().keys()


def test_a_module_that_cannot_be_trained_says_what_it_lacks():
    with pytest.raises(ConfigError, match="model: Bag has no begin and no step and no longest; translation needs a"):
        regard.train(data("translation", Path("data")), model=Bag(9, 9, over_row=False), console=QUIET)
    for options in ({"recipe": "gpt2"}, {"size": "tiny"}, {"init_from": "somewhere"}):
        with pytest.raises(ConfigError, match="model=... is trained as it is; leave .*=... out"):
            regard.train(data("language", Path("data")), model=Bag(9, 9, over_row=False), console=QUIET, **options)
    frozen = Bag(9, 9, over_row=False).requires_grad_(False)
    with pytest.raises(ConfigError, match="model: no parameter of this module learns; set requires_grad"):
        regard.train(data("language", Path("data")), model=frozen, console=QUIET)


def test_callbacks_see_updates_and_validations():
    seen = []

    class Seen:
        def on_update(self, step, metrics):
            seen.append(("update", step, metrics["loss"]))

        def on_validation(self, step, metrics):
            seen.append(("validation", step, metrics["loss"]))

    class Validations:
        def on_validation(self, step, metrics):
            assert "perplexity" in metrics

    tiny = ["model.dim=16", "model.depth=1"]
    table = data("language", Path("data"))
    run = regard.train(table, *tiny, *training(8), run="run", callbacks=[Seen(), Validations()], console=QUIET)
    assert [entry[:2] for entry in seen] == [("validation", 4), ("update", 5), ("update", 8), ("validation", 8)]
    logged = [(record["step"], record["loss"]) for record in run.metrics if record["kind"] == "train"]
    assert logged == [(step, loss) for kind, step, loss in seen if kind == "update"]
    with pytest.raises(RegardError, match="callback 3 has none of the methods on_update, on_validation; give it one"):
        regard.train(table, callbacks=[3], console=QUIET)
    with pytest.raises(RegardError, match="callbacks=None must be a list of objects; put one into brackets"):
        regard.train(table, callbacks=None, console=QUIET)
    with pytest.raises(RegardError, match=r"callback <class .*Seen'> is a class; give an object of it: Seen\(...\)"):
        regard.train(table, callbacks=[Seen], console=QUIET)


def test_callbacks_may_come_from_a_generator():
    seen = []

    class Seen:
        def on_update(self, step, metrics):
            seen.append(step)

    table = data("language", Path("data"))
    one = (callback for callback in [Seen()])
    regard.train(table, "model.dim=16", "model.depth=1", *training(4), callbacks=one, console=QUIET)
    assert seen[-1] == 4


def test_a_task_of_ones_own_has_its_own_defaults():
    @regard.register("task", "slow-language")
    @dataclass(frozen=True, kw_only=True)
    class SlowLanguageConfig(LanguageTaskConfig):
        """Language modelling with AdamW."""

        passes = 2

        def suggest_optimizer_kind(self, pretrained: bool) -> str:
            return "adamw"

    try:
        table = SlowLanguageConfig.from_files([data("language", Path("data"))["train"][0]], [])
        found = plan({"kind": "slow-language", "window": 8, **table})
        assert isinstance(found.config.train.optimizer, AdamWConfig)
        assert found.sources["train.optimizer.kind"] == "task slow-language (LanguageTaskConfig.suggest_optimizer)"
    finally:
        TASKS._items.pop("slow-language")
