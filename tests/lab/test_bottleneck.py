"""The experiment `bottleneck`, and the grammar that its sentences come from."""

from random import Random

import pytest

from regard.lab import run_experiment
from regard.lab.experiments.bottleneck import ATTENTIVE, BLEU, PLAIN, TRANSFORMER, _judge
from regard.lab.phrases import AFTER, make_phrases


@pytest.mark.usefixtures("no_reports")
def test_every_model_translates_sources_of_every_length(tmp_path):
    result = run_experiment("bottleneck", scale="tiny", seeds=1, out=tmp_path)
    assert [(row["model"], row["clauses"]) for row in result.rows] == [
        (model, clauses) for model in (PLAIN, ATTENTIVE, TRANSFORMER) for clauses in (1, 2)
    ]
    assert result.verdict.holds is None  # three updates decide nothing
    assert "trained for a few updates only, since --scale tiny" in result.verdict.text


@pytest.mark.parametrize(("plain", "holds"), [(10.0, True), (80.0, False)])
def test_the_verdict_follows_the_share_that_is_kept(plain, holds):
    ends = {PLAIN: plain, ATTENTIVE: 70.0, TRANSFORMER: 99.0}
    rows = [
        {"seed": seed, "model": model, "clauses": clauses, BLEU: bleu, "words in the source": 6 * clauses}
        for seed in range(3)
        for model, end in ends.items()
        for clauses, bleu in ((1, 100.0), (4, end + seed))
    ]
    assert _judge(rows).holds is holds


def test_generated_links_say_which_words_change_places():
    # with an adjective that follows its noun in French
    pair = next(pair for seed in range(50) if set((pair := make_phrases(2, Random(seed))).english) & set(AFTER))
    places = [french for _, french in sorted(pair.links)]
    assert sorted(places) == list(range(len(pair.french)))
    assert places != sorted(places)
