"""Decoding, as a user runs it, against Hugging Face's `generate` and CTranslate2.

`python -m bench.decode` on the CPU: Transformer base, 24 source tokens, 32 new ones, one sentence and 32, greedy and
four beams; ours in float32 and in int8, Hugging Face's in float32, CTranslate2 in both. On CUDA in
bfloat16: GPT-2 124M, 32 tokens given and 256 new, and Transformer base, 64 source tokens and 64 new.

No text ends early: the weights are random, and the end token is forbidden everywhere.
"""

import tempfile
import time
from collections.abc import Callable
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bench.timing import Row, Works, milliseconds, milliseconds_apart, show
from regard.decode.beam import beam_search
from regard.decode.choose import Sampling
from regard.decode.engine import Engine, Given, eager, in_use
from regard.decode.sample import sample_all
from regard.decode.static import captured, compiled
from regard.hub.ctranslate2 import TokenNames, write_ctranslate2
from regard.models.model import StepModel
from regard.models.recipe import build
from regard.use.precision import prepare

PAD, END, START = 1, 2, 3
VOCABULARY = 32000
BASE = ("transformer-base", f"model.vocabulary={VOCABULARY}")


def prepared(device: str, *recipe: str, precision: str = "auto") -> StepModel:
    """Build a model as `regard.load` prepares it."""
    model = prepare(build(*recipe).to(device), precision)
    assert isinstance(model, StepModel)
    return model


def translation(engine: Engine, model: StepModel, source: Tensor, tokens: int, beam: int) -> Callable[[], object]:
    """Return a call that translates all rows of the source into `tokens` tokens each."""
    given = Given(source.new_full((len(source), 1), START), None, source)

    def run() -> None:
        with in_use(model):
            beam_search(engine, given, end=END, limits=[tokens] * len(source), beam=beam, forbidden=(END,))

    return run


def their_translator(device: str, dtype: torch.dtype) -> Any:
    """Build Hugging Face's Marian in the size of Transformer base."""
    from transformers import MarianConfig, MarianMTModel

    sizes = {
        side + name: size
        for side in ("encoder_", "decoder_")
        for name, size in (("layers", 6), ("attention_heads", 8), ("ffn_dim", 2048))
    }
    tokens = {"pad_token_id": PAD, "eos_token_id": END, "bos_token_id": START, "decoder_start_token_id": START}
    config = MarianConfig(
        vocab_size=VOCABULARY, d_model=512, max_position_embeddings=512, forced_eos_token_id=None, **sizes, **tokens
    )
    return MarianMTModel(config).eval().to(device, dtype)


def their_translation(model: Any, source: Tensor, tokens: int, beam: int) -> Callable[[], object]:
    """Return a call that translates with `generate`."""

    @torch.no_grad()
    def run() -> None:
        model.generate(
            source,
            attention_mask=torch.ones_like(source),
            num_beams=beam,
            do_sample=False,
            min_new_tokens=tokens,
            max_new_tokens=tokens,
        )

    return run


def ctranslate2_translation(folder: Path, kind: str, source: Tensor, tokens: int, beam: int) -> Callable[[], object]:
    """Return a call that translates with CTranslate2, in float32 or int8."""
    import ctranslate2

    translator = ctranslate2.Translator(str(folder), compute_type=kind, inter_threads=1, intra_threads=2)
    rows = [[str(token) for token in row] for row in source.tolist()]

    def run() -> None:
        translator.translate_batch(rows, beam_size=beam, min_decoding_length=tokens, max_decoding_length=tokens)

    return run


SETTINGS = {  # rows and beams
    "batch 1, greedy": (1, 1),
    "batch 1, beam 4": (1, 4),
    "batch 32, greedy": (32, 1),
    "batch 32, beam 4": (32, 4),
}


def cpu_source(batch: int) -> Tensor:
    """Return the source sentences of all comparisons on the CPU."""
    return torch.randint(5, VOCABULARY, (batch, 24), generator=torch.Generator().manual_seed(0))


def by_regard(precision: str) -> Works:
    """Return the translations by regard, one call for each setting."""
    model = prepared("cpu", *BASE, precision=precision)
    return {
        name: translation(eager(model), model, cpu_source(batch), 32, beam) for name, (batch, beam) in SETTINGS.items()
    }


def by_hugging_face() -> Works:
    """Return the translations by Hugging Face, one call for each setting."""
    model = their_translator("cpu", torch.float32)
    return {name: their_translation(model, cpu_source(batch), 32, beam) for name, (batch, beam) in SETTINGS.items()}


def by_ctranslate2(folder: Path, precision: str) -> Works:
    """Return the translations by CTranslate2, one call for each setting."""
    return {
        name: ctranslate2_translation(folder, precision, cpu_source(batch), 32, beam)
        for name, (batch, beam) in SETTINGS.items()
    }


def cpu_rows() -> list[Row]:
    """Compare Transformer base on the CPU. CTranslate2 on the same model is shown without a goal."""
    names = TokenNames([str(token) for token in range(VOCABULARY)], str(START), str(END), "0")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "model"
        write_ctranslate2(prepared("cpu", *BASE, precision="float32"), names, folder)
        makers = {
            "float32": partial(by_regard, "float32"),
            "int8": partial(by_regard, "int8"),
            "Hugging Face float32": by_hugging_face,
            "CTranslate2 float32": partial(by_ctranslate2, folder, "float32"),
            "CTranslate2 int8": partial(by_ctranslate2, folder, "int8"),
        }
        found = milliseconds_apart(makers, rounds=3)
    peers = {"Hugging Face float32": 0.5, "CTranslate2 float32": inf, "CTranslate2 int8": inf}
    return [
        Row("decode", f"base, {setting}, {precision}", peer, found[precision][setting], found[peer][setting], goal)
        for setting in SETTINGS
        for precision in ("float32", "int8")
        for peer, goal in peers.items()
    ]


def cuda_rows() -> list[Row]:
    """Compare GPT-2 and Transformer base on CUDA with earlier measurements of Hugging Face (tokens per second)."""
    gpt, base = prepared("cuda", "gpt2"), prepared("cuda", *BASE)
    source = torch.randint(5, VOCABULARY, (64, 64), device="cuda")
    works: list[tuple[str, int, float, Callable[[], object]]] = []
    engine = compiled(gpt)
    for batch, theirs in ((1, 436), (64, 31_900)):
        prompt = torch.randint(5, VOCABULARY, (batch, 32), device="cuda")
        works.append(
            (f"GPT-2 124M, batch {batch}, greedy", 256 * batch, theirs, continuation(engine, gpt, prompt, 256))
        )
    engine = captured(base)
    for rows, beam, theirs in ((1, 1, 260), (64, 1, 14_900), (64, 4, 12_100)):
        what = f"base, batch {rows}, {'greedy' if beam == 1 else f'beam {beam}'}"
        works.append((what, 64 * rows, theirs, translation(engine, base, source[:rows], 64, beam)))
    found = []
    for what, tokens, theirs, work in works:
        begin = time.perf_counter()
        work()
        torch.cuda.synchronize()
        first = time.perf_counter() - begin
        ours = milliseconds({"ours": work}, "cuda", repeats=7)["ours"]
        print(f"{what}: {1000 * tokens / ours:,.0f} tokens/s; the first call took {first:.1f} s")
        goal = {"GPT-2 124M, batch 1, greedy": 436 / 2200, "base, batch 64, beam 4": 12_100 / 36_000}.get(what, 0.5)
        found.append(Row("decode", what, "Hugging Face (measured)", ours, 1000 * tokens / theirs, goal))
    return found


def continuation(engine: Engine, model: StepModel, prompt: Tensor, tokens: int) -> Callable[[], object]:
    """Return a call that continues all prompts greedily by `tokens` tokens."""
    count = len(prompt)

    def run() -> None:
        options = {"limits": [tokens] * count, "seeds": [0] * count, "sampling": Sampling(temperature=0.0)}
        with in_use(model):
            sample_all(engine, Given(prompt), end=END, forbidden=(END,), **options)

    return run


def rows(device: str) -> list[Row]:
    """Return all comparisons on a device."""
    return cpu_rows() if device == "cpu" else cuda_rows()


if __name__ == "__main__":
    torch.set_float32_matmul_precision("high")
    show(rows("cuda" if torch.cuda.is_available() else "cpu"))
