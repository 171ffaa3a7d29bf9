"""One example of what a model makes, to be shown to a person."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Sample:
    """What the model was given, what was wanted, and what it made; a task without one of them leaves it empty."""

    given: str
    wanted: str
    made: str
