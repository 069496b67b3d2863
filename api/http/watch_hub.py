"""Live streams: a watcher reads the store at its own pace; one shared poller notifies it when there is news.

Only the batch that a watcher is sending is buffered: a slow watcher delays no other. The poller runs one query for the positions of
all watched jobs, and only while there are watchers. Watchers at the same position of a job, such as pages that are up to date,
share one read and its text (`single_flight.py`).
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Hashable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial

from fastapi.responses import StreamingResponse
from fastapi.sse import format_sse_event
from pydantic_core import to_json
from starlette.types import Receive, Scope, Send

from ...service.cancellation import check_cancelled
from ...service.database_errors import DatabaseError
from ...service.failure_log import FailureLog
from ...service.schemas.cursor import Cursor
from ...service.schemas.live_tail import Tail, TailItem
from .single_flight import SharedReads

log = logging.getLogger(__name__)

#: Seconds between two polls of the watched jobs' positions.
POLL_S = 0.1
#: Seconds before the next try if the database cannot serve.
_AWAY_S = 1.0
#: Seconds of silence after which a comment shows both ends that the connection works.
HEARTBEAT_S = 10.0
#: Milliseconds after which a browser's EventSource reconnects.
_RETRY_MS = 1000

Positions = Callable[[Collection[str]], Awaitable[Mapping[str, Hashable]]]
Read = Callable[[Cursor], Awaitable[Tail]]


@dataclass(frozen=True)
class Batch:
    """The result of a read, as it is sent."""

    text: bytes  # empty: there is no news
    cursor: Cursor
    done: bool


class Watch:
    """One watcher's notifier. `closed`: the server ends, and the watcher must reconnect."""

    def __init__(self) -> None:
        self._news = asyncio.Event()
        self.closed = False

    def ring(self) -> None:
        self._news.set()

    def close(self) -> None:
        self.closed = True
        self._news.set()

    def clear(self) -> None:
        """Called before reading: every later change notifies again."""
        if not self.closed:
            self._news.clear()

    async def wait(self, seconds: float) -> bool:
        """Whether a notification came within `seconds`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._news.wait()
        return self._news.is_set()


class Hub:
    """Notifies each watcher whose job moved. One per process; `positions` returns a comparable value per watched job."""

    def __init__(self, positions: Positions, interval_s: float = POLL_S) -> None:
        self._positions = positions
        self._interval_s = interval_s
        self._watches: dict[str, set[Watch]] = {}
        self._seen: dict[str, Hashable] = {}
        self._reads = SharedReads[Batch]()
        self._poller: asyncio.Task[None] | None = None

    @property
    def watched(self) -> int:
        """The number of watchers."""
        return sum(len(watches) for watches in self._watches.values())

    @property
    def polling(self) -> bool:
        return self._poller is not None

    @asynccontextmanager
    async def watch(self, job: str) -> AsyncIterator[Watch]:
        watch = Watch()
        self._watches.setdefault(job, set()).add(watch)
        if self._poller is None:
            self._poller = asyncio.create_task(self._poll(), name="watched jobs' positions")
        try:
            yield watch
        finally:
            self._forget(job, watch)

    async def batch(self, job: str, cursor: Cursor, scope: Hashable, read: Read) -> Batch:
        """The events after `cursor`. Shared by all with the same `scope` until the poller sees the job move again."""
        seen, fetch = self._seen.get(job), partial(_batch, read, cursor)
        return await (fetch() if seen is None else self._reads.of((job, seen, scope, cursor), fetch))

    def _forget(self, job: str, watch: Watch) -> None:
        self._watches[job].discard(watch)
        if not self._watches[job]:
            del self._watches[job]
            self._seen.pop(job, None)
            self._reads.forget(lambda key: isinstance(key, tuple) and key[0] == job)
        if not self._watches and self._poller is not None:
            self._poller.cancel()
            self._poller = None

    def close(self) -> None:
        """End every stream, so that the server can stop."""
        for watches in self._watches.values():
            for watch in watches:
                watch.close()

    async def _poll(self) -> None:
        failures = FailureLog(log)
        while True:
            check_cancelled()
            await asyncio.sleep(self._interval_s)
            try:
                positions = await self._positions(tuple(self._watches))
            except DatabaseError:  # logged by the store
                await asyncio.sleep(_AWAY_S)
                continue
            except Exception as error:  # noqa: BLE001  (top of a background task: every stream depends on it)
                failures.failed(type(error).__name__, "the positions of watched jobs could not be read", error)
                await asyncio.sleep(_AWAY_S)
                continue
            for job, position in positions.items():
                if job in self._watches and self._seen.get(job) != position:
                    self._seen[job] = position
                    for watch in self._watches.get(job, ()):
                        watch.ring()


class EventStream(StreamingResponse):
    """Server-sent events of one job after a cursor; ends with the event `end` after the last event of an ended job."""

    def __init__(self, hub: Hub, job: str, read: Read, cursor: Cursor, scope: Hashable = None) -> None:
        """`scope`: identifies what `read` leaves out or includes; streams with an equal scope read the same."""
        # X-Accel-Buffering: a proxy such as nginx must not hold events back
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(iter(()), headers=headers, media_type="text/event-stream")
        self._hub, self._job, self._read, self._cursor, self._scope = hub, job, read, cursor, scope

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._hub.watch(self._job) as watch, aclosing(self._records(watch)) as records:
            self.body_iterator = records
            await super().__call__(scope, receive, send)

    async def _records(self, watch: Watch) -> AsyncGenerator[bytes, None]:
        """A heartbeat comes after `HEARTBEAT_S` in which nothing was sent, also if there is news that this stream leaves out."""
        now = asyncio.get_running_loop().time
        yield format_sse_event(comment="shardyard", retry=_RETRY_MS)
        cursor, sent = self._cursor, now()
        while not watch.closed:
            watch.clear()
            try:
                batch = await self._hub.batch(self._job, cursor, self._scope, self._read)
            except (
                DatabaseError
            ):  # logged by the store; the stream continues from its cursor when the database serves again
                await watch.wait(_AWAY_S)
                yield format_sse_event(comment="the database does not serve")
                sent = now()
                continue
            cursor = batch.cursor
            if batch.text:
                yield batch.text
                sent = now()
            if batch.done:
                yield format_sse_event(event="end", data_str="{}", id=str(cursor))
                return
            if not batch.text:
                rung = await watch.wait(HEARTBEAT_S - (now() - sent))
                if not rung or now() - sent >= HEARTBEAT_S:
                    yield format_sse_event(comment="heartbeat")
                    sent = now()


async def _batch(read: Read, cursor: Cursor) -> Batch:
    tail = await read(cursor)
    return Batch(b"".join(map(_record, tail.items)), tail.cursor, tail.done)


def _record(item: TailItem) -> bytes:
    data = to_json({**item.data, "ts": item.ts}, inf_nan_mode="null").decode()
    return format_sse_event(event=item.kind, data_str=data, id=str(item.cursor))
