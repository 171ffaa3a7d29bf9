"""CTranslate2, the engine for CPUs: a model written as it reads it.

Encoder-decoder and decoder-only Transformers: multi-head (also grouped) attention with a scaled dot product, MLP or
gated feed-forward, layer or RMS norm before or after. What it does not know is refused before anything is written.
"""

from math import isclose
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from regard.errors import ConfigError, RegardError, at
from regard.models.language import LanguageConfig, LanguageModel
from regard.models.model import Model
from regard.models.seq2seq import Seq2Seq, Seq2SeqConfig
from regard.models.stack import Layer, LayerConfig, Stack, StackConfig
from regard.parts.attention import Attention, AttentionConfig
from regard.parts.embed import EmbedConfig, Embedding
from regard.parts.feedforward import GLU, MLP, GLUConfig, MLPConfig
from regard.parts.heads import MultiHeads, MultiHeadsConfig
from regard.parts.norm import LayerNormConfig, RMSNormConfig
from regard.parts.position import RopeConfig
from regard.parts.score import DotConfig

Quantization = Literal["float32", "float16", "bfloat16", "int8", "int8_float32", "int8_float16", "int8_bfloat16"]
QUANTIZATIONS = Quantization.__args__  # type: ignore[attr-defined]
ACTIVATIONS = {
    "relu": "RELU", "gelu": "GELU", "gelu-tanh": "GELUTanh", "silu": "SWISH", "tanh": "Tanh", "sigmoid": "Sigmoid",
}  # fmt: skip
POSITIONS = 2048  # rows of the table that is written of sines and cosines

T = TypeVar("T")


class Words(NamedTuple):
    """The vocabulary, and the names of what is special in it."""

    tokens: list[str]  # by id
    start: str
    end: str
    unknown: str


def import_ctranslate2() -> ModuleType:
    """Import the library, which few need."""
    try:
        import ctranslate2  # type: ignore[import-untyped]
    except ImportError:
        raise RegardError('ctranslate2 is not installed; get it with `pip install "regard[ctranslate2]"`') from None
    return ctranslate2


def write_ctranslate2(model: Model, words: Words, folder: Path, quantization: Quantization = "float32") -> None:
    """Write a model for CTranslate2 into a new folder."""
    check(model.config)
    library = import_ctranslate2()
    assert isinstance(model, Seq2Seq | LanguageModel)
    spec = specify(model, library)
    if isinstance(model, Seq2Seq):
        spec.register_source_vocabulary(words.tokens)
        spec.register_target_vocabulary(words.tokens)
        spec.config.decoder_start_token, spec.config.add_source_eos = words.start, False
        spec.config.bos_token = words.start
    else:
        spec.register_vocabulary(words.tokens)
        spec.config.bos_token = words.end  # a text begins after the end of another
    spec.config.eos_token, spec.config.unk_token = words.end, words.unknown
    spec.config.layer_norm_epsilon = norms(model.config)[0].eps
    spec.validate()
    spec.optimize(quantization=None if quantization == "float32" else quantization)
    folder.mkdir(parents=True, exist_ok=True)
    spec.save(str(folder))


# --- what can be said there ------------------------------------------------------------------------------------------


def check(config: Any) -> None:
    """Refuse what CTranslate2 does not know, naming the place."""
    with at("model"):
        if isinstance(config, LanguageConfig):
            check_stack(config, cross=False)
        elif isinstance(config, Seq2SeqConfig):
            for side in ("encoder", "decoder"):
                with at(side):
                    check_stack(getattr(config, side), cross=side == "decoder")
            only(config.source_vocabulary, None, "source_vocabulary")
            only(config.shared, "all", "shared")
        else:
            raise ConfigError("CTranslate2 runs encoder-decoder and decoder-only Transformers; this is neither")
        with at("embed"):
            check_embed(config.embed)
        with at("head"):
            only(config.head.transform, None, "transform")
        found = norms(config)
        if len({(type(norm), norm.eps) for norm in found}) > 1:
            raise ConfigError("CTranslate2 has one kind of norm, with one eps, in a model")


def exportable(config: Any) -> str | None:
    """Say why CTranslate2 cannot run a model of this config; None if it can."""
    try:
        check(config)
    except ConfigError as error:
        return str(error)
    return None


def only(found: Any, known: Any, name: str) -> None:
    """Refuse all but the one value that can be written."""
    if found != known:
        raise ConfigError(f"{found!r} cannot be said in CTranslate2, only {known!r}", name)


def part(value: Any, kind: type[T] | tuple[type[T], ...], name: str) -> T:
    """Give the value if it is of a kind that can be written."""
    if not isinstance(value, kind):
        kinds = kind if isinstance(kind, tuple) else (kind,)
        wanted = " or ".join(each.__name__.removesuffix("Config") for each in kinds)
        found = "nothing" if value is None else type(value).__name__.removesuffix("Config")
        raise ConfigError(f"{found} cannot be said in CTranslate2, only {wanted}", name)
    return value


def check_stack(stack: StackConfig, cross: bool) -> None:
    """All layers are alike, with a norm on top exactly where norms stand before."""
    kinds = {stack.layers[name] for name in stack.names()}
    if len(kinds) > 1:
        raise ConfigError("CTranslate2 has one kind of layer in a stack", "layers")
    [layer] = kinds
    with at(f"layers.{stack.names()[0]}"):
        if layer.residual not in ("pre", "post"):
            raise ConfigError(f"{layer.residual!r} cannot be said in CTranslate2, only 'pre' or 'post'", "residual")
        part(layer.norm, (LayerNormConfig, RMSNormConfig), "norm")
        with at("mixer"):
            check_attention(part(layer.mixer, AttentionConfig, ""), self_attention=True)
        if cross:
            with at("cross"):
                check_attention(part(layer.cross, AttentionConfig, ""), self_attention=False)
        forward: Any = part(layer.feedforward, (MLPConfig, GLUConfig), "feedforward")
        with at("feedforward"):
            part(forward.hidden, int, "hidden")
            if forward.activation not in ACTIVATIONS:
                raise ConfigError(f"{forward.activation!r} is no activation of CTranslate2", "activation")
    if (stack.norm is not None) != (layer.residual == "pre"):
        raise ConfigError("CTranslate2 has a norm on top of a stack where norms stand before the sublayers", "norm")
    part(stack.norm or layer.norm, (LayerNormConfig, RMSNormConfig), "norm")


def check_attention(attention: AttentionConfig, self_attention: bool) -> None:
    """Multi-head attention with the usual score; positions by rotation at most."""
    heads = part(attention.heads, MultiHeadsConfig, "heads")
    score = part(attention.score, DotConfig, "score")
    only(score.cap, None, "score.cap")
    only(attention.window, None, "window")  # it has one, but reads a prompt that is longer than that differently
    if heads.qk_norm is not None:
        part(heads.qk_norm, RMSNormConfig, "heads.qk_norm")
    if attention.position is not None:
        position = part(attention.position, RopeConfig, "position")
        if not self_attention:
            raise ConfigError("CTranslate2 turns no queries that look at a source", "position")
        only(position.scaling, None, "position.scaling")


def check_embed(embed: EmbedConfig) -> None:
    """Positions are added."""
    only(embed.concatenate, None, "concatenate")
    only(embed.segments, None, "segments")
    if embed.norm is not None:
        part(embed.norm, (LayerNormConfig, RMSNormConfig), "norm")


def norms(config: Any) -> list[LayerNormConfig | RMSNormConfig]:
    """List the norms of a model, those of queries and keys too."""
    stacks = (config,) if isinstance(config, LanguageConfig) else (config.encoder, config.decoder)
    found = [config.embed.norm]
    for stack in stacks:
        layer = stack.layers[stack.names()[0]]
        found += [stack.norm, layer.norm]
        heads = [each.heads for each in (layer.mixer, layer.cross) if isinstance(each, AttentionConfig)]
        found += [each.qk_norm for each in heads if isinstance(each, MultiHeadsConfig)]
    return [norm for norm in found if norm is not None]


# --- saying it -------------------------------------------------------------------------------------------------------


def specify(model: Seq2Seq | LanguageModel, library: ModuleType) -> Any:
    """Make the library's description of a model, with its weights."""
    specs = library.specs.transformer_spec
    config = model.config
    if isinstance(model, LanguageModel):
        options = stack_options(config, library) | {"layernorm_embedding": config.embed.norm is not None}
        decoder = specs.TransformerDecoderSpec(with_encoder_attention=False, **options)
        spec = specs.TransformerDecoderModelSpec(decoder)
        stack = model.stack
    else:
        extra = {"layernorm_embedding": config.embed.norm is not None}
        encoder = specs.TransformerEncoderSpec(**stack_options(config.encoder, library), **extra)
        decoder = specs.TransformerDecoderSpec(**stack_options(config.decoder, library), **extra)
        spec = specs.TransformerSpec(encoder, decoder)
        stack = model.decoder
        fill_stack(encoder, model.encoder, config.encoder)
        fill_embed(encoder, encoder.embeddings[0], model.embed)
    fill_stack(decoder, stack, config if isinstance(model, LanguageModel) else config.decoder)
    fill_embed(decoder, decoder.embeddings, model.embed)
    weight = model.embed.tokens.table.weight if model.head.unembed is None else model.head.unembed.weight
    decoder.projection.weight = numbers(weight * model.head.scale)
    if model.head.bias is not None:
        decoder.projection.bias = numbers(model.head.bias)
    if model.head.cap is not None:
        decoder.final_logit_softcapping = np.dtype("float32").type(model.head.cap)
    return spec


def stack_options(stack: StackConfig, library: ModuleType) -> dict[str, Any]:
    """Say what all layers of a stack have in common."""
    layer = stack.layers[stack.names()[0]]
    attention = layer.mixer
    assert isinstance(attention, AttentionConfig)
    assert isinstance(attention.heads, MultiHeadsConfig)
    forward = layer.feedforward
    assert isinstance(forward, MLPConfig | GLUConfig)
    options: dict[str, Any] = {
        "num_layers": stack.depth,
        "num_heads": attention.heads.heads,
        "num_heads_kv": attention.heads.kv_heads,
        "head_dim": attention.heads.head_dim,
        "pre_norm": layer.residual == "pre",
        "activation": library.specs.Activation[ACTIVATIONS[forward.activation]],
        "ffn_glu": isinstance(forward, GLUConfig),
        "rms_norm": isinstance(layer.norm, RMSNormConfig),
        "qk_norm": attention.heads.qk_norm is not None,
    }
    if isinstance(attention.position, RopeConfig):
        rope = attention.position
        options |= {
            "rotary_dim": rope.width or 0,
            "rotary_interleave": rope.layout == "interleaved",
            "rotary_base": rope.base,
        }
    return {name: value for name, value in options.items() if value is not None}


def fill_stack(spec: Any, stack: Stack, config: StackConfig) -> None:
    """Fill in the weights of all layers."""
    layer_config = config.layers[config.names()[0]]
    if config.norm is not None:
        fill_norm(spec.layer_norm, stack.norm)
    for each, layer in zip(spec.layer, stack.layers, strict=True):
        assert isinstance(layer, Layer)
        fill_layer(each, layer, layer_config)


def fill_layer(spec: Any, layer: Layer, config: LayerConfig) -> None:
    """Fill in one layer; a norm belongs to the sublayer before or after which it stands."""
    residual: Any = layer.residual
    fill_norm(spec.self_attention.layer_norm, residual.norms["mixer"])
    assert isinstance(layer.mixer, Attention)
    fill_attention(spec.self_attention, layer.mixer, self_attention=True)
    if layer.cross is not None:
        fill_norm(spec.attention.layer_norm, residual.norms["cross"])
        fill_attention(spec.attention, layer.cross, self_attention=False)
    fill_norm(spec.ffn.layer_norm, residual.norms["feedforward"])
    forward = layer.feedforward
    assert isinstance(forward, MLP | GLU)
    if isinstance(forward, GLU):
        fill_linear(spec.ffn.linear_0, forward.gate)
        fill_linear(spec.ffn.linear_0_noact, forward.up)
    else:
        fill_linear(spec.ffn.linear_0, forward.up)
    fill_linear(spec.ffn.linear_1, forward.down)


def fill_attention(spec: Any, attention: Attention, self_attention: bool) -> None:
    """Fill in queries, keys and values, which a self-attention has in one matrix, and the output."""
    heads = attention.heads
    assert isinstance(heads, MultiHeads)
    usual = heads.head_dim**-0.5
    scale = 1.0 if isclose(attention.score.scale, usual) else attention.score.scale / usual
    groups = [[heads.to_query, heads.to_key, heads.to_value]]
    if not self_attention:
        groups = [[heads.to_query], [heads.to_key, heads.to_value]]
    for linear, group in zip(spec.linear, groups, strict=False):
        scales = [scale if each is heads.to_query else 1.0 for each in group]
        linear.weight = numbers(torch.cat([each.weight * by for each, by in zip(group, scales, strict=True)]))
        if heads.to_query.bias is not None:
            linear.bias = numbers(torch.cat([each.bias * by for each, by in zip(group, scales, strict=True)]))
    fill_linear(spec.linear[-1], heads.output)
    if hasattr(spec, "q_norm"):
        fill_norm(spec.q_norm, heads.query_norm)
        fill_norm(spec.k_norm, heads.key_norm)


def fill_embed(spec: Any, embeddings: Any, embed: Embedding) -> None:
    """Fill in tokens, positions as a table, and the norm."""
    embeddings.weight = numbers(embed.tokens.table.weight)
    spec.scale_embeddings = embed.scale != 1.0
    if embed.position is not None:
        places = torch.arange(embed.position.length or POSITIONS)[None]
        spec.position_encodings.encodings = numbers(embed.position.vectors(places)[0])
    elif hasattr(spec, "position_encodings"):
        width = embed.tokens.table.embedding_dim
        spec.position_encodings.encodings = np.zeros((POSITIONS, width), np.float32)
    if hasattr(spec, "layernorm_embedding"):
        fill_norm(spec.layernorm_embedding, embed.norm)


def fill_norm(spec: Any, norm: Any) -> None:
    """Fill in gamma, and beta if it has one."""
    spec.gamma = numbers(norm.weight)
    if hasattr(spec, "beta"):
        spec.beta = np.zeros_like(spec.gamma) if norm.bias is None else numbers(norm.bias)


def fill_linear(spec: Any, linear: nn.Linear) -> None:
    """Fill in a matrix, and the bias if it has one."""
    spec.weight = numbers(linear.weight)
    if linear.bias is not None:
        spec.bias = numbers(linear.bias)


def numbers(tensor: Tensor) -> np.ndarray:
    """A tensor as the library takes it."""
    return tensor.detach().float().cpu().contiguous().numpy()
