"""Our tokenizers, as AutoTokenizer reads them."""

import json

import pytest
import tokenizers
from tokenizers import AddedToken, decoders, models, pre_tokenizers, processors
from transformers import AutoTokenizer

from regard.errors import RegardError
from regard.hub.tokenizer_files import write_tokenizer_files

NAMES = ["<pad>", "<unk>", "<s>", "</s>", "<mask>"]
TOKENS = {"pad_token": "<pad>", "unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "mask_token": "<mask>"}


def made(byte_level: bool = True) -> tokenizers.Tokenizer:
    pieces = [*NAMES, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    backend = tokenizers.Tokenizer(models.BPE({piece: id for id, piece in enumerate(pieces)}, []))
    backend.add_special_tokens([AddedToken(name, special=True) for name in NAMES])
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    if byte_level:
        backend.post_processor = processors.ByteLevel()
    return backend


@pytest.mark.parametrize("byte_level", [True, False])
def test_ids_are_the_same_with_tokens_around(tmp_path, byte_level) -> None:
    ours = made(byte_level)
    write_tokenizer_files(ours.to_str(), tmp_path, TOKENS, around=("<s>", "</s>"), length=64)
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    text = "Der Hund läuft, <mask>"
    ids = ours.encode(text).ids
    assert theirs(text)["input_ids"] == [2, *ids, 3]
    assert theirs.decode(ids) == text
    assert theirs.decode([2, *ids, 3, 0], skip_special_tokens=True) == text.replace("<mask>", "")
    assert (theirs.pad_token_id, theirs.bos_token_id, theirs.eos_token_id, theirs.mask_token_id) == (0, 2, 3, 4)
    assert theirs.model_max_length == 64
    assert list(theirs(text)) == ["input_ids", "attention_mask"]


def test_pairs_have_segments(tmp_path) -> None:
    ours = made()
    write_tokenizer_files(ours.to_str(), tmp_path, TOKENS, around=("<s>", "</s>"), segments=True)
    both = AutoTokenizer.from_pretrained(tmp_path)("ab", "c")
    a, b, c = ours.encode("abc").ids
    assert both["input_ids"] == [2, a, b, 3, c, 3]
    assert both["token_type_ids"] == [0, 0, 0, 0, 1, 1]


def test_an_old_template_is_replaced(tmp_path) -> None:
    ours = made()
    ids = [("<s>", 2), ("<mask>", 4)]
    template = processors.TemplateProcessing(single="<s> $A <mask>", special_tokens=ids)
    ours.post_processor = processors.Sequence([processors.ByteLevel(), template])
    write_tokenizer_files(ours.to_str(), tmp_path, TOKENS, around=("</s>", None))
    assert AutoTokenizer.from_pretrained(tmp_path)("ab")["input_ids"] == [3, *made().encode("ab").ids]
    kinds = [
        each["type"] for each in json.loads((tmp_path / "tokenizer.json").read_text())["post_processor"]["processors"]
    ]
    assert kinds == ["ByteLevel", "TemplateProcessing"]


def test_without_tokens_around_it_is_unchanged(tmp_path) -> None:
    ours = made()
    write_tokenizer_files(ours.to_str(), tmp_path, {"eos_token": "</s>"})
    assert json.loads((tmp_path / "tokenizer.json").read_text()) == json.loads(ours.to_str())
    assert AutoTokenizer.from_pretrained(tmp_path)("ab")["input_ids"] == ours.encode("ab").ids


@pytest.mark.parametrize(
    ("tokens", "around", "message"),
    [
        ({"bos": "<s>"}, (None, None), "unknown role 'bos' of a special token; .*bos_token"),
        ({"bos_token": "<S>"}, (None, None), "no special token '<S>'; .*<mask>"),
        ({}, ("[CLS]", None), r"no special token '\[CLS\]'"),
    ],
)
def test_mistakes_write_nothing(tmp_path, tokens, around, message) -> None:
    with pytest.raises(RegardError, match=message):
        write_tokenizer_files(made().to_str(), tmp_path, tokens, around=around)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("text", ["", "[]", '{"added_tokens": 3}', "{}"])
def test_text_that_is_not_a_tokenizer(tmp_path, text) -> None:
    with pytest.raises(RegardError, match="not a tokenizer.json"):
        write_tokenizer_files(text, tmp_path, {})
