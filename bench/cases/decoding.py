"""Decoding, as a person runs it, against Hugging Face's `generate` and CTranslate2.

No text ends early: the weights are random, and the end token is forbidden everywhere. All contestants have the weights
of one model, in the formats that `regard convert` writes, and must write the same tokens.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from bench.case import Case, Floor, Prepared, Setting
from regard.decode.beam import beam_search
from regard.decode.choose import Sampling
from regard.decode.engine import Given, eager, in_use
from regard.decode.sample import sample_all
from regard.decode.static import captured, compiled
from regard.hub.ctranslate2 import TokenNames, write_ctranslate2
from regard.hub.folder import save_huggingface
from regard.models.model import Model, StepModel
from regard.models.recipe import build
from regard.use.precision import prepare

PAD, END, START = 1, 2, 3
VOCABULARY = 32000
BASE = (  # as Marian has it: with biases, and sines before cosines
    "transformer-base",
    *(f"model.vocabulary={VOCABULARY}", "model.embed.position.layout=halves", "model.head.bias=true"),
    *(f"model.{place}.heads.bias=all" for place in ("encoder.layers.block.mixer", "decoder.layers.block.mixer")),
    "model.decoder.layers.block.cross.heads.bias=all",
)
WEIGHTS = 6 * (3 * 4 * 512**2 // 2 + 2 * 512 * 2048) + VOCABULARY * 512  # that a step of the decoder reads
SHOWN = 8  # tokens of the first row that are compared


def built(recipe: Sequence[str]) -> Model:
    """Build the model of all contestants; rounded to bfloat16, so that it is the same in any precision."""
    return build(*recipe, seed=0).to(torch.bfloat16).float()


def prepared(recipe: Sequence[str], device: str, precision: str) -> StepModel:
    """Build a model as `regard.load` prepares it."""
    model = prepare(built(recipe).to(device), precision)
    assert isinstance(model, StepModel)
    return model


def random_rows(rows: int, tokens: int, device: str) -> Tensor:
    """Return the texts of all contestants."""
    return torch.randint(5, VOCABULARY, (rows, tokens), generator=torch.Generator().manual_seed(0)).to(device)


def written(tokens: Sequence[int]) -> dict[str, float]:
    """Return the first tokens of a text as facts."""
    return {f"token {number}": float(token) for number, token in enumerate(list(tokens)[:SHOWN])}


# --- translation -----------------------------------------------------------------------------------------------------


def our_translation(rows: int, beam: int, source: int, new: int, precision: str, setting: Setting) -> Prepared:
    model = prepared(BASE, setting.device, precision)
    engine = (captured if setting.device == "cuda" else eager)(model)
    texts = random_rows(rows, source, setting.device)
    given = Given(texts.new_full((rows, 1), START), None, texts)

    def run() -> Any:
        with in_use(model):
            return beam_search(engine, given, end=END, limits=[new] * rows, beam=beam, forbidden=(END,))

    exact = precision != "int8"
    return Prepared(run, rows * new, written(run()[0][0].ids) if exact else {})


def their_translation(rows: int, beam: int, source: int, new: int, setting: Setting) -> Prepared:
    from transformers import AutoModelForSeq2SeqLM

    save_huggingface(built(BASE), setting.folder / "model")
    dtype = torch.bfloat16 if setting.device == "cuda" else torch.float32
    model = AutoModelForSeq2SeqLM.from_pretrained(setting.folder / "model", dtype=dtype).eval().to(setting.device)
    texts = random_rows(rows, source, setting.device)
    start = texts.new_full((rows, 1), START)

    @torch.no_grad()
    def run() -> Tensor:
        return model.generate(
            texts,
            attention_mask=torch.ones_like(texts),
            decoder_input_ids=start,
            num_beams=beam,
            do_sample=False,
            min_new_tokens=new,
            max_new_tokens=new,
            decoder_start_token_id=START,
            pad_token_id=PAD,
            eos_token_id=END,
        )

    return Prepared(run, rows * new, written(run()[0, 1:].tolist()))


def ctranslate2_translation(rows: int, beam: int, source: int, new: int, precision: str, setting: Setting) -> Prepared:
    import ctranslate2

    names = TokenNames([str(token) for token in range(VOCABULARY)], str(START), str(END), "0")
    write_ctranslate2(prepared(BASE, "cpu", "float32"), names, setting.folder / "model")
    settings = {"compute_type": precision, "inter_threads": 1, "intra_threads": setting.threads}
    translator = ctranslate2.Translator(str(setting.folder / "model"), **settings)
    texts = [[str(token) for token in row] for row in random_rows(rows, source, "cpu").tolist()]

    def run() -> Any:
        return translator.translate_batch(texts, beam_size=beam, min_decoding_length=new, max_decoding_length=new)

    found = [int(token) for token in run()[0].hypotheses[0]]
    return Prepared(run, rows * new, {} if precision == "int8" else written(found))


def translation_case(rows: int, beam: int, device: str) -> Case:
    """Return the case of Transformer base with some rows and beams."""
    source, new = (24, 32) if device == "cpu" else (64, 64)
    sizes = (rows, beam, source, new)
    theirs = {"Hugging Face": partial(their_translation, *sizes)}
    search = "greedy" if beam == 1 else f"beam {beam}"
    about = f"Transformer base, {rows} x {source} source tokens, {new} new ones each, {search}"
    if device == "cuda":
        return Case(
            f"translate: base, batch {rows}, {search}",
            f"{about}, bfloat16",
            "token",
            {"regard": partial(our_translation, *sizes, "bfloat16"), **theirs},
            ("cuda",),
            goals={"Hugging Face": 0.5},
            floor=Floor(2.0 * WEIGHTS, 2.0 * WEIGHTS / rows),
        )
    peers = {f"CTranslate2, {kind}": partial(ctranslate2_translation, *sizes, kind) for kind in ("float32", "int8")}
    ours = {f"regard, {kind}": partial(our_translation, *sizes, kind) for kind in ("float32", "int8")}
    return Case(
        f"translate: base, batch {rows}, {search}",
        f"{about}; peers in float32 unless they say otherwise",
        "token",
        {**ours, **theirs, **peers},
        ("cpu",),
        agree={f"token {number}": 0.0 for number in range(SHOWN)} if beam == 1 else {},
        goals={"regard, float32 / Hugging Face": 0.6, "regard, int8 / Hugging Face": 0.4},
        floor=Floor(2.0 * WEIGHTS * beam, 4.0 * WEIGHTS / rows),
        seconds=30.0,
    )


# --- language --------------------------------------------------------------------------------------------------------


def our_continuation(rows: int, prompt: int, new: int, setting: Setting) -> Prepared:
    model = prepared(("gpt2",), setting.device, "bfloat16")
    engine = compiled(model)
    texts = random_rows(rows, prompt, setting.device)
    options = {"limits": [new] * rows, "seeds": [0] * rows, "sampling": Sampling(temperature=0.0)}

    def run() -> Any:
        with in_use(model):
            return sample_all(engine, Given(texts), end=END, forbidden=(END,), **options)

    return Prepared(run, rows * new)


def their_continuation(rows: int, prompt: int, new: int, cache: str | None, setting: Setting) -> Prepared:
    from transformers import AutoModelForCausalLM

    save_huggingface(built(("gpt2",)), setting.folder / "model")
    model = AutoModelForCausalLM.from_pretrained(setting.folder / "model", dtype=torch.bfloat16)
    model = model.eval().to(setting.device)
    texts = random_rows(rows, prompt, setting.device)

    @torch.no_grad()
    def run() -> Tensor:
        settings = {"do_sample": False, "min_new_tokens": new, "max_new_tokens": new, "pad_token_id": END}
        return model.generate(
            texts, attention_mask=torch.ones_like(texts), cache_implementation=cache, eos_token_id=END, **settings
        )

    return Prepared(run, rows * new)


def continuation_case(rows: int) -> Case:
    """Return the case of GPT-2 with some rows."""
    sizes = (rows, 32, 256)
    return Case(
        f"generate: GPT-2 124M, batch {rows}",
        f"GPT-2 124M, {rows} x 32 tokens given, 256 new ones each, greedy, bfloat16",
        "token",
        {
            "regard": partial(our_continuation, *sizes),
            "Hugging Face, static cache": partial(their_continuation, *sizes, "static"),
            "Hugging Face": partial(their_continuation, *sizes, None),
        },
        ("cuda",),
        goals={"Hugging Face, static cache": 0.5, "Hugging Face": 0.5},
        floor=Floor(2.0 * 124e6, 2.0 * 124e6 / rows),
        seconds=40.0,
    )


CASES = [
    *(translation_case(rows, beam, "cpu") for rows in (1, 32) for beam in (1, 4)),
    *(translation_case(rows, beam, "cuda") for rows, beam in ((1, 1), (64, 1), (64, 4))),
    *(continuation_case(rows) for rows in (1, 64)),
]
