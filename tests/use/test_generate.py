"""Continuing prompts: seeds, tries, stops, streams, and prompts that are too long."""

from math import nan

import pytest
import torch

from regard.decode.choose import Sampling
from regard.errors import ConfigError
from regard.use.generate import GenerateOptions, Prompt, row_seed

from .made import answers, loaded

PROMPTS = ["red dog", "", "two cats sleep", "one", "red dog"]


@pytest.fixture(scope="module", params=["gpt2", "lstm"])
def writer(request):
    return loaded("language", "bpe", request.param)


def test_the_same_seed_writes_the_same_text_in_any_batch(writer):
    alone = [writer.generate([prompt], tokens=12)[0] for prompt in PROMPTS]
    assert writer.generate(PROMPTS, tokens=12) == alone
    assert alone[0] == alone[-1]
    assert len(set(alone)) == 4
    other = writer.generate(PROMPTS, tokens=12, seed=1)
    assert all(one != two for one, two in zip(alone, other, strict=True))
    few = answers(writer.generate_lines(PROMPTS, GenerateOptions(tokens=12, batch_tokens=20)))
    assert [text for (text,) in few] == alone


def test_several_tries(writer):
    found = list(answers(writer.generate_lines(PROMPTS, GenerateOptions(tokens=12, tries=3))))
    assert [len(set(texts)) for texts in found] == [3] * 5
    assert [texts[0] for texts in found] == writer.generate(PROMPTS, tokens=12)


def test_without_temperature_the_most_likely_token_is_taken(writer):
    (text,) = writer.generate(["red dog"], tokens=6, temperature=0.0)
    words, model = writer.tokenizer, writer.model
    ids = [words.end, *words.encode(["red dog"])[0].tolist()]
    begin = len(ids)
    for _ in range(6):
        with torch.no_grad():
            logits = model(torch.tensor([ids]))[0, -1]
        logits[[words.pad, words.unk, words.start, words.mask]] = float("-inf")
        ids.append(int(logits.argmax()))
        if ids[-1] == words.end:
            break
    assert text == words.decode([ids])[0][len(words.decode([ids[:begin]])[0]) :]
    assert writer.generate(["red dog"], tokens=6, top_k=1) == [text]


@pytest.mark.parametrize("kind", ["byte", "char", "bpe", "word", "unigram"])
def test_the_stream_is_the_text(kind):
    writer = loaded("language", kind)
    for seed in range(3):
        pieces = list(writer.stream("red dog", tokens=20, seed=seed, stop=["a", "re"]))
        assert "".join(pieces) == writer.generate(["red dog"], tokens=20, seed=seed, stop=["a", "re"])[0]
    assert all(pieces)


def test_a_stream_arrives_in_pieces_and_leaves_torch_as_it_was():
    writer = loaded("language", "char")
    stream = writer.stream("red", tokens=10)
    writer.model.train()
    next(stream)
    assert writer.model.training
    assert torch.ones(1, requires_grad=True).mul(2).requires_grad
    assert len(list(stream)) > 3
    writer.model.eval()


@pytest.mark.parametrize("kind", ["char", "bpe"])
def test_a_text_ends_before_a_stop(kind):
    writer = loaded("language", kind)
    (whole,) = writer.generate(["red dog"], tokens=20)
    stop = whole[7:9]
    assert writer.generate(["red dog"], tokens=20, stop=[stop, "never there"]) == [whole[: whole.index(stop)]]
    assert writer.generate(["red dog"], tokens=20, stop=stop) == [whole[: whole.index(stop)]]  # one, not its letters


def test_a_stop_ends_the_work_too(monkeypatch):
    writer = loaded("language", "char")
    (whole,) = writer.generate(["red dog"], tokens=20)
    steps = 0
    step = type(writer.model).step

    def counted(self, *arguments):
        nonlocal steps
        steps += 1
        return step(self, *arguments)

    monkeypatch.setattr(type(writer.model), "step", counted)
    writer.generate(["red dog"], tokens=20, stop=[whole[2]])
    assert steps <= 3


def test_beams_find_a_likelier_text():
    writer = loaded("language", "word")
    options = GenerateOptions(tokens=5, beam=4, tries=2, length_penalty=0.0)
    (found,) = answers(writer.generate_lines(["red dog"], options))
    assert len(found) == 2
    alone = GenerateOptions(tokens=5, beam=4, length_penalty=0.0)
    assert list(writer.stream_line("red dog", alone)) == [found[0]]
    (greedy,) = writer.generate(["red dog"], tokens=5, temperature=0.0)
    assert likelihood(writer, "red dog", found[0]) >= likelihood(writer, "red dog", greedy) - 1e-9


def likelihood(writer, prompt: str, text: str) -> float:
    words = writer.tokenizer
    ids = [words.end, *words.encode([prompt + text])[0].tolist(), words.end]
    begin = 1 + len(words.encode([prompt])[0])
    with torch.no_grad():
        log_p = writer.model(torch.tensor([ids])).log_softmax(-1)[0]
    ends = len(ids) - begin <= 5
    return float(sum(log_p[place - 1, ids[place]] for place in range(begin, len(ids) - (not ends))))


def test_a_prompt_that_is_too_long_loses_its_beginning():
    writer = loaded("language", "char")  # with 32 positions
    long = "one red dog runs and two blue cats sleep"
    with pytest.warns(UserWarning, match=r"^1 line was cut at the beginning, being over 23 tokens \(first: line 2\)$"):
        made = writer.generate(["red", long], tokens=9)
    assert made[1] == writer.generate([long[-23:]], tokens=9)[0]


def test_writing_ends_where_the_positions_end():
    writer = loaded("language", "char")
    with pytest.warns(UserWarning, match="over 16 tokens"):
        (text,) = writer.generate(["one red dog runs and two"], tokens=500, temperature=0.0)
    assert len(text) <= 32 - 16
    (text,) = writer.generate(["red"], tokens=500, temperature=0.0)
    assert len(text) <= 32 - 4 + 1


def test_a_recurrence_has_no_limit():
    writer = loaded("language", "char", "lstm", longest=8)
    assert writer.bundle.text_limit is None
    assert loaded("language", "char", "llama-like", longest=8).bundle.text_limit == 7


def test_the_prompt_decides_the_seed_with_the_try():
    seeds = {row_seed(seed, Prompt(ids, number)) for seed in (0, 1) for ids in ([1], [2], [1, 2]) for number in (0, 1)}
    assert len(seeds) == 12
    assert row_seed(0, Prompt([1, 2])) == row_seed(0, Prompt([1, 2]))


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"tokens": 0}, "tokens=0 must be at least 1"),
        ({"tries": 0}, "tries=0 must be between 1 and 10000"),
        ({"beam": 0}, "beam=0 must be at least 1"),
        ({"length_penalty": nan}, "length_penalty=nan must be a finite number"),
        (
            {"tries": 3, "beam": 2},
            "tries=3 must be at most beam=2; search with a wider beam",
        ),
        ({"stop": ("",)}, "stop='' would end every text at once; give at least one character"),
    ],
)
def test_options_that_cannot_be(changes, rule):
    with pytest.raises(ConfigError, match=f"{rule}$"):
        GenerateOptions(**changes)


def test_a_repetition_penalty_is_heeded():
    writer = loaded("language", "word")
    plain = GenerateOptions(tokens=12, sampling=Sampling(0.0))
    varied = GenerateOptions(tokens=12, sampling=Sampling(0.0, repetition=50.0))
    counts = [
        len(set(next(answers(writer.generate_lines(["red"], options)))[0].split())) for options in (plain, varied)
    ]
    assert counts[1] > counts[0]
