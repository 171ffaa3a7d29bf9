"""Building by name, by path and by config; and mistakes that are found before memory is allocated."""

import re

import pytest
import torch

import regard
from regard.config import to_toml
from regard.errors import ConfigError, InputError
from regard.models.recipe import caution_of_lost_keys, load_recipe
from regard.parts.inputs import check_lengths
from regard.recipe_files import find_lost_keys, recipe_names
from tests.laws.cases import SHRINK


def test_every_architecture_has_a_recipe():
    wanted = (
        "elman lstm gru mut1 mut2 mut3 conv gpt2 llama-like deepseek-like bert vit transformer-base transformer-big "
        "rnn-seq2seq rnn-attention"
    )
    assert set(wanted.split()) <= set(recipe_names())


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("wrong", "rule"),
    [
        ({"dtype": "float32"}, "dtype='float32' must be a precision of torch, such as torch.bfloat16"),
        ({"dtype": torch.int32}, r"dtype=torch.int32 must be a precision of torch"),
        ({"seed": "1"}, "seed='1' must be a whole number of at most 64 bits"),
        ({"seed": 1.5}, r"seed=1\.5 must be a whole number"),
        ({"seed": 2**70}, f"seed={2**70} must be a whole number of at most 64 bits"),
    ],
)
def test_a_wrong_precision_or_seed_is_rejected(wrong, rule):
    with pytest.raises(InputError, match=rule):
        regard.build("gpt2", "model.depth=1", "model.vocabulary=100", **wrong)


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


def test_a_recipe_of_ones_own_needs_only_a_model(tmp_path):
    text = to_toml(load_recipe("elman", "model.vocabulary=9").model)
    (tmp_path / "mine.toml").write_text("[model]\n" + text.replace("\n[", "\n[model."))
    assert load_recipe(tmp_path / "mine.toml").model == load_recipe("elman", "model.vocabulary=9").model


def test_build_from_what_was_loaded():
    recipe = load_recipe("gpt2", "model.depth=2", "model.vocabulary=9")
    for source in (recipe, recipe.model):
        assert len(regard.build(source).stack.layers) == 2
        assert len(regard.build(source, "model.depth=3").stack.layers) == 3


def test_kinds_are_chosen_before_their_keys():
    one = load_recipe("bert", "model.head.classes=5", "model.head.kind=classes")
    assert one == load_recipe("bert", "model.head.kind=classes", "model.head.classes=5")
    assert one.model.head.classes == 5


def test_device_and_dtype():
    model = regard.build("elman", "model.vocabulary=9", dtype=torch.bfloat16)
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}


@pytest.mark.parametrize(
    ("recipe", "override", "message"),
    [
        ("gpt2", "model.dept=4", r"^model\.dept: unknown key; did you mean 'depth'"),
        ("gpt2", "model.depth=four", r'^model\.depth: "four" must be a whole number'),
        ("gpt2", "model.depth=0", r"^model\.depth: 0 must be between 1 and 4096"),
        ("gpt2", "model.dim=none", r"^model\.dim: missing; must be a whole number"),
        ("gpt2", "model.kind=languag", r"^model\.kind: 'languag' is not a known model; did you mean 'language'"),
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
            r'^model\.layers\.block: residual="plain" uses no norm; leave the norm out',
        ),
        ("conv", "model.layers.block.mixer.kernel=0", r"^model\.layers\.block\.mixer\.kernel: 0 must be at least 1"),
        ("deepseek-like", "model.layers.sparse.feedforward.chosen=0", r"\.chosen: 0 must be at least 1"),
        ("gpt2", "model.dim=100", r"^model\.layers\.block\.mixer\.heads: dim=100 must be a multiple of heads=12"),
        ("gpt2", 'model.pattern=["3*blok"]', r"^model: pattern item '3\*blok' .* did you mean 'block'"),
        ("gpt2", 'model.pattern=["x*block"]', r"^model: pattern item 'x\*block' must be a layer or number\*layer"),
        ("gpt2", 'model.pattern=["0*block"]', r"^model: pattern item '0\*block' must be a layer or number\*layer"),
        ("gpt2", 'model.pattern=["007*block"]', r"^model: pattern item '007\*block' must be a layer or number\*layer"),
        (
            "gpt2",
            "model.layers.other.mixer.kind=elman",
            r"^model: pattern must give the order of the layers block, other; add ",
        ),
        ("gpt2", "model.embed.concatenate=4", r"^model\.head: tied=true needs token vectors as wide as dim=768"),
        ("vit", "model.patches.patch=15", r"^model\.patches: height=224 and width=224 must be multiples of patch=15"),
        ("vit", "model.patches.height=32", r"^model\.position: length=197 must be 29: 28 patches and the class token"),
        (
            "transformer-base",
            "model.decoder.layers.block.cross=none",
            r"^model\.decoder: some layer must have a cross table",
        ),
        (
            "lstm",
            "model.layers.recurrent.mixer.bidirectional=true",
            r"mixer: bidirectional=true reads the future",
        ),
        (
            "gpt2",
            "model.layers.block.cross.heads={kind='multi', heads=2}",
            r"cross: there is no source to look at",
        ),
        ("gpt2", "model.init.std=-1", r"^model\.init\.std: -1\.0 must be at least 0"),
        ("gpt2", "model.head.cap=0", r"^model\.head\.cap: 0\.0 must be above 0"),
        ("gpt2", "model.embed.dropout=nan", r"^model\.embed\.dropout: nan must be a finite number"),
        ("llama-like", "model.layers.block.mixer.position.base=1.0", r"base=1\.0 must be above 1"),
        ("llama-like", "model.layers.block.mixer.position.scaling.low=5", r"low=5\.0 must be below high=4"),
        ("transformer-base", "model.dim=511", r"^model\.embed\.position: sines and cosines come in pairs"),
    ],
)
def test_mistakes_name_path_value_and_rule(recipe, override, message):
    with pytest.raises(ConfigError, match=message):
        regard.build(recipe, override)


def test_mistakes_are_found_before_memory_is_allocated():
    """A model of terabytes with a mistake in its last layer fails at once."""
    with pytest.raises(ConfigError, match="kv_heads"):
        regard.build("llama-like", "model.dim=1048576", "model.layers.block.mixer.heads.kv_heads=7")


def test_token_out_of_range():
    model = regard.build("elman", "model.vocabulary=9")
    with pytest.raises(InputError, match="token id 9 at row 1, place 2 is outside the vocabulary"):
        model(torch.tensor([[1, 2, 3], [4, 5, 9]]))


def test_lengths_that_do_not_fit():
    model = regard.build("bert", "model.depth=1", "model.vocabulary=9")
    tokens = torch.zeros(2, 3, dtype=torch.long)
    for lengths in ([0, 3], [4, 3]):
        with pytest.raises(InputError, match=r"lengths \[\d, 3\] must be between 1 and the 3 tokens of a row"):
            model(tokens, lengths=torch.tensor(lengths))
    with pytest.raises(InputError, match=r"2 rows need 2 lengths, not lengths of shape \(3,\)"):
        check_lengths(tokens, torch.ones(3, dtype=torch.long), least=1)


ROW, ROWS = torch.tensor([1, 2]), torch.tensor([[1, 2]])


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("recipe", "inputs", "named", "message"),
    [
        ("bert", ([[1, 2]],), {"lengths": ROW[:1]}, r"tokens=\[\[1, 2\]\] must be a tensor"),
        (
            "bert",
            (ROW,),
            {"lengths": ROW[:1]},
            r"tokens must be integers of shape \(rows, 1 or more tokens\), not .*\(2,\)",
        ),
        ("bert", (ROWS,), {"lengths": [2]}, r"lengths=\[2\] must be a tensor; torch.tensor makes one of a list"),
        ("word2vec", ([[1, 2]],), {"lengths": ROW[:1]}, r"tokens=\[\[1, 2\]\] must be a tensor"),
        ("word2vec", (ROW,), {"lengths": ROW[:1]}, r"tokens must be integers of shape \(rows, 1 or more tokens\)"),
        (
            "vit",
            (torch.zeros(3, 8, 12),),
            {},
            r"images must have the shape \(images, channels, height, width\), not \(3, 8",
        ),
        ("forecaster", ([[0.0, 0.0]], [[True]]), {}, r"tracks=\[\[0.0, 0.0\]\] must be a tensor"),
    ],
)
def test_inputs_that_are_not_tensors_of_rows_are_an_error_of_one_line(recipe, inputs, named, message):
    model = regard.build(recipe, *SHRINK[recipe]).eval()
    with pytest.raises(InputError, match=message):
        model(*inputs, **named)


@pytest.mark.unchecked
def test_a_step_of_a_list_is_an_error_of_one_line():
    model = regard.build("elman", *SHRINK["elman"]).eval()
    state = model.start(1)
    with pytest.raises(InputError, match=r"tokens=\[\[1\]\] must be a tensor"):
        model.step([[1]], state)
    assert state.length.tolist() == [0]


def test_a_step_has_the_rows_of_its_state():
    """A single row would be computed as the next token of all rows."""
    model = regard.build("gpt2", "model.depth=1", "model.vocabulary=9")
    for shape in ((1, 3), (3, 3)):
        with pytest.raises(InputError, match=r"\(rows, tokens\) with the 2 rows of the state, not \([13,\s]+\)"):
            model.step(torch.zeros(shape, dtype=torch.long), model.start(batch=2))


def test_packed_documents_and_prefixes_need_attention():
    tokens, documents = torch.zeros(1, 4, dtype=torch.long), torch.tensor([[0, 0, 1, 1]])
    for recipe in ("elman", "lstm", "gru", "conv"):
        model = regard.build(recipe, "model.vocabulary=9", "model.depth=1")
        with pytest.raises(InputError, match="packed documents and prefixes need attention"):
            model(tokens, documents=documents)
        with pytest.raises(InputError, match="packed documents and prefixes need attention"):
            model(tokens, prefix=torch.tensor([2]))


def test_documents_in_a_row_do_not_see_each_other():
    model = regard.build("llama-like", *SHRINK["llama-like"], dtype=torch.float64, seed=0).eval()
    tokens = torch.tensor([[3, 1, 4, 1, 5, 9, 2]])
    documents, positions = torch.tensor([[0, 0, 0, 1, 1, 1, 1]]), torch.tensor([[0, 1, 2, 0, 1, 2, 3]])
    packed = model(tokens, documents=documents, positions=positions)
    torch.testing.assert_close(packed[:, :3], model(tokens[:, :3]))
    torch.testing.assert_close(packed[:, 3:], model(tokens[:, 3:]))


def test_a_prefix_sees_itself_both_ways():
    model = regard.build("llama-like", *SHRINK["llama-like"], dtype=torch.float64, seed=0).eval()
    tokens, prefix = torch.tensor([[3, 1, 4, 1, 5, 9, 2]]), torch.tensor([3])
    before = model(tokens, prefix=prefix)
    for changed, seen in ((2, True), (4, False)):
        other = tokens.clone()
        other[0, changed] = 7
        moved = (model(other, prefix=prefix)[0, 0] - before[0, 0]).abs().max() > 1e-9
        assert bool(moved) == seen


def test_a_state_and_positions_contradict_each_other():
    model = regard.build("elman", "model.vocabulary=9")
    tokens = torch.zeros(1, 2, dtype=torch.long)
    with pytest.raises(InputError, match="give one or the other"):
        model(tokens, positions=tokens, state=model.start(1))


def test_longer_than_the_position_table():
    model = regard.build("gpt2", "model.depth=1", "model.vocabulary=9", "model.embed.position.length=4")
    with pytest.raises(InputError, match="the input has 5 tokens, but the model has a table of 4 positions"):
        model(torch.zeros(1, 5, dtype=torch.long))
    state = model.start(1)
    _, state = model.step(torch.zeros(1, 4, dtype=torch.long), state)
    with pytest.raises(InputError, match="the input has 5 tokens"):
        model.step(torch.zeros(1, 1, dtype=torch.long), state)
    assert state.length.tolist() == [4]  # a rejected step leaves the state unchanged
    assert model.longest() == 4


def test_padding_does_not_count_against_the_position_table():
    model = regard.build("gpt2", "model.depth=1", "model.vocabulary=9", "model.embed.position.length=4")
    state = model.start(2)
    model.step(torch.zeros(2, 3, dtype=torch.long), state, torch.tensor([3, 1]))
    model.step(torch.zeros(2, 2, dtype=torch.long), state, torch.tensor([1, 2]))
    assert state.length.tolist() == [4, 3]


def test_wrong_image_size():
    model = regard.build("vit", "model.depth=1")
    with pytest.raises(InputError, match="3 x 224 x 220 .* made for 3 x 224 x 224"):
        model(torch.zeros(1, 3, 224, 220))


def test_layers_share_positions_that_are_described_alike():
    kind = "model.layers.block.mixer.position.kind=relative-bias"
    model = regard.build("gpt2", "model.depth=3", "model.vocabulary=9", kind)
    assert len({id(layer.mixer.position) for layer in model.stack.layers}) == 1


@pytest.mark.parametrize("text", ["[" * 5000, "9" * 5000])
def test_a_value_that_no_parser_can_read_is_a_mistake_in_a_recipe_and_a_text_in_an_override(tmp_path, text):
    (tmp_path / "a.toml").write_text(f"x = {text}")
    with pytest.raises(ConfigError, match="is not valid TOML"):
        load_recipe(tmp_path / "a.toml")
    with pytest.raises(ConfigError, match=r"model\.depth"):
        load_recipe("gpt2", f"model.depth={text}")


def test_a_pattern_on_the_command_line_drops_the_layers_that_it_leaves_out():
    found = load_recipe("deepseek-like", 'model.pattern=["dense"]').model
    assert list(found.layers) == ["dense"]
    with pytest.raises(ConfigError, match="the layers sparse are missing from the pattern; name them there, or remove"):
        load_recipe("deepseek-like", 'model.pattern=["dense"]', "model.layers.sparse.dropout=0.5")
    kept = load_recipe("deepseek-like", 'model.pattern=["mine"]', "model.layers.mine.like=dense").model
    assert kept.layers == {"mine": found.layers["dense"]}


def test_a_variant_with_a_new_layer_says_how_to_remove_the_old_one_and_claims_no_paper(tmp_path):
    path = tmp_path / "mine.toml"
    text = 'like = "writer"\n[model.layers.mine]\nlike = "block"\n'
    path.write_text(text)
    remedy = 'add pattern = ["block", "mine"], or remove an inherited layer with NAME = "none"'
    with pytest.raises(
        ConfigError, match=re.escape(f"pattern must give the order of the layers block, mine; {remedy}")
    ):
        load_recipe(path)
    path.write_text(text + '[model]\npattern = ["mine"]\n')
    found = load_recipe(path)
    assert (list(found.model.layers), found.about, found.paper) == (["mine"], "", "")


def caution_of(path, text: str, *changes: str) -> str:
    path.write_text(f'like = "rnn-attention"\n{text}')
    return caution_of_lost_keys(path, load_recipe(path, *changes).model)


def test_a_recipe_that_changes_a_kind_cautions_of_inherited_keys_that_the_new_kind_has(tmp_path):
    path, mixer = tmp_path / "mine.toml", "model.encoder.layers.recurrent.mixer"
    found = caution_of(path, f'[{mixer}]\nkind = "lstm"\n')
    rule = "since it changes the kind of the table; write it again to keep it"
    assert found == f"{path} does not inherit {mixer}.bidirectional=true, {rule}"
    assert caution_of(path, f'[{mixer}]\nkind = "lstm"\nbidirectional = true\n') == ""
    assert caution_of(path, f'[{mixer}]\nkind = "lstm"\n', f"{mixer}.bidirectional=true") == ""
    assert caution_of(path, f'[{mixer}]\nkind = "lstm"\nbidirectional = false\n') == ""  # as the user wants it
    assert caution_of(path, f'[{mixer}]\nkind = "gru"\n') == caution_of(path, "") == ""  # the same kind
    assert caution_of(path, f'[{mixer}]\nkind = "conv"\n') == ""  # which has no such key


def test_keys_of_another_table_are_not_taken_for_those_of_the_model(tmp_path):
    """A model has a vocabulary, too, but the inherited one is that of the tokenizer."""
    path = tmp_path / "mine.toml"
    path.write_text('like = "results/wikitext2-lstm"\n[tokenizer]\nkind = "char"\n')
    assert ("tokenizer.vocabulary", 33282) in find_lost_keys(path)
    assert caution_of_lost_keys(path, load_recipe("lstm").model) == ""


@pytest.mark.parametrize("name", recipe_names())
def test_recipes_of_the_package_inherit_what_they_mean_to(name):
    assert caution_of_lost_keys(name, load_recipe(name).model) == ""
