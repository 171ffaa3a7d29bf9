"""A live recording: its blobs are computed when they are requested.

The weights of one head are computed from its vectors when its blob is requested; those of all heads once, a few at a
time, for statistics and thumbnails. Nothing as large as the weights is kept.
"""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.data.tracks import holds_rows
from regard.errors import InputError
from regard.models.intervention import Intervention, find_places
from regard.models.model import Model
from regard.parts.attend import Explanation
from regard.parts.score import Additive
from regard.use.bundle import Bundle
from regard.viewer.answers import best_answers, layer_guesses, likely_contacts, vocabulary_scores
from regard.viewer.attentions import describe_attentions, is_whole, mask_bits
from regard.viewer.blobs import PATTERNS
from regard.viewer.capture import AttentionTrace, Capture, capture
from regard.viewer.change import Changes, capture_changed, moved_weights, text_loss, write_changed
from regard.viewer.head_probe import behaviours, importance
from regard.viewer.head_statistics import (
    HeadStatistics,
    choose_first_cell,
    choose_first_head,
    join_heads,
    max_pool,
    measure_heads,
    rollout,
    with_statistics,
)
from regard.viewer.manifest import (
    FORMAT,
    THUMBNAIL,
    Cell,
    ChangeResult,
    HeadScoresResult,
    Manifest,
    NextInfo,
    RecurrenceInfo,
    Token,
    WrittenResult,
)
from regard.viewer.positions import PositionTable, position_tables
from regard.viewer.prepare import Prepared, prepare_query
from regard.viewer.query import Query
from regard.viewer.recording import ComputedRecording, Recording, encode_json
from regard.viewer.recurrences import RecurrenceTrace, trace_recurrences
from regard.viewer.tokens import describe_tokens, token_text

TOGETHER = 1 << 16  # weights of a head that are explained together, since the page often requests other rows too


class LiveRecording(ComputedRecording):
    """A recording of a model in memory."""

    def __init__(
        self,
        bundle: Bundle,
        model: Model,
        prepared: Prepared,
        captured: Capture,
        title: str | None = None,
        query: Query | None = None,
    ) -> None:
        self.bundle, self.model, self.prepared, self.captured, self.query = bundle, model, prepared, captured, query
        self.title = title or Path(bundle.name).name
        self.attentions = describe_attentions(model, captured)
        queries = {one["queries"] for one in self.attentions}
        self.sequences = prepared.sequences | ({"written": written_by(self)} if "written" in queries else {})
        self.by_id = {one["id"]: one for one in self.attentions}
        self._last: tuple[tuple[str, int, range] | None, Explanation | None] = (None, None)

    def trace(self, id: str) -> AttentionTrace:
        """Return the trace of an attention."""
        return self.captured.traces[self.by_id[id]["name"]]

    # --- the manifest ------------------------------------------------------------------------------------------------

    def manifest(self) -> Manifest:
        """Return what was recorded."""
        return self._manifest

    @cached_property
    def _manifest(self) -> Manifest:
        prepared, image = self.prepared, self.prepared.picture
        return {
            "format": FORMAT,
            "title": self.title,
            "model": self.bundle.description,
            "text": prepared.text,
            "written": prepared.written,
            "notes": [*prepared.notes, *self._notes()],
            "sequences": self.sequences,
            "noun": self.model.noun,
            "attentions": with_statistics(self.attentions, [self._statistics]),
            "whole": is_whole(self.attentions),
            "steps": [],
            "begin": self._begin(),
            "hidden": [
                {"sequence": sequence, "layers": len(layers), "width": layers[0].shape[1]}
                for sequence, layers in self.captured.hidden.items()
            ],
            "next": self._next(),
            "lens": self.prepared.begin is not None,
            "answers": best_answers(self.bundle, self.model, prepared, self.captured),
            "contacts": likely_contacts(self.bundle, self.model, prepared, self.captured),
            "positions": [one.info() for one in self._positions],
            "image": None if image is None else image.info(),
            "rollout": self._has_rollout(),
            "recurrences": [info for info, _ in self._recurrences.values()],
            "thumbnail": THUMBNAIL,
            "places": self._places,
            "blobs": PATTERNS,
        }

    @cached_property
    def _places(self) -> list[str]:
        return [] if self.query is None else list(find_places(self.model))

    def _notes(self) -> list[str]:
        if self.attentions:
            return []
        useful = {"States": bool(self._recurrences), "Words": True, "Next": self.prepared.begin is not None}
        useful |= {"Position": bool(self._positions), "Change": bool(self._places)}
        names = [view for view, is_useful in useful.items() if is_useful]
        views = " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
        return [f"This model has no attention, so there are no weights to show. Available views: {views}."]

    def _next(self) -> NextInfo | None:
        if self.prepared.begin is None:
            return None
        sequence = list(self.prepared.sequences)[-1]
        return {"sequence": sequence, "begin": self.prepared.begin, "vocabulary": self._vocabulary()}

    def _vocabulary(self) -> int:
        vocabulary = list(self.model.sequences().values())[-1].vocabulary
        assert vocabulary is not None
        return vocabulary

    def _has_rollout(self) -> bool:
        """Return whether rollout is defined: one sequence with self-attention in every layer, and not too long."""
        sequences = list(self.model.sequences().values())
        every = len(sequences) == 1 and 0 < len(self.attentions) == sequences[0].layers
        return every and self.attentions[0]["pooled"] is None

    @cached_property
    def _positions(self) -> list[PositionTable]:
        return position_tables(self.model, max(map(len, self.sequences.values())))

    @cached_property
    def _recurrences(self) -> dict[str, tuple[RecurrenceInfo, RecurrenceTrace]]:
        return trace_recurrences(self.model, self.captured.recurrences, self.prepared.sequences)

    @cached_property
    def _statistics(self) -> list[HeadStatistics]:
        return [
            join_heads(
                measure_heads(weights, self.sequences[one["queries"]], self.sequences[one["keys"]])
                for weights in self.trace(one["id"]).blocks()
            )
            for one in self.attentions
        ]

    def _begin(self) -> Cell | None:
        chosen = choose_first_head(self.attentions, self._statistics)
        if chosen is None:
            return None
        if self.prepared.picture is not None and self.prepared.picture.first:
            return self._begin_at_class_token()
        one, head = self.attentions[chosen[0]], chosen[1]
        tokens = self.sequences[one["queries"]], self.sequences[one["keys"]]
        query, key = choose_first_cell(self.weights(one["id"], head), *tokens, same=one["queries"] == one["keys"])
        return {"attention": one["id"], "head": head, "query": query, "key": key}

    def _begin_at_class_token(self) -> Cell:
        """Begin with the class token of the last layer, from which an image is classified, in its most peaked head."""
        one = self.attentions[-1]
        rows = torch.stack([self.weights(one["id"], head)[0, 1:] for head in range(one["heads"])])
        head, key = divmod(int(rows.argmax()), rows.shape[1])
        return {"attention": one["id"], "head": head, "query": 0, "key": key + 1}

    # --- changes -----------------------------------------------------------------------------------------------------

    def change(self, given: Any) -> tuple[Recording, ChangeResult]:
        """Run the changed model on the same tokens; return its recording, and how it differs from this one."""
        changes = Changes(self.model, given)
        changed = self.changed_by(self._interventions(changes))
        moved = moved_weights(self.captured, changed.captured)
        before, after = (text_loss(self.model, self.prepared, one) for one in (self.captured, changed.captured))
        result: ChangeResult = {
            "moved": {one["id"]: moved[one["name"]] for one in self.attentions},
            "loss": None if before is None or after is None else [before, after],
            "code": changes.code(),
        }
        return changed, result

    def changed_by(self, interventions: Sequence[Intervention]) -> "LiveRecording":
        """Return the recording of the changed model on the same tokens."""
        captured = capture_changed(self.model, self.prepared.arguments, interventions)
        return LiveRecording(self.bundle, self.model, self.prepared, captured, f"{self.title} (changed)")

    def write(self, given: Any) -> WrittenResult:
        """Return what the model writes by itself, unchanged and changed."""
        changes = self._interventions(Changes(self.bundle.model, given))
        assert self.query is not None  # otherwise that was an error
        return {"written": [write_changed(self.bundle, self.query, each) for each in ([], changes)]}

    def head_scores(self) -> HeadScoresResult:
        """Measure known behaviours of all heads on a probe text, and their importance on this text."""
        if self.query is None:
            return super().head_scores()
        return {"scores": self._head_scores}

    @cached_property
    def _head_scores(self) -> dict[str, dict[str, list[float]]]:
        found = behaviours(self.bundle, self.model)
        rises = importance(self.model, self.prepared, self.captured)
        return found | ({"importance": rises} if rises else {})

    def _interventions(self, changes: Changes) -> list[Intervention]:
        if self.query is None:
            raise InputError("this is a changed model already; change the original instead")

        def elsewhere(text: str) -> Capture:
            self._check_no_file(text)
            prepared = prepare_query(self.bundle, Query(text, tokens=0))
            return capture(self.model, prepared.arguments)

        return changes.interventions(self.captured, elsewhere)

    def _check_no_file(self, text: str) -> None:
        """Reject a text that the model would read as the name of a file, which a page must not choose."""
        if self.model.reads == "image":
            raise InputError(f"{self.bundle.name}: is {self.bundle.description}, not of texts; leave the text out")
        if self.model.reads == "tracks" and not holds_rows(text):
            remedy = "write rows: frame agent x y; frame agent x y"
            raise InputError(f"{self.bundle.name}: is {self.bundle.description}; {remedy}")

    # --- blobs -------------------------------------------------------------------------------------------------------

    def weights(self, id: str, head: int) -> Float[Tensor, "T S"]:
        """Compute the weights of one head."""
        return self.trace(id).weights(range(head, head + 1))[0]

    def make_all_weights(self, step: int) -> bytes:
        """Encode the weights of every head of every attention."""
        return b"".join(f16(weights) for id in self.by_id for weights in self.trace(id).blocks())

    def make_weights(self, step: int, attention: str, head: int) -> bytes:
        """Encode the weights of one head."""
        return f16(self.weights(attention, head))

    def make_pooled(self, step: int, attention: str, head: int) -> bytes:
        """Encode the weights of one head, max-pooled."""
        size = self.by_id[attention]["pooled"]
        assert size is not None
        return max_pool(self.weights(attention, head)[None], *size).tobytes()

    def make_overview(self, step: int) -> bytes:
        """Encode every head as a thumbnail."""
        return b"".join(one.thumbnails.tobytes() for one in self._statistics)

    def make_mask(self, mask: str) -> bytes:
        """Encode which keys each query may look at."""
        return mask_bits(self.trace(next(id for id, one in self.by_id.items() if one["mask"] == mask)))

    def make_vectors(self, attention: str, head: int) -> bytes:
        """Encode queries, keys, values and outputs of a head."""
        trace = self.trace(attention)
        key_head = trace.key_head(head)
        parts = [trace.query[0, head], trace.key[0, key_head], trace.value[0, key_head], trace.mixed[0, head]]
        score = trace.terms.score
        parts += [score.energy.weight] if isinstance(score, Additive) else []
        return b"".join(map(f32, parts))

    def make_input(self, attention: str) -> bytes:
        """Encode what queries are computed from, and what keys are computed from if that is another sequence."""
        one = self.by_id[attention]
        queries = f32(self.captured.inputs[one["name"]])
        if one["queries"] == one["keys"]:
            return queries
        assert self.captured.memory is not None
        return queries + f32(self.captured.memory)

    def make_row(self, attention: str, head: int, query: int) -> bytes:
        """Encode scores, bias and weights of one query."""
        trace = self.trace(attention)
        together = trace.shape[0] * trace.row_size <= TOGETHER
        rows = range(trace.shape[0]) if together else range(query, query + 1)
        known, steps = self._last
        if steps is None or known != (attention, head, rows):
            steps = trace.explain(range(head, head + 1), rows)
            self._last = (attention, head, rows), steps
        parts = (steps.scores, steps.bias, steps.weights)
        return b"".join(f32(part[0, 0, query - rows.start]) for part in parts if part is not None)

    def make_hidden(self, sequence: str, layer: int) -> bytes:
        """Encode the hidden states of a sequence after a layer."""
        return f32(self.captured.hidden[sequence][layer])

    def make_next(self, token: int) -> bytes:
        """Encode the logits of the token after a token."""
        assert self.captured.below is not None
        return f32(vocabulary_scores(self.model, self.captured.below[token]))

    def make_signal(self, recurrence: str, signal: int) -> bytes:
        """Encode the state or a gate of a recurrent layer at each token."""
        return f16(self._recurrences[recurrence][1].signals[signal])

    def make_lens(self, token: int) -> bytes:
        """Encode what each layer would write after a token."""
        layers = self.captured.hidden[list(self.prepared.sequences)[-1]]
        return encode_json(layer_guesses(self.bundle, self.model, layers, token))

    def make_vocabulary(self) -> bytes:
        """Encode the texts of all tokens."""
        return encode_json([token_text(self.bundle.tokenizer, id) for id in range(self._vocabulary())])

    def make_position(self, table: int) -> bytes:
        """Encode a position table."""
        return f32(self._positions[table].table)

    def make_similarity(self, table: int) -> bytes:
        """Encode the similarity of positions."""
        return f32(self._positions[table].similar)

    def make_image(self) -> bytes:
        """Encode the image as the model sees it."""
        assert self.prepared.picture is not None
        return self.prepared.picture.png()

    def make_rollout(self) -> bytes:
        """Compute attention rollout through all layers."""
        return f16(rollout(self.trace(id).mean() for id in self.by_id))


def written_by(live: LiveRecording) -> list[Token]:
    """Return what a translator writes after each token that it reads: the target shifted by one."""
    assert live.captured.below is not None
    following = int(vocabulary_scores(live.model, live.captured.below[-1:]).argmax())
    ids = [token["id"] for token in live.prepared.sequences["target"][1:]]
    return describe_tokens(live.bundle.tokenizer, [*ids, following])


def f32(numbers: Tensor) -> bytes:
    """Encode numbers as little-endian float32."""
    return numbers.detach().to("cpu", torch.float32).contiguous().numpy().astype("<f4", copy=False).tobytes()


def f16(numbers: Tensor) -> bytes:
    """Encode numbers as little-endian float16."""
    return numbers.detach().to("cpu", torch.float16).contiguous().numpy().astype("<f2", copy=False).tobytes()
