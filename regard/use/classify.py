"""Classify texts or image files: the most likely labels with their probabilities."""

from collections.abc import Iterator

from torch import Tensor

from regard.arguments import check_count
from regard.errors import InputError
from regard.hub.details import MULTI_LABEL, REGRESSION
from regard.use.batches import Chunks, Feedback
from regard.use.bundle import Bundle
from regard.use.forward import forward_lines
from regard.use.guess import Guess, most_likely


def classify_lines(
    bundle: Bundle, chunks: Chunks, top: int, batch_tokens: int | None, feedback: Feedback
) -> Iterator[tuple[str, list[Guess]]]:
    """Yield each line (a text, or the path of an image) with its most likely labels; a blank line has none."""
    bundle.check("classify")
    top = check_count(top, "top")
    if bundle.problem == REGRESSION:
        rule = "predicts a number and not a label (problem_type in config.json)"
        raise InputError(f"{bundle.name}: {rule}; use another model")
    classes = bundle.classes or tuple(map(str, range(bundle.model.classes or 0)))

    def work(inputs: dict[str, Tensor]) -> list[list[Guess]]:
        numbers, chances = most_likely(bundle.model(**inputs), top, bundle.problem == MULTI_LABEL)
        return [
            [Guess(classes[number], chance) for number, chance in zip(*row, strict=True)]
            for row in zip(numbers, chances, strict=True)
        ]

    found = forward_lines(bundle, chunks, work, batch_tokens, feedback)
    return ((line, guesses or []) for line, guesses in found)
