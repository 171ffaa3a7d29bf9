"""Writing a model for others: as a folder of Hugging Face, or of CTranslate2; whole, or not at all."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import get_args

from regard.data.device import choose_device
from regard.data.tokenizer import Tokenizer
from regard.errors import InputError, RegardError, choices
from regard.hub.ctranslate2 import Quantization, ctranslate2_obstacle
from regard.hub.details import Details, read_details
from regard.hub.folder import huggingface_obstacle, is_huggingface, save_huggingface
from regard.hub.tokenizer_files import write_tokenizer_files
from regard.models.encoder import Encoder
from regard.models.language import LanguageModel
from regard.models.model import EncoderDecoder
from regard.models.vision import VisionTransformer
from regard.use.ctranslate2 import keep
from regard.use.huggingface import IMAGES
from regard.use.load import open_folder
from regard.use.ready import Ready
from regard.use.translate import SPARE

TARGETS = ("huggingface", "ctranslate2")
TOKENIZER_FILES = (  # of their folders, which are taken as they are
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "chat_template.jinja"),
    *("vocab.json", "merges.txt", "vocab.txt", "source.spm", "target.spm", "spiece.model", "tokenizer.model"),
    "sentencepiece.bpe.model",
)
POSITIONS = 1024  # at least so many tokens are announced for a translator that could take any number


def convert(
    source: str | Path,
    to: str,
    folder: str | Path,
    *,
    quantization: str | None = None,
    allow_pickle: bool = False,
) -> None:
    """Write a run, or a folder of Hugging Face, into a new folder: for `huggingface` or `ctranslate2`.

    `quantization` is for CTranslate2: int8, int8_float32, float16, ... What the other side cannot express is refused
    before anything is written.
    """
    source, folder = Path(source), Path(folder)
    if to not in TARGETS:
        raise InputError(f"{to!r} is nothing that can be written; {choices(to, TARGETS)}")
    if quantization is not None and to != "ctranslate2":
        raise InputError(f"quantization={quantization!r} is for ctranslate2 only; leave it out")
    quantized = as_quantization(quantization or "float32")
    check_free(folder)
    ready = open_folder(source, choose_device("cpu"), allow_pickle)
    obstacle = huggingface_obstacle if to == "huggingface" else ctranslate2_obstacle
    reason = obstacle(ready.model.config)
    if reason is not None:
        named = {"huggingface": "Hugging Face", "ctranslate2": "CTranslate2"}[to]
        raise RegardError(f"{source}: cannot be written for {named}: {reason}")
    with whole(folder) as part:
        if to == "huggingface":
            write_huggingface(ready, source, part)
        else:
            keep(ready, source, part, quantized)


def as_quantization(name: str) -> Quantization:
    """See that a name is a way to store weights."""
    for known in get_args(Quantization):
        if name == known:
            return known
    raise InputError(f"quantization={name!r} is unknown; {choices(name, get_args(Quantization))}")


# --- Hugging Face ----------------------------------------------------------------------------------------------------


def write_huggingface(ready: Ready, source: Path, folder: Path) -> None:
    """Write model, tokenizer, and what is known of images."""
    theirs = is_huggingface(source)
    save_huggingface(ready.model, folder, read_details(source) if theirs else details_of(ready))
    if theirs:
        for name in TOKENIZER_FILES:
            if (source / name).exists():
                shutil.copyfile(source / name, folder / name)
    elif ready.tokenizer is not None:
        write_words(ready, ready.tokenizer, folder)
    if isinstance(ready.model, VisionTransformer):
        write_images(ready, ready.model, folder)


def details_of(ready: Ready) -> Details:
    """Give what is known beside the model of a run."""
    model, words, room = ready.model, ready.tokenizer, ready.room
    if words is None:
        return Details(room, labels=ready.classes)
    known = Details(room, words.start, ready.ends, words.pad, labels=ready.classes)
    if isinstance(model, LanguageModel):
        never = {"suppress_tokens": list(ready.frame.never)} if ready.frame.never else {}
        start = (*ready.frame.before, words.start)[0]
        return replace(known, start=start, generation={"max_new_tokens": 200, **never})
    if isinstance(model, EncoderDecoder):
        most = 2 * (room or POSITIONS) + SPARE
        length = model.longest() or max(POSITIONS, most)
        return replace(
            known, length=length, decoder_start=ready.first, generation={"max_new_tokens": min(most, length - 1)}
        )
    return known


def write_words(ready: Ready, words: Tokenizer, folder: Path) -> None:
    """Write the tokenizer of a run with the names of its special tokens, and what stands round a text."""
    frame = ready.frame
    ids = {"bos_token": words.start, "eos_token": ready.ends[0], "pad_token": words.pad, "unk_token": words.unk}
    if isinstance(ready.model, LanguageModel):
        ids["bos_token"] = (*frame.before, words.start)[0]
    if words.mask != words.end:  # or it has none
        ids["mask_token"] = words.mask
    if isinstance(ready.model, Encoder) and frame.before and frame.after:
        ids |= {"cls_token": frame.before[0], "sep_token": frame.after[-1]}
    names = words.names(words.size)
    usual = (frame.before, frame.after) == words.around()  # then it puts them there by itself
    first, last = (None if usual or not side else names[side[0]] for side in (frame.before, frame.after))
    write_tokenizer_files(
        words.to_json(),
        folder,
        {role: names[id] for role, id in ids.items()},
        around=(first, last),
        length=ready.room,
        segments=(getattr(ready.model.config.embed, "segments", None) or 1) > 1,
    )


def write_images(ready: Ready, model: VisionTransformer, folder: Path) -> None:
    """Write how images become pixels."""
    table = {
        "image_processor_type": "ViTImageProcessor",
        "do_resize": True,
        "size": {"height": model.patches.height, "width": model.patches.width},
        "resample": 3,  # bicubic
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": list(ready.mean),
        "image_std": list(ready.std),
    }
    (folder / IMAGES).write_text(json.dumps(table, indent=2) + "\n", encoding="utf-8")


# --- whole or not at all ---------------------------------------------------------------------------------------------


def check_free(folder: Path) -> None:
    """Refuse a folder that holds something."""
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        what = "holds something already" if folder.is_dir() else "is a file"
        raise InputError(f"{folder}: {what}; choose another folder")


@contextmanager
def whole(folder: Path) -> Iterator[Path]:
    """Give a folder to write into, which gets its name when all is written."""
    part = folder.with_name(f"{folder.name}.part")
    try:
        shutil.rmtree(part, ignore_errors=True)  # what a killed process left
        part.mkdir(parents=True)
        yield part
        part.replace(folder)
    except OSError as error:
        raise RegardError(
            f"{folder}: cannot be written: {error.strerror}; make room or choose another folder"
        ) from None
    finally:
        shutil.rmtree(part, ignore_errors=True)
