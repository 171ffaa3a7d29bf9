"""Peak memory of learning a tokenizer, tokenising and reading batches; it must not grow with the file.

`python -m bench.memory` makes a text file of 1 GB in a temporary folder, runs each stage as a process of its own and
prints the peak resident memory of the process. The goal is 1.5 GB, whatever the size of the file.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path

import numpy as np
import torch

from bench.cases.data import made_up
from regard.data.cache import CacheKey
from regard.data.corpus import CorpusWriter, cached_corpus
from regard.data.read import Skipped, read_documents
from regard.data.tokenizer import TokenizerConfig, load_tokenizer, train_tokenizer

GOAL = 1.5  # GB
STAGES = ("learn", "tokenise", "read")
WINDOW, BATCH, BATCHES, RELEASE = 1024, 64, 2000, 100


def write_text(path: Path, gigabytes: float) -> None:
    """Fill a file with made-up words; each block has its words in another order."""
    words = np.array(" ".join(made_up(20_000)).split())
    rng = np.random.default_rng(0)
    with path.open("w", encoding="utf-8") as file:
        while file.tell() < gigabytes * 1e9:
            lines = rng.permutation(words).reshape(-1, 20)
            file.write("\n".join(map(" ".join, lines)) + "\n")


def learn(path: Path, kind: str) -> None:
    texts = (piece.text for piece in read_documents(path, Skipped()))
    train_tokenizer(texts, TokenizerConfig(kind=kind)).save(path.parent / kind)


def tokenise(path: Path, kind: str) -> None:
    tokenizer = load_tokenizer(path.parent / kind)
    pieces = read_documents(path, Skipped())

    def write(writer: CorpusWriter) -> None:
        while chunk := list(islice(pieces, 64)):
            for piece, ids in zip(chunk, tokenizer.encode([piece.text for piece in chunk]), strict=True):
                writer.add_piece(ids, ends=piece.ends)

    cached_corpus(CacheKey({"text": [path]}, {"kind": kind}), write)


def read(path: Path, kind: str) -> None:
    corpus = cached_corpus(CacheKey({"text": [path]}, {"kind": kind}), lambda writer: None)
    torch.set_num_threads(1)  # small gathers gain nothing from more
    rng = np.random.default_rng(0)
    for batch in range(BATCHES):
        starts = rng.integers(0, corpus.tokens - WINDOW, BATCH)
        corpus.windows(starts, WINDOW)
        corpus.row_at(starts, WINDOW)
        if batch % RELEASE == 0:
            corpus.release()


def stage(name: str, kind: str, path: Path) -> None:
    """Run one stage in this process and print its memory and time."""
    begin = time.perf_counter()
    {"learn": learn, "tokenise": tokenise, "read": read}[name](path, kind)
    gigabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    missed = "" if gigabytes <= GOAL else "  missed"
    print(f"{name:10}{kind:8}{gigabytes:8.2f} GB{time.perf_counter() - begin:9.1f} s{missed}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Peak memory of each stage from a text file to batches.")
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--stage", nargs=3, metavar=("STAGE", "KIND", "FILE"), help="run one stage only, here")
    options = parser.parse_args()
    if options.stage:
        name, kind, path = options.stage
        return stage(name, kind, Path(path))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "text.txt"
        write_text(path, options.gigabytes)
        print(f"a text of {path.stat().st_size / 1e9:.2f} GB; goal {GOAL} GB of memory")
        for kind in ("bpe", "char"):
            for name in STAGES:
                command = [sys.executable, "-m", "bench.memory", "--stage", name, kind, str(path)]
                subprocess.run(command, check=True, env=os.environ | {"REGARD_CACHE": folder})
    return None


if __name__ == "__main__":
    main()
