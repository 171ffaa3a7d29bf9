"""The experiment `recall`."""

from regard.lab import run_experiment
from regard.lab.experiments import find_experiment
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


def test_the_verdict_names_what_speaks_against_the_lecture():
    found = {"Elman": (1.0, 0.92), "LSTM": (1.0, 1.0), "convolution": (0.8, 0.04), "attention (gpt2)": (1.0, 1.0)}
    rows = [
        {"model": name, "distance": distance, "accuracy": accuracy, "reach": 16 * (name == "convolution")}
        for name, accuracies in found.items()
        for distance, accuracy in zip((1, 64), accuracies, strict=True)
    ]
    verdict = find_experiment("recall").judge(rows)
    assert verdict.holds is False
    assert "Elman, LSTM can hold it over 64 tokens. Against the lecture, that includes the Elman" in verdict.text
    assert "Not learned in these updates, even within its reach: convolution." in verdict.text


def test_the_compared_models_have_the_same_number_of_parameters():
    sizes = [
        parameters(build_empty(_fit_to_size(name, 40_000, 128))) for name in ("elman", "lstm", "gru", "conv", "gpt2")
    ]
    assert max(sizes) < 1.12 * min(sizes), sizes
