"""Evoformer: rows of an alignment of proteins, and a vector for every pair of residues, that inform each other.

Jumper et al. 2021, "Highly accurate protein structure prediction with AlphaFold", supplement, Algorithms 3 to 6. A
model without an `alignment` table reads single sequences. The head says what is read from the vectors: a state of each
residue (secondary structure), or the distance of each pair (AlphaFold's distogram, section 1.9.8).

In a block, pairs are updated first and rows afterwards, as in AlphaFold-Multimer (Evans et al. 2021), where the outer
product mean was moved to the beginning of the block: so everything that a block computes reaches the rows above it.
"""

from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.config import Config, Count, Depth, Kinds, Rate
from regard.errors import InputError, at
from regard.models.init import InitConfig, NormalConfig
from regard.models.model import (
    AttentionRole,
    ModelConfig,
    ModelSequence,
    Tap,
    TokenModel,
    Verb,
    attention_name,
    row_positions,
)
from regard.models.residues import clean_sequence
from regard.parts.attention import Attention, AttentionConfig
from regard.parts.conv import Convolution, ConvolutionConfig
from regard.parts.embed import EmbedConfig, Embedding
from regard.parts.feedforward import FeedForwardConfig
from regard.parts.linear import Linear
from regard.parts.mask import Padding, Rule, explicit_positions
from regard.parts.norm import LayerNormConfig, NormConfig
from regard.parts.pair import (
    ColumnAttention,
    OuterConfig,
    OuterProductMean,
    OuterProductMeanConfig,
    PairBias,
    PairPositions,
    ProductDifference,
    TriangleAttention,
    TriangleConfig,
    TriangleMultiplication,
    real_pairs,
)
from regard.parts.region import region
from regard.parts.residual import Residual, Sublayer, build_residual

Rows = Float[Tensor, "_rows T D"]  # (B R) T D: the rows of each alignment, the sequence itself first
Pairs = Float[Tensor, "B T T C"]


class Places(NamedTuple):
    """Where residues are: their positions (-1: padding), the rows of each alignment, and how many of these are real."""

    positions: Int[Tensor, "B T"] | None
    rows: int
    depths: Int[Tensor, "B"] | None

    @property
    def of_rows(self) -> Int[Tensor, "_rows T"] | None:
        """The positions of the residues of all rows."""
        return None if self.positions is None else self.positions.repeat_interleave(self.rows, 0)


class PairUpdate(nn.Module):
    """z = z + outer(m); then triangles and a transition, each added to z."""

    def __init__(
        self,
        outer: OuterProductMean | ProductDifference,
        triangles: dict[str, TriangleMultiplication | TriangleAttention],
        feedforward: nn.Module,
        residual: Residual,
    ) -> None:
        super().__init__()
        self.outer = outer
        self.triangles = nn.ModuleDict(triangles)
        self.feedforward = feedforward
        self.residual = residual

    def forward(self, rows: Rows, pairs: Pairs, places: Places) -> Pairs:
        """Return the updated pairs."""
        real = real_pairs(places.positions)

        def through(triangle: nn.Module) -> Sublayer:
            if isinstance(triangle, TriangleMultiplication):
                return lambda z: triangle(z, real)
            return lambda z: triangle(z, places.positions)

        pairs = pairs + self.residual.drop(self.outer(rows, places.depths, places.rows))
        updates = {name: through(triangle) for name, triangle in self.triangles.items()}
        return self.residual(pairs, {**updates, "feedforward": self.feedforward})

    def tokens_through(self, child: nn.Module, tokens: int, keys: int) -> int:
        """Return how many vectors pass through a child: one for each pair, but for the outer product."""
        return tokens if child is self.outer else tokens * keys


class RowUpdate(nn.Module):
    """Attention along rows with a bias from pairs, along columns, and a transition, each added to the rows."""

    def __init__(
        self,
        attention: Attention,
        bias: PairBias,
        column: ColumnAttention | None,
        local: Convolution | None,
        feedforward: nn.Module,
        residual: Residual,
    ) -> None:
        super().__init__()
        self.local = local
        self.bias = bias
        self.attention = attention
        self.column = column
        self.feedforward = feedforward
        self.residual = residual

    def forward(self, rows: Rows, pairs: Pairs, places: Places) -> Rows:
        """Return the updated rows."""
        positions = places.of_rows
        mask: Rule | None = None if positions is None else Padding()

        def attend(x: Tensor) -> Tensor:
            return self.attention(x, mask=mask, positions=positions, pair=self.bias(pairs, places.rows))

        sublayers: dict[str, Sublayer] = {}
        if self.local is not None:
            local = self.local
            sublayers["local"] = lambda x: local(x, mask=mask, positions=positions)
        sublayers["attention"] = attend
        if self.column is not None:
            column = self.column
            sublayers["column"] = lambda x: column(x, places.depths, places.rows)
        updated: Tensor = self.residual(rows, {**sublayers, "feedforward": self.feedforward})
        return updated

    def tokens_through(self, child: nn.Module, tokens: int, keys: int) -> int:
        """Return how many vectors pass through a child: the bias is made of pairs."""
        return tokens * keys if child is self.bias else tokens


class EvoformerLayer(nn.Module):
    """One block: first the pairs are updated from the rows, then the rows with a bias from the pairs."""

    def __init__(self, pair_update: PairUpdate, row_update: RowUpdate) -> None:
        super().__init__()
        self.pair_update = pair_update
        self.row_update = row_update

    @region
    def forward(self, rows: Rows, pairs: Pairs, places: Places) -> tuple[Rows, Pairs]:
        """Return the updated rows and pairs."""
        pairs = self.pair_update(rows, pairs, places)
        return self.row_update(rows, pairs, places), pairs


# --- heads -----------------------------------------------------------------------------------------------------------


class ResidueStates(nn.Module):
    """W norm(m_1) + b: a score for each state of each residue of the sequence itself."""

    task = "residues"
    description = "a predictor of secondary structure"

    def __init__(self, norm: nn.Module, classify: Linear, dropout: float) -> None:
        super().__init__()
        self.norm = norm
        self.dropout = nn.Dropout(dropout)
        self.classify = classify

    def forward(self, rows: Rows, pairs: Pairs, places: Places) -> Float[Tensor, "B T classes"]:
        """Score the states."""
        return self.classify(self.dropout(self.norm(rows[:: places.rows])))


class PairDistances(nn.Module):
    """W norm(z + outer(m)) + b, and the mean of it for ij and ji: a score for each distance of each pair."""

    task = "distances"
    description = "a predictor of distances between residues"

    def __init__(self, outer: OuterProductMean | ProductDifference, norm: nn.Module, classify: Linear) -> None:
        super().__init__()
        self.outer = outer
        self.norm = norm
        self.classify = classify

    def forward(self, rows: Rows, pairs: Pairs, places: Places) -> Float[Tensor, "B T T classes"]:
        """Score the distances."""
        scores = self.classify(self.norm(pairs + self.outer(rows, places.depths, places.rows)))
        return (scores + scores.transpose(1, 2)) / 2

    def tokens_through(self, child: nn.Module, tokens: int, keys: int) -> int:
        """Return how many vectors pass through a child: one for each pair, but for the outer product."""
        return tokens if child is self.outer else tokens * keys


# --- the model -------------------------------------------------------------------------------------------------------


class Evoformer(TokenModel):
    """head(blocks(rows, pairs)): m_r = E[row r], with the profile added to the first; z_ij = A m_i + B m_j + p(i - j).

    The profile of a residue is the share of each token in its column: W_p (1/R sum_r onehot(row r)).
    """

    head: ResidueStates | PairDistances

    def __init__(
        self,
        embed: Embedding,
        profile: Linear | None,
        positions: PairPositions,
        layers: list[EvoformerLayer],
        head: ResidueStates | PairDistances,
        aligned_rows: int = 0,
    ) -> None:
        super().__init__()
        dim, pair_dim = embed.tokens.table.embedding_dim, positions.table.embedding_dim
        self.embed = embed
        self.profile = profile
        self.positions = positions
        self.left, self.right = Linear(dim, pair_dim), Linear(dim, pair_dim)
        self.layers = nn.ModuleList(layers)
        self.head = head
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
        positions = row_positions(tokens, lengths)
        places = Places(positions, 1, None)
        every = tokens
        if alignment is not None:
            places = Places(positions, 1 + alignment.shape[1], None if depths is None else depths + 1)
            every = rearrange(torch.cat((tokens[:, None], alignment), 1), "B R T -> (B R) T")
        rows = self.embed(every, places.of_rows)
        if self.profile is not None:
            vocabulary = self.embed.tokens.table.num_embeddings
            shares = F.one_hot(tokens, vocabulary) if profile is None else profile
            added = self.profile(shares.to(rows.dtype)).to(rows.dtype)
            first = torch.arange(len(rows), device=rows.device) % places.rows == 0
            rows = rows + added.repeat_interleave(places.rows, 0) * first[:, None, None]
        own = rows[:: places.rows]
        apart = self.positions(explicit_positions(positions, tokens.shape[1], tokens.device))
        pairs = self.left(own)[:, :, None] + self.right(own)[:, None] + apart
        for layer in self.layers:
            rows, pairs = layer(rows, pairs, places)
        return rows, pairs, places

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
        """Return how many vectors pass through a child: positions are looked up for every pair."""
        return tokens * keys if child is self.positions else tokens


# --- as data ---------------------------------------------------------------------------------------------------------


class ResidueHeadConfig(Config):
    """Base of the configs of what is read from rows and pairs."""

    def build(self, dim: int, pair_dim: int) -> ResidueStates | PairDistances:
        """Build the head for rows of width `dim` and pairs of width `pair_dim`."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class ResidueStatesConfig(ResidueHeadConfig):
    """A state of each residue."""

    classes: Count
    """Number of states; training sets it."""
    dropout: Rate = 0.0
    """Share of the features before the scores that training sets to zero."""
    norm: NormConfig = field(default_factory=LayerNormConfig)
    """Norm of the vectors."""

    def build(self, dim: int, pair_dim: int) -> ResidueStates:
        """Build the head for rows of width `dim`."""
        return ResidueStates(self.norm.build(dim), Linear(dim, self.classes), self.dropout)


@dataclass(frozen=True, kw_only=True)
class PairDistancesConfig(ResidueHeadConfig):
    """A distance of each pair, as one of several bins (the distogram of Jumper et al. 2021, section 1.9.8)."""

    classes: Count
    """Number of bins; training sets it."""
    outer: OuterConfig = field(default_factory=OuterProductMeanConfig)
    """What is added to the pairs from the rows."""
    norm: NormConfig = field(default_factory=LayerNormConfig)
    """Norm of the vectors."""

    def build(self, dim: int, pair_dim: int) -> PairDistances:
        """Build the head for rows of width `dim` and pairs of width `pair_dim`."""
        outer = self.outer.build(dim, pair_dim)
        return PairDistances(outer, self.norm.build(pair_dim), Linear(pair_dim, self.classes))


RESIDUE_HEADS = Kinds(
    "residue head", ResidueHeadConfig, {"states": ResidueStatesConfig, "distances": PairDistancesConfig}
)


@dataclass(frozen=True, kw_only=True)
class AlignmentConfig(Config):
    """What a model of alignments has: a profile of each column, and attention along columns."""

    rows: Count = 16
    """Rows that are read besides the sequence itself; the profile is of all rows."""
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

    def build(self) -> Evoformer:
        """Build the model."""
        with at("embed"):
            embed = self.embed.build(self.vocabulary, self.dim)
        layers = [EvoformerLayer(self._pair_update(), self._row_update()) for _ in range(self.depth)]
        with at("head"):
            head = self.head.build(self.dim, self.pair_dim)
        profile = None if self.alignment is None else Linear(self.vocabulary, self.dim, bias=False)
        rows = 0 if self.alignment is None else self.alignment.rows
        return Evoformer(embed, profile, PairPositions(self.pair_dim, self.reach), layers, head, rows)

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
