"""The weights of a model as the parameters of the formal algorithms, which can then compute the same function.

The model must have what the algorithms have: learned positions added to the embedding, biases in all heads, layer norms
without epsilon, an output matrix of its own.
"""

from typing import Any

import numpy as np
import torch

from regard import formal


def as_array(tensor: torch.Tensor) -> formal.Matrix:
    """Copy a weight."""
    return np.array(tensor.detach().cpu().numpy(), dtype=np.float64)


def multi_head_weights(attention: Any) -> formal.MultiHeadWeights:
    """Return the weights of an attention, head by head."""
    parts = attention.heads
    linears = (parts.to_query, parts.to_key, parts.to_value)

    def head(number: int) -> formal.AttentionWeights:
        rows = slice(number * parts.head_dim, (number + 1) * parts.head_dim)
        return formal.AttentionWeights(*(as_array(p)[rows] for linear in linears for p in (linear.weight, linear.bias)))

    heads = tuple(head(number) for number in range(parts.heads))
    return formal.MultiHeadWeights(heads, as_array(parts.output.weight), as_array(parts.output.bias))


def norm_weights(norm: Any) -> formal.NormWeights:
    """Return the weights of a layer norm."""
    return formal.NormWeights(as_array(norm.weight), as_array(norm.bias))


def _mlp(mlp: Any) -> formal.MLPWeights:
    return formal.MLPWeights(*(as_array(p) for linear in (mlp.up, mlp.down) for p in (linear.weight, linear.bias)))


def _layer(layer: Any) -> formal.LayerWeights:
    norms = layer.residual.norms
    attention, mlp = multi_head_weights(layer.mixer), _mlp(layer.feedforward)
    return formal.LayerWeights(attention, norm_weights(norms["mixer"]), mlp, norm_weights(norms["feedforward"]))


def _cross_layer(layer: Any) -> formal.CrossLayerWeights:
    first, second, third = (norm_weights(layer.residual.norms[name]) for name in ("mixer", "cross", "feedforward"))
    own, cross = multi_head_weights(layer.mixer), multi_head_weights(layer.cross)
    return formal.CrossLayerWeights(own, first, cross, second, _mlp(layer.feedforward), third)


def _tables(model: Any) -> tuple[formal.Matrix, formal.Matrix]:
    return as_array(model.embed.tokens.table.weight).T, as_array(model.embed.position.table.weight).T


def decoder_theta(model: Any) -> formal.DTheta:
    """Return the parameters of a language model for `d_transformer`."""
    layers = tuple(_layer(layer) for layer in model.stack.layers)
    return formal.DTheta(*_tables(model), layers, norm_weights(model.stack.norm), as_array(model.head.unembed.weight))


def encoder_theta(model: Any) -> formal.ETheta:
    """Return the parameters of a masked language model for `e_transformer`."""
    layers = tuple(_layer(layer) for layer in model.stack.layers)
    change = model.head.transform
    dense = as_array(change.dense.weight), as_array(change.dense.bias)
    return formal.ETheta(
        *_tables(model), layers, *dense, norm_weights(change.norm), as_array(model.head.unembed.weight)
    )


def seq2seq_theta(model: Any) -> formal.EDTheta:
    """Return the parameters of an encoder-decoder for `ed_transformer`."""
    encoder = tuple(_layer(layer) for layer in model.encoder.layers)
    decoder = tuple(_cross_layer(layer) for layer in model.decoder.layers)
    return formal.EDTheta(*_tables(model), encoder, decoder, as_array(model.head.unembed.weight))
