"""CTranslate2 through `LoadedModel.translate` against calling it directly on the same tokens: our overhead.

`python -m bench.ctranslate2`: a translator of base size with random weights in int8, sentences of 20 tokens, greedy and
four beams. Random weights rarely end a sentence, so with sentences of one length both sides write equally much.
"""

import os
import random
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch

from bench.timing import Row, milliseconds, show
from regard.data.tokenizer import TokenizerConfig, train_tokenizer
from regard.models.recipe import build
from regard.models.store import save_model
from regard.use.convert import convert
from regard.use.load import LoadedModel, load
from regard.use.translate import SPARE

LINES, TOKENS = 64, 20
GOAL = 1.05


def made_up_words(count: int) -> list[str]:
    """Return made-up words."""
    rng = random.Random(0)
    return ["".join(rng.choices("abcdefghijklmnop", k=rng.randint(2, 8))) for _ in range(count)]


def write_run(folder: Path) -> list[str]:
    """Write the folder of a finished `regard train translation`; return sentences for it."""
    rng, words = random.Random(1), made_up_words(4000)
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


def direct(model: LoadedModel, lines: list[str], beam: int, batch_tokens: int) -> Callable[[], object]:
    """Return a direct call of the library, which sorts and batches by tokens; the text is tokenised beforehand."""
    library, tokenizer = model.bundle.external.model, model.bundle.need_tokenizer()  # type: ignore[union-attr]
    names = tokenizer.names(model.model.config.vocabulary)
    rows = [[*(names[id] for id in ids), names[tokenizer.end]] for ids in tokenizer.encode(lines)]
    longest = max(map(len, rows)) + SPARE

    def run() -> None:
        library.translate_batch(
            rows,
            beam_size=beam,
            length_penalty=0.6,
            max_batch_size=batch_tokens,
            batch_type="tokens",
            max_decoding_length=longest,
        )

    return run


def rows() -> list[Row]:
    """Compare ours on the text, tokenising included, with theirs on the tokens."""
    found = []
    with tempfile.TemporaryDirectory() as name:
        os.environ["REGARD_CACHE"] = name
        lines = write_run(Path(name) / "run")
        convert(Path(name) / "run", "ctranslate2", Path(name) / "out", quantization="int8")
        model = load(Path(name) / "out", "cpu")
        for beam in (1, 4):

            def ours(beam: int = beam) -> None:
                model.translate(lines, beam=beam, longest_ratio=1.0)

            calls = {"ours": ours, "theirs": direct(model, lines, beam, 8192 // beam)}
            times = milliseconds(calls, "cpu", repeats=7)
            what = f"base int8, {LINES} lines, {'greedy' if beam == 1 else f'beam {beam}'}"
            assert len(lines) == LINES
            found.append(Row("ctranslate2", what, "calling it directly", times["ours"], times["theirs"], GOAL))
    return found


if __name__ == "__main__":
    torch.set_num_threads(min(4, os.cpu_count() or 1))
    show(rows())
