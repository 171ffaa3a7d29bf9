"""What a model answers at once: the class of what it read or saw, or the words behind its masks."""

import torch
from torch import Tensor

from regard.models.head import Classes, Logits
from regard.models.model import Model
from regard.models.vision import VisionTransformer
from regard.use.guess import best
from regard.use.ready import Ready
from regard.viewer.asked import Asked
from regard.viewer.capture import Captured, embedding_of
from regard.viewer.recording import Manifest
from regard.viewer.tokens import text_of

TOP = 5


def answers_of(ready: Ready, model: Model, asked: Asked, captured: Captured) -> list[Manifest]:
    """Give the best guesses to each question that a model has an answer to."""
    if isinstance(model.head, Classes):
        assert captured.output is not None
        question = "What is in this image?" if isinstance(model, VisionTransformer) else "Which label has this text?"
        return [_answer(question, captured.output[None], ready.classes)]
    if not asked.masks:
        return []
    assert captured.below is not None
    rows = scores(model, captured.below[asked.masks])
    rows[:, list(ready.frame.never)] = -torch.inf
    words = [text_of(ready.tokenizer, id).strip() or text_of(ready.tokenizer, id) for id in range(rows.shape[1])]
    questions = ["What stands at [MASK]?"]
    if len(asked.masks) > 1:
        questions = [f"What stands at [MASK] {number}?" for number in range(1, len(asked.masks) + 1)]
    return [_answer(question, row[None], words) for question, row in zip(questions, rows, strict=True)]


def scores(model: Model, vectors: Tensor) -> Tensor:
    """Score the vocabulary for vectors that are below a head of logits."""
    assert isinstance(model.head, Logits)
    with torch.no_grad():
        return model.head(vectors, embedding_of(model).tokens.table.weight)


def _answer(question: str, logits: Tensor, names: tuple[str, ...] | list[str]) -> Manifest:
    """Put the likeliest in words; a class without a name is called by its number."""
    (numbers,), (chances,) = best(logits, TOP)
    texts = [names[number] if names else str(number) for number in numbers]
    guesses = [{"text": text, "probability": chance} for text, chance in zip(texts, chances, strict=True)]
    return {"question": question, "guesses": guesses}
