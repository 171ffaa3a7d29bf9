"""What a run does when nobody says: sizes, tokenizers, rates and lengths chosen from the data and the device.

A plan is a table like a recipe's; what the user wrote is laid over it, so every choice can be changed alone. The
choices follow what is known to work for small data (see docs/training.md for where the numbers come from).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any, Literal, get_args

from regard.config import Table, merge, read_recipe, recipe_names
from regard.errors import ConfigError, choices

SizeName = Literal["auto", "tiny", "small", "base", "big"]


@dataclass(frozen=True)
class Size:
    """How large a Transformer is, on each side."""

    depth: int
    dim: int
    heads: int


SIZES = {
    "tiny": Size(4, 128, 4),
    "small": Size(6, 256, 4),
    "base": Size(6, 512, 8),
    "big": Size(12, 1024, 16),
}
RECIPES = {
    "translation": "translator",
    "language": "writer",
    "masked": "reader",
    "classification": "reader",
    "vision": "vit",
}
KINDS = {  # the models that can learn a task
    "translation": ("seq2seq", "recurrent-seq2seq"),
    "language": ("language",),
    "masked": ("encoder",),
    "classification": ("encoder",),
    "vision": ("vision",),
}
SECONDS = 1200  # about how long a run takes when nobody says: twenty minutes,
SPEED = {"cpu": 8e10, "cuda": 1e14}  # at so many FLOPs a second


@dataclass(frozen=True)
class Amount:
    """How much there is to learn from: rows (pairs, texts, images) and the tokens that are predicted in a pass."""

    rows: int
    tokens: int


def plan_task(task: Mapping[str, Any], device: str, longest: int | None = None) -> Table:
    """Choose what must be known before the data is tokenised, and lay the user's choices over it.

    `longest` is what a model can take that is known already.
    """
    kind = task.get("kind")
    chosen: Table = {}
    if kind in ("language", "masked"):
        letters = text_bytes(task.get("train", ())) < CHARACTERS_BELOW and kind == "language"
        window = (128 if letters else 256) if device == "cpu" else 256 if letters else 512
        chosen["window"] = min(window, longest or window)
    elif kind in LONGEST and longest is not None:
        chosen["longest"] = min(LONGEST[kind], longest)
    return {**chosen, **task}


LONGEST = {"translation": 128, "classification": 256}  # tokens of a text, where the model can take them
CHARACTERS_BELOW = 3_000_000  # bytes of text under which characters are learned better than pieces


def plan_tokenizer(task: Mapping[str, Any]) -> Table | None:
    """Choose the tokenizer: characters for a little text, BPE for more; a vocabulary that grows with the data."""
    kind = task["kind"]
    if kind == "vision":
        return None
    files = [*task.get("train", ()), *task.get("source", ()), *task.get("target", ())]
    size = text_bytes(files)
    if kind == "language" and size < CHARACTERS_BELOW:
        return {"kind": "char"}
    steps = ((10_000_000, 6000), (50_000_000, 10_000), (500_000_000, 16_000))
    return {"kind": "bpe", "vocabulary": next((pieces for limit, pieces in steps if size < limit), 32_000)}


def text_bytes(files: Any) -> int:
    """Estimate how many bytes of text files hold; compressed ones hold about three times their size."""
    total = 0
    for name in [files] if isinstance(files, str) else files:
        path = Path(str(name))
        packed = path.suffix in COMPRESSED
        total += path.stat().st_size * (3 if packed else 1) if path.is_file() else 0
    return total


COMPRESSED = (".gz", ".xz", ".bz2", ".zst", ".parquet")


def choose_size(size: str, amount: Amount, device: str) -> str:
    """Choose a size from the data; on a CPU nothing that takes days."""
    if size not in get_args(SizeName):
        raise ConfigError(f"{size!r} is unknown; {choices(size, get_args(SizeName))}", "size")
    if size != "auto":
        return size
    if device == "cpu":
        return "tiny" if amount.tokens < 10_000_000 else "small"
    limits = {"tiny": 500_000, "small": 20_000_000, "base": 1_000_000_000}
    return next((name for name, limit in limits.items() if amount.tokens < limit), "big")


def plan_model(kind: str, size: str, amount: Amount) -> Table:
    """Choose the architecture of a task, in a size, with as much dropout as the little data asks for."""
    table: Table = read_recipe(RECIPES[kind])["model"]
    shape = SIZES[size]
    dropout = 0.3 if amount.tokens < 3_000_000 and kind == "translation" else 0.1
    if kind == "language":
        dropout = 0.0 if size == "tiny" else 0.1
    heads = {"heads": {"heads": shape.heads}}
    gated = RECIPES[kind] == "reader"  # a gated unit has three matrices, so each is two thirds as large
    hidden = ceil(8 * shape.dim / 3 / 16) * 16 if gated else 4 * shape.dim
    block: Table = {"mixer": heads, "feedforward": {"hidden": hidden}, "dropout": dropout}
    if kind == "translation":
        encoder = {"depth": shape.depth, "layers": {"block": block}}
        decoder = {"depth": shape.depth, "layers": {"block": block | {"cross": heads}}}
        return merge(table, {"dim": shape.dim, "encoder": encoder, "decoder": decoder, "embed": {"dropout": dropout}})
    change: Table = {"dim": shape.dim, "depth": shape.depth, "layers": {"block": block}}
    if kind == "classification":
        change["head"] = {"kind": "classes", "pool": {"kind": "mean"}, "dropout": dropout}
    return merge(table, change)


def check_kind(task: str, kind: object) -> None:
    """See that a model can learn a task, or say which recipes can."""
    if kind not in KINDS[task]:
        fitting = [name for name in recipe_names() if read_recipe(name)["model"]["kind"] in KINDS[task]]
        rule = f"a model of the kind {kind!r} cannot be trained for {task}"
        raise ConfigError(f"{rule}; recipes that can: {', '.join(fitting)}", "model.kind")


def fit_patches(model: Mapping[str, Any], height: int, width: int) -> Table:
    """Choose patches that divide the image into about 8 x 8, and a position for each and for the class token."""
    sides = [side for side in range(1, min(height, width) + 1) if height % side == 0 and width % side == 0]
    patch = min(sides, key=lambda side: abs(height * width / side**2 - 64))
    count = (height // patch) * (width // patch) + (model["head"].get("pool", {}).get("kind", "first") == "first")
    return merge(model, {"patches": {"patch": patch}, "position": {"length": count}})


def plan_train(
    kind: str,
    wide: int,
    attends: bool,
    amount: Amount,
    flops: float,
    device: str,
    begun: bool = False,
    steps: int = 0,
    tokens: int = 0,
) -> Table:
    """Choose how to train a model of a width, of attention layers or not; `flops` are forward, for one token.

    One that was `begun` elsewhere learns in small steps and not for long, or it would forget what it knows. `steps`
    and `tokens` are those the user said, for the schedule and the validations to fit; 0 leaves them to the data.
    """
    tokens = tokens or min(TOKENS[kind] * (1 if device == "cpu" else 4), max(64, amount.tokens // 8))
    passes = min(PASSES[kind], FURTHER_PASSES) if begun else PASSES[kind]
    affordable = SECONDS * SPEED["cpu" if device == "cpu" else "cuda"] / (3 * flops * tokens)
    if not steps:
        steps = ceil(max(100, min(passes * amount.tokens / tokens, affordable)))
        steps = round(steps, -2) if steps > 1000 else steps
    every = max(10, ceil(steps / 20))
    plan: Table = {
        "steps": steps,
        "tokens": tokens,
        "clip": 1.0,
        "validate_every": every,
        "checkpoint_every": every,
        "optimizer": {"kind": "adamw", "rate": ADAM_RATE * (128 / wide) ** 0.5, "decay": 0.05},
        "schedule": {"kind": "cosine", "warmup": min(steps // 10, 1000)},
    }
    if kind == "translation":
        plan["optimizer"] |= {"betas": [0.9, 0.98], "decay": 0.001}
        plan["schedule"] = {"kind": "inverse-sqrt", "warmup": min(steps // 4, 1000)}
        plan |= {"average": 5, "patience": 8}
    if kind == "language" and attends:
        rest = {"rate": ADAM_RATE * (128 / wide) ** 0.5, "decay": 0.0}
        plan["optimizer"] = {"kind": "muon", "rate": 0.02, "decay": 0.01, "rest": rest}
        plan["schedule"] = {"kind": "linear", "warmup": min(steps // 20, 100), "cooldown": 0.6}
    if begun:
        plan["optimizer"] = {"kind": "adamw", "rate": FURTHER_RATE * (128 / wide) ** 0.5, "decay": 0.01}
        plan["schedule"] = {"kind": "linear", "warmup": min(steps // 10, 100)}
    return plan


ADAM_RATE = 2e-3  # for a width of 128; less for wider models
FURTHER_RATE = 1e-4  # likewise, for a model that was trained before: 4e-5 for a BERT or GPT-2
FURTHER_PASSES = 3
TOKENS = {"translation": 2048, "language": 2048, "masked": 4096, "classification": 2048, "vision": 4096}
PASSES = {"translation": 40, "language": 10, "masked": 20, "classification": 5, "vision": 30}
