"""How long a change in the viewer takes: python -m bench.interventions. A model of 6 layers reads 30 tokens."""

import time

import torch

import regard
from regard.viewer.query import Query
from regard.viewer.record import record

REPEATS = 7


def main() -> None:
    """Print the median time of a change, for a language model and a translator, with everything the page fetches."""
    texts = {"gpt2": None, "transformer-base": list(range(5, 35))}
    for recipe, target in texts.items():
        sizes = ["model.vocabulary=8000"]
        sizes += ["model.depth=6"] if target is None else []
        model = regard.build(recipe, *sizes).eval()
        first = "self.1" if target is None else "encoder.1"
        live = record(model, Query(list(range(5, 35)), target, tokens=0))
        live.manifest()
        change = [{"place": first, "heads": [0], "attention": "zero"}]
        times = []
        for _ in range(REPEATS):
            began = time.perf_counter()
            changed, _ = live.change(change)
            manifest = changed.manifest()
            changed.blob("overview/0.u8")
            changed.blob("next/3.f32")
            times.append(time.perf_counter() - began)
        heads = sum(one["heads"] for one in manifest["attentions"])
        middle = sorted(times)[REPEATS // 2]
        print(
            f"{recipe}: 6 layers, 30 tokens, {heads} heads, {torch.get_num_threads()} threads: {middle * 1000:.0f} ms"
        )


if __name__ == "__main__":
    main()
