"""Write models for CTranslate2, an inference library that is fast on CPUs.

It runs encoder-decoder and decoder-only Transformers: multi-head (also grouped) attention with a scaled dot product,
MLP or gated feed-forward, layer or RMS norm before or after. Other models are rejected before anything is written.
"""

from math import isclose
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from regard.errors import ConfigError, RegardError, at, choices
from regard.models.language import LanguageConfig, LanguageModel
from regard.models.model import Model
from regard.models.recipe import ModelConfig
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
POSITIONS = 2048  # length of the position table that is written for sinusoidal positions

T = TypeVar("T")


class TokenNames(NamedTuple):
    """The vocabulary in the form that CTranslate2 requires: the name of every token, and the special ones."""

    tokens: list[str]  # by id
    start: str
    end: str
    unknown: str


def import_ctranslate2() -> ModuleType:
    """Import the library, an optional dependency."""
    try:
        import ctranslate2  # type: ignore[import-untyped]
    except ImportError:
        raise RegardError('ctranslate2 is not installed; install it with `pip install "regard[ctranslate2]"`') from None
    return ctranslate2


def write_ctranslate2(model: Model, names: TokenNames, folder: Path, quantization: Quantization = "float32") -> None:
    """Write a model for CTranslate2 into a new folder."""
    check_ctranslate2(model.config)
    library = import_ctranslate2()
    assert isinstance(model, Seq2Seq | LanguageModel)
    spec = _specify(model, library)
    if model.has_source:
        spec.register_source_vocabulary(names.tokens)
        spec.register_target_vocabulary(names.tokens)
        spec.config.decoder_start_token, spec.config.add_source_eos = names.start, False
        spec.config.bos_token = names.start
    else:
        spec.register_vocabulary(names.tokens)
        spec.config.bos_token = names.end  # in training, each text follows the end token of another
    spec.config.eos_token, spec.config.unk_token = names.end, names.unknown
    spec.config.layer_norm_epsilon = _norms(model.config)[0].eps
    spec.validate()
    spec.optimize(quantization=None if quantization == "float32" else quantization)
    folder.mkdir(parents=True, exist_ok=True)
    spec.save(str(folder))


# --- what CTranslate2 supports ---------------------------------------------------------------------------------------


def check_ctranslate2(config: ModelConfig) -> None:
    """Raise a `ConfigError` with the path of the first thing that CTranslate2 does not support."""
    with at("model"):
        if isinstance(config, LanguageConfig):
            _check_stack(config, cross=False)
        elif isinstance(config, Seq2SeqConfig):
            for side in ("encoder", "decoder"):
                with at(side):
                    _check_stack(getattr(config, side), cross=side == "decoder")
            _require(config.source_vocabulary, None, "source_vocabulary")
            _require(config.shared, "all", "shared")
        else:
            raise ConfigError("CTranslate2 runs encoder-decoder and decoder-only Transformers; this is neither")
        with at("embed"):
            _check_embed(config.embed)
        with at("head"):
            _require(config.head.transform, None, "transform")
        found = _norms(config)
        if len({(type(norm), norm.eps) for norm in found}) > 1:
            raise ConfigError("CTranslate2 supports one kind of norm, with one eps, per model")


def ctranslate2_obstacle(config: ModelConfig) -> str | None:
    """Return the reason why CTranslate2 cannot run a model of this config, or None if it can."""
    try:
        check_ctranslate2(config)
    except ConfigError as error:
        return str(error)
    return None


def _require(found: Any, supported: Any, name: str) -> None:
    if found != supported:
        raise ConfigError(f"{_show(found)} is not supported by CTranslate2, only {_show(supported)}", name)


def _show(value: Any) -> str:
    return "none" if value is None else repr(value)


def _expect(value: Any, kind: type[T] | tuple[type[T], ...], name: str) -> T:
    """Return the value if it is of a supported kind."""
    if not isinstance(value, kind):
        kinds = kind if isinstance(kind, tuple) else (kind,)
        wanted = " or ".join(each.__name__.removesuffix("Config") for each in kinds)
        found = "none" if value is None else type(value).__name__.removesuffix("Config")
        raise ConfigError(f"{found} is not supported by CTranslate2, only {wanted}", name)
    return value


def _check_stack(stack: StackConfig, cross: bool) -> None:
    """Check that all layers are equal, and that a norm follows the last layer exactly if the layers are pre-norm."""
    kinds = {stack.layers[name] for name in stack.names()}
    if len(kinds) > 1:
        raise ConfigError("CTranslate2 supports one kind of layer per stack", "layers")
    [layer] = kinds
    with at(f"layers.{stack.names()[0]}"):
        if layer.residual not in ("pre", "post"):
            raise ConfigError(f"{layer.residual!r} is not supported by CTranslate2, only 'pre' or 'post'", "residual")
        _expect(layer.norm, (LayerNormConfig, RMSNormConfig), "norm")
        with at("mixer"):
            _check_attention(_expect(layer.mixer, AttentionConfig, ""), self_attention=True)
        if cross:
            with at("cross"):
                _check_attention(_expect(layer.cross, AttentionConfig, ""), self_attention=False)
        forward: Any = _expect(layer.feedforward, (MLPConfig, GLUConfig), "feedforward")
        with at("feedforward"):
            _expect(forward.hidden, int, "hidden")
            if forward.activation not in ACTIVATIONS:
                known = choices(forward.activation, ACTIVATIONS)
                raise ConfigError(f"{forward.activation!r} is not supported by CTranslate2; {known}", "activation")
    if (stack.norm is not None) != (layer.residual == "pre"):
        raise ConfigError(
            "CTranslate2 requires a norm after the last layer for pre-norm layers, and none for post-norm layers",
            "norm",
        )
    _expect(stack.norm or layer.norm, (LayerNormConfig, RMSNormConfig), "norm")


def _check_attention(attention: AttentionConfig, self_attention: bool) -> None:
    """Check that it is multi-head attention with a dot product, and with no relative positions except rotary ones."""
    heads = _expect(attention.heads, MultiHeadsConfig, "heads")
    score = _expect(attention.score, DotConfig, "score")
    _require(score.cap, None, "score.cap")
    _require(attention.mask, None, "mask")
    # CTranslate2 has windows, but handles prompts longer than a window differently
    _require(attention.window, None, "window")
    if heads.qk_norm is not None:
        _expect(heads.qk_norm, RMSNormConfig, "heads.qk_norm")
    if attention.position is not None:
        position = _expect(attention.position, RopeConfig, "position")
        if not self_attention:
            raise ConfigError("CTranslate2 has no rotary cross-attention", "position")
        _require(position.scaling, None, "position.scaling")


def _check_embed(embed: EmbedConfig) -> None:
    """Check that positions are added to the tokens, and that there are no segments."""
    _require(embed.concatenate, None, "concatenate")
    _require(embed.segments, None, "segments")
    if embed.norm is not None:
        _expect(embed.norm, (LayerNormConfig, RMSNormConfig), "norm")


def _norms(config: Any) -> list[LayerNormConfig | RMSNormConfig]:
    """Return the norms of a model, including those of queries and keys."""
    stacks = (config,) if isinstance(config, LanguageConfig) else (config.encoder, config.decoder)
    found = [config.embed.norm]
    for stack in stacks:
        layer = stack.layers[stack.names()[0]]
        found += [stack.norm, layer.norm]
        heads = [each.heads for each in (layer.mixer, layer.cross) if isinstance(each, AttentionConfig)]
        found += [each.qk_norm for each in heads if isinstance(each, MultiHeadsConfig)]
    return [norm for norm in found if norm is not None]


# --- writing ---------------------------------------------------------------------------------------------------------


def _specify(model: Seq2Seq | LanguageModel, library: ModuleType) -> Any:
    """Return the library's model specification, with the weights."""
    specs = library.specs.transformer_spec
    config = model.config
    if isinstance(model, LanguageModel):
        options = _stack_options(config, library) | {"layernorm_embedding": config.embed.norm is not None}
        decoder = specs.TransformerDecoderSpec(with_encoder_attention=False, **options)
        spec = specs.TransformerDecoderModelSpec(decoder)
        stack = model.stack
    else:
        extra = {"layernorm_embedding": config.embed.norm is not None}
        encoder = specs.TransformerEncoderSpec(**_stack_options(config.encoder, library), **extra)
        decoder = specs.TransformerDecoderSpec(**_stack_options(config.decoder, library), **extra)
        spec = specs.TransformerSpec(encoder, decoder)
        stack = model.decoder
        _fill_stack(encoder, model.encoder, config.encoder)
        _fill_embed(encoder, encoder.embeddings[0], model.embed)
    _fill_stack(decoder, stack, config if isinstance(model, LanguageModel) else config.decoder)
    _fill_embed(decoder, decoder.embeddings, model.embed)
    weight = model.embed.tokens.table.weight if model.head.unembed is None else model.head.unembed.weight
    decoder.projection.weight = _array(weight * model.head.scale)
    if model.head.bias is not None:
        decoder.projection.bias = _array(model.head.bias)
    if model.head.cap is not None:
        decoder.final_logit_softcapping = np.dtype("float32").type(model.head.cap)
    return spec


def _stack_options(stack: StackConfig, library: ModuleType) -> dict[str, Any]:
    """Return the options that describe the layers of a stack."""
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


def _fill_stack(spec: Any, stack: Stack, config: StackConfig) -> None:
    """Fill in the weights of all layers and of the norm after them."""
    layer_config = config.layers[config.names()[0]]
    if config.norm is not None:
        _fill_norm(spec.layer_norm, stack.norm)
    for each, layer in zip(spec.layer, stack.layers, strict=True):
        assert isinstance(layer, Layer)
        _fill_layer(each, layer, layer_config)


def _fill_layer(spec: Any, layer: Layer, config: LayerConfig) -> None:
    """Fill in one layer; each norm belongs to the sublayer that it precedes or follows."""
    residual: Any = layer.residual
    _fill_norm(spec.self_attention.layer_norm, residual.norms["mixer"])
    assert isinstance(layer.mixer, Attention)
    _fill_attention(spec.self_attention, layer.mixer, self_attention=True)
    if layer.cross is not None:
        _fill_norm(spec.attention.layer_norm, residual.norms["cross"])
        _fill_attention(spec.attention, layer.cross, self_attention=False)
    _fill_norm(spec.ffn.layer_norm, residual.norms["feedforward"])
    forward = layer.feedforward
    assert isinstance(forward, MLP | GLU)
    if isinstance(forward, GLU):
        _fill_linear(spec.ffn.linear_0, forward.gate)
        _fill_linear(spec.ffn.linear_0_noact, forward.up)
    else:
        _fill_linear(spec.ffn.linear_0, forward.up)
    _fill_linear(spec.ffn.linear_1, forward.down)


def _fill_attention(spec: Any, attention: Attention, self_attention: bool) -> None:
    """Fill in queries, keys and values, which are one matrix in self-attention, and the output."""
    heads = attention.heads
    assert isinstance(heads, MultiHeads)
    usual = heads.head_dim**-0.5
    scale = 1.0 if isclose(attention.score.scale, usual) else attention.score.scale / usual
    groups = [[heads.to_query, heads.to_key, heads.to_value]]
    if not self_attention:
        groups = [[heads.to_query], [heads.to_key, heads.to_value]]
    for linear, group in zip(spec.linear, groups, strict=False):
        scales = [scale if each is heads.to_query else 1.0 for each in group]
        linear.weight = _array(torch.cat([each.weight * by for each, by in zip(group, scales, strict=True)]))
        if heads.to_query.bias is not None:
            linear.bias = _array(torch.cat([each.bias * by for each, by in zip(group, scales, strict=True)]))
    _fill_linear(spec.linear[-1], heads.output)
    if hasattr(spec, "q_norm"):
        _fill_norm(spec.q_norm, heads.query_norm)
        _fill_norm(spec.k_norm, heads.key_norm)


def _fill_embed(spec: Any, embeddings: Any, embed: Embedding) -> None:
    """Fill in the token table, the position table and the norm."""
    embeddings.weight = _array(embed.tokens.table.weight)
    spec.scale_embeddings = embed.scale != 1.0
    if embed.position is not None:
        positions = torch.arange(embed.position.length or POSITIONS)[None]
        spec.position_encodings.encodings = _array(embed.position.vectors(positions)[0])
    elif hasattr(spec, "position_encodings"):
        width = embed.tokens.table.embedding_dim
        spec.position_encodings.encodings = np.zeros((POSITIONS, width), np.float32)
    if hasattr(spec, "layernorm_embedding"):
        _fill_norm(spec.layernorm_embedding, embed.norm)


def _fill_norm(spec: Any, norm: Any) -> None:
    """Fill in gamma, and beta if there is one."""
    spec.gamma = _array(norm.weight)
    if hasattr(spec, "beta"):
        spec.beta = np.zeros_like(spec.gamma) if norm.bias is None else _array(norm.bias)


def _fill_linear(spec: Any, linear: nn.Linear) -> None:
    """Fill in a matrix, and the bias if there is one."""
    spec.weight = _array(linear.weight)
    if linear.bias is not None:
        spec.bias = _array(linear.bias)


def _array(tensor: Tensor) -> np.ndarray:
    """Return a tensor as the NumPy array that the library requires."""
    return tensor.detach().float().cpu().contiguous().numpy()
