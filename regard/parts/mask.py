"""Who may look at whom: rules on positions, joined with `&`.

A rule decides for one query and one key; it is evaluated for all pairs at once by broadcasting, or pair by pair inside
a Flex kernel, with the same code. Rules use *positions*, not indices, so they hold with a cache, too, where the first
query of a step is not the first token. Position -1 means that there is no token: padding, or an empty slot of a cache.

Equal rules compare equal, so that a mask computed for one can be reused for another.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.config import Config, Count, Kinds


class Coordinate(NamedTuple):
    """Where a query or a key is: its index in the tensor, and its position in the text."""

    index: Tensor  # type: ignore[assignment]  # hides a method of tuples, which is not used
    position: Tensor


class Rule:
    """Whether a query may look at a key."""

    def allows(self, batch: Tensor, query: Coordinate, key: Coordinate) -> Tensor:
        """Decide for one pair, or by broadcasting for many."""
        raise NotImplementedError

    def rules(self) -> tuple["Rule", ...]:
        """Return the simple rules that this one combines."""
        return (self,)

    def __and__(self, other: "Rule | None") -> "Rule":
        return self if other is None else Both(self, other)


@dataclass(frozen=True)
class Both(Rule):
    """Both rules hold."""

    first: Rule
    second: Rule

    def allows(self, batch: Tensor, query: Coordinate, key: Coordinate) -> Tensor:
        """Return whether both rules allow the pair."""
        return self.first.allows(batch, query, key) & self.second.allows(batch, query, key)

    def rules(self) -> tuple[Rule, ...]:
        """Return the simple rules of both."""
        return self.first.rules() + self.second.rules()


@dataclass(frozen=True)
class Causal(Rule):
    """A query sees its own and earlier positions: key <= query. Scores of later keys become -inf before the softmax."""

    def allows(self, batch: Tensor, query: Coordinate, key: Coordinate) -> Tensor:
        """Return key <= query."""
        return key.position <= query.position


@dataclass(frozen=True)
class Window(Rule):
    """A query sees keys less than `size` positions away: |query - key| < size (Beltagy et al. 2020; Mistral 2023)."""

    size: int

    def allows(self, batch: Tensor, query: Coordinate, key: Coordinate) -> Tensor:
        """Return |query - key| < size."""
        return (query.position - key.position).abs() < self.size


@dataclass(frozen=True)
class Strided(Rule):
    """A query sees keys less than `stride` positions away, and every `stride`-th farther one (Child et al. 2019)."""

    stride: int

    def allows(self, batch: Tensor, query: Coordinate, key: Coordinate) -> Tensor:
        """Return |query - key| < stride, or query - key is a multiple of stride."""
        distance = (query.position - key.position).abs()
        return (distance < self.stride) | (distance % self.stride == 0)


@dataclass(frozen=True)
class Padding(Rule):
    """A query sees only real tokens: key >= 0."""

    def allows(self, batch: Tensor, query: Coordinate, key: Coordinate) -> Tensor:
        """Return key >= 0."""
        return key.position >= 0


@dataclass(frozen=True, eq=False)
class Documents(Rule):
    """A query sees only its own document, when several are packed into a row.

    `keys` are the documents of a memory: each translation sees only its own source.
    """

    documents: Int[Tensor, "B T"]
    keys: Int[Tensor, "B S"] | None = None

    def allows(self, batch: Tensor, query: Coordinate, key: Coordinate) -> Tensor:
        """Return whether query and key are in the same document."""
        keys = self.documents if self.keys is None else self.keys
        return self.documents[batch, query.index] == keys[batch, key.index]


@dataclass(frozen=True, eq=False)
class Agents(Rule):
    """A query sees every agent, and `is_same` says which keys are its own agent's (agent mask, Yuan et al. 2021).

    `agents` numbers the agent of each token, -1 where there is none; `keys` are the agents of a memory.
    """

    agents: Int[Tensor, "B T"]
    keys: Int[Tensor, "B S"] | None = None

    def allows(self, batch: Tensor, query: Coordinate, key: Coordinate) -> Tensor:
        """Return whether the key belongs to an agent."""
        return self.key_agents[batch, key.index] >= 0

    def is_same(self) -> Bool[Tensor, "B T S"]:
        """Return for all pairs whether query and key are of the same agent."""
        return self.agents[:, :, None] == self.key_agents[:, None]

    @property
    def key_agents(self) -> Int[Tensor, "B S"]:
        """The agents of the keys."""
        return self.agents if self.keys is None else self.keys


@dataclass(frozen=True, eq=False)
class Prefix(Rule):
    """Causal, but the first `length` tokens of a row are seen by all (prefix language model, Raffel et al. 2020)."""

    length: Int[Tensor, "B"]

    def allows(self, batch: Tensor, query: Coordinate, key: Coordinate) -> Tensor:
        """Return key <= query, or key < length."""
        return (key.position <= query.position) | (key.position < self.length[batch])


@dataclass(frozen=True, eq=False)
class BeamMask(Rule):
    """A query sees only the tokens of its own beam. Beams share a cache: key `beams * s + j` was written by beam j.

    `owners` says for each beam and each s which beam wrote the token it has there.
    """

    owners: Int[Tensor, "B beams S"]

    def allows(self, batch: Tensor, query: Coordinate, key: Coordinate) -> Tensor:
        """Return owners[query, s] == j."""
        beams = self.owners.shape[1]
        return self.owners[batch, query.index, key.index // beams] == key.index % beams


def includes(rule: Rule | None, kind: type[Rule]) -> bool:
    """Return whether a rule of this kind is part of the mask. Mixers other than attention read the mask this way."""
    return rule is not None and any(isinstance(simple, kind) for simple in rule.rules())


def explicit_positions(positions: Int[Tensor, "B T"] | None, length: int, device: torch.device) -> Int[Tensor, "_ T"]:
    """Return positions as a tensor; None means 0 .. length-1 in every row."""
    return torch.arange(length, device=device)[None] if positions is None else positions


def padded_positions(lengths: Int[Tensor, "B"] | None, length: int) -> Int[Tensor, "B T"] | None:
    """Return the positions of rows padded on the right: 0 .. lengths-1, then -1."""
    if lengths is None:
        return None
    steps = torch.arange(length, device=lengths.device)
    return torch.where(steps < lengths[:, None], steps, -1)


def document_positions(documents: Int[Tensor, "B T"]) -> Int[Tensor, "B T"]:
    """Return positions that restart at 0 in each packed document; -1 at padding (document -1)."""
    steps = torch.arange(documents.shape[1], device=documents.device)
    begins = torch.cat((torch.ones_like(documents[:, :1], dtype=torch.bool), documents.diff(dim=1) != 0), 1)
    first = torch.where(begins, steps, 0).cummax(1).values
    return torch.where(documents >= 0, steps - first, -1)


def dense_mask(rule: Rule, query: Int[Tensor, "_b T"], key: Int[Tensor, "_c S"], batch: int) -> Bool[Tensor, "_B _T S"]:
    """Return the mask of all pairs. Dimensions that a rule does not use stay 1: padding alone needs no T x S."""
    T, S = query.shape[1], key.shape[1]
    rows = torch.arange(batch, device=query.device)[:, None, None]
    i = torch.arange(T, device=query.device)[None, :, None]
    j = torch.arange(S, device=query.device)[None, None, :]
    return rule.allows(rows, Coordinate(i, query[:, :, None]), Coordinate(j, key[:, None, :]))


# --- masks that a recipe adds to the model's own ---------------------------------------------------------------------


class MaskConfig(Config):
    """Base of the configs of masks. The rule of a layer is added to the mask of the model: both must allow a pair."""

    def build(self) -> Rule:
        """Build the rule."""
        raise NotImplementedError


@dataclass(frozen=True)
class StridedConfig(MaskConfig):
    """The strided pattern of Sparse Transformers (Child et al. 2019): near tokens, and every `stride`-th far one."""

    stride: Count
    """Distance of the far tokens that are seen; also the number of near ones."""

    def build(self) -> Rule:
        """Build the rule."""
        return Strided(self.stride)


MASKS = Kinds("mask", MaskConfig, {"strided": StridedConfig})
