"""Steps with a cache equal the full pass."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.errors import InputError
from regard.parts.cache import Cache, CacheKind, SlotTable
from regard.parts.heads import LatentHeadsConfig, MultiHeadsConfig
from regard.parts.mask import Causal, Padding, Window, includes
from regard.parts.position import RopeConfig
from regard.parts.score import AdditiveConfig, CosineConfig, DotConfig

from .stepped import DIM, HEADS, POSITIONS, caches, close, feed, make, random, start


def run(attention, x, chunks, state):
    """Feed `x` in chunks of these sizes."""
    return torch.cat([feed([attention], state, part)[0] for part in x.split(chunks, 1)], 1)


def run_ragged(attention, rows, chunks, state):
    """Feed rows of different lengths: `chunks` says for each call how many tokens each row has, the rest is padding."""
    out = [[] for _ in rows]
    for lengths in chunks:
        x = torch.full((len(rows), max(lengths), DIM), 1e3, dtype=torch.float64)  # visible if padding is seen
        for b, length in enumerate(lengths):
            begin = int(state.length[b])
            x[b, :length] = rows[b][begin : begin + length]
        (found,) = feed([attention], state, x, torch.tensor(lengths))
        for b, length in enumerate(lengths):
            out[b].append(found[b, :length])
    return [torch.cat(parts) for parts in out]


# --- same as uncached ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("window", [None, 1, 3])
@pytest.mark.parametrize("capacity", [None, 7, 9])
def test_single_steps_equal_the_full_pass(heads, position, window, capacity):
    attention, x = make(heads, position, window), random(2, 7, DIM)
    found = run(attention, x, [1] * 7, start(attention, 2, capacity))
    close(found, attention(x, mask=Causal()))


@pytest.mark.parametrize("score", [DotConfig(cap=1.0), CosineConfig(), AdditiveConfig(3)])
def test_any_score_has_a_cache(score):
    attention, x = make(MultiHeadsConfig(4, 2), RopeConfig(), score=score), random(2, 5, DIM)
    close(run(attention, x, [3, 1, 1], start(attention, 2)), attention(x, mask=Causal()))


sizes = st.lists(st.integers(1, 5), min_size=1, max_size=5)
kinds = st.tuples(st.sampled_from(HEADS), st.sampled_from(POSITIONS), st.sampled_from([None, 1, 2, 4, 30]))


@settings(max_examples=60)
@given(kinds, sizes, st.sampled_from([None, 0, 3]))
def test_chunks_equal_the_full_pass(kind, chunks, spare):
    attention, total = make(*kind), sum(chunks)
    x = random(2, total, DIM)
    state = start(attention, 2, None if spare is None else total + spare)
    close(run(attention, x, chunks, state), attention(x, mask=Causal()))


@settings(max_examples=60)
@given(kinds, st.lists(st.tuples(*[st.integers(0, 4)] * 3).filter(any), min_size=1, max_size=5), st.booleans())
def test_ragged_rows_give_the_same_as_alone(kind, chunks, static):
    """In each chunk, rows get different numbers of tokens; a row may get none."""
    attention, totals = make(*kind), [sum(row) for row in zip(*chunks, strict=True)]
    rows = [random(total, DIM, seed=b) for b, total in enumerate(totals)]
    state = start(attention, 3, max(totals) if static else None)
    for row, found in zip(rows, run_ragged(attention, rows, chunks, state), strict=True):
        if len(row):
            close(found, attention(row[None], mask=Causal())[0])


def test_prompts_of_different_lengths_then_steps():
    """As in generation: every row continues after its own prompt, however long the longest one is."""
    attention = make(MultiHeadsConfig(4, 2), RopeConfig())
    rows = [random(7, DIM), random(4, DIM, seed=1)]
    chunks = [(5, 2), (1, 1), (1, 1)]
    for row, found in zip(rows, run_ragged(attention, rows, chunks, start(attention, 2, 7)), strict=True):
        close(found, attention(row[None], mask=Causal())[0])


def test_the_slot_of_padding_is_never_seen():
    """The spare slot of a growing cache becomes a real one when it grows."""
    attention = make(MultiHeadsConfig(2))
    rows = [random(9, DIM), random(6, DIM, seed=1)]
    chunks = [(2, 0), (1, 1), (3, 1), (3, 4)]
    for row, found in zip(rows, run_ragged(attention, rows, chunks, start(attention, 2)), strict=True):
        close(found, attention(row[None], mask=Causal())[0])


# --- the slots -------------------------------------------------------------------------------------------------------


class Row:
    """A cache of one row, and its slot table."""

    def __init__(self, capacity=None, window=None):
        self.cache = Cache(capacity, window)
        self.table = SlotTable(self.cache.kind)

    def put(self, *positions):
        """Write tokens whose key is their position + 100; return the positions seen, and the keys."""
        written = torch.tensor([positions])
        step = self.table.assign(written, Causal(), None)
        view = self.cache.extend((written[:, None, :, None].double() + 100,), step)
        return view.key_positions[0].tolist(), view.kept[0][0, 0, :, 0].tolist()


def test_a_static_cache_has_all_slots_from_the_start():
    row = Row(capacity=4)
    assert row.put(0, 1) == ([0, 1], [100, 101])  # nothing came before: the prompt looks at itself
    assert row.put(2) == ([0, 1, 2, -1], [100, 101, 102, 0])
    assert row.table.size == 4


def test_a_growing_cache_shows_only_what_was_written():
    row = Row()
    assert row.put(0) == ([0], [100])
    assert row.put(1, 2) == ([0, 1, 2], [100, 101, 102])
    assert row.put(3) == ([0, 1, 2, 3], [100, 101, 102, 103])
    assert row.table.size == 6  # doubled, from 3
    assert row.put(4) == ([0, 1, 2, 3, 4], [100, 101, 102, 103, 104])
    assert row.table.size == 6


def test_a_ring_forgets_what_is_out_of_sight():
    row = Row(window=3)
    assert row.put(0)[0] == [0]
    for position in range(1, 5):
        seen, keys = row.put(position)
    assert seen == [3, 4, 2]
    assert keys == [103, 104, 102]
    seen, keys = row.put(5, 6, 7, 8)  # the first of a chunk still sees what the last makes the ring forget
    assert seen == [3, 4, 2, 5, 6, 7, 8]
    assert keys == [103, 104, 102, 105, 106, 107, 108]
    assert row.put(9)[0] == [9, 7, 8]
    assert row.table.size == 3


def test_a_chunk_writes_no_slot_twice():
    """Which of two writes wins is not defined on an accelerator."""
    table = SlotTable(CacheKind(3, ring=True))
    chunks = ([0, 1, 2, 3, 4, 5, -1], [6, 7, 8, 9])
    written = [table.assign(torch.tensor([chunk]), Causal(), None).write[1][0].tolist() for chunk in chunks]
    assert written == [[3, 3, 3, 0, 1, 2, 3], [3, 1, 2, 0]]  # slot 3 is the spare one


def test_a_single_token_needs_no_causal_mask():
    table = SlotTable(CacheKind(4))
    assert includes(table.assign(torch.tensor([[0, 1]]), Causal(), None).mask, Causal)
    assert table.assign(torch.tensor([[2]]), Causal(), None).mask == Padding()
    growing = SlotTable(CacheKind())
    growing.assign(torch.tensor([[0, 1]]), Causal(), 0)
    assert growing.assign(torch.tensor([[2]]), Causal(), 2).mask is None
    rule = Window(2)  # hides some of what came before, so it must stay
    assert growing.assign(torch.tensor([[3]]), rule, 3).mask == rule


def test_an_attention_with_a_window_starts_a_ring():
    assert make(MultiHeadsConfig(2), window=3).start(2, None).kind == CacheKind(3, ring=True)
    assert make(MultiHeadsConfig(2), window=3).start(2, 10).kind == CacheKind(3, ring=True)
    assert make(MultiHeadsConfig(2)).start(2, 10).kind == CacheKind(10)
    assert make(MultiHeadsConfig(2)).start(2).kind == CacheKind()


def test_a_window_as_long_as_the_capacity_needs_no_ring():
    assert Cache(capacity=4, window=4).kind == CacheKind(4)
    assert Cache(capacity=5, window=4).kind == CacheKind(4, ring=True)


@pytest.mark.parametrize("window", [None, 4])
def test_a_static_cache_overflows(window):
    row = Row(capacity=3, window=window)
    row.put(0, 1, 2)
    with pytest.raises(InputError, match=r"token 4 does not fit into a cache of 3; start with a larger capacity"):
        row.put(3)


def test_padding_does_not_fill_a_static_cache():
    row = Row(capacity=3)
    row.put(0, -1, -1)
    assert row.put(1, 2)[0] == [0, 1, 2]
    assert row.put(-1)[0] == [0, 1, 2]
    with pytest.raises(InputError, match=r"token 4 does not fit into a cache of 3"):
        row.put(3)


def test_latent_heads_keep_less():
    many, latent = make(MultiHeadsConfig(4)), make(LatentHeadsConfig(2, 3, 2, 2, 3))
    kept = []
    for attention in (many, latent):
        state = start(attention, 1, 10)
        run(attention, random(1, 3, DIM), [3], state)
        kept.append(state.nbytes() / 10 / 8)
    assert kept == [2 * DIM, 3 + 2]


# --- rows ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("capacity", [None, 9])
def test_reorder(window, capacity):
    """Row i continues as row index[i]: what beam search does."""
    attention, x = make(MultiHeadsConfig(4, 2), RopeConfig(), window), random(3, 6, DIM)
    index = torch.tensor([2, 0, 0])
    state = start(attention, 3, capacity)
    state.reorder(index)  # nothing is cached yet
    run(attention, x[:, :4], [3, 1], state)
    state.reorder(index)
    (found,) = feed([attention], state, x[:, 4:])
    joined = torch.cat((x[index, :4], x[:, 4:]), 1)
    close(found, attention(joined, mask=Causal())[:, 4:])


def test_reorder_may_change_the_number_of_rows():
    attention, x = make(MultiHeadsConfig(4, 2)), random(1, 4, DIM)
    state = start(attention, 1)
    run(attention, x[:, :3], [3], state)
    state.reorder(torch.tensor([0, 0]))
    (found,) = feed([attention], state, x[:, 3:].expand(2, -1, -1))
    close(found, attention(x, mask=Causal())[:, 3:].expand(2, -1, -1))


@pytest.mark.slow
@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("window", [None, 2])
@pytest.mark.parametrize("capacity", [None, 9])
@pytest.mark.parametrize("lengths", [[2, 2], [3, 1]])
def test_beams_that_share_a_cache_write_as_if_each_had_its_own(heads, position, window, capacity, lengths):
    """Reorder beams at random, drop a group, and compare with each text read from the start."""
    share, generator = 3, torch.Generator().manual_seed(1)
    attention = make(heads, position, window)
    state = start(attention, 2, capacity)
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


def test_beams_read_one_token_at_a_time():
    (attention,), state = caches(1)
    feed([attention], state, random(2, 2, DIM))
    state.repeat(2)
    with pytest.raises(InputError, match="one token at a time, not 2"):
        feed([attention], state, random(4, 2, DIM))
