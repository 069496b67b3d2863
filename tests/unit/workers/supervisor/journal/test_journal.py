"""The journal over a store in memory: how much it keeps and reads, and what a successor finds whatever line death came at."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from harness.patience import PATIENCE_S
from pytest import MonkeyPatch

from shardyard.workers.messages.event_buffer import Spool
from shardyard.workers.supervisor import until_answered
from shardyard.workers.supervisor.gang_state import VERSION
from shardyard.workers.supervisor.journal import batches, fencing
from shardyard.workers.supervisor.journal import journal as journals
from shardyard.workers.supervisor.journal.batches import Batch
from shardyard.workers.supervisor.journal.journal import Journal

if TYPE_CHECKING:
    from .conftest import Store

GANG = "shardyard-a-1"
DATA = Path(__file__).parents[4] / "data/journal"


class Death(Exception):
    """The supervisor's process ends here."""


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: MonkeyPatch) -> None:
    monkeypatch.setattr(journals, "SPARING_S", 0.0)
    monkeypatch.setattr(until_answered, "AGAIN_S", 0.0)


def supervised() -> tuple[Journal, Spool]:
    spool = Spool(1 << 24)
    return Journal(GANG, spool, lambda: b"%d events" % spool.last), spool


async def write(journal: Journal, spool: Spool, times: int) -> None:
    for _ in range(times):
        spool.add("step", {})
        await journal.settled()


async def tidied(journal: Journal) -> None:
    assert journal._tidying is not None
    await journal._tidying


def numbers(spool: Spool) -> list[int]:
    return [event["seq"] for event in spool.newer(0)]


def stored(store: "Store") -> list[str]:
    """The keys of batches."""
    return [key for key in store.entries if "/events/" in key]


async def test_after_a_long_absence_of_the_dispatcher_a_successor_reads_few_batches(
    store: "Store", monkeypatch: MonkeyPatch
) -> None:
    """Its ranks' leases run meanwhile. Each write had left a batch, which the successor read, and deleted, one after the other."""
    monkeypatch.setattr(batches, "JOINED_BYTES", 8 << 10)
    first, spool = supervised()
    await first.recall()
    await write(first, spool, 600)
    await tidied(first)
    assert len(stored(store)) < 100

    store.calls.clear()
    second, again = supervised()
    assert await second.recall() == b"600 events"
    assert numbers(again) == list(range(1, 601)) and store.calls["get"] < 100
    store.calls.clear()
    await second.settled()
    await tidied(second)
    assert store.calls == {"put": 2, "exists": 2, "delete_all": 1}, (
        "one batch, one state, and one call for the older epoch"
    )
    assert {key.split("/")[1] for key in store.entries} == {"epoch", "000000002"}
    again.take(600)
    await write(second, again, 1)
    await tidied(second)
    assert stored(store) == [f"{GANG}/000000002/events/{601:015d}"], "what is acknowledged is deleted"


@pytest.mark.parametrize("version", range(1, VERSION + 1))
async def test_journals_of_all_versions_are_recalled_and_written_again(store: "Store", version: int) -> None:
    place = f"{GANG}/000000001"
    store.entries = {
        f"{GANG}/epoch/000000001": b"",
        f"{place}/events/{18:015d}": (DATA / f"v{version}" / "events").read_bytes(),
        f"{place}/state": (DATA / f"v{version}" / "state").read_bytes(),
    }
    journal, spool = supervised()
    assert await journal.recall() and numbers(spool) == [18, 19]
    await journal.settled()
    await tidied(journal)
    assert stored(store) == [f"{GANG}/000000002/events/{18:015d}"]


async def test_no_caller_waits_for_what_is_deleted(store: "Store") -> None:
    """Ranks are pulled after a successor's first write."""
    first, spool = supervised()
    await first.recall()
    await write(first, spool, 3)
    second, again = supervised()
    await second.recall()
    answers, loop = asyncio.Event(), asyncio.get_running_loop()

    def slow(name: str) -> None:
        if name == "delete_all":
            asyncio.run_coroutine_threadsafe(answers.wait(), loop).result(PATIENCE_S)

    store.before = slow
    async with asyncio.timeout(PATIENCE_S):
        await second.settled()
        next_write = asyncio.create_task(write(second, again, 1))
        await asyncio.sleep(0.01)
        assert second.last == 3, "one call changes the store at a time"
        answers.set()
        await next_write
        await second.close()
    assert not store.entries


async def test_it_rests_in_proportion_to_what_encoding_the_state_takes(store: "Store") -> None:
    """Each write encodes the state of all ranks on the event loop that also serves them."""
    journal, took, began = Journal(GANG, Spool(1 << 24), lambda: (time.sleep(0.02), b"")[1]), 0.02, time.monotonic()
    await journal.recall()
    await journal.settled()
    assert journal._write_at >= began + took + 4 * took


async def lives_of_two_supervisors(shown: list[int], acknowledged: list[int]) -> None:
    """Two supervisors, one after the other, that join batches and delete what is acknowledged. `shown`: to the dispatcher."""
    for _ in range(2):
        journal, spool = supervised()
        await journal.recall()
        for write_number in range(1, 9):
            spool.add("step", {})
            await journal.settled()
            shown.append(journal.last)
            if write_number == 6:
                spool.take(journal.last - 3)
                acknowledged.append(journal.last - 3)
        await tidied(journal)


@pytest.fixture
def early_joins(monkeypatch: MonkeyPatch) -> None:
    """Batches are joined two or three at a time."""
    monkeypatch.setattr(batches, "LEAST_SAVED", 2)
    monkeypatch.setattr(batches, "JOINED_BYTES", 200)


def failing_at(call: int, error: Exception) -> Callable[[str], None]:
    """Raises `error` once, before call number `call` of the store."""
    left = [call]

    def before(_: str) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise error

    return before


@pytest.mark.usefixtures("early_joins")
async def test_at_whatever_line_death_comes_no_event_is_lost_and_none_comes_twice(store: "Store") -> None:
    await lives_of_two_supervisors([], [])
    calls = store.calls.total()
    assert store.calls["delete"] >= 8 and store.calls["delete_all"] == 1
    for call in range(1, calls + 1):
        store.entries, store.before = {}, failing_at(call, Death())
        shown, acknowledged = [0], [0]
        with pytest.raises(Death):
            await lives_of_two_supervisors(shown, acknowledged)
        store.before = lambda _: None
        heir, spool = supervised()
        state = await heir.recall()
        kept = numbers(spool)
        assert state == (b"%d events" % spool.last if spool.last else None)
        assert spool.last >= shown[-1] and kept == list(range(spool.last - len(kept) + 1, spool.last + 1)), call
        assert spool.last - len(kept) <= acknowledged[-1], call


@pytest.mark.usefixtures("early_joins")
async def test_a_store_that_does_not_answer_once_gets_the_same_entries(store: "Store") -> None:
    from ray.exceptions import RaySystemError

    await lives_of_two_supervisors([], [])
    expected, calls = dict(store.entries), store.calls.total()
    for call in range(1, calls + 1):
        store.entries, store.before = {}, failing_at(call, RaySystemError("no answer"))
        await lives_of_two_supervisors([], [])
        assert store.entries.keys() == expected.keys(), call


async def test_one_that_has_a_successor_deletes_no_batch_that_it_has_joined(store: "Store") -> None:
    """The successor may have read the first batch as it was before, and is to find the other one."""
    journal, spool = supervised()
    await journal.recall()
    await write(journal, spool, 2)
    both, second = spool.newer(0), [Batch(2, 2, 9)]
    assert fencing.acquire_epoch(GANG) == 2
    assert not journal._clear({1: both}, second) and len(stored(store)) == 2
    heir, found = supervised()
    await heir.recall()
    assert numbers(found) == [1, 2]
