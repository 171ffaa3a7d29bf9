"""Decide how a table is read: whether its first row is a header, and which column holds what.

`find_header` and `choose_columns` are pure functions of the first rows of a table and of what the user chose. Where
several columns could be meant, `choose_columns` raises an error that lists them and names the setting that chooses one.
What was decided is a `FileReading`, which the plan of a run prints.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations

from regard.data.column_names import LABEL_NAMES, TEXT_NAMES, is_language, is_metadata
from regard.errors import InputError, choices


@dataclass(frozen=True)
class Role:
    """What a column is read as, such as the text or its label."""

    name: str  # in messages
    key: str  # the setting of the task that chooses the column
    own: tuple[str, ...]  # a column with one of these names has this role
    usual: tuple[str, ...] = ()  # and so has the only column with one of these, if no column has one of the former
    is_text: bool = True  # never numbers, dates, addresses or other identifiers
    repeats: bool = False  # few values occur again and again
    flag: str = ""  # an option of the command line instead of the setting

    @property
    def option(self) -> str:
        """The setting or option as it is written on the command line."""
        return self.flag or f"task.{self.key}"


TEXT = Role("text", "text", ("text",))
LABEL = Role("label", "label", ("label",), LABEL_NAMES, is_text=False, repeats=True)
DOCUMENT = Role("text", "column", ("text",))
SOURCE = Role("source", "source_column", ("source", "src"))
TARGET = Role("target", "target_column", ("target", "tgt", "trg"))
SEQUENCE = Role("sequence", "sequence", ("sequence", "seq"))
STATES = Role("structure", "structure", ("structure", "dssp8", "dssp", "ss8", "ss3", "ss"))
ALIGNMENT = Role("alignment", "alignment", ("alignment",))
DOCUMENTS, LABELLED, PAIRED = (DOCUMENT,), (TEXT, LABEL), (SOURCE, TARGET)
RESIDUES, PROTEIN = (SEQUENCE, STATES), (SEQUENCE, STATES, ALIGNMENT)

HEADER_NAMES = {
    *TEXT_NAMES,
    *LABEL_NAMES,
    *(name for role in (*LABELLED, *PAIRED, *PROTEIN) for name in role.own),
    *("id", "idx", "index", "uuid", "author", "date", "language", "lang", "url"),
}
_IDENTIFIER = re.compile(  # numbers, truth values, addresses, dates, hashes
    r"[-+]?(\d[\d,._]*|[.]\d+)(e[-+]?\d+)?%?|nan|true|false|(https?://|www\.)\S+"
    r"|\d{4}-\d\d-\d\d([t ][\d:.+z-]+)?|(?=\D*\d)[0-9a-f]{8}[0-9a-f-]*",
    re.IGNORECASE,
)
_WORD = re.compile(r"[^\W\d]\w*([-.]\w+)*")
LONGEST_NAME = 40  # characters
SEPARATORS = {";": "';'", "\t": "tab", ",": "comma"}  # of cells, and how a message names them
SHOWN = 24  # characters of a value in an error


# --- the first row ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class HeaderReading:
    """Whether the first row of a table names the columns; not `sure` if it can also be read the other way."""

    present: bool
    sure: bool = True

    @property
    def doubt(self) -> str:
        """How to read the first row the other way; empty if there is no doubt."""
        if self.sure:
            return ""
        other = "may be data: task.header=false" if self.present else "may name the columns: task.header=true"
        return f"its first row {other}"


def find_header(rows: Sequence[Sequence[str]], named: Iterable[str] = (), header: bool | None = None) -> HeaderReading:
    """Decide from the first rows of cells whether the first one is a header.

    `named` are columns that the user chose, `header` is what the user said. A first row with a number, or with a value
    that its column has again, is data. Otherwise usual names of columns or languages make a header, and so does a
    column that has only numbers below a word.
    """
    if header is not None:
        return HeaderReading(header)
    first, rest = [cell.strip().casefold() for cell in rows[0]], rows[1:]
    if any(not name.isdecimal() and name.casefold() in first for name in named):
        found = find_header(rows)  # the names may come from reading this very row as a header
        return HeaderReading(True, sure=found.present and found.sure)
    usual = any(cell in HEADER_NAMES for cell in first)
    below = [{row[place].strip().casefold() for row in rest if place < len(row)} - {""} for place in range(len(first))]
    again = any(cell and cell in values for cell, values in zip(first, below, strict=True))
    if again or any(_is_identifier(cell) or len(cell) > LONGEST_NAME for cell in first) or not any(first):
        return HeaderReading(False, sure=not usual)
    if all(_is_known(cell) for cell in first):
        return HeaderReading(True)
    numbers = any(
        cell and values and all(map(_is_identifier, values)) for cell, values in zip(first, below, strict=True)
    )
    words = all(_WORD.fullmatch(cell) for cell in first if cell)
    return HeaderReading(usual or (numbers and words), sure=not (usual or words))


def _is_identifier(value: str) -> bool:
    return _IDENTIFIER.fullmatch(value) is not None


def _is_known(name: str) -> bool:
    """Return whether a name is usual for a column."""
    return name in HEADER_NAMES or is_metadata(name) or is_language(name)


# --- the columns -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ColumnOptions:
    """What is read from tables, with the columns that were chosen by name or number, and whether there is a header."""

    roles: tuple[Role, ...]
    chosen: tuple[str | None, ...]  # for each role; None: to be found
    header: bool | None = None  # None: to be found
    others: tuple[str, ...] = ()  # columns that are not read, by which a header is recognised, too

    def named(self) -> tuple[str, ...]:
        """Return the columns that were chosen, and those by which a header is recognised."""
        return (*(name for name in self.chosen if name is not None), *self.others)

    def first(self, column: str | None, flag: str) -> ColumnOptions:
        """Return the options to read the first role alone; `column` was chosen for it by the option `flag`."""
        role = replace(self.roles[0], flag=flag)
        chosen = (self.chosen[0] if column is None else column,)
        return ColumnOptions((role,), chosen, self.header, self.named())


@dataclass(frozen=True)
class TableHead:
    """What is known of a table before it is read: its columns with some values of each."""

    columns: Mapping[str, Sequence[str]]
    header: HeaderReading | None = None  # None: the format names the columns itself
    languages: tuple[str, ...] = ()  # columns that come from an object `translation`

    @property
    def numbered(self) -> bool:
        """Whether the columns have numbers instead of names."""
        return self.header is not None and not self.header.present


def choose_columns(head: TableHead, options: ColumnOptions, place: str) -> tuple[str, ...]:
    """Return the column for each role; raise an error if more than one could be meant, or none.

    First the columns that the user chose, then those whose name says the role, then the only ones that are left.
    Columns that are about the row (numbers, scores, dates, addresses) are never text. `place` begins a message.
    """
    found: dict[Role, str] = {}
    for role, wanted in zip(options.roles, options.chosen, strict=True):
        if wanted is not None:
            found[role] = _find_column(head, wanted, role, place)
    for names in ("own", "usual"):
        for role in options.roles:
            same = [name for name in _rest(head, found) if name.strip().casefold() in getattr(role, names)]
            if role not in found and same:
                if len(same) > 1:
                    raise _ambiguous(head, (role,), same, place)
                found[role] = same[0]
    missing = tuple(role for role in options.roles if role not in found)
    if missing:
        found |= zip(missing, _assign(head, missing, found, place), strict=True)
    columns = tuple(found[role] for role in options.roles)
    if len(set(columns)) < len(columns):
        both = " and ".join(
            f"{role.option}={wanted}" for role, wanted in zip(options.roles, options.chosen, strict=True)
        )
        raise InputError(f"{place}: {both} are the same column; choose two")
    return columns


def _find_column(head: TableHead, wanted: str, role: Role, place: str) -> str:
    """Return a column by its name, exactly or ignoring case, or by its number."""
    names = list(head.columns)
    same = [name for name in names if name == wanted] or [
        name for name in names if name.casefold() == wanted.casefold()
    ]
    if len(same) == 1:
        return same[0]
    if wanted.isdecimal() and 1 <= int(wanted) <= len(names):
        return names[int(wanted) - 1]
    rule = f"no column {wanted!r} for the {role.name} ({role.option})"
    if head.numbered and not wanted.isdecimal():
        remedy = f"choose by number ({_listed(head, names)}), or give the table a header"
        raise InputError(f"{place}: has no header, and so {rule}; {remedy}")
    raise InputError(f"{place}: has {rule}; {choices(wanted, names)}, or a number up to {len(names)}")


def _rest(head: TableHead, found: Mapping[Role, str]) -> list[str]:
    return [name for name in head.columns if name not in found.values()]


def _assign(head: TableHead, roles: tuple[Role, ...], found: Mapping[Role, str], place: str) -> tuple[str, ...]:
    """Return columns for the roles that no name decides."""
    named = head.languages if set(roles) <= set(PAIRED) else ()  # there "id" is Indonesian
    rest = [name for name in _rest(head, found) if head.numbered or name in named or not is_metadata(name)]
    if set(roles) <= set(PAIRED):
        languages = [name for name in rest if name in head.languages] or [name for name in rest if is_language(name)]
        if len(languages) >= len(roles):
            if len(languages) > len(roles):
                raise _ambiguous(head, roles, languages, place)
            return tuple(languages)
    fitting = {role: [name for name in rest if not role.is_text or _may_be_text(head, name)] for role in roles}
    candidates = [name for name in rest if any(name in names for names in fitting.values())]
    if len(candidates) > len(roles):
        raise _ambiguous(head, roles, candidates, place)
    ways = [
        way
        for way in permutations(candidates, len(roles))
        if all(name in fitting[role] for role, name in zip(roles, way, strict=True))
    ]
    if not ways:
        raise _missing(head, roles, found, candidates, place)
    fits = [_fit(head, zip(roles, way, strict=True)) for way in ways]
    if len({role.repeats for role in roles}) > 1 and fits.count(max(fits)) > 1:  # otherwise the order decides
        raise _ambiguous(head, roles, candidates, place)
    return ways[fits.index(max(fits))]


def _may_be_text(head: TableHead, name: str) -> bool:
    """Return whether the values may be text; a usual name of a label says that they are not."""
    values = [value.strip() for value in head.columns[name] if value.strip()]
    is_label = name.strip().casefold() in (*LABEL.own, *LABEL.usual)
    return not is_label and not (values and all(map(_is_identifier, values)))


def _fit(head: TableHead, columns: Iterable[tuple[Role, str]]) -> tuple[int, int]:
    """Return how well columns suit roles: how many repeat their values as they should, and how few values those have.

    More is better.
    """
    fitting, different = 0, 0
    for role, name in columns:
        values = head.columns[name]
        fitting += (2 * len(set(values)) <= len(values)) == role.repeats
        different += len(set(values)) if role.repeats else 0
    return fitting, -different


def _ambiguous(head: TableHead, roles: tuple[Role, ...], candidates: Sequence[str], place: str) -> InputError:
    what = " and the ".join(role.name for role in roles)
    how = " ".join(f"{role.option}=..." for role in roles)
    listed = _listed(head, candidates)
    return InputError(f"{place}: {len(candidates)} columns could be the {what}: {listed}; choose with {how}")


def _missing(
    head: TableHead, roles: tuple[Role, ...], found: Mapping[Role, str], candidates: Sequence[str], place: str
) -> InputError:
    needed = len(roles) + len(found)
    if len(head.columns) < needed:
        count = "one column" if len(head.columns) == 1 else f"{len(head.columns)} columns"
        counted = {2: "two", 3: "three"}.get(needed, str(needed))
        rule = f"has {count} ({', '.join(head.columns)}), but {counted} are needed; check how columns are separated"
        values = [value for column in head.columns.values() for value in column]
        for mark, name in SEPARATORS.items():
            if 2 * sum(mark in value for value in values) > len(values):  # not all: the rest of some may be cut off
                return InputError(f"{place}: {rule}: most rows have a {name}, but a .csv needs commas, a .tsv tabs")
        return InputError(f"{place}: {rule}")
    what = " and the ".join(role.name for role in roles)
    how = " ".join(f"{role.option}=..." for role in roles)
    only = f"only {_listed(head, candidates)}" if candidates else "none"
    listed = _listed(head, list(head.columns))
    return InputError(f"{place}: {only} of its columns could be the {what}; choose with {how} from {listed}")


def _listed(head: TableHead, names: Sequence[str]) -> str:
    """List columns; those without names with an example."""
    if not head.numbered:
        return ", ".join(names)
    return ", ".join(f"{name} ({shorten(next(iter(head.columns[name]), ''), SHOWN)!r})" for name in names)


def shorten(text: str, width: int) -> str:
    """Return a text on one line, with an ellipsis if it has more than `width` characters."""
    text = " ".join(text[: 8 * width].split())
    return text if len(text) <= width else f"{text[: max(width - 3, 1)]}..."


# --- what was decided ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FileReading:
    """How a file, or a pair of files, is read: for each role the column (or file), and the first example."""

    files: tuple[str, ...]
    how: str  # "with header, source = column 2 (de), target = column 3 (en)"
    examples: Mapping[str, str] = field(default_factory=dict)  # by role
    doubt: str = ""  # how to read it in another way, where that is possible

    def heading(self) -> str:
        """Return the files and how they are read, in one line."""
        return f"{', '.join(self.files)}: {self.how}" + (f" ({self.doubt})" if self.doubt else "")


def describe_table(
    path: str, head: TableHead, options: ColumnOptions, columns: Sequence[str], example: Sequence[str]
) -> FileReading:
    """Return how a table is read."""
    numbers = list(head.columns)
    parts = []
    for role, name in zip(options.roles, columns, strict=True):
        number = numbers.index(name) + 1
        parts.append(f"{role.name} = column {number}" + ("" if head.numbered else f" ({name})"))
    if head.header is not None:
        parts.insert(0, "with header" if head.header.present else "no header")
    doubt = "" if head.header is None else head.header.doubt
    names = [role.name for role in options.roles]
    return FileReading((path,), ", ".join(parts), dict(zip(names, example, strict=True)), doubt)
