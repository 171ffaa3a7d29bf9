"""Every link of the documentation leads somewhere: the file exists, and so does the heading."""

import re
from functools import cache
from pathlib import Path

import pytest

from .pages import FENCE, PAGES, ROOT, name, read, without_code

LINK = re.compile(r"\]\(([^)\s]+)\)|(?:src|srcset|href)=\"([^\"]+)\"")
HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)
IDENTIFIER = re.compile(r"(?:id|name)=\"([^\"]+)\"")
MENTION = re.compile(r"(?<![\w/.])docs/[\w/.-]+\.(?:md|py|svg|png|html|ipynb)\b")


@cache
def anchors(page: Path) -> set[str]:
    """Return the anchors of a page, as GitHub makes them from its headings."""
    text = FENCE.sub("", read(page))
    found: list[str] = []
    for heading in HEADING.findall(text):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)|[*`]", lambda match: match[1] or "", heading)
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        repeated = sum(each == slug for each in found)
        found.append(slug)
        if repeated:
            found.append(f"{slug}-{repeated}")
    return {*found, *IDENTIFIER.findall(text)}


def problem(page: Path, link: str) -> str | None:
    """Return what is wrong with a link of a page."""
    if re.match(r"[a-z]+:", link):
        return None
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    if not target.exists() and f"--export {path}" in read(page):  # a command of the page writes it
        return None
    if not target.exists():
        return f"{link}: there is no such file"
    if not target.is_relative_to(ROOT):
        return f"{link}: is not in the repository"
    if anchor and target.suffix == ".md" and anchor not in anchors(target):
        return f"{link}: {name(target)} has no such heading"
    return None


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    text = without_code(read(page))
    links = [first or second for first, second in LINK.findall(text)]
    found = [*(problem(page, link) for link in links)]
    found += [f"{path}: there is no such file" for path in MENTION.findall(read(page)) if not (ROOT / path).exists()]
    assert list(filter(None, found)) == []


def test_every_page_of_the_documentation_can_be_reached_from_the_readme() -> None:
    reached, waiting = set(), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in reached:
            continue
        reached.add(page)
        links = [first or second for first, second in LINK.findall(without_code(read(page)))]
        targets = [(page.parent / link.partition("#")[0]).resolve() for link in links if ":" not in link]
        waiting += [target for target in targets if target.suffix == ".md" and target.exists()]
    assert [name(page) for page in PAGES if name(page).startswith("docs/") and page not in reached] == []
