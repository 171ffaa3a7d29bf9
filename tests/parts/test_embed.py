"""Embeddings against one-hot products and sums written out; patches against cutting by hand."""

import math
import re

import pytest
import torch
from torch import Tensor, nn

from regard.config import from_table
from regard.errors import ConfigError, InputError
from regard.parts.absolute_position import LearnedConfig, LinearPositionConfig, SinusoidalConfig
from regard.parts.embed import EmbedConfig, Embedding, Patches, PatchesConfig, Tokens, linear_patches, norm_images
from regard.parts.norm import LayerNormConfig

TOKENS = torch.tensor([[2, 0, 4], [1, 1, 3]])


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def fill(module: nn.Module) -> nn.Module:
    module.double()
    generator = torch.Generator().manual_seed(2)
    for parameter in module.parameters():
        nn.init.normal_(parameter, generator=generator)
    return module


def embedding(config: EmbedConfig, dim: int = 4) -> Embedding:
    made = config.build(5, dim)
    fill(made)
    return made


def words(made: Embedding, tokens: Tensor = TOKENS) -> Tensor:
    """One-hot times matrix."""
    one_hot = (tokens[..., None] == torch.arange(5)).double()
    return one_hot @ made.tokens.table.weight.detach()


def same(found: Tensor, wanted: Tensor) -> None:
    torch.testing.assert_close(found.detach(), wanted.detach(), rtol=0, atol=1e-10)


# --- tokens ---------------------------------------------------------------------------------------------------------


def test_a_token_is_a_one_hot_vector_times_a_matrix() -> None:
    made = embedding(EmbedConfig())
    same(made.tokens(TOKENS), words(made))
    same(made(TOKENS), words(made))


@pytest.mark.parametrize("wrong", [5, -1, 99])
def test_an_id_outside_the_vocabulary_is_named_with_its_place(wrong: int) -> None:
    made = Tokens(5, 4)
    tokens = TOKENS.clone()
    tokens[1, 2] = wrong
    rule = f"token id {wrong} at row 1, place 2 is outside the vocabulary (0 to 4); does the tokenizer belong to this"
    with pytest.raises(InputError, match=re.escape(rule)):
        made(tokens)
    tokens[0, 1] = 7  # of several, the first
    with pytest.raises(InputError, match="token id 7 at row 0, place 1"):
        made(tokens)


def test_ids_of_other_integer_types() -> None:
    made = embedding(EmbedConfig())
    same(made(TOKENS.int()), words(made))


def test_inputs_that_are_not_rows_of_ids() -> None:
    made = embedding(EmbedConfig())
    forward = getattr(type(made).forward, "__wrapped__", type(made).forward)  # without the shape checker
    for wrong in (TOKENS[:, :0], TOKENS[0], TOKENS.float()):
        with pytest.raises(
            InputError, match=r"tokens must be integers of shape \(rows, 1 or more tokens\), not torch\.\w+ of"
        ):
            forward(made, wrong)


# --- what is added --------------------------------------------------------------------------------------------------


def test_scale_is_the_root_of_the_width_and_leaves_the_position_alone() -> None:
    made = embedding(EmbedConfig(scale=True))
    same(made(TOKENS), 2.0 * words(made))
    made = embedding(EmbedConfig(scale=True, position=LinearPositionConfig(slope=0.5, offset=0.25)))
    same(made(TOKENS), 2.0 * words(made) + torch.tensor([0.25, 0.75, 1.25])[None, :, None])


def test_a_position_is_added() -> None:
    made = embedding(EmbedConfig(position=LearnedConfig(length=6)))
    assert made.position is not None
    table = made.position.get_parameter("table.weight").detach()
    same(made(TOKENS), words(made) + table[:3])
    positions = torch.tensor([[3, 4, 5], [0, 1, -1]])
    found = made(TOKENS, positions)
    same(found[0], words(made)[0] + table[3:6])
    same(found[1, :2], words(made)[1, :2] + table[:2])
    assert found.isfinite().all()


def test_a_position_is_concatenated() -> None:
    made = embedding(EmbedConfig(position=SinusoidalConfig(), concatenate=2), dim=6)
    assert made.tokens.table.weight.shape == (5, 4)
    positions = torch.tensor([[7, 8, 9], [0, 1, 2]])
    waves = torch.tensor([[[math.sin(p), math.cos(p)] for p in row] for row in positions.tolist()], dtype=torch.float64)
    same(made(TOKENS, positions), torch.cat((words(made), waves), -1))
    same(made(TOKENS), torch.cat((words(made), waves[1].expand(2, 3, 2)), -1))


def test_too_long_for_the_table() -> None:
    made = embedding(EmbedConfig(position=LearnedConfig(length=2)))
    with pytest.raises(InputError, match="the input has 3 tokens, but the model has a table of 2 positions"):
        made(TOKENS)


def test_segments_are_added_and_by_default_all_are_the_first() -> None:
    made = embedding(EmbedConfig(segments=2))
    assert made.segments is not None
    first, second = made.segments.weight.detach()
    same(made(TOKENS), words(made) + first)
    segments = torch.tensor([[0, 0, 1], [0, 1, 1]])
    added = torch.stack([torch.stack([(first, second)[s] for s in row]) for row in segments.tolist()])
    same(made(TOKENS, segments=segments), words(made) + added)


@pytest.mark.parametrize("wrong", [2, -1])
def test_an_unknown_segment_is_named(wrong: int) -> None:
    made = embedding(EmbedConfig(segments=2))
    rule = f"segment {wrong} at row 1, place 0 is not one of the model's segments (0 to 1)"
    with pytest.raises(InputError, match=re.escape(rule)):
        made(TOKENS, segments=torch.tensor([[0, 0, 1], [wrong, 1, 1]]))


def test_segments_for_a_model_without_segments() -> None:
    with pytest.raises(InputError, match=r"segments were given, but the model has no segment embedding \(embed\.segm"):
        embedding(EmbedConfig())(TOKENS, segments=torch.zeros_like(TOKENS))


def test_the_norm_is_over_the_sum() -> None:
    config = EmbedConfig(
        position=LinearPositionConfig(slope=0.5), segments=2, norm=LayerNormConfig(eps=0.1), scale=True
    )
    made = embedding(config)
    assert isinstance(made.norm, nn.LayerNorm)
    assert made.segments is not None
    total = 2.0 * words(made) + 0.5 * torch.arange(3)[None, :, None] + made.segments.weight[0]
    centred = total - total.mean(-1, keepdim=True)
    normed = centred / (centred.square().mean(-1, keepdim=True) + 0.1).sqrt()
    same(made(TOKENS), normed * made.norm.weight + made.norm.bias)


def test_dropout_comes_last_and_only_in_training() -> None:
    made = embedding(EmbedConfig(norm=LayerNormConfig(), dropout=1.0))
    assert torch.equal(made(TOKENS), torch.zeros(2, 3, 4, dtype=torch.float64))
    assert (made.eval()(TOKENS) != 0).all()


def test_low_precision_stays_low() -> None:
    made = EmbedConfig(position=SinusoidalConfig()).build(5, 4).bfloat16()
    assert made(TOKENS).dtype == torch.bfloat16


# --- config ---------------------------------------------------------------------------------------------------------


def test_concatenate_needs_a_position() -> None:
    with pytest.raises(ConfigError, match="concatenate=2 needs a position table to concatenate"):
        EmbedConfig(concatenate=2)
    with pytest.raises(ConfigError, match="concatenate=2 needs"):
        from_table({"concatenate": 2}, EmbedConfig)


@pytest.mark.parametrize("beside", [4, 5])
def test_concatenate_must_leave_room_for_the_token(beside: int) -> None:
    with pytest.raises(ConfigError, match=f"concatenate={beside} must leave some of dim=4 to the token"):
        EmbedConfig(position=LinearPositionConfig(), concatenate=beside).build(5, 4)


@pytest.mark.parametrize(
    "config", [EmbedConfig(position=SinusoidalConfig()), EmbedConfig(position=SinusoidalConfig(), concatenate=3)]
)
def test_a_mistake_in_the_position_is_found_at_its_path(config: EmbedConfig) -> None:
    with pytest.raises(ConfigError) as caught:
        config.build(5, 5)
    assert caught.value.path == "position"
    assert f"the width {config.concatenate or 5} must be even" in caught.value.rule


# --- patches --------------------------------------------------------------------------------------------------------


def patches() -> Patches:
    made = PatchesConfig(height=4, width=6, patch=2, channels=3).build(5)
    fill(made)
    return made


def test_one_product_maps_patches_as_the_convolution_does() -> None:
    patches = Patches(8, 12, 4, 3, 5).double()
    images = torch.randn(2, 8, 12, 3, dtype=torch.float64).permute(0, 3, 1, 2).requires_grad_()  # channels last
    weight, bias = patches.conv.weight, patches.conv.bias
    results = [patches(images), linear_patches(images, weight, bias)]
    torch.testing.assert_close(*results)
    factor = torch.randn_like(results[0])
    gradients = [torch.autograd.grad((result * factor).sum(), (images, weight, bias)) for result in results]
    torch.testing.assert_close(*gradients)


def test_patches_are_cut_row_by_row_and_mapped_linearly() -> None:
    made, images = patches(), random(2, 3, 4, 6)
    matrix = made.conv.weight.detach().reshape(5, 3 * 2 * 2)
    wanted = [
        [
            matrix @ image[:, top : top + 2, left : left + 2].reshape(-1) + made.conv.bias
            for top in (0, 2)
            for left in (0, 2, 4)
        ]
        for image in images
    ]
    found = made(images)
    same(found, torch.stack([torch.stack(row) for row in wanted]))
    assert made.count == found.shape[1] == 6


@pytest.mark.parametrize("shape", [(3, 4, 4), (3, 6, 4), (1, 4, 6), (3, 5, 6)])
def test_an_image_of_another_size_is_refused(shape: tuple[int, int, int]) -> None:
    given = " x ".join(map(str, shape))
    rule = f"the images are {given} (channels x height x width), but the model was made for 3 x 4 x 6; resize them"
    with pytest.raises(InputError, match=re.escape(rule)):
        patches()(random(2, *shape))


@pytest.mark.parametrize(("height", "width", "patch"), [(5, 4, 2), (4, 5, 2), (3, 3, 2)])
def test_an_image_must_be_cut_without_rest(height: int, width: int, patch: int) -> None:
    rule = f"height={height} and width={width} must be multiples of patch={patch}"
    with pytest.raises(ConfigError, match=re.escape(rule)):
        PatchesConfig(height, width, patch)


def test_an_image_may_be_one_patch() -> None:
    assert PatchesConfig(4, 4, 4).build(2).count == 1


# --- the stem -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("channels", [1, 3])
def test_the_stem_is_the_same_function_where_it_is_compiled(channels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made = PatchesConfig(height=8, width=12, patch=4, channels=channels, stem=3).build(6)
    fill(made)
    images = 3 + 2 * random(2, channels, 8, 12)
    as_it_is = made(images)
    as_it_is.square().sum().backward()
    gradients = [parameter.grad for parameter in made.parameters()]
    made.zero_grad()
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)  # compiling itself would take half a minute
    compiled = made(images)
    compiled.square().sum().backward()
    torch.testing.assert_close(compiled, as_it_is)
    assert as_it_is.shape == (2, 6, 6)
    assert made.stem(images).is_contiguous(memory_format=torch.channels_last)
    for parameter, gradient in zip(made.parameters(), gradients, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_norm_of_images_keeps_their_precision_and_computes_in_float32(dtype: torch.dtype) -> None:
    norm = nn.GroupNorm(1, 4)
    nn.init.normal_(norm.weight, generator=torch.Generator().manual_seed(2))
    images = (100 + random(2, 4, 5, 3)).to(dtype)
    found, exact = norm_images(images, norm), norm.double()(images.double())
    assert found.dtype == dtype
    torch.testing.assert_close(found.double(), exact, atol=1e-2, rtol=1e-2)
