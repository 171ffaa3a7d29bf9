"""Text as its tokens arrive: no character is shown in part, and all that is shown together is the whole text."""

from collections.abc import Sequence

from regard.data.tokenizer import Tokenizer

CONTEXT = 8  # tokens that are decoded once more, since a token's text may depend on the one before it
BROKEN = "\ufffd"  # what the beginning of a character looks like


class TextStream:
    """Turns ids into text piece by piece; `before` are those that the text goes on from, which are not shown.

    The text is that of all tokens at once: in many vocabularies a blank belongs to the token after it, and is not
    there when the token stands alone.
    """

    def __init__(self, tokenizer: Tokenizer, before: Sequence[int] = ()) -> None:
        self.tokenizer = tokenizer
        self.ids = [int(id) for id in before][-CONTEXT:]
        self.shown = len(self._text(self.ids))  # characters of the text of `ids`

    def push(self, ids: Sequence[int]) -> str:
        """Take more ids; give the text that is now certain."""
        self.ids += [int(id) for id in ids]
        text = self._text(self.ids)
        certain = self._certain(text)
        new = text[self.shown : certain]
        self.shown += len(new)
        if certain == len(text) and len(self.ids) >= 2 * CONTEXT:
            self._forget(text)
        return new

    def end(self) -> str:
        """Give what was held back: the ids have come to their end."""
        new = self._text(self.ids)[self.shown :]
        self.shown += len(new)
        return new

    def _text(self, ids: list[int]) -> str:
        return self.tokenizer.decode([ids])[0]

    def _certain(self, text: str) -> int:
        """Count the characters that no further token can change: all but the beginning of one.

        Byte tokens of a vocabulary of pieces are a text together or not at all, so they wait for the next piece.
        """
        run = 0
        while run < len(self.ids) and self.ids[-1 - run] in self.tokenizer.byte_tokens:
            run += 1
        if run:
            return len(self._text(self.ids[:-run]))
        return len(text) - text.endswith(BROKEN)

    def _forget(self, text: str) -> None:
        """Keep only the last tokens, if they mean the same without those before them."""
        kept = self.ids[-CONTEXT:]
        tail = self._text(kept)
        if tail.strip() and text.endswith(tail):
            self.ids, self.shown = kept, len(tail)


class Stops:
    """Finds the first of some strings in a growing text, and holds back what may be the beginning of one.

    The first is the one that is complete first, so it does not matter in which pieces the text comes.
    """

    def __init__(self, strings: Sequence[str]) -> None:
        self.strings = [string for string in strings if string]
        self.longest = max(map(len, self.strings), default=0)
        self.text = ""
        self.given = 0  # characters of it
        self.found = False

    def push(self, text: str) -> str:
        """Take more text; give what can be shown: nothing of a stop, nor behind it."""
        if self.found:
            return ""
        look_from = max(len(self.text) - self.longest, 0)
        self.text += text
        found = ((self.text.find(string, look_from), len(string)) for string in self.strings)
        ends = [(place + length, place) for place, length in found if place >= 0]
        if ends:
            self.found = True
            self.text = self.text[: min(ends)[1]]
            return self.end()
        return self._give(len(self.text) - self._begun())

    def end(self) -> str:
        """Give what was held back, since no stop came of it."""
        return self._give(len(self.text))

    def _give(self, until: int) -> str:
        new = self.text[self.given : until]
        self.given += len(new)
        return new

    def _begun(self) -> int:
        """Count the characters at the end that a stop may begin with."""
        counts = range(min(self.longest - 1, len(self.text)), 0, -1)
        ends = ((count, self.text[-count:]) for count in counts)
        return next((count for count, end in ends if any(string.startswith(end) for string in self.strings)), 0)
