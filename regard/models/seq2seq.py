"""Encoder-decoder Transformer (Vaswani et al. 2017): the decoder attends to itself, then to the encoded source."""

from dataclasses import dataclass, field
from typing import Literal

from jaxtyping import Float, Int
from torch import Tensor

from regard.config import Count
from regard.errors import ConfigError, InputError, at
from regard.models.head import Logits, LogitsConfig
from regard.models.init import InitConfig, XavierConfig
from regard.models.introspection import AttentionRole, ModelSequence, stack_attentions, stack_taps
from regard.models.model import EncoderDecoder, ModelConfig, no_tokens_seen
from regard.models.stack import Stack, StackConfig
from regard.parts.embed import EmbedConfig, Embedding
from regard.parts.mask import Causal, Documents, document_positions, padded_positions
from regard.parts.state import State, Step


class Seq2Seq(EncoderDecoder):
    """logits_t = W_u decoder(y_1 .. y_t, encoder(x))."""

    gives_vectors = True

    def __init__(
        self, embed: Embedding, source_embed: Embedding | None, encoder: Stack, decoder: Stack, head: Logits
    ) -> None:
        super().__init__()
        self.embed = embed
        self.source_embed = source_embed
        self.encoder = encoder
        self.decoder = decoder
        self.head = head

    def forward(
        self,
        source: Int[Tensor, "B S"],
        target: Int[Tensor, "B T"],
        *,
        source_lengths: Int[Tensor, "B"] | None = None,
        source_documents: Int[Tensor, "B S"] | None = None,
        documents: Int[Tensor, "B T"] | None = None,
        scores: bool = True,
    ) -> Float[Tensor, "B T _V"]:
        """Score what follows each target token. Rows are padded on the right; padding of the target needs no mask.

        Without `scores`, return the vectors below the head. `source_documents` and `documents` number the pairs packed
        into a row (-1: padding): each target sees its own source only.
        """
        if (documents is None) != (source_documents is None):
            raise InputError("packed pairs need the documents of both sides; give documents and source_documents")
        if documents is not None and source_documents is not None:
            return self.maybe_logits(self._decode_packed(source, target, source_documents, documents), scores)
        memory = self.encode(source, lengths=source_lengths)
        x = self.decoder(
            self.embed(target),
            mask=Causal(),
            memory=memory,
            memory_positions=padded_positions(source_lengths, source.shape[1]),
        )
        return self.maybe_logits(x, scores)

    def _decode_packed(
        self,
        source: Int[Tensor, "B S"],
        target: Int[Tensor, "B T"],
        source_documents: Int[Tensor, "B S"],
        documents: Int[Tensor, "B T"],
    ) -> Float[Tensor, "B T D"]:
        source_positions, positions = document_positions(source_documents), document_positions(documents)
        embed = self.source_embed or self.embed
        memory = self.encoder(
            embed(source, source_positions), mask=Documents(source_documents), positions=source_positions
        )
        return self.decoder(
            self.embed(target, positions),
            mask=Causal() & Documents(documents),
            positions=positions,
            memory=memory,
            memory_positions=source_positions,
            memory_mask=Documents(documents, source_documents),
        )

    def start(
        self,
        source: Int[Tensor, "B S"],
        source_lengths: Int[Tensor, "B"] | None = None,
        capacity: int | None = None,
    ) -> State:
        """Encode the source and return the state before the first target token."""
        memory = self.encode(source, lengths=source_lengths)
        positions = padded_positions(source_lengths, source.shape[1])
        layers = self.decoder.start(len(source), capacity, memory, positions)
        return State(layers, no_tokens_seen(len(source), source.device), self.longest())

    def decode(self, tokens: Int[Tensor, "B T"], step: Step) -> Float[Tensor, "B T D"]:
        """Return the decoder's vectors for target tokens that continue those in the layers of the step."""
        x = self.embed(tokens, step.positions)
        return self.decoder(x, mask=step.mask, positions=step.positions, state=step.layers)

    def layer_logits(self, x: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows V"]:
        """Score the vocabulary for vectors of any layer, through the norm after the last one."""
        return self.logits(self.decoder.norm(x))

    def sequences(self) -> dict[str, ModelSequence]:
        """Return the source, through the encoder, and the target, through the decoder."""
        return {
            "source": ModelSequence(stack_taps(self.encoder), self.source_vocabulary),
            "target": ModelSequence(stack_taps(self.decoder), self.embed.tokens.table.num_embeddings),
        }

    def attentions(self) -> list[AttentionRole]:
        """List the attentions of the encoder, then those of the decoder to itself and to the source."""
        return [
            *stack_attentions(self.encoder, "encoder", "encoder", "source"),
            *stack_attentions(self.decoder, "decoder", "decoder", "target"),
        ]


@dataclass(frozen=True, kw_only=True)
class Seq2SeqConfig(ModelConfig):
    """An encoder-decoder; without `source_vocabulary`, both sides share vocabulary and embedding.

    `shared` says what they share: `all` of the embedding, or the `tokens` only; then each side has its own positions
    and norm.
    """

    vocabulary: Count
    """Number of tokens of the target, and of the source without `source_vocabulary`; training sets it."""
    source_vocabulary: Count | None = None
    """Number of tokens of the source, with a table of their own; absent: both sides share one table."""
    shared: Literal["all", "tokens"] = "all"
    """What both sides share: the embedding with its positions, or the token vectors only."""
    dim: Count
    """Width of the model."""
    encoder: StackConfig
    """The layers that read the source."""
    decoder: StackConfig
    """The layers that write the target."""
    embed: EmbedConfig = field(default_factory=EmbedConfig)
    """From tokens to vectors."""
    head: LogitsConfig = field(default_factory=LogitsConfig)
    """From vectors to the next token."""
    init: InitConfig = field(default_factory=XavierConfig)
    """The initial weights."""

    def validate(self) -> None:
        """Check the rules between values."""
        if self.shared == "tokens" and self.source_vocabulary is not None:
            raise ConfigError("tokens cannot be shared with a source_vocabulary; leave one of them out", "shared")
        with at("encoder"):
            self.encoder.check(one_way=False, memory=False)
        with at("decoder"):
            self.decoder.check(one_way=True, memory=True)

    def build(self) -> Seq2Seq:
        """Build the model."""
        with at("embed"):
            embed = self.embed.build(self.vocabulary, self.dim)
            source = None
            if self.source_vocabulary is not None or self.shared == "tokens":
                source = self.embed.build(self.source_vocabulary or self.vocabulary, self.dim)
            if source is not None and self.source_vocabulary is None:
                source.tokens = embed.tokens
        with at("encoder"):
            encoder = self.encoder.build_stack(self.dim)
        with at("decoder"):
            decoder = self.decoder.build_stack(self.dim)
        with at("head"):
            head = self.head.build(self.dim, embed.tokens)
        return Seq2Seq(embed, source, encoder, decoder, head)
