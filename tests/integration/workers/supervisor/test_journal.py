"""A supervisor that dies is started again, and its gang's events do not show it, but for the incident."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest
from harness.patience import PATIENCE_S

from shardyard.service.cluster.ray_cluster import Cluster
from shardyard.workers.messages.event_buffer import Spool
from shardyard.workers.supervisor.gang_state import JournalUnreadable
from shardyard.workers.supervisor.journal import fencing, kv_store
from shardyard.workers.supervisor.journal.journal import GATHER_S, Journal, sealed

from .following import Event, closed, follow, gang_spec, gone, is_final, is_step, kill_supervisor, pids, states, written

JOURNALS = Path(__file__).parents[3] / "data/journal"

pytestmark = pytest.mark.asyncio(loop_scope="module")


def is_kind(kind: str) -> Any:
    return lambda event: event["kind"] == kind


def is_state(state: str) -> Any:
    return lambda event: event["kind"] == "state" and event["data"]["state"] == state


def assert_each_once(events: list[Event], steps: int) -> None:
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    emitted = [event["data"] for event in events if event["kind"] == "step"]
    assert [step["step"] for step in emitted] == list(range(1, steps + 1))
    kinds = [event["kind"] for event in events]
    assert kinds.count("plan") == kinds.count("summary") == 1 and is_final(events[-1])


@pytest.mark.full
async def test_it_may_die_at_every_turn(cluster: Cluster, tmp_path: Path) -> None:
    """At the start, while placed, while training, at the last step, before the end, and when all is over."""
    gang = gang_spec("mortal", ranks=2, steps=60, pause=0.03, folder=str(tmp_path))
    await cluster.start_gang(gang)
    turns = [is_state("starting"), is_state("running"), is_step(20), is_step(60), is_kind("summary"), is_final]
    events: list[Event] = []
    for turn in turns:
        await kill_supervisor(gang.name)
        events += await follow(cluster, gang.name, after=len(events), until=turn)

    assert_each_once(events, 60)
    assert states(events) == ["starting", "running", "succeeded"]
    causes = [event["data"]["cause"] for event in events if event["kind"] == "incident"]
    assert set(causes) == {"supervisor_lost"}
    assert all(event["data"]["loss"] == 0 + 1 for event in events if event["kind"] == "step")
    await kill_supervisor(gang.name)
    assert await follow(cluster, gang.name, after=len(events) - 3) == events[-3:]
    await closed(cluster, gang.name, pids(tmp_path, 2))


@pytest.mark.full
async def test_one_that_died_can_be_cancelled(cluster: Cluster, tmp_path: Path) -> None:
    gang = gang_spec("mourned", ranks=2, steps=100_000, pause=0.02, folder=str(tmp_path))
    await cluster.start_gang(gang)
    events = await follow(cluster, gang.name, until=is_step(3))
    await kill_supervisor(gang.name)
    events += await follow(cluster, gang.name, after=len(events), until=is_kind("incident"))
    await cluster.stop(gang.name, "cancel")
    events += await follow(cluster, gang.name, after=len(events))
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert states(events) == ["starting", "running", "cancelled"]
    await closed(cluster, gang.name, pids(tmp_path, 2))


async def test_one_that_cannot_read_its_journal_ends_the_gang_and_frees_its_devices(
    cluster: Cluster, tmp_path: Path
) -> None:
    """The entry is one of the first journals, which were pickled."""
    gang = gang_spec("illiterate", ranks=2, steps=100_000, pause=0.02, folder=str(tmp_path))
    await cluster.start_gang(gang)
    events = await follow(cluster, gang.name, until=is_step(1))
    pickled = (JOURNALS / "pickled").read_bytes()

    def damage() -> None:
        for _ in range(3):  # what the supervisor had sent when it was stopped may arrive after the first
            kv_store.put(f"{gang.name}/000000001/state", pickled)

    await kill_supervisor(gang.name, damage)
    events += await follow(cluster, gang.name, after=len(events))

    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert [event["data"]["cause"] for event in events if event["kind"] == "incident"] == ["journal_unreadable"]
    assert events[-1]["data"]["state"] == "failed" and events[-1]["data"]["reason"] == "journal_unreadable"
    assert events[-1]["data"]["message"] == "the journal's first line names no version"
    assert await gone(pids(tmp_path, 2)) and await is_free(cluster)
    await kill_supervisor(gang.name)
    assert await follow(cluster, gang.name, after=len(events) - 1) == events[-1:], (
        "its own successor reads what it wrote"
    )
    await closed(cluster, gang.name, pids(tmp_path, 2))


async def is_free(cluster: Cluster) -> bool:
    """Whether no device is in use, which Ray says a moment after the last rank ended."""
    deadline = time.monotonic() + PATIENCE_S
    while sum(node.cpu_used for node in await cluster.nodes()) > 1e-6:
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(0.05)
    return True


async def test_a_journal_is_recalled_without_what_its_state_does_not_count(cluster: Cluster) -> None:
    gang, spool = "shardyard-diary-1", Spool(1 << 20)
    first = Journal(gang, spool, lambda: b"%d events" % spool.last)
    assert await first.recall() is None
    for kind in ("a", "b", "c"):
        spool.add(kind, {})
        await first.settled()
    spool.take(2)
    spool.add("cut short", {})
    kv_store.put(f"{gang}/000000001/events/{4:015d}", json.dumps(spool.newer(3)).encode())

    again = Spool(1 << 20)
    second = Journal(gang, again, lambda: b"state")
    assert await second.recall() == b"3 events" and second.last == again.last == 3
    assert [event["kind"] for event in again.take(2)] == ["c"]
    again.add("d", {})
    await second.settled()
    assert second._tidying is not None
    await second._tidying
    assert len(written(gang)) == 4 and not written(f"{gang}/000000001"), "two epochs, a batch and a state"

    last = Spool(1 << 20)
    assert await Journal(gang, last, bytes).recall() == b"state"
    assert [(event["seq"], event["kind"]) for event in last.newer(0)] == [(3, "c"), (4, "d")]
    assert not first._put(b"of one that was cut off", spool.newer(0)), "it has a successor"
    assert await Journal(gang, Spool(1 << 20), bytes).recall() == b"state"
    await second.close()
    assert not written(gang)


async def test_a_predecessor_that_still_writes_adds_nothing_that_its_successor_counts(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its ranks were asked for the events after those, and these were lost."""
    gang, spool, again = "shardyard-diary-2", Spool(1 << 20), Spool(1 << 20)
    first = Journal(gang, spool, lambda: b"%d events" % spool.last)
    await first.recall()
    spool.add("a", {})
    await first.settled()
    get, late = kv_store.get, [True]

    def write_first(key: str) -> bytes | None:
        if late and late.pop():
            spool.add("b", {})
            assert not first._put(sealed(2, b"2 events"), spool.newer(1)), "it has a successor"
        return get(key)

    monkeypatch.setattr(kv_store, "get", write_first)
    second = Journal(gang, again, bytes)
    state = await second.recall()
    assert state == b"%d events" % again.last == b"%d events" % len(again.take(0)), "all that the state counts is there"
    await second.close()
    assert not written(gang)


async def test_a_journal_of_an_older_layout_is_found_and_refused(cluster: Cluster) -> None:
    """Its fencing epochs stood elsewhere, and its state was pickled."""
    gang = "shardyard-diary-3"
    kv_store.put(f"{gang}/000000004/state", (JOURNALS / "pickled").read_bytes())
    journal = Journal(gang, Spool(1 << 20), bytes)
    with pytest.raises(JournalUnreadable, match="names no version"):
        await journal.recall()
    assert fencing.is_current(gang, 5)
    await journal.settled()
    assert await Journal(gang, Spool(1 << 20), bytes).recall() == b"", "its successor reads what it wrote"
    await journal.close()
    assert not written(gang)


async def test_ranks_that_end_a_step_together_share_a_write(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time for which a write waits for others ends here when all have come, however long this process takes for that."""
    spool = Spool(1 << 20)
    states = []
    usual, all_have_come = asyncio.sleep, asyncio.Event()

    async def sleep(seconds: float) -> None:
        await (all_have_come.wait() if seconds == GATHER_S else usual(seconds))

    def state() -> bytes:
        states.append(spool.last)
        return b"state"

    diary = Journal("shardyard-diary-2", spool, state)
    await diary.recall()
    monkeypatch.setattr(asyncio, "sleep", sleep)
    ranks = []
    for _ in range(4):
        spool.add("step", {})
        ranks.append(asyncio.create_task(diary.settled(GATHER_S)))
        for _ in range(3):  # each rank's answer comes a little later
            await usual(0)
    assert states == []
    all_have_come.set()
    await asyncio.gather(*ranks)
    assert states == [4], "one write that knows of all"
    await diary.close()


async def test_one_that_finds_a_successor_leaves_before_it_acts(cluster: Cluster, tmp_path: Path) -> None:
    """As one does whose node was cut off and has its network again. Its place is taken once more, and its events go on."""
    held = tmp_path / "held"
    held.touch()
    gang = gang_spec("deposed", ranks=2, steps=60, pause=0.03, folder=str(tmp_path), held_at=20)
    await cluster.start_gang(gang)
    events = await follow(cluster, gang.name, until=is_step(10))
    assert fencing.acquire_epoch(gang.name) == 2
    held.unlink()
    events += await follow(cluster, gang.name, after=len(events))
    assert_each_once(events, 60)
    assert states(events) == ["starting", "running", "succeeded"]
    assert [event["data"]["cause"] for event in events if event["kind"] == "incident"] == ["supervisor_lost"]
    assert fencing.acquire_epoch(gang.name) == 4
    await closed(cluster, gang.name, pids(tmp_path, 2))
