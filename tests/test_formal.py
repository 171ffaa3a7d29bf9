"""The reference against hand arithmetic, against its own laws, and against PyTorch's own layers."""

import math
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from regard import formal
from regard.formal import (
    AttentionWeights,
    CrossLayerWeights,
    DTheta,
    EDTheta,
    ETheta,
    LayerWeights,
    MLPWeights,
    MultiHeadWeights,
    NormWeights,
)

VOCABULARY, LONGEST, WIDTH, HEADS, HIDDEN, FINAL = 5, 6, 4, 2, 3, 6
SOURCE, TARGET = [4, 0, 2], [1, 3, 0, 2]


class Draw:
    """Random parameters, biases and norms included: none of them may be forgotten unnoticed."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def array(self, *shape: int) -> np.ndarray:
        return self.rng.normal(scale=0.5, size=shape)

    def head(self, d_x: int, d_z: int, d_attn: int, d_out: int) -> AttentionWeights:
        return AttentionWeights(
            W_q=self.array(d_attn, d_x),
            b_q=self.array(d_attn),
            W_k=self.array(d_attn, d_z),
            b_k=self.array(d_attn),
            W_v=self.array(d_out, d_z),
            b_v=self.array(d_out),
        )

    def heads(self) -> MultiHeadWeights:
        d = WIDTH // HEADS
        heads = tuple(self.head(WIDTH, WIDTH, d, d) for _ in range(HEADS))
        return MultiHeadWeights(heads, self.array(WIDTH, HEADS * d), self.array(WIDTH))

    def norm(self, width: int = WIDTH) -> NormWeights:
        return NormWeights(1 + 0.5 * self.array(width), self.array(width))

    def mlp(self) -> MLPWeights:
        return MLPWeights(self.array(HIDDEN, WIDTH), self.array(HIDDEN), self.array(WIDTH, HIDDEN), self.array(WIDTH))

    def layers(self, count: int) -> tuple[LayerWeights, ...]:
        return tuple(LayerWeights(self.heads(), self.norm(), self.mlp(), self.norm()) for _ in range(count))

    def cross_layers(self, count: int) -> tuple[CrossLayerWeights, ...]:
        return tuple(
            CrossLayerWeights(self.heads(), self.norm(), self.heads(), self.norm(), self.mlp(), self.norm())
            for _ in range(count)
        )

    def embeddings(self) -> tuple[np.ndarray, np.ndarray]:
        return self.array(WIDTH, VOCABULARY), self.array(WIDTH, LONGEST)

    def ed(self, layers: int = 2) -> EDTheta:
        return EDTheta(
            *self.embeddings(), self.layers(layers), self.cross_layers(layers), self.array(VOCABULARY, WIDTH)
        )

    def e(self, layers: int = 2) -> ETheta:
        final = (self.array(FINAL, WIDTH), self.array(FINAL), self.norm(FINAL), self.array(VOCABULARY, FINAL))
        return ETheta(*self.embeddings(), self.layers(layers), *final)

    def d(self, layers: int = 2) -> DTheta:
        return DTheta(*self.embeddings(), self.layers(layers), self.norm(), self.array(VOCABULARY, WIDTH))


@pytest.fixture
def draw() -> Draw:
    return Draw(0)


def everywhere(Z: np.ndarray, X: np.ndarray) -> np.ndarray:
    return np.ones((Z.shape[1], X.shape[1]), dtype=bool)


def arrays(theta: Any) -> list[np.ndarray]:
    if isinstance(theta, np.ndarray):
        return [theta]
    parts = theta if isinstance(theta, tuple) else [getattr(theta, field.name) for field in fields(theta)]
    return [array for part in parts for array in arrays(part)]


def assert_distributions(P: np.ndarray, length: int) -> None:
    assert P.shape == (VOCABULARY, length)
    assert (P >= 0).all()
    np.testing.assert_allclose(P.sum(axis=0), 1)
    assert np.ptp(P) > 0.01  # not merely uniform


# The functions taken for granted.


def test_softmax_by_hand_down_each_column() -> None:
    S = np.log([[1.0, 2.0], [3.0, 2.0]])
    np.testing.assert_allclose(formal.softmax(S), [[0.25, 0.5], [0.75, 0.5]])


def test_softmax_neither_overflows_nor_underflows() -> None:
    for shift in (-1e4, 1e4):
        np.testing.assert_allclose(formal.softmax(np.array([0.0, math.log(3)]) + shift), [0.25, 0.75])


def test_softmax_of_nothing_is_zero() -> None:
    np.testing.assert_array_equal(formal.softmax(np.array([[-np.inf, 0.0], [-np.inf, -np.inf]])), [[0, 1], [0, 0]])


def test_gelu_is_the_exact_one() -> None:
    x = np.linspace(-4, 4, 33)
    np.testing.assert_allclose(formal.gelu(x), nn.functional.gelu(torch.tensor(x)).numpy(), atol=1e-14)


def test_relu() -> None:
    np.testing.assert_array_equal(formal.relu(np.array([-2.0, 0.0, 3.0])), [0, 0, 3])


def test_unidirectional_mask_lets_the_column_see_the_row() -> None:
    np.testing.assert_array_equal(formal.unidirectional_mask(3), [[1, 1, 1], [0, 1, 1], [0, 0, 1]])


# Embedding.


def test_embeddings_are_columns_counted_from_zero() -> None:
    W = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    np.testing.assert_array_equal(formal.token_embedding(0, W), [1, 4])
    np.testing.assert_array_equal(formal.token_embedding(2, W), [3, 6])
    np.testing.assert_array_equal(formal.positional_embedding(1, W), [2, 5])


# Attention.


def test_the_worked_example_of_the_lecture() -> None:
    """Three inputs of width 4, written as rows with weights from the right: here everything is transposed."""
    inputs = np.array([[1, 0, 1, 0], [0, 2, 0, 2], [1, 1, 1, 1]], dtype=float)
    key = np.array([[0, 0, 1], [1, 1, 0], [0, 1, 0], [1, 1, 0]], dtype=float)
    value = np.array([[0, 2, 0], [0, 3, 0], [1, 0, 3], [1, 1, 0]], dtype=float)
    query = np.array([[1, 0, 1], [1, 0, 0], [0, 0, 1], [0, 1, 1]], dtype=float)
    np.testing.assert_array_equal((inputs @ key) @ (inputs @ query)[0], [2, 4, 4])
    np.testing.assert_array_equal(inputs @ value, [[1, 2, 3], [2, 8, 0], [2, 6, 3]])

    # The lecture does not divide its scores by √d_attn; queries √3 times as long undo the division.
    zero = np.zeros(3)
    weights = AttentionWeights(math.sqrt(3) * query.T, zero, key.T, zero, value.T, zero)
    output = formal.attention(inputs.T, inputs.T, weights, formal.bidirectional_mask(3, 3))

    low, high = math.exp(2), math.exp(4)  # softmax([2, 4, 4]) = [low, high, high] / total
    total = low + 2 * high
    by_hand = [
        (1 * low + 2 * high + 2 * high) / total,
        (2 * low + 8 * high + 6 * high) / total,
        (3 * low + 0 * high + 3 * high) / total,
    ]
    np.testing.assert_allclose(output[:, 0], by_hand)
    np.testing.assert_allclose(output[:, 0], [1.9366, 6.6831, 1.5951], atol=1e-4)


def test_attention_by_hand() -> None:
    """Four equal query entries ln 3 and key entries 0 or ½: score 0 or 2 ln 3, over √4 is 0 or ln 3."""
    weights = AttentionWeights(
        W_q=np.ones((4, 1)),
        b_q=np.zeros(4),
        W_k=np.full((4, 2), [0.5, 0.0]),
        b_k=np.zeros(4),
        W_v=np.array([[0.0, 1.0]]),
        b_v=np.array([10.0]),
    )
    X = np.array([[math.log(3), 0.0]])
    Z = np.array([[0.0, 1.0], [4.0, 8.0]])  # the first row gives the keys, the second the values
    # Weights ¼ and ¾ for the first query, ½ and ½ for the second, on the values 14 and 18.
    np.testing.assert_allclose(formal.attention(X, Z, weights, everywhere(Z, X)), [[17, 16]])
    hide_the_second = np.array([[True, True], [False, True]])
    np.testing.assert_allclose(formal.attention(X, Z, weights, hide_the_second), [[14, 16]])


def test_attention_is_the_one_of_torch(draw: Draw) -> None:
    X, Z, weights = draw.array(3, 5), draw.array(2, 4), draw.head(3, 2, 6, 7)
    mask = draw.rng.random((4, 5)) < 0.5
    mask[0] = True  # no query is blind, which torch leaves undefined
    q, k, v = (
        torch.tensor(W @ A + b[:, None]).T
        for W, A, b in [
            (weights.W_q, X, weights.b_q),
            (weights.W_k, Z, weights.b_k),
            (weights.W_v, Z, weights.b_v),
        ]
    )
    expected = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=torch.tensor(mask.T))
    assert not mask.all()
    np.testing.assert_allclose(formal.attention(X, Z, weights, mask), expected.T.numpy())


def test_single_query_attention_is_a_column_of_attention(draw: Draw) -> None:
    X, Z, weights = draw.array(3, 5), draw.array(2, 4), draw.head(3, 2, 6, 7)
    together = formal.attention(X, Z, weights, everywhere(Z, X))
    assert together.shape == (7, 5)
    for t in range(5):
        np.testing.assert_allclose(formal.single_query_attention(X[:, t], Z, weights), together[:, t])


def test_attention_weights_are_distributions_over_what_is_visible(draw: Draw) -> None:
    n = 5  # with the identity for values, the output is the matrix of weights itself
    weights = replace(draw.head(3, n, 2, n), W_v=np.eye(n), b_v=np.zeros(n))
    A = formal.attention(draw.array(3, n), np.eye(n), weights, formal.unidirectional_mask(n))
    np.testing.assert_allclose(A.sum(axis=0), 1)
    np.testing.assert_array_equal(A > 0, formal.unidirectional_mask(n))
    assert abs(A.sum(axis=1) - 1).max() > 0.1  # and the rows are not


def test_attention_follows_permutations(draw: Draw) -> None:
    X, Z, weights = draw.array(3, 5), draw.array(2, 4), draw.head(3, 2, 6, 7)
    mask = draw.rng.random((4, 5)) < 0.7
    plain = formal.attention(X, Z, weights, mask)
    x_order, z_order = [3, 0, 4, 1, 2], [2, 0, 3, 1]
    asked = formal.attention(X[:, x_order], Z, weights, mask[:, x_order])
    np.testing.assert_allclose(asked, plain[:, x_order])
    np.testing.assert_allclose(formal.attention(X, Z[:, z_order], weights, mask[z_order]), plain)
    assert abs(plain - plain[:, x_order]).max() > 0.1


def test_a_query_that_sees_nothing_gets_zeros(draw: Draw) -> None:
    X, Z, weights = draw.array(3, 2), draw.array(2, 4), draw.head(3, 2, 6, 7)
    mask = everywhere(Z, X)
    mask[:, 1] = False
    with np.errstate(all="raise"):
        output = formal.attention(X, Z, weights, mask)
    np.testing.assert_array_equal(output[:, 1], 0)
    np.testing.assert_allclose(output[:, 0], formal.single_query_attention(X[:, 0], Z, weights))
    empty = np.zeros((2, 0))
    np.testing.assert_array_equal(formal.attention(X, empty, weights, everywhere(empty, X)), np.zeros((7, 2)))
    np.testing.assert_array_equal(formal.single_query_attention(X[:, 0], empty, weights), np.zeros(7))


def test_one_head_joined_by_the_identity_is_attention(draw: Draw) -> None:
    X, Z, head = draw.array(3, 5), draw.array(2, 4), draw.head(3, 2, 6, 7)
    mask = draw.rng.random((4, 5)) < 0.7
    joined = formal.mh_attention(X, Z, MultiHeadWeights((head,), np.eye(7), np.zeros(7)), mask)
    np.testing.assert_allclose(joined, formal.attention(X, Z, head, mask))


def test_heads_are_stacked_in_order_then_joined(draw: Draw) -> None:
    X, Z, one, two = draw.array(3, 5), draw.array(2, 4), draw.head(3, 2, 6, 1), draw.head(3, 2, 2, 1)
    weights = MultiHeadWeights((one, two), np.array([[1.0, 10.0]]), np.array([100.0]))
    mask = everywhere(Z, X)
    expected = formal.attention(X, Z, one, mask) + 10 * formal.attention(X, Z, two, mask) + 100
    np.testing.assert_allclose(formal.mh_attention(X, Z, weights, mask), expected)


# Normalisation and unembedding.


def test_layer_norm_has_mean_zero_and_variance_one(draw: Draw) -> None:
    normed = formal.layer_norm(1e-6 * draw.array(8) + 3, NormWeights(np.ones(8), np.zeros(8)))
    np.testing.assert_allclose(normed.mean(), 0, atol=1e-8)
    np.testing.assert_allclose(normed.var(), 1)  # even of a tiny vector: there is no ε


def test_layer_norm_by_hand() -> None:
    norm = NormWeights(np.array([1.0, 10.0]), np.array([0.0, 5.0]))
    np.testing.assert_allclose(formal.layer_norm(np.array([2.0, 6.0]), norm), [-1, 15])


def test_unembedding_is_a_distribution() -> None:
    W_u = np.log([[1.0, 9.0], [2.0, 9.0], [5.0, 9.0]])
    np.testing.assert_allclose(formal.unembedding(np.array([1.0, 0.0]), W_u), [1 / 8, 2 / 8, 5 / 8])


# The three transformers, against the layers of torch.


def torch_attention(weights: MultiHeadWeights) -> dict[str, torch.Tensor]:
    heads = weights.heads
    state = {
        "in_proj_weight": np.concatenate([getattr(h, W) for W in ("W_q", "W_k", "W_v") for h in heads]),
        "in_proj_bias": np.concatenate([getattr(h, b) for b in ("b_q", "b_k", "b_v") for h in heads]),
        "out_proj.weight": weights.W_o,
        "out_proj.bias": weights.b_o,
    }
    return {name: torch.tensor(array) for name, array in state.items()}


def torch_layer(layer: LayerWeights | CrossLayerWeights, activation: str, norm_first: bool) -> nn.Module:
    """The same layer as torch builds it: rows for columns, the heads packed in one matrix."""
    kind = nn.TransformerEncoderLayer if isinstance(layer, LayerWeights) else nn.TransformerDecoderLayer
    module = kind(
        WIDTH,
        HEADS,
        HIDDEN,
        dropout=0.0,
        activation=activation,
        layer_norm_eps=0.0,
        norm_first=norm_first,
        dtype=torch.float64,
    )
    if isinstance(layer, LayerWeights):
        attentions, norms = {"self_attn": layer.attention}, [layer.norm_1, layer.norm_2]
    else:
        attentions = {"self_attn": layer.self_attention, "multihead_attn": layer.cross_attention}
        norms = [layer.norm_3, layer.norm_4, layer.norm_5]
    state = {
        "linear1.weight": torch.tensor(layer.mlp.W_1),
        "linear1.bias": torch.tensor(layer.mlp.b_1),
        "linear2.weight": torch.tensor(layer.mlp.W_2),
        "linear2.bias": torch.tensor(layer.mlp.b_2),
    }
    for name, weights in attentions.items():
        state |= {f"{name}.{key}": tensor for key, tensor in torch_attention(weights).items()}
    for i, norm in enumerate(norms, start=1):
        state |= {f"norm{i}.weight": torch.tensor(norm.gamma), f"norm{i}.bias": torch.tensor(norm.beta)}
    module.load_state_dict(state)
    return module


class Ends:
    """The tensors at both ends of a model, to compare gradients of."""

    def __init__(self, theta: EDTheta | ETheta | DTheta) -> None:
        self.W_e, self.W_p, self.W_u = (
            torch.tensor(getattr(theta, name), requires_grad=True) for name in ("W_e", "W_p", "W_u")
        )

    def embed(self, x: list[int]) -> torch.Tensor:
        return self.W_e.T[torch.tensor(x)] + self.W_p.T[: len(x)]

    def log_probabilities(self, X: torch.Tensor) -> torch.Tensor:
        return torch.log_softmax(X @ self.W_u.T, dim=-1)


def torch_norm(X: torch.Tensor, norm: NormWeights) -> torch.Tensor:
    width = len(norm.gamma)
    return nn.functional.layer_norm(X, (width,), torch.tensor(norm.gamma), torch.tensor(norm.beta), eps=0.0)


def future(x: list[int]) -> torch.Tensor:
    return torch.ones(len(x), len(x), dtype=torch.bool).triu(1)  # torch marks what is hidden


def torch_ed(z: list[int], x: list[int], theta: EDTheta, ends: Ends) -> torch.Tensor:
    Z, X = ends.embed(z), ends.embed(x)
    for layer in theta.encoder:
        Z = torch_layer(layer, "relu", norm_first=False)(Z)
    for cross in theta.decoder:
        X = torch_layer(cross, "relu", norm_first=False)(X, Z, tgt_mask=future(x))
    return ends.log_probabilities(X)


def torch_e(x: list[int], theta: ETheta, ends: Ends) -> torch.Tensor:
    X = ends.embed(x)
    for layer in theta.layers:
        X = torch_layer(layer, "gelu", norm_first=False)(X)
    X = nn.functional.gelu(X @ torch.tensor(theta.W_f).T + torch.tensor(theta.b_f))
    return ends.log_probabilities(torch_norm(X, theta.norm))


def torch_d(x: list[int], theta: DTheta, ends: Ends) -> torch.Tensor:
    X = ends.embed(x)
    for layer in theta.layers:
        X = torch_layer(layer, "gelu", norm_first=True)(X, src_mask=future(x))
    return ends.log_probabilities(torch_norm(X, theta.norm))


def test_ed_transformer_is_the_one_of_torch(draw: Draw) -> None:
    theta = draw.ed()
    P = formal.ed_transformer(SOURCE, TARGET, theta)
    assert_distributions(P, len(TARGET))
    expected = torch_ed(SOURCE, TARGET, theta, Ends(theta)).exp().T.detach().numpy()
    np.testing.assert_allclose(P, expected, rtol=1e-9)


def test_e_transformer_is_the_one_of_torch(draw: Draw) -> None:
    theta = draw.e()
    P = formal.e_transformer(TARGET, theta)
    assert_distributions(P, len(TARGET))
    expected = torch_e(TARGET, theta, Ends(theta)).exp().T.detach().numpy()
    np.testing.assert_allclose(P, expected, rtol=1e-9)


def test_d_transformer_is_the_one_of_torch(draw: Draw) -> None:
    theta = draw.d()
    P = formal.d_transformer(TARGET, theta)
    assert_distributions(P, len(TARGET))
    expected = torch_d(TARGET, theta, Ends(theta)).exp().T.detach().numpy()
    np.testing.assert_allclose(P, expected, rtol=1e-9)


def changed(before: np.ndarray, after: np.ndarray) -> list[bool]:
    """Which columns differ."""
    return [bool(difference > 1e-6) for difference in abs(before - after).max(axis=0)]


def test_the_future_does_not_change_the_past(draw: Draw) -> None:
    d, ed = draw.d(), draw.ed()
    edited = [*TARGET[:2], 4, *TARGET[3:]]
    seen = [False, False, True, True]
    assert changed(formal.d_transformer(TARGET, d), formal.d_transformer(edited, d)) == seen
    after = formal.ed_transformer(SOURCE, edited, ed)
    assert changed(formal.ed_transformer(SOURCE, TARGET, ed), after) == seen


def test_e_transformer_sees_both_ways(draw: Draw) -> None:
    theta = draw.e()
    edited = [*TARGET[:2], 4, *TARGET[3:]]
    assert all(changed(formal.e_transformer(TARGET, theta), formal.e_transformer(edited, theta)))


def test_every_column_of_ed_transformer_depends_on_all_of_the_source(draw: Draw) -> None:
    theta = draw.ed()
    before = formal.ed_transformer(SOURCE, TARGET, theta)
    for t in range(len(SOURCE)):
        edited = list(SOURCE)
        edited[t] = 3
        assert all(changed(before, formal.ed_transformer(edited, TARGET, theta)))


# Training.


def test_gradient_of_a_quadratic_keeps_structure_and_point(draw: Draw) -> None:
    theta = (NormWeights(draw.array(3), draw.array(2)), (draw.array(2, 3),))
    target = (NormWeights(draw.array(3), draw.array(2)), (draw.array(2, 3),))
    before = [array.copy() for array in arrays(theta)]

    def loss(theta: Any, scale: float) -> float:
        return scale * sum(float(((a - b) ** 2).sum()) for a, b in zip(arrays(theta), arrays(target), strict=True))

    slope = formal.gradient(loss, theta, 7.0)
    assert isinstance(slope, tuple)
    assert isinstance(slope[0], NormWeights)
    assert isinstance(slope[1], tuple)
    for g, a, b in zip(arrays(slope), arrays(theta), arrays(target), strict=True):
        np.testing.assert_allclose(g, 14 * (a - b), rtol=1e-6, atol=1e-8)
    for a, b in zip(arrays(theta), before, strict=True):
        np.testing.assert_array_equal(a, b)


def test_gradient_works_on_a_copy(draw: Draw) -> None:
    """So one array at two places is two parameters, and an array that must not be written can be given."""
    W = draw.array(2, 3)
    W.setflags(write=False)
    for slope in formal.gradient(lambda theta: float((theta[0] * theta[1]).sum()), (W, W)):
        np.testing.assert_allclose(slope, W, atol=1e-8)


def test_gradient_of_a_softmax_is_the_one_of_autograd(draw: Draw) -> None:
    W, x = draw.array(4, 3), draw.array(3, 2)
    slope = formal.gradient(lambda W: -float(np.log(formal.softmax(W @ x)[1]).sum()), W)
    tensor = torch.tensor(W, requires_grad=True)
    (-torch.log_softmax(tensor @ torch.tensor(x), dim=0)[1].sum()).backward()
    assert tensor.grad is not None
    np.testing.assert_allclose(slope, tensor.grad.numpy(), atol=1e-8)


def names(theta: Any, name: str = "") -> list[str]:
    """The field names of `arrays(theta)`, in the same order."""
    if isinstance(theta, np.ndarray):
        return [name]
    if isinstance(theta, tuple):
        return [n for part in theta for n in names(part, name)]
    return [n for field in fields(theta) for n in names(getattr(theta, field.name), field.name)]


def assert_one_step(before: Any, after: Any, ends: Ends, loss: torch.Tensor) -> None:
    """The step taken is -0.01 times the gradient that autograd finds, at both ends of the model."""
    loss.backward()
    for name in ("W_e", "W_p", "W_u"):
        slope = (getattr(before, name) - getattr(after, name)) / 0.01
        np.testing.assert_allclose(slope, getattr(ends, name).grad.numpy(), rtol=1e-4, atol=1e-6)
    # b_k adds the same to all scores of a query, which softmax cancels: alone of all it has no gradient.
    pairs = zip(names(before), arrays(before), arrays(after), strict=True)
    assert {name for name, a, b in pairs if np.allclose(a, b, rtol=0, atol=1e-9)} == {"b_k"}


def next_token_loss(log_p: torch.Tensor, x: list[int]) -> torch.Tensor:
    return -torch.stack([log_p[t, x[t + 1]] for t in range(len(x) - 1)]).sum()


def test_one_step_of_ed_training_follows_the_gradient_and_lowers_the_loss(draw: Draw) -> None:
    theta = draw.ed(1)
    trained = formal.ed_training([SOURCE], [TARGET], theta, eta=0.01, epochs=1)

    def loss(theta: EDTheta, ends: Ends) -> torch.Tensor:
        return next_token_loss(torch_ed(SOURCE, TARGET, theta, ends), TARGET)

    ends = Ends(theta)
    assert_one_step(theta, trained, ends, loss(theta, ends))
    assert loss(trained, Ends(trained)) < 0.95 * loss(theta, ends)


def test_one_step_of_e_training_follows_the_gradient_and_lowers_the_loss(draw: Draw) -> None:
    theta, x, mask_token = draw.e(1), [1, 4, 0, 2], 4
    trained = formal.e_training([x], theta, 0.01, 1, p_mask=1.0, mask_token=mask_token, rng=draw.rng)

    def loss(theta: ETheta, ends: Ends) -> torch.Tensor:
        log_p = torch_e([mask_token] * 4, theta, ends)
        return -torch.stack([log_p[t, x[t]] for t in range(4)]).sum()

    ends = Ends(theta)
    assert_one_step(theta, trained, ends, loss(theta, ends))
    assert loss(trained, Ends(trained)) < 0.95 * loss(theta, ends)


def test_one_step_of_d_training_follows_the_gradient_and_lowers_the_loss(draw: Draw) -> None:
    theta = draw.d(1)
    trained = formal.d_training([TARGET], theta, eta=0.01, epochs=1)

    def loss(theta: DTheta, ends: Ends) -> torch.Tensor:
        return next_token_loss(torch_d(TARGET, theta, ends), TARGET)

    ends = Ends(theta)
    assert_one_step(theta, trained, ends, loss(theta, ends))
    assert loss(trained, Ends(trained)) < 0.95 * loss(theta, ends)


def assert_same(one: Any, other: Any) -> None:
    for a, b in zip(arrays(one), arrays(other), strict=True):
        np.testing.assert_array_equal(a, b)


def test_epochs_visit_the_data_one_by_one_in_order(draw: Draw) -> None:
    """Without layers, for speed. Each step starts where the last one ended, so the order shows."""
    ed, e, d = draw.ed(0), draw.e(0), draw.d(0)
    data = [TARGET, SOURCE]
    ed_steps, e_steps, d_steps = ed, e, d
    for x in data * 2:
        ed_steps = formal.ed_training([SOURCE], [x], ed_steps, 0.1, 1)
        e_steps = formal.e_training([x], e_steps, 0.1, 1, 1.0, 3, draw.rng)
        d_steps = formal.d_training([x], d_steps, 0.1, 1)
    assert_same(formal.ed_training([SOURCE, SOURCE], data, ed, 0.1, 2), ed_steps)
    assert_same(formal.e_training(data, e, 0.1, 2, 1.0, 3, draw.rng), e_steps)
    assert_same(formal.d_training(data, d, 0.1, 2), d_steps)
    with pytest.raises(ValueError, match="zip"):
        formal.ed_training([SOURCE], data, ed, 0.1, 1)


def test_e_training_counts_only_the_masked_places(draw: Draw) -> None:
    """Without randomness: a place that holds the mask token already is masked, by definition of the set."""
    theta, x = draw.e(0), [1, 4, 0]
    trained = formal.e_training([x], theta, 0.01, 1, p_mask=0.0, mask_token=4, rng=draw.rng)
    ends = Ends(theta)
    (-torch_e(x, theta, ends)[1, 4]).backward()
    np.testing.assert_allclose((theta.W_u - trained.W_u) / 0.01, ends.W_u.grad.numpy(), rtol=1e-4, atol=1e-6)


def test_e_training_without_masks_changes_nothing(draw: Draw) -> None:
    theta = draw.e(1)
    trained = formal.e_training([TARGET], theta, 0.1, 1, p_mask=0.0, mask_token=4, rng=draw.rng)
    assert_same(trained, theta)


def test_e_training_draws_each_mask_anew_with_its_probability(monkeypatch: pytest.MonkeyPatch) -> None:
    draw, drawn = Draw(0), []

    def record(loss: Any, theta: ETheta, masked: list[int], x: list[int]) -> ETheta:
        drawn.append([m == 4 for m in masked])
        assert all(m in (4, v) for m, v in zip(masked, x, strict=True))
        return theta

    monkeypatch.setattr(formal, "gradient", record)
    formal.e_training([TARGET, TARGET], draw.e(0), 0.0, 1000, p_mask=0.3, mask_token=4, rng=draw.rng)
    assert len(drawn) == 2000
    # Each place is masked 0.3 of the time (standard deviation 0.01), two places together 0.09 of it (0.0064).
    places = np.array(drawn)
    np.testing.assert_allclose(places.mean(axis=0), 0.3, atol=0.04)
    np.testing.assert_allclose((places[:, 0] & places[:, 1]).mean(), 0.09, atol=0.025)


# Inference.


def scripted(*answers: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """W_e, W_p and W_u of a model without layers that says answers[t] after position t, whatever it reads."""
    length = len(answers)
    W_u = np.zeros((VOCABULARY, length))
    W_u[answers, range(length)] = 100.0
    return np.zeros((length, VOCABULARY)), np.eye(length), W_u


def ed_scripted(*answers: int) -> EDTheta:
    W_e, W_p, W_u = scripted(*answers)
    return EDTheta(W_e, W_p, (), (), W_u)


def coin(p: list[float]) -> DTheta:
    """A model whose every answer has the distribution p, whatever it reads."""
    blind = NormWeights(np.zeros(2), np.array([1.0, 0.0]))
    W_u = np.stack([np.log(p), np.zeros(len(p))], axis=1)
    return DTheta(np.eye(2, len(p)), np.array([[1.0], [-1.0]]), (), blind, W_u)


@pytest.mark.parametrize("tau", [0.0, 1e-9])
def test_d_inference_without_heat_is_greedy(draw: Draw, tau: float) -> None:
    theta, prompt = draw.d(), [1, 3]
    expected = list(prompt)
    for _ in range(4):
        expected.append(int(np.argmax(formal.d_transformer(expected, theta)[:, -1])))
    assert formal.d_inference(prompt, theta, l_gen=4, tau=tau, rng=draw.rng) == expected[2:]
    assert prompt == [1, 3]
    assert formal.d_inference(prompt, theta, l_gen=0, tau=tau, rng=draw.rng) == []


@pytest.mark.parametrize("tau", [0.5, 1.0, 2.0])
def test_temperature_raises_probabilities_to_its_inverse(draw: Draw, tau: float) -> None:
    p = [0.6, 0.3, 0.1]
    theta = coin(p)
    count = 1000
    drawn = [formal.d_inference([0], theta, l_gen=1, tau=tau, rng=draw.rng)[0] for _ in range(count)]
    power = np.array(p) ** (1 / tau)
    # The first frequency should be 0.78, 0.6 and 0.47 for the three τ, with a standard deviation below 0.016.
    np.testing.assert_allclose(np.bincount(drawn, minlength=3) / count, power / power.sum(), atol=0.05)


def test_the_same_seed_says_the_same(draw: Draw) -> None:
    d, ed = draw.d(), draw.ed()

    def says(seed: int) -> tuple[list[int], list[int]]:
        rng = np.random.default_rng(seed)
        text = formal.d_inference([1], d, l_gen=5, tau=2.0, rng=rng)
        return text, formal.ed_inference(SOURCE, ed, 1, 4, l_max=6, tau=2.0, rng=rng)

    assert says(3) == says(3)
    assert len({tuple(says(seed)[0]) for seed in range(10)}) > 1
    assert len({tuple(says(seed)[1]) for seed in range(10)}) > 1


def test_ed_inference_without_heat_is_greedy(draw: Draw) -> None:
    theta, bos, never = draw.ed(), 1, VOCABULARY  # no token is the end token
    expected = [bos]
    for _ in range(5):
        expected.append(int(np.argmax(formal.ed_transformer(SOURCE, expected, theta)[:, -1])))
    assert formal.ed_inference(SOURCE, theta, bos, never, l_max=6, tau=0.0, rng=draw.rng) == expected


def test_ed_inference_stops_after_the_end_token(draw: Draw) -> None:
    theta = ed_scripted(3, 2, 4, 0, 0)
    assert formal.ed_inference(SOURCE, theta, 1, 4, l_max=5, tau=1.0, rng=draw.rng) == [1, 3, 2, 4]


def test_ed_inference_stops_at_its_bound(draw: Draw) -> None:
    theta = ed_scripted(3, 2, 0, 0, 0)
    for l_max, expected in [(1, [1]), (2, [1, 3]), (4, [1, 3, 2, 0])]:
        assert formal.ed_inference(SOURCE, theta, 1, 4, l_max=l_max, tau=1.0, rng=draw.rng) == expected


def test_ed_inference_begins_even_where_the_first_token_is_also_the_last(draw: Draw) -> None:
    theta = ed_scripted(3, 1, 0, 0)
    assert formal.ed_inference(SOURCE, theta, 1, 1, l_max=4, tau=1.0, rng=draw.rng) == [1, 3, 1]
