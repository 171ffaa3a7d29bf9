"""Updates of small models on the CPU, as a person trains them: our loop against Hugging Face's Trainer and others."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench.case import Case, Floor, Prepared, Setting
from bench.cases.ours import ADAM, LETTERS, NO_DROPOUT, our_loop, random_text, training_operations, write_once
from bench.cases.plain import PlainGPT, PlainTranslator, trainer_loop, training_loop, weights_of
from regard.training.request import RunRequest

UPDATES = 5  # of a run

# --- language: nanoGPT's settings for a CPU --------------------------------------------------------------------------

LAYERS, D, H, T, B = 4, 128, 4, 64, 12
CHARACTERS = len(LETTERS) + 5  # and the special tokens
GPT = (
    *NO_DROPOUT,
    *(f"model.dim={D}", f"model.depth={LAYERS}", f"model.embed.position.length={T}"),
    *(f"model.layers.block.feedforward.hidden={4 * D}", f"model.layers.block.mixer.heads.heads={H}"),
)


def our_language(setting: Setting) -> Prepared:
    text = write_once(setting.folder / "text.txt", lambda: random_text(500_000))
    changes = (*GPT, *ADAM, f"task.window={T}", f"train.tokens={T * B}")
    return our_loop(setting, RunRequest({"kind": "language", "train": [text]}, changes, recipe="gpt2"), UPDATES)


def windows() -> Iterator[tuple[Tensor, Tensor]]:
    """Yield random windows of a random text, and what follows each token."""
    data = torch.randint(5, CHARACTERS, (500_000,))
    while True:
        starts = torch.randint(len(data) - T, (B,))
        rows = torch.stack([data[start : start + T + 1] for start in starts])
        yield rows[:, :-1], rows[:, 1:]


def language_loop(model: nn.Module) -> Prepared:
    """Return a plain loop that trains a model on the windows."""

    def loss_of(tokens: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(model(tokens).flatten(0, 1), labels.flatten())

    run = training_loop(model, loss_of, windows(), "cpu", UPDATES)
    return Prepared(run, UPDATES * T * B, {"parameters": float(weights_of(model))}, UPDATES)


def plain_language(setting: Setting) -> Prepared:
    return language_loop(PlainGPT(CHARACTERS, LAYERS, D, H, T))


def x_language(setting: Setting) -> Prepared:
    from x_transformers import Decoder, TransformerWrapper

    layers = Decoder(dim=D, depth=LAYERS, heads=H, attn_dim_head=D // H, attn_flash=True)
    return language_loop(
        TransformerWrapper(num_tokens=CHARACTERS, max_seq_len=T, attn_layers=layers, tie_embedding=True)
    )


def their_language(setting: Setting) -> Prepared:
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"n_positions": T, "n_embd": D, "n_layer": LAYERS, "n_head": H, "vocab_size": CHARACTERS}
    no_dropout = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    model = GPT2LMHeadModel(GPT2Config(**sizes, **no_dropout, use_cache=False))
    rows = torch.randint(5, CHARACTERS, (8000, T))
    data = [{"input_ids": row, "labels": row} for row in rows]
    run = trainer_loop(model, data, B, UPDATES, setting.folder)
    return Prepared(run, UPDATES * T * B, {"parameters": float(weights_of(model))})


# --- translation -----------------------------------------------------------------------------------------------------

WORDS, PAIRS, TOKENS = 8000, 12_000, 2048
WIDE = (
    f"model.dim={D}",
    *(
        f"model.{side}.{key}"
        for side in ("encoder", "decoder")
        for key in (
            f"depth={LAYERS}",
            f"layers.block.mixer.heads.heads={H}",
            f"layers.block.feedforward.hidden={4 * D}",
        )
    ),
    f"model.decoder.layers.block.cross.heads.heads={H}",
)


def pair_lengths(count: int) -> np.ndarray:
    """Return the words of both sides of pairs, spread as in Multi30k: 12 words in the median, a few of 30."""
    chance = np.random.default_rng(0)
    source = np.clip(np.exp(chance.normal(np.log(12), 0.3, count)), 4, 40)
    target = np.clip(source * chance.uniform(0.8, 1.25, count), 4, 40)
    return np.stack((source, target), 1).round().astype(int)


def write_pairs(count: int, words: int, lengths: np.ndarray | None = None) -> str:
    """Return pairs of random words as a table of two columns; every word occurs."""
    chance = np.random.default_rng(1)
    lengths = pair_lengths(count) if lengths is None else lengths
    return "".join(
        "\t".join(" ".join(f"w{word}" for word in chance.integers(0, words, side)) for side in pair) + "\n"
        for pair in lengths.tolist()
    )


def our_translation(setting: Setting) -> Prepared:
    pairs = write_once(setting.folder / "pairs.tsv", lambda: write_pairs(PAIRS, WORDS))
    changes = (*WIDE, *ADAM, "tokenizer.kind=word", f"tokenizer.vocabulary={WORDS + 5}", f"train.tokens={TOKENS}")
    request = RunRequest({"kind": "translation", "source": [pairs]}, changes, recipe="transformer-base")
    return our_loop(setting, request, UPDATES)


def padded_pairs(rows: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield batches of random pairs with padding (0), as a plain loop makes them."""
    lengths = torch.from_numpy(pair_lengths(PAIRS)) + 1  # with the end token
    while True:
        chosen = lengths[torch.randint(len(lengths), (rows,))]
        both = [torch.randint(5, WORDS, (rows, int(side.max()))) for side in chosen.unbind(1)]
        for tokens, side in zip(both, chosen.unbind(1), strict=True):
            tokens[torch.arange(tokens.shape[1]) >= side[:, None]] = 0
        yield both[0], both[1]


def rows_of_an_update() -> tuple[int, float]:
    """Return the pairs of an update of TOKENS target tokens, and its useful target tokens in the mean."""
    mean = float(pair_lengths(PAIRS)[:, 1].mean()) + 1
    rows = round(TOKENS / mean)
    return rows, rows * mean


def plain_translation(setting: Setting) -> Prepared:
    model = PlainTranslator(WORDS + 5, LAYERS, D, H, 4 * D)
    rows, tokens = rows_of_an_update()

    def loss_of(source: Tensor, target: Tensor) -> Tensor:
        logits = model(source, F.pad(target[:, :-1], (1, 0), value=1))
        return F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=0)

    run = training_loop(model, loss_of, padded_pairs(rows), "cpu", UPDATES)
    return Prepared(run, UPDATES * tokens, {"parameters": float(weights_of(model))}, UPDATES)


def marian(vocabulary: int, layers: int, dim: int, heads: int, hidden: int) -> Any:
    """Build Hugging Face's Marian, which is the Transformer of 2017."""
    from transformers import MarianConfig, MarianMTModel

    sizes = {
        side + name: size
        for side in ("encoder_", "decoder_")
        for name, size in (("layers", layers), ("attention_heads", heads), ("ffn_dim", hidden))
    }
    tokens = {"pad_token_id": 0, "eos_token_id": 2, "bos_token_id": 1, "decoder_start_token_id": 1}
    return MarianMTModel(
        MarianConfig(vocab_size=vocabulary, d_model=dim, max_position_embeddings=512, **sizes, **tokens)
    )


def collate(rows: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Pad the rows of a batch to the longest, as Hugging Face's collator does."""
    pad = partial(torch.nn.utils.rnn.pad_sequence, batch_first=True)
    source = pad([row["input_ids"] for row in rows])
    labels = pad([row["labels"] for row in rows], padding_value=-100)
    return {"input_ids": source, "attention_mask": (source != 0).long(), "labels": labels}


def their_translation(setting: Setting) -> Prepared:
    model = marian(WORDS + 5, LAYERS, D, H, 4 * D)
    rows, tokens = rows_of_an_update()
    lengths = pair_lengths(PAIRS) + 1
    data = [{"input_ids": torch.randint(5, WORDS, (s,)), "labels": torch.randint(5, WORDS, (t,))} for s, t in lengths]
    run = trainer_loop(model, data, rows, UPDATES, setting.folder, collate)
    return Prepared(run, UPDATES * tokens, {"parameters": float(weights_of(model))})


# --- images ----------------------------------------------------------------------------------------------------------

SIDE, PATCH, IMAGES, CLASSES = 28, 4, 64, 10
PATCHES = (SIDE // PATCH) ** 2
VIT = (
    *(f"model.dim={D}", f"model.depth={LAYERS}", f"model.layers.block.mixer.heads.heads={H}"),
    *(
        f"model.layers.block.feedforward.hidden={4 * D}",
        "model.layers.block.dropout=0.0",
        f"model.patches.patch={PATCH}",
    ),
)


def write_images(path: Any, count: int, side: int, channels: int, classes: int) -> str:
    """Write random images with labels; return the name of the file."""
    chance = np.random.default_rng(0)
    pixels = chance.integers(0, 255, (count, side, side, channels), dtype=np.uint8)
    np.savez(path, images=pixels, labels=np.arange(count) % classes)
    return str(path)


def our_vision(setting: Setting) -> Prepared:
    images = write_images(setting.folder / "images.npz", 4000, SIDE, 1, CLASSES)
    task = {"kind": "vision", "train": images}
    changes = (*VIT, *ADAM, "task.shift=0", "task.smoothing=0.0", f"train.tokens={IMAGES * PATCHES}")
    return our_loop(setting, RunRequest(task, changes, recipe="vit"), UPDATES)


def their_vision(setting: Setting) -> Prepared:
    from transformers import ViTConfig, ViTForImageClassification

    sizes = {"hidden_size": D, "num_hidden_layers": LAYERS, "num_attention_heads": H, "intermediate_size": 4 * D}
    images = {"image_size": SIDE, "patch_size": PATCH, "num_channels": 1, "num_labels": CLASSES}
    model = ViTForImageClassification(ViTConfig(**sizes, **images))
    pixels = torch.randn(4000, 1, SIDE, SIDE)
    data = [{"pixel_values": image, "labels": number % CLASSES} for number, image in enumerate(pixels)]
    run = trainer_loop(model, data, IMAGES, UPDATES, setting.folder)
    return Prepared(run, UPDATES * IMAGES, {"parameters": float(weights_of(model))})


def timm_vision(setting: Setting) -> Prepared:
    from timm.models.vision_transformer import VisionTransformer

    model = VisionTransformer(SIDE, PATCH, 1, CLASSES, embed_dim=D, depth=LAYERS, num_heads=H)
    pixels, labels = torch.randn(4000, 1, SIDE, SIDE), torch.randint(CLASSES, (4000,))

    def batches() -> Iterator[tuple[Tensor, Tensor]]:
        while True:
            chosen = torch.randint(len(pixels), (IMAGES,))
            yield pixels[chosen], labels[chosen]

    run = training_loop(model, lambda x, y: F.cross_entropy(model(x), y), batches(), "cpu", UPDATES)
    return Prepared(run, UPDATES * IMAGES, {"parameters": float(weights_of(model))}, UPDATES)


TRAINER = "Hugging Face Trainer"
SAME = {"parameters": 0.01}
CASES = [
    Case(
        "train: small language model",
        f"Updates of a GPT of {LAYERS} layers of {D}, {B} rows of {T} characters, AdamW, float32, the whole loop",
        "token",
        {
            "regard": our_language,
            TRAINER: their_language,
            "plain PyTorch": plain_language,
            "x-transformers": x_language,
        },
        ("cpu",),
        SAME,
        {TRAINER: 0.8, "plain PyTorch": 1.0},
        floor=Floor(training_operations("gpt2", *GPT, f"model.vocabulary={CHARACTERS}", length=T)),
    ),
    Case(
        "train: small translator",
        f"Updates of a Transformer of {LAYERS}+{LAYERS} layers of {D}, vocabulary {WORDS}, {TOKENS} target tokens, "
        "lengths as in Multi30k, dropout 0.1, AdamW, float32, the whole loop; useful target tokens are counted",
        "token",
        {"regard": our_translation, TRAINER: their_translation, "nn.Transformer": plain_translation},
        ("cpu",),
        {"parameters": 0.02},
        {TRAINER: 0.8},
        floor=Floor(training_operations("transformer-base", *WIDE, f"model.vocabulary={WORDS + 5}", length=13)),
    ),
    Case(
        "train: small ViT",
        f"Updates of a ViT of {LAYERS} layers of {D}, {IMAGES} images of {SIDE}x{SIDE}, patches of {PATCH}x{PATCH}, "
        "AdamW, float32, the whole loop",
        "image",
        {"regard": our_vision, TRAINER: their_vision, "timm": timm_vision},
        ("cpu",),
        SAME,
        {TRAINER: 0.8},
        floor=Floor(
            (PATCHES + 1)
            * training_operations(
                "vit",
                *VIT,
                *(
                    f"model.patches.{key}={value}"
                    for key, value in (("height", SIDE), ("width", SIDE), ("channels", 1))
                ),
                *(f"model.position.length={PATCHES + 1}", f"model.head.classes={CLASSES}"),
            )
        ),
    ),
]
