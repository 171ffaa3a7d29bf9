"""Packed documents are independent: each gives the same logits as alone, and gets no gradient from the others.

For every recipe, and every variant that an override reaches, in which only attention mixes tokens.
"""

import pytest
import torch
from torch import Tensor, nn

from regard.models.recipe import build_empty
from regard.models.seq2seq import Seq2Seq
from regard.models.stack import Layer
from regard.parts.attention import Attention

from .cases import VOCABULARY, Case, cases, name_of

SIZES = (4, 1, 6)  # tokens of the documents packed into the first row; the second has them in another order
SOURCE_SIZES = (3, 5, 2)
ROWS = ((0, 1, 2), (2, 0))  # which documents each row holds; the second row ends with padding


def attends(case: Case) -> bool:
    """Return whether only attention mixes tokens: recurrence and convolution cannot be masked."""
    model = build_empty(case.config)
    mixers = [module.mixer for module in model.modules() if isinstance(module, Layer)]
    return bool(mixers) and all(isinstance(mixer, Attention) for mixer in mixers)


def per_token(case: Case) -> bool:
    """Return whether the model has an output for every token, not one for the whole row."""
    return case.kind in ("Language", "Seq2Seq") or (
        case.kind == "Encoder" and type(case.config.head).__name__ == "LogitsConfig"
    )


CASES = [case for case in cases() if per_token(case) and attends(case)]
every = pytest.mark.parametrize("case", CASES, ids=name_of)


def texts(sizes: tuple[int, ...], seed: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(VOCABULARY, (size,), generator=generator) for size in sizes]


def packed(documents: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Put documents end to end; return the tokens and the document number of each, -1 for padding."""
    width = sum(map(len, documents)) + 2
    tokens = torch.zeros(len(ROWS), width, dtype=torch.long)
    numbers = torch.full((len(ROWS), width), -1)
    for row, members in enumerate(ROWS):
        here = torch.cat([documents[number] for number in members])
        tokens[row, : len(here)] = here
        numbers[row, : len(here)] = torch.cat([torch.full((len(documents[n]),), 10 + n) for n in members])
    return tokens, numbers


def run(model: nn.Module, targets: list[Tensor], sources: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Return the logits of packed rows and the document of each position."""
    tokens, documents = packed(targets)
    if not isinstance(model, Seq2Seq):
        return model(tokens, documents=documents), documents
    source, source_documents = packed(sources)
    return model(source, tokens, source_documents=source_documents, documents=documents), documents


def alone(model: nn.Module, target: Tensor, source: Tensor) -> Tensor:
    return model(source[None], target[None])[0] if isinstance(model, Seq2Seq) else model(target[None])[0]


def test_the_law_is_for_all_three_kinds_of_models():
    kinds = {case.kind for case in CASES}
    assert kinds == {"Language", "Encoder", "Seq2Seq"}
    assert {"gpt2", "llama-local", "gpt2-t5-bias", "deepseek-like", "bert", "translator"} <= {
        case.name for case in CASES
    }


@every
@torch.no_grad()
def test_packed_documents_give_the_same_as_alone(case: Case):
    model = case.build()
    targets, sources = texts(SIZES, 1), texts(SOURCE_SIZES, 2)
    logits, documents = run(model, targets, sources)
    for row, members in enumerate(ROWS):
        for number in members:
            found = logits[row, documents[row] == 10 + number]
            wanted = alone(model, targets[number], sources[number])
            torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-9)
    assert torch.isfinite(logits).all()  # also at padding


@every
def test_gradients_do_not_flow_between_packed_documents(case: Case):
    model = case.build()
    targets, sources = texts(SIZES, 1), texts(SOURCE_SIZES, 2)
    embedded: list[Tensor] = []
    embeds = [model.embed, getattr(model, "source_embed", None) or model.embed]
    for table in {embed.tokens.table for embed in embeds}:  # both sides may share one
        table.register_forward_hook(lambda module, inputs, output: embedded.append(output))
    logits, documents = run(model, targets, sources)
    numbers = [packed(sources)[1], documents] if isinstance(model, Seq2Seq) else [documents]
    assert len(embedded) == len(numbers)
    logits[0, documents[0] == 11].square().sum().backward(inputs=embedded)
    for vectors, number in zip(embedded, numbers, strict=True):
        touched = vectors.grad.abs().amax(-1)
        assert (touched[0, number[0] == 11] > 0).any()
        assert touched[0, number[0] != 11].max() == 0
        assert touched[1].max() == 0
