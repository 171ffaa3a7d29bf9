"""Building by name, by path and by config; and the mistakes that are found before any memory is taken."""

import pytest
import torch

import regard
from regard.config import recipe_names
from regard.errors import ConfigError, InputError
from regard.models.recipe import load_recipe


def test_all_sixteen_recipes_are_there():
    wanted = (
        "elman lstm gru mut1 mut2 mut3 conv gpt2 llama-like deepseek-like bert vit transformer-base transformer-big "
        "rnn-seq2seq rnn-attention"
    )
    assert set(wanted.split()) <= set(recipe_names())


def test_build_by_name_with_overrides():
    model = regard.build("gpt2", "model.depth=4", "model.vocabulary=100")
    assert len(model.stack.layers) == 4
    assert model(torch.tensor([[1, 2, 3]])).shape == (1, 3, 100)


def test_build_from_a_file_anywhere(tmp_path, monkeypatch):
    (tmp_path / "mine.toml").write_text(
        'like = "gpt2"\nabout = "mine"\n[model]\ndim = 24\nvocabulary = 9\n[model.layers.block.mixer]\n'
        "heads = { heads = 2 }\n"
    )
    monkeypatch.chdir(tmp_path)
    recipe = load_recipe("mine.toml")
    assert (recipe.about, recipe.model.dim, recipe.model.layers["block"].mixer.heads.heads) == ("mine", 24, 2)
    assert recipe.model.layers["block"].mixer.heads.bias == "all"


def test_device_and_dtype():
    model = regard.build("elman", "model.vocabulary=9", dtype=torch.bfloat16)
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}


@pytest.mark.parametrize(
    ("recipe", "override", "message"),
    [
        ("gpt2", "model.dept=4", r"^model\.dept: unknown key; did you mean 'depth'"),
        ("gpt2", "model.depth=four", r'^model\.depth: "four" must be a whole number'),
        ("gpt2", "model.depth=0", r"^model\.depth: 0 must be at least 1"),
        ("gpt2", "model.dim=none", r"^model\.dim: missing; must be a whole number"),
        ("gpt2", "model.kind=languag", r"^model\.kind: 'languag' is unknown; did you mean 'language'"),
        (
            "gpt2",
            "model.layers.block.mixer.heads.kv_heads=5",
            r"^model\.layers\.block\.mixer\.heads: heads=12 must be a multiple of kv_heads=5",
        ),
        ("gpt2", "model.layers.block.mixer.heads.heads=0", r"^model\.layers\.block\.mixer\.heads\.heads: 0 must be at"),
        ("gpt2", "model.layers.block.mixer.window=0", r"^model\.layers\.block\.mixer\.window: 0 must be at least 1"),
        ("gpt2", "model.layers.block.dropout=2", r"^model\.layers\.block\.dropout: 2\.0 must be between 0 and 1"),
        (
            "gpt2",
            "model.layers.block.residual=plain",
            r'^model\.layers\.block: residual="plain" has no place for a norm',
        ),
        ("conv", "model.layers.block.mixer.kernel=0", r"^model\.layers\.block\.mixer\.kernel: 0 must be at least 1"),
        ("deepseek-like", "model.layers.sparse.feedforward.chosen=0", r"\.chosen: 0 must be at least 1"),
        ("gpt2", "model.dim=100", r"^model\.layers\.block\.mixer\.heads: dim=100 must be a multiple of heads=12"),
        ("gpt2", 'model.pattern=["3*blok"]', r"^model: pattern item '3\*blok' .* did you mean 'block'"),
        ("gpt2", 'model.pattern=["x*block"]', r"^model: pattern item 'x\*block' must be a layer or number\*layer"),
        ("gpt2", "model.layers.other.mixer.kind=elman", r"^model: pattern must say in which order .* block, other"),
        ("gpt2", "model.embed.concatenate=4", r"^model\.head: tied=true needs token vectors as wide as dim=768"),
        ("deepseek-like", 'model.pattern=["dense"]', r"^model: the layers sparse stand nowhere"),
        ("vit", "model.patches.patch=15", r"^model\.patches: height=224 and width=224 must be multiples of patch=15"),
        ("vit", "model.patches.height=32", r"^model\.position: length=197 must be 29: 28 patches and the class token"),
        ("transformer-base", "model.decoder.layers.block.cross=none", r"^model: some layer must have a cross table"),
        ("transformer-base", "model.dim=511", r"^model\.embed\.position: sines and cosines come in pairs"),
    ],
)
def test_mistakes_name_path_value_and_rule(recipe, override, message):
    with pytest.raises(ConfigError, match=message):
        regard.build(recipe, override)


def test_mistakes_are_found_before_memory_is_taken():
    """A model of terabytes with a mistake in its last layer fails at once."""
    with pytest.raises(ConfigError, match="kv_heads"):
        regard.build("llama-like", "model.dim=1048576", "model.layers.block.mixer.heads.kv_heads=7")


def test_token_out_of_range():
    model = regard.build("elman", "model.vocabulary=9")
    with pytest.raises(InputError, match="token id 9 at row 1, place 2 is outside the vocabulary"):
        model(torch.tensor([[1, 2, 3], [4, 5, 9]]))


def test_longer_than_the_position_table():
    model = regard.build("gpt2", "model.depth=1", "model.vocabulary=9", "model.embed.position.length=4")
    with pytest.raises(InputError, match="the input has 5 tokens, but the model has a table of 4 positions"):
        model(torch.zeros(1, 5, dtype=torch.long))
    state = model.start(1)
    _, state = model.step(torch.zeros(1, 4, dtype=torch.long), state)
    with pytest.raises(InputError, match="the input has 5 tokens"):
        model.step(torch.zeros(1, 1, dtype=torch.long), state)


def test_wrong_image_size():
    model = regard.build("vit", "model.depth=1")
    with pytest.raises(InputError, match="3 x 224 x 220 .* made for 3 x 224 x 224"):
        model(torch.zeros(1, 3, 224, 220))


def test_layers_share_positions_that_are_described_alike():
    kind = "model.layers.block.mixer.position.kind=relative-bias"
    model = regard.build("gpt2", "model.depth=3", "model.vocabulary=9", kind)
    assert len({id(layer.mixer.position) for layer in model.stack.layers}) == 1
