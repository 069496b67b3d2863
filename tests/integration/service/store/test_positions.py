"""Positions in the stream of a job follow the order of commits."""

import asyncio

from shardyard.service.queries import live_tail
from shardyard.service.schemas.cursor import Cursor
from shardyard.service.store.engine import Store

from ..conftest import Submit
from ..queries.test_jobs import _fill_steps


async def test_positions_are_seen_in_the_order_of_their_commits(
    store: Store, database_url: str, submit: Submit
) -> None:
    """Writers and a reader at once: whatever the reader has passed, nothing appears behind it."""
    job = await submit()
    other = Store(database_url)
    reading, seen = True, list[int]()

    async def write(to: Store, base: int) -> None:
        for i in range(15):
            await _fill_steps(to, job.id, {base + 2 * i: 1.0, base + 2 * i + 1: 1.0})

    async def read() -> None:
        cursor, over = Cursor(), False
        while not over:
            last = not reading  # what is asked from now on sees every commit
            tail = await live_tail.tail(store, job.id, cursor)
            seen.extend(item.data["step"] for item in tail.items if item.kind == "step")
            over, cursor = last and tail.cursor == cursor, tail.cursor
            await asyncio.sleep(0)

    reader = asyncio.create_task(read())
    try:
        await asyncio.gather(write(store, 1), write(other, 1001))
    finally:
        reading = False
        await reader
        await other.close()
    assert sorted(seen) == [*range(1, 31), *range(1001, 1031)]
