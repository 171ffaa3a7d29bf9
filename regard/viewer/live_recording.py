"""Live: a recording whose blobs are worked out when they are asked for.

The weights of a head come from its vectors, for its own blob; those of all heads once, a few at a time, for statistics
and small pictures. Nothing as large as the weights is kept.
"""

import re
from collections.abc import Callable
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from regard.models.model import Model
from regard.models.stack import Stack
from regard.parts.attend import Explanation
from regard.parts.score import Additive
from regard.use.ready import Ready, abilities
from regard.viewer.answers import best_answers, vocabulary_scores
from regard.viewer.attentions import describe_attentions, is_whole, mask_bits
from regard.viewer.capture import AttentionTrace, Capture, embedding_of
from regard.viewer.head_statistics import (
    HeadStatistics,
    choose_first_cell,
    choose_first_head,
    join_heads,
    max_pool,
    measure_heads,
    rollout,
)
from regard.viewer.positions import PositionTable, position_tables
from regard.viewer.prepare import Prepared
from regard.viewer.recording import Manifest, Recording, encode_json
from regard.viewer.tokens import Token, describe_tokens, token_text

TOGETHER = 1 << 16  # weights of a head that are explained together: whoever asks for one row often asks for the next


class LiveRecording(Recording):
    """A recording of a model that is there."""

    def __init__(
        self, ready: Ready, model: Model, prepared: Prepared, captured: Capture, title: str | None = None
    ) -> None:
        self.ready, self.model, self.prepared, self.captured = ready, model, prepared, captured
        self.title = title or Path(ready.name).name
        self.attentions = describe_attentions(model, captured)
        looks = {one["queries"] for one in self.attentions}
        self.sequences = prepared.sequences | ({"written": written_by(self)} if "written" in looks else {})
        self.by_id = {one["id"]: one for one in self.attentions}
        self._last: tuple[tuple[str, int, range] | None, Explanation | None] = (None, None)

    def looked(self, id: str) -> AttentionTrace:
        """Give what an attention saw; a KeyError if there is none of that id."""
        return self.captured.looked[self.by_id[id]["name"]]

    # --- the manifest ------------------------------------------------------------------------------------------------

    def manifest(self) -> Manifest:
        """Say what was recorded."""
        return self._manifest

    @cached_property
    def _manifest(self) -> Manifest:
        prepared, image = self.prepared, self.prepared.picture
        return {
            "format": 1,
            "title": self.title,
            "model": abilities(self.model)[0],
            "text": prepared.text,
            "written": prepared.written,
            "notes": [*prepared.notes, *self._notes()],
            "sequences": self.sequences,
            "attentions": [
                one | {"statistics": {name: [numbers] for name, numbers in found.statistics().items()}}
                for one, found in zip(self.attentions, self._surveys, strict=True)
            ],
            "whole": is_whole(self.attentions),
            "steps": [],
            "begin": self._begin(),
            "hidden": [
                {"sequence": sequence, "layers": len(layers), "width": layers[0].shape[1]}
                for sequence, layers in self.captured.hidden.items()
            ],
            "next": self._following(),
            "answers": best_answers(self.ready, self.model, prepared, self.captured),
            "positions": [one.manifest() for one in self._positions],
            "image": None if image is None else image.manifest(),
            "rollout": self._rolls(),
        }

    def _notes(self) -> list[str]:
        if self.attentions:
            return []
        sensible = {"Words": True, "Next": self.prepared.begin is not None, "Position": bool(self._positions)}
        views = " and ".join(view for view, makes_sense in sensible.items() if makes_sense)
        return [f"This model has no attention, so there are no weights to look at. What still makes sense: {views}."]

    def _following(self) -> Manifest | None:
        if self.prepared.begin is None:
            return None
        vocabulary = embedding_of(self.model).tokens.table.num_embeddings
        return {"sequence": list(self.prepared.sequences)[-1], "begin": self.prepared.begin, "vocabulary": vocabulary}

    def _rolls(self) -> bool:
        """Whether rollout makes sense: one sequence that looks at itself in every layer, and is not too long."""
        stack = getattr(self.model, "stack", None)
        every = isinstance(stack, Stack) and 0 < len(self.attentions) == len(stack.layers)
        return every and self.attentions[0]["pooled"] is None

    @cached_property
    def _positions(self) -> list[PositionTable]:
        return position_tables(self.model, max(map(len, self.sequences.values())))

    @cached_property
    def _surveys(self) -> list[HeadStatistics]:
        return [
            join_heads(
                measure_heads(weights, self.sequences[one["queries"]], self.sequences[one["keys"]])
                for weights in self.looked(one["id"]).blocks()
            )
            for one in self.attentions
        ]

    def _begin(self) -> Manifest | None:
        chosen = choose_first_head(self.attentions, self._surveys)
        if chosen is None:
            return None
        if self.prepared.picture is not None and self.prepared.picture.first:
            return self._begin_at_class_token()
        one, head = self.attentions[chosen[0]], chosen[1]
        tokens = self.sequences[one["queries"]], self.sequences[one["keys"]]
        query, key = choose_first_cell(self._weights(one["id"], head), *tokens, same=one["queries"] == one["keys"])
        return {"attention": one["id"], "head": head, "query": query, "key": key}

    def _begin_at_class_token(self) -> Manifest:
        """Begin with what an image is judged by: where the class token looks at last, in its most peaked head."""
        one = self.attentions[-1]
        rows = torch.stack([self._weights(one["id"], head)[0, 1:] for head in range(one["heads"])])
        head, key = divmod(int(rows.argmax()), rows.shape[1])
        return {"attention": one["id"], "head": head, "query": 0, "key": key + 1}

    # --- blobs -------------------------------------------------------------------------------------------------------

    def blob(self, name: str) -> bytes:
        """Work out the bytes of a name."""
        for pattern, make in BLOBS.items():
            if found := re.fullmatch(pattern, name):
                try:
                    return make(self, *(int(part) if part.isdecimal() else part for part in found.groups()))
                except (KeyError, IndexError):
                    break
        raise KeyError(name)

    def _weights(self, id: str, head: int) -> Tensor:
        if head >= self.by_id[id]["heads"]:
            raise KeyError(id)
        return self.looked(id).weights(range(head, head + 1))[0]

    def all_weights(self) -> bytes:
        """Every head of every attention."""
        if not self.attentions or not is_whole(self.attentions):
            raise KeyError("attention")
        return b"".join(f16(weights) for id in self.by_id for weights in self.looked(id).blocks())

    def weights(self, id: str, head: int) -> bytes:
        """One head."""
        if is_whole(self.attentions) or self.by_id[id]["pooled"] is not None:
            raise KeyError(id)
        return f16(self._weights(id, head))

    def pooled(self, id: str, head: int) -> bytes:
        """One head, as a smaller picture."""
        size = self.by_id[id]["pooled"]
        if size is None:
            raise KeyError(id)
        return max_pool(self._weights(id, head)[None], *size).tobytes()

    def overview(self) -> bytes:
        """Every head as a small picture."""
        if not self.attentions:
            raise KeyError("overview")
        return b"".join(one.thumbnails.tobytes() for one in self._surveys)

    def mask(self, name: str) -> bytes:
        """Who may look at whom."""
        id = next((id for id, one in self.by_id.items() if one["mask"] == name), "")
        return mask_bits(self.looked(id))

    def vectors(self, id: str, head: int) -> bytes:
        """What a head looks with and at, and what came of it."""
        looked = self.looked(id)
        key_head = looked.key_head(head)
        parts = [looked.query[0, head], looked.key[0, key_head], looked.value[0, key_head], looked.mixed[0, head]]
        score = looked.terms.score
        parts += [score.energy.weight] if isinstance(score, Additive) else []
        return b"".join(map(f32, parts))

    def input(self, id: str) -> bytes:
        """What queries are made of, and keys if that is something else."""
        one = self.by_id[id]
        queries = f32(self.captured.inputs[one["name"]])
        if one["queries"] == one["keys"]:
            return queries
        assert self.captured.memory is not None
        return queries + f32(self.captured.memory)

    def row(self, id: str, head: int, query: int) -> bytes:
        """How the weights of one query come about."""
        looked = self.looked(id)
        if head >= looked.heads or query >= looked.shape[0]:
            raise KeyError(id)
        together = looked.shape[0] * looked.row_size <= TOGETHER
        rows = range(looked.shape[0]) if together else range(query, query + 1)
        known, steps = self._last
        if steps is None or known != (id, head, rows):
            steps = looked.explain(range(head, head + 1), rows)
            self._last = (id, head, rows), steps
        parts = (steps.scores, steps.bias, steps.weights)
        return b"".join(f32(part[0, 0, query - rows.start]) for part in parts if part is not None)

    def hidden(self, sequence: str, layer: int) -> bytes:
        """The vectors of a sequence after a layer."""
        return f32(self.captured.hidden[sequence][layer])

    def next(self, row: int) -> bytes:
        """The scores of what follows a token."""
        if self.prepared.begin is None:
            raise KeyError(row)
        assert self.captured.below is not None
        return f32(vocabulary_scores(self.model, self.captured.below[row]))

    def vocabulary(self) -> bytes:
        """The tokens that can follow."""
        following = self._following()
        if following is None:
            raise KeyError("vocabulary")
        return encode_json([token_text(self.ready.tokenizer, id) for id in range(following["vocabulary"])])

    def position(self, number: int) -> bytes:
        """A table of positions."""
        return f32(self._positions[number].table)

    def similarity(self, number: int) -> bytes:
        """How alike positions are."""
        return f32(self._positions[number].similar)

    def image(self) -> bytes:
        """The image as the model sees it."""
        if self.prepared.picture is None:
            raise KeyError("image")
        return self.prepared.picture.png()

    def rollout(self) -> bytes:
        """Attention through all layers."""
        if not self._rolls():
            raise KeyError("rollout")
        return f16(rollout(self.looked(id).mean() for id in self.by_id))


NUMBER = "(0|[1-9][0-9]{0,8})"
ID = r"([a-z]+\.[1-9][0-9]*)"
BLOBS: dict[str, Callable[..., bytes]] = {
    r"attention/0\.f16": LiveRecording.all_weights,
    rf"attention/0/{ID}/{NUMBER}\.f16": LiveRecording.weights,
    rf"pooled/0/{ID}/{NUMBER}\.u8": LiveRecording.pooled,
    r"overview/0\.u8": LiveRecording.overview,
    r"mask/([a-z0-9-]+)\.bits": LiveRecording.mask,
    rf"vectors/{ID}/{NUMBER}\.f32": LiveRecording.vectors,
    rf"input/{ID}\.f32": LiveRecording.input,
    rf"row/{ID}/{NUMBER}/{NUMBER}\.f32": LiveRecording.row,
    rf"hidden/([a-z]+)/{NUMBER}\.f32": LiveRecording.hidden,
    rf"next/{NUMBER}\.f32": LiveRecording.next,
    r"vocabulary\.json": LiveRecording.vocabulary,
    rf"position/{NUMBER}\.f32": LiveRecording.position,
    rf"similarity/{NUMBER}\.f32": LiveRecording.similarity,
    r"image\.png": LiveRecording.image,
    r"rollout\.f16": LiveRecording.rollout,
}


def written_by(live: LiveRecording) -> list[Token]:
    """Give what a translator writes after each token that it reads: the target moved by one."""
    assert live.captured.below is not None
    following = int(vocabulary_scores(live.model, live.captured.below[-1:]).argmax())
    ids = [token["id"] for token in live.prepared.sequences["target"][1:]]
    return describe_tokens(live.ready.tokenizer, [*ids, following])


def f32(numbers: Tensor) -> bytes:
    """Write numbers as they are, four bytes each."""
    return numbers.detach().to("cpu", torch.float32).contiguous().numpy().astype("<f4", copy=False).tobytes()


def f16(numbers: Tensor) -> bytes:
    """Write numbers with three digits, two bytes each."""
    return numbers.detach().to("cpu", torch.float16).contiguous().numpy().astype("<f2", copy=False).tobytes()
