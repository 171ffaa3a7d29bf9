"""Results: recipes in `regard/recipes/results` with a goal, and the runs that were measured with them.

NAME.toml is a recipe that `regard train results/NAME` runs. Its table [result] says which data it needs, on what
hardware it is meant to run, which test files it is measured on, and what is published. NAME.json beside it holds every
measurement: one for each seed and version of the recipe. Measurements of another version of the recipe are kept, but do
not count. `python -m bench.results` trains, measures and writes both.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from shlex import quote
from statistics import mean, stdev
from typing import Any, Literal

from regard.config import Config, Count, Table, from_table
from regard.errors import ConfigError, choices
from regard.recipe_files import RESULTS, read_recipe, result_names, shipped_file
from regard.untrusted import parse_json

HASHED = ("task", "tokenizer", "model", "train")  # the tables that decide what is trained
METRIC_NAMES = {  # what each metric is, for the page
    "bleu": ("BLEU", "cased BLEU by sacreBLEU on plain text (tokenizer 13a)"),
    "bleu_lowercase": ("BLEU lowercase", "BLEU by sacreBLEU on lowercased text (tokenizer 13a)"),
    "bleu_tokenised": ("BLEU of tokens", "cased BLEU by sacreBLEU on data that is tokenised already (tokenizer none)"),
    "bleu_detokenised": (
        "BLEU detokenised",
        "cased BLEU by sacreBLEU (tokenizer 13a) after translations and references were joined to plain text "
        "(`join_tokens` in regard/tasks/metric.py)",
    ),
    "accuracy": ("accuracy", "share of rows whose most likely class is the right one"),
    "q3": ("Q3", "share of residues whose state is right, of 3: helix (H, G, I), strand (E, B), coil"),
    "q3_strict": ("Q3 strict", "share of residues whose state is right, of 3: helix (H), strand (E), coil"),
    "q8": ("Q8", "share of residues whose state is right, of the 8 of DSSP"),
    "precision_l_6": (
        "precision of L contacts",
        "share of real contacts (C-alpha closer than 8 angstrom) among the L most likely ones of a chain of L "
        "residues, at least 6 residues apart",
    ),
    "precision_l5_24": (
        "precision of L/5 long contacts",
        "share of real contacts (C-alpha closer than 8 angstrom) among the L/5 most likely ones of a chain of L "
        "residues, at least 24 residues apart",
    ),
    "bracket_f1": (
        "bracketing F1",
        "labelled bracketing F1 as EVALB computes it with Collins's settings (`regard/tasks/bracketing.py`)",
    ),
    "word_perplexity": (
        "word perplexity",
        "exp(L / N), where L sums -log p over the whole file, and N counts the words between blanks and the ends of "
        "lines, as <eos>; <unk> in the file is a word like any other; the first token is given",
    ),
    "cached_word_perplexity": (
        "word perplexity with a cache",
        "the word perplexity of the model together with a neural cache of the text before (Grave et al. 2017; "
        "`regard/tasks/neural_cache.py`), which changes no weights",
    ),
    "ade": (
        "ADE",
        "average displacement error: the mean distance of a forecast from the truth over the predicted steps, in "
        "metres, of the best of 20 futures of each agent",
    ),
    "fde": ("FDE", "final displacement error: that distance at the last predicted step, of the best of 20 futures"),
    "loss": ("validation loss", "mean of -log p of a token, in nats, over all validation tokens but the first"),
}


@dataclass(frozen=True, kw_only=True)
class Goal(Config):
    """A metric, what a recipe should reach in it, and what is published."""

    metric: str
    goal: float | None = None
    published: float | None = None
    source: str = ""

    def validate(self) -> None:
        """Check that the metric is known."""
        if self.metric not in METRIC_NAMES:
            raise ConfigError(f"{self.metric!r} is not a metric of results; {choices(self.metric, METRIC_NAMES)}")


@dataclass(frozen=True, kw_only=True)
class Expected(Config):
    """The mean and spread of all runs with the present recipe; `python -m bench.results --merge` writes it."""

    recipe: str
    seeds: Count
    machine: str
    side_by_side: Count = 1  # how many runs shared the machine, and so its time
    seconds: float
    flops: float
    updates: Count
    score: dict[str, float]
    spread: dict[str, float]


@dataclass(frozen=True, kw_only=True)
class ResultConfig(Config):
    """The table [result]: `data` are names for `regard data`, `start` is the result whose weights a run starts from.

    `without` is the result without that start: the page states the gain. `same_as` are checksums of earlier texts of
    the recipe that came to the same settings, as when it now names what was a default: their measurements count.
    With `mean_of`, nothing is trained: the score is the mean over other results, seed by seed. With `folds`, the run of
    seed N leaves out fold N of the training data, so the score is the mean of a cross-validation. `tried` says what was
    tried to reach a goal that is missed.
    """

    data: tuple[str, ...]
    hardware: str
    device: Literal["cuda", "cpu"] = "cuda"
    test: tuple[str, ...] = ()
    start: str | None = None
    without: str | None = None
    same_as: tuple[str, ...] = ()
    mean_of: tuple[str, ...] = ()
    folds: Count | None = None
    note: str = ""
    tried: str = ""
    goals: tuple[Goal, ...] = ()
    expected: Expected | None = None

    def changes(self, seed: int) -> tuple[str, ...]:
        """Return the overrides of the run with a seed."""
        fold = () if self.folds is None else (f"task.fold={(seed - 1) % self.folds + 1}",)
        return (*fold, f"train.seed={seed}")


@dataclass(frozen=True)
class ResultRecipe:
    """A recipe with its goals and its measurements."""

    name: str
    table: Table  # of the whole recipe
    config: ResultConfig
    runs: list[dict[str, Any]]  # all measurements, the oldest first

    @property
    def about(self) -> str:
        """What is trained, in a sentence."""
        return str(self.table.get("about", ""))

    @property
    def checksum(self) -> str:
        """The checksum of everything in the recipe that decides what is trained and measured."""
        deciding = {key: self.table[key] for key in HASHED if key in self.table}
        others = [self.config.start] if self.config.start else self.config.mean_of
        start = "".join(read_result_recipe(name).checksum for name in others)
        text = json.dumps([deciding, self.config.test, start], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def counting(self) -> list[dict[str, Any]]:
        """Return the measurements of the present recipe: of those with the same settings as the last one, the last of
        each seed. A mean has one for each seed that all of its results have.
        """
        if self.config.mean_of:
            parts = [
                {run["seed"]: run for run in each.counting()} for each in map(read_result_recipe, self.config.mean_of)
            ]
            return [
                _mean_run([part[seed] for part in parts]) for seed in parts[0] if all(seed in part for part in parts)
            ]
        present = [run for run in self.runs if run["recipe"] in (self.checksum, *self.config.same_as)]
        # the settings of a run with a start name the folder of that start, which differs from seed to seed
        same = [run for run in present if self.config.start or run["resolved"] == present[-1]["resolved"]]
        return list({run["seed"]: run for run in same}.values())

    def expected(self) -> Expected | None:
        """Return the mean and the standard deviation of the runs that count.

        The time is that of the runs which shared the machine with the fewest others.
        """
        runs = self.counting()
        if not runs:
            return None
        beside = min(run["side_by_side"] for run in runs)
        scores = [run_scores(run) for run in runs]
        names = [name for name in scores[0] if name in METRIC_NAMES]
        return Expected(
            recipe=self.checksum,
            seeds=len(runs),
            machine=str(runs[-1]["machine"]),
            side_by_side=beside,
            seconds=round(mean(run["seconds"] for run in runs if run["side_by_side"] == beside), 1),
            flops=float(f"{mean(run['flops'] or 0 for run in runs):.3g}"),
            updates=round(mean(run["updates"] for run in runs)),
            score={name: _rounded(mean(score[name] for score in scores)) for name in names},
            spread={name: _rounded(stdev(score[name] for score in scores)) if len(runs) > 1 else 0.0 for name in names},
        )

    def commands(self) -> list[str]:
        """Return the commands that repeat one run and its measurement."""
        if self.config.mean_of:
            parts = [read_result_recipe(name).commands() for name in self.config.mean_of]
            return list(dict.fromkeys(command for part in parts for command in part))
        found = [f"regard data {name}" for name in self.config.data]
        init = ""
        if self.config.start is not None:
            found.append(f"regard train {RESULTS}/{self.config.start} --run runs/{self.config.start}")
            init = f" --init-from runs/{self.config.start}"
        fold = "" if self.config.folds is None else " task.fold=1"
        found.append(f"regard train {RESULTS}/{self.name}{fold} --run runs/{self.name}{init}")
        tested = " ".join(map(quote, self.config.test))
        return [*found, f"regard evaluate {tested} -m runs/{self.name}".replace("  ", " ")]


def read_result_recipe(name: str) -> ResultRecipe:
    """Read a result by its name: the recipe, its goals and its measurements."""
    if name not in result_names():
        raise ConfigError(f"no result has the name {name!r}; {choices(name, result_names())}")
    table = read_recipe(f"{RESULTS}/{name}")
    runs = shipped_file(f"{RESULTS}/{name}.json")
    found = parse_json(runs.read_text(encoding="utf-8"), runs) if runs.is_file() else []
    return ResultRecipe(name, table, from_table(table.get("result", {}), ResultConfig, "result"), found)


def run_scores(run: Mapping[str, Any]) -> dict[str, float]:
    """Return the scores of a run that count: on the test data; without any, on the validation data."""
    return dict(run["test"] or run["valid"])


def _mean_run(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Join the runs of several results with one seed: the mean of their scores, the sum of what they cost."""
    scores = [run_scores(run) for run in runs]
    flops = [run["flops"] for run in runs]
    return {
        **runs[-1],
        "test": {name: mean(score[name] for score in scores) for name in scores[0]},
        "seconds": sum(run["seconds"] for run in runs),
        "flops": None if None in flops else sum(flops),
        "updates": sum(run["updates"] for run in runs),
    }


def _rounded(value: float) -> float:
    return float(f"{value:.7g}")
