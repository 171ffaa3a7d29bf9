"""The models in the box: small trained models that come with the package, so that every verb works at once.

`regard/box/NAME` is the folder of a run without its training state: recipe.toml, config.json, model.safetensors (in
int8: models/compact.py) and tokenizer.json. card.json says what the model is, what it was trained on, what it scores,
and which checksum each file has; README.md says the same to people. `python -m bench.models` writes all of them.

Torch is not imported here, so that `regard models` is instant.
"""

from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.resources import files
from os import PathLike
from pathlib import Path

from regard.arguments import check_path
from regard.atomic import sha256
from regard.config import Config, Count, from_table
from regard.errors import InputError, RegardError, choices
from regard.runs.layout import FOLDER_REMEDY, RECIPE
from regard.untrusted import read_json

FOLDER = Path(str(files("regard") / "box"))
CARD = "card.json"
README = "README.md"
TEXT_DEFAULTS = {  # the model that a verb uses if the user names none
    "translate": "en-fr",
    "generate": "shakespeare",
    "fill": "english",
    "embed": "english",
    "classify": "topics",
    "forecast": "crossing",
    "parse": "trees",
    "annotate": "proteins",
    "evaluate": "en-fr",
    "ablate": "en-fr",
    "look": "en-fr",
}
IMAGE_DEFAULTS = {"classify": "fashion", "embed": "fashion", "look": "fashion"}  # likewise, if it is given image files
SCENE_DEFAULTS = {"look": "crossing"}  # likewise, if it is given a recording of agents, FILE@FRAME
IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff")


@dataclass(frozen=True, kw_only=True)
class CardScore(Config):
    """A metric of a model, and what it was measured on; files are relative to the folder of the model."""

    metric: str
    value: float
    data: str
    files: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class FileSum(Config):
    """The size and the SHA-256 of a file."""

    size: Count
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Card(Config):
    """What a model in the box is."""

    about: str
    verbs: tuple[str, ...]
    data: str
    licence: str
    attribution: str
    limits: str
    recipe: str
    """The recipe that trains it: `regard train NAME`."""
    command: str
    """The command that measured the score."""
    parameters: Count
    training: str
    """How long it was trained, and where."""
    baselines: str = ""
    """What simple models with the same training data reach on the held-back data."""
    score: CardScore
    """On all held-back data; it decided nothing."""
    check: CardScore
    """On the part of that data that comes with the model, so that the score can be checked anywhere."""
    files: dict[str, FileSum]


@dataclass(frozen=True)
class BoxModel:
    """A model in the box: its name, its folder and its card."""

    name: str
    folder: Path
    card: Card

    @property
    def size(self) -> int:
        """The bytes of its files."""
        return sum(file.size for file in self.card.files.values())

    def check_files(self) -> tuple[str, ...]:
        """Return the paths of the files of the card's `check`."""
        return tuple(str((self.folder / name).resolve()) for name in self.card.check.files)


def box_names() -> list[str]:
    """Return the names of the models in the box."""
    return sorted(path.parent.name for path in FOLDER.glob(f"*/{CARD}"))


def box_model(name: str) -> BoxModel:
    """Return a model in the box by its name."""
    if name not in box_names():
        raise InputError(f"no model in the box has the name {name!r}; {choices(name, box_names())}")
    return _read_card(FOLDER / name)


def box_models() -> list[BoxModel]:
    """Return all models in the box."""
    return [box_model(name) for name in box_names()]


def default_model(verb: str, texts: list[str] | None = None) -> BoxModel | None:
    """Return the model that a verb uses if the user names none: by what the first text is, text, image or scene.

    None for a verb, or an installation, without one.
    """
    defaults = TEXT_DEFAULTS
    if texts and verb in IMAGE_DEFAULTS and is_image_file(texts[0]):
        defaults = IMAGE_DEFAULTS
    elif texts and verb in SCENE_DEFAULTS and is_scene(texts[0]):
        defaults = SCENE_DEFAULTS
    name = defaults.get(verb)
    return box_model(name) if name is not None and name in box_names() else None


def is_image_file(text: str) -> bool:
    """Return whether a text is the path of an image file."""
    return text.lower().endswith(IMAGE_SUFFIXES) and is_file(text)


def is_scene(text: str) -> bool:
    """Return whether a text names a frame of a recording: FILE@FRAME."""
    name, _, frame = text.strip().rpartition("@")
    return frame.isdigit() and is_file(name)


def is_file(text: str) -> bool:
    """Return whether a text is the path of a file."""
    try:
        return Path(text).is_file()
    except (OSError, ValueError):  # too long for a path, or with a zero byte
        return False


def is_run_folder(text: str) -> bool:
    """Return whether a text is the path of a run."""
    return is_file(f"{text}/{RECIPE}")


def find_model(folder: str | PathLike[str]) -> Path:
    """Return the folder of a model that the user named: a folder, or else a model in the box by its name."""
    path, name = check_path(folder, "folder"), str(folder)
    return FOLDER / name if name in box_names() and not path.exists() else path


def shown_name(folder: Path) -> str:
    """Return how messages name a model: in the box by its name, else by its folder."""
    in_box = folder.resolve().parent == FOLDER.resolve() and folder.name in box_names()
    return folder.name if in_box else str(folder)


def folder_remedy(folder: Path) -> str:
    """Return the end of a message about a folder without a model: the nearest name in the box or beside it, if any."""
    could_be_name = folder == Path(folder.name)
    if folder.exists():
        if could_be_name and folder.name in box_names():
            return f"it hides the model '{folder}' of `regard models`; rename the folder, or run this in another one"
        return FOLDER_REMEDY
    beside: list[str] = []
    with suppress(OSError):
        beside = [path.name for path in folder.parent.iterdir() if path.is_dir()]
    in_box = box_names() if could_be_name else []
    near = get_close_matches(folder.name, [*in_box, *beside], n=1)
    return f"did you mean '{folder.parent / near[0]}'? If not, {FOLDER_REMEDY}" if near else FOLDER_REMEDY


def read_box_folder(folder: Path) -> BoxModel | None:
    """Return the model in the box that a folder is, after checking all of its files; None for any other folder."""
    if folder.resolve().parent != FOLDER.resolve():
        return None
    model = _read_card(folder)
    for name, wanted in model.card.files.items():
        path = folder / name
        if not path.is_file():
            raise RegardError(f"{path}: is missing; {_remedy(folder)}")
        if path.stat().st_size != wanted.size or sha256(path) != wanted.sha256:
            raise RegardError(f"{path}: is damaged (size or checksum differ from {CARD}); {_remedy(folder)}")
    return model


def _read_card(folder: Path) -> BoxModel:
    path = folder / CARD
    try:
        card = from_table(read_json(path), Card)
    except RegardError as error:
        raise RegardError(f"{path}: is damaged: {error}; {_remedy(folder)}") from None
    return BoxModel(folder.name, folder, card)


def _remedy(folder: Path) -> str:
    clone = (folder.parents[1].parent / ".git").exists()
    again = f"git checkout -- {folder}" if clone else "pip install --force-reinstall --no-deps regard"
    return f"restore it with `{again}`, or name another model with -m"
