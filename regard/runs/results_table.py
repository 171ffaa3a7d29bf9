"""The results as tables: rows for `regard results`, the page docs/results.md, and the summary in README.md."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from regard.recipe_files import result_names
from regard.runs.results import METRIC_NAMES, Expected, Goal, ResultConfig, ResultRecipe, read_result_recipe, run_scores
from regard.tasks.metric import HIGHER_IS_BETTER

SEEDS = 3  # the least number of runs of which a spread is stated
NOT_MEASURED = "not measured"
# metrics that are written in percent
SHARES = ("accuracy", "q3", "q3_strict", "q8", "precision_l5_24", "precision_l_6")

STEP_METRICS = {
    "IWSLT'15 English to Vietnamese, BLEU of tokens": "bleu_tokenised",
    "parsing of the treebank sample, bracketing F1": "bracket_f1",
}
STEPS: dict[str, tuple[str | None, str | None]] = {
    "LSTMs": ("iwslt15-en-vi-rnn-seq2seq", None),
    "LSTMs with attention": ("iwslt15-en-vi-rnn-attention", "parsing-rnn-attention"),
    "Transformer": ("iwslt15-en-vi", "parsing"),
}


@dataclass(frozen=True)
class ResultRow:
    """One line of the table: a recipe and one of its metrics."""

    name: str
    metric: str
    score: str
    goal: str
    published: str
    distance: str  # to the goal
    reached: bool | None  # whether the goal is; None: there is none, or too little was measured
    time: str
    hardware: str


def result_rows(results: Sequence[ResultRecipe]) -> Iterator[ResultRow]:
    """Yield a row for each goal of each result."""
    for result in results:
        expected = result.expected()
        for goal in result.config.goals:
            score, time = NOT_MEASURED, ""
            ahead: float | None = None
            if expected is not None:
                value, spread = expected.score[goal.metric], expected.spread[goal.metric]
                few = _few(result.config, expected.seeds)
                between = f" ± {_shown(goal.metric, spread)}" if expected.seeds > 1 else ""
                score = f"{_shown(goal.metric, value)}{between}{few}"
                ahead = None if expected.seeds < (result.config.folds or 1) else _ahead(goal, value)
                time = _duration(expected)
            sign = ">" if HIGHER_IS_BETTER[goal.metric] else "<"
            aim = "" if goal.goal is None else f"{sign} {_shown(goal.metric, goal.goal)}"
            published = "" if goal.published is None else _shown(goal.metric, goal.published)
            yield ResultRow(
                result.name,
                METRIC_NAMES[goal.metric][0],
                score,
                aim,
                published,
                "" if ahead is None else _distance(goal.metric, ahead),
                None if ahead is None else ahead >= 0,
                time,
                result.config.hardware,
            )


def results_page() -> str:
    """Return docs/results.md."""
    results = [read_result_recipe(name) for name in result_names()]
    lines = [
        "# Results",
        "",
        "The scores of the recipes in `regard/recipes/results`, beside published ones. `regard results` prints the",
        "table, and `regard train results/NAME` repeats a run. This page is generated from NAME.toml, the recipe, and",
        "NAME.json beside it, which has every run.",
        "",
        "A score is the mean over the seeds ± their standard deviation; where there are fewer than three seeds, their",
        "number is given. A recipe with folds has one run for each fold; mean and deviation are those of the folds.",
        "The time is that of one run from start to end: reading, compiling, training and validating. A number in",
        "brackets behind it says how many runs shared the machine: alone, a run would have taken less time. If seeds",
        "shared it with different numbers of runs, the time is that of the seeds with the fewest.",
        "",
        "All choices, including that of the best weights, are made on validation data; where this is not quite so,",
        "the recipe says it. Test data is measured once for each seed of a recipe and its resolved settings. It is",
        "measured again only for a reason that the record names, and every measurement is kept. Where a goal is",
        "missed, the recipe says what was tried.",
        "",
        *_markdown_table(results),
        "",
        "## From recurrence to attention to the Transformer",
        "",
        "The same data read by three kinds of model: LSTMs that pass one vector from source to target, LSTMs with",
        "attention, and the Transformer.",
        "",
        *_steps_table(results),
        "",
        "## Metrics",
        "",
        *(f"- **{short}**: {meaning}." for short, meaning in METRIC_NAMES.values()),
        "",
        "## Data",
        "",
        "Paths in the recipes are those that `regard data NAME` writes: `data/NAME/FILE`. Where a data set cannot be",
        "downloaded, `regard data NAME --from FOLDER` reads its files from a folder, plain or compressed, and checks",
        "them. `python -m bench.results --from FOLDER --data DIR` does so for all recipes that it trains.",
        "",
        "## Recipes",
    ]
    for result in results:
        lines += ["", *_section(result, [other.name for other in results if other.config.start == result.name])]
    return "\n".join(lines) + "\n"


def results_summary() -> str:
    """Return a table of what is measured and comparable, for README.md.

    It has a row for each score that can be compared with a published one, of the recipes that are not a part of another
    one; docs/results.md has them all.
    """
    results = [each for each in map(read_result_recipe, result_names()) if each.config.goals]
    parts = {name for result in results for name in result.config.mean_of}
    lines = ["| data and model | metric | score | published | time (runs at once) |", "|---|---|---:|---:|---|"]
    for result in results:
        expected = result.expected()
        if expected is None or result.name in parts or expected.seeds < (result.config.folds or 1):
            continue
        for row in result_rows([result]):
            if row.published:
                cells = (row.metric, row.score, row.published, f"{row.time}, {row.hardware}")
                lines.append(f"| [{result.about}](docs/results.md#{result.name}) | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _markdown_table(results: Sequence[ResultRecipe]) -> Iterator[str]:
    yield "| recipe | metric | score | goal | | published | time (runs at once) | hardware |"
    yield "|---|---|---:|---:|---|---:|---:|---|"
    for row in result_rows(results):
        cells = (row.metric, row.score, row.goal, row.distance, row.published, row.time, row.hardware)
        yield f"| [{row.name}](#{row.name}) | {' | '.join(cells)} |"


def _steps_table(results: Sequence[ResultRecipe]) -> Iterator[str]:
    """Yield a line for each of `STEPS`: its score on each data set, where it is measured."""
    found = {result.name: result.expected() for result in results}
    yield f"| | {' | '.join(STEP_METRICS)} |"
    yield f"|---|{'---:|' * len(STEP_METRICS)}"
    for kind, names in STEPS.items():
        cells = []
        for name, metric in zip(names, STEP_METRICS.values(), strict=True):
            expected = found.get(name or "")
            cells.append("" if expected is None else f"[{_shown(metric, expected.score[metric])}](#{name})")
        yield f"| {kind} | {' | '.join(cells)} |"


def _section(result: ResultRecipe, successors: Sequence[str]) -> Iterator[str]:
    """Yield what is known of a result; `successors` start from its model."""
    config, expected = result.config, result.expected()
    yield f"### {result.name}"
    yield ""
    yield result.about + "."
    if config.note:
        yield config.note
    yield ""
    yield "```"
    yield from result.commands()
    yield "```"
    yield ""
    for goal in config.goals:
        aim = [] if goal.goal is None else [f"goal {_shown(goal.metric, goal.goal)}"]
        source = f" ({goal.source})" if goal.source else ""
        aim += [] if goal.published is None else [f"published {_shown(goal.metric, goal.published)}{source}"]
        if aim:
            yield f"- {METRIC_NAMES[goal.metric][0]}: {'; '.join(aim)}"
    if config.tried:
        yield f"- What was tried: {config.tried}"
    if expected is None and successors:
        links = ", ".join(f"[{name}](#{name})" for name in successors)
        yield f"- measured through what starts from it ({links}); time and operations there include its own"
        return
    if expected is None:
        yield f"- {NOT_MEASURED}" + _earlier(result)
        return
    yield f"- {expected.updates:,} updates, {expected.flops:.2g} FLOPs, {expected.seconds:.0f} s on {expected.machine}"
    for run in result.counting():
        scores = run_scores(run)
        metrics = [goal.metric for goal in config.goals]
        shown = ", ".join(f"{METRIC_NAMES[metric][0]} {_shown(metric, scores[metric])}" for metric in metrics)
        cost = f"{run['seconds']:.0f} s, {run['updates']:,} updates, {run['date']}"
        yield f"- {'seed' if config.folds is None else 'fold'} {run['seed']}: {shown}; {cost}"
    yield from _gains(result, expected)
    if earlier := _earlier(result):
        yield f"- {earlier.strip(' ()')}"


def _gains(result: ResultRecipe, expected: Expected) -> Iterator[str]:
    """Yield what the start from another result gains, in each metric with a goal: the difference of the means."""
    config = result.config
    other = None if config.without is None else read_result_recipe(config.without).expected()
    if other is None:
        return
    for goal in config.goals:
        metric, scores = goal.metric, (expected.score, other.score)
        new, old = (score[metric] for score in scores)
        sign = "+" if new >= old else "-"
        between = f"{_shown(metric, new)} against {_shown(metric, old)} of [{config.without}](#{config.without})"
        gain = f"{sign}{_shown(metric, abs(new - old))}"
        yield f"- gain from starting with {config.start}: {METRIC_NAMES[metric][0]} {gain} ({between})"


def _few(config: ResultConfig, runs: int) -> str:
    """Return how many runs a score is of, where that is fewer than it should be of."""
    if config.folds is not None:
        return f" ({runs} of {config.folds} folds)" if runs < config.folds else ""
    return "" if runs >= SEEDS else f" ({runs} seed{'s' * (runs > 1)})"


def _ahead(goal: Goal, value: float) -> float | None:
    """Return by how much a score is better than its goal; negative if it is worse, None without a goal."""
    if goal.goal is None:
        return None
    return value - goal.goal if HIGHER_IS_BETTER[goal.metric] else goal.goal - value


def _distance(metric: str, ahead: float) -> str:
    """Return the distance to a goal in words."""
    by, nothing = _shown(metric, abs(ahead)), _shown(metric, 0.0)
    shown = f"less than {nothing[:-1]}1" if by == nothing and not nothing.endswith("%") else by
    return f"{'reached' if ahead >= 0 else 'missed'} by {shown}"


def _duration(expected: Expected) -> str:
    shared = f" ({expected.side_by_side})" if expected.side_by_side > 1 else ""
    return f"{expected.seconds / 60:.1f} min{shared}"


def _earlier(result: ResultRecipe) -> str:
    count = 0 if result.config.mean_of else len(result.runs) - len(result.counting())
    return f" ({count} measurement{'s' * (count > 1)} of other versions in {result.name}.json)" if count else ""


def _shown(metric: str, value: float) -> str:
    """Return a score as it is usually written."""
    if metric in SHARES:
        return f"{100 * value:.1f} %"
    digits = {"loss": 3, "ade": 3, "fde": 3}.get(metric, 1)
    return f"{value:.{digits}f}"
