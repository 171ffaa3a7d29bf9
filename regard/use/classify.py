"""Classification of texts, or of image files: the likeliest labels with their probabilities."""

from collections.abc import Iterable, Iterator, Sequence

from torch import Tensor

from regard.models.head import Classes
from regard.use.batches import Done, unwatched
from regard.use.fit import Fit
from regard.use.guess import Guess, best, check_top
from regard.use.read import read_all
from regard.use.ready import Ready


def classes_of(
    ready: Ready,
    chunks: Iterable[Sequence[str]],
    top: int,
    fit: Fit | None,
    batch_tokens: int | None = None,
    done: Done = unwatched,
) -> Iterator[list[Guess]]:
    """Classify lines: texts, or for a model of images the paths of files. A blank line gets no guess."""
    ready.check("classify")
    check_top(top)
    head = ready.model.head
    assert isinstance(head, Classes)
    classes = ready.classes or tuple(map(str, range(head.classify.out_features)))

    def work(inputs: dict[str, Tensor]) -> list[list[Guess]]:
        numbers, chances = best(ready.model(**inputs), top)
        return [
            [Guess(classes[number], chance) for number, chance in zip(*row, strict=True)]
            for row in zip(numbers, chances, strict=True)
        ]

    return (guesses[0] if guesses else [] for guesses in read_all(ready, chunks, fit, work, batch_tokens, done))
