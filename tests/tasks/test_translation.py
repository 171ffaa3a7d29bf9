"""Translation: batches by hand, packed and not; loss and measure against naive ones; BPE-dropout; pairs left out."""

from itertools import islice
from math import exp
from pathlib import Path

import numpy as np
import pytest
import sacrebleu
import torch

from regard.data.batches import EMPTY, Buckets, Draw, pack_rows
from regard.data.tokenizer import TokenizerConfig
from regard.decode.beam import Hypothesis
from regard.errors import ConfigError, InputError
from regard.tasks import translation
from regard.tasks.loss import IGNORE
from regard.tasks.pair_task import STEP_SECONDS, TEXT_SECONDS
from regard.tasks.task import PASS_SECONDS
from regard.tasks.translation import VARIANTS, Translation, TranslationConfig

from .corpora import model_for, nll, prepare, sentences, write

NO_DROPOUT = [
    "model.embed.dropout=0.0",
    "model.encoder.layers.block.dropout=0.0",
    "model.decoder.layers.block.dropout=0.0",
]


def write_pairs(path: Path, name: str, count: int, seed: int) -> tuple[str, str]:
    """Return sentences and their "translations": the words backwards, sometimes with one more."""
    lines = sentences(count, seed)
    others = [" ".join(reversed(line.split())) + (" runs" if len(line) % 3 == 0 else "") for line in lines]
    return write(path / f"{name}.de", lines), write(path / f"{name}.en", others)


def task_of(path: Path, count: int = 60, valid: int | None = 13, tokenizer=None, **values) -> Translation:
    source, target = write_pairs(path, "train", count, 0)
    if valid is not None:
        one, other = write_pairs(path, "valid", valid, 1)
        values |= {"valid_source": (one,), "valid_target": (other,)}
    return prepare("translation", tokenizer, source=(source,), target=(target,), **values)


@pytest.fixture
def by_hand(tmp_path) -> Translation:
    files = {"source": (write(tmp_path / "a.de", ["red", "one two", "cat"]),)}
    files["target"] = (write(tmp_path / "a.en", ["blue green", "three", "dog runs sleeps"]),)
    valid = {"valid_source": files["source"], "valid_target": files["target"]}
    return prepare("translation", **files, **valid)


def words(task: Translation, text: str) -> list[int]:
    """Write ids by words, with ( and ) for start and end and . for padding."""
    special = {"(": task.special.start, ")": task.special.end, ".": task.special.pad, "-": IGNORE}
    return [special[word] if word in special else int(task.special.encode([word])[0][0]) for word in text.split()]


# --- batches ---------------------------------------------------------------------------------------------------------


def test_a_padded_batch_by_hand(by_hand):
    batch = by_hand.padded(by_hand.train[0], Draw((3, 4), np.array([2, 0, EMPTY])))
    assert batch["source"].tolist() == [words(by_hand, text) for text in ("cat ) .", "red ) .", ". . .")]
    assert batch["source_lengths"].tolist() == [2, 2, 1]
    assert batch["labels"].tolist() == [
        words(by_hand, text) for text in ("dog runs sleeps )", "blue green ) -", "- - - -")
    ]
    assert batch["target"].tolist() == [
        words(by_hand, text) for text in ("( dog runs sleeps", "( blue green )", "( . . .")
    ]


def test_a_packed_batch_by_hand(by_hand):
    groups = [np.array([2, 0]), np.array([1])]
    batch = by_hand.packed(by_hand.train[0], groups, Draw((5, 8), np.array([0, EMPTY, 1])))
    rows = {
        "source": ("cat ) red ) .", ". . . . .", "one two ) . ."),
        "labels": ("dog runs sleeps ) blue green ) -", "- - - - - - - -", "three ) - - - - - -"),
        "target": ("( dog runs sleeps ( blue green (", "( . . . . . . .", "( three ( . . . . ."),
    }
    for name, texts in rows.items():
        assert batch[name].tolist() == [words(by_hand, text) for text in texts]
    assert batch["source_documents"].tolist() == [[0, 0, 1, 1, -1], [-1] * 5, [2, 2, 2, -1, -1]]
    assert batch["documents"].tolist() == [[0, 0, 0, 0, 1, 1, 1, -1], [-1] * 8, [2, 2, -1, -1, -1, -1, -1, -1]]


def test_facts_and_needs(by_hand):
    assert by_hand.facts() == {"pairs": 3, "target tokens": 9, "validation pairs": 3}
    assert by_hand.needs() == {"vocabulary": by_hand.tokenizer.size}


@pytest.mark.parametrize("recipe", ["translator", "rnn-attention"])
def test_every_pair_is_learned_once_in_an_epoch(tmp_path, recipe):
    task = task_of(tmp_path)
    model = model_for(task, recipe)
    feed = task.feed(model, 128, 0)
    assert ("documents" in feed.batch(next(feed.order.epoch(0)), 0)) is (recipe == "translator")
    wanted = sorted(
        tuple(row) for row in task.train[0].corpus.padded(task.train[0].row(np.arange(60), 1), 12, 0).tolist()
    )
    for epoch in range(2):
        found = []
        for draw in feed.order.epoch(epoch):
            labels, *documents = (feed.batch(draw, epoch).get(name) for name in ("labels", "documents"))
            for row in range(len(labels)):
                numbers = labels[row] != IGNORE if documents[0] is None else documents[0][row]
                real = numbers.unique() if documents[0] is not None else torch.tensor([1])
                for number in real[real >= 0]:
                    here = labels[row][numbers == number]
                    found += [(*here.tolist(), *[0] * (12 - len(here)))] if len(here) else []
        assert sorted(found) == wanted


# --- loss and measure ------------------------------------------------------------------------------------------------


@torch.no_grad()
def naive_loss(task: Translation, model, pairs) -> tuple[float, int]:
    """Return loss and count with every pair in a row of its own."""
    total, count = 0.0, 0
    for index in range(pairs.count):
        source, labels = (
            pairs.corpus.padded(pairs.row(np.array([index]), side), int(pairs.lengths[index, side]), 0)
            for side in (0, 1)
        )
        target = torch.cat((torch.tensor([[task.special.start]]), labels[:, :-1]), 1)
        total += nll(model(source, target)[0], labels[0])
        count += labels.shape[1]
    return total, count


@torch.no_grad()
@pytest.mark.parametrize("recipe", ["translator", "transformer-base", "rnn-attention", "rnn-seq2seq"])
def test_loss_is_the_naive_one_with_empty_rows(tmp_path, recipe):
    """The draws of an epoch have empty rows, too; their losses add up to that of all pairs."""
    task = task_of(tmp_path, count=25)
    model = model_for(task, recipe)
    feed = task.feed(model, 128, 0)
    draws = list(feed.order.epoch(0))
    assert any((draw.rows == EMPTY).any() for draw in draws)
    losses = [task.loss(model, feed.batch(draw, 0)) for draw in draws]
    wanted, count = naive_loss(task, model, task.train[0])
    assert sum(float(loss.loss) for loss, _ in losses) == pytest.approx(wanted, rel=1e-9)
    assert sum(float(loss.objective) for loss, _ in losses) == pytest.approx(wanted, rel=1e-9)  # not smoothed
    assert sum(int(loss.count) for loss, _ in losses) == count
    assert all(carried == {} for _, carried in losses)


def test_training_is_smoothed_and_r_drop_needs_two_passes(tmp_path):
    task = task_of(tmp_path, smoothing=0.2)
    model = model_for(task, "translator", *NO_DROPOUT).train()
    feed = task.feed(model, 128, 0)
    batch = feed.batch(next(feed.order.epoch(0)), 0)
    smoothed, _ = task.loss(model, batch)
    assert float(smoothed.objective.detach()) != pytest.approx(float(smoothed.loss), rel=1e-3)
    twice = task_of(tmp_path, smoothing=0.2, r_drop=5.0)
    calm, _ = twice.loss(model, batch)  # without dropout both passes agree,
    assert float(calm.objective.detach()) == pytest.approx(float(smoothed.objective.detach()), rel=1e-9)
    lively = model_for(task, "translator", *NO_DROPOUT, "model.embed.dropout=0.5").train()
    torch.manual_seed(0)
    apart, _ = twice.loss(lively, batch)
    torch.manual_seed(0)
    once, _ = task.loss(lively, batch)
    assert float(apart.objective.detach()) > float(once.objective.detach())  # with dropout they differ


def copy_source(engine, given, **options):
    """A translator that returns its input."""
    pairs = zip(given.source, given.source_lengths, strict=True)
    return [[Hypothesis(row[: length - 1].tolist(), 0.0, 0.0)] for row, length in pairs]


def test_measure_is_the_naive_one(tmp_path, monkeypatch):
    task = task_of(tmp_path, valid=30)
    monkeypatch.setattr(translation, "beam_search", copy_source)
    model = model_for(task, "translator")
    values = task.measure(model)
    loss, count = naive_loss(task, model, task.valid)
    assert values["loss"] == pytest.approx(loss / count, rel=1e-9)
    assert values["perplexity"] == pytest.approx(exp(loss / count), rel=1e-9)
    made, wanted = (Path(tmp_path / f"valid.{side}").read_text().splitlines() for side in ("de", "en"))
    assert values["bleu"] == pytest.approx(sacrebleu.corpus_bleu(made, [wanted]).score)
    assert values["chrf"] == pytest.approx(sacrebleu.corpus_chrf(made, [wanted]).score)
    assert 0 < values["bleu"] < 100
    some = task.measure(model, rows=7)
    chosen = np.linspace(0, 29, 7).astype(int)
    score = sacrebleu.corpus_bleu([made[row] for row in chosen], [[wanted[row] for row in chosen]]).score
    assert some["bleu"] == pytest.approx(score)
    assert some["loss"] == values["loss"]  # always of all pairs


@pytest.mark.parametrize(("recipe", "valid"), [("translator", 1), ("translator", 13), ("rnn-attention", 2)])
def test_samples_are_sentences_with_their_translations(tmp_path, recipe, valid):
    task = task_of(tmp_path, valid=valid)
    samples = task.samples(model_for(task, recipe))
    assert len(samples) == min(valid, 3)
    texts = [Path(tmp_path / f"valid.{side}").read_text().splitlines() for side in ("de", "en")]
    for sample in samples:
        assert (sample.given, sample.wanted) in list(zip(*texts, strict=True))
        assert "<" not in sample.made


# --- what is validated on --------------------------------------------------------------------------------------------


def test_on_an_accelerator_a_validation_takes_passes_steps_and_scores(tmp_path, monkeypatch):
    """A search writes three pairs at a time, those with long sources first, and has as many steps as its longest."""
    task = task_of(tmp_path)
    monkeypatch.setattr(Translation, "at_once", 3)
    order = sorted(range(0, 13, 3), key=lambda row: -task.valid.lengths[row, 0])
    targets = [int(task.valid.lengths[row, 1]) for row in order]
    steps = max(targets[:3]) + max(targets[3:])
    passes = len(list(Buckets(task.valid.lengths, 4096, 0).epoch(0)))
    wanted = passes * PASS_SECONDS + steps * STEP_SECONDS + 5 * TEXT_SECONDS
    assert task.validation_latency(5) == pytest.approx(wanted)


def test_held_out_pairs_are_not_trained_on_and_always_the_same(tmp_path):
    one, again = (task_of(tmp_path, valid=None, seed=seed) for seed in (4, 5))
    assert sorted([*one.train[0].pairs, *one.valid.pairs]) == list(range(60))
    assert one.valid.pairs.tolist() == again.valid.pairs.tolist()
    assert one.valid.count == 3


def test_given_pairs_are_validated_on(tmp_path):
    task = task_of(tmp_path)
    assert task.train[0].count == 60
    assert task.texts(np.arange(13), 0) == sentences(13, 1)


def test_evaluation_opens_pairs_or_a_table(tmp_path):
    task = task_of(tmp_path)
    one, other = write_pairs(tmp_path, "test", 9, 2)
    model = model_for(task, "translator")
    opened = task.config.evaluation(task.tokenizer, [one, other])
    pairs = zip(Path(one).read_text().splitlines(), Path(other).read_text().splitlines(), strict=True)
    table = write(tmp_path / "test.tsv", ["source\ttarget", *("\t".join(pair) for pair in pairs)])
    assert opened.tokenizer is task.tokenizer
    assert opened.valid.count == 9
    assert opened.measure(model) == task.config.evaluation(task.tokenizer, [table]).measure(model)
    with pytest.raises(InputError, match="a translator is measured on a source file and a target file, or on tables"):
        task.config.evaluation(task.tokenizer, [one, other, table])


# --- BPE-dropout -----------------------------------------------------------------------------------------------------


@pytest.fixture
def varied(tmp_path) -> Translation:
    return task_of(tmp_path, valid=None, tokenizer=TokenizerConfig("bpe", 300, dropout=0.5), longest=12)


def test_variants_are_the_same_pairs_tokenised_in_other_ways(varied):
    assert len(varied.train) == VARIANTS
    texts = []
    for pairs in varied.train:
        rows = pairs.corpus.padded(pairs.row(np.arange(pairs.count), 1), 12, varied.special.pad)
        texts.append(varied.special.decode(rows.tolist()))
        assert pairs.lengths.max() <= 12
        assert pairs.pairs.tolist() == varied.train[0].pairs.tolist()
    assert all(text == texts[0] for text in texts)
    assert len({pairs.lengths.tobytes() for pairs in varied.train}) == VARIANTS
    assert all((pairs.lengths.sum(0) > varied.train[0].lengths.sum(0)).all() for pairs in list(varied.train)[1:])


def test_dropout_follows_from_the_seed_whatever_is_in_the_cache(tmp_path, monkeypatch):
    tokenizer = TokenizerConfig("bpe", 280, dropout=0.5)
    files = dict(zip(("source", "target"), ((name,) for name in write_pairs(tmp_path, "train", 40, 0)), strict=True))

    def opened(cache: str, seed: int, tokenizer: TokenizerConfig = tokenizer) -> Translation:
        monkeypatch.setenv("REGARD_CACHE", str(tmp_path / cache))
        return prepare("translation", tokenizer, seed, **files)

    first = opened("one", 3)
    assert opened("one", 3).fingerprint() == opened("another", 3).fingerprint() == first.fingerprint()
    assert opened("one", 4).fingerprint() != first.fingerprint()
    variants = [
        opened(cache, seed).train.open(2).checksum() for cache, seed in (("one", 3), ("another", 3), ("one", 4))
    ]
    assert variants[0] == variants[1] != variants[2]
    first.save(tmp_path / "run")  # a run that is resumed reads its own tokenizer
    resumed = opened("a third", 3, TokenizerConfig(path=str(tmp_path / "run"), dropout=0.5))
    assert resumed.fingerprint() == first.fingerprint()


def test_validation_is_not_varied(varied):
    assert varied.valid.corpus is varied.train.open(0).corpus
    assert not set(varied.valid.pairs) & {pair for pairs in varied.train for pair in pairs.pairs}


def test_pairs_left_out_are_counted_once(tmp_path):
    task = task_of(tmp_path, valid=None, tokenizer=TokenizerConfig("bpe", 300, dropout=0.5), longest=6)
    plain = task_of(tmp_path, valid=None, tokenizer=TokenizerConfig("bpe", 300), longest=6)
    assert plain.skipped.report()
    assert task.skipped.report() == plain.skipped.report()


def test_packing_adapts_to_each_variant(varied):
    model = model_for(varied, "translator")
    feed = varied.feed(model, 256, 0)
    assert len(feed.order.shapes) == 1
    widths = feed.order.shapes[0]
    seen = set()
    for epoch in range(VARIANTS + 1):
        pairs = varied.train[epoch % VARIANTS]
        groups = pack_rows(pairs.lengths, widths)
        assert all((pairs.lengths[group].sum(0) <= np.array(widths)).all() for group in groups)
        draws = list(feed.order.epoch(epoch))
        assert sorted(row for draw in draws for row in draw.rows if row >= 0) == list(range(len(groups)))
        batches = [feed.batch(draw, epoch) for draw in draws]
        assert sum(int((batch["labels"] != IGNORE).sum()) for batch in batches) == pairs.lengths[:, 1].sum()
        seen |= {tuple(batch["labels"].shape) for batch in batches}
    assert len(seen) == 1


def test_buckets_adapt_to_each_variant(varied):
    feed = varied.feed(model_for(varied, "rnn-seq2seq"), 64, 0)
    for epoch in (0, 1):
        tokens = sum(int((feed.batch(draw, epoch)["labels"] != IGNORE).sum()) for draw in feed.order.epoch(epoch))
        assert tokens == varied.train[epoch].lengths[:, 1].sum()
    assert isinstance(feed.order.feed(0).order, Buckets)
    assert feed.order.feed(1).order.shapes == feed.order.shapes  # each is compiled once


# --- mistakes --------------------------------------------------------------------------------------------------------


def test_long_and_blank_pairs_are_left_out_and_counted(tmp_path):
    source = write(tmp_path / "a.de", ["red dog", "", "one two three one two three", "cat", "dog"])
    target = write(tmp_path / "a.en", ["red dog", "cat", "one", " ", "dog"])
    task = prepare("translation", source=(source,), target=(target,), longest=5, seed=0)
    assert task.train[0].count + task.valid.count == 2
    assert task.skipped.report() == [
        f"2 blank lines skipped (first: {source}:2)",
        f"1 pair of more than 5 tokens skipped (first: {source}, pair 2)",
    ]


def test_long_validation_pairs_are_cut_and_not_left_out(tmp_path, monkeypatch):
    """Without its long sentences, a test set would be a different one."""
    monkeypatch.setattr(translation, "beam_search", copy_source)
    lines = ["red dog", "one two three one two three", "cat"]
    source = write(tmp_path / "a.de", lines)
    task = task_of(tmp_path, longest=5, valid=None)
    opened = task.config.evaluation(task.tokenizer, [source, source])
    assert (opened.valid.count, int(opened.valid.lengths.max())) == (3, 5)
    assert opened.skipped.report() == [
        f"1 end of a pair of more than 5 tokens skipped (first: {source}, pair 2)",
    ]
    made = ["red dog", "one two three one", "cat"]
    bleu = opened.measure(model_for(task, "translator"))["bleu"]
    assert bleu == pytest.approx(sacrebleu.corpus_bleu(made, [lines]).score)  # against the text of the file, not cut
    values = {"valid_source": (source,), "valid_target": (source,)}
    assert task_of(tmp_path, longest=5, valid=None, **values).valid.count == 3


def test_nothing_is_left(tmp_path):
    source, target = write(tmp_path / "a.de", ["red dog"] * 3), write(tmp_path / "a.en", ["red dog"] * 3)
    rule = r"a.de: no pair is left to train on; give other files \(3 pairs of more than 2 tokens skipped \(first: "
    with pytest.raises(InputError, match=rule):
        prepare("translation", source=(source,), target=(target,), longest=2)
    one = (write(tmp_path / "b.de", ["red dog"]),)
    with pytest.raises(InputError, match=r"b\.de: only one pair is left, so none can be held out; give more pairs, or"):
        prepare("translation", source=one, target=one)
    blank = write(tmp_path / "c.de", [" "])
    with pytest.raises(InputError, match=r"b\.de: no pair is left to train on; give other files \(1 blank line"):
        prepare("translation", source=one, target=(blank,))
    rule = r"c\.de: no pair is left to measure; give other files \(1 blank line skipped \("
    with pytest.raises(InputError, match=rule):
        TranslationConfig(source=one).evaluation(
            prepare("translation", source=(source,), target=(target,)).tokenizer, [blank, *one]
        )


def test_files_that_do_not_belong_together():
    with pytest.raises(ConfigError, match="source and target must name the same number of files: 2 and 1"):
        TranslationConfig(source=("a", "b"), target=("c",))
    with pytest.raises(ConfigError, match="valid_source and valid_target must name the same number of files: 1 and 2"):
        TranslationConfig(source=("a",), valid_source=("b",), valid_target=("c", "d"))
    with pytest.raises(ConfigError, match="valid_source and valid_target must name the same number of files: 0 and 1"):
        TranslationConfig(source=("a",), valid_target=("c",))
    with pytest.raises(ConfigError, match="source must name at least one file"):
        TranslationConfig(source=())


def test_the_order_depends_on_the_seed(tmp_path):
    task = task_of(tmp_path)
    model = model_for(task, "translator")
    one, same, other = (
        [draw.rows.tolist() for draw in islice(task.feed(model, 64, seed).order.epoch(0), 9)] for seed in (0, 0, 1)
    )
    assert one == same
    assert one != other


# --- the probe -------------------------------------------------------------------------------------------------------


def test_the_probe_is_a_pair_longer_than_most_with_the_tokens_of_training(tmp_path):
    lengths = (1, 9, 2, 4, 3)  # words; five rows, of which the fourth in length is chosen
    lines = [" ".join(["red"] * length) for length in lengths]
    files = {"source": (write(tmp_path / "a.de", lines),), "target": (write(tmp_path / "a.en", ["blue dog"] * 5),)}
    task = prepare("translation", **files, valid_source=files["source"], valid_target=files["target"])
    probe = task.probe()
    assert list(probe) == ["source", "target"]  # as the model takes them
    assert probe["source"].tolist() == [words(task, "red red red red )")]
    assert probe["target"].tolist() == [words(task, "( blue dog")]
    batch = task.padded(task.valid, Draw((5, 3), np.array([3])))
    assert all(torch.equal(probe[name], batch[name]) for name in probe)
    assert task.probe(4)["source"].tolist() == [words(task, "red red )")]  # of 1, 2 and 3 words the middle
    assert task.probe(2)["source"].tolist() == [words(task, "red )")]  # no pair fits, so the shortest is cut
    assert task.probe(2)["target"].tolist() == [words(task, "( blue")]


@pytest.mark.parametrize("recipe", ["translator", "rnn-attention"])
def test_a_model_takes_the_probe_of_held_out_pairs(tmp_path, recipe):
    task = task_of(tmp_path, valid=None)
    inputs = task.probe()
    assert all(torch.equal(inputs[name], tensor) for name, tensor in task_of(tmp_path, valid=None).probe().items())
    logits = model_for(task, recipe)(*inputs.values())
    assert logits.shape == (*inputs["target"].shape, task.tokenizer.size)


# --- the files change after they were read ---------------------------------------------------------------------------


@pytest.mark.parametrize("valid", [13, None])
@pytest.mark.parametrize("change", ["shorter", "longer", "gone"])
def test_references_are_those_that_were_tokenised(tmp_path, valid: int | None, change: str):
    """The first validation comes late; the files may have changed by then."""
    tokenizer = TokenizerConfig("byte")  # decodes to the text
    task = task_of(tmp_path, count=100, valid=valid, tokenizer=tokenizer)
    rows = np.arange(task.valid.count)
    for path in (*tmp_path.glob("*.de"), *tmp_path.glob("*.en")):
        lines = path.read_text().splitlines()
        if change == "gone":
            path.unlink()
        else:
            write(path, lines[50:] if change == "shorter" else ["one more", *lines])
    for side in (0, 1):
        corpus_rows = task.valid.row(rows, side)
        tokens = [task.valid.corpus.padded(corpus_rows[[row]], 200, task.special.pad)[0].tolist() for row in rows]
        assert task.texts(rows, side) == task.special.decode(tokens)


@pytest.mark.parametrize("valid", [13, None])
def test_a_limit_without_room_for_text_is_refused(tmp_path, valid: int | None):
    with pytest.raises(ConfigError, match="longest: 1 must be at least 2: 1 for special tokens and one for the text"):
        task_of(tmp_path, valid=valid, longest=1)
