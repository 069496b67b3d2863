"""The supervisor's journal: what it must know again after its death, in the Ray cluster's own key-value store.

Rules that it keeps: what is not written here has been acknowledged to no rank, shown to no dispatcher and ordered of nobody
(write-ahead logging; Mohan et al., ARIES, 1992); whoever waits for a write shares it with all others that wait (group commit;
DeWitt et al., 1984); one write at a time, so that none overtakes a newer one; each supervisor writes below its number in office
(`fencing.py`), and one that has a successor ends with its next write. The store is the control service's (GCS): it outlives every
worker, and every node but the head's. Ray has no public name for it.
"""

import asyncio
import pickle
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from ...messages.event_buffer import Event, Spool
from ..ranks.placement_group import NAMESPACE
from . import fencing

#: At most one write in so many seconds: each costs the supervisor and the store about a millisecond of cores that may train.
SPARING_S: Final = 0.05
#: So long a write that nobody waits for waits for others to share it: the ranks of a gang end a step within so much of each other.
GATHER_S: Final = 0.03
#: A store that does not answer is asked again after so long: without it there is no cluster.
AGAIN_S: Final = 1.0


class Journal:
    """The newest state of one gang, and its events until the dispatcher has acknowledged them."""

    def __init__(self, gang: str, spool: Spool, state: Callable[[], bytes]) -> None:
        """`state()` is all that there is to know beside the spool's events, as it is between two awaits."""
        self.gang = gang
        self.spool = spool
        self.last = 0  # number of the newest event that is written
        self._state = state
        self._office = 0
        self._older: list[str] = []  # where predecessors wrote, until what still counts of it is written anew
        self._inherited: list[list[Event]] = []  # their batches
        self._batches: deque[tuple[int, int]] = deque()  # first and last number of each that is kept
        self._asked = self._written = 0
        self._writing: asyncio.Task[None] | None = None
        self._wrote_at = 0.0
        self._closed = False

    async def recall(self) -> bytes | None:
        """Take office. The state that the last predecessor wrote, and its events into the spool; None when nothing was written."""
        self._office = await _surely(lambda: fencing.take(self.gang))
        self._older, state, batches = await _surely(lambda: _read(self.gang, self._office))
        if state is None:
            return None
        last, remembered = pickle.loads(state)  # noqa: S301 - our own bytes, from where Ray keeps its own
        # Of a write that death cut short, a batch may be here that no state knows: it is not yet told.
        known = [batch for batch in map(pickle.loads, batches) if batch[-1]["seq"] <= last]
        self.last, self._inherited = last, known
        self.spool.refill([event for batch in known for event in batch], last)
        return bytes(remembered)

    async def settled(self, gather_s: float = 0.0) -> None:
        """Until everything that is known now is written; the write may wait `gather_s` for others to share it."""
        self._asked += 1
        mine = self._asked
        while self._written < mine:
            if self._writing is None or self._writing.done():
                self._writing = asyncio.get_running_loop().create_task(self._write(gather_s))
            await asyncio.shield(self._writing)  # who stops waiting does not stop the write

    async def close(self) -> None:
        """Forget all of it; nothing is written any more."""
        self._closed = True
        if self._writing:
            await asyncio.wait([self._writing])
        await _surely(lambda: erase(self.gang))

    async def _write(self, gather_s: float) -> None:
        await asyncio.sleep(max(gather_s, self._wrote_at + SPARING_S - time.monotonic()))
        asked, last = self._asked, self.spool.last
        kept = [event for batch in self._inherited if batch[-1]["seq"] > self.spool.acknowledged for event in batch]
        events = kept + self.spool.newer(self.last)
        state = pickle.dumps((last, self._state()))
        if not self._closed and not await _surely(lambda: self._put(state, events)):
            fencing.leave()
        self._written, self.last, self._wrote_at = asked, last, time.monotonic()
        self._inherited.clear()

    def _put(self, state: bytes, events: list[Event]) -> bool:
        """Events first: the state that counts them makes them valid. False when there is a successor, who may not have read this."""
        mine = _place(self.gang, self._office)
        if events:
            # Named after its first number, a batch takes the place of one that death has left without a state.
            _set(f"{mine}/events/{events[0]['seq']:015d}", pickle.dumps(events))
            self._batches.append((events[0]["seq"], events[-1]["seq"]))
        _set(f"{mine}/state", state)
        while self._batches and self._batches[0][1] <= self.spool.acknowledged:
            _delete(f"{mine}/events/{self._batches.popleft()[0]:015d}")
        if not fencing.holds(self.gang, self._office):
            return False
        while self._older:
            _delete(self._older.pop())
        return True


def erase(gang: str) -> None:
    """Forget a gang, if there is anything to forget."""
    _delete(f"{gang}/", by_prefix=True)


async def _surely(work: Callable[[], Any]) -> Any:
    from ray.exceptions import RayError

    while True:
        try:
            return await asyncio.to_thread(work)
        except RayError:
            await asyncio.sleep(AGAIN_S)


def _place(gang: str, number: int) -> str:
    return f"{gang}/{number:0{fencing.WIDTH}d}"


def _read(gang: str, number: int) -> tuple[list[str], bytes | None, list[bytes]]:
    """All keys of those before `number`; and of the last of them that wrote a state: that, and its batches of events, oldest first."""
    from ray.experimental import internal_kv

    older = sorted(key for key in _keys(f"{gang}/0") if key < _place(gang, number))
    states = [key for key in older if key.endswith("/state")]
    if not states:
        return older, None, []
    events = states[-1].removesuffix("state") + "events/"
    get: Callable[[str], Any] = lambda key: internal_kv._internal_kv_get(key, namespace=NAMESPACE)  # noqa: E731
    return older, get(states[-1]), [get(key) for key in older if key.startswith(events)]


def _keys(prefix: str) -> list[str]:
    from ray.experimental import internal_kv

    return [bytes(key).decode() for key in internal_kv._internal_kv_list(prefix, namespace=NAMESPACE)]


def _set(key: str, value: bytes) -> None:
    from ray.experimental import internal_kv

    internal_kv._internal_kv_put(key, value, namespace=NAMESPACE)


def _delete(key: str, by_prefix: bool = False) -> None:
    from ray.experimental import internal_kv

    internal_kv._internal_kv_del(key, del_by_prefix=by_prefix, namespace=NAMESPACE)
