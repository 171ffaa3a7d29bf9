"""Vision Transformer (Dosovitskiy et al. 2020): an image is a sequence of patches."""

from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.config import Count, Rate
from regard.errors import ConfigError, at
from regard.models.head import Classes, Pooled, PooledHeadConfig
from regard.models.init import InitConfig, NormalConfig
from regard.models.introspection import AttentionRole, ModelSequence, stack_attentions, stack_taps
from regard.models.model import ImageInput, Model, ModelConfig, Verb
from regard.models.stack import Stack, StackConfig
from regard.parts.absolute_position import Absolute, AbsoluteConfig, LearnedConfig
from regard.parts.embed import Patches, PatchesConfig
from regard.parts.pool import FirstConfig


class VisionTransformer(Model):
    """head(stack([class token ; patches] + positions))."""

    head: Classes | Pooled

    noun = "patch"

    def __init__(
        self,
        patches: Patches,
        stack: Stack,
        head: Classes | Pooled,
        position: Absolute | None = None,
        class_token: nn.Parameter | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.patches = patches
        self.class_token = class_token
        self.position = position
        self.dropout = nn.Dropout(dropout)
        self.stack = stack
        self.head = head

    def forward(self, images: Float[Tensor, "B channels height width"]) -> Float[Tensor, "B out"]:
        """Score the classes, or return the pooled vector."""
        return self.head(self.encode(images, self.head.reads if self.training else None))

    def encode(
        self, images: Float[Tensor, "B channels height width"], first: int | None = None
    ) -> Float[Tensor, "B _T D"]:
        """Return the vector of every patch, that of the class token first if there is one.

        If only the `first` vectors are needed, others may be missing.
        """
        x = self.patches(images)
        if self.class_token is not None:
            x = torch.cat((self.class_token.expand(len(x), 1, -1).to(x.dtype), x), 1)
        if self.position is not None:
            x = x + self.position(None, x.shape[1], x.device).to(x.dtype)
        return self.stack(self.dropout(x), first=first)

    @property
    def description(self) -> str:
        """What it is called: its head decides."""
        return "an encoder of images" if self.classes is None else "a classifier of images"

    @property
    def verbs(self) -> tuple[Verb, ...]:
        """What it can do: its head decides."""
        return ("embed",) if self.classes is None else ("classify", "embed")

    @property
    def task(self) -> str | None:
        """The kind of task that trains and measures it."""
        return None if self.classes is None else "vision"

    @property
    def classes(self) -> int | None:
        """The number of classes, if it classifies."""
        return self.head.classes

    @property
    def image(self) -> ImageInput:
        """The images that it reads."""
        patches = self.patches
        shape = (patches.height, patches.width, patches.channels, patches.patch)
        return ImageInput(*shape, first=0 if self.class_token is None else 1)

    def sequences(self) -> dict[str, ModelSequence]:
        """Return the one sequence of patches."""
        return {"patches": ModelSequence(stack_taps(self.stack))}

    def attentions(self) -> list[AttentionRole]:
        """List the attentions of the stack."""
        return stack_attentions(self.stack, "stack", "self", "patches")

    def token_vectors(self, **inputs: Tensor) -> Float[Tensor, "B T D"]:
        """Return the vectors of the class token, if there is one, and of the patches."""
        return self.encode(inputs["images"])

    def embed_rows(self, **inputs: Tensor) -> Float[Tensor, "B D"]:
        """Return the vector that the head pools."""
        return self.head.vector(self.token_vectors(**inputs))

    def tokens_through(self, child: nn.Module, tokens: int, keys: int) -> int:
        """Return how many vectors pass through a child: the class token is not a patch."""
        return self.patches.count if child is self.patches else tokens


@dataclass(frozen=True, kw_only=True)
class VisionConfig(StackConfig, ModelConfig):
    """A Vision Transformer; it has a class token if its head pools by `first`."""

    dim: Count
    """Width of the model."""
    patches: PatchesConfig
    """The size of images and patches; training sets it."""
    position: AbsoluteConfig | None = None
    """Absolute positions of the patches."""
    head: PooledHeadConfig
    """What is read from the vectors: classes, or one vector."""
    dropout: Rate = 0.0
    """Share of the features of the embedding that training sets to zero."""
    init: InitConfig = field(default_factory=NormalConfig)
    """The initial weights."""

    def validate(self) -> None:
        """Check the rules between values."""
        super().validate()
        self.check(one_way=False, memory=False)

    def build(self) -> VisionTransformer:
        """Build the model."""
        patches = self.patches.build(self.dim)
        has_class_token = isinstance(self.head.pool, FirstConfig)
        vectors = patches.count + has_class_token
        if isinstance(self.position, LearnedConfig) and self.position.length != vectors:
            counted = f"{patches.count} patches" + (" and the class token" if has_class_token else "")
            raise ConfigError(f"length={self.position.length} must be {vectors}: {counted}", "position")
        with at("position"):
            position = None if self.position is None else self.position.build(self.dim)
        return VisionTransformer(
            patches,
            self.build_stack(self.dim),
            self.head.build(self.dim),
            position,
            nn.Parameter(torch.zeros(1, 1, self.dim)) if has_class_token else None,
            self.dropout,
        )
