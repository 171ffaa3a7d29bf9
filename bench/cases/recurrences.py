"""Linear recurrences: their operators against plain loops and peers, and decoding after ever longer texts."""

from collections.abc import Callable, Iterator
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from bench.case import Case, Prepared, Setting
from bench.cases.decoding import prepared, random_rows
from regard.decode.engine import Given, eager, in_use
from regard.decode.static import StaticSteps, captured
from regard.models.model import StepModel
from regard.parts.cache import CacheView
from regard.parts.linear_recurrence import average_by_rounds, state_recurrence, weighted_average
from regard.parts.rwkv import EMPTY_SUM
from regard.parts.state import State

SIZES = {"cpu": (4, 256, 4, 32), "cuda": (32, 1024, 12, 64)}  # B, T, H, E
LENGTHS = (1024, 8192, 65536)
WIDTHS = {"cpu": (256, 6, 4), "cuda": (768, 12, 12)}  # dim, depth, heads
PIECE = 2048  # tokens that are read together
STEPS = 16  # of a run
Operator = Callable[..., Tensor]


def operator(compute: Operator, make: Callable[[str], list[Tensor]], setting: Setting) -> Prepared:
    """Return a contestant that runs forward and backward; its facts are sums of the output and of each gradient."""
    given = [x.requires_grad_() for x in make(setting.device)]

    def run() -> Tensor:
        for x in given:
            x.grad = None
        out = compute(*given)
        out.sin().sum().backward()
        return out.detach()

    facts = {"output": float(run().double().abs().sum())}
    for number, x in enumerate(given):
        assert x.grad is not None
        facts[f"gradient {number}"] = float(x.grad.double().abs().sum())
    return Prepared(run, 1.0, facts)


# --- RWKV-4 ----------------------------------------------------------------------------------------------------------


def average_inputs(device: str) -> list[Tensor]:
    """Return k, v, decay and bonus."""
    B, T, H, E = SIZES[device]
    torch.manual_seed(0)
    shapes = ((B, T, H * E), (B, T, H * E), (H * E,), (H * E,))
    k, v, decay, bonus = (torch.randn(shape) for shape in shapes)
    return [x.to(device) for x in (k, v, (decay - 1).exp(), bonus)]


def average(way: Operator, k: Tensor, v: Tensor, decay: Tensor, bonus: Tensor) -> Tensor:
    """Return the average, computed in some way, of texts that begin here."""
    zeros = k.new_zeros(k.shape[0], k.shape[2])
    return way(k, v, decay, bonus, (zeros + EMPTY_SUM, zeros, zeros))[0]


def average_in_a_loop(k: Tensor, v: Tensor, decay: Tensor, bonus: Tensor) -> Tensor:
    """Return the average token by token."""
    m, total, weight = k.new_full((), EMPTY_SUM), k.new_zeros(()), k.new_zeros(())
    outs = []
    for key, value in zip(k.unbind(1), v.unbind(1), strict=True):
        top = torch.maximum(m, bonus + key)
        past, own = (m - top).exp(), (bonus + key - top).exp()
        outs.append((past * total + own * value) / (past * weight + own))
        top = torch.maximum(m - decay, key)
        past, own = (m - decay - top).exp(), (key - top).exp()
        m, total, weight = top, past * total + own * value, past * weight + own
    return torch.stack(outs, 1)


# --- a matrix for each head ------------------------------------------------------------------------------------------


def delta_inputs(device: str) -> list[Tensor]:
    """Return q, k, v, the share that is replaced, and the logarithm of the decay of each head."""
    B, T, H, E = SIZES[device]
    torch.manual_seed(0)
    q, k, v = (torch.randn(B, T, H, E) for _ in range(3))
    share, decay = torch.rand(B, T, H), -torch.rand(B, T, H)
    return [x.to(device) for x in (F.normalize(q, dim=-1), F.normalize(k, dim=-1), v, share, decay)]


def our_delta(q: Tensor, k: Tensor, v: Tensor, share: Tensor, decay: Tensor) -> Tensor:
    log_w, share = decay[..., None], share[..., None]
    start = q.new_zeros(q.shape[0], q.shape[2], v.shape[3], k.shape[3])
    removal = (-log_w.exp() * share * k, None)
    return state_recurrence(q * q.shape[-1] ** -0.5, log_w, k, share * v, removal, start)[0]


def delta_in_a_loop(q: Tensor, k: Tensor, v: Tensor, share: Tensor, decay: Tensor) -> Tensor:
    """Return what the gated delta rule reads, token by token."""
    state = q.new_zeros(q.shape[0], q.shape[2], v.shape[3], k.shape[3])
    outs = []
    for t in range(q.shape[1]):
        state = state * decay[:, t, :, None, None].exp()
        stored = (state @ k[:, t, :, :, None]).squeeze(-1)
        state = state + (share[:, t, :, None] * (v[:, t] - stored))[..., None] * k[:, t, :, None]
        outs.append((state @ q[:, t, :, :, None]).squeeze(-1))
    return torch.stack(outs, 1) * q.shape[-1] ** -0.5


def their_delta(setting: Setting) -> Prepared:
    from transformers.models.qwen3_next.modeling_qwen3_next import torch_chunk_gated_delta_rule

    def compute(q: Tensor, k: Tensor, v: Tensor, share: Tensor, decay: Tensor) -> Tensor:
        return torch_chunk_gated_delta_rule(q, k, v, g=decay, beta=share)[0]

    return operator(compute, delta_inputs, setting)


def operator_cases() -> Iterator[Case]:
    for device, (B, T, H, E) in SIZES.items():
        facts = {"output": 1e-3, **{f"gradient {number}": 5e-3 for number in range(5)}}
        loop = partial(operator, average_in_a_loop, average_inputs)
        rounds = partial(operator, partial(average, average_by_rounds), average_inputs)
        ours = partial(operator, partial(average, weighted_average), average_inputs)
        yield Case(
            "recurrence: RWKV-4",
            f"The average of RWKV-4, {B} rows of {T} tokens, width {H * E}, float32, forward and backward",
            "call",
            {"regard": ours, "loop over time": loop} | ({"without Triton": rounds} if device == "cuda" else {}),
            (device,),
            facts,
            {"loop over time": 1.0} | ({"without Triton": 1.0} if device == "cuda" else {}),
            seconds=8.0,
        )
        yield Case(
            "recurrence: gated delta rule",
            f"The gated delta rule, {B} rows of {T} tokens, {H} heads of {E}, float32, forward and backward",
            "call",
            {
                "regard": partial(operator, our_delta, delta_inputs),
                "Hugging Face": their_delta,
                "loop over time": partial(operator, delta_in_a_loop, delta_inputs),
            },
            (device,),
            facts,
            {"loop over time": 1.0, "Hugging Face": 1.0},
            seconds=8.0,
        )


# --- decoding --------------------------------------------------------------------------------------------------------


def recipe_of(name: str, device: str) -> tuple[str, ...]:
    """Return a recipe in the size of the device."""
    dim, depth, heads = WIDTHS[device]
    sizes = ("model.vocabulary=32000", f"model.dim={dim}", f"model.depth={depth}")
    if name == "writer":
        layers, heads_key = ("block",), "mixer.heads.heads"
    else:
        layers, heads_key = ("first", "block") if name == "rwkv7" else ("block",), "mixer.heads"
    settings = [f"model.layers.{layer}.feedforward.hidden={4 * dim}" for layer in layers]
    if name != "rwkv4":
        settings += [f"model.layers.{layer}.{heads_key}={heads}" for layer in layers]
    if name == "rwkv7":
        settings.append(f'model.pattern=["first", "{depth - 1}*block"]')
    return name, *sizes, *settings


def read_more(model: StepModel, state: State, piece: Tensor) -> State:
    """Read tokens after others; return the state.

    A cache gets copies of the keys and values that it has. Attention would read a text in a time that is quadratic in
    its length, and what is in the cache does not change the time of a step.
    """
    if not state.tables:
        return model.step(piece, state)[1]
    for layer in state.advance(piece).layers or ():
        for view in layer.values():
            assert isinstance(view, CacheView)
            view.extend(tuple(kept[:, :, : piece.shape[1]].clone() for kept in view.cache.tensors()))
    return state


def after_a_text(name: str, length: int, setting: Setting) -> Prepared:
    """Read a text of some length, then write one token after the other."""
    device = setting.device
    model = prepared(recipe_of(name, device), device, "bfloat16" if device == "cuda" else "float32")
    engine = (captured if device == "cuda" else eager)(model)
    text = random_rows(1, length, device)
    first, *rest = text.split(PIECE, 1)
    with in_use(model):
        steps = engine(Given(first), length + STEPS)
        steps.begin()
        for piece in rest:
            steps.state = read_more(model, steps.state, piece)
        steps.step(text[:, -1])
    static = steps.shape.state if isinstance(steps, StaticSteps) and steps.shape is not None else None
    places = (
        [] if static is None else [static.length, *(x for table in static.tables.values() for x in table.tensors())]
    )
    here = [tensor.clone() for tensor in places]

    def run() -> None:
        with in_use(model):
            for tensor, before in zip(places, here, strict=True):  # a cache of static shape has no room for all runs
                tensor.copy_(before)
            for _ in range(STEPS):
                steps.step(text[:, -1])

    return Prepared(run, STEPS, {"state_bytes": float((static or steps.state).nbytes()), "tokens": float(length)})


NAMES = {"regard, RWKV-4": "rwkv4", "regard, RWKV-7": "rwkv7", "Transformer": "writer"}


def decoding_cases() -> Iterator[Case]:
    for device, (dim, depth, _) in WIDTHS.items():
        precision = "bfloat16" if device == "cuda" else "float32"
        for length in LENGTHS:
            yield Case(
                f"decode after {length // 1024}k tokens",
                f"One row, one token at a time, after {length:,} tokens; {depth} layers of {dim}, {precision}; the "
                "Transformer is the recipe writer",
                "token",
                {shown: partial(after_a_text, name, length) for shown, name in NAMES.items()},
                (device,),
                seconds=4.0,
            )


CASES = [*operator_cases(), *decoding_cases()]
