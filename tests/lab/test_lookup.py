"""The experiment `lookup`."""

from regard.lab import run_experiment


def test_attention_moves_from_the_mean_to_the_entry(tmp_path):
    result = run_experiment("lookup", scale="tiny", out=tmp_path)
    assert result.verdict.holds, result.verdict.text
    of_one = [row for row in result.rows if row["seed"] == 0]
    assert [row["temperature"] for row in of_one] == [2.0**power for power in range(6, -10, -1)]
    distances = [row["distance from the mean"] for row in of_one]
    assert distances == sorted(distances)
    entropies = [row["entropy in bits"] for row in of_one]
    assert entropies == sorted(entropies, reverse=True)
    assert abs(entropies[0] - 4) < 0.01  # of 16 entries
