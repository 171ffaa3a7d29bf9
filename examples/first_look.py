"""A first look: one attention computed by hand, then a small Transformer that learns to write words backwards.

Run it with `python examples/first_look.py`; add `playground` for another word of ten letters.
"""

import sys

import torch

import regard
from regard.parts.attention import Attention
from regard.parts.heads import MultiHeads
from regard.parts.score import Dot


def by_hand() -> None:
    """Compute self-attention over three inputs of width four, with weights small enough to check on paper."""
    attention = Attention(MultiHeads(4, heads=1, head_dim=3), Dot(3, scale=1.0))
    weights = {
        "to_key": [[0, 0, 1], [1, 1, 0], [0, 1, 0], [1, 1, 0]],
        "to_value": [[0, 2, 0], [0, 3, 0], [1, 0, 3], [1, 1, 0]],
        "to_query": [[1, 0, 1], [1, 0, 0], [0, 0, 1], [0, 1, 1]],
    }
    for name, matrix in weights.items():
        getattr(attention.heads, name).weight.data = torch.tensor(matrix, dtype=torch.float32).T
    inputs = torch.tensor([[[1.0, 0, 1, 0], [0, 2, 0, 2], [1, 1, 1, 1]]])
    with regard.watch(attention) as tape:
        attention(inputs)
    record = tape[""][0]
    query, key, value = (part[0, 0] for part in (record.query, record.key, record.value))
    print("Self-attention by hand: three inputs, one head, no scaling")
    print(f"  query of the first input  {query[0].tolist()}")
    print(f"  keys                      {key.tolist()}")
    print(f"  scores q.k                {(key @ query[0]).tolist()}")
    print(f"  weights = softmax         {[round(weight, 3) for weight in record.weights[0, 0, 0].tolist()]}")
    print(f"  output = weights x values {[round(x, 3) for x in (record.weights[0, 0, 0] @ value).tolist()]}")


LETTERS = "abcdefghijklmnopqrstuvwxyz"
START = len(LETTERS)


def backwards(word: str, steps: int = 400) -> None:
    """Train a small Transformer for a few seconds to write words backwards, then print where it looks."""
    side = ["depth=1", "layers.block.feedforward.hidden=128", "layers.block.mixer.heads.heads=1"]
    changes = [f"model.{stack}.{change}" for stack in ("encoder", "decoder") for change in side]
    changes += ["model.vocabulary=27", "model.dim=64", "model.decoder.layers.block.cross.heads.heads=1"]
    torch.manual_seed(0)
    model = regard.build("transformer-base", *changes, seed=0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    print(f"\nA Transformer of {regard.cost(model).parameters:,} weights learns to write words backwards")
    for step in range(1, steps + 1):
        source = torch.randint(len(LETTERS), (64, 10))
        target = source.flip(1)
        begin = torch.full((64, 1), START)
        logits = model(source, torch.cat((begin, target[:, :-1]), 1))
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(f"  step {step}  loss {loss:.3f}")
    write(model.eval(), word)


@torch.no_grad()
def write(model: torch.nn.Module, word: str) -> None:
    """Write the word backwards letter by letter, and print the attention to the source."""
    source = torch.tensor([[LETTERS.index(letter) for letter in word]])
    state, letter, written = model.start(source), START, ""
    with regard.watch(model, "decoder.*.cross") as tape:
        for _ in word:
            logits, state = model.step(torch.tensor([[letter]]), state)
            letter = int(logits[:, :START].argmax())
            written += LETTERS[letter]
    print(f"\n  {word} -> {written}   (rows: letters written; columns: letters looked at)\n")
    print("      " + " ".join(word))
    for made, row in zip(written, tape.weights("decoder.layers.0.cross")[0, 0], strict=True):
        print(f"    {made} " + " ".join(" .:+*#@"[round(float(weight) * 6)] for weight in row))


if __name__ == "__main__":
    words = ["".join(letter for letter in word.lower() if letter in LETTERS)[:10] for word in sys.argv[1:]]
    by_hand()
    backwards(next((word for word in words if len(word) == 10), "lookinside"))
