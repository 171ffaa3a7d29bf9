"""Annotate proteins: a state of secondary structure for each residue, or the pairs of residues that are in contact."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from regard.data.device import to_device
from regard.data.proteins import read_fasta
from regard.decode.engine import in_use
from regard.errors import InputError
from regard.models.residues import CLASSES, STATES
from regard.tasks.loss import IGNORE
from regard.tasks.proteins import EncodedChain, tables_of_rows
from regard.use.batches import Chunks, Feedback
from regard.use.bundle import Bundle
from regard.use.forward import forward_lines

MOST_TOKENS = 2048  # of a batch: pairs need memory for the square of a sequence
ALONE = "the model was trained with alignments and is less exact without; give an aligned FASTA file with --alignment"


@dataclass(frozen=True)
class Annotation:
    """What a model says of a sequence: the state of each residue, with its probability."""

    sequence: str
    states: str
    probabilities: tuple[float, ...]

    @property
    def three_states(self) -> str:
        """The states of 3: helix (H), strand (E), coil (C)."""
        return "".join(CLASSES.get(state, "C") for state in self.states)


def annotate_lines(
    bundle: Bundle, chunks: Chunks, batch_tokens: int | None, feedback: Feedback
) -> Iterator[tuple[str, Annotation | None]]:
    """Yield each line with its annotation; None for a blank line."""
    bundle.check("annotate")
    tokenizer = bundle.need_tokenizer()
    if getattr(bundle.model, "aligned_rows", 0):
        feedback.warn(ALONE)

    def work(inputs: dict[str, Tensor]) -> list[Annotation]:
        scores = bundle.model(**inputs)
        rows = zip(scores, inputs["tokens"].tolist(), inputs["lengths"].tolist(), strict=True)
        return [annotation(row[:length], tokenizer.decode(ids[:length])) for row, ids, length in rows]

    return forward_lines(bundle, chunks, work, min(batch_tokens or MOST_TOKENS, MOST_TOKENS), feedback)


def annotate_alignment(bundle: Bundle, path: Path) -> Annotation:
    """Annotate the first sequence of an aligned FASTA file."""
    bundle.check("annotate")
    rows = int(getattr(bundle.model, "aligned_rows", 0))
    if not rows:
        rule = "reads single sequences; leave the alignment out, or train one with task.alignment"
        raise InputError(f"{bundle.name}: {rule}")
    tokenizer = bundle.need_tokenizer()
    sequence, others = read_fasta(path)
    chain = EncodedChain.of(tokenizer, sequence, others, np.full(len(sequence), IGNORE))
    table = tables_of_rows([chain], len(sequence), tokenizer, rows)
    inputs = {name: to_device(value, bundle.device) for name, value in table.items() if name != "labels"}
    with in_use(bundle.model):
        return annotation(bundle.model(**inputs)[0], sequence)


def annotation(scores: Tensor, sequence: str) -> Annotation:
    """Return the most likely state of each residue."""
    chances, states = torch.softmax(scores.float(), -1).max(-1)
    return Annotation(sequence, "".join(STATES[state] for state in states.tolist()), tuple(chances.tolist()))
