"""Ray's placement groups become what each gang has of a node; the whole table is Ray's own shape."""

from typing import Any

from shardyard.service.cluster.allocations import by_node
from shardyard.service.schemas.node import Allocation


def group(name: str, *bundles: tuple[dict[str, float], str]) -> dict[str, Any]:
    return {
        "name": name,
        "bundles": {number: resources for number, (resources, _) in enumerate(bundles)},
        "bundles_to_node_id": {number: node for number, (_, node) in enumerate(bundles)},
    }


def test_bundles_are_added_up_by_node_and_gang() -> None:
    rank, gpu = {"CPU": 0.1}, {"GPU": 2.0}
    table = [
        group("shardyard-job-b-1", (rank, "n1"), (rank, "n2"), (rank, "n1"), (rank, "n1")),
        group("shardyard-job-a-2", (gpu, "n1")),
    ]
    assert by_node(table) == {
        "n1": [
            Allocation(gang="shardyard-job-a-2", cpu=0.0, gpu=2.0),
            Allocation(gang="shardyard-job-b-1", cpu=0.3, gpu=0.0),
        ],
        "n2": [Allocation(gang="shardyard-job-b-1", cpu=0.1, gpu=0.0)],
    }


def test_what_is_not_ours_is_no_gangs() -> None:
    table = [
        group("another-users", ({"CPU": 1.0}, "n1")),
        group("", ({"CPU": 1.0}, "n1")),
    ]
    assert by_node(table) == {}
