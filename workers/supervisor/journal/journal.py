"""The supervisor's journal: what its successor needs, in the Ray cluster's key-value store (`kv_store.py`).

Rules that it keeps: what is not written here was acknowledged to no rank, shown to no dispatcher and ordered from no actor
(write-ahead logging; Mohan et al., ARIES, 1992). All that wait for a write share it (group commit; DeWitt et al., 1984). One write
runs at a time, so that none overtakes a newer one. Each supervisor writes below its fencing epoch (`fencing.py`); one that has a
successor ends with its next write.

A write is one batch with the new events and the whole state. The batch is JSON. The state's entry is a header, one line of JSON
with the version of the format, then the state's JSON, compressed: of a thousand ranks it is 45 kB instead of 500 kB.
"""

import asyncio
import json
import time
import zlib
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from ...messages.event_buffer import Event, Spool
from ..gang_state import VERSION, JournalUnreadable
from ..until_answered import until_answered
from . import fencing, kv_store

#: Seconds between two writes, at least: each costs the supervisor and the store about a millisecond of cores that may train.
SPARING_S: Final = 0.05
#: Seconds that a write waits for others to share it if no caller needs it at once. The ranks of a gang end a step within this time.
GATHER_S: Final = 0.03


class Journal:
    """The newest state of one gang, and its events until the dispatcher has acknowledged them."""

    def __init__(self, gang: str, spool: Spool, state: Callable[[], bytes]) -> None:
        """`state()` returns all that the successor needs beside the spool's events, as it is between two awaits."""
        self.gang = gang
        self.spool = spool
        self.last = 0  # number of the newest event that is written
        self._state = state
        self._epoch = 0
        self._older: list[str] = []  # predecessors' keys, until all of them that still counts is written again
        self._inherited: list[list[Event]] = []  # their batches
        self._batches: deque[tuple[int, int]] = deque()  # first and last number of each that is kept
        self._asked = self._written = 0
        self._writing: asyncio.Task[None] | None = None
        self._wrote_at = 0.0
        self._closed = False

    async def recall(self) -> bytes | None:
        """Acquire an epoch, and refill the spool. Returns the predecessor's state; None when nothing was written.

        Raises JournalUnreadable. The journal can be written then, and the spool is empty.
        """
        self._epoch = await until_answered(lambda: fencing.acquire_epoch(self.gang))
        self._older, state, batches = await until_answered(lambda: _read(self.gang, self._epoch))
        if state is None:
            return None
        last, predecessor = opened(state)
        # Death may have cut a write short after its batch: the state does not count it, so it was shown to no dispatcher.
        known = [batch for batch in map(events_of, batches) if batch[-1]["seq"] <= last]
        self.last, self._inherited = last, known
        self.spool.refill([event for batch in known for event in batch], last)
        return predecessor

    async def settled(self, gather_s: float = 0.0) -> None:
        """Returns when the present state is written; the write may wait `gather_s` for others to share it."""
        self._asked += 1
        mine = self._asked
        while self._written < mine:
            if self._writing is None or self._writing.done():
                self._writing = asyncio.get_running_loop().create_task(self._write(gather_s))
            await asyncio.shield(self._writing)  # a caller that stops waiting does not stop the write

    async def close(self) -> None:
        """Erase all of it; nothing is written any more."""
        self._closed = True
        if self._writing:
            await asyncio.wait([self._writing])
        await until_answered(lambda: erase(self.gang))

    async def _write(self, gather_s: float) -> None:
        await asyncio.sleep(max(gather_s, self._wrote_at + SPARING_S - time.monotonic()))
        asked, last = self._asked, self.spool.last
        kept = [event for batch in self._inherited if batch[-1]["seq"] > self.spool.acknowledged for event in batch]
        events = kept + self.spool.newer(self.last)
        state = sealed(last, self._state())
        if not self._closed and not await until_answered(lambda: self._put(state, events)):
            fencing.exit_process()
        self._written, self.last, self._wrote_at = asked, last, time.monotonic()
        self._inherited.clear()

    def _put(self, state: bytes, events: list[Event]) -> bool:
        """Events first: the state that counts them makes them valid. False when there is a successor, who may not have read this."""
        mine = _place(self.gang, self._epoch)
        if events:
            # Its key is its first number, so that it replaces a batch that death has left without a state.
            kv_store.put(f"{mine}/events/{events[0]['seq']:015d}", _dumps(events))
            self._batches.append((events[0]["seq"], events[-1]["seq"]))
        kv_store.put(f"{mine}/state", state)
        while self._batches and self._batches[0][1] <= self.spool.acknowledged:
            kv_store.delete(f"{mine}/events/{self._batches.popleft()[0]:015d}")
        if not fencing.is_current(self.gang, self._epoch):
            return False
        while self._older:
            kv_store.delete(self._older.pop())
        return True


def erase(gang: str) -> None:
    """Delete a gang's journal, if there is one."""
    kv_store.delete_all(f"{gang}/")


def _dumps(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def sealed(last: int, state: bytes) -> bytes:
    """The entry of a state that counts events up to number `last`."""
    return _dumps({"version": VERSION, "last": last}) + b"\n" + zlib.compress(state, level=1)


def opened(entry: bytes) -> tuple[int, bytes]:
    """The number of the newest event that an entry counts, and its state. Raises JournalUnreadable."""
    first, _, state = entry.partition(b"\n")
    try:
        header = json.loads(first)
        version, last = header["version"], int(header["last"])
    except (ValueError, TypeError, KeyError) as error:
        raise JournalUnreadable("the journal's first line names no version") from error
    if version not in range(1, VERSION + 1):
        raise JournalUnreadable(f"the journal has version {version}; this supervisor reads versions 1 to {VERSION}")
    try:
        return last, zlib.decompress(state)
    except zlib.error as error:
        raise JournalUnreadable(f"the journal's state is corrupt: {error}") from error


def events_of(batch: bytes) -> list[Event]:
    """A batch of events. Raises JournalUnreadable."""
    try:
        events: list[Event] = json.loads(batch)
        if not events or not all(event.keys() == Event.__annotations__.keys() for event in events):
            raise ValueError("no list of events")
    except (ValueError, TypeError, AttributeError) as error:
        raise JournalUnreadable(f"a batch of the journal's events is corrupt: {error}") from error
    return events


def _place(gang: str, epoch: int) -> str:
    return f"{gang}/{epoch:0{fencing.WIDTH}d}"


def _read(gang: str, epoch: int) -> tuple[list[str], bytes | None, list[bytes]]:
    """All keys of epochs before `epoch`; and of the last of them with a state: that, and its batches of events, oldest first."""
    states = [key for key in _older(gang, epoch) if key.endswith("/state")]
    if not states:
        return _older(gang, epoch), None, []
    # The state before the batches: a predecessor that still runs may write a batch, and a state that counts it, in between.
    state = kv_store.get(states[-1])
    events = states[-1].removesuffix("state") + "events/"
    older = _older(gang, epoch)
    batches = [kv_store.get(key) for key in older if key.startswith(events)]
    return older, state, [batch for batch in batches if batch is not None]


def _older(gang: str, epoch: int) -> list[str]:
    """All keys of epochs before `epoch`, in order."""
    return sorted(key for key in kv_store.keys(f"{gang}/0") if key < _place(gang, epoch))
