"""A Hugging Face folder, made ready to use: its tokenizer, what stands round a text, and its defaults of writing."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from regard.data.tokenizer import Tokenizer, load_tokenizer
from regard.data.tokenizer_folder import has_tokenizer
from regard.errors import RegardError
from regard.hub.details import GENERATION, Details, read_details
from regard.hub.folder import load_huggingface
from regard.hub.weights import read_json
from regard.models.model import EncoderDecoder, Model
from regard.models.vision import VisionTransformer
from regard.use.ready import Frame, Ready

IMAGES = "preprocessor_config.json"
TOP_K = 50  # what `transformers` draws from where a folder says only that it draws


def open_huggingface(folder: Path, device: torch.device, allow_pickle: bool = False) -> Ready:
    """Read the model of a folder, and what its files say of using it."""
    model = load_huggingface(folder, device, allow_pickle=allow_pickle)
    details = read_details(folder)
    tokenizer = None
    if not isinstance(model, VisionTransformer) and has_tokenizer(folder):
        tokenizer = load_tokenizer(folder)
        check_vocabulary(model, tokenizer, folder)
    mean, std = read_colours(folder) if isinstance(model, VisionTransformer) else ((), ())
    return Ready(
        model=model,
        name=str(folder),
        tokenizer=tokenizer,
        frame=their_frame(model, tokenizer, details, folder),
        longest=details.length,
        classes=details.labels,
        mean=mean,
        std=std,
        defaults=their_defaults(details.generation, folder),
    )


def check_vocabulary(model: Model, tokenizer: Tokenizer, folder: Path) -> None:
    """Refuse a tokenizer that has tokens which the model does not know, and a model that has two vocabularies."""
    if getattr(model.config, "source_vocabulary", None) is not None:
        raise RegardError(f"{folder}: its two sides have vocabularies of their own, which cannot be used here yet")
    if tokenizer.size > model.config.vocabulary:
        trouble = f"the tokenizer has {tokenizer.size} tokens, the model only {model.config.vocabulary}"
        raise RegardError(f"{folder}: {trouble}; put the tokenizer that it was trained with into its folder")


def their_frame(model: Model, tokenizer: Tokenizer | None, details: Details, folder: Path) -> Frame:
    """Give what stands round a text there: what the tokenizer adds, and what generation begins and ends with.

    Of tokens that are never to be written, those are known that are forbidden one by one.
    """
    if tokenizer is None:
        return Frame()
    never, forced = forbidden(details.generation), details.generation.get("forced_bos_token_id")
    begin = () if forced is None or not isinstance(model, EncoderDecoder) else (forced,)
    for id in (*never, *begin):
        if type(id) is not int or id not in range(model.config.vocabulary):
            raise RegardError(f"{folder / GENERATION}: {id!r} is the id of no token")
    before, after = tokenizer.around()
    return Frame(
        before=before,
        after=after,
        first=details.decoder_start,
        never=tuple(sorted(set(never) - set(details.end))),
        ends=details.end or None,
        forced=begin,
    )


def forbidden(writing: Mapping[str, Any]) -> list[Any]:
    """List what is never to be written: tokens, and words of one token."""
    tokens, words = (writing.get(key, []) for key in ("suppress_tokens", "bad_words_ids"))
    words = words if isinstance(words, list) else [words]
    alone = [
        word[0] if isinstance(word, list) else word for word in words if not isinstance(word, list) or len(word) == 1
    ]
    return [*(tokens if isinstance(tokens, list) else [tokens]), *alone]


def their_defaults(writing: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Give the defaults of generation that mean the same here, by our names."""

    def number(key: str, default: int | float) -> Any:
        value = writing.get(key, default)
        if type(value) not in (int, float):
            raise RegardError(f"{folder / GENERATION}: {key}={value!r} must be a number")
        return type(default)(value)

    found: dict[str, Any] = {}
    if "max_new_tokens" in writing:
        found["tokens"] = number("max_new_tokens", 0)
    if writing.get("do_sample") is True:
        found |= {"temperature": number("temperature", 1.0), "top_k": number("top_k", TOP_K) or None}
        found |= {"top_p": number("top_p", 1.0), "min_p": number("min_p", 0.0)}
    elif "num_beams" in writing:
        found["beam"] = number("num_beams", 1)
    elif writing.get("do_sample") is False:
        found["temperature"] = 0.0
    if "repetition_penalty" in writing:
        found["repetition"] = number("repetition_penalty", 1.0)
    return {name: value for name, value in found.items() if value is not None}


def read_colours(folder: Path) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Read by which means and deviations images are normalised; a folder that does not say has those of ViT."""
    table = read_json(folder / IMAGES) if (folder / IMAGES).exists() else {}
    if table.get("do_normalize") is False:
        return (0.0,) * 3, (1.0,) * 3
    found = []
    for key in ("image_mean", "image_std"):
        value = table.get(key, [0.5] * 3)
        if not isinstance(value, list) or not all(type(number) in (int, float) for number in value):
            raise RegardError(f"{folder / IMAGES}: {key}={value!r} must be a list of numbers")
        found.append(tuple(float(number) for number in value))
    return found[0], found[1]
