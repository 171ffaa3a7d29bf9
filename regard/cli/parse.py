"""`regard parse`: draw the trees of sentences, or write those of a file in brackets."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.console import complain
from regard.cli.lines import Lines
from regard.cli.option_groups import expand_groups
from regard.cli.sink import Sink, check_apart, named
from regard.cli.text import AllowPickle, AnswerOptions, EngineName, TextArguments, answer_all, as_object
from regard.errors import InputError

if TYPE_CHECKING:
    from regard.data.trees import Tree


@expand_groups
def parse_command(
    *,
    given: TextArguments,
    grammar: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Instead of a model, use a probabilistic grammar of the trees in this file.",
            show_default=False,
        ),
    ] = None,
    beam: Annotated[int, typer.Option(metavar="N", help="Beams of the search; 1 is greedy.")] = 8,
    brackets: Annotated[bool, typer.Option("--brackets", help="Write each tree on one line, in brackets.")] = False,
    svg: Annotated[
        Path | None,
        typer.Option("--svg", metavar="FILE", help="Draw the tree of one text into this SVG file.", show_default=False),
    ] = None,
    running: AnswerOptions,
    engine: EngineName = "auto",
    allow_pickle: AllowPickle = False,
) -> None:
    """Parse sentences: draw their constituency trees.

    Trees of a file or of standard input are written in brackets, one per line, as `regard train parsing` reads them.

    Examples:
      regard parse "I saw the man with the telescope."
      regard parse "the cat sat on the mat" -m runs/parsing-1 --svg tree.svg
      regard parse -m runs/parsing-1 -f sentences.txt -o trees.mrg
      regard parse -f sentences.txt --grammar train.mrg -o trees.mrg
    """
    lines = given.lines()
    _check_picture(svg, given.texts)
    check_apart(given.output, svg, "picture")
    if given.model is not None and grammar is not None:
        raise InputError(f"-m {given.model} and --grammar {grammar}: either parses; leave one of them out")
    drawn = bool(given.texts) and not (brackets or running.as_json)
    width = shutil.get_terminal_size().columns if named(given.output) is None and sys.stdout.isatty() else None
    with Sink(given.output) as sink:

        def show(number: int, line: str, tree: "Tree | None") -> str:
            from regard.draw.tree import tree_lines

            if svg is not None and tree is not None:
                _write_picture(tree, svg)
            if running.as_json:
                return as_object(line, tree=None if tree is None else str(tree))
            if tree is None:
                return ""
            return "\n".join(tree_lines(tree, width)) if drawn else str(tree)

        if grammar is not None:
            answer_all(lines, _parse_with_grammar(lines, grammar), sink, show)
            return
        from regard.use.parse import check_sentence

        loaded = running.open(given, "parse", engine, allow_pickle)
        sentences = lines.checked(check_sentence, loaded)
        answers = loaded.parse_lines(sentences, beam, lines.feedback(), running.batch_tokens)
        answer_all(lines, answers, sink, show)


def _check_picture(svg: Path | None, texts: list[str] | None) -> None:
    if svg is None:
        return
    if svg.suffix.lower() != ".svg":
        raise InputError(f"{svg}: --svg writes an SVG file; name one that ends in .svg")
    if len(texts or ()) != 1 or not "".join(texts or ()).strip():
        raise InputError(f"--svg {svg}: is for the tree of one text; give one text that is not blank")


def _write_picture(tree: "Tree", path: Path) -> None:
    from regard.draw.file import write_figure
    from regard.draw.tree import draw_tree

    write_figure(draw_tree(tree), path)


def _parse_with_grammar(lines: Lines, path: Path) -> Iterator[tuple[str, "Tree | None"]]:
    """Yield each line with its tree by the grammar of a file; None for a blank line."""
    from regard.data.read import Skipped
    from regard.tasks.grammar import learn_grammar
    from regard.tasks.parsing import TreeFiles
    from regard.use.parse import check_sentence, sentence_rows

    skipped, files = Skipped(), TreeFiles((str(path),))
    files.check_any("learn a grammar from")
    learned = learn_grammar(files.trees(skipped))
    for line in skipped.report():
        complain(line)
    for chunk in lines.checked(check_sentence).lists:
        for line, rows in zip(chunk, sentence_rows(chunk), strict=True):
            (tree,) = learned.parse(rows) if rows else (None,)
            lines.feedback().done(1)
            yield line, tree
