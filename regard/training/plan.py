"""What a run does when nobody says: sizes, tokenizers, rates and lengths chosen from the data and the device.

A plan is a table like a recipe's; what the user wrote is laid over it, so every choice can be changed alone. The
choices follow what is known to work for small data (see docs/training.md for where the numbers come from).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import Any, Literal, get_args

from regard.config import Table
from regard.errors import ConfigError, choices
from regard.recipe_files import merge, read_recipe, recipe_names
from regard.training.config import Times

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


@dataclass(frozen=True)
class Said:
    """What the user said of training that other choices follow from; 0 or "" where nothing was said."""

    seed: Times = 0  # decides what is held out
    steps: int = 0  # decide the schedule and the validations
    tokens: int = 0
    optimizer: str = ""  # their kinds decide what else is in their tables
    schedule: str = ""


NOTHING = Said()


def plan_task(task: Mapping[str, Any], device: str, longest: int | None = None) -> Table:
    """Choose what must be known before the data is tokenised, and lay the user's choices over it.

    `longest` is what the model can take; None if it can take any number of tokens.
    """
    kind = task.get("kind")
    chosen: Table = {}
    for key in ("window", "longest"):
        if longest is not None and key in task and task[key] > longest:
            remedy = "lower it, or raise model.embed.position.length"
            raise ConfigError(
                f"{task[key]} tokens are more than the {longest} positions of the model; {remedy}", f"task.{key}"
            )
    if kind in ("language", "masked"):
        size = _text_size(task)
        letters = kind == "language" and size < CHARACTERS_BELOW
        window = (128 if letters else 256) if device == "cpu" else 256 if letters else 512
        few = max(size // (16 if letters else 80), SHORTEST)  # so that also what is kept for validation has some
        chosen["window"] = min(window, few, longest or window)
    elif kind in LONGEST and longest is not None:
        chosen["longest"] = min(LONGEST[kind], longest)
    return {**chosen, **task}


SHORTEST = 8  # tokens of a window, however little text there is
LONGEST = {"translation": 128, "classification": 256}  # tokens of a text, where the model can take them
CHARACTERS_BELOW = 3_000_000  # bytes of text under which characters are learned better than pieces


def plan_tokenizer(task: Mapping[str, Any], pieces: bool = False) -> Table | None:
    """Choose the tokenizer: characters for a little text, BPE for more, or if `pieces` are wanted anyway."""
    if task["kind"] == "vision":
        return None
    if task["kind"] == "language" and _text_size(task) < CHARACTERS_BELOW and not pieces:
        return {"kind": "char"}
    return {"kind": "bpe"}


def plan_vocabulary(task: Mapping[str, Any]) -> int:
    """Choose the size of a vocabulary, which grows with the data."""
    steps = ((10_000_000, 6000), (50_000_000, 10_000), (500_000_000, 16_000))
    return next((pieces for limit, pieces in steps if _text_size(task) < limit), 32_000)


def _text_size(task: Mapping[str, Any]) -> int:
    return text_bytes([*task.get("train", ()), *task.get("source", ()), *task.get("target", ())])


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


def plan_model(kind: str, size: str, amount: Amount, dim: int | None = None) -> Table:
    """Choose the architecture of a task, in a size (or another width), with the dropout that little data asks for."""
    table: Table = read_recipe(RECIPES[kind])["model"]
    shape = replace(SIZES[size], dim=dim or SIZES[size].dim)
    dropout = 0.3 if amount.tokens < 3_000_000 and kind == "translation" else 0.1
    if kind == "language":
        dropout = 0.0 if size == "tiny" else 0.1
    heads = {"heads": {"heads": shape.heads}}
    hidden = _gated(shape.dim) if RECIPES[kind] == "reader" else 4 * shape.dim
    block: Table = {"mixer": heads, "feedforward": {"hidden": hidden}, "dropout": dropout}
    if kind == "translation":
        encoder = {"depth": shape.depth, "layers": {"block": block}}
        decoder = {"depth": shape.depth, "layers": {"block": block | {"cross": heads}}}
        return merge(table, {"dim": shape.dim, "encoder": encoder, "decoder": decoder, "embed": {"dropout": dropout}})
    change: Table = {"dim": shape.dim, "depth": shape.depth, "layers": {"block": block}}
    if kind == "classification":
        change["head"] = {"kind": "classes", "pool": {"kind": "mean"}, "dropout": dropout}
    return merge(table, change)


def _gated(dim: int) -> int:
    """How wide a gated unit is: it has three matrices instead of two, so each is two thirds as large."""
    return ceil(8 * dim / 3 / 16) * 16


def plan_part(kind: object, dim: int, heads: int, longest: int) -> Table:
    """Choose the sizes that a part of a model must have, if it is asked for by its kind alone.

    `heads` are those of what it replaces, and `longest` is the longest row. Experts compute as much as one gated unit.
    """
    head = max(dim // heads, 2)
    sizes: dict[object, Table] = {
        "mlp": {"hidden": 4 * dim},
        "glu": {"hidden": _gated(dim)},
        "moe": {"experts": 8, "chosen": 2, "hidden": _gated(dim) // 2},
        "multi": {"heads": heads},
        "latent": {"heads": heads, "rank": 4 * head, "plain": head, "turned": ceil(head / 4) * 2, "value": head},
        "learned": {"length": longest},
    }
    return sizes.get(kind, {})


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
    said: Said = NOTHING,
) -> Table:
    """Choose how to train a model of a width, of attention layers or not; `flops` are forward, for one token.

    One that was `begun` elsewhere learns in small steps and not for long, or it would forget what it knows.
    """
    tokens = max(said.tokens, 0) or min(TOKENS[kind] * (1 if device == "cpu" else 4), max(64, amount.tokens // 8))
    passes = min(PASSES[kind], FURTHER_PASSES) if begun else PASSES[kind]
    affordable = SECONDS * SPEED["cpu" if device == "cpu" else "cuda"] / (3 * flops * tokens)
    steps = max(said.steps, 0)
    if not steps:
        steps = ceil(max(100, min(passes * amount.tokens / tokens, affordable)))
        steps = round(steps, -2) if steps > 1000 else steps
    every = max(10, ceil(steps / 20))
    optimizer = said.optimizer or ("muon" if kind == "language" and attends and not begun else "adamw")
    plan: Table = {
        "steps": steps,
        "tokens": tokens,
        "clip": 1.0,
        "validate_every": every,
        "checkpoint_every": every,
        "optimizer": plan_optimizer(optimizer, kind, wide, begun),
        "schedule": plan_schedule(said.schedule or usual_schedule(optimizer, kind, begun), steps, begun),
    }
    return plan | ({"average": 5, "patience": 8} if kind == "translation" else {})


def plan_optimizer(optimizer: str, kind: str, wide: int, begun: bool) -> Table:
    """Choose the rates and decays of an optimizer; of one that is unknown those of AdamW."""
    rate = (FURTHER_RATE if begun else ADAM_RATE) * (128 / wide) ** 0.5
    if optimizer == "muon":
        slower = FURTHER_RATE / ADAM_RATE if begun else 1.0
        return {"kind": "muon", "rate": MUON_RATE * slower, "decay": 0.01, "rest": {"rate": rate, "decay": 0.0}}
    if begun:
        return {"kind": "adamw", "rate": rate, "decay": 0.01}
    if kind == "translation":
        return {"kind": "adamw", "rate": rate, "betas": [0.9, 0.98], "decay": 0.001}
    return {"kind": "adamw", "rate": rate, "decay": 0.05}


def usual_schedule(optimizer: str, kind: str, begun: bool) -> str:
    """Choose the kind of the schedule."""
    if begun or (kind == "language" and optimizer == "muon"):
        return "linear"
    return "inverse-sqrt" if kind == "translation" else "cosine"


def plan_schedule(schedule: str, steps: int, begun: bool) -> Table:
    """Choose how long a schedule warms up and cools down."""
    share, most = WARMUP["begun" if begun else schedule if schedule in WARMUP else "cosine"]
    cooldown = {"cooldown": 0.6} if schedule == "linear" and not begun else {}
    return {"kind": schedule, "warmup": min(steps // share, most), **cooldown}


WARMUP = {"cosine": (10, 1000), "inverse-sqrt": (4, 1000), "linear": (20, 100), "begun": (10, 100)}  # 1/share, most
MUON_RATE = 0.02
ADAM_RATE = 2e-3  # for a width of 128; less for wider models
FURTHER_RATE = 1e-4  # likewise, for a model that was trained before: 4e-5 for a BERT or GPT-2
FURTHER_PASSES = 3
TOKENS = {"translation": 2048, "language": 2048, "masked": 4096, "classification": 2048, "vision": 4096}
PASSES = {"translation": 40, "language": 10, "masked": 20, "classification": 5, "vision": 30}
