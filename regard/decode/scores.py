"""Operations on the scores of a whole vocabulary: total, best, top k, forbidden tokens.

With many rows and a large vocabulary, these are the main cost of a search.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

BLOCK = 128  # neighbouring tokens; at first only the best of each block is compared
AT_ONCE = 8  # rows whose scores fit into the cache of a CPU while they are summed


def precise(logits: Tensor) -> Tensor:
    """Return logits in at least float32: sums over a vocabulary need that."""
    return logits if logits.dtype == torch.float64 else logits.float()


def log_total(logits: Float[Tensor, "B V"]) -> Float[Tensor, "B 1"]:
    """Return log sum_v exp(logits_v). On a CPU, `log_softmax` takes less time than `logsumexp`."""
    if not logits.is_cpu:
        return precise(logits).logsumexp(-1, keepdim=True)
    totals = [_log_total(precise(part)) for part in logits.split(AT_ONCE)]
    return totals[0] if len(totals) == 1 else torch.cat(totals)


def _log_total(logits: Float[Tensor, "B V"]) -> Float[Tensor, "B 1"]:
    """Return log sum_v exp(logits_v) = max_v logits_v - max_v log softmax(logits)_v."""
    return logits.amax(-1, keepdim=True) - logits.log_softmax(-1).amax(-1, keepdim=True)


def forbid(logits: Float[Tensor, "B V"], never: Int[Tensor, "_f"]) -> None:
    """Set the scores of some tokens to -inf, in place."""
    if len(never):
        logits.index_fill_(-1, never, -torch.inf)


def likeliest(scores: Tensor) -> tuple[Tensor, Tensor]:
    """Return the best score of each row and its token; of equals, the first."""
    rows, size = scores.shape
    blocks = size // BLOCK
    if blocks < 2 or not scores.is_cpu:
        return scores.max(-1, keepdim=True)
    end = blocks * BLOCK
    whole = scores[:, :end].unflatten(1, (blocks, BLOCK))
    chosen = whole.amax(-1).argmax(-1)
    candidates = torch.cat((whole[torch.arange(rows), chosen], scores[:, end:]), 1)
    value, place = candidates.max(-1, keepdim=True)
    return value, place + torch.where(place < BLOCK, chosen[:, None] * BLOCK, end - BLOCK)


def top_scores(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the best scores of each row and their tokens, in descending order; fewer if the vocabulary is smaller.

    The best `count` are in the `count` blocks with the best maxima, and maxima are much faster than a sort.
    """
    rows, size = scores.shape
    blocks = size // BLOCK
    if blocks <= 2 * count:
        return scores.topk(min(count, size))
    end = blocks * BLOCK  # the rest, less than a block, is always compared
    whole = scores[:, :end].unflatten(1, (blocks, BLOCK))
    chosen = whole.amax(-1).topk(count).indices[..., None]
    candidates = torch.cat((whole.gather(1, chosen.expand(-1, -1, BLOCK)).flatten(1), scores[:, end:]), 1)
    inside, tail = torch.arange(BLOCK, device=scores.device), torch.arange(end, size, device=scores.device)
    tokens = torch.cat(((chosen * BLOCK + inside).flatten(1), tail.expand(rows, -1)), 1)
    values, places = candidates.topk(count)
    return values, tokens.gather(1, places)
