"""Tokenizers: text to ids and back, each complete in one `tokenizer.json` (of the `tokenizers` library).

Characters, bytes, words, byte-level BPE (Sennrich et al. 2016; Radford et al. 2019) with BPE-dropout (Provilkov et
al. 2020), and unigram pieces (Kudo 2018). Characters, bytes and BPE are lossless. Words lose their spacing, but
those between blanks keep the ends of lines. Unigram pieces normalise the text (NFKC, single spaces).
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from re import fullmatch
from reprlib import repr as shortened
from secrets import token_hex
from typing import Annotated, Any, Literal, overload

import numpy as np
import tokenizers
from tokenizers import models

from regard.arguments import check_texts
from regard.atomic import make_folder, write_text
from regard.config import Config, Range, Rate, Table
from regard.data.bpe_dropout import BPEDropout
from regard.data.pieces import PieceTable, can_cut
from regard.data.ragged import split_rows
from regard.data.sentencepiece import explain_library_errors
from regard.data.tokenizer_folder import FILE, NAMES, SPECIAL_TOKENS, TARGET, open_tokenizer
from regard.data.vocabulary import (
    CODE_POINTS,
    SPECIAL,
    byte_characters,
    byte_tokenizer,
    character_tokenizer,
    characters_of,
    code_points,
    learn_bpe,
    learn_spaced,
    learn_unigram,
    learn_words,
    sample_texts,
    utf8_bytes,
)
from regard.errors import ConfigError, InputError

VOCABULARY = 8000  # the default size
TOGETHER = 1 << 18  # characters of texts that are encoded together
CHARACTERS_PER_TOKEN = 16  # of the beginning of a long text that is encoded first
SPARE_CHARACTERS, SPARE_TOKENS = 1024, 64
VocabularySize = Annotated[int, Range(low=1, high=1_000_000)]  # the library reserves memory for all of it at once
LEAST = {  # the smallest vocabularies, and why
    "bpe": (256 + len(SPECIAL), f"256 bytes and {len(SPECIAL)} special tokens"),
    "word": (len(SPECIAL) + 1, f"{len(SPECIAL)} special tokens and one more"),
    "space": (len(SPECIAL) + 1, f"{len(SPECIAL)} special tokens and one more"),
    "unigram": (len(SPECIAL) + 1, f"{len(SPECIAL)} special tokens and one more"),
}


@dataclass(frozen=True)
class TokenizerConfig(Config):
    """How a text becomes tokens: learned from the text, or read from `path` (then only `dropout` also counts).

    `vocabulary` includes the special tokens; None: the task chooses it. Characters and bytes do not use it.
    """

    kind: Literal["char", "byte", "word", "space", "bpe", "unigram"] = "bpe"
    """How texts are split: into characters, bytes, words, words between blanks (space, for a text that is tokenised
    already: the end of a line is a word, too), or pieces that are learned (Sennrich et al. 2016; Kudo 2018)."""
    vocabulary: VocabularySize | None = None
    """Number of tokens of a learned vocabulary; absent: chosen from the data."""
    dropout: Rate = 0.0
    """Share of BPE merges that training leaves out (Provilkov et al. 2020)."""
    path: str | None = None
    """A folder with a tokenizer to use instead of learning one; absent: one is learned."""

    def validate(self) -> None:
        """Check the rules between values."""
        if self.path is not None:
            return
        if self.dropout and self.kind != "bpe":
            raise ConfigError(f"{self.dropout} is for kind='bpe' only; kind is '{self.kind}'", "dropout")
        least, why = LEAST.get(self.kind, (0, ""))
        if self.vocabulary is not None and self.vocabulary < least:
            raise ConfigError(f"{self.vocabulary} must be at least {least} ({why})", "vocabulary")


class Tokenizer:
    """Text to ids and back. Text that spells a special token does not become one, unless `special` asks for it.

    `roles` are the ids of the special tokens, if the tokenizer must not get new tokens; `target` encodes the target
    side of a pair, with the same vocabulary.
    """

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        dropout: float = 0.0,
        roles: Mapping[str, int] | None = None,
        target: tokenizers.Tokenizer | None = None,
    ) -> None:
        self.dropout = dropout
        backend.no_truncation()
        backend.no_padding()
        if isinstance(backend.model, models.BPE):
            backend.model.dropout = None
        self.roles = roles
        found = _roles(backend) if roles is None else [roles[role] for role in NAMES]
        self.pad, self.unk, self.start, self.end, self.mask = found
        self.size = max(backend.get_vocab().values()) + 1
        self._backend = backend
        self._plain = _without_special_names(backend)
        self.target = target
        self._plain_target = self._plain if target is None else _without_special_names(target)
        self._dropout = BPEDropout(self._plain, dropout) if dropout else None
        self._look_up = _table_lookup(backend)
        self._pieces = PieceTable(partial(_ids, self._plain)) if can_cut(self._plain) else None
        self.specials = {id for id, token in backend.get_added_tokens_decoder().items() if token.special}
        self._decoder = json.dumps(json.loads(backend.to_str())["decoder"], ensure_ascii=False)
        names = backend.get_vocab() if "ByteFallback" in self._decoder else {}
        self.byte_tokens = {id for name, id in names.items() if fullmatch(_BYTE_TOKEN, name)}  # for unknown characters

    def __reduce__(self) -> tuple[type["Tokenizer"], tuple[Any, ...]]:
        """Return what a copy, or a tokenizer in another process, is made from."""
        return type(self), (self._backend, self.dropout, self.roles, self.target)

    @overload
    def encode(self, texts: str, *, special: bool = False) -> np.ndarray: ...  # type: ignore[overload-overlap]
    @overload
    def encode(self, texts: Sequence[str], *, special: bool = False) -> list[np.ndarray]: ...
    def encode(self, texts: str | Sequence[str], *, special: bool = False) -> np.ndarray | list[np.ndarray]:
        """Return the ids of one text, int32, or of each text of a list.

        With `special`, names such as <mask> in a text mean the special tokens.
        """
        if isinstance(texts, str):
            return self.encode([texts], special=special)[0]
        texts = list(check_texts(texts, "texts"))
        if self._look_up is not None and not special:
            return [self._look_up(text) for text in texts]
        if self._pieces is not None and not special:
            return [row for group in _groups(texts) for row in split_rows(*self._pieces.look_up(group))]
        return _ids(self._backend if special else self._plain, texts)

    def encode_part(self, texts: Sequence[str], limit: int, last: bool = False) -> list[np.ndarray]:
        """Encode as much of each text as decides its first (or `last`) `limit` ids.

        The result has more than `limit` ids if the whole text has; then only the first (or last) `limit` count.
        """
        found: list[np.ndarray] = [np.empty(0, np.int32)] * len(texts)
        rows, size = list(range(len(texts))), limit * CHARACTERS_PER_TOKEN + SPARE_CHARACTERS
        while rows:
            parts = [texts[row][-size:] if last else texts[row][:size] for row in rows]
            for row, ids in zip(rows, self.encode(parts), strict=True):
                found[row] = ids
            # near a cut the tokens are not those of the whole text
            rows = [row for row in rows if len(texts[row]) > size and len(found[row]) <= limit + SPARE_TOKENS]
            size *= 4
        return found

    def encode_target(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Return the ids of texts of the target side of pairs; few tokenizers treat it differently."""
        return self.encode(texts) if self.target is None else _ids(self._plain_target, texts)

    def encode_varied(self, texts: Sequence[str], seed: Sequence[int]) -> list[np.ndarray]:
        """Encode with BPE-dropout: merges are left out at random, so that a word is seen split in many ways.

        The same texts and the same numbers in `seed` give the same ids, in every process and on every machine.
        """
        return self.encode(texts) if self._dropout is None else self._dropout.encode(texts, seed)

    @overload
    def decode(self, rows: np.ndarray | Sequence[int]) -> str: ...
    @overload
    def decode(self, rows: Sequence[Sequence[int] | np.ndarray]) -> list[str]: ...
    def decode(self, rows: np.ndarray | Sequence[int] | Sequence[Sequence[int] | np.ndarray]) -> str | list[str]:
        """Return the text of one row of ids, or of each row of a list; special tokens are left out."""
        if isinstance(rows, str | bytes | Mapping) or not hasattr(rows, "__len__"):
            raise _not_ids(rows)
        if (isinstance(rows, np.ndarray) and rows.ndim == 1) or (len(rows) and np.ndim(rows[0]) == 0):
            return self._backend.decode(self._known(rows))
        return self._backend.decode_batch([self._known(row) for row in rows])

    def _known(self, row: Any) -> list[int]:
        """Return a row of ids as a list; an id that no vocabulary can have is an error."""
        ids = np.asarray(row)
        if ids.dtype.kind not in "iu" and ids.size:
            raise _not_ids(row)
        wrong = ids[(ids < 0) | (ids >= 2**31)]
        if len(wrong):
            raise InputError(f"the vocabulary of {self.size} tokens has no token {wrong[0]}")
        return ids.tolist()

    def spans(self, texts: Sequence[str]) -> list[list[tuple[int, int]]]:
        """Return the characters of each text that each of its ids covers, as (start, end)."""
        with explain_library_errors():
            encodings = self._plain.encode_batch(list(texts), add_special_tokens=False)
        return [encoding.offsets for encoding in encodings]

    def joins_blanks(self) -> bool:
        """Return whether the token of a word includes the space before it."""
        ids = sorted({*self._backend.get_vocab().values()} - self.specials)
        return any(piece[0].isspace() and not piece.isspace() for piece in self.pieces(ids) if piece)

    def around(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the special tokens that the tokenizer's template has before and after a text; `encode` adds none."""
        with explain_library_errors():
            plain, wrapped = (self._backend.encode("a", add_special_tokens=special).ids for special in (False, True))
        before = next(place for place in range(len(wrapped)) if wrapped[place : place + len(plain)] == plain)
        return tuple(wrapped[:before]), tuple(wrapped[before + len(plain) :])

    def names(self, size: int) -> list[str]:
        """List the names of the first `size` tokens, as in the file; an id without a token is `<unused ID>`."""
        return [self._backend.id_to_token(id) or f"<unused {id}>" for id in range(size)]

    def adding(self, names: Sequence[str]) -> "Tokenizer":
        """Return this tokenizer with more tokens at the end of its vocabulary, which are not special."""
        backend = tokenizers.Tokenizer.from_str(self.to_json())
        backend.add_tokens([tokenizers.AddedToken(name, normalized=False) for name in names])
        return Tokenizer(backend, self.dropout, self.roles, self.target)

    def added(self) -> dict[str, int]:
        """Return the tokens that were added to the vocabulary without being special, by name."""
        tokens = self._backend.get_added_tokens_decoder()
        return {token.content: id for id, token in tokens.items() if not token.special}

    def to_json(self) -> str:
        """Return the text of `tokenizer.json`."""
        return self._backend.to_str(pretty=True)

    def pieces(self, ids: Sequence[int] | np.ndarray) -> list[str]:
        r"""Return each token as text, with its leading space; bytes that are not a character by themselves as \xNN."""
        if isinstance(ids, str | bytes | Mapping) or not hasattr(ids, "__len__") or any(np.ndim(id) for id in ids):
            raise InputError(f"{shortened(ids)} must be one row of token ids")
        return [self._show(id) for id in self._known(ids)]

    def _show(self, id: int) -> str:
        name = self._backend.id_to_token(id)
        if name is None:
            raise InputError(f"the vocabulary of {self.size} tokens has no token {id}")
        if id in self.specials:
            return name
        if "ByteLevel" in self._decoder and all(character in _BYTE_OF for character in name):
            return bytes(_BYTE_OF[character] for character in name).decode(errors="backslashreplace")
        if id in self.byte_tokens:
            return bytes([int(name[3:5], 16)]).decode(errors="backslashreplace")
        return name.replace("▁", " ") if "▁" in self._decoder else name

    def save(self, folder: Path) -> None:
        """Write `tokenizer.json` into the folder, each file completely or not at all.

        The roles of its special tokens are written beside it, unless these follow from their names.
        """
        files = {FILE: self.to_json()}
        files |= {} if self.roles is None else {SPECIAL_TOKENS: json.dumps(dict(self.roles), indent=2) + "\n"}
        files |= {} if self.target is None else {TARGET: self.target.to_str(pretty=True)}
        make_folder(folder)
        for name, text in files.items():
            write_text(folder / name, text)

    def fingerprint(self) -> str:
        """Return the SHA-256 of the tokenizer's JSON, which identifies it."""
        state = _rounded(self._backend)
        if self.roles is not None:
            state["roles"] = dict(self.roles)
        if self.target is not None:
            state["target"] = _rounded(self.target)
        return sha256(json.dumps(state).encode()).hexdigest()


# --- details -------------------------------------------------------------------------------------------------------


_BYTE_TOKEN = "<0x[0-9A-F]{2}>"
_BYTE_OF = {character: byte for byte, character in enumerate(byte_characters())}


def _not_ids(given: object) -> InputError:
    return InputError(f"{shortened(given)} must be token ids, which are whole numbers, or a list of rows of them")


def _roles(backend: tokenizers.Tokenizer) -> list[int]:
    """Find the ids of pad, unk, start, end and mask by their usual names; add missing ones at the end."""
    ids = {token.content: id for id, token in backend.get_added_tokens_decoder().items() if token.special}
    roles = []
    for ours, names in zip(SPECIAL, NAMES.values(), strict=True):
        name = next((name for name in names if name in ids), ours)
        if name not in ids:
            backend.add_special_tokens([name])
            ids[name] = backend.get_vocab()[name]
        roles.append(ids[name])
    return roles


def _rounded(backend: tokenizers.Tokenizer) -> Table:
    """Return the JSON with rounded scores: the library may change their last digit when it reads its own file."""
    state: Table = json.loads(backend.to_str(), parse_float=lambda digits: round(float(digits), 6))
    return state


def _without_special_names(backend: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """Copy a tokenizer and give its special tokens random names, so that no text can spell them; ids stay."""
    state = json.loads(backend.to_str())
    model = state["model"]
    secret = {token["content"]: token_hex(16) for token in state["added_tokens"] if token["special"]}
    for token in state["added_tokens"]:
        token["content"] = secret.get(token["content"], token["content"])
    if isinstance(model["vocab"], dict):
        model["vocab"] = {secret.get(piece, piece): id for piece, id in model["vocab"].items()}
    else:
        model["vocab"] = [[secret.get(piece, piece), score] for piece, score in model["vocab"]]
    if "merges" in model:
        model["merges"] = [[left, right] for left, right in model["merges"] if left + right not in secret]
    if "unk_token" in model:
        model["unk_token"] = secret.get(model["unk_token"], model["unk_token"])
    return tokenizers.Tokenizer.from_str(json.dumps(state | {"post_processor": None}))


def _ids(backend: tokenizers.Tokenizer, texts: Sequence[str]) -> list[np.ndarray]:
    ids: list[np.ndarray] = []
    for group in _groups(texts):
        with explain_library_errors():
            encodings = backend.encode_batch_fast(group, add_special_tokens=False)
        ids += [np.array(encoding.ids, dtype=np.int32) for encoding in encodings]
    return ids


def _groups(texts: Sequence[str]) -> Iterator[list[str]]:
    """Yield lists of texts of a limited size: the library needs up to 200 bytes for a character until it is done."""
    group: list[str] = []
    size = 0
    for text in texts:
        if group and size + len(text) > TOGETHER:
            yield group
            group, size = [], 0
        group.append(text)
        size += len(text)
    if group:
        yield group


def _table_lookup(backend: tokenizers.Tokenizer) -> Callable[[str], np.ndarray] | None:
    """Return a table lookup that encodes like a tokenizer of characters or bytes, or None for all others."""
    state, first = backend.to_str(), len(SPECIAL)
    if state == byte_tokenizer().to_str():
        return lambda text: utf8_bytes(text).astype(np.int32) + first
    vocabulary = backend.get_vocab(with_added_tokens=False)
    characters = sorted(vocabulary, key=vocabulary.__getitem__)[first:]
    if any(len(one) != 1 for one in characters) or state != character_tokenizer(characters).to_str():
        return None
    table = np.full(CODE_POINTS, SPECIAL.index("<unk>"), dtype=np.int32)
    table[code_points("".join(characters))] = np.arange(first, first + len(characters))
    return lambda text: table[code_points(text)]


# --- learning and reading ------------------------------------------------------------------------------------------


def train_tokenizer(texts: Iterable[str], config: TokenizerConfig, progress: bool = False) -> Tokenizer:
    """Learn a tokenizer from texts; the same texts give the same tokenizer.

    Memory is bounded, however long the texts are: characters are collected from all of them, everything else is learned
    from at most 100 MB, spread evenly over the texts (see `sample_texts`).
    """
    if config.path is not None:
        return load_tokenizer(Path(config.path))
    if config.kind == "byte":
        return Tokenizer(byte_tokenizer())
    if config.kind == "char":
        return Tokenizer(character_tokenizer(characters_of(texts)))
    learn = {"word": learn_words, "space": learn_spaced, "bpe": learn_bpe, "unigram": learn_unigram}[config.kind]
    return Tokenizer(learn(sample_texts(texts), config.vocabulary or VOCABULARY, progress), config.dropout)


def load_tokenizer(path: Path, dropout: float = 0.0) -> Tokenizer:
    """Read a tokenizer.json, a sentencepiece .model, or a folder that holds one, also of Hugging Face.

    Special tokens are found by their usual names ([PAD], <|endoftext|>, ...); missing ones get new ids at the end. In a
    Hugging Face folder with a model, its files say which token has which role, and no token is added.
    """
    opened = open_tokenizer(path)
    return Tokenizer(opened.backend, dropout, opened.roles, opened.target)
