"""Laws of decoding, for every recipe that generates: other rows, order and caches change nothing."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from regard.decode.beam import beam_search
from regard.decode.choose import Sampling
from regard.decode.engine import Engine, Given, Steps, eager, in_use
from regard.decode.quantise import Int8, quantise
from regard.decode.rows import row_lengths
from regard.decode.sample import sample_all
from regard.models.model import StepModel

from .cases import VOCABULARY, Case, decodable, name_of, one_of_each

ROWS, ENDS = 32, (2, 5, 7)
Texts = list[list[int]]
Write = Callable[[Engine, Given, list[int], list[int]], Texts]


def greedy(engine: Engine, given: Given, limits: list[int], seeds: list[int]) -> Texts:
    return [row[0].ids for row in beam_search(engine, given, end=ENDS, limits=limits, beam=1)]


def drawn(engine: Engine, given: Given, limits: list[int], seeds: list[int]) -> Texts:
    sampling = Sampling(temperature=1.5, top_p=0.95, repetition=1.1)
    return sample_all(engine, given, end=ENDS, limits=limits, sampling=sampling, seeds=seeds)


def searched(engine: Engine, given: Given, limits: list[int], seeds: list[int]) -> Texts:
    return [one.ids for row in beam_search(engine, given, end=ENDS, limits=limits, beam=3, best=3) for one in row]


def beginnings(case: Case) -> Given:
    """Return prompts of different lengths, and sources for encoder-decoders."""
    generator = torch.Generator().manual_seed(0)

    def rows(width: int) -> tuple[Tensor, Tensor]:
        lengths = torch.randint(1, width + 1, (ROWS,), generator=generator)
        return torch.randint(VOCABULARY, (ROWS, width), generator=generator), lengths

    tokens, lengths = rows(5)
    return Given(tokens, lengths, *(rows(7) if "Seq2Seq" in case.kind else ()))


def some(given: Given, index: list[int]) -> Given:
    return Given(*(None if value is None else value[index] for value in vars(given).values()))


def alone(given: Given, row: int) -> Given:
    """Return one row, without padding."""
    one = some(given, [row])
    source = None if one.source is None else one.source[:, : int(one.source_lengths)]
    return Given(one.tokens[:, : int(one.lengths)], None, source)


class Uncached(Steps):
    """The full pass at every step."""

    def __init__(self, model: nn.Module, given: Given) -> None:
        self.model, self.source, self.source_lengths = model, given.source, given.source_lengths
        pairs = zip(given.tokens.tolist(), row_lengths(given.tokens, given.lengths), strict=True)
        self.texts = [row[:length] for row, length in pairs]

    def begin(self) -> Tensor:
        lengths = [len(text) for text in self.texts]
        tokens = torch.tensor([text + [0] * (max(lengths) - len(text)) for text in self.texts])
        if self.source is None:
            logits = self.model(tokens)
        else:
            logits = self.model(self.source, tokens, source_lengths=self.source_lengths)
        return logits[torch.arange(len(tokens)), torch.tensor(lengths) - 1]

    def step(self, tokens: Tensor) -> Tensor:
        self.texts = [[*text, token] for text, token in zip(self.texts, tokens.tolist(), strict=True)]
        return self.begin()

    def repeat(self, times: int) -> None:
        self.reorder(torch.arange(len(self.texts)).repeat_interleave(times))

    def reorder(self, index: Tensor) -> None:
        self.texts = [self.texts[place] for place in index.tolist()]
        if self.source is not None:
            self.source, self.source_lengths = self.source[index], self.source_lengths[index]


@pytest.mark.parametrize("case", decodable(), ids=name_of)
def test_other_rows_order_and_caches_change_nothing(case: Case):
    """With a beam, rows of a state are repeated and reordered, and they leave when they are done."""
    check(case.build(), beginnings(case), searched)


@pytest.mark.parametrize("write", [greedy, drawn])
@pytest.mark.parametrize("case", one_of_each(), ids=name_of)
def test_they_change_nothing_in_greedy_search_and_sampling(case: Case, write: Write):
    check(case.build(), beginnings(case), write)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["gpt2", "llama-like", "deepseek-like", "gpt2-concatenated", "translator", "rnn-attention"]
)
def test_other_rows_order_and_caches_change_nothing_in_int8(name: str):
    """Everything around the int8 products is in float64, so that no rounding depends on the last bit."""
    (case,) = [case for case in decodable() if case.name == name]
    model = case.build()
    quantise(model)
    products = [module for module in model.modules() if isinstance(module, Int8)]
    assert products
    for product in products:
        product.register_forward_pre_hook(lambda product, inputs: (inputs[0].float(),))
        product.register_forward_hook(lambda product, inputs, output: output.double())
    check(model, beginnings(case), searched)


def check(model: StepModel, given: Given, write: Write) -> None:
    """Generate all rows together, in another order, without a cache, and some of them alone."""
    limits = [3 + row % 7 for row in range(ROWS)]
    seeds = [row // 2 for row in range(ROWS)]

    def written(engine: Engine, rows: list[int], given: Given) -> list[Texts]:
        """Return the texts of each row: one, or all that a search found."""
        found = write(engine, given, [limits[row] for row in rows], [seeds[row] for row in rows])
        each = len(found) // len(rows)
        return [found[at : at + each] for at in range(0, len(found), each)]

    with in_use(model):
        every = list(range(ROWS))
        together = written(eager(model), every, given)
        order = torch.randperm(ROWS, generator=torch.Generator().manual_seed(1)).tolist()
        assert written(eager(model), order, some(given, order)) == [together[row] for row in order]
        assert written(lambda given, capacity: Uncached(model, given), every, given) == together
        for row in (0, 1, 14, 31):
            assert written(eager(model), [row], alone(given, row)) == [together[row]]
    texts = [tuple(ids) for row in together for ids in row]
    assert len(set(texts)) > 10
    assert len({len(text) for text in texts}) > 3
