"""How snapshots are given to neighbours, how long a gang waits for its devices, and which bundles lost ranks get.

Placement with real actors: tests/integration/workers/supervisor.
"""

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from harness.patience import PATIENCE_S

from shardyard.workers.messages.gang_spec import GangSpec
from shardyard.workers.messages.rendezvous import Reservation, SnapshotHandle
from shardyard.workers.rank.snapshot_store import SnapshotStore
from shardyard.workers.supervisor.ranks import placement
from shardyard.workers.supervisor.ranks.handles import RankHandle
from shardyard.workers.supervisor.ranks.members import Member
from shardyard.workers.supervisor.ranks.placement import HOLD_AT_ONCE, Placement
from shardyard.workers.supervisor.ranks.placement_group import NoRoom

#: The memory of rank 0 as a neighbour holds it.
HELD = SnapshotHandle("node-a", 7, (3, 4))
#: The process of an actor that has died: Linux gives no process such an id.
DEAD = 1 << 30

Hold = Callable[[int, SnapshotHandle], Awaitable[SnapshotHandle | None]]


def placed(hold: Hold, *nodes: str) -> tuple[Placement, list[Member]]:
    """Ranks whose actors hold another's snapshots by `hold`."""
    handle: Any = SimpleNamespace(snapshots=SimpleNamespace(hold=hold))
    members = [
        Member(rank, handle=handle, reservation=Reservation(rank, node, "host", None, None, 1, rank, ()))
        for rank, node in enumerate(nodes)
    ]
    return Placement(GangSpec("shardyard-a-1", {}, len(nodes)), cast(Any, None), lambda: False), members


async def test_snapshots_are_held_but_where_a_neighbour_is_silent_or_an_actor_is_gone() -> None:
    async def hold(rank: int, snapshots: SnapshotHandle) -> SnapshotHandle | None:
        if rank == 1:
            raise TimeoutError("no answer")
        if rank == 5:  # its actor has just died
            return None
        return SnapshotHandle(snapshots.node, 100 + snapshots.pid, (rank,))

    placement, members = placed(hold, "a", "a", "a", "b", "a", "a", "a")
    members[4].lost = True
    members[6].reservation = None  # it has another actor now
    found = {member.rank: held async for member, held in placement.hold_snapshots(members)}
    assert found == {0: SnapshotHandle("a", 100, (0,)), 2: SnapshotHandle("a", 102, (2,)), 3: None}


async def test_some_snapshots_are_given_at_a_time_and_a_silent_neighbour_holds_up_no_others() -> None:
    running, most, answers = 0, 0, asyncio.Event()

    async def hold(rank: int, snapshots: SnapshotHandle) -> SnapshotHandle | None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await (answers.wait() if rank == 0 else asyncio.sleep(0))
        running -= 1
        return snapshots

    placement, members = placed(hold, *["a"] * 4 * HOLD_AT_ONCE)
    holding = placement.hold_snapshots(members)
    async with asyncio.timeout(PATIENCE_S):
        first = [(await anext(holding))[0].rank for _ in members[1:]]
        assert sorted(first) == list(range(1, len(members))) and most == HOLD_AT_ONCE
        answers.set()
        assert [member.rank async for member, _ in holding] == [0]


async def test_whose_holding_ends_early_leaves_no_call_behind() -> None:
    """The generation ends meanwhile."""
    began, ended = asyncio.Event(), asyncio.Event()

    async def hold(rank: int, snapshots: SnapshotHandle) -> SnapshotHandle | None:
        began.set()
        with contextlib.closing(SimpleNamespace(close=ended.set)):
            await asyncio.Event().wait()
        return snapshots

    placement, members = placed(hold, "a", "a")

    async def consume() -> None:
        async for _ in placement.hold_snapshots(members):
            raise AssertionError("no neighbour has answered")

    consuming = asyncio.create_task(consume())
    async with asyncio.timeout(PATIENCE_S):
        await began.wait()
        consuming.cancel()
        await ended.wait()
        await asyncio.wait([consuming])
    assert consuming.cancelled()


class Holding:
    """A rank's actor, as far as it holds the snapshots of others."""

    def __init__(self) -> None:
        self.store = SnapshotStore()
        self.hold_snapshots: Any = self

    async def remote(self, rank: int, handle: SnapshotHandle) -> SnapshotHandle | None:
        return self.store.hold(rank, handle)


def member(rank: int, node: str, pid: int, slots: tuple[int, ...] = ()) -> Member:
    here = Reservation(rank, node, "host", None, None, 1, pid, slots)
    return Member(rank, handle=RankHandle(Holding()), reservation=here, snapshots=HELD)


async def held(*members: Member) -> dict[int, SnapshotHandle | None]:
    placement = Placement(GangSpec("shardyard-a-1", {}, len(members)), cast("Any", None), lambda: False)
    return {one.rank: handle async for one, handle in placement.hold_snapshots(members)}


async def test_what_holds_the_snapshots_of_an_actor_that_dies_meanwhile_is_kept(
    fds: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is all that is left of them: without it the rank's new actor had empty memory."""
    monkeypatch.setattr("shardyard.workers.rank.snapshot_store.node_id", lambda: "node-a")
    dead, living = member(0, "node-a", DEAD, (50, 51)), member(1, "node-a", os.getpid(), tuple(fds))
    found = await held(dead, living)
    assert list(found) == [1]
    handle = found[1]
    assert handle is not None and (handle.node, handle.pid, len(handle.fds)) == ("node-a", os.getpid(), len(fds))
    for fd in handle.fds:
        os.close(fd)


async def test_nothing_holds_the_snapshots_of_a_rank_that_is_alone_on_its_node() -> None:
    assert await held(member(0, "node-a", DEAD), member(1, "node-b", DEAD)) == {0: None, 1: None}


@pytest.mark.parametrize("ready", [True, False])
async def test_a_gang_that_waits_for_no_devices_keeps_those_that_it_has(
    ready: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`elastic_grace_s: 0`: the death of an actor takes no device."""
    group = SimpleNamespace(wait=lambda _: ready)
    monkeypatch.setattr("shardyard.workers.supervisor.ranks.placement.existing", lambda _: group)
    placement = Placement(GangSpec("shardyard-a-1", {}, 4), cast("Any", None), lambda: False)
    if ready:
        assert await placement.place(patience_s=0.0)
    else:
        with pytest.raises(NoRoom):
            await placement.place(patience_s=0.0)


def reserved(monkeypatch: pytest.MonkeyPatch, where: dict[int, str], ready: bool, **spec: Any) -> Placement:
    """A gang of four ranks whose placement group has these bundles, and is ready or not."""
    group = SimpleNamespace(wait=lambda _: ready)
    for name, answer in {"existing": group, "bundle_nodes": where, "node_places": {}}.items():
        monkeypatch.setattr(placement, name, lambda *_, answer=answer: answer)
    monkeypatch.setattr(placement, "make_actor", lambda *_: object())
    return Placement(GangSpec("shardyard-a-1", {}, 4, **spec), cast("Any", None), lambda: False)


async def bundles(gang: Placement, members: list[Member], *lost: int) -> dict[int, int]:
    """The bundles in which lost ranks get new actors."""
    replaced = await gang.replace(members, [members[rank] for rank in lost], [], 2)
    return {one.rank: one.bundle for one in replaced}


def on(node: str, rank: int, bundle: int) -> Member:
    return Member(rank, bundle, reservation=Reservation(rank, node, "host", None, None, 1, rank, ()))


async def test_a_spare_that_has_lost_its_node_does_not_keep_a_rank_from_its_own_bundle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ray has no node for bundle 4, the spare's, so the placement group is not ready. `elastic_grace_s`: the gang would not wait."""
    gang = reserved(monkeypatch, {0: "a", 1: "a", 2: "a", 3: "a", 4: ""}, ready=False, spares=1, elastic_grace_s=0.0)
    members = [on("a", rank, rank) for rank in range(3)] + [on("b", 3, 4)]
    assert await bundles(gang, members, 1) == {1: 1}
    with pytest.raises(NoRoom):
        await bundles(gang, members, 1, 3)


async def test_a_rank_that_has_lost_only_its_actor_stays_where_its_memory_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks 2 and 3 have lost their node; Ray has moved their bundles to one that is sorted before the others'."""
    gang = reserved(monkeypatch, {0: "c", 1: "c", 2: "a", 3: "a"}, ready=True)
    members = [on("c", 0, 0), on("c", 1, 1), on("d", 2, 3), on("d", 3, 2)]
    assert await bundles(gang, members, 1, 2, 3) == {1: 1, 2: 2, 3: 3}
    members[1].reservation, members[1].snapshots = None, SnapshotHandle("c", 7, (3, 4))  # a new actor has not answered
    assert await bundles(gang, members, 1, 2, 3) == {1: 1, 2: 2, 3: 3}
