"""Beam search against all possible texts, against a plain loop over one sentence, and against Hugging Face's."""

import math
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers import MarianConfig, MarianMTModel

from regard.decode import rows
from regard.decode.beam import Hypothesis, beam_search, coverage
from regard.decode.engine import Given, Steps, eager, in_use
from regard.decode.rows import fit_limits
from regard.errors import ConfigError, InputError
from regard.models.model import EncoderDecoder

from ..laws.cases import SHRINK, VARIANTS, VOCABULARY, Case
from .script import Script, prompts

END = 2


def log_p(script: Script, text: tuple[int, ...]) -> list[float]:
    return script.logits(text).log_softmax(-1).tolist()


def score(total: float, length: int, alpha: float) -> float:
    return total / ((5 + length) / 6) ** alpha


def every_text(script: Script, prompt: tuple[int, ...], limit: int, alpha: float) -> list[Hypothesis]:
    """Return all possible texts, the best first."""
    found = []
    others = [token for token in range(script.vocabulary) if token != END]
    for length in range(limit + 1):
        for ids in product(others, repeat=length):
            whole = [*ids, END] if length < limit else [*ids]
            total = sum(log_p(script, (*prompt, *ids[:at]))[token] for at, token in enumerate(whole))
            found.append(Hypothesis([*ids], score(total, len(whole), alpha), total))
    return sorted(found, key=lambda one: -one.score)


def plain_search(
    script: Script,
    prompt: tuple[int, ...],
    limit: int,
    beam: int,
    alpha: float,
    ends: tuple[int, ...] = (END,),
    forbidden: tuple[int, ...] = (),
) -> list[Hypothesis]:
    """Search for one sentence, by the definition."""
    finished, alive = [], [((), 0.0)]
    for length in range(1, limit + 1):
        candidates = [
            ((*ids, token), total + value)
            for ids, total in alive
            for token, value in enumerate(log_p(script, (*prompt, *ids)))
            if token not in forbidden
        ]
        candidates.sort(key=lambda pair: -pair[1])
        for ids, total in candidates[:beam]:
            if ids[-1] in ends:
                finished.append(Hypothesis([*ids[:-1]], score(total, length, alpha), total))
        alive = [pair for pair in candidates if pair[0][-1] not in ends][:beam]
        if len(finished) >= beam:
            break
    else:
        finished += [Hypothesis([*ids], score(total, limit, alpha), total) for ids, total in alive]
    return sorted(finished, key=lambda one: -one.score)[:beam]


def same(found: list[Hypothesis], wanted: list[Hypothesis]) -> None:
    assert [one.ids for one in found] == [one.ids for one in wanted]
    for field in ("score", "log_probability"):
        assert [getattr(one, field) for one in found] == pytest.approx([getattr(one, field) for one in wanted])


# --- scripts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [0.0, 0.6, 2.0, -1.0])
@pytest.mark.parametrize("seed", range(4))
def test_a_beam_that_holds_all_texts_finds_the_best(alpha, seed):
    script, prompt = Script(3, seed), (1, 0)
    wanted = every_text(script, prompt, 4, alpha)
    (found,) = beam_search(script, prompts(prompt), end=END, limits=[4], beam=60, best=60, length_penalty=alpha)
    same(found, wanted)
    assert sum(math.exp(one.log_probability) for one in found) == pytest.approx(1)


ROWS = [(5,), (3, 4, 4), (6, 1), (5, 0), (7, 7, 6, 3, 1), (0,)]
LIMITS = [7, 4, 0, 12, 3, 9]


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    vocabulary=st.integers(8, 20),
    beam=st.integers(1, 9),
    alpha=st.sampled_from([0.0, 0.6, 1.5]),
    every=st.sampled_from([1, 2, 8, 50]),
    ends=st.sets(st.integers(0, 7), max_size=3).map(lambda ids: tuple(sorted(ids))),
    forbidden=st.sets(st.integers(0, 7), max_size=2).map(tuple),
)
def test_rows_together_are_plain_searches(seed, vocabulary, beam, alpha, every, ends, forbidden):
    script = Script(vocabulary, seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "check_interval", lambda device: every)
        found = beam_search(
            script,
            prompts(*ROWS),
            end=ends,
            limits=LIMITS,
            beam=beam,
            best=beam,
            length_penalty=alpha,
            forbidden=forbidden,
        )
    assert found[2] == [Hypothesis([], 0.0, 0.0)]  # nothing may be written
    for row in (0, 1, 3, 4, 5):
        same(found[row], plain_search(script, ROWS[row], LIMITS[row], beam, alpha, ends, forbidden))


@settings(max_examples=40)
@given(seed=st.integers(0, 10**6), vocabulary=st.integers(2, 5), beam=st.integers(2, 12), end=st.integers(0, 1))
def test_a_vocabulary_smaller_than_the_beam(seed, vocabulary, beam, end):
    """Also where the first token of the vocabulary is the end."""
    script = Script(vocabulary, seed)
    found = beam_search(script, prompts((0,), (1, 1)), end=end, limits=[5, 3], beam=beam, best=beam)
    same(found[0], plain_search(script, (0,), 5, beam, 0.6, (end,)))
    same(found[1], plain_search(script, (1, 1), 3, beam, 0.6, (end,)))


def test_if_only_the_end_is_allowed_there_is_one_text():
    found = beam_search(Script(4), prompts((1,)), end=END, limits=[6], beam=3, best=3, forbidden=[0, 1, 3])
    assert [[one.ids for one in row] for row in found] == [[[]]]
    assert found[0][0].log_probability == pytest.approx(log_p(Script(4), (1,))[END])  # the model's own


def test_best_is_how_many_are_returned():
    script = Script(9)
    options = {"end": END, "limits": [6, 6], "beam": 4}
    all_four = beam_search(script, prompts((1,), (3,)), best=4, **options)
    assert [len(row) for row in all_four] == [4, 4]
    assert beam_search(script, prompts((1,), (3,)), best=2, **options) == [row[:2] for row in all_four]
    assert beam_search(script, prompts((1,), (3,)), **options) == [row[:1] for row in all_four]


def test_a_forced_prefix_is_not_part_of_what_is_returned():
    script = Script(9)
    (found,) = beam_search(script, prompts((1, 4, 4)), end=END, limits=[5], beam=3, best=3)
    same(found, plain_search(script, (1, 4, 4), 5, 3, 0.6))
    assert found[0].ids[:2] != [4, 4]


def test_ties_come_in_the_same_order_every_time():
    """With equal scores for all texts: other rows, their order and another run change nothing."""
    script = Script(7, spread=0.0)
    alone = [beam_search(script, prompts((row,)), end=END, limits=[4], beam=3, best=3)[0] for row in range(5)]
    together = beam_search(script, prompts(*((row,) for row in range(5))), end=END, limits=[4] * 5, beam=3, best=3)
    assert together == alone


def test_one_beam_is_greedy_and_never_reorders():
    script = Script(9)
    found = beam_search(script, prompts((1,)), end=END, limits=[8], beam=1)
    text = [1]
    while len(text) <= 8 and (token := int(script.logits(text).argmax())) != END:
        text.append(token)
    assert [[one.ids for one in row] for row in found] == [[text[1:]]]
    assert script.reorders == 0


@pytest.mark.parametrize("beam", [1, 2])
def test_rows_leave_with_all_their_beams_when_half_of_them_are_done(beam):
    script, given = Script(9), prompts(*((row,) for row in range(5)))
    found = beam_search(script, given, end=(), limits=[2, 1, 4, 1, 6], beam=beam)
    assert [len(row[0].ids) for row in found] == [2, 1, 4, 1, 6]
    assert script.asked == [5, *(beam * count for count in (5, 2, 2, 1, 1))]


def test_rows_leave_when_they_have_ended():
    told = {(3,): END, (4,): 5, (4, 5): 6, (4, 5, 6): END}
    script = Script(9, told=told)
    found = beam_search(script, prompts((3,), (4,)), end=END, limits=[6, 6], beam=1)
    assert [row[0].ids for row in found] == [[], [5, 6]]
    assert script.asked == [2, 1, 1]


@pytest.mark.parametrize("beam", [1, 3])
def test_a_row_leaves_before_it_exceeds_the_capacity(beam):
    """Although less than half are done. (The steps check the capacity.)"""
    script = Script(9)
    given = prompts((1,) * 9, (3,), (4,), (5,))
    found = beam_search(script, given, end=(), limits=[2, 10, 10, 10], beam=beam)
    assert [len(row[0].ids) for row in found] == [2, 10, 10, 10]


def test_no_step_runs_if_nothing_may_be_written():
    script = Script(9)
    found = beam_search(script, prompts((5,), (6,)), end=END, limits=[0, 0])
    assert found == [[Hypothesis([], 0.0, 0.0)]] * 2
    assert script.asked == []


@pytest.mark.parametrize(("beam", "best"), [(4, 5), (4, 0), (0, 1)])
def test_bad_beams(beam, best):
    with pytest.raises(ConfigError, match=f"^best={best} must be at least 1 and at most beam={beam}$"):
        beam_search(Script(9), prompts((1,)), end=END, limits=[3], beam=beam, best=best)


def test_half_precision_scores_are_summed_in_float32():
    class Half(Script):
        def logits(self, text):
            return super().logits(text).bfloat16()

    script = Half(500, spread=0.5)
    for beam in (1, 4):
        (found,) = beam_search(script, prompts((1,)), end=END, limits=[20], beam=beam)
        text = found[0].ids
        total = sum(script.logits((1, *text[:at])).double().log_softmax(-1)[id] for at, id in enumerate(text))
        assert found[0].log_probability == pytest.approx(float(total), rel=1e-5)


# --- models ----------------------------------------------------------------------------------------------------------


def case(name: str, *overrides: str) -> Case:
    recipe, changes = VARIANTS.get(name, (name, SHRINK.get(name, [])))
    return Case(name, recipe, (*changes, *overrides))


class Reading(Script):
    """A translator as a script: a whole pass for every text."""

    def __init__(self, model: EncoderDecoder, source: Tensor) -> None:
        super().__init__(VOCABULARY)
        self.model, self.source = model, source

    @torch.no_grad()
    def logits(self, text):
        return self.model(self.source[None], torch.tensor([text]))[0, -1]


@pytest.mark.slow
@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize("name", ["rnn-attention", "rnn-seq2seq", "transformer-base", "rnn-attention-input-feeding"])
def test_translating_is_the_plain_search_row_by_row(name, beam):
    """With a forced prefix for some, and limits of their own."""
    model = case(name).build()
    source = torch.randint(3, VOCABULARY, (4, 7), generator=torch.Generator().manual_seed(0))
    lengths, limits = [7, 3, 1, 6], [8, 5, 8, 3]
    starts = prompts((1,), (1, 5, 4), (1,), (1, 9))
    given = Given(starts.tokens, starts.lengths, source, torch.tensor(lengths))
    with in_use(model):
        found = beam_search(eager(model), given, end=(END, 7), limits=limits, beam=beam, best=beam)
    for row in range(4):
        script = Reading(model, source[row, : lengths[row]])
        start = tuple(starts.tokens[row, : starts.lengths[row]].tolist())
        same(found[row], plain_search(script, start, limits[row], beam, 0.6, (END, 7)))


def test_a_translation_stops_at_the_table_of_positions():
    changes = ["model.embed.position.kind=learned", "model.embed.position.length=9"]
    model = case("transformer-base", *changes).build()
    source = torch.randint(3, VOCABULARY, (3, 6), generator=torch.Generator().manual_seed(0))
    starts = prompts((1,), (1, 5, 4), (1, 4))
    given = Given(starts.tokens, starts.lengths, source)
    limits = fit_limits(model, given, [20, 20, 4])
    assert limits == [9, 7, 4]
    with in_use(model):
        for beam in (1, 3):
            found = beam_search(eager(model), given, end=VOCABULARY, limits=limits, beam=beam)
            assert [len(row[0].ids) for row in found] == limits
        with pytest.raises(InputError, match="table of 9 positions"):
            beam_search(eager(model), given, end=VOCABULARY, limits=[20] * 3)


class MarianSteps(Steps):
    """Hugging Face's model, without a cache."""

    def __init__(self, model: MarianMTModel, source: Tensor, mask: Tensor, start: Tensor) -> None:
        self.model, self.source, self.mask, self.text = model, source, mask, start

    def begin(self) -> Tensor:
        found = self.model(input_ids=self.source, attention_mask=self.mask, decoder_input_ids=self.text)
        return found.logits[:, -1]

    def step(self, tokens: Tensor) -> Tensor:
        self.text = torch.cat((self.text, tokens[:, None]), 1)
        return self.begin()

    def repeat(self, times: int) -> None:
        self.reorder(torch.arange(len(self.text)).repeat_interleave(times))

    def reorder(self, index: Tensor) -> None:
        self.source, self.mask, self.text = self.source[index], self.mask[index], self.text[index]


@torch.no_grad()
@pytest.mark.parametrize(("seed", "ending"), [(0, 3.0), (1, 2.0), (2, 3.0)])
def test_the_search_of_hugging_face_finds_the_same(seed, ending):
    torch.manual_seed(seed)
    config = MarianConfig(
        vocab_size=23,
        d_model=16,
        encoder_layers=1,
        decoder_layers=2,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=24,
        decoder_ffn_dim=24,
        max_position_embeddings=40,
        pad_token_id=22,
        eos_token_id=0,
        decoder_start_token_id=22,
        forced_eos_token_id=None,
        init_std=0.7,
    )
    model = MarianMTModel(config).eval()
    model.final_logits_bias[0, 0] = ending  # so that texts end, but not all at the same step
    model.final_logits_bias[0, 22] = -1e4  # and have no padding inside
    source = torch.randint(1, 22, (5, 8))
    lengths = torch.tensor([8, 3, 5, 1, 8])
    mask = (torch.arange(8) < lengths[:, None]).long()
    start = torch.full((5, 1), 22)
    theirs = model.generate(
        source,
        attention_mask=mask,
        num_beams=4,
        num_return_sequences=4,
        early_stopping=True,
        length_penalty=0.0,
        max_new_tokens=12,
        do_sample=False,
        return_dict_in_generate=True,
        output_scores=True,
    )
    found = beam_search(
        lambda given, room: MarianSteps(model, source, mask, start),
        Given(start),
        end=0,
        limits=[12] * 5,
        beam=4,
        best=4,
        length_penalty=0.0,
    )
    wanted = [row[: (*row, 0).index(0)] for row in theirs.sequences[:, 1:].tolist()]
    ours = [one for row in found for one in row]
    assert [one.ids for one in ours] == wanted
    assert [one.score for one in ours] == pytest.approx(theirs.sequences_scores.tolist(), rel=1e-4)
    assert len({len(ids) for ids in wanted}) > 2


# --- coverage --------------------------------------------------------------------------------------------------------


def test_coverage_penalises_unattended_tokens():
    weights = torch.tensor([[0.9, 0.1, 0.0], [0.8, 0.1, 0.1]], dtype=torch.float64)
    assert coverage(weights) == pytest.approx(math.log(1.0) + math.log(0.2) + math.log(0.1))
    assert coverage(torch.eye(3)) == 0
    assert coverage(torch.eye(3)[:2]) < -50  # a token that was never attended to: very low, but finite
    assert math.isfinite(coverage(torch.eye(3)[:0]))


@pytest.mark.parametrize("beam", [1, 3])
def test_scores_that_are_not_finite_are_no_texts_and_leave_the_other_rows_alone(beam: int) -> None:
    class Diverged(Script):
        def logits(self, text):
            return super().logits(text) * (math.nan if text[0] == 0 else 1)

    options = {"end": END, "limits": [3, 3], "beam": beam, "best": beam}
    with torch.no_grad():
        none, found = beam_search(Diverged(4), prompts((0,), (1,)), **options)
        (wanted,) = beam_search(Script(4), prompts((1,)), **{**options, "limits": [3]})
    assert none == [Hypothesis([], -math.inf, -math.inf)]
    assert found == wanted
