"""What an Evoformer reads from its vectors: a state of each residue, or the distance of each pair.

The distances are AlphaFold's distogram (Jumper et al. 2021, supplement, section 1.9.8).
"""

from dataclasses import dataclass, field

from jaxtyping import Float
from torch import Tensor, nn

from regard.config import Config, Count, Kinds, Rate
from regard.models.evoformer_layer import Pairs, Places, Rows
from regard.parts.linear import Linear
from regard.parts.norm import LayerNormConfig, NormConfig
from regard.parts.pair import OuterConfig, OuterProductMean, OuterProductMeanConfig, ProductDifference


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

    def tokens_through(self, child: nn.Module, tokens: int, keys: int) -> int:
        """Return how many vectors pass through a child: those of the first row."""
        return keys


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
        return tokens if child is self.outer else keys * keys


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
