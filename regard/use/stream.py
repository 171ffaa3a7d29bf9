"""Text as its tokens arrive: only complete characters are shown, and the pieces add up to the complete text."""

from collections.abc import Sequence

from regard.data.tokenizer import Tokenizer

CONTEXT = 8  # tokens that are decoded again, since a token's text may depend on the one before it
BROKEN = "\ufffd"  # how an incomplete character is decoded


class TextStream:
    """Turns ids into text piece by piece; `before` are the ids of the prompt, which are not shown.

    Tokens are decoded together with those before them: in many vocabularies a blank belongs to the token after it, and
    is missing when that token is decoded alone.
    """

    def __init__(self, tokenizer: Tokenizer, before: Sequence[int] = ()) -> None:
        self.tokenizer = tokenizer
        self.ids = [int(id) for id in before][-CONTEXT:]
        self.shown = len(self._text(self.ids))  # characters of the text of `ids`

    def push(self, ids: Sequence[int]) -> str:
        """Take more ids; return the text that is now certain."""
        self.ids += [int(id) for id in ids]
        text = self._text(self.ids)
        certain = self._certain(text)
        new = text[self.shown : certain]
        self.shown += len(new)
        if certain == len(text) and len(self.ids) >= 2 * CONTEXT:
            self._forget(text)
        return new

    def end(self) -> str:
        """Return the text that was held back, since no more ids will come."""
        new = self._text(self.ids)[self.shown :]
        self.shown += len(new)
        return new

    def _text(self, ids: list[int]) -> str:
        return self.tokenizer.decode([ids])[0]

    def _certain(self, text: str) -> int:
        """Count the characters that no further token can change: all but an incomplete one.

        Byte tokens of a vocabulary of pieces are decoded together, so they wait for the next piece.
        """
        run = 0
        while run < len(self.ids) and self.ids[-1 - run] in self.tokenizer.byte_tokens:
            run += 1
        if run:
            return len(self._text(self.ids[:-run]))
        return len(text) - text.endswith(BROKEN)

    def _forget(self, text: str) -> None:
        """Keep only the last tokens, if their text is the same without those before them."""
        kept = self.ids[-CONTEXT:]
        tail = self._text(kept)
        if tail.strip() and text.endswith(tail):
            self.ids, self.shown = kept, len(tail)


class Stops:
    """Finds the first of some stop strings in a growing text, and holds back what may be the beginning of one.

    The first is the one that is complete first, so the result does not depend on the pieces in which the text comes.
    """

    def __init__(self, strings: Sequence[str]) -> None:
        self.strings = [string for string in strings if string]
        self.longest = max(map(len, self.strings), default=0)
        self.text = ""
        self.shown = 0  # characters of it
        self.found = False

    def push(self, text: str) -> str:
        """Take more text; return what can be shown: neither a stop string nor anything after it."""
        if self.found:
            return ""
        search_from = max(len(self.text) - self.longest, 0)
        self.text += text
        found = ((self.text.find(string, search_from), len(string)) for string in self.strings)
        ends = [(place + length, place) for place, length in found if place >= 0]
        if ends:
            self.found = True
            self.text = self.text[: min(ends)[1]]
            return self.end()
        return self._show(len(self.text) - self._begun())

    def end(self) -> str:
        """Return the text that was held back, because it did not become a stop string."""
        return self._show(len(self.text))

    def _show(self, until: int) -> str:
        new = self.text[self.shown : until]
        self.shown += len(new)
        return new

    def _begun(self) -> int:
        """Count the characters at the end that may begin a stop string."""
        counts = range(min(self.longest - 1, len(self.text)), 0, -1)
        ends = ((count, self.text[-count:]) for count in counts)
        return next((count for count, end in ends if any(string.startswith(end) for string in self.strings)), 0)
