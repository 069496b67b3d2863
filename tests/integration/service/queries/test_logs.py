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


async def test_the_first_line_that_begins_with_a_text_is_of_its_rank_and_stream_and_after_the_position(
    store: Store, submit: Submit
) -> None:
    job = await submit()
    written = [
        (0, "exec", "a_b x"),
        (1, "exec", "a_b y"),
        (0, "stdout", "a_b z"),
        (0, "exec", " a_b"),
        (0, "exec", "a_b w"),
    ]
    rows = [
        {"attempt": 1, "rank": rank, "stream": stream, "line": i, "text": text, "ts": float(i)}
        for i, (rank, stream, text) in enumerate(written)
    ]
    async with store.write() as tx:
        await log_rows.append(tx, job.id, rows)

    async def first(begins: str, position: int, rank: int = 0) -> str | None:
        async with store.read() as tx:
            row = await log_rows.first_beginning(tx, job.id, rank, "exec", begins, position)
        return None if row is None else row["text"]

    assert [await first("a_b ", 0), await first("a_b ", 1), await first("a_b ", 5)] == ["a_b x", "a_b w", None]
    assert [await first("a_b ", 0, rank=1), await first("a%", 0), await first("aXb", 0)] == ["a_b y", None, None]
