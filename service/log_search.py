"""Finds lines in a job's log, a stretch of it at a time: each question looks through a bounded number of lines, and says how far it came.

A log may have any length. So nobody waits for a whole one, and none is ever loaded: who has not found enough asks again after the place
that was reached.
"""

from typing import Final

from .jobs import existing, line_of
from .records import LogHits, LogPage
from .store import log_search as rows
from .store import logs as log_rows
from .store.engine import Store
from .store.log_search import Level, Wanted

__all__ = ["Level", "Wanted", "around", "search"]

#: Lines that one question looks through.
STRETCH: Final = 20_000


async def search(store: Store, job: str, wanted: Wanted, *, after: int = 0, limit: int = 100) -> LogHits:
    """Lines of a job (id or name) that match, after position `after`, in order. Raises JobNotFound."""
    async with store.read() as tx:
        row = await existing(tx, job)
        if "\0" in wanted.text:  # which no stored line has, and no database takes
            return LogHits([], max(row["log_pos"], after), row["log_pos"], True)
        reach = await rows.reach(tx, row["id"], wanted.rank, after, STRETCH)
        end = row["log_pos"] if reach is None else reach
        found = await rows.matching(tx, row["id"], wanted, after, end, limit + 1)
    lines = [line_of(each) for each in found[:limit]]
    looked = lines[-1].n if len(found) > limit else max(end, after)
    return LogHits(lines, looked, row["log_pos"], len(found) <= limit and reach is None)


async def around(store: Store, job: str, position: int, *, rank: int | None = None, limit: int = 100) -> LogPage:
    """Lines about position `position`, of one rank or all: half of `limit` before it, the rest from it on. Raises JobNotFound."""
    async with store.read() as tx:
        job_id = (await existing(tx, job))["id"]
        before = await rows.before(tx, job_id, rank, position, limit // 2)
        rest = await log_rows.after(tx, job_id, rank, position - 1, limit - len(before) + 1)
    lines = [line_of(each) for each in [*before, *rest]][:limit]
    return LogPage(lines, lines[-1].n if len(before) + len(rest) > limit else None)
