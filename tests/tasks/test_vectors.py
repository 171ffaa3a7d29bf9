"""Word vectors: the loss of skip-gram, what is drawn, what is learned, and the nearest words."""

from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch

import regard
from regard.data.tokenizer import TokenizerConfig
from regard.errors import ConfigError, InputError
from regard.models.word2vec import Word2Vec, Word2VecConfig
from regard.tasks.loss import IGNORE
from regard.tasks.vectors import Vectors, VectorsConfig
from regard.tasks.word_table import WordTable

from ..cli.command import Command


def task(folder: Path, text: str, **settings: object) -> Vectors:
    (folder / "text.txt").write_text(text)
    config = VectorsConfig(train=(str(folder / "text.txt"),), documents="line", window=8, **settings)
    return config.prepare(TokenizerConfig(kind="word"), 0, lambda text: None)


def test_skip_gram_contrasts_neighbours_of_one_text_with_random_words(tmp_path: Path):
    found = task(tmp_path, "a b c\nd e\n" * 40, reach=1, negatives=2)
    model = Word2VecConfig(vocabulary=found.learned.size, dim=4).build()
    assert isinstance(model, Word2Vec)
    end, *(a, b, c, d, e) = found.learned.end, *(int(found.learned.encode(word)[0]) for word in "abcde")
    tokens = torch.tensor([[a, b, c, end, d, e]])
    batch = {
        "tokens": tokens,
        "labels": tokens.masked_fill(tokens == end, -100),
        "documents": torch.tensor([[0] * 4 + [1] * 2]),
    }
    drawn = torch.tensor([a, d])
    u, v = model.embed.tokens.table.weight, model.head.unembed.weight
    pairs = [(a, b), (b, a), (b, c), (c, b), (d, e), (e, d)]
    against = {w: 2 * -torch.nn.functional.logsigmoid(-(v[drawn] @ u[w])).mean() for w in (a, b, c, d, e)}
    wanted = sum(-torch.nn.functional.logsigmoid(u[w] @ v[around]) + against[w] for w, around in pairs)
    losses = found.contrast(model, batch, drawn)
    torch.testing.assert_close(losses.objective, wanted)
    assert losses.count == 5


def test_words_are_drawn_by_their_frequencies(tmp_path: Path):
    found = task(tmp_path, "a a a a a a a a b\n" * 40)
    a, b = (int(found.learned.encode(word)[0]) for word in "ab")
    drawn = found.draw_words(torch.linspace(0, 1, 10_001))
    share = 8**0.75 / (8**0.75 + 1)
    assert set(drawn.tolist()) <= {a, b, 0}  # 0 only for the number 0 itself
    assert float((drawn == a).float().mean()) == pytest.approx(share, abs=1e-3)


def test_frequent_words_are_left_out_more_often(tmp_path: Path):
    found = task(tmp_path, "a a a a a a a a b\n" * 40, subsample=0.05)
    a, b = (int(found.learned.encode(word)[0]) for word in "ab")
    tokens = torch.tensor([[a, b]]).repeat(4000, 1)
    labels = found.subsampled({"tokens": tokens, "labels": tokens}, torch.Generator().manual_seed(0))["labels"]
    shares = (labels != IGNORE).float().mean(0)
    assert shares.tolist() == pytest.approx([(0.05 * 9 / 8) ** 0.5, (0.05 * 9) ** 0.5], abs=0.03)
    with pytest.raises(ConfigError, match="0 leaves out all words"):
        task(tmp_path, "a b\n", subsample=0.0)


TABLE = WordTable(
    ["king", "man", "woman", "queen", "cup"],
    np.array([[1.0, 0, 1], [1, 0, 0], [0, 1, 0], [0, 1, 1], [0, 0, 0]]) / np.array([[2], [1], [1], [2], [1]]) ** 0.5,
)


def test_the_nearest_words_of_an_expression():
    assert [word for word, _ in TABLE.find("king - man + woman", 2)] == ["queen"]  # the words themselves do not count
    assert TABLE.find("king", 1) == [("man", pytest.approx(0.5**0.5))]
    assert TABLE.find("KING", 1) == TABLE.find("king", 1)


@pytest.mark.parametrize(
    ("expression", "rule"),
    [("kng", "'kng' is not among the 5 words; did you mean 'king'"), ("king man", "must alternate"),
     ("- king", "must alternate"), ("king -", "must end with a word"), ("", "must end with a word")],
)  # fmt: skip
def test_a_wrong_expression_is_explained(expression: str, rule: str):
    with pytest.raises(InputError, match=rule):
        TABLE.find(expression, 3)


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(monkeypatch, capsys)


@pytest.mark.unchecked
def test_words_that_keep_the_same_company_become_neighbours(tmp_path: Path, command: Command):
    pairs = product(("cat", "dog"), ("tea", "milk"))
    lines = [f"the {animal} sleeps . we drink {drink} today ." for animal, drink in pairs]
    (tmp_path / "text.txt").write_text("\n".join(lines * 60))
    table = {"kind": "vectors", "train": [str(tmp_path / "text.txt")], "documents": "line", "window": 16}
    settings = ["model.dim=8", "task.subsample=0.1", "train.steps=150", "train.tokens=256", "train.validate_every=75"]
    run = regard.train(table, *settings, run=tmp_path / "run")
    near = run.load("cpu").nearest("cat", 1)
    assert [word for word, _ in near] == ["dog"]
    ask = ["embed", "cat", "-m", run.folder, "--nearest", 1]
    assert command(*ask).out.startswith("dog ")
    assert '"word": "dog"' in command(*ask, "--json").out
    with pytest.raises(InputError, match="count=-1 must be a whole number, at least 1"):
        run.load("cpu").nearest("cat", -1)
    assert "--pool has no use" in command.refused(*ask, "--pool", "mean")
