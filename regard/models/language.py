"""Language model: p(x_t | x_<t), whatever the mixer: recurrent, convolutional, attention, or a pattern of them.

Elman 1990; Mikolov et al. 2010; Radford et al. 2019 (GPT-2); Touvron et al. 2023 (Llama).
"""

from dataclasses import dataclass, field

from jaxtyping import Float, Int
from torch import Tensor

from regard.config import Count
from regard.errors import InputError, at
from regard.models.head import Logits, LogitsConfig
from regard.models.init import InitConfig, NormalConfig
from regard.models.model import ModelConfig, StepModel, beginning
from regard.models.stack import Stack, StackConfig
from regard.parts.embed import EmbedConfig, Embedding
from regard.parts.mask import Causal, Documents, Prefix, Rule, document_positions
from regard.parts.state import State


class LanguageModel(StepModel):
    """logits_t = W_u stack(embed(x_1 .. x_t)): what comes next."""

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
    ) -> Float[Tensor, "B T V"]:
        """Score what follows each token.

        Rows are padded on the right, which needs no mask: nothing looks ahead. `documents` numbers the texts packed
        into a row (-1: nothing there), and positions start anew in each. The first `prefix` tokens of a row see
        each other. With a `state`, tokens follow those seen before.
        """
        if state is not None:
            if positions is not None:
                raise InputError("with a state, the positions follow from it; give one or the other")
            positions = state.advance(tokens, None)
        mask: Rule = Causal() if prefix is None else Prefix(prefix)
        if documents is not None:
            mask = mask & Documents(documents)
            positions = document_positions(documents) if positions is None else positions
        return self.logits(self.decode(tokens, mask, positions, state))

    def decode(
        self,
        tokens: Int[Tensor, "B T"],
        mask: Rule,
        positions: Int[Tensor, "B T"] | None,
        state: State | None,
    ) -> Float[Tensor, "B T D"]:
        """Give the vectors below the head."""
        x = self.embed(tokens, positions)
        return self.stack(x, mask=mask, positions=positions, state=None if state is None else state.layers)

    def start(self, batch: int, capacity: int | None = None) -> State:
        """Give the state before the first token; with a `capacity`, of static shape."""
        device = self.embed.tokens.table.weight.device
        return State(self.stack.start(batch, capacity), beginning(batch, device), self.longest())


@dataclass(frozen=True, kw_only=True)
class LanguageConfig(StackConfig, ModelConfig):
    """A language model."""

    vocabulary: Count
    dim: Count
    embed: EmbedConfig = field(default_factory=EmbedConfig)
    head: LogitsConfig = field(default_factory=LogitsConfig)
    init: InitConfig = field(default_factory=NormalConfig)

    def validate(self) -> None:
        """Check the rules between values."""
        super().validate()
        self.check(one_way=True, memory=False)

    def build(self) -> LanguageModel:
        """Make the model."""
        with at("embed"):
            embed = self.embed.build(self.vocabulary, self.dim)
        with at("head"):
            head = self.head.build(self.dim, embed.tokens)
        return LanguageModel(embed, self.build_stack(self.dim), head)
