"""Masked language modelling: what is hidden, loss and measure against naive ones."""

from math import exp, inf, isnan
from pathlib import Path

import numpy as np
import pytest
import torch

from regard.data.batches import EMPTY, Draw, passages
from regard.data.tokenizer import TokenizerConfig
from regard.errors import ConfigError, InputError
from regard.models.recipe import build
from regard.tasks.loss import IGNORE
from regard.tasks.masked import Masked, MaskedConfig

from ..laws.cases import VARIANTS
from .corpora import model_for, nll, prepare, sentences, write


def task_of(path: Path, lines: list[str], valid: list[str], window: int = 6, rate: float = 0.15) -> Masked:
    files = {"train": (write(path / "train.txt", lines),), "valid": (write(path / "valid.txt", valid),)}
    return prepare("masked", TokenizerConfig("char"), documents="line", window=window, rate=rate, **files)


@pytest.fixture
def task(tmp_path) -> Masked:
    return task_of(tmp_path, sentences(40), sentences(12, seed=1), rate=0.4)


def test_hidden_tokens_are_masked_changed_or_kept(task):
    torch.manual_seed(0)
    ids = torch.randint(5, task.tokenizer.size, (400, 500))
    ids[:, ::10] = task.tokenizer.end
    tokens, labels = task.hide(ids)
    chosen = labels != IGNORE
    assert (labels[chosen] == ids[chosen]).all()
    assert (tokens[~chosen] == ids[~chosen]).all()
    assert not chosen[ids == task.tokenizer.end].any()  # end tokens are never hidden
    share = chosen[ids != task.tokenizer.end].double().mean()
    assert float(share) == pytest.approx(0.4, abs=0.01)
    masked = tokens[chosen] == task.tokenizer.mask
    kept = tokens[chosen] == ids[chosen]
    size = task.tokenizer.size  # a random token may also be the mask, or the same token
    assert float(masked.double().mean()) == pytest.approx(0.8 + 0.1 / size, abs=0.01)
    assert float(kept.double().mean()) == pytest.approx(0.1 + 0.1 / size, abs=0.01)
    others = tokens[chosen][~masked & ~kept].bincount(minlength=size)
    assert (others > 0).sum() >= size - 1  # any token may replace it


def test_a_batch_by_hand(tmp_path):
    task = task_of(tmp_path, ["abc", "de", "fgh"], ["abcdefgh"])
    batch_of = task.feed(model_for(task, "reader"), 12, 0).batch
    original = task.train.windows(np.array([0, 5]), 6)
    torch.manual_seed(3)
    batch = batch_of(Draw((6,), np.array([0, 5, EMPTY])), 0)
    assert task.tokenizer.decode(original.tolist()) == ["abcd", "defgh"]  # of |abc|de|fgh|
    assert batch["documents"][:2].tolist() == [[0, 0, 0, 0, 1, 1], [1, 1, 2, 2, 2, 2]]
    assert (batch["labels"][2] == IGNORE).all()
    shown = batch["labels"][:2] == IGNORE
    assert (batch["tokens"][:2][shown] == original[shown]).all()
    assert (batch["labels"][:2][~shown] == original[~shown]).all()
    assert task.needs() == {"vocabulary": task.tokenizer.size, "head": {"kind": "tokens"}}
    assert task.facts() == {"texts": 3, "tokens": 12, "validation tokens": 10}


def test_texts_are_kept_apart_where_all_is_attention(task):
    draw = Draw((6,), np.array([0]))
    for recipe in ("reader", "bert"):
        assert "documents" in task.feed(model_for(task, recipe), 12, 0).batch(draw, 0)
    recipe, changes = VARIANTS["bert-lstm"]
    assert "documents" not in task.feed(build(recipe, *changes), 12, 0).batch(draw, 0)


@torch.no_grad()
def naive_loss(model, tokens, labels, documents) -> tuple[float, int, int]:
    """Return loss, correct predictions and predictions, with every piece of a text in a row of its own."""
    loss = right = count = 0
    for number in documents.unique():
        here = documents == number
        logits = model(tokens[here][None])[0]
        asked = labels[here] != IGNORE
        loss += nll(logits[asked], labels[here][asked])
        right += int((logits.argmax(-1) == labels[here])[asked].sum())
        count += int(asked.sum())
    return loss, right, count


def test_loss_is_the_naive_one_and_empty_rows_change_nothing(task):
    model = model_for(task, "reader")
    batch = task.feed(model, 12, 0).batch(Draw((6,), np.array([0, 7, 30])), 0)
    with torch.no_grad():
        losses, carried = task.loss(model, batch)
    found = [naive_loss(model, *(batch[key][row] for key in ("tokens", "labels", "documents"))) for row in range(3)]
    wanted, _, count = np.sum(found, 0)
    assert float(losses.loss) == pytest.approx(wanted, rel=1e-9)
    assert int(losses.count) == count
    assert carried == {}
    empty = {key: torch.cat((value, value[:1])) for key, value in batch.items()}
    empty["labels"][3] = IGNORE
    with torch.no_grad():
        again, _ = task.loss(model, empty)
    assert float(again.objective) == pytest.approx(float(losses.objective), rel=1e-12)
    assert int(again.count) == count


def test_measure_is_the_naive_one_and_the_same_every_time(task):
    model = model_for(task, "reader")
    torch.manual_seed(5)
    before = torch.get_rng_state()
    values = task.measure(model)
    assert torch.equal(torch.get_rng_state(), before)  # so that validation does not change training
    generator = torch.Generator().manual_seed(0)
    found, tokens = [], 0
    for draw in passages(task.valid.tokens, 6, 4096 // 6 // 8 * 8):
        batch = task.rows(task.valid, draw, True, generator)
        rows = [[batch[key][row] for key in ("tokens", "labels", "documents")] for row in range(len(draw.rows))]
        found += [naive_loss(model, *row) for row in rows]
        tokens += batch["tokens"].numel()
    assert tokens == task.valid.tokens
    loss, right, count = np.sum(found, 0)
    assert values["loss"] == pytest.approx(loss / count, rel=1e-9)
    assert values["perplexity"] == pytest.approx(exp(loss / count), rel=1e-9)
    assert values["accuracy"] == pytest.approx(right / count)
    torch.manual_seed(99)
    assert task.measure(model) == values


def test_a_part_of_the_text_hides_the_same_tokens_every_time(task):
    model = model_for(task, "reader")
    part = task.measure(model, rows=3)
    torch.manual_seed(99)
    assert task.measure(model, rows=3) == part != task.measure(model)
    assert task.validation_cost(3) == 18


def test_samples_hide_one_token_each(task):
    samples = task.samples(model_for(task, "reader"))
    assert len(samples) == 3
    for sample in samples:
        assert sample.given.count("<mask>") == 1
        assert len(task.tokenizer.encode([sample.wanted])[0]) == 1 or sample.wanted == "</s>"
        assert sample.made


def test_given_validation_and_evaluation(task, tmp_path):
    text = task.tokenizer.decode(task.valid.windows(np.array([0]), task.valid.tokens).tolist())[0]
    assert text == "".join(sentences(12, seed=1))
    other = write(tmp_path / "other.txt", sentences(5, seed=2))
    opened = task.config.evaluation(task.tokenizer, [other])
    assert opened.measure(model_for(task, "reader"))["loss"] > 0
    with pytest.raises(
        InputError, match="short.txt: 4 tokens for measuring are too few for windows of 6; give more text"
    ):
        task.config.evaluation(task.tokenizer, [write(tmp_path / "short.txt", ["ab"])])


def test_a_text_in_which_nothing_is_hidden_has_no_measure(tmp_path):
    task = task_of(tmp_path, sentences(40), ["abcdefgh"], rate=1e-9)
    assert isnan(task.measure(model_for(task, "reader"))["loss"])


@pytest.mark.filterwarnings("error")
def test_a_perplexity_that_no_float_can_hold_is_infinite(task):
    model = model_for(task, "reader", "model.head.bias=true")
    with torch.no_grad():
        model.head.bias[task.tokenizer.pad] += 1e5
    found = task.measure(model)
    assert (found["perplexity"], found["accuracy"]) == (inf, 0)
    assert found["loss"] > 1e4


def test_something_must_be_hidden():
    with pytest.raises(ConfigError, match="rate: 0 leaves nothing to predict; it must be above 0"):
        MaskedConfig(train=("a",), rate=0.0)
    with pytest.raises(ConfigError, match="train must name at least one file"):
        MaskedConfig(train=())


def test_the_probe_is_a_text_with_one_token_hidden_always_the_same(tmp_path):
    task = task_of(tmp_path, sentences(40), ["red", "two cats", "dogs"], window=9)
    before = torch.get_rng_state()
    (tokens,) = task.probe()["tokens"].tolist()
    assert torch.equal(torch.get_rng_state(), before)
    dogs = [task.tokenizer.end, *task.tokenizer.encode(["dogs"])[0].tolist()]
    assert tokens == [*dogs[:2], task.tokenizer.mask, *dogs[3:]]
    assert task.valid.windows(np.array([13]), 5).tolist() == [dogs]  # the text itself is unchanged
    model = model_for(task, "reader")
    assert model(*task.probe().values()).shape == (1, 5, task.tokenizer.size)
