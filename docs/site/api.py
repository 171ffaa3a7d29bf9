"""The API reference: signatures and docstrings of the public names, read from the source without importing it.

A public name is unique in the package (a test checks it), so a name alone says which definition is meant: `Attention`
in a docstring links to its entry on whichever page it is.
"""

import ast
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

WIDEST = 100  # characters; a longer signature has a line for each parameter
Function = ast.FunctionDef | ast.AsyncFunctionDef


class Page(NamedTuple):
    """A page: its title, and the packages (their exported names) and modules (all public names) on it."""

    title: str
    packages: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()


PAGES = {
    "api/index.md": Page("Python API", ("regard",)),
    "api/parts.md": Page("Parts", ("regard.parts",), ("regard.parts.state", "regard.parts.edit")),
    "api/models.md": Page(
        "Models",
        (),
        (
            "regard.models.model",
            "regard.models.introspection",
            "regard.models.recipe",
            "regard.models.stack",
            "regard.models.count",
            "regard.models.intervention",
            "regard.models.template",
        ),
    ),
    "api/data.md": Page(
        "Data and tasks",
        (),
        (
            "regard.tasks.task",
            "regard.tasks.defaults",
            "regard.tasks.loss",
            "regard.tasks.sample",
            "regard.data.tokenizer",
            "regard.data.batches",
            "regard.data.read",
        ),
    ),
    "api/use.md": Page(
        "Using and training",
        (),
        (
            "regard.use.load",
            "regard.use.loaded_model",
            "regard.use.translate",
            "regard.use.generate",
            "regard.use.evaluate",
            "regard.use.intervene",
            "regard.decode.constrain",
            "regard.decode.beam",
            "regard.decode.sample",
            "regard.training.run",
            "regard.training.callbacks",
        ),
    ),
    "api/extending.md": Page(
        "Configs and extensions",
        (),
        ("regard.config", "regard.limits", "regard.extend", "regard.errors", "regard.hub.family"),
    ),
    "api/draw.md": Page("Pictures", ("regard.draw",)),
    "api/lab.md": Page("Experiments", ("regard.lab",)),
    "api/formal.md": Page("Formal algorithms", (), ("regard.formal",)),
}


class Definition(NamedTuple):
    """A public class or function, and the module that defines it."""

    module: str
    node: ast.ClassDef | Function

    @property
    def name(self) -> str:
        """Its name."""
        return self.node.name


@dataclass
class Package:
    """The source of the package: the docstring of every module, and its public definitions by name."""

    root: Path
    about: dict[str, str] = field(default_factory=dict)
    trees: dict[str, ast.Module] = field(default_factory=dict)
    definitions: dict[str, Definition] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for path in sorted((self.root / "regard").rglob("*.py")):
            module = ".".join(path.relative_to(self.root).with_suffix("").parts).removesuffix(".__init__")
            tree = ast.parse(path.read_text(encoding="utf-8"))
            self.trees[module], self.about[module] = tree, ast.get_docstring(tree) or ""
            for node in tree.body:
                if isinstance(node, ast.ClassDef | Function) and not node.name.startswith("_"):
                    self.definitions[node.name] = Definition(module, node)

    def exported(self, package: str) -> list[str]:
        """Return the names in the imports of a package's `__init__.py` that are classes or functions."""
        found = [
            alias.name
            for node in ast.walk(self.trees[package])
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("regard")
            for alias in node.names
        ]
        return [name for name in dict.fromkeys(found) if name in self.definitions]

    def defined(self, module: str) -> list[str]:
        """Return the public names of a module."""
        return [name for name, definition in self.definitions.items() if definition.module == module]

    def returned(self, names: list[str]) -> list[str]:
        """Return the classes that functions return and that are not among the names."""
        found = []
        for name in names:
            node = self.definitions[name].node
            if isinstance(node, Function) and node.returns is not None:
                found += [each.id for each in ast.walk(node.returns) if isinstance(each, ast.Name)]
        return [name for name in dict.fromkeys(found) if name in self.definitions and name not in names]


def build_pages(root: Path) -> dict[str, str]:
    """Return the pages of the reference as Markdown, by their paths in the site.

    Names that a package exports are on the page of the package; a module on another page has the rest of its names.
    """
    package = Package(root)
    homes: dict[str, str] = {}  # name -> page
    sections: dict[str, dict[str, list[str]]] = {page: {} for page in PAGES}
    for page, (_, packages, _) in PAGES.items():
        for each in packages:
            for name in package.exported(each):
                if homes.setdefault(name, page) == page:
                    group = each if each == "regard" else package.definitions[name].module
                    sections[page].setdefault(group, []).append(name)
    for page, (_, packages, modules) in PAGES.items():
        for module in modules:
            names = [name for name in package.defined(module) if homes.setdefault(name, page) == page]
            if names:
                sections[page].setdefault(module, []).extend(names)
        for each in packages:
            names = [name for name in package.returned(sections[page].get(each, [])) if name not in homes]
            homes |= dict.fromkeys(names, page)
            for name in names:
                sections[page].setdefault(package.definitions[name].module, []).append(name)
    return {page: _page(package, PAGES[page], sections[page], page, homes) for page in PAGES}


def _page(package: Package, page: Page, sections: dict[str, list[str]], here: str, homes: dict[str, str]) -> str:
    found = [f"# {page.title}"]
    for module, names in sections.items():
        found.append(f"## {module}")
        found.append(_text(package.about[module], here, homes))
        found += [_entry(package.definitions[name], here, homes) for name in names]
    return "\n\n".join(found) + "\n"


def _text(docstring: str, here: str, homes: dict[str, str]) -> str:
    """Return a docstring as Markdown, with links to the names in it."""

    def link(match: re.Match[str]) -> str:
        name = match[1].removesuffix("()")
        home = homes.get(name, "") if re.search("[A-Z_]", name) else ""  # other words may be parameters
        return f"[{match[0]}]({Path(home).name if home != here else ''}#{name})" if home else match[0]

    paragraphs = docstring.split("\n\n")
    return "\n\n".join(
        text if text.startswith("    ") else re.sub(r"`([A-Za-z_]\w*(?:\(\))?)`", link, _escape(text))
        for text in paragraphs
    )


def _escape(text: str) -> str:
    """Escape what Markdown would take for markup: tags, and stars and brackets of formulas; code stays as it is."""
    parts = re.split(r"(`[^`]+`)", text)
    parts[::2] = [re.sub(r"([<*\[\]$\\])", r"\\\1", part).replace("\\<", "&lt;") for part in parts[::2]]
    return "".join(parts)


def _entry(definition: Definition, here: str, homes: dict[str, str]) -> str:
    node = definition.node
    about = _text(ast.get_docstring(node) or "", here, homes)
    if isinstance(node, Function):
        return "\n\n".join([f"### {node.name} {{ #{node.name} }}", _fence(_signature("", node)), about])
    found = [f"### {node.name} {{ #{node.name} }}", _fence(_class(node)), about]
    if fields := _fields(node):
        rows = [[f"`{name}`", f"`{kind}`", default, _text(text, here, homes)] for name, kind, default, text in fields]
        columns = 4 if any(row[3] for row in rows) else 3
        table = [["field", "type", "default", "meaning"], ["---"] * 4, *rows]
        found.append("\n".join(f"| {' | '.join(row[:columns])} |" for row in table))
    for method in node.body:
        if isinstance(method, Function) and not method.name.startswith("_") and ast.get_docstring(method):
            found.append(_fence(_signature("", method)))
            found.append(_text(ast.get_docstring(method) or "", here, homes))
    return "\n\n".join(found)


def _code(node: ast.AST) -> str:
    """Return an expression in one line, with double quotes as everywhere in the package."""
    text = ast.unparse(node)
    return re.sub(r"'([^'\"]*)'", r'"\1"', text)


def _fence(code: str) -> str:
    return f"```python\n{code}\n```"


def _class(node: ast.ClassDef) -> str:
    bases = ", ".join(map(_code, node.bases))
    head = f"class {node.name}({bases})" if bases else f"class {node.name}"
    for method in node.body:
        if isinstance(method, Function) and method.name == "__init__":
            return f"{head}\n\n{_signature(node.name, method)}"
    return head


def _signature(name: str, node: Function) -> str:
    """Return a signature; the constructor of a class, whose name is given, as a call of the class."""
    decorators = "".join(
        f"@{_code(each)}\n" for each in node.decorator_list if _code(each) in ("property", "classmethod")
    )
    parameters = _parameters(node.args)
    if parameters[:1] in (["self"], ["cls"]):
        parameters = parameters[1:]
    start = name or f"def {node.name}"
    end = "" if name or node.returns is None else f" -> {_code(node.returns)}"
    line = f"{start}({', '.join(parameters)}){end}"
    if len(line) > WIDEST:
        line = f"{start}(\n" + "".join(f"    {each},\n" for each in parameters) + f"){end}"
    return decorators + line


def _parameters(arguments: ast.arguments) -> list[str]:
    """Return the parameters as they are written, one string for each."""

    def write(argument: ast.arg, default: ast.expr | None) -> str:
        text = _code(argument)
        if default is None:
            return text
        return f"{text}{' = ' if argument.annotation else '='}{_code(default)}"

    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(positional) - len(arguments.defaults)) + list(arguments.defaults)
    found = [write(argument, default) for argument, default in zip(positional, defaults, strict=True)]
    if arguments.posonlyargs:
        found.insert(len(arguments.posonlyargs), "/")
    if arguments.vararg:
        found.append(f"*{_code(arguments.vararg)}")
    elif arguments.kwonlyargs:
        found.append("*")
    found += [write(*pair) for pair in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    if arguments.kwarg:
        found.append(f"**{_code(arguments.kwarg)}")
    return found


def _fields(node: ast.ClassDef) -> list[tuple[str, str, str, str]]:
    """Return the public fields of a dataclass or named tuple: name, type, default, and the string below it."""
    is_data = any("dataclass" in _code(each) for each in node.decorator_list)
    if not is_data and not any(_code(base) == "NamedTuple" for base in node.bases):
        return []
    found = []
    for number, each in enumerate(node.body):
        if not isinstance(each, ast.AnnAssign) or _code(each.target).startswith("_"):
            continue
        after = node.body[number + 1] if number + 1 < len(node.body) else None
        about = ""
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            about = " ".join(str(after.value.value).split()).replace("|", "\\|")  # the end of a cell
        default = "required" if each.value is None else f"`{_code(each.value)}`"
        found.append((_code(each.target), _code(each.annotation), default, about))
    return found
