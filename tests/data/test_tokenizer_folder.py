"""Tokenizers in Hugging Face folders: the same ids and text as `transformers`, whichever files there are."""

import io
import json
import re
from base64 import b64encode
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
import tokenizers
import transformers
from tokenizers import models, pre_tokenizers, processors, trainers

from regard.data.sentencepiece import check_charsmap
from regard.data.tokenizer import TokenizerConfig, load_tokenizer, train_tokenizer
from regard.data.tokenizer_folder import has_tokenizer
from regard.errors import InputError, RegardError

TEXTS = [
    "The Quick brown fox jumps over the lazy dog.",
    "ein zwei drei, vier Hunde",
    "the dog and the fox, und so weiter",
]
OTHERS = ["der schnelle Fuchs springt über den faulen Hund", "eins zwei drei vier", "der Hund und der Fuchs"]
ASKED = [*TEXTS, "a fox", "unheard-of words: xylophone", "Überall  zwei  Hunde", ""]


QUIET = {"minloglevel": 2, "hard_vocab_limit": False}


def write(folder: Path, **files: object) -> None:
    """Write files of JSON: `config={...}` is config.json."""
    folder.mkdir(exist_ok=True, parents=True)
    for name, table in files.items():
        (folder / f"{name}.json").write_text(json.dumps(table))


def pieces(path: Path, texts: list[str], size: int, **options: object) -> list[str]:
    """Learn a sentencepiece model; return its pieces."""
    made = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts * 5), model_writer=made, vocab_size=size, **QUIET, **options
    )
    path.write_bytes(made.getvalue())
    processor = sentencepiece.SentencePieceProcessor(model_proto=made.getvalue())
    return [processor.id_to_piece(id) for id in range(processor.get_piece_size())]


def marian(folder: Path) -> Path:
    write(folder, config={"model_type": "marian", "decoder_start_token_id": 2, "pad_token_id": 2, "eos_token_id": 0})
    both = [*pieces(folder / "source.spm", TEXTS, 60), *pieces(folder / "target.spm", OTHERS, 60)]
    names = dict.fromkeys(
        ["</s>", "<unk>", "<pad>", ">>deu<<", *(name for name in both if name not in ("<s>", "</s>"))]
    )
    write(folder, vocab={name: id for id, name in enumerate(names)})
    write(folder, tokenizer_config={"source_lang": "en", "target_lang": "de", "tokenizer_class": "MarianTokenizer"})
    return folder


def t5(folder: Path) -> Path:
    config = {"model_type": "t5", "decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 1}
    write(folder, config=config, tokenizer_config={"extra_ids": 7, "tokenizer_class": "T5Tokenizer"})
    pieces(folder / "spiece.model", TEXTS, 60, pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    return folder


def byte_level(folder: Path, specials: list[str], config: dict[str, object], **settings: object) -> Path:
    write(folder, config=config, tokenizer_config=settings)
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=specials, initial_alphabet=alphabet, show_progress=False
    )
    backend.train_from_iterator(TEXTS, trainer)
    backend.model.save(str(folder))
    return folder


def gpt2(folder: Path) -> Path:
    config = {"model_type": "gpt2", "bos_token_id": 0, "eos_token_id": 0}
    return byte_level(folder, ["<|endoftext|>"], config, tokenizer_class="GPT2Tokenizer")


def roberta(folder: Path) -> Path:
    specials = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    return byte_level(folder, specials, {"model_type": "roberta"}, tokenizer_class="RobertaTokenizer")


def bert(folder: Path, **settings: object) -> Path:
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    letters = sorted(set("".join([*TEXTS, *OTHERS]).lower()) - {" "})
    words = ["fox", "the", "dog", "##s", "zwei", "Hund", "uber"]
    folder.mkdir(exist_ok=True)
    rows = [*specials, *letters, *(f"##{letter}" for letter in letters), *words]
    (folder / "vocab.txt").write_text("\n".join(dict.fromkeys(rows)) + "\n")
    write(folder, config={"model_type": "bert"}, tokenizer_config={"tokenizer_class": "BertTokenizer", **settings})
    return folder


def llama(folder: Path) -> Path:
    write(folder, config={"model_type": "llama", "bos_token_id": 1, "eos_token_id": 2})
    write(folder, tokenizer_config={"tokenizer_class": "LlamaTokenizer", "add_bos_token": True, "legacy": False})
    options = {"model_type": "bpe", "byte_fallback": True, "remove_extra_whitespaces": False}
    pieces(folder / "tokenizer.model", TEXTS, 340, **options)
    return folder


MADE = {"marian": marian, "t5": t5, "gpt2": gpt2, "roberta": roberta, "bert": bert, "llama": llama}


@pytest.mark.parametrize("kind", MADE)
def test_the_ids_and_the_text_are_theirs(kind: str, tmp_path: Path) -> None:
    folder = MADE[kind](tmp_path / kind)
    ours = load_tokenizer(folder)
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    before, after = ours.around()
    for text, ids in zip(ASKED, ours.encode(ASKED), strict=True):
        wanted = theirs(text)["input_ids"]
        assert [*before, *ids.tolist(), *after] == wanted, text
        assert ours.decode([ids]) == [theirs.decode(wanted, skip_special_tokens=True).strip()], text


@pytest.mark.parametrize("kind", MADE)
def test_nothing_is_added_and_roles_are_kept(kind: str, tmp_path: Path) -> None:
    folder = MADE[kind](tmp_path / kind)
    ours = load_tokenizer(folder)
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    assert ours.size == len(theirs)
    assert ours.end == (theirs.sep_token_id if kind in ("bert", "roberta") else theirs.eos_token_id)
    ours.save(tmp_path / "run")
    again = load_tokenizer(tmp_path / "run")
    assert again.roles == ours.roles
    assert again.fingerprint() == ours.fingerprint()
    assert again.around() == ours.around()
    assert [row.tolist() for row in again.encode(ASKED)] == [row.tolist() for row in ours.encode(ASKED)]
    assert [row.tolist() for row in again.encode_target(OTHERS)] == [row.tolist() for row in ours.encode_target(OTHERS)]


def test_text_does_not_become_a_special_token(tmp_path: Path) -> None:
    ours = load_tokenizer(gpt2(tmp_path))
    assert 0 not in ours.encode(["<|endoftext|>"])[0]
    assert (ours.pad, ours.unk, ours.start, ours.end, ours.mask) == (0, 0, 0, 0, 0)


def test_each_side_of_marian_has_its_own_model(tmp_path: Path) -> None:
    ours = load_tokenizer(marian(tmp_path))
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    wanted = [theirs(text_target=text)["input_ids"][:-1] for text in OTHERS]
    assert [ids.tolist() for ids in ours.encode_target(OTHERS)] == wanted
    assert any(not np.array_equal(*pair) for pair in zip(ours.encode(OTHERS), ours.encode_target(OTHERS), strict=True))
    assert (ours.start, ours.pad, ours.end) == (2, 2, 0)
    assert ours.encode([">>deu<< a fox"])[0].tolist() == theirs(">>deu<< a fox")["input_ids"][:-1]


def test_lower_case(tmp_path: Path) -> None:
    cased = load_tokenizer(bert(tmp_path / "a", do_lower_case=False))
    assert not np.array_equal(
        *(tokenizer.encode(["The Hund"])[0] for tokenizer in (cased, load_tokenizer(bert(tmp_path))))
    )


def test_files_beside_it_say_the_roles_of_special_tokens(tmp_path: Path) -> None:
    """A tokenizer.json with unusual names of special tokens."""
    backend = tokenizers.Tokenizer(models.WordLevel({"a": 0, "<fin>": 1, "<go>": 2, "<nil>": 3}, unk_token="<nil>"))
    backend.add_special_tokens(["<fin>", "<go>", "<nil>"])
    backend.post_processor = processors.TemplateProcessing(
        single="<go> $A <fin> <fin>", special_tokens=[("<go>", 2), ("<fin>", 1)]
    )
    backend.save(str(tmp_path / "tokenizer.json"))
    write(tmp_path, config={"model_type": "llama", "bos_token_id": 2})
    write(tmp_path, tokenizer_config={"eos_token": {"content": "<fin>"}}, special_tokens_map={"unk_token": "<nil>"})
    ours = load_tokenizer(tmp_path)
    assert (ours.pad, ours.unk, ours.start, ours.end, ours.mask, ours.size) == (1, 3, 2, 1, 1, 4)
    assert ours.around() == ((2,), (1, 1))
    write(tmp_path, config={"model_type": "bart", "eos_token_id": [1], "decoder_start_token_id": 3})
    assert load_tokenizer(tmp_path).start == 3


def test_a_folder_with_a_tokenizer_only_gets_what_is_missing(tmp_path: Path) -> None:
    folder = gpt2(tmp_path)
    size = load_tokenizer(folder).size
    (folder / "config.json").unlink()
    ours = load_tokenizer(folder)
    assert ours.size == size + 2  # padding and mask
    assert ours.roles is None


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"vocab.json": '{"a": 0, "b": 2}', "merges.txt": ""}, "vocab.json: must give each token its id, from 0 to 1"),
        ({"vocab.json": '{"a": 0}', "merges.txt": "a b c"}, "merges.txt: cannot be read as merges"),
        ({"vocab.json": "[]", "merges.txt": ""}, "vocab.json: must contain a table, not list"),
        ({"vocab.txt": "the\nfox"}, r"vocab.txt: has no \[CLS\]; only the word pieces of BERT are read"),
        (
            {"spiece.model": "", "config.json": '{"model_type": "pegasus"}'},
            "Pegasus numbers its ids differently; write",
        ),
        ({"tokenizer_config.json": "{", "vocab.txt": "a"}, "tokenizer_config.json: is not valid JSON"),
        ({}, "holds no tokenizer.json and no sentencepiece .model; name the file of the tokenizer"),
    ],
)
def test_what_cannot_be_read(files: dict[str, str], message: str, tmp_path: Path) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(RegardError, match=message):
        load_tokenizer(tmp_path)


def test_roles_that_were_saved_wrongly(tmp_path: Path) -> None:
    train_tokenizer(TEXTS, TokenizerConfig("char")).save(tmp_path)
    write(tmp_path, special_tokens={"pad": 0})
    with pytest.raises(RegardError, match="special_tokens.json: must give the ids of pad, unk, start, end, mask"):
        load_tokenizer(tmp_path)


def test_whether_there_is_one(tmp_path: Path) -> None:
    assert not has_tokenizer(tmp_path)
    assert has_tokenizer(gpt2(tmp_path))


@cache
def state_of(kind: str) -> str:
    return train_tokenizer(TEXTS * 20, TokenizerConfig(kind, 300 if kind == "bpe" else 60)).to_json()


def charsmap() -> bytes:
    return (Path(sentencepiece.__file__).parent / "package_data" / "nmt_nfkc.bin").read_bytes()


def test_the_tables_of_sentencepiece_are_valid():
    folder = Path(sentencepiece.__file__).parent / "package_data"
    for path in folder.glob("*.bin"):
        check_charsmap(path.read_bytes())


DAMAGES = {
    "a size that lies": lambda data: b"\xfc\xff\xff\xff" + data[4:],
    "no trie": lambda data: bytes(4) + data[4:],
    "nothing": lambda data: b"\x01",
    "truncated": lambda data: data[:100_000],
    "offsets outside": lambda data: data[:4] + b"\x00\xfc\xff\x7f" * 100 + data[404:],
    "no replacements": lambda data: data[: 4 + int.from_bytes(data[:4], "little")],
    "replacements that are not text": lambda data: data + b"\xff",
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_table_of_characters_is_one_line(tmp_path, damage):
    """The library would panic, or abort the process with an allocation of gigabytes."""
    state = json.loads(state_of("unigram"))
    table = b64encode(DAMAGES[damage](charsmap())).decode()
    inner = {"type": "Precompiled", "precompiled_charsmap": table}
    state["normalizer"] = {"type": "Sequence", "normalizers": [inner]}
    (tmp_path / "tokenizer.json").write_text(json.dumps(state))
    with pytest.raises(RegardError, match=r"tokenizer\.json: cannot be read as a tokenizer: ") as caught:
        load_tokenizer(tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda state: state["model"].update(vocab={"a": 2**31}), "has 1 tokens, but one has the id 2,147,483,648"),
        (
            lambda state: state.update(normalizer={"type": "Precompiled", "precompiled_charsmap": None}),
            "precompiled_charsmap must be text",
        ),
        (lambda state: state.update(model=1), "cannot be read as a tokenizer"),
    ],
)
def test_a_tokenizer_that_the_library_does_not_survive_is_one_line(tmp_path, edit, message):
    state = json.loads(state_of("bpe"))
    edit(state)
    (tmp_path / "tokenizer.json").write_text(json.dumps(state))
    with pytest.raises(RegardError, match=re.escape(message)):
        load_tokenizer(tmp_path)


def test_a_letter_that_a_unigram_tokenizer_without_unk_does_not_know_is_one_line(tmp_path):
    state = json.loads(state_of("unigram"))
    state["model"]["unk_id"] = None
    (tmp_path / "tokenizer.json").write_text(json.dumps(state))
    tokenizer = load_tokenizer(tmp_path)
    with pytest.raises(InputError, match="the tokenizer cannot read a text: .*; check its tokenizer.json"):
        tokenizer.encode(["\u4e2d"])
    with pytest.raises(InputError, match="the tokenizer cannot read a text: .*; check its tokenizer.json"):
        tokenizer.spans(["\u4e2d"])


def test_a_template_around_a_word_that_the_tokenizer_does_not_know_is_one_line(tmp_path):
    state = {"type": "WordLevel", "vocab": {"red": 0}, "unk_token": "<unk>"}
    empty = json.loads(tokenizers.Tokenizer(models.WordLevel({"red": 0}, unk_token="<unk>")).to_str())
    (tmp_path / "tokenizer.json").write_text(json.dumps(empty | {"model": state}))
    with pytest.raises(InputError, match="the tokenizer cannot read a text: .*; check its tokenizer.json"):
        load_tokenizer(tmp_path).around()


def test_extra_ids_of_t5_are_a_number(tmp_path):
    pieces(tmp_path / "spiece.model", TEXTS, 60)
    for extra in (10**12, "many", -1):
        write(tmp_path, config={"model_type": "t5"}, tokenizer_config={"extra_ids": extra})
        with pytest.raises(RegardError, match="extra_ids=.* must be a whole number from 0 to 100,000"):
            load_tokenizer(tmp_path)
