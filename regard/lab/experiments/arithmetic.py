"""The worked example of the lecture, and its parameter quiz, step by step.

K = X W_K, V = X W_V, Q = X W_Q; scores q.k, weights softmax(q.k), output the weighted sum of the values; unscaled, as
in the slides. Quiz: a layer of J heads, each with four d x d matrices, has 4 J d^2 parameters.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch

from regard import draw
from regard.lab.experiment import Experiment, Lab, Picture, Row, Verdict
from regard.parts.attention import Attention
from regard.parts.heads import MultiHeads
from regard.parts.score import Dot
from regard.parts.watch import Record, watch

INPUTS = ((1, 0, 1, 0), (0, 2, 0, 2), (1, 1, 1, 1))
WEIGHTS = {
    "key": ((0, 0, 1), (1, 1, 0), (0, 1, 0), (1, 1, 0)),
    "value": ((0, 2, 0), (0, 3, 0), (1, 0, 3), (1, 1, 0)),
    "query": ((1, 0, 1), (1, 0, 0), (0, 0, 1), (0, 1, 1)),
}
LECTURE = "scores of input 1"  # what the slides print
LECTURE_SCORES, LECTURE_PARAMETERS = (2.0, 4.0, 4.0), 805_306_368


@dataclass(frozen=True)
class _Settings:
    heads: int = 12
    width: int = 4096


def _attend() -> Record:
    """Compute the example with the package's own attention."""
    attention = Attention(MultiHeads(4, heads=1, head_dim=3), Dot(3, scale=1.0)).double()
    for name, matrix in WEIGHTS.items():
        getattr(attention.heads, f"to_{name}").weight.data = torch.tensor(matrix, dtype=torch.float64).T
    with watch(attention) as tape, torch.no_grad():
        attention(torch.tensor([INPUTS], dtype=torch.float64))
    return tape[""][0]


def _measure(lab: Lab, settings: _Settings) -> Iterator[Row]:
    found = _attend()
    for number, row in enumerate(found.explain(0).scores[0, 0], 1):
        yield {"quantity": f"scores of input {number}", "value": _numbers(row)}
    for number, row in enumerate(found.weights[0, 0], 1):
        yield {"quantity": f"weights of input {number}", "value": _numbers(row)}
    for number, row in enumerate(found.mixed[0, 0], 1):
        yield {"quantity": f"output of input {number}", "value": _numbers(row)}
    with torch.device("meta"):  # shapes only
        full = MultiHeads(settings.width, settings.heads, head_dim=settings.width)
        usual = MultiHeads(settings.width, settings.heads, head_dim=settings.width // settings.heads)
    for name, layer in (("full width per head", full), ("width divided among the heads", usual)):
        yield {"quantity": f"parameters, {name}", "value": f"{sum(weight.numel() for weight in layer.parameters()):,}"}


def _numbers(row: torch.Tensor) -> str:
    return "  ".join(_short(value) for value in row.tolist())


def _worked(rows: Sequence[Row]) -> str:
    """Return the calculation, step by step."""
    found = _attend()
    query, key, value = (part[0, 0] for part in (found.query, found.key, found.value))
    lines = ["1. Three inputs of width 4, one in each row:", *_matrix("X", torch.tensor(INPUTS)), ""]
    lines += ["2. Three learned matrices turn each input into a key, a value and a query:"]
    for name, names, made in (("key", "keys", key), ("value", "values", value), ("query", "queries", query)):
        letter = name[0].upper()
        lines += ["", *_product(f"X W_{letter}", torch.tensor(INPUTS), torch.tensor(WEIGHTS[name]), names, made)]
    scores, weights = found.explain(0).scores[0, 0], found.weights[0, 0]
    for number in range(3):
        q, e, a, y = query[number], scores[number], weights[number], found.mixed[0, 0, number]
        lines += ["", f"{number + 3}. What input {number + 1} becomes: its query is [{_list(q)}]."]
        lines += [f"   score with key {i + 1}:   {_dot(q, k)} = {e[i]:g}" for i, k in enumerate(key)]
        lines += [f"   softmax([{_list(e)}]) = [{_list(a)}]"]
        lines += [f"   {a[i]:.4f} x [{_list(v)}] = [{_list(a[i] * v)}]" for i, v in enumerate(value)]
        lines += [f"   sum: [{_list(y)}]"]
    answers = {row["quantity"]: row["value"] for row in rows}
    full, usual = (answers[f"parameters, {name}"] for name in ("full width per head", "width divided among the heads"))
    lines += ["", "6. Quiz: how many parameters has an attention layer of J heads and width d?"]
    lines += [
        "   Each head has M_Q, M_K, M_V and M_O, all d x d: 4 J d^2 in all; the number of tokens does not matter."
    ]
    layer = "J = 12 and d = 4096" if full == f"{LECTURE_PARAMETERS:,}" else "the layer that was chosen"
    lines += [f"   The package counts {full} for {layer}."]
    lines += [
        f"   With the width divided among the heads, as usual today, it is {usual}: about 4 d^2, however many heads."
    ]
    return "\n".join(lines)


def _list(row: torch.Tensor) -> str:
    return ", ".join(_short(value) for value in row.tolist())


def _short(value: float) -> str:
    """Return a number with at most four decimals."""
    return f"{value:.4f}".rstrip("0").rstrip(".")


def _dot(left: torch.Tensor, right: torch.Tensor) -> str:
    return " + ".join(f"{a:g}*{b:g}" for a, b in zip(left.tolist(), right.tolist(), strict=True))


def _matrix(name: str, matrix: torch.Tensor) -> list[str]:
    rows = [" ".join(f"{value:3g}" for value in row) for row in matrix.tolist()]
    return [f"   {name if number == 0 else '':<{len(name)}} [{row} ]" for number, row in enumerate(rows)]


def _product(text: str, left: torch.Tensor, right: torch.Tensor, name: str, result: torch.Tensor) -> list[str]:
    """Return `left right = result`, side by side."""
    height = max(len(left), len(right), len(result))
    blocks = []
    for matrix in (left, right, result):
        rows = ["[" + " ".join(f"{value:2g}" for value in row) + " ]" for row in matrix.tolist()]
        blocks.append(rows + [" " * len(rows[0])] * (height - len(rows)))
    signs = ["  =  ", *["     "] * (height - 1)]
    body = [f"   {a}  {b}{sign}{c}" for a, b, c, sign in zip(*blocks, signs, strict=True)]
    return [f"   {text} = {name}", *(line.rstrip() for line in body)]


def _draw(rows: Sequence[Row]) -> Iterable[Picture]:
    names = ["input 1", "input 2", "input 3"]
    yield Picture(
        "weights",
        "The attention weights of the example: rows are queries, columns keys.",
        draw.heatmap(_attend().weights[0, 0].numpy(), names, names, title="softmax(QK^T)"),
    )


def _judge(rows: Sequence[Row]) -> Verdict:
    answers = {row["quantity"]: row["value"] for row in rows}
    scores = tuple(float(number) for number in answers[LECTURE].split())
    parameters = int(answers["parameters, full width per head"].replace(",", ""))
    return Verdict(
        scores == LECTURE_SCORES and parameters == LECTURE_PARAMETERS,
        f"The first input's scores are [{', '.join(f'{score:g}' for score in scores)}], its weights "
        f"[{', '.join(answers['weights of input 1'].split())}] and its new vector "
        f"[{', '.join(answers['output of input 1'].split())}]. The layer of the quiz has {parameters:,} parameters.",
    )


EXPERIMENT = Experiment(
    name="arithmetic",
    title="Self-attention by hand: the worked example and the parameter quiz",
    claim="""Three inputs of width 4 with the given key, value and query weights: the scores of the first input are
[2, 4, 4], their softmax weighs the values, and the weighted sum is the new vector of the first input.

An attention layer of J heads and width d has 4 J d^2 parameters: for J = 12 and d = 4096, 805,306,368.""",
    source="Slides on self-attention (the worked example); lecture on Transformers for LLMs (the quiz).",
    method="""The example is computed by the package's own attention, unscaled as in the slides, and every step is
printed. The inputs are [1, 0, 1, 0], [0, 2, 0, 2] and [1, 1, 1, 1].

For the quiz, the layer is built without memory, and its weights are counted: once with heads of full width, as in the
lecture, and once with the width divided among the heads, as in Vaswani et al. 2017.""",
    vary="""Another layer for the quiz:

    regard lab arithmetic heads=8 width=512 --out lab/quiz

The verdict compares with the lecture's numbers, so it does not hold then. To change the example itself, see
`by_hand` in `examples/first_look.py`.""",
    scales={"tiny": _Settings(), "default": _Settings(), "full": _Settings()},
    measure=_measure,
    draw=_draw,
    judge=_judge,
    seeds=1,
    worked=_worked,
    table=lambda rows: [],  # all is in the calculation
)
