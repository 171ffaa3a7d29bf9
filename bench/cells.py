"""Quality of the recurrent recipes against the same cells in plain torch.

`python -m bench.cells data/tinyshakespeare/input.txt data/multi30k [CELL ...]` writes bench/recurrences/cells.json, and
`python -m bench --render` the table of docs/recurrences.md. Both sides have the same width, depth, data, tokens and
updates. Ours is `regard train language --recipe CELL`, or `regard train translation --recipe rnn-attention`, without
settings of its own. The plain model is an embedding, the cell and a linear layer (of the translator, the same layers)
with torch's own initial weights, trained by Adam with clipping, the same schedule and the same loss; the best of five
rates counts, chosen by the very loss that is reported, which favours it.
"""

import argparse
import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from datetime import UTC, datetime
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from bench.machine import describe_machine
from bench.recurrences_page import CELLS, OURS, read_cells

if TYPE_CHECKING:
    from regard.training.run import Run

WIDTH, UPDATES, ROWS, WINDOW = 256, 600, 8, 256
TRAINED = 0.9  # the share of the text that is trained on
PAIR_UPDATES, PAIR_TOKENS, VOCABULARY = 300, 2048, 4000  # of the translators
SMOOTHING = 0.1  # of the translators' targets in training, as it is the default of `regard train translation`
RATES = (1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2)
ATTENTIVE = "rnn-attention"
State = Tensor | tuple[Tensor, Tensor] | None


# --- the cells, in plain torch ---------------------------------------------------------------------------------------


class Mutant(nn.Module):
    """MUT1, MUT2 or MUT3 of Jozefowicz et al. 2015, token by token."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.x_z, self.x_r, self.x_h = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.h_z, self.h_r, self.h_h = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(3))

    def forward(self, x: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return all hidden states and the last one, in torch's shapes."""
        h = x.new_zeros(len(x), WIDTH) if state is None else state[0]
        states = []
        update, reset, candidate = self.x_z(x), self.x_r(x), self.x_h(x)
        for t, now in enumerate(x.unbind(1)):
            z = {"mut1": update[:, t], "mut2": update[:, t] + self.h_z(h), "mut3": update[:, t] + self.h_z(h.tanh())}
            r = torch.sigmoid((now if self.kind == "mut2" else reset[:, t]) + self.h_r(h))
            new = torch.tanh(self.h_h(r * h) + (now.tanh() if self.kind == "mut1" else candidate[:, t]))
            h = torch.lerp(h, new, torch.sigmoid(z[self.kind]))
            states.append(h)
        return torch.stack(states, 1), h[None]


PLAIN: dict[str, Callable[[], nn.Module]] = {
    "elman": partial(nn.RNN, WIDTH, WIDTH, batch_first=True),
    "lstm": partial(nn.LSTM, WIDTH, WIDTH, num_layers=2, batch_first=True),
    "gru": partial(nn.GRU, WIDTH, WIDTH, batch_first=True),
    **{kind: partial(Mutant, kind) for kind in ("mut1", "mut2", "mut3")},
}


class PlainWriter(nn.Module):
    """Embedding, cell, linear layer."""

    def __init__(self, letters: int, cell: str) -> None:
        super().__init__()
        self.embed = nn.Embedding(letters, WIDTH)
        self.cell = PLAIN[cell]()
        self.head = nn.Linear(WIDTH, letters)

    def forward(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """Return logits and the state after the last token."""
        out, state = self.cell(self.embed(tokens), state)
        return self.head(out), state


class PlainTranslator(nn.Module):
    """The encoder-decoder of Bahdanau et al. 2015: a GRU in both directions, a GRU cell, an additive score."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.source, self.target = nn.Embedding(vocabulary, WIDTH), nn.Embedding(vocabulary, WIDTH)
        self.encoder = nn.GRU(WIDTH, WIDTH // 2, batch_first=True, bidirectional=True)
        self.cell, self.first = nn.GRUCell(2 * WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.query, self.key, self.score = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 1)
        self.readout, self.head = nn.Linear(2 * WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, vocabulary)
        self.dropout = nn.Dropout(0.2)

    def forward(self, source: Tensor, target: Tensor, padding: int) -> Tensor:
        """Return the logits of each token after the target's first one."""
        real = source != padding
        states, _ = self.encoder(self.dropout(self.source(source)))
        keys = self.key(states)
        h = torch.tanh(self.first((states * real[..., None]).sum(1) / real.sum(1, keepdim=True)))
        outputs = []
        for token in self.dropout(self.target(target)).unbind(1):
            scores = self.score(torch.tanh(keys + self.query(h)[:, None])).squeeze(-1)
            weights = scores.masked_fill(~real, -torch.inf).softmax(-1)
            context = (weights[:, None] @ states).squeeze(1)
            h = self.cell(torch.cat([token, context], -1), h)
            outputs.append(torch.cat([h, context], -1))
        return self.head(self.dropout(torch.tanh(self.readout(torch.stack(outputs, 1)))))


# --- training them ---------------------------------------------------------------------------------------------------


def scheduled(rate: float, step: int, updates: int) -> float:
    """Return the rate of an update: warm-up, constant, linear cool-down."""
    return rate * min((step + 1) / 30, 1.0, (updates - step) / (0.6 * updates))


def update(optimizer: torch.optim.Optimizer, model: nn.Module, loss: Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


def lanes(ids: Tensor, rows: int) -> list[tuple[Tensor, Tensor]]:
    """Cut a text into parallel rows, and these into windows: inputs and what follows each."""
    length = (len(ids) - 1) // rows // WINDOW * WINDOW
    inputs, labels = (ids[first : first + rows * length].view(rows, length) for first in (0, 1))
    return list(zip(inputs.split(WINDOW, 1), labels.split(WINDOW, 1), strict=True))


def detached(state: State) -> State:
    """Cut the gradient (truncated backpropagation through time)."""
    if isinstance(state, tuple):
        return state[0].detach(), state[1].detach()
    return None if state is None else state.detach()


def write_plain(text: str, cell: str, rate: float) -> float:
    """Train a plain language model at one rate; return the validation loss."""
    letters = {letter: id for id, letter in enumerate(sorted(set(text)))}
    ids = torch.tensor([letters[letter] for letter in text])
    cut = int(TRAINED * len(ids))
    torch.manual_seed(0)
    model = PlainWriter(len(letters), cell)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    windows = lanes(ids[:cut], ROWS)
    state: State = None
    for step in range(UPDATES):
        optimizer.param_groups[0]["lr"] = scheduled(rate, step, UPDATES)
        inputs, labels = windows[step % len(windows)]
        logits, state = model(inputs, None if step % len(windows) == 0 else detached(state))
        update(optimizer, model, F.cross_entropy(logits.flatten(0, 1), labels.flatten()))
    losses, state = [], None
    with torch.no_grad():
        for inputs, labels in lanes(ids[cut:], ROWS):
            logits, state = model(inputs, state)
            losses.append(F.cross_entropy(logits.flatten(0, 1), labels.flatten()))
    return float(torch.stack(losses).mean())


def write_ours(text: str, cell: str) -> float:
    """Train the recipe as the command line does; return the validation loss."""
    import regard

    with tempfile.TemporaryDirectory() as folder:
        parts = [Path(folder, name) for name in ("train.txt", "valid.txt")]
        cut = int(TRAINED * len(text))
        for part, piece in zip(parts, (text[:cut], text[cut:]), strict=True):
            part.write_text(piece, encoding="utf-8")
        task = {"kind": "language", "train": [str(parts[0])], "valid": [str(parts[1])]}
        settings = [f"model.dim={WIDTH}", f"train.steps={UPDATES}", f"train.tokens={ROWS * WINDOW}"]
        return best_loss(regard.train(task, *settings, recipe=cell, run=f"{folder}/run"))


def translate_ours(pairs: Path) -> float:
    """Train our translator with attention, from German to English; return the validation loss."""
    import regard

    with tempfile.TemporaryDirectory() as folder:
        task = {"kind": "translation", **{key: [str(path)] for key, path in files(pairs).items()}}
        settings = [f"model.dim={WIDTH}", f"train.steps={PAIR_UPDATES}", f"train.tokens={PAIR_TOKENS}"]
        tokenizer = ["tokenizer.kind=bpe", f"tokenizer.vocabulary={VOCABULARY}"]
        return best_loss(regard.train(task, *settings, *tokenizer, recipe=ATTENTIVE, run=f"{folder}/run"))


def translate_plain(pairs: Path, rate: float) -> float:
    """Train the plain translator at one rate, on tokens of the same vocabulary; return the validation loss."""
    from regard.data.tokenizer import TokenizerConfig, train_tokenizer

    texts = {key: path.read_text(encoding="utf-8").splitlines() for key, path in files(pairs).items()}
    config = TokenizerConfig(kind="bpe", vocabulary=VOCABULARY)
    tokenizer = train_tokenizer([*texts["source"], *texts["target"]], config)
    rows = {key: tokenizer.encode(lines) for key, lines in texts.items()}
    torch.manual_seed(0)
    model = PlainTranslator(tokenizer.size)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)

    def loss_of(batch: Sequence[int], source: str, target: str) -> tuple[Tensor, Tensor]:
        padded = partial(pad_sequence, batch_first=True, padding_value=tokenizer.pad)
        ends = [[tokenizer.start, *rows[target][row], tokenizer.end] for row in batch]
        sources = padded([torch.as_tensor(rows[source][row]).long() for row in batch])
        targets = padded([torch.tensor(row) for row in ends])
        logits, labels = model(sources, targets[:, :-1], tokenizer.pad), targets[:, 1:]
        smoothing = SMOOTHING if model.training else 0.0
        total = F.cross_entropy(
            logits.flatten(0, 1),
            labels.flatten(),
            ignore_index=tokenizer.pad,
            reduction="sum",
            label_smoothing=smoothing,
        )
        return total, (labels != tokenizer.pad).sum()

    batches = batches_of([len(row) for row in rows["target"]])
    for step in range(PAIR_UPDATES):
        optimizer.param_groups[0]["lr"] = scheduled(rate, step, PAIR_UPDATES)
        total, count = loss_of(next(batches), "source", "target")
        update(optimizer, model, total / count)
    model.eval()
    with torch.no_grad():
        places = range(len(rows["valid_source"]))
        sums = [loss_of(places[row : row + 64], "valid_source", "valid_target") for row in places[::64]]
    return float(sum(total for total, _ in sums) / sum(count for _, count in sums))


def batches_of(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Yield rows of similar lengths without end: as many as have the tokens of an update."""
    while True:
        noise = torch.randn(len(lengths))
        order = sorted(range(len(lengths)), key=lambda row: lengths[row] + float(noise[row]))
        batches, batch, tokens = [], list[int](), 0
        for row in order:
            batch.append(row)
            tokens += lengths[row] + 1
            if tokens >= PAIR_TOKENS:
                batches, batch, tokens = [*batches, batch], [], 0
        for index in torch.randperm(len(batches)).tolist():
            yield batches[index]


def files(pairs: Path) -> dict[str, Path]:
    """Return the files of Multi30k, German to English."""
    names = {"source": "train.de", "target": "train.en", "valid_source": "val.de", "valid_target": "val.en"}
    return {key: pairs / name for key, name in names.items()}


def best_loss(run: "Run") -> float:
    return float(min(record["loss"] for record in run.metrics if record["kind"] == "valid"))


# --- all of them -----------------------------------------------------------------------------------------------------


def perform(text: Path, pairs: Path, cell: str, rate: float | None) -> float:
    """Train one side, ours if there is no rate; return its validation loss."""
    torch.set_num_threads(1)
    if cell == ATTENTIVE:
        return translate_ours(pairs) if rate is None else translate_plain(pairs, rate)
    letters = text.read_text(encoding="utf-8")
    return write_ours(letters, cell) if rate is None else write_plain(letters, cell, rate)


def keep(cell: str, rate: float | None, loss: float) -> None:
    """Add a loss to the file of the results."""
    found = read_cells() if CELLS.exists() else {"losses": {}}
    found |= {"date": datetime.now(UTC).strftime("%Y-%m-%d"), "machine": describe_machine("cpu", 1)["name"]}
    found["losses"].setdefault(cell, {})[OURS if rate is None else f"{rate:g}"] = round(loss, 4)
    CELLS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    """Run what the command line asks for; a result is written as soon as there is one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path)
    parser.add_argument("pairs", type=Path)
    parser.add_argument("cells", nargs="*", default=[*PLAIN, ATTENTIVE])
    parser.add_argument("--jobs", type=int, default=2)
    asked = parser.parse_args()
    with ProcessPoolExecutor(asked.jobs, get_context("spawn")) as pool:
        waiting = {
            pool.submit(perform, asked.text, asked.pairs, cell, rate): (cell, rate)
            for cell in asked.cells
            for rate in (None, *RATES)
        }
        for done in as_completed(waiting):
            cell, rate = waiting[done]
            keep(cell, rate, done.result())
            print(cell, OURS if rate is None else rate, f"{done.result():.4f}", flush=True)


if __name__ == "__main__":
    main()
