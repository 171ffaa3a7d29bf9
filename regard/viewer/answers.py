"""The answers of a model that does not generate text: the label of a text or image, masked words, what is annotated."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from regard.models.model import Model, TokenModel
from regard.models.residues import UNKNOWN
from regard.use.annotate import Annotation, ContactMap, answer
from regard.use.bundle import Bundle
from regard.use.guess import most_likely
from regard.viewer.capture import Capture
from regard.viewer.manifest import Answer, AnswerGuess, LayerGuesses
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
    if "annotate" in model.verbs:
        assert isinstance(captured.output, Tensor)
        return [_annotation(answer(bundle, captured.output, "".join(token_texts(bundle, prepared))))]
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


def likely_contacts(bundle: Bundle, model: Model, prepared: Prepared, captured: Capture) -> list[list[int]]:
    """Return the pairs of residues that are most likely in contact, as many as residues; none of other models."""
    if model.task != "distances":
        return []
    assert isinstance(captured.output, Tensor)
    found = answer(bundle, captured.output, "".join(token_texts(bundle, prepared)))
    assert isinstance(found, ContactMap)
    return [[first - 1, second - 1] for first, second, _ in found.best()]


def _paths(agents: Sequence[str], paths: Tensor, logits: Tensor) -> Iterator[Answer]:
    """Return where each agent may be at the last predicted step."""
    for agent, ends, scores in zip(agents, paths[:, :, -1].tolist(), logits, strict=True):
        names = [f"{x:.2f} {y:.2f}" for x, y in ends]
        yield _answer(f"Where is agent {agent} after {paths.shape[2]} steps?", scores[None], names)


def vocabulary_scores(model: Model, vectors: Tensor) -> Tensor:
    """Return the logits over the vocabulary for vectors below the output layer."""
    with torch.no_grad():
        return model.logits(vectors)


def token_texts(bundle: Bundle, prepared: Prepared) -> list[str]:
    """Return the residues that a model of proteins reads, each a letter; X for a token that is not one."""
    (row,) = prepared.arguments["tokens"].tolist()
    texts = [token_text(bundle.tokenizer, id) for id in row]
    return [text if len(text) == 1 else UNKNOWN for text in texts]


def _annotation(found: Annotation | ContactMap) -> Answer:
    """Return the states of all residues with their mean probability, or the most likely contacts."""
    if isinstance(found, ContactMap):
        letters = found.sequence
        best = [
            (f"{letters[first - 1]}{first} and {letters[second - 1]}{second}", chance)
            for first, second, chance in found.best()[:TOP]
        ]
        question = "Which residues are closer than 8 angstrom?"
    else:
        best = [(found.states, sum(found.probabilities) / len(found.probabilities))]
        question = "Which secondary structure does it have?"
        question += " H, G, I: helix; E: strand; B: bridge; T: turn; S: bend; _: the rest."
        question += " The probability is the mean of all residues."
    return {"question": question, "guesses": [{"text": text, "probability": chance} for text, chance in best]}


def layer_guesses(bundle: Bundle, model: Model, layers: list[Tensor], token: int) -> list[LayerGuesses]:
    """Return what each layer would write after a token: its vector, read through the final norm and the head.

    The last entry is what the model itself says, if its last layer is read by the head.
    """
    assert isinstance(model, TokenModel)
    found: list[LayerGuesses] = []
    with torch.no_grad():
        for layer, vectors in enumerate(layers):
            (numbers,), (probabilities,) = most_likely(model.layer_logits(vectors[token])[None], TOP)
            texts = [token_text(bundle.tokenizer, number) for number in numbers]
            pairs = zip(texts, probabilities, strict=True)
            guesses: list[AnswerGuess] = [{"text": text, "probability": share} for text, share in pairs]
            found.append({"layer": layer, "guesses": guesses})
    return found


def _answer(question: str, logits: Tensor, names: tuple[str, ...] | list[str]) -> Answer:
    """Return the most probable classes by name; a class without a name is called by its number."""
    (numbers,), (probabilities,) = most_likely(logits, TOP)
    texts = [names[number] if names else str(number) for number in numbers]
    guesses = zip(texts, probabilities, strict=True)
    return {
        "question": question,
        "guesses": [{"text": text, "probability": probability} for text, probability in guesses],
    }
