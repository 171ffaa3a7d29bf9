"""Every recipe, made small by overrides so that its laws are checked quickly, and one way to call all models."""

from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cache, cached_property

import torch
from torch import Tensor, nn

import regard
from regard.models.recipe import load_recipe
from regard.recipe_files import recipe_names

VOCABULARY = 23
SMALL = ["model.vocabulary=23", "model.dim=16"]


def heads(path: str, **values: int) -> list[str]:
    return [f"{path}.heads.{key}={value}" for key, value in values.items()]


SHRINK: dict[str, list[str]] = {
    "elman": SMALL,
    "word2vec": SMALL,
    "lstm": [*SMALL, "model.head.tied=false"],  # tied, so small a model writes the same token again and again
    "gru": SMALL,
    "mut1": SMALL,
    "mut2": SMALL,
    "mut3": [*SMALL, "model.head.tied=false"],
    "conv": [*SMALL, "model.depth=2", "model.layers.block.mixer.kernel=3", "model.layers.block.feedforward.hidden=24"],
    "linear-attention": [
        *SMALL,
        "model.depth=2",
        "model.layers.block.feedforward.hidden=24",
        "model.layers.block.mixer.heads=4",
    ],
    "gated-deltanet": [
        *SMALL,
        "model.depth=2",
        "model.layers.block.feedforward.hidden=24",
        "model.layers.block.mixer.heads=4",
    ],
    "mamba2": [*SMALL, "model.depth=2", "model.layers.block.mixer.heads=4", "model.layers.block.mixer.state_width=6"],
    "rwkv4": [*SMALL, "model.depth=2", "model.layers.block.feedforward.hidden=24"],
    "rwkv7": [
        *SMALL,
        "model.depth=2",
        *(f"model.layers.{name}.feedforward.hidden=24" for name in ("first", "block")),
        *(f"model.layers.{name}.mixer.{key}=3" for name in ("first", "block") for key in ("rank", "gate_rank")),
        *(f"model.layers.{name}.mixer.heads=2" for name in ("first", "block")),
        "model.layers.block.mixer.value_rank=3",
    ],
    "rwkv-hybrid": [
        *SMALL,
        "model.depth=2",
        'model.pattern=["recurrent", "attention"]',
        *(f"model.layers.{name}.feedforward.hidden=24" for name in ("recurrent", "attention")),
        *(f"model.layers.recurrent.mixer.{setting}" for setting in ("rank=3", "gate_rank=3", "heads=2")),
        *heads("model.layers.attention.mixer", heads=4),
    ],
    "gpt2": [
        *SMALL,
        "model.depth=2",
        "model.embed.position.length=32",
        "model.layers.block.feedforward.hidden=24",
        *heads("model.layers.block.mixer", heads=4),
    ],
    "llama-like": [
        *SMALL,
        "model.depth=2",
        "model.layers.block.feedforward.hidden=24",
        *heads("model.layers.block.mixer", heads=4, kv_heads=2),
    ],
    "deepseek-like": [
        *SMALL,
        "model.depth=2",
        "model.layers.dense.feedforward.hidden=24",
        *heads("model.layers.dense.mixer", heads=2, rank=8, query_rank=8, plain=4, turned=4, value=6),
        "model.layers.sparse.feedforward.experts=4",
        "model.layers.sparse.feedforward.groups=2",
        "model.layers.sparse.feedforward.chosen_groups=1",
        "model.layers.sparse.feedforward.chosen=2",
        "model.layers.sparse.feedforward.hidden=8",
    ],
    "bert": [
        *SMALL,
        "model.depth=2",
        "model.embed.position.length=32",
        "model.layers.block.feedforward.hidden=24",
        *heads("model.layers.block.mixer", heads=4),
    ],
    "vit": [
        "model.dim=16",
        "model.depth=2",
        "model.patches.height=8",
        "model.patches.width=12",
        "model.patches.patch=4",
        "model.position.length=7",
        "model.head.classes=5",
        "model.layers.block.feedforward.hidden=24",
        *heads("model.layers.block.mixer", heads=4),
    ],
    "seer": [
        "model.dim=16",
        "model.depth=2",
        "model.patches.height=8",
        "model.patches.width=12",
        "model.patches.patch=4",
        "model.position.length=6",
        "model.head.classes=5",
        "model.layers.block.feedforward.hidden=24",
        *heads("model.layers.block.mixer", heads=4),
    ],
    "forecaster": [
        "model.dim=16",
        "model.depth=2",
        "model.observed=3",
        "model.predicted=2",
        "model.head.hidden=24",
        "model.head.futures=3",
        "model.layers.block.feedforward.hidden=24",
        *heads("model.layers.block.mixer", heads=4),
    ],
    "transformer-base": [
        *SMALL,
        *(f"model.{side}.depth=2" for side in ("encoder", "decoder")),
        *(f"model.{side}.layers.block.feedforward.hidden=24" for side in ("encoder", "decoder")),
        *heads("model.encoder.layers.block.mixer", heads=4),
        *heads("model.decoder.layers.block.mixer", heads=4),
        *heads("model.decoder.layers.block.cross", heads=4),
    ],
    "rnn-seq2seq": SMALL,
    "rnn-attention": SMALL,
    "writer": [
        *SMALL,
        "model.depth=2",
        "model.layers.block.feedforward.hidden=24",
        *heads("model.layers.block.mixer", heads=4),
    ],
    "reader": [
        *SMALL,
        "model.depth=2",
        "model.layers.block.feedforward.hidden=24",
        *heads("model.layers.block.mixer", heads=4),
    ],
}
SHRINK["evoformer"] = [
    *SMALL,
    "model.depth=2",
    "model.pair_dim=8",
    "model.reach=4",
    "model.feedforward.hidden=24",
    "model.pair_feedforward.hidden=12",
    "model.outer.hidden=3",
    "model.triangle.hidden=6",
    *heads("model.triangle.attention", heads=2),
    *heads("model.attention", heads=4),
    *heads("model.alignment.column", heads=2),
]
SHRINK["annotator"] = [
    *(change for change in SHRINK["evoformer"] if "triangle.attention" not in change),
    "model.local.kernel=3",
]
SHRINK["transformer-big"] = SHRINK["translator"] = SHRINK["transformer-base"]

BERT_MIXER = [change for change in SHRINK["bert"] if ".mixer." not in change]
GPT2_MIXER = [change for change in SHRINK["gpt2"] if ".mixer." not in change]

# Variants that no recipe has by default but that users reach by an override: the laws hold for them too.
VARIANTS: dict[str, tuple[str, list[str]]] = {
    "rnn-attention-luong": ("rnn-attention", [*SMALL, "model.feed=none", "model.cell.kind=lstm", "model.depth=2"]),
    "rnn-attention-input-feeding": ("rnn-attention", [*SMALL, "model.feed=attended", "model.cell.kind=torch-gru"]),
    "rnn-attention-own-vocabulary": ("rnn-attention", [*SMALL, "model.source_vocabulary=23"]),
    "llama-local": ("llama-like", [*SHRINK["llama-like"], "model.layers.block.mixer.window=3"]),
    "llama-strided": (
        "llama-like",
        [*SHRINK["llama-like"], "model.layers.block.mixer.mask.kind=strided", "model.layers.block.mixer.mask.stride=2"],
    ),
    "transformer-strided": (
        "transformer-base",
        [
            *SHRINK["transformer-base"],
            *(f"model.decoder.layers.block.{part}.mask.kind=strided" for part in ("mixer", "cross")),
            *(f"model.decoder.layers.block.{part}.mask.stride=2" for part in ("mixer", "cross")),
        ],
    ),
    "gpt2-alibi": (
        "gpt2",
        [*SHRINK["gpt2"], "model.embed.position=none", "model.layers.block.mixer.position.kind=alibi"],
    ),
    "gpt2-t5-bias": (
        "gpt2",
        [*SHRINK["gpt2"], "model.embed.position=none", "model.layers.block.mixer.position.kind=relative-bias"],
    ),
    "gpt2-capped-parallel": (
        "gpt2",
        [
            *SHRINK["gpt2"],
            "model.layers.block.residual=parallel",
            "model.layers.block.mixer.score.kind=dot",
            "model.layers.block.mixer.score.cap=5.0",
            "model.head.cap=5.0",
        ],
    ),
    "gpt2-concatenated": ("gpt2", [*SHRINK["gpt2"], "model.embed.concatenate=4", "model.head.tied=false"]),
    "bert-classes": ("bert", [*SHRINK["bert"], "model.head.kind=classes", "model.head.transform=tanh"]),
    "bert-past-classes": (
        "bert",
        [
            *SHRINK["bert"],
            "model.sight=past",
            "model.head.kind=classes",
            "model.head.bias=false",
            "model.head.pool.kind=last",
        ],
    ),
    "bert-mean-vector": ("bert", [*SHRINK["bert"], "model.head.kind=vector", "model.head.pool.kind=mean"]),
    "bert-lstm": (
        "bert",
        [*BERT_MIXER, "model.layers.block.mixer.kind=lstm", "model.layers.block.mixer.bidirectional=true"],
    ),
    "bert-conv": ("bert", [*BERT_MIXER, "model.layers.block.mixer.kind=conv"]),
    "many-to-one": (
        "bert",
        [
            *BERT_MIXER,
            "model.layers.block.mixer.kind=elman",
            "model.head.kind=classes",
            "model.head.pool.kind=last",
        ],
    ),
    "rnn-attention-alibi-window": (
        "rnn-attention",
        [*SMALL, "model.attention.position.kind=alibi", "model.attention.window=3"],
    ),
    "gpt2-cosine-bare": (
        "gpt2",
        [*GPT2_MIXER, "model.layers.block.mixer.heads.kind=bare", "model.layers.block.mixer.score.kind=cosine"],
    ),
    "transformer-shared-tokens": (
        "transformer-base",
        [
            *SHRINK["transformer-base"],
            "model.shared=tokens",
            "model.embed.position.kind=learned",
            "model.embed.position.length=32",
            "model.embed.position.offset=2",
            "model.head.scale=true",
        ],
    ),
    "evoformer-single": ("evoformer", [*SHRINK["evoformer"], "model.alignment=none"]),
    "annotator-window": ("annotator", [*SHRINK["annotator"], "model.window={kernel=3}"]),
    "evoformer-concatenated": (
        "evoformer",
        [*SHRINK["evoformer"], "model.embed.position.kind=sinusoidal", "model.embed.concatenate=4"],
    ),
    "evoformer-distances": (
        "evoformer",
        [
            *SHRINK["evoformer"],
            "model.head.kind=distances",
            "model.head.classes=5",
            "model.outer.kind=product-difference",
        ],
    ),
    "vit-weighted-pool": (
        "vit",
        [*SHRINK["vit"], "model.position.length=6", "model.head.pool.kind=weighted"],
    ),
    "hybrid": (
        "llama-like",
        [
            *SHRINK["llama-like"],
            "model.layers.memory.mixer.kind=gru",
            "model.layers.memory.norm.kind=rms",
            'model.pattern=["memory", "block"]',
        ],
    ),
}


@dataclass(frozen=True)
class Case:
    """A recipe with the overrides that make it small."""

    name: str
    recipe: str
    overrides: tuple[str, ...]

    @cached_property
    def config(self):
        return load_recipe(self.recipe, *self.overrides).model

    @cached_property
    def kind(self) -> str:
        return type(self.config).__name__.removesuffix("Config")

    def shallow(self) -> "Case":
        """Return the same with one layer instead of two, where both are alike: each costs time to compile."""
        if len(getattr(self.config, "layers", ())) > 1:
            return self
        return replace(self, overrides=tuple(change.replace("depth=2", "depth=1") for change in self.overrides))

    def build(self, dtype: torch.dtype = torch.float64) -> nn.Module:
        """Build in evaluation mode, with weights so large that every part matters."""
        return deepcopy(_build(self, dtype))


@cache
def _build(case: Case, dtype: torch.dtype) -> nn.Module:
    """Build a model once: a copy takes a third of the time."""
    model = regard.build(case.config, dtype=dtype, seed=0)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=generator, dtype=dtype)
    return model.eval()


@cache
def cases() -> tuple[Case, ...]:
    shipped = [Case(name, name, tuple(SHRINK[name])) for name in recipe_names()]
    return (*shipped, *(Case(name, recipe, tuple(change)) for name, (recipe, change) in VARIANTS.items()))


DECODABLE = ("Language", "Seq2Seq", "RecurrentSeq2Seq")


def decodable() -> list[Case]:
    return [case for case in cases() if case.kind in DECODABLE]


def one_of_each() -> list[Case]:
    """Return a decoder with a cache, one with a state, and both kinds of encoder-decoders, for laws of the search.

    A search sees scores only, and moves rows of states, which other laws check for every recipe.
    """
    return [case for case in cases() if case.name in ("gpt2", "lstm", "transformer-base", "rnn-attention")]


def name_of(case: Case) -> str:
    return case.name


@dataclass
class Batch:
    """Rows of different lengths; `source` only for encoder-decoders, `images` for vision, alignments for proteins.

    For trajectories `tracks` are the positions of three agents at three steps, and `present` says which are known.
    """

    tokens: Tensor | None = None
    lengths: Tensor | None = None
    source: Tensor | None = None
    source_lengths: Tensor | None = None
    images: Tensor | None = None
    tracks: Tensor | None = None
    present: Tensor | None = None
    alignment: Tensor | None = None
    depths: Tensor | None = None
    profile: Tensor | None = None

    def rows(self, index: slice) -> "Batch":
        return Batch(*(None if value is None else value[index] for value in vars(self).values()))

    def __len__(self) -> int:
        return len(next(value for value in vars(self).values() if value is not None))


def batch(case: Case, rows: int = 3, length: int = 9, seed: int = 0, dtype: torch.dtype = torch.float64) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    if case.kind == "Vision":
        return Batch(images=torch.randn(rows, 3, 8, 12, generator=generator, dtype=dtype))
    if case.kind == "Trajectory":
        present = torch.ones(rows, 9, dtype=torch.bool)
        present[1:2, :2] = present[1:2, 6:] = present[2:3, 3:] = False  # an agent that appears late, and fewer agents
        return Batch(tracks=torch.randn(rows, 9, 2, generator=generator, dtype=dtype), present=present)
    tokens = torch.randint(VOCABULARY, (rows, length), generator=generator)
    lengths = torch.tensor([length - 2 * row for row in range(rows)])
    if case.kind == "Evoformer" and case.config.alignment is not None:
        alignment = torch.randint(VOCABULARY, (rows, 4, length), generator=generator)
        profile = torch.rand(rows, length, VOCABULARY, generator=generator, dtype=dtype).softmax(-1)
        depths = torch.tensor([4, 2, 0])[:rows]
        return Batch(tokens, lengths, alignment=alignment, depths=depths, profile=profile)
    if case.kind not in ("Seq2Seq", "RecurrentSeq2Seq"):
        return Batch(tokens, lengths)
    source = torch.randint(VOCABULARY, (rows, length - 1), generator=generator)
    return Batch(tokens, lengths, source, lengths - 1)


def call(model: nn.Module, data: Batch) -> Tensor:
    """Run the full pass: logits of every row, padding included."""
    if data.images is not None:
        return model(data.images)
    if data.tracks is not None:
        paths, logits = model(data.tracks, data.present)
        return torch.cat((paths.flatten(2), logits), 2)
    if data.source is not None:
        return model(data.source, data.tokens, source_lengths=data.source_lengths)
    if hasattr(model, "step"):
        return model(data.tokens)
    if data.alignment is not None:
        rows = {"alignment": data.alignment, "depths": data.depths, "profile": data.profile}
        return model(data.tokens, lengths=data.lengths, **rows)
    return model(data.tokens, lengths=data.lengths)


def start(model: nn.Module, data: Batch, capacity: int | None = None):
    if data.source is not None:
        return model.start(data.source, data.source_lengths, capacity=capacity)
    return model.start(len(data.tokens), capacity=capacity)
