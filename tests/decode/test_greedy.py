"""Greedy decoding against a naive loop that reads everything again for every token, and against a model of our own."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from regard.decode.greedy import continue_text, translate_greedy
from regard.errors import InputError
from regard.models.model import EncoderDecoder, beginning
from regard.parts.state import Hidden, State

from ..laws.cases import SHRINK, VARIANTS, VOCABULARY, Case

START, END, LIMIT = 1, 2, 12


def case(name: str, *overrides: str) -> Case:
    recipe, changes = VARIANTS.get(name, (name, SHRINK.get(name, [])))
    return Case(name, recipe, (*changes, *overrides))


translators = pytest.mark.parametrize(
    "name", ["rnn-attention", "rnn-seq2seq", "transformer-base", "rnn-attention-input-feeding"]
)
writers = pytest.mark.parametrize("name", ["gpt2", "lstm", "llama-like", "llama-local", "hybrid", "conv"])


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randint(3, VOCABULARY, shape, generator=torch.Generator().manual_seed(seed))


def lively(name: str) -> EncoderDecoder:
    """A translator with weights so large that its texts change from word to word and from row to row."""
    model = case(name, "model.head.tied=false").build()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter *= 2
    return model


def sources() -> tuple[Tensor, Tensor]:
    return draw(6, 7), torch.tensor([7, 3, 1, 6, 5, 2])


@torch.no_grad()
def naive_translations(model: EncoderDecoder, source: Tensor, lengths: Tensor) -> list[list[int]]:
    """Every row by itself, the whole pass anew for every token, up to the limit whatever it writes."""
    targets = []
    for row, length in zip(source, lengths, strict=True):
        target = torch.tensor([[START]])
        while target.shape[1] <= LIMIT:
            target = torch.cat((target, model(row[None, :length], target)[:, -1:].argmax(-1)), 1)
        targets.append(target[0, 1:].tolist())
    return targets


def before(text: list[int], end: int) -> list[int]:
    return text[: text.index(end)] if end in text else text


def telling_ends(texts: list[list[int]]) -> list[int]:
    """The three ids that, as the end, cut the texts at the most different places."""
    ends = sorted(range(VOCABULARY), key=lambda end: -len({len(before(text, end)) for text in texts}))
    assert len({len(before(text, ends[0])) for text in texts}) >= 3
    return ends[:3]


@torch.no_grad()
def naive_text(model: nn.Module, prompt: Sequence[int], tokens: int, forbidden: Sequence[int] = ()) -> list[int]:
    text = list(prompt)
    for _ in range(tokens):
        logits = model(torch.tensor([text]))[0, -1].tolist()
        text.append(max((token for token in range(VOCABULARY) if token not in forbidden), key=logits.__getitem__))
    return text[len(prompt) :]


@translators
def test_translating_together_is_the_naive_loop_row_by_row(name: str) -> None:
    model, (source, lengths) = lively(name), sources()
    texts = naive_translations(model, source, lengths)
    for end in telling_ends(texts):
        found = translate_greedy(model, source, lengths, START, end, LIMIT)
        assert found == [before(text, end) for text in texts]


@translators
def test_batch_mates_change_nothing(name: str) -> None:
    model, (source, lengths) = lively(name), sources()
    free = translate_greedy(model, source, lengths, START, VOCABULARY, LIMIT)
    end = telling_ends(free)[0]
    together = translate_greedy(model, source, lengths, START, end, LIMIT)
    for row, length, found in zip(source, lengths, together, strict=True):
        assert translate_greedy(model, row[None, :length], None, START, end, LIMIT) == [found]


class Scribe(EncoderDecoder):
    """Writes its source, and keeps count of the rows it is asked about at every step."""

    def __init__(self, longest: int | None = None) -> None:
        super().__init__()
        self.limit, self.asked = longest, []

    def longest(self) -> int | None:
        return self.limit

    def start(self, source: Tensor, source_lengths: Tensor | None = None, capacity: int | None = None) -> State:
        return State([{"source": Hidden((source,))}], beginning(len(source), source.device), self.limit)

    def step(self, tokens: Tensor, state: State, lengths: Tensor | None = None) -> tuple[Tensor, State]:
        assert not self.training
        (source,) = state.layers[0]["source"].values
        place = int(state.advance(tokens, lengths)[0, 0])
        assert tokens[:, 0].tolist() == (source[:, place - 1].tolist() if place else [START] * len(source))
        self.asked.append(len(tokens))
        return nn.functional.one_hot(source[:, place], VOCABULARY).double(), state


def test_rows_leave_the_batch_when_half_of_it_is_done() -> None:
    scribe = Scribe()
    source = torch.tensor(
        [
            [5, 6, 2, 9, 9, 9],
            [2, 7, 7, 7, 7, 7],
            [3, 4, 5, 6, 2, 8],
            [3, 2, 6, 6, 6, 6],
            [8, 7, 6, 5, 4, 2],
        ]
    )
    found = translate_greedy(scribe, source, None, START, END, 6)
    assert found == [[5, 6], [], [3, 4, 5, 6], [3], [8, 7, 6, 5, 4]]
    assert scribe.asked == [5, 5, 5, 2, 2, 1]


def test_the_batch_ends_with_its_last_row() -> None:
    scribe = Scribe()
    assert translate_greedy(scribe, torch.tensor([[4, 2, 5, 5], [2, 5, 5, 5]]), None, START, END, 4) == [[4], []]
    assert scribe.asked == [2, 1]


@pytest.mark.parametrize(("limit", "longest", "wanted"), [(3, None, 3), (0, None, 0), (5, 2, 2), (2, 5, 2)])
def test_no_translation_is_longer_than_it_may_be(limit: int, longest: int | None, wanted: int) -> None:
    source = torch.tensor([[5, 6, 7, 8, 9, 10]])
    found = translate_greedy(Scribe(longest), source, torch.tensor([6]), START, END, limit)
    assert found == [source[0, :wanted].tolist()]


def test_a_translation_stops_at_the_table_of_positions() -> None:
    changes = ["model.embed.position.kind=learned", "model.embed.position.length=9"]
    model, (source, lengths) = case("transformer-base", *changes).build(), sources()
    found = translate_greedy(model, source, lengths, START, VOCABULARY, 20)
    assert [len(row) for row in found] == [9] * 6


def greedy(model: nn.Module, prompt: Tensor, tokens: int, forbidden: Sequence[int] = ()) -> list[list[int]]:
    return continue_text(model, prompt, tokens, 0.0, torch.Generator(), forbidden)


@writers
def test_temperature_zero_is_the_naive_loop(name: str) -> None:
    model, prompt = case(name).build(), draw(3, 5)
    wanted = [naive_text(model, row, 10) for row in prompt.tolist()]
    assert greedy(model, prompt, 10) == wanted
    assert len({tuple(row) for row in wanted}) > 1


@writers
def test_what_is_forbidden_is_not_written(name: str) -> None:
    model, prompt = case(name).build(), draw(3, 5)
    forbidden = sorted({row[0] for row in greedy(model, prompt, 1)})
    found = greedy(model, prompt, 8, forbidden)
    assert found == [naive_text(model, row, 8, forbidden) for row in prompt.tolist()]
    drawn = continue_text(model, prompt, 27, 5.0, torch.Generator().manual_seed(0), range(4, VOCABULARY))
    assert {token for row in drawn for token in row} == {0, 1, 2, 3}


def test_tokens_are_drawn_by_their_probability() -> None:
    """4000 draws of one token: each share is within five standard deviations of softmax(logits / temperature)."""
    model, prompt = case("gpt2").build(), draw(1, 5)
    with torch.no_grad():
        wanted = (model(prompt)[0, -1] / 2.5).softmax(-1)
    drawn = continue_text(model, prompt.expand(4000, -1), 1, 2.5, torch.Generator().manual_seed(0))
    share = torch.bincount(torch.tensor(drawn)[:, 0], minlength=VOCABULARY) / 4000
    assert ((share - wanted).abs() <= 5 * (wanted * (1 - wanted) / 4000).sqrt() + 1e-3).all()
    assert wanted.max() < 0.9


@writers
def test_what_is_drawn_goes_into_the_next_step(name: str) -> None:
    """The same draws, from full passes over the text so far."""
    model, prompt = case(name).build(), draw(3, 5)
    found = continue_text(model, prompt, 8, 2.0, torch.Generator().manual_seed(4))
    generator, text = torch.Generator().manual_seed(4), prompt
    for _ in range(8):
        with torch.no_grad():
            chances = (model(text)[:, -1].float() / 2).softmax(-1)
        text = torch.cat((text, torch.multinomial(chances, 1, generator=generator)), 1)
    assert found == text[:, 5:].tolist()


def test_the_coldest_is_greedy() -> None:
    model, prompt = case("gpt2").build(), draw(3, 5)
    assert continue_text(model, prompt, 6, 1e-30, torch.Generator()) == greedy(model, prompt, 6)


def test_a_text_stops_at_the_table_of_positions() -> None:
    """All 32 positions are read, and one more token follows."""
    model = case("gpt2").build()
    assert [len(row) for row in greedy(model, draw(2, 30), 50)] == [3, 3]
    assert [len(row) for row in greedy(model, draw(2, 32), 50)] == [1, 1]
    assert greedy(model, draw(2, 32), 0) == [[], []]
    with pytest.raises(InputError, match="^the input has 33 tokens, but the model has a table of 32 positions; "):
        greedy(model, draw(2, 33), 50)


@pytest.mark.parametrize("temperature", [-0.5, float("nan")])
def test_a_temperature_is_not_negative(temperature: float) -> None:
    message = rf"^temperature={temperature} must be 0 \(always the most likely token\) or more$"
    with pytest.raises(InputError, match=message):
        continue_text(case("gpt2").build(), draw(1, 2), 1, temperature, torch.Generator())


@pytest.mark.parametrize("name", ["gpt2", "transformer-base"])
def test_writing_does_not_drop_out_and_the_model_trains_on_as_before(name: str) -> None:
    model, (source, lengths) = case(name, "model.embed.dropout=0.9").build(), sources()

    def write() -> list[list[int]]:
        if name == "gpt2":
            return greedy(model, source, 8)
        return translate_greedy(model, source, lengths, START, END, 8)

    wanted = write()
    assert not model.training
    model.train()
    model.head.eval()  # what somebody froze stays frozen
    modes = [module.training for module in model.modules()]
    assert set(modes) == {True, False}
    assert write() == wanted
    assert [module.training for module in model.modules()] == modes


def test_the_model_trains_on_after_an_error() -> None:
    model = Scribe()
    with pytest.raises(IndexError):  # the source has ended and the scribe has nothing to write
        translate_greedy(model, torch.tensor([[5, 6]]), None, START, END, 3)
    assert model.training
