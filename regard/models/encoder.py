"""Encoder: every token sees every other (BERT, Devlin et al. 2018), with a head for tokens, classes or one vector.

With sight="past" a token sees only those before it: a decoder-only model that classifies.
"""

from dataclasses import dataclass, field
from typing import Literal

from jaxtyping import Float, Int
from torch import Tensor

from regard.config import Count
from regard.errors import at
from regard.models.head import Classes, HeadConfig, Logits, LogitsConfig, Pooled, PooledHeadConfig
from regard.models.init import InitConfig, NormalConfig
from regard.models.introspection import AttentionRole, ModelSequence, stack_attentions, stack_taps
from regard.models.model import ModelConfig, TokenModel, Verb, row_positions
from regard.models.stack import Stack, StackConfig
from regard.models.template import SpecialTokens, Template, text_template, unwritable
from regard.parts.embed import EmbedConfig, Embedding
from regard.parts.mask import Causal, Documents, Padding, Rule, document_positions, padded_positions

Sight = Literal["whole", "past"]


class Encoder(TokenModel):
    """head(stack(embed(x))), where a token sees the whole text, or only the tokens before it."""

    head: Logits | Classes | Pooled
    gives_vectors = True

    def __init__(self, embed: Embedding, stack: Stack, head: Logits | Classes | Pooled, sight: Sight = "whole") -> None:
        super().__init__()
        self.embed = embed
        self.stack = stack
        self.head = head
        self.sight = sight

    def forward(
        self,
        tokens: Int[Tensor, "B T"],
        *,
        lengths: Int[Tensor, "B"] | None = None,
        segments: Int[Tensor, "B T"] | None = None,
        documents: Int[Tensor, "B T"] | None = None,
        scores: bool = True,
    ) -> Float[Tensor, "B *rest"]:
        """Return logits for every token, or for the classes, or the pooled vector: the head decides.

        Without `scores`, return the vectors below the head.
        """
        first = self.head.reads if self.training and not isinstance(self.head, Logits) else None
        x = self.encode(tokens, lengths=lengths, segments=segments, documents=documents, first=first)
        if not scores or isinstance(self.head, Logits):
            return self.maybe_logits(x, scores)
        return self.head(x, padded_positions(lengths, x.shape[1]))

    def encode(
        self,
        tokens: Int[Tensor, "B T"],
        *,
        lengths: Int[Tensor, "B"] | None = None,
        segments: Int[Tensor, "B T"] | None = None,
        documents: Int[Tensor, "B T"] | None = None,
        first: int | None = None,
    ) -> Float[Tensor, "B _T D"]:
        """Return the contextual vector of every token.

        Rows are padded on the right beyond `lengths`; or `documents` numbers the texts packed into a row. If only the
        `first` vectors are needed, others may be missing.
        """
        positions = row_positions(tokens, lengths) if documents is None else document_positions(documents)
        mask: Rule | None = None if positions is None else Padding()
        if documents is not None:
            mask = Documents(documents)
        if self.sight == "past":
            mask = Causal() & mask
        return self.stack(self.embed(tokens, positions, segments), mask=mask, positions=positions, first=first)

    @property
    def description(self) -> str:
        """What it is called: its head decides."""
        if isinstance(self.head, Logits):
            return "a masked language model"
        return "an encoder of texts" if self.classes is None else "a classifier of texts"

    @property
    def verbs(self) -> tuple[Verb, ...]:
        """What it can do: its head decides."""
        if isinstance(self.head, Logits):
            return ("fill", "embed")
        return ("embed",) if self.classes is None else ("classify", "embed")

    @property
    def task(self) -> str | None:
        """The kind of task that trains and measures it."""
        if isinstance(self.head, Logits):
            return "masked"
        return None if self.classes is None else "classification"

    @property
    def classes(self) -> int | None:
        """The number of classes, if it classifies."""
        return self.head.classes

    def template(self, tokenizer: SpecialTokens) -> Template:
        """Return the end token around a text with masks, else the start token before it and the end token after it."""
        if isinstance(self.head, Logits):
            return Template((tokenizer.end,), (tokenizer.end,), never=(*unwritable(tokenizer), tokenizer.end))
        return Template(*text_template(tokenizer, (tokenizer.start,), (tokenizer.end,)))

    def sequences(self) -> dict[str, ModelSequence]:
        """Return the one sequence of tokens."""
        return {"tokens": ModelSequence(stack_taps(self.stack), self.embed.tokens.table.num_embeddings)}

    def attentions(self) -> list[AttentionRole]:
        """List the attentions of the stack."""
        return stack_attentions(self.stack, "stack", "self", "tokens")

    def token_vectors(self, **inputs: Tensor) -> Float[Tensor, "B T D"]:
        """Return the contextual vectors."""
        return self.encode(inputs["tokens"], lengths=inputs.get("lengths"))

    def embed_rows(self, **inputs: Tensor) -> Float[Tensor, "B D"]:
        """Return the vector that the head pools, or the mean if it does not pool."""
        x = self.token_vectors(**inputs)
        return self.head.vector(x, padded_positions(inputs.get("lengths"), x.shape[1]))


@dataclass(frozen=True, kw_only=True)
class EncoderConfig(StackConfig, ModelConfig):
    """An encoder."""

    vocabulary: Count
    """Number of tokens; training sets it."""
    dim: Count
    """Width of the model."""
    embed: EmbedConfig = field(default_factory=EmbedConfig)
    """From tokens to vectors."""
    sight: Sight = "whole"
    """Whether a token sees the whole text or only what comes before it."""
    head: HeadConfig
    """What is read from the vectors: tokens, classes, or one vector."""
    init: InitConfig = field(default_factory=NormalConfig)
    """The initial weights."""

    def validate(self) -> None:
        """Check the rules between values."""
        super().validate()
        self.check(one_way=self.sight == "past", memory=False)

    def build(self) -> Encoder:
        """Build the model."""
        with at("embed"):
            embed = self.embed.build(self.vocabulary, self.dim)
        stack = self.build_stack(self.dim)
        with at("head"):
            if isinstance(self.head, LogitsConfig):
                return Encoder(embed, stack, self.head.build(self.dim, embed.tokens), self.sight)
            assert isinstance(self.head, PooledHeadConfig)
            return Encoder(embed, stack, self.head.build(self.dim), self.sight)
