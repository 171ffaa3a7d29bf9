"""Tokenizers: text to ids and back, each complete in one `tokenizer.json` (of the `tokenizers` library).

Characters, bytes, words, byte-level BPE (Sennrich et al. 2016; Radford et al. 2019) with BPE-dropout (Provilkov et
al. 2020), and unigram pieces (Kudo 2018). Characters, bytes and BPE lose nothing; words lose their spacing, and
unigram pieces are of text in Unicode's compatibility form with single blanks.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from re import fullmatch
from secrets import token_hex
from typing import Literal

import numpy as np
import tokenizers
from tokenizers import models

from regard.config import Count, Rate
from regard.data.sentencepiece import read_sentencepiece
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

FILE = "tokenizer.json"
NAMES = {  # what others call the special tokens; the first found counts
    "pad": ("<pad>", "[PAD]", "<|pad|>", "<|padding|>", "<PAD>", "<|finetune_right_pad_id|>"),
    "unk": ("<unk>", "[UNK]", "<|unk|>", "<UNK>", "<|endoftext|>"),
    "start": ("<s>", "[CLS]", "[BOS]", "<bos>", "<|begin_of_text|>", "<|startoftext|>", "<|endoftext|>"),
    "end": ("</s>", "[SEP]", "[EOS]", "<eos>", "<|end_of_text|>", "<|endoftext|>", "<|im_end|>"),
    "mask": ("<mask>", "[MASK]", "<|mask|>", "<MASK>"),
}
VOCABULARY = 8000  # where nobody chose
LEAST = {  # the smallest vocabularies, and why
    "bpe": (256 + len(SPECIAL), f"256 bytes and {len(SPECIAL)} special tokens"),
    "word": (len(SPECIAL) + 1, f"{len(SPECIAL)} special tokens and one more"),
    "unigram": (len(SPECIAL) + 1, f"{len(SPECIAL)} special tokens and one more"),
}


@dataclass(frozen=True)
class TokenizerConfig:
    """How a text becomes tokens: learned from the text, or read from `path`, and then the rest is ignored.

    `vocabulary` counts the special tokens too; None leaves it to the caller. Characters and bytes need none.
    """

    kind: Literal["char", "byte", "word", "bpe", "unigram"] = "bpe"
    vocabulary: Count | None = None
    dropout: Rate = 0.0
    path: str | None = None

    def __post_init__(self) -> None:
        if self.path is not None:
            return
        if self.dropout and self.kind != "bpe":
            raise ConfigError(f"{self.dropout} is for kind='bpe' only; kind is '{self.kind}'", "dropout")
        least, why = LEAST.get(self.kind, (0, ""))
        if self.vocabulary is not None and self.vocabulary < least:
            raise ConfigError(f"{self.vocabulary} must be at least {least} ({why})", "vocabulary")


class Tokenizer:
    """Text to ids and back. What a text says is never taken for a special token, unless that is asked for."""

    def __init__(self, backend: tokenizers.Tokenizer, dropout: float = 0.0) -> None:
        self.dropout = dropout
        backend.no_truncation()
        backend.no_padding()
        if isinstance(backend.model, models.BPE):
            backend.model.dropout = None
        self.pad, self.unk, self.start, self.end, self.mask = _roles(backend)
        self.size = max(backend.get_vocab().values()) + 1
        self._backend = backend
        self._plain = _unspoken(backend)
        self._varied = _unspoken(backend, dropout) if dropout else self._plain
        self._look_up = _look_up(backend)
        self._specials = {id for id, token in backend.get_added_tokens_decoder().items() if token.special}
        self._decoder = json.dumps(json.loads(backend.to_str())["decoder"], ensure_ascii=False)

    def encode(self, texts: Sequence[str], *, special: bool = False) -> list[np.ndarray]:
        """Give the ids of each text, int32; with `special`, names such as <mask> in it mean the special tokens."""
        if self._look_up is not None and not special:
            return [self._look_up(text) for text in texts]
        return _ids(self._backend if special else self._plain, texts)

    def encode_varied(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Encode with BPE-dropout: each merge is left out by chance, so that a word is seen in many pieces."""
        return _ids(self._varied, texts) if self._varied is not self._plain else self.encode(texts)

    def decode(self, rows: Sequence[Sequence[int] | np.ndarray]) -> list[str]:
        """Give the texts of rows of ids; special tokens are left out."""
        return self._backend.decode_batch([np.asarray(row, np.int64).tolist() for row in rows])

    def pieces(self, ids: Sequence[int] | np.ndarray) -> list[str]:
        r"""Show each token by itself, with its leading blank; bytes that are no character alone as \xNN."""
        return [self._show(int(id)) for id in ids]

    def _show(self, id: int) -> str:
        name = self._backend.id_to_token(id)
        if name is None:
            raise InputError(f"the vocabulary of {self.size} tokens has no token {id}")
        if id in self._specials:
            return name
        if "ByteLevel" in self._decoder and all(letter in _BYTE_OF for letter in name):
            return bytes(_BYTE_OF[letter] for letter in name).decode(errors="backslashreplace")
        if "ByteFallback" in self._decoder and fullmatch("<0x[0-9A-F]{2}>", name):
            return bytes([int(name[3:5], 16)]).decode(errors="backslashreplace")
        return name.replace("▁", " ") if "▁" in self._decoder else name

    def save(self, folder: Path) -> None:
        """Write `tokenizer.json` into the folder, whole or not at all."""
        part = folder / f"{FILE}.part"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            part.write_text(self._backend.to_str(pretty=True), encoding="utf-8")
            part.replace(folder / FILE)
        except OSError as error:
            raise RegardError(f"{folder / FILE}: the tokenizer cannot be written: {error.strerror}") from None

    def fingerprint(self) -> str:
        """Give a name that no other tokenizer has: the sha256 of its JSON."""
        # Scores are rounded, since the library may change their last digit when it reads what it wrote.
        state = json.loads(self._backend.to_str(), parse_float=lambda digits: round(float(digits), 6))
        return sha256(json.dumps(state).encode()).hexdigest()


# --- inside --------------------------------------------------------------------------------------------------------


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
    """Read a tokenizer.json, a sentencepiece .model, or the folder that holds one.

    Special tokens are known by their usual names ([PAD], <|endoftext|>, ...); those missing get new ids at the end.
    """
    kinds = "a tokenizer is a tokenizer.json, a sentencepiece .model, or a folder with one"
    if path.is_dir():
        found = [path / FILE] if (path / FILE).exists() else sorted(path.glob("*.model"))
        if len(found) != 1:
            trouble = "several .model files" if found else "no tokenizer.json and no sentencepiece .model"
            raise RegardError(f"{path}: holds {trouble}; name the file of the tokenizer")
        path = found[0]
    if not path.exists():
        raise RegardError(f"{path}: there is no such file; {kinds}")
    if path.suffix == ".model":
        return Tokenizer(read_sentencepiece(path), dropout)
    if path.suffix != ".json":
        raise RegardError(f"{path}: is of no known kind; {kinds}")
    try:
        backend = tokenizers.Tokenizer.from_str(path.read_text(encoding="utf-8"))
    except Exception as error:  # the library knows no narrower class
        reason = error.strerror if isinstance(error, OSError) else error
        raise RegardError(f"{path}: no tokenizer can be read from here: {reason}") from None
    return Tokenizer(backend, dropout)
