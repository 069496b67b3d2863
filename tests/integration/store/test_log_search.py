"""Log lines are found a stretch at a time, on both databases, and none is passed over."""

from typing import Any

import pytest
from pytest import MonkeyPatch

from shardyard.service import log_search
from shardyard.service.errors import JobNotFound
from shardyard.service.intake import take_in
from shardyard.service.log_search import Wanted, search
from shardyard.service.records import Job
from shardyard.service.store.engine import Store
from shardyard.service.store.leases import Lease

from .test_intake import lines, placed, told

__all__ = ["placed"]  # a fixture

COUNT = 200


def line(n: int) -> str:
    """Every 10th line warns, every 50th fails."""
    return f"ERROR: line {n} 100% of a_b" if n % 50 == 0 else f"UserWarning in {n}" if n % 10 == 0 else f"step {n}"


@pytest.fixture
async def written(store: Store, placed: tuple[Job, Lease]) -> Job:
    """Ranks 0 and 1 wrote by turns, a line per second from 1000 on."""
    job, lease = placed
    said = told(*(lines(n // 2, line(n), rank=n % 2) for n in range(1, COUNT + 1)))
    await take_in(store, lease, 1, said)
    return job


async def found(store: Store, job: Job, limit: int = 7, **wanted: Any) -> tuple[list[str], int]:
    """All that is found, and in how many questions."""
    hits: list[str] = []
    after, questions = 0, 0
    while True:
        page = await search(store, job.id, Wanted(**wanted), after=after, limit=limit)
        assert len(page.lines) <= limit and page.last == COUNT
        assert page.looked > after or page.done
        hits += [each.text for each in page.lines]
        after, questions = page.looked, questions + 1
        if page.done:
            assert after == COUNT
            return hits, questions


@pytest.mark.parametrize("stretch", [1, 13, 20_000])
async def test_every_line_that_matches_is_found_once(
    store: Store, written: Job, stretch: int, monkeypatch: MonkeyPatch
) -> None:
    monkeypatch.setattr(log_search, "STRETCH", stretch)
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


async def test_one_question_looks_through_a_stretch_and_no_further(
    store: Store, written: Job, monkeypatch: MonkeyPatch
) -> None:
    monkeypatch.setattr(log_search, "STRETCH", 30)
    page = await search(store, written.id, Wanted(text="line 200"), after=0)
    assert (page.lines, page.looked, page.done) == ([], 30, False)
    with pytest.raises(JobNotFound):
        await search(store, "nobody", Wanted())


async def test_a_hit_is_shown_among_its_neighbours(store: Store, written: Job) -> None:
    page = await log_search.around(store, written.id, 100, limit=10)
    assert [each.n for each in page.lines] == list(range(95, 105)) and page.next == 104
    page = await log_search.around(store, written.id, 100, rank=0, limit=4)
    assert [each.n for each in page.lines] == [96, 98, 100, 102]
    first = await log_search.around(store, written.id, 1, limit=10)
    assert [each.n for each in first.lines] == list(range(1, 11))
    last = await log_search.around(store, written.id, COUNT, limit=10)
    assert [each.n for each in last.lines] == list(range(195, 201)) and last.next is None
