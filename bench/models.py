"""Train the models in the box, and write them into the package: `make models`.

    python -m bench.models [NAME...] --from FOLDER      train and pack; all without NAME
    python -m bench.models NAME --pack RUN              pack a run that was trained before

The data sets come from FOLDER, or are fetched as `regard data` does.
For each recipe in `regard/recipes/box`: get its data into data/, train it into runs/box/NAME (a run that was stopped is
continued, and one that is finished is kept), make the weights compact, measure them on test data, and write
`regard/box/NAME` with its card. Then record the sample of the viewer again (bench/sample.py). All choices were made on
validation data. On one H200 training takes some minutes each.
"""

import argparse
import json
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from shutil import copyfile, copytree
from tempfile import TemporaryDirectory
from typing import Any

from bench.box_data import write_chains, write_sentences
from bench.crossing import write_crossing
from bench.distil import DISTILLED, TEACHER, write_distilled
from bench.english_trees import write_trees
from bench.sample import TRANSLATOR, write_sample, write_training
from regard.atomic import sha256, write_folder, write_text
from regard.cli.models import SHARES, format_score
from regard.config import Config, Table, from_table, to_table
from regard.errors import RegardError
from regard.recipe_files import BOX, box_recipe_names, read_recipe
from regard.runs.layout import EVALUATION, RECIPE
from regard.use.box import CARD, FOLDER, README, TEXT_DEFAULTS, Card, box_models

ROOT = Path(__file__).parents[1]
TOKENIZER = "tokenizer.json"
SHAKESPEARE = ("data/tinyshakespeare/input.txt", "data/box/shakespeare.val.txt")
PAGE = ROOT / "docs" / "models.md"
NOT_CHECKED = (CARD, README)
COMPARED = ("classification", "trajectories", "parsing", "residues")  # tasks that measure simple models on other files


@dataclass(frozen=True, kw_only=True)
class BoxRecipe(Config):
    """The table [box] of a recipe: where its data comes from, what its card says, and how it is measured."""

    datasets: tuple[str, ...]
    data: str
    licence: str
    attribution: str
    limits: str
    metric: str
    test: tuple[str, ...]
    test_data: str
    start: str | None = None  # the model whose weights it starts from
    bits: int = 8  # of a weight; fewer where the score holds, since all models together are limited
    check_rows: int | None = None  # lines of the test files that are shipped with the model; None: all
    check_path: str | None = None  # shipped test data that exists already, relative to the model's folder


def box_recipe(name: str) -> BoxRecipe:
    return from_table(read_recipe(f"{BOX}/{name}")[BOX], BoxRecipe, BOX)


# --- data and training -----------------------------------------------------------------------------------------------


def get_data(names: Sequence[str], source: Path | None) -> None:
    """Write the data sets of these models into data/, and what is derived from them."""
    from regard.data.fetch import fetch

    for dataset in sorted({each for name in names for each in box_recipe(name).datasets}):
        fetch(dataset, Path("data") / dataset, source, lambda *done: None)
    derived = Path("data/box")
    if Path("data/tatoeba").exists():
        write_sentences(Path("data/tatoeba"), derived)
    if "trees" in names:
        write_trees(derived)
    if "crossing" in names:
        write_crossing(derived)
    if "proteins" in names:
        write_chains(Path("data/structures/structures.jsonl"), derived)
    text, held_back = map(Path, SHAKESPEARE)
    if text.exists():
        letters = text.read_text(encoding="utf-8")
        held_back.parent.mkdir(exist_ok=True)
        held_back.write_text(letters[len(letters) - len(letters) // 10 :], encoding="utf-8")


def train(recipe: str, run: Path, start: Path | None = None) -> Path:
    """Train a recipe into a folder, or continue its run; return the folder."""
    command = [sys.executable, "-m", "regard", "train"]
    if not (run / EVALUATION).exists():
        if (run / RECIPE).exists():
            subprocess.run([*command, "--resume", str(run)], check=True)
        else:
            init = ["--init-from", str(start)] if start else []
            subprocess.run([*command, recipe, "--run", str(run), *init], check=True)
    return run


def train_box_model(name: str, runs: Path) -> Path:
    """Train a model of the box; return the folder of its run. The translator first needs translations to learn from."""
    if name == TRANSLATOR and not DISTILLED.with_suffix(".fr").exists():
        write_distilled(train(str(TEACHER), runs / "teacher"))
    start = box_recipe(name).start
    return train(f"{BOX}/{name}", runs / name, runs / start if start else None)


# --- packing ---------------------------------------------------------------------------------------------------------


def pack(name: str, run: Path, box: Path = FOLDER) -> Path:
    """Write the model of a run into the box, measured; return its folder."""
    from safetensors.torch import save_file

    from regard.models.compact import compact_weights, expand_weights
    from regard.models.store import CONFIG, WEIGHTS, read_tensors

    recipe = box_recipe(name)
    box.mkdir(exist_ok=True)
    with TemporaryDirectory() as temporary:  # in the box, a model without its card is a damaged one
        folder = Path(temporary)
        weights = expand_weights(dict(read_tensors(run / WEIGHTS)))
        save_file(
            {key: tensor.contiguous() for key, tensor in compact_weights(weights, recipe.bits).items()},
            folder / WEIGHTS,
        )
        copyfile(run / CONFIG, folder / CONFIG)
        write_text(folder / RECIPE, resolved_recipe(run))
        if (run / TOKENIZER).exists():
            learned = json.loads((run / TOKENIZER).read_text(encoding="utf-8"))
            write_text(folder / TOKENIZER, json.dumps(learned, ensure_ascii=False, separators=(",", ":")))
        write_check(recipe, folder)
        card = make_card(name, recipe, run, folder, box / name)
        write_text(folder / CARD, json.dumps(to_table(card), indent=2) + "\n")
        write_text(folder / README, readme(name, card))
        with write_folder(box / name, existing="replace") as place:
            copytree(folder, place, dirs_exist_ok=True)
    return box / name


def resolved_recipe(run: Path) -> str:
    """Return the complete recipe of a run, with the paths of `regard data` instead of absolute ones."""
    import tomli_w

    table = read_recipe(run / RECIPE)
    table["task"] = relative(table["task"])
    if "path" in table.get("tokenizer", {}):  # that of the model whose weights it starts from
        table["tokenizer"]["path"] = f"regard/{BOX}/{Path(table['tokenizer']['path']).name}"
    return tomli_w.dumps(table)


def relative(value: Any) -> Any:
    """Return a table in which every absolute path of data begins with data/."""
    if isinstance(value, str):
        found = re.fullmatch(r"/.*?/(data/.+)", value)
        return found[1] if found else value
    if isinstance(value, Mapping):
        return {key: relative(item) for key, item in value.items()}
    return [relative(item) for item in value] if isinstance(value, list) else value


def check_names(recipe: BoxRecipe) -> tuple[str, ...]:
    if recipe.check_path is not None:
        return (recipe.check_path,)
    return tuple(f"check{Path(name).suffix}" for name in recipe.test)


def write_check(recipe: BoxRecipe, folder: Path) -> None:
    """Write the first lines of the test files beside the model, so that its score can be checked anywhere."""
    if recipe.check_path is None:
        for name, kept in zip(recipe.test, check_names(recipe), strict=True):
            with Path(name).open(encoding="utf-8") as lines:
                write_text(folder / kept, "".join(islice(lines, recipe.check_rows)))


def make_card(name: str, recipe: BoxRecipe, run: Path, folder: Path, place: Path) -> Card:
    """Measure the packed model in a folder, and return its card; `place` is where it will be."""
    from regard.models.count import cost
    from regard.use.load import load

    loaded = load(folder, "cpu")
    value = loaded.evaluate(*recipe.test)[recipe.metric]
    kept = check_names(recipe)
    beside = folder if recipe.check_path is None else place
    check = loaded.evaluate(*(str((beside / path).resolve()) for path in kept))[recipe.metric]
    rows = "" if recipe.check_rows is None else f"the first {recipe.check_rows} lines of them"
    files = sorted(path for path in folder.iterdir() if path.name not in NOT_CHECKED)
    table: Table = {
        "about": read_recipe(f"{BOX}/{name}")["about"],
        "verbs": list(loaded.bundle.verbs),
        "data": recipe.data,
        "licence": recipe.licence,
        "attribution": recipe.attribution,
        "limits": recipe.limits,
        "recipe": f"{BOX}/{name}",
        "command": f"regard evaluate {' '.join(recipe.test)} -m {name}",
        "parameters": cost(loaded.model).parameters,
        "training": describe_training(name, run),
        "baselines": measure_baselines(name, recipe, folder),
        "score": {"metric": recipe.metric, "value": round(value, 4), "data": recipe.test_data, "files": []},
        "check": {
            "metric": recipe.metric,
            "value": round(check, 4),
            "data": rows or "all of them" if recipe.check_path is None else "the first 1,000 of them",
            "files": list(kept),
        },
        "files": {path.name: {"size": path.stat().st_size, "sha256": sha256(path)} for path in files},
    }
    return from_table(table, Card)


def measure_baselines(name: str, recipe: BoxRecipe, folder: Path) -> str:
    """Return what simple models that learn from the same training data reach on the test data, in words."""
    from regard.data.tokenizer import TokenizerConfig
    from regard.tasks.baselines import describe_baseline
    from regard.tasks.kinds import TASKS

    table = read_recipe(f"{BOX}/{name}")["task"]
    if table["kind"] not in COMPARED:
        return ""
    settings = {key: value for key, value in table.items() if key != "kind"} | {"valid": list(recipe.test)}
    tokenizer = TokenizerConfig(path=str(folder)) if (folder / TOKENIZER).exists() else None
    task = from_table(settings, TASKS[table["kind"]]).prepare(tokenizer, 0, lambda text: None)
    return "; ".join(describe_baseline(recipe.metric, baseline) for baseline in task.baselines)


def describe_training(name: str, run: Path) -> str:
    """Return how many updates a run had, how long it took, and on which machine."""
    from regard.runs.records import read_metrics, read_sessions

    last, sessions = read_metrics(run)[-1], read_sessions(run)
    minutes = (last["time"] - sessions[0]["time"]) / 60
    day = time.strftime("%Y-%m-%d", time.gmtime(last["time"]))
    machine = sessions[-1]["machine"].rpartition(",")[0]  # without the operating system
    wanted = read_recipe(f"{BOX}/{name}")["train"]["steps"]
    updates = f"{last['step']:,} updates" + (f" (the recipe has {wanted:,})" if last["step"] < wanted else "")
    return f"{updates} in {minutes:.0f} minutes on {machine}; {day}"


def readme(name: str, card: Card) -> str:
    """Return the card for people."""
    size = sum(file.size for file in card.files.values()) / 1e6
    scale = 100 if card.score.metric in SHARES else 1
    unit = " %" if scale == 100 else ""
    rows = {
        "verbs": ", ".join(f"`regard {verb}`" for verb in card.verbs),
        "size": f"{size:.1f} MB, {card.parameters:,} parameters in int8 with a scale for each row",
        "score": f"{card.score.metric} {card.score.value * scale:.4g}{unit} on {card.score.data}",
        "simple models": card.baselines,
        "measured by": f"`{card.command}`",
        "trained on": card.data,
        "licence of the data": card.licence,
        "attribution": card.attribution,
        "recipe": f"`regard train {card.recipe}`; the complete settings of this training are in recipe.toml",
        "training": card.training,
        "limits": card.limits,
    }
    lines = [f"# {name}", "", f"{card.about}.", "", "| | |", "|---|---|"]
    lines += [f"| {key} | {text} |" for key, text in rows.items() if text]
    return "\n".join(lines) + "\n"


INTRODUCTION = """\
# Models in the box

Small trained models come with the package, so that verbs work at once. This page is generated from their cards by
`make models`; `regard models` prints the table, and `regard models NAME` a card.

```
regard translate "I arrived at the bank after crossing the river."
regard generate "ROMEO:"
regard fill "She drank a cup of [MASK]."
regard classify "My mother baked a cake."
regard forecast --picture scene.svg
regard parse "I saw the man with the telescope."
regard annotate MKTAYIAKQRQISFVKSHFSRQ
regard embed "a text"
regard evaluate
regard look "The animal didn't cross the street because it was too tired."
regard look "She drank a cup of [MASK]." -m english
```

**The rule.** `-m` names a model: a folder, or else a name of this page. Without `-m`, a verb uses the model of this
page that is marked for it, and says so on standard error; `classify`, `embed` and `look` use `fashion` if the first
text is an image file, and `look` uses `crossing` for a scene (FILE@FRAME). Runs of your own are never chosen without
`-m`. Without files, `regard evaluate` and `regard ablate` measure a model of this page on the held-back data that comes
with it, and `regard forecast` shows a scene of it. From Python, `regard.load("en-fr")`.

Weights are stored in int8 with a scale for each row (those of the recurrent translators with 7 bits), and computed
with in float32. Scores are those of the stored weights. Each file has a checksum in `card.json`: a damaged file is an
error that says how to restore it. `make models` trains all of them from their recipes in `regard/recipes/box`, and
writes them into `regard/box`; a test compares each with the score of its card.
"""


def models_page() -> str:
    """Return docs/models.md: a table of all models, and their cards."""
    models = box_models()
    lines = [INTRODUCTION, "| model | verbs (*: without `-m`) | size | score | |", "|---|---|---:|---:|---|"]
    for model in models:
        verbs = ", ".join(f"{verb}*" if TEXT_DEFAULTS.get(verb) == model.name else verb for verb in model.card.verbs)
        cells = (f"[{model.name}](#{model.name})", verbs, f"{model.size / 1e6:.1f} MB", format_score(model.card.score))
        lines.append(f"| {' | '.join(cells)} | {model.card.about} |")
    for model in models:
        lines += ["", f"#{readme(model.name, model.card).rstrip()}"]
    return "\n".join(lines) + "\n"


def in_order(names: Sequence[str]) -> list[str]:
    """Return names with every model after the one that it starts from."""
    return sorted(names, key=lambda name: box_recipe(name).start is not None)


def main() -> None:
    parser = argparse.ArgumentParser(description="Train the models in the box, and write them into the package.")
    parser.add_argument("names", nargs="*", help="names of models; all by default")
    parser.add_argument("--from", dest="source", type=Path, help="read the data sets from this folder")
    parser.add_argument("--runs", type=Path, default=Path("runs/box"), help="folder for the runs")
    parser.add_argument("--pack", type=Path, metavar="RUN", help="pack this run as the one model that is named")
    given = parser.parse_args()
    names = in_order(given.names or box_recipe_names())
    get_data(names, given.source)
    for name in names:
        folder = pack(name, given.pack or train_box_model(name, given.runs))
        card = from_table(json.loads((folder / CARD).read_text(encoding="utf-8")), Card)
        print(f"{name}: {card.score.metric} {card.score.value}, check {card.check.value}", flush=True)
    write_text(PAGE, models_page())
    write_sample()
    if TRANSLATOR in names:
        write_training(given.pack or given.runs / TRANSLATOR)


if __name__ == "__main__":
    try:
        main()
    except RegardError as error:
        sys.exit(f"bench.models: {error}")
