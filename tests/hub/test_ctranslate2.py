"""CTranslate2 runs the models that are written for it, with the same greedy output as our own search."""

import sys

import ctranslate2
import pytest
import torch

import regard
from regard.decode.beam import beam_search
from regard.decode.engine import Given, eager, in_use
from regard.errors import ConfigError, RegardError
from regard.hub.ctranslate2 import QUANTIZATIONS, TokenNames, ctranslate2_obstacle, write_ctranslate2

VOCABULARY = 40
START, END, UNKNOWN = 2, 3, 1
SMALL = [f"model.vocabulary={VOCABULARY}", "model.dim=32"]
SIDES = [*SMALL, *(f"model.{side}.depth=2" for side in ("encoder", "decoder"))]
HEADS = [
    f"model.{side}.layers.block.{part}.heads.heads=4" for side, part in (("encoder", "mixer"), ("decoder", "mixer"))
]
HEADS += ["model.decoder.layers.block.cross.heads.heads=4"]
WIDE = [f"model.{side}.layers.block.feedforward.hidden=48" for side in ("encoder", "decoder")]
SCALED = ["model.decoder.layers.block.cross.score.kind=dot", "model.decoder.layers.block.cross.score.scale=0.9"]
BLOCK = "model.layers.block"
GPT2 = [*SMALL, "model.depth=2", f"{BLOCK}.mixer.heads.heads=4", f"{BLOCK}.feedforward.hidden=48"]
LLAMA = [*GPT2, f"{BLOCK}.mixer.heads.kv_heads=2", f"{BLOCK}.mixer.position.scaling=none"]
EPS = f"{BLOCK}.mixer.heads.qk_norm.eps=1e-5"
POSITIONS = [*GPT2, "model.embed.position.length=64"]
CASES = {
    "translator": ("translator", [*SIDES, *HEADS, *WIDE]),
    "post-norm": ("transformer-base", [*SIDES, *HEADS, *WIDE]),
    "gelu": ("translator", [*SIDES, *HEADS, *WIDE, "model.decoder.layers.block.feedforward.activation=gelu"]),
    "a norm on the embedding": ("translator", [*SIDES, *HEADS, *WIDE, "model.embed.norm.kind=layer"]),
    "another scale": ("translator", [*SIDES, *HEADS, *WIDE, *SCALED]),
    "uneven": ("translator", [*SIDES, *HEADS, *WIDE, "model.encoder.depth=3", "model.decoder.depth=1"]),
    "untied": ("translator", [*SIDES, *HEADS, *WIDE, "model.head.tied=false", "model.head.bias=true"]),
    "gpt2": ("gpt2", POSITIONS),
    "gpt2 capped": ("gpt2", [*POSITIONS, "model.head.cap=3.0"]),
    "gpt2 without biases": ("gpt2", [*POSITIONS, f"{BLOCK}.mixer.heads.bias=no", f"{BLOCK}.feedforward.bias=false"]),
    "llama": ("llama-like", LLAMA),
    "normed queries": ("llama-like", [*LLAMA, f"{BLOCK}.mixer.heads.qk_norm.kind=rms", EPS]),
    "interleaved": ("llama-like", [*LLAMA, f"{BLOCK}.mixer.position.layout=interleaved"]),
    "wide heads": ("llama-like", [*LLAMA, f"{BLOCK}.mixer.heads.head_dim=6"]),
}
NAMES = TokenNames([f"w{id}" for id in range(VOCABULARY)], f"w{START}", f"w{END}", f"w{UNKNOWN}")


def made(name):
    recipe, changes = CASES[name]
    model = regard.build(recipe, *changes, seed=0).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn(parameter.shape, generator=generator)
    return model


def rows(count=4):
    generator = torch.Generator().manual_seed(2)
    return [torch.randint(5, VOCABULARY, (length,), generator=generator).tolist() for length in (9, 4, 6, 1)[:count]]


def ours(model, row, tokens):
    """Return the output of our greedy search."""
    pair = hasattr(model, "decoder")
    given = Given(torch.tensor([[START]]), None, torch.tensor([row])) if pair else Given(torch.tensor([row]))
    with in_use(model):
        [[best]] = beam_search(eager(model), given, end=END, limits=[tokens], beam=1)
    return best.ids


def names(ids):
    return [f"w{id}" for id in ids]


def theirs(folder, pair, given, tokens, **options):
    """What the library writes."""
    if pair:
        translator = ctranslate2.Translator(str(folder), **options)
        found = translator.translate_batch(list(map(names, given)), beam_size=1, max_decoding_length=tokens)
        return [[int(token[1:]) for token in result.hypotheses[0]] for result in found]
    generator = ctranslate2.Generator(str(folder), **options)
    settings = {"max_length": tokens, "include_prompt_in_result": False, "sampling_topk": 1}
    return [generator.generate_batch([names(row)], **settings)[0].sequences_ids[0] for row in given]


@pytest.mark.parametrize("name", CASES)
def test_token_by_token_the_same(name, tmp_path):
    model = made(name)
    assert ctranslate2_obstacle(model.config) is None
    write_ctranslate2(model, NAMES, tmp_path / "out")
    wanted = [ours(model, row, 12) for row in rows()]
    assert theirs(tmp_path / "out", hasattr(model, "decoder"), rows(), 12) == wanted
    assert len({tuple(row) for row in wanted}) > 1


@pytest.mark.parametrize("quantization", [kind for kind in QUANTIZATIONS if kind != "float32"])
@pytest.mark.parametrize("name", ["translator", "gpt2", "llama"])
def test_smaller_weights_run(name, quantization, tmp_path):
    model = made(name)
    write_ctranslate2(model, NAMES, tmp_path / "small", quantization)
    write_ctranslate2(model, NAMES, tmp_path / "whole")
    small, whole = ((tmp_path / folder / "model.bin").stat().st_size for folder in ("small", "whole"))
    assert small < 0.75 * whole
    found = theirs(tmp_path / "small", hasattr(model, "decoder"), rows(), 8)
    assert all(0 < len(row) <= 8 for row in found)


@pytest.mark.parametrize(
    ("recipe", "changes", "message"),
    [
        ("bert", [], "model: CTranslate2 runs encoder-decoder and decoder-only Transformers; this is neither"),
        ("rnn-attention", [], "model: CTranslate2 runs encoder-decoder and decoder-only Transformers; this is neither"),
        (
            "lstm",
            ["model.layers.recurrent.residual=pre", "model.layers.recurrent.norm.kind=layer"],
            "mixer: LSTM is not supported by CTranslate2, only Attention",
        ),
        ("conv", [], "model.layers.block.mixer: Convolution is not supported by CTranslate2, only Attention"),
        ("deepseek-like", [], "model.layers: CTranslate2 supports one kind of layer per stack"),
        ("writer", [], "model.layers.block.feedforward.activation: 'relu2' is not supported by CTranslate2"),
        ("llama-like", [], "mixer.position.scaling: Llama3Scaling.* is not supported by CTranslate2, only none"),
        ("gpt2", [f"{BLOCK}.residual=parallel"], "residual: 'parallel' is not supported by CTranslate2, only 'pre' or"),
        (
            "gpt2",
            [f"{BLOCK}.mixer.score.kind=additive"],
            "mixer.score: Additive is not supported by CTranslate2",
        ),
        (
            "gpt2",
            [f"{BLOCK}.mixer.score.kind=dot", f"{BLOCK}.mixer.score.cap=3.0"],
            "mixer.score.cap: 3.0 is not supported by CTranslate2, only none",
        ),
        (
            "gpt2",
            [f"{BLOCK}.mixer.position.kind=alibi"],
            "mixer.position: Alibi is not supported by CTranslate2",
        ),
        ("gpt2", [f"{BLOCK}.mixer.window=5"], "mixer.window: 5 is not supported by CTranslate2, only none"),
        ("gpt2", [f"{BLOCK}.residual=post"], "model.norm: CTranslate2 requires a norm after the last"),
        ("gpt2", ["model.norm.eps=1e-3"], "model: CTranslate2 supports one kind of norm, with one eps, per model"),
        ("translator", ["model.source_vocabulary=9"], "model.source_vocabulary: 9 is not supported by CTranslate2"),
        ("translator", ["model.shared=tokens"], "model.shared: 'tokens' is not supported by CTranslate2, only 'all'"),
    ],
)
def test_unsupported_models_are_rejected(recipe, changes, message, tmp_path):
    config = regard.load_recipe(recipe, *changes).model
    assert ctranslate2_obstacle(config) is not None
    model = regard.build(recipe, *changes, device="meta")
    with pytest.raises(ConfigError, match=message):
        write_ctranslate2(model, NAMES, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_without_the_library(monkeypatch, tmp_path):
    model = made("gpt2")
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    with pytest.raises(RegardError, match=r"ctranslate2 is not installed; install it with `pip install"):
        write_ctranslate2(model, NAMES, tmp_path / "out")
