"""A Hugging Face `config.json`, read strictly: an unread key and an unsupported value are errors."""

from collections.abc import Callable, Mapping
from sys import float_info
from typing import Any, TypeVar

from regard.errors import RegardError, choices

T = TypeVar("T")

UNREADABLE_KEYS = {  # keys that are common enough to deserve a better message than "unknown key"
    "quantization_config": "quantised weights cannot be read; use the folder with the full-precision weights",
}
COMMON_KEYS = {  # keys that any family's config may have and that do not describe the architecture, and why
    "model_type": "selects the family",
    "architectures": "selects the head",
    "transformers_version": "documentation only",
    "_name_or_path": "documentation only",
    "_commit_hash": "documentation only",
    "finetuning_task": "documentation only",
    "_attn_implementation_autoset": "the kernel is chosen automatically",
    "attn_implementation": "the kernel is chosen automatically",
    "auto_map": "code in the folder, which is never run",
    "dtype": "the precision, read with the weights",
    "torch_dtype": "the precision, read with the weights",
    "use_bfloat16": "the precision, read with the weights",
    "use_cache": "a generation default",
    "gradient_checkpointing": "affects training only",
    "gradient_checkpointing_kwargs": "affects training only",
    "pretraining_tp": "affects training only",
    "initializer_factor": "affects training only",
    "is_decoder": "follows from the family",
    "is_encoder_decoder": "follows from the family",
    "tokenizer_class": "used by the tokenizer",
    "prefix": "used by the tokenizer",
    "problem_type": "what the scores of classes mean, read with the labels",
    "task_specific_params": "defaults of pipelines",
    "chunk_size_feed_forward": "affects the computation, not the result",
    "return_dict": "affects the output format only",
    "output_attentions": "affects the output format only",
    "output_hidden_states": "affects the output format only",
    "output_past": "affects the output format only",
    "torchscript": "affects the output format only",
    "cross_attention_hidden_size": "not used by this family",
    "tie_encoder_decoder": "not used by this family",
    "pruned_heads": "not used by this family",
    "label2id": "the inverse of id2label",
    "_num_labels": "the length of id2label",
    "force_bos_token_to_be_generated": "an older name of forced_bos_token_id",
    "transformers.js_config": "used by another program",
    # Generation defaults and token ids: `read_details` reads the ones that are supported.
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
        "a generation default or a token id",
    ),
}


class HubConfig:
    """The table of a `config.json`. It remembers which keys were read, so that unread ones can be reported.

    `task` is what the model's head is for (see `Head`). `weights` are the names of the weights in the folder; empty
    when a config is converted without weights. Where a method takes a `default`, None means that the key is required.
    """

    def __init__(
        self,
        table: Mapping[str, Any],
        task: str = "",
        weights: frozenset[str] = frozenset(),
        place: str = "config.json",
    ) -> None:
        self.table = table
        self.task = task
        self.weights = weights
        self.place = place
        self.keys_read: set[str] = set()

    def read_int(self, key: str, default: int | None = None, least: int = 1) -> int:
        """Read a whole number of at least `least`."""
        rule = f"a whole number, at least {least}"
        return int(self._read(key, default, rule, lambda value: type(value) is int and value >= least))

    def read_optional_int(self, key: str) -> int | None:
        """Read a whole number of at least 1, or return None if the key is absent or null."""
        return None if self.read_optional(key) is None else self.read_int(key)

    def read_repeats(self, key: str, default: int | None = None) -> int:
        """Read a number of layers or experts.

        Each has weights of its own, so a number that would take forever to build is rejected at once.
        """
        repeats = self.read_int(key, default)
        if self.weights and repeats > len(self.weights):
            raise self.error(key, repeats, f"there are only {len(self.weights)} weights")
        return repeats

    def read_float(self, key: str, default: float | None = None) -> float:
        """Read a number."""
        return float(self._read(key, default, "a number", _is_number))

    def read_bool(self, key: str, default: bool | None = None) -> bool:
        """Read true or false."""
        return bool(self._read(key, default, "true or false", lambda value: type(value) is bool))

    def read_name(self, key: str, meanings: Mapping[str, T], default: str | None = None) -> T:
        """Read a name and return its meaning."""
        name = self._read(key, default, f"one of {', '.join(sorted(meanings))}", lambda value: value in list(meanings))
        return meanings[name]

    def read_any(self, key: str, default: Any = None) -> Any:
        """Read a value that the caller checks."""
        return self._read(key, default, "given", lambda value: True)

    def read_optional(self, key: str) -> Any:
        """Read a value that the caller checks, or return None if the key is absent or null."""
        self.keys_read.add(key)
        return self.table.get(key)

    def require(self, key: str, value: Any, why: str) -> None:
        """Accept only `value`, which is also the default. `why` explains the error for any other value."""
        found = self.read_optional(key)
        if found is not None and found != value:
            raise self.error(key, found, why)

    def read_classes(self, default: int = 2) -> int:
        """Read the number of classes of a classifier."""
        labels = self.read_optional("id2label")
        count = self.read_optional_int("num_labels")
        if labels is not None and not isinstance(labels, Mapping):
            raise self.error("id2label", labels, "it must be a table")
        return count or (default if labels is None else len(labels))

    def error(self, key: str, value: Any, why: str) -> RegardError:
        """Return the error for an unsupported value."""
        return RegardError(f"{self.place}: {key}={value!r} is not supported: {why}")

    def check_all_read(self, ignored: Mapping[str, str]) -> None:
        """Reject keys that were neither read nor are listed as ignored."""
        for key in sorted(set(self.table) - self.keys_read - set(ignored) - set(COMMON_KEYS)):
            reason = UNREADABLE_KEYS.get(key, f"unknown key; {choices(key, self.keys_read)}")
            raise RegardError(f"{self.place}: {key}: {reason}")

    def _read(self, key: str, default: Any, rule: str, accepts: Callable[[Any], bool]) -> Any:
        self.keys_read.add(key)
        value = self.table.get(key)
        if value is None and default is not None:  # Hugging Face writes null for a default
            return default
        if key not in self.table:
            raise RegardError(f"{self.place}: {key} is missing; it must be {rule}")
        if not accepts(value):
            raise RegardError(f"{self.place}: {key}={value!r} must be {rule}")
        return value


def _is_number(value: Any) -> bool:
    """Return whether a value of JSON is a number that a float can hold: a whole number there has any size."""
    return type(value) is float or (type(value) is int and abs(value) <= float_info.max)
