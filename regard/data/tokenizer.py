"""Tokenizers: text to ids and back, each complete in one `tokenizer.json` (of the `tokenizers` library).

Characters, bytes, words, byte-level BPE (Sennrich et al. 2016; Radford et al. 2019) with BPE-dropout (Provilkov et
al. 2020), and unigram pieces (Kudo 2018). Characters, bytes and BPE lose nothing; words lose their spacing, and
unigram pieces are of text in Unicode's compatibility form with single blanks.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from re import fullmatch
from secrets import token_hex
from typing import Literal

import numpy as np
import tokenizers
from tokenizers import models

from regard.config import Config, Count, Rate, Table
from regard.data.tokenizer_folder import FILE, NAMES, SPECIAL_TOKENS, TARGET, open_tokenizer
from regard.data.vocabulary import (
    POINTS,
    SPECIAL,
    byte_letters,
    byte_tokens,
    half_character,
    learn_bpe,
    learn_unigram,
    learn_words,
    letter_tokens,
    letters_of,
    numbers,
    sample,
)
from regard.errors import ConfigError, InputError, RegardError

VOCABULARY = 8000  # where nobody chose
LEAST = {  # the smallest vocabularies, and why
    "bpe": (256 + len(SPECIAL), f"256 bytes and {len(SPECIAL)} special tokens"),
    "word": (len(SPECIAL) + 1, f"{len(SPECIAL)} special tokens and one more"),
    "unigram": (len(SPECIAL) + 1, f"{len(SPECIAL)} special tokens and one more"),
}


@dataclass(frozen=True)
class TokenizerConfig(Config):
    """How a text becomes tokens: learned from the text, or read from `path`, and then the rest is ignored.

    `vocabulary` counts the special tokens too; None leaves it to the caller. Characters and bytes need none.
    """

    kind: Literal["char", "byte", "word", "bpe", "unigram"] = "bpe"
    vocabulary: Count | None = None
    dropout: Rate = 0.0
    path: str | None = None

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
    """Text to ids and back. What a text says is never taken for a special token, unless that is asked for.

    `roles` are the ids of the special tokens, for a tokenizer to which none may be added; `target` cuts the other side
    of a pair, with the same vocabulary.
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
        self._plain = _unspoken(backend)
        self.target = target
        self._plain_target = self._plain if target is None else _unspoken(target)
        self._varied = _unspoken(backend, dropout) if dropout else self._plain
        self._look_up = _look_up(backend)
        self.specials = {id for id, token in backend.get_added_tokens_decoder().items() if token.special}
        self._decoder = json.dumps(json.loads(backend.to_str())["decoder"], ensure_ascii=False)
        names = backend.get_vocab() if "ByteFallback" in self._decoder else {}
        self.spare_bytes = {id for name, id in names.items() if fullmatch(_SPARE_BYTE, name)}  # for unknown characters

    def encode(self, texts: Sequence[str], *, special: bool = False) -> list[np.ndarray]:
        """Give the ids of each text, int32; with `special`, names such as <mask> in it mean the special tokens."""
        if self._look_up is not None and not special:
            return [self._look_up(text) for text in texts]
        return _ids(self._backend if special else self._plain, texts)

    def encode_target(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Give the ids of texts of the other side of pairs, which few tokenizers cut differently."""
        return self.encode(texts) if self.target is None else _ids(self._plain_target, texts)

    def encode_varied(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Encode with BPE-dropout: each merge is left out by chance, so that a word is seen in many pieces."""
        return _ids(self._varied, texts) if self._varied is not self._plain else self.encode(texts)

    def decode(self, rows: Sequence[Sequence[int] | np.ndarray]) -> list[str]:
        """Give the texts of rows of ids; special tokens are left out."""
        return self._backend.decode_batch([np.asarray(row, np.int64).tolist() for row in rows])

    def spans(self, texts: Sequence[str]) -> list[list[tuple[int, int]]]:
        """Give the characters of each text, from and to, that each of its ids stands for."""
        encodings = self._plain.encode_batch(list(texts), add_special_tokens=False)
        return [encoding.offsets for encoding in encodings]

    def joins_blanks(self) -> bool:
        """Tell whether words have the blank before them in their tokens."""
        ids = sorted({*self._backend.get_vocab().values()} - self.specials)
        return any(piece[0].isspace() and not piece.isspace() for piece in self.pieces(ids) if piece)

    def around(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Give the special tokens that stand before and after a text, for those who want them: see `encode`."""
        plain, framed = (self._backend.encode("a", add_special_tokens=special).ids for special in (False, True))
        before = next(place for place in range(len(framed)) if framed[place : place + len(plain)] == plain)
        return tuple(framed[:before]), tuple(framed[before + len(plain) :])

    def names(self, size: int) -> list[str]:
        """Give the names of the first `size` tokens, as they are in the file; what has none is called by its id."""
        return [self._backend.id_to_token(id) or f"<unused {id}>" for id in range(size)]

    def to_json(self) -> str:
        """Give the text of `tokenizer.json`."""
        return self._backend.to_str(pretty=True)

    def pieces(self, ids: Sequence[int] | np.ndarray) -> list[str]:
        r"""Show each token by itself, with its leading blank; bytes that are no character alone as \xNN."""
        return [self._show(int(id)) for id in ids]

    def _show(self, id: int) -> str:
        name = self._backend.id_to_token(id)
        if name is None:
            raise InputError(f"the vocabulary of {self.size} tokens has no token {id}")
        if id in self.specials:
            return name
        if "ByteLevel" in self._decoder and all(letter in _BYTE_OF for letter in name):
            return bytes(_BYTE_OF[letter] for letter in name).decode(errors="backslashreplace")
        if id in self.spare_bytes:
            return bytes([int(name[3:5], 16)]).decode(errors="backslashreplace")
        return name.replace("▁", " ") if "▁" in self._decoder else name

    def save(self, folder: Path) -> None:
        """Write `tokenizer.json` into the folder, each file whole or not at all.

        What its special tokens are for is written beside it where their names do not tell.
        """
        files = {FILE: self.to_json()}
        files |= {} if self.roles is None else {SPECIAL_TOKENS: json.dumps(dict(self.roles), indent=2) + "\n"}
        files |= {} if self.target is None else {TARGET: self.target.to_str(pretty=True)}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for name, text in files.items():
                part = folder / f"{name}.part"
                part.write_text(text, encoding="utf-8")
                part.replace(folder / name)
        except OSError as error:
            raise RegardError(f"{folder / FILE}: the tokenizer cannot be written: {error.strerror}") from None

    def fingerprint(self) -> str:
        """Give a name that no other tokenizer has: the sha256 of its JSON."""
        state = _rounded(self._backend)
        if self.roles is not None:
            state["roles"] = dict(self.roles)
        if self.target is not None:
            state["target"] = _rounded(self.target)
        return sha256(json.dumps(state).encode()).hexdigest()


# --- inside --------------------------------------------------------------------------------------------------------


_SPARE_BYTE = "<0x[0-9A-F]{2}>"
_BYTE_OF = {letter: byte for byte, letter in enumerate(byte_letters())}


def _roles(backend: tokenizers.Tokenizer) -> list[int]:
    """Find the ids of pad, unk, start, end and mask by their usual names; what is missing is added at the end."""
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
    """Give the JSON with rounded scores, since the library may change their last digit when it reads what it wrote."""
    state: Table = json.loads(backend.to_str(), parse_float=lambda digits: round(float(digits), 6))
    return state


def _unspoken(backend: tokenizers.Tokenizer, dropout: float = 0.0) -> tokenizers.Tokenizer:
    """Copy a tokenizer, giving its special tokens names that no text can guess: their ids stay, but out of reach."""
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
    if dropout:
        if model["type"] != "BPE":
            raise ConfigError(f"{dropout} is for BPE only; this tokenizer is of the kind {model['type']}", "dropout")
        model["dropout"] = dropout
    return tokenizers.Tokenizer.from_str(json.dumps(state | {"post_processor": None}))


def _ids(backend: tokenizers.Tokenizer, texts: Sequence[str]) -> list[np.ndarray]:
    try:
        encodings = backend.encode_batch_fast(list(texts), add_special_tokens=False)
    except TypeError:  # all the library says of a text that is no Unicode
        raise half_character() from None
    return [np.array(encoding.ids, dtype=np.int32) for encoding in encodings]


def _look_up(backend: tokenizers.Tokenizer) -> Callable[[str], np.ndarray] | None:
    """Give the look-up in a table that does what a tokenizer of letters or bytes does, or None for all others."""
    state, first = backend.to_str(), len(SPECIAL)
    if state == byte_tokens().to_str():
        return lambda text: numbers(text, "utf-8", np.uint8).astype(np.int32) + first
    vocabulary = backend.get_vocab(with_added_tokens=False)
    letters = sorted(vocabulary, key=vocabulary.__getitem__)[first:]
    if any(len(letter) != 1 for letter in letters) or state != letter_tokens(letters).to_str():
        return None
    table = np.full(POINTS, SPECIAL.index("<unk>"), dtype=np.int32)
    table[numbers("".join(letters))] = np.arange(first, first + len(letters))
    return lambda text: table[numbers(text)]


# --- learning and reading ------------------------------------------------------------------------------------------


def train_tokenizer(texts: Iterable[str], config: TokenizerConfig, progress: bool = False) -> Tokenizer:
    """Learn a tokenizer from texts; the same texts give the same tokenizer.

    Memory stays bounded, however long the texts: letters are looked up in all of them, anything else is learned from
    at most 100 MB, spread evenly over the texts (see `vocabulary.sample`).
    """
    if config.path is not None:
        return load_tokenizer(Path(config.path))
    if config.kind == "byte":
        return Tokenizer(byte_tokens())
    if config.kind == "char":
        return Tokenizer(letter_tokens(letters_of(texts)))
    learn = {"word": learn_words, "bpe": learn_bpe, "unigram": learn_unigram}[config.kind]
    return Tokenizer(learn(sample(texts), config.vocabulary or VOCABULARY, progress), config.dropout)


def load_tokenizer(path: Path, dropout: float = 0.0) -> Tokenizer:
    """Read a tokenizer.json, a sentencepiece .model, or the folder that holds one, also of Hugging Face.

    Special tokens are known by their usual names ([PAD], <|endoftext|>, ...); those missing get new ids at the end. A
    folder that also holds a model says itself what they are for, and gets no more.
    """
    opened = open_tokenizer(path)
    return Tokenizer(opened.backend, dropout, opened.roles, opened.target)
