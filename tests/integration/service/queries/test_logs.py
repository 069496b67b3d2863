"""Log lines of a job by rank, by number and from the end, on both databases."""

from shardyard.service.queries import logs
from shardyard.service.store import logs as log_rows
from shardyard.service.store.engine import Store

from ..conftest import Submit


async def test_log_ranges_by_rank_and_from_the_end(store: Store, submit: Submit) -> None:
    job = await submit()
    rows = [
        {"attempt": 1, "rank": i % 2, "stream": "stdout", "line": i // 2, "text": f"line {i}", "ts": float(i)}
        for i in range(10)
    ]
    async with store.write() as tx:
        await log_rows.append(tx, job.id, rows)
    page = await logs.page(store, job.id, limit=4)
    assert ([line.position for line in page.lines], page.next) == ([1, 2, 3, 4], 4)
    page = await logs.page(store, job.id, after=4, limit=6)
    assert ([line.position for line in page.lines], page.next) == ([5, 6, 7, 8, 9, 10], None)
    page = await logs.page(store, job.id, rank=1, tail=2)
    assert [(line.position, line.line, line.text) for line in page.lines] == [(8, 3, "line 7"), (10, 4, "line 9")]
    assert (await logs.page(store, job.id, rank=7)).lines == []
