"""Open the tokenizer of a folder from whichever files hold it: `tokenizer.json` or an older format.

A Hugging Face folder may hold a sentencepiece `.model` (Llama, T5), two of them and their common ids (Marian), the
merges of a byte-level BPE (GPT-2, RoBERTa, BART), or a list of word pieces (BERT). The post-processor of the tokenizer
adds special tokens around a text; the files beside it say which token has which role.
"""

from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from re import fullmatch
from typing import Any

import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors

from regard.data.sentencepiece import check_charsmap, is_library_error, read_sentencepiece
from regard.errors import RegardError
from regard.untrusted import parse_json, read_json

FILE = "tokenizer.json"
TARGET = "target_tokenizer.json"  # of the target side, where it differs from the source side
SPECIAL_TOKENS = "special_tokens.json"  # their roles, where these do not follow from their names
NAMES = {  # usual names of the special tokens; the first found counts
    "pad": ("<pad>", "[PAD]", "<|pad|>", "<|padding|>", "<PAD>", "<|finetune_right_pad_id|>"),
    "unk": ("<unk>", "[UNK]", "<|unk|>", "<UNK>", "<|endoftext|>"),
    "start": ("<s>", "[CLS]", "[BOS]", "<bos>", "<|begin_of_text|>", "<|startoftext|>", "<|endoftext|>"),
    "end": ("</s>", "[SEP]", "[EOS]", "<eos>", "<|end_of_text|>", "<|endoftext|>", "<|im_end|>"),
    "mask": ("<mask>", "[MASK]", "<|mask|>", "<MASK>"),
}
HUGGINGFACE_ROLES = {  # the keys of Hugging Face; an encoder has the first of two, all others the second
    "pad": ("pad_token",),
    "unk": ("unk_token",),
    "start": ("cls_token", "bos_token"),
    "end": ("sep_token", "eos_token"),
    "mask": ("mask_token",),
}
WITH_TEMPLATE = ("roberta", "bart")  # model types whose byte-level BPE puts <s> and </s> around a text
MOST_EXTRA = 100_000
MOST_HOLES = 16  # ids for each token of a vocabulary
EXTRA = 100  # tokens <extra_id_0>, ... that T5 adds to its sentencepiece model
KINDS = "a tokenizer is a tokenizer.json, a sentencepiece .model, or a folder with one"


@dataclass(frozen=True)
class OpenedTokenizer:
    """A tokenizer of the library, its special tokens if names do not give them, and the target side's tokenizer."""

    backend: tokenizers.Tokenizer
    roles: Mapping[str, int] | None = None
    target: tokenizers.Tokenizer | None = None


def open_tokenizer(path: Path) -> OpenedTokenizer:
    """Read a tokenizer.json, a sentencepiece .model, or the folder that holds one."""
    if path.is_dir():
        return _open_folder(path)
    if not path.exists():
        raise RegardError(f"{path}: no such file; {KINDS}")
    if path.suffix == ".model":
        return OpenedTokenizer(read_sentencepiece(path))
    if path.suffix != ".json":
        raise RegardError(f"{path}: unknown kind of file; {KINDS}")
    return OpenedTokenizer(_read_library(path))


def has_tokenizer(folder: Path) -> bool:
    """Return whether a folder holds the files of a tokenizer."""
    return _kind(folder) is not None


def _open_folder(folder: Path) -> OpenedTokenizer:
    config = _table(folder / "config.json")
    model_type = config.get("model_type")
    kind = _kind(folder)
    if kind is None:
        several = len(list(folder.glob("*.model"))) > 1
        trouble = "several .model files" if several else "no tokenizer.json and no sentencepiece .model"
        raise RegardError(f"{folder}: holds {trouble}; name the file of the tokenizer")
    settings = _table(folder / "tokenizer_config.json")
    target = None
    if kind == "json":
        backend = _read_library(folder / FILE)
        if (folder / TARGET).exists():
            target = _read_library(folder / TARGET)
    elif kind == "pair":
        backend, target = (_read_side(folder, name) for name in ("source.spm", "target.spm"))
    elif kind == "bpe":
        backend = _read_bpe(folder, bool(settings.get("add_prefix_space", False)), model_type in WITH_TEMPLATE)
    elif kind == "words":
        backend = _read_words(folder, settings)
    else:
        backend = _read_pieces(next(folder.glob("*.model")), settings, model_type)
    if (folder / SPECIAL_TOKENS).exists():
        return OpenedTokenizer(backend, _saved_roles(folder / SPECIAL_TOKENS), target)
    if model_type is None:
        return OpenedTokenizer(backend, None, target)
    return OpenedTokenizer(backend, _find_roles(folder, backend, settings), target)


def _kind(folder: Path) -> str | None:
    """Return which files hold the tokenizer."""
    kinds = {
        "json": (FILE,),
        "pair": ("source.spm", "target.spm", "vocab.json"),
        "bpe": ("vocab.json", "merges.txt"),
        "words": ("vocab.txt",),
    }
    for kind, names in kinds.items():
        if all((folder / name).exists() for name in names):
            return kind
    return "pieces" if len(list(folder.glob("*.model"))) == 1 else None


def _table(path: Path) -> dict[str, Any]:
    """Read a JSON table; a missing file counts as empty."""
    return read_json(path) if path.exists() else {}


# --- kinds of files --------------------------------------------------------------------------------------------------


def _read_library(path: Path) -> tokenizers.Tokenizer:
    try:
        text = path.read_text(encoding="utf-8")
        _check_library_file(parse_json(text, path))
        return tokenizers.Tokenizer.from_str(text)
    except BaseException as error:
        if not is_library_error(error):
            raise
        reason = error.strerror if isinstance(error, OSError) else getattr(error, "reason", error)
        raise RegardError(f"{path}: cannot be read as a tokenizer: {reason}") from None


def _check_library_file(state: Any) -> None:
    """Raise a ValueError where the library would not end, or would abort the process."""
    for encoded in _charsmaps(state):
        check_charsmap(b64decode(encoded, validate=True))
    model = state.get("model") if isinstance(state, dict) else None
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    ids = [id for id in vocabulary.values() if type(id) is int] if isinstance(vocabulary, dict) else []
    if max(ids, default=0) > MOST_HOLES * (len(ids) + 1000):  # it goes through all ids up to the largest
        raise ValueError(f"the vocabulary has {len(ids):,} tokens, but one has the id {max(ids):,}")


def _charsmaps(value: Any) -> Iterator[str]:
    """Yield the compiled tables of normalisers, wherever they are in a tokenizer.json."""
    if isinstance(value, dict):
        for key, item in value.items():
            if key == "precompiled_charsmap":
                if not isinstance(item, str):
                    raise ValueError("precompiled_charsmap must be text")
                yield item
            elif key not in ("vocab", "merges"):
                yield from _charsmaps(item)
    elif isinstance(value, list):
        for item in value:
            yield from _charsmaps(item)


def _read_side(folder: Path, name: str) -> tokenizers.Tokenizer:
    """Read one side of Marian: its sentencepiece model segments the text, ids are those of vocab.json."""
    vocabulary = _vocabulary(folder / "vocab.json")
    backend = read_sentencepiece(folder / name, vocabulary)
    codes = [piece for piece in vocabulary if fullmatch(">>.+<<", piece)]  # target languages
    backend.add_tokens([AddedToken(code, normalized=False) for code in codes])
    return _with_template(backend, (), ("</s>",))


def _read_bpe(folder: Path, prefixed: bool, template: bool) -> tokenizers.Tokenizer:
    """Read a byte-level BPE: the ids, and the merges in order."""
    vocabulary = _vocabulary(folder / "vocab.json")
    try:
        lines = (folder / "merges.txt").read_text(encoding="utf-8").split("\n")
        merges = [line.split(" ") for line in lines if line.strip() and not line.startswith("#version")]
        model = models.BPE(vocabulary, [(left, right) for left, right in merges])
    except BaseException as error:
        if not is_library_error(error):
            raise
        raise RegardError(f"{folder / 'merges.txt'}: cannot be read as merges: {error}") from None
    backend = tokenizers.Tokenizer(model)
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefixed)
    backend.decoder = decoders.ByteLevel()
    usual = {name for names in NAMES.values() for name in names}
    mask = [AddedToken(name, lstrip=True) for name in NAMES["mask"] if name in vocabulary]
    backend.add_special_tokens([name for name in vocabulary if name in usual - set(NAMES["mask"])] + mask)
    return _with_template(backend, ("<s>",), ("</s>",)) if template else backend


def _read_words(folder: Path, settings: Mapping[str, Any]) -> tokenizers.Tokenizer:
    """Read the word pieces of BERT, one per line."""
    try:
        pieces = (folder / "vocab.txt").read_text(encoding="utf-8").split("\n")
    except (OSError, ValueError) as error:
        raise RegardError(f"{folder / 'vocab.txt'}: cannot be read: {error}") from None
    vocabulary = {piece.rstrip("\r"): id for id, piece in enumerate(pieces) if piece.strip()}
    needed = ("[CLS]", "[SEP]", "[UNK]")
    for name in needed:
        if name not in vocabulary:
            raise RegardError(f"{folder / 'vocab.txt'}: has no {name}; only the word pieces of BERT are read")
    backend = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=100))
    backend.normalizer = normalizers.BertNormalizer(
        lowercase=bool(settings.get("do_lower_case", True)),
        handle_chinese_chars=bool(settings.get("tokenize_chinese_chars", True)),
        strip_accents=settings.get("strip_accents"),
    )
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    backend.add_special_tokens([name for name in (*needed, "[PAD]", "[MASK]") if name in vocabulary])
    return _with_template(backend, ("[CLS]",), ("[SEP]",))


def _read_pieces(path: Path, settings: Mapping[str, Any], model_type: Any) -> tokenizers.Tokenizer:
    """Read a sentencepiece model and add the special tokens of its family."""
    if model_type == "pegasus":
        raise RegardError(
            f"{path}: Pegasus numbers its ids differently; write a tokenizer.json there with `transformers`"
        )
    backend = read_sentencepiece(path)
    if model_type == "t5":
        extra = settings.get("extra_ids", EXTRA)
        if type(extra) is not int or not 0 <= extra <= MOST_EXTRA:
            raise RegardError(f"{path}: extra_ids={extra!r} must be a whole number from 0 to {MOST_EXTRA:,}")
        backend.add_special_tokens([f"<extra_id_{number}>" for number in reversed(range(extra))])
        return _with_template(backend, (), ("</s>",))
    if model_type is None:
        return backend
    before = ("<s>",) if settings.get("add_bos_token", True) else ()
    return _with_template(backend, before, ("</s>",) if settings.get("add_eos_token", False) else ())


def _vocabulary(path: Path) -> dict[str, int]:
    """Read the ids of a vocabulary, which must be 0, 1, 2, ..."""
    table = _table(path)
    if sorted(table.values(), key=str) != sorted(range(len(table)), key=str):
        raise RegardError(f"{path}: must give each token its id, from 0 to {len(table) - 1}")
    return table


def _with_template(backend: tokenizers.Tokenizer, before: Sequence[str], after: Sequence[str]) -> tokenizers.Tokenizer:
    """Add special tokens before and after every text."""
    ids = {name: backend.token_to_id(name) for name in (*before, *after)}
    for name, id in ids.items():
        if id is None:
            raise RegardError(f"the tokenizer has no token {name}, which its model expects around every text")
    backend.post_processor = processors.TemplateProcessing(
        single=[*before, "$A", *after], special_tokens=list(ids.items())
    )
    return backend


# --- the roles of special tokens -------------------------------------------------------------------------------------


def _saved_roles(path: Path) -> dict[str, int]:
    """Read the roles that `Tokenizer.save` wrote."""
    table = _table(path)
    if set(table) != set(NAMES) or not all(type(id) is int for id in table.values()):
        raise RegardError(f"{path}: must give the ids of {', '.join(NAMES)}")
    return table


def _find_roles(folder: Path, backend: tokenizers.Tokenizer, settings: Mapping[str, Any]) -> dict[str, int]:
    """Find the ids of special tokens in a Hugging Face folder: as its files say, or else by their usual names.

    No token is added, since the model has no row for it: the end token replaces a missing one.
    """
    named = {**_table(folder / "special_tokens_map.json"), **settings}
    ids = {**_table(folder / "config.json"), **_table(folder / "generation_config.json")}
    roles: dict[str, int] = {}
    for role, keys in HUGGINGFACE_ROLES.items():
        found = [_id_of(backend, named.get(key)) for key in keys]
        found += [_first(ids.get(f"{key}_id")) for key in keys]
        found += [backend.token_to_id(name) for name in NAMES[role]]
        if (known := next((id for id in found if id is not None), None)) is not None:
            roles[role] = known
    if (first := _first(ids.get("decoder_start_token_id"))) is not None:
        roles["start"] = first
    end = roles.get("end", 0)
    return {role: roles.get(role, end) for role in NAMES}


def _id_of(backend: tokenizers.Tokenizer, named: Any) -> int | None:
    """Return the id of a token, which is given as its name, or as a table with it."""
    name = named.get("content") if isinstance(named, dict) else named
    return backend.token_to_id(name) if isinstance(name, str) else None


def _first(id: Any) -> int | None:
    """Return an id, or the first of several."""
    id = id[0] if isinstance(id, list) and id else id
    return id if type(id) is int and id >= 0 else None
