"""The list of pictures, and where they are written."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pictures.drawn import draw_attention, draw_forecast, draw_positions, draw_sentence_tree
from pictures.journeys import draw_journeys
from pictures.lab import draw_lab
from pictures.recurrences import PLOTS, draw_recurrences
from pictures.terminal import draw_terminal
from pictures.viewer import photograph_viewer
from regard.draw import DARK, LIGHT, Look

FOLDER = Path(__file__).parent.parent / "docs" / "pictures"
LOOKS = {"light": LIGHT, "dark": DARK}


@dataclass(frozen=True)
class Group:
    """Pictures that are made together: their names, and the function that returns them."""

    names: tuple[str, ...]
    make: Callable[[Look], Mapping[str, bytes]]


GROUPS = {
    "attention": Group(("alignment.svg", "attention.svg", "heads.svg"), draw_attention),
    "positions": Group(("positions.svg",), draw_positions),
    "forecast": Group(("forecast.svg",), draw_forecast),
    "tree": Group(("tree.svg",), draw_sentence_tree),
    "journeys": Group(("journey-train.svg", "journey-translate.svg", "journey-look.svg"), draw_journeys),
    "terminal": Group(("show-gpt2.svg", "translate.svg"), draw_terminal),
    "lab": Group(("lab-gradients.svg", "lab-lookup.svg"), draw_lab),
    "recurrences": Group(tuple(PLOTS), draw_recurrences),
    "viewer": Group(("look.webp", "view-change.png", "view-arithmetic.png", "view-heads.png"), photograph_viewer),
}


def file_name(name: str, look: str) -> str:
    """Return the name of a picture's file in a look: look.webp, dark -> look-dark.webp."""
    path = Path(name)
    return f"{path.stem}-{look}{path.suffix}"


def all_files() -> list[str]:
    """Return the names of all files that `make pictures` writes."""
    return sorted(file_name(name, look) for group in GROUPS.values() for name in group.names for look in LOOKS)


def write_group(group: Group) -> Iterator[Path]:
    """Make the pictures of a group in both looks, and write them."""
    for look, colours in LOOKS.items():
        made = group.make(colours)
        assert set(made) == set(group.names), f"made {sorted(made)}, listed {sorted(group.names)}"
        for name, content in made.items():
            path = FOLDER / file_name(name, look)
            path.write_bytes(content)
            yield path
