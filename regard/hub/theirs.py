"""Their `config.json`, read strictly: a key that nobody asked for, and a value that is not supported, are errors."""

from collections.abc import Mapping
from typing import Any, TypeVar

from regard.errors import RegardError, choices

T = TypeVar("T")

REQUIRED = object()
REASONS = {  # for keys that are met often enough to say more
    "quantization_config": "quantised weights cannot be read; take the folder with the weights in full",
}
EVERYWHERE = {  # keys that a config of any family may have, which say nothing about the model
    "model_type": "chose the family",
    "architectures": "chose the head",
    "transformers_version": "who wrote it",
    "_name_or_path": "where it came from",
    "_commit_hash": "where it came from",
    "_attn_implementation_autoset": "which kernel; here the data decide",
    "attn_implementation": "which kernel; here the data decide",
    "auto_map": "code in the folder, which is never run",
    "dtype": "the precision, read with the weights",
    "torch_dtype": "the precision, read with the weights",
    "use_bfloat16": "the precision, read with the weights",
    "use_cache": "a default of generation",
    "gradient_checkpointing": "how it was trained",
    "pretraining_tp": "how it was trained",
    "initializer_factor": "how it was trained",
    "is_decoder": "the family says so",
    "is_encoder_decoder": "the family says so",
    "tokenizer_class": "for the tokenizer",
    "prefix": "for the tokenizer",
    "finetuning_task": "for people",
    "problem_type": "which loss; the task says so",
    "task_specific_params": "defaults of pipelines",
    "chunk_size_feed_forward": "how it is computed, not what",
    "return_dict": "the form of an answer",
    "output_attentions": "the form of an answer",
    "output_hidden_states": "the form of an answer",
    "output_past": "the form of an answer",
    "torchscript": "the form of an answer",
    "cross_attention_hidden_size": "not of this family",
    "tie_encoder_decoder": "not of this family",
    "pruned_heads": "not of this family",
    "label2id": "id2label turned round",
    "_num_labels": "id2label counted",
    "force_bos_token_to_be_generated": "forced_bos_token_id by an older name",
    "gradient_checkpointing_kwargs": "how it was trained",
    "transformers.js_config": "for another program",
    # Defaults of generation and names of tokens: `details` reads those that mean something here.
    **dict.fromkeys(
        (
            "bos_token_id",
            "eos_token_id",
            "eos_token_ids",
            "pad_token_id",
            "sep_token_id",
            "cls_token_id",
            "mask_token_id",
            "unk_token_id",
            "decoder_start_token_id",
            "forced_bos_token_id",
            "forced_eos_token_id",
            "bad_words_ids",
            "suppress_tokens",
            "begin_suppress_tokens",
            "max_length",
            "min_length",
            "max_new_tokens",
            "do_sample",
            "early_stopping",
            "num_beams",
            "num_beam_groups",
            "diversity_penalty",
            "temperature",
            "top_k",
            "top_p",
            "typical_p",
            "repetition_penalty",
            "length_penalty",
            "no_repeat_ngram_size",
            "encoder_no_repeat_ngram_size",
            "num_return_sequences",
            "output_scores",
            "return_dict_in_generate",
            "exponential_decay_length_penalty",
            "remove_invalid_values",
        ),
        "a default of generation, or the id of a token",
    ),
}


class Theirs:
    """The table of a config.json, and the names of the weights beside it. What is read is remembered."""

    def __init__(self, table: Mapping[str, Any], weights: frozenset[str] = frozenset(), place: str = "config.json"):
        self.table = table
        self.weights = weights
        self.place = place
        self.known: set[str] = set()

    @property
    def architecture(self) -> str:
        """The class that wrote it, which says what head it has."""
        named = self.table.get("architectures")
        if not (isinstance(named, list) and len(named) == 1 and isinstance(named[0], str)):
            raise RegardError(
                f"{self.place}: architectures={named!r} must name one class, which says what head there is"
            )
        return named[0]

    def whole(self, key: str, default: Any = REQUIRED, least: int = 1) -> Any:
        """Read a whole number, at least `least`."""
        rule = f"a whole number, at least {least}"
        return self._read(key, default, rule, lambda value: type(value) is int and value >= least)

    def depth(self, key: str, default: Any = REQUIRED) -> int:
        """Read the number of layers. Each has weights, so a number that would take forever is found at once."""
        layers = int(self.whole(key, default))
        if self.weights and layers > len(self.weights):
            raise self.refuse(key, layers, f"there are only {len(self.weights)} weights")
        return layers

    def number(self, key: str, default: Any = REQUIRED) -> float:
        """Read a number."""
        return float(self._read(key, default, "a number", lambda value: type(value) in (int, float)))

    def flag(self, key: str, default: Any = REQUIRED) -> bool:
        """Read true or false."""
        return bool(self._read(key, default, "true or false", lambda value: type(value) is bool))

    def one_of(self, key: str, meanings: Mapping[str, T], default: Any = REQUIRED) -> T:
        """Read a name and give what it means here."""
        name = self._read(key, default, f"one of {', '.join(sorted(meanings))}", lambda value: value in list(meanings))
        return meanings[name]

    def anything(self, key: str, default: Any = REQUIRED) -> Any:
        """Read a value that the caller checks."""
        return self._read(key, default, "given", lambda value: True)

    def only(self, key: str, value: Any, why: str) -> None:
        """Accept one value, which is also the default; anything else is refused, because `why`."""
        if (found := self.anything(key, value)) != value:
            raise self.refuse(key, found, why)

    def classes(self, default: int = 2) -> int:
        """Count the classes of a classifier."""
        labels = self.anything("id2label", None)
        named = self.whole("num_labels", None)
        if labels is not None and not isinstance(labels, Mapping):
            raise self.refuse("id2label", labels, "it must be a table")
        return int(named or (default if labels is None else len(labels)))

    def refuse(self, key: str, value: Any, why: str) -> RegardError:
        """Make the error for a value that has no meaning here."""
        return RegardError(f"{self.place}: {key}={value!r} cannot be read: {why}")

    def finish(self, ignored: Mapping[str, str]) -> None:
        """Refuse keys that were neither read nor are knowingly ignored."""
        for key in sorted(set(self.table) - self.known - set(ignored) - set(EVERYWHERE)):
            reason = REASONS.get(key, f"unknown key; {choices(key, self.known)}")
            raise RegardError(f"{self.place}: {key}: {reason}")

    def _read(self, key: str, default: Any, rule: str, accepts: Any) -> Any:
        self.known.add(key)
        value = self.table.get(key, REQUIRED)
        if value is REQUIRED or (value is None and default is not REQUIRED):  # null is how they write a default
            value = default
            if value is REQUIRED:
                raise RegardError(f"{self.place}: {key} is missing; it must be {rule}")
            return value
        if not accepts(value):
            raise RegardError(f"{self.place}: {key}={value!r} must be {rule}")
        return value
