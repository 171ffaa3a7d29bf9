"""Training steps of GPT-2 124M, compiled, in bf16: what the parts cost in a whole model.

`python -m bench.train_step` (CUDA only). The reference is the same arithmetic in plain PyTorch: one product for
queries, keys and values, SDPA, one GELU; no parts.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import regard
from bench.timing import Row, milliseconds, show

B, T, D, H, LAYERS, V = 32, 1024, 768, 12, 12, 50304


class PlainBlock(nn.Module):
    """A block of GPT-2 in plain PyTorch."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        """Apply attention, then the feed-forward."""
        q, k, v = (part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in self.qkv(self.norm_1(x)).chunk(3, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm_2(x)), approximate="tanh"))


class PlainGPT(nn.Module):
    """GPT-2 in plain PyTorch."""

    def __init__(self, vocabulary: int, layers: int, dim: int, heads: int, length: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, dim), nn.Embedding(length, dim)
        self.blocks = nn.Sequential(*(PlainBlock(dim, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(dim)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits."""
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        return F.linear(self.norm(self.blocks(x)), self.tokens.weight)


def trainer(model: nn.Module):
    """Return a function that runs one update: forward, loss, backward, AdamW."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    tokens = torch.randint(V, (B, T + 1), device="cuda")

    @torch.compile
    def loss_of(inputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())

    def step() -> None:
        with torch.autocast("cuda", torch.bfloat16):
            loss = loss_of(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def rows() -> list[Row]:
    """Time our GPT-2 against the plain one."""
    no_dropout = ("model.embed.dropout", "model.layers.block.dropout", "model.layers.block.mixer.dropout")
    ours = regard.build("gpt2", f"model.vocabulary={V}", *(f"{key}=0.0" for key in no_dropout), device="cuda")
    medians = milliseconds(
        {"ours": trainer(ours), "plain": trainer(PlainGPT(V, LAYERS, D, H, T).cuda())}, "cuda", repeats=15
    )
    for name, value in medians.items():
        print(f"{name}: {B * T / value:.0f}k tokens/s")
    return [Row("train step", "GPT-2 124M compiled", "plain PyTorch compiled", medians["ours"], medians["plain"], 1.0)]


if __name__ == "__main__":
    torch.set_float32_matmul_precision("high")
    show(rows())
