"""Log lines are found a stretch at a time, on both databases, and none is passed over; no other request waits for a search."""

import asyncio
import re
from collections.abc import Iterator
from typing import Any

import pytest
from harness.databases import POSTGRESQL_IN_FULL
from harness.patience import PATIENCE_S
from pytest import MonkeyPatch
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from shardyard.service.dispatch.event_ingest import ingest
from shardyard.service.errors import JobNotFound
from shardyard.service.queries import jobs, logs
from shardyard.service.queries.logs import LogFilter, Size, search
from shardyard.service.schemas.job import Job
from shardyard.service.search_errors import InvalidPattern, SearchTooSlow, TooManySearches
from shardyard.service.store import engine
from shardyard.service.store import log_search as rows
from shardyard.service.store.engine import Store
from shardyard.service.store.leases import Lease

from ..gang_events import event_batch, lines

COUNT = 200
#: A statement that does not end, of each database.
ENDLESS = {
    "sqlite": "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n",
    "postgresql": "SELECT pg_sleep(3600)",
}


@pytest.fixture(autouse=True)
def _no_hurry(monkeypatch: MonkeyPatch) -> None:
    """However slow the machine, no question ends early."""
    monkeypatch.setattr(logs, "STRETCH_S", 3600.0)
    monkeypatch.setattr(logs, "LIMIT_S", 3600.0)


def line(n: int) -> str:
    """Every 10th line warns, every 50th fails."""
    return f"ERROR: line {n} 100% of a_b" if n % 50 == 0 else f"UserWarning in {n}" if n % 10 == 0 else f"step {n}"


@pytest.fixture
async def written(store: Store, placed: tuple[Job, Lease]) -> Job:
    """Ranks 0 and 1 wrote by turns, a line per second from 1000 on."""
    job, lease = placed
    said = event_batch(*(lines(n // 2, line(n), rank=n % 2) for n in range(1, COUNT + 1)))
    await ingest(store, lease, 1, said)
    return job


async def found(store: Store, job: Job, limit: int = 7, **wanted: Any) -> tuple[list[str], int]:
    """All that is found, and in how many questions."""
    hits: list[str] = []
    after, questions = 0, 0
    while True:
        page = await search(store, job.id, LogFilter(**wanted), after=after, limit=limit)
        assert len(page.lines) <= limit and page.end == COUNT
        assert page.scanned_to > after or page.done
        hits += [each.text for each in page.lines]
        after, questions = page.scanned_to, questions + 1
        if page.done:
            assert after == COUNT
            return hits, questions


@pytest.mark.parametrize("stretch", [pytest.param(1, marks=pytest.mark.full), 13, 20_000])
async def test_every_line_that_matches_is_found_once(
    store: Store, written: Job, stretch: int, monkeypatch: MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "STRETCH", Size(stretch, 1 << 30))
    said = {n: line(n) for n in range(1, COUNT + 1)}
    cases: list[tuple[dict[str, Any], list[int]]] = [
        ({"text": "STEP 1"}, [n for n in said if said[n].startswith("step 1")]),
        ({"text": "line", "rank": 0}, [50, 100, 150, 200]),
        ({"text": "line", "rank": 1}, []),
        ({"text": "100%"}, [50, 100, 150, 200]),
        ({"text": "a%b"}, []),
        ({"text": "a_b"}, [50, 100, 150, 200]),
        ({"text": "axb"}, []),
        ({"level": "error"}, [50, 100, 150, 200]),
        ({"level": "warning"}, [n for n in said if n % 10 == 0]),
        ({"since": 1000.0 + 95, "until": 1000.0 + 104}, list(range(96, 106))),
        ({"text": "nul\0"}, []),
        ({}, list(said)),
    ]
    for wanted, expected in cases:
        hits, questions = await found(store, written, **wanted)
        assert hits == [said[n] for n in expected], wanted
        if "\0" not in wanted.get("text", ""):
            lines_of = COUNT // 2 if "rank" in wanted else COUNT
            assert questions <= lines_of // stretch + len(expected) // 7 + 2


PATTERNS = [
    r"^step 1\d*\b",
    r"line (50|200)",
    "LINE .5",
    r"\d{3}$",
    "a.b",
    "a_b|100%",
    "^$",
    "(?-i)Line",
    "",
    r"ü|ß|\[x\]",
]


@pytest.mark.parametrize("stretch", [pytest.param(1, marks=pytest.mark.full), 13, 20_000])
async def test_every_line_that_a_pattern_matches_is_found_once(
    store: Store, written: Job, stretch: int, monkeypatch: MonkeyPatch
) -> None:
    """As Python's own engine finds them."""
    monkeypatch.setattr(logs, "STRETCH", Size(stretch, 1 << 30))
    for pattern in PATTERNS:
        flags = re.IGNORECASE if not pattern.startswith("(?-i)") else re.NOFLAG
        theirs = re.compile(pattern.removeprefix("(?-i)"), flags)
        hits, _ = await found(store, written, text=pattern, regex=True)
        assert hits == [line(n) for n in range(1, COUNT + 1) if theirs.search(line(n))], pattern


@POSTGRESQL_IN_FULL
async def test_a_pattern_goes_with_the_other_conditions(store: Store, written: Job) -> None:
    hits, _ = await found(store, written, text=r"\d", regex=True, rank=0, level="warning", since=1040.0)
    expected, _ = await found(store, written, rank=0, level="warning", since=1040.0)
    assert hits == [text for text in expected if re.search(r"\d", text)] and hits


@POSTGRESQL_IN_FULL
async def test_a_search_by_pattern_stops_between_two_lines_when_its_time_is_over(
    store: Store, written: Job, monkeypatch: MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "STRETCH_S", -1.0)
    page = await search(store, written.id, LogFilter(text="line 200", regex=True))
    assert (page.lines, page.scanned_to, page.done) == ([], 1, False)
    page = await search(store, written.id, LogFilter(text="line 200", regex=True), after=COUNT - 1)
    assert ([each.text for each in page.lines], page.scanned_to) == ([line(COUNT)], COUNT)


#: Each takes a backtracking engine longer than the universe has existed, on a line of 8,000 equal letters.
HOSTILE = ["(a*)*b", "(a|aa)+$", "(a+)+(a+)+b", "^(([a-z])+.)+[A-Z]([a-z])+0$", r"(.*a){25}b"]


async def test_no_pattern_takes_more_than_linear_time(
    store: Store, placed: tuple[Job, Lease], monkeypatch: MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "LIMIT_S", PATIENCE_S)
    job, lease = placed
    await ingest(store, lease, 1, event_batch(lines(1, *["a" * 8000 + "!"] * 20, "aab")))
    for pattern in HOSTILE:
        page = await search(store, job.id, LogFilter(text=pattern, regex=True))
        assert page.done and len(page.lines) <= 1, pattern


@POSTGRESQL_IN_FULL
async def test_a_pattern_that_is_none_is_refused(store: Store, written: Job) -> None:
    for pattern in ("(", "a**", r"\1", "(?=x)", r"(\w{1,1000}){1,1000}"):
        with pytest.raises(InvalidPattern) as refused:
            await search(store, written.id, LogFilter(text=pattern, regex=True))
        assert refused.value.field == "text" and refused.value.remedy, pattern


@POSTGRESQL_IN_FULL
async def test_one_question_looks_through_a_stretch_and_no_further(
    store: Store, written: Job, monkeypatch: MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "STRETCH", Size(30, 1 << 30))
    page = await search(store, written.id, LogFilter(text="line 200"), after=0)
    assert (page.lines, page.scanned_to, page.done) == ([], 30, False)
    with pytest.raises(JobNotFound):
        await search(store, "absent", LogFilter())


@POSTGRESQL_IN_FULL
async def test_a_hit_is_shown_among_its_neighbours(store: Store, written: Job) -> None:
    page = await logs.around(store, written.id, 100, limit=10)
    assert [each.position for each in page.lines] == list(range(95, 105)) and page.next == 104
    page = await logs.around(store, written.id, 100, rank=0, limit=4)
    assert [each.position for each in page.lines] == [96, 98, 100, 102]
    first = await logs.around(store, written.id, 1, limit=10)
    assert [each.position for each in first.lines] == list(range(1, 11))
    last = await logs.around(store, written.id, COUNT, limit=10)
    assert [each.position for each in last.lines] == list(range(195, 201)) and last.next is None


async def test_case_is_that_of_ascii_and_nothing_has_a_meaning_of_its_own(
    store: Store, placed: tuple[Job, Lease]
) -> None:
    job, lease = placed
    said = ["ÄRGER AB", "ärger ab", "C:\\TEMP/x", "50%_*?[a]", "ﬁn 'quoted' \"both\""]
    await ingest(store, lease, 1, event_batch(lines(1, *said)))
    cases = {
        "ÄRGER": [0], "ärger": [1], "R AB": [0, 1], "c:\\temp": [2], "\\": [2], "/X": [2], "%_*": [3], "[A]": [3], "ﬁ": [4],
        "'": [4], "ß": [], "": [0, 1, 2, 3, 4],
    }  # fmt: skip
    for wanted, expected in cases.items():
        page = await search(store, job.id, LogFilter(text=wanted))
        assert [each.text for each in page.lines] == [said[n] for n in expected], wanted


@POSTGRESQL_IN_FULL
async def test_a_question_is_bounded_by_bytes_and_by_time(store: Store, written: Job, monkeypatch: MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "STRETCH", Size(COUNT, 60))
    page = await search(store, written.id, LogFilter(text="line 200"))
    sizes = [len(line(n)) for n in range(1, page.scanned_to + 1)]
    assert not page.done and sum(sizes[:-1]) < 60 <= sum(sizes)
    monkeypatch.setattr(logs, "STRETCH", Size(COUNT, 1 << 30))
    monkeypatch.setattr(logs, "PART", Size(10, 1 << 30))
    monkeypatch.setattr(logs, "STRETCH_S", 0.0)
    page = await search(store, written.id, LogFilter(text="line 200"), after=20)
    assert (page.lines, page.scanned_to, page.done) == ([], 30, False)
    assert (await found(store, written, text="LINE"))[0] == [line(n) for n in (50, 100, 150, 200)]


class Endless:
    """From the second part of a log on, a search does not end by itself."""

    def __init__(self) -> None:
        self.parts = 0
        self.begun = asyncio.Event()

    async def matching(self, tx: AsyncConnection, *_: Any) -> Any:
        self.parts += 1
        if self.parts == 1:
            return []
        self.begun.set()
        await tx.execute(text(ENDLESS[tx.dialect.name]))
        raise AssertionError("it has ended")


@pytest.fixture
def endless(monkeypatch: MonkeyPatch) -> Iterator[Endless]:
    made = Endless()
    monkeypatch.setattr(logs, "PART", Size(10, 1 << 30))
    monkeypatch.setattr(rows, "matching", made.matching)
    yield made


async def begin(store: Store, job: Job, endless: Endless) -> "asyncio.Task[Any]":
    endless.begun.clear()
    searching = asyncio.create_task(search(store, job.id, LogFilter(text="line")))
    await endless.begun.wait()
    while store.dialect == "postgresql" and not await sleeps(store):  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    return searching


async def sleeps(store: Store) -> bool:
    """Whether PostgreSQL runs the endless statement."""
    if store.dialect == "sqlite":
        return False
    running = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%' AND state = 'active'"
    async with store.read() as tx:
        return bool((await tx.execute(text(running))).scalar_one())


async def test_others_read_and_write_while_a_search_goes_on(
    store: Store, written: Job, placed: tuple[Job, Lease], endless: Endless
) -> None:
    searching = await begin(store, written, endless)
    async with asyncio.timeout(PATIENCE_S):
        assert [job.id for job in (await jobs.list_jobs(store)).items] == [written.id]
        await ingest(store, placed[1], 1, event_batch(*(lines(n, "more", rank=2) for n in range(1, COUNT + 2))))
        assert (await logs.page(store, written.id, tail=1)).lines[0].text == "more"
    assert not searching.done()
    searching.cancel()
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(searching, return_exceptions=True)


async def test_a_search_that_is_left_ends_in_the_database_too(store: Store, written: Job, endless: Endless) -> None:
    for _ in range(3):  # more than there are connections for searches
        endless.parts = 1
        searching = await begin(store, written, endless)
        searching.cancel()
        async with asyncio.timeout(PATIENCE_S):
            [ended] = await asyncio.gather(searching, return_exceptions=True)
        assert isinstance(ended, asyncio.CancelledError)
        assert not await sleeps(store)


async def test_a_statement_that_takes_too_long_is_interrupted(
    store: Store, written: Job, endless: Endless, monkeypatch: MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "LIMIT_S", 0.05)
    endless.parts = 1
    with pytest.raises(SearchTooSlow):
        await search(store, written.id, LogFilter(text="line"))


@POSTGRESQL_IN_FULL
async def test_what_was_looked_through_before_an_interruption_counts(
    store: Store, written: Job, monkeypatch: MonkeyPatch
) -> None:
    async def matching(_tx: AsyncConnection, _job: str, _wanted: LogFilter, span: rows.Span, _limit: int) -> list[Any]:
        if span.after:
            raise TimeoutError
        return []

    monkeypatch.setattr(logs, "PART", Size(10, 1 << 30))
    monkeypatch.setattr(rows, "matching", matching)
    page = await search(store, written.id, LogFilter(text="line"))
    assert (page.lines, page.scanned_to, page.done) == ([], 10, False)


@POSTGRESQL_IN_FULL
async def test_a_few_searches_run_at_once_and_others_wait_for_their_turn(
    store: Store, written: Job, monkeypatch: MonkeyPatch
) -> None:
    held, begun = asyncio.Event(), asyncio.Semaphore(0)

    async def matching(*_: Any) -> list[Any]:
        begun.release()
        await held.wait()
        return []

    monkeypatch.setattr(rows, "matching", matching)
    running = [asyncio.create_task(search(store, written.id, LogFilter(text="line"))) for _ in range(engine.SEARCHES)]
    for _ in running:
        await begun.acquire()
    monkeypatch.setattr(engine, "SEARCH_TURN_S", 0.0)
    with pytest.raises(TooManySearches):
        await search(store, written.id, LogFilter(text="line"))
    monkeypatch.setattr(engine, "SEARCH_TURN_S", 3600.0)
    waiting = asyncio.create_task(search(store, written.id, LogFilter(text="line")))
    await asyncio.sleep(0)
    assert not waiting.done() and begun.locked()
    held.set()
    async with asyncio.timeout(PATIENCE_S):
        assert all(page.done for page in await asyncio.gather(waiting, *running))
