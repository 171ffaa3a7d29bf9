"""The project is written in plain English: these forms do not come back.

`python tests/test_english.py [PATH ...]` lists what it finds in the given files and folders.
"""

import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
WHERE = ("regard", "tests", "docs", "web/src", "examples", "bench", ".ci", "Makefile", "pyproject.toml")
WHERE += ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
KINDS = {".py", ".md", ".toml", ".ts", ".tsx", ".css", ".html", ""}
BUILT = ("regard/viewer/page/", "regard/viewer/sample/")  # made by programs

# Each form and what to write instead; the group `fine` marks good uses.
FORMS = {
    r'(?:"""|/\*\* ?)(?:Gives?|Let|Lets|Tells?) ': "an imperative verb of the field: Return, Read, Set, Print",
    r"(?P<fine>\b[Tt]here )?\b(?:is|are|was|were|be) no (?!longer|more|less|fewer|other|\w+er than|\d)": "is not a",
    r"\bso (?:many|much)\b": "that many, this number of",
    r"\banew\b": "again",
    r"\b(?:stands?|stood)\b(?! for\b| out\b| in for\b|-in\b)": "is, lies",
    r"\bgo(?:es|ing|ne)? on\b(?! top\b| to\b)": "continue",
    r"\b(?:nobody|somebody|anybody|whoever)\b": "the user, the caller, nothing, any",
    r"\bthe like\b": "name the things",
    r"\bthere (?:is|are) not\b(?! enough| yet)": "does not exist, unknown",
    r"\bwho reads? (?:this|it|the output)\b": "the reader",
    r"\b(?:kin|brothers?|siblings)\b": "the field's own words",
    r"\bin company\b|\bcompany changes\b": "batch-mates, the other rows of a batch",
    r"\bits own affair\b": "say what happens",
    r"\bas if by itself\b": "automatically",
}
GAP = r"(?:\s|#|\*)+"  # a space may be the end of a line, also in a comment
PATTERNS = {re.compile(form.replace(" ", GAP)): instead for form, instead in FORMS.items()}


def files(paths: Iterable[str]) -> Iterator[Path]:
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z", "--", *paths]
    found = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    for name in sorted(filter(None, found)):
        path = ROOT / name
        if path.suffix in KINDS and not name.startswith(BUILT) and path.is_file() and path != Path(__file__).resolve():
            yield path


def findings(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield line, words found, and what to write instead."""
    for pattern, instead in PATTERNS.items():
        for match in pattern.finditer(text):
            if match.groupdict().get("fine"):
                continue
            yield text.count("\n", 0, match.start()) + 1, " ".join(match[0].split()), instead


def report(paths: Iterable[str]) -> list[str]:
    found = []
    for path in files(paths):
        for line, words, instead in sorted(findings(path.read_text(encoding="utf-8"))):
            found.append(f"{path.relative_to(ROOT)}:{line}: '{words}'; write: {instead}")
    return found


def test_the_project_is_written_in_plain_english():
    found = report(WHERE)
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "text",
    [
        '"""Give the rows."""',
        "this is no number",
        "each\n    # has so\n    # many tokens",
        "is made\nanew",
        "the table stands below",
        "and goes on with it",
        "nobody knows",
        "a precision that there is not",
        "JPEG and the like",
    ],
)
def test_a_form_is_found(text: str):
    assert len(list(findings(text))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "there is no such file",
        "There are no rows",
        "it is no longer needed",
        "a name that is no wider than its picture",
        "a table starts from its sibling",
        "D stands for width",
        "what it understands",
        "the standard error",
        "pick-up goes on to step 3",
        "there is nothing",
        '"""Return the rows that are given."""',
        "a skin",
    ],
)
def test_good_english_passes(text: str):
    assert list(findings(text)) == []


if __name__ == "__main__":
    print("\n".join(report(sys.argv[1:] or WHERE)))
