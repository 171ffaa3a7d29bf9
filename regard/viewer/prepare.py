"""Turn a query into the input of a model: add special tokens, cut to fit, and append what the model generates.

Translators translate, language models generate, and masks are found; then the model reads all tokens in one pass.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral
from reprlib import repr as shortened
from typing import Literal

import torch
from torch import Tensor

from regard.data.tracks import parse_scene
from regard.data.trees import holds_tags, parse_tree, split_words
from regard.decode.beam import beam_search
from regard.decode.choose import Sampling
from regard.decode.engine import Engine, Given, eager, in_use
from regard.decode.rows import fit_limits
from regard.decode.sample import sample_all
from regard.errors import InputError
from regard.models.model import ImageInput, StepModel, writes
from regard.tasks.linear_trees import linearise, word_pieces
from regard.tasks.tree_search import TreeSearch
from regard.use.bundle import Bundle
from regard.use.fill import MaskedRows
from regard.use.forecast import scene_inputs, scene_steps
from regard.use.stream import TextStream
from regard.use.translate import SPARE, translate_options
from regard.viewer.manifest import Token
from regard.viewer.patched_image import PatchedImage, image_tensor, read_image
from regard.viewer.query import CHARACTERS, TOKENS, Query, QueryText
from regard.viewer.tokens import describe_tokens, step_tokens

WORD_TOKENS = 5  # tokens of a tree for each of its words, about
SHOWN = 40  # characters of a target that an error quotes


@dataclass
class Prepared:
    """What a model is called with, and how the page shows it."""

    text: str
    arguments: dict[str, Tensor] = field(default_factory=dict)
    sequences: dict[str, list[Token]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    begin: int | None = None  # the first token that the model wrote, or was made to write
    written: str | None = None  # what it wrote
    masks: list[int] = field(default_factory=list)  # the indices of [MASK]
    picture: PatchedImage | None = None
    agents: tuple[str, ...] = ()  # of a scene, by name


def prepare_query(bundle: Bundle, query: Query) -> Prepared:
    """Prepare a query for a model of any kind."""
    bundle.need_weights("does not expose attention")
    if query.longest < 1 or not (query.tokens is None or (isinstance(query.tokens, Integral) and query.tokens >= 0)):
        raise InputError(f"tokens={query.tokens} must be 0 or more, and longest={query.longest} at least 1")
    for text in (query.text, "" if query.target is None else query.target):
        if not isinstance(text, str) and not _are_ids(text):
            raise InputError(f"{shortened(text)} is not a text; give a string, or the token ids of one")
        if len(text) > CHARACTERS:
            trouble = f"the text has {len(text):,} characters or token ids, and the limit is {CHARACTERS:,}"
            raise InputError(f"{trouble}; give a part of it")
    model = bundle.model
    if query.target is not None and not model.has_source:
        raise InputError(f"{bundle.name}: is {bundle.description}, not a translator; leave the target out")
    if query.tokens and "generate" not in bundle.verbs:
        rule = f"{bundle.name}: is {bundle.description} and generates no tokens"
        raise InputError(f"{rule}; leave tokens={query.tokens} out")
    if model.image is not None:
        return _prepare_image(bundle, model.image, query)
    if query.image is not None:
        raise InputError(f"{bundle.name}: is {bundle.description} and reads {model.reads}; leave the image out")
    if model.reads == "tracks":
        return _prepare_scene(bundle, query)
    text = query.text
    prepared = Prepared(text if isinstance(text, str) else " ".join(map(str, text)))
    reader = TextReader(bundle, query, prepared)
    target = "" if query.target is None else query.target
    as_tree = isinstance(target, str) and (not target.strip() or holds_tags(target))
    if "parse" in bundle.verbs and isinstance(target, str) and not (as_tree or target.lstrip().startswith("(")):
        start = target if len(target) <= SHOWN else f"{target[:SHOWN]}..."
        raise InputError(f"the target {start!r} is not a tree; write it in brackets, such as (NP (DT the) (NN dog))")
    if writes(model) and "parse" in bundle.verbs and isinstance(text, str) and as_tree:
        reader.write_tree(model, text)
    elif writes(model) and model.has_source:
        reader.translate(model, text)
    elif writes(model):
        reader.generate(model, text)
    else:
        reader.read(text)
    return prepared


def _are_ids(ids: object) -> bool:
    """Return whether something is a row of whole numbers, also of NumPy or torch."""
    numbers = ids.tolist() if hasattr(ids, "tolist") else ids
    return isinstance(numbers, Sequence) and all(isinstance(number, Integral) for number in numbers)


def _prepare_image(bundle: Bundle, shape: ImageInput, query: Query) -> Prepared:
    text, image = query.text, query.image
    if image is None and isinstance(text, str) and text.strip():
        image = text.strip()  # the path of a file
    if image is None:
        raise InputError(f"{bundle.name}: is {bundle.description} and needs an image; give a file")
    picture = read_image(shape, image)
    shown = text if isinstance(text, str) and text else "an image"
    return Prepared(shown, {"images": image_tensor(bundle, picture)}, {"patches": picture.tokens()}, picture=picture)


def _prepare_scene(bundle: Bundle, query: Query) -> Prepared:
    if not isinstance(query.text, str) or not query.text.strip():
        raise InputError(f"{bundle.name}: is {bundle.description} and needs tracks; give a file, or rows")
    scene = parse_scene(query.text, *scene_steps(bundle))
    most = max(query.longest // scene.positions.shape[1], 1)
    notes = []
    if len(scene.agents) > most:
        notes.append(f"Cut to the first {most} of {len(scene.agents)} agents; the viewer does not show more.")
        scene = replace(scene, agents=scene.agents[:most], positions=scene.positions[:most], truth=scene.truth[:most])
    sequences = {"steps": step_tokens(scene.agents, scene.present.tolist())}
    return Prepared(scene.text(), scene_inputs(bundle, scene), sequences, notes, agents=scene.agents)


class TextReader:
    """Encodes texts for one model, and fills in a `Prepared` with them."""

    def __init__(self, bundle: Bundle, query: Query, prepared: Prepared) -> None:
        self.bundle, self.query, self.prepared = bundle, query, prepared
        self.context = min(query.longest, bundle.context or query.longest)

    def read(self, text: QueryText) -> None:
        """Read a text, which may contain masks."""
        before, after = self.template(text)
        ids = self.cut(self.encode(text), self.context - len(before) - len(after), "first")
        row = [*before, *ids, *after]
        if "fill" in self.bundle.model.verbs and self.bundle.tokenizer is not None:
            self.prepared.masks = [index for index, id in enumerate(row) if id == self.bundle.tokenizer.mask]
            if not self.prepared.masks:
                self.prepared.notes.append("The text contains no [MASK], so there is nothing to fill in.")
        self.add_sequence("tokens", row)

    def generate(self, model: StepModel, text: QueryText) -> None:
        """Read a prompt and what the model generates after it."""
        before, _ = self.template(text)
        wanted = TOKENS if self.query.tokens is None else self.query.tokens
        tokens = min(wanted, (self.context - len(before)) // 2)
        prompt = [*before, *self.cut(self.encode(text), self.context - len(before) - tokens, "last")]
        tokens = min(wanted, self.context - len(prompt))
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
                    forbidden=self.bundle.template.never,
                )
        self.add_sequence("tokens", [*prompt, *written])
        self.prepared.begin = len(prompt)
        if self.bundle.tokenizer is not None:
            stream = TextStream(self.bundle.tokenizer, prompt)
            self.prepared.written = stream.push(written) + stream.end()

    def translate(self, model: StepModel, text: QueryText) -> None:
        """Read a source, and the translation that the query gives or the model finds."""
        before, after = self.template(text)
        ids = self.cut(self.encode(text), self.context - len(before) - len(after), "first")
        source = [*before, *ids, *after]
        target = self.query.target
        if target is None or (isinstance(target, str) and not target.strip()):
            begin = self.beginning()
            written = self.search(model, source, begin)
        elif self.is_plain(target):
            begin, written = [], self.cut(self.encode(target, other_side=True), self.context, "first")
        else:
            begin = self.beginning()
            written = self.cut(self.encode(target, other_side=True), self.context - len(begin), "first")
        self.add_sequence("source", source)
        self.add_sequence("target", [*begin, *written])
        self.prepared.begin = len(begin) or 1
        if self.bundle.tokenizer is not None:
            forced = [*begin, *written][1:]
            self.prepared.written = self.bundle.tokenizer.decode([forced])[0]

    def write_tree(self, model: StepModel, text: str) -> None:
        """Read a sentence, and the tree that the query gives, in brackets, or the model finds."""
        words, most = split_words(text), max(self.context // WORD_TOKENS, 1)
        if not words:
            raise InputError("the text is empty; write at least one word")
        if len(words) > most:
            self.prepared.notes.append(f"Cut to the first {most} of {len(words)} words; the viewer does not show more.")
        words = words[:most]
        search = TreeSearch.of(self.bundle.need_tokenizer(), self.bundle.name)
        pieces, target = word_pieces(search.tokenizer, words), self.query.target
        if isinstance(target, str) and target.strip():
            tree = parse_tree(target)
            if tree.words() != words:
                rule = f"the tree has the words {' '.join(tree.words())!r}, but the text has {' '.join(words)!r}"
                raise InputError(f"{rule}; give a tree of the same words")
            ids = [*linearise(tree, pieces, search.symbols), search.tokenizer.end]
        else:
            with in_use(model):
                ((best, *_),) = search(self.engine(model), model, [words], self.bundle.device, self.query.beam or 1)
            self.bundle.check_scores([best.score])
            tree, ids = best.tree, best.ids
        self.add_sequence("source", search.source(pieces))
        self.add_sequence("target", [*self.beginning(), *ids])
        self.prepared.begin = 1
        self.prepared.written = str(tree)

    def search(self, model: StepModel, source: list[int], begin: list[int]) -> list[int]:
        """Translate as `regard translate` does, but keep the end token, which is read too."""
        options = translate_options(self.bundle, {"beam": self.query.beam})
        given = Given(self.row(begin), None, self.row(source))
        most = min(int(options.longest_ratio * len(source)) + SPARE, self.query.longest - len(begin))
        with in_use(model):
            ((best,),) = beam_search(
                self.engine(model),
                given,
                end=self.ends(),
                limits=fit_limits(model, given, [most]),
                beam=options.beam,
                length_penalty=options.length_penalty,
                forbidden=self.bundle.template.never,
            )
        self.bundle.check_scores([best.score])
        longest = model.longest()
        return best.ids if longest is None else best.ids[: longest - len(begin)]

    def beginning(self) -> list[int]:
        """Return the tokens that every translation begins with."""
        if self.bundle.tokenizer is None and self.bundle.template.first is None:
            raise InputError(
                f"{self.bundle.name}: has no tokenizer, so the first token of a translation is unknown; give a target"
            )
        return [self.bundle.first, *self.bundle.template.forced]

    def ends(self) -> tuple[int, ...]:
        """Return the tokens that end a text, if they are known."""
        return () if self.bundle.tokenizer is None and self.bundle.template.ends is None else self.bundle.ends

    def engine(self, model: StepModel) -> Engine:
        """Return the engine that runs decode steps; a bare model runs eagerly."""
        return self.bundle.engine or eager(model)

    # --- text to ids -------------------------------------------------------------------------------------------------

    def is_plain(self, text: QueryText) -> bool:
        """Return whether a text is given as token ids, to which nothing is added."""
        return self.bundle.tokenizer is None or not isinstance(text, str)

    def template(self, text: QueryText) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the special tokens before and after a text."""
        return ((), ()) if self.is_plain(text) else (self.bundle.template.before, self.bundle.template.after)

    def encode(self, text: QueryText, other_side: bool = False) -> list[int]:
        """Return the token ids of a text: at least one."""
        tokenizer = self.bundle.tokenizer
        if isinstance(text, str) and not text.strip():
            raise InputError("the text is empty; write at least one word")
        if tokenizer is None or not isinstance(text, str):
            ids = self.known(self.parse(text) if isinstance(text, str) else [int(id) for id in text], other_side)
        elif other_side:
            ids = tokenizer.encode_target([text])[0].tolist()
        elif "fill" in self.bundle.model.verbs:
            pieces = tokenizer.encode(MaskedRows(self.bundle).pattern.split(text))
            ids = [id for piece in pieces for id in (*piece.tolist(), tokenizer.mask)][:-1]
        else:
            ids = tokenizer.encode([self.bundle.model.clean_text(text)])[0].tolist()
        if not ids:
            raise InputError("the text has no tokens; write at least one word")
        return ids

    def parse(self, text: str) -> list[int]:
        """Read token ids that are written as numbers."""
        try:
            return [int(word) for word in text.replace(",", " ").split()]
        except ValueError:
            remedy = "write token ids, such as 5 12 7, put its tokenizer.json into its folder, or pass its tokenizer:"
            remedy += " regard.look(run, text) knows it, and so does tokenizer=run.tokenizer()"
            raise InputError(f"{self.bundle.name}: has no tokenizer; {remedy}") from None

    def known(self, ids: list[int], other_side: bool) -> list[int]:
        """Reject ids outside the vocabulary."""
        sequences = list(self.bundle.model.sequences().values())
        vocabulary = sequences[-1 if other_side else 0].vocabulary
        assert vocabulary is not None
        for index, id in enumerate(ids):
            if not 0 <= id < vocabulary:
                raise InputError(f"token id {id} at index {index} is outside the vocabulary (0 to {vocabulary - 1})")
        return ids

    def cut(self, ids: list[int], limit: int, keep: Literal["first", "last"]) -> list[int]:
        """Keep as many tokens as fit, and add a note."""
        limit = max(limit, 1)
        if len(ids) <= limit:
            return ids
        known = self.bundle.context
        why = "this model cannot read more" if known == self.context else "the viewer does not show more"
        self.prepared.notes.append(f"Cut to the {keep} {limit} of {len(ids)} tokens; {why}.")
        return ids[:limit] if keep == "first" else ids[-limit:]

    def row(self, ids: list[int]) -> Tensor:
        """Return ids as a batch of one."""
        return torch.tensor([ids], dtype=torch.long, device=self.bundle.device)

    def add_sequence(self, name: str, ids: list[int]) -> None:
        """Add a sequence of tokens that the model reads."""
        self.prepared.arguments[name] = self.row(ids)
        self.prepared.sequences[name] = describe_tokens(self.bundle.tokenizer, ids, self.bundle.model.noun == "word")
