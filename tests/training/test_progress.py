"""Progress on a terminal, on a narrow one, and in a file; no text can control the terminal."""

import io
import re
import sys
from dataclasses import replace
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from regard.escape import escape_controls
from regard.tasks.sample import Sample
from regard.training import progress as progress_module
from regard.training.progress import Progress, Standing

from ..processes import Ended, Forked
from .command import close_output

STANDING = Standing(1200, 5000, 2.3104, 3e-4, 12_345.0, 1_200_000_000, 250.0, "BLEU 23.4")


class Terminal(io.StringIO):
    """A file that says it is a terminal."""

    def isatty(self):
        return True


def terminal(width=100, **settings):
    return Console(file=Terminal(), width=width, force_terminal=True, color_system="standard", **settings)


def pipe(width=80, encoding="utf-8"):
    return Console(file=io.TextIOWrapper(io.BytesIO(), encoding), width=width)


def read(console):
    console.file.flush()
    return console.file.buffer.getvalue().decode(console.file.encoding)


def screen(console):
    """Return what a terminal shows at the end; it handles line ends, moving the cursor up, and erasing a line."""
    lines, row, column = [""], 0, 0
    for control, up, letter in re.findall(
        "(\r|\n|\x1b\\[2K)|\x1b\\[(\\d+)A|\x1b\\[[0-9;?]*[a-z]|(.)", console.file.getvalue()
    ):
        if control == "\n":
            row, column = row + 1, 0
            lines += [""] * (row + 1 - len(lines))
        elif control == "\r":
            column = 0
        elif control:
            lines[row] = ""
        elif up:
            row -= int(up)
        elif letter:
            lines[row] = lines[row][:column].ljust(column) + letter + lines[row][column + 1 :]
            column += 1
    return [line.rstrip() for line in lines]


def steps_drawn(text):
    return [int(number) for number in re.findall(r"step +(\d+)/", text)]


def last_line(width, standing=STANDING):
    console = terminal(width)
    with Progress(console, standing.steps, 100) as progress:
        progress.step(standing)
    line, empty = screen(console)
    assert empty == ""
    return line


# --- the live line ---------------------------------------------------------------------------------------------------


COLUMNS = ["rate 3.0e-04", "1.2 GB", "12.3k tok/s", "BLEU 23.4", "4 min left", "loss 2.31", "step 1200/5000"]


def test_the_less_important_columns_vanish_first():
    """In the order of `COLUMNS`, as the terminal gets narrower."""
    for width in (100, 90, 80, 78, 70, 58, 48, 40, 26, 14):
        line = last_line(width)
        shown = [column in line for column in COLUMNS]
        assert shown == sorted(shown), line
        assert all(shown) == (width == 100) or width == 90, line
    assert "step 1200/5000" in last_line(14)


@given(
    width=st.integers(1, 200),
    standing=st.builds(
        Standing,
        step=st.integers(0, 10**7),
        steps=st.integers(1, 10**7),
        loss=st.floats(),
        rate=st.floats(0, 1),
        tokens_per_second=st.floats(0),
        memory=st.integers(0, 10**12),
        seconds_left=st.floats(0),
        metric=st.none() | st.text(max_size=12),
    ),
)
def test_a_line_never_wraps_and_holds_no_control_characters(width, standing):
    line = last_line(width, standing)
    assert cell_len(line) <= width
    assert not re.search(r"[\x00-\x1f\x7f-\x9f]", line)


def test_a_wide_terminal_stretches_the_bar_only_to_a_limit():
    assert last_line(300).count("━") + last_line(300).count("─") == progress_module.WIDEST_BAR


def test_a_terminal_that_knows_only_ascii_gets_ascii(monkeypatch):
    monkeypatch.setattr(Console, "encoding", "ascii")
    line = last_line(100, replace(STANDING, metric="Güte 3"))
    assert "##" in line
    assert "G\\xfcte 3" in line
    assert line.isascii()


def test_what_is_not_known_is_not_shown():
    unknown = replace(STANDING, tokens_per_second=nan, memory=0, seconds_left=inf, metric=None, loss=nan)
    assert re.sub("[━─]+", "bar", last_line(100, unknown)) == "step 1200/5000  bar  loss nan  rate 3.0e-04"


def test_columns_keep_their_width():
    console = terminal(width=78)
    with Progress(console, 5000, 100) as progress:
        progress.step(replace(STANDING, step=4999, loss=0.0123))
        progress.step(replace(STANDING, step=5000, loss=1.5))
    assert screen(console)[0] == "step 5000/5000  ━━━━━━━━━━━━━  loss 1.50    BLEU 23.4  12.3k tok/s  4 min left"


def test_drawn_a_few_times_a_second_and_where_it_stopped(monkeypatch):
    console = terminal()
    with Progress(console, 1000, 100) as progress:
        for step in range(1, 31):
            monkeypatch.setattr(progress_module, "monotonic", lambda now=step / 64: now)
            progress.step(replace(STANDING, step=step, steps=1000))
        assert steps_drawn(console.file.getvalue()) == [1, 14, 27]
    assert steps_drawn(console.file.getvalue()) == [1, 14, 27, 30]


def test_the_last_step_is_drawn_at_once(monkeypatch):
    monkeypatch.setattr(progress_module, "monotonic", lambda: 0.0)
    console = terminal()
    with Progress(console, 3, 100) as progress:
        for step in (1, 2, 3):
            progress.step(replace(STANDING, step=step, steps=3))
        assert steps_drawn(console.file.getvalue()) == [1, 3]


def test_the_terminal_is_restored_when_a_run_fails():
    def fail(console):
        with Progress(console, 10, 1) as progress:
            progress.step(replace(STANDING, step=1, steps=10))
            raise ZeroDivisionError

    console = terminal()
    with pytest.raises(ZeroDivisionError):
        fail(console)
    assert console.file.getvalue().endswith("\n\x1b[?25h")  # the cursor is back
    console.print("after")
    assert screen(console)[1:] == ["after", ""]


def test_nothing_is_drawn_before_the_first_step():
    console = terminal()
    with Progress(console, 10, 1) as progress:
        progress.say("hello")
    assert console.file.getvalue() == "hello\n"


def test_colours_unless_they_are_unwanted(monkeypatch):
    def shown():
        console = terminal()
        with Progress(console, 5000, 1) as progress:
            progress.step(STANDING)
            progress.validation(3, {"loss": 1.0}, best=True)
        return console.file.getvalue()

    monkeypatch.delenv("NO_COLOR", raising=False)
    colour = re.compile(r"\x1b\[[0-9;]*3[0-7][0-9;]*m")
    assert colour.search(shown())
    monkeypatch.setenv("NO_COLOR", "1")
    assert not colour.search(shown())


# --- plain lines -----------------------------------------------------------------------------------------------------


def test_plain_lines_every_so_often_and_at_the_end():
    console = pipe(width=20)  # a file has no width: nothing is wrapped
    with Progress(console, 5000, 600) as progress:
        for step in range(1001, 5001):
            progress.step(replace(STANDING, step=step))
            progress.step(replace(STANDING, step=step))  # called twice, printed once
    rest = "loss 2.31  BLEU 23.4  12.3k tok/s  1.2 GB  4 min left"
    steps = [1200, 1800, 2400, 3000, 3600, 4200, 4800, 5000]
    assert read(console) == "".join(f"step {step}/5000  {rest}\n" for step in steps)


def test_steps_may_be_skipped():
    console = pipe()
    with Progress(console, 100, 10) as progress:
        for step in (0, 7, 14, 21, 28, 35, 100):
            progress.step(replace(STANDING, step=step, steps=100, metric=None))
    assert steps_drawn(read(console)) == [0, 14, 21, 35, 100]


def test_forced_colours_do_not_make_a_pipe_a_terminal(monkeypatch):
    """Many CI systems set FORCE_COLOR, but their logs are files."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert Forked(take_a_step).end() == Ended(0, "step 1/2  loss 1.00  1 tok/s  1 s left\n\x1b[1mdone\x1b[0m\n")


def take_a_step() -> None:
    with Progress(Console(), 2, 1) as progress:
        progress.step(Standing(1, 2, 1.0, 1.0, 1.0, 0, 1.0))
        progress.say("done", "bold")


# --- lines above the bar --------------------------------------------------------------------------------------------


def test_validations_are_aligned_and_the_best_is_marked():
    console = pipe()
    with Progress(console, 5000, 100) as progress:
        progress.validation(200, {"loss": 3.21, "perplexity": 24.8, "BLEU": 9.87}, best=True)
        progress.validation(1400, {"loss": 0.0321, "perplexity": 1.0, "BLEU": 23}, best=False)
        progress.validation(1600, {"loss": 0.5, "perplexity": 1234.5, "BLEU": 0.0}, best=False)
    assert read(console).splitlines() == [
        "valid  200 best  loss 3.21  perplexity 24.8  BLEU 9.87",
        "valid 1400       loss 0.0321  perplexity 1.00  BLEU 23.0",
        "valid 1600       loss 0.500   perplexity 1234  BLEU 0.00",
    ]


def test_messages_are_above_the_live_line():
    console = terminal(width=40)
    with Progress(console, 5000, 100) as progress:
        progress.say("before")
        progress.step(STANDING)
        progress.say("checkpoint [bold]saved[/bold]\nand well, in a line that is longer than this terminal")
        progress.validation(1200, {"loss": 2.5}, best=True)
        progress.say("")
        print("from elsewhere")
    assert screen(console) == [
        "before",
        "checkpoint [bold]saved[/bold]",
        "and well, in a line that is longer than",
        "this terminal",
        "valid 1200 best  loss 2.50",
        "",
        "from elsewhere",
        "step 1200/5000  loss 2.31  4 min left",
        "",
    ]


def test_samples_are_cut_to_the_width_and_to_three():
    console = pipe(width=30)
    with Progress(console, 10, 1) as progress:
        progress.samples([Sample("a" * 20, "b" * 21, "日" * 11), *[Sample("", "", f"only {n}") for n in range(5)]])
    assert read(console).splitlines() == [
        "  given   " + "a" * 20,
        "  wanted  " + "b" * 19 + "…",
        "  made    " + "日" * 9 + "…",
        "",
        "  made    only 0",
        "",
        "  made    only 1",
        "",
    ]


def test_that_a_model_made_nothing_is_shown():
    console = pipe(width=30)
    with Progress(console, 10, 1) as progress:
        progress.samples([Sample("ein Hund", "a dog", ""), Sample("zwei", "", "two")])
    assert read(console).splitlines() == [
        "  given   ein Hund",
        "  wanted  a dog",
        "  made    (nothing)",
        "",
        "  given   zwei",
        "  made    two",
        "",
    ]


def test_in_ascii_samples_are_cut_in_ascii():
    console = pipe(width=30, encoding="ascii")
    with Progress(console, 10, 1) as progress:
        progress.samples([Sample("é" * 20, "", "ok")])
    assert read(console).splitlines()[0] == "  given   " + "\\xe9" * 4 + "\\..."


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("[red]x[/red] [/] :smile: [link=file:///]", "[red]x[/red] [/] :smile: [link=file:///]"),
        ("\x1b[31mred\x1b]0;title\x07", "\\x1b[31mred\\x1b]0;title\\x07"),
        ("a\nb\r\tc\x9b1mnel\x85", "a\\nb\\r\\tc\\x9b1mnel\\x85"),
        ("line\u2028paragraph\u2029", "line\\u2028paragraph\\u2029"),
        ("\u202etxt\u2066", "\\u202etxt\\u2066"),
        ("half \ud83d", "half \\ud83d"),
        ("日本 é ﻣﺮﺣﺒﺎ שלום 👩\u200d🚀 नमस्ते \\n", "日本 é ﻣﺮﺣﺒﺎ שלום 👩\u200d🚀 नमस्ते \\n"),
    ],
)
def test_control_characters_are_shown_escaped(text, shown):
    assert escape_controls(text) == shown
    console = pipe(width=200)
    with Progress(console, 10, 1) as progress:
        progress.samples([Sample("", "", text)])
    assert read(console) == f"  made    {shown}\n\n"


@given(text=st.text(st.characters(), max_size=40))
def test_no_text_controls_the_terminal(text):
    console = terminal(width=60, no_color=True)
    quiet = terminal(width=60, no_color=True)
    for screen, words in ((console, text), (quiet, "")):
        with Progress(screen, 10, 1) as progress:
            progress.say(words)
            progress.samples([Sample("x" + words, "", "")])
            progress.validation(1, {"loss" + words: 1.0}, best=False)
    controls = [re.findall(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", screen.file.getvalue()) for screen in (console, quiet)]
    assert controls[0] == controls[1]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min"),
        (3569.0, "59 min"),
        (3571.0, "1 h 0 min"),
        (4800.0, "1 h 20 min"),
        (86399.0, "1 d 0 h"),
        (183_600.0, "2 d 3 h"),
    ],
)
def test_the_time_left(seconds, text):
    console = pipe()
    with Progress(console, 5000, 1) as progress:
        progress.step(replace(STANDING, seconds_left=seconds))
    assert read(console).endswith(f"1.2 GB  {text} left\n")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2.3149, "2.31"),
        (0.0, "0.00"),
        (23.45, "23.4"),
        (99.97, "100"),
        (100.0, "100"),
        (1234.5, "1234"),
        (2.5e6, "2.5e+06"),
        (0.00123, "0.00123"),
        (1.234e-5, "1.23e-05"),
        (-3.5, "-3.50"),
        (nan, "nan"),
        (-inf, "-inf"),
    ],
)
def test_numbers_have_three_digits(value, text):
    console = pipe()
    with Progress(console, 9, 1) as progress:
        progress.validation(1, {"loss": value}, best=False)
    assert read(console) == f"valid 1       loss {text}\n"


@pytest.mark.parametrize(("speed", "text"), [(950.4, "950"), (1000.0, "1.0k"), (1.25e6, "1.2M"), (3e9, "3.0G")])
def test_the_speed_is_short(speed, text):
    assert f"{text} tok/s" in last_line(100, replace(STANDING, tokens_per_second=speed))


def test_a_reader_who_leaves_does_not_end_the_run():
    assert Forked(say_unread).end() == Ended(0, "went on\n")


def say_unread() -> None:
    close_output()
    with Progress(Console(), 10, 1) as progress:
        progress.say("unread")
        progress.say("nor this")
    print("went on", file=sys.stderr)
