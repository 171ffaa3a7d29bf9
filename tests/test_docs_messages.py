"""The messages that the documentation quotes are messages of the package.

A quote is code in bold (the questions of the FAQ) or code in the first cell of a table "What can go wrong" of a guide;
`...` stands for a value.
"""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = [*(ROOT / "regard").rglob("*.py"), ROOT / "examples" / "service.py"]
GUIDES = sorted((ROOT / "docs" / "guides").glob("*.md"))
VALUE = "\0"


def text_of(node: ast.AST) -> str:
    """Return a literal text, with VALUE in place of what is computed."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(map(text_of, node.values))
    return VALUE


@cache
def messages() -> str:
    """Return all texts of the package, one in each line."""
    nodes = [node for path in SOURCES for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
    texts = {text_of(node) for node in nodes if isinstance(node, ast.JoinedStr | ast.Constant)}
    return "\n".join(text.replace("\n", " ") for text in sorted(texts))


def is_message(quote: str) -> bool:
    """Return whether each part of a quote, between its values, is a part of a message; some are put together."""
    parts = [part.strip(" :;,'") for part in quote.split("...")]
    return any(len(part) > 9 for part in parts) and all(part in messages() for part in parts)


def quotes_of_the_faq() -> list[str]:
    questions = re.findall(r"^\*\*(.+?)\*\*", (ROOT / "docs" / "faq.md").read_text(encoding="utf-8"), re.MULTILINE)
    return [quote for question in questions for quote in re.findall(r"`([^`]+)`", question)]


def quotes_of_a_guide(path: Path) -> list[str]:
    section = path.read_text(encoding="utf-8").partition("## What can go wrong")[2]
    return re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE)


def test_there_are_quotes() -> None:
    assert len(quotes_of_the_faq()) > 20
    assert sum(map(len, map(quotes_of_a_guide, GUIDES))) > 15
    assert not is_message("no message says ... this")


@pytest.mark.parametrize("quote", quotes_of_the_faq())
def test_the_faq_quotes_messages_of_the_package(quote: str) -> None:
    assert is_message(quote)


@pytest.mark.parametrize("path", GUIDES, ids=lambda path: path.stem)
def test_a_guide_quotes_messages_of_the_package(path: Path) -> None:
    assert [quote for quote in quotes_of_a_guide(path) if not is_message(quote)] == []
