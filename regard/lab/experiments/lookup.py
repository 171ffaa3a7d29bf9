"""Attention as a soft look-up in a dictionary: y = sum_i a_i v_i with a = softmax(q.k_i / temperature).

As the temperature grows all weights become 1/n and y the mean of the values (mean pooling); as it falls, the weight of
the nearest key becomes 1 and y its value. Graves et al. 2014, Neural Turing Machines; Bahdanau et al. 2015.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from regard import draw
from regard.errors import ConfigError
from regard.lab.experiment import Experiment, Lab, Picture, Row, Verdict
from regard.lab.spread import over_seeds
from regard.parts.attend import Terms, attend, explain
from regard.parts.score import Dot

CLOSE = 0.01  # a distance that counts as reached


@dataclass(frozen=True)
class _Settings:
    entries: int = 64
    width: int = 64
    noise: float = 0.3  # length of what is added to a key of length 1 to make its query
    warmest: int = 6  # temperatures are powers of two
    coldest: int = -9


def _measure(lab: Lab, settings: _Settings) -> Iterator[Row]:
    if settings.entries < 2:
        raise ConfigError(f"entries={settings.entries} must be at least 2")
    keys = F.normalize(torch.randn(settings.entries, settings.width), dim=-1)
    values = torch.randn(settings.entries, settings.width)
    noise = settings.noise * F.normalize(torch.randn_like(keys), dim=-1)
    query, key, value = (each.to(lab.device)[None, None] for each in (keys + noise, keys, values))
    mean, wanted = value.mean(2, keepdim=True), value  # the query of entry i is near key i, so value i is wanted
    from_mean_to_wanted = (wanted - mean).norm(dim=-1)
    for exponent in range(settings.warmest, settings.coldest - 1, -1):
        terms = Terms(Dot(settings.width, scale=2.0**-exponent))
        found = attend(query, key, value, terms)
        weights = explain(query, key, terms).weights
        yield {
            "temperature": 2.0**exponent,
            "distance from the mean": ((found - mean).norm(dim=-1) / from_mean_to_wanted).mean(),
            "distance from the entry": ((found - wanted).norm(dim=-1) / from_mean_to_wanted).mean(),
            "entropy in bits": -(weights * weights.clamp(min=1e-30).log2()).sum(-1).mean(),
            "largest weight": weights.amax(-1).mean(),
        }


def _draw(rows: Sequence[Row]) -> Iterable[Picture]:
    yield Picture(
        "distance",
        "Warm (right), attention returns the mean of all values; cold (left), the one entry that is asked for. Both "
        "distances are relative to that between the mean and the entry.",
        draw.lines(
            rows,
            x="temperature",
            y=["distance from the mean", "distance from the entry"],
            log="x",
            label="relative distance",
            title="From the mean to a dictionary",
        ),
    )
    yield Picture(
        "entropy",
        "Entropy of the attention weights: all entries count equally on the right, one of them on the left.",
        draw.lines(rows, x="temperature", y="entropy in bits", log="x", title="How many entries are read"),
    )


def _judge(rows: Sequence[Row]) -> Verdict:
    warmest, coldest = max(row["temperature"] for row in rows), min(row["temperature"] for row in rows)
    mean = over_seeds(rows, "distance from the mean", {"temperature": warmest})
    entry = over_seeds(rows, "distance from the entry", {"temperature": coldest})
    return Verdict(
        mean.high < CLOSE and entry.high < CLOSE,
        f"At temperature {warmest:g} the result is {mean} away from the mean of all values, and at {coldest:.2g} it is "
        f"{entry} away from the entry that is asked for (relative to the distance between the two).",
    )


EXPERIMENT = Experiment(
    name="lookup",
    title="Attention is a soft look-up: from the mean to a dictionary",
    claim="Attention is similar to mean pooling, but instead of taking just the average, it takes a weighted average. "
    "This allows soft look-ups, very similar to a look-up table.",
    source="Lecture notes, from NMT to Transformers, 4.1 and 4.2; slides on self-attention, 'from dictionary to "
    "feature based attention'.",
    method="""A dictionary has random keys of length 1 and random values. Each key, with some noise added, is used as a
query: a = softmax(q.k / temperature), y = sum a_i v_i, computed by the package's own attention.

At each temperature we measure how far y is from the mean of all values, and how far from the value of the entry that
was asked for, relative to the distance between these two; and the entropy of the weights.""",
    vary="""More noise in the queries, or more entries in fewer dimensions, make neighbours compete: then even a cold
look-up returns a wrong entry now and then.

    regard lab lookup noise=0.8 --out lab/lookup-noisy
    regard lab lookup entries=500 width=16 --out lab/lookup-crowded""",
    scales={
        "tiny": _Settings(entries=16, width=32),
        "default": _Settings(),
        "full": _Settings(entries=1024, width=512),
    },
    measure=_measure,
    draw=_draw,
    judge=_judge,
)
