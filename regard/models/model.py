"""The interface of every model, and the step protocol of models that write token by token.

The rest of the package uses models through this interface only. A new kind of model is a subclass of `Model` (or of
`StepModel`, if it writes) with a config that builds it, and one entry in the registry of models (`models/recipe.py`).

Decoding sees only `begin(...) -> state`, `step(tokens, state) -> logits, state` and `state.reorder(index)`, so sampling
and beam search are written once, for LSTM and Transformer alike.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, TypeGuard

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.config import Config
from regard.errors import InputError
from regard.models.head import Logits
from regard.models.init import InitConfig
from regard.models.introspection import AttentionRole, ModelSequence
from regard.models.stack import Layer, Stack
from regard.models.template import SpecialTokens, Template, text_template
from regard.parts.absolute_position import Absolute
from regard.parts.embed import Embedding
from regard.parts.inputs import check_lengths, check_token_ids
from regard.parts.mask import Padding, padded_positions
from regard.parts.mixer import Mixer
from regard.parts.moe import Experts
from regard.parts.pool import Mean
from regard.parts.state import State, Step

Verb = Literal["translate", "generate", "classify", "fill", "annotate", "embed", "forecast"]


@dataclass(frozen=True)
class ImageInput:
    """The images that a model reads: their shape, and how they become a row of vectors."""

    height: int
    width: int
    channels: int
    patch: int  # side of a patch
    first: int = 0  # the vector of the first patch: 1 if a class token comes before it

    @property
    def rows(self) -> int:
        """Patches from top to bottom."""
        return self.height // self.patch

    @property
    def columns(self) -> int:
        """Patches from left to right."""
        return self.width // self.patch

    @property
    def patches(self) -> int:
        """Patches of an image."""
        return self.rows * self.columns

    @property
    def vectors(self) -> int:
        """Vectors of an image, the class token included."""
        return self.first + self.patches


class VocabularyHead(NamedTuple):
    """A head that scores the vocabulary, and the table of tokens, which is its matrix if it is tied."""

    head: Logits
    table: Float[Tensor, "V D"]


class Model(nn.Module):
    """A model that describes itself, with the config that made it.

    A model of texts is called as `model(tokens, lengths=...)`, one of images as `model(images)`, one of trajectories as
    `model(tracks, present)`, one with a source as `model(source, target, source_lengths=...)`. A task may pass more by
    name: `documents` to a model that `packs_documents`, a `state` to a model that `carries_state`.
    """

    config: Any = None  # the config of its recipe; a model assembled by hand has none
    head: nn.Module

    # --- what it is --------------------------------------------------------------------------------------------------

    @property
    def description(self) -> str:
        """What it is called, with an article: "a translator"."""
        raise NotImplementedError

    @property
    def verbs(self) -> tuple[Verb, ...]:
        """What it can do, its main purpose first."""
        raise NotImplementedError

    @property
    def task(self) -> str | None:
        """The kind of task that trains and measures it; None: no task does."""
        return None

    @property
    def image(self) -> ImageInput | None:
        """The images that it reads; None: it reads text."""
        return None

    @property
    def reads(self) -> Literal["text", "image", "tracks"]:
        """What it reads."""
        return "text" if self.image is None else "image"

    @property
    def classes(self) -> int | None:
        """The number of classes, if it classifies."""
        return None

    noun = "word"  # what a token is called; only of a word, tokens can be pieces
    has_source = False  # whether it reads a source text besides what it writes
    gives_vectors = False  # whether `forward` takes `scores=False`, for the vectors below a head over the vocabulary
    compile_pays = True  # whether training is faster compiled; a loop over tokens would be unrolled

    # --- what it reads -----------------------------------------------------------------------------------------------

    def longest(self) -> int | None:
        """Return how many tokens its position tables have; None: any number of tokens can be read."""
        lengths = [part.length for part in self.modules() if isinstance(part, Absolute) and part.length is not None]
        return min(lengths, default=None)

    def context(self, trained: int | None) -> int | None:
        """Return the most tokens that it should read, if it was `trained` on texts of that length; None: any number."""
        return min((length for length in (self.longest(), trained) if length is not None), default=None)

    def template(self, tokenizer: SpecialTokens) -> Template:
        """Return the special tokens around a text, as in training."""
        return Template()

    def clean_text(self, text: str) -> str:
        """Return a text as the model reads it; a model of another language than people's may change or reject it."""
        return text

    def mixers(self) -> list[Mixer]:
        """List the parts in which tokens interact, layer by layer."""
        layers = (module for module in self.modules() if isinstance(module, Layer))
        return [part for layer in layers for part in (layer.mixer, layer.feedforward) if isinstance(part, Mixer)]

    @property
    def packs_documents(self) -> bool:
        """Whether several texts in one row can be kept apart: every mixer follows a mask of documents."""
        return all(mixer.follows_documents for mixer in self.mixers())

    def is_static(self, dtype: torch.dtype) -> bool:
        """Return whether no part reads values on the host when it computes in `dtype`, so that CUDA can capture it."""
        return all(part.is_static(dtype) for part in self.modules() if isinstance(part, Experts))

    @property
    def carries_state(self) -> bool:
        """Whether training can carry the state from one window of a text to the next: every mixer is recurrent."""
        return all(mixer.carries_state for mixer in self.mixers())

    # --- what is inside ----------------------------------------------------------------------------------------------

    def sequences(self) -> dict[str, ModelSequence]:
        """Return its sequences by name, named as the arguments of `forward` are; images are `patches`."""
        raise NotImplementedError

    def attentions(self) -> list[AttentionRole]:
        """List its attentions with their roles: first those of the encoder, then the decoder's, then cross."""
        return []

    def cross_attentions(self) -> list[str]:
        """Return the names of the attentions to the source, from the lowest layer to the highest."""
        return [role.name for role in self.attentions() if role.kind == "cross"]

    @property
    def memory(self) -> nn.Module | None:
        """The module whose output cross-attentions look at."""
        return None

    # --- what it computes --------------------------------------------------------------------------------------------

    def token_vectors(self, **inputs: Tensor) -> Float[Tensor, "B T D"]:
        """Return the vector of every token or patch below the head; the inputs are those of `forward`."""
        raise NotImplementedError

    def embed_rows(self, **inputs: Tensor) -> Float[Tensor, "B D"]:
        """Return one vector for each row of inputs: the mean over its tokens, unless the model itself pools."""
        x = self.token_vectors(**inputs)
        return Mean()(x, padded_positions(inputs.get("lengths"), x.shape[1]))

    def logits(self, x: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows V"]:
        """Score the vocabulary for vectors below the head."""
        raise NotImplementedError

    def vocabulary_head(self) -> VocabularyHead | None:
        """Return the head that scores the vocabulary; None: there is no such head."""
        return None

    def flops(self, tokens: int, keys: int) -> int:
        """Count its own arithmetic, without that of its parts (see `models/count.py`)."""
        return 0

    def summary(self) -> str:
        """Return an empty text: the parts describe their sizes."""
        return ""


class ModelConfig(Config):
    """Base of the configs of models: what the `[model]` table of a recipe says."""

    tasks: ClassVar[tuple[str, ...]] = ()  # kinds of tasks that can train it, besides those that list it themselves
    dim: int
    init: InitConfig

    def build(self) -> Model:
        """Build the model."""
        raise NotImplementedError


class TokenModel(Model):
    """A model of tokens: with an embedding, whose table may serve the head, too."""

    embed: Embedding

    def logits(self, x: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows V"]:
        """Score the vocabulary for vectors below the head."""
        return self.head(x, self.embed.tokens.table.weight)

    def layer_logits(self, x: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows V"]:
        """Score the vocabulary for vectors of any layer, as if it were the last one (logit lens, nostalgebraist 2020).

        A model with a norm after its last layer applies it first.
        """
        return self.logits(x)

    def maybe_logits(self, x: Float[Tensor, "*rows D"], scores: bool) -> Float[Tensor, "*rows _V"]:
        """Return the scores of the vocabulary, or the vectors themselves, as `forward` is asked for."""
        return self.logits(x) if scores else x

    def vocabulary_head(self) -> VocabularyHead | None:
        """Return the head that scores the vocabulary; None: there is no such head."""
        return VocabularyHead(self.head, self.embed.tokens.table.weight) if isinstance(self.head, Logits) else None


class StepModel(TokenModel):
    """A model that writes token by token: it scores the next token, and continues from a state."""

    head: Logits

    def begin(
        self,
        tokens: Int[Tensor, "B T"],
        source: Int[Tensor, "B S"] | None = None,
        source_lengths: Int[Tensor, "B"] | None = None,
        capacity: int | None = None,
    ) -> State:
        """Return the state before the first of `tokens`, after reading the source if the model has one.

        With a `capacity` for that many tokens, the state has a static shape.
        """
        raise NotImplementedError

    def decode(self, tokens: Int[Tensor, "B T"], step: Step) -> Float[Tensor, "B T D"]:
        """Return the vectors below the head, for tokens that continue those in the layers of the step."""
        raise NotImplementedError

    def step(
        self, tokens: Int[Tensor, "B T"], state: State, lengths: Int[Tensor, "B"] | None = None
    ) -> tuple[Float[Tensor, "B V"], State]:
        """Read more tokens (the first `lengths` of each row) and score what follows the last of each row.

        The state is changed in place, and returned for convenience.
        """
        x = self.decode(tokens, state.advance(tokens, lengths))
        return self.logits(last_real(x, lengths)), state


class EncoderDecoder(StepModel):
    """A model that reads a source and writes a target. Without `source_embed`, both sides share one embedding."""

    source_embed: Embedding | None
    encoder: Stack

    description = "a translator"
    verbs = ("translate", "embed")
    task = "translation"
    has_source = True

    @property
    def memory(self) -> nn.Module:
        """The encoder."""
        return self.encoder

    def template(self, tokenizer: SpecialTokens) -> Template:
        """Return the end token after a source, and the start token before a translation."""
        return Template(*text_template(tokenizer, (), (tokenizer.end,)), tokenizer.start)

    def begin(
        self,
        tokens: Int[Tensor, "B T"],
        source: Int[Tensor, "B S"] | None = None,
        source_lengths: Int[Tensor, "B"] | None = None,
        capacity: int | None = None,
    ) -> State:
        """Encode the source and return the state before the first target token."""
        if source is None:
            raise InputError("a translator needs a source; give one")
        return self.start(source, source_lengths, capacity)

    def start(
        self,
        source: Int[Tensor, "B S"],
        source_lengths: Int[Tensor, "B"] | None = None,
        capacity: int | None = None,
    ) -> State:
        """Encode the source and return the state before the first target token."""
        raise NotImplementedError

    def encode(self, source: Int[Tensor, "B S"], *, lengths: Int[Tensor, "B"] | None = None) -> Float[Tensor, "B S D"]:
        """Return the contextual vector of every source token; rows are padded on the right beyond `lengths`."""
        positions = row_positions(source, lengths)
        mask = None if positions is None else Padding()
        embed = self.source_embed or self.embed
        return self.encoder(embed(source, positions), mask=mask, positions=positions)

    def token_vectors(self, **inputs: Tensor) -> Float[Tensor, "B T D"]:
        """Return the encoder's vectors."""
        return self.encode(inputs["tokens"], lengths=inputs.get("lengths"))

    @property
    def source_vocabulary(self) -> int:
        """How many ids the tokens of a source can have."""
        return (self.source_embed or self.embed).tokens.table.num_embeddings


def unwrapped(model: nn.Module) -> nn.Module:
    """Return the module that torch.compile has wrapped; any other module as it is."""
    inside: nn.Module = getattr(model, "_orig_mod", model)
    return inside


def writes(model: nn.Module) -> TypeGuard[StepModel]:
    """Return whether a model generates token by token."""
    return isinstance(model, StepModel)


# --- rows of tokens --------------------------------------------------------------------------------------------------


def last_real(x: Float[Tensor, "B T D"], lengths: Int[Tensor, "B"] | None) -> Float[Tensor, "B D"]:
    """Return the last real vector of each row."""
    if lengths is None:
        return x[:, -1]
    return x[torch.arange(len(x), device=x.device), lengths - 1]


def row_positions(tokens: Int[Tensor, "B T"], lengths: Int[Tensor, "_B"] | None) -> Int[Tensor, "B T"] | None:
    """Return the positions of rows padded on the right beyond `lengths`: -1 at padding; None without padding."""
    check_token_ids(tokens)
    check_lengths(tokens, lengths, least=1)
    return padded_positions(lengths, tokens.shape[1])


def no_tokens_seen(batch: int, device: torch.device) -> Int[Tensor, "B"]:
    """Return how many tokens each row has seen at first: 0."""
    return torch.zeros(batch, dtype=torch.long, device=device)
