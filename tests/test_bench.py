"""`python -m bench`: contestants are checked before they are timed, and the page is what the results say."""

import json
import signal
import subprocess
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from bench.__main__ import chosen
from bench.case import Case, Floor, Prepared, Setting, disagreements
from bench.cases.startup import command
from bench.profile import REST, group_of, grouped, profile_lines, profile_updates
from bench.recurrences_page import RECURRENCES, read_cells, read_comparisons, render_recurrences
from bench.report import PAGE, read_results, render
from bench.runner import Together, quartiles, run_case, run_together

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
    found = list(run_together([case, case], "cpu", 1, lambda: CEILINGS, Together(60.0)))
    assert [each for each, _ in found] == [case, case]
    for _, result in found:
        assert result["together"]
        assert len(result["ratios"]) == 1
        assert result["contestants"]["absent"]["absent"] == "not installed: peer"
        assert "got ready at the same time" in render({"here": whole(result)})


def stopping(path: Path, setting: Setting) -> Prepared:
    """Return a contestant whose runs note whether the file exists."""
    return Prepared(lambda: path.with_suffix(".seen").open("a").write(f"{path.exists()} "))


def test_while_contestants_are_timed_a_file_says_so(tmp_path):
    sign = tmp_path / "sign"
    how = Together(60.0, at_once=1, sign=sign)
    case = case_of(regard=partial(stopping, sign), peer=missing)
    [(_, found)] = run_together([case], "cpu", 1, lambda: CEILINGS, how)
    first, *timed = sign.with_suffix(".seen").read_text().split()
    assert first == "False"  # while it got ready
    assert set(timed) == {"True"}
    assert found["contestants"]["regard"]["rounds"] >= 3
    assert not sign.exists()


def sleeping(setting: Setting) -> Prepared:
    threading.Event().wait(60)
    raise AssertionError


def test_contestants_that_are_not_ready_in_time_are_left_out():
    case = case_of(regard=sleeping, peer=partial(counting, 1.0))
    [(_, found)] = run_together([case], "cpu", 1, lambda: CEILINGS, Together(0.0, at_once=1))
    assert {each["absent"] for each in found["contestants"].values()} == {"not ready within 0 s"}


# --- profiles --------------------------------------------------------------------------------------------------------


def test_the_memory_of_a_started_command_is_its_own():
    holding = partial(command, ("-c", "held = bytearray(300_000_000)"))
    found = run_case(case_of(regard=holding, peer=partial(command, ("-c", "pass"))), "cpu", 1, CEILINGS)
    large, small = (found["contestants"][name]["memory_mb"] for name in ("regard", "peer"))
    assert 300 < large < 400
    assert small < 300


def test_a_command_that_fails_is_absent():
    found = run_case(case_of(regard=partial(command, ("-c", "exit(3)"))), "cpu", 1, CEILINGS)
    assert "exit status 3" in found["contestants"]["regard"]["absent"]


def multiplying(setting: Setting) -> Prepared:
    import torch

    matrix = torch.ones(64, 64)
    return Prepared(lambda: [matrix @ matrix for _ in range(3)], 3.0, updates=3)


def test_a_contestant_that_runs_updates_is_profiled():
    found = run_case(case_of(regard=multiplying, peer=partial(counting, 1.0)), "cpu", 1, CEILINGS, profiles=True)
    profile = found["contestants"]["regard"]["profile"]
    assert [profile["kernels"][0][0], profile["kernels"][0][2]] == ["aten::mm", 1.0]
    assert "profile" not in found["contestants"]["peer"]
    page = render({"here": whole(found)})
    assert "| | attention | loss | products |" in page
    assert json.loads(json.dumps(found)) == found


def test_an_update_of_a_profile_is_the_mean_of_several():
    ran = []
    profile = profile_updates(lambda: ran.append(1), 4, "cpu")
    assert len(ran) == 2
    assert profile["kernels"] == []
    assert list(profile_lines({})) == []


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_bias_TNT", "products"),
        ("cublasLt::splitKreduce_kernel<32, 16, int, float", "products"),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_26", "attention"),
        ("_backward", "attention"),
        ("triton_poi_fused_masked_fill_short_attention_backward_transpose_view_11", "attention"),
        ("_compare_rows", "loss"),
        ("triton_red_fused__log_softmax__to_copy_nll_loss_forward_2", "loss"),
        ("multi_tensor_apply_kernel<FusedOptimizerTensorListMetadata<4>", "optimizer"),
        ("Memset (Device)", "copies"),
        ("triton_poi_fused__to_copy_t_5", "copies"),
        ("triton_per_fused__to_copy_add_native_layer_norm_backward_view_8", REST),
        ("triton_poi_fused_gelu_view_11", REST),
        ("aten::addmm", "products"),
        ("aten::_scaled_dot_product_flash_attention_for_cpu", "attention"),
        ("aten::_fused_adamw_", "optimizer"),
        ("aten::native_layer_norm", REST),
    ],
)
def test_kernels_are_grouped_by_their_names(name: str, group: str):
    assert group_of(name) == group
    profile = {"device": "cuda", "idle_ms": 1.5, "kernels": [[name, 2.0, 7]]}
    assert {key: ms for key, ms in grouped(profile).items() if ms} == {group: 2.0, "idle": 1.5}


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
    page = render_recurrences(read_results(), read_comparisons(), read_cells())
    assert RECURRENCES.read_text(encoding="utf-8") == page, REMEDY


def test_an_interrupt_ends_the_command_that_is_timed(tmp_path: Path, monkeypatch):
    started = []

    class Noted(subprocess.Popen):
        def __init__(self, *facts, **named):
            super().__init__(*facts, **named)
            started.append(self)

    def interrupted(process: int, options: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess, "Popen", Noted)
    monkeypatch.setattr("os.wait4", interrupted)
    prepared = command(("-c", "import time; time.sleep(600)"), Setting("cpu", 1, tmp_path))
    with pytest.raises(KeyboardInterrupt):
        prepared.run()
    try:
        assert started[0].returncode == -signal.SIGKILL
    finally:
        started[0].kill()
