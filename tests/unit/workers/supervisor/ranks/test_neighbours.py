from shardyard.workers.messages.gang_spec import GangSpec
from shardyard.workers.rank.actor import Reservation
from shardyard.workers.supervisor.ranks.handles import RankHandle
from shardyard.workers.supervisor.ranks.members import Member
from shardyard.workers.supervisor.ranks.neighbours import (
    assignments,
    choose_replica_holders,
    neighbour,
    replica_holder,
    replicas_at,
)


def placed(*nodes: str) -> list[Member]:
    members = []
    for rank, node in enumerate(nodes):
        here = Reservation(rank, node, f"host-{node}", 4000 if rank == 0 else None, "eth0", 3, 1, ())
        members.append(Member(rank, name=f"actor-{rank}", handle=RankHandle(object()), reservation=here))
    return members


def test_the_next_rank_of_a_node_is_in_a_ring() -> None:
    members = placed("a", "a", "b", "a")
    assert [found and found.rank for found in (neighbour(members, member) for member in members)] == [1, 3, None, 0]


def test_replicas_are_on_another_node_and_their_holder_may_be_gone() -> None:
    members = placed("a", "a", "b", "b")
    for member, holder in zip(members, choose_replica_holders(members), strict=True):
        member.replica_holder = holder
    assert [member.replica_holder for member in members] == ["actor-2", "actor-3", "actor-0", "actor-1"]
    assert replica_holder(members, members[0]) is members[2] and replicas_at(members, members[2]) == [0]
    members[2].handle = None
    assert replica_holder(members, members[0]) is None
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
