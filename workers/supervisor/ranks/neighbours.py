"""Which rank holds which rank's snapshots, and every rank's assignment: pure functions of the ranks' placement."""

from collections import Counter
from collections.abc import Sequence

from ...messages.gang_spec import GangSpec
from ...messages.rendezvous import RankAssignment
from ...snapshot.replication import replication_peers
from ..policies.hang import collectives_timeout_s
from .members import Member


def neighbour(members: Sequence[Member], member: Member) -> Member | None:
    """The next rank on the same node, of those in a ring; None when it is alone there."""
    same = [other for other in members if other.node == member.node]
    following = same[(same.index(member) + 1) % len(same)]
    return None if following is member else following


def choose_replica_holders(members: Sequence[Member]) -> list[str | None]:
    """For each rank the name of the actor that holds its replicas in the generation for which all have reserved."""
    holders = replication_peers([member.node for member in members])
    return [None if holder is None else members[holder].name for holder in holders]


def replica_holder(members: Sequence[Member], member: Member) -> Member | None:
    """The rank whose actor holds this one's replicas; None when that actor is gone, or there never was one."""
    holders = (other for other in members if other.name == member.replica_holder and other.handle is not None)
    return next(holders, None)


def replicas_at(members: Sequence[Member], member: Member) -> list[int]:
    """The ranks whose replicas this one's actor holds."""
    return [other.rank for other in members if other.replica_holder == member.name]


def assignments(spec: GangSpec, members: Sequence[Member], restore: int | None) -> list[RankAssignment]:
    """Every rank's place in the generation for which all of them have reserved."""
    places: dict[str, int] = {}
    sizes = Counter(member.reservation.node for member in members if member.reservation)
    numbers = {node: number for number, node in enumerate(sizes)}
    by_name: dict[str | None, int] = {member.name: member.rank for member in members}
    first = members[0].reservation
    assert first is not None and first.port is not None
    found = []
    for member in members:
        here = member.reservation
        assert here is not None
        local = places.get(here.node, 0)
        places[here.node] = local + 1
        found.append(
            RankAssignment(
                rank=member.rank,
                world_size=spec.world_size,
                local_rank=local,
                master_host=first.host,
                master_port=first.port,
                generation=here.generation,
                interface=here.interface,
                device="cuda" if spec.device == "cuda" else "cpu",
                timeout_s=collectives_timeout_s(spec),
                holder=by_name.get(member.replica_holder),
                restore=restore,
                local_world_size=sizes[here.node],
                node_rank=numbers[here.node],
                nodes=len(sizes),
                sample_s=spec.sample_s,
            )
        )
    return found
