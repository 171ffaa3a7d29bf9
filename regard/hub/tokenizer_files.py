"""Write tokenizer files for AutoTokenizer: tokenizer.json, the roles of special tokens, and those around a text."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regard.config import Table
from regard.errors import RegardError, choices
from regard.models.store import write_files
from regard.untrusted import JsonError, parse_json

TEMPLATES = ("TemplateProcessing", "BertProcessing", "RobertaProcessing")
ROLES = ("bos_token", "eos_token", "unk_token", "pad_token", "mask_token", "cls_token", "sep_token")


def write_tokenizer_files(
    text: str,
    folder: str | Path,
    tokens: Mapping[str, str],
    *,
    around: tuple[str | None, str | None] = (None, None),
    length: int | None = None,
    segments: bool = False,
    mask_joins_blanks: bool = False,
) -> None:
    """Write a tokenizer (the `text` of a tokenizer.json) so that AutoTokenizer reads it.

    `tokens` maps roles (`bos_token`, `pad_token`, ...) to special tokens; `around` are the tokens before and after
    every text; `length` is the maximum number of tokens; with `segments` the tokenizer also returns which of two
    texts a token belongs to; with `mask_joins_blanks` a mask includes the blanks before it, as the token of a word
    does.
    """
    try:
        state = parse_json(text, "tokenizer.json")
        known = {token["content"]: token["id"] for token in state["added_tokens"]}
    except (JsonError, KeyError, TypeError):
        raise RegardError("the tokenizer is not a tokenizer.json of the `tokenizers` library") from None
    for role in tokens:
        if role not in ROLES:
            raise RegardError(f"unknown role {role!r} of a special token; {choices(role, ROLES)}")
    for name in (*tokens.values(), *filter(None, around)):
        if name not in known:
            raise RegardError(f"the tokenizer has no special token {name!r}; {choices(name, known)}")
    for token in state["added_tokens"]:
        if mask_joins_blanks and token["content"] == tokens.get("mask_token"):
            token["lstrip"] = True
    if any(around):
        state["post_processor"] = _joined(state.get("post_processor"), _template(known, *around))
    inputs = ["input_ids", *(["token_type_ids"] if segments else []), "attention_mask"]
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "model_input_names": inputs,
        "padding_side": "right",
        **({} if length is None else {"model_max_length": length}),
        **tokens,
    }
    files = {"tokenizer.json": state, "tokenizer_config.json": config, "special_tokens_map.json": dict(tokens)}
    with write_files(Path(folder), *files) as paths:
        for path, table in zip(paths, files.values(), strict=True):
            path.write_text(json.dumps(table, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _template(known: Mapping[str, int], first: str | None, last: str | None) -> Table:
    """Return a template for one text (first, text, last) and for two (first, text, last, text, last)."""

    def special(name: str | None, segment: int) -> list[Any]:
        return [] if name is None else [{"SpecialToken": {"id": name, "type_id": segment}}]

    def sequence(name: str, segment: int) -> list[Any]:
        return [{"Sequence": {"id": name, "type_id": segment}}, *special(last, segment)]

    single = [*special(first, 0), *sequence("A", 0)]
    names = [name for name in dict.fromkeys((first, last)) if name is not None]
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, *sequence("B", 1)],
        "special_tokens": {name: {"id": name, "ids": [known[name]], "tokens": [name]} for name in names},
    }


def _joined(old: Any, template: Table) -> Table:
    """Append the template to the tokenizer's own post-processor, such as ByteLevel; an old template is replaced."""
    kept = [] if old is None else old["processors"] if old.get("type") == "Sequence" else [old]
    kept = [each for each in kept if each.get("type") not in TEMPLATES]
    return {"type": "Sequence", "processors": [*kept, template]} if kept else template
