"""Annotate proteins: a state of secondary structure for each residue, or the pairs of residues that are in contact."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float
from torch import Tensor

from regard.config import Table
from regard.data.device import to_device
from regard.data.proteins import read_fasta
from regard.decode.engine import in_use
from regard.errors import InputError
from regard.models.residues import STATES
from regard.tasks.distances import APART, best_pairs, contact_chances
from regard.tasks.loss import IGNORE
from regard.tasks.proteins import EncodedChain, tables_of_rows
from regard.tasks.residues import THREE, three_chances
from regard.use.batches import Chunks, Feedback, tokens_per_batch
from regard.use.bundle import Bundle
from regard.use.forward import forward_lines

MOST_TOKENS = 2048  # of a batch: pairs need memory for the square of a sequence
ALONE = "the model was trained with alignments and is less exact without; give an aligned FASTA file with --alignment"


@dataclass(frozen=True, eq=False)
class Annotation:
    """What a model says of a sequence: the probability of each of 8 states, for each residue."""

    sequence: str
    chances: Float[np.ndarray, "T 8"]

    @property
    def states(self) -> str:
        """The most likely state of each residue."""
        return "".join(STATES[state] for state in self.chances.argmax(1).tolist())

    @property
    def probabilities(self) -> tuple[float, ...]:
        """The probability of each of the `states`."""
        return tuple(self.chances.max(1).tolist())

    @property
    def three_states(self) -> str:
        """The most likely of 3 states, as Q3 measures it: helix (H), strand (E), coil (C)."""
        return "".join(THREE[state] for state in three_chances(self.chances).argmax(1).tolist())

    def text(self, three: bool = False) -> str:
        """Return the states as letters: 8, or 3 of them."""
        return self.three_states if three else self.states

    def as_json(self, three: bool = False) -> Table:
        """Return the states, 8 or 3, and their probabilities as values of JSON."""
        chances = three_chances(self.chances) if three else self.chances
        return {"states": self.text(three), "probabilities": [round(each, 4) for each in chances.max(1).tolist()]}


@dataclass(frozen=True, eq=False)
class ContactMap:
    """What a model says of the pairs of a sequence: the probability that the two are in contact."""

    sequence: str
    chances: Float[np.ndarray, "T T"]

    def best(self) -> list[tuple[int, int, float]]:
        """Return as many pairs as there are residues, the most likely first: two numbers from 1, and a probability."""
        pairs = best_pairs(self.chances, APART[0], len(self.sequence))
        return [(first + 1, second + 1, float(self.chances[first, second])) for first, second in pairs]

    def text(self, three: bool = False) -> str:
        """Return the most likely contacts, separated by tabs."""
        return "\t".join(f"{first}-{second} {chance:.4f}" for first, second, chance in self.best())

    def as_json(self, three: bool = False) -> Table:
        """Return the most likely contacts as values of JSON."""
        return {"contacts": [[first, second, round(chance, 4)] for first, second, chance in self.best()]}


def annotate_lines(
    bundle: Bundle, chunks: Chunks, batch_tokens: int | None, feedback: Feedback
) -> Iterator[tuple[str, Annotation | ContactMap | None]]:
    """Yield each line with its annotation; None for a blank line."""
    bundle.check("annotate")
    tokenizer = bundle.need_tokenizer()
    if getattr(bundle.model, "aligned_rows", 0):
        feedback.warn(ALONE)

    def work(inputs: dict[str, Tensor]) -> list[Annotation | ContactMap]:
        scores = bundle.model(**inputs)
        rows = zip(scores, inputs["tokens"].tolist(), inputs["lengths"].tolist(), strict=True)
        return [answer(bundle, row, tokenizer.decode(ids[:length])) for row, ids, length in rows]

    tokens = min(tokens_per_batch(batch_tokens, bundle.device), MOST_TOKENS)
    return forward_lines(bundle, chunks, work, tokens, feedback)


def annotate_alignment(bundle: Bundle, path: Path) -> Annotation | ContactMap:
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
        return answer(bundle, bundle.model(**inputs)[0], sequence)


def answer(bundle: Bundle, scores: Tensor, sequence: str) -> Annotation | ContactMap:
    """Return the most likely state of each residue, or the chances of contacts: the task of the model decides."""
    length = len(sequence)
    bundle.check_finite(scores[:length])
    if bundle.model.task == "distances":
        return ContactMap(sequence, contact_chances(scores[:length, :length]))
    return Annotation(sequence, scores[:length].float().softmax(-1).cpu().numpy())
