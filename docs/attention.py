"""Draw the attention pictures of the documentation: `python docs/attention.py`.

They show a translator that is trained in half a minute on the sentences of examples/tiny_translator.py. The sentence in
the pictures is not in its training data.
"""

import random
import runpy
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from rich.console import Console

import regard
from regard import draw
from regard.use.load import LoadedModel

HERE = Path(__file__).parent
SENTENCE = "im Sommer hat Anna sieben grüne Bücher gekauft"
CHANGES = ["tokenizer.kind=word", "model.dim=64", "model.encoder.depth=2", "model.decoder.depth=2"]
CHANGES += ["train.steps=300", "train.tokens=1024", "train.validate_every=150", "train.average=0"]


def train(folder: Path) -> LoadedModel:
    """Train on one sentence in ten of the grammar."""
    sentences = runpy.run_path(str(HERE.parent / "examples" / "tiny_translator.py"))["grammar"]()
    random.Random(0).shuffle(sentences)
    known = [pair for pair in sentences[: len(sentences) // 10] if pair[0] != SENTENCE]
    for side, name in enumerate(("de", "en")):
        (folder / name).write_text("".join(f"{pair[side]}\n" for pair in known), encoding="utf-8")
    task = {"kind": "translation", "source": [str(folder / "de")], "target": [str(folder / "en")]}
    regard.train(task, *CHANGES, run=folder / "run", device="cpu", console=Console(quiet=True))
    return regard.load(folder / "run", device="cpu")


@torch.no_grad()
def translate_and_watch(ready: LoadedModel) -> tuple[list[np.ndarray], list[str], list[str]]:
    """Translate the sentence; return the cross-attention of each layer (H x T x S) and the words of both languages."""
    source, target = (ready.tokenizer.encode([text])[0] for text in (SENTENCE, ready.translate([SENTENCE])[0]))
    read = torch.tensor([[*ready.bundle.template.before, *source, *ready.bundle.template.after]])
    written = torch.tensor([[ready.bundle.first, *target]])  # position i predicts word i
    with regard.watch(ready.model, "decoder.*.cross") as tape:
        ready.model(read, written)
    layers = [tape.weights(name)[0, :, : len(target)].numpy() for name in tape]
    return layers, ready.tokenizer.pieces(target), ready.tokenizer.pieces(read[0].tolist())


if __name__ == "__main__":
    with TemporaryDirectory() as temporary:
        ready = train(Path(temporary))
    layers, written, source = translate_and_watch(ready)
    heads = np.ndindex(len(layers), len(layers[0]))
    layer, head = max(heads, key=lambda index: layers[index[0]][index[1]].max(-1).mean())  # the sharpest head
    weights, title = layers[layer][head], f"L{layer + 1}.H{head + 1} · cross-attention"
    draw.write_figure(draw.alignment(weights, written, source, title=title), HERE / "alignment.svg")
    draw.write_figure(
        draw.alignment(weights, written, source, title=title, look=draw.DARK), HERE / "alignment-dark.svg"
    )
    draw.write_figure(draw.heatmap(weights, written, source, title=title), HERE / "attention.svg")
    draw.write_figure(draw.heads(layers, title="cross-attention of all heads"), HERE / "heads.svg")
