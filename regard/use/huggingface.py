"""Open a Hugging Face folder for use: model, tokenizer, special tokens around a text, generation defaults."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from sys import float_info
from typing import Any

import torch

from regard.data.tokenizer import Tokenizer, load_tokenizer
from regard.data.tokenizer_folder import has_tokenizer
from regard.errors import RegardError
from regard.hub.details import GENERATION, MULTI_LABEL, Details, read_details
from regard.hub.folder import load_huggingface
from regard.hub.sentence_transformers import SentenceEmbedding, is_sentence_transformer, read_sentence_transformer
from regard.models.model import Model
from regard.models.template import Template
from regard.untrusted import read_json
from regard.use.bundle import Bundle

IMAGES = "preprocessor_config.json"
UNUSED = {"no_repeat_ngram_size": 0, "min_length": 0, "min_new_tokens": 0}  # with the values that have no effect
UNUSED_WITH_BEAMS = {"length_penalty": 1, "repetition_penalty": 1}
TOP_K = 50  # the default of `transformers` when it samples


def open_huggingface(folder: Path, device: torch.device, allow_pickle: bool = False) -> Bundle:
    """Read the model of a folder, and its settings."""
    model = load_huggingface(folder, device, allow_pickle=allow_pickle)
    details = read_details(folder)
    tokenizer = None
    if model.reads == "text" and has_tokenizer(folder):
        tokenizer = load_tokenizer(folder)
        check_vocabulary(model, tokenizer, folder)
    mean, std = ((), ()) if model.image is None else read_normalisation(folder, model.image.channels)
    embedding = read_embedding(model, folder, allow_pickle)
    return Bundle(
        model=model,
        name=str(folder),
        tokenizer=tokenizer,
        template=read_template(model, tokenizer, details, folder),
        longest=details.length,
        classes=details.labels,
        problem=details.problem or (MULTI_LABEL if model.classes == 1 else None),
        mean=mean,
        std=std,
        defaults=generation_defaults(details.generation, folder),
        unused=unused_settings(details.generation),
        embedding=None if embedding is None else replace(embedding, layers=embedding.layers.to(device)),
    )


def read_embedding(model: Model, folder: Path, allow_pickle: bool) -> SentenceEmbedding | None:
    """Return how a folder makes vectors of texts: as its modules.json says; of a bare encoder, the mean over tokens.

    The pooler of BERT is trained to tell whether two sentences follow each other, and its vectors compare badly.
    """
    if model.reads != "text":
        return None
    if is_sentence_transformer(folder):
        return read_sentence_transformer(folder, model.config.dim, allow_pickle)
    return SentenceEmbedding() if model.verbs == ("embed",) else None


def check_vocabulary(model: Model, tokenizer: Tokenizer, folder: Path) -> None:
    """Reject a tokenizer with more tokens than the model, and a model with two vocabularies."""
    if getattr(model.config, "source_vocabulary", None) is not None:
        raise RegardError(f"{folder}: models whose encoder and decoder have separate vocabularies cannot be used yet")
    if tokenizer.size > model.config.vocabulary:
        trouble = f"the tokenizer has {tokenizer.size} tokens, the model only {model.config.vocabulary}"
        raise RegardError(f"{folder}: {trouble}; put the tokenizer of the model into the folder")


def read_template(model: Model, tokenizer: Tokenizer | None, details: Details, folder: Path) -> Template:
    """Return the special tokens that the tokenizer adds around a text, and those of generation.

    Of the suppressed sequences, only those of a single token are known.
    """
    if tokenizer is None:
        return Template()
    never, forced = suppressed_tokens(details.generation), details.generation.get("forced_bos_token_id")
    after_first = () if forced is None or not model.has_source else (forced,)
    for id in (*never, *after_first):
        if type(id) is not int or id not in range(model.config.vocabulary):
            raise RegardError(f"{folder / GENERATION}: {id!r} is not a token id")
    before, after = tokenizer.around()
    return Template(
        before=before,
        after=after,
        first=details.decoder_start,
        never=tuple(sorted(set(never) - set(details.end))),
        ends=details.end or None,
        forced=after_first,
    )


def suppressed_tokens(generation: Mapping[str, Any]) -> list[Any]:
    """Return the tokens that are never written: `suppress_tokens`, and `bad_words_ids` of one token."""
    tokens, words = (
        value if isinstance(value, list) else [value]
        for value in (generation.get(key, []) for key in ("suppress_tokens", "bad_words_ids"))
    )
    single = [word for word in words if not isinstance(word, list)]
    single += [word[0] for word in words if isinstance(word, list) and len(word) == 1]
    return [*tokens, *single]


def generation_defaults(generation: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return the generation defaults that have the same meaning here, under the names of our options."""

    def number(key: str, default: int | float) -> Any:
        value = generation.get(key, default)
        if not _is_number(value):
            raise RegardError(f"{folder / GENERATION}: {key}={value!r} must be a number")
        return type(default)(value)

    found: dict[str, Any] = {}
    if "max_new_tokens" in generation:
        found["tokens"] = number("max_new_tokens", 0)
    if generation.get("do_sample") is True:
        found |= {"temperature": number("temperature", 1.0), "top_k": number("top_k", TOP_K) or None}
        found |= {"top_p": number("top_p", 1.0), "min_p": number("min_p", 0.0)}
    elif "num_beams" in generation:
        found["beam"] = number("num_beams", 1)
    elif generation.get("do_sample") is False:
        found["temperature"] = 0.0
    if "repetition_penalty" in generation:
        found["repetition"] = number("repetition_penalty", 1.0)
    return {name: value for name, value in found.items() if value is not None}


def unused_settings(generation: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the settings of generation that would change texts in `transformers`, but are not used here."""
    searches = generation.get("do_sample") is not True and generation.get("num_beams", 1) != 1
    unused = UNUSED | (UNUSED_WITH_BEAMS if searches else {})
    values = {key: generation[key] for key, without in unused.items() if generation.get(key, without) != without}
    return tuple(f"{key}={value}" for key, value in values.items())


def read_normalisation(folder: Path, channels: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Read the mean and standard deviation of each channel of an image; the default is that of ViT."""
    table = read_json(folder / IMAGES) if (folder / IMAGES).exists() else {}
    if table.get("do_normalize") is False:
        return (0.0,) * channels, (1.0,) * channels
    found = []
    for key in ("image_mean", "image_std"):
        value = table.get(key, [0.5] * channels)
        if not isinstance(value, list) or len(value) != channels or not all(map(_is_number, value)):
            rule = f"must be a list of numbers, one for each of the {channels} channels"
            raise RegardError(f"{folder / IMAGES}: {key}={value!r} {rule}")
        found.append(tuple(map(float, value)))
    return found[0], found[1]


def _is_number(value: Any) -> bool:
    """Return whether a value is a finite number; Python also reads NaN, Infinity and longer numbers in JSON."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and abs(value) <= float_info.max
