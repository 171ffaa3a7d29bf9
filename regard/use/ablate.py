"""Ablation: the loss of a model without each of its heads (Michel et al. 2019; Voita et al. 2019)."""

import csv
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from io import StringIO
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.decode.engine import in_use
from regard.errors import NOT_FINITE, InputError
from regard.models.intervention import EditableAttention, Intervention, apply_interventions, find_places
from regard.models.introspection import AttentionRole
from regard.recipe_files import split_changes
from regard.tasks.task import Task
from regard.use.bundle import Bundle
from regard.use.evaluate import Say, open_task, shipped_files

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class HeadLoss:
    """The loss without one head of an attention, or without all of its heads (`head` is None)."""

    attention: str  # kind and layer: "cross.2", as `regard.intervene` takes it
    head: int | None  # from 0
    loss: float
    rise: float  # by which the loss is above that of the whole model; below 0: the head does harm

    @property
    def name(self) -> str:
        """The name of the head as the viewer shows it, from 1: "cross L2.H3"."""
        kind, layer = self.attention.split(".")
        return f"{kind} L{layer}" + (" (all heads)" if self.head is None else f".H{self.head + 1}")


@dataclass(frozen=True)
class Ablation:
    """The loss of a whole model, and without each head; single heads are sorted, the most important first."""

    model: str
    loss: float
    heads: list[HeadLoss]
    attentions: list[HeadLoss] = field(default_factory=list)  # without all heads of an attention, in their order
    missing: int = 0  # heads and attentions that were not measured, since the user stopped it
    read: list[str] = field(default_factory=list)  # how the files were read
    skipped: list[str] = field(default_factory=list)  # lines that were left out

    def __repr__(self) -> str:
        best = f"; most important: {self.heads[0].name}, {self.heads[0].rise:+.4g}" if self.heads else ""
        return f"<{self.model}: loss {self.loss:.4g}, without each of {len(self.heads)} heads{best}>"

    def as_table(self) -> dict[str, Any]:
        """Return everything as JSON has it."""
        return asdict(self)

    def as_csv(self) -> str:
        """Return a line for each head and for each attention: head is empty where all heads are off."""
        file = StringIO()
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["attention", "head", "name", "loss", "rise"])
        for one in (*self.heads, *self.attentions):
            writer.writerow([one.attention, "" if one.head is None else one.head, one.name, one.loss, one.rise])
        return file.getvalue()

    def figure(self) -> "Figure":
        """Draw the rise of the loss: a row for each attention, a column for each head."""
        from regard import draw

        names = list(dict.fromkeys(one.attention for one in sorted(self.heads, key=_order)))
        columns = max((one.head or 0 for one in self.heads), default=0) + 1
        rises = np.full((len(names), columns), np.nan)
        for one in self.heads:
            rises[names.index(one.attention), one.head] = one.rise
        rows = ["{} L{}".format(*name.split(".")) for name in names]
        title = f"Rise of the loss without each head (whole model: {self.loss:.4g})"
        return draw.head_scores(rises, rows, title=title, caption="rise of the loss")


def _order(one: HeadLoss) -> tuple[int, int]:
    kind, layer = one.attention.split(".")
    return ("encoder", "decoder", "cross", "self").index(kind), int(layer)


class HeadAblation:
    """A model and the data on which its heads are removed one by one."""

    def __init__(self, bundle: Bundle, files: Sequence[str] = (), say: Say = lambda text: None) -> None:
        bundle.need_weights("computes by itself and cannot be changed")
        places = find_places(bundle.model)
        self.roles = [role for role in bundle.model.attentions() if role.id in places]
        if not self.roles:
            raise InputError(f"{bundle.name}: is {bundle.model.description} without attention, so it has no heads")
        names, changes = split_changes(files)
        if changes and not names:
            raise InputError(f"{changes[0]!r} is for files, but none is named; name the files to measure the model on")
        names = names or shipped_files(bundle)
        self.bundle, self.task = bundle, open_task(bundle, names, changes, say)
        self.task.to(bundle.device)
        self.counts = {role.id: _heads(places[role.id]) for role in self.roles}
        self.read = [reading.heading() for reading in self.task.readings(names)] if names else []
        self.whole = _loss(self.task, bundle)
        if not isfinite(self.whole):
            raise InputError(f"{bundle.name}: {NOT_FINITE}")
        self.found: list[HeadLoss] = []

    @property
    def total(self) -> int:
        """How many measurements there are: one for each head, and one for each attention with several."""
        return sum(count + (count > 1) for count in self.counts.values())

    def measure(self) -> Iterator[HeadLoss]:
        """Measure the loss without each head, then without all heads of each attention."""
        for role in self.roles:
            for head in range(self.counts[role.id]):
                yield self._without(role, head)
        for role in self.roles:
            if self.counts[role.id] > 1:
                yield self._without(role, None)

    def _without(self, role: AttentionRole, head: int | None) -> HeadLoss:
        with apply_interventions(self.bundle.model, [Intervention(role.id, head, attention="zero")]):
            loss = _loss(self.task, self.bundle)
        self.found.append(HeadLoss(role.id, head, loss, loss - self.whole))
        return self.found[-1]

    def result(self) -> Ablation:
        """Return what was measured so far."""
        single = [one for one in self.found if one.head is not None]
        return Ablation(
            self.bundle.name,
            self.whole,
            sorted(single, key=lambda one: -one.rise),
            [one for one in self.found if one.head is None],
            self.total - len(self.found),
            self.read,
            self.task.skipped.report(),
        )


def _heads(place: object) -> int:
    assert isinstance(place, EditableAttention)
    return place.module.heads.heads


def _loss(task: Task, bundle: Bundle) -> float:
    with in_use(bundle.model):
        return task.within_memory(lambda: task.validation_loss(bundle.model))
