"""Who is beside whom, compared with the definitions rank by rank, and the work that it takes for thousands of ranks."""

from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardyard.workers.messages.gang_spec import GangSpec
from shardyard.workers.rank.actor import Reservation
from shardyard.workers.supervisor.ranks.handles import RankHandle
from shardyard.workers.supervisor.ranks.members import Member
from shardyard.workers.supervisor.ranks.neighbours import Neighbours, assignments, choose_replica_holders, starts
from shardyard.workers.supervisor.restore_point import choose_restore_step

MANY = 4096


def placed(*nodes: str) -> list[Member]:
    members = []
    for rank, node in enumerate(nodes):
        here = Reservation(rank, node, f"host-{node}", 4000 if rank == 0 else None, "eth0", 3, 1, ())
        members.append(Member(rank, name=f"actor-{rank}", handle=RankHandle(object()), reservation=here))
    return members


def test_the_next_rank_of_a_node_is_in_a_ring() -> None:
    members = placed("a", "a", "b", "a")
    found = map(Neighbours(members).following, members)
    assert [following and following.rank for following in found] == [1, 3, None, 0]


def test_replicas_are_on_another_node_and_their_holder_may_be_gone() -> None:
    members = placed("a", "a", "b", "b")
    for member, holder in zip(members, choose_replica_holders(members), strict=True):
        member.replica_holder = holder
    assert [member.replica_holder for member in members] == ["actor-2", "actor-3", "actor-0", "actor-1"]
    near = Neighbours(members)
    assert near.replica_holder(members[0]) is members[2] and near.replicas_at(members[2]) == [0]
    members[2].handle = None
    assert near.replica_holder(members[0]) is None
    assert choose_replica_holders(placed("a", "a")) == [None, None]


def test_assignments_count_the_ranks_of_each_node() -> None:
    members = placed("a", "b", "a")
    members[1].replica_holder = "actor-0"
    found = assignments(GangSpec("shardyard-a-1", {}, 3), members, restore=7)
    assert [one.local_rank for one in found] == [0, 0, 1]
    assert {(one.master_host, one.master_port, one.generation, one.restore) for one in found} == {
        ("host-a", 4000, 3, 7)
    }
    assert [one.holder for one in found] == [None, 0, None]
    on_gpus = GangSpec("shardyard-a-1", {}, 3, device="cuda", hang_timeout_s=7200.0)
    assert {one.timeout_s for one in assignments(on_gpus, members, None)} == {14400.0}


def following(members: Sequence[Member], member: Member) -> Member | None:
    same = [other for other in members if other.node == member.node]
    found = same[(same.index(member) + 1) % len(same)]
    return None if found is member else found


def replica_holder(members: Sequence[Member], member: Member) -> Member | None:
    holders = (other for other in members if other.name == member.replica_holder and other.handle is not None)
    return next(holders, None)


def replicas_at(members: Sequence[Member], member: Member) -> list[int]:
    return [other.rank for other in members if other.replica_holder == member.name]


@st.composite
def gangs(draw: st.DrawFn) -> list[Member]:
    """Ranks on a few nodes; some have no reservation, no actor, or a holder whose actor was replaced."""
    members = placed(*draw(st.lists(st.sampled_from("abc"), max_size=12)))
    for member in members:
        if draw(st.booleans()):
            number = draw(st.integers(0, len(members)))
            member.replica_holder = f"actor-{number}"
        if draw(st.integers(0, 4)) == 0:
            member.handle = None
        if draw(st.integers(0, 4)) == 0:
            member.reservation = None
    return members


@given(gangs())
def test_lookups_for_all_ranks_equal_those_rank_by_rank(members: list[Member]) -> None:
    near = Neighbours(members)
    for member in members:
        assert near.following(member) is following(members, member)
        assert near.replica_holder(member) is replica_holder(members, member)
        assert near.replicas_at(member) == replicas_at(members, member)


@dataclass(eq=False)
class Counted(Member):
    """A rank that counts how often an attribute of one is read."""

    reads: ClassVar[int] = 0

    def __getattribute__(self, name: str) -> Any:
        Counted.reads += 1
        return super().__getattribute__(name)


def counted(members: Sequence[Member], monkeypatch: pytest.MonkeyPatch) -> list[Member]:
    """The same ranks, whose reads count from now on."""
    found: list[Member] = [Counted(**vars(member)) for member in members]
    monkeypatch.setattr(Counted, "reads", 0)
    return found


def test_a_start_takes_work_in_proportion_to_the_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    members = counted(placed(*(f"node-{rank // 8}" for rank in range(MANY))), monkeypatch)
    for member, name in zip(members, choose_replica_holders(members), strict=True):
        member.replica_holder = name
    found = starts(GangSpec("shardyard-a-1", {}, MANY), members, None)
    assert all(one.holder is not None and one.assignment.holder == one.holder.rank for one in found)
    assert [found[one.assignment.holder or 0].replicas for one in found] == [[rank] for rank in range(MANY)]
    near = Neighbours(members)
    assert None not in map(near.following, members)
    assert Counted.reads < 50 * MANY


async def test_replicas_are_found_in_work_in_proportion_to_the_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where every rank's memory is gone."""

    async def steps() -> list[int]:
        return []

    async def steps_of(rank: int) -> list[int]:
        return [4]

    restored = []

    async def restore_to(rank: int, step: int, new: object) -> None:
        restored.append((rank, step))

    members = placed(*(f"node-{rank % 2}" for rank in range(MANY)))
    handle: Any = SimpleNamespace(snapshots=SimpleNamespace(steps=steps, steps_of=steps_of, restore_to=restore_to))
    for member, name in zip(members, choose_replica_holders(members), strict=True):
        member.replica_holder, member.handle = name, handle
    assert await choose_restore_step(counted(members, monkeypatch)) == 4
    assert restored == [(rank, 4) for rank in range(MANY)]
    assert Counted.reads < 50 * MANY
