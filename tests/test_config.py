"""Tables, TOML and JSON into dataclasses and back; every mistake named by its path, its rule and the nearest name."""

import dataclasses
import json
import re
import tomllib
from dataclasses import dataclass, field, make_dataclass
from math import inf, nan
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.config import (
    Config,
    Count,
    Kinds,
    NotNegative,
    Range,
    Rate,
    Registry,
    field_types,
    from_table,
    kinds_of,
    to_json,
    to_table,
    to_toml,
)
from regard.data.tokenizer import TokenizerConfig
from regard.errors import ConfigError, RegardError
from regard.limits import note_of
from regard.recipe_files import in_file, merge, override, read_recipe, recipe_names, resolve_likes, split_changes
from regard.training.config import RunConfig, TrainConfig
from regard.training.optimizer import OptimizerConfig


class Shape(Config):
    pass


@dataclass(frozen=True)
class Circle(Shape):
    radius: float


@dataclass(frozen=True)
class Square(Shape):
    side: int
    filled: bool = False

    def validate(self) -> None:
        if self.side < 1:
            raise ConfigError(f"side={self.side} must be at least 1")


SHAPES = Kinds("shape", Shape, {"circle": Circle, "square": Square})


@dataclass(frozen=True)
class Frame(Config):
    width: int
    colour: Literal["red", "green"] = "red"
    title: str | None = None


@dataclass(frozen=True)
class Picture(Config):
    name: str
    shape: Shape
    frame: Frame = field(default_factory=lambda: Frame(1))
    back: Shape | None = None
    stencil: Square | None = None
    sizes: tuple[int, ...] = ()
    parts: tuple[Frame, ...] = ()
    layers: dict[str, Frame] = field(default_factory=dict)
    opacity: float = 1.0


LEAST: dict[str, Any] = {"name": "a", "shape": {"kind": "circle", "radius": 1.0}}


def mistakes(table: dict[str, Any], cls: type = Picture) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        from_table(table, cls)
    return str(caught.value).splitlines()


def mistake(table: dict[str, Any], cls: type = Picture) -> str:
    [line] = mistakes(table, cls)
    return line


# --- reading and writing --------------------------------------------------------------------------------------------


def test_a_table_becomes_dataclasses() -> None:
    table = {
        "name": "a",
        "shape": {"kind": "square", "side": 2, "filled": True},
        "frame": {"width": 3, "colour": "green", "title": "t"},
        "back": {"kind": "circle", "radius": 2},
        "stencil": {"side": 4},
        "sizes": [1, 2],
        "parts": [{"width": 1}, {"width": 2}],
        "layers": {"x": {"width": 5}},
        "opacity": 0.5,
    }
    picture = from_table(table, Picture)
    assert picture == Picture(
        "a",
        Square(2, True),
        Frame(3, "green", "t"),
        Circle(2.0),
        Square(4),
        (1, 2),
        (Frame(1), Frame(2)),
        {"x": Frame(5)},
        0.5,
    )
    assert isinstance(picture.back, Circle)
    assert type(picture.back.radius) is float  # written as 2


def test_absent_tables_and_keys_take_their_defaults() -> None:
    picture = from_table(LEAST, Picture)
    assert picture == Picture("a", Circle(1.0))
    assert picture.back is None
    assert picture.stencil is None


def test_what_is_absent_is_not_written() -> None:
    table = to_table(Picture("a", Square(2)))
    assert table == {
        "name": "a",
        "shape": {"kind": "square", "side": 2, "filled": False},
        "frame": {"width": 1, "colour": "red"},
        "sizes": [],
        "parts": [],
        "layers": {},
        "opacity": 1.0,
    }


def test_configs_are_frozen() -> None:
    picture = from_table(LEAST, Picture)
    with pytest.raises(dataclasses.FrozenInstanceError):
        picture.name = "b"  # type: ignore[misc]


def test_reading_leaves_the_table_as_it_was() -> None:
    table = {**LEAST, "layers": {"x": {"width": 1}, "y": {"like": "x", "width": 2}}}
    before = json.dumps(table)
    from_table(table, Picture)
    override(table, ["layers.x.width=9", "shape.kind=square", "layers.y=none"])
    assert json.dumps(table) == before


numbers = st.floats(allow_nan=False)
texts = st.text("aZ0 \t\r\n\\\"'=#[]{}.,-_\x00\x7fé漢\U0001f600", max_size=9)
whole = st.integers(-(2**63), 2**63 - 1)
frames = st.builds(Frame, whole, st.sampled_from(["red", "green"]), st.none() | texts)
squares = st.builds(Square, st.integers(1, 9), st.booleans())
shapes = st.builds(Circle, numbers) | squares
names = st.text("xyz-_ .é", max_size=3)
pictures = st.builds(
    Picture,
    texts,
    shapes,
    frames,
    st.none() | shapes,
    st.none() | squares,
    st.lists(whole).map(tuple),
    st.lists(frames, max_size=3).map(tuple),
    st.dictionaries(names, frames, max_size=3),
    numbers,
)


@given(pictures)
def test_round_trips_are_exact(picture: Picture) -> None:
    assert from_table(to_table(picture), Picture) == picture
    assert from_table(tomllib.loads(to_toml(picture)), Picture) == picture
    assert from_table(json.loads(to_json(picture)), Picture) == picture


@given(pictures)
def test_text_and_table_agree(picture: Picture) -> None:
    assert tomllib.loads(to_toml(picture)) == json.loads(to_json(picture)) == to_table(picture)


def test_where_one_class_is_possible_its_kind_may_be_written_and_no_other() -> None:
    assert from_table({**LEAST, "stencil": {"kind": "square", "side": 2}}, Picture).stencil == Square(2)
    assert "stencil.kind: unknown key" in mistake({**LEAST, "stencil": {"kind": "circle", "side": 2}})
    assert "frame.kind: unknown key" in mistake({**LEAST, "frame": {"kind": "frame", "width": 2}})


# --- mistakes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "path", "rule"),
    [
        ({"name": 3}, "name", "3 must be text"),
        ({"name": ["a"]}, "name", '["a"] must be text'),
        ({"opacity": "3"}, "opacity", '"3" must be a number'),
        ({"opacity": True}, "opacity", "true must be a number"),
        ({"frame": {"width": True}}, "frame.width", "true must be a whole number"),
        ({"frame": {"width": "3"}}, "frame.width", '"3" must be a whole number'),
        ({"frame": {"width": 3.5}}, "frame.width", "3.5 must be a whole number"),
        ({"frame": {"width": {"a": 1}}}, "frame.width", "a table must be a whole number"),
        ({"frame": {"width": 1, "title": 3}}, "frame.title", "3 must be text"),
        ({"stencil": {"side": 1, "filled": 1}}, "stencil.filled", "1 must be true or false"),
        ({"stencil": {"side": 1, "filled": "true"}}, "stencil.filled", '"true" must be true or false'),
        ({"frame": {"width": 1, "colour": "grean"}}, "frame.colour", "\"grean\" is unknown; did you mean 'green'?"),
        ({"frame": {"width": 1, "colour": True}}, "frame.colour", "true is unknown; use one of green, red"),
        ({"frame": {"width": 1, "colour": ["red"]}}, "frame.colour", '["red"] is unknown; did you mean'),
        ({"sizes": "12"}, "sizes", '"12" must be a list, each a whole number'),
        ({"sizes": {"a": 1}}, "sizes", "a table must be a list, each a whole number"),
        ({"sizes": 3}, "sizes", "3 must be a list, each a whole number"),
        ({"sizes": [1, "2"]}, "sizes.1", '"2" must be a whole number'),
        ({"parts": "ab"}, "parts", '"ab" must be a list, each a table'),
        ({"parts": [{"width": 1}, {"width": 1.5}]}, "parts.1.width", "1.5 must be a whole number"),
        ({"parts": [{"width": 1}, 7]}, "parts.1", "7 must be a table"),
        ({"layers": [1]}, "layers", "[1] must be a table"),
        ({"layers": {"x": 1}}, "layers.x", "1 must be a table"),
        ({"layers": {"x": "width=2"}}, "layers.x", "quote a table: 'KEY={...}'"),
        ({"layers": {"x": {"width": "1"}}}, "layers.x.width", '"1" must be a whole number'),
        ({"frame": 3}, "frame", "3 must be a table"),
        ({"frame": "wide"}, "frame", '"wide" must be a table'),
        ({"stencil": 3}, "stencil", "3 must be a table"),
        ({"shape": "circle"}, "shape", '"circle" must be a table'),
        ({"back": [1]}, "back", "[1] must be a table"),
    ],
)
def test_a_wrong_type_names_path_value_and_rule(change: dict[str, Any], path: str, rule: str) -> None:
    found = mistake({**LEAST, **change})
    assert found.startswith(f"{path}: ")
    assert rule in found


def test_one_of_several_numbers() -> None:
    Die = dataclasses.make_dataclass("Die", [("sides", Literal[1, 6])])
    assert from_table({"sides": 6}, Die).sides == 6
    assert mistake({"sides": 7}, Die) == "sides: 7 is unknown; use one of 1, 6"
    assert mistake({"sides": True}, Die) == "sides: true is unknown; use one of 1, 6"
    assert mistake({}, Die) == "sides: missing; must be one of 1, 6"


def test_the_parts_of_an_error_can_be_read_one_by_one() -> None:
    with pytest.raises(ConfigError) as caught:
        from_table({**LEAST, "opacity": "3"}, Picture)
    assert (caught.value.path, caught.value.rule) == ("opacity", '"3" must be a number')


def test_an_unknown_key_names_its_path_and_the_nearest_key() -> None:
    assert mistake({**LEAST, "frame": {"width": 1, "color": "red"}}) == (
        "frame.color: unknown key; did you mean 'colour'? (one of colour, title, width)"
    )
    assert mistake({**LEAST, "nmae": "b"}).startswith("nmae: unknown key; did you mean 'name'?")
    assert mistake({**LEAST, "back": {"kind": "circle", "radius": 1, "raduis": 2}}) == (
        "back.raduis: unknown key; did you mean 'radius'? (one of radius)"
    )


def test_a_missing_key_names_what_it_must_be() -> None:
    assert mistake({"shape": LEAST["shape"]}) == "name: missing; must be text"
    assert mistake({"name": "a"}) == "shape: missing; must be a table"
    assert mistake({**LEAST, "frame": {}}) == "frame.width: missing; must be a whole number"
    assert mistake({**LEAST, "shape": {"kind": "circle"}}) == "shape.radius: missing; must be a number"


@pytest.mark.parametrize("key", ["shape", "back"])
def test_kind_missing_or_unknown_lists_the_choices(key: str) -> None:
    assert mistake({**LEAST, key: {"radius": 1.0}}) == f"{key}.kind: missing; use one of circle, square"
    assert mistake({**LEAST, key: {"kind": "sqare", "side": 1}}) == (
        f"{key}.kind: 'sqare' is not a known shape; did you mean 'square'? (one of circle, square); "
        "if it is your own, import the file that registers it (--import FILE)"
    )
    for strange in (3, ["circle"], {"circle": 1}):
        assert mistake({**LEAST, key: {"kind": strange}}).startswith(f"{key}.kind: {strange!r} is not a known shape; ")


def test_a_rule_of_a_table_is_reported_with_the_path_of_the_table() -> None:
    assert mistake({**LEAST, "back": {"kind": "square", "side": 0}}) == "back: side=0 must be at least 1"
    assert mistake({**LEAST, "stencil": {"side": -1}}) == "stencil: side=-1 must be at least 1"
    assert mistake({"side": 0}, Square) == "side=0 must be at least 1"


def test_a_rule_that_points_at_a_key_keeps_the_path_of_the_table() -> None:
    @dataclass(frozen=True)
    class Inner:
        size: int

        def __post_init__(self) -> None:
            raise ConfigError("too small", "size")

    Outer = dataclasses.make_dataclass("Outer", [("inner", Inner)])
    assert mistake({"inner": {"size": 1}}, Outer) == "inner.size: too small"


def test_all_mistakes_are_reported_at_once() -> None:
    table = {
        "shape": {"kind": "circel"},
        "frame": {"width": "1", "colour": "blue"},
        "back": {"kind": "square", "side": 0},
        "sizes": [1, "2", True],
        "layers": {"x": {"widht": 1}},
        "title": "t",
    }
    found = mistakes(table)
    assert {line.split(": ")[0] for line in found} == {
        "name",
        "shape.kind",
        "frame.width",
        "frame.colour",
        "back",
        "sizes.1",
        "sizes.2",
        "layers.x.widht",
        "layers.x.width",
        "title",
    }
    assert len(found) == 10


def test_a_fault_of_the_program_is_not_taken_for_a_mistake_of_the_user() -> None:
    @dataclass(frozen=True)
    class Broken:
        size: int

        def __post_init__(self) -> None:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        from_table({"size": 1}, Broken)


# --- like -----------------------------------------------------------------------------------------------------------


def layers(table: dict[str, Any]) -> dict[str, Frame]:
    return from_table({**LEAST, "layers": table}, Picture).layers


def test_like_starts_from_a_sibling() -> None:
    found = layers({"x": {"width": 1, "colour": "green"}, "y": {"like": "x", "width": 2}})
    assert found == {"x": Frame(1, "green"), "y": Frame(2, "green")}


def test_likes_can_be_chained_and_stand_in_any_order() -> None:
    found = layers({"z": {"like": "y", "title": "t"}, "y": {"like": "x", "width": 2}, "x": {"width": 1}})
    assert found == {"z": Frame(2, "red", "t"), "y": Frame(2), "x": Frame(1)}


def test_like_copies_the_tables_inside_and_lays_the_changes_over_them() -> None:
    @dataclass(frozen=True)
    class Box:
        frame: Frame
        inner: dict[str, Frame]

    Shelf = dataclasses.make_dataclass("Shelf", [("a", Box), ("b", Box)])
    table = {
        "a": {"frame": {"width": 1, "title": "t"}, "inner": {"p": {"width": 3}, "q": {"like": "p", "title": "u"}}},
        "b": {"like": "a", "frame": {"width": 2}, "inner": {"p": {"width": 4}}},
    }
    assert from_table(table, Shelf) == Shelf(
        Box(Frame(1, "red", "t"), {"p": Frame(3), "q": Frame(3, "red", "u")}),
        Box(Frame(2, "red", "t"), {"p": Frame(4), "q": Frame(4, "red", "u")}),
    )


def test_a_like_of_another_kind_replaces_the_table() -> None:
    table = {**LEAST, "back": {"like": "shape", "kind": "square", "side": 3}}
    assert from_table(table, Picture).back == Square(3)  # the radius of the circle is gone
    assert from_table({**LEAST, "back": {"like": "shape"}}, Picture).back == Circle(1.0)
    assert from_table({**LEAST, "back": {"like": "shape", "kind": "circle"}}, Picture).back == Circle(1.0)


def test_likes_in_a_circle() -> None:
    x_y = {"x": {"like": "y"}, "y": {"like": "x"}}
    assert mistake({**LEAST, "layers": x_y}) == "layers.y.like: inherits from itself: x -> y -> x"
    assert mistake({**LEAST, "layers": {"x": {"like": "x"}}}) == "layers.x.like: inherits from itself: x -> x"


def test_like_an_unknown_sibling_names_the_nearest() -> None:
    near = {"local": {"width": 1}, "other": {"like": "locl"}}
    assert mistake({**LEAST, "layers": near}) == (
        "layers.other.like: 'locl' is not a table beside this one; did you mean 'local'? (one of local)"
    )
    assert mistake({**LEAST, "frame": {"like": "name"}}).startswith("frame.like: 'name' is not a table beside this one")
    assert mistake({**LEAST, "frame": {"like": ["shape"]}}).startswith(
        "frame.like: ['shape'] is not a table beside this one"
    )


# --- merge and override ---------------------------------------------------------------------------------------------


def test_merge_goes_table_by_table() -> None:
    base = {"a": 1, "b": {"c": 2, "d": {"e": 3}}}
    assert merge(base, {"b": {"d": {"f": 4}}, "g": 5}) == {"a": 1, "b": {"c": 2, "d": {"e": 3, "f": 4}}, "g": 5}
    assert merge(base, {"b": 1, "a": {"h": 1}}) == {"a": {"h": 1}, "b": 1}
    assert base == {"a": 1, "b": {"c": 2, "d": {"e": 3}}}


def test_merge_replaces_a_table_of_another_kind_and_mixes_one_of_the_same() -> None:
    base = {"n": {"kind": "a", "x": 1}}
    assert merge(base, {"n": {"kind": "b", "y": 2}}) == {"n": {"kind": "b", "y": 2}}
    assert merge(base, {"n": {"kind": "a", "y": 2}}) == {"n": {"kind": "a", "x": 1, "y": 2}}
    assert merge(base, {"n": {"y": 2}}) == {"n": {"kind": "a", "x": 1, "y": 2}}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("6", 6),
        ("-0.5", -0.5),
        ("1e-3", 1e-3),
        ("true", True),
        ('"6"', "6"),
        ("gelu-tanh", "gelu-tanh"),
        ("two words", "two words"),
        ("a=b", "a=b"),
        ("[1, 2]", [1, 2]),
        ('["5*local", "global"]', ["5*local", "global"]),
        ('{kind = "rope", base = 1}', {"kind": "rope", "base": 1}),
    ],
)
def test_an_override_is_read_as_toml_and_a_bare_word_as_text(text: str, value: Any) -> None:
    found = override({"model": {"depth": 0, "dim": 1}}, [f"model.depth={text}"])["model"]
    assert found == {"depth": value, "dim": 1}
    assert type(found["depth"]) is type(value)


def test_overrides_come_one_after_the_other() -> None:
    assert override({"a": 1}, ["a=2", "b=3", " a = 4 ", "b=none"]) == {"a": 4}
    assert override({"a": 1}, []) == {"a": 1}


def test_an_override_makes_the_tables_it_needs() -> None:
    assert override({}, ["a.b.c=1"]) == {"a": {"b": {"c": 1}}}


def test_none_removes_a_value_or_a_table() -> None:
    table = {"model": {"depth": 1, "position": {"kind": "rope"}}}
    assert override(table, ["model.position=none"]) == {"model": {"depth": 1}}
    assert override(table, ["model.depth=none", "model.position.kind=none"]) == {"model": {"position": {}}}


def test_none_removes_what_is_inherited() -> None:
    table = {"a": {"x": 1, "y": {"z": 2}}, "b": {"like": "a", "w": 3}}
    assert resolve_likes(override(table, ["b.y=none"])) == {"a": table["a"], "b": {"x": 1, "w": 3}}
    assert merge({"x": 1, "y": 2}, {"y": "none"}) == {"x": 1}
    assert merge({"kind": "a", "x": 1}, {"kind": "b", "x": "none"}) == {"kind": "b"}


def test_a_file_may_build_on_the_recipe_of_its_own_name(tmp_path: Path) -> None:
    found = read_recipe(write(tmp_path, "gpt2", 'like = "gpt2"\nabout = "mine"\n'))
    assert found == {"about": "mine", "model": read_recipe("gpt2")["model"]}


@dataclass(frozen=True)
class Limits(Config):
    size: Count
    share: Rate = 0.5
    maybe: Count | None = None


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"size": 0}, "size: 0 must be at least 1"),
        ({"size": 2**31}, "size: 2147483648 must be at most 2147483647"),
        ({"size": 10**400}, f"size: {10**400} must be at most 2147483647"),
        ({"size": 1, "share": 1.5}, "share: 1.5 must be between 0 and 1"),
        ({"size": 1, "maybe": -1}, "maybe: -1 must be at least 1"),
        ({"size": "1"}, 'size: "1" must be a whole number'),
        ({}, "size: missing; must be a whole number, at least 1"),
    ],
)
def test_numbers_have_limits(table: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        from_table(table, Limits)
    assert from_table({"size": 1, "share": 1, "maybe": 2}, Limits) == Limits(1, 1.0, 2)


@pytest.mark.parametrize(
    ("type_", "value", "rule"),
    [
        (Count, 0, "at least 1"),
        (Count | None, -1, "at least 1"),
        (Rate, 1.5, "between 0 and 1"),
        (Annotated[float, Range(above=0, high=1)], 0.0, "above 0 and at most 1"),
        (NotNegative, inf, "a finite number"),
        (NotNegative | None, nan, "a finite number"),
        (Count, 1.5, "a whole number, at least 1"),
        (Count, "2", "a whole number, at least 1"),
        (Count, True, "a whole number, at least 1"),
        (Count, None, "a whole number, at least 1"),
        (Rate, "half", "a number, between 0 and 1"),
    ],
)
def test_a_config_made_in_python_has_the_same_limits(type_: Any, value: Any, rule: str) -> None:
    made = make_dataclass("Made", [("name", str, ""), ("size", type_, 1)], bases=(Config,), frozen=True)
    with pytest.raises(ConfigError) as caught:
        made(size=value)
    shown = value if isinstance(value, float) else json.dumps(value)
    assert str(caught.value) == f"Made: size={shown} must be {rule}"


def test_numbers_within_their_limits_are_fine() -> None:
    for value in (1, 1.0, np.int64(1)):
        assert type(Limits(value).size) is int  # type: ignore[arg-type]
    for share in (0, 1, 0.5, np.float32(0.5)):
        assert type(Limits(1, share).share) is float  # type: ignore[arg-type]
    assert Limits(1, maybe=None).maybe is None
    with pytest.raises(ConfigError, match="share: inf must be a finite number"):
        from_table({"size": 1, "share": inf}, Limits)


def test_a_whole_number_may_be_written_as_a_power_of_ten() -> None:
    assert from_table(override({"size": 1}, ["size=1e3"]), Limits) == Limits(1000)


def test_python_and_a_table_are_equally_strict() -> None:
    with pytest.raises(ConfigError, match=re.escape('Frame: colour="grean" is unknown; did you mean')):
        Frame(1, "grean")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="Picture: name=3 must be text; sizes.1=true must be a whole number"):
        Picture(3, Circle(1), sizes=(1, True))  # type: ignore[arg-type]
    assert Picture("a", Circle(1), sizes=[1, 2]).sizes == (1, 2)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="side=0 must be at least 1"):
        Square(0)


def test_a_mistake_leaves_no_other_exception_behind_it() -> None:
    with pytest.raises(ConfigError) as caught:
        from_table({**LEAST, "stencil": {"side": 0}, "frame": {"width": 0.5}}, Picture)
    assert caught.value.__context__ is None
    assert caught.value.__cause__ is None


def test_a_table_can_be_read_as_a_union_of_kinds_and_at_a_place() -> None:
    assert from_table({"kind": "square", "side": 2}, Shape) == Square(2)
    with pytest.raises(ConfigError, match="^a.b.side: missing"):
        from_table({"kind": "square"}, Shape, "a.b")
    with pytest.raises(ConfigError, match="^a.b.x.like: 'y' is not a table"):
        from_table({"x": {"like": "y"}}, Frame, "a.b")


# --- registering ----------------------------------------------------------------------------------------------------


@pytest.fixture
def tools() -> Kinds[Any]:
    Tool = type("Tool", (Config,), {})
    Saw = dataclass(frozen=True)(type("Saw", (Tool,), {}))
    return Kinds("tool", Tool, {"saw": Saw})


def define(base: type, name: str = "Drill") -> Any:
    return make_dataclass(name, [("speed", Count, 5)], bases=(base,), frozen=True)


def test_what_is_registered_later_is_a_kind_like_the_others(tools: Kinds[Any]) -> None:
    Box = make_dataclass("Box", [("tool", tools.base)], bases=(Config,), frozen=True)
    Drill = define(tools.base)
    with pytest.raises(ConfigError, match="Box: tool=Drill is not a registered tool; register it with @regard.regist"):
        Box(Drill())
    tools.add("drill", Drill)
    table = {"tool": {"kind": "drill", "speed": 6}}
    assert from_table(table, Box) == Box(Drill(6))
    assert to_table(Box(Drill(6))) == table
    assert "(one of drill, saw)" in mistake({"tool": {"kind": "dril"}}, Box)


def test_a_name_is_registered_once_and_a_definition_may_be_run_again(tools: Kinds[Any]) -> None:
    tools.add("drill", define(tools.base))
    again = define(tools.base)
    tools.add("drill", again)
    assert tools["drill"] is again
    for name in ("drill", "saw"):
        with pytest.raises(RegardError, match=f"there is already a tool with the name '{name}'"):
            tools.add(name, define(tools.base, "Other"))
    with pytest.raises(RegardError, match="Drill is already registered as 'drill'; define a class for 'borer'"):
        tools.add("borer", again)
    for wrong in (define(Config, "Stray"), type("Stray", (tools.base,), {})):
        with pytest.raises(RegardError, match="Stray must be a frozen dataclass that inherits from Tool"):
            tools.add("stray", wrong)


@pytest.mark.unchecked
def test_what_is_not_a_class_cannot_be_registered(tools: Kinds[Any]) -> None:
    number: Any = 5
    with pytest.raises(RegardError, match="5 must be a frozen dataclass that inherits from Tool"):
        tools.add("stray", number)


def test_a_subclass_of_a_registered_class_is_not_registered_by_it() -> None:
    Sub = dataclass(frozen=True)(type("Sub", (Square,), {}))
    with pytest.raises(ConfigError, match="shape=Sub is not a registered shape"):
        Picture("a", Sub(1))


def test_a_text_may_be_limited_to_registered_names() -> None:
    colours = Registry("colour", {"red": 1, "green": 2})
    Holder = make_dataclass("Holder", [("colour", Annotated[str, colours], "red")], bases=(Config,), frozen=True)
    colours.add("blue", 3)
    assert from_table({"colour": "blue"}, Holder).colour == "blue"
    assert mistake({"colour": "bleu"}, Holder).startswith("colour: 'bleu' is not a known colour; did you mean 'blue'?")
    assert mistake({"colour": 3}, Holder).startswith("colour: 3 is not a known colour; ")


def test_an_override_of_kind_replaces_the_table_and_one_of_the_same_kind_keeps_it() -> None:
    table = {"norm": {"kind": "layer", "bias": False}}
    assert override(table, ["norm.kind=rms", "norm.eps=1"]) == {"norm": {"kind": "rms", "eps": 1}}
    assert override(table, ["norm.kind=layer"]) == table
    assert override(table, ['norm={kind="rms"}']) == {"norm": {"kind": "rms"}}
    assert override(table, ["norm={eps=1}"]) == {"norm": {"kind": "layer", "bias": False, "eps": 1}}


@pytest.mark.parametrize("change", ["model.depth", "=3", "model.=3", ".depth=3", "model..depth=3", ""])
def test_a_malformed_override_is_quoted_with_the_form_it_must_have(change: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"override {change!r} must have the form path.to.key=value")):
        override({"model": {"depth": 1}}, [change])


def test_an_empty_name_is_not_the_current_folder() -> None:
    with pytest.raises(ConfigError, match=r"^the name of a file is empty; is a variable of the shell not set\?$"):
        split_changes(["a.txt", "", "task.window=8"])


def test_an_override_may_be_longer_than_the_name_of_a_file() -> None:
    long = f"model.pattern={['block'] * 60}"
    assert split_changes(["a.txt", long]) == (["a.txt"], [long])


@pytest.mark.unchecked
@pytest.mark.parametrize("change", [5, None, ["model.depth=2"]])
def test_an_override_that_is_not_text_is_rejected(change: Any) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"override {change!r} must be text of the form path.to.key=value")):
        override({"model": {"depth": 1}}, ["model.depth=3", change])


def test_nothing_can_be_set_below_a_value() -> None:
    with pytest.raises(ConfigError) as caught:
        override({"model": {"depth": 1}}, ["model.depth.x=3"])
    assert str(caught.value).startswith("model.depth.x: 'depth' is a value, not a table")


def test_what_is_not_there_cannot_be_removed() -> None:
    with pytest.raises(ConfigError) as caught:
        override({"model": {"depth": 1, "position": {}}}, ["model.positoin=none"])
    assert str(caught.value) == (
        "model.positoin: there is no 'positoin' to remove; did you mean 'position'? (one of depth, position)"
    )


# --- recipes --------------------------------------------------------------------------------------------------------


def test_mistakes_in_the_keys_of_a_file_name_it_and_those_of_overrides_do_not() -> None:
    def said(recipe: str | Path, mistake: ConfigError, *overrides: str) -> str:
        with pytest.raises(ConfigError) as caught, in_file(recipe, overrides):
            raise mistake
        return str(caught.value)

    wrong = ConfigError("must be more", "model.depth")
    assert said("my.toml", wrong) == said(Path("my.toml"), wrong) == "my.toml: model.depth: must be more"
    assert said("gpt2", wrong) == said("my.toml", wrong, "model.depth=0") == "model.depth: must be more"
    assert said("my.toml", wrong, "model.dept=0", "model.dim=3") == "my.toml: model.depth: must be more"
    below = ConfigError("missing", "model.norm.eps")
    assert said("my.toml", below, "model.norm.kind=own") == said("my.toml", below, "model.norm={}")
    assert said("my.toml", below, "model.norm={}") == "model.norm.eps: missing"
    two = ConfigError("model.depth: must be more\nmodel.dim: must be less")
    assert said("my.toml", two, "model.dim=9") == "my.toml: model.depth: must be more\nmodel.dim: must be less"
    for path in ("", "other.toml: like", "my.toml"):
        other = ConfigError("override 'x' must be: a=b", path)
        assert said("my.toml", other) == str(other)


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / f"{name}.toml"
    path.write_text(text, encoding="utf-8")
    return path


def refusal(recipe: str | Path) -> str:
    with pytest.raises(ConfigError) as caught:
        read_recipe(recipe)
    return str(caught.value)


def test_recipes_are_sorted_and_each_says_what_it_is_and_where_it_comes_from() -> None:
    assert recipe_names() == sorted(set(recipe_names()))
    assert {"gpt2", "bert", "vit", "transformer-base", "lstm"} <= set(recipe_names())
    for name in recipe_names():
        table = read_recipe(name)
        assert set(table) == {"about", "paper", "model"}, name
        assert table["about"].strip(), name
        assert re.search(r"\b(19|20)\d\d\b", table["paper"]), name  # the paper has a year
        assert "kind" in table["model"], name


def test_a_shipped_recipe_is_read_by_name_and_any_file_by_path(tmp_path: Path) -> None:
    assert read_recipe("gpt2")["model"]["depth"] == 12
    path = write(tmp_path, "own", 'about = "ünï"\n[model]\ndepth = 1\n')
    for recipe in (path, str(path)):
        assert read_recipe(recipe) == {"about": "ünï", "model": {"depth": 1}}


def test_a_file_in_the_way_does_not_hide_a_shipped_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "gpt2", "depth = 1\n")
    monkeypatch.chdir(tmp_path)
    assert read_recipe("gpt2")["model"]["depth"] == 12
    assert read_recipe("gpt2.toml") == {"depth": 1}


def test_an_unknown_name_suggests_the_nearest_and_how_to_name_a_file() -> None:
    found = refusal("gtp2")
    assert found.startswith("no recipe has the name 'gtp2'; did you mean 'gpt2'? (one of annotator, ")
    assert found.endswith("a file of your own needs its suffix .toml")


def test_a_file_that_cannot_be_read_is_named_with_the_cause(tmp_path: Path) -> None:
    missing = tmp_path / "none.toml"
    assert refusal(missing) == f"{missing}: cannot read the recipe: No such file or directory"
    assert "No such file" in refusal(str(missing))
    latin = tmp_path / "latin.toml"
    latin.write_bytes('about = "ü"'.encode("latin-1"))
    assert refusal(latin).startswith(f"{latin}: cannot read the recipe: ")
    assert "utf-8" in refusal(latin)
    broken = write(tmp_path, "broken", "a = 1\nb =\n")
    assert refusal(broken).startswith(f"{broken}: is not valid TOML: ")
    assert "line 2" in refusal(broken)


def test_a_recipe_like_a_shipped_one(tmp_path: Path) -> None:
    path = write(tmp_path, "own", 'like = "gpt2"\nabout = "mine"\n[model]\ndepth = 2\n')
    found, base = read_recipe(path), read_recipe("gpt2")
    assert found == {"about": "mine", "model": {**base["model"], "depth": 2}}


@pytest.mark.parametrize("like", ["base", "base.toml"])
def test_a_recipe_like_a_file_beside_it(tmp_path: Path, like: str) -> None:
    write(tmp_path, "root", 'about = "root"\npaper = "p"\n[model]\ndepth = 1\nnorm = { kind = "layer", eps = 1 }\n')
    write(tmp_path, "base", 'like = "root"\n[model]\ndim = 2\n')
    path = write(tmp_path, "own", f'like = "{like}"\n[model]\ndepth = 3\nnorm = {{ kind = "rms" }}\n')
    model = {"depth": 3, "dim": 2, "norm": {"kind": "rms"}}
    assert read_recipe(path) == {"model": model}  # `about` and `paper` describe the root only


def test_a_new_pattern_keeps_only_the_inherited_layers_that_it_names(tmp_path: Path) -> None:
    layers = {"a": {"x": 1}, "b": {"x": 2}}
    write(tmp_path, "base", "[model]\npattern = ['a', 'b']\nlayers.a.x = 1\nlayers.b.x = 2\n")

    def inherit(own: str) -> Any:
        return read_recipe(write(tmp_path, "own", f"like = 'base'\n[model]\n{own}\n"))["model"]

    assert inherit("depth = 1") == {"pattern": ["a", "b"], "layers": layers, "depth": 1}
    assert inherit("pattern = ['2*b']") == {"pattern": ["2*b"], "layers": {"b": {"x": 2}}}
    assert inherit("pattern = ['c']\nlayers.c = {like = 'a', y = 3}")["layers"] == {"c": {"x": 1, "y": 3}}
    assert inherit("pattern = ['c']\nlayers.c.x = 4\nlayers.d.x = 5")["layers"] == {"c": {"x": 4}, "d": {"x": 5}}


def test_a_file_beside_it_goes_before_a_shipped_recipe(tmp_path: Path) -> None:
    write(tmp_path, "gpt2", "a = 1\n")
    assert read_recipe(write(tmp_path, "own", 'like = "gpt2"\nb = 2\n')) == {"a": 1, "b": 2}


def test_recipes_in_a_circle(tmp_path: Path) -> None:
    x, y = write(tmp_path, "x", 'like = "y"\n'), write(tmp_path, "y", 'like = "x"\n')
    assert refusal(x) == f"{y}: like: inherits from itself: {x} -> {y} -> {x}"
    own = write(tmp_path, "own", 'like = "own"\n')
    assert refusal(own) == f"{own}: like: inherits from itself: {own} -> {own}"


def test_recipes_in_a_circle_by_a_path_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "x", 'like = "x"\n')
    monkeypatch.chdir(tmp_path)
    for recipe in ("x.toml", "./x.toml", f"../{tmp_path.name}/x.toml"):
        assert "like: inherits from itself" in refusal(recipe)


def test_a_base_that_is_no_recipe_names_the_file_that_asks_for_it(tmp_path: Path) -> None:
    path = write(tmp_path, "own", 'like = "gtp2"\n')
    assert refusal(path).startswith(f"{path}: like: no recipe has the name 'gtp2'; did you mean 'gpt2'?")
    write(tmp_path, "base", "a =\n")
    path = write(tmp_path, "other", 'like = "base"\n')
    assert refusal(path).startswith(f"{tmp_path / 'base.toml'}: is not valid TOML")


@pytest.mark.parametrize(("like", "reason"), [("x" * 300, "File name too long"), ("x\\u0000", "embedded null byte")])
def test_a_base_whose_name_no_file_can_have_is_a_mistake(tmp_path: Path, like: str, reason: str) -> None:
    path = write(tmp_path, "own", f'like = "{like}"\n')
    assert refusal(path).startswith(f"{path}: like: no recipe has the name 'x")
    write(tmp_path, "own", f'like = "{like}.toml"\n')
    assert refusal(path).endswith(f".toml: cannot read the recipe: {reason}")


@pytest.mark.parametrize("seed", [2**63, 10**23, 10**400, -1, 1.5])
def test_a_seed_that_no_generator_takes_is_a_mistake(seed: float) -> None:
    with pytest.raises(ConfigError, match="seed: .* must be"):
        from_table({"kind": "language", "train": {"seed": seed}}["train"], TrainConfig)


def test_every_whole_number_of_a_config_has_a_largest_value() -> None:
    """So that none of them overflows where it is used."""
    limits = [note_of(type_, Range) for type_ in _number_types(RunConfig, set())]
    assert len(limits) >= 3
    assert all(limit is not None and limit.high is not None for limit in limits)


def _number_types(type_: Any, seen: set[Any]) -> list[Any]:
    """Return the types of all whole numbers in a config class, its kinds and its tables."""
    if type_ in seen:
        return []
    seen.add(type_)
    if get_origin(type_) is Annotated:
        return [type_] if get_args(type_)[0] is int else []
    if type_ is int:
        return [type_]
    inner = [*get_args(type_)] if get_origin(type_) is not Literal else []
    kinds = kinds_of(type_)
    inner += [] if kinds is None else kinds.values()
    inner += field_types(type_).values() if isinstance(type_, type) and dataclasses.is_dataclass(type_) else []
    return [found for one in inner for found in _number_types(one, seen)]


def test_a_number_that_is_too_large_for_a_float_is_a_mistake() -> None:
    with pytest.raises(ConfigError, match=r"rate: 1000.*\.\.\. is too large"):
        from_table({"kind": "adamw", "rate": 10**400}, OptimizerConfig)


@pytest.mark.parametrize("name", ["caf\udce9.txt", "\ud800"])
def test_text_that_cannot_be_saved_is_a_mistake(name: str) -> None:
    with pytest.raises(
        ConfigError, match=r"path: .*\\ud.* is not valid Unicode text; if it is the name of a file, rename"
    ):
        from_table({"path": name}, TokenizerConfig)
