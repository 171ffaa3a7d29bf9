"""Random commands: a valid one, with random options, overrides and damaged files. A case follows from its seed.

Verbs and options are found by walking the command itself, and keys of recipes by walking the config classes, so new
ones are tried without a change here. A verb in `COMMANDS` is also tried with arguments that make it work.
"""

import json
import re
import shlex
from dataclasses import dataclass, field
from functools import cache
from random import Random
from types import NoneType
from typing import Any, Literal, get_args, get_origin

import typer

from regard.cli.keys import find_sections
from regard.cli.main import app
from regard.config import Registry, field_types, kinds_of
from regard.limits import note_of
from regard.recipe_files import recipe_names

from .damage import ODD_NAMES, WEIRD

TEXTS = (
    "one red dog",
    "two blue cats sleep",
    "a [MASK] runs",
    "",
    " ",
    "\n",
    "-",
    "--",
    "é 日本 😀",
    "\udcff",
    "x" * 3000,
    "[/bold] {x} %s",
    "\x1b[31m",
    "a\tb",
    "=1",
)
FILES = (
    "a.txt",
    "b.txt",
    "empty.txt",
    "masks.txt",
    "a.txt.gz",
    "pairs.tsv",
    "labels.tsv",
    "labels.csv",
    "rows.jsonl",
    "books.jsonl",
    "chains.tsv",
    "structures.jsonl",
    "rows.parquet",
    "pieces.model",
    "photo.png",
    "digits.npz",
    "walks.txt",
    "trees.mrg",
    "recipe.toml",
    "part.py",
)
FOLDERS = (
    "translation",
    "language",
    "masked",
    "classification",
    "vision",
    "trajectories",
    "parsing",
    "bpe",
    "unigram",
    "char",
    "hf-language",
    "hf-masked",
    "trained",
    "images",
    "tokenizer",
    ".",
)
NOWHERE = ("nowhere", "no/where", "/dev/null", "", "/", "a.txt/x", "-", "..", "/dev/full")
OUTPUTS = ("out", "out.txt", "out.html", "out.png", "out.svg", "out.csv", "out.npy", "out/deep.txt", "a.txt")
QUICK = {  # added last, so that it counts
    "train": ("train.steps=2",),
    "lab": ("--scale", "tiny", "--seeds", "1"),
    "compare": ("--steps", "2", "--seeds", "1", "--size", "tiny", "--jobs", "0"),
    "tune": ("--jobs", "0"),  # an error: it trains in other processes, whose writing could not be watched
}
COMMANDS = """
translate 'one red dog' -m translation
translate -f a.txt -m translation
translate -m translation
generate 'one red' -m language --tokens 3
generate one -m bpe --tokens 9
generate one -m unigram --tokens 9
generate one -m char --tokens 9
generate one -m hf-language --tokens 2
generate one -m trained --step 1
classify 'one red dog' -m classification
classify photo.png -m vision
classify -f a.txt -m classification
fill 'one [MASK] dog' -m masked
fill -f masks.txt -m hf-masked
annotate ACDEFGH -m residues
annotate -f chains.tsv -m residues
annotate --alignment a.txt -m residues
evaluate chains.tsv -m residues
look ACDEFGH -m residues --svg out.svg
embed 'one red dog' -m masked -o out.npy
embed -f a.txt -m language -o out.npy
embed photo.png -m vision -o out.npy
parse 'one red dog' -m parsing --beam 2
parse -f a.txt -m parsing --beam 1
parse 'one red dog' --grammar trees.mrg --svg out.svg
evaluate trees.mrg -m parsing
evaluate -m trained
evaluate a.txt -m language
evaluate a.txt b.txt -m translation
evaluate labels.tsv -m classification
evaluate images -m vision
evaluate walks.txt -m trajectories
forecast walks.txt -m trajectories --frame 100 -o out.csv --picture out.svg
forecast walks.txt -m trajectories
ablate language a.txt --csv out.csv
ablate translation a.txt b.txt --json
ablate -m trained --svg out.svg
look 'one red' -m language --csv out.csv
look one -m translation --svg out.svg
look -m trained --export out.html
look photo.png -m vision --csv out.csv
look walks.txt@100 -m trajectories --csv out.csv
look '0 a 1 2; 10 a 2 2' -m trajectories --svg out.svg
look --csv out.csv
look one -m masked -m language --port 0
convert language out --to huggingface
convert hf-masked out --to huggingface
convert translation out --to ctranslate2
data
data tinyshakespeare --from .
data cifar10 --from images --to out
show gpt2
show recipe.toml
show language
show --keys model
show bert --toml
recipes
lab
lab lookup
compare gpt2 lstm --on a.txt
compare trained --on a.txt
tune language a.txt --minutes 1
results
results multi30k-en-de
models
models en-fr
lab order --out out
train translation a.txt b.txt
train translation pairs.tsv
train translation books.jsonl
train translation --source a.txt --target b.txt
train language a.txt
train language a.txt.gz b.txt
train language rows.jsonl
train residues chains.tsv
train residues chains.tsv task.alignment=alignment
train distances structures.jsonl
train language a.txt --recipe lstm
train language rows.parquet
train language a.txt tokenizer.path=pieces.model --dry-run
train language a.txt tokenizer.path=tokenizer --dry-run
train language a.txt --init-from language
train masked a.txt
train classification labels.tsv
train classification labels.csv
train classification rows.jsonl
train parsing trees.mrg
train parsing trees.mrg --recipe rnn-attention
train vision images
train vision digits.npz
train vectors a.txt
train trajectories walks.txt task.observed=3 task.predicted=2
train recipe.toml
train --resume trained train.steps=3
"""
OUTPUT = re.compile(r"(also )?(write|draw|the folder to write|folder of the run)", re.IGNORECASE)
SLOW = re.compile(r"compile|minutes|epochs|^(base|big|full|--all)$")  # what takes minutes even if all is well


@dataclass
class Case:
    """A command, its standard input, and what is damaged before it."""

    seed: int
    arguments: list[str]
    stdin: bytes = b""
    damaged: list[str] = field(default_factory=list)  # files and folders that are damaged
    renamed: dict[str, str] = field(default_factory=dict)  # files and folders that get another name
    outputs: list[str] = field(default_factory=list)  # what the command may write to


# Those of typer write into the home folder, or refuse a shell in words of their own.
NOT_TRIED = ("help", "install_completion", "show_completion")


@cache
def verbs() -> dict[str, list[Any]]:
    """Return the parameters of each verb, such as `train language`; those of the command itself have the name ""."""
    found: dict[str, list[Any]] = {}

    def walk(command: Any, name: str) -> None:
        if hasattr(command, "commands"):
            for word, inner in command.commands.items():
                walk(inner, f"{name} {word}".strip())
        if not hasattr(command, "commands") or not name:
            found[name] = [one for one in command.params if one.name not in NOT_TRIED]

    walk(typer.main.get_command(app), "")
    return found


@cache
def bases() -> dict[str, list[list[str]]]:
    """Return the valid commands of each verb, without the verb."""
    found: dict[str, list[list[str]]] = {}
    for line in COMMANDS.strip().splitlines():
        words = shlex.split(line)
        names = [name for name in verbs() if name and words[: len(_words(name))] == _words(name)]
        name = max(names, key=lambda name: len(_words(name)))
        found.setdefault(name, []).append(words[len(_words(name)) :])
    return found


@cache
def keys() -> list[tuple[str, Any]]:
    """Return the keys of recipes by their paths, with their types."""
    found = []
    for section in find_sections().values():
        for config in section.classes.values():
            for name, type_ in field_types(config).items():
                path = f"{section.path}.{name}".lstrip(".").replace("NAME", "block")
                if not SLOW.search(path):
                    found.append((path, type_))
    return found


def draw_case(seed: int, only: str = "") -> Case:
    """Draw a case, of all verbs or of those that begin with `only`."""
    chance = Random(seed)
    names = [name for name in verbs() if name and name.startswith(only)]
    first = chance.choice(sorted({name.split()[0] for name in names}))  # so that all kinds of `train` are one verb
    name = chance.choice([name for name in names if name.split()[0] == first])
    case = Case(seed, [])
    base = list(chance.choice(bases().get(name, [[]]))) if chance.random() < 0.95 else []
    if chance.random() < 0.1:
        base.insert(chance.randrange(len(base) + 1), chance.choice([*TEXTS, *NOWHERE, *FILES, "--nonsense", "-q"]))
    outputs = _find_outputs(name, base)
    options: list[str] = []
    parameters = [one for one in verbs()[name] if one.opts[0].startswith("-") and not SLOW.search(one.opts[0])]
    for one in chance.sample(parameters, min(len(parameters), chance.choice([0, 1, 1, 2, 3]))):
        options += _option(one, chance, outputs)
    changes = []
    if name.startswith("train") or name == "show":
        changes = [_override(chance) for _ in range(chance.choice([0, 0, 1, 1, 2]))]
    quick = QUICK.get(first, ()) if first != "train" or chance.random() < 0.98 else ()
    dry = ["--dry-run"] if name.startswith("train") and name != "train resume" and chance.random() < 0.5 else []
    above = _option(chance.choice(verbs()[""]), chance, outputs) if chance.random() < 0.04 else []
    begin = len(above) + len(_words(name))
    case.arguments = [*above, *_words(name), *base, *options, *changes, *quick, *dry]
    case.outputs = [*outputs, "runs", "data", "lab", "lab-tiny", "comparisons", "tuned"]
    named = {word.rpartition("=")[2] for word in (*base, *options)}
    used = [one for one in (*FILES, *FOLDERS) if one in named and one != "."]
    if name == "train resume":
        case.outputs += [one for one in used if one in FOLDERS]
    case.damaged = [one for one in used if chance.random() < 0.6]
    for one in used:
        if chance.random() < 0.1:
            suffix = "".join(re.findall(r"\.[a-z]+", one)) if chance.random() < 0.8 else ""
            case.renamed[one] = chance.choice(ODD_NAMES) + suffix
    for place in range(begin, len(case.arguments)):
        before, equals, last = case.arguments[place].rpartition("=")
        case.arguments[place] = before + equals + case.renamed.get(last, last)
    case.outputs = [case.renamed.get(one, one) for one in case.outputs]
    case.arguments = [one.replace("\x00", "") for one in case.arguments]
    case.stdin = b"\n".join(
        chance.choice([*TEXTS[:4], *TEXTS]).encode("utf-8", "surrogateescape") for _ in range(chance.choice([0, 1, 3]))
    )
    return case


def _words(name: str) -> list[str]:
    """Return the first words of a command, as the user types them."""
    hidden = {"train resume": ["train", "--resume"], "train recipe": ["train"], "train task": ["train", "language"]}
    return hidden.get(name, name.split())


def _find_outputs(name: str, base: list[str]) -> list[str]:
    """Return which words of a valid command name what it writes."""
    found = [base[1]] if name == "convert" and len(base) > 1 else []
    for one in verbs()[name]:
        if OUTPUT.match(getattr(one, "help", None) or ""):
            found += [base[base.index(word) + 1] for word in one.opts if word in base[:-1]]
    return found


def _option(one: Any, chance: Random, outputs: list[str]) -> list[str]:
    """Draw an option with its value."""
    flag = chance.choice(one.opts)
    if getattr(one, "is_flag", False):
        return [flag]
    value = _value(one, chance)
    if OUTPUT.match(one.help or ""):
        value = chance.choice([*OUTPUTS, *OUTPUTS, *FOLDERS, *NOWHERE, *ODD_NAMES]) if chance.random() < 0.9 else value
        outputs.append(value)
    return [f"{flag}={value}"] if flag.startswith("--") and chance.random() < 0.2 else [flag, value]


def _value(one: Any, chance: Random) -> str:
    metavar, help = one.metavar or "", one.help or ""
    if chance.random() < 0.1:
        return str(chance.choice(WEIRD))
    if metavar in ("N", "X"):
        numbers = [
            "0",
            "1",
            "2",
            "3",
            "-1",
            "8",
            "100",
            "0.5",
            "1e-300",
            "0.999",
            "1e300",
            "nan",
            "inf",
            "-0.0",
            "2147483647",
            "9223372036854775808",
            "10" * 20,
            "x",
            "",
            "1_0",
            "٣",
        ]
        return chance.choice(numbers[:6] if chance.random() < 0.6 else numbers)
    if metavar == "FILE":
        return chance.choice([*FILES, *FILES, *FOLDERS, *NOWHERE, *ODD_NAMES])
    if metavar in ("FOLDER", "RUN", "MODEL"):
        return chance.choice([*FOLDERS, *FOLDERS, *FILES, *NOWHERE, *ODD_NAMES])
    if metavar == "TEXT":
        return chance.choice(TEXTS)
    listed = re.findall(r"[\w.:-]+(?=,| or | \()|(?<= or )[\w:-]+|(?<=: )[\w.,:-]+", help)
    words = listed if chance.random() < 0.7 else [*recipe_names(), "", "x", "cross.1", "self.1", "1", "1-2", "2,1"]
    words = [word for word in words if not SLOW.search(word)]
    return str(one.default) if not words or chance.random() < 0.3 else chance.choice(words)


def _override(chance: Random) -> str:
    """Draw a change KEY=VALUE."""
    path, type_ = chance.choice(keys())
    if chance.random() < 0.05:
        path = chance.choice(
            [path + "x", path.rpartition(".")[0], "." + path, path + ".", path.upper(), "", path + ".x.y", "layers"]
        )
    if chance.random() < 0.15:
        weird = chance.choice(WEIRD)
        return f"{path}={weird if isinstance(weird, str) else json.dumps(weird)}".replace("\ud800", "\udcff")
    kind, value = _of_type(type_, chance)
    return f"{path}{kind}={value}"


def _of_type(type_: Any, chance: Random) -> tuple[str, str]:
    """Draw a value for a type; a table is chosen by its kind."""
    origin, args = get_origin(type_), get_args(type_)
    if (kinds := kinds_of(type_)) is not None:
        return ".kind", chance.choice([*kinds, "x"])
    if (names := note_of(type_, Registry)) is not None:
        return "", chance.choice([*names, "x"])
    if origin is Literal:
        return "", str(chance.choice(args))
    inner = [one for one in args if one not in (NoneType, ...)]
    if origin is tuple:
        values = [_of_type(inner[0], chance)[1] for _ in range(chance.randrange(3))]
        return "", f"[{', '.join(values)}]"
    if type_ is bool:
        return "", chance.choice(["true", "false"])
    if type_ is int:
        return "", chance.choice(["0", "1", "2", "3", "4", "7", "8", "16", "-1", "2147483648", "99999999999999999999"])
    if type_ is float:
        return "", chance.choice(["0", "0.0", "1.0", "0.5", "1e-3", "0.1", "2", "-1.0", "1e30", "1e-30", "nan", "inf"])
    if type_ is str:
        return "", chance.choice(["x", "text", "label", "de", "a.txt", "none", "line", "''", "é"])
    if inner and origin is not dict:
        return ("", "none") if NoneType in args and chance.random() < 0.2 else _of_type(inner[0], chance)
    return chance.choice([".kind", ""]), chance.choice(["x", "{}", "none", "1"])
