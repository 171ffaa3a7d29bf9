"""The pictures of the documentation: what pages show is what `make pictures` makes."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from PIL import Image

from pictures.groups import FOLDER, all_files
from pictures.journeys import JOURNEYS, draw_journeys
from pictures.svg import document, text
from pictures.terminal import terminal_picture
from regard.draw import DARK, LIGHT

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PICTURE = re.compile(
    r'<picture>\s*<source media="\(prefers-color-scheme: dark\)" srcset="([^"]+)-dark(\.\w+)">\s*'
    r'<img alt="[^"]+" src="\1-light\2"[^>]*>\s*</picture>'
)
LARGEST = 2_000_000  # bytes
SVG = "{http://www.w3.org/2000/svg}"


def shown(page: Path) -> list[Path]:
    """Return the pictures of a page that are files, in both looks."""
    words = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    names = re.findall(r'(?:src|srcset)="([^":]+\.(?:svg|png|webp|gif|jpg))"', words)
    names += re.findall(r"!\[[^\]]*\]\(([^):]+)\)", words)
    return [(page.parent / name).resolve() for name in names]


def test_pages_show_the_pictures_that_are_made_and_no_other():
    names = {path.name if path.parent == FOLDER else str(path) for page in PAGES for path in shown(page)}
    assert names == set(all_files())


def test_the_files_are_those_that_are_made():
    assert sorted(path.name for path in FOLDER.iterdir()) == all_files(), "run `make pictures`"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_picture_is_there_in_both_looks_with_a_description(page: Path):
    assert len(shown(page)) == 2 * len(PICTURE.findall(page.read_text(encoding="utf-8")))


@pytest.mark.parametrize("name", all_files())
def test_files_are_small_and_can_be_read(name: str):
    path = FOLDER / name
    assert path.stat().st_size < LARGEST
    if path.suffix == ".svg":
        ElementTree.parse(path)
    else:
        assert Image.open(path).width > 600


@pytest.mark.parametrize("look", ["light", "dark"])
def test_the_animation_moves_and_shows_the_end_longest(look: str):
    with Image.open(FOLDER / f"look-{look}.webp") as film:
        assert film.n_frames > 30
        times = []
        for frame in range(film.n_frames):
            film.seek(frame)
            film.load()  # which reads the time, too
            times.append(film.info["duration"])
    assert times[-1] == max(times)


def test_drawn_pictures_are_the_same_every_time():
    for look, colours in (("light", LIGHT), ("dark", DARK)):
        for name, content in draw_journeys(colours).items():
            path = FOLDER / name.replace(".svg", f"-{look}.svg")
            assert path.read_bytes() == content, "run `make pictures GROUPS=journeys`"


@pytest.mark.parametrize("name", JOURNEYS)
def test_the_files_of_a_journey_exist(name: str):
    journey = JOURNEYS[name]
    for box in journey.boxes.values():
        for file in () if box.thing else re.findall(r"[\w/]+\.(?:py|ts)|\w+/$", box.name):
            lane = ROOT / "regard" / journey.lanes[box.lane]
            places = [lane / file, ROOT / "regard" / file, ROOT / journey.lanes[box.lane] / file]
            assert any(place.exists() for place in places), file


@pytest.mark.parametrize("name", JOURNEYS)
def test_the_boxes_of_a_journey_do_not_overlap_and_every_one_is_reached(name: str):
    journey = JOURNEYS[name]
    places = [(box.lane, box.column) for box in journey.boxes.values()]
    assert len(set(places)) == len(places)
    assert {end for arrow in journey.arrows for end in arrow[:2]} == set(journey.boxes)


def test_text_is_escaped():
    drawn = ElementTree.fromstring(document(10, 10, [text("a < b & c", 1, 2)], LIGHT))
    assert [each.text for each in drawn.iter(f"{SVG}text")] == [
        "a\N{NO-BREAK SPACE}<\N{NO-BREAK SPACE}b\N{NO-BREAK SPACE}&\N{NO-BREAK SPACE}c"
    ]


def test_a_terminal_keeps_columns_and_colours():
    picture = ElementTree.fromstring(terminal_picture({"regard x": "plain \x1b[36mcyan\x1b[0m\n"}, DARK))
    words = {each.text.replace("\N{NO-BREAK SPACE}", " "): each for each in picture.iter(f"{SVG}text")}
    assert list(words) == ["$ ", "regard x", "plain ", "cyan"]
    assert float(words["cyan"].get("x")) - float(words["plain "].get("x")) == pytest.approx(6 * 8.43, abs=0.02)
    assert words["cyan"].get("fill") != words["plain "].get("fill")
