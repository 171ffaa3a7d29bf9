"""Data and files on the CPU: tokenising, loading a model, and CTranslate2 through our verbs."""

import os
import random
from functools import partial
from itertools import accumulate
from pathlib import Path

import torch
from torch import Tensor

from bench.case import Case, Floor, Prepared, Setting
from regard.data.tokenizer import TokenizerConfig, train_tokenizer
from regard.hub.folder import load_huggingface, save_huggingface
from regard.models.recipe import build
from regard.models.store import save_model
from regard.use.convert import convert
from regard.use.load import load
from regard.use.loaded_model import LoadedModel
from regard.use.translate import SPARE

# --- tokenising ------------------------------------------------------------------------------------------------------

KINDS = ("char", "byte", "word", "bpe", "unigram")


def made_up(texts: int, words: int = 25, seed: int = 0) -> list[str]:
    """Return texts of random letters, in words whose frequencies follow Zipf's law."""
    rng = random.Random(seed)
    letters = "etaoinsrhldcumfpgwybvkxjqzäé"
    weights = [1 / rank for rank in range(1, len(letters) + 1)]
    known = ["".join(rng.choices(letters, weights, k=rng.randint(1, 9))) for _ in range(20_000)]
    frequent = list(accumulate(1 / rank for rank in range(1, len(known) + 1)))
    return [" ".join(rng.choices(known, cum_weights=frequent, k=words)) + "." for _ in range(texts)]


def our_tokens(kind: str, dropout: float, setting: Setting) -> Prepared:
    texts = made_up(5000)
    tokenizer = train_tokenizer(texts, TokenizerConfig(kind=kind, dropout=dropout))
    if dropout:
        return Prepared(lambda: tokenizer.encode_varied(texts, [0]), size_of(texts))
    return Prepared(
        lambda: tokenizer.encode(texts), size_of(texts), {"tokens": float(sum(map(len, tokenizer.encode(texts))))}
    )


def their_tokens(kind: str, dropout: float, setting: Setting) -> Prepared:
    """Return `encode_batch` of the `tokenizers` library alone, without the conversion to arrays."""
    from tokenizers import Tokenizer as Library

    texts = made_up(5000)
    tokenizer = train_tokenizer(texts, TokenizerConfig(kind=kind, dropout=dropout))
    library = Library.from_str((tokenizer._plain if dropout else tokenizer._backend).to_str())
    if dropout:
        library.model.dropout = dropout
        return Prepared(lambda: library.encode_batch(texts, add_special_tokens=False), size_of(texts))
    tokens = sum(len(found.ids) for found in library.encode_batch(texts, add_special_tokens=False))
    run = partial(library.encode_batch, texts, add_special_tokens=False)
    return Prepared(run, size_of(texts), {"tokens": float(tokens)})


def size_of(texts: list[str]) -> float:
    """Return the size of texts in megabytes."""
    return sum(len(text.encode()) for text in texts) / 1e6


def token_case(kind: str, dropout: float = 0.0) -> Case:
    """Return the case of one kind of tokenizer."""
    with_dropout = ", dropout" if dropout else ""
    return Case(
        f"tokenise: {kind}{with_dropout}",
        "Made-up words; ours with the conversion to arrays, theirs without"
        + ("; ours drawn from a seed, which theirs does not have" if dropout else ""),
        "MB",
        {"regard": partial(our_tokens, kind, dropout), "tokenizers": partial(their_tokens, kind, dropout)},
        ("cpu",),
        {"tokens": 0.0},
        {"tokenizers": 3.0 if dropout else 1.11},
        seconds=6.0,
    )


# --- loading ---------------------------------------------------------------------------------------------------------


def touched(weights: list[Tensor]) -> int:
    """Read one byte of every memory page of the weights, whatever their layout: they stay in the file until then."""
    total = 0
    for tensor in weights:
        pages = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())[::4096]
        total += int(pages.sum())
    return total


def written_gpt2(setting: Setting) -> Path:
    folder = setting.folder / "model"
    save_huggingface(build("gpt2", seed=0), folder)
    return folder


def our_load(setting: Setting) -> Prepared:
    """Return `regard.load`, which prepares the weights for decoding."""
    folder = written_gpt2(setting)
    return Prepared(lambda: touched([weight.data for weight in load(folder, "cpu").model.parameters()]))


def hub_load(setting: Setting) -> Prepared:
    """Return the model alone."""
    folder = written_gpt2(setting)
    return Prepared(lambda: touched([weight.data for weight in load_huggingface(folder).parameters()]))


def read_file(setting: Setting) -> Prepared:
    path = written_gpt2(setting) / "model.safetensors"
    return Prepared(path.read_bytes)


def their_load(setting: Setting) -> Prepared:
    from transformers import AutoModelForCausalLM

    folder = written_gpt2(setting)

    def run() -> int:
        model = AutoModelForCausalLM.from_pretrained(folder)
        return touched([weight.data for weight in model.parameters()])

    return Prepared(run)


# --- CTranslate2 -----------------------------------------------------------------------------------------------------

LINES, TOKENS = 64, 20


def write_run(folder: Path) -> list[str]:
    """Write the folder of a finished `regard train translation`; return sentences for it."""
    rng = random.Random(0)
    words = ["".join(rng.choices("abcdefghijklmnop", k=rng.randint(2, 8))) for _ in range(4000)]
    sentences = [" ".join(rng.choices(words, k=rng.randint(3, 24))) for _ in range(2000)]
    tokenizer = train_tokenizer(sentences, TokenizerConfig("bpe", 8000))
    tokenizer.save(folder)
    sides = [f"model.{side}.depth=6" for side in ("encoder", "decoder")]
    heads = [f"model.{side}.layers.block.mixer.heads.heads=8" for side in ("encoder", "decoder")]
    wide = [f"model.{side}.layers.block.feedforward.hidden=2048" for side in ("encoder", "decoder")]
    changes = [f"model.vocabulary={tokenizer.size}", "model.dim=512", "model.decoder.layers.block.cross.heads.heads=8"]
    save_model(build("translator", *changes, *sides, *heads, *wide, seed=0), folder)
    recipe = '[task]\nkind = "translation"\nsource = ["a"]\n[tokenizer]\nkind = "bpe"\n'
    (folder / "recipe.toml").write_text(recipe, encoding="utf-8")
    lengths = [len(ids) for ids in tokenizer.encode(sentences)]
    return [line for line, length in zip(sentences, lengths, strict=True) if length == TOKENS][:LINES]


def converted(setting: Setting) -> tuple[LoadedModel, list[str]]:
    import ctranslate2  # noqa: F401  # missing: this contestant is absent

    lines = write_run(setting.folder / "run")
    convert(setting.folder / "run", "ctranslate2", setting.folder / "out", quantization="int8")
    return load(setting.folder / "out", "cpu"), lines


def through_verbs(beam: int, setting: Setting) -> Prepared:
    model, lines = converted(setting)
    return Prepared(lambda: model.translate(lines, beam=beam, longest_ratio=1.0), len(lines))


def direct_ctranslate2(beam: int, setting: Setting) -> Prepared:
    """Return a direct call of the library, which sorts and batches by tokens; the text is tokenised beforehand."""
    model, lines = converted(setting)
    library, tokenizer = model.bundle.external.model, model.bundle.need_tokenizer()  # type: ignore[union-attr]
    names = tokenizer.names(model.model.config.vocabulary)
    rows = [[*(names[id] for id in ids), names[tokenizer.end]] for ids in tokenizer.encode(lines)]
    longest = max(map(len, rows)) + SPARE
    options = {"beam_size": beam, "length_penalty": 0.6, "max_batch_size": 8192 // beam, "batch_type": "tokens"}
    return Prepared(lambda: library.translate_batch(rows, max_decoding_length=longest, **options), len(lines))


def ctranslate2_case(beam: int) -> Case:
    """Return the case of our overhead over CTranslate2."""
    return Case(
        f"ctranslate2: beam {beam}",
        f"A translator of base size in int8 through `translate`, with its text, over the library with its tokens; "
        f"{LINES} sentences of {TOKENS} tokens",
        "line",
        {"regard": partial(through_verbs, beam), "CTranslate2": partial(direct_ctranslate2, beam)},
        ("cpu",),
        goals={"CTranslate2": 1.05},
    )


CASES = [
    *(token_case(kind) for kind in KINDS),
    token_case("bpe", dropout=0.1),
    Case(
        "load: GPT-2 124M",
        "A Hugging Face folder in float32, with all weights touched: ready to decode; the model alone; peers the same",
        "call",
        {
            "regard": our_load,
            "regard, model alone": hub_load,
            "reading the file": read_file,
            "Hugging Face": their_load,
        },
        ("cpu",),
        goals={"reading the file": 1.2, "Hugging Face": 1.2},
        floor=Floor(bytes=2.0 * 498e6),
    ),
    *(ctranslate2_case(beam) for beam in (1, 4)),
]

os.environ.setdefault("HF_HUB_OFFLINE", "1")
