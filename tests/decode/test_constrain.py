"""Constraints: every text is accepted, the best one is found as exhaustive search finds it, rows are independent."""

from itertools import product

import pytest
import torch

from regard.decode.beam import beam_search
from regard.decode.choose import Sampling
from regard.decode.constrain import Constraint
from regard.decode.engine import Given
from regard.decode.sample import sample_all
from regard.errors import InputError

from .script import Script

END, VOCABULARY = 0, 5


class Rising(Constraint):
    """Texts of tokens that never fall, of at most three tokens, none below the number of the row."""

    def start(self, row: int) -> tuple[int, int]:
        return row % 3 + 1, 0

    def allowed(self, state: tuple[int, int]) -> list[int]:
        least, written = state
        return [END] if written == 3 else [*range(least, VOCABULARY), *([END] if written else [])]

    def advance(self, state: tuple[int, int], token: int) -> tuple[int, int]:
        assert token in self.allowed(state)
        return token, state[1] + 1


def is_rising(text: list[int], row: int) -> bool:
    return 1 <= len(text) <= 3 and [row % 3 + 1, *text] == sorted([row % 3 + 1, *text])


def given(rows: int) -> Given:
    return Given(torch.tensor([[9 + row] for row in range(rows)]))


def log_p(script: Script, row: int, text: tuple[int, ...]) -> float:
    """Sum log p of each token among those that are allowed before it."""
    constraint = Rising()
    state, total = constraint.start(row), 0.0
    for place, token in enumerate([*text, END]):
        allowed = list(constraint.allowed(state))
        logits = script.logits((9 + row, *text[:place]))[allowed]
        total += float(logits.log_softmax(-1)[allowed.index(token)])
        state = constraint.advance(state, token) if token != END else state
    return total


@pytest.mark.parametrize("beam", [1, 2, 64])
def test_every_text_of_a_search_is_accepted(beam):
    script = Script(VOCABULARY, seed=beam)
    found = beam_search(script, given(7), end=END, limits=[9] * 7, beam=beam, best=min(beam, 3), constraint=Rising())
    for row, hypotheses in enumerate(found):
        assert hypotheses
        for one in hypotheses:
            assert is_rising(one.ids, row)
            assert one.log_probability == pytest.approx(log_p(script, row, tuple(one.ids)))


def test_a_wide_beam_finds_the_best_text_of_all():
    script = Script(VOCABULARY, seed=3)
    found = beam_search(script, given(3), end=END, limits=[9] * 3, beam=64, length_penalty=0.0, constraint=Rising())
    for row, (best,) in enumerate(found):
        texts = [text for size in (1, 2, 3) for text in product(range(1, 5), repeat=size) if is_rising(list(text), row)]
        assert tuple(best.ids) == max(texts, key=lambda text: log_p(script, row, text))


@pytest.mark.parametrize("temperature", [0.0, 1.0, 100.0])
def test_every_sample_is_accepted_and_independent_of_other_rows(temperature):
    def sampled(rows: int) -> list[list[int]]:
        return sample_all(
            Script(VOCABULARY, seed=1),
            given(rows),
            end=END,
            limits=[9] * rows,
            sampling=Sampling(temperature=temperature, top_p=0.9),
            seeds=list(range(rows)),
            constraint=Rising(),
        )

    texts = sampled(9)
    assert all(is_rising(text, row) for row, text in enumerate(texts))
    assert texts[:4] == sampled(4)
    assert len({tuple(text) for text in texts}) > 2


def test_a_token_without_an_alternative_costs_nothing():
    class Forced(Constraint):
        def start(self, row: int) -> tuple[int, ...]:
            return (3, 1, END)

        def allowed(self, state: tuple[int, ...]) -> tuple[int, ...]:
            return state[:1]

        def advance(self, state: tuple[int, ...], token: int) -> tuple[int, ...]:
            return state[1:]

    ((best,),) = beam_search(Script(VOCABULARY), given(1), end=END, limits=[9], beam=3, constraint=Forced())
    assert best.ids == [3, 1]
    assert best.log_probability == pytest.approx(0.0, abs=1e-12)


def test_a_constraint_that_allows_nothing_is_an_error():
    class Nothing(Rising):
        def allowed(self, state: tuple[int, int]) -> list[int]:
            return []

    with pytest.raises(InputError, match="the constraint Nothing allows no token"):
        beam_search(Script(VOCABULARY), given(1), end=END, limits=[9], constraint=Nothing())


def test_a_constraint_that_allows_only_forbidden_tokens_is_an_error():
    script, options = Script(VOCABULARY), {"end": END, "limits": [9], "forbidden": range(1, VOCABULARY)}
    with pytest.raises(InputError, match="the constraint Rising allows only forbidden tokens in the state \\(1, 0\\)"):
        beam_search(script, given(1), constraint=Rising(), **options)
    with pytest.raises(InputError, match="the constraint Rising allows only forbidden tokens in the state \\(1, 0\\)"):
        sample_all(script, given(1), constraint=Rising(), sampling=Sampling(), seeds=[0], **options)


def test_rows_with_a_limit_of_zero_write_nothing():
    found = beam_search(Script(VOCABULARY), given(2), end=END, limits=[0, 9], beam=2, constraint=Rising())
    assert [one.ids for one in found[0]] == [[]]
    assert is_rising(found[1][0].ids, 1)
