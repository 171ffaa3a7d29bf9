"""RecordingStore: the recordings that a server holds. Live recordings use memory, so only the last used are kept."""

from collections import OrderedDict
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from secrets import token_hex
from threading import Event, Lock
from typing import Any

from regard.viewer.manifest import RecordingInfo
from regard.viewer.recording import Recording, list_recordings

CAPACITY = 16


@dataclass(frozen=True)
class StoreEntry:
    """A recording, the lock to hold while it computes, and what the list says of it."""

    recording: Recording
    lock: AbstractContextManager[Any]
    info: RecordingInfo
    bundled: bool = False
    listed: bool = True


class RecordingStore:
    """Recordings by their ids. Those bundled or put with `keep` stay; of the others, the last used `capacity`.

    Those that are not listed (of changed models) are counted separately: they never replace one that is.
    """

    def __init__(self, bundled: Mapping[str, Recording], capacity: int = CAPACITY) -> None:
        self.capacity = capacity
        self._entries = {
            info["id"]: StoreEntry(bundled[info["id"]], nullcontext(), info, bundled=True)
            for info in list_recordings(bundled)
        }
        # Ids that may be dropped, by whether they are listed; the last used is the last.
        self._used: dict[bool, OrderedDict[str, None]] = {True: OrderedDict(), False: OrderedDict()}
        self._lock = Lock()
        self.seen = Event()  # set when a blob was requested, so a browser has drawn a picture

    def put(
        self,
        recording: Recording,
        lock: AbstractContextManager[Any],
        *,
        keep: bool = False,
        after: str | None = None,
        listed: bool = True,
    ) -> str:
        """Add a recording and return its id, which is random, so that browsers may cache blobs by it.

        It is listed first, or directly `after` another one, or not at all.
        """
        id = token_hex(6)
        (info,) = list_recordings({id: recording})
        with self._lock:
            ids = list(self._entries)
            ids.insert(ids.index(after) + 1 if after in self._entries else 0, id)
            self._entries[id] = StoreEntry(recording, lock, info, listed=listed)
            self._entries = {each: self._entries[each] for each in ids}
            used = self._used[listed]
            if not keep:
                used[id] = None
            while len(used) > self.capacity:
                dropped, _ = used.popitem(last=False)
                del self._entries[dropped]
        return id

    def find(self, id: str) -> StoreEntry:
        """Return a recording and mark it as used; raise a KeyError if it does not exist."""
        with self._lock:
            entry = self._entries[id]
            if id in self._used[entry.listed]:
                self._used[entry.listed].move_to_end(id)
            return entry

    def listing(self) -> list[RecordingInfo]:
        """List the recordings: the newest first (but see `put`), the bundled ones last."""
        with self._lock:
            return [entry.info for entry in self._entries.values() if entry.listed]
