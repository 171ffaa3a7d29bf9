"""Language model: p(x_t | x_<t), with any mixer: recurrence, convolution, attention, or a pattern of them.

Elman 1990; Mikolov et al. 2010; Radford et al. 2019 (GPT-2); Touvron et al. 2023 (Llama).
"""

from dataclasses import dataclass, field

from jaxtyping import Float, Int
from torch import Tensor

from regard.config import Count
from regard.errors import InputError, at
from regard.models.head import Logits, LogitsConfig
from regard.models.init import InitConfig, NormalConfig
from regard.models.introspection import AttentionRole, ModelSequence, stack_attentions, stack_taps
from regard.models.model import ModelConfig, StepModel, no_tokens_seen
from regard.models.stack import Stack, StackConfig
from regard.models.template import SpecialTokens, Template, unwritable
from regard.parts.embed import EmbedConfig, Embedding
from regard.parts.mask import Causal, Documents, Prefix, Rule, document_positions
from regard.parts.state import State, Step


class LanguageModel(StepModel):
    """logits_t = W_u stack(embed(x_1 .. x_t)): a score for every next token."""

    description = "a language model"
    verbs = ("generate", "embed")
    task = "language"
    gives_vectors = True

    def __init__(self, embed: Embedding, stack: Stack, head: Logits) -> None:
        super().__init__()
        self.embed = embed
        self.stack = stack
        self.head = head

    def forward(
        self,
        tokens: Int[Tensor, "B T"],
        *,
        positions: Int[Tensor, "B T"] | None = None,
        documents: Int[Tensor, "B T"] | None = None,
        prefix: Int[Tensor, "B"] | None = None,
        state: State | None = None,
        scores: bool = True,
    ) -> Float[Tensor, "B T _V"]:
        """Score what follows each token; without `scores`, return the vectors below the head.

        Rows are padded on the right, which needs no mask, because no token sees later ones. `documents` numbers the
        texts packed into a row (-1: padding), and positions restart in each. The first `prefix` tokens of a row see
        each other. With a `state`, the tokens continue those in it.
        """
        if state is not None and positions is not None:
            raise InputError("the state determines the positions; give one or the other")
        mask: Rule = Causal() if prefix is None else Prefix(prefix)
        if documents is not None:
            mask = mask & Documents(documents)
            positions = document_positions(documents) if positions is None else positions
        step = Step(mask, positions) if state is None else state.advance(tokens, mask=mask)
        return self.maybe_logits(self.decode(tokens, step), scores)

    def decode(self, tokens: Int[Tensor, "B T"], step: Step) -> Float[Tensor, "B T D"]:
        """Return the vectors below the head."""
        x = self.embed(tokens, step.positions)
        return self.stack(x, mask=step.mask, positions=step.positions, state=step.layers)

    def start(self, batch: int, capacity: int | None = None) -> State:
        """Return the state before the first token; with a `capacity`, of static shape."""
        device = self.embed.tokens.table.weight.device
        return State(self.stack.start(batch, capacity), no_tokens_seen(batch, device), self.longest())

    def begin(
        self,
        tokens: Int[Tensor, "B T"],
        source: Int[Tensor, "B S"] | None = None,
        source_lengths: Int[Tensor, "B"] | None = None,
        capacity: int | None = None,
    ) -> State:
        """Return the state before the first of `tokens`."""
        if source is not None:
            raise InputError("a language model has no source; leave it out")
        return self.start(len(tokens), capacity)

    def context(self, trained: int | None) -> int | None:
        """Return the most tokens that it should read; training sets a limit only if every mixer is attention."""
        return super().context(trained if self.packs_documents else None)

    def template(self, tokenizer: SpecialTokens) -> Template:
        """Return the end token before a text: one text starts after the end of another."""
        return Template((tokenizer.end,), never=unwritable(tokenizer))

    def layer_logits(self, x: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows V"]:
        """Score the vocabulary for vectors of any layer, through the norm after the last one."""
        return self.logits(self.stack.norm(x))

    def sequences(self) -> dict[str, ModelSequence]:
        """Return the one sequence of tokens."""
        return {"tokens": ModelSequence(stack_taps(self.stack), self.embed.tokens.table.num_embeddings)}

    def attentions(self) -> list[AttentionRole]:
        """List the attentions of the stack."""
        return stack_attentions(self.stack, "stack", "self", "tokens")

    def token_vectors(self, **inputs: Tensor) -> Float[Tensor, "B T D"]:
        """Return the vectors below the head."""
        return self.decode(inputs["tokens"], Step(Causal()))


@dataclass(frozen=True, kw_only=True)
class LanguageConfig(StackConfig, ModelConfig):
    """A language model."""

    vocabulary: Count
    """Number of tokens; training sets it."""
    dim: Count
    """Width of the model."""
    embed: EmbedConfig = field(default_factory=EmbedConfig)
    """From tokens to vectors."""
    head: LogitsConfig = field(default_factory=LogitsConfig)
    """From vectors to the next token."""
    init: InitConfig = field(default_factory=NormalConfig)
    """The initial weights."""

    def validate(self) -> None:
        """Check the rules between values."""
        super().validate()
        self.check(one_way=True, memory=False)

    def build(self) -> LanguageModel:
        """Build the model."""
        with at("embed"):
            embed = self.embed.build(self.vocabulary, self.dim)
        with at("head"):
            head = self.head.build(self.dim, embed.tokens)
        return LanguageModel(embed, self.build_stack(self.dim), head)
