from collections import Counter

import pytest

from shardyard.workers.messages.gang_spec import GangSpec
from shardyard.workers.messages.rendezvous import Reservation, SnapshotHandle
from shardyard.workers.supervisor.ranks.handles import RankHandle
from shardyard.workers.supervisor.ranks.members import Member
from shardyard.workers.supervisor.ranks.spares import Spare, choice, share_out


def gang(ranks: int, spares: int, tensor: int = 1) -> GangSpec:
    return GangSpec("shardyard-a-1", {}, ranks, tensor, spares=spares)


def member(node: str, held_by: str | None = None) -> Member:
    """A rank of `node` whose snapshots a neighbour there holds too."""
    snapshots = None if held_by is None else SnapshotHandle(held_by, 1, (3, 4))
    return Member(0, reservation=Reservation(0, node, "host", None, None, 1, 1, (3, 4)), snapshots=snapshots)


@pytest.mark.parametrize(
    ("sizes", "spares", "shares"),
    [
        ({"a": 5}, 1, {"a": 1}),
        ({"a": 5, "b": 5}, 2, {"a": 1, "b": 1}),
        ({"a": 8, "b": 2}, 2, {"a": 2}),
        ({"a": 6, "b": 3}, 3, {"a": 2, "b": 1}),
        ({"a": 2, "b": 1}, 2, {"a": 1, "b": 1}),
    ],
)
def test_every_node_has_its_share_of_spares(sizes: dict[str, int], spares: int, shares: dict[str, int]) -> None:
    where = dict(enumerate(node for node, size in sizes.items() for _ in range(size)))
    ranks, others = share_out(gang(len(where) - spares, spares), where)
    assert sorted(ranks + others) == sorted(where)
    assert Counter(where[bundle] for bundle in others) == shares
    assert [where[bundle] for bundle in ranks] == sorted(where[bundle] for bundle in ranks)


def test_tensor_groups_keep_their_bundles() -> None:
    where = {0: "b", 1: "a", 2: "b", 3: "a"}  # the last two are of one device each
    assert share_out(gang(4, 2, tensor=2), where) == ([1, 0], [2, 3])


def test_a_spare_stands_in_where_the_ranks_snapshots_are() -> None:
    here, there, unborn = Spare(4, "here", "a"), Spare(5, "there", "b"), Spare(6)
    assert choice(gang(4, 3), member("a", "a"), [unborn, there, here]) is here
    assert choice(gang(4, 3), member("a", "a"), [unborn, there]) is None


def test_a_rank_whose_memory_is_lost_goes_anywhere_but_out_of_its_tensor_group() -> None:
    there = Spare(5, "there", "b")
    assert choice(gang(4, 1), member("a"), [there]) is there
    assert choice(gang(4, 1, tensor=2), member("a"), [there]) is None
    assert choice(gang(4, 1, tensor=2), member("b"), [there]) is there


def test_a_restarted_supervisor_knows_names_and_places() -> None:
    spare = Spare(4, "shardyard-a-1-rank-spare-0f", "a", handle=RankHandle(object()))
    again = Spare.from_state(spare.to_state())
    assert (again.bundle, again.name, again.node, again.handle) == (4, spare.name, "a", None)
