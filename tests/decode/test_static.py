"""Steps of static shapes write what eager steps write."""

import pytest
import torch

from regard.decode.beam import Hypothesis, beam_search
from regard.decode.choose import Sampling
from regard.decode.engine import Given, eager, in_use
from regard.decode.sample import sample_all
from regard.decode.static import StaticShapes, StaticSteps, captured, compiled, round_rows
from regard.errors import RegardError
from regard.models.model import EncoderDecoder

from ..laws.cases import SHRINK, VOCABULARY, Case, decodable, name_of, one_of_each

ROWS = 3


def case(name):
    return Case(name, name, tuple(SHRINK[name]))


def static(model):
    shapes = StaticShapes(model, slots=8, width=4)
    return lambda given, capacity: StaticSteps(shapes, given, capacity)


def given(model, lengths=None):
    generator = torch.Generator().manual_seed(5)
    tokens = torch.randint(VOCABULARY, (ROWS, 2), generator=generator)
    if not isinstance(model, EncoderDecoder):
        return Given(tokens, lengths)
    source = torch.randint(VOCABULARY, (ROWS, 5), generator=generator)
    return Given(tokens, lengths, source, torch.tensor([5, 3, 4]))


def run(engine, given, share, drop=True):
    """Write six tokens per row, reorder rows, drop one halfway if asked for; return all scores."""
    steps = engine(given, given.tokens.shape[1] + 6)
    scores = steps.begin()
    found = [scores]
    steps.repeat(share)
    scores = scores.repeat_interleave(share, 0)
    for step in range(6):
        scores = steps.step((scores.argmax(-1) + torch.arange(len(scores)) % share) % VOCABULARY).clone()
        found.append(scores)
        groups = torch.arange(len(scores)).view(-1, share)
        if drop and step == 3:
            groups = groups[[2, 0]]
        if share > 1 or (drop and step == 3):
            steps.reorder(groups.flip(1).flatten())
            scores = scores[groups.flip(1).flatten()]
    return found


@pytest.mark.parametrize("case", decodable(), ids=name_of)
def test_static_steps_equal_growing_ones(case):
    """Two beams of each row, after prompts of different lengths."""
    check_static(case.build(), 2, torch.tensor([2, 1, 2]))


@pytest.mark.parametrize("case", one_of_each(), ids=name_of)
def test_static_steps_of_single_rows_equal_growing_ones(case):
    check_static(case.build(), 1, None)


def check_static(model, share, lengths):
    with in_use(model):
        expected = run(eager(model), given(model, lengths), share)
        engine = static(model)
        for _ in range(2):  # the second time in tensors that were used before
            for found, wanted in zip(run(engine, given(model, lengths), share), expected, strict=True):
                torch.testing.assert_close(found, wanted, rtol=0, atol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt2", "transformer-base", "rnn-attention"])
@pytest.mark.parametrize("limits", [[6, 6, 6], [6, 1, 2]])
def test_searches_find_the_same(name, limits, monkeypatch):
    """Also when rows leave, and when there are more kinds of work than are kept."""
    monkeypatch.setattr("regard.decode.static.WORKS", 2)
    model = case(name).build()
    engine = static(model)

    def texts(engine):
        begun, options = given(model), {"end": VOCABULARY - 1, "limits": limits, "forbidden": (1,)}
        found = [beam_search(engine, begun, beam=beam, **options) for beam in (1, 3, 4, 3)]
        for temperature, repetition in ((0.0, 1.0), (0.8, 1.0), (0.8, 1.5)):
            sampling = Sampling(temperature, top_p=0.9, repetition=repetition)
            found.append(sample_all(engine, begun, seeds=[1, 2, 3], sampling=sampling, **options))
        return found

    with in_use(model):
        for found, wanted in zip(texts(engine), texts(eager(model)), strict=True):
            assert ids(found) == ids(wanted)


def ids(found):
    return [[one.ids if isinstance(one, Hypothesis) else one for one in row] for row in found]


def test_scores_are_untouched_before_a_search_works_on_them():
    """Capturing runs the work more than once, before its first result is used; here as on CUDA."""
    model = case("gpt2").build()

    def forbid_first(logits, rows):
        before = logits[:, 0].clone()
        logits[:, 0] = -torch.inf
        return before, rows

    with in_use(model):
        steps = static(model)(given(model), 9)
        scores = steps.step(steps.begin().argmax(-1))
        wanted = scores[:, 0].clone()
        steps.shape.capture = lambda work: work() or work
        first, rows = steps.apply(forbid_first, scores, (torch.arange(ROWS),), ())
    assert torch.equal(first, wanted)
    assert rows.tolist() == [0, 1, 2]


@pytest.mark.compile
@pytest.mark.parametrize("case", decodable(), ids=name_of)
def test_compiled_steps_equal_eager_ones(case):
    """Greedy tokens are identical in float32."""
    torch._dynamo.reset()
    model = case.shallow().build(torch.float32)
    generates_code = case.name in ("gpt2", "transformer-base", "rnn-attention")  # which takes long

    def tokens(engine):
        with in_use(model):  # for each number of rows, a step is compiled again
            return [scores.argmax(-1).tolist() for scores in run(engine, given(model), 1, drop=generates_code)]

    if generates_code:
        engine = compiled(model)
    else:  # capturing the step is the same for all
        shapes = StaticShapes(model, slots=256, width=64)
        shapes.score = torch.compile(shapes.score, dynamic=False, backend="aot_eager", fullgraph=True)
        engine = lambda given, capacity: StaticSteps(shapes, given, capacity)  # noqa: E731
    assert tokens(engine) == tokens(eager(model))


def test_shapes_are_few_and_reused(monkeypatch):
    model = case("gpt2").build()
    shapes = StaticShapes(model, slots=8, width=4)
    with in_use(model):
        for rows in (3, 4, 3):
            steps = StaticSteps(shapes, Given(torch.zeros(rows, 1, dtype=torch.long)), 5)
            steps.step(steps.begin().argmax(-1))
        assert len(shapes.known) == 1
        monkeypatch.setattr("regard.decode.static.SHAPES", 2)
        for rows in (1, 2, 8):
            steps = StaticSteps(shapes, Given(torch.zeros(rows, 1, dtype=torch.long)), 5)
            steps.step(steps.begin().argmax(-1))
    assert [len(shape.tokens) for shape in shapes.known.values()] == [2, 8]


def test_numbers_of_rows_are_rounded_up():
    assert [round_rows(rows) for rows in (1, 2, 3, 5, 33, 64, 65, 130)] == [1, 2, 4, 8, 64, 64, 128, 192]


def test_graphs_are_for_cuda():
    with pytest.raises(RegardError, match="the engine 'captured' is for CUDA only; choose another engine or device"):
        captured(case("gpt2").build())
