from dataclasses import replace

from shardyard.workers.host_memory import MemoryLimit
from shardyard.workers.snapshot.host_room import Demand, shortage

GB = 10**9


def limit(free: float, key: str = "host-a", name: str = "the host's memory", total: float = 200) -> MemoryLimit:
    return MemoryLimit(key, name, int(total * GB), int(free * GB))


def gang(count: int, size: float, *limits: MemoryLimit) -> list[Demand]:
    return [Demand(int(size * GB), int(size * GB), limits) for _ in range(count)]


def test_the_ranks_of_a_node_need_their_memory_together() -> None:
    assert shortage(gang(4, 10, limit(51))) is None
    assert shortage(gang(5, 10, limit(51))) == (
        "Snapshots and checkpoints on the node of rank 0 and 4 more need 50.0 GB beside what they have, and 51.0 GB of 200.0 GB are free "
        "(the host's memory)"
    ), "10 GB must stay free"


def test_the_tightest_limit_decides_and_limits_of_others_do_not_count() -> None:
    pod = limit(9, "pod", "memory.max of the cgroup /pod", 16)
    first, second = gang(1, 10, limit(100), pod), gang(3, 10, limit(100))
    assert shortage(second) is None
    why = shortage([*second, *first])
    assert why is not None and "node of rank 3 and 0 more need 10.0 GB" in why and "/pod" in why


def test_the_newest_measurement_of_a_shared_limit_counts() -> None:
    demands = gang(2, 10, limit(40))
    assert shortage(demands) is None
    assert shortage([demands[0], replace(demands[1], limits=(limit(20),))]) is not None


def test_replicas_take_memory_where_their_holder_is() -> None:
    nodes = [*gang(2, 10, limit(45, "a")), *gang(2, 10, limit(45, "b"))]
    assert shortage(nodes) is None
    copied = [replace(demand, holder=holder) for demand, holder in zip(nodes, (2, 3, 0, 1), strict=True)]
    why = shortage(copied)
    assert why is not None and "need 40.0 GB beside what they have" in why


def test_what_is_allocated_already_is_not_counted_again() -> None:
    nodes = [*gang(2, 10, limit(3, "a")), *gang(2, 10, limit(3, "b"))]
    repaired = [
        replace(demand, missing=0, holder=holder, replicas={holder: 10 * GB})
        for demand, holder in zip(nodes, (2, 3, 0, 1), strict=True)
    ]
    assert shortage(repaired) is None, "a repair in which every actor has kept its memory"
    moved = [repaired[0], repaired[1], repaired[2], replace(repaired[3], missing=10 * GB, replicas={})]
    assert shortage(moved) is not None, "a new actor has nothing yet"


def test_small_snapshots_need_no_large_margin() -> None:
    assert shortage(gang(2, 0.004, limit(0.02))) is None
    assert shortage(gang(2, 0.004, limit(0.015))) is not None


def test_without_known_limits_everything_fits() -> None:
    assert shortage(gang(2, 10)) is None


def test_the_copy_from_which_checkpoints_are_written_has_its_room() -> None:
    """It is made by the first save, which may be the last step's: then a lack of memory would cost the run."""
    four = [replace(demand, later=5 * GB) for demand in gang(4, 10, limit(71))]
    assert shortage(four) is None
    why = shortage([replace(demand, limits=(limit(65),)) for demand in four])
    assert why is not None and "need 60.0 GB beside what they have" in why
