"""The answers of a model that does not generate text: the label of a text or image, or the masked words."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from regard.models.model import Model
from regard.use.bundle import Bundle
from regard.use.guess import most_likely
from regard.viewer.capture import Capture
from regard.viewer.manifest import Answer
from regard.viewer.prepare import Prepared
from regard.viewer.tokens import token_text

TOP = 5


def best_answers(bundle: Bundle, model: Model, prepared: Prepared, captured: Capture) -> list[Answer]:
    """Return the most probable answers: one list for the label, or one for each mask."""
    if prepared.agents:
        assert isinstance(captured.output, tuple)
        return list(_paths(prepared.agents, *captured.output))
    if model.classes is not None:
        assert isinstance(captured.output, Tensor)
        question = "What is in this image?" if model.reads == "image" else "Which label does this text have?"
        return [_answer(question, captured.output[None], bundle.classes)]
    if not prepared.masks:
        return []
    assert captured.below is not None
    rows = vocabulary_scores(model, captured.below[prepared.masks])
    rows[:, list(bundle.template.never)] = -torch.inf
    texts = [token_text(bundle.tokenizer, id) for id in range(rows.shape[1])]
    questions = ["Which word is [MASK]?"]
    if len(prepared.masks) > 1:
        questions = [f"Which word is [MASK] {number}?" for number in range(1, len(prepared.masks) + 1)]
    words = [text.strip() or text for text in texts]
    return [_answer(question, row[None], words) for question, row in zip(questions, rows, strict=True)]


def _paths(agents: Sequence[str], paths: Tensor, logits: Tensor) -> Iterator[Answer]:
    """Return where each agent may be at the last predicted step."""
    for agent, ends, scores in zip(agents, paths[:, :, -1].tolist(), logits, strict=True):
        names = [f"{x:.2f} {y:.2f}" for x, y in ends]
        yield _answer(f"Where is agent {agent} after {paths.shape[2]} steps?", scores[None], names)


def vocabulary_scores(model: Model, vectors: Tensor) -> Tensor:
    """Return the logits over the vocabulary for vectors below the output layer."""
    with torch.no_grad():
        return model.logits(vectors)


def _answer(question: str, logits: Tensor, names: tuple[str, ...] | list[str]) -> Answer:
    """Return the most probable classes by name; a class without a name is called by its number."""
    (numbers,), (probabilities,) = most_likely(logits, TOP)
    texts = [names[number] if names else str(number) for number in numbers]
    guesses = zip(texts, probabilities, strict=True)
    return {
        "question": question,
        "guesses": [{"text": text, "probability": probability} for text, probability in guesses],
    }
