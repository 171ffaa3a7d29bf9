"""Quality of the recurrent recipes: validation loss on tinyshakespeare against the same cells in plain torch.

`python -m bench.cells data/tinyshakespeare/input.txt [--device cuda] [--jobs 8]`. Both sides have the same width,
depth, text, tokens and updates; the last tenth of the text is for validation. Ours is `regard train language --recipe
CELL` without further settings. The plain model is an embedding, the cell and a linear layer with torch's own initial
weights, trained by Adam with clipping and the same schedule; the best of four rates counts, chosen by the very loss
that is reported, which favours it.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WIDTH, UPDATES, ROWS, WINDOW = 256, 600, 8, 256
TRAINED = 0.9
RATES = (1e-3, 2e-3, 4e-3, 8e-3)
State = Tensor | tuple[Tensor, Tensor] | None


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


CELLS: dict[str, Callable[[], nn.Module]] = {
    "elman": partial(nn.RNN, WIDTH, WIDTH, batch_first=True),
    "lstm": partial(nn.LSTM, WIDTH, WIDTH, num_layers=2, batch_first=True),
    "gru": partial(nn.GRU, WIDTH, WIDTH, batch_first=True),
    **{kind: partial(Mutant, kind) for kind in ("mut1", "mut2", "mut3")},
}


class PlainModel(nn.Module):
    """Embedding, cell, linear layer."""

    def __init__(self, letters: int, cell: str) -> None:
        super().__init__()
        self.embed = nn.Embedding(letters, WIDTH)
        self.cell = CELLS[cell]()
        self.head = nn.Linear(WIDTH, letters)

    def forward(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """Return logits and the state after the last token."""
        out, state = self.cell(self.embed(tokens), state)
        return self.head(out), state


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


def train_plain(file: str, cell: str, device: str, rate: float) -> float:
    """Train the plain model at one rate; return the validation loss."""
    torch.set_num_threads(1)
    text = Path(file).read_text()
    letters = sorted(set(text))
    ids = torch.tensor([letters.index(letter) for letter in text], device=device)
    cut = int(TRAINED * len(ids))
    torch.manual_seed(0)
    model = PlainModel(len(letters), cell).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    windows = lanes(ids[:cut], ROWS)
    state: State = None
    for step in range(UPDATES):
        optimizer.param_groups[0]["lr"] = rate * min((step + 1) / 30, 1.0, (UPDATES - step) / (0.6 * UPDATES))
        inputs, labels = windows[step % len(windows)]
        logits, state = model(inputs, None if step % len(windows) == 0 else detached(state))
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    losses, state = [], None
    with torch.no_grad():
        for inputs, labels in lanes(ids[cut:], 1):
            logits, state = model(inputs, state)
            losses.append(F.cross_entropy(logits.flatten(0, 1), labels.flatten()))
    return float(torch.stack(losses).mean())


def train_ours(file: str, cell: str) -> float:
    """Train the recipe as the command line does; return the validation loss."""
    import regard

    torch.set_num_threads(1)
    settings = [f"model.dim={WIDTH}", f"train.steps={UPDATES}", f"train.tokens={ROWS * WINDOW}"]
    with tempfile.TemporaryDirectory() as folder:
        text, parts = Path(file).read_text(), [Path(folder, name) for name in ("train.txt", "valid.txt")]
        cut = int(TRAINED * len(text))
        for part, piece in zip(parts, (text[:cut], text[cut:]), strict=True):
            part.write_text(piece)
        task = {"kind": "language", "train": [str(parts[0])], "valid": [str(parts[1])]}
        run = regard.train(task, *settings, recipe=cell, run=f"{folder}/run")
        return float(min(record["loss"] for record in run.metrics if record["kind"] == "valid"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=2)
    asked = parser.parse_args()
    with ProcessPoolExecutor(asked.jobs, get_context("spawn")) as pool:
        ours = {cell: pool.submit(train_ours, asked.file, cell) for cell in CELLS}
        plain = {
            (cell, rate): pool.submit(train_plain, asked.file, cell, asked.device, rate)
            for cell in CELLS
            for rate in RATES
        }
        print(f"{'cell':8}{'ours':>8}{'plain':>8}   at rate")
        worse = 0
        for cell in CELLS:
            best = min(RATES, key=lambda rate: plain[cell, rate].result())
            figures = ours[cell].result(), plain[cell, best].result()
            worse += figures[0] > figures[1]
            print(f"{cell:8}{figures[0]:8.3f}{figures[1]:8.3f}   {best:g}", flush=True)
    sys.exit(worse > 0)
