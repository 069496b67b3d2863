"""A plan is refused only if no choice of known nodes has room for its ranks."""

import pytest

from shardyard.strategies.cost.node_room import (
    CPU_RESERVED_BYTES,
    GPU_RESERVED_BYTES,
    Cluster,
    HostNeed,
    Room,
    verdict,
)
from shardyard.strategies.cost.plan import Plan
from shardyard.strategies.cost.snapshots import SNAPSHOTS

GIB = 2**30
PLAN = Plan({"parameters": 10 * GIB}, "loss", {"optimizer": 5 * GIB})


def on_gpus(ranks: int, *clusters: Cluster) -> bool | None:
    return verdict(PLAN, "cuda", ranks, clusters).fits


def on_cpus(ranks: int, *rooms: Room) -> bool | None:
    return verdict(PLAN, "cpu", ranks, [Cluster(rooms)]).fits


def test_each_gpu_has_its_own_memory_less_what_the_process_holds() -> None:
    found = verdict(PLAN, "cuda", 8, [Cluster([Room(8, 12 * GIB)])])
    assert (found.fits, found.needed, found.memory) == (True, 10 * GIB + GPU_RESERVED_BYTES, 12 * GIB)
    assert on_gpus(8, Cluster([Room(8, 12 * GIB - 1)])) is False


def test_cpu_ranks_share_the_memory_of_their_node_with_what_they_offload() -> None:
    each = 15 * GIB + CPU_RESERVED_BYTES
    assert on_cpus(2, Room(8, 2 * each, shared=True)) is True
    assert on_cpus(3, Room(8, 2 * each, shared=True)) is False
    assert on_cpus(3, Room(8, 2 * each, shared=True), Room(8, each, shared=True)) is True


def test_ranks_on_gpus_share_the_host_memory_of_their_node_with_what_they_offload() -> None:
    each = 5 * GIB + CPU_RESERVED_BYTES
    found = verdict(PLAN, "cuda", 8, [Cluster([Room(8, 12 * GIB, host=8 * each)])])
    assert (found.fits, found.needed, found.lacks_host) == (True, 10 * GIB + GPU_RESERVED_BYTES, False)
    assert found.host == HostNeed(each, CPU_RESERVED_BYTES, 8 * each, 8) and found.host.share == 1
    short = verdict(PLAN, "cuda", 8, [Cluster([Room(8, 12 * GIB, host=8 * each - 1)])])
    assert (short.fits, short.lacks_host) == (False, True) and short.share == short.host.share > 1
    assert on_gpus(7, Cluster([Room(8, 12 * GIB, host=8 * each - 1)])) is True
    small, large = Room(8, 12 * GIB, host=3 * each), Room(4, 12 * GIB, host=9 * each)
    assert on_gpus(7, Cluster([small, large])) is True and on_gpus(8, Cluster([small, large])) is False


def test_host_memory_that_is_not_known_has_room_and_what_is_known_counts_on_any_gpu() -> None:
    assert on_gpus(8, Cluster([Room(8, 12 * GIB, host=GIB), Room(8, 12 * GIB)])) is True
    assert on_gpus(8, Cluster([Room(8, 12 * GIB, host=GIB)], unseen=8)) is None
    assert on_gpus(8, Cluster([Room(8, None, host=99 * GIB)])) is None
    assert on_gpus(8, Cluster([Room(8, None, host=GIB)])) is False
    assert on_gpus(8, Cluster([Room(8, 12 * GIB, host=GIB)]).without_host) is True


def test_a_plan_that_offloads_nothing_is_not_compared_with_host_memory() -> None:
    plan = Plan({"parameters": GIB}, "loss", {SNAPSHOTS: 99 * GIB})
    found = verdict(plan, "cuda", 8, [Cluster([Room(8, 12 * GIB, host=1)])])
    assert found.fits is True and found.host == HostNeed()


def test_what_a_gpu_lacks_is_not_laid_to_its_host() -> None:
    both = verdict(PLAN, "cuda", 8, [Cluster([Room(8, GIB, host=GIB)])])
    assert both.fits is False and not both.lacks_host and both.host.share > 1


def test_snapshots_do_not_count_because_a_run_can_do_without() -> None:
    plain, kept = (Plan({"parameters": GIB}, "loss", host) for host in ({}, {SNAPSHOTS: 99 * GIB}))
    assert verdict(plain, "cpu", 1, []).needed == verdict(kept, "cpu", 1, []).needed


def test_different_nodes_have_room_if_enough_of_them_do() -> None:
    small, large = Room(8, 11 * GIB), Room(8, 80 * GIB)
    assert on_gpus(8, Cluster([small, large])) is True
    assert on_gpus(9, Cluster([small, large])) is False
    assert on_gpus(9, Cluster([small, large]), Cluster([Room(16, 80 * GIB)])) is True


@pytest.mark.parametrize(
    "cluster",
    [
        Cluster([]),
        Cluster([Room(8, None)]),
        Cluster([Room(4, 11 * GIB)]),
        Cluster([Room(8, 11 * GIB)], unseen=8),
        Cluster([Room(4, 80 * GIB), Room(4, None)]),
    ],
    ids=["no node", "memory unknown", "too few devices", "nodes may come", "some unknown"],
)
def test_what_is_not_known_is_not_refused(cluster: Cluster) -> None:
    assert on_gpus(8, cluster) is None


def test_without_a_cluster_nothing_is_known() -> None:
    assert on_gpus(1) is None
