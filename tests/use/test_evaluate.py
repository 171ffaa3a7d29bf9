"""Measuring: the task's own measures, and for translators those of what `translate` writes."""

import pytest

import regard
from regard.errors import InputError
from regard.tasks.metric import translation_scores, translation_signatures
from regard.use.evaluate import Evaluation, evaluate_model
from regard.use.translate import TranslateOptions

from ..tasks.corpora import sentences, write
from .made import loaded, run


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))


def test_a_translator_is_measured_by_what_it_translates(tmp_path):
    ready = regard.load(run("translation", tmp_path / "run"), device="cpu")
    lines, wanted = sentences(20, seed=8), sentences(20, seed=9)
    source, target = write(tmp_path / "x.de", lines), write(tmp_path / "x.en", wanted)
    found = ready.evaluate(source, target, beam=3)
    scores = translation_scores(ready.translate(lines, beam=3), wanted)
    assert {name: found[name] for name in scores} == scores
    task = ready.bundle.run.open_task([source, target])
    measured = task.measure(ready.model)  # by greedy search
    assert found["loss"] == pytest.approx(measured["loss"])
    greedy = ready.evaluate(source, target, beam=1)
    assert greedy == pytest.approx(measured)


def test_an_evaluation_is_a_table_in_a_notebook():
    shown = Evaluation({"bleu": 12.345678, "bleu_lowercase": 13.0}, "<beam 5>", 2000)._repr_html_()
    assert "12.35" in shown
    assert "lowercase" not in shown
    assert "&lt;beam 5&gt;, 2,000 pairs" in shown


def test_everything_that_is_reported(tmp_path):
    ready = regard.load(run("translation", tmp_path / "run"), device="cpu")
    source = write(tmp_path / "x.de", ["red dog", "", "one two three " * 6])
    target = write(tmp_path / "x.en", ["dog red", "cat", "two"])
    said: list[str] = []
    found = evaluate_model(ready.bundle, [source, target], TranslateOptions(beam=1), said.append)
    assert found.signatures == translation_signatures(["dog red", "two"])
    assert found.data["validation pairs"] == 2
    assert any(line.startswith("1 blank line skipped") for line in found.skipped)
    assert found.skipped[-1].startswith("1 line was cut at the end, being over 11 tokens (first: line 2)")
    assert said == ["measuring", "translating 2 sentences"]


def test_the_validation_data_of_the_run(tmp_path):
    ready = regard.load(run("language", tmp_path / "run"), device="cpu")
    assert set(ready.evaluate()) == {"loss", "perplexity", "word_perplexity", "bits_per_byte"}
    assert ready.evaluate() != ready.evaluate(tmp_path / "run" / "a.txt")


def test_the_files_of_the_training_are_cautioned_of(tmp_path, monkeypatch):
    ready = regard.load(run("translation", tmp_path / "run"), device="cpu")
    other = write(tmp_path / "x.en", sentences(80, seed=9))
    monkeypatch.chdir(tmp_path)
    (caution,) = ready.evaluate("run/../run/a.txt", other).cautions
    assert caution.startswith("run/../run/a.txt: the run was trained on it, so this says little about other data")
    assert ready.evaluate(other, other).cautions == []
    recipe = run("residues", tmp_path / "proteins") / "recipe.toml"
    for fold, count in (("", 1), ("fold = 1", 0)):  # only the fold that was left out is measured
        recipe.write_text(recipe.read_text().replace("[task]", f"[task]\n{fold}"))
        found = regard.load(tmp_path / "proteins", device="cpu").evaluate(tmp_path / "proteins/a.tsv")
        assert len(found.cautions) == count


@pytest.mark.parametrize("kind", ["language", "translation", "classification"])
def test_texts_of_unknown_characters_are_cautioned_of(tmp_path, kind):
    ready = regard.load(run(kind, tmp_path / "run"), device="cpu")
    unknown = ["\u65e5 \u672c \u8a9e"] * 30
    label = [] if kind != "classification" else ready.bundle.classes
    for lines, expected in ((sentences(30), 0), (unknown, 1)):
        rows = [f"{line}\t{label[0]}" for line in lines] if label else lines
        names = [write(tmp_path / ("x.tsv" if label else "x.txt"), ["text\tlabel", *rows] if label else rows)]
        if kind == "translation":
            names.append(write(tmp_path / "y.txt", sentences(30)))
        found = ready.evaluate(*names)
        assert len(found.cautions) == expected
    assert "100% of the tokens are unknown to the tokenizer" in found.cautions[0]


def test_a_model_without_a_run_needs_files_to_be_evaluated():
    with pytest.raises(InputError, match="here: is not a run, so it has no validation data; name"):
        loaded("language").evaluate()


@pytest.mark.parametrize("verb", ["evaluate", "ablate"])
def test_a_list_of_files_is_not_a_file(verb):
    with pytest.raises(InputError, match=r"\['a.txt', 'b.txt'\] must be one file; put a star before a list of files"):
        getattr(loaded("language"), verb)(["a.txt", "b.txt"])
