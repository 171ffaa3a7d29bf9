"""Annotate proteins: states and contacts, alone, in batches, and with an alignment."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from regard.errors import InputError
from regard.models.residues import STATES
from regard.tasks.distances import EDGES, contact_chances
from regard.tasks.residues import state_scores
from regard.use.annotate import Annotation, ContactMap
from regard.use.batches import Feedback
from regard.use.loaded_model import LoadedModel
from regard.viewer.export import draw_head, read_head_weights
from regard.viewer.query import Query
from regard.viewer.record import record

from ..cli.command import Command
from ..tasks.corpora import write, write_chains
from ..training.tiny import shrunk
from .made import loaded, tokenizer_of

TOKENIZER = tokenizer_of("residues")
DISTANCES = ("model.head.kind=distances", f"model.head.classes={len(EDGES) + 1}")


def annotator(*changes: str) -> LoadedModel:
    return loaded("residues", "residues", None, *changes)


@torch.no_grad()
def test_states_are_those_of_the_model_whatever_is_in_the_batch():
    here = annotator("model.alignment=none")
    texts = ["ACDEFGHIK", "", "wyw yv", "MKX"]
    found = here.annotate(texts)
    assert found[1] is None
    for text, each in zip(("ACDEFGHIK", "WYWYV", "MKX"), (found[0], *found[2:]), strict=True):
        assert isinstance(each, Annotation)
        logits = here.bundle.model(torch.from_numpy(TOKENIZER.encode(text).astype(np.int64))[None])[0]
        assert each.sequence == text
        assert each.states == "".join(STATES[state] for state in logits.argmax(-1).tolist())
        assert each.probabilities == pytest.approx(logits.softmax(-1).max(-1).values.tolist(), abs=1e-5)
    assert set(found[0].three_states) <= set("HEC")


def test_three_states_are_those_that_q3_measures():
    chances = np.zeros((2, 8), np.float32)
    chances[0, [STATES.index(state) for state in "HTS_"]] = 0.4, 0.2, 0.2, 0.2  # coil is likelier than helix
    chances[1, [STATES.index(state) for state in "EBG"]] = 0.3, 0.3, 0.4
    found = Annotation("AC", chances)
    assert (found.states, found.three_states) == ("HG", "CE")
    assert found.as_json(three=True) == {"states": "CE", "probabilities": [0.6, 0.6]}
    assert found.as_json() == {"states": "HG", "probabilities": [0.4, 0.4]}
    assert state_scores(chances, np.array([STATES.index("S"), STATES.index("E")]))["q3"] == 1


@torch.no_grad()
def test_contacts_are_the_most_likely_pairs():
    here = annotator("model.alignment=none", *DISTANCES)
    (found,) = here.annotate(["ACDEFGHIKLMNP"])
    assert isinstance(found, ContactMap)
    chances = contact_chances(here.bundle.model(torch.from_numpy(TOKENIZER.encode("ACDEFGHIKLMNP"))[None].long())[0])
    np.testing.assert_allclose(found.chances, chances, rtol=1e-5)
    best = found.best()
    assert len(best) == 13
    assert all(second - first >= 6 for first, second, _ in best)
    assert [chance for *_, chance in best] == sorted((chance for *_, chance in best), reverse=True)
    assert found.as_json()["contacts"][0][:2] == list(best[0][:2])
    assert found.text().startswith(f"{best[0][0]}-{best[0][1]} ")


def test_an_alignment_changes_the_answer(tmp_path: Path):
    here = annotator()
    path = write(tmp_path / "a.fasta", [">a", "ACDEFGHIK", ">b", "ACD-FGHLK", ">c", "WCDEWGHLK"])
    aligned = here.annotate_alignment(path)
    heard: list[str] = []
    ((_, alone),) = here.annotate_lines(["ACDEFGHIK"], Feedback(warn=heard.append))
    assert aligned.sequence == "ACDEFGHIK"
    assert aligned.probabilities != pytest.approx(alone.probabilities)
    assert heard == [
        "the model was trained with alignments and is less exact without; give an aligned FASTA file with --alignment"
    ]
    with pytest.raises(InputError, match="here: reads single sequences; leave the alignment out"):
        annotator("model.alignment=none").annotate_alignment(path)


def test_wrong_residues_and_other_models_are_refused():
    with pytest.raises(InputError, match="'1' at place 3 is not a residue"):
        annotator("model.alignment=none").annotate(["AC1"])
    with pytest.raises(InputError, match="batch_tokens=0 must be a whole number, at least 1"):
        annotator("model.alignment=none").annotate_lines(["ACD"], batch_tokens=0)
    with pytest.raises(InputError, match="is a masked language model and cannot annotate"):
        loaded("masked").annotate(["ACD"])
    with pytest.raises(InputError, match="'Ö' at place 1 is not a residue"):
        annotator("model.alignment=none").embed(["ÖCD"])


def test_train_annotate_evaluate_and_look(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    regard = Command(monkeypatch, capsys)
    write_chains(tmp_path / "chains.tsv", 20)
    short = ["train.steps=2", "train.validate_every=2", "train.checkpoint_every=2", "train.tokens=128"]
    settings = ["task.alignment=alignment", "task.fold=1", "task.folds=3", *shrunk("annotator"), *short]
    done = regard("train", "residues", "chains.tsv", *settings, "--run", "run")
    assert done.code == 0, done.err
    assert "linear: q3" in done.out + done.err
    done = regard("annotate", "acdefgh", "WYW", "-m", "run")
    assert [len(line) for line in done.out.splitlines()] == [7, 3]
    done = regard("annotate", "ACD", "-m", "run", "--three", "--json")
    assert done.out.startswith('{"text": "ACD", "states": "')
    write(tmp_path / "a.fasta", [">a", "ACDEF", ">b", "AC-EF"])
    assert len(regard("annotate", "-m", "run", "--alignment", "a.fasta").out.strip()) == 5
    done = regard("annotate", "-m", "run", "--alignment", "a.fasta", "--json")
    assert (json.loads(done.out)["name"], json.loads(done.out)["text"]) == ("a", "ACDEF")
    write(tmp_path / "b.fasta", ["", "> sp|P1\tfirst  one", "ACD", "EF", ">b", "wy"])
    rows = [line.split("\t") for line in regard("annotate", "-m", "run", "-f", "b.fasta").out.splitlines()]
    assert [(name, len(states)) for name, states in rows] == [("sp|P1 first one", 5), ("b", 2)]
    done = regard("annotate", "-m", "run", "-f", "b.fasta", "--json")
    found = [json.loads(line) for line in done.out.splitlines()]
    assert [(each["name"], each["text"], each["states"]) for each in found] == [
        ("sp|P1 first one", "ACDEF", rows[0][1]),
        ("b", "WY", rows[1][1]),
    ]
    write(tmp_path / "c.fasta", [">a", "ACD", "", ">b", "ACD", "A1"])
    assert regard.refused("annotate", "-m", "run", "-f", "c.fasta").startswith("c.fasta:6: '1' at place 2 is not a")
    write(tmp_path / "lines.txt", ["ACD", "", "AC*"])
    wrong = regard("annotate", "-m", "run", "-f", "lines.txt")
    assert wrong.code == 2
    assert "lines.txt:3: '*' at place 3 is not a residue; use ACDEFGHIKLMNPQRSTVWY, or X for any other" in wrong.err
    write(tmp_path / "late.txt", ["ACD", ">a", "ACD"])
    assert "late.txt:2: '>a' is a name of FASTA" in regard("annotate", "-m", "run", "-f", "late.txt").err
    write(tmp_path / "table.tsv", ["sequence", "ACD", "A-C"])
    assert "table.tsv:3: '-' at place 2" in regard("annotate", "-m", "run", "-f", "table.tsv").err
    write(tmp_path / "none.txt", [])
    assert regard("annotate", "-m", "run", "-f", "none.txt").code == 0
    wrong = regard("annotate", "ACD", "-m", "run", "--alignment", "a.fasta")
    assert wrong.code == 2
    assert "leave texts and --file out" in wrong.err
    assert "q3_strict" in regard("evaluate", "chains.tsv", "-m", "run").out
    assert regard("look", "acdefgh", "-m", "run", "--svg", "a.svg").code == 0
    assert (tmp_path / "a.svg").exists()


def test_the_viewer_shows_attention_with_its_bias_and_the_answers():
    text = "acdefghiklmnp"
    recorded = record(annotator("model.alignment=none"), Query(text))
    manifest = recorded.manifest()
    assert [token["text"] for token in manifest["sequences"]["tokens"]] == list(text.upper())
    ((answer,),) = (each["guesses"] for each in manifest["answers"])
    assert len(answer["text"]) == 13
    model = annotator("model.alignment=none", *DISTANCES)
    recording = record(model, Query(text))
    contacts = recording.manifest()["answers"]
    assert contacts[0]["question"] == "Which residues are closer than 8 angstrom?"
    assert len(contacts[0]["guesses"]) == 5
    (found,) = model.annotate([text])
    assert isinstance(found, ContactMap)
    pairs = [[first - 1, second - 1] for first, second, _ in found.best()]
    assert recording.manifest()["contacts"] == read_head_weights(recording).contacts == pairs
    assert b"likely contacts" in draw_head(read_head_weights(recording), "svg")
