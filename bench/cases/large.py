"""Training on a GPU: our whole loop against plain PyTorch, nn.Transformer, Hugging Face, x-transformers and timm, all
compiled, in bfloat16."""

import os
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench.case import Case, Floor, Prepared, Setting
from bench.cases.ours import ADAM, NO_DROPOUT, our_loop, random_text, training_operations, write_once
from bench.cases.plain import PlainGPT, PlainTranslator, training_loop, weights_of
from bench.cases.small import marian, write_images, write_pairs
from regard.training.request import RunRequest

UPDATES = int(os.environ.get("BENCH_UPDATES", "5"))  # of a timed run; 20 tell what its start costs
LONG_RUN = ("train.steps=100000",)  # as Transformer base and GPT-2 were trained: long enough to compile the whole model

# --- language --------------------------------------------------------------------------------------------------------

ROWS, LENGTH, VOCABULARY = 32, 1024, 50304
PARAMETERS = {"parameters": 0.01}


def our_gpt2(rows: int, length: int, setting: Setting, *changes: str, updates: int = UPDATES) -> Prepared:
    """Return our loop with GPT-2 124M on a text of random letters; its vocabulary is larger than that."""
    text = write_once(setting.folder / "text.txt", lambda: random_text(max(2_000_000, 8 * rows * length)))
    sizes = (f"task.window={length}", f"train.tokens={rows * length}")
    settings = (*NO_DROPOUT, *ADAM, *LONG_RUN, *sizes, *changes)
    request = RunRequest({"kind": "language", "train": [text]}, settings, recipe="gpt2")
    return our_loop(setting, request, updates, VOCABULARY)


def our_short_gpt2(setting: Setting) -> Prepared:
    return our_gpt2(ROWS, LENGTH, setting, f"model.embed.position.length={LENGTH}")


def language_model(make: Callable[[], nn.Module], setting: Setting) -> Prepared:
    """Return a plain loop around a language model, compiled with its loss."""
    model = make().to(setting.device)
    tokens = torch.randint(VOCABULARY, (ROWS, LENGTH + 1), device=setting.device)

    @torch.compile
    def loss_of(inputs: Tensor, labels: Tensor) -> Tensor:
        found = model(inputs)
        logits = found if isinstance(found, Tensor) else found.logits
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten())

    def batches() -> Iterator[tuple[Tensor, Tensor]]:
        while True:
            yield tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()

    run = training_loop(model, loss_of, batches(), setting.device, UPDATES)
    return Prepared(run, UPDATES * ROWS * LENGTH, {"parameters": float(weights_of(model))}, UPDATES)


def plain_gpt2() -> nn.Module:
    return PlainGPT(VOCABULARY, 12, 768, 12, LENGTH)


def their_gpt2() -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    no_dropout = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    return GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, use_cache=False, **no_dropout))


def x_gpt2() -> nn.Module:
    from x_transformers import Decoder, TransformerWrapper

    layers = Decoder(dim=768, depth=12, heads=12, attn_flash=True, ff_glu=False)
    return TransformerWrapper(num_tokens=VOCABULARY, max_seq_len=LENGTH, attn_layers=layers, tie_embedding=True)


# --- long texts ------------------------------------------------------------------------------------------------------

LONG, WINDOW = 65_536, 1024
ROTARY = ("model.embed.position=none", "model.layers.block.mixer.position.kind=rope")


def our_long_gpt2(window: int | None, setting: Setting) -> Prepared:
    narrow = () if window is None else (f"model.layers.block.mixer.window={window}",)
    return our_gpt2(1, LONG, setting, *ROTARY, *narrow, updates=1)


# --- translation -----------------------------------------------------------------------------------------------------

PAIRS, WIDTH, WORDS = 512, 64, 31_995
REAL_TOKENS = 16_384  # target tokens of an update with real lengths
LENGTHS = Path(__file__).parent.parent / "lengths"  # of both sides of 5,000 pairs, with a BPE of 10,000 for both


def real_lengths(data: str) -> np.ndarray:
    """Return the tokens of both sides of pairs of a data set."""
    return np.loadtxt(LENGTHS / f"{data}.txt", dtype=int)


def our_translator(data: str | None, setting: Setting) -> Prepared:
    """Return our loop with Transformer base: pairs of full rows, or as long as those of `data`, packed into rows."""
    lengths = np.full((8 * PAIRS, 2), WIDTH - 1) if data is None else np.tile(real_lengths(data), (8, 1))
    pairs = write_once(setting.folder / "pairs.tsv", lambda: write_pairs(len(lengths), WORDS, lengths))
    tokens = PAIRS * WIDTH if data is None else REAL_TOKENS
    words = ("tokenizer.kind=word", f"tokenizer.vocabulary={WORDS + 5}")
    changes = (*ADAM, *LONG_RUN, *words, f"train.tokens={tokens}")
    request = RunRequest({"kind": "translation", "source": [pairs]}, changes, recipe="transformer-base")
    return our_loop(setting, request, UPDATES, WORDS + 5)


def plain_translator(kind: str, data: str | None, compiles: bool, setting: Setting) -> Prepared:
    """Return a plain loop around nn.Transformer or Marian.

    Pairs of real lengths are padded to what the longest of an update has in the mean: one shape for all updates.
    """
    if kind == "marian":
        theirs = marian(WORDS + 5, 6, 512, 8, 2048).to(setting.device)
        body: nn.Module = theirs

        def call(source: Tensor, target: Tensor) -> Tensor:
            return theirs(input_ids=source, attention_mask=(source != 0).long(), decoder_input_ids=target).logits
    else:
        body = PlainTranslator(WORDS + 5, 6, 512, 8, 2048).to(setting.device)
        call = body
    rows, widths, lengths = PAIRS, [WIDTH, WIDTH], torch.full((1, 2), WIDTH)
    if data is not None:
        lengths = torch.from_numpy(real_lengths(data)) + 1
        rows = round(REAL_TOKENS / float(lengths[:, 1].float().mean()))
        longest = [lengths[torch.randint(len(lengths), (rows,))].amax(0) for _ in range(50)]
        widths = torch.stack(longest).float().mean(0).round().int().tolist()

    def loss_of(source: Tensor, target: Tensor) -> Tensor:
        logits = call(source, F.pad(target[:, :-1], (1, 0), value=1))
        return F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=0)

    def batches() -> Iterator[tuple[Tensor, Tensor]]:
        while True:
            both = [torch.randint(5, WORDS, (rows, width)) for width in widths]
            chosen = lengths[torch.randint(len(lengths), (rows,))]
            for tokens, side in zip(both, chosen.unbind(1), strict=True):
                tokens[torch.arange(tokens.shape[1]) >= side[:, None]] = 0
            yield both[0].to(setting.device, non_blocking=True), both[1].to(setting.device, non_blocking=True)

    supply = list(islice(batches(), 20))  # on the device already, so that only updates are timed

    def again() -> Iterator[tuple[Tensor, Tensor]]:
        while True:
            yield from supply

    run = training_loop(body, torch.compile(loss_of) if compiles else loss_of, again(), setting.device, UPDATES)
    useful = float(np.mean([int((target != 0).sum()) for _, target in supply]))
    return Prepared(run, UPDATES * useful, {"parameters": float(weights_of(body))}, UPDATES)


def translator_case(name: str, about: str, data: str | None, goal: float) -> Case:
    """Return a case of Transformer base."""
    length = WIDTH if data is None else round(real_lengths(data).mean())
    floor = training_operations("transformer-base", f"model.vocabulary={WORDS + 5}", length=length)
    return Case(
        name,
        f"Transformer base (6+6 layers of 512, vocabulary 32k), {about}, dropout 0.1, bfloat16, AdamW; useful tokens",
        "token",
        {
            "regard": partial(our_translator, data),
            "nn.Transformer, compiled": partial(plain_translator, "torch", data, True),
            "nn.Transformer": partial(plain_translator, "torch", data, False),
            "Hugging Face Marian, compiled": partial(plain_translator, "marian", data, True),
        },
        ("cuda",),
        {"parameters": 0.02},
        {"nn.Transformer, compiled": goal},
        floor=Floor(floor),
        seconds=30.0,
    )


# --- images ----------------------------------------------------------------------------------------------------------

IMAGES, SIDE, PATCHES = 256, 224, 196
VIT = (
    *("model.dim=384", "model.depth=12", "model.layers.block.mixer.heads.heads=6"),
    *("model.layers.block.feedforward.hidden=1536", "model.layers.block.dropout=0.0", "model.patches.patch=16"),
    f"model.position.length={PATCHES + 1}",
)


def our_vit(setting: Setting) -> Prepared:
    images = write_images(setting.folder / "images.npz", 2048, SIDE, 3, 1000)
    changes = (*VIT, *ADAM, *LONG_RUN, "task.shift=0", "task.smoothing=0.0", f"train.tokens={IMAGES * PATCHES}")
    return our_loop(setting, RunRequest({"kind": "vision", "train": images}, changes, recipe="vit"), UPDATES)


def timm_vit(setting: Setting) -> Prepared:
    from timm.models.vision_transformer import VisionTransformer

    model = VisionTransformer(SIDE, 16, 3, 1000, embed_dim=384, depth=12, num_heads=6).to(setting.device)
    pixels = torch.randint(256, (IMAGES, 3, SIDE, SIDE), dtype=torch.uint8, device=setting.device)
    labels = torch.randint(1000, (IMAGES,), device=setting.device)

    @torch.compile
    def loss_of(pixels: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(model((pixels.float() - 128) / 60), labels)

    def batches() -> Iterator[tuple[Tensor, Tensor]]:
        while True:
            yield pixels, labels

    run = training_loop(model, loss_of, batches(), setting.device, UPDATES)
    return Prepared(run, UPDATES * IMAGES, {"parameters": float(weights_of(model))}, UPDATES)


# --- small models: how updates are executed --------------------------------------------------------------------------

MODES = {
    "regard": (),
    "eager": ("train.capture=never", "train.compile=never"),
    "captured": ("train.capture=always", "train.compile=never"),
    "compiled": ("train.capture=never", "train.compile=always"),
    "compiled and captured": ("train.capture=always", "train.compile=always"),
}


def our_small_translator(size: str, mode: str, setting: Setting) -> Prepared:
    pairs = write_once(setting.folder / "pairs.tsv", lambda: write_pairs(20_000, 8000))
    request = RunRequest({"kind": "translation", "source": [pairs]}, ("train.tokens=8192", *MODES[mode]), size=size)
    return our_loop(setting, request, 20)


def our_small_writer(size: str, mode: str, setting: Setting) -> Prepared:
    text = write_once(setting.folder / "text.txt", lambda: random_text(2_000_000))
    request = RunRequest({"kind": "language", "train": [text]}, ("train.tokens=16384", *MODES[mode]), size=size)
    return our_loop(setting, request, 20)


def mode_case(name: str, about: str, make: Callable[[str, Setting], Prepared]) -> Case:
    """Return a case in which our own ways to execute an update are compared; `regard` chooses by itself."""
    return Case(
        f"modes: {name}",
        f"{about}: what `auto` chooses, and each way of executing an update",
        "token",
        {mode: partial(make, mode) for mode in MODES},
        ("cuda",),
        {"parameters": 0.0},
        seconds=15.0,
        long=True,
    )


MODE_CASES = [
    *(
        mode_case(
            f"translator {size}",
            f"The default translator in size {size}, 8,192 target tokens",
            partial(our_small_translator, size),
        )
        for size in ("tiny", "small", "base")
    ),
    mode_case(
        "writer small", "The default language model in size small, 16,384 tokens", partial(our_small_writer, "small")
    ),
]


def cases() -> list[Case]:
    """Return all cases of this file."""
    wide = f"model.vocabulary={VOCABULARY}"
    return [
        Case(
            "train: GPT-2 124M",
            f"GPT-2 124M, {ROWS} rows of {LENGTH} tokens, bfloat16, AdamW; ours with the whole loop",
            "token",
            {
                "regard": our_short_gpt2,
                "plain PyTorch, compiled": partial(language_model, plain_gpt2),
                "Hugging Face, compiled": partial(language_model, their_gpt2),
                "x-transformers, compiled": partial(language_model, x_gpt2),
            },
            ("cuda",),
            PARAMETERS,
            {"plain PyTorch, compiled": 0.87},
            floor=Floor(training_operations("gpt2", wide, length=LENGTH)),
            seconds=40.0,
        ),
        translator_case("train: Transformer base, full rows", f"{PAIRS} pairs of {WIDTH} tokens", None, 1 / 1.4),
        *(
            translator_case(f"train: Transformer base, {data}", f"lengths of pairs of {data}", data, 0.5)
            for data in ("multi30k", "iwslt15")
        ),
        Case(
            "train: ViT-S/16",
            f"ViT-S/16, {IMAGES} images of {SIDE}x{SIDE}, bfloat16, AdamW; ours with the whole loop",
            "image",
            {"regard": our_vit, "timm, compiled": timm_vit},
            ("cuda",),
            PARAMETERS,
            {"timm, compiled": 1 / 1.2},
            floor=Floor((PATCHES + 1) * training_operations("vit", *VIT)),
            seconds=30.0,
        ),
        Case(
            "train: 64k tokens of context",
            f"GPT-2 124M with rotary positions, one row of {LONG} tokens, bfloat16: a window of {WINDOW} or all keys",
            "token",
            {f"regard, window {WINDOW}": partial(our_long_gpt2, WINDOW), "all keys": partial(our_long_gpt2, None)},
            ("cuda",),
            goals={"all keys": 1 / 3},
            floor=Floor(
                training_operations("gpt2", wide, *ROTARY, f"model.layers.block.mixer.window={WINDOW}", length=LONG)
            ),
            seconds=30.0,
        ),
        *MODE_CASES,
    ]
