"""The experiment `recall`."""

from regard.lab import run_experiment
from regard.lab.experiments.recall import CHANCE, _fit_to_size
from regard.models.count import parameters
from regard.models.recipe import build_empty


def test_a_convolution_guesses_beyond_its_reach(tmp_path):
    result = run_experiment("recall", scale="tiny", seeds=1, out=tmp_path)
    (reach,) = {row["reach"] for row in result.rows}
    assert reach == 16  # 4 layers with kernels of 5
    beyond = [row["accuracy"] for row in result.rows if row["distance"] > reach]
    assert beyond
    assert max(beyond) < CHANCE + 0.15


def test_the_compared_models_have_the_same_number_of_parameters():
    sizes = [
        parameters(build_empty(_fit_to_size(name, 40_000, 128))) for name in ("elman", "lstm", "gru", "conv", "gpt2")
    ]
    assert max(sizes) < 1.12 * min(sizes), sizes
