"""Parsing: rows by hand, variants by substitution, scores, baselines, what is left out, and a model that learns."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest
import torch

from regard.data.tokenizer import TokenizerConfig
from regard.data.trees import Tree, parse_tree
from regard.decode.engine import in_use
from regard.errors import ConfigError, InputError
from regard.tasks.bracketing import bracketing_scores
from regard.tasks.linear_trees import delinearise, word_pieces
from regard.tasks.parsing import VARIANTS, Parsing, ParsingConfig
from regard.tasks.substitution import Substitutes, substituted
from regard.training.start import train

from .corpora import model_for, prepare, write

NOUNS, VERBS = ("dog", "cat", "bird"), ("sees", "hears")
BPE = TokenizerConfig("bpe", 300)


def noun_phrase(chance: Random, deep: bool = True) -> str:
    plain = f"(NP (DT the) (NN {chance.choice(NOUNS)}))"
    return f"(NP {plain} (PP (IN near) {noun_phrase(chance, False)}))" if deep and chance.random() < 0.3 else plain


def bank(count: int, seed: int = 0) -> list[str]:
    chance = Random(seed)
    return [
        f"(S {noun_phrase(chance)} (VP (VBZ {chance.choice(VERBS)}) {noun_phrase(chance)}) (. .))" for _ in range(count)
    ]


def task_of(
    path, count: int = 30, valid: int | None = 7, tokenizer: TokenizerConfig = BPE, substitute: float = 0.0, **values
) -> Parsing:
    """Prepare a task; without substitution and BPE-dropout, there is only one variant of each tree."""
    files = {"train": (write(path / "train.mrg", bank(count)),)}
    if valid is not None:
        files["valid"] = (write(path / "valid.mrg", bank(valid, 1)),)
    return prepare("parsing", tokenizer, **files, substitute=substitute, **values)


def test_rows_are_a_sentence_and_its_tree(tmp_path):
    task = task_of(tmp_path)
    assert task.facts() == {
        "trees": 30,
        "tree tokens": int(task.train[0].lengths[:, 1].sum()),
        "validation trees": 7,
    }
    for row, text in enumerate(bank(7, 1)):
        tree = parse_tree(text)
        pieces = word_pieces(task.tokenizer, tree.words())
        corpus, rows = task.valid.corpus, [task.valid.row(np.array([row]), side) for side in (0, 1)]
        ids = [corpus.padded(one, int(corpus.lengths[one[0]]), 0)[0].tolist() for one in rows]
        assert ids[0] == [*(id for word in pieces for id in word), task.tokenizer.end]
        assert ids[1][-1] == task.tokenizer.end
        assert delinearise(ids[1][:-1], tree.words(), pieces, task._search.symbols) == tree
        assert task.valid_trees[row] == tree


def test_variants_have_other_trees_but_the_same_rows(tmp_path):
    varied = {"tokenizer": replace(BPE, dropout=0.1), "substitute": 0.5}
    task = task_of(tmp_path, **varied)
    assert len(task.train) == VARIANTS
    assert {pairs.count for pairs in task.train} == {30}
    assert len({pairs.checksum() for pairs in task.train}) == VARIANTS
    again = task_of(tmp_path, **varied)
    assert again.fingerprint() == task.fingerprint()
    assert len(task_of(tmp_path).train) == 1


def test_substitution_keeps_labels_and_uses_known_constituents():
    trees = [parse_tree(text) for text in bank(20)]
    others, chance = Substitutes(trees), Random(0)
    known = {str(part) for parts in others.by_label.values() for part in parts}
    changed = [substituted(tree, others, 0.5, chance) for tree in trees]
    assert sum(tree != other for tree, other in zip(trees, changed, strict=True)) > 5
    for tree, other in zip(trees, changed, strict=True):
        assert other.label == "S"
        assert [part.label for part in other.trees] == [part.label for part in tree.trees]
        assert {tag.label for tag in other.tags()} <= {"DT", "NN", "IN", "VBZ", "."}
    replaced = [part for other in changed for part in other.trees if part.label == "NP"]
    assert sum(str(part) in known for part in replaced) > len(replaced) / 2
    assert [substituted(tree, others, 0.0, chance) for tree in trees] == trees
    assert not any(part.is_tag for parts in others.by_label.values() for part in parts)
    assert "S" not in others.by_label


def test_long_trees_are_left_out_of_training_but_not_of_validation(tmp_path):
    train = [*bank(5), f"(S {'(NN dog)' * 40})"]
    files = {"train": (write(tmp_path / "a.mrg", train),), "valid": (write(tmp_path / "b.mrg", train[-1:]),)}
    task = prepare("parsing", BPE, **files, longest=60, substitute=0.0)
    assert task.facts()["trees"] == 5
    assert task.skipped.report() == [f"1 tree of more than 60 tokens skipped (first: {files['train'][0]}, tree 6)"]
    assert len(task.valid_trees[0].words()) == 40
    with pytest.raises(InputError, match="no tree is left to train on"):
        prepare("parsing", BPE, train=files["valid"], longest=5)


def test_files_without_a_tree_say_why(tmp_path):
    empty = write(tmp_path / "empty.mrg", ["(S (-NONE- *T*))", ""])
    rule = r"empty\.mrg: no tree is left to {}; give other files \(1 tree without a word skipped \(first: .*:1\)\)$"
    with pytest.raises(InputError, match=rule.format("train on")):
        prepare("parsing", BPE, train=(empty,))
    some = write(tmp_path / "some.mrg", bank(5))
    with pytest.raises(InputError, match=rule.format("validate on")):
        prepare("parsing", BPE, train=(some,), valid=(empty,))
    task = prepare("parsing", BPE, train=(some,))
    with pytest.raises(InputError, match=rule.format("measure")):
        task.config.evaluation(task.tokenizer, [empty])


def test_some_trees_are_held_out_and_a_folder_is_read(tmp_path):
    (tmp_path / "trees").mkdir()
    for number in (1, 2):
        write(tmp_path / "trees" / f"{number}.mrg", bank(20, number))
    task = prepare("parsing", BPE, train=(str(tmp_path / "trees"),), substitute=0.0)
    assert (task.train[0].count, task.valid.count) == (38, 2)
    assert {str(tree) for tree in task.valid_trees} <= {*bank(20, 1), *bank(20, 2)}


def test_weights_that_diverged_are_measured(tmp_path):
    """Their search finds no tree, so each has no structure."""
    task = task_of(tmp_path)
    model = model_for(task, "transformer-base")
    with torch.no_grad():
        for weights in model.parameters():
            weights.fill_(torch.nan)
        found = task.measure(model.eval())
    assert (np.isnan(found["loss"]), found["bracket_f1"]) == (True, 0)


@pytest.mark.parametrize("recipe", ["transformer-base", "rnn-attention"])
def test_measures_are_scores_of_trees_over_the_same_words(tmp_path, recipe):
    task = task_of(tmp_path)
    model = model_for(task, recipe)
    with in_use(model):
        found, wide = task.measure(model, 5), task.evaluate(model)
        made = task.parsed(model, np.arange(7), 1)
    assert [tree.words() for tree in made] == [tree.words() for tree in task.valid_trees]
    assert found.keys() == wide.keys() >= {"loss", "perplexity", "bracket_f1", "tag_accuracy"}
    rows = np.linspace(0, 6, 5).astype(int)
    wanted = bracketing_scores([made[row] for row in rows], [task.valid_trees[row] for row in rows])
    assert {name: found[name] for name in wanted} == wanted
    assert (task.method(), task.method(5)) == ("greedy, 7 trees", "greedy, 5 of 7 trees")
    samples = task.samples(model)
    assert [parse_tree(sample.made).words() == sample.given.split() for sample in samples] == [True] * 3


def test_baselines(tmp_path):
    """The grammar of this bank is nearly certain; trees that branch to the right are often right, too."""
    right, grammar = task_of(tmp_path).baselines
    assert (right.name, grammar.name) == ("right-branching", "PCFG")
    assert 10 < right.score < grammar.score <= 100
    assert grammar.score > 80
    assert grammar.how == "of 30 trees; 7 sentences of up to 40 words"


def test_other_trees_can_be_measured(tmp_path):
    task = task_of(tmp_path)
    other = task.config.evaluation(task.tokenizer, [write(tmp_path / "test.mrg", ["(XX (YY dog))", *bank(2, 5)])])
    model = model_for(task, "transformer-base")
    with in_use(model):
        assert 0 <= other.measure(model)["bracket_f1"] < 100
    assert other.facts()["validation trees"] == 3
    (reading,) = other.readings([str(tmp_path / "test.mrg")])
    assert reading.examples["sentence"] == "dog"


def test_mistakes(tmp_path):
    with pytest.raises(ConfigError, match="train must name at least one file"):
        ParsingConfig(train=())
    with pytest.raises(ConfigError, match="name a file of trees"):
        ParsingConfig.from_files([], [])
    with pytest.raises(InputError, match=r"train.mrg:1: 'plain' is outside of any bracket"):
        prepare("parsing", BPE, train=(write(tmp_path / "train.mrg", ["plain text"]),))


def test_messages_speak_of_trees(tmp_path):
    rule = r"train\.mrg: only one tree is left, so none can be held out; give more trees, or others with --valid$"
    with pytest.raises(InputError, match=rule):
        task_of(tmp_path, count=1, valid=None)
    task = task_of(tmp_path, count=40, valid=1)
    assert task.method() == "greedy, 1 tree"
    assert any(caution.startswith("1 validation tree: the score is mostly chance") for caution in task.cautions())


@pytest.mark.unchecked
def test_a_small_model_learns_the_bank(tmp_path):
    train_file, valid = write(tmp_path / "train.mrg", bank(200)), write(tmp_path / "valid.mrg", bank(20, 1))
    run = train(
        {"kind": "parsing", "train": [train_file], "valid": [valid], "beam": 2, "substitute": 0.0},
        "train.steps=120",
        "train.tokens=1024",
        "train.validate_every=60",
        "train.average=1",
        "tokenizer.dropout=0.0",
        "model.dim=64",
        "model.encoder.depth=2",
        "model.decoder.depth=2",
        run=tmp_path / "run",
        size="tiny",
        device="cpu",
    )
    loaded = run.load("cpu")
    assert run.evaluate(device="cpu")["bracket_f1"] > 60
    assert loaded.bundle.description == "a parser"
    (tree, none) = loaded.parse(["the dog sees the cat .", " "])
    assert isinstance(tree, Tree)
    assert none is None
    assert tree.words() == ["the", "dog", "sees", "the", "cat", "."]
    with pytest.raises(InputError, match="is a parser and cannot translate; use `parse` or `embed`"):
        loaded.translate(["the dog"])
    assert torch.isfinite(torch.tensor(run.evaluate(device="cpu")["loss"]))
