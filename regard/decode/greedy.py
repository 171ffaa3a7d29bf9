"""The first way to write: the most likely token every time; for open text also a random one, by its probability."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.errors import InputError
from regard.models.language import LanguageModel
from regard.models.model import EncoderDecoder
from regard.parts.state import State


@torch.no_grad()
def translate_greedy(
    model: EncoderDecoder,
    source: Int[Tensor, "B S"],
    source_lengths: Int[Tensor, "B"] | None,
    start: int,
    end: int,
    limit: int,
) -> list[list[int]]:
    """Write y_t = argmax p(y_t | y_<t, x) for every row until it writes `end`; ids without `start` and `end`.

    No row gets longer than `limit`, or than the model's position table.
    """
    longest = model.longest()
    written: list[list[int]] = [[] for _ in source]
    rows = list(range(len(source)))  # which row each place of the batch belongs to
    going = set(rows)
    tokens = source.new_full((len(source), 1), start)
    with in_use(model):
        state: State = model.start(source, source_lengths)  # type: ignore[operator]  # each kind has its own `start`
        for _ in range(limit if longest is None else min(limit, longest)):
            logits, state = model.step(tokens, state)
            chosen = logits.argmax(-1)
            for row, token in zip(rows, chosen.tolist(), strict=True):
                if token == end:
                    going.discard(row)
                elif row in going:
                    written[row].append(token)
            if not going:
                break
            tokens = chosen[:, None]
            if 2 * len(going) <= len(rows):  # taking rows out copies the state, so only when half of them are done
                places = [place for place, row in enumerate(rows) if row in going]
                index = torch.tensor(places, device=source.device)
                state.reorder(index)
                tokens, rows = tokens[index], [rows[place] for place in places]
    return written


@torch.no_grad()
def continue_text(
    model: LanguageModel,
    prompt: Int[Tensor, "B T"],
    tokens: int,
    temperature: float,
    generator: torch.Generator,
    forbidden: Sequence[int] = (),
) -> list[list[int]]:
    """Write up to `tokens` ids after each prompt, drawn from softmax(logits / temperature), never a `forbidden` one.

    Temperature 0 takes the most likely. Stops when the model's position table is full. Gives only what is new.
    """
    if not temperature >= 0:
        raise InputError(f"temperature={temperature} must be 0 (always the most likely token) or more")
    longest = model.longest()
    if longest is not None:
        # The last token is written but not read: it needs no position. A prompt that is too long fails as it is read.
        tokens = min(tokens, max(longest - prompt.shape[1], 0) + 1)
    never = torch.tensor(list(forbidden), dtype=torch.long, device=prompt.device)
    text = new = prompt
    with in_use(model):
        state = model.start(len(prompt))
        for _ in range(tokens):
            logits, state = model.step(new, state)
            new = pick(logits.index_fill(-1, never, float("-inf")), temperature, generator)[:, None].to(prompt.device)
            text = torch.cat((text, new), 1)
    return text[:, prompt.shape[1] :].tolist()


def pick(logits: Float[Tensor, "B V"], temperature: float, generator: torch.Generator) -> Int[Tensor, "B"]:
    """Draw a token for each row from softmax(logits / temperature), where the generator is; at 0, the most likely."""
    if temperature == 0:
        return logits.argmax(-1)
    chances = (logits.to(generator.device, torch.float32) / temperature).softmax(-1)
    return torch.multinomial(chances, 1, generator=generator)[:, 0]


@contextmanager
def in_use(model: nn.Module) -> Iterator[None]:
    """Without dropout inside; afterwards every module trains, or not, as it did."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True
