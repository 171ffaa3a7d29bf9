"""`regard annotate`: print the secondary structure of proteins, or their contacts."""

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.lines import Lines
from regard.cli.option_groups import expand_groups
from regard.cli.sink import Sink, named
from regard.cli.text import AnswerOptions, TextArguments, answer_all, as_object
from regard.errors import InputError

if TYPE_CHECKING:
    from regard.data.proteins import FastaRecord
    from regard.use.annotate import Annotation, ContactMap


@expand_groups
def annotate_command(
    *,
    given: TextArguments,
    alignment: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Aligned FASTA (or A3M) file; its first sequence is annotated.", show_default=False
        ),
    ] = None,
    three: Annotated[bool, typer.Option("--three", help="Write 3 states: H helix, E strand, C coil.")] = False,
    running: AnswerOptions,
) -> None:
    """Predict the secondary structure of proteins, or their contacts.

    Prints a letter for each residue, one line for each sequence: H, G and I are helices, E a strand, B a bridge, T a
    turn, S a bend, and _ is everything else. A model of distances prints the most likely contacts instead: two
    residues and a probability, separated by tabs. A file has a sequence in each line, or is a FASTA file, whose answers
    begin with the name of the sequence and a tab.

    Examples:
      regard annotate MKTAYIAKQRQISFVKSHFSRQ
      regard annotate -m runs/residues-1 -f sequences.txt --three
      regard annotate -f proteins.fasta -o states.tsv
      regard annotate -m runs/residues-1 --alignment family.fasta --json
    """
    if alignment is not None and (given.texts or given.file is not None):
        raise InputError("--alignment names the sequence already; leave texts and --file out")
    records = _read_fasta(given)
    lines = Lines([record.sequence for record in records], None) if records else given.lines()

    def show(number: int, line: str, found: "Annotation | ContactMap | None") -> str:
        name = {"name": records[number].name} if records else {}
        if running.as_json:
            return as_object(line, **name, **({} if found is None else found.as_json(three)))
        return "\t".join((*name.values(), "" if found is None else found.text(three)))

    with Sink(given.output) as sink:
        loaded = running.open(given, "annotate")
        if alignment is not None:
            found = loaded.annotate_alignment(alignment)
            name = _first_name(alignment)
            as_json = as_object(found.sequence, name=name, **found.as_json(three))
            sink.write(f"{as_json if running.as_json else found.text(three)}\n")
            return
        sequences = lines.checked(_check, loaded)
        answers = loaded.annotate_lines(sequences, lines.feedback(), running.batch_tokens)
        answer_all(lines, answers, sink, show)


def _check(line: str, place: str) -> None:
    """Raise an error if a line is not a sequence."""
    from regard.models.residues import clean_sequence

    if line.startswith(">"):
        rule = f"{line[:20]!r} is a name of FASTA, which is read only from a file that begins with a name"
        raise InputError(f"{place}: {rule}; give the file by -f FILE, not through a pipe")
    clean_sequence(line, place)


def _first_name(alignment: Path) -> str:
    from regard.data.proteins import read_fasta_records

    return read_fasta_records(alignment, aligned=True)[0].name


def _read_fasta(given: TextArguments) -> "list[FastaRecord]":
    """Return the sequences of the file if it is a FASTA file; none if lines are read."""
    from regard.data.lines import EmptyError
    from regard.data.proteins import is_fasta, read_fasta_records

    file = named(given.file)
    with suppress(EmptyError):
        if file is not None and not given.texts and given.column is None and is_fasta(file):
            return read_fasta_records(file)
    return []
