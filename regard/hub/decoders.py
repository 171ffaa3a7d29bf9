"""What decoder families share: a head over the vocabulary, or a classification head at the last token."""

from regard.config import Table
from regard.hub.conversion import NotExpressibleError, expect
from regard.hub.hub_config import HubConfig
from regard.models.encoder import EncoderConfig
from regard.models.head import ClassesConfig, LogitsConfig
from regard.models.init import InitConfig
from regard.models.language import LanguageConfig
from regard.models.recipe import ModelConfig
from regard.models.stack import LayerConfig
from regard.parts.embed import EmbedConfig
from regard.parts.norm import NormConfig
from regard.parts.pool import LastConfig

DecoderConfig = LanguageConfig | EncoderConfig


def read_decoder(
    hub: HubConfig,
    *,
    dim: int,
    depth: int,
    layers: dict[str, LayerConfig],
    norm: NormConfig,
    embed: EmbedConfig,
    init: InitConfig,
    tied: bool,
    pattern: tuple[str, ...] = (),
) -> DecoderConfig:
    """Return our config of a decoder with the head of its task; `tied` is the family's default."""
    vocabulary = hub.read_int("vocab_size")
    tied = hub.read_bool("tie_word_embeddings", tied)
    classes = hub.read_classes()
    if hub.task == "classification":
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


def expect_decoder(config: ModelConfig) -> DecoderConfig:
    """Return the config if it is a model whose tokens see only the past."""
    if isinstance(config, LanguageConfig) or (isinstance(config, EncoderConfig) and config.sight == "past"):
        return config
    raise NotExpressibleError("tokens see the future instead of only the past", "model")


def decoder_keys(decoder: DecoderConfig, language: str, classifier: str) -> Table:
    """Return the keys of vocabulary and head. `language` and `classifier` are the architectures with these heads."""
    if isinstance(decoder, EncoderConfig):
        head = expect(decoder.head, ClassesConfig, "model.head")
        return {"architectures": [classifier], "vocab_size": decoder.vocabulary, "num_labels": head.classes}
    return {
        "architectures": [language],
        "vocab_size": decoder.vocabulary,
        "tie_word_embeddings": decoder.head.tied,
    }
