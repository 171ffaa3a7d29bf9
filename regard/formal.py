"""The 15 algorithms of "Formal Algorithms for Transformers" (Phuong & Hutter, arXiv:2207.09238) in NumPy.

One function per algorithm, named and numbered as in the paper, written to be read as the definition. The
rest of the package is tested against it, so nothing here is fast and nothing is batched.

The paper's conventions. Vectors are columns: l_x vectors of width d_x are X in R^{d_x × l_x}, the one at
position t is X[:, t], and matrices multiply from the left. X is the primary sequence (queries), Z the context
(keys and values). Scores are S = Kᵀ Q in R^{l_z × l_x}; softmax runs down each column, that is over t_z; and
Mask[t_z, t_x] is true where position t_x may see position t_z.

Where the code differs from the paper:
- token ids and positions start at 0, not 1;
- a query whose mask hides everything attends to nothing (the zero vector), where the paper has 0/0;
- NumPy has no automatic differentiation, so training takes its gradient by central differences;
- `ed_inference` has a bound on its length, because a model may never produce the end token.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

Vector: TypeAlias = NDArray[np.float64]
Matrix: TypeAlias = NDArray[np.float64]
Visible: TypeAlias = NDArray[np.bool_]
Tokens: TypeAlias = Sequence[int]
Theta = TypeVar("Theta")


# Parameters. The sizes: d_e embedding, d_attn queries and keys, d_mid values of one head, d_mlp hidden layer,
# d_f final projection, H heads, N_V vocabulary, l_max longest sequence.


@dataclass(frozen=True)
class AttentionWeights:
    """One attention head, from a primary sequence of width d_x and a context of width d_z to width d_out."""

    W_q: Matrix  # d_attn × d_x
    b_q: Vector  # d_attn
    W_k: Matrix  # d_attn × d_z
    b_k: Vector  # d_attn
    W_v: Matrix  # d_out × d_z
    b_v: Vector  # d_out


@dataclass(frozen=True)
class MultiHeadWeights:
    """H heads, each of output width d_mid, and the map that joins them."""

    heads: tuple[AttentionWeights, ...]
    W_o: Matrix  # d_out × H d_mid
    b_o: Vector  # d_out


@dataclass(frozen=True)
class NormWeights:
    """The scale and the offset of one layer normalisation."""

    gamma: Vector  # d_e
    beta: Vector  # d_e


@dataclass(frozen=True)
class MLPWeights:
    """Two affine maps with an activation between them."""

    W_1: Matrix  # d_mlp × d_e
    b_1: Vector  # d_mlp
    W_2: Matrix  # d_e × d_mlp
    b_2: Vector  # d_e


@dataclass(frozen=True)
class LayerWeights:
    """Self-attention and an MLP: a layer of an encoder, or of a decoder without context."""

    attention: MultiHeadWeights
    norm_1: NormWeights
    mlp: MLPWeights
    norm_2: NormWeights


@dataclass(frozen=True)
class CrossLayerWeights:
    """A decoder layer with context; its norms are the paper's third to fifth, after the encoder's two."""

    self_attention: MultiHeadWeights
    norm_3: NormWeights
    cross_attention: MultiHeadWeights
    norm_4: NormWeights
    mlp: MLPWeights
    norm_5: NormWeights


@dataclass(frozen=True)
class EDTheta:
    """All parameters of `ed_transformer`; both sides share the embeddings."""

    W_e: Matrix  # d_e × N_V
    W_p: Matrix  # d_e × l_max
    encoder: tuple[LayerWeights, ...]
    decoder: tuple[CrossLayerWeights, ...]
    W_u: Matrix  # N_V × d_e


@dataclass(frozen=True)
class ETheta:
    """All parameters of `e_transformer`."""

    W_e: Matrix  # d_e × N_V
    W_p: Matrix  # d_e × l_max
    layers: tuple[LayerWeights, ...]
    W_f: Matrix  # d_f × d_e
    b_f: Vector  # d_f
    norm: NormWeights  # of width d_f
    W_u: Matrix  # N_V × d_f


@dataclass(frozen=True)
class DTheta:
    """All parameters of `d_transformer`."""

    W_e: Matrix  # d_e × N_V
    W_p: Matrix  # d_e × l_max
    layers: tuple[LayerWeights, ...]
    norm: NormWeights
    W_u: Matrix  # N_V × d_e


# Functions that the paper assumes.


def softmax(S: Matrix) -> Matrix:
    """Normalise each column: exp(S[i, j]) / Σ_k exp(S[k, j]); a column that is -∞ throughout becomes zeros.

    The column's maximum is subtracted first, which cancels in the fraction and keeps exp from overflowing.
    """
    top = np.max(S, axis=0, initial=-np.inf)
    E = np.exp(S - np.where(top == -np.inf, 0.0, top))
    total = np.sum(E, axis=0)
    return E / np.where(total == 0.0, 1.0, total)


def relu(X: Matrix) -> Matrix:
    """Apply max(x, 0) to each entry."""
    return np.maximum(X, 0.0)


def gelu(X: Matrix) -> Matrix:
    """Apply x Φ(x) to each entry, Φ the standard normal distribution function; exact, not by tanh."""
    erf = np.vectorize(math.erf, otypes=[np.float64])
    return X * (1.0 + erf(X / math.sqrt(2.0))) / 2.0


def bidirectional_mask(l_z: int, l_x: int) -> Visible:
    """Return Mask[t_z, t_x] = true: every position sees the whole context."""
    return np.ones((l_z, l_x), dtype=np.bool_)


def unidirectional_mask(l_x: int) -> Visible:
    """Return Mask[t_z, t_x] = (t_z ≤ t_x): every position sees itself and earlier ones."""
    t = np.arange(l_x)
    return t[:, None] <= t[None, :]


# Architectural components.


def token_embedding(v: int, W_e: Matrix) -> Vector:
    """Algorithm 1: Token embedding. The vector of token v is its column: e = W_e[:, v]."""
    return W_e[:, v]


def positional_embedding(t: int, W_p: Matrix) -> Vector:
    """Algorithm 2: Positional embedding. The vector of position t is its column: e_p = W_p[:, t]."""
    return W_p[:, t]


def single_query_attention(e: Vector, Z: Matrix, weights: AttentionWeights) -> Vector:
    """Algorithm 3: Basic single-query attention. One vector e attends to the context vectors e_t, the columns of Z.

    q = W_q e + b_q,  k_t = W_k e_t + b_k,  v_t = W_v e_t + b_v,
    α_t = exp(qᵀ k_t / √d_attn) / Σ_u exp(qᵀ k_u / √d_attn),  and the result is Σ_t α_t v_t.
    """
    q = weights.W_q @ e + weights.b_q
    keys = [weights.W_k @ e_t + weights.b_k for e_t in Z.T]
    values = [weights.W_v @ e_t + weights.b_v for e_t in Z.T]
    alpha = softmax(np.array([q @ k_t for k_t in keys]) / math.sqrt(len(q)))
    return sum((a * v_t for a, v_t in zip(alpha, values, strict=True)), start=np.zeros_like(weights.b_v))


def attention(X: Matrix, Z: Matrix, weights: AttentionWeights, Mask: Visible) -> Matrix:
    """Algorithm 4: Attention. Every column of X attends to the columns of Z that Mask lets it see.

    Q = W_q X + b_q 1ᵀ,  K = W_k Z + b_k 1ᵀ,  V = W_v Z + b_v 1ᵀ,
    S = Kᵀ Q, but -∞ where Mask is false,  and the result is V softmax(S / √d_attn) in R^{d_out × l_x}.
    """
    Q = weights.W_q @ X + weights.b_q[:, None]
    K = weights.W_k @ Z + weights.b_k[:, None]
    V = weights.W_v @ Z + weights.b_v[:, None]
    S = np.where(Mask, K.T @ Q, -np.inf)
    return V @ softmax(S / math.sqrt(len(Q)))


def mh_attention(X: Matrix, Z: Matrix, weights: MultiHeadWeights, Mask: Visible) -> Matrix:
    """Algorithm 5: MHAttention. The heads side by side, joined by an affine map.

    Y_h = Attention(X, Z | head h, Mask),  Y = [Y_1; …; Y_H] one below the other,  result W_o Y + b_o 1ᵀ.
    """
    Y = np.concatenate([attention(X, Z, head, Mask) for head in weights.heads], axis=0)
    return weights.W_o @ Y + weights.b_o[:, None]


def layer_norm(e: Vector, norm: NormWeights) -> Vector:
    """Algorithm 6: layer_norm. Centre a vector, scale it to unit variance, then apply γ and β entry by entry.

    m = Σ_i e[i] / d,  v = Σ_i (e[i] - m)² / d,  ê = (e - m) / √v ⊙ γ + β. There is no ε under the root: a
    vector whose entries are all equal gives NaN.
    """
    m = np.sum(e) / len(e)
    v = np.sum((e - m) ** 2) / len(e)
    return (e - m) / np.sqrt(v) * norm.gamma + norm.beta


def unembedding(e: Vector, W_u: Matrix) -> Vector:
    """Algorithm 7: Unembedding. A distribution over the vocabulary: p = softmax(W_u e)."""
    return softmax(W_u @ e)


# Architectures. Algorithms 1, 2, 6 and 7 concern one position; these apply them to each.


def _embed(x: Tokens, W_e: Matrix, W_p: Matrix) -> Matrix:
    """Return X[:, t] = W_e[:, x[t]] + W_p[:, t]."""
    return np.stack([token_embedding(v, W_e) + positional_embedding(t, W_p) for t, v in enumerate(x)], axis=1)


def _layer_norms(X: Matrix, norm: NormWeights) -> Matrix:
    """Apply `layer_norm` to each column."""
    return np.stack([layer_norm(e, norm) for e in X.T], axis=1)


def _unembeddings(X: Matrix, W_u: Matrix) -> Matrix:
    """Apply `unembedding` to each column."""
    return np.stack([unembedding(e, W_u) for e in X.T], axis=1)


def _mlp(X: Matrix, weights: MLPWeights, activation: Callable[[Matrix], Matrix]) -> Matrix:
    """Return W_2 activation(W_1 X + b_1 1ᵀ) + b_2 1ᵀ."""
    return weights.W_2 @ activation(weights.W_1 @ X + weights.b_1[:, None]) + weights.b_2[:, None]


def ed_transformer(z: Tokens, x: Tokens, theta: EDTheta) -> Matrix:
    """Algorithm 8: EDTransformer. The encoder-decoder: P[:, t] predicts x[t + 1] from x[0 … t] and all of z.

    Every sublayer f is followed by its norm, X ← layer_norm(X + f(X)), and the MLPs use ReLU.
    Encoder layer: bidirectional self-attention on Z, MLP.
    Decoder layer: unidirectional self-attention on X, bidirectional attention from X to the final Z, MLP.
    P[:, t] = softmax(W_u X[:, t]) in R^{N_V × l_x}.
    """
    Z = _embed(z, theta.W_e, theta.W_p)
    everything = bidirectional_mask(len(z), len(z))
    for layer in theta.encoder:
        Z = _layer_norms(Z + mh_attention(Z, Z, layer.attention, everything), layer.norm_1)
        Z = _layer_norms(Z + _mlp(Z, layer.mlp, relu), layer.norm_2)

    X = _embed(x, theta.W_e, theta.W_p)
    past = unidirectional_mask(len(x))
    source = bidirectional_mask(len(z), len(x))
    for cross in theta.decoder:
        X = _layer_norms(X + mh_attention(X, X, cross.self_attention, past), cross.norm_3)
        X = _layer_norms(X + mh_attention(X, Z, cross.cross_attention, source), cross.norm_4)
        X = _layer_norms(X + _mlp(X, cross.mlp, relu), cross.norm_5)
    return _unembeddings(X, theta.W_u)


def e_transformer(x: Tokens, theta: ETheta) -> Matrix:
    """Algorithm 9: ETransformer. The encoder (BERT): P[:, t] predicts the token at t from all of x.

    Every sublayer f is followed by its norm, X ← layer_norm(X + f(X)): bidirectional self-attention, then an
    MLP with GELU. After the layers X ← layer_norm(GELU(W_f X + b_f 1ᵀ)) and P[:, t] = softmax(W_u X[:, t]).
    """
    X = _embed(x, theta.W_e, theta.W_p)
    everything = bidirectional_mask(len(x), len(x))
    for layer in theta.layers:
        X = _layer_norms(X + mh_attention(X, X, layer.attention, everything), layer.norm_1)
        X = _layer_norms(X + _mlp(X, layer.mlp, gelu), layer.norm_2)
    X = _layer_norms(gelu(theta.W_f @ X + theta.b_f[:, None]), theta.norm)
    return _unembeddings(X, theta.W_u)


def d_transformer(x: Tokens, theta: DTheta) -> Matrix:
    """Algorithm 10: DTransformer. The decoder (GPT): P[:, t] predicts x[t + 1] from x[0 … t].

    Every sublayer f is preceded by its norm, X ← X + f(layer_norm(X)): unidirectional self-attention, then an
    MLP with GELU. After the layers X ← layer_norm(X) and P[:, t] = softmax(W_u X[:, t]).
    """
    X = _embed(x, theta.W_e, theta.W_p)
    past = unidirectional_mask(len(x))
    for layer in theta.layers:
        normed = _layer_norms(X, layer.norm_1)
        X = X + mh_attention(normed, normed, layer.attention, past)
        X = X + _mlp(_layer_norms(X, layer.norm_2), layer.mlp, gelu)
    return _unembeddings(_layer_norms(X, theta.norm), theta.W_u)


# Training.


def _map_arrays(function: Callable[..., NDArray[np.float64]], *thetas: Any) -> Any:
    """Apply function to the arrays at the same place of each theta; return a theta of the results."""
    first = thetas[0]
    if isinstance(first, np.ndarray):
        return function(*thetas)
    if isinstance(first, tuple):
        return tuple(_map_arrays(function, *parts) for parts in zip(*thetas, strict=True))
    return type(first)(*(_map_arrays(function, *(getattr(t, f.name) for t in thetas)) for f in fields(first)))


def gradient(loss: Callable[..., float], theta: Theta, *inputs: Any) -> Theta:
    """Return ∇ loss(theta, *inputs) with respect to theta: arrays nested in dataclasses and tuples, as theta is.

    By central differences: each entry w of each array on its own gives (loss(w + h) - loss(w - h)) / 2h. This
    is exact up to O(h²) and rounding, and takes two evaluations of the loss per entry. An array that occurs
    twice in theta counts as two parameters.
    """
    h = 1e-5  # near the cube root of the float64 precision, where truncation and rounding errors balance
    # The differences are taken in place, on a float copy: the caller's arrays are never touched.
    point: Theta = _map_arrays(lambda a: np.array(a, dtype=np.float64), theta)

    def partials(a: NDArray[np.float64]) -> NDArray[np.float64]:
        result = np.zeros_like(a)
        for i in np.ndindex(a.shape):
            w = a[i]
            a[i] = w + h
            above = loss(point, *inputs)
            a[i] = w - h
            below = loss(point, *inputs)
            a[i] = w
            result[i] = (above - below) / (2 * h)
        return result

    slope: Theta = _map_arrays(partials, point)
    return slope


def _step(theta: Theta, eta: float, slope: Theta) -> Theta:
    """Return theta - eta · slope."""
    stepped: Theta = _map_arrays(lambda w, g: w - eta * g, theta, slope)
    return stepped


def _next_token_loss(P: Matrix, x: Tokens) -> float:
    """Return -Σ_t log P[x[t + 1], t] over every position of x but the last, which has no successor."""
    return -float(sum(np.log(P[x[t + 1], t]) for t in range(len(x) - 1)))


def ed_training(z_data: Sequence[Tokens], x_data: Sequence[Tokens], theta: EDTheta, eta: float, epochs: int) -> EDTheta:
    """Algorithm 11: EDTraining. Learn to continue x given z, pair by pair, by gradient descent.

    loss(θ) = -Σ_t log EDTransformer(z, x | θ)[x[t + 1], t],  θ ← θ - η ∇loss(θ). Returns the trained θ.
    """

    def loss(theta: EDTheta, z: Tokens, x: Tokens) -> float:
        return _next_token_loss(ed_transformer(z, x, theta), x)

    for _ in range(epochs):
        for z, x in zip(z_data, x_data, strict=True):
            theta = _step(theta, eta, gradient(loss, theta, z, x))
    return theta


def e_training(
    data: Sequence[Tokens],
    theta: ETheta,
    eta: float,
    epochs: int,
    p_mask: float,
    mask_token: int,
    rng: np.random.Generator,
) -> ETheta:
    """Algorithm 12: ETraining. Learn to fill in masked tokens, sequence by sequence, by gradient descent.

    x̃[t] is mask_token with probability p_mask and x[t] otherwise, drawn again at each visit; the masked places
    are T = {t : x̃[t] = mask_token}. loss(θ) = -Σ_{t in T} log ETransformer(x̃ | θ)[x[t], t],
    θ ← θ - η ∇loss(θ). Returns the trained θ.
    """

    def loss(theta: ETheta, masked: Tokens, x: Tokens) -> float:
        P = e_transformer(masked, theta)
        return -float(sum(np.log(P[x[t], t]) for t in range(len(x)) if masked[t] == mask_token))

    for _ in range(epochs):
        for x in data:
            masked = [mask_token if rng.random() < p_mask else v for v in x]
            theta = _step(theta, eta, gradient(loss, theta, masked, x))
    return theta


def d_training(data: Sequence[Tokens], theta: DTheta, eta: float, epochs: int) -> DTheta:
    """Algorithm 13: DTraining. Learn to continue x, sequence by sequence, by gradient descent.

    loss(θ) = -Σ_t log DTransformer(x | θ)[x[t + 1], t],  θ ← θ - η ∇loss(θ). Returns the trained θ.
    """

    def loss(theta: DTheta, x: Tokens) -> float:
        return _next_token_loss(d_transformer(x, theta), x)

    for _ in range(epochs):
        for x in data:
            theta = _step(theta, eta, gradient(loss, theta, x))
    return theta


# Inference.


def _sample(p: Vector, tau: float, rng: np.random.Generator) -> int:
    """Draw from q ∝ p^{1/τ}. τ = 0 is the limit, the most probable token.

    Dividing by the largest entry cancels in q and keeps the power from underflowing to zero everywhere.
    """
    q = (p / np.max(p)) ** (np.inf if tau == 0.0 else 1.0 / tau)
    return int(rng.choice(len(q), p=q / np.sum(q)))


def d_inference(x: Tokens, theta: DTheta, l_gen: int, tau: float, rng: np.random.Generator) -> list[int]:
    """Algorithm 14: DInference. Continue the prompt x by l_gen tokens; return only these.

    l_gen times: p = DTransformer(x | θ)[:, last], draw y from q ∝ p^{1/τ}, append y to x. The prompt has at
    least one token. τ = 0 is the limit τ → 0: the most probable token.
    """
    text = list(x)
    for _ in range(l_gen):
        p = d_transformer(text, theta)[:, -1]
        text.append(_sample(p, tau, rng))
    return text[len(x) :]


def ed_inference(
    z: Tokens,
    theta: EDTheta,
    bos_token: int,
    eos_token: int,
    l_max: int,
    tau: float,
    rng: np.random.Generator,
) -> list[int]:
    """Algorithm 15: EDInference. Write x for z, token by token; return x from bos_token to eos_token inclusive.

    x = [bos_token]; until y = eos_token: p = EDTransformer(z, x | θ)[:, last], draw y from q ∝ p^{1/τ},
    append y to x. τ = 0 is the limit τ → 0: the most probable token. The paper's loop may never end,
    and W_p has a limited number of columns: this one also stops, without eos_token, once x has l_max tokens,
    bos_token included.
    """
    x = [bos_token]
    y = None  # not bos_token: it may equal eos_token, and the loop must still begin
    while y != eos_token and len(x) < l_max:
        p = ed_transformer(z, x, theta)[:, -1]
        y = _sample(p, tau, rng)
        x.append(y)
    return x
