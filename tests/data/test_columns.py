"""Columns and headers are found where there is one way to read a table; anything else is an error or is said."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.column_names import METADATA_NAMES, is_language, is_metadata
from regard.data.columns import (
    DOCUMENTS,
    LABELLED,
    PAIRED,
    PROTEIN,
    ColumnOptions,
    HeaderReading,
    TableHead,
    choose_columns,
    find_header,
    shorten,
)
from regard.errors import InputError

WORDS = ["a red dog", "the cat sleeps", "one, two", "no numbers here"]
NUMBERS = ["17", "0.5", "-3e4", "1,000"]
IDENTIFIERS = [["https://a.b/c"], ["2024-01-31"], ["true", "false"], ["1f0e3dad99908345f7439f8ffabdffc4"], NUMBERS]

roles = st.sampled_from([DOCUMENTS, LABELLED, PAIRED])
plain = st.text("klmnopqu", min_size=4, max_size=8).filter(lambda name: not is_metadata(name) and not is_language(name))
about = sorted(METADATA_NAMES - {"", "score"})  # a score may be a label
metadata = st.sampled_from([*about, *(f"x_{name}" for name in about)]).filter(is_metadata)


def head(names: list[str], values: list[str] | None = None, **more) -> TableHead:
    return TableHead(dict.fromkeys(names, WORDS if values is None else values), **more)


def anything(columns: tuple) -> ColumnOptions:
    return ColumnOptions(columns, (None,) * len(columns))


def choose(found: TableHead, options: ColumnOptions) -> tuple[str, ...] | str:
    """Return the columns, or the message."""
    try:
        return choose_columns(found, options, "a.tsv")
    except InputError as error:
        return str(error)


# --- columns ---


@given(roles, st.lists(plain, unique=True, max_size=4), st.lists(metadata, unique=True, max_size=4), st.randoms())
def test_what_is_about_a_row_is_never_chosen_and_changes_nothing(wanted, names, others, chance):
    mixed = list(names)
    for other in others:
        mixed.insert(chance.randrange(len(mixed) + 1), other)
    expected, found = (choose(head(columns), anything(wanted)) for columns in (names, mixed))
    assert found == expected or (isinstance(found, str) and isinstance(expected, str))


@given(roles, st.lists(plain, unique=True, min_size=3, max_size=6))
def test_more_candidates_than_needed_are_listed_with_the_options(wanted, names):
    message = choose(head(names), anything(wanted))
    assert isinstance(message, str)
    assert "\n" not in message
    for name in names:
        assert name in message
    for role in wanted:
        assert f"task.{role.key}=..." in message


@given(roles, st.lists(plain, unique=True, min_size=2, max_size=6), st.randoms(), st.booleans())
def test_a_chosen_column_is_read_whatever_it_holds(wanted, names, chance, by_number):
    chosen = chance.sample(names, len(wanted))
    given_as = [str(names.index(name) + 1) if by_number else name.upper() for name in chosen]
    assert choose(head(names, NUMBERS), ColumnOptions(wanted, tuple(given_as))) == tuple(chosen)


@given(roles, st.lists(plain | metadata, unique=True, max_size=6), st.lists(st.sampled_from(WORDS + NUMBERS)))
def test_columns_are_different_ones_of_the_table_or_there_is_one_line(wanted, names, values):
    found = choose(head(names, values), anything(wanted))
    if isinstance(found, tuple):
        assert len(set(found)) == len(wanted)
        assert set(found) <= set(names)
    else:
        assert found.startswith("a.tsv: ")
        assert "\n" not in found


@pytest.mark.parametrize("values", IDENTIFIERS)
def test_values_that_are_identifiers_are_not_text(values):
    columns = {"1": values, "2": WORDS, "3": values, "4": WORDS}
    table = TableHead(columns, HeaderReading(present=False))
    assert choose(table, anything(PAIRED)) == ("2", "4")
    table = TableHead({"1": values, "2": WORDS}, HeaderReading(present=False))
    assert choose(table, anything(DOCUMENTS)) == ("2",)
    assert choose(table, anything(LABELLED)) == ("2", "1")
    message = "a.tsv: only 2 ('a red dog') of its columns could be the source and the target; choose with"
    assert choose(table, anything(PAIRED)).startswith(message)


@pytest.mark.parametrize(
    ("wanted", "names", "found"),
    [
        (PAIRED, ["id", "de", "en"], ("de", "en")),
        (PAIRED, ["en", "notes", "de-AT"], ("en", "de-AT")),
        (PAIRED, ["target", "source", "notes"], ("source", "target")),
        (PAIRED, ["source_lang", "target_lang", "source", "target"], ("source", "target")),
        (PAIRED, ["english", "source", "notes"], ("source", "english")),
        (LABELLED, ["label", "title", "text"], ("text", "label")),
        (LABELLED, ["utt", "intent", "id"], ("utt", "intent")),
        (LABELLED, ["text", "label", "label_text"], ("text", "label")),
        (LABELLED, ["stars", "review_body", "review_id"], ("review_body", "stars")),
        (DOCUMENTS, ["url", "content"], ("content",)),
        (DOCUMENTS, ["title", "Text"], ("Text",)),
    ],
)
def test_names_that_decide(wanted, names, found):
    assert choose(head(names), anything(wanted)) == found


@pytest.mark.parametrize(
    ("wanted", "names", "candidates"),
    [
        (PAIRED, ["id", "de", "en", "fr"], "de, en, fr"),
        (PAIRED, ["source", "src", "en"], "source, src"),
        (LABELLED, ["sentence1", "sentence2", "label"], "sentence1, sentence2"),
        (LABELLED, ["title", "description", "class"], "title, description"),
        (LABELLED, ["text", "stars", "sentiment"], "stars, sentiment"),
        (DOCUMENTS, ["title", "body"], "title, body"),
    ],
)
def test_names_that_do_not_decide(wanted, names, candidates):
    assert f"columns could be the {wanted[0].name}" in choose(head(names), anything(wanted)).replace("label", "text")
    assert f": {candidates}; choose with task." in choose(head(names), anything(wanted))


def test_an_object_of_translations_gives_the_two_languages():
    assert choose(head(["de", "xx", "id"], languages=("xx", "id")), anything(PAIRED)) == ("xx", "id")
    assert ": a, b, c; choose" in choose(head(["a", "b", "c"], languages=("a", "b", "c")), anything(PAIRED))


def test_of_two_columns_without_names_the_label_repeats():
    values = {"1": ["up", "down"] * 4, "2": [f"{text} {number}" for text in WORDS for number in range(2)]}
    numbered = HeaderReading(present=False)
    assert choose(TableHead(values, numbered), anything(LABELLED)) == ("2", "1")
    swapped = {"1": values["2"], "2": values["1"]}
    assert choose(TableHead(swapped, numbered), anything(LABELLED)) == ("1", "2")
    assert choose(TableHead(values, numbered), anything(PAIRED)) == ("1", "2")


def test_a_few_rows_in_which_neither_column_repeats_can_be_read_in_two_ways():
    texts, numbered = ["a great film", "a bad film", "wonderful acting"], HeaderReading(present=False)
    assert choose(TableHead({"1": ["+", "-", "-"], "2": texts}, numbered), anything(LABELLED)) == ("2", "1")
    rule = r": 2 columns could be the text and the label: 1 \('\+'\), 2 \('a great film'\); choose with task.text=... "
    with pytest.raises(InputError, match=rule):
        choose_columns(TableHead({"1": ["+", "-", "0"], "2": texts}, numbered), anything(LABELLED), "x")
    assert choose(TableHead({"1": texts, "2": texts[::-1]}, numbered), anything(PAIRED)) == ("1", "2")


def test_one_column_for_two_roles():
    assert choose(head(["de", "en"]), ColumnOptions(PAIRED, ("de", "1"))) == (
        "a.tsv: task.source_column=de and task.target_column=1 are the same column; choose two"
    )


def test_a_name_where_columns_have_numbers():
    table = head(["1", "2"], header=HeaderReading(present=False))
    assert choose(table, ColumnOptions(PAIRED, ("de", None))) == (
        "a.tsv: has no header, and so no column 'de' for the source (task.source_column); choose by number "
        "(1 ('a red dog'), 2 ('a red dog')), or give the table a header"
    )


# --- headers ---


@pytest.mark.parametrize(
    ("rows", "present", "sure"),
    [
        (["de,en", "Hallo Welt,Hello world"], True, True),
        (["id,de,en", "1,ja,yes"], True, True),
        (["text,label", "good,1"], True, True),
        (["German,English"], True, True),
        (["Unnamed: 0,text", "0,good"], True, True),
        (["title,good", "so dull,bad"], True, False),
        (["title,good", "so dull,bad", "so fine,good"], False, False),
        (["title,1", "so dull,0"], False, False),
        (["frage,punkte", "wie bitte,3", "ach so,5"], True, False),
        (["ja,yes", "nein,no"], False, False),
        (["a good film,1", "a bad film,0"], False, True),
        (["How are you?,Wie geht es?", "Fine.,Gut."], False, True),
        (["17,18", "de,en"], False, True),
        ([","], False, True),
    ],
)
def test_the_first_row(rows, present, sure):
    found = find_header([row.split(",") for row in rows])
    assert (found.present, found.sure) == (present, sure)
    assert bool(found.doubt) == (not sure)


@given(st.lists(st.lists(st.text(max_size=5), min_size=1, max_size=3), min_size=1, max_size=4), st.booleans())
def test_the_user_decides_what_the_first_row_is(rows, header):
    assert find_header(rows, (), header) == HeaderReading(header)
    names = [cell.strip() for cell in rows[0] if cell.strip() and not cell.strip().isdecimal()]
    assert all(find_header(rows, (name,)).present for name in names)


@given(st.text(), st.integers(4, 30))
def test_examples_are_one_line_of_bounded_width(text, width):
    found = shorten(text, width)
    assert len(found) <= width
    assert len(found.splitlines()) <= 1


def test_too_few_columns_are_counted():
    head = TableHead({"sequence": ["AC", "DE"], "letters": ["HH", "EE"]})
    with pytest.raises(InputError, match=r"has 2 columns \(sequence, letters\), but three are needed"):
        choose_columns(head, ColumnOptions(PROTEIN, (None, None, "letters")), "a.csv")
