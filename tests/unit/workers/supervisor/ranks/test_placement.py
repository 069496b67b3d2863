"""Who holds a rank's snapshots. Placement groups and actors: tests/integration/workers/supervisor."""

import os
from typing import Any, cast

import pytest

from shardyard.workers.messages.gang_spec import GangSpec
from shardyard.workers.messages.rendezvous import Reservation, SnapshotHandle
from shardyard.workers.rank.snapshot_store import SnapshotStore
from shardyard.workers.supervisor.ranks.handles import RankHandle
from shardyard.workers.supervisor.ranks.members import Member
from shardyard.workers.supervisor.ranks.placement import Placement

#: The memory of rank 0 as a neighbour holds it.
HELD = SnapshotHandle("node-a", 7, (3, 4))
#: The process of an actor that has died: Linux gives no process such an id.
DEAD = 1 << 30


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
