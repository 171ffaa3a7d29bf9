"""One example of what a model makes, to be shown to the user."""

from dataclasses import dataclass

NOTHING = "(nothing)"  # what is shown for an empty text


@dataclass(frozen=True)
class Sample:
    """What the model was given, the reference, and what it made; a task without one of them leaves it empty."""

    given: str
    wanted: str
    made: str

    def texts(self) -> dict[str, str]:
        """Return the texts to show, by name; if the model made nothing, that is shown."""
        texts = {"given": self.given, "wanted": self.wanted, "made": self.made or NOTHING}
        return {name: text for name, text in texts.items() if text}
