"""Experiments on attention itself, tiny: lookup, scores, order, interaction, arithmetic, formal, three-ways."""

import pytest

from regard.errors import RegardError
from regard.lab import run_experiment
from regard.lab.exponent import fit_exponent
from regard.lab.page import Result


@pytest.fixture
def run(tmp_path):
    def tiny(name: str, *changes: str, seeds: int | None = None) -> Result:
        return run_experiment(name, *changes, scale="tiny", seeds=seeds, out=tmp_path / name)

    return tiny


def column(result: Result, name: str, **where: object) -> list[float]:
    return [row[name] for row in result.rows if all(row[key] == value for key, value in where.items())]


def test_attention_moves_from_the_mean_to_the_entry(run):
    result = run("lookup")
    assert result.verdict.holds, result.verdict.text
    assert column(result, "temperature", seed=0) == [2.0**power for power in range(6, -10, -1)]
    distances = column(result, "distance from the mean", seed=0)
    assert distances == sorted(distances)
    entropies = column(result, "entropy in bits", seed=0)
    assert entropies == sorted(entropies, reverse=True)
    assert abs(entropies[0] - 4) < 0.01  # of 16 entries


def test_dot_products_grow_with_the_root_of_the_width_unless_scaled(run):
    result = run("scores")
    assert result.verdict.holds, result.verdict.text
    size = "standard deviation of scores"
    assert abs(fit_exponent(result.rows, "width", size, {"score": "dot"}) - 0.5) < 0.1
    assert abs(fit_exponent(result.rows, "width", size, {"score": "scaled dot"})) < 0.1


def test_self_attention_is_equivariant_and_every_encoding_breaks_it(run):
    result = run("order")
    assert result.verdict.holds, result.verdict.text
    error = "equivariance error"
    assert max(column(result, error, encoding="none")) < 1e-6
    others = [row[error] for row in result.rows if row["encoding"] not in ("none", "linear, normed")]
    assert len(others) == 7 * 3
    assert min(others) > 1e-3
    assert max(column(result, error, encoding="linear, normed")) < 1e-6  # a layer norm subtracts it


def test_one_changed_vector_changes_others_in_attention_only(run):
    result = run("interaction", seeds=1)
    assert result.verdict.holds, result.verdict.text
    share = {row["part"]: row["change of other tokens"] for row in result.rows}
    assert share["feed-forward"] == share["layer norm"] == share["the block without attention"] == 0
    assert min(share[name] for name in ("attention", "batch norm", "the whole block")) > 0.01


def test_the_worked_example_and_the_quiz_have_the_numbers_of_the_lecture(run):
    result = run("arithmetic")
    assert result.verdict.holds, result.verdict.text
    answers = {row["quantity"]: row["value"] for row in result.rows}
    assert answers["scores of input 1"] == "2  4  4"
    assert answers["output of input 1"] == "1.9366  6.6831  1.5951"
    assert answers["parameters, full width per head"] == "805,306,368"
    for line in ("1*0 + 0*1 + 2*1 = 2", "softmax([2, 4, 4]) = [0.0634, 0.4683, 0.4683]", "805,306,368"):
        assert line in result.worked
        assert line in result.page.read_text(encoding="utf-8")


def test_another_layer_does_not_have_the_parameters_of_the_lecture(run):
    result = run("arithmetic", "heads=8", "width=512")
    assert result.verdict.holds is False
    assert "8,388,608 parameters" in result.verdict.text
    assert "counts 8,388,608 for the layer that was chosen" in result.worked


@pytest.mark.parametrize(
    ("name", "change"), [("lookup", "entries=1"), ("order", "tokens=1"), ("interaction", "tokens=1")]
)
def test_one_token_decides_nothing(run, name: str, change: str):
    with pytest.raises(RegardError, match=f"^{change} must be at least 2$"):
        run(name, change, seeds=1)


def test_the_fast_code_has_the_numbers_of_the_formal_algorithms(run):
    result = run("formal", seeds=1)
    assert result.verdict.holds, result.verdict.text
    assert [row["algorithm"] for row in result.rows] == list(range(1, 16))
    assert max(row["largest difference"] for row in result.rows) < 1e-6
    assert all(row["numbers"] > 0 for row in result.rows[:13])
    assert sorted(result.recipes) == ["bert.toml", "gpt2.toml", "transformer-base.toml"]


def test_memory_is_quadratic_only_for_explicit_attention(run):
    result = run("three-ways", seeds=1)
    assert result.verdict.holds, result.verdict.text

    def exponent(layer: str) -> float:
        return fit_exponent(result.rows, "length", "bytes kept", {"layer": layer}, largest=3)

    assert abs(exponent("attention, explicit") - 2) < 0.2
    assert abs(exponent("attention, fused") - 1) < 0.2
    assert column(result, "sequential steps", length=512) == [512, 128, 1, 1]  # a kernel of 5 reaches 4 tokens back
