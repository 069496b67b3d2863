"""Which rank holds which rank's snapshots, and what every rank starts with: pure functions of the ranks' placement.

Rule that it keeps: all ranks together take time in proportion to their number, as it passes on the supervisor's event loop.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from ...messages.gang_spec import GangSpec
from ...messages.rendezvous import RankAssignment
from ...snapshot.replication import replication_peers
from ..policies.hang import collectives_timeout_s
from .members import Member


class Neighbours:
    """Finds for each of a gang's `members` the ranks that hold its snapshots, and those whose replicas it holds.

    Nodes, names and holders are those at its creation. Whether an actor is gone is looked up when it is asked for.
    """

    def __init__(self, members: Sequence[Member]) -> None:
        rings: dict[str | None, list[Member]] = defaultdict(list)  # node → its ranks
        self._replicas: dict[str, list[int]] = defaultdict(list)  # name of an actor → the ranks whose replicas it holds
        for member in members:
            rings[member.node].append(member)
            if member.replica_holder is not None:
                self._replicas[member.replica_holder].append(member.rank)
        self._by_name = {member.name: member for member in members}
        self._following = {
            one.rank: following
            for ring in rings.values()
            for one, following in zip(ring, ring[1:] + ring[:1], strict=True)
        }

    def following(self, member: Member) -> Member | None:
        """The next rank on the same node, of those in a ring; None when it is alone there."""
        found = self._following[member.rank]
        return None if found is member else found

    def replica_holder(self, member: Member) -> Member | None:
        """The rank whose actor holds this one's replicas; None when that actor is gone, or there never was one."""
        found = None if member.replica_holder is None else self._by_name.get(member.replica_holder)
        return None if found is None or found.handle is None else found

    def replicas_at(self, member: Member) -> list[int]:
        """The ranks whose replicas this one's actor holds."""
        return self._replicas.get(member.name, [])


@dataclass(frozen=True)
class Start:
    """What a rank's trainer is started with."""

    assignment: RankAssignment
    holder: Member | None  # whose actor takes replicas of its snapshots
    replicas: Sequence[int]  # the ranks whose replicas its actor holds


def choose_replica_holders(members: Sequence[Member]) -> list[str | None]:
    """For each rank the name of the actor that holds its replicas in the generation for which all have reserved."""
    holders = replication_peers([member.node for member in members])
    return [None if holder is None else members[holder].name for holder in holders]


def starts(spec: GangSpec, members: Sequence[Member], restore: int | None) -> list[Start]:
    """What each rank starts with in the generation for which all of them have reserved."""
    near = Neighbours(members)
    return [
        Start(assignment, near.replica_holder(member), near.replicas_at(member))
        for member, assignment in zip(members, assignments(spec, members, restore), strict=True)
    ]


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
