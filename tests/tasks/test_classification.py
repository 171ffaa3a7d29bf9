"""Classification of texts: batches by hand, loss and measure against naive ones, labels that do not fit."""

from pathlib import Path

import numpy as np
import pytest
import torch

from regard.data.batches import EMPTY, Draw
from regard.errors import ConfigError, InputError
from regard.tasks.classification import Classification, ClassificationConfig
from regard.tasks.loss import IGNORE
from regard.tasks.metric import classification_scores
from regard.tasks.task import PASS_SECONDS

from .corpora import model_for, nll, prepare, sentences, write

CLASSES = ("model.head.kind=classes", "model.head.classes=2", "model.head.pool.kind=mean")
NO_DROPOUT = ("model.embed.dropout=0.0", "model.layers.block.dropout=0.0")


def table(path: Path, rows: list[tuple[str, str]]) -> str:
    return write(path, ["text\tlabel", *("\t".join(row) for row in rows)])


def labelled(count: int, seed: int = 0) -> list[tuple[str, str]]:
    """Label each text by the first animal in it."""
    return [(text, "cats" if "cat" in text else "none") for text in sentences(count, seed)]


@pytest.fixture
def task(tmp_path) -> Classification:
    train, valid = table(tmp_path / "train.tsv", labelled(60)), table(tmp_path / "valid.tsv", labelled(17, seed=1))
    return prepare("classification", train=(train,), valid=(valid,))


def test_a_batch_by_hand(tmp_path):
    rows = [("red dog", "b"), ("one two three", "a"), ("cat", "b"), ("blue dog runs", "c")]
    task = prepare("classification", train=(table(tmp_path / "t.tsv", rows),), valid=(table(tmp_path / "v.tsv", rows),))
    tokenizer = task.tokenizer
    batch = task.rows(task.train, Draw((5,), np.array([2, 1, EMPTY])))
    cat, numbers = tokenizer.encode(["cat", "one two three"])
    start, end, pad = tokenizer.start, tokenizer.end, tokenizer.pad
    assert batch["tokens"].tolist() == [[start, *cat, end, pad, pad], [start, *numbers, end], [pad] * 5]
    assert batch["lengths"].tolist() == [3, 5, 1]
    assert batch["labels"].tolist() == [1, 0, IGNORE]  # classes in alphabetical order
    assert task.config.classes == ("a", "b", "c")  # which are kept with the run
    assert task.facts() == {"texts": 4, "tokens": 17, "classes": 3, "validation texts": 4}
    assert task.needs() == {"vocabulary": tokenizer.size, "head": {"kind": "classes", "classes": 3}}


def test_long_texts_are_cut_and_counted(tmp_path):
    rows = [("red dog", "b"), ("one two three cat", "a")]
    files = {"train": (table(tmp_path / "t.tsv", rows),), "valid": (table(tmp_path / "v.tsv", rows),)}
    task = prepare("classification", longest=5, **files)
    assert task.train.lengths.tolist() == [4, 5]
    assert task.tokenizer.decode(task.rows(task.train, Draw((5,), np.array([1])))["tokens"].tolist()) == [
        "one two three"
    ]
    assert task.skipped.report() == ["2 ends of a text of more than 5 tokens skipped (first: text 2)"]


def naive(task: Classification, model, every: int = 1) -> tuple[float, list[int], list[int]]:
    """Return loss, predictions and labels of the validation texts, one by one."""
    loss, guesses, labels = 0.0, [], []
    for row in task.valid.rows[::every]:
        tokens = task.valid.corpus.padded(np.array([row]), int(task.valid.corpus.lengths[row]), 0)
        logits = model(tokens).detach()
        labels.append(int(task.valid.labels[row]))
        guesses.append(int(logits.argmax()))
        loss += nll(logits, torch.tensor(labels[-1:]))
    return loss, guesses, labels


def test_measure_is_the_naive_one(task):
    model = model_for(task, "reader", *CLASSES)
    loss, guesses, labels = naive(task, model)
    assert 0 < sum(guesses) < 17  # the model predicts both classes
    values = task.measure(model)
    assert values["loss"] == pytest.approx(loss / 17, rel=1e-9)
    right = sum(guess == label for guess, label in zip(guesses, labels, strict=True))
    assert values["accuracy"] == pytest.approx(right / 17)
    assert values["f1"] == classification_scores(np.array(guesses), np.array(labels), ("cats", "none"))["f1"]


def test_a_part_of_the_texts_is_evenly_spread(task, monkeypatch):
    model = model_for(task, "reader", *CLASSES)
    loss, guesses, labels = naive(task, model, every=4)
    values = task.measure(model, rows=5)
    assert values["loss"] == pytest.approx(loss / 5, rel=1e-9)
    assert values["accuracy"] == pytest.approx(np.mean(np.array(guesses) == labels))
    assert [task.method(rows) for rows in (None, 5, 17)] == ["", "5 of 17 texts", ""]
    assert [task.validation_cost(rows) for rows in (None, 5)] == [task.valid.lengths[::n].sum() for n in (1, 4)]
    monkeypatch.setattr("regard.tasks.classification.AT_ONCE", 1)
    assert [task.validation_latency(rows) / PASS_SECONDS for rows in (None, 5)] == pytest.approx([17, 5])


@torch.no_grad()
def test_loss_is_the_naive_one_and_empty_rows_change_nothing(task):
    model = model_for(task, "reader", *CLASSES)
    width = int(task.valid.lengths.max())
    every = Draw((width,), np.arange(17))
    losses, carried = task.loss(model, task.rows(task.valid, every))
    assert float(losses.loss) == pytest.approx(naive(task, model)[0], rel=1e-9)
    assert int(losses.count) == 17
    assert carried == {}
    more = Draw((width + 3,), np.array([*range(17), EMPTY, EMPTY]))
    again, _ = task.loss(model, task.rows(task.valid, more))
    assert float(again.objective) == pytest.approx(float(losses.objective), rel=1e-9)
    assert int(again.count) == 17


@torch.no_grad()
def test_labels_are_smoothed_in_training_only(tmp_path):
    train = table(tmp_path / "t.tsv", labelled(60))
    task = prepare("classification", train=(train,), smoothing=0.3)
    model = model_for(task, "reader", *CLASSES, *NO_DROPOUT)
    batch = task.rows(task.valid, Draw((9,), np.arange(3)))
    plain, _ = task.loss(model, batch)
    smoothed, _ = task.loss(model.train(), batch)
    assert float(plain.objective) == float(plain.loss)
    assert float(smoothed.objective) != pytest.approx(float(smoothed.loss), rel=1e-3)
    assert float(smoothed.loss) == pytest.approx(float(plain.loss), rel=1e-9)


@torch.no_grad()
def test_words_become_unknown_in_training_only(tmp_path):
    train = table(tmp_path / "t.tsv", labelled(60))
    task = prepare("classification", train=(train,), unknown=0.3)
    tokenizer = task.tokenizer
    batch = task.rows(task.train, Draw((9,), np.array([*range(50), EMPTY])))
    tokens = batch["tokens"]
    torch.manual_seed(0)
    hidden = task.hide(tokens)
    words = ~torch.isin(tokens, torch.tensor([tokenizer.start, tokenizer.end, tokenizer.pad]))
    assert hidden[~words].equal(tokens[~words])
    changed = hidden != tokens
    assert hidden[changed].unique().tolist() == [tokenizer.unk]
    assert 0.2 < float(changed[words].double().mean()) < 0.4
    model = model_for(task, "reader", *CLASSES, *NO_DROPOUT)
    plain, _ = task.loss(model, batch)
    torch.manual_seed(0)
    trained, _ = task.loss(model.train(), batch)
    by_hand = nll(model(hidden, lengths=batch["lengths"])[:50], batch["labels"][:50])
    assert float(trained.loss) == pytest.approx(by_hand, rel=1e-9)
    assert float(plain.loss) != pytest.approx(by_hand, rel=1e-3)


def test_no_word_becomes_unknown_by_default(task):
    tokens = task.rows(task.train, Draw((9,), np.arange(4)))["tokens"]
    assert task.hide(tokens) is tokens


@torch.no_grad()
def test_r_drop_compares_two_passes_with_other_unknown_words(tmp_path):
    train = table(tmp_path / "t.tsv", labelled(60))
    task = prepare("classification", train=(train,), unknown=0.3, r_drop=2.0)
    assert task.passes() == 2
    batch = task.rows(task.train, Draw((9,), np.arange(20)))
    model = model_for(task, "reader", *CLASSES, *NO_DROPOUT)
    torch.manual_seed(0)
    views = [task.hide(batch["tokens"]) for _ in range(2)]
    one, other = (model(view, lengths=batch["lengths"]).log_softmax(-1) for view in views)
    apart = ((one.exp() - other.exp()) * (one - other)).sum()
    means = (nll(one, batch["labels"]) + nll(other, batch["labels"])) / 2
    torch.manual_seed(0)
    losses, _ = task.loss(model.train(), batch)
    assert float(losses.loss) == pytest.approx(means, rel=1e-9)
    assert float(losses.objective) == pytest.approx(means + 2.0 / 4 * float(apart), rel=1e-9)
    assert float(apart) > 0
    model.eval()
    assert float(task.loss(model, batch)[0].objective) == pytest.approx(naive_loss(model, batch), rel=1e-9)


def naive_loss(model, batch) -> float:
    return nll(model(batch["tokens"], lengths=batch["lengths"]), batch["labels"])


def test_the_order_has_every_text_once(task):
    order = task.feed(model_for(task, "reader", *CLASSES), 64, 0).order
    rows = [row for draw in order.epoch(0) for row in draw.rows if row != EMPTY]
    assert sorted(rows) == list(range(60))


def test_held_out_texts_are_not_trained_on_and_always_the_same(tmp_path):
    train = table(tmp_path / "t.tsv", labelled(60))
    one, again = (prepare("classification", train=(train,), seed=seed) for seed in (3, 4))
    assert sorted([*one.train.rows, *one.valid.rows]) == list(range(60))
    assert len(one.valid.rows) == 3
    assert again.valid.rows.tolist() == one.valid.rows.tolist()
    batch = one.rows(one.valid, Draw((9,), np.array([1])))
    text, label = labelled(60)[one.valid.rows[1]]
    assert one.tokenizer.decode(batch["tokens"].tolist()) == [text]
    assert one.classes[int(batch["labels"])] == label


@pytest.mark.parametrize("count", [1, 2, 17])
def test_samples_are_texts_with_both_labels(tmp_path, count):
    files = {"train": (table(tmp_path / "t.tsv", labelled(60)),)}
    task = prepare("classification", valid=(table(tmp_path / "v.tsv", labelled(count, seed=1)),), **files)
    samples = task.samples(model_for(task, "reader", *CLASSES))
    assert len(samples) == min(count, 3)
    rows = dict(labelled(count, seed=1))
    for sample in samples:
        assert rows[sample.given] == sample.wanted
        assert sample.made in ("cats", "none")


def test_evaluation_keeps_the_classes_of_training(task, tmp_path):
    other = table(tmp_path / "other.tsv", [("red dog", "none"), ("red", "none")])
    opened = task.config.evaluation(task.tokenizer, [other])
    assert opened.classes == ("cats", "none")
    assert opened.valid.labels.tolist() == [1, 1]
    assert set(opened.measure(model_for(task, "reader", *CLASSES))) == {"loss", "accuracy", "f1"}


def test_texts_of_a_label_that_training_does_not_have_are_left_out(task, tmp_path):
    rows = [("red", "none"), ("red dog", "dogs"), ("red cat", "cats"), ("blue dog", "dogs")]
    other = table(tmp_path / "other.tsv", rows)
    opened = task.config.evaluation(task.tokenizer, [other])
    assert opened.valid.labels[opened.valid.rows].tolist() == [1, 0]
    left_out = "2 texts of a label that the training data does not have skipped (first: text 2, 'dogs')"
    assert opened.skipped.report() == [left_out]
    known = task.config.evaluation(task.tokenizer, [table(tmp_path / "known.tsv", rows[::2])])
    model = model_for(task, "reader", *CLASSES)
    assert opened.measure(model) == pytest.approx(known.measure(model))
    assert left_out in prepare("classification", train=task.config.train, valid=(other,)).skipped.report()


def test_no_label_that_training_has(task, tmp_path):
    other = table(tmp_path / "other.tsv", [("red dog", "dogs")])
    rule = r"other.tsv: none of its labels \(dogs\) occurs in the training data \(cats, none\); choose the column of"
    with pytest.raises(InputError, match=rule):
        task.config.evaluation(task.tokenizer, [other])
    with pytest.raises(InputError, match=rule):
        prepare("classification", train=task.config.train, valid=(other,))


def test_one_class_is_too_few(tmp_path):
    one = table(tmp_path / "one.tsv", [("red dog", "a"), ("cat", "a")])
    with pytest.raises(InputError, match="one.tsv: all texts have the label 'a'; a classifier needs at least two"):
        prepare("classification", train=(one,))


def test_nothing_is_left(task, tmp_path):
    blank = table(tmp_path / "blank.tsv", [("red dog", ""), ("cat", " ")])
    rule = r"no labelled text is left to validate on; give other files \(2 blank labels skipped \(first: .*blank.tsv:2"
    with pytest.raises(InputError, match=rule):
        task.config.evaluation(task.tokenizer, [blank])
    with pytest.raises(InputError, match=rule):
        prepare("classification", train=task.config.train, valid=(blank,))
    with pytest.raises(InputError, match="blank.tsv: holds no text to learn from; give files that hold some"):
        prepare("classification", train=(blank,))
    with pytest.raises(ConfigError, match="train must name at least one file"):
        ClassificationConfig(train=())


def test_the_probe_is_a_text_between_its_special_tokens(tmp_path):
    texts = ("red dog", "one two three dog cat runs", "cat", "blue dog runs", "red green blue one")
    path = table(tmp_path / "t.tsv", [(text, text[0]) for text in texts])
    task = prepare("classification", train=(path,), valid=(path,))

    def framed(text: str) -> list[int]:
        return [task.tokenizer.start, *task.tokenizer.encode([text])[0].tolist(), task.tokenizer.end]

    probe = task.probe()
    assert {name: row.tolist() for name, row in probe.items()} == {"tokens": [framed("red green blue one")]}
    assert task.probe(5)["tokens"].tolist() == [framed("red dog")]  # of 3, 4 and 5 tokens the middle
    assert task.probe(2)["tokens"].tolist() == [framed("")]  # none fits, so the shortest is cut
    classes = ("model.head.kind=classes", f"model.head.classes={len(task.classes)}", "model.head.pool.kind=mean")
    assert model_for(task, "reader", *classes)(*probe.values()).shape == (1, len(task.classes))


def test_the_probe_is_a_row_that_is_held_out(tmp_path):
    task = prepare("classification", train=(table(tmp_path / "t.tsv", labelled(60)),))
    corpus, rows = task.valid.corpus, task.valid.rows
    held_out = [corpus.padded(rows[[n]], int(corpus.lengths[rows[n]]), 0).tolist() for n in range(len(rows))]
    assert task.probe()["tokens"].tolist() in held_out


def test_a_limit_without_room_for_text_is_refused(tmp_path):
    rows = [f"{line}\t{len(line) % 2}" for line in sentences(20)]
    files = (write(tmp_path / "a.tsv", ["text\tlabel", *rows]),)
    with pytest.raises(ConfigError, match="longest: 2 must be at least 3: 2 for special tokens and one for the text"):
        prepare("classification", train=files, longest=2)
    assert prepare("classification", train=files, longest=3).train.lengths.max() == 3
