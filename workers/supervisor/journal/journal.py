"""The supervisor's journal: what its successor needs, in the Ray cluster's key-value store (`kv_store.py`).

Rules that it keeps: what is not written here was acknowledged to no rank, shown to no dispatcher and ordered from no actor
(write-ahead logging; Mohan et al., ARIES, 1992). All that wait for a write share it (group commit; DeWitt et al., 1984). One write
runs at a time, so that none overtakes a newer one. Each supervisor writes below its fencing epoch (`fencing.py`); one that has a
successor ends with its next write. What no successor needs is deleted after a write, for which only the next write waits. Whatever line
death comes at, each event that counts is in one batch at least.

A write is one batch with the new events and the whole state. The batch is JSON. The state's entry is a header, one line of JSON
with the version of the format, then the state's JSON, compressed: of a thousand ranks it is 45 kB instead of 500 kB.
"""

import asyncio
import json
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from ...messages.event_buffer import Event, Spool
from ..gang_state import VERSION, JournalUnreadable
from ..until_answered import until_answered
from . import fencing, kv_store
from .batches import Batch, joinable, joined

#: Seconds between two writes, at least: each costs the supervisor and the store about a millisecond of cores that may train.
SPARING_S: Final = 0.05
#: How many times as long as encoding the state took it rests before the next write, at least: the supervisor has its event loop for its
#: ranks. The state of 1,000 ranks takes about 20 ms, of 10,000 200 ms.
_REST: Final = 4
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
        self._own = 0  # number of the newest event that is written below this epoch
        self._batches: list[Batch] = []  # those below this epoch
        self._older: list[str] = []  # predecessors' places, until all of them that still counts is written again
        self._asked = self._written = 0
        self._writing: asyncio.Task[None] | None = None
        self._tidying: asyncio.Task[None] | None = None
        self._write_at = 0.0  # not before; of `time.monotonic`
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
        self.last = last
        self.spool.refill(_counted(batches, last), last)
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
        if self._tidying:
            await asyncio.wait([self._tidying])
        await until_answered(lambda: erase(self.gang))

    async def _write(self, gather_s: float) -> None:
        await asyncio.sleep(max(gather_s, self._write_at - time.monotonic()))
        if self._tidying:
            await self._tidying
        asked, last, events = self._asked, self.spool.last, self.spool.newer(self._own)
        began = time.monotonic()
        state = sealed(last, self._state())
        took = time.monotonic() - began
        if not self._closed:
            size = await until_answered(lambda: self._put(state, events))
            if size is None:
                fencing.exit_process()
            if events:
                self._batches.append(Batch(events[0]["seq"], last, size))
            self._own = last
            self._tidying = asyncio.get_running_loop().create_task(self._tidy())
        self._written, self.last = asked, last
        self._write_at = time.monotonic() + max(SPARING_S, _REST * took)

    def _put(self, state: bytes, events: list[Event]) -> int | None:
        """The batch's bytes. None when there is a successor, who may not have read this. Events first: the state makes them count."""
        batch = _dumps(events)
        if events:
            kv_store.put(self._key(events[0]["seq"]), batch)
        kv_store.put(f"{_place(self.gang, self._epoch)}/state", state)
        return len(batch) if fencing.is_current(self.gang, self._epoch) else None

    def _key(self, first: int) -> str:
        """Of the batch whose first event has this number."""
        return f"{_place(self.gang, self._epoch)}/events/{first:015d}"

    async def _tidy(self) -> None:
        """Delete what no successor needs any more, and join small batches."""
        acknowledged = [batch for batch in self._batches if batch.last <= self.spool.acknowledged]
        left = self._batches[len(acknowledged) :]
        runs = joinable(left)
        events = {run[0].first: self._events(run) for run in runs}
        gone = [*acknowledged, *(batch for run in runs for batch in run[1:])]
        if (gone or self._older) and not await until_answered(lambda: self._clear(events, gone)):
            fencing.exit_process()
        self._batches = joined(left, runs)
        self._older = []

    def _events(self, run: Sequence[Batch]) -> list[Event]:
        """What these batches have that is not acknowledged."""
        return [event for event in self.spool.newer(run[0].first - 1) if event["seq"] <= run[-1].last]

    def _clear(self, runs: Mapping[int, list[Event]], gone: Sequence[Batch]) -> bool:
        """Put `runs`, by their first numbers, then delete the batches `gone` and the older epochs. False when there is a successor.

        A successor that read a batch before it was put may not find the others afterwards. So they are deleted only if there was none.
        """
        for first, events in runs.items():
            kv_store.put(self._key(first), _dumps(events))
        if runs and not fencing.is_current(self.gang, self._epoch):
            return False
        for batch in gone:
            kv_store.delete(self._key(batch.first))
        for place in self._older:
            kv_store.delete_all(f"{place}/")
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
        if not events or not all(event.keys() == Event.__required_keys__ for event in events):
            raise ValueError("no list of events")
    except (ValueError, TypeError, AttributeError) as error:
        raise JournalUnreadable(f"a batch of the journal's events is corrupt: {error}") from error
    return events


def _counted(batches: list[bytes], last: int) -> list[Event]:
    """The events of these batches up to number `last`, each once."""
    found: list[Event] = []
    for batch in map(events_of, batches):
        # Death may have cut a write short after its batch: the state does not count it, so it was shown to no dispatcher.
        if batch[-1]["seq"] <= last:
            # Or a join: what was joined stands in its own batch, too.
            found += [event for event in batch if not found or event["seq"] > found[-1]["seq"]]
    return found


def _place(gang: str, epoch: int) -> str:
    return f"{gang}/{epoch:0{fencing.WIDTH}d}"


def _read(gang: str, epoch: int) -> tuple[list[str], bytes | None, list[bytes]]:
    """The places of epochs before `epoch`; and of the last of them with a state: that, and its batches of events, oldest first."""
    states = [key for key in _older(gang, epoch) if key.endswith("/state")]
    if not states:
        return _places(gang, _older(gang, epoch)), None, []
    # The state before the batches: a predecessor that still runs may write a batch, and a state that counts it, in between.
    state = kv_store.get(states[-1])
    events = states[-1].removesuffix("state") + "events/"
    older = _older(gang, epoch)
    batches = [kv_store.get(key) for key in older if key.startswith(events)]
    return _places(gang, older), state, [batch for batch in batches if batch is not None]


def _places(gang: str, keys: list[str]) -> list[str]:
    """Those below which the keys are, in order."""
    return sorted({key[: len(_place(gang, 0))] for key in keys})


def _older(gang: str, epoch: int) -> list[str]:
    """All keys of epochs before `epoch`, in order."""
    return sorted(key for key in kv_store.keys(f"{gang}/0") if key < _place(gang, epoch))
