"""What all verbs share: lines in, answers out, mistakes, interruptions."""

import bz2
import gzip
import json
import lzma
import os
import pty
import signal
import subprocess
import sys
import threading
from codecs import BOM_UTF8
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import zstandard

from regard.cli.lines import Lines
from regard.cli.main import main
from regard.cli.sink import Sink
from regard.cli.stdin import read_available
from regard.cli.text import answer_all
from regard.errors import InputError, RegardError
from regard.use import batches, box
from regard.use.loaded_model import LoadedModel
from regard.use.translate import Candidate, TranslatedLine

from ..processes import PATIENCE, patient
from ..use.made import run
from .command import Command

LINES = ["red dog", "", "two blue cats", "  ", "one"]
FAST = ["--beam", 1, "--longest-ratio", 0.1]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A run of each kind."""
    place = tmp_path_factory.mktemp("runs")
    for kind in ("translation", "language"):
        run(kind, place / kind)
    return place


@pytest.fixture
def regard(monkeypatch, capsys, tmp_path) -> Command:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    return Command(monkeypatch, capsys)


def say(monkeypatch, *parts: bytes) -> None:
    """Make standard input a pipe with these bytes."""
    reader, writer = os.pipe()
    monkeypatch.setattr(sys, "stdin", os.fdopen(reader))
    for part in parts:
        os.write(writer, part)
    os.close(writer)


def test_a_line_of_a_pipe_without_an_end_is_cut(monkeypatch):
    monkeypatch.setattr("regard.cli.stdin.LONGEST", 7)
    say(monkeypatch, b"red dog", b"s\nredd\xc3\xa4", b"\xc3\xa4\xc3\xa4\xc3\xa4\nend")
    cuts: list[str] = []
    lines = [line for chunk in read_available(cuts.append) for line in chunk]
    assert lines == ["red dog", "reddä", "end"]
    assert cuts == ["standard input:1", "standard input:2"]


def test_lines_of_a_file_that_are_cut_are_reported(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("regard.data.lines.LONGEST", 10)
    path = tmp_path / "a.txt"
    path.write_text("short\n" + "long enough " * 9 + "\nlast\n")
    lines = Lines(None, path)
    assert list(lines.chunks().lists) == [["short", "long enoug", "last"]]
    assert capsys.readouterr().err == f"regard: 1 line was cut at the end, being over 1 MiB (first: {path}:2)\n"


def test_texts_file_and_standard_input_are_answered_alike(regard, folder, monkeypatch):
    Path("in.txt").write_text("".join(f"{line}\n" for line in LINES))
    verb = ["translate", "-m", folder / "translation", *FAST]
    by_file = regard(*verb, "-f", "in.txt")
    assert by_file.code == 0
    assert by_file.out.count("\n") == 5
    assert [bool(line) for line in by_file.out.split("\n")] == [True, False, True, False, True, False]
    assert regard(*verb, *LINES).out == by_file.out
    say(monkeypatch, Path("in.txt").read_bytes())
    assert regard(*verb).out == by_file.out
    say(monkeypatch, Path("in.txt").read_bytes().removesuffix(b"\n"))
    assert regard(*verb, "-f", "-").out == by_file.out
    assert regard(*verb, "-f", "in.txt", "-o", "out.txt").out == ""
    assert Path("out.txt").read_text() == by_file.out
    assert not Path("out.txt.part").exists()
    assert regard(*verb, "-f", "in.txt", "-o", "-").out == by_file.out
    assert not Path("-").exists()


@pytest.mark.parametrize(
    ("suffix", "pack"),
    [("gz", gzip.compress), ("xz", lzma.compress), ("bz2", bz2.compress), ("zst", zstandard.compress)],
)
def test_packed_files(regard, folder, suffix, pack):
    Path(f"in.txt.{suffix}").write_bytes(pack(b"red dog\r\n\r\none"))
    verb = ["translate", "-m", folder / "translation", *FAST]
    assert regard(*verb, "-f", f"in.txt.{suffix}").out == regard(*verb, "red dog", "", "one").out


def test_mistakes_in_what_is_given(regard, folder, monkeypatch):
    verb = ["translate", "-m", folder / "translation"]
    monkeypatch.setattr(box, "FOLDER", Path("nowhere"))
    wanted = "name a model: -m RUN, the folder that `regard train` printed, or a Hugging Face folder"
    assert regard.refused("translate", "red") == wanted
    assert (
        regard.refused(*verb, "red", "-f", "in.txt")
        == "both texts and the file in.txt were given; leave one of them out"
    )
    assert regard.refused(*verb, "-f", "in.txt") == "in.txt: no such file; check the path"
    Path("bad.txt").write_bytes(b"fine\n" * 3000 + b"\xff\n")
    assert regard.refused(*verb, "-f", "bad.txt", "-o", "out.txt").startswith(
        "bad.txt:3001: not valid UTF-8 (byte 0xff)"
    )
    assert not Path("out.txt.part").exists()
    say(monkeypatch, b"fine\nso \xe9\n")
    assert regard.refused(*verb) == "standard input:2: not valid UTF-8 (byte 0xe9); convert it to UTF-8"
    assert regard.refused(*verb, "red", "-o", "no/out.txt") == (
        "no/out.txt: cannot be written: the folder no does not exist; create it, or choose another -o"
    )
    assert regard.refused("translate", "red", "-m", ".").startswith(".: is not the folder of a run")
    assert "is a language model and cannot translate; use `generate`" in regard.refused(
        "translate", "red", "-m", folder / "language"
    )
    assert regard.refused(*verb, "red", "--engine", "fast").startswith("unknown engine 'fast'; use one of auto, ")
    assert regard.refused(*verb, "red", "--device", "cpux").startswith("unknown device 'cpux'; use auto, ")
    assert regard.refused(*verb, "red", "--column", "de") == (
        "--column de: is for a table, and no file was given; leave it out"
    )
    run_as_text = regard("translate", folder / "language", *verb[1:], *FAST)
    assert f"{folder}/language is read as a text; -m {folder}/language uses the model in this folder" in run_as_text.err
    half = b"\xff".decode(errors="surrogateescape")
    assert "not valid UTF-8" in regard.refused(*verb, half)


def test_files_of_the_user_are_not_touched_beside_the_output(regard, folder, monkeypatch):
    """FILE.part may be a file of the user, or hold the answers of an interrupted command."""
    Path("out.txt.part").write_text("precious")
    Path("out.txt.part2").mkdir()
    verb = ["translate", "red", "-m", folder / "translation", "-o", "out.txt"]
    assert regard(*verb).code == 0
    assert sorted(path.name for path in Path().iterdir()) == ["out.txt", "out.txt.part", "out.txt.part2"]
    assert Path("out.txt.part").read_text() == "precious"
    monkeypatch.setattr(LoadedModel, "translate_lines", lambda *arguments: interrupted())
    assert regard(*verb).err == "regard: stopped; the answers so far are in out.txt.part3\n"
    assert Path("out.txt.part").read_text() == "precious"


def interrupted() -> Iterator[tuple[str, TranslatedLine]]:
    yield "red", TranslatedLine((Candidate("rot", 0.0),))
    raise KeyboardInterrupt


def test_an_error_of_a_second_output_names_its_option(regard, folder):
    assert regard.refused("translate", "red", "-m", folder / "translation", "--alignments", "/nosuch/a") == (
        "/nosuch/a: cannot be written: the folder /nosuch does not exist; create it, or choose another --alignments"
    )


def test_a_terminal_does_not_obey_what_a_model_writes(monkeypatch, capsys):
    """Escape sequences of a text, a label or a file name are shown, not executed; a pipe gets them as they are."""
    text = "a\tb\x1b[2J\x9b31m\u202ec\r\n"
    for is_terminal, shown in ((True, "a\tb\\x1b[2J\\x9b31m\\u202ec\\r\n"), (False, text)):
        monkeypatch.setattr(sys.stdout, "isatty", lambda answer=is_terminal: answer)
        with Sink(None) as sink:
            sink.write(text)
        assert capsys.readouterr().out == shown


@pytest.mark.parametrize(
    ("name", "pack"),
    [
        ("empty.txt", bytes),
        ("marked.txt", lambda text: BOM_UTF8 + text),
        ("empty.txt.gz", gzip.compress),
        ("empty.txt.xz", lzma.compress),
        ("empty.txt.bz2", bz2.compress),
        ("empty.txt.zst", zstandard.compress),
        ("nothing.gz", bytes),
    ],
)
def test_an_empty_file_has_an_empty_answer(regard, folder, name, pack):
    Path(name).write_bytes(pack(b""))
    done = regard("translate", "-m", folder / "translation", "-f", name, "-o", "out.txt")
    assert (done.code, done.err, Path("out.txt").read_text()) == (0, "", "")


def test_what_was_done_is_kept_when_interrupted(regard, folder, monkeypatch):
    Path("in.txt").write_text("red dog\n" * 3)
    found = LoadedModel.translate_lines

    def interrupted(*arguments):
        yield from list(found(*arguments))[:2]
        raise KeyboardInterrupt

    monkeypatch.setattr(LoadedModel, "translate_lines", interrupted)
    done = regard("translate", "-m", folder / "translation", *FAST, "-f", "in.txt", "-o", "out.txt")
    assert (done.code, done.err) == (130, "regard: stopped; the answers so far are in out.txt.part\n")
    assert Path("out.txt.part").read_text().count("\n") == 2
    assert not Path("out.txt").exists()

    def mistaken(*arguments):
        yield from list(found(*arguments))[:1]
        raise InputError("line 2: is odd")

    monkeypatch.setattr(LoadedModel, "translate_lines", mistaken)
    assert regard.refused("translate", "-m", folder / "translation", *FAST, "-f", "in.txt", "-o", "new.txt") == (
        "line 2: is odd (the answers so far are in new.txt.part)"
    )


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("CUDA out of memory. Tried to allocate 20.00 GiB"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 4 bytes"),
    ],
)
def test_too_little_memory_is_a_message(regard, folder, monkeypatch, error):
    found = LoadedModel.translate_lines

    def greedy(*arguments):
        yield next(found(*arguments))
        raise error

    monkeypatch.setattr(LoadedModel, "translate_lines", greedy)
    verb = ["translate", "-m", folder / "translation", *FAST, "red", "dog"]
    size = {"": "", "C": " for 21.5 GB at once", "[": " for 4 B at once"}[str(error)[:1]]
    rule = f"not enough memory{size}; try a smaller --batch-tokens, fewer beams, or a smaller model"
    assert regard.refused(*verb) == rule
    assert regard.refused(*verb, "-o", "out.txt") == f"{rule} (the answers so far are in out.txt.part)"
    error.args = ("something else",)
    if isinstance(error, RuntimeError):
        with pytest.raises(RuntimeError, match="something else"):
            regard(*verb)


def test_long_lines_are_counted(regard, folder):
    long = " ".join(["red"] * 20)
    verb = ["translate", "-m", folder / "translation", *FAST]
    done = regard(*verb, "red", long)
    cut = "1 line was cut at the end, being over 11 tokens (first: line 2)"
    assert done.err == f'regard: {cut}; long="split" (--long split) keeps all of it\n'
    done = regard(*verb, "red", long, "--long", "split")
    assert (done.err, done.out.count("\n")) == ("", 2)
    assert regard.refused(*verb, "red", "--long", "drop").startswith("--long 'drop' is unknown; ")


# --- standard input ---------------------------------------------------------------------------------------------------


def test_a_pipe_that_pauses_is_answered(monkeypatch):
    reader, writer = os.pipe()
    monkeypatch.setattr(sys, "stdin", os.fdopen(reader))
    chunks = read_available(print)
    os.write(writer, b"one\ntwo\nthr")
    assert next(chunks) == ["one", "two"]
    os.write(writer, "ee é".encode()[:-1])
    os.write(writer, "é\n\nend".encode()[1:])
    os.close(writer)
    assert [line for chunk in chunks for line in chunk] == ["three é", "", "end"]


def test_a_full_pipe_is_answered_some_thousand_lines_at_a_time(monkeypatch):
    monkeypatch.setattr(batches, "CHUNK", 10)
    say(monkeypatch, b"red\n" * 25)
    assert [len(chunk) for chunk in Lines(None, None).chunks().lists] == [10, 10, 5]


@pytest.mark.parametrize("text", [b"red", b"red\n", b"red\ndog"])
def test_a_byte_order_mark_is_not_text(monkeypatch, text):
    say(monkeypatch, BOM_UTF8 + text)
    assert next(read_available(print))[0] == "red"


def test_a_full_pipe_is_read_in_large_parts(monkeypatch):
    reader, writer = os.pipe()
    monkeypatch.setattr(sys, "stdin", os.fdopen(reader))
    text = b"some line of text\n" * 150_000

    def write() -> None:
        with os.fdopen(writer, "wb") as file:
            file.write(text)

    threading.Thread(target=write, daemon=True).start()
    chunks = list(read_available(print))
    assert sum(map(len, chunks)) == 150_000
    assert max(map(len, chunks)) < 70_000
    assert {line for chunk in chunks for line in chunk} == {"some line of text"}


def test_a_closed_input_has_no_lines(regard, folder, monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)  # as Python has it
    assert regard("translate", "-m", folder / "translation", *FAST) == (0, "", "")


def test_texts_of_the_command_are_not_counted():
    lines = Lines(["a", "b", "c"], None)
    assert list(lines.chunks().lists) == [["a", "b", "c"]]
    assert lines.total is None


def test_a_file_is_counted(tmp_path):
    path = tmp_path / "a.txt"
    for text, count in (("a\nb\n", 2), ("a\nb", 2), ("\n", 1), ("\n\nx", 3)):
        path.write_text(text)
        assert (
            Lines(None, path).total
            == count
            == len([line for chunk in Lines(None, path).chunks().lists for line in chunk])
        )


def test_an_output_that_is_not_a_file_keeps_its_name(regard, folder):
    os.mkfifo("pipe")  # a mistake here would replace /dev/null, so that is not tried
    said: list[str] = []
    thread = threading.Thread(target=lambda: said.append(Path("pipe").read_text()), daemon=True)
    thread.start()
    assert regard("translate", "red", "-m", folder / "translation", *FAST, "-o", "pipe").code == 0
    thread.join(PATIENCE)
    assert said == [regard("translate", "red", "-m", folder / "translation", *FAST).out]
    assert (Path("pipe").is_fifo(), list(Path().glob("pipe.*"))) == (True, [])
    for text, answer in (("red", said[0]), ("", "")):
        threading.Thread(target=Path("pipe").write_text, args=(text,), daemon=True).start()
        done = regard("translate", "-f", "pipe", "-m", folder / "translation", *FAST)
        assert (done.code, done.out, done.err) == (0, answer, "")


def test_a_bar_moves_before_there_are_answers(monkeypatch, tmp_path):
    """Answers of some thousand lines come together; the bar shows that work is being done."""
    leader, follower = pty.openpty()
    monkeypatch.setenv("NO_COLOR", "1")
    (tmp_path / "in.txt").write_text("red\n" * 4)
    lines, sink = Lines(None, tmp_path / "in.txt"), Sink(tmp_path / "out.txt")

    def answers():
        for chunk in lines.chunks().lists:
            for _ in range(3):
                lines.feedback().done(1)
            raise KeyboardInterrupt
            yield chunk

    with os.fdopen(follower, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        with pytest.raises(KeyboardInterrupt):
            answer_all(lines, answers(), sink, lambda number, line, answer: None)
    assert "3/4 lines" in "".join(blocks_of(leader))
    os.close(leader)


def blocks_of(terminal: int) -> Iterator[str]:
    """Read what was written to a terminal, in as many blocks as it comes in, until its other end is closed."""
    with suppress(OSError):  # Linux says so at the end
        while block := os.read(terminal, 4096):
            yield block.decode()


def test_a_full_disk_is_a_message():
    sink = Sink(None)
    with (
        open("/dev/full", "wb", buffering=0) as sink.file,
        pytest.raises(RegardError, match=r"standard output: cannot be written: No space left on device; free some"),
    ):
        sink.write(b"red")


# --- real processes ---------------------------------------------------------------------------------------------------

PROGRAM = [sys.executable, "-c", "from regard.cli.main import main; main()"]


def test_closing_the_pipe_early_ends_quietly(folder, tmp_path):
    (tmp_path / "in.txt").write_text("\n" * 200_000)
    model = folder / "translation"
    program = f"{sys.executable} -c 'from regard.cli.main import main; main()'"
    command = f"{program} translate -m {model} --json -f {tmp_path}/in.txt | head -n 2; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=300, executable="/bin/bash")
    assert (done.stderr, done.stdout.count("\n")) == ("", 3)
    assert done.stdout.endswith("\n141\n")


@pytest.mark.parametrize("verb", ["translate", "generate", "classify", "fill", "embed", "evaluate", "convert", "look"])
def test_every_verb_ends_quietly_if_nobody_reads(verb, folder, monkeypatch, capsys, tmp_path):
    kind = {"classify": "classification", "fill": "masked", "embed": "masked", "translate": "translation"}
    model, more = folder / kind.get(verb, "language"), {"look": ["--csv", tmp_path / "a.csv"]}.get(verb, [])
    if not model.exists():
        run(model.name, model)
    arguments = [verb, "red [MASK]", "-m", model, *more]
    if verb == "convert":
        arguments = [verb, model, tmp_path / "new", "--to", "huggingface"]
    elif verb == "evaluate":
        arguments = [verb, model / "a.txt", "-m", model]
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as closed, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", closed)
        patch.setattr(sys, "argv", ["regard", *map(str, arguments)])
        with pytest.raises(SystemExit) as done:
            main()
        os.dup2(os.open(os.devnull, os.O_WRONLY), writer)  # what is still buffered cannot be written
    assert (done.value.code, capsys.readouterr().err) == (141, "")


def test_on_a_terminal(folder, tmp_path):
    """Lines that are typed are answered at once; a bar is on standard error only; Ctrl-C ends silently."""
    leader, follower = pty.openpty()
    command = [*PROGRAM, "generate", "-m", str(folder / "language"), "--tokens", "3"]
    process = subprocess.Popen(command, stdin=follower, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with patient(process):
        for typed in ("red", "one"):
            os.write(leader, f"{typed}\n".encode())
            answer = process.stdout.readline()
            assert answer.startswith(typed), answer or process.stderr.read()
        process.send_signal(signal.SIGINT)
        assert process.communicate() == ("", "type one line after another; Ctrl-D ends the input\n")
    assert process.returncode == 130

    (tmp_path / "in.txt").write_text("red\n" * 4)
    command = [*PROGRAM, "translate", "-m", str(folder / "translation"), "-f", str(tmp_path / "in.txt"), "--json"]
    plain = {**os.environ, "NO_COLOR": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=follower, text=True, env=plain)
    os.close(follower)
    with patient(process):
        shown = b""
        with suppress(OSError):  # raised when the last writer has closed the terminal
            while block := os.read(
                leader, 4096
            ):  # read while it is written, since the buffer of a terminal holds only a few bars
                shown += block
        answers = process.communicate()[0].splitlines()
    assert "4/4 lines" in shown.decode()
    assert [json.loads(line)["text"] for line in answers] == ["red"] * 4
    os.close(leader)


def test_half_a_character_is_written_as_an_escape_sequence(tmp_path):
    """A label of a model from elsewhere may hold one."""
    with Sink(tmp_path / "out.txt") as sink:
        sink.write("a \ud800 label")
    assert (tmp_path / "out.txt").read_text() == "a \\ud800 label"


def test_a_text_that_is_not_utf8_is_one_line():
    with pytest.raises(InputError, match=r"the text 'abc\\udcff' is not valid UTF-8; give it in UTF-8"):
        Lines(["abc\udcff"], None)


def test_an_open_file_of_the_system_is_written_to_and_never_replaced(tmp_path):
    """/dev/stdout is a link to a file if standard output is redirected to one; /dev/fd/N is one for any open file."""
    with (tmp_path / "log").open("w") as log:
        log.write("before\n")
        log.flush()
        with Sink(Path(f"/dev/fd/{log.fileno()}")) as sink:
            sink.write("answer\n")
    assert (tmp_path / "log").read_text() == "before\nanswer\n"
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


def test_the_file_behind_a_link_is_replaced_and_the_link_stays(tmp_path):
    (tmp_path / "real.txt").write_text("old")
    (tmp_path / "link.txt").symlink_to("real.txt")
    with Sink(tmp_path / "link.txt") as sink:
        sink.write("new")
    assert (tmp_path / "link.txt").is_symlink()
    assert (tmp_path / "real.txt").read_text() == "new"
