"""Position tables: the table of every position encoding of a model, and the similarity of two positions."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from regard.models.model import Model
from regard.parts.absolute_position import Absolute, Learned, LinearPosition, Sinusoidal
from regard.parts.attention import Attention
from regard.parts.position import Alibi, Relative, RelativeBias, Rope
from regard.viewer.manifest import PositionInfo, PositionKind

LEAST, MOST = 64, 256  # limits of the number of positions shown, which is otherwise the length of the text
PAIRS = 64  # positions whose pairs are shown for every head, at most

KINDS: dict[type[Absolute | Relative], PositionKind] = {
    LinearPosition: "linear",
    Sinusoidal: "sinusoidal",
    Learned: "learned",
    Rope: "rope",
    Alibi: "alibi",
    RelativeBias: "relative-bias",
}


@dataclass(frozen=True, eq=False)
class PositionTable:
    """The position table of one part of a model."""

    name: str
    kind: PositionKind
    labels: tuple[str, str]  # of rows and columns
    note: str
    table: Float[Tensor, "rows columns"]
    similar: Float[Tensor, "count size size"]

    def info(self) -> PositionInfo:
        """Describe the table for the manifest."""
        (rows, columns), (count, size, _) = self.table.shape, self.similar.shape
        row_label, column_label = self.labels
        return {
            "name": self.name,
            "kind": self.kind,
            "rows": rows,
            "columns": columns,
            "rowLabel": row_label,
            "columnLabel": column_label,
            "similarities": count,
            "size": size,
            "note": self.note,
        }


def position_tables(model: Model, tokens: int) -> list[PositionTable]:
    """Return the table of every position encoding of a model, for a text of this many `tokens`."""
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
    note = "The vector of each position; below, the cosine between the vectors of two positions."
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
        "Each pair of features is rotated by an angle that grows with the position: its cosine and sine. Below, the "
        "cosine that two equal vectors have after they are rotated to two positions."
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
    note = "The bias that is added to the score of a query and a key, by their distance (0 in the middle)."
    labels = ("head", f"key minus query, from {1 - count} to {count - 1}")
    return PositionTable(name, KINDS[type(part)], labels, note, table, pairs)
