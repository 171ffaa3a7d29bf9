"""Layers, and stacks of them.

A layer has up to three sublayers, each added to the residual stream: a mixer (attention, a recurrence or a
convolution, all called alike), a cross-attention, and a feed-forward. A stack names its kinds of layers and has a
pattern, `["5*local", "global"]`, repeated up to its depth.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle, islice
from re import fullmatch
from typing import Any, cast

from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.config import Config, Depth, Kinds, Rate
from regard.errors import ConfigError, at, choices
from regard.parts.attention import Attention, AttentionConfig
from regard.parts.cache import Memo
from regard.parts.cells import RECURRENT
from regard.parts.conv import ConvolutionConfig
from regard.parts.feedforward import GLU, FeedForwardConfig
from regard.parts.heads import MultiHeads
from regard.parts.linear import Linear
from regard.parts.linear_attention import GatedDeltaNetConfig, LinearAttentionConfig, Mamba2Config
from regard.parts.mask import Rule
from regard.parts.mixer import Mixer, MixerConfig
from regard.parts.moe import MixtureOfExperts
from regard.parts.norm import NormConfig
from regard.parts.position import Relative
from regard.parts.recurrent import RecurrentConfig
from regard.parts.region import is_compiled, region
from regard.parts.residual import ResidualName, Sublayer, build_residual
from regard.parts.rwkv import RWKV4Config, RWKV7Config
from regard.parts.state import LayerState, LayerView

LayerStates = dict[str, LayerState]
LayerViews = dict[str, LayerView]

MIXERS = Kinds(
    "mixer",
    MixerConfig,
    {
        "attention": AttentionConfig,
        "conv": ConvolutionConfig,
        "linear-attention": LinearAttentionConfig,
        "gated-deltanet": GatedDeltaNetConfig,
        "mamba2": Mamba2Config,
        "rwkv4": RWKV4Config,
        "rwkv7": RWKV7Config,
    },
    RECURRENT,
)


class Layer(nn.Module):
    """The sublayers of a layer, one after the other. With the usual residual, "pre":

        x = x + mixer(norm_1(x))
        x = x + cross(norm_2(x), memory)    # in a decoder
        x = x + feedforward(norm_3(x))

    `residual` applies the norms and the additions (`regard/parts/residual.py`), so that post-norm, sandwich norm and
    parallel sublayers are the same layer with another residual.
    """

    def __init__(
        self, mixer: Mixer, cross: Attention | None, feedforward: nn.Module | None, residual: nn.Module
    ) -> None:
        super().__init__()
        self.mixer = mixer
        self.cross = cross
        self.feedforward = feedforward
        self.residual = residual

    @region
    def forward(
        self,
        x: Float[Tensor, "B T D"],
        *,
        mask: Rule | None = None,
        positions: Int[Tensor, "B T"] | None = None,
        memory: Float[Tensor, "B S D"] | None = None,
        memory_positions: Int[Tensor, "B S"] | None = None,
        memory_mask: Rule | None = None,
        state: LayerViews | None = None,
        memos: tuple[Memo, Memo] | None = None,
        first: int | None = None,
    ) -> Float[Tensor, "B _T D"]:
        """Apply the sublayers: first tokens interact, then each is processed on its own.

        `memos` are what the layers of a pass share, in mixers and in cross-attentions. With `first`, only the vectors
        of that many tokens are computed, if the layer `narrows`.
        """
        state = state or {}
        memo, cross_memo = memos or (None, None)
        shared: dict[str, Any] = {"memo": memo} if self.mixer.uses_memo else {}
        if first is not None:
            shared["first"] = first

        def mix(x: Tensor) -> Tensor:
            return self.mixer(x, mask=mask, positions=positions, state=state.get("mixer"), **shared)

        sublayers: dict[str, Sublayer] = {"mixer": mix}
        if self.cross is not None:
            cross = self.cross

            def attend_to_memory(x: Tensor) -> Tensor:
                if "cross" in state:
                    return cross(x, positions=positions, state=state["cross"])
                places = {"positions": positions, "memory_positions": memory_positions}
                return cross(x, memory=memory, mask=memory_mask, **places, memo=cross_memo)

            sublayers["cross"] = attend_to_memory
        if self.feedforward is not None:
            feedforward = self.feedforward
            if isinstance(feedforward, Mixer):  # it also sees the token before
                places = {"mask": mask, "positions": positions, "state": state.get("feedforward")}
                sublayers["feedforward"] = partial(feedforward, **places)
            elif isinstance(feedforward, MixtureOfExperts):  # it counts the real tokens
                sublayers["feedforward"] = partial(feedforward, positions=positions)
            else:
                sublayers["feedforward"] = feedforward
        return self.residual(x, sublayers)

    @property
    def narrows(self) -> bool:
        """Whether it can compute the vectors of the first tokens only, for a head that reads no others."""
        simple = self.cross is None and not isinstance(self.feedforward, Mixer | MixtureOfExperts)
        return simple and type(self.mixer) is Attention and getattr(self.residual, "narrows", False)

    def with_same_input(self) -> Iterator[tuple[Linear, ...]]:
        """Yield the linear layers that are applied to the same vectors, so that one product can compute them."""
        if isinstance(self.mixer, Attention) and isinstance(heads := self.mixer.heads, MultiHeads):
            yield heads.to_query, heads.to_key, heads.to_value
        if self.cross is not None and isinstance(heads := self.cross.heads, MultiHeads):
            yield heads.to_key, heads.to_value
        if isinstance(self.feedforward, GLU):
            yield self.feedforward.gate, self.feedforward.up

    def start(
        self, batch: int, capacity: int | None, memory: Tensor | None, memory_positions: Tensor | None
    ) -> LayerStates:
        """Return the empty state; the keys and values of `memory` are computed here, once."""
        state: LayerStates = {"mixer": self.mixer.start(batch, capacity)}
        if self.cross is not None:
            assert memory is not None
            state["cross"] = self.cross.remember(memory, memory_positions).for_steps()
        if isinstance(self.feedforward, Mixer):
            state["feedforward"] = self.feedforward.start(batch, capacity)
        return state


class Stack(nn.Module):
    """Layers one after the other, and a norm after the last."""

    def __init__(self, layers: list[Layer], norm: nn.Module | None = None) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.norm = norm or nn.Identity()

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        *,
        mask: Rule | None = None,
        positions: Int[Tensor, "B T"] | None = None,
        memory: Float[Tensor, "B S D"] | None = None,
        memory_positions: Int[Tensor, "B S"] | None = None,
        memory_mask: Rule | None = None,
        state: Sequence[LayerViews] | None = None,
        first: int | None = None,
    ) -> Float[Tensor, "B _T D"]:
        """Apply all layers. If only the vectors of the `first` tokens are needed, the last layer leaves out others."""
        states: Sequence[LayerViews | None] = state or [None] * len(self.layers)
        memos: tuple[Memo, Memo] = ({}, {})
        if state is None and is_compiled():
            for each in cast(Iterable[Layer], self.layers):
                each.mixer.share(memos[0], x, mask, positions)
        for number, (layer, layer_state) in enumerate(zip(self.layers, states, strict=True), 1):
            narrow = {"first": first} if first is not None and number == len(states) and layer.narrows else {}
            x = layer(
                x,
                mask=mask,
                positions=positions,
                memory=memory,
                memory_positions=memory_positions,
                memory_mask=memory_mask,
                state=layer_state,
                memos=memos,
                **narrow,
            )
        return self.norm(x)

    def start(
        self,
        batch: int,
        capacity: int | None = None,
        memory: Float[Tensor, "B S D"] | None = None,
        memory_positions: Int[Tensor, "B S"] | None = None,
    ) -> list[LayerStates]:
        """Return the empty state of every layer."""
        layers = cast(Iterable[Layer], self.layers)
        return [layer.start(batch, capacity, memory, memory_positions) for layer in layers]

    def summary(self) -> str:
        """Return the number of layers."""
        return "1 layer" if len(self.layers) == 1 else f"{len(self.layers)} layers"


@dataclass(frozen=True)
class LayerConfig(Config):
    """One kind of layer; a missing table means that the sublayer is absent."""

    mixer: MixerConfig
    """The sublayer in which tokens interact: attention, a recurrence or a convolution."""
    cross: AttentionConfig | None = None
    """Attention to the source, in a decoder."""
    feedforward: FeedForwardConfig | None = None
    """The sublayer that is applied to each token on its own."""
    residual: ResidualName = "pre"
    """How sublayers are joined: norm before (pre), after (post) or around each, all in parallel, or without residual
    (plain)."""
    norm: NormConfig | None = None
    """Norm of the sublayers."""
    dropout: Rate = 0.0
    """Share of a sublayer's output that training sets to zero."""
    dropout_by_row: bool = False
    """Whether dropout has the same zeros for all tokens of a row (variational dropout, Gal, Ghahramani 2016)."""
    drop_path: Rate = 0.0
    """Share of the rows for which training leaves a sublayer out (stochastic depth, Huang et al. 2016)."""

    def validate(self) -> None:
        """Check the rules between values."""
        if self.residual == "plain" and self.norm is not None:
            raise ConfigError('residual="plain" uses no norm; leave the norm out or choose another residual')
        if self.drop_path and self.residual == "plain":
            raise ConfigError('drop_path needs a residual connection, which residual="plain" has not; leave one out')
        if self.drop_path == 1:
            raise ConfigError("drop_path=1.0 must be below 1, or nothing is learned")

    def build(self, dim: int, shared: dict[Any, Relative]) -> Layer:
        """Build one layer of width `dim`; layers share position modules of equal configs."""
        with at("mixer"):
            mixer = (
                self.mixer.build(dim, shared=shared)
                if isinstance(self.mixer, AttentionConfig)
                else self.mixer.build(dim)
            )
        with at("cross"):
            cross = None if self.cross is None else self.cross.build(dim, shared=shared)
        with at("feedforward"):
            feedforward = None if self.feedforward is None else self.feedforward.build(dim)
        parts = {"mixer": mixer, "cross": cross, "feedforward": feedforward}
        sublayers = [name for name, part in parts.items() if part is not None]
        dropped = (self.dropout, self.drop_path, self.dropout_by_row)
        residual = build_residual(self.residual, sublayers, dim, self.norm, *dropped)
        return Layer(mixer, cross, feedforward, residual)


@dataclass(frozen=True, kw_only=True)
class StackConfig(Config):
    """`depth` layers of the kinds in `layers`, in the order of `pattern`; `norm` on top of them."""

    depth: Depth
    """Number of layers."""
    layers: dict[str, LayerConfig]
    """The kinds of layers, by names of your choice."""
    pattern: tuple[str, ...] = field(default=())
    """The order of the layers, repeated up to the depth: ["5*local", "global"]. Needed only for several kinds of
    layers."""
    norm: NormConfig | None = None
    """Norm after the last layer."""

    def validate(self) -> None:
        """Check the rules between values."""
        if not self.layers:
            raise ConfigError("layers must name at least one kind of layer")
        if not self.pattern and len(self.layers) > 1:
            order = ", ".join(f'"{name}"' for name in self.layers)
            remedy = f'add pattern = [{order}], or remove an inherited layer with NAME = "none"'
            raise ConfigError(f"pattern must give the order of the layers {', '.join(self.layers)}; {remedy}")
        self.names()  # checks the pattern
        # a stack that is less deep than its pattern leaves out the last layers of it
        unused = set(self.layers) - {item.rpartition("*")[2] for item in self.pattern or self.layers}
        if unused:
            names = ", ".join(sorted(unused))
            remedy = f'name them there, or remove them: layers.{min(unused)} = "none"'
            raise ConfigError(f"the layers {names} are missing from the pattern; {remedy}")

    def names(self) -> list[str]:
        """Return the kind of every layer from the bottom up: the pattern, repeated up to the depth."""
        names: list[str] = []
        for item in self.pattern or tuple(self.layers):
            count, star, name = item.rpartition("*")
            if (star and not fullmatch("[1-9][0-9]*", count)) or name not in self.layers:
                raise ConfigError(
                    f"pattern item {item!r} must be a layer or number*layer; {choices(name, self.layers)}"
                )
            repeats = 1 if not star else self.depth if len(count) > len(str(self.depth)) else int(count)
            names += [name] * min(repeats, self.depth - len(names))
        return list(islice(cycle(names), self.depth))

    def check(self, *, one_way: bool, memory: bool) -> None:
        """Reject layers that do not fit the role: that look ahead in a decoder, or at a source that does not exist."""
        for name, layer in self.layers.items():
            with at(f"layers.{name}"):
                if one_way and isinstance(layer.mixer, RecurrentConfig) and layer.mixer.bidirectional:
                    raise ConfigError(
                        "bidirectional=true reads the future, which is hidden here; leave it out", "mixer"
                    )
                if layer.cross is not None and not memory:
                    raise ConfigError("there is no source to look at; leave the table out", "cross")
        if memory and all(layer.cross is None for layer in self.layers.values()):
            raise ConfigError("some layer must have a cross table, or the source is never seen")

    def build_stack(self, dim: int) -> Stack:
        """Build the stack of width `dim`."""
        shared: dict[Any, Relative] = {}
        layers = []
        for name in self.names():
            with at(f"layers.{name}"):
                layers.append(self.layers[name].build(dim, shared))
        return Stack(layers, None if self.norm is None else self.norm.build(dim))
