"""Embeddings of tokens, segments (Devlin et al. 2018) and image patches (Dosovitskiy et al. 2020)."""

from dataclasses import dataclass
from math import prod, sqrt
from typing import Annotated

import torch
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.config import Config, Count, Range, Rate
from regard.errors import ConfigError, InputError, at
from regard.parts.absolute_position import Absolute, AbsoluteConfig
from regard.parts.dropout import build_dropout
from regard.parts.inputs import check_tensor, check_token_ids, find_outside
from regard.parts.linear import is_hooked, linear
from regard.parts.norm import NormConfig
from regard.parts.region import region


class Tokens(nn.Module):
    """E[:, token]: a one-hot vector times a learned matrix."""

    def __init__(self, vocabulary: int, dim: int) -> None:
        super().__init__()
        self.table = nn.Embedding(vocabulary, dim)

    def forward(self, tokens: Int[Tensor, "B T"]) -> Float[Tensor, "B T D"]:
        """Look up the vectors of the tokens."""
        known = self.table.num_embeddings
        if wrong := find_outside(tokens, known):
            raise InputError(
                f"token id {wrong} is outside the vocabulary (0 to {known - 1}); "
                f"does the tokenizer belong to this model?"
            )
        return self.table(tokens)


class Embedding(nn.Module):
    """x_t = norm(scale * E[token] + PE(t) + S[segment]), or with the position concatenated: [E[token] ; PE(t)]."""

    def __init__(
        self,
        tokens: Tokens,
        position: Absolute | None = None,
        segments: nn.Embedding | None = None,
        norm: nn.Module | None = None,
        scale: float = 1.0,
        concatenate: int = 0,
        dropout: nn.Module | None = None,
        word_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.tokens = tokens
        self.position = position
        self.segments = segments
        self.norm = norm or nn.Identity()
        self.scale = scale
        self.concatenate = concatenate
        self.dropout = dropout or nn.Identity()
        self.word_dropout = word_dropout

    @property
    def dim(self) -> int:
        """The width of the vectors: that of a token, and the features of the position that are concatenated to it."""
        return self.tokens.table.embedding_dim + self.concatenate

    def forward(
        self,
        tokens: Int[Tensor, "B T"],
        positions: Int[Tensor, "B T"] | None = None,
        segments: Int[Tensor, "B T"] | None = None,
    ) -> Float[Tensor, "B T D"]:
        """Embed tokens; without `segments`, all belong to segment 0."""
        check_token_ids(tokens)
        x = self.tokens(tokens)
        if self.word_dropout and self.training:
            x = x * self.kept_words(x)[tokens]
        if self.scale != 1.0:
            x = self.scale * x
        if self.position is not None:
            vectors = self.position(positions, tokens.shape[1], tokens.device).to(x.dtype)
            x = torch.cat((x, vectors.expand(len(x), -1, -1)), -1) if self.concatenate else x + vectors
        if self.segments is not None:
            segments = torch.zeros_like(tokens) if segments is None else segments
            known = self.segments.num_embeddings
            if wrong := find_outside(segments, known):
                raise InputError(f"segment {wrong} is not one of the model's segments (0 to {known - 1})")
            x = x + self.segments(segments)
        elif segments is not None:
            raise InputError("segments were given, but the model has no segment embedding (embed.segments)")
        return self.dropout(self.norm(x))

    def kept_words(self, like: Tensor) -> Float[Tensor, "V 1"]:
        """Draw which entries of the vocabulary are kept in this call: 1 / (1 - rate) for these, 0 for the others."""
        words = torch.ones(self.tokens.table.num_embeddings, 1, dtype=like.dtype, device=like.device)
        return nn.functional.dropout(words, self.word_dropout)


def norm_images(x: Float[Tensor, "B C H W"], norm: nn.GroupNorm) -> Float[Tensor, "B C H W"]:
    """Compute a group norm of one group, (x - mean) / sqrt(variance + eps) * weight + bias, over each whole image.

    It consists of operations that a compiler fuses with what follows, in whatever order the numbers lie in memory.
    torch's own operator would copy images whose channels come last.
    """
    precise = x.to(torch.promote_types(x.dtype, torch.float32))
    variance, mean = torch.var_mean(precise, (1, 2, 3), correction=0, keepdim=True)
    scale = norm.weight[:, None, None] * torch.rsqrt(variance + norm.eps)
    return ((precise - mean) * scale + norm.bias[:, None, None]).to(x.dtype)


class Stem(nn.Sequential):
    """3 x 3 convolutions, each with a norm and a GELU; the last `halvings` of them halve the image (Xiao et al. 2021).

    The norm is over a whole image, not over the batch as in the paper. Without one, an image would be a small signal
    beside the positions, and would be learned slowly.
    """

    def __init__(self, layers: int, halvings: int, channels: int, dim: int, pixels: int) -> None:
        steps: list[nn.Module] = []
        for layer in range(layers):
            stride = 1 if layer < layers - halvings else 2
            conv = nn.Conv2d(dim if layer else channels, dim, 3, stride, padding=1)
            steps += [conv, nn.GroupNorm(1, dim), nn.GELU()]
        super().__init__(*steps)
        self.pixels = pixels

    @region
    def forward(self, images: Float[Tensor, "B channels height width"]) -> Float[Tensor, "B _C _h _w"]:
        """Apply the convolutions; compiled code has the channels of a pixel together, as cuDNN needs them."""
        x, compiles = images, torch.compiler.is_compiling()
        for step in self:
            x = norm_images(x, step) if compiles and isinstance(step, nn.GroupNorm) else step(x)
            x = x.contiguous(memory_format=torch.channels_last) if compiles else x
        return x

    def tokens_through(self, child: nn.Module, tokens: int, keys: int) -> int:
        """Return for how many places a convolution computes a vector."""
        before = list(self)[: list(self).index(child) + 1]
        return self.pixels // prod(step.stride[0] for step in before if isinstance(step, nn.Conv2d)) ** 2


def linear_patches(
    images: Float[Tensor, "B C H W"], weight: Float[Tensor, "D C side side"], bias: Float[Tensor, "D"] | None
) -> Float[Tensor, "B T D"]:
    """Map each square of an image to a vector by one product. For 3 channels, cuDNN's convolution copies the image."""
    side = weight.shape[-1]
    squares = rearrange(images, "B C (h p) (w q) -> B (h w) (C p q)", p=side, q=side)
    return linear(squares, weight.flatten(1), bias)


class Patches(nn.Module):
    """Cut an image into squares of side `patch`, and map each linearly to a vector, row by row.

    A stem of convolutions may come first. It halves the image as long as the patch is even, and the linear map then
    reads what is left of the patch.
    """

    def __init__(self, height: int, width: int, patch: int, channels: int, dim: int, stem: int = 0) -> None:
        super().__init__()
        self.height, self.width, self.patch, self.channels = height, width, patch, channels
        halvings = min(stem, (patch & -patch).bit_length() - 1)
        self.stem = Stem(stem, halvings, channels, dim // 2, height * width)
        side = patch >> halvings
        self.conv = nn.Conv2d(dim // 2 if stem else channels, dim, side, stride=side)

    @property
    def count(self) -> int:
        """Return the number of patches of an image."""
        return (self.height // self.patch) * (self.width // self.patch)

    def forward(self, images: Float[Tensor, "B channels height width"]) -> Float[Tensor, "B T D"]:
        """Embed the patches."""
        check_tensor(images, "images")
        if images.ndim != 4:
            shape = tuple(images.shape)
            raise InputError(f"images must have the shape (images, channels, height, width), not {shape}")
        channels, height, width = images.shape[1:]
        wanted = (self.channels, self.height, self.width)
        if (channels, height, width) != wanted:
            raise InputError(
                f"the images are {channels} x {height} x {width} (channels x height x width), "
                f"but the model was made for {wanted[0]} x {wanted[1]} x {wanted[2]}; resize them first"
            )
        images = images.to(self.conv.weight.dtype)  # pixels are float32, whatever the precision of the model
        made = self.stem(images) if len(self.stem) else images
        if made.is_cuda and not is_hooked(self.conv):
            return linear_patches(made, self.conv.weight, self.conv.bias)
        return rearrange(self.conv(made), "B D h w -> B (h w) D")

    def summary(self) -> str:
        """Return the number and size of the patches."""
        return f"{self.count} patches of {self.patch} x {self.patch}"


@dataclass(frozen=True)
class EmbedConfig(Config):
    """From tokens to vectors: norm(scale * E[token] + position + segment)."""

    position: AbsoluteConfig | None = None
    """Absolute positions."""
    concatenate: Count | None = None
    """Number of features of the position, concatenated to those of the token; absent: the position is added."""
    segments: Count | None = None
    """Number of segments with a learned vector each (Devlin et al. 2018)."""
    norm: NormConfig | None = None
    """Norm of the sum."""
    scale: bool = False
    """Whether token vectors are multiplied by sqrt(dim) (Vaswani et al. 2017)."""
    dropout: Rate = 0.0
    """Share of the features that training sets to zero."""
    dropout_by_row: bool = False
    """Whether dropout has the same zeros for all tokens of a row (variational dropout, Gal, Ghahramani 2016)."""
    word_dropout: Rate = 0.0
    """Share of the vocabulary whose vectors an update of training sets to zero (Gal, Ghahramani 2016)."""

    def validate(self) -> None:
        """Check the rules between values."""
        if self.concatenate is not None and self.position is None:
            raise ConfigError(f"concatenate={self.concatenate} needs a position table to concatenate")

    def build(self, vocabulary: int, dim: int) -> Embedding:
        """Build the embedding for a vocabulary and a width."""
        beside = self.concatenate or 0
        if beside >= dim:
            raise ConfigError(f"concatenate={beside} must leave some of dim={dim} to the token")
        with at("position"):
            position = None if self.position is None else self.position.build(beside or dim)
        return Embedding(
            Tokens(vocabulary, dim - beside),
            position,
            None if self.segments is None else nn.Embedding(self.segments, dim),
            None if self.norm is None else self.norm.build(dim),
            scale=sqrt(dim) if self.scale else 1.0,
            concatenate=beside,
            dropout=build_dropout(self.dropout, self.dropout_by_row),
            word_dropout=self.word_dropout,
        )


@dataclass(frozen=True)
class PatchesConfig(Config):
    """Images cut into square patches (Dosovitskiy et al. 2020)."""

    height: Count
    """Height of the images in pixels."""
    width: Count
    """Width of the images in pixels."""
    patch: Count
    """Side of a patch in pixels."""
    channels: Count = 3
    """Channels of the images: 3 for colour, 1 for grey."""
    stem: Annotated[int, Range(low=0, high=8)] = 0
    """Number of 3 x 3 convolutions before the patches are cut (Xiao et al. 2021); 0: the linear map of the paper."""

    def validate(self) -> None:
        """Check the rules between values."""
        if self.height % self.patch or self.width % self.patch:
            raise ConfigError(f"height={self.height} and width={self.width} must be multiples of patch={self.patch}")

    def build(self, dim: int) -> Patches:
        """Build the patches for vectors of width `dim`."""
        return Patches(self.height, self.width, self.patch, self.channels, dim, self.stem)
