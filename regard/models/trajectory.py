"""Trajectories: a Transformer over all agents and steps at once, with several futures for each agent.

The tokens are the observed steps of all agents. With agent-aware heads (AgentFormer, Yuan et al. 2021) attention
distinguishes an agent's own past from that of others. A head reads `futures` possible paths and their probabilities
from the vector of an agent's last step, as in multiple choice learning (Guzman-Rivera et al. 2012; Rupprecht et al.
2017).
"""

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.config import Config, Count, Rate
from regard.errors import ConfigError, InputError, at
from regard.models.init import InitConfig, XavierConfig
from regard.models.introspection import AttentionRole, ModelSequence, stack_attentions, stack_taps
from regard.models.model import Model, ModelConfig, Verb
from regard.models.stack import Stack, StackConfig
from regard.parts.absolute_position import Absolute, AbsoluteConfig
from regard.parts.feedforward import ACTIVATIONS
from regard.parts.inputs import check_tensor
from regard.parts.mask import Agents
from regard.parts.mixer import Mixer

FEATURES = 8
STILL = 1e-3  # metres; an agent that moved less has no direction

Positions = Float[Tensor, "B A S 2"]
Present = Bool[Tensor, "B A S"]


class Futures(NamedTuple):
    """Possible paths of each agent, in the coordinates of its tracks, and the logits of their probabilities."""

    paths: Float[Tensor, "B A futures F 2"]
    logits: Float[Tensor, "B A futures"]


class AgentFrame(NamedTuple):
    """The coordinates of each agent: the origin is its last position, the first axis its direction."""

    origin: Float[Tensor, "B A 2"]
    direction: Float[Tensor, "B A 2"]  # a unit vector

    def enter(self, vectors: Float[Tensor, "B A *steps 2"]) -> Float[Tensor, "B A *steps 2"]:
        """Rotate vectors of the scene into the frame of their agent."""
        c, s = self.direction.unbind(-1)
        return _rotate(vectors, torch.stack((c, -s), -1))

    def leave(self, vectors: Float[Tensor, "B A *steps 2"]) -> Float[Tensor, "B A *steps 2"]:
        """Rotate vectors of an agent's frame into the scene."""
        return _rotate(vectors, self.direction)


def _rotate(vectors: Tensor, direction: Float[Tensor, "B A 2"]) -> Tensor:
    """Multiply vectors by the direction as complex numbers: (x + iy)(c + is)."""
    c, s = direction.reshape(*direction.shape[:2], *(1,) * (vectors.ndim - 3), 2).unbind(-1)
    x, y = vectors.unbind(-1)
    return torch.stack((x * c - y * s, x * s + y * c), -1)


def velocities(tracks: Positions, present: Present) -> Positions:
    """Return x_t - x_(t-1); 0 at the first step, and where the agent is absent at one of the two."""
    moved = (tracks[:, :, 1:] - tracks[:, :, :-1]).masked_fill(~(present[:, :, 1:] & present[:, :, :-1])[..., None], 0)
    return torch.cat((torch.zeros_like(moved[:, :, :1]), moved), 2)


def agent_frames(tracks: Positions, speeds: Positions) -> AgentFrame:
    """Return the frame of each agent; one that does not move has the axes of the scene."""
    moved = speeds.sum(2)
    length = moved.norm(dim=-1, keepdim=True)
    axis = torch.zeros_like(moved)
    axis[..., 0] = 1.0
    return AgentFrame(tracks[:, :, -1], torch.where(length > STILL, moved / length.clamp(min=STILL), axis))


class Motion(nn.Module):
    """From positions to vectors: W_2 g(W_1 f + b_1) + b_2, of eight features f of each step.

    Position relative to the last one and velocity, in the frame of the agent; position relative to the middle of all
    agents and velocity, in the scene. So nothing depends on where the scene is, and what an agent does alone does not
    depend on its direction. Int8 does not change these small matrices, which read metres.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.up = nn.Linear(FEATURES, dim)
        self.activation = ACTIVATIONS["gelu"]
        self.down = nn.Linear(dim, dim)

    def forward(
        self, tracks: Positions, present: Present, speeds: Positions, frame: AgentFrame
    ) -> Float[Tensor, "B A S D"]:
        """Return a vector for each step of each agent."""
        here = present[:, :, -1, None]
        middle = (frame.origin * here).sum(1, keepdim=True) / here.sum(1, keepdim=True).clamp(min=1)
        own = frame.enter(tracks - frame.origin[:, :, None])
        features = torch.cat((own, frame.enter(speeds), tracks - middle[:, :, None], speeds), -1)
        features = features.masked_fill(~present[..., None], 0)
        return self.down(self.activation(self.up(features.to(self.up.weight.dtype))))


class FuturesHead(nn.Module):
    """W_2 g(W_1 x + b_1) + b_2: for each future its offsets from constant velocity, and its logit."""

    classes = None

    def __init__(self, dim: int, hidden: int, futures: int, predicted: int, dropout: float) -> None:
        super().__init__()
        self.futures, self.predicted = futures, predicted
        self.up = nn.Linear(dim, hidden)
        self.activation = ACTIVATIONS["gelu"]
        self.dropout = nn.Dropout(dropout)
        self.down = nn.Linear(hidden, futures * (2 * predicted + 1))

    def forward(
        self, x: Float[Tensor, "B A D"], speed: Float[Tensor, "B A 2"]
    ) -> tuple[Float[Tensor, "B A futures F 2"], Float[Tensor, "B A futures"]]:
        """Return paths from the origin, and logits. `speed` is the last velocity, in the frame of the agent."""
        numbers = self.down(self.dropout(self.activation(self.up(x)))).unflatten(-1, (self.futures, -1))
        numbers = numbers.to(speed.dtype)
        offsets = numbers[..., 1:].unflatten(-1, (self.predicted, 2))
        steps = torch.arange(1, self.predicted + 1, device=x.device)[:, None]
        return offsets + steps * speed[:, :, None, None], numbers[..., 0]


class TrajectoryModel(Model):
    """head(stack(motion(tracks) + positions in time)) at the last step of each agent."""

    head: FuturesHead

    noun = "step"

    def __init__(
        self,
        motion: Motion,
        stack: Stack,
        head: FuturesHead,
        observed: int,
        position: Absolute | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.motion = motion
        self.position = position
        self.dropout = nn.Dropout(dropout)
        self.stack = stack
        self.head = head
        self.observed = observed

    def forward(self, tracks: Float[Tensor, "B T 2"], present: Bool[Tensor, "B T"]) -> Futures:
        """Return the futures of all agents, from their positions in metres at the observed steps, agent by agent.

        `present` says at which steps an agent is seen. One that is absent at the last step has no meaningful future.
        """
        positions, there = self.by_agent(tracks, present)
        speeds = velocities(positions, there)
        frame = agent_frames(positions, speeds)
        x = self.encode(tracks, present).unflatten(1, (-1, self.observed))
        paths, logits = self.head(x[:, :, -1], frame.enter(speeds[:, :, -1]))
        return Futures(frame.origin[:, :, None, None] + frame.leave(paths), logits)

    def by_agent(self, tracks: Float[Tensor, "B T 2"], present: Bool[Tensor, "B T"]) -> tuple[Positions, Present]:
        """Split the tokens into agents and steps."""
        check_tensor(tracks, "tracks")
        check_tensor(present, "present")
        if tracks.shape[1] % self.observed:
            steps = f"{tracks.shape[1]} steps are not a multiple of {self.observed}, the steps of each agent"
            raise InputError(f"{steps}; give all of them, with present=False where an agent is absent")
        return tracks.unflatten(1, (-1, self.observed)), present.unflatten(1, (-1, self.observed))

    def encode(self, tracks: Float[Tensor, "B T 2"], present: Bool[Tensor, "B T"]) -> Float[Tensor, "B T D"]:
        """Return a vector for each step of each agent, agent by agent."""
        positions, there = self.by_agent(tracks, present)
        times, agents = token_places(there)
        speeds = velocities(positions, there)
        x = self.motion(positions, there, speeds, agent_frames(positions, speeds)).flatten(1, 2)
        if self.position is not None:
            x = x + self.position(times, x.shape[1], x.device).to(x.dtype)
        return self.stack(self.dropout(x), mask=Agents(agents), positions=times)

    @property
    def description(self) -> str:
        """What it is called."""
        return "a model of trajectories"

    @property
    def verbs(self) -> tuple[Verb, ...]:
        """What it can do."""
        return ("forecast",)

    @property
    def task(self) -> str:
        """The kind of task that trains and measures it."""
        return "trajectories"

    @property
    def reads(self) -> Literal["text", "image", "tracks"]:
        """What it reads."""
        return "tracks"

    def sequences(self) -> dict[str, ModelSequence]:
        """Return the one sequence of the steps of all agents."""
        return {"steps": ModelSequence(stack_taps(self.stack))}

    def attentions(self) -> list[AttentionRole]:
        """List the attentions of the stack."""
        return stack_attentions(self.stack, "stack", "self", "steps")

    def token_vectors(self, **inputs: Tensor) -> Float[Tensor, "B T D"]:
        """Return the vectors of the steps."""
        return self.encode(inputs["tracks"], inputs["present"])

    def tokens_through(self, child: nn.Module, tokens: int, keys: int) -> int:
        """Return how many vectors pass through a child: the head reads one of each agent."""
        return max(tokens // self.observed, 1) if child is self.head else tokens


def token_places(present: Present) -> tuple[Int[Tensor, "B T"], Int[Tensor, "B T"]]:
    """Return the time and the agent of each token, agent by agent; -1 where the agent is absent.

    An agent that is absent at the last step is not seen at all, since it is not forecast.
    """
    _, A, S = present.shape
    seen = (present & present[:, :, -1:]).flatten(1)
    times = torch.arange(S, device=present.device).repeat(A)
    agents = torch.arange(A, device=present.device).repeat_interleave(S)
    return torch.where(seen, times, -1), torch.where(seen, agents, -1)


@dataclass(frozen=True)
class FuturesConfig(Config):
    """Several futures of each agent, with probabilities."""

    hidden: Count
    """Width of the hidden layer."""
    futures: Count = 20
    """Number of futures."""
    dropout: Rate = 0.0
    """Share of the features of the hidden layer that training sets to zero."""


@dataclass(frozen=True, kw_only=True)
class TrajectoryConfig(StackConfig, ModelConfig):
    """A Transformer over the observed steps of all agents."""

    dim: Count
    """Width of the model."""
    observed: Count = 8
    """Steps that the model sees; training sets it."""
    predicted: Count = 12
    """Steps that the model forecasts; training sets it."""
    position: AbsoluteConfig | None = None
    """Positions in time."""
    head: FuturesConfig
    """The futures that are read from the last step of an agent."""
    dropout: Rate = 0.0
    """Share of the features of the embedding that training sets to zero."""
    init: InitConfig = field(default_factory=XavierConfig)
    """The initial weights."""

    def validate(self) -> None:
        """Check the rules between values."""
        super().validate()
        if self.observed < 2:
            raise ConfigError(f"{self.observed} must be at least 2, since a velocity needs two steps", "observed")
        self.check(one_way=False, memory=False)

    def build(self) -> TrajectoryModel:
        """Build the model."""
        with at("position"):
            position = None if self.position is None else self.position.build(self.dim)
        head = self.head
        stack = self.build_stack(self.dim)
        for name, layer in zip(self.names(), stack.layers, strict=True):
            for part in ("mixer", "feedforward"):
                module = getattr(layer, part)
                if isinstance(module, Mixer) and not module.follows_documents:
                    rule = "tokens are steps of several agents, which only attention keeps apart"
                    raise ConfigError(f"{rule}; use attention with mlp or glu", f"layers.{name}.{part}")
        return TrajectoryModel(
            Motion(self.dim),
            stack,
            FuturesHead(self.dim, head.hidden, head.futures, self.predicted, head.dropout),
            self.observed,
            position,
            self.dropout,
        )
