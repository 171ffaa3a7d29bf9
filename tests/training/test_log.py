"""The log files of a run: lines of JSON, and events that TensorBoard reads."""

import json
import math
from pathlib import Path
from unittest.mock import MagicMock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator
from tensorboard.summary.writer import event_file_writer
from tensorboard.util.tensor_util import make_ndarray

from regard.errors import RegardError
from regard.runs.records import read_metrics, read_samples
from regard.tasks.sample import Sample
from regard.training import log as log_module
from regard.training.log import Log


@pytest.fixture
def without_events(monkeypatch):
    """Opening TensorBoard is slow, and most tests do not need it."""
    monkeypatch.setattr(log_module, "_open_events", lambda folder, resume_step: MagicMock())


def test_a_log_without_tensorboard(tmp_path, monkeypatch):
    monkeypatch.setattr(log_module, "find_spec", lambda name: None)
    logged(tmp_path, steps=[1, 2])
    assert steps_of(tmp_path) == [1, 2]
    assert not (tmp_path / "tensorboard").exists()


def logged(folder, *, resume_step=0, steps=()):
    log = Log(folder, resume_step)
    for step in steps:
        log.write(step, "train", {"loss": 1.0 / (step + 1)})
        log.samples(step, [Sample(f"given {step}", "wanted", "made")])
    log.close()


def steps_of(folder):
    found = [record["step"] for record in read_metrics(folder)]
    assert list(read_samples(folder)) == found
    return found


@pytest.mark.usefixtures("without_events")
def test_a_line_is_one_object_and_is_there_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(log_module.time, "time", lambda: 1234.56789)
    log = Log(tmp_path / "new" / "run")
    log.write(3, "train", {"loss": 2.5, "tokens": 7})
    log.write(3, "valid", {"loss": 2.25, "BLEU": 23.4})
    lines = (tmp_path / "new" / "run" / "metrics.jsonl").read_text().splitlines()  # before the log is closed
    assert [json.loads(line) for line in lines] == [
        {"step": 3, "kind": "train", "time": 1234.568, "loss": 2.5, "tokens": 7},
        {"step": 3, "kind": "valid", "time": 1234.568, "loss": 2.25, "BLEU": 23.4},
    ]
    log.close()
    assert read_metrics(tmp_path / "new" / "run") == [json.loads(line) for line in lines]


@pytest.mark.usefixtures("without_events")
def test_what_json_lacks_becomes_null(tmp_path):
    log = Log(tmp_path)
    log.write(1, "train", {"loss": math.nan, "norm": math.inf, "low": -math.inf, "rate": 0.5})
    log.close()
    refuse = pytest.fail
    line = json.loads((tmp_path / "metrics.jsonl").read_text(), parse_constant=refuse)
    assert [line[name] for name in ("loss", "norm", "low", "rate")] == [None, None, None, 0.5]


@pytest.mark.usefixtures("without_events")
@pytest.mark.parametrize(("resume_step", "kept"), [(4, [0, 2, 4]), (3, [0, 2]), (9, [0, 2, 4, 6]), (0, [])])
def test_a_resumed_run_forgets_what_came_after(tmp_path, resume_step, kept):
    logged(tmp_path, steps=[0, 2, 4, 6])
    logged(tmp_path, resume_step=resume_step, steps=[resume_step + 1])
    assert steps_of(tmp_path) == [*kept, resume_step + 1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["metrics.jsonl", "samples.jsonl"]


@pytest.mark.usefixtures("without_events")
def test_every_cut_of_the_last_line_is_tolerated(tmp_path):
    logged(tmp_path, steps=[1, 2])
    path = tmp_path / "metrics.jsonl"
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    for end in range(first, len(whole) - 1):  # at len - 1 only the line's end is missing, and the object is whole
        path.write_bytes(whole[:end])
        assert [record["step"] for record in read_metrics(tmp_path)] == [1]
    path.write_bytes(whole[:-1])
    assert [record["step"] for record in read_metrics(tmp_path)] == [1, 2]
    path.write_bytes(whole[:-5])
    Log(tmp_path, resume_step=2).close()
    assert path.read_bytes() == whole[:first]


@pytest.mark.usefixtures("without_events")
@pytest.mark.parametrize("bad", [b'{"step": 1, "lo', b"[1]", b'{"kind": "train"}', b'{"step": true}', b"\xff\xfe", b""])
def test_a_broken_line_elsewhere_is_named(tmp_path, bad):
    (tmp_path / "metrics.jsonl").write_bytes(b'{"step": 1}\n' + bad + b'\n{"step": 2}\n')
    with pytest.raises(RegardError) as caught:
        read_metrics(tmp_path)
    assert str(caught.value) == f"{tmp_path / 'metrics.jsonl'}:2: not a line of this log; remove the line"


def test_a_broken_sample_is_named(tmp_path):
    (tmp_path / "samples.jsonl").write_text('{"step": 1, "given": "a", "wanted": 3, "made": "c"}\n')
    with pytest.raises(RegardError) as caught:
        read_samples(tmp_path)
    assert str(caught.value) == f"{tmp_path / 'samples.jsonl'}:1: not a sample of this log; remove the line"


def test_a_run_without_a_log_has_no_metrics(tmp_path):
    assert read_metrics(tmp_path) == []
    assert read_samples(tmp_path) == {}


@given(texts=st.lists(st.tuples(*[st.text(st.characters(), max_size=6)] * 3), max_size=4))
def test_samples_are_read_back_exactly(tmp_path_factory, texts):
    """Also line ends of all kinds, quotes, and halves of characters that UTF-8 cannot write."""
    folder = tmp_path_factory.mktemp("run")
    samples = [Sample(*three) for three in texts] + [Sample("a\u2028b\r\n", "\ud800", '"\\\0')]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_module, "_open_events", lambda folder, resume_step: MagicMock())
        log = Log(folder)
        log.samples(5, samples)
        log.close()
        Log(folder, resume_step=5).close()
    assert read_samples(folder) == {5: samples}


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RegardError, match="file/run: the log cannot be written here: Not a directory; choose another"):
        Log(tmp_path / "file" / "run")


@pytest.mark.usefixtures("without_events")
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no device that is always full")
def test_a_full_disk_is_reported(tmp_path):
    log = Log(tmp_path)
    log._metrics.close()
    log._metrics = open("/dev/full", "w")  # noqa: SIM115
    with pytest.raises(RegardError) as caught:
        log.write(1, "train", {"loss": 1.0})
    assert str(caught.value) == "/dev/full: cannot be written: No space left on device; free some space, then resume"
    with pytest.raises(OSError, match="No space"):  # the line is still waiting
        log._metrics.close()


@pytest.mark.usefixtures("without_events")
def test_the_names_of_the_log_are_its_own(tmp_path):
    log = Log(tmp_path)
    with pytest.raises(AssertionError, match="step"):
        log.write(1, "train", {"step": 2.0})
    log.close()


# --- TensorBoard -----------------------------------------------------------------------------------------------------


def test_tensorboard_reads_the_events_and_forgets_what_a_resumed_run_does_again(tmp_path, monkeypatch):
    # files of one second and one process are read by their number as text, of which "10" comes before "9"
    monkeypatch.setattr(event_file_writer, "_global_uid", event_file_writer.AtomicCounter(0))
    log = Log(tmp_path)
    for step in (1, 2, 3):
        log.write(step, "train", {"loss": float(step)})
    log.write(2, "valid", {"BLEU": 20.5})
    log.samples(3, [Sample("lost", "lost", "lost")])
    log.close()
    log = Log(tmp_path, resume_step=2)
    log.write(3, "train", {"loss": 30.0})
    log.samples(4, [Sample("one\ntwo", "", "<b>*made*</b> \ud800"), Sample("x", "y", "")])
    log.close()

    events = EventAccumulator(str(tmp_path / "tensorboard"), tensor_size_guidance={"scalars": 0, "text": 0})
    events.Reload()
    tags = [*events.PluginTagToContent("scalars"), *events.PluginTagToContent("text")]
    found = {tag: [(event.step, make_ndarray(event.tensor_proto)) for event in events.Tensors(tag)] for tag in tags}
    [(step, text)] = found.pop("samples/text_summary")
    assert found == {"train/loss": [(1, 1.0), (2, 2.0), (3, 30.0)], "valid/BLEU": [(2, 20.5)]}
    assert step == 4
    assert text.item().decode() == (
        "    given   one\n            two\n    made    <b>*made*</b> \\ud800"
        "\n\n---\n\n    given   x\n    wanted  y\n    made    (nothing)"
    )
