"""Counts against numbers counted by hand or published, and against torch's own counter of FLOPs."""

from importlib import import_module

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import regard
from regard.errors import InputError
from regard.models.count import cache_bytes, cost, parameters
from regard.models.recipe import build_empty, load_recipe
from regard.parts.attend import explicit
from regard.parts.mixer import Mixer
from tests.laws.cases import Case, batch, call, cases, name_of

LLAMA_3_8B = [
    "model.dim=4096",
    "model.depth=32",
    "model.head.tied=false",
    "model.layers.block.feedforward.hidden=14336",
]


def empty(recipe: str, *overrides: str) -> torch.nn.Module:
    return build_empty(load_recipe(recipe, *overrides).model)


@pytest.mark.parametrize(
    ("recipe", "overrides", "published"),
    [
        ("gpt2", [], 124_439_808),
        ("llama-like", [], 1_235_814_400),
        ("llama-like", LLAMA_3_8B, 8_030_261_248),
        ("vit", [], 86_567_656),
    ],
)
def test_published_counts(recipe, overrides, published):
    assert parameters(empty(recipe, *overrides)) == published


def test_transformer_base_by_hand():
    """Section 3 of the paper: 6 + 6 layers of 512 with 2048 hidden, one shared embedding of 37,000; no biases."""
    d, f = 512, 2048
    attention, norm, mlp = 4 * d * d, 2 * d, d * f + f + f * d + d
    encoder = 6 * (attention + mlp + 2 * norm)
    decoder = 6 * (2 * attention + mlp + 3 * norm)
    assert parameters(empty("transformer-base")) == 37_000 * d + encoder + decoder == 63_045_632


def test_lstm_by_hand():
    layer = 4 * (650 * 650 + 650 * 650 + 650 + 650)
    norm = 650
    assert parameters(empty("lstm")) == 10_000 * 650 + norm + 10_000 + 2 * layer


def test_cache_of_gpt2_by_hand():
    """Keys and values of 12 layers, 12 heads of 64, 1024 tokens, two bytes each."""
    assert cost(empty("gpt2")).cache_bytes == 2 * 12 * 12 * 64 * 1024 * 2


def test_grouped_latent_window_and_recurrent_states_are_smaller():
    llama = empty("llama-like")
    assert cache_bytes(llama, 1000) == 2 * 16 * 8 * 64 * 1000 * 2
    assert cache_bytes(empty("llama-like", "model.layers.block.mixer.window=100"), 1000) == 2 * 16 * 8 * 64 * 100 * 2
    assert cache_bytes(empty("deepseek-like"), 1000) == 12 * (256 + 32) * 1000 * 2
    assert cache_bytes(empty("lstm"), 10) == cache_bytes(empty("lstm"), 1000) == 2 * 2 * 650 * 2
    assert cache_bytes(empty("bert"), 100) == 0


def test_flops_of_gpt2_by_hand():
    """2 FLOPs per weight of every matrix and token, and 2 * 2 * T * D per layer and token for attention."""
    matrices = 12 * (4 * 768 * 768 + 2 * 768 * 3072) + 50257 * 768
    assert cost(empty("gpt2"), 1024).flops_per_token == 2 * matrices + 12 * 4 * 1024 * 768


FUSED, CHUNKED = ("mut", "gru", "lstm", "rnn"), ("rwkv7", "hybrid", "linear-attention", "gated-deltanet", "mamba2")
NOT_COUNTED_BY_TORCH = (*FUSED, *CHUNKED, "deepseek", "local")


@pytest.mark.parametrize(
    "case",
    [case for case in cases() if not any(word in case.name for word in NOT_COUNTED_BY_TORCH)],
    ids=name_of,
)
def test_flops_agree_with_torch(case: Case, monkeypatch: pytest.MonkeyPatch):
    """Torch counts only plain products, so attention is computed as it is defined.

    Fused cells and experts are left out; windows, because the definition also computes what they hide; and recurrences
    that are counted as such but computed in chunks.
    """
    watch = import_module("regard.parts.watch")  # the package exports a function of the same name
    monkeypatch.setattr(watch, "attend", lambda query, key, value, terms, memo=None: explicit(query, key, value, terms))
    model, data = case.build(torch.float32), batch(case, rows=1, dtype=torch.float32)
    data.lengths = data.depths = None
    if data.alignment is not None:  # a model of alignments is counted with the rows that it should be given
        data.alignment = data.alignment[:, :1].expand(1, model.aligned_rows, -1)
    if data.source is not None:
        data.source, data.source_lengths = data.tokens, None
    counter = FlopCounterMode(display=False)
    with counter, torch.no_grad():
        call(model, data)
    rows = data.tokens if data.tracks is None else data.tracks
    assert cost(model, None if rows is None else rows.shape[1]).flops == counter.get_total_flops()


def test_flops_of_a_mixture_are_those_of_the_chosen_experts():
    few, more = (cost(empty("deepseek-like", f"model.layers.sparse.feedforward.chosen={n}"), 64) for n in (2, 4))
    assert more.flops - few.flops == 11 * 64 * 2 * (2 * 3 * 1024 * 512)


class Own(Mixer):
    """A mixer that does not count itself."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = torch.nn.Linear(32, 32, bias=False)


class Counted(Own):
    def flops(self, tokens: int, keys: int) -> int:
        return tokens * keys


def test_a_part_that_does_not_count_itself_is_named():
    model = empty("gpt2", "model.dim=32", "model.layers.block.mixer.heads.heads=2", "model.depth=2")
    whole = cost(model, 8)
    assert whole.uncounted == ()
    attention = 8 * 2 * 4 * 32 * 32 + 4 * 8 * 8 * 32
    model.stack.layers[1].mixer = Own()
    assert cost(model, 8).uncounted == ("Own",)
    assert cost(model, 8).flops == whole.flops - attention + 8 * 2 * 32 * 32
    model.stack.layers[1].mixer = Counted()
    assert cost(model, 8).uncounted == ()
    assert cost(model, 8).flops == whole.flops - attention + 8 * 2 * 32 * 32 + 8 * 8


def test_matrices_of_an_unknown_part_are_listed_as_uncounted():
    class Bare(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.empty(4, 4))

    model = empty("gpt2", "model.depth=1")
    model.stack.layers[0].feedforward = Bare()
    assert cost(model, 8).uncounted == ("Bare",)


def test_equal_layers_are_shown_once():
    tree = cost(empty("deepseek-like")).tree
    stack = next(node for node in tree.children if node.name == "stack")
    assert [(node.name, node.repeated) for node in stack.children if node.kind == "Layer"] == [("0", 1), ("1-11", 11)]
    assert tree.parameters == parameters(empty("deepseek-like"))


def test_counting_allocates_no_memory():
    """A model of 8 billion weights is counted on a device without memory."""
    model = empty("llama-like", *LLAMA_3_8B)
    assert {parameter.device.type for parameter in model.parameters()} == {"meta"}
    assert cost(model, 8192).flops_per_token > 16e9


def test_api():
    assert regard.cost(regard.build("gpt2", "model.depth=1", "model.vocabulary=100"), 8).length == 8


@pytest.mark.unchecked
@pytest.mark.parametrize("length", [0, -5, 1.5, "8"])
def test_a_length_is_a_whole_number(length):
    with pytest.raises(InputError, match=f"length={length!r} must be a whole number, at least 1"):
        cost(empty("gpt2"), length)


def test_the_length_of_an_image_cannot_be_changed():
    assert cost(empty("vit"), 197) == cost(empty("vit"))
    with pytest.raises(InputError, match="always has 197 vectors here, not 5"):
        cost(empty("vit"), 5)
