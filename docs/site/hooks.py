"""What MkDocs does not do by itself, for mkdocs.yml.

- The pages outside docs/ (the README, CONTRIBUTING, ...), the API reference and the source files that pages link to
  become pages of the site. Links between all of them are rewritten, so that one text serves repository and site.
- `FOLDER/*` in the nav stands for the pages of a folder, in the order in which its index links to them.
- Formulas become MathML, which browsers draw without a script.
- `<picture>` follows the site's switch between light and dark; `<details>` may contain Markdown.
"""

import logging
import re
import sys
from html import unescape
from pathlib import Path
from posixpath import relpath
from typing import Any

from latex2mathml.converter import convert
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))  # MkDocs loads this file by its path

from docs.site import api  # noqa: E402

OUTSIDE = {  # files of the repository that are pages of the site
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "CODE_OF_CONDUCT.md": "conduct.md",
    "SECURITY.md": "security.md",
}
LINK = re.compile(r"(\]\()([^)\s#]+)(#[^)\s]*)?(?=\))")
ATTRIBUTE = re.compile(r'((?:src|srcset|href)=")([^"#]+)(#[^"]*)?(?=")')
CODE = re.compile(r"(^ *```.*?^ *```$|`[^`\n]+`)", re.MULTILINE | re.DOTALL)
EXPORTED = re.compile(r"--export (pages/\S+\.html)")  # pages that a chapter of the tour writes and links to
COMMANDS = re.compile(r"```(?=\n(?:regard|make|pip|git) )")  # a block of commands without a language
FUNCTION = re.compile(r"(<mi>(?:log|sin|cos)</mi>)(?=<mi>)")  # the name of a function before its argument
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)
PICTURE = re.compile(
    r'<picture>\s*<source [^>]*dark[^>]*srcset="([^"]+)"[^>]*>\s*(?:<source[^>]*>\s*)?'
    r'<img ([^>]*?)src="([^"]+)"([^>]*)>\s*</picture>'
)
BOOST = {"tour/": 3, "guides/": 3, "architecture": 0.5, "changelog": 0.5}  # of pages in the search, by their paths
LANGUAGES = {".py": "python", ".toml": "toml", ".ts": "ts", ".json": "json", ".yml": "yaml"}

log = logging.getLogger("mkdocs.hooks")
repository: dict[str, str] = {}  # the path of a page in the site -> the path of its file in the repository


def on_config(config: Any) -> Any:
    """Replace `FOLDER/*` in the nav by the pages of the folder."""
    pages = [path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")]
    config.nav = _expand(config.nav, [*sorted(pages, key=_natural), *api.PAGES])
    return config


def _expand(nav: list[Any], pages: list[str]) -> list[Any]:
    found: list[Any] = []
    for entry in nav:
        if isinstance(entry, dict):
            found.append({title: _expand(e, pages) if isinstance(e, list) else e for title, e in entry.items()})
        elif entry.endswith("/*"):
            found += _order([page for page in pages if page.startswith(entry[:-1])], ROOT / "docs" / entry[:-1])
        else:
            found.append(entry)
    return found


def _order(pages: list[str], folder: Path) -> list[str]:
    """Return the index first, then the pages in the order in which it links to them, then the others."""
    index = folder / "index.md"
    links = LINK.findall(index.read_text(encoding="utf-8")) if index.is_file() else []
    linked = list(dict.fromkeys(target for _, target, _ in links))
    names = ["index.md", *linked]
    return sorted(pages, key=lambda page: names.index(name) if (name := Path(page).name) in names else len(names))


def _natural(page: str) -> list[Any]:
    """Return the key of a page: the index first, then by number and name."""
    words = re.split(r"(\d+)", page.replace("index.md", ""))
    return [(int(word), "") if word.isdigit() else (-1, word) for word in words]


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are not in docs/, and the source files that any page links to."""
    repository.clear()
    texts = {f"docs/{file.src_uri}": (ROOT / "docs" / file.src_uri) for file in files.documentation_pages()}
    texts |= {name: ROOT / name for name in OUTSIDE}
    sources = set()
    for name, path in texts.items():
        page = OUTSIDE.get(name, name.removeprefix("docs/"))
        repository[page] = name
        text = path.read_text(encoding="utf-8")
        if name in OUTSIDE:
            start = "---\nhide: [navigation]\n---\n\n" if page == "index.md" else ""
            files.append(File.generated(config, page, content=start + text))
        for written in set(EXPORTED.findall(text)):
            if not (path.parent / written).exists():
                exported = (Path(page).parent / written).as_posix()
                files.append(
                    File.generated(config, exported, content="This page is written by <code>make docs</code>.")
                )
        for target in _targets(name, text):
            if not target.startswith("docs/") and target not in OUTSIDE and (ROOT / target).is_file():
                sources.add(target)
    for source in sorted(sources):
        files.append(File.generated(config, f"source/{source}.md", content=_source_page(ROOT / source, source)))
    for page, text in api.build_pages(ROOT).items():
        files.append(File.generated(config, page, content=text))
    return files


def _targets(name: str, text: str) -> list[str]:
    """Return the files of the repository that a page links to."""
    found = [target for _, target, _ in LINK.findall(text) + ATTRIBUTE.findall(text) if ":" not in target]
    return [_resolve(name, target) for target in found]


def _resolve(name: str, target: str) -> str:
    return relpath((Path(name).parent / target).as_posix())


def _source_page(path: Path, name: str) -> str:
    code = path.read_text(encoding="utf-8").rstrip()
    fence = "`" * (3 + max(map(len, re.findall("`{3,}", code)), default=0))
    return (
        f"---\nsearch: {{exclude: true}}\nhide: [toc]\n---\n\n# {name}\n\n"
        f'{fence} {{.{LANGUAGES.get(path.suffix, "text")} linenums="1"}}\n{code}\n{fence}\n'
    )


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Point links to the pages of the site, prepare HTML, and say what the search finds first."""
    here = page.file.src_uri
    for start, boost in BOOST.items():
        if here.startswith(start):
            page.meta["search"] = {"boost": boost}
    if here not in repository:
        return markdown
    parts = CODE.split(markdown)
    parts[1::2] = [
        COMMANDS.sub("```bash", part) if part.startswith("```") else part.replace("\\|", "|")  # `|` of a table
        for part in parts[1::2]
    ]
    for number in range(0, len(parts), 2):  # the parts between are code
        for pattern in (LINK, ATTRIBUTE):
            parts[number] = pattern.sub(lambda found: _rewrite(found, here), parts[number])
        parts[number] = PICTURE.sub(_both_looks, parts[number])
        parts[number] = parts[number].replace("<details>", '<details markdown="1">')
    return "".join(parts)


def _rewrite(found: re.Match[str], here: str) -> str:
    start, target, anchor = found[1], found[2], found[3] or ""
    if ":" in target:
        return found[0]
    name = _resolve(repository[here], target)
    if name in OUTSIDE:
        to = OUTSIDE[name]
    elif name.startswith("docs/"):
        to = name.removeprefix("docs/")
    else:
        if not (ROOT / name).is_file():
            log.warning(f"{repository[here]} links to {target}, which is not a file of the repository")
        to = f"source/{name}.md"
    return f"{start}{relpath(to, Path(here).parent.as_posix())}{anchor}"


def _both_looks(found: re.Match[str]) -> str:
    """Return two images instead of a picture: the site shows the one that suits its palette."""
    dark, before, light, after = found.groups()
    return "".join(f'<img {before}src="{src}#only-{look}"{after}>' for look, src in (("light", light), ("dark", dark)))


def on_page_content(html: str, **_: Any) -> str:
    """Replace formulas by MathML."""
    return FORMULA.sub(_formula, html)


def _formula(found: re.Match[str]) -> str:
    display = "block" if found[1] == "div" else "inline"
    return FUNCTION.sub(r'\1<mspace width="0.17em"/>', convert(unescape(found[2]), display=display))
