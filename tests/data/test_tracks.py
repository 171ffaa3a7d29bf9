"""Tracks: rows of files, windows of consecutive steps, scenes; and what is wrong with a file."""

from pathlib import Path

import numpy as np
import pytest

from regard.data.read import Skipped
from regard.data.tracks import (
    find_windows,
    hold_out_end,
    join_windows,
    observe_scene,
    parse_scene,
    parse_tracks,
    read_tracks,
)
from regard.errors import InputError

ROWS = ["0 a 0 0", "10 a 1 0", "20 a 2 0", "30 a 3 0", "10 b 5 1", "20 b 6 1", "30 b 7 1", "30 c 9 9"]


def tracks(*rows: str, skipped: Skipped | None = None):
    return parse_tracks(rows or ROWS, "walk.txt", Skipped() if skipped is None else skipped)


def test_rows_in_any_order_separated_by_blanks_tabs_or_commas(tmp_path: Path):
    (tmp_path / "a.txt").write_text("20.0\t1.0\t2.5\t-1\n\n0, 1, 0.5, -1\n 10 1.0  1.5 -1e0 \n", encoding="utf-8")
    skipped = Skipped()
    found = read_tracks(tmp_path / "a.txt", skipped)
    assert (found.step, found.first, found.labels) == (10, 0, ("1",))
    assert found.times.tolist() == [0, 1, 2]
    assert found.positions.tolist() == [[0.5, -1], [1.5, -1], [2.5, -1]]
    assert skipped.report() == [f"1 blank line skipped (first: {tmp_path}/a.txt:2)"]


def test_the_step_is_the_usual_distance_and_frames_between_are_skipped():
    skipped = Skipped()
    found = tracks("6 a 0 0", "18 a 1 0", "24 a 2 0", "30 a 3 0", "25 b 1 1", skipped=skipped)
    assert (found.step, found.first) == (6, 6)
    assert found.times.tolist() == [0, 2, 3, 4]
    assert skipped.report() == ["1 row of a frame between two steps skipped (first: walk.txt:5)"]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("0 a 1", "walk.txt:2: has 3 columns instead of 4; a row is: frame agent x y"),
        ("0", "walk.txt:2: has 1 column instead of 4"),
        ("0 a 1 2 3", "walk.txt:2: has 5 columns instead of 4"),
        ("0 a one 2", "walk.txt:2: x 'one' must be a number; a row is: frame agent x y"),
        ("frame agent x y", "walk.txt:2: frame 'frame' must be a number"),
        ("0 a nan 2", "walk.txt:2: x nan must be a finite number; remove the row"),
        ("0 a 1 inf", "walk.txt:2: y inf must be a finite number"),
        ("0.5 a 1 2", "walk.txt:2: frame 0.5 must be a whole number"),
        ("0.5 a 1 2", "walk.txt:2: frame 0.5 must be a whole number; write the number of the frame, not its time$"),
        ("1e30 a 1 2", "walk.txt:2: frame 1e30 is larger than 1,099,511,627,776; count frames from the start"),
        (f"{'9' * 5000} a 1 2", r"walk.txt:2: frame 9{21}\.\.\. is larger than 1,099,511,627,776"),
        (f"{'x' * 5000} a 1 2", r"walk.txt:2: frame 'x{21}\.\.\.' must be a number"),
        ("0 a 1e9 2", "walk.txt:2: x 1e9 is more than 100,000 metres away; write metres from a point near the scene"),
        ("0 a 0 -1e999", "walk.txt:2: y -1e999 is more than 100,000 metres away"),
        ("0 a 1_0 2", "walk.txt:2: x '1_0' must be a number"),
        ("0,,1,2", "walk.txt:2: the agent has no name; give each agent a number or a name"),
        ('0,"",1,2', "walk.txt:2: the agent has no name"),
        ("5 b 1 2", "walk.txt:2: agent b is in frame 5 twice; remove one of the rows"),
    ],
)
def test_mistakes_name_file_and_line(row: str, message: str):
    with pytest.raises(InputError, match=f"^{message}"):
        tracks("5 b 0 0", row)


@pytest.mark.parametrize("header", ["frame,agent,x,y", "frame agent x y", '"Frame", "Agent", "X", "Y"'])
def test_the_first_row_may_name_the_columns(header: str):
    found = tracks("", header, *ROWS)
    assert found.labels == ("a", "b", "c")
    assert found.positions.tolist() == tracks().positions.tolist()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            ("agent,frame,x,y",),
            "walk.txt:1: the columns are agent frame x y; reorder them, since a row is: frame agent x y",
        ),
        (("id,name,x,y",), "walk.txt:1: frame 'id' must be a number; a row is: frame agent x y"),
        (("frame,agent,x,y", "frame,agent,x,y"), "walk.txt:2: frame 'frame' must be a number"),
        (("frame,agent,x,y",), "walk.txt: holds no rows"),
    ],
)
def test_other_names_of_columns_are_an_error(rows: tuple[str, ...], message: str):
    with pytest.raises(InputError, match=f"^{message}"):
        tracks(*rows)


def test_quotes_are_not_part_of_a_name():
    assert tracks('"frame","agent","x","y"', '0,"a b",1,2', "10,a b,1,2").labels == ("a b",)


def test_a_file_without_rows():
    with pytest.raises(InputError, match=r"^walk.txt: holds no rows; a row is: frame agent x y"):
        tracks(" ", "")


def test_windows_hold_the_agents_of_the_last_observed_step_and_those_with_all_steps_first():
    windows = find_windows(tracks(), observed=2, predicted=1)
    assert windows.starts.tolist() == [0, 1]
    assert windows.counts.tolist() == [2, 2]
    assert windows.whole.tolist() == [True, False, True, True]  # b appears at the second step
    np.testing.assert_array_equal(windows.positions[0], [[0, 0], [1, 0], [2, 0]])
    np.testing.assert_array_equal(windows.positions[1], [[np.nan, np.nan], [5, 1], [6, 1]])
    assert windows.positions[2, :, 0].tolist() == [1, 2, 3]
    alone = find_windows(tracks("0 a 0 0", "10 a 1 0", "20 a 2 0"), 2, 1)
    assert alone.counts.tolist() == [1]


def test_a_gap_ends_a_window_and_agents_of_one_step_have_none():
    assert len(find_windows(tracks("0 a 0 0", "10 a 1 0", "30 a 3 0", "40 a 4 0"), 2, 1)) == 0
    assert len(find_windows(tracks("0 a 0 0", "10 b 1 0", "20 c 3 0"), 2, 1)) == 0


def test_windows_agree_with_a_search_over_all_steps_and_agents():
    chance = np.random.default_rng(0)
    rows = {(step, agent): chance.normal(size=2) for step in range(40) for agent in range(6) if chance.random() < 0.9}
    found = find_windows(tracks(*(f"{10 * t} {a} {x} {y}" for (t, a), (x, y) in rows.items())), 3, 2)
    wanted = []
    for start in range(36):
        here = [agent for agent in range(6) if (start + 2, agent) in rows]
        whole = [agent for agent in here if all((start + k, agent) in rows for k in range(5))]
        if whole:
            wanted.append((start, sorted(whole), len(here)))
    assert [start for start, _, _ in wanted] == found.starts.tolist()
    assert [count for _, _, count in wanted] == found.counts.tolist()
    assert sum(len(whole) for _, whole, _ in wanted) == found.whole.sum()
    (start, whole, _) = wanted[0]
    paths = sorted([[rows[start + k, agent] for k in range(5)] for agent in whole], key=lambda path: path[0][0])
    seen = found.positions[: len(whole)]
    np.testing.assert_allclose(seen[seen[:, 0, 0].argsort()], paths, rtol=1e-6)


def test_the_end_of_a_recording_is_held_out_without_overlap():
    long = tracks(*(f"{10 * t} a {t} 0" for t in range(60)))
    windows = find_windows(long, 3, 2)
    train, valid = hold_out_end(windows, 5, 0.1)
    assert valid.starts.tolist() == list(range(51, 56))
    assert train.starts.max() + 5 <= valid.starts.min()
    assert len(train) == 47
    both = join_windows([train, valid], 5)
    assert (len(both), both.begins[-1], both.positions.shape) == (52, 52, (52, 5, 2))
    assert len(join_windows([], 5)) == 0


def test_a_scene_is_what_is_seen_at_a_frame():
    scene = observe_scene(tracks(), 20, observed=3, predicted=1)
    assert (scene.frame, scene.step, scene.agents) == (20, 10, ("a", "b"))
    assert scene.present.tolist() == [[True, True, True], [False, True, True]]
    assert scene.truth[:, 0].tolist() == [[3, 0], [7, 1]]
    last = observe_scene(tracks(), None, 3, 1)
    assert last.agents == ("a", "b", "c")
    assert np.isnan(last.truth).all()
    rule = r"walk.txt: no agent is in frame 15; choose one of frames 0 to 30, every 10 \(some are empty\)$"
    with pytest.raises(InputError, match=rule):
        observe_scene(tracks(), 15, 3, 1)


@pytest.mark.parametrize("agent", ["a", "a b"])
def test_the_text_of_a_scene_keeps_all_digits_and_names(agent: str):
    rows = f"0,{agent},12345.67,0.000013", f"10,{agent},12345.69,-99999.99", "10,c,1,2"
    scene = observe_scene(tracks(*rows), None, 2, 1)
    again = parse_scene(scene.text(), 2, 1)
    assert again.agents == scene.agents == (agent, "c")
    np.testing.assert_array_equal(again.positions, scene.positions)


def test_a_scene_from_text_or_file_and_back(tmp_path: Path):
    (tmp_path / "a.txt").write_text("\n".join(ROWS), encoding="utf-8")
    from_file = parse_scene(f"{tmp_path / 'a.txt'}@20", 3, 1)
    assert from_file.frame == 20
    assert parse_scene(str(tmp_path / "a.txt"), 3, 1).frame == 30
    again = parse_scene(from_file.text(), 3, 1)
    assert again.agents == ("a", "b")
    np.testing.assert_array_equal(again.positions, from_file.positions)
    assert parse_scene("0 a 1 2", 3, 1).present.tolist() == [[False, False, True]]
    assert parse_scene("0, a b, 1, 2", 3, 1).agents == ("a b",)
    with pytest.raises(InputError, match="nowhere"):
        parse_scene("nowhere", 3, 1)
