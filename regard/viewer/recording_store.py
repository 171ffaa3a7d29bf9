"""Shelf: the recordings that a viewer shows. Those that live keep a model busy and hold memory, so only some stay."""

from collections import OrderedDict
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from secrets import token_hex
from threading import Event, Lock
from typing import Any

from regard.viewer.recording import Recording, list_recordings

ROOM = 16


@dataclass(frozen=True)
class Entry:
    """A recording, what to hold while it works, and what the list says of it."""

    recording: Recording
    lock: AbstractContextManager[Any]
    about: dict[str, Any]
    bundled: bool = False


class RecordingStore:
    """Recordings by their ids: bundled ones for good, of the others as many as there is room for, those last used."""

    def __init__(self, bundled: Mapping[str, Recording], room: int = ROOM) -> None:
        self.room = room
        self._places = {
            about["id"]: Entry(bundled[about["id"]], nullcontext(), about, bundled=True)
            for about in list_recordings(bundled)
        }
        self._used: OrderedDict[str, None] = OrderedDict()  # those that may have to go; the last used is the last
        self._guard = Lock()
        self.seen = Event()  # when somebody has got a blob, which is what pictures are made of

    def put(self, recording: Recording, lock: AbstractContextManager[Any], *, keep: bool = False) -> str:
        """Take a recording; give its id. No viewer ever gave the same id before, so that a browser may remember it."""
        id = token_hex(6)
        (about,) = list_recordings({id: recording})
        with self._guard:
            self._places = {id: Entry(recording, lock, about), **self._places}
            if not keep:
                self._used[id] = None
            while len(self._used) > self.room:
                gone, _ = self._used.popitem(last=False)
                del self._places[gone]
        return id

    def find(self, id: str) -> Entry:
        """Give a recording, as one that is used; a KeyError if there is none."""
        with self._guard:
            if id in self._used:
                self._used.move_to_end(id)
            return self._places[id]

    def listing(self) -> list[dict[str, Any]]:
        """Say what there is: what was recorded last comes first, the bundled ones at the end."""
        with self._guard:
            return [place.about for place in self._places.values()]
