import asyncio
from typing import Any

from harness.patience import PATIENCE_S

from shardyard.workers.messages.rendezvous import Reservation, SnapshotHandle
from shardyard.workers.supervisor.ranks.handles import RankHandle
from shardyard.workers.supervisor.ranks.members import Member, call_each, drain, nodes

HERE = Reservation(0, "node-a", "host", 1, None, 1, 1, ())


def actor() -> Any:
    return RankHandle(object())


def test_a_new_actor_begins_its_events_again_and_keeps_the_ranks_snapshots() -> None:
    held = SnapshotHandle("node-a", 1, (3,))
    member = Member(0, 1, "old", actor(), HERE, exited=True, pulled=7, step=5, lost=True, snapshots=held)
    new = actor()
    member.assign(new, "new", 2)
    assert (member.placed, member.name, member.bundle, member.pulled) == (new, "new", 2, 0)
    assert not member.lost and member.node is None and member.snapshots is held and member.exited
    member.renew()
    assert not member.exited


async def test_a_lost_node_takes_the_snapshots_and_the_reader_along() -> None:
    member = Member(0, handle=actor(), reservation=HERE, snapshots=SnapshotHandle("node-a", 1, (3,)))
    member.reader = asyncio.create_task(asyncio.Event().wait())  # type: ignore[arg-type]
    member.lose_node()
    await asyncio.wait([member.reader])
    assert member.reader.cancelled() and member.exited and member.lost and member.snapshots is None
    assert member.living is None


async def test_only_actors_with_a_running_trainer_are_called() -> None:
    called: list[RankHandle] = []

    async def call(handle: RankHandle) -> None:
        called.append(handle)
        raise TimeoutError

    members = [Member(0, handle=actor()), Member(1, handle=actor(), exited=True), Member(2), Member(3, handle=actor())]
    await call_each(members, call)
    assert called == [members[0].handle, members[3].handle]


async def test_a_reader_that_does_not_end_in_time_is_cancelled_and_named() -> None:
    async def read(ends: asyncio.Event) -> None:
        await ends.wait()

    ended = asyncio.Event()
    ended.set()
    members = [Member(0), Member(1), Member(2)]
    members[0].reader = asyncio.create_task(read(ended))
    members[1].reader = asyncio.create_task(read(asyncio.Event()))
    late = await drain(members, 0.01)
    assert late == [members[1]]
    await asyncio.wait([members[1].reader])
    assert members[1].reader.cancelled() and await drain([Member(0)], 0.01) == []


async def test_a_reader_that_gets_on_has_more_time_up_to_a_limit() -> None:
    """After a long absence of the dispatcher a rank has many events left."""

    async def read(member: Member, batches: int) -> None:
        for member.news in range(1, batches):
            await asyncio.sleep(0)

    members = [Member(0), Member(1)]
    for member in members:
        member.reader = asyncio.create_task(read(member, 50))
    assert await drain(members, 0.0, PATIENCE_S) == []
    for member in members:
        member.reader = asyncio.create_task(read(member, 1 << 30))
    assert [member.rank for member in await drain(members, 0.0, 0.0)] in ([0, 1], [1, 0])
    for member in members:
        member.reader = asyncio.create_task(read(member, 1 << 30))
    goes_on = iter([True, False])
    assert len(await drain(members, 0.0, PATIENCE_S, lambda: next(goes_on))) == 2, "a cancel ends the wait"


async def test_a_reader_without_news_of_its_trainer_has_no_more_time() -> None:
    async def read(member: Member) -> None:
        for member.pulled in range(1, 1 << 30):
            await asyncio.sleep(0)

    member = Member(0)
    member.reader = asyncio.create_task(read(member))
    assert await drain([member], 0.01, PATIENCE_S) == [member] and member.pulled > 0


async def test_a_rank_whose_exit_is_reported_is_not_late_though_its_reader_is() -> None:
    """The reader waits for the journal. Else a repair would replace the rank's actor, which has its snapshots."""

    async def read(member: Member) -> None:
        member.news, member.exited = 1, True
        await asyncio.Event().wait()

    members = [Member(0), Member(1)]
    members[0].reader = asyncio.create_task(read(members[0]))
    members[1].reader = asyncio.create_task(asyncio.Event().wait())  # type: ignore[arg-type]
    assert await drain(members, 0.01, PATIENCE_S) == [members[1]]
    await asyncio.wait([members[0].reader])
    assert members[0].reader.cancelled(), "it would take the next trainer's events"


async def test_a_rank_has_more_time_while_the_journal_needs_it_for_one_write() -> None:
    written, rounds = asyncio.Event(), list[int]()

    async def read(member: Member) -> None:
        member.writing = True
        await written.wait()
        member.writing, member.exited = False, True

    def goes_on() -> bool:
        rounds.append(len(rounds))
        if len(rounds) == 3:
            written.set()
        return True

    member = Member(0)
    member.reader = asyncio.create_task(read(member))
    assert await drain([member], 0.01, PATIENCE_S, goes_on) == [] and member.exited and len(rounds) >= 3


def test_a_node_is_counted_once() -> None:
    assert nodes([Member(0, reservation=HERE), Member(1, reservation=HERE), Member(2)]) == ["node-a"]
