"""Work on any number of jobs and rows in bounded transactions, so that others wait for each only shortly."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final, Protocol

from sqlalchemy.ext.asyncio import AsyncConnection

from ..store.engine import Store

#: Jobs that are deleted, or read, in one transaction.
JOBS: Final = 100


class FindJobs(Protocol):
    """SQL that finds at most `limit` jobs after one: their ids, in order."""

    async def __call__(self, tx: AsyncConnection, *, after: str, limit: int) -> Sequence[str]: ...


async def job_ids(store: Store, find: FindJobs) -> AsyncIterator[str]:
    """The ids of all that are found, read in pages. No transaction is open while one is used."""
    after = ""
    while True:
        async with store.read() as tx:
            found = await find(tx, after=after, limit=JOBS)
        for after in found:
            yield after
        if len(found) < JOBS:
            return


async def repeat(store: Store, step: Callable[[AsyncConnection], Awaitable[bool]]) -> None:
    """Run a step, each time in a transaction of its own, until it returns that nothing may be left."""
    more = True
    while more:
        async with store.write() as tx:
            more = await step(tx)
