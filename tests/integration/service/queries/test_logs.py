"""Log lines of a job by rank, by number and from the end, on both databases."""

import pytest

from shardyard.service.queries import live_tail, logs
from shardyard.service.schemas.cursor import Cursor
from shardyard.service.schemas.live_tail import Scope
from shardyard.service.store import logs as log_rows
from shardyard.service.store.engine import Store

from ..conftest import Submit

LONG, COUNT = 8192, 2000


@pytest.fixture
async def long_lines(store: Store, submit: Submit) -> str:
    """A job whose lines are as long as lines can be, of two ranks by turns."""
    job, same = await submit(), {"attempt": 1, "stream": "stdout"}
    async with store.write() as tx:
        for n in range(0, COUNT, 500):
            lines = range(n, n + 500)
            rows = [
                {**same, "rank": i % 2, "line": i // 2, "text": chr(97 + i % 26) * LONG, "ts": i / 100} for i in lines
            ]
            await log_rows.append(tx, job.id, rows)
    return job.id


@pytest.mark.parametrize("rank", [None, 1])
async def test_pages_of_long_lines_are_bounded_and_have_every_line_once(
    store: Store, long_lines: str, rank: int | None
) -> None:
    seen: list[int] = []
    after: int | None = 0
    while after is not None:
        page = await logs.page(store, long_lines, rank=rank, after=after, limit=10_000)
        assert sum(len(line.text) for line in page.lines) < logs.PAGE_BYTES + LONG
        seen += [line.position for line in page.lines]
        after = page.next
    step = 1 if rank is None else 2
    assert seen == [*range(step, COUNT + 1, step)]
    fit = logs.PAGE_BYTES // LONG
    newest = await logs.page(store, long_lines, rank=rank, tail=10_000)
    assert [line.position for line in newest.lines] == seen[-fit:]
    assert newest.next is None and newest.earlier
    about = await logs.around(store, long_lines, 1000, rank=rank, limit=10_000)
    place = seen.index(1000)
    assert [line.position for line in about.lines] == seen[place - fit // 2 : place + fit // 2]
    assert about.next == about.lines[-1].position and about.earlier


async def test_a_batch_of_a_stream_is_bounded_and_the_stream_has_every_line_once(store: Store, long_lines: str) -> None:
    cursor, seen = Cursor(), []
    while (batch := await live_tail.tail(store, long_lines, cursor, Scope(logs=True))).items:
        texts = [item.data for item in batch.items if item.kind == "log"]
        assert sum(len(line["text"]) for line in texts) < live_tail.LOG_BYTES + LONG and not batch.done
        seen += [line["position"] for line in texts]
        cursor = batch.cursor
    assert seen == [*range(1, COUNT + 1)]


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
    tails = [await logs.page(store, job.id, rank=1, tail=tail) for tail in (4, 5, 6)]
    assert [(len(page.lines), page.earlier) for page in tails] == [(4, True), (5, False), (5, False)]
    abouts = [await logs.around(store, job.id, position, rank=1, limit=4) for position in (6, 8)]
    assert [(page.lines[0].position, page.earlier) for page in abouts] == [(2, False), (4, True)]
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
