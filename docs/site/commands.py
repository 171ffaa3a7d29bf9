"""The command reference docs/commands.md, from the definitions of the commands: `make reference` writes it."""

import re
from collections.abc import Iterator
from typing import Any

import typer

from regard.cli.main import app

INTRODUCTION = """# Commands

Generated from the definitions of the commands; `regard VERB -h` prints one of them. A word in capitals stands for a
value of yours, brackets enclose what may be left out, and dots follow what may be repeated. `KEY=VALUE` sets a
[key of a recipe](recipes.md).
"""
EVERYWHERE = "--help"  # an option of every command, which is described once
EXAMPLES = "\b\nExamples:"  # how `regard.cli.help` marks them


def page() -> str:
    """Return the whole reference as Markdown."""
    root = typer.main.get_command(app)
    context = typer.Context(root, info_name="regard", **root.context_settings)
    verbs = ", ".join(f"[{name}](#regard-{name})" for name in root.list_commands(context))
    parts = [f"{INTRODUCTION}\nVerbs: {verbs}.", "## Options of all commands", _options(root, context, skipped="")]
    for name in root.list_commands(context):
        parts += _command(root.get_command(context, name), context, name, "##")
    return "\n\n".join(parts) + "\n"


def _command(command: Any, parent: Any, name: str, level: str) -> Iterator[str]:
    """Yield the paragraphs about a command, and those of its own commands."""
    context = typer.Context(command, info_name=name, parent=parent)
    usage = " ".join(command.collect_usage_pieces(context))
    yield f"{level} {context.command_path}"
    yield f"`{context.command_path} {usage}`"
    paragraphs = (command.help or "").split("\n\n")
    for paragraph in paragraphs:
        if not paragraph.startswith(EXAMPLES):
            yield re.sub(r"^(regard [^:]+):", r"`\1`:", paragraph)  # a form of the command
    if table := _options(command, context, EVERYWHERE):
        yield table
    for paragraph in paragraphs:
        if paragraph.startswith(EXAMPLES):
            yield "\n".join(["```", *(line.strip() for line in paragraph.splitlines()[2:]), "```"])
    for each in getattr(command, "commands", {}):
        inner = command.get_command(context, each)
        if not inner.hidden:
            yield from _command(inner, context, each, level + "#")


def _options(command: Any, context: Any, skipped: str) -> str:
    """Return a table of the arguments and options of a command."""
    rows = []
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None and skipped not in parameter.opts:
            name, text = (" ".join(part.split()).replace("|", "\\|") for part in record)
            rows.append(f"| `{name}` | {text} |")
    return "\n".join(["| argument or option | meaning |", "|---|---|", *rows]) if rows else ""


if __name__ == "__main__":
    print(page(), end="")
