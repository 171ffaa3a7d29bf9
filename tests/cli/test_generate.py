"""`regard generate`."""

import json
import os
import re
import sys
from pathlib import Path

import pytest

from regard.cli.sink import Sink
from regard.escape import one_line
from regard.use.convert import convert
from regard.use.load import load

from ..use.made import run
from .command import Command


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return run("language", tmp_path_factory.mktemp("runs") / "run", "byte")


@pytest.fixture
def regard(monkeypatch, capsys, tmp_path) -> Command:
    monkeypatch.chdir(tmp_path)
    return Command(monkeypatch, capsys)


def test_one_prompt_is_shown_as_it_is_written(regard, folder, monkeypatch):
    (text,) = load(folder, "cpu").generate(["red dog"], tokens=12)
    assert regard("generate", "red dog", "-m", folder, "--tokens", 12, "--seed", 0).out == f"red dog{text}\n"
    pieces: list[str] = []
    write = Sink.write
    monkeypatch.setattr(Sink, "write", lambda self, piece, **more: (pieces.append(piece), write(self, piece, **more)))
    regard("generate", "red dog", "-m", folder, "--tokens", 12, "--seed", 0)
    assert "".join(pieces) == f"red dog{text}\n"
    assert len(pieces) > 5
    assert regard("generate", "red dog", "-m", folder, "--tokens", 12, "--seed", 0, "-o", "out.txt").out == ""
    assert Path("out.txt").read_bytes().decode() == f"red dog{text}\n"


def test_a_folder_without_a_tokenizer_is_an_error_before_the_prompt_is_written(regard):
    convert(run("language", Path("run"), "bpe"), "huggingface", Path("written"))
    for path in Path("written").glob("*token*"):
        path.unlink()
    done = regard("generate", "red dog", "-m", "written")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("regard: written: has no tokenizer.json; put the one it was trained with into its")


def test_many_prompts_give_a_line_each(regard, folder, monkeypatch):
    model = load(folder, "cpu")
    prompts = ["red dog", "", "one"]
    made = model.generate(prompts, tokens=12, seed=3)
    options = ["-m", folder, "--tokens", 12, "--seed", 3]
    found = regard("generate", *prompts, *options).out
    assert found == "".join(f"{one_line(prompt + text)}\n" for prompt, text in zip(prompts, made, strict=True))
    Path("in.txt").write_text("red dog\n\none\n")
    by_file = regard("generate", "-f", "in.txt", *options).out.split("\n")
    assert by_file == [found.split("\n")[0], "", found.split("\n")[2], ""]  # a blank line stays one
    reader, writer = os.pipe()
    os.write(writer, b"red dog\n\none\n")
    os.close(writer)
    monkeypatch.setattr(sys, "stdin", os.fdopen(reader))
    assert regard("generate", *options).out.split("\n") == by_file


def test_json_keeps_prompt_and_texts_apart(regard, folder):
    done = regard("generate", "red", "one", "-m", folder, "--tokens", 8, "--tries", 2, "--seed", 0, "--json")
    rows = [json.loads(line) for line in done.out.splitlines()]
    assert [row["text"] for row in rows] == ["red", "one"]
    first = load(folder, "cpu").generate(["red", "one"], tokens=8)
    assert [row["continuations"][0] for row in rows] == first
    assert all(len(set(row["continuations"])) == 2 for row in rows)


def test_tries_without_json_are_lines(regard, folder):
    lines = regard("generate", "red", "-m", folder, "--tokens", 8, "--tries", 3).out.splitlines()
    assert len(set(lines)) == 3
    assert all(line.startswith("red") for line in lines)


def test_options_reach_the_sampling(regard, folder):
    base = ["generate", "red dog", "-m", folder, "--tokens", 10, "--seed", 0]
    greedy = regard(*base, "--temperature", 0).out
    for same in (["--top-k", 1], ["--top-p", 0.000001], ["--min-p", 1.0], ["--beam", 1]):
        assert regard(*base, *same).out == greedy
    assert regard(*base).out != greedy
    assert regard(*base, "--temperature", 0, "--repetition", 9.0).out != greedy
    text = greedy.removeprefix("red dog").removesuffix("\n")
    stopped = regard(*base, "--temperature", 0, "--stop", "nothing", "--stop", text[3]).out
    assert stopped == f"red dog{text[: text.index(text[3])]}\n"


def test_precision(regard, folder):
    base = ["generate", "red dog", "-m", folder, "--tokens", 10, "--seed", 0, "--device", "cpu", "--precision"]
    (text,) = load(folder, "cpu", precision="int8").generate(["red dog"], tokens=10)
    assert regard(*base, "int8").out == f"red dog{text}\n"
    assert regard.refused(*base, "int8", "--engine", "compiled") == (
        "int8 does not work with the engine 'compiled'; leave one of them out"
    )


def test_a_prompt_that_is_too_long(regard, folder):
    done = regard("generate", "red dog " * 9, "-m", folder, "--tokens", 4, "--seed", 0)
    assert done.out.startswith("red dog " * 9)
    assert done.err == "regard: 1 line was cut at the beginning, being over 12 tokens (first: line 1)\n"


def test_every_call_writes_another_text_and_says_how_to_repeat_it(regard, folder):
    base = ["generate", "red dog", "-m", folder, "--tokens", 30]
    first, second = regard(*base), regard(*base)
    assert first.out != second.out
    found = re.fullmatch(r"regard: another text each time; (--seed \d+) repeats this one\n", first.err)
    assert found is not None
    repeated = regard(*base, *found[1].split())
    assert (repeated.out, repeated.err) == (first.out, "")
    assert regard(*base, "--temperature", 0).err == regard(*base, "--beam", 2).err == "", "nothing is drawn"


def test_a_seed_without_sampling_is_named(regard, folder):
    base = ["generate", "red dog", "-m", folder, "--tokens", 3, "--seed", 5]
    said = "regard: --seed 5 changes nothing: the most likely text is searched for, and nothing is sampled\n"
    assert regard(*base, "--temperature", 0).err == regard(*base, "--beam", 2).err == said
    assert regard(*base, "--temperature", 0.1).err == ""


def test_numbers_that_cannot_be_are_named_as_the_user_typed_them(regard, folder):
    base = ["generate", "red", "-m", folder]
    for options, message in {
        ("--top-p", 2): "--top-p 2.0 must be above 0 and at most 1",
        ("--temperature", "nan"): "--temperature nan must be a finite number",
        ("--stop", ""): "--stop '' would end every text at once; give at least one character",
        ("--beam", 2, "--tries", 3): "--tries 3 must be at most --beam 2; search with a wider beam",
        ("--temperature", 0, "--tries", 3): "--tries 3 would repeat the same text at --temperature 0; choose a higher "
        "temperature, or --beam 3",
        ("--beam", 0): "--beam 0 must be at least 1",
        ("--batch-tokens", 0): "--batch-tokens 0 must be at least 1",
        ("--beam", 2, "--top-k", 3): "--top-k 3 samples tokens, --beam 2 searches for the most likely text; "
        "leave one of them out",
        ("--tokens", 10**26): f"--tokens {10**26} must be at most 2147483647",
    }.items():
        assert regard.refused(*base, *options) == message
