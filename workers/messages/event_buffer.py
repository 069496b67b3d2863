"""Buffers a gang's events, numbered from 1 without a gap, until the receiver has acknowledged them.

Everything in an event is plain JSON: a number that is not finite becomes null, because JSON and databases have no NaN.
"""

import asyncio
import json
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterable
from itertools import accumulate, islice, takewhile
from typing import Any, Final, NotRequired, TypedDict

from .event import StepEvent, read, sanitize

#: Bytes of events in one answer, which holds at least one event. A thousand events of a trace may take a hundred megabytes, and the
#: receiver has room for little more than this.
MOST_BYTES: Final = 1 << 20


class Event(TypedDict):
    seq: int
    ts: float  # unix seconds, of the machine that saw it
    kind: str
    data: dict[str, Any]
    now: NotRequired[float]  # in a rank's answer: when it was sent, by the same clock


#: One step of several ranks: rank → its record.
Ranks = dict[int, dict[str, Any]]


class Spool:
    """Events in order, until they are acknowledged. Bounded: callers of `add` check `full` first, and await `room`."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.last = 0  # number of the newest event
        self._kept: deque[tuple[Event, int]] = deque()
        self._bytes = 0
        self._urgent = 0
        self._waiting: dict[asyncio.Future[None], bool] = {}  # waiter → whether only an urgent event wakes it

    @property
    def full(self) -> bool:
        return self._bytes >= self.limit_bytes

    @property
    def half_full(self) -> bool:
        return self._bytes * 2 >= self.limit_bytes

    @property
    def acknowledged(self) -> int:
        """Number of the newest event that was acknowledged and dropped."""
        return self._kept[0][0]["seq"] - 1 if self._kept else self.last

    def add(self, kind: str, data: dict[str, Any], ts: float | None = None, urgent: bool = False) -> Event:
        """Number one event, keep it and return it. Never refused. An urgent event makes `wait` return without lingering."""
        self.last += 1
        event = Event(seq=self.last, ts=time.time() if ts is None else ts, kind=kind, data=sanitize(data))
        self._keep(event)
        if urgent:
            self._urgent = self.last
        self._wake(urgent)
        return event

    def _keep(self, event: Event) -> None:
        size = len(json.dumps(event["data"])) + 128
        self._kept.append((event, size))
        self._bytes += size

    def refill(self, events: Iterable[Event], last: int) -> None:
        """Take over the events that another spool had kept. The next event has the number `last` + 1."""
        for event in events:
            self._keep(event)
        self.last = self._urgent = last
        self._wake()

    def newer(self, than: int) -> list[Event]:
        """The kept events after number `than`. Acknowledges none."""
        events = [event for event, _ in takewhile(lambda kept: kept[0]["seq"] > than, reversed(self._kept))]
        return events[::-1]

    def take(self, after: int, most: int = 1000, most_bytes: int = MOST_BYTES) -> list[Event]:
        """The oldest events after number `after`, at least one if there are any. Acknowledges and drops those up to it."""
        while self._kept and self._kept[0][0]["seq"] <= after:
            self._bytes -= self._kept.popleft()[1]
        self._wake(urgent=False)
        sizes = accumulate(size for _, size in self._kept)
        fit = sum(1 for _ in takewhile(lambda size: size <= most_bytes, islice(sizes, most)))
        return [event for event, _ in islice(self._kept, max(1, fit))]

    async def wait(self, after: int, wait_s: float, linger_s: float = 0.0) -> None:
        """Wait at most `wait_s` for an event after `after`, then `linger_s` for more events, unless there is an urgent one."""
        if await self._until(lambda: self.last > after, wait_s):
            await self._until(lambda: self._urgent > after, linger_s, urgent=True)

    async def room(self, wait_s: float) -> bool:
        """Wait at most `wait_s` until the spool is not full; returns whether it has room."""
        return await self._until(lambda: not self.full, wait_s)

    async def _until(self, holds: Callable[[], bool], wait_s: float, urgent: bool = False) -> bool:
        """Returns whether `holds`. `urgent`: only an urgent event can make it hold, so other events do not wake this waiter."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_s
        while not holds() and (left := deadline - loop.time()) > 0:
            change: asyncio.Future[None] = loop.create_future()
            self._waiting[change] = urgent
            try:
                await asyncio.wait([change], timeout=left)
            finally:
                del self._waiting[change]
        return holds()

    def _wake(self, urgent: bool = True) -> None:
        for change, only_urgent in self._waiting.items():
            if not change.done() and (urgent or not only_urgent):
                change.set_result(None)


class Steps:
    """Gathers the ranks' `step` records, by rank: a step is whole once every rank that is there has reported it."""

    def __init__(self, world_size: int, most_open: int = 4096) -> None:
        self.world_size = world_size
        self.most_open = most_open  # a rank that never reports must not fill the memory
        self._open: dict[int, Ranks] = {}
        self._absent: set[int] = set()

    def add(self, rank: int, record: dict[str, Any]) -> list[Ranks]:
        """One rank's record; returns the step that this completes, or the oldest when too many are open."""
        step = int(record["step"])
        ranks = self._open.setdefault(step, {})
        ranks[rank] = record
        if self._is_whole(ranks):
            return [self._open.pop(step)]
        if len(self._open) > self.most_open:
            return [self._open.pop(min(self._open))]
        return []

    def leave(self, rank: int) -> list[Ranks]:
        """Expect no more records of `rank` until `rest`; returns the steps that are whole without it, in order."""
        self._absent.add(rank)
        whole = [step for step, ranks in sorted(self._open.items()) if self._is_whole(ranks)]
        return [self._open.pop(step) for step in whole]

    def _is_whole(self, ranks: Ranks) -> bool:
        return len(ranks) + len(self._absent - ranks.keys()) == self.world_size

    @property
    def open(self) -> dict[int, Ranks]:
        """Steps that some ranks have not reported yet."""
        return self._open

    def refill(self, steps: dict[int, Ranks]) -> None:
        """Take over the open steps of a predecessor."""
        self._open = steps

    def rest(self) -> list[Ranks]:
        """At the end: the steps that the leading rank finished and another rank never reported."""
        rest = [ranks for _, ranks in sorted(self._open.items()) if any(_of_job(record) for record in ranks.values())]
        self._open.clear()
        self._absent.clear()
        return rest


def merged(ranks: Ranks) -> StepEvent:
    """One step of several ranks: the full record (the one with a loss), the spread of its seconds, and its slowest rank.

    All ranks' seconds are about equal, as they wait for each other. So the slowest rank is the one that waited least, if that is known.
    """
    full = next((ranks[rank] for rank in sorted(ranks) if _of_job(ranks[rank])), ranks[min(ranks)])
    times = [float(record.get("step_s") or 0.0) for record in ranks.values()]
    spread = {"step_s_min": min(times), "step_s_median": statistics.median(times), "step_s_max": max(times)}
    return read(StepEvent, {"step_s": 0.0} | full | spread | {"slowest_rank": _slowest(ranks)})


def _of_job(record: dict[str, Any]) -> bool:
    """Whether the record has the numbers of the whole job. A loss that is not finite is left out, `skipped` never."""
    return "loss" in record or "skipped" in record


def _slowest(ranks: Ranks) -> int:
    known = all("busy_s" in record for record in ranks.values())
    return max(sorted(ranks), key=lambda rank: float(ranks[rank].get("busy_s" if known else "step_s") or 0.0))
