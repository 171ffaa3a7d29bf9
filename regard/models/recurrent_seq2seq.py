"""Recurrent encoder-decoder, without attention (Sutskever et al. 2014; Cho et al. 2014) and with (Bahdanau et al.
2015; Luong et al. 2015).

Without attention, the whole source must pass through one vector c = h_T: the bottleneck. With attention, every step
computes its own context: c_t = sum_i a_{t,i} h_i.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Literal, cast

import torch
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.config import Count, Depth, Rate
from regard.errors import ConfigError, at
from regard.models.head import Logits, LogitsConfig
from regard.models.init import InitConfig, UniformConfig
from regard.models.introspection import AttentionRole, ModelSequence, Tap, stack_attentions, stack_taps
from regard.models.model import EncoderDecoder, ModelConfig, last_real, no_tokens_seen
from regard.models.stack import Stack, StackConfig
from regard.parts.attention import Attention, AttentionConfig
from regard.parts.embed import EmbedConfig, Embedding
from regard.parts.fused_cells import LSTMConfig
from regard.parts.mask import explicit_positions, padded_positions
from regard.parts.mixer import Mixer
from regard.parts.recurrent import Bidirectional, RecurrentConfig
from regard.parts.state import Hidden, LayerState, Memory, State, Step

Feed = Literal["context", "attended"]


class RecurrentSeq2Seq(EncoderDecoder):
    """s_t = g(y_t, s_{t-1}, ...), logits_t = W_u r_t.

    - No attention: s_t = g([y_t ; c], s_{t-1}), r_t = s_t.
    - Attention: c_t from s_t, r_t = tanh(W [c_t ; s_t]); no step depends on the attention of the step before.
    - `feed = "attended"` (Luong's input feeding): s_t = g([y_t ; r_{t-1}], s_{t-1}), then as above.
    - `feed = "context"` (Bahdanau): c_t from s_{t-1}, s_t = g([y_t ; c_t], s_{t-1}), r_t = tanh(W [c_t ; s_t]).
    """

    compile_pays = False
    packs_documents = False  # the decoder is recurrent, whatever the encoder is

    def __init__(
        self,
        embed: Embedding,
        source_embed: Embedding | None,
        encoder: Stack,
        cells: list[Mixer],
        attention: Attention | None,
        feed: Feed | None,
        head: Logits,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        dim = embed.tokens.table.embedding_dim
        self.embed = embed
        self.source_embed = source_embed
        self.encoder = encoder
        self.cells = nn.ModuleList(cells)
        begin = cells[0].start(1)
        assert isinstance(begin, Hidden)
        self.values = len(begin.values)  # 2 for an LSTM, else 1
        self.bridge = nn.Linear(dim, len(cells) * self.values * dim)
        self.attention = attention
        self.feed = feed
        self.readout = None if attention is None else nn.Linear(2 * dim, dim, bias=False)
        self.dropout = nn.Dropout(dropout)
        self.head = head

    def forward(
        self,
        source: Int[Tensor, "B S"],
        target: Int[Tensor, "B T"],
        *,
        source_lengths: Int[Tensor, "B"] | None = None,
    ) -> Float[Tensor, "B T V"]:
        """Score what follows each target token (teacher forcing); rows are padded on the right."""
        state = self.start(source, source_lengths)
        return self.logits(self.decode(target, state.advance(target)))

    def start(
        self,
        source: Int[Tensor, "B S"],
        source_lengths: Int[Tensor, "B"] | None = None,
        capacity: int | None = None,
    ) -> State:
        """Encode the source and return s_0 = tanh(W h_T) of every layer; the state does not grow."""
        memory = self.encode(source, lengths=source_lengths)
        summary = self.source_summary(memory, source_lengths)
        begin = torch.tanh(self.bridge(summary))
        per_cell = rearrange(begin, "B (cells values D) -> cells values B D", cells=len(self.cells), values=self.values)
        layers: list[dict[str, LayerState]] = [{"cell": Hidden(tuple(values.unbind()))} for values in per_cell]
        if self.attention is None:
            layers.append({"fed": Hidden((summary,))})
        else:
            positions = padded_positions(source_lengths, source.shape[1])
            layers.append({"memory": self.attention.remember(memory, positions)})
        if self.feed == "attended":
            layers[-1]["fed"] = Hidden((torch.zeros_like(summary),))
        return State(layers, no_tokens_seen(len(source), source.device), self.longest())

    def source_summary(self, memory: Float[Tensor, "B S D"], lengths: Int[Tensor, "B"] | None) -> Float[Tensor, "B D"]:
        """Return h_T; of a bidirectional encoder, the last forward and the first backward state."""
        final = last_real(memory, lengths)
        top = self.encoder.layers[-1].mixer
        if not isinstance(top, Bidirectional):
            return final
        half = memory.shape[2] // 2
        return torch.cat((final[:, :half], memory[:, 0, half:]), -1)

    def decode(self, tokens: Int[Tensor, "B T"], step: Step) -> Float[Tensor, "B T D"]:
        """Return r_t for every target token: all at once where no step needs the one before, else one by one."""
        x = self.embed(tokens, step.positions)
        if self.feed is None:
            if self.attention is None:
                (context,) = _fed(step).values
                x = torch.cat((x, context[:, None].expand_as(x)), -1)
            return self.read(self.run_cells(x, step), step)
        positions = explicit_positions(step.positions, x.shape[1], x.device).expand(x.shape[:2])
        steps = [replace(step, positions=positions[:, t : t + 1]) for t in range(x.shape[1])]
        return torch.cat([self.decode_one(x[:, t : t + 1], each) for t, each in enumerate(steps)], 1)

    def decode_one(self, x: Float[Tensor, "B 1 D"], step: Step) -> Float[Tensor, "B 1 D"]:
        """Decode one token with feeding."""
        assert step.layers is not None
        assert step.positions is not None
        if self.feed == "context":
            top = step.layers[-2]["cell"]
            assert isinstance(top, Hidden)
            context = self.look(top.values[0][:, None], step)
            return self.join(context, self.run_cells(torch.cat((x, context), -1), step))
        fed = _fed(step)
        (before,) = fed.values
        r = self.read(self.run_cells(torch.cat((x, before[:, None]), -1), step), step)
        fed.values = (torch.where(step.positions >= 0, r[:, 0], before),)
        return r

    def run_cells(self, x: Float[Tensor, "B T _D"], step: Step) -> Float[Tensor, "B T D"]:
        """Run the recurrent layers."""
        assert step.layers is not None
        for cell, layer in zip(self.cells, step.layers, strict=False):
            x = self.dropout(cell(x, mask=step.mask, positions=step.positions, state=layer["cell"]))
        return x

    def read(self, s: Float[Tensor, "B T D"], step: Step) -> Float[Tensor, "B T D"]:
        """Return r_t: s_t, or tanh(W [c_t ; s_t]) with attention."""
        return s if self.attention is None else self.join(self.look(s, step), s)

    def look(self, s: Float[Tensor, "B T D"], step: Step) -> Float[Tensor, "B T D"]:
        """Return c_t = sum_i a_{t,i} h_i."""
        assert self.attention is not None
        assert step.layers is not None
        memory = step.layers[-1]["memory"]
        assert isinstance(memory, Memory)
        return self.attention(s, positions=step.positions, state=memory)

    def join(self, context: Float[Tensor, "B T D"], s: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        """Return tanh(W [c_t ; s_t])."""
        assert self.readout is not None
        return torch.tanh(self.readout(torch.cat((context, s), -1)))

    def mixers(self) -> list[Mixer]:
        """List the mixers of the encoder, and the cells."""
        return [*super().mixers(), *cast(Iterable[Mixer], self.cells)]

    def sequences(self) -> dict[str, ModelSequence]:
        """Return the source, through the encoder, and the target: y_t, s_t of each layer, and r_t with attention.

        The first cell gets more than y_t, so y_t is read from the embedding.
        """
        taps = [Tap(self.embed, last=True), *map(Tap, self.cells)]
        taps += [] if self.attention is None else [Tap(self.head, "input")]
        return {
            "source": ModelSequence(stack_taps(self.encoder), self.source_vocabulary),
            "target": ModelSequence(taps, self.embed.tokens.table.num_embeddings),
        }

    def attentions(self) -> list[AttentionRole]:
        """List the attentions of the encoder, if it has any, and the one to the source."""
        own = stack_attentions(self.encoder, "encoder", "encoder", "source")
        return own if self.attention is None else [*own, AttentionRole("attention", "cross", 1, "written", "source")]

    def tokens_through(self, child: nn.Module, tokens: int, keys: int) -> int:
        """Return how many vectors pass through a child: the bridge makes the first state from the whole source."""
        return 1 if child is self.bridge else tokens


def _fed(step: Step) -> Hidden:
    assert step.layers is not None
    fed = step.layers[-1]["fed"]
    assert isinstance(fed, Hidden)
    return fed


@dataclass(frozen=True, kw_only=True)
class RecurrentSeq2SeqConfig(ModelConfig):
    """`depth` decoder layers of kind `cell` over an encoder; without `attention`, one vector carries the source."""

    vocabulary: Count
    """Number of tokens of the target, and of the source without `source_vocabulary`; training sets it."""
    source_vocabulary: Count | None = None
    """Number of tokens of the source, with a table of their own; absent: both sides share one table."""
    dim: Count
    """Width of the model."""
    depth: Depth = 1
    """Number of decoder layers."""
    cell: RecurrentConfig
    """The recurrent cell of the decoder."""
    encoder: StackConfig
    """The layers that read the source."""
    attention: AttentionConfig | None = None
    """Attention of the decoder to the source (Bahdanau et al. 2015); absent: the last state of the encoder is all
    that it sees (Sutskever et al. 2014)."""
    feed: Feed | None = None
    """What the cell reads beside the token: the context of this step (Bahdanau), or the attended vector of the step
    before (input feeding, Luong et al. 2015); absent: nothing."""
    embed: EmbedConfig = field(default_factory=EmbedConfig)
    """From tokens to vectors."""
    head: LogitsConfig = field(default_factory=LogitsConfig)
    """From vectors to the next token."""
    dropout: Rate = 0.0
    """Share of the features between layers that training sets to zero."""
    init: InitConfig = field(default_factory=UniformConfig)
    """The initial weights."""

    def validate(self) -> None:
        """Check the rules between values."""
        if self.feed is not None and self.attention is None:
            raise ConfigError(f"feed={self.feed!r} needs an attention table")
        with at("encoder"):
            self.encoder.check(one_way=False, memory=False)
        if self.cell.bidirectional:
            raise ConfigError("a decoder cannot be bidirectional: it would read the future; leave it out", "cell")
        if isinstance(self.cell, LSTMConfig) and self.cell.hidden is not None:
            raise ConfigError("the state of a decoder is as wide as the model; leave hidden out", "cell")
        if self.embed.concatenate is not None:
            raise ConfigError("a recurrent model has no concatenated positions; leave concatenate out", "embed")

    def build(self) -> RecurrentSeq2Seq:
        """Build the model."""
        with at("embed"):
            embed = self.embed.build(self.vocabulary, self.dim)
            source = None if self.source_vocabulary is None else self.embed.build(self.source_vocabulary, self.dim)
        with at("encoder"):
            encoder = self.encoder.build_stack(self.dim)
        with at("cell"):
            fed = self.attention is None or self.feed is not None
            first = self.cell.build(self.dim, 2 * self.dim if fed else self.dim)
            cells = [first, *(self.cell.build(self.dim) for _ in range(self.depth - 1))]
        with at("attention"):
            attention = None if self.attention is None else self.attention.build(self.dim)
        with at("head"):
            head = self.head.build(self.dim, embed.tokens)
        return RecurrentSeq2Seq(embed, source, encoder, cells, attention, self.feed, head, self.dropout)
