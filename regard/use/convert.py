"""Write a model for other programs: as a Hugging Face folder, or for CTranslate2; completely or not at all."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import get_args

from regard.arguments import check_path
from regard.atomic import make_folder, write_folder
from regard.data.device import choose_device
from regard.data.tokenizer import Tokenizer
from regard.errors import InputError, RegardError, choices
from regard.hub.ctranslate2 import Quantization, ctranslate2_obstacle
from regard.hub.details import Details, read_details
from regard.hub.folder import huggingface_obstacle, is_huggingface, save_huggingface
from regard.hub.sentence_transformers import is_sentence_transformer, write_sentence_transformer
from regard.hub.tokenizer_files import write_tokenizer_files
from regard.models.model import ImageInput
from regard.use.box import find_model, shown_name
from regard.use.bundle import Bundle
from regard.use.ctranslate2 import write_ctranslate2_folder
from regard.use.huggingface import IMAGES
from regard.use.load import open_folder
from regard.use.translate import SPARE

TARGETS = {"huggingface": "Hugging Face", "ctranslate2": "CTranslate2"}
TOKENIZER_FILES = (  # of a Hugging Face folder, copied as they are
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "chat_template.jinja"),
    *("vocab.json", "merges.txt", "vocab.txt", "source.spm", "target.spm", "spiece.model", "tokenizer.model"),
    "sentencepiece.bpe.model",
)
POSITIONS = 1024  # the least number of positions that is written for a translator without a limit
NEW_TOKENS = 200  # the default length of a text that a language model writes


def convert(
    source: str | Path,
    to: str,
    folder: str | Path,
    *,
    quantization: str | None = None,
    allow_pickle: bool = False,
) -> None:
    """Write a run, or a Hugging Face folder, into a new folder, for "huggingface" or "ctranslate2".

    `quantization` is for CTranslate2: int8, int8_float32, float16, ... A model that the format cannot express is
    rejected before anything is written.
    """
    source, folder = find_model(check_path(source, "source")), check_path(folder, "folder")
    if to not in TARGETS:
        raise InputError(f"unknown format {to!r}; {choices(to, TARGETS)}")
    if quantization is not None and to != "ctranslate2":
        raise InputError(f"quantization={quantization!r} is for ctranslate2 only; leave it out")
    checked = check_quantization(quantization or "float32")
    if folder.resolve() == Path.cwd():
        raise InputError(f"{folder}: is the current folder; name a new folder")
    bundle = open_folder(source, choose_device("cpu"), allow_pickle)
    obstacle = huggingface_obstacle if to == "huggingface" else ctranslate2_obstacle
    reason = obstacle(bundle.model.config)
    if reason is not None:
        raise RegardError(f"{shown_name(source)}: cannot be written for {TARGETS[to]}: {reason}")
    make_folder(folder.absolute().parent)
    with write_folder(folder) as part:
        if to == "huggingface":
            write_huggingface_folder(bundle, source, part)
        else:
            write_ctranslate2_folder(bundle, source, part, checked)


def check_quantization(name: str) -> Quantization:
    """Return the name if it is a quantization of CTranslate2."""
    for known in get_args(Quantization):
        if name == known:
            return known
    raise InputError(f"unknown quantization {name!r}; {choices(name, get_args(Quantization))}")


# --- Hugging Face ----------------------------------------------------------------------------------------------------


def write_huggingface_folder(bundle: Bundle, source: Path, folder: Path) -> None:
    """Write the model, the tokenizer, and how images become pixels."""
    if is_huggingface(source):
        save_huggingface(bundle.model, folder, read_details(source))
        for name in TOKENIZER_FILES:
            if (source / name).exists():
                shutil.copyfile(source / name, folder / name)
        if bundle.embedding is not None and is_sentence_transformer(source):
            write_sentence_transformer(bundle.embedding, source, folder)
    else:
        save_huggingface(bundle.model, folder, _details(bundle))
        if bundle.tokenizer is not None:
            _write_tokenizer(bundle, bundle.tokenizer, folder)
    if bundle.model.image is not None:
        _write_image_settings(bundle, bundle.model.image, folder)


def _details(bundle: Bundle) -> Details:
    """Return what is known beside the model of a run."""
    model, tokenizer, context = bundle.model, bundle.tokenizer, bundle.context
    if tokenizer is None:
        return Details(context, labels=bundle.classes)
    details = Details(context, tokenizer.start, bundle.ends, tokenizer.pad, labels=bundle.classes)
    if "generate" in model.verbs:
        suppressed = {"suppress_tokens": list(bundle.template.never)} if bundle.template.never else {}
        generation = {"max_new_tokens": NEW_TOKENS, **suppressed}
        return replace(details, start=_first_token(bundle, tokenizer), generation=generation)
    if model.has_source:
        most = 2 * (context or POSITIONS) + SPARE
        length = model.longest() or max(POSITIONS, most)
        generation = {"max_new_tokens": min(most, length - 1)}
        return replace(details, length=length, decoder_start=bundle.first, generation=generation)
    return details


def _first_token(bundle: Bundle, tokenizer: Tokenizer) -> int:
    return (*bundle.template.before, tokenizer.start)[0]


def _write_tokenizer(bundle: Bundle, tokenizer: Tokenizer, folder: Path) -> None:
    """Write the tokenizer of a run, with the roles of its special tokens and the tokens around a text."""
    model, template = bundle.model, bundle.template
    ids = {
        "bos_token": tokenizer.start,
        "eos_token": bundle.ends[0],
        "pad_token": tokenizer.pad,
        "unk_token": tokenizer.unk,
    }
    if "generate" in model.verbs:
        ids["bos_token"] = _first_token(bundle, tokenizer)
    elif not model.has_source and template.before and template.after:
        ids |= {"cls_token": template.before[0], "sep_token": template.after[-1]}
    if tokenizer.mask != tokenizer.end:  # the end token replaces a missing mask token
        ids["mask_token"] = tokenizer.mask
    names = tokenizer.names(tokenizer.size)
    built_in = (template.before, template.after) == tokenizer.around()  # the tokenizer already adds them
    first, last = (None if built_in or not side else names[side[0]] for side in (template.before, template.after))
    write_tokenizer_files(
        tokenizer.to_json(),
        folder,
        {role: names[id] for role, id in ids.items()},
        around=(first, last),
        length=bundle.context,
        segments=(getattr(model.config.embed, "segments", None) or 1) > 1,
        mask_joins_blanks="fill" in model.verbs and tokenizer.joins_blanks(),
    )


def _write_image_settings(bundle: Bundle, image: ImageInput, folder: Path) -> None:
    """Write how images become pixels."""
    table = {
        "image_processor_type": "ViTImageProcessor",
        "do_resize": True,
        "size": {"height": image.height, "width": image.width},
        "resample": 3,  # bicubic
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": list(bundle.mean),
        "image_std": list(bundle.std),
    }
    (folder / IMAGES).write_text(json.dumps(table, indent=2) + "\n", encoding="utf-8")
