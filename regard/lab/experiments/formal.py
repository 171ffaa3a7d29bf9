"""The 15 algorithms of "Formal Algorithms for Transformers" (Phuong, Hutter 2022) beside the fast implementation.

`regard/formal.py` is the pseudocode in NumPy, one vector at a time. Here each algorithm and the package's own code
compute the same thing from the same weights, in double precision, and their numbers are compared.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from regard import draw, formal
from regard.decode.choose import Sampling
from regard.decode.engine import Given, eager, in_use
from regard.decode.sample import sample_all
from regard.lab.experiment import Experiment, Lab, Picture, Row, Verdict
from regard.lab.formal_weights import as_array, decoder_theta, encoder_theta, norm_weights, seq2seq_theta
from regard.lab.formal_weights import multi_head_weights as heads_of
from regard.models.model import Model
from regard.parts.attention import AttentionConfig
from regard.parts.heads import MultiHeadsConfig
from regard.parts.mask import Causal
from regard.parts.watch import watch

RATE, P_MASK, BEGIN, END, MASK = 0.05, 0.5, 0, 1, 2  # of the training algorithms; special tokens
LENGTH = 12  # of the table of positions
EXACT, NUMERICAL = 1e-9, 1e-6  # central differences, in the training algorithms, are not exact

Arrays = Sequence[Any]  # whose numbers are compared


@dataclass(frozen=True)
class _Settings:
    width: int = 6
    heads: int = 2
    depth: int = 2
    hidden: int = 8
    vocabulary: int = 11


def _measure(lab: Lab, settings: _Settings) -> Iterator[Row]:
    generator = np.random.default_rng(lab.seed)
    x, z = (generator.integers(3, settings.vocabulary, length).tolist() for length in (6, 5))
    gpt, bert, seq2seq = (_randomised(model) for model in _models(lab, settings))
    algorithms: Sequence[tuple[str, str, Callable[[], tuple[Arrays, Arrays]]]] = (
        ("token embedding", "parts/embed.py", lambda: _token_embedding(gpt, x)),
        ("positional embedding", "parts/absolute_position.py", lambda: _positional_embedding(gpt, x)),
        ("basic single-query attention", "parts/attention.py", lambda: _attention(settings, x, z, 3)),
        ("attention", "parts/attention.py", lambda: _attention(settings, x, z, 4)),
        ("multi-head attention", "parts/heads.py", lambda: _attention(settings, x, z, 5)),
        ("layer norm", "parts/norm.py", lambda: _layer_norm(gpt, settings)),
        ("unembedding", "models/head.py", lambda: _unembedding(gpt, settings)),
        ("EDTransformer", "models/seq2seq.py", lambda: _seq2seq(seq2seq, z, x)),
        ("ETransformer (BERT)", "models/encoder.py", lambda: _encoder(bert, x)),
        ("DTransformer (GPT)", "models/language.py", lambda: _decoder(gpt, x)),
        ("EDTraining, one step", "autograd", lambda: _train_seq2seq(seq2seq, z, x)),
        ("ETraining, one step", "autograd", lambda: _train_encoder(bert, x, lab.seed)),
        ("DTraining, one step", "autograd", lambda: _train_decoder(gpt, x)),
        ("DInference (prompting)", "decode/sample.py", lambda: _prompt(gpt, x)),
        ("EDInference (seq2seq)", "decode/sample.py", lambda: _translate(seq2seq, z)),
    )
    for number, (name, code, compare) in enumerate(algorithms, 1):
        lab.progress(f"algorithm {number}: {name}", (number - 1) / 15)
        wanted, found = (np.concatenate([np.ravel(part) for part in parts]) for parts in compare())
        yield {
            "algorithm": number,
            "name": name,
            "fast code": code,
            "formal": _first(wanted),
            "fast": _first(found),
            "numbers": len(wanted),
            "largest difference": _difference(wanted, found),
        }


def _difference(wanted: Any, found: Any) -> float:
    """Return the largest difference; texts of different lengths differ infinitely."""
    return float(np.abs(wanted - found).max(initial=0.0)) if len(wanted) == len(found) else float("inf")


def _first(values: Any) -> str:
    """Return the first few numbers that are not zero."""
    some = values[values != 0] if values.any() else values
    return " ".join(f"{value:.4g}" for value in some[:2]) + (" ..." if len(values) > 2 else "")


# --- models ----------------------------------------------------------------------------------------------------------


def _models(lab: Lab, settings: _Settings) -> tuple[Model, Model, Model]:
    """Build GPT, BERT and the Transformer as the paper has them: without epsilon in norms, nothing tied or scaled."""

    def stack(path: str, *mixers: str) -> list[str]:
        heads = [f"{mixer}.heads.{key}" for mixer in mixers for key in (f"heads={settings.heads}", "bias=all")]
        block = ["norm.eps=0", f"feedforward.hidden={settings.hidden}", *heads]
        return [f"{path}.depth={settings.depth}", *(f"{path}.layers.block.{change}" for change in block)]

    sizes = [f"model.vocabulary={settings.vocabulary}", f"model.dim={settings.width}", "model.head.tied=false"]
    sizes += ["model.embed.position.kind=learned", f"model.embed.position.length={LENGTH}"]
    exact_gelu = "model.layers.block.feedforward.activation=gelu"
    gpt = lab.build("gpt2", *sizes, *stack("model", "mixer"), "model.norm.eps=0", exact_gelu)
    plain = ("model.embed.norm=none", "model.embed.segments=none", "model.head.bias=false", "model.head.norm.eps=0")
    bert = lab.build("bert", *sizes, *stack("model", "mixer"), *plain)
    both = [*stack("model.encoder", "mixer"), *stack("model.decoder", "mixer", "cross")]
    return gpt, bert, lab.build("transformer-base", *sizes, *both, "model.embed.scale=false")


def _randomised(model: Model) -> Model:
    """Return the model on the CPU in double precision, with noise in all weights, so that no bias is zero."""
    model = model.cpu().double().eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight), alpha=0.5)
    return model


# --- the algorithms: what the formal one computes, and what the fast code does ---------------------------------------


def _token_embedding(model: Any, x: list[int]) -> tuple[Arrays, Arrays]:
    table = decoder_theta(model).W_e
    return [formal.token_embedding(v, table) for v in x], [as_array(model.embed.tokens(torch.tensor([x])))]


def _positional_embedding(model: Any, x: list[int]) -> tuple[Arrays, Arrays]:
    table, positions = decoder_theta(model).W_p, torch.arange(len(x))[None]
    fast = model.embed.position.vectors(positions)
    return [formal.positional_embedding(t, table) for t in range(len(x))], [as_array(fast)]


def _attention(settings: _Settings, x: list[int], z: list[int], number: int) -> tuple[Arrays, Arrays]:
    """Compare one query over a context (3), all queries of a head under a causal mask (4), and all heads (5)."""
    attention = AttentionConfig(MultiHeadsConfig(settings.heads, bias="all")).build(settings.width).double()
    X, Z = (torch.randn(1, len(tokens), settings.width, dtype=torch.float64) for tokens in (x, z))
    columns, context = as_array(X[0]).T, as_array(Z[0]).T
    weights = heads_of(attention)
    past = formal.unidirectional_mask(len(x))
    with watch(attention) as tape, torch.no_grad():
        if number == 3:
            attention(X[:, :1], memory=Z)
            wanted = formal.single_query_attention(columns[:, 0], context, weights.heads[0])
            return [wanted], [as_array(tape[""][0].mixed[0, 0])]
        merged = attention(X, mask=Causal())
        if number == 4:
            wanted = formal.attention(columns, columns, weights.heads[0], past)
            return [wanted.T], [as_array(tape[""][0].mixed[0, 0])]
    return [formal.mh_attention(columns, columns, weights, past).T], [as_array(merged)]


def _layer_norm(model: Any, settings: _Settings) -> tuple[Arrays, Arrays]:
    e = torch.randn(settings.width, dtype=torch.float64)
    return [formal.layer_norm(e.numpy(), norm_weights(model.stack.norm))], [as_array(model.stack.norm(e))]


def _unembedding(model: Any, settings: _Settings) -> tuple[Arrays, Arrays]:
    e = torch.randn(settings.width, dtype=torch.float64)
    fast = model.head.unembed(e).softmax(-1)
    return [formal.unembedding(e.numpy(), as_array(model.head.unembed.weight))], [as_array(fast)]


def _seq2seq(model: Any, z: list[int], x: list[int]) -> tuple[Arrays, Arrays]:
    fast = model(torch.tensor([z]), torch.tensor([x]))[0].softmax(-1)
    return [formal.ed_transformer(z, x, seq2seq_theta(model)).T], [as_array(fast)]


def _encoder(model: Any, x: list[int]) -> tuple[Arrays, Arrays]:
    return [formal.e_transformer(x, encoder_theta(model)).T], [as_array(model(torch.tensor([x]))[0].softmax(-1))]


def _decoder(model: Any, x: list[int]) -> tuple[Arrays, Arrays]:
    return [formal.d_transformer(x, decoder_theta(model)).T], [as_array(model(torch.tensor([x]))[0].softmax(-1))]


def _train_seq2seq(model: Any, z: list[int], x: list[int]) -> tuple[Arrays, Arrays]:
    before = seq2seq_theta(model)
    wanted = formal.ed_training([z], [x], before, RATE, epochs=1)
    logits = model(torch.tensor([z]), torch.tensor([x[:-1]]))[0]
    with _descend(model, F.cross_entropy(logits, torch.tensor(x[1:]), reduction="sum")):
        return _steps(before, wanted, seq2seq_theta(model))


def _train_encoder(model: Any, x: list[int], seed: int) -> tuple[Arrays, Arrays]:
    before, chances = encoder_theta(model), np.random.default_rng(seed)
    masked = [MASK if chances.random() < P_MASK else v for v in x]
    wanted = formal.e_training([x], before, RATE, 1, P_MASK, MASK, np.random.default_rng(seed))
    places = [t for t, v in enumerate(masked) if v == MASK]
    logits = model(torch.tensor([masked]))[0, places]
    with _descend(model, F.cross_entropy(logits, torch.tensor(x)[places], reduction="sum")):
        return _steps(before, wanted, encoder_theta(model))


def _train_decoder(model: Any, x: list[int]) -> tuple[Arrays, Arrays]:
    before = decoder_theta(model)
    wanted = formal.d_training([x], before, RATE, epochs=1)
    logits = model(torch.tensor([x[:-1]]))[0]
    with _descend(model, F.cross_entropy(logits, torch.tensor(x[1:]), reduction="sum")):
        return _steps(before, wanted, decoder_theta(model))


@contextmanager
def _descend(model: Model, loss: torch.Tensor) -> Iterator[None]:
    """Take one step of gradient descent; the weights are as before at the end of the `with`."""
    weights = list(model.parameters())
    gradients = torch.autograd.grad(loss, weights, allow_unused=True)
    before = [weight.detach().clone() for weight in weights]
    with torch.no_grad():
        for weight, gradient in zip(weights, gradients, strict=True):
            weight.sub_(0 if gradient is None else RATE * gradient)
        yield
        for weight, old in zip(weights, before, strict=True):
            weight.copy_(old)


def _steps(before: Any, wanted: Any, found: Any) -> tuple[Arrays, Arrays]:
    """Return by how much a step changed each parameter."""
    old, new, fast = (list(_arrays(theta)) for theta in (before, wanted, found))
    return [b - a for a, b in zip(old, new, strict=True)], [b - a for a, b in zip(old, fast, strict=True)]


def _arrays(theta: Any) -> Iterator[Any]:
    """Yield the arrays of parameters that are nested in dataclasses and tuples."""
    if isinstance(theta, np.ndarray):
        yield theta
    parts = [getattr(theta, field.name) for field in fields(theta)] if is_dataclass(theta) else theta
    for part in parts if isinstance(parts, list | tuple) else ():
        yield from _arrays(part)


def _prompt(model: Any, x: list[int]) -> tuple[Arrays, Arrays]:
    wanted = formal.d_inference(x, decoder_theta(model), LENGTH - len(x), 0.0, np.random.default_rng(0))
    return [wanted], [_write(model, Given(torch.tensor([x])), LENGTH - len(x), ())]


def _translate(model: Any, z: list[int]) -> tuple[Arrays, Arrays]:
    wanted = formal.ed_inference(z, seq2seq_theta(model), BEGIN, END, LENGTH, 0.0, np.random.default_rng(0))
    written = [token for token in wanted[1:] if token != END]
    return [written], [_write(model, Given(torch.tensor([[BEGIN]]), source=torch.tensor([z])), LENGTH - 1, (END,))]


def _write(model: Any, given: Given, limit: int, end: Sequence[int]) -> list[int]:
    """Write the most probable tokens with the package's own decoder, cache and all."""
    with in_use(model):
        return sample_all(eager(model), given, end=end, limits=[limit], sampling=Sampling(temperature=0.0), seeds=[0])[
            0
        ]


# --- what is shown ---------------------------------------------------------------------------------------------------


def _table(rows: Sequence[Row]) -> list[Row]:
    """Return the numbers of the first seed, with the largest difference of all seeds."""
    largest: dict[int, float] = {}
    for row in rows:
        largest[row["algorithm"]] = max(largest.get(row["algorithm"], 0.0), row["largest difference"])
    return [
        {
            "algorithm": f"{row['algorithm']}. {row['name']}",
            "formal": row["formal"],
            "fast": row["fast"],
            "difference": f"{largest[row['algorithm']]:.1g}",
            "fast code": row["fast code"],
        }
        for row in rows
        if row["seed"] == rows[0]["seed"]
    ]


def _draw(rows: Sequence[Row]) -> Iterable[Picture]:
    least = 1e-17  # a difference of zero has no place on a logarithmic axis
    shown = [
        {"algorithm": str(row["algorithm"]), "largest difference": max(row["largest difference"], least)}
        for row in rows
    ]
    yield Picture(
        "difference",
        "The largest difference of any number, by algorithm; equal numbers are shown at 1e-17. The training algorithms "
        "(11 to 13) take their gradient by central differences, which are not exact.",
        draw.bars(shown, x="algorithm", y="largest difference", log="y", title="Formal and fast, number by number"),
    )


def _judge(rows: Sequence[Row]) -> Verdict:
    trained = [row["largest difference"] for row in rows if row["algorithm"] in (11, 12, 13)]
    others = [row["largest difference"] for row in rows if row["algorithm"] not in (11, 12, 13)]
    compared = sum(row["numbers"] for row in rows)
    return Verdict(
        max(others) < EXACT and max(trained) < NUMERICAL,
        f"{compared:,} numbers of 15 algorithms differ by at most {max(others):.2g}, those of a training step by at "
        f"most {max(trained):.2g}, which is the error of central differences.",
    )


EXPERIMENT = Experiment(
    name="formal",
    title="The 15 formal algorithms beside the fast implementation",
    claim="Transformers can be written down completely as 15 short algorithms; a fast implementation computes the same "
    "numbers.",
    source="Phuong, Hutter 2022, Formal Algorithms for Transformers, arXiv:2207.09238.",
    method="""`regard/formal.py` has the paper's algorithms in NumPy, one function for each, written to be read. GPT-2,
BERT and the Transformer of 2017 are built in a small size from their recipes, with random weights in double precision.
Each algorithm gets the same weights and tokens as the package's own code: batched tensors, fused attention, autograd,
and decoding with a cache.

Training algorithms are compared by one step of gradient descent on every parameter, decoding by the tokens written.""",
    vary="""Other sizes, and more seeds:

    regard lab formal width=16 depth=3 --seeds 5 --out lab/formal-larger

Read the algorithms: `python -c "from regard import formal; help(formal)"`.""",
    scales={
        "tiny": _Settings(width=4, depth=1, hidden=5, vocabulary=7),
        "default": _Settings(),
        "full": _Settings(width=12, heads=3, depth=3, hidden=24, vocabulary=20),
    },
    measure=_measure,
    draw=_draw,
    judge=_judge,
    table=_table,
)
