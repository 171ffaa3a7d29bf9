"""`python -m bench`: contestants are checked before they are timed, and the page is what the results say."""

from dataclasses import replace
from functools import partial

import pytest

from bench.__main__ import chosen
from bench.case import Case, Floor, Prepared, Setting, disagreements
from bench.recurrences_page import RECURRENCES, read_comparisons, render_recurrences
from bench.report import PAGE, read_results, render
from bench.runner import quartiles, run_case, run_together

CEILINGS = {"operations_per_s": 1e9, "bytes_per_s": 1e9}
REMEDY = "write it again: python -m bench --render"


def counting(path_or_fact: float, setting: Setting) -> Prepared:
    """Return a contestant that does nothing, with one fact."""
    return Prepared(lambda: None, 2.0, {"loss": path_or_fact})


def missing(setting: Setting) -> Prepared:
    raise ModuleNotFoundError("No module named 'peer'", name="peer")


def failing(setting: Setting) -> Prepared:
    raise ValueError("wrong |\n shape")


def case_of(**contestants) -> Case:
    return Case("a case", "about", "token", contestants, agree={"loss": 0.1}, floor=Floor(1000.0), seconds=0.0)


def test_a_case_is_timed_by_turns_and_peers_that_cannot_run_say_why():
    case = case_of(regard=partial(counting, 1.0), peer=partial(counting, 1.05), absent=missing, broken=failing)
    found = run_case(case, "cpu", 1, CEILINGS)
    assert found["wrong"] == []
    assert [list(found["contestants"][name]) for name in ("absent", "broken")] == [["absent"]] * 2
    assert found["contestants"]["absent"]["absent"] == "not installed: peer"
    assert found["contestants"]["broken"]["absent"] == "ValueError: wrong / shape"
    [ratio] = found["ratios"]
    assert (ratio["ours"], ratio["peer"]) == ("regard", "peer")
    assert found["contestants"]["regard"]["rounds"] >= 3
    assert found["floor"]["ms"] == pytest.approx(1e-3)
    assert "not installed: peer" in "\n".join(render({"here": whole(found)}).splitlines())


def whole(case: dict) -> dict:
    machine = {"name": "a machine", "device": "cpu", "cores": 2, "python": "3", "packages": {}}
    cases = {"a case": {"threads": 1, "load": 0.0, **case}}
    return {"date": "2026-11-16", "machine": machine, "ceilings": CEILINGS, "cases": cases}


def test_the_page_says_which_cases_were_measured_on_a_busy_machine():
    case = case_of(regard=partial(counting, 1.0), peer=partial(counting, 1.05))
    found = run_case(replace(case, goals={"peer": 1e9}), "cpu", 1, CEILINGS)
    assert "busy" not in render({"here": whole(found)}).partition("## a machine")[2]
    busy = render({"here": whole(found | {"load": 3.0, "threads": 2})})
    assert "2 threads; the machine was busy with other work, load 3.0" in busy
    assert "| met, on a busy machine |" in busy


def test_contestants_that_disagree_are_not_timed():
    found = run_case(case_of(regard=partial(counting, 1.0), peer=partial(counting, 2.0)), "cpu", 1, CEILINGS)
    assert found["wrong"] == ["loss: 1 by regard, 2 by peer"]
    assert found["contestants"] == {}
    assert "do not agree" in render({"here": whole(found)})


def test_the_contestants_of_several_cases_may_get_ready_together():
    case = case_of(regard=partial(counting, 1.0), peer=partial(counting, 1.05), absent=missing)
    found = list(run_together([case, case], "cpu", 1, lambda: CEILINGS, 60.0))
    assert [each for each, _ in found] == [case, case]
    for _, result in found:
        assert result["together"]
        assert len(result["ratios"]) == 1
        assert result["contestants"]["absent"]["absent"] == "not installed: peer"
        assert "got ready at the same time" in render({"here": whole(result)})


def test_peers_are_chosen_by_a_part_of_their_names():
    case = case_of(regard=missing, one=missing, other=missing)
    assert list(chosen(case, None, ["oth"]).contestants) == ["regard", "other"]
    assert list(chosen(case, None, []).contestants) == ["regard"]
    assert chosen(case, 3.0, None) == replace(case, seconds=3.0)


def test_facts_agree_within_their_tolerance():
    case = case_of(regard=partial(counting, 1.0), peer=partial(counting, 1.0))
    assert disagreements(case, {"regard": {"loss": 1.0}, "peer": {"loss": 1.09}}) == []
    assert disagreements(case, {"regard": {"loss": 1.0}, "peer": {"other": 5.0}}) == []
    assert len(disagreements(case, {"regard": {"loss": 1.0}, "peer": {"loss": 1.2}})) == 1


def test_quartiles():
    assert quartiles([1.0, 2.0, 3.0, 4.0, 5.0]) == [2.0, 4.0]
    assert quartiles([3.0]) == [3.0, 3.0]


def test_the_pages_are_rendered_from_the_measurements():
    assert PAGE.read_text(encoding="utf-8") == render(read_results()), REMEDY
    page = render_recurrences(read_results(), read_comparisons())
    assert RECURRENCES.read_text(encoding="utf-8") == page, REMEDY
