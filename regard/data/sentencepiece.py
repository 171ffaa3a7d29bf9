"""Read a sentencepiece `.model` without the sentencepiece package (Kudo and Richardson 2018).

The file is a protobuf message: pieces with score and type, how text is normalised, and which ids are special. The
result is a tokenizer of the `tokenizers` library with the same ids. Known differences: the library composes a
character with several combining marks differently; and a text that spells `<0x41>` gets that byte in a unigram model
with bytes.
"""

import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import IntEnum
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers

from regard.data.vocabulary import surrogate_error
from regard.errors import InputError, RegardError

SPACE = "▁"  # how sentencepiece writes a space
NEVER = -1e6  # a score so low that any other segmentation is better
MANY = 1000  # spaces at the beginning of a text that decoding removes


class PieceKind(IntEnum):
    """What a piece is for."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER = 4
    UNUSED = 5
    BYTE = 6


class Segmentation(IntEnum):
    """How a text is segmented."""

    UNIGRAM = 1
    BPE = 2
    WORD = 3
    CHAR = 4


@dataclass(frozen=True)
class VocabularyPiece:
    """One piece of the vocabulary."""

    name: str
    score: float
    kind: PieceKind


@dataclass(frozen=True)
class SentencePieceModel:
    """The content of the file."""

    pieces: list[VocabularyPiece]
    method: Segmentation
    byte_fallback: bool
    space_after: bool
    roles: dict[str, int]  # the ids of <unk>, <s>, </s>, <pad>; -1 for a missing one
    characters: bytes  # the compiled table of the normaliser
    space_first: bool
    fewer_spaces: bool
    escaped_spaces: bool


def read_sentencepiece(path: Path, vocabulary: Mapping[str, int] | None = None) -> tokenizers.Tokenizer:
    """Read a sentencepiece model as a tokenizer of the `tokenizers` library with the same ids.

    With a `vocabulary`, the model only segments the text, and ids are those of the vocabulary.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RegardError(f"{path}: cannot be read: {error.strerror}") from None
    try:
        model = _parse(data) if vocabulary is None else _renumbered(_parse(data), vocabulary)
        unsupported = _unsupported(model)
        backend = None if unsupported else _convert(model)
    except BaseException as error:
        if not is_library_error(error):
            raise
        raise RegardError(f"{path}: not a sentencepiece model, or damaged; copy it again") from None
    if backend is None:
        raise RegardError(
            f"{path}: a sentencepiece model with {unsupported} cannot be read; convert it to a tokenizer.json"
        )
    return backend


# --- the file ------------------------------------------------------------------------------------------------------


def _parse(data: bytes) -> SentencePieceModel:
    """Read the message by the field numbers of sentencepiece_model.proto."""
    fields = _fields(data)
    trainer, normal = (_fields(b"".join(fields.get(number, []))) for number in (2, 3))
    defaults = {"<unk>": (40, 0), "<s>": (41, 1), "</s>": (42, 2), "<pad>": (43, -1)}
    return SentencePieceModel(
        pieces=[_piece(message) for message in fields[1]],
        method=Segmentation(trainer.get(3, [1])[-1]),
        byte_fallback=bool(trainer.get(35, [0])[-1]),
        space_after=bool(trainer.get(24, [0])[-1]),
        roles={name: trainer.get(number, [default])[-1] for name, (number, default) in defaults.items()},
        characters=bytes(normal.get(2, [b""])[-1]),
        space_first=bool(normal.get(3, [1])[-1]),
        fewer_spaces=bool(normal.get(4, [1])[-1]),
        escaped_spaces=bool(normal.get(5, [1])[-1]),
    )


def _piece(message: bytes) -> VocabularyPiece:
    fields = _fields(message)
    score = struct.unpack("<f", fields[2][-1])[0] if 2 in fields else 0.0
    if not isfinite(score):
        raise ValueError("a score that is not a number")
    return VocabularyPiece(fields[1][-1].decode(), score, PieceKind(fields.get(3, [1])[-1]))


def _fields(message: bytes) -> dict[int, list[Any]]:
    """Collect the values of each field of a protobuf message: integers as int, everything else as bytes."""
    found: dict[int, list[Any]] = {}
    place = 0
    while place < len(message):
        tag, place = _varint(message, place)
        if tag & 7 == 0:
            value, place = _varint(message, place)
            found.setdefault(tag >> 3, []).append(value)
            continue
        if tag & 7 == 2:
            size, place = _varint(message, place)
        else:
            size = {1: 8, 5: 4}[tag & 7]
        found.setdefault(tag >> 3, []).append(message[place : place + size])
        place += size
        if place > len(message):
            raise ValueError("truncated")
    return found


def _varint(message: bytes, place: int) -> tuple[int, int]:
    """Read an integer, seven bits per byte; return it and the index after it."""
    value = 0
    for shift in range(0, 70, 7):  # ten bytes hold 64 bits
        byte = message[place]
        value |= (byte & 0x7F) << shift
        place += 1
        if byte < 0x80:
            return (value - (1 << 64) if value >> 63 else value), place
    raise ValueError("an integer of more than ten bytes")


# --- what the library does not check -------------------------------------------------------------------------------


def is_library_error(error: BaseException) -> bool:
    """Return whether an error comes from the tokenizers library: it has no class of its own, and none for a panic."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


@contextmanager
def explain_library_errors() -> Iterator[None]:
    """Report what the library raises while it reads a text as an error of the text or of the tokenizer."""
    try:
        yield
    except TypeError:  # what the library raises for invalid Unicode
        raise surrogate_error() from None
    except BaseException as error:
        if not is_library_error(error):
            raise
        raise InputError(f"the tokenizer cannot read a text: {error}; check its tokenizer.json") from None


def check_charsmap(data: bytes) -> None:
    """Raise a ValueError if the compiled table of a normaliser is damaged; the library would abort the process.

    It consists of the size of a double-array trie, the trie (Yata et al. 2007), and the replacements, each ended by a
    NUL. Of a unit of the trie, bit 31 marks a leaf, whose other bits are the index of a replacement; bit 8 says that
    a leaf follows; the rest is the offset of the children.
    """
    size = int.from_bytes(data[:4], "little")
    if len(data) < 4 or size % 4 or size == 0 or size > len(data) - 4:
        raise ValueError("the size of the trie is wrong")
    units = np.frombuffer(data, "<u4", size // 4, 4).astype(np.int64)
    replacements = np.frombuffer(data, np.uint8, offset=4 + size)
    replacements.tobytes().decode()
    children = np.arange(len(units)) ^ ((units >> 10) << ((units & (1 << 9)) >> 6))
    inner = units >> 31 == 0
    if (children[inner] | 0xFF).max(initial=0) >= len(units):
        raise ValueError("the trie points outside itself")
    indices = units[children[inner & (units >> 8 & 1 == 1)]] & 0x7FFFFFFF
    if indices.max(initial=0) >= max(len(replacements), 1) or (replacements[indices] & 0xC0 == 0x80).any():
        raise ValueError("the trie points outside the replacements")


# --- the tokenizer -------------------------------------------------------------------------------------------------


def _convert(model: SentencePieceModel) -> tokenizers.Tokenizer:
    model = replace(model, pieces=_renamed(model))
    backend = tokenizers.Tokenizer(_unigram(model) if model.method == Segmentation.UNIGRAM else _bpe(model))
    backend.normalizer = _normalizer(model)
    if _words_are_separate(model):  # then splitting there first changes nothing, and is faster
        backend.pre_tokenizer = pre_tokenizers.Split(SPACE, behavior="merged_with_next")
    backend.decoder = _decoder(model)
    backend.add_special_tokens(
        [piece.name for piece in model.pieces if piece.kind in (PieceKind.UNKNOWN, PieceKind.CONTROL)]
    )
    if model.method != Segmentation.UNIGRAM:
        backend.add_tokens([AddedToken(piece.name) for piece in model.pieces if piece.kind == PieceKind.USER])
    return backend


def _renumbered(model: SentencePieceModel, vocabulary: Mapping[str, int]) -> SentencePieceModel:
    """Renumber the pieces as in a vocabulary, which may have more pieces, such as those of another model.

    A character that only the vocabulary has gets its id there.
    """
    known = {piece.name: piece for piece in model.pieces}
    pieces = []
    for name in sorted(vocabulary, key=vocabulary.__getitem__):
        never = NEVER if len(name.lstrip(SPACE)) <= 1 else 10 * NEVER
        pieces.append(
            known.get(name, VocabularyPiece(name, never, PieceKind.CONTROL if name == "<pad>" else PieceKind.NORMAL))
        )
    return replace(model, pieces=pieces, roles={name: vocabulary.get(name, -1) for name in model.roles})


def _unsupported(model: SentencePieceModel) -> str:
    """Name the feature that the library cannot reproduce, if any."""
    if model.method == Segmentation.WORD:
        return "whole words"
    if model.space_after or not model.escaped_spaces:
        return "a space after each word instead of before it"
    if (
        model.method != Segmentation.UNIGRAM
        and model.space_first
        and any(piece.kind == PieceKind.USER for piece in model.pieces)
    ):
        return "user-defined pieces and a dummy prefix"
    return ""


def _renamed(model: SentencePieceModel) -> list[VocabularyPiece]:
    """Rename the special pieces to their usual names, and unused ones to names that no text can contain."""
    pieces = list(model.pieces)
    for name, id in model.roles.items():
        if 0 <= id < len(pieces) and all(piece.name != name for piece in pieces):
            pieces[id] = replace(pieces[id], name=name)
    for id, piece in enumerate(pieces):
        if piece.kind == PieceKind.UNUSED:  # spaces are replaced before pieces are looked up
            pieces[id] = replace(piece, name=f"unused {id}")
    return pieces


def _unigram(model: SentencePieceModel) -> models.Unigram:
    best = max((piece.score for piece in model.pieces if piece.kind == PieceKind.NORMAL), default=0.0)
    scores = {  # a user-defined piece wins over any other segmentation
        piece.name: len(piece.name) * best - 0.1 if piece.kind == PieceKind.USER else piece.score
        for piece in model.pieces
    }
    return models.Unigram(list(scores.items()), model.roles["<unk>"], model.byte_fallback)


def _bpe(model: SentencePieceModel) -> models.BPE:
    """Make BPE: two pieces merge if their text is a piece, those with the best scores first."""
    vocabulary = {piece.name: id for id, piece in enumerate(model.pieces)}
    normal = {piece.name: piece.score for piece in model.pieces if piece.kind == PieceKind.NORMAL}
    merges = []
    lengths = sorted({len(name) for name in normal})  # fewer than the characters of a long piece
    for name in sorted(normal, key=lambda name: -normal[name]) if model.method == Segmentation.BPE else ():
        cuts = ((name[:cut], name[cut:]) for cut in lengths if cut < len(name))
        merges += [(left, right) for left, right in cuts if left in normal and right in normal]
    unk = model.pieces[model.roles["<unk>"]].name
    return models.BPE(vocabulary, merges, unk_token=unk, fuse_unk=True, byte_fallback=model.byte_fallback)


def _normalizer(model: SentencePieceModel) -> normalizers.Normalizer:
    steps: list[normalizers.Normalizer] = []
    if model.characters:
        check_charsmap(model.characters)
        steps += [normalizers.Precompiled(model.characters)]
    if model.fewer_spaces:
        steps += [normalizers.Replace(Regex(r"\A +"), ""), normalizers.Replace(Regex(" {2,}"), " ")]
    if model.space_first:
        steps += [normalizers.Prepend(SPACE)]
    steps += [normalizers.Replace(" ", SPACE)]
    if model.fewer_spaces:
        steps += [normalizers.Replace(Regex(rf"{SPACE}+\z"), "")]
    return normalizers.Sequence(steps)


def _words_are_separate(model: SentencePieceModel) -> bool:
    """Return whether no piece spans a space, so that the words of a text are segmented independently."""
    names = [piece.name for piece in model.pieces if piece.kind in (PieceKind.NORMAL, PieceKind.USER)]
    return SPACE in names and not any(SPACE in name[1:] for name in names)


def _decoder(model: SentencePieceModel) -> decoders.Decoder:
    steps: list[decoders.Decoder] = [decoders.Replace(SPACE, " ")]
    if model.byte_fallback:
        steps += [decoders.ByteFallback()]
    steps += [decoders.Fuse()]
    if model.space_first or model.fewer_spaces:
        steps += [decoders.Strip(" ", MANY if model.fewer_spaces else 1, 0)]
    return decoders.Sequence(steps)
