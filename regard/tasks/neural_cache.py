"""Neural cache (Grave, Joulin, Usunier 2017): what followed a similar place of the text is likely to follow again.

The vector h_i below the head is kept for each of the last `size` tokens, with the token x_i+1 that came next. With the
cosine c_ti of h_t and h_i, the next token is predicted by the model and, once more for each sharpness s_k, by these:

    p(w) = m_0 p_model(w) + sum_k m_k p_k(w),    p_k(w) = sum_i [x_i+1 = w] exp(s_k c_ti) / sum_i exp(s_k c_ti)

The paper chooses one sharpness and one share on validation data. Here the shares m are those that would have suited the
text read so far: their online estimate by expectation-maximisation. So nothing has to be chosen, and a text is still
predicted from what comes before. No weight of the model changes.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from regard.parts.precision import at_least_float32, without_autocast

SHARPNESS = (5.0, 10.0, 20.0, 40.0)
BEGIN = (84.0, 4.0, 4.0, 4.0, 4.0)  # tokens that the model and each sharpness are given credit for before the first one
PIECE = 128  # tokens after which the shares are estimated again


class NeuralCache:
    """The last `size` tokens of some texts that are read side by side, and the shares of each text."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._read = 0  # tokens of each text so far
        self._kept: tuple[Tensor, Tensor] | None = None  # unit vectors (B, n, D), and the tokens that followed (B, n)
        self._credit: Float[Tensor, "B K"] | None = None
        self._more: Tensor | float = 0.0  # credit since the shares were estimated

    def losses(
        self, vectors: Float[Tensor, "B T D"], log_p: Float[Tensor, "B T"], labels: Int[Tensor, "B T"]
    ) -> Float[Tensor, "2"]:
        """Sum -log p of the next T tokens, by the model alone, which says `log_p`, and with the cache; keep them."""
        log_p, cached = log_p.double(), torch.zeros((), dtype=torch.float64, device=vectors.device)
        with without_autocast(vectors):
            units = F.normalize(at_least_float32(vectors), dim=-1)
            begin = 0
            while begin < labels.shape[1]:
                end = begin + PIECE - self._read % PIECE
                cached -= self._predict(units[:, begin:end], log_p[:, begin:end], labels[:, begin:end]).log().sum()
                begin = end
        return torch.stack((-log_p.sum(), cached))

    def _predict(
        self, units: Float[Tensor, "B T D"], log_p: Float[Tensor, "B T"], labels: Int[Tensor, "B T"]
    ) -> Float[Tensor, "B T"]:
        """Return p of the labels; keep the tokens, and give credit to what predicted them well."""
        old = self._kept or (units[:, :0], labels[:, :0])
        keys, followers = (torch.cat(pair, 1) for pair in zip(old, (units, labels), strict=True))
        place = torch.arange(keys.shape[1], device=keys.device)
        query = place[-units.shape[1] :, None]
        seen = (place < query) & (place >= query - self.size)
        cosines = (units @ keys.mT).masked_fill(~seen, -torch.inf)
        right = (followers[:, None] == labels[..., None]).to(cosines.dtype)
        own = log_p.exp()
        cached = [((s * cosines).softmax(-1) * right).sum(-1).double() for s in SHARPNESS]
        # The first token of a text has nothing before it: the model predicts it alone.
        p = torch.stack([own, *(torch.where(seen.any(-1), each, own) for each in cached)], -1)
        credit = p.new_tensor(BEGIN).repeat(len(p), 1) if self._credit is None else self._credit
        weighted = p * (credit / credit.sum(-1, keepdim=True))[:, None]
        found = weighted.sum(-1)
        self._more = self._more + (weighted / found[..., None]).sum(1)
        self._read += units.shape[1]
        if self._read % PIECE == 0:  # so that the result does not depend on the windows in which a text is read
            credit, self._more = credit + self._more, 0.0
        self._credit, self._kept = credit, (keys[:, -self.size :], followers[:, -self.size :])
        return found
