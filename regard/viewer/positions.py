"""Positions as a model knows them: the table of each kind, and how alike two positions are to it."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from regard.models.model import Model
from regard.parts.attention import Attention
from regard.parts.position import Absolute, Alibi, Learned, LinearPosition, Relative, RelativeBias, Rope, Sinusoidal
from regard.viewer.recording import Manifest

LEAST, MOST = 64, 256  # positions that are shown: as many as the text has, within these
PAIRS = 64  # positions of which every pair is shown for every head

KINDS: dict[type[Absolute | Relative], str] = {
    LinearPosition: "linear",
    Sinusoidal: "sinusoidal",
    Learned: "learned",
    Rope: "rope",
    Alibi: "alibi",
    RelativeBias: "relative-bias",
}


@dataclass(frozen=True, eq=False)
class PositionTable:
    """The positions of one part of a model."""

    name: str
    kind: str
    labels: tuple[str, str]  # of rows and columns
    note: str
    table: Float[Tensor, "rows columns"]
    similar: Float[Tensor, "count size size"]

    def manifest(self) -> Manifest:
        """Say what is in the table."""
        (rows, columns), (count, size, _) = self.table.shape, self.similar.shape
        shapes = {"rows": rows, "columns": columns, "similarities": count, "size": size}
        labels = dict(zip(("rowLabel", "columnLabel"), self.labels, strict=True))
        return {"name": self.name, "kind": self.kind, "note": self.note} | shapes | labels


def position_tables(model: Model, tokens: int) -> list[PositionTable]:
    """Find all that tells a model where tokens are, for a text of so many tokens."""
    count = min(max(tokens, LEAST), MOST)
    found = [(name, part) for name, part in model.named_modules() if isinstance(part, Absolute | Relative)]
    found = [(name, part) for name, part in found if type(part) in KINDS]
    heads = {
        part.position: part.heads.heads for part in model.modules() if isinstance(part, Attention) and part.position
    }
    with torch.inference_mode():
        return [
            _absolute(name, part, count) if isinstance(part, Absolute) else _relative(name, part, count, heads)
            for name, part in found
        ]


def _absolute(name: str, part: Absolute, count: int) -> PositionTable:
    device = next((tensor.device for tensor in (*part.parameters(), *part.buffers())), torch.device("cpu"))
    count = count if part.length is None else min(count, part.length)
    table = part(None, count, device)[0].float()
    unit = torch.nn.functional.normalize(table, dim=-1)
    note = "The vector of each position; below, the cosine between those of two positions."
    return PositionTable(name, KINDS[type(part)], ("position", "feature"), note, table, (unit @ unit.T)[None])


def _relative(name: str, part: Relative, count: int, heads: dict[Relative, int]) -> PositionTable:
    if isinstance(part, Rope):
        return _rope(name, part, count)
    return _bias(name, part, min(count, PAIRS), heads[part])


def _rope(name: str, part: Rope, count: int) -> PositionTable:
    frequencies = part.frequencies.values
    angles = torch.arange(count, device=frequencies.device)[:, None] * frequencies
    waves = torch.cat((angles.cos(), angles.sin()), 1).float()
    note = (
        "Each pair of features is turned by an angle that grows with the position: its cosine and sine. Below, what "
        "remains of the product of two equal vectors when they are turned to two positions."
    )
    labels = ("position", "cosine, then sine, of each pair")
    return PositionTable(name, "rope", labels, note, waves, (waves @ waves.T / len(frequencies))[None])


def _bias(name: str, part: Relative, count: int, heads: int) -> PositionTable:
    device = next(tensor.device for tensor in (*part.parameters(), *part.buffers()))
    head = torch.arange(heads, device=device)
    places = torch.arange(count, device=device)
    away = torch.arange(1 - count, count, device=device)
    table = part.bias(head[:, None], torch.zeros_like(away), away).float()
    pairs = part.bias(head[:, None, None], places[:, None], places).float()
    note = "What is added to the score of a query and a key, by how far the key is behind it (0 in the middle)."
    labels = ("head", f"key minus query, from {1 - count} to {count - 1}")
    return PositionTable(name, KINDS[type(part)], labels, note, table, pairs)
