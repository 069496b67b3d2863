"""A job's log: its lines page by page, and a search, which scans a bounded part of the log per request and returns how far it came.

A log may have any length, so no request searches or loads a whole one. A client that has not found enough asks again
after the position reached. A page is bounded in lines and bytes, a search in lines, bytes and seconds. It searches one part after the
other and checks the clock in between. A search has its own connection, so that other requests continue. Lines are compared with a pattern
in a thread, which checks the clock after each line.
"""

import asyncio
import time
from dataclasses import dataclass, field

from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from ..schemas.log import LogLine, Logs, LogSearchResult
from ..search_errors import SearchTooSlow
from ..store import log_search as search_rows
from ..store import logs as log_rows
from ..store.engine import Store
from ..store.log_search import Level, LogFilter, Size, Span, Stream
from .jobs import existing
from .log_pattern import LogPattern

__all__ = ["Level", "LogFilter", "Stream", "around", "line_of", "page", "search"]

#: Bytes of text at which a page of lines ends.
PAGE_BYTES = 4 << 20
#: What one request searches: at most this, ...
STRETCH = Size(lines=20_000, bytes=32 << 20)
#: ... and no further part after this many seconds.
STRETCH_S = 0.5
#: What one statement searches.
PART = Size(lines=2_000, bytes=1 << 20)
#: Seconds after which a statement that still runs is interrupted.
LIMIT_S = 5.0


async def page(
    store: Store, job: str, *, rank: int | None = None, after: int = 0, limit: int = 1000, tail: int | None = None
) -> Logs:
    """Log lines after position `after`, or the last `tail` ones, of one rank or all. Raises JobNotFound.

    They are fewer where `PAGE_BYTES` of text are reached: then `next` is set, or `tail` leaves out lines (`earlier`).
    """
    async with store.read() as tx:
        found = await existing(tx, job)
        if tail is None:
            rows, more = await log_rows.after(tx, found["id"], rank, after, Size(limit, PAGE_BYTES))
            earlier = False
        else:
            rows, earlier = await log_rows.before(tx, found["id"], rank, found["log_pos"] + 1, Size(tail, PAGE_BYTES))
            more = False
        removed = await log_rows.removed(tx, found)
    lines = [line_of(row) for row in rows]
    return Logs(lines=lines, next=lines[-1].position if more else None, earlier=earlier, removed=removed)


async def around(store: Store, job: str, position: int, *, rank: int | None = None, limit: int = 100) -> Logs:
    """Lines about position `position`, of one rank or all: half of `limit` before it, the rest from it on. Raises JobNotFound.

    They are fewer where half of `PAGE_BYTES` are reached, before it or from it on.
    """
    async with store.read() as tx:
        found = await existing(tx, job)
        half = PAGE_BYTES // 2
        before, earlier = await log_rows.before(tx, found["id"], rank, position, Size(limit // 2, half))
        rest, more = await log_rows.after(tx, found["id"], rank, position - 1, Size(limit - len(before), half))
        removed = await log_rows.removed(tx, found)
    lines = [line_of(each) for each in [*before, *rest]]
    return Logs(lines=lines, next=lines[-1].position if more else None, earlier=earlier, removed=removed)


async def search(store: Store, job: str, wanted: LogFilter, *, after: int = 0, limit: int = 100) -> LogSearchResult:
    """Lines of a job (id or name) that match, after position `after`, in order.

    Raises JobNotFound, InvalidPattern, TooManySearches, and SearchTooSlow where not even one part was looked through in time.
    """
    scan = _Scan(wanted, limit, after, LogPattern(wanted.text) if wanted.regex and wanted.text else None)
    try:
        async with store.search(LIMIT_S) as tx:
            await scan.run(tx, job)
    except TimeoutError:
        if scan.scanned_to == after:
            raise SearchTooSlow from None
    lines = [line_of(each) for each in scan.found]
    return LogSearchResult(lines=lines, scanned_to=scan.scanned_to, end=scan.end, done=scan.done, removed=scan.removed)


@dataclass
class _Scan:
    """The state of one search request."""

    wanted: LogFilter
    limit: int
    scanned_to: int  # everything up to this position was searched
    pattern: LogPattern | None = None
    end: int = 0  # the log's last position
    removed: int = 0
    done: bool = False
    found: list[RowMapping] = field(default_factory=list)

    async def run(self, tx: AsyncConnection, job: str) -> None:
        row = await existing(tx, job)
        self.end, self.removed = row["log_pos"], await log_rows.removed(tx, row)
        if "\0" in self.wanted.text:  # no stored line has it, and no database accepts it
            self._end()
            return
        left, end = STRETCH, time.monotonic() + STRETCH_S
        while (size := await self._part(tx, row["id"], Size(*map(min, PART, left)), end)) is not None:
            left -= size
            if left.empty or time.monotonic() > end:
                return

    async def _part(self, tx: AsyncConnection, job_id: str, most: Size, end: float) -> Size | None:
        """Search the next part. Returns its size, or None if the log has ended or enough was found.

        Comparing lines with a pattern ends at the time `end`.
        """
        part = await search_rows.next_part(tx, job_id, self.wanted.rank, Span(self.scanned_to, self.end), most)
        if part is None:
            self._end()
            return None
        span, size = part
        room = self.limit - len(self.found)
        if self.pattern is None:
            hits = await search_rows.matching(tx, job_id, self.wanted, span, room + 1)
        else:
            rows = await search_rows.matching(tx, job_id, self.wanted, span, most.lines)
            hits, read = await asyncio.to_thread(self.pattern.first, rows, room + 1, end)
            if read < len(rows):
                span = Span(span.after, rows[read - 1]["position"])
        self.found += hits[:room]
        if len(hits) > room:  # the rest is for the next request
            self.scanned_to = self.found[-1]["position"]
            return None
        self.scanned_to = span.until
        return size

    def _end(self) -> None:
        self.scanned_to, self.done = max(self.scanned_to, self.end), True


def line_of(row: RowMapping) -> LogLine:
    """A row of `logs` as the service returns it."""
    return LogLine(
        position=row["position"],
        rank=row["rank"],
        attempt=row["attempt"],
        line=row["line"],
        stream=row["stream"],
        text=row["text"],
        ts=row["ts"],
    )
