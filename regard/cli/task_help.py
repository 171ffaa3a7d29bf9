"""What the help of `regard train` says of each task; torch is not imported to list them."""

from typing import NamedTuple


class TaskHelp(NamedTuple):
    """The help of one task."""

    about: str
    files: str  # what its arguments are
    examples: tuple[str, ...]


_TEXTS = "Text files, plain or compressed, tables with one text in each row, or folders of these"

TASKS = {
    "translation": TaskHelp(
        "Train a translator on pairs of sentences.",
        "A source and a target file, line by line, or tables (tsv, csv, jsonl, parquet) of pairs",
        (
            "regard train translation train.de train.en --valid valid.de --valid valid.en",
            "regard train translation pairs.tsv --recipe rnn-attention --size small",
            "regard train translation pairs.csv task.source_column=de task.target_column=en",
        ),
    ),
    "language": TaskHelp(
        "Train a language model on texts.",
        _TEXTS,
        (
            "regard train language corpus.txt more.txt.gz --size small train.minutes=10",
            "regard train language corpus.txt --recipe gpt2 model.dim=128 --dry-run",
        ),
    ),
    "masked": TaskHelp(
        "Train an encoder to predict masked words (BERT).",
        _TEXTS,
        ("regard train masked corpus.txt task.documents=line",),
    ),
    "vectors": TaskHelp(
        "Train a table of word vectors (Word2Vec).",
        _TEXTS,
        ("regard train vectors corpus.txt model.dim=100",),
    ),
    "classification": TaskHelp(
        "Train a classifier on tables of texts and labels.",
        "Tables (tsv, csv, jsonl, parquet) with a text and a label in each row, or folders of tables",
        ("regard train classification reviews.tsv --valid valid.tsv",),
    ),
    "vision": TaskHelp(
        "Train a Vision Transformer on labelled images.",
        "A folder of class folders, idx files or an npz file",
        ("regard train vision photos/ --valid others/",),
    ),
    "trajectories": TaskHelp(
        "Train a forecaster on tracks of agents.",
        "Text files with a row for each agent and step (frame, agent, x, y), or folders of these",
        ("regard train trajectories ethucy/eth/train --valid ethucy/eth/val",),
    ),
    "parsing": TaskHelp(
        "Train a parser on sentences with their trees.",
        "Files of trees in brackets (.mrg), plain or compressed, or folders of these",
        (
            "regard train parsing train.mrg --valid valid.mrg",
            "regard train parsing trees/ --recipe rnn-attention",
        ),
    ),
    "residues": TaskHelp(
        "Train a model of the secondary structure of proteins.",
        "Tables with a sequence and its states in each row, or folders of tables",
        ("regard train residues chains.tsv task.alignment=alignment task.fold=1",),
    ),
    "distances": TaskHelp(
        "Train a model of the distances in proteins.",
        "Files of structures (JSON lines), plain or compressed",
        ("regard train distances structures.jsonl",),
    ),
}
