"""attend(): softmax of scores, then the weighted sum of values.

Three kernels compute the same function. `explicit` is the definition, with its steps in `explain`; `fused` is torch's
scaled_dot_product_attention (FlashAttention, Dao et al. 2022, and others); `flex` compiles any mask and bias into one
kernel (Dong et al. 2024). `attend` chooses the kernel from the data; the caller never does.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from regard.parts.cache import Memo, memoize
from regard.parts.edit import EditedCall, WeightEdit
from regard.parts.mask import BeamMask, Causal, Coordinate, Padding, Rule, dense_mask, explicit_positions, includes
from regard.parts.position import Relative
from regard.parts.region import is_compiled, region
from regard.parts.score import Score
from regard.parts.short_attention import short_attention, suits_short

Queries = Float[Tensor, "B H T E"]
Keys = Float[Tensor, "B K S E"]
Values = Float[Tensor, "B K S G"]
Mixed = Float[Tensor, "B H T G"]
PairRule = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]

NO_POSITION = Relative()
SHORT = 128  # tokens up to which torch's memory-efficient kernel takes less time than cuDNN's and FlashAttention
LONG = 512  # keys from which Flex is used


class Terms(NamedTuple):
    """How queries and keys are compared and what is hidden. Positions None mean 0, 1, 2, ...

    `pair` is a number for each query, key and head that is added to the score (AlphaFold's pair bias). `blocks` is the
    mask in the form that Flex needs, if it was computed before (`share_blocks`). `edits` replace weights after the
    softmax.
    """

    score: Score
    mask: Rule | None = None
    position: Relative = NO_POSITION
    query_positions: Int[Tensor, "_b T"] | None = None
    key_positions: Int[Tensor, "_b S"] | None = None
    dropout: float = 0.0
    pair: Float[Tensor, "_b H T S"] | None = None
    blocks: BlockMask | None = None
    edits: tuple[WeightEdit, ...] = ()

    @property
    def has_bias(self) -> bool:
        """Whether something is added to the scores."""
        return self.position.has_bias or self.pair is not None

    def positions(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """Return the positions of queries and keys as tensors."""
        queries = explicit_positions(self.query_positions, query.shape[2], query.device)
        return queries, explicit_positions(self.key_positions, key.shape[2], key.device)

    def allowed(self, query: Tensor, key: Tensor) -> Bool[Tensor, "_B 1 _T S"] | None:
        """Return for all pairs whether the query may look at the key; None: always."""
        if self.mask is None:
            return None
        return dense_mask(self.mask, *self.positions(query, key), batch=len(query))[:, None]

    def bias(self, query: Tensor, key: Tensor, first: int = 0) -> Float[Tensor, "_B H T S"] | None:
        """Return what is added to the scores of all pairs; `first` is the number of the first head given."""
        heads = query.shape[1]
        pair = None if self.pair is None else self.pair[:, first : first + heads].to(query.dtype)
        if not self.position.has_bias:
            return pair
        queries, keys = self.positions(query, key)
        head = torch.arange(first, first + heads, device=query.device)[:, None, None]
        bias = self.position.bias(head, queries[:, None, :, None], keys[:, None, None, :]).to(query.dtype)
        return bias if pair is None else bias + pair


def attend(query: Queries, key: Keys, value: Values, terms: Terms, memo: Memo | None = None) -> Mixed:
    """Return Y = softmax(score(Q, K) + bias, masked) V. A query that may look at nothing gets zeros.

    Layers that share positions, mask and bias may share a `memo`, which keeps the mask in the form the kernel needs.
    """
    if terms.edits:
        return _attend_edited(query, key, value, terms, memo)
    if not terms.score.is_dot:
        return explicit(query, key, value, terms)
    if _needs_no_mask(terms, query.shape[2] == key.shape[2]):
        return fused(query, key, value, terms, memo)
    if _suits_flex(query, key, value, terms):
        return flex(query, key, value, terms)
    if terms.score.cap is None:
        return fused(query, key, value, terms, memo)
    return explicit(query, key, value, terms)


def _attend_edited(query: Queries, key: Keys, value: Values, terms: Terms, memo: Memo | None) -> Mixed:
    """Compute the rows that edits change from their weights, and all others as if nothing were edited."""
    plain = terms._replace(edits=())
    before = explain(query, key, plain)
    after = _edit(before.weights, query, key, terms, before.allowed)
    changed = (before.weights != after).any(-1, keepdim=True)
    return torch.where(changed, _mix(after, value, terms.dropout), attend(query, key, value, plain, memo))


def _suits_flex(query: Tensor, key: Tensor, value: Tensor, terms: Terms) -> bool:
    """Return whether to use Flex: compiled, on CUDA, not in decode steps, without dropout, with heads of width >= 16.

    It skips blocks of 128 x 128 pairs that are hidden. Short rows have none, and compiling it takes many seconds. A
    bias for each pair is in memory anyway, so the other kernels need no more.
    """
    compiled = torch.compiler.is_compiling() and query.is_cuda and terms.dropout == 0 and terms.pair is None
    step = query.shape[2] == 1 or includes(terms.mask, BeamMask)
    return compiled and not step and key.shape[2] >= LONG and min(query.shape[3], value.shape[3]) >= 16


def _needs_no_mask(terms: Terms, equally_long: bool) -> bool:
    """Return whether the fused kernel needs no mask of T x S and nothing is added to the scores."""
    mask = terms.mask
    plain = terms.score.cap is None and not terms.has_bias
    return plain and (mask is None or (_is_plainly_causal(terms) and equally_long) or _is_padding(mask))


def _is_plainly_causal(terms: Terms) -> bool:
    """Return whether the mask is exactly causal; with as many keys as queries, the kernel needs no mask for it."""
    natural = terms.query_positions is None and terms.key_positions is None
    return isinstance(terms.mask, Causal) and natural


def _is_padding(mask: Rule) -> bool:
    """Return whether only padding is hidden: a mask of size S, not T x S."""
    return all(isinstance(rule, Padding) for rule in mask.rules())


class Explanation(NamedTuple):
    """The steps to the attention weights: scores, bias, mask, and the softmax of these."""

    scores: Float[Tensor, "B H T S"]  # scaled and capped
    bias: Float[Tensor, "_B H T S"] | None
    allowed: Bool[Tensor, "_B 1 _T S"] | None
    weights: Float[Tensor, "B H T S"]


def explain(query: Queries, key: Keys, terms: Terms, first: int = 0) -> Explanation:
    """Compute A = softmax(score(Q, K) + bias, masked) step by step; `first` is the number of the first head given."""
    key = key.repeat_interleave(query.shape[1] // key.shape[1], 1)
    scores = total = terms.score(query, key)
    bias, allowed = terms.bias(query, key, first), terms.allowed(query, key)
    if bias is not None:
        total = total + bias
    if allowed is not None:
        total = total.masked_fill(~allowed, torch.finfo(scores.dtype).min)
    precise = torch.float64 if scores.dtype == torch.float64 else torch.float32
    weights = total.softmax(-1, dtype=precise).to(query.dtype)
    if allowed is not None:  # in fully masked rows, the softmax of equal scores is not zero
        weights = weights.masked_fill(~allowed, 0)
    if terms.edits:
        weights = _edit(weights, query, key, terms, allowed, first)
    return Explanation(scores, bias, allowed, weights)


def _edit(
    weights: Float[Tensor, "B H T S"],
    query: Queries,
    key: Keys,
    terms: Terms,
    allowed: Bool[Tensor, "_B 1 _T S"] | None,
    first: int = 0,
) -> Float[Tensor, "B H T S"]:
    """Return the weights after all edits."""
    call = EditedCall(*terms.positions(query, key), allowed, first)
    for edit in terms.edits:
        weights = edit.apply(weights, call)
    return weights


def explicit(query: Queries, key: Keys, value: Values, terms: Terms) -> Mixed:
    """Compute attention as it is defined, with all weights in memory."""
    return _mix(explain(query, key, terms).weights, value, terms.dropout)


def _mix(weights: Float[Tensor, "B H T S"], value: Values, dropout: float) -> Mixed:
    """Return the sum of values by their weights."""
    value = value.repeat_interleave(weights.shape[1] // value.shape[1], 1)
    return F.dropout(weights.to(value.dtype), dropout, training=dropout > 0) @ value


def fused(query: Queries, key: Keys, value: Values, terms: Terms, memo: Memo | None = None) -> Mixed:
    """Compute with torch's fused kernel; the weights are never in memory."""
    causal = _is_plainly_causal(terms) and query.shape[2] == key.shape[2] and not terms.has_bias
    if not terms.has_bias and suits_short(query, key, value, terms.dropout):
        hidden = None if causal else _hiding_mask(query, key, terms, memo)
        return short_attention(query, key, value, hidden, causal, terms.score.scale)
    mask, blind = (None, None) if causal else _additive_mask(query, key, terms, memo)
    grouped = query.shape[1] != key.shape[1]
    with _kernels(query, key):
        mixed = F.scaled_dot_product_attention(
            query, key, value, mask, terms.dropout, causal, scale=terms.score.scale, enable_gqa=grouped
        )
    return mixed if blind is None else mixed.masked_fill(blind, 0)


def _hiding_mask(query: Queries, key: Keys, terms: Terms, memo: Memo | None) -> Float[Tensor, "_B 1 _T S"] | None:
    """Return the mask as numbers that are added to the scores, also for queries that may look at nothing."""

    def compute() -> Tensor | None:
        allowed = terms.allowed(query, key)
        return None if allowed is None else query.new_zeros(allowed.shape).masked_fill(~allowed, -torch.inf)

    found: Tensor | None = memoize(memo, ("hiding", terms.mask), compute)
    return found


def _kernels(query: Tensor, key: Tensor) -> AbstractContextManager[None]:
    """Prefer the kernel that is fastest for short rows on CUDA; otherwise torch chooses."""
    short = 1 < query.shape[2] <= SHORT and key.shape[2] <= SHORT and query.shape[1] == key.shape[1]
    if not (short and query.is_cuda):
        return nullcontext()
    return sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.MATH], set_priority=True)


def _additive_mask(
    query: Queries, key: Keys, terms: Terms, memo: Memo | None
) -> tuple[Float[Tensor, "_B _H _T S"] | None, Bool[Tensor, "_B 1 T 1"] | None]:
    """Return mask and bias as one tensor that the kernel adds to the scores, and which queries may look at nothing."""
    if terms.mask is None and not terms.has_bias:
        return None, None

    def compute() -> tuple[Tensor | None, Tensor | None]:
        mask, bias, blind = terms.allowed(query, key), terms.bias(query, key), None
        if mask is not None and mask.shape[2] > 1:
            # Kernels disagree on fully masked rows: unmask them here, and set their results to zero afterwards.
            blind = ~mask.any(-1, keepdim=True)
            mask = mask | blind
        if mask is not None:  # the kernels would convert a boolean mask to numbers in every layer
            bias = query.new_zeros(mask.shape) if bias is None else bias
            bias = bias.masked_fill(~mask, -torch.inf)
        return bias, blind

    memo_key = (terms.mask, terms.position if terms.position.has_bias else None)
    shared = memo if terms.pair is None else None  # the bias of pairs belongs to one layer
    found: tuple[Tensor | None, Tensor | None] = memoize(shared, memo_key, compute)
    return found


def flex(query: Queries, key: Keys, value: Values, terms: Terms) -> Mixed:
    """Compute with a kernel compiled for this mask and bias, which skips fully masked blocks."""
    B, T, S = len(query), query.shape[2], key.shape[2]
    queries, keys = (each.expand(B, -1) for each in terms.positions(query, key))
    blocks = terms.blocks
    if blocks is None and terms.mask is not None:
        blocks = create_block_mask(_pair_rule(terms.mask, queries, keys), B, None, T, S, device=query.device)

    def modify_score(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        score = terms.score.soften(score)
        if terms.position.has_bias:
            score = score + terms.position.bias(h, queries[b, i], keys[b, j])
        return score

    grouped = query.shape[1] != key.shape[1]
    mixed = flex_attention(query, key, value, modify_score, blocks, terms.score.scale, enable_gqa=grouped)
    assert isinstance(mixed, Tensor)
    return mixed


def share_blocks(x: Float[Tensor, "B T D"], terms: Terms) -> BlockMask | None:
    """Return the mask of a self-attention on x in the form that Flex needs; None if it will not be used.

    Layers that have the mask in common compute it once: at 64k tokens it takes longer than the attention itself.
    """
    B, T, _ = x.shape
    used = is_compiled() and x.is_cuda and terms.dropout == 0 and terms.score.is_dot and T >= LONG
    if not used or terms.mask is None or _needs_no_mask(terms, equally_long=True):
        return None
    positions = explicit_positions(terms.query_positions, T, x.device).expand(B, T)
    return _make_blocks(_pair_rule(terms.mask, positions, positions), B, None, T, T, device=x.device)


_make_blocks = region(create_block_mask)


def _pair_rule(rule: Rule, queries: Int[Tensor, "B T"], keys: Int[Tensor, "B S"]) -> PairRule:
    """Return a rule as a function of the row, the head, and the indices of query and key."""

    def may_look(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return rule.allows(b, Coordinate(i, queries[b, i]), Coordinate(j, keys[b, j]))

    return may_look
