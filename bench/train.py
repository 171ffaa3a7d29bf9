"""Training as a user runs it, against plain PyTorch and Hugging Face's Trainer; and what the loop itself costs.

`python -m bench.train` on the CPU: a character model of nanoGPT's CPU size (4 layers, 128 wide, 12 rows of 64 tokens),
the same arithmetic on all sides; a round of updates each, in turns. On CUDA: the share of the loop (data, schedule,
clipping, logging) in an update of GPT-2 124M, compiled, bf16, 32 rows of 1024 tokens.
"""

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from rich.console import Console
from torch import Tensor, nn

from bench.timing import Row, milliseconds, show
from regard.models.recipe import load_recipe
from regard.training.log import Log
from regard.training.loop import Trainer
from regard.training.planning import RunPlan, plan_run
from regard.training.progress import Progress
from regard.training.ranks import Ranks
from regard.training.request import RunRequest
from regard.training.run import Run, write_config
from regard.training.trial import build_model
from regard.training.window import LogWindow

LAYERS, D, H, T, B = 4, 128, 4, 64, 12
ROUND, LONG_ROUND = 10, 100  # updates; Hugging Face's Trainer is set up again for each round, so its rounds are longer
NO_DROPOUT = ("model.embed.dropout=0.0", "model.layers.block.dropout=0.0", "model.layers.block.mixer.dropout=0.0")


def text(size: int) -> str:
    """Return random letters, blanks and lines, with as many different characters as tinyshakespeare."""
    letters = np.array(list("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz .,;:!?'-&3$\n"))
    return "".join(letters[np.random.default_rng(0).integers(len(letters), size=size)])


def planned(folder: Path, device: str, *changes: str) -> tuple[RunPlan, Ranks]:
    """Plan a run of GPT-2 in some size on that text."""
    corpus = folder / "text.txt"
    if not corpus.exists():
        corpus.write_text(text(1_000_000), encoding="utf-8")
    ranks = Ranks(0, 1, torch.device(device))
    task = {"kind": "language", "train": [str(corpus)]}
    fixed = ("train.optimizer.kind=adamw", "train.optimizer.rate=0.001", "train.validate_every=100000")
    request = RunRequest(task, (*NO_DROPOUT, *fixed, *changes), recipe="gpt2")
    return plan_run(request, ranks), ranks


def trainer(found: RunPlan, ranks: Ranks, folder: Path) -> Trainer:
    """Build the trainer of a run."""
    found.task.to(ranks.device)
    write_config(folder, found.config)
    progress = Progress(Console(quiet=True), found.config.train.steps, 10)
    return Trainer(Run(folder, found.config), found.task, build_model(found.config, ranks), ranks, progress)


def our_round(ours: Trainer, updates: int):
    """Return a function that runs a round of updates of our Trainer, with its logs and progress."""
    draws, log = ours.draws(), Log(ours.run.folder)

    def run() -> None:
        window = LogWindow()
        for _ in range(updates):
            window.add(ours.advance(draws))
            if ours.step % ours.config.log_every == 0:
                ours.show(log, window)
                window = LogWindow()

    return run


class Plain(nn.Module):
    """The same GPT in plain PyTorch."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, D), nn.Embedding(T, D)
        self.norms = nn.ModuleList(nn.LayerNorm(D) for _ in range(2 * LAYERS + 1))
        self.qkv = nn.ModuleList(nn.Linear(D, 3 * D) for _ in range(LAYERS))
        self.out = nn.ModuleList(nn.Linear(D, D) for _ in range(LAYERS))
        self.up = nn.ModuleList(nn.Linear(D, 4 * D) for _ in range(LAYERS))
        self.down = nn.ModuleList(nn.Linear(4 * D, D) for _ in range(LAYERS))

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits."""
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1]))
        for layer in range(LAYERS):
            parts = self.qkv[layer](self.norms[2 * layer](x)).split(D, 2)
            q, k, v = (part.unflatten(2, (H, D // H)).transpose(1, 2) for part in parts)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out[layer](y.transpose(1, 2).flatten(2))
            hidden = self.up[layer](self.norms[2 * layer + 1](x))
            x = x + self.down[layer](F.gelu(hidden, approximate="tanh"))
        return F.linear(self.norms[-1](x), self.tokens.weight)


def plain_round(data: Tensor, vocabulary: int, updates: int):
    """Return a function that runs a round of updates of a plain script: random windows, AdamW, clipping."""
    model = Plain(vocabulary)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)

    def run() -> None:
        for _ in range(updates):
            starts = torch.randint(len(data) - T, (B,))
            tokens = torch.stack([data[start : start + T] for start in starts])
            labels = torch.stack([data[start + 1 : start + 1 + T] for start in starts])
            loss = F.cross_entropy(model(tokens).flatten(0, 1), labels.flatten())
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()

    return run


def hugging_face_round(data: Tensor, vocabulary: int, folder: Path):
    """Return a function that runs a round of updates of transformers' Trainer on its own GPT-2."""
    from transformers import GPT2Config, GPT2LMHeadModel, TrainingArguments
    from transformers import Trainer as TheirTrainer

    sizes = {"n_positions": T, "n_embd": D, "n_layer": LAYERS, "n_head": H, "vocab_size": vocabulary}
    dropouts = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    model = GPT2LMHeadModel(GPT2Config(**sizes, **dropouts, use_cache=False))

    class Windows(torch.utils.data.Dataset):  # type: ignore[type-arg]
        def __len__(self) -> int:
            return len(data) // T - 1

        def __getitem__(self, index: int) -> dict[str, Tensor]:
            window = data[index * T : (index + 1) * T]
            return {"input_ids": window, "labels": window}

    arguments = TrainingArguments(
        output_dir=str(folder / "theirs"),
        per_device_train_batch_size=B,
        max_steps=LONG_ROUND,
        learning_rate=1e-3,
        logging_steps=10,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
    )
    return TheirTrainer(model=model, args=arguments, train_dataset=Windows()).train


def cpu_rows() -> list[Row]:
    """Compare our Trainer, with its progress and logs, with both."""
    sizes = (f"model.dim={D}", f"model.depth={LAYERS}", f"model.embed.position.length={T}", f"task.window={T}")
    inner = (f"model.layers.block.feedforward.hidden={4 * D}", f"model.layers.block.mixer.heads.heads={H}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        endless = (f"train.tokens={T * B}", "train.steps=100000", "train.checkpoint_every=100000")
        found, ranks = planned(folder, "cpu", *sizes, *inner, *endless)
        ours = trainer(found, ranks, folder / "run")
        vocabulary = found.task.needs()["vocabulary"]
        data = torch.randint(5, vocabulary, (1_000_000,))

        plain = plain_round(data, vocabulary, ROUND)
        short = milliseconds({"ours": our_round(ours, ROUND), "theirs": plain}, "cpu", repeats=25)
        theirs = hugging_face_round(data, vocabulary, folder)
        long = milliseconds({"ours": our_round(ours, LONG_ROUND), "theirs": theirs}, "cpu", repeats=3)
    what = "4L/128 character model, update"
    return [
        Row("train", what, "plain PyTorch", short["ours"] / ROUND, short["theirs"] / ROUND, 1.0),
        Row("train", what, "Hugging Face Trainer", long["ours"] / LONG_ROUND, long["theirs"] / LONG_ROUND, 1 / 1.3),
    ]


def cuda_rows() -> list[Row]:
    """Compare the whole loop with forward, backward and optimizer alone, on the same compiled model and one batch."""
    sizes = ("model.embed.position.length=1024", "task.window=1024", "train.tokens=32768", "train.steps=100000")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found, ranks = planned(folder, "cuda", *sizes, "train.checkpoint_every=100000")
        model = load_recipe("gpt2", *NO_DROPOUT, "model.vocabulary=50304").model  # more than the text has
        found = replace(found, config=replace(found.config, model=model))
        ours = trainer(found, ranks, folder / "run")
        update, optimizer = ours.update, ours.update.optimizer
        draw, epoch, _ = next(ours.draws())
        batch = ours.feed.batch(draw, epoch)
        count = torch.count_nonzero(batch["labels"] >= 0)

        def bare() -> None:
            for _ in range(LONG_ROUND):
                with update.autocast():
                    losses, _ = update.objective(batch)
                    (losses.objective / count).backward()
                optimizer.step()
                optimizer.zero()

        medians = milliseconds({"ours": our_round(ours, LONG_ROUND), "bare": bare}, "cuda", repeats=5)
    each = {key: value / LONG_ROUND for key, value in medians.items()}
    print(f"{32768 / each['ours']:.0f}k tokens/s with the loop, {32768 / each['bare']:.0f}k without")
    return [Row("train", "GPT-2 124M, whole loop", "forward, backward, step", each["ours"], each["bare"], 1.03)]


def rows(device: str) -> list[Row]:
    """Return all comparisons on a device."""
    return cpu_rows() if device == "cpu" else cuda_rows()


if __name__ == "__main__":
    torch.set_float32_matmul_precision("high")
    show(rows("cuda" if torch.cuda.is_available() else "cpu"))
