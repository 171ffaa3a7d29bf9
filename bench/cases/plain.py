"""The peers in plain PyTorch, and loops around them."""

import threading
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Run = Callable[[], object]


class PlainGPT(nn.Module):
    """GPT-2 in plain PyTorch: one product for queries, keys and values, SDPA, one GELU; no dropout."""

    def __init__(self, vocabulary: int, layers: int, dim: int, heads: int, length: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, dim), nn.Embedding(length, dim)
        self.blocks = nn.Sequential(*(PlainBlock(dim, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(dim)
        for weight in self.parameters():
            if weight.ndim == 2:
                nn.init.normal_(weight, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits."""
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        return F.linear(self.norm(self.blocks(x)), self.tokens.weight)


class PlainBlock(nn.Module):
    """A layer of `PlainGPT`."""

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


class PlainTranslator(nn.Module):
    """torch's nn.Transformer with one embedding for both sides and the output."""

    def __init__(self, vocabulary: int, layers: int, dim: int, heads: int, hidden: int, length: int = 512) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, dim), nn.Embedding(length, dim)
        nn.init.normal_(self.tokens.weight, std=dim**-0.5)
        self.places.requires_grad_(requires_grad=False)  # a table of sines, for our purposes
        self.body = nn.Transformer(dim, heads, layers, layers, hidden, dropout=0.1, batch_first=True, bias=True)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Return logits; id 0 is padding."""
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1], device=source.device, dtype=torch.bool)
        padding = {"src_key_padding_mask": source == 0, "tgt_key_padding_mask": target == 0}
        hidden = self.body(
            self.embed(source),
            self.embed(target),
            tgt_mask=mask,
            tgt_is_causal=True,
            memory_key_padding_mask=source == 0,
            **padding,
        )
        return F.linear(hidden, self.tokens.weight)

    def embed(self, tokens: Tensor) -> Tensor:
        """Return the vectors of tokens."""
        scale = self.tokens.embedding_dim**0.5
        return self.tokens(tokens) * scale + self.places(torch.arange(tokens.shape[1], device=tokens.device))


def weights_of(model: nn.Module) -> int:
    """Count the trained numbers."""
    return sum(weight.numel() for weight in model.parameters() if weight.requires_grad)


def training_loop(
    model: nn.Module, loss_of: Callable[..., Tensor], batches: Iterable[tuple[Tensor, ...]], device: str, updates: int
) -> Run:
    """Return a function that runs updates of a plain script: bf16 on CUDA, AdamW, clipping."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    supply = iter(batches)

    def run() -> None:
        for _ in range(updates):
            batch = next(supply)
            with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
                loss = loss_of(*batch)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    return run


def trainer_loop(
    model: Any, data: Any, rows: int, updates: int, folder: Any, collate: Callable[[list[Any]], Any] | None = None
) -> Run:
    """Return a function that runs updates of Hugging Face's Trainer.

    The Trainer runs in a thread that stops after every `updates` steps, so its preparation is not part of the time.
    """
    from transformers import Trainer, TrainerCallback, TrainingArguments

    go, done = threading.Semaphore(0), threading.Semaphore(0)
    failure: list[BaseException] = []

    class Turns(TrainerCallback):  # type: ignore[misc]
        def on_train_begin(self, *given: Any, **named: Any) -> None:
            go.acquire()

        def on_step_end(self, arguments: Any, state: Any, control: Any, **named: Any) -> None:
            if state.global_step % updates == 0:
                done.release()
                go.acquire()

    arguments = TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=rows,
        max_steps=10**6,
        learning_rate=1e-4,
        logging_steps=10,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        remove_unused_columns=False,
    )
    trainer = Trainer(model=model, args=arguments, train_dataset=data, data_collator=collate, callbacks=[Turns()])

    def train() -> None:
        try:
            trainer.train()
        except BaseException as error:
            failure.append(error)
            done.release()

    threading.Thread(target=train, daemon=True).start()

    def run() -> None:
        go.release()
        done.acquire()
        if failure:
            raise failure[0]

    return run
