"""With a cache, step by step, is the same as all at once."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.errors import InputError
from regard.parts.attention import AttentionConfig
from regard.parts.heads import LatentHeadsConfig, MultiHeadsConfig
from regard.parts.mask import Causal, Padding
from regard.parts.position import AlibiConfig, RelativeBiasConfig, RopeConfig
from regard.parts.score import AdditiveConfig, CosineConfig, DotConfig
from regard.parts.state import Cache, Hidden, Memory, State

DIM = 8


def random(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed + sum(shape)))


def close(found, expected):
    torch.testing.assert_close(found, expected, atol=1e-10, rtol=0)


def make(heads, position=None, window=None, **options):
    attention = AttentionConfig(heads, position=position, window=window, **options).build(DIM).double()
    generator = torch.Generator().manual_seed(7)
    for parameter in attention.parameters():
        parameter.data.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) / 2)
    return attention.eval().requires_grad_(False)


HEADS = [MultiHeadsConfig(4, 2), LatentHeadsConfig(2, 3, 2, 2, 3)]
POSITIONS = [None, RopeConfig(), AlibiConfig(), RelativeBiasConfig(8, 6)]


def run(attention, x, chunks, cache):
    """Feed `x` in chunks of these sizes."""
    out, start = [], 0
    for size in chunks:
        positions = torch.arange(start, start + size).expand(len(x), -1)
        out.append(attention(x[:, start : start + size], mask=Causal(), positions=positions, state=cache))
        start += size
    assert start == x.shape[1]
    return torch.cat(out, 1)


def run_ragged(attention, rows, chunks, cache):
    """Feed rows of different lengths: `chunks` says for each call how many tokens each row has, the rest is padding."""
    state = State([{"mixer": cache}], torch.zeros(len(rows), dtype=torch.long))
    out = [[] for _ in rows]
    for lengths in chunks:
        x = torch.full((len(rows), max(lengths), DIM), 1e3, dtype=torch.float64)  # padding would be heard
        for b, length in enumerate(lengths):
            begin = int(state.length[b])
            x[b, :length] = rows[b][begin : begin + length]
        positions = state.advance(torch.zeros(x.shape[:2], dtype=torch.long), torch.tensor(lengths))
        found = attention(x, mask=Causal() & Padding(), positions=positions, state=cache)
        for b, length in enumerate(lengths):
            out[b].append(found[b, :length])
    return [torch.cat(parts) for parts in out]


# --- the same as without ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("window", [None, 1, 3])
@pytest.mark.parametrize("capacity", [None, 7, 9])
def test_step_by_step_is_all_at_once(heads, position, window, capacity):
    attention, x = make(heads, position, window), random(2, 7, DIM)
    found = run(attention, x, [1] * 7, attention.start(2, capacity))
    close(found, attention(x, mask=Causal()))


@pytest.mark.parametrize("score", [DotConfig(cap=1.0), CosineConfig(), AdditiveConfig(3)])
def test_any_score_has_a_cache(score):
    attention, x = make(MultiHeadsConfig(4, 2), RopeConfig(), score=score), random(2, 5, DIM)
    close(run(attention, x, [3, 1, 1], attention.start(2, None)), attention(x, mask=Causal()))


sizes = st.lists(st.integers(1, 5), min_size=1, max_size=5)
kinds = st.tuples(st.sampled_from(HEADS), st.sampled_from(POSITIONS), st.sampled_from([None, 1, 2, 4, 30]))


@settings(max_examples=60)
@given(kinds, sizes, st.sampled_from([None, 0, 3]))
def test_chunks_are_all_at_once(kind, chunks, spare):
    attention, total = make(*kind), sum(chunks)
    x = random(2, total, DIM)
    cache = attention.start(2, None if spare is None else total + spare)
    close(run(attention, x, chunks, cache), attention(x, mask=Causal()))


@settings(max_examples=60)
@given(kinds, st.lists(st.tuples(*[st.integers(0, 4)] * 3).filter(any), min_size=1, max_size=5), st.booleans())
def test_ragged_rows_are_each_alone(kind, chunks, static):
    """Row by row, tokens come at a different pace; a row may even wait."""
    attention, totals = make(*kind), [sum(row) for row in zip(*chunks, strict=True)]
    rows = [random(total, DIM, seed=b) for b, total in enumerate(totals)]
    cache = attention.start(3, max(totals) if static else None)
    for row, found in zip(rows, run_ragged(attention, rows, chunks, cache), strict=True):
        if len(row):
            close(found, attention(row[None], mask=Causal())[0])


def test_prompts_of_different_lengths_then_steps():
    """What generation does; the rows that wait at the end of the longest prompt go on from where they were."""
    attention = make(MultiHeadsConfig(4, 2), RopeConfig())
    rows = [random(7, DIM), random(4, DIM, seed=1)]
    chunks = [(5, 2), (1, 1), (1, 1)]
    for row, found in zip(rows, run_ragged(attention, rows, chunks, attention.start(2, 7)), strict=True):
        close(found, attention(row[None], mask=Causal())[0])


def test_what_padding_left_behind_is_never_seen():
    """The spare slot of a growing cache becomes a real one when it grows."""
    attention = make(MultiHeadsConfig(2))
    rows = [random(9, DIM), random(6, DIM, seed=1)]
    chunks = [(2, 0), (1, 1), (3, 1), (3, 4)]
    for row, found in zip(rows, run_ragged(attention, rows, chunks, attention.start(2, None)), strict=True):
        close(found, attention(row[None], mask=Causal())[0])


# --- the slots -------------------------------------------------------------------------------------------------------


def put(cache, *positions):
    """Write tokens whose key is their position + 100 in one row; return the positions seen, and the keys."""
    places = torch.tensor([positions])
    (keys,), seen = cache.update((places[:, None, :, None].double() + 100,), places)
    return seen[0].tolist(), keys[0, 0, :, 0].tolist()


def test_a_static_cache_has_all_slots_from_the_start():
    cache = Cache(capacity=4)
    assert put(cache, 0, 1) == ([0, 1, -1, -1], [100, 101, 0, 0])
    assert put(cache, 2) == ([0, 1, 2, -1], [100, 101, 102, 0])
    assert cache.places.size == 4


def test_a_growing_cache_shows_only_what_was_written():
    cache = Cache()
    assert put(cache, 0) == ([0], [100])
    assert put(cache, 1, 2) == ([0, 1, 2], [100, 101, 102])
    assert put(cache, 3) == ([0, 1, 2, 3], [100, 101, 102, 103])
    assert cache.places.size == 6  # doubled, from 3
    assert put(cache, 4) == ([0, 1, 2, 3, 4], [100, 101, 102, 103, 104])
    assert cache.places.size == 6


def test_a_ring_forgets_what_is_out_of_sight():
    cache = Cache(window=3)
    assert put(cache, 0)[0] == [0, -1, -1]
    for position in range(1, 5):
        seen, keys = put(cache, position)
    assert seen == [3, 4, 2]
    assert keys == [103, 104, 102]
    seen, keys = put(cache, 5, 6, 7, 8)  # the first of a chunk still sees what the last makes the ring forget
    assert seen == [3, 4, 2, 5, 6, 7, 8]
    assert keys == [103, 104, 102, 105, 106, 107, 108]
    assert put(cache, 9)[0] == [9, 7, 8]
    assert cache.places.size == 3


def test_a_chunk_writes_no_slot_twice(monkeypatch):
    """Which of two writes wins is not defined on an accelerator."""
    written, write = [], Cache._write
    monkeypatch.setattr(Cache, "_write", lambda self, *a: (written.append(a[-1][0].tolist()), write(self, *a))[1])
    cache = Cache(window=3)
    put(cache, 0, 1, 2, 3, 4, 5, -1)
    put(cache, 6, 7, 8, 9)
    assert written == [[3, 3, 3, 0, 1, 2, 3], [3, 1, 2, 0]]  # slot 3 is the spare one


def test_an_attention_with_a_window_starts_a_ring():
    assert make(MultiHeadsConfig(2), window=3).start(2, None).places.size == 3
    assert make(MultiHeadsConfig(2), window=3).start(2, 10).places.size == 3
    assert make(MultiHeadsConfig(2)).start(2, 10).places.size == 10


def test_a_window_as_long_as_the_capacity_needs_no_ring():
    assert Cache(capacity=4, window=4).places.window is None
    assert Cache(capacity=5, window=4).places.window == 4
    assert Cache(capacity=5, window=4).places.size == 4


@pytest.mark.parametrize("window", [None, 4])
def test_a_static_cache_overflows(window):
    cache = Cache(capacity=3, window=window)
    put(cache, 0, 1, 2)
    with pytest.raises(InputError, match=r"token 4 does not fit into a cache of 3; start with a larger capacity"):
        put(cache, 3)


def test_padding_does_not_fill_a_static_cache():
    cache = Cache(capacity=3)
    put(cache, 0, -1, -1)
    assert put(cache, 1, 2)[0] == [0, 1, 2]
    assert put(cache, -1)[0] == [0, 1, 2]
    with pytest.raises(InputError, match=r"token 4 does not fit into a cache of 3"):
        put(cache, 3)


def test_bytes():
    kept = torch.zeros(2, 3, 1, 5, dtype=torch.float32), torch.zeros(2, 1, 1, 4, dtype=torch.float32)
    cache = Cache(capacity=7)
    assert cache.nbytes() == 0
    cache.update(kept, torch.zeros(2, 1, dtype=torch.long))
    assert cache.nbytes() == 2 * 7 * (3 * 5 + 1 * 4) * 4
    ring = Cache(capacity=100, window=3)
    for t in range(20):
        ring.update(kept, torch.full((2, 1), t))
    assert ring.nbytes() == 2 * 3 * (3 * 5 + 1 * 4) * 4
    assert Hidden((torch.zeros(2, 3), torch.zeros(2, 4))).nbytes() == 2 * 7 * 4
    memory = Memory(torch.zeros(2, 1, 5, 3), torch.zeros(2, 1, 5, 4), None)
    assert memory.nbytes() == 2 * 5 * 7 * 4
    state = State([{"a": cache, "b": ring}, {"a": memory}], torch.zeros(2, dtype=torch.long))
    assert state.nbytes() == cache.nbytes() + ring.nbytes() + memory.nbytes()


def test_latent_heads_keep_less():
    many, latent = make(MultiHeadsConfig(4)), make(LatentHeadsConfig(2, 3, 2, 2, 3))
    kept = []
    for attention in (many, latent):
        cache = attention.start(1, 10)
        run(attention, random(1, 3, DIM), [3], cache)
        kept.append(cache.nbytes() / 10 / 8)
    assert kept == [2 * DIM, 3 + 2]


# --- rows ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("capacity", [None, 9])
def test_reorder(window, capacity):
    """Row i goes on as row index[i]: what beam search does."""
    attention, x = make(MultiHeadsConfig(4, 2), RopeConfig(), window), random(3, 6, DIM)
    index = torch.tensor([2, 0, 0])
    cache = attention.start(3, capacity)
    cache.reorder(index)  # nothing there yet
    run(attention, x[:, :4], [3, 1], cache)
    cache.reorder(index)
    places = torch.arange(4, 6).expand(3, -1)
    found = attention(x[:, 4:], mask=Causal(), positions=places, state=cache)
    joined = torch.cat((x[index, :4], x[:, 4:]), 1)
    close(found, attention(joined, mask=Causal())[:, 4:])


def test_reorder_may_change_the_number_of_rows():
    attention, x = make(MultiHeadsConfig(4, 2)), random(1, 4, DIM)
    cache = attention.start(1, None)
    run(attention, x[:, :3], [3], cache)
    cache.reorder(torch.tensor([0, 0]))
    found = attention(x[:, 3:].expand(2, -1, -1), mask=Causal(), positions=torch.full((2, 1), 3), state=cache)
    close(found, attention(x, mask=Causal())[:, 3:].expand(2, -1, -1))


def test_reorder_a_memory():
    keys, values = random(3, 1, 4, 2), random(3, 1, 4, 5)
    places, index = torch.tensor([[0, 1, 2, 3], [0, 1, -1, -1], [0, -1, -1, -1]]), torch.tensor([2, 0, 0])
    memory = Memory(keys, values, places)
    memory.reorder(index)
    assert torch.equal(memory.keys, keys[[2, 0, 0]])
    assert torch.equal(memory.values, values[[2, 0, 0]])
    assert memory.positions.tolist() == [[0, -1, -1, -1], [0, 1, 2, 3], [0, 1, 2, 3]]
    everywhere = Memory(keys, values, None)
    everywhere.reorder(index)
    assert everywhere.positions is None
    shared = Memory(keys, values, places[:1])
    shared.reorder(index)
    assert shared.positions.tolist() == [[0, 1, 2, 3]]


def test_reorder_hidden_vectors():
    h, c = random(3, 2), random(3, 4)
    hidden = Hidden((h, c))
    hidden.reorder(torch.tensor([1, 1, 0]))
    assert torch.equal(hidden.values[0], h[[1, 1, 0]])
    assert torch.equal(hidden.values[1], c[[1, 1, 0]])


def test_reorder_a_state():
    hidden, other = Hidden((random(3, 2),)), Hidden((random(3, 4),))
    before = hidden.values[0], other.values[0]
    state = State([{"mixer": hidden}, {"mixer": other}], torch.tensor([5, 6, 7]))
    state.reorder(torch.tensor([2, 2, 1]))
    assert state.length.tolist() == [7, 7, 6]
    assert torch.equal(hidden.values[0], before[0][[2, 2, 1]])
    assert torch.equal(other.values[0], before[1][[2, 2, 1]])


def test_advance():
    state = State([], torch.tensor([0, 3]))
    tokens = torch.zeros(2, 3, dtype=torch.long)
    assert state.advance(tokens, None).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert state.length.tolist() == [3, 6]
    assert state.advance(tokens, torch.tensor([2, 0])).tolist() == [[3, 4, -1], [-1, -1, -1]]
    assert state.length.tolist() == [5, 6]
    assert state.advance(tokens[:, :1], None).tolist() == [[5], [6]]


# --- a whole state ---------------------------------------------------------------------------------------------------


def caches(count, *windows, capacity=None):
    attentions = [make(MultiHeadsConfig(4, 2), RopeConfig(), window) for window in (windows or [None] * count)]
    state = State([{"mixer": a.start(2, capacity)} for a in attentions], torch.zeros(2, dtype=torch.long))
    return attentions, state


def feed(attentions, state, x, lengths=None):
    """Run x through every attention, each on its own, as a step of a model would."""
    positions = state.advance(torch.zeros(x.shape[:2], dtype=torch.long), lengths)
    mask = Causal() if lengths is None else Causal() & Padding()
    layers = zip(attentions, state.layers, strict=True)
    return [attention(x, mask=mask, positions=positions, state=layer["mixer"]) for attention, layer in layers]


def test_caches_that_are_alike_share_their_places():
    _, state = caches(3, None, 3, None)
    first, ring, second = (layer["mixer"].places for layer in state.layers)
    assert first is second
    assert ring is not first
    assert len(state.places) == 2


@pytest.mark.parametrize("windows", [(None, None), (3, None)])
@pytest.mark.parametrize("capacity", [None, 9])
@pytest.mark.parametrize("chunks", [[1] * 6, [4, 1, 1], [3, 2, 1]])
def test_a_state_of_equal_rows_is_all_at_once(windows, capacity, chunks):
    """Equally long rows need no table of positions while slots grow."""
    attentions, state = caches(2, *windows, capacity=capacity)
    x, out = random(2, 6, DIM), []
    for part in x.split(chunks, 1):
        out.append(feed(attentions, state, part))
    for attention, found in zip(attentions, zip(*out, strict=True), strict=True):
        close(torch.cat(found, 1), attention(x, mask=Causal()))
    has_table = [places.positions is not None for places in state.places.values()]
    assert has_table == [not places.grows for places in state.places.values()]


def test_rows_that_part_get_a_table():
    attentions, state = caches(1)
    rows = [random(6, DIM), random(5, DIM, seed=1)]
    first, second = torch.stack([row[:3] for row in rows]), torch.stack([rows[0][3:5], rows[1][3:5]])
    feed(attentions, state, first)
    feed(attentions, state, second, torch.tensor([2, 1]))
    (found,) = feed(attentions, state, torch.stack([rows[0][5:6], rows[1][4:5]]))
    for b, row in enumerate(rows):
        close(found[b], attentions[0](row[None], mask=Causal())[0, -1:])


def test_rows_that_share_a_memory_see_it_as_their_own():
    attention = make(MultiHeadsConfig(4, 2), RopeConfig())
    source, places = random(2, 5, DIM), torch.tensor([[0, 1, 2, 3, 4], [0, 1, 2, -1, -1]])
    shared, own = attention.remember(source, places), attention.remember(source, places)
    shared.repeat(3)
    own.reorder(torch.arange(2).repeat_interleave(3))
    x, positions = random(6, 2, DIM), torch.arange(7, 9).expand(6, -1)
    close(attention(x, positions=positions, state=shared), attention(x, positions=positions, state=own))
    shared.reorder(torch.tensor([2, 0, 1, 3, 3, 4]))  # within a source: nothing to do
    assert len(shared.keys) == 2
    shared.reorder(torch.tensor([4, 3, 5]))  # the first source leaves
    own.reorder(torch.tensor([3, 4, 5]))
    close(attention(x[:3], positions=positions[:3], state=shared), attention(x[:3], positions=positions[:3], state=own))


@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("window", [None, 2])
@pytest.mark.parametrize("capacity", [None, 9])
@pytest.mark.parametrize("lengths", [[2, 2], [3, 1]])
def test_siblings_that_share_a_cache_write_as_if_each_had_its_own(heads, position, window, capacity, lengths):
    """Change places at random, let a group leave, and compare with each text read anew."""
    share, generator = 3, torch.Generator().manual_seed(1)
    attention = make(heads, position, window)
    state = State([{"mixer": attention.start(2, capacity)}], torch.zeros(2, dtype=torch.long))
    begun = random(2, max(lengths), DIM)
    feed([attention], state, begun, None if lengths == [2, 2] else torch.tensor(lengths))
    state.repeat(share)
    texts = [begun[row // share, : lengths[row // share]] for row in range(2 * share)]
    for step in range(5):
        x = random(len(texts), 1, DIM, seed=step)
        (found,) = feed([attention], state, x)
        texts = [torch.cat((text, new)) for text, new in zip(texts, x, strict=True)]
        for text, row in zip(texts, found, strict=True):
            close(row[-1], attention(text[None], mask=Causal())[0, -1])
        groups = range(2) if step < 2 else range(1, 2) if step == 2 else range(1)
        parents = torch.randint(share, (len(groups), share), generator=generator)
        index = (torch.tensor(groups)[:, None] * share + parents).flatten()
        state.reorder(index)
        texts = [texts[row] for row in index]


def test_siblings_read_one_token_at_a_time():
    (attention,), state = caches(1)
    feed([attention], state, random(2, 2, DIM))
    state.repeat(2)
    with pytest.raises(InputError, match="one token at a time"):
        feed([attention], state, random(4, 2, DIM))


@pytest.mark.parametrize("position", [None, AlibiConfig(), RelativeBiasConfig(8, 6)])
@pytest.mark.parametrize("window", [None, 2])
def test_a_memory_is_masked_anew_where_the_query_matters(position, window):
    """What is worked out for one step must not be taken for the next."""
    attention, source = make(MultiHeadsConfig(4, 2), position, window), random(2, 5, DIM)
    places = torch.tensor([[0, 1, 2, 3, 4], [0, 1, 2, -1, -1]])
    memory, x = attention.remember(source, places), random(2, 4, DIM)
    steps = [attention(x[:, t : t + 1], positions=torch.full((2, 1), t), state=memory) for t in range(4)]
    whole = attention(x, memory=source, memory_positions=places, positions=torch.arange(4).expand(2, -1))
    close(torch.cat(steps, 1), whole)


def test_repeat_a_state():
    hidden, memory = Hidden((random(2, 3),)), Memory(random(2, 1, 4, 2), random(2, 1, 4, 2), None)
    before = hidden.values[0]
    state = State([{"mixer": hidden, "cross": memory}], torch.tensor([1, 2]))
    state.repeat(2)
    assert state.length.tolist() == [1, 1, 2, 2]
    assert torch.equal(hidden.values[0], before[[0, 0, 1, 1]])
    assert memory.share == 2
    assert len(memory.keys) == 2


def test_the_tensors_of_a_state_can_be_taken_out_and_put_back():
    attentions, state = caches(2, None, 3, capacity=8)
    state.layers[0]["cross"] = Memory(random(2, 1, 4, 2), random(2, 1, 4, 3), torch.zeros(2, 4, dtype=torch.long))
    state.layers[1]["fed"] = Hidden((random(2, 3), random(2, 5)))
    x = random(2, 4, DIM)
    feed(attentions, state, x[:, :3])
    kept = [tensor.clone() for tensor in state.tensors()]
    expected = feed(attentions, state, x[:, 3:])
    state.put(tuple(kept))
    state.rewind()
    for found, wanted in zip(feed(attentions, state, x[:, 3:]), expected, strict=True):
        close(found, wanted)
    assert len(kept) == 1 + 2 + 2 * 2 + 3 + 2  # lengths, tables, slots of two caches, memory, hidden
