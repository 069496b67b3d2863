"""How a supervisor takes over the ranks of one that died: it finds them, and keeps their leases until it may pull them."""

import asyncio
import threading
from typing import Any

from harness.patience import PATIENCE_S
from pytest import MonkeyPatch

from shardyard.workers.messages.event_buffer import Spool
from shardyard.workers.messages.gang_spec import GangSpec
from shardyard.workers.supervisor import lifecycle as life
from shardyard.workers.supervisor import until_answered
from shardyard.workers.supervisor.gang import Gang
from shardyard.workers.supervisor.gang_secrets import GangSecrets
from shardyard.workers.supervisor.gang_state import GangState, RankState, SpareState
from shardyard.workers.supervisor.journal.journal import Journal
from shardyard.workers.supervisor.lifecycle import Lifecycle
from shardyard.workers.supervisor.ranks import placement, spares


class Beaten:
    """An actor as Ray has it. `beaten` is set by a heartbeat; it answers nothing else."""

    def __init__(self) -> None:
        self.beaten = threading.Event()
        self.heartbeat = self.stand_by = self

    async def remote(self) -> None:
        self.beaten.set()


async def nothing() -> None:
    pass


def adopted(lease_s: float) -> Any:
    """A gang of two ranks that is being repaired; their trainers have ended, so that nothing else calls them."""
    spec, spool = GangSpec("shardyard-a-1", {}, 2, lease_s=lease_s), Spool(1 << 20)
    ranks = [RankState(rank, name=f"rank-{rank}", exited=True) for rank in range(2)]
    state = GangState(phase="repairing", ranks=ranks)
    return Gang(spec, Journal(spec.name, spool, bytes), spool, GangSecrets(False), state)


async def test_a_rank_that_is_found_keeps_its_lease_while_others_are_sought(monkeypatch: MonkeyPatch) -> None:
    gang, actors = adopted(lease_s=0.03), {name: Beaten() for name in ("rank-0", "rank-1")}

    def find(name: str) -> Beaten:
        assert name == "rank-0" or actors["rank-0"].beaten.wait(PATIENCE_S), "its lease has expired"
        return actors[name]

    monkeypatch.setattr(life, "find_actor", find)
    monkeypatch.setattr(placement, "existing", lambda _: "placed")
    gang.journal.settled = nothing
    async with asyncio.timeout(PATIENCE_S):
        await Lifecycle(gang).adopt()


async def test_ranks_get_a_heartbeat_as_soon_as_all_are_found(monkeypatch: MonkeyPatch) -> None:
    """They had their last one from the predecessor, and the next would come after a third of a lease."""
    gang, actors = adopted(lease_s=3600.0), {name: Beaten() for name in ("rank-0", "rank-1")}

    def existing(_: GangSpec) -> str:
        assert all(actor.beaten.wait(PATIENCE_S) for actor in actors.values())
        return "placed"

    monkeypatch.setattr(life, "find_actor", actors.__getitem__)
    monkeypatch.setattr(placement, "existing", existing)
    gang.journal.settled = nothing
    async with asyncio.timeout(PATIENCE_S):
        await Lifecycle(gang).adopt()


async def test_ranks_keep_their_leases_until_the_first_write(monkeypatch: MonkeyPatch) -> None:
    """No rank is pulled before it, and it has all that the dispatcher has not acknowledged."""
    gang, actors = adopted(lease_s=0.03), {name: Beaten() for name in ("rank-0", "rank-1")}
    written: list[bool] = []

    async def settled() -> None:
        for actor in actors.values():
            actor.beaten.clear()
        while not all(actor.beaten.is_set() for actor in actors.values()):  # noqa: ASYNC110  (a thread's event)
            await asyncio.sleep(0.001)
        written.append(True)

    monkeypatch.setattr(life, "find_actor", actors.__getitem__)
    monkeypatch.setattr(placement, "existing", lambda _: "placed")
    gang.journal.settled = settled
    async with asyncio.timeout(PATIENCE_S):
        await Lifecycle(gang).adopt()
    assert written


async def test_a_successor_finds_all_ranks_though_the_cluster_does_not_answer_at_first(
    monkeypatch: MonkeyPatch,
) -> None:
    """Without it the gang would be lost, though its ranks train on."""
    from ray.exceptions import RaySystemError

    asked: list[str] = []

    def once_silent(name: str, found: Any) -> Any:
        asked.append(name)
        if asked.count(name) == 1:
            raise RaySystemError("the cluster does not answer")
        return found

    monkeypatch.setattr(until_answered, "AGAIN_S", 0.0)
    monkeypatch.setattr(life, "find_actor", lambda name: once_silent(name, Beaten()))
    monkeypatch.setattr(spares, "find_actor", lambda name: once_silent(name, Beaten()))
    monkeypatch.setattr(placement, "existing", lambda spec: once_silent(spec.name, "placed"))
    spec, spool = GangSpec("shardyard-a-1", {}, 2, spares=1), Spool(1 << 20)
    ranks = [RankState(rank, name=f"rank-{rank}", exited=True) for rank in range(2)]
    state = GangState(phase="repairing", ranks=ranks, spares=[SpareState(2, "spare", "node-a")])
    gang: Any = Gang(spec, Journal(spec.name, spool, bytes), spool, GangSecrets(False), state)
    gang.journal.settled = nothing
    async with asyncio.timeout(PATIENCE_S):
        await Lifecycle(gang).adopt()
    assert not any(member.lost or member.handle is None for member in gang.members)
    assert gang.placement.group == "placed" and [spare.node for spare in gang.spares.all] == ["node-a"]
    assert asked == [name for name in ("rank-0", "rank-1", "spare", spec.name) for _ in range(2)]
    await gang.spares.end()
