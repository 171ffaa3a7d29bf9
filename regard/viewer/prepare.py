"""What a person asks of a model becomes what the model reads: framed, cut to fit, and with what it wrote itself.

Translators translate, language models write on, masked models get their masks; then all tokens are read in one pass.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from regard.decode.beam import beam_search
from regard.decode.choose import Sampling
from regard.decode.engine import Engine, Given, eager, in_use
from regard.decode.rows import fitting
from regard.decode.sample import sample_all
from regard.errors import InputError
from regard.models.head import Logits
from regard.models.language import LanguageModel
from regard.models.model import EncoderDecoder, StepModel
from regard.models.vision import VisionTransformer
from regard.use.fill import Masked
from regard.use.ready import Ready, abilities
from regard.use.stream import TextStream
from regard.use.translate import SPARE, translating
from regard.viewer.capture import embedding_of
from regard.viewer.patched_image import Image, PatchedImage, image_tensor, read_image
from regard.viewer.tokens import Token, describe_tokens

LONGEST = 2048  # tokens that are looked at together, where nobody chose
Text = str | Sequence[int]  # words, or the ids of tokens, which are taken as they are


@dataclass(frozen=True)
class Wishes:
    """How to ask: see `record`."""

    target: Text | None = None
    tokens: int = 12
    beam: int | None = None
    image: Image | None = None
    longest: int = LONGEST


@dataclass
class Prepared:
    """What a model is called with, and how it is shown."""

    text: str
    arguments: dict[str, Tensor] = field(default_factory=dict)
    sequences: dict[str, list[Token]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    begin: int | None = None  # the first token that it wrote, or was made to write
    written: str | None = None  # what it wrote
    masks: list[int] = field(default_factory=list)  # where something is to be filled in
    picture: PatchedImage | None = None


def prepare(ready: Ready, text: Text, wishes: Wishes) -> Prepared:
    """Ask a model of any kind."""
    if ready.outside is not None:
        raise InputError(
            f"{ready.name}: is run by CTranslate2, which cannot be looked into; use the model it was made of"
        )
    if wishes.tokens < 0 or wishes.longest < 1:
        raise InputError(f"tokens={wishes.tokens} must be 0 or more, and longest={wishes.longest} at least 1")
    if isinstance(ready.model, VisionTransformer):
        return _see(ready, ready.model, text, wishes)
    if wishes.image is not None:
        raise InputError(f"{ready.name}: is {abilities(ready.model)[0]} and looks at texts; leave the image out")
    prepared = Prepared(text if isinstance(text, str) else " ".join(map(str, text)))
    reader = TextReader(ready, wishes, prepared)
    if isinstance(ready.model, EncoderDecoder):
        reader.translate(ready.model, text)
    elif wishes.target is not None:
        raise InputError(f"{ready.name}: is {abilities(ready.model)[0]}, not a translator; leave the target out")
    elif isinstance(ready.model, LanguageModel):
        reader.go_on(ready.model, text)
    else:
        reader.read(text)
    return prepared


def _see(ready: Ready, model: VisionTransformer, text: Text, wishes: Wishes) -> Prepared:
    image = wishes.image
    if image is None and isinstance(text, str) and text.strip():
        image = text.strip()  # the path of a file
    if image is None:
        raise InputError(f"{ready.name}: is {abilities(model)[0]}, and there is no image; give one")
    picture = read_image(model, image)
    shown = text if isinstance(text, str) and text else "an image"
    return Prepared(shown, {"images": image_tensor(ready, picture)}, {"patches": picture.tokens()}, picture=picture)


class TextReader:
    """Makes rows of ids for one model, and fills in what is `asked` with them."""

    def __init__(self, ready: Ready, wishes: Wishes, prepared: Prepared) -> None:
        self.ready, self.wishes, self.prepared = ready, wishes, prepared
        self.room = min(wishes.longest, ready.room or wishes.longest)

    def read(self, text: Text) -> None:
        """Read a text and no more; masks in it are to be filled in."""
        before, after = self.frame(text)
        ids = self.cut(self.encode(text), self.room - len(before) - len(after), "first")
        row = [*before, *ids, *after]
        if isinstance(self.ready.model.head, Logits) and self.ready.tokenizer is not None:
            self.prepared.masks = [place for place, id in enumerate(row) if id == self.ready.tokenizer.mask]
            if not self.prepared.masks:
                self.prepared.notes.append("There is no [MASK] in what was read, so there is nothing to fill in.")
        self.add_sequence("tokens", row)

    def go_on(self, model: LanguageModel, text: Text) -> None:
        """Read a prompt and what the model writes after it."""
        before, _ = self.frame(text)
        tokens = min(self.wishes.tokens, (self.room - len(before)) // 2)
        prompt = [*before, *self.cut(self.encode(text), self.room - len(before) - tokens, "last")]
        tokens = min(self.wishes.tokens, self.room - len(prompt))
        written: list[int] = []
        if tokens > 0:
            given = Given(self.row(prompt))
            with in_use(model):
                (written,) = sample_all(
                    self.engine(model),
                    given,
                    end=self.ends(),
                    limits=[tokens],
                    sampling=Sampling(temperature=0.0),
                    seeds=[0],
                    forbidden=self.ready.frame.never,
                )
        self.add_sequence("tokens", [*prompt, *written])
        self.prepared.begin = len(prompt)
        if self.ready.tokenizer is not None:
            stream = TextStream(self.ready.tokenizer, prompt)
            self.prepared.written = stream.push(written) + stream.end()

    def translate(self, model: EncoderDecoder, text: Text) -> None:
        """Read a source, and the translation that is given or the one that the model finds."""
        before, after = self.frame(text)
        ids = self.cut(self.encode(text), self.room - len(before) - len(after), "first")
        source = [*before, *ids, *after]
        target = self.wishes.target
        if target is None or (isinstance(target, str) and not target.strip()):
            begin = self.beginning()
            written = self.search(model, source, begin)
        elif self.is_plain(target):
            begin, written = [], self.cut(self.encode(target, other_side=True), self.room, "first")
        else:
            begin = self.beginning()
            written = self.cut(self.encode(target, other_side=True), self.room - len(begin), "first")
        self.add_sequence("source", source)
        self.add_sequence("target", [*begin, *written])
        self.prepared.begin = len(begin) or 1
        if self.ready.tokenizer is not None:
            forced = [*begin, *written][1:]
            self.prepared.written = self.ready.tokenizer.decode([forced])[0]

    def search(self, model: EncoderDecoder, source: list[int], begin: list[int]) -> list[int]:
        """Translate, as `translate` does; but the last token is read, too."""
        options = translating(self.ready, {"beam": self.wishes.beam})
        given = Given(self.row(begin), None, self.row(source))
        most = min(int(options.longest_ratio * len(source)) + SPARE, self.wishes.longest - len(begin))
        with in_use(model):
            ((best,),) = beam_search(
                self.engine(model),
                given,
                end=self.ends(),
                limits=fitting(model, given, [most]),
                beam=options.beam,
                length_penalty=options.length_penalty,
                forbidden=self.ready.frame.never,
            )
        longest = model.longest()
        return best.ids if longest is None else best.ids[: longest - len(begin)]

    def beginning(self) -> list[int]:
        """Give what every translation begins with."""
        if self.ready.tokenizer is None and self.ready.frame.first is None:
            raise InputError(
                f"{self.ready.name}: has no tokenizer, so nothing says how a translation begins; give target"
            )
        return [self.ready.first, *self.ready.frame.forced]

    def ends(self) -> tuple[int, ...]:
        """Give what ends a text, if that is known."""
        return () if self.ready.tokenizer is None and self.ready.frame.ends is None else self.ready.ends

    def engine(self, model: StepModel) -> Engine:
        """Give what runs steps; a model that comes alone runs as it is."""
        return self.ready.engine or eager(model)

    # --- text to ids -------------------------------------------------------------------------------------------------

    def is_plain(self, text: Text) -> bool:
        """Tell whether a text is ids, taken as they are."""
        return self.ready.tokenizer is None or not isinstance(text, str)

    def frame(self, text: Text) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Give the special tokens around a text."""
        return ((), ()) if self.is_plain(text) else (self.ready.frame.before, self.ready.frame.after)

    def encode(self, text: Text, other_side: bool = False) -> list[int]:
        """Give the ids of a text: at least one."""
        words = self.ready.tokenizer
        if isinstance(text, str) and not text.strip():
            raise InputError("there is no text to look at; write at least one word")
        if words is None or not isinstance(text, str):
            ids = self.known(self.parse(text) if isinstance(text, str) else [int(id) for id in text], other_side)
        elif other_side:
            ids = words.encode_target([text])[0].tolist()
        elif isinstance(self.ready.model.head, Logits) and not isinstance(self.ready.model, StepModel):
            pieces = words.encode(Masked(self.ready).pattern.split(text))
            ids = [id for piece in pieces for id in (*piece.tolist(), words.mask)][:-1]
        else:
            ids = words.encode([text])[0].tolist()
        if not ids:
            raise InputError("there is no token in this text; write at least one word")
        return ids

    def parse(self, text: str) -> list[int]:
        """Read ids that are written as numbers."""
        try:
            return [int(word) for word in text.replace(",", " ").split()]
        except ValueError:
            remedy = "write ids of tokens, such as 5 12 7, or put its tokenizer.json into its folder"
            raise InputError(f"{self.ready.name}: has no tokenizer; {remedy}") from None

    def known(self, ids: list[int], other_side: bool) -> list[int]:
        """Refuse ids that the model has no vector for."""
        source = None if other_side else getattr(self.ready.model, "source_embed", None)
        vocabulary = (source or embedding_of(self.ready.model)).tokens.table.num_embeddings
        for place, id in enumerate(ids):
            if not 0 <= id < vocabulary:
                raise InputError(f"token id {id} at place {place} is outside the vocabulary (0 to {vocabulary - 1})")
        return ids

    def cut(self, ids: list[int], limit: int, keep: Literal["first", "last"]) -> list[int]:
        """Keep as many tokens as fit, and say so."""
        limit = max(limit, 1)
        if len(ids) <= limit:
            return ids
        known = self.ready.room
        why = "more do not fit this model" if known == self.room else "more are not looked at together"
        self.prepared.notes.append(f"Cut to the {keep} {limit} of {len(ids)} tokens; {why}.")
        return ids[:limit] if keep == "first" else ids[-limit:]

    def row(self, ids: list[int]) -> Tensor:
        """Give ids as a batch of one."""
        return torch.tensor([ids], dtype=torch.long, device=self.ready.device)

    def add_sequence(self, name: str, ids: list[int]) -> None:
        """Let the model read a sequence of tokens."""
        self.prepared.arguments[name] = self.row(ids)
        self.prepared.sequences[name] = describe_tokens(self.ready.tokenizer, ids)
