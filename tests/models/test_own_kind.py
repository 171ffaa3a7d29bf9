"""A kind of model that the package does not know: a class, its config, one registration and a recipe are enough.

Two stacks read the same tokens side by side, and their sum predicts the next one. It is built, counted, trained, saved,
read back, used and recorded like any other model.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from torch import Tensor

import regard
from regard.config import Count
from regard.models.head import Logits, LogitsConfig
from regard.models.init import InitConfig, NormalConfig
from regard.models.introspection import AttentionRole, ModelSequence, stack_attentions, stack_taps
from regard.models.model import ModelConfig, StepModel, no_tokens_seen
from regard.models.recipe import MODELS
from regard.models.stack import Stack, StackConfig
from regard.models.template import SpecialTokens, Template, unwritable
from regard.parts.embed import EmbedConfig, Embedding
from regard.parts.mask import Causal, Documents, document_positions, padded_positions
from regard.parts.pool import Mean
from regard.parts.state import State, Step
from regard.viewer.query import Query
from regard.viewer.record import record
from tests.training.tiny import data, training


class TwinModel(StepModel):
    """logits_t = W_u (left(embed(x_1 .. x_t)) + right(embed(x_1 .. x_t)))."""

    description = "a twin language model"
    verbs = ("generate", "embed")
    task = "language"

    def __init__(self, embed: Embedding, left: Stack, right: Stack, head: Logits) -> None:
        super().__init__()
        self.embed, self.left, self.right, self.head = embed, left, right, head

    def forward(self, tokens: Tensor, *, documents: Tensor | None = None, state: State | None = None) -> Tensor:
        if state is not None:
            return self.logits(self.decode(tokens, state.advance(tokens)))
        if documents is None:
            return self.logits(self.decode(tokens, Step(Causal())))
        return self.logits(self.decode(tokens, Step(Causal() & Documents(documents), document_positions(documents))))

    def decode(self, tokens: Tensor, step: Step) -> Tensor:
        x, half = self.embed(tokens, step.positions), len(self.left.layers)
        left, right = (None, None) if step.layers is None else (step.layers[:half], step.layers[half:])
        return self.left(x, mask=step.mask, positions=step.positions, state=left) + self.right(
            x, mask=step.mask, positions=step.positions, state=right
        )

    def begin(
        self,
        tokens: Tensor,
        source: Tensor | None = None,
        source_lengths: Tensor | None = None,
        capacity: int | None = None,
    ) -> State:
        layers = [*self.left.start(len(tokens), capacity), *self.right.start(len(tokens), capacity)]
        return State(layers, no_tokens_seen(len(tokens), tokens.device), self.longest())

    def template(self, tokenizer: SpecialTokens) -> Template:
        return Template((tokenizer.end,), never=unwritable(tokenizer))

    def sequences(self) -> dict[str, ModelSequence]:
        return {"tokens": ModelSequence(stack_taps(self.left), self.embed.tokens.table.num_embeddings)}

    def attentions(self) -> list[AttentionRole]:
        left = stack_attentions(self.left, "left", "self", "tokens")
        right = stack_attentions(self.right, "right", "self", "tokens")
        return [*left, *(role._replace(layer=role.layer + len(left)) for role in right)]

    def embed_rows(self, **inputs: Tensor) -> Tensor:
        tokens = inputs["tokens"]
        return Mean()(self.decode(tokens, Step(Causal())), padded_positions(inputs.get("lengths"), tokens.shape[1]))


@dataclass(frozen=True, kw_only=True)
class TwinConfig(ModelConfig):
    """Two stacks side by side."""

    tasks: ClassVar[tuple[str, ...]] = ("language",)

    vocabulary: Count
    dim: Count
    left: StackConfig
    right: StackConfig
    embed: EmbedConfig = field(default_factory=EmbedConfig)
    head: LogitsConfig = field(default_factory=LogitsConfig)
    init: InitConfig = field(default_factory=NormalConfig)

    def build(self) -> TwinModel:
        embed = self.embed.build(self.vocabulary, self.dim)
        stacks = self.left.build_stack(self.dim), self.right.build_stack(self.dim)
        return TwinModel(embed, *stacks, self.head.build(self.dim, embed.tokens))


RECIPE = """
about = "Two stacks side by side"

[model]
kind = "twin"
vocabulary = 23
dim = 16

[model.left]
depth = 2

[model.left.layers.block]
mixer = { kind = "attention", heads = { kind = "multi", heads = 2 }, position = { kind = "rope" } }
feedforward = { kind = "mlp", hidden = 32 }
norm = { kind = "layer" }

[model.right]
depth = 1

[model.right.layers.block]
mixer = { kind = "attention", heads = { kind = "multi", heads = 4 }, position = { kind = "rope" }, window = 4 }
norm = { kind = "layer" }
"""


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    before = dict(MODELS._items.maps[0])
    regard.register("model", "twin")(TwinConfig)
    yield
    MODELS._items.maps[0] = before


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "twin.toml"
    path.write_text(RECIPE, encoding="utf-8")
    return path


def test_it_is_built_and_counted(recipe: Path) -> None:
    model = regard.build(recipe, seed=0)
    assert isinstance(model, TwinModel)
    assert model.packs_documents
    found = regard.cost(model, 8)
    assert found.parameters == sum(parameter.numel() for parameter in model.parameters())
    matrices = 3 * 4 * 16 * 16 + 2 * 2 * 16 * 32 + 23 * 16
    attention = 2 * 4 * 8 * 16 + 4 * 4 * 16  # the right stack sees a window of 4
    assert found.flops == 8 * (2 * matrices + attention)
    assert found.uncounted == ()
    assert found.cache_bytes == 2 * 2 * 16 * (8 + 8 + 4)


def test_steps_equal_the_full_pass(recipe: Path) -> None:
    model = regard.build(recipe, seed=0, dtype=torch.float64).eval()
    tokens = torch.arange(18).reshape(2, 9) % 23
    state = model.begin(tokens)
    steps = [model.step(tokens[:, place : place + 1], state)[0] for place in range(9)]
    torch.testing.assert_close(torch.stack(steps, 1), model(tokens))


def test_it_is_saved_and_read_back(recipe: Path, tmp_path: Path) -> None:
    model = regard.build(recipe, seed=0).eval()
    regard.save_model(model, tmp_path / "model")
    tokens = torch.arange(6)[None]
    assert torch.equal(regard.load_model(tmp_path / "model").eval()(tokens), model(tokens))


@pytest.mark.slow
@pytest.mark.unchecked
def test_it_is_trained_used_and_recorded(recipe: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    regard.train(data("language", tmp_path), *training(2), recipe=recipe, run=run, device="cpu")
    loaded = regard.load(run, "cpu")
    assert "a twin language model" in repr(loaded)
    assert len(loaded.generate(["one red", "two"], tokens=4)) == 2
    assert loaded.embed(["one red dog", "two"]).shape == (2, 16)
    assert loaded.evaluate()["loss"] > 0
    manifest = record(loaded, Query("one red dog", tokens=3)).manifest()
    assert manifest["model"] == "a twin language model"
    assert [(one["id"], one["heads"]) for one in manifest["attentions"]] == [
        ("self.1", 2),
        ("self.2", 2),
        ("self.3", 4),
    ]
    assert (manifest["hidden"][0]["sequence"], manifest["hidden"][0]["layers"]) == ("tokens", 3)
