"""One example of what a model makes, to be shown to a person."""

from dataclasses import dataclass

NOTHING = "(nothing)"  # what is shown for an empty text


@dataclass(frozen=True)
class Sample:
    """What the model was given, what was wanted, and what it made; a task without one of them leaves it empty."""

    given: str
    wanted: str
    made: str

    def texts(self) -> dict[str, str]:
        """Give what there is to show, by name: a model may have made nothing, and that is shown, too."""
        texts = {"given": self.given, "wanted": self.wanted, "made": self.made or NOTHING}
        return {name: text for name, text in texts.items() if text}
