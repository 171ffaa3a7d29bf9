"""Evoformer: rows of an alignment of proteins, and a vector for every pair of residues, that inform each other.

Jumper et al. 2021, "Highly accurate protein structure prediction with AlphaFold", supplement, Algorithms 3 to 6. A
model without an `alignment` table reads single sequences. The blocks are in `evoformer_layer.py`; the head, in
`residue_head.py`, says what is read from the vectors.
"""

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.config import Config, Count, Depth, Rate
from regard.errors import ConfigError, InputError, at
from regard.models.evoformer_layer import EvoformerLayer, Pairs, PairUpdate, Places, Rows, RowUpdate
from regard.models.init import InitConfig, NormalConfig
from regard.models.introspection import AttentionRole, ModelSequence, Tap, attention_name
from regard.models.model import ModelConfig, TokenModel, Verb, row_positions
from regard.models.residue_head import PairDistances, ResidueHeadConfig, ResidueStates
from regard.models.residues import clean_sequence
from regard.parts.attention import AttentionConfig
from regard.parts.conv import Convolution, ConvolutionConfig
from regard.parts.embed import EmbedConfig, Embedding
from regard.parts.feedforward import ChannelMixConfig, FeedForwardConfig, MoEConfig
from regard.parts.linear import Linear
from regard.parts.mask import Padding, explicit_positions
from regard.parts.norm import LayerNormConfig, NormConfig
from regard.parts.pair import (
    ColumnAttention,
    OuterConfig,
    OuterProductMeanConfig,
    PairBias,
    PairPositions,
    TriangleConfig,
)
from regard.parts.residual import build_residual

ProfileScale = Literal["shares", "logarithms"]

RARE = 0.02  # a share of a column: below it, log(1 + share / RARE) is nearly linear


class Evoformer(TokenModel):
    """head(blocks(rows, pairs)): m_r = E[row r], with the profile added to the first; z_ij = A m_i + B m_j + p(i - j).

    The profile of a residue is the share f of each token in its column, 1/R sum_r onehot(row r). The vector that is
    added is W_p f, or W_p log(1 + f / 0.02): the difference between an absent and a rare residue tells much. With a
    `window`, the rows of the first block are relu(window(m)), a convolution of neighbouring columns.
    """

    head: ResidueStates | PairDistances

    noun = "residue"

    def __init__(
        self,
        embed: Embedding,
        profile: Linear | None,
        positions: PairPositions,
        layers: list[EvoformerLayer],
        head: ResidueStates | PairDistances,
        aligned_rows: int = 0,
        profile_as: ProfileScale = "shares",
        window: Convolution | None = None,
    ) -> None:
        super().__init__()
        dim, pair_dim = embed.dim, positions.table.embedding_dim
        self.embed = embed
        self.profile = profile
        self.window = window
        self.positions = positions
        self.left, self.right = Linear(dim, pair_dim), Linear(dim, pair_dim)
        self.layers = nn.ModuleList(layers)
        self.head = head
        self.profile_as = profile_as
        self.aligned_rows = aligned_rows  # how many further rows of an alignment it should be given

    def forward(
        self,
        tokens: Int[Tensor, "B T"],
        *,
        lengths: Int[Tensor, "B"] | None = None,
        alignment: Int[Tensor, "B R T"] | None = None,
        depths: Int[Tensor, "B"] | None = None,
        profile: Float[Tensor, "B T V"] | None = None,
    ) -> Float[Tensor, "B T *rest"]:
        """Score the states of residues, or the distances of pairs: the head decides.

        Sequences are padded on the right beyond `lengths`. An `alignment` has further rows, of which the first
        `depths` are real, and a `profile` the shares of all tokens in each column; without one, the sequence is alone.
        """
        return self.head(*self.encode(tokens, lengths, alignment, depths, profile))

    def encode(
        self,
        tokens: Int[Tensor, "B T"],
        lengths: Int[Tensor, "B"] | None = None,
        alignment: Int[Tensor, "B R T"] | None = None,
        depths: Int[Tensor, "B"] | None = None,
        profile: Float[Tensor, "B T V"] | None = None,
    ) -> tuple[Rows, Pairs, Places]:
        """Return the vectors of all rows and of all pairs, and where residues are."""
        if self.profile is None and (alignment is not None or profile is not None):
            raise InputError("this model reads single sequences; leave the alignment out")
        places, every = Places(row_positions(tokens, lengths), 1, None), tokens
        if alignment is not None:
            places = Places(places.positions, 1 + alignment.shape[1], None if depths is None else depths + 1)
            every = rearrange(torch.cat((tokens[:, None], alignment), 1), "B R T -> (B R) T")
        rows = self.embed(every, places.of_rows)
        if self.profile is not None:
            shares = F.one_hot(tokens, self.embed.tokens.table.num_embeddings) if profile is None else profile
            seen = shares.to(rows.dtype)
            seen = torch.log1p(seen / RARE) if self.profile_as == "logarithms" else seen
            rows = rows + self._for_first_rows(self.profile(seen).to(rows.dtype), places.rows)
        if self.window is not None:
            positions = places.of_rows
            rows = F.relu(self.window(rows, mask=None if positions is None else Padding(), positions=positions))
        pairs = self._first_pairs(rows[:: places.rows], places.positions)
        for layer in self.layers:
            rows, pairs = layer(rows, pairs, places)
        return rows, pairs, places

    def _for_first_rows(self, added: Float[Tensor, "B T D"], rows: int) -> Rows:
        """Return vectors for the first row of each alignment, and zeros for the other rows."""
        first = torch.arange(len(added) * rows, device=added.device) % rows == 0
        return added.repeat_interleave(rows, 0) * first[:, None, None]

    def _first_pairs(self, own: Float[Tensor, "B T D"], positions: Int[Tensor, "B T"] | None) -> Pairs:
        """Return z_ij = A m_i + B m_j + p(i - j) for the vectors of the sequences themselves."""
        apart = self.positions(explicit_positions(positions, own.shape[1], own.device))
        return self.left(own)[:, :, None] + self.right(own)[:, None] + apart

    @property
    def description(self) -> str:
        """What it is called: its head decides."""
        return self.head.description

    @property
    def verbs(self) -> tuple[Verb, ...]:
        """What it can do."""
        return ("annotate", "embed")

    @property
    def task(self) -> str:
        """The kind of task that trains and measures it."""
        return self.head.task

    @property
    def packs_documents(self) -> bool:
        """Whether several texts in one row can be kept apart: pairs are not."""
        return False

    def clean_text(self, text: str) -> str:
        """Return a sequence in capital letters; other letters than those of residues are an error."""
        return clean_sequence(text)

    def sequences(self) -> dict[str, ModelSequence]:
        """Return the one sequence of residues."""
        joined = [layer.row_update.residual for layer in self.layers if isinstance(layer, EvoformerLayer)]
        taps = [Tap(joined[0], "input"), *map(Tap, joined)]
        return {"tokens": ModelSequence(taps, self.embed.tokens.table.num_embeddings)}

    def attentions(self) -> list[AttentionRole]:
        """List the attentions along rows."""
        name = "row_update.attention"
        return [
            AttentionRole(f"layers.{number - 1}.{name}", "self", number, "tokens", "tokens")
            for number, layer in enumerate(self.layers, 1)
            if attention_name(layer, name)
        ]

    def token_vectors(self, **inputs: Tensor) -> Float[Tensor, "B T D"]:
        """Return the vectors of the sequence itself."""
        rows, _, places = self.encode(**inputs)
        return rows[:: places.rows]

    def tokens_through(self, child: nn.Module, tokens: int, keys: int) -> int:
        """Return how many vectors pass through a child: those of all rows that it should be given, or of the first."""
        if child is self.positions:  # which are looked up for every pair
            return tokens * keys
        of_first = any(child is part for part in (self.profile, self.left, self.right))
        return tokens if of_first else tokens * (1 + self.aligned_rows)


@dataclass(frozen=True, kw_only=True)
class AlignmentConfig(Config):
    """What a model of alignments has: a profile of each column, and attention along columns."""

    rows: Count = 16
    """Rows that are read besides the sequence itself; the profile is of all rows."""
    profile: ProfileScale = "shares"
    """How the profile is read: as shares f of a column, or as logarithms, log(1 + f / 0.02)."""
    column: AttentionConfig
    """Attention along columns (Jumper et al. 2021, supplement, Algorithm 8)."""


@dataclass(frozen=True, kw_only=True)
class EvoformerConfig(ModelConfig):
    """Rows of an alignment, or a single sequence, and a vector for every pair of residues."""

    tasks: ClassVar[tuple[str, ...]] = ("residues", "distances")

    vocabulary: Count
    """Number of tokens; training sets it."""
    dim: Count
    """Width of the vectors of residues."""
    pair_dim: Count
    """Width of the vectors of pairs."""
    depth: Depth
    """Number of blocks."""
    reach: Count = 32
    """Distance along the sequence up to which pairs know it (Jumper et al. 2021, supplement, Algorithm 4)."""
    embed: EmbedConfig = field(default_factory=EmbedConfig)
    """From tokens to vectors."""
    alignment: AlignmentConfig | None = None
    """How alignments are read; absent: single sequences are."""
    window: ConvolutionConfig | None = None
    """A convolution along rows, and a ReLU, before the first block; absent, as in AlphaFold: none."""
    local: ConvolutionConfig | None = None
    """A convolution along rows before the attention; absent, as in AlphaFold: none."""
    attention: AttentionConfig
    """Attention along rows, with a bias from pairs."""
    feedforward: FeedForwardConfig
    """The transition of rows."""
    outer: OuterConfig = field(default_factory=OuterProductMeanConfig)
    """What is added to pairs from rows."""
    triangle: TriangleConfig = field(default_factory=TriangleConfig)
    """How pairs interact."""
    pair_feedforward: FeedForwardConfig
    """The transition of pairs."""
    norm: NormConfig = field(default_factory=LayerNormConfig)
    """Norm of the inputs of all updates."""
    dropout: Rate = 0.0
    """Share of the updates of rows that training sets to zero."""
    pair_dropout: Rate = 0.0
    """Share of the updates of pairs that training sets to zero."""
    head: ResidueHeadConfig
    """What is read from the vectors: states of residues, or distances of pairs."""
    init: InitConfig = field(default_factory=NormalConfig)
    """The initial weights."""

    def validate(self) -> None:
        """Check the rules between values."""
        super().validate()
        for name, part in (("feedforward", self.feedforward), ("pair_feedforward", self.pair_feedforward)):
            if isinstance(part, MoEConfig):
                rule = "a mixture of experts balances their load over the tokens of a text, not over rows or pairs"
                raise ConfigError(f"{rule}; use mlp or glu", name)
        if isinstance(self.pair_feedforward, ChannelMixConfig):
            rule = "channel-mix reads the token before, and a pair has none before it"
            raise ConfigError(f"{rule}; use mlp or glu", "pair_feedforward")

    def build(self) -> Evoformer:
        """Build the model."""
        with at("embed"):
            embed = self.embed.build(self.vocabulary, self.dim)
        layers = [EvoformerLayer(self._pair_update(), self._row_update()) for _ in range(self.depth)]
        with at("head"):
            head = self.head.build(self.dim, self.pair_dim)
        with at("window"):
            window = None if self.window is None else self.window.build(self.dim)
        positions = PairPositions(self.pair_dim, self.reach)
        if self.alignment is None:
            return Evoformer(embed, None, positions, layers, head, window=window)
        profile = Linear(self.vocabulary, self.dim, bias=False)
        return Evoformer(embed, profile, positions, layers, head, self.alignment.rows, self.alignment.profile, window)

    def _pair_update(self) -> PairUpdate:
        with at("outer"):
            outer = self.outer.build(self.dim, self.pair_dim)
        with at("triangle"):
            triangles = self.triangle.build(self.pair_dim)
        with at("pair_feedforward"):
            feedforward = self.pair_feedforward.build(self.pair_dim)
        names = [*triangles, "feedforward"]
        residual = build_residual("pre", names, self.pair_dim, self.norm, self.pair_dropout)
        return PairUpdate(outer, triangles, feedforward, residual)

    def _row_update(self) -> RowUpdate:
        with at("local"):
            local = None if self.local is None else self.local.build(self.dim)
        with at("attention"):
            attention = self.attention.build(self.dim)
        bias = PairBias(self.pair_dim, attention.heads.heads)
        with at("alignment.column"):
            column = None
            if self.alignment is not None:
                column = ColumnAttention(self.alignment.column.build(self.dim))
        with at("feedforward"):
            feedforward = self.feedforward.build(self.dim)
        parts = {"local": local, "attention": attention, "column": column, "feedforward": feedforward}
        names = [name for name, part in parts.items() if part is not None]
        residual = build_residual("pre", names, self.dim, self.norm, self.dropout)
        return RowUpdate(attention, bias, column, local, feedforward, residual)
