"""Reads a sentencepiece `.model` without the sentencepiece package (Kudo and Richardson 2018).

The file is a protobuf message: pieces with score and type, how the text is brought into normal form, and which ids are
special. What comes out is a tokenizer of the `tokenizers` library that gives the same ids. Known differences: where a
character carries several combining marks, the library composes it differently; and a text that spells `<0x41>` in a
unigram model with bytes gets that byte.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers

from regard.errors import RegardError

BLANK = "▁"
NEVER = -1e6  # a score so low that any other way to cut a text is better
MANY = 1000  # blanks at the beginning of a text


class Kind(IntEnum):
    """What a piece is for."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER = 4
    UNUSED = 5
    BYTE = 6


class Method(IntEnum):
    """How a text is cut."""

    UNIGRAM = 1
    BPE = 2
    WORD = 3
    CHAR = 4


@dataclass(frozen=True)
class Piece:
    """One token of the vocabulary."""

    name: str
    score: float
    kind: Kind


@dataclass(frozen=True)
class SentencePiece:
    """What the file says."""

    pieces: list[Piece]
    method: Method
    byte_fallback: bool
    blank_behind: bool
    roles: dict[str, int]  # the ids of <unk>, <s>, </s>, <pad>; -1 for what there is not
    characters: bytes  # the compiled table of normal forms
    blank_first: bool
    fewer_blanks: bool
    escaped_blanks: bool


def read_sentencepiece(path: Path, vocabulary: Mapping[str, int] | None = None) -> tokenizers.Tokenizer:
    """Read a sentencepiece model as a tokenizer of the `tokenizers` library; every id stays what it was.

    With a `vocabulary`, the model only says how a text is cut, and ids are those of the vocabulary.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RegardError(f"{path}: cannot be read: {error.strerror}") from None
    try:
        model = _parse(data) if vocabulary is None else _renumbered(_parse(data), vocabulary)
        unfit = _unfit(model)
        backend = None if unfit else _convert(model)
    except Exception:  # the library knows no narrower class
        raise RegardError(f"{path}: is no sentencepiece model, or a damaged one") from None
    if backend is None:
        raise RegardError(f"{path}: a sentencepiece model with {unfit} cannot be read; convert it to a tokenizer.json")
    return backend


# --- the file ------------------------------------------------------------------------------------------------------


def _parse(data: bytes) -> SentencePiece:
    """Read the message by the numbers that its fields have in sentencepiece_model.proto."""
    fields = _fields(data)
    trainer, normal = (_fields(b"".join(fields.get(number, []))) for number in (2, 3))
    defaults = {"<unk>": (40, 0), "<s>": (41, 1), "</s>": (42, 2), "<pad>": (43, -1)}
    return SentencePiece(
        pieces=[_piece(message) for message in fields[1]],
        method=Method(trainer.get(3, [1])[-1]),
        byte_fallback=bool(trainer.get(35, [0])[-1]),
        blank_behind=bool(trainer.get(24, [0])[-1]),
        roles={name: trainer.get(number, [default])[-1] for name, (number, default) in defaults.items()},
        characters=bytes(normal.get(2, [b""])[-1]),
        blank_first=bool(normal.get(3, [1])[-1]),
        fewer_blanks=bool(normal.get(4, [1])[-1]),
        escaped_blanks=bool(normal.get(5, [1])[-1]),
    )


def _piece(message: bytes) -> Piece:
    fields = _fields(message)
    score = struct.unpack("<f", fields[2][-1])[0] if 2 in fields else 0.0
    return Piece(fields[1][-1].decode(), score, Kind(fields.get(3, [1])[-1]))


def _fields(message: bytes) -> dict[int, list[Any]]:
    """Collect the values of each field of a protobuf message: numbers as int, all else as bytes."""
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
            raise ValueError("cut short")
    return found


def _varint(message: bytes, place: int) -> tuple[int, int]:
    """Read a number, seven bits to the byte, and give the place behind it."""
    value = shift = 0
    while True:
        byte = message[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return (value - (1 << 64) if value >> 63 else value), place


# --- the tokenizer -------------------------------------------------------------------------------------------------


def _convert(model: SentencePiece) -> tokenizers.Tokenizer:
    model = replace(model, pieces=_renamed(model))
    backend = tokenizers.Tokenizer(_unigram(model) if model.method == Method.UNIGRAM else _bpe(model))
    backend.normalizer = _normalizer(model)
    if _words_stand_alone(model):  # then cutting there first changes nothing, and is faster
        backend.pre_tokenizer = pre_tokenizers.Split(BLANK, behavior="merged_with_next")
    backend.decoder = _decoder(model)
    backend.add_special_tokens([piece.name for piece in model.pieces if piece.kind in (Kind.UNKNOWN, Kind.CONTROL)])
    if model.method != Method.UNIGRAM:
        backend.add_tokens([AddedToken(piece.name) for piece in model.pieces if piece.kind == Kind.USER])
    return backend


def _renumbered(model: SentencePiece, vocabulary: Mapping[str, int]) -> SentencePiece:
    """Give a model the ids of a vocabulary, which may have pieces that it never cuts, such as those of another model.

    Where a character is unknown to the model but not to the vocabulary, it gets its id there.
    """
    known = {piece.name: piece for piece in model.pieces}
    pieces = []
    for name in sorted(vocabulary, key=vocabulary.__getitem__):
        never = NEVER if len(name.lstrip(BLANK)) <= 1 else 10 * NEVER
        pieces.append(known.get(name, Piece(name, never, Kind.CONTROL if name == "<pad>" else Kind.NORMAL)))
    return replace(model, pieces=pieces, roles={name: vocabulary.get(name, -1) for name in model.roles})


def _unfit(model: SentencePiece) -> str:
    """Name what the library cannot do alike."""
    if model.method == Method.WORD:
        return "whole words"
    if model.blank_behind or not model.escaped_blanks:
        return "blanks behind words"
    if model.method != Method.UNIGRAM and model.blank_first and any(piece.kind == Kind.USER for piece in model.pieces):
        return "pieces of its user and a blank put first"
    return ""


def _renamed(model: SentencePiece) -> list[Piece]:
    """Give the special pieces their usual names, and those not in use names that no text can have."""
    pieces = list(model.pieces)
    for name, id in model.roles.items():
        if 0 <= id < len(pieces) and all(piece.name != name for piece in pieces):
            pieces[id] = replace(pieces[id], name=name)
    for id, piece in enumerate(pieces):
        if piece.kind == Kind.UNUSED:  # no blank is left when pieces are looked up
            pieces[id] = replace(piece, name=f"unused {id}")
    return pieces


def _unigram(model: SentencePiece) -> models.Unigram:
    best = max((piece.score for piece in model.pieces if piece.kind == Kind.NORMAL), default=0.0)
    scores = {  # a piece of the user wins over any other way to cut it
        piece.name: len(piece.name) * best - 0.1 if piece.kind == Kind.USER else piece.score for piece in model.pieces
    }
    return models.Unigram(list(scores.items()), model.roles["<unk>"], model.byte_fallback)


def _bpe(model: SentencePiece) -> models.BPE:
    """Make BPE: a pair may be merged if its text is a piece, and the better its score, the earlier."""
    vocabulary = {piece.name: id for id, piece in enumerate(model.pieces)}
    normal = {piece.name: piece.score for piece in model.pieces if piece.kind == Kind.NORMAL}
    merges = []
    for name in sorted(normal, key=lambda name: -normal[name]) if model.method == Method.BPE else ():
        cuts = ((name[:cut], name[cut:]) for cut in range(1, len(name)))
        merges += [(left, right) for left, right in cuts if left in normal and right in normal]
    unk = model.pieces[model.roles["<unk>"]].name
    return models.BPE(vocabulary, merges, unk_token=unk, fuse_unk=True, byte_fallback=model.byte_fallback)


def _normalizer(model: SentencePiece) -> normalizers.Normalizer:
    steps: list[normalizers.Normalizer] = []
    if model.characters:
        steps += [normalizers.Precompiled(model.characters)]
    if model.fewer_blanks:
        steps += [normalizers.Replace(Regex(r"\A +"), ""), normalizers.Replace(Regex(" {2,}"), " ")]
    if model.blank_first:
        steps += [normalizers.Prepend(BLANK)]
    steps += [normalizers.Replace(" ", BLANK)]
    if model.fewer_blanks:
        steps += [normalizers.Replace(Regex(rf"{BLANK}+\z"), "")]
    return normalizers.Sequence(steps)


def _words_stand_alone(model: SentencePiece) -> bool:
    """Whether no piece reaches over a blank, so that the words of a text are cut independently."""
    names = [piece.name for piece in model.pieces if piece.kind in (Kind.NORMAL, Kind.USER)]
    return BLANK in names and not any(BLANK in name[1:] for name in names)


def _decoder(model: SentencePiece) -> decoders.Decoder:
    steps: list[decoders.Decoder] = [decoders.Replace(BLANK, " ")]
    if model.byte_fallback:
        steps += [decoders.ByteFallback()]
    steps += [decoders.Fuse()]
    if model.blank_first or model.fewer_blanks:
        steps += [decoders.Strip(" ", MANY if model.fewer_blanks else 1, 0)]
    return decoders.Sequence(steps)
