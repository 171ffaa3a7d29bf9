"""Tiny Hugging Face folders with tokenizers, as `transformers` writes them: one for each kind of model."""

import json
from pathlib import Path
from typing import Any

import tokenizers
import torch
import transformers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from ..hub.cases import BERT, DISTILBERT, GPT2, LLAMA, MARIAN, T5, VIT, Case
from ..tasks.corpora import sentences

LINES = ["one red dog sleeps", "two blue cats", "the cat runs and the dog sleeps, too", "red", "grüne Bäume"]
ROUND = {"bert": "[CLS] $A [SEP]", "roberta": "<s> $A </s>", "seq": "$A </s>", "llama": "<s> $A", "gpt2": None}
SPECIALS = {
    "bert": ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"],
    "gpt2": ["<|endoftext|>"],
}
BART = {"decoder_start_token_id": 2, "eos_token_id": 2, "max_position_embeddings": 128}
USUAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
ROLES = {
    "bert": dict(
        zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), SPECIALS["bert"], strict=True)
    ),
    "gpt2": {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>", "unk_token": "<|endoftext|>"},
    "seq": {"eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"},
    "llama": {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"},
    "roberta": {"bos_token": "<s>", "cls_token": "<s>", "eos_token": "</s>", "sep_token": "</s>", "pad_token": "<pad>"}
    | {"unk_token": "<unk>", "mask_token": "<mask>"},
}


def tokenizer(kind: str) -> tokenizers.Tokenizer:
    """Learn word pieces for BERT, byte-level BPE for the others."""
    words = kind == "bert"
    specials = SPECIALS.get(kind, USUAL)
    backend = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]") if words else models.BPE())
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer() if words else byte_level
    backend.decoder = decoders.WordPiece() if words else decoders.ByteLevel()
    backend.normalizer = normalizers.BertNormalizer() if words else normalizers.Sequence([])
    options: dict[str, Any] = {"special_tokens": specials, "show_progress": False, "vocab_size": 320}
    if words:
        trainer = trainers.WordPieceTrainer(**options)
    else:
        trainer = trainers.BpeTrainer(**options, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    backend.train_from_iterator([*sentences(100), *LINES], trainer)
    if ROUND[kind]:
        ids = [(name, backend.token_to_id(name)) for name in specials]
        backend.post_processor = processors.TemplateProcessing(single=ROUND[kind], special_tokens=ids)
    return backend


KINDS = {  # the case without its vocabulary, and the tokenizer
    "gpt2": (Case("", "GPT2LMHeadModel", {**GPT2, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": None}), "gpt2"),
    "llama": (Case("", "LlamaForCausalLM", {**LLAMA, "bos_token_id": 0, "eos_token_id": 2}), "llama"),
    "bert": (Case("", "BertForMaskedLM", {**BERT, "pad_token_id": 0}), "bert"),
    "bert-classes": (
        Case(
            "",
            "BertForSequenceClassification",
            {**BERT, "pad_token_id": 0, "id2label": {0: "low", 1: "mid", 2: "high"}},
        ),
        "bert",
    ),
    "bert-vector": (Case("", "BertModel", {**BERT, "pad_token_id": 0}), "bert"),
    "roberta": (Case("", "RobertaForMaskedLM", BERT), "roberta"),
    "distilbert": (Case("", "DistilBertModel", {**DISTILBERT, "pad_token_id": 0}), "bert"),
    "gpt2-classes": (Case("", "GPT2ForSequenceClassification", {**GPT2, "eos_token_id": 0, "num_labels": 3}), "gpt2"),
    "marian": (
        Case(
            "", "MarianMTModel", {**MARIAN, "decoder_start_token_id": 1, "eos_token_id": 2, "forced_eos_token_id": None}
        ),
        "seq",
    ),
    "bart": (
        Case("", "BartForConditionalGeneration", {**MARIAN, **BART}),
        "roberta",
    ),
    "t5": (Case("", "T5ForConditionalGeneration", {**T5, "decoder_start_token_id": 1, "eos_token_id": 2}), "seq"),
    "vit": (Case("", "ViTForImageClassification", {**VIT, "id2label": {0: "cat", 1: "dog"}}), ""),
}


def write(kind: str, folder: Path, spare: int = 0, **generation: Any) -> Path:
    """Write a folder. The model has `spare` more tokens than the tokenizer; `generation` are generation defaults."""
    case, words = KINDS[kind]
    values = dict(case.values)
    folder.mkdir(parents=True, exist_ok=True)
    if words:
        backend = tokenizer(words)
        values["vocab_size"] = backend.get_vocab_size() + spare
    torch.manual_seed(0)
    Case(kind, case.architecture, values).save(folder)
    if words:
        fast = transformers.PreTrainedTokenizerFast(tokenizer_object=backend, **ROLES[words])
        fast.save_pretrained(folder)
    else:
        size = {"height": values["image_size"][0], "width": values["image_size"][1]}
        table = {
            "image_processor_type": "ViTImageProcessor",
            "size": size,
            "image_mean": [0.4] * 3,
            "image_std": [0.2] * 3,
        }
        (folder / "preprocessor_config.json").write_text(json.dumps(table))
    if generation:
        path = folder / "generation_config.json"
        said = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps({**said, **generation}))
    return folder


def theirs(kind: str, folder: Path) -> tuple[Any, Any]:
    """Load model and tokenizer with `transformers`."""
    model = getattr(transformers, KINDS[kind][0].architecture).from_pretrained(folder).eval()
    return model, transformers.AutoTokenizer.from_pretrained(folder) if KINDS[kind][1] else None
