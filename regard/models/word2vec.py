"""Word2Vec: a vector for every word, whatever is around it (Mikolov et al. 2013), as a table to be learned."""

from dataclasses import dataclass, field

from jaxtyping import Float, Int
from torch import Tensor

from regard.config import Count
from regard.models.head import Logits
from regard.models.init import InitConfig, NormalConfig
from regard.models.introspection import ModelSequence, Tap
from regard.models.model import ModelConfig, TokenModel
from regard.parts.embed import Embedding, Tokens
from regard.parts.inputs import check_lengths


class Word2Vec(TokenModel):
    """Two vectors for every word: u, the token table of the embedding, and v for the words around it, the head."""

    head: Logits
    description = "a table of word vectors"
    verbs = ("embed",)
    task = "vectors"

    def __init__(self, embed: Embedding, head: Logits) -> None:
        super().__init__()
        self.embed = embed
        self.head = head

    def forward(self, tokens: Int[Tensor, "B T"], *, lengths: Int[Tensor, "B"] | None = None) -> Float[Tensor, "B T V"]:
        """Score every word as one around each token: u_w . v_c; padding beyond `lengths` changes nothing."""
        vectors = self.embed(tokens)
        check_lengths(tokens, lengths, least=1)
        return self.logits(vectors)

    def token_vectors(self, **inputs: Tensor) -> Float[Tensor, "B T D"]:
        """Return the vector u of every token."""
        vectors: Tensor = self.embed(inputs["tokens"])
        return vectors

    def sequences(self) -> dict[str, ModelSequence]:
        """Return the one sequence of tokens, which has no layers."""
        return {"tokens": ModelSequence([Tap(self.embed)], self.embed.tokens.table.num_embeddings)}


@dataclass(frozen=True, kw_only=True)
class Word2VecConfig(ModelConfig):
    """Word vectors by skip-gram."""

    vocabulary: Count
    """Number of words; training sets it."""
    dim: Count
    """Width of the vectors."""
    init: InitConfig = field(default_factory=lambda: NormalConfig(std=0.1))
    """The initial weights."""

    def build(self) -> Word2Vec:
        """Build both tables."""
        return Word2Vec(Embedding(Tokens(self.vocabulary, self.dim)), Logits(self.dim, self.vocabulary, tied=False))
