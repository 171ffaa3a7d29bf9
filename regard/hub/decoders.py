"""What families of decoders share: a head over the vocabulary, or over classes read off at the last token."""

from typing import Any

from regard.config import Table
from regard.hub.express import UnlikeError, part
from regard.hub.theirs import Theirs
from regard.models.encoder import EncoderConfig
from regard.models.head import ClassesConfig, LogitsConfig
from regard.models.init import InitConfig
from regard.models.language import LanguageConfig
from regard.models.stack import LayerConfig
from regard.parts.embed import EmbedConfig
from regard.parts.norm import NormConfig
from regard.parts.pool import LastConfig


def with_head(
    theirs: Theirs,
    *,
    dim: int,
    depth: int,
    layers: dict[str, LayerConfig],
    norm: NormConfig,
    embed: EmbedConfig,
    init: InitConfig,
    tied: bool,
    pattern: tuple[str, ...] = (),
) -> LanguageConfig | EncoderConfig:
    """Give our config of a decoder with the head that its architecture names; `tied` unless the file says otherwise."""
    vocabulary = theirs.whole("vocab_size")
    tied = theirs.flag("tie_word_embeddings", tied)
    classes = theirs.classes()
    if theirs.architecture.endswith("ForSequenceClassification"):
        return EncoderConfig(
            vocabulary=vocabulary,
            dim=dim,
            depth=depth,
            layers=layers,
            pattern=pattern,
            norm=norm,
            embed=embed,
            sight="past",
            head=ClassesConfig(LastConfig(), classes=classes, bias=False),
            init=init,
        )
    return LanguageConfig(
        vocabulary=vocabulary,
        dim=dim,
        depth=depth,
        layers=layers,
        pattern=pattern,
        norm=norm,
        embed=embed,
        head=LogitsConfig(tied=tied),
        init=init,
    )


def their_decoder(config: Any, writer: str, classifier: str) -> Table:
    """Give the keys that say vocabulary and head."""
    if isinstance(config, EncoderConfig) and config.sight == "past":
        head = part(config.head, ClassesConfig, "model.head")
        return {"architectures": [classifier], "vocab_size": config.vocabulary, "num_labels": head.classes}
    if not isinstance(config, LanguageConfig):
        raise UnlikeError("no model that sees the past only", "model")
    return {
        "architectures": [writer],
        "vocab_size": config.vocabulary,
        "tie_word_embeddings": config.head.tied,
    }
