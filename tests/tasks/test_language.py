"""Language modelling: batches by hand, loss and measure against naive ones, and the state that windows carry."""

from math import exp, log
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from regard.config import from_table
from regard.data.batches import EMPTY, Draw, Streams, Windows
from regard.data.tokenizer import TokenizerConfig
from regard.errors import ConfigError, InputError
from regard.tasks import long_text as long_text_task
from regard.tasks.language import Language, LanguageTaskConfig
from regard.tasks.loss import IGNORE
from regard.tasks.task import PASS_SECONDS, Feed
from regard.training.config import TrainConfig
from regard.training.ranks import Ranks
from regard.training.update import Update

from .corpora import model_for, nll, prepare, sentences, write

CHARACTERS = TokenizerConfig("char")
RECURRENT = pytest.mark.parametrize("recipe", ["elman", "lstm", "gru", "mut1"])


def task_of(path: Path, text: str, valid: str | None = None, documents: str = "line", **settings: int) -> Language:
    (path / "train.txt").write_text(text)
    files = {"train": (str(path / "train.txt"),)}
    if valid is not None:
        (path / "valid.txt").write_text(valid)
        files["valid"] = (str(path / "valid.txt"),)
    return prepare("language", CHARACTERS, documents=documents, **({"window": 5} | settings), **files)


def long_text(tokens: int, seed: int = 0) -> str:
    """Return a text of exactly this many tokens, the end tokens before and after it included."""
    return "".join(np.random.default_rng(seed).choice(list("abcde "), tokens - 2)).replace(" ", "f")


def ids(task: Language, text: str) -> list[int]:
    """Write ids with | for the token between texts."""
    return [task.tokenizer.end if letter == "|" else int(task.tokenizer.encode([letter])[0][0]) for letter in text]


def draw(*rows: int, width: int = 5) -> Draw:
    return Draw((width,), np.array(rows))


def feed(task: Language, recipe: str, tokens: int = 10, seed: int = 0) -> Feed:
    return task.feed(model_for(task, recipe), tokens, seed)


def windows(given: Feed) -> list[dict[str, Tensor]]:
    """Return the batches of the first epoch."""
    return [given.batch(one, 0) for one in given.order.epoch(0)]


# --- batches ---------------------------------------------------------------------------------------------------------


def test_a_batch_by_hand(tmp_path):
    task = task_of(tmp_path, "abc\nde\nfgh\n", valid="abcdefgh\n")
    batch = feed(task, "writer").batch(draw(0, 4, EMPTY), 0)  # of |abc|de|fgh|
    assert batch["tokens"][:2].tolist() == [ids(task, "|abc|"), ids(task, "|de|f")]
    assert batch["labels"].tolist() == [ids(task, "abc|d"), ids(task, "de|fg"), [IGNORE] * 5]
    assert batch["documents"][:2].tolist() == [[0, 0, 0, 0, 1], [1, 1, 1, 2, 2]]
    assert task.facts() == {"texts": 3, "tokens": 12, "validation tokens": 10}
    assert task.needs() == {"vocabulary": task.tokenizer.size}


def test_one_text_needs_no_documents(tmp_path):
    task = task_of(tmp_path, "abc\nde\nfgh\n", valid="abcdefgh\n", documents="file")
    assert feed(task, "writer").batch(draw(0), 0).keys() == {"tokens", "labels"}


def test_recurrence_is_told_where_an_epoch_begins(tmp_path):
    task = task_of(tmp_path, long_text(40), valid=long_text(12))
    lanes = feed(task, "lstm")
    assert isinstance(lanes.order, Streams)
    batches = windows(lanes)
    assert [batch["begins"].tolist() for batch in batches] == [[True, True], [False, False], [False, False]]
    assert "documents" not in batches[0]


def test_attention_and_convolution_read_windows(tmp_path):
    task = task_of(tmp_path, long_text(40), valid=long_text(12))
    for recipe in ("writer", "conv"):
        assert feed(task, recipe, seed=3).order == Windows(40, 5, 2, 3)


def test_texts_for_convolution_are_not_kept_apart(tmp_path):
    task = task_of(tmp_path, "abc\nde\nfgh\n", valid="abcdefgh\n")
    assert "documents" not in feed(task, "conv").batch(draw(0), 0)


@pytest.mark.parametrize(("tokens", "lanes"), [(40, 7), (12, 2), (6, 1)])
def test_every_lane_is_at_least_as_long_as_a_window(tmp_path, tokens, lanes):
    task = task_of(tmp_path, long_text(tokens), valid=long_text(12))
    order = feed(task, "elman", tokens=1000).order
    assert [len(one.rows) for one in order.epoch(0)] == [lanes]


# --- validation ------------------------------------------------------------------------------------------------------


def test_the_end_of_one_text_is_held_out(tmp_path):
    task = task_of(tmp_path, long_text(200), documents="file")
    assert (task.train.begin, task.train.end, task.valid.begin, task.valid.end) == (0, 180, 180, 200)
    assert (task.train.texts, task.valid.texts) == (1, 1)


def test_of_many_texts_whole_ones_are_held_out(tmp_path):
    task = task_of(tmp_path, "abcdefghi\n" * 30)  # ten tokens each, and one at the end
    assert (task.train.end, task.valid.begin, task.valid.end) == (280, 280, 301)
    assert (task.train.texts, task.valid.texts) == (28, 2)


def test_a_last_text_that_is_too_long_is_cut(tmp_path):
    task = task_of(tmp_path, "ab\n" * 30 + long_text(202))
    assert task.valid.tokens == int(task.valid.corpus.tokens * 0.1)
    assert (task.train.texts, task.valid.texts) == (31, 1)


def test_two_texts_remain_two_when_the_second_is_split(tmp_path):
    task = task_of(tmp_path, "abc\n" + long_text(100))
    assert task.train.texts == 2
    assert task.packs(model_for(task, "writer"))


def test_given_validation_files_are_used(tmp_path):
    task = task_of(tmp_path, "abc\nde\nfgh\n", valid="hgfedcba\n")
    (row,) = task.rows(task.valid, draw(0), carries=False, packs=False)["tokens"].tolist()
    assert row == ids(task, "|hgfe")
    assert task.train.tokens == 12


def test_texts_of_the_validation_data_are_kept_apart_too(tmp_path):
    task = task_of(tmp_path, "abcdefgh", valid="abc\ndefgh\n")
    assert task.packs(model_for(task, "writer"))


# --- loss and measure ------------------------------------------------------------------------------------------------


def naive_loss(model, tokens: Tensor, labels: Tensor, documents: Tensor) -> float:
    """Return the loss with every piece of a text in a row of its own."""
    total = 0.0
    for number in documents.unique():
        here = documents == number
        total += nll(model(tokens[here][None])[0], labels[here])
    return total


@torch.no_grad()
def test_loss_is_the_naive_one(tmp_path):
    task = task_of(tmp_path, "abc\nde\nfgh\n", valid="abcdefgh\n")
    model = model_for(task, "writer")
    batch = task.feed(model, 10, 0).batch(draw(0, 4), 0)
    losses, carried = task.loss(model, batch)
    wanted = sum(naive_loss(model, *(batch[key][row] for key in ("tokens", "labels", "documents"))) for row in (0, 1))
    assert float(losses.loss) == pytest.approx(wanted, rel=1e-9)
    assert int(losses.count) == 10
    assert carried == {}


@torch.no_grad()
@pytest.mark.parametrize("recipe", ["writer", "conv", "lstm"])
def test_empty_rows_change_nothing(tmp_path, recipe):
    task = task_of(tmp_path, "abc\nde\nfgh\n", valid="abcdefgh\n")
    model = model_for(task, recipe)
    batch = task.feed(model, 10, 0).batch
    with_empty, _ = task.loss(model, batch(draw(4, EMPTY, EMPTY), 0))
    without, _ = task.loss(model, batch(draw(4), 0))
    assert float(with_empty.objective) == pytest.approx(float(without.objective), rel=1e-12)
    assert int(with_empty.count) == int(without.count) == 5


def check_perplexities(values: dict[str, float], mean: float, tokens: int, *texts: str) -> None:
    words, letters = (sum(map(len, parts)) for parts in zip(*((t.split(), t.encode()) for t in texts), strict=True))
    assert values["loss"] == pytest.approx(mean, rel=1e-9)
    assert values["perplexity"] == pytest.approx(exp(mean), rel=1e-9)
    assert values["word_perplexity"] == pytest.approx(exp(mean * tokens / words), rel=1e-6)
    assert values["bits_per_byte"] == pytest.approx(mean * tokens / letters / log(2), rel=1e-9)


@torch.no_grad()
def test_measure_is_the_naive_one_over_all_windows(tmp_path):
    valid = "ab cd\nefg\nh abcdef\n" + "gh" * 5 + "\n"  # |ab cd|efg|h abcdef|ghghghghgh|: 31 tokens, six windows
    task = task_of(tmp_path, "abc\nde\nfgh \n", valid=valid)
    model = model_for(task, "writer")
    tokens = torch.tensor(ids(task, "|" + valid.replace("\n", "|")))
    documents = torch.searchsorted(torch.tensor([0, 6, 10, 19, 30]), torch.arange(31), right=True)
    total = sum(
        naive_loss(model, tokens[i : i + 5], tokens[i + 1 : i + 6], documents[i : i + 5]) for i in range(0, 30, 5)
    )
    check_perplexities(task.measure(model), total / 30, 30, *valid.splitlines())


@torch.no_grad()
def test_measure_with_a_stride_gives_every_token_more_context(tmp_path):
    valid = long_text(19, seed=1)  # 18 tokens to predict
    task = task_of(tmp_path, long_text(40), valid=valid, stride=2)
    model = model_for(task, "writer")
    tokens = torch.tensor(ids(task, f"|{valid}|"))
    ends = [5, 7, 9, 11, 13, 15, 17, 18]
    total, done = 0.0, 0
    for end in ends:
        logits = model(tokens[None, end - 5 : end])[0]
        total += nll(logits[done - end :], tokens[done + 1 : end + 1])
        done = end
    check_perplexities(task.measure(model), total / 18, 18, valid)


@torch.no_grad()
def test_measure_with_a_stride_is_the_same_in_little_memory(tmp_path):
    """The first window is alone in its batch; the batches after it are split."""
    task = task_of(tmp_path, long_text(40), valid=long_text(19, seed=1), stride=2)
    model = model_for(task, "writer")
    whole = task.measure(model)
    task.parts = 4
    assert task.measure(model) == pytest.approx(whole)


def test_a_stride_beyond_the_window_is_rejected():
    with pytest.raises(ConfigError, match=r"stride=9 must be at most the window, 8"):
        LanguageTaskConfig(train=("a",), window=8, stride=9)


@torch.no_grad()
@RECURRENT
def test_measure_carries_the_state_through_each_lane(tmp_path, recipe):
    valid = long_text(16 * 10 + 1, seed=1)  # sixteen lanes of two windows
    task = task_of(tmp_path, long_text(40), valid=valid)
    model = model_for(task, recipe)
    tokens = torch.tensor(ids(task, f"|{valid}|"))
    total = sum(nll(model(tokens[None, i : i + 10])[0], tokens[i + 1 : i + 11]) for i in range(0, 160, 10))
    check_perplexities(task.measure(model), total / 160, 160, valid)
    assert task.measure(model) == task.measure(model)


@torch.no_grad()
def test_measure_leaves_nothing_out(tmp_path):
    """The rest after the last window counts, and so does the rest that lanes leave."""
    valid = long_text(5 * 7 + 4, seed=1)  # 38 places: seven windows of five, and three more
    task = task_of(tmp_path, long_text(40), valid=valid)
    tokens = torch.tensor(ids(task, f"|{valid}|"))
    model = model_for(task, "writer")
    total = sum(nll(model(tokens[None, i : i + 5][:, : 38 - i])[0], tokens[i + 1 : i + 6]) for i in range(0, 38, 5))
    check_perplexities(task.measure(model), total / 38, 38, valid)
    model = model_for(task, "lstm")  # seven lanes of five, and three more
    total = sum(nll(model(tokens[None, i : i + 5][:, : 38 - i])[0], tokens[i + 1 : i + 6]) for i in range(0, 38, 5))
    check_perplexities(task.measure(model), total / 38, 38, valid)
    task = task_of(tmp_path, long_text(40), valid=valid + "abcdefa" * 22)  # sixteen lanes of twelve: five, five, two
    tokens = torch.tensor(ids(task, f"|{valid}{'abcdefa' * 22}|"))
    total = sum(nll(model(tokens[None, i : i + 12])[0], tokens[i + 1 : i + 13]) for i in range(0, 192, 12))
    assert task.measure(model)["loss"] == pytest.approx(total / 192, rel=1e-9)


@torch.no_grad()
def test_a_part_of_the_text_is_evenly_spread_windows(tmp_path, monkeypatch):
    valid = long_text(5 * 7 + 4, seed=1)  # seven windows of five, and three more
    task = task_of(tmp_path, long_text(40), valid=valid)
    tokens = torch.tensor(ids(task, f"|{valid}|"))
    model = model_for(task, "writer")
    total = sum(nll(model(tokens[None, i : i + 5])[0], tokens[i + 1 : i + 6]) for i in (0, 15, 30))
    found = task.measure(model, rows=3)
    assert found == {"loss": pytest.approx(total / 15), "perplexity": pytest.approx(exp(total / 15))}
    assert task.measure(model, rows=7) == task.measure(model)
    assert [task.method(rows) for rows in (None, 3, 7, 500)] == ["", "3 of 7 windows", "", ""]
    assert [task.validation_cost(rows) for rows in (None, 3, 500)] == [39, 15, 39]
    monkeypatch.setattr(long_text_task, "AT_ONCE", 10)
    assert [task.validation_latency(rows) / PASS_SECONDS for rows in (None, 3)] == [4, 2]


@torch.no_grad()
def test_a_part_of_the_text_is_the_beginning_of_each_lane_where_a_state_is_carried(tmp_path):
    valid = long_text(16 * 10 + 1, seed=1)  # sixteen lanes of two windows
    task = task_of(tmp_path, long_text(40), valid=valid)
    model = model_for(task, "lstm")
    tokens = torch.tensor(ids(task, f"|{valid}|"))
    total = sum(nll(model(tokens[None, i : i + 5])[0], tokens[i + 1 : i + 6]) for i in range(0, 160, 10))
    assert task.measure(model, rows=12)["loss"] == pytest.approx(total / 80)
    assert task.measure(model, rows=17) == task.measure(model)


@pytest.mark.parametrize("setting", ["stride", "neural_cache"])
def test_windows_that_need_those_before_them_are_all_measured(tmp_path, setting: str):
    task = task_of(tmp_path, long_text(40), valid=long_text(40, seed=1), **{setting: 2})
    assert task.least_rows is None
    model = model_for(task, "writer")
    assert task.measure(model, rows=2) == task.measure(model)
    assert task.validation_cost() == (100 if setting == "stride" else 40)


def test_few_tokens_are_measured_at_a_time(tmp_path, monkeypatch):
    """Their logits are the largest tensors, and training already uses most of the memory."""
    monkeypatch.setattr(long_text_task, "AT_ONCE", 10)
    task = task_of(tmp_path, long_text(40), valid=long_text(60))
    model = model_for(task, "writer")
    sizes = []
    model.register_forward_hook(lambda module, inputs, output: sizes.append(output.shape[:2].numel()))
    task.measure(model)
    assert (max(sizes), sum(sizes)) == (10, 59)


def test_words_and_bytes_are_those_of_the_file(tmp_path):
    """An unknown word cannot be decoded from its tokens."""
    task = prepare("language", train=(write(tmp_path / "a.txt", ["red dog runs"] * 20),), window=4)
    other = write(tmp_path / "b.txt", ["red däg's", "purple dog"])
    opened = task.config.evaluation(task.tokenizer, [other])
    assert opened.valid.units == (4 + 2, len(Path(other).read_bytes()))  # the ends of lines are predicted, too
    lines = task_of(tmp_path, "ab cd\n" * 40)  # the last three are held out
    assert lines.valid.units == (6, 15)


def test_perplexity_per_word_is_the_published_one_of_texts_that_are_tokenised_already(tmp_path):
    """<unk> is a word, and so is the end of a line, as <eos>; only the end of the whole text is predicted besides."""
    lines = [" the <unk> cat 's N mat ", "", " don't <unk> , @-@ = "] * 8
    config = TokenizerConfig("space", 40)
    task = prepare("language", config, train=(write(tmp_path / "a.txt", lines),), window=4, documents="file")
    words = sum(len(line.split()) + 1 for line in lines)
    opened = task.config.evaluation(task.tokenizer, [write(tmp_path / "b.txt", lines)])
    assert opened.valid.tokens == words + 2  # an end token before and after the text
    assert opened.valid.units.words == words
    assert task.tokenizer.size == 5 + len({*" ".join(lines).split(), "end of a line"} - {"<unk>"})
    tokens = opened.valid.windows(np.array([0]), opened.valid.tokens)[0].tolist()
    assert tokens.count(task.tokenizer.unk) == 16  # the word of the text, and nothing else
    values = opened.measure(model_for(task, "writer"))
    assert values["word_perplexity"] == pytest.approx(exp(values["loss"] * (words + 1) / words), rel=1e-6)


def units(lines: list[str]) -> tuple[int, int]:
    return sum(len(line.split()) for line in lines), sum(len(line.encode()) for line in lines)


@pytest.mark.parametrize("kind", ["word", "char", "byte", "bpe", "unigram"])
def test_held_out_words_and_bytes_are_counted_in_the_text(tmp_path, kind: str):
    """Unknown words, letters and blanks cannot be decoded; every tokenizer is measured by the same words and bytes."""
    lines = [f"don't  {line} {'x' * number} ä" for number, line in enumerate(sentences(60))]
    train = (write(tmp_path / "a.txt", lines),)
    tokenizer = TokenizerConfig(kind, 300 if kind == "bpe" else 40)
    task = prepare("language", tokenizer, train=train, window=4, documents="line")
    held_out = task.valid.texts
    assert 1 < held_out < 12
    assert task.valid.units == units(lines[-held_out:])
    assert task.train.units == units(lines[:-held_out])


@pytest.mark.parametrize("kind", ["word", "char", "byte", "bpe", "unigram"])
def test_words_and_bytes_after_a_cut_inside_a_text(tmp_path, kind: str):
    text = " ".join(f"word{number} ä don't" for number in range(200))
    path = tmp_path / "a.txt"
    path.write_text(text, encoding="utf-8")
    task = prepare("language", TokenizerConfig(kind, 300 if kind == "bpe" else 40), train=(str(path),), window=4)
    spans = task.tokenizer.spans([text])[0]
    first = task.valid.begin  # the text begins after an end token, so this is the token that nothing predicts, plus one
    rest = text[spans[first - 1][1] :] if spans[first][0] >= spans[first - 1][1] else text[spans[first][0] :]
    assert task.valid.units == (len(rest.split()), len(rest.encode()))
    assert len(rest) < len(text) // 4


def test_evaluation_opens_other_files_with_the_same_tokenizer(tmp_path):
    task = task_of(tmp_path, long_text(100))
    other = write(tmp_path / "other.txt", ["edcba" * 5])
    opened = LanguageTaskConfig(train=("gone",), window=5).evaluation(task.tokenizer, [other])
    assert opened.tokenizer is task.tokenizer
    (row,) = opened.rows(opened.valid, draw(0), carries=False, packs=False)["tokens"].tolist()
    assert row == ids(task, "|edcb")
    assert opened.measure(model_for(task, "writer"))["loss"] > 0


# --- samples ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("recipe", ["writer", "gru"])
def test_samples_are_beginning_end_and_what_was_made(tmp_path, recipe):
    task = task_of(tmp_path, long_text(600), documents="file", window=20)
    model = model_for(task, recipe)
    samples = task.samples(model)
    (text,) = task.tokenizer.decode(task.valid.windows(np.array([0]), task.valid.tokens).tolist())
    assert len(samples) == 2
    for sample in samples:
        assert sample.given + sample.wanted in text
        assert len(sample.given) == len(sample.wanted) == 10
        assert 0 < len(sample.made) <= 10
        assert set(sample.made) <= set("abcdef")
    assert task.samples(model) == samples


def test_a_model_that_diverged_has_no_samples(tmp_path):
    task = task_of(tmp_path, long_text(600), window=20)
    model = model_for(task, "writer")
    with torch.no_grad():
        for weights in model.parameters():
            weights.fill_(torch.nan)
    assert task.samples(model) == []


def test_samples_of_a_text_of_one_window(tmp_path):
    task = task_of(tmp_path, long_text(12), valid="abcd", window=5)  # six tokens: one window and what follows it
    assert len(task.samples(model_for(task, "writer"))) == 2


# --- truncated backpropagation through time --------------------------------------------------------------------------


@RECURRENT
def test_windows_with_a_carried_state_have_the_loss_of_one_long_pass(tmp_path, recipe):
    task = task_of(tmp_path, long_text(41), valid=long_text(12), documents="file")
    model = model_for(task, recipe)
    carried, total = {}, 0.0
    for batch in windows(task.feed(model, 10, 0)):  # two lanes of four windows
        losses, carried = task.loss(model, batch | carried)
        total += float(losses.loss.detach())
    tokens = task.train.windows(np.array([0, 20]), 21)
    whole = sum(nll(model(row[None, :-1])[0].detach(), row[1:]) for row in tokens)
    assert total == pytest.approx(whole, rel=1e-9)


@RECURRENT
def test_the_gradient_ends_at_the_border_of_a_window(tmp_path, recipe):
    task = task_of(tmp_path, long_text(41), valid=long_text(12), documents="file")
    model = model_for(task, recipe)
    first, second, *_ = windows(task.feed(model, 10, 0))
    embedded: list[Tensor] = []
    model.embed.tokens.table.register_forward_hook(lambda module, inputs, output: embedded.append(output))
    _, carried = task.loss(model, first)
    assert carried
    assert not any(state.requires_grad for state in carried.values())
    losses, _ = task.loss(model, second | carried)
    early, late = torch.autograd.grad(losses.objective, embedded, allow_unused=True)
    assert early is None
    assert late.abs().min() > 0
    alone, _ = task.loss(model, second | {"begins": torch.ones(2, dtype=torch.bool)})
    assert float(alone.loss) != pytest.approx(float(losses.loss.detach()), rel=1e-6)  # but its state is carried


@RECURRENT
def test_an_epoch_begins_with_an_empty_state(tmp_path, recipe):
    task = task_of(tmp_path, long_text(41), valid=long_text(12), documents="file")
    model = model_for(task, recipe)
    first, *_ = windows(task.feed(model, 10, 0))
    fresh, carried = task.loss(model, first)
    again, _ = task.loss(model, first | carried)
    assert float(again.loss) == float(fresh.loss)
    assert first["begins"].all()


@pytest.mark.parametrize("accumulate", [1, 2, 3])
@pytest.mark.parametrize("wider", [[], ["model.layers.recurrent.mixer.hidden=9"]], ids=["", "wider"])
def test_updates_carry_the_state_and_reset_it_in_every_epoch(tmp_path, accumulate, wider):
    """With updates that change nothing, the losses of an epoch add up to those of a pass over whole lanes."""
    task = task_of(tmp_path, long_text(41), valid=long_text(12), documents="file")
    model = model_for(task, "lstm", "model.embed.dropout=0.0", "model.layers.recurrent.dropout=0.0", *wider)
    schedule = {"kind": "linear", "warmup": 0}
    table = {"steps": 99, "tokens": 10, "validate_every": 9, "checkpoint_every": 9, "accumulate": accumulate}
    table |= {"optimizer": {"kind": "adamw", "rate": 1e-3}, "schedule": schedule}
    update = Update(model, task, from_table(table, TrainConfig), Ranks(0, 1, torch.device("cpu")))
    update.optimizer.step = lambda bad: None
    lanes = task.feed(model, 10, 0)
    sums = [sum(float(update(batch, 1).loss) for batch in windows(lanes)) for _ in range(2)]
    tokens = task.train.windows(np.array([0, 20]), 21)
    whole = sum(nll(model(row[None, :-1])[0].detach(), row[1:]) for row in tokens)
    assert sums == pytest.approx([whole, whole], rel=1e-6)


# --- mistakes --------------------------------------------------------------------------------------------------------


def test_too_little_text(tmp_path):
    rule = "train.txt: 10 tokens for training are too few for windows of 12; give more text or lower task.window"
    with pytest.raises(InputError, match=rule):
        task_of(tmp_path, "abcdefgh", valid="abcdefgh" * 9, window=12)
    rule = "valid.txt: 10 tokens for validation are too few for windows of 12; give more text or lower task.window"
    with pytest.raises(InputError, match=rule):
        task_of(tmp_path, "abcdefgh" * 9, valid="abcdefgh", window=12)
    with pytest.raises(InputError, match="train.txt: 4 tokens for training are too few for windows of 12"):
        task_of(tmp_path, "abc", window=12)
    rule = "train.txt: 7 tokens for validation are too few for windows of 12; give more text or lower task.window"
    with pytest.raises(InputError, match=rule):
        task_of(tmp_path, "abcdefgh" * 9, window=12)


def test_too_little_text_to_measure_on(tmp_path):
    task = task_of(tmp_path, long_text(100))
    other = write(tmp_path / "other.txt", ["ab"])
    with pytest.raises(InputError, match="other.txt: 4 tokens for measuring are too few for windows of 5; give more"):
        task.config.evaluation(task.tokenizer, [other])


def test_no_files():
    with pytest.raises(ConfigError, match="train must name at least one file"):
        LanguageTaskConfig(train=())


def test_blank_lines_are_counted(tmp_path):
    task = task_of(tmp_path, "\n".join(["", *sentences(60), "", ""]))
    assert task.skipped.report() == [f"2 blank lines skipped (first: {tmp_path / 'train.txt'}:1)"]
    assert task_of(tmp_path, "\n".join(["", *sentences(60), "", ""])).skipped.report()  # also from the cache


# --- the probe -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("valid", "window", "wanted"),
    [
        ("a\nbcd\nef\ngh\n", 9, "|gh"),  # whole texts: of lengths 2, 3, 3 and 4 the third
        ("a\nbcdefgh\nefgh\ngh\n", 4, "|bcd"),  # longer texts are cut, so that not only short ones are chosen
        ("abcdefgh\n", 5, "|abcd"),
    ],
)
def test_the_probe_is_the_beginning_of_a_text(tmp_path, valid, window, wanted):
    task = task_of(tmp_path, long_text(40) + "\nabcdefgh\n", valid=valid, window=window)
    assert {name: row.tolist() for name, row in task.probe().items()} == {"tokens": [ids(task, wanted)]}


def test_the_probe_of_a_text_that_was_split_begins_at_the_split(tmp_path):
    text = long_text(200)
    task = task_of(tmp_path, text, documents="file", window=8)
    assert task.valid.begin == 180
    assert task.probe()["tokens"].tolist() == [ids(task, text[179:187])]
    assert task.probe(3)["tokens"].tolist() == [ids(task, text[179:182])]
    model = model_for(task, "writer")
    assert model(*task.probe().values()).shape == (1, 8, task.tokenizer.size)
