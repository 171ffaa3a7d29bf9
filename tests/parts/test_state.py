"""States reorder their rows, return their tensors and accept others; caches of one kind share their steps."""

from dataclasses import FrozenInstanceError

import pytest
import torch

from regard.parts.cache import Cache
from regard.parts.heads import MultiHeadsConfig
from regard.parts.mask import Causal
from regard.parts.position import AlibiConfig, RelativeBiasConfig, RopeConfig
from regard.parts.state import Hidden, Memory, State

from .stepped import DIM, caches, close, feed, make, random

# --- rows ------------------------------------------------------------------------------------------------------------


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
    assert state.advance(tokens, None).positions.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert state.length.tolist() == [3, 6]
    assert state.advance(tokens, torch.tensor([2, 0])).positions.tolist() == [[3, 4, -1], [-1, -1, -1]]
    assert state.length.tolist() == [5, 6]
    assert state.advance(tokens[:, :1], None).positions.tolist() == [[5], [6]]


# --- memories --------------------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("position", [None, AlibiConfig(), RelativeBiasConfig(8, 6)])
@pytest.mark.parametrize("window", [None, 2])
def test_the_mask_of_a_memory_is_computed_again_where_the_query_matters(position, window):
    """A mask that depends on the query must not be reused at the next step."""
    attention, source = make(MultiHeadsConfig(4, 2), position, window), random(2, 5, DIM)
    places = torch.tensor([[0, 1, 2, 3, 4], [0, 1, 2, -1, -1]])
    memory, x = attention.remember(source, places), random(2, 4, DIM)
    steps = [attention(x[:, t : t + 1], positions=torch.full((2, 1), t), state=memory) for t in range(4)]
    whole = attention(x, memory=source, memory_positions=places, positions=torch.arange(4).expand(2, -1))
    close(torch.cat(steps, 1), whole)


def test_a_memory_for_steps_has_the_same_numbers_head_by_head():
    attention = make(MultiHeadsConfig(4, 2), None)
    memory, x = attention.remember(random(3, 5, DIM), None), random(3, 1, DIM)
    found = memory.for_steps()
    assert not memory.keys.is_contiguous()
    assert found.keys.is_contiguous()
    assert found.values.is_contiguous()
    close(attention(x, state=found), attention(x, state=memory))


# --- a whole state ---------------------------------------------------------------------------------------------------


def test_bytes():
    kept = torch.zeros(2, 3, 1, 5, dtype=torch.float32), torch.zeros(2, 1, 1, 4, dtype=torch.float32)
    cache, ring = Cache(capacity=7), Cache(capacity=100, window=3)
    assert cache.nbytes() == 0
    state = State([{"a": cache, "b": ring}], torch.zeros(2, dtype=torch.long))
    for _ in range(5):
        for view in state.advance(torch.zeros(2, 1, dtype=torch.long)).layers[0].values():
            view.extend(kept)
    assert cache.nbytes() == 2 * 7 * (3 * 5 + 1 * 4) * 4
    assert ring.nbytes() == 2 * 3 * (3 * 5 + 1 * 4) * 4
    assert Hidden((torch.zeros(2, 3), torch.zeros(2, 4))).nbytes() == 2 * 7 * 4
    memory = Memory(torch.zeros(2, 1, 5, 3), torch.zeros(2, 1, 5, 4), None)
    assert memory.nbytes() == 2 * 5 * 7 * 4
    state.layers.append({"a": memory})
    assert state.nbytes() == cache.nbytes() + ring.nbytes() + memory.nbytes()


def test_caches_of_one_kind_share_one_step():
    _, state = caches(3, None, 3, None)
    assert len(state.tables) == 2
    step = state.advance(torch.zeros(2, 1, dtype=torch.long))
    first, ring, second = (layer["mixer"].step for layer in step.layers)
    assert first is second
    assert ring is not first


def test_a_step_cannot_be_changed():
    _, state = caches(1)
    step = state.advance(torch.zeros(2, 1, dtype=torch.long))
    for thing in (step, step.layers[0]["mixer"], step.layers[0]["mixer"].step):
        with pytest.raises(FrozenInstanceError):
            thing.positions = None


@pytest.mark.parametrize("windows", [(None, None), (3, None)])
@pytest.mark.parametrize("capacity", [None, 9])
@pytest.mark.parametrize("chunks", [[1] * 6, [4, 1, 1], [3, 2, 1]])
def test_a_state_of_equal_rows_equals_the_full_pass(windows, capacity, chunks):
    """Equally long rows need no table of positions while slots grow."""
    attentions, state = caches(2, *windows, capacity=capacity)
    x, out = random(2, 6, DIM), []
    for part in x.split(chunks, 1):
        out.append(feed(attentions, state, part))
    for attention, found in zip(attentions, zip(*out, strict=True), strict=True):
        close(torch.cat(found, 1), attention(x, mask=Causal()))
    has_table = [table.positions is not None for table in state.tables.values()]
    assert has_table == [not table.grows for table in state.tables.values()]


def test_rows_of_different_lengths_get_a_table():
    attentions, state = caches(1)
    rows = [random(6, DIM), random(5, DIM, seed=1)]
    first, second = torch.stack([row[:3] for row in rows]), torch.stack([rows[0][3:5], rows[1][3:5]])
    feed(attentions, state, first)
    feed(attentions, state, second, torch.tensor([2, 1]))
    (found,) = feed(attentions, state, torch.stack([rows[0][5:6], rows[1][4:5]]))
    for b, row in enumerate(rows):
        close(found[b], attentions[0](row[None], mask=Causal())[0, -1:])


def test_repeat_a_state():
    hidden, memory = Hidden((random(2, 3),)), Memory(random(2, 1, 4, 2), random(2, 1, 4, 2), None)
    before = hidden.values[0]
    state = State([{"mixer": hidden, "cross": memory}], torch.tensor([1, 2]))
    state.repeat(2)
    assert state.length.tolist() == [1, 1, 2, 2]
    assert torch.equal(hidden.values[0], before[[0, 0, 1, 1]])
    assert memory.beams == 2
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
