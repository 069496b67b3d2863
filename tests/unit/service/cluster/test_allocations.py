"""Ray's placement groups become what each gang has of a node; the whole table is Ray's own shape."""

from typing import Any

from shardyard.service.cluster.allocations import by_node
from shardyard.service.schemas.node import Allocation


def group(name: str, state: str, *bundles: tuple[dict[str, float], str]) -> dict[str, Any]:
    return {
        "name": name,
        "state": state,
        "bundles": {number: resources for number, (resources, _) in enumerate(bundles)},
        "bundles_to_node_id": {number: node for number, (_, node) in enumerate(bundles)},
    }


def test_bundles_are_added_up_by_node_and_gang() -> None:
    rank, gpu = {"CPU": 0.1}, {"GPU": 2.0}
    table = [
        group("shardyard-job-b-1", "CREATED", (rank, "n1"), (rank, "n2"), (rank, "n1"), (rank, "n1")),
        group("shardyard-job-a-2", "CREATED", (gpu, "n1")),
    ]
    assert by_node(table) == {
        "n1": [
            Allocation(gang="shardyard-job-a-2", cpu=0.0, gpu=2.0),
            Allocation(gang="shardyard-job-b-1", cpu=0.3, gpu=0.0),
        ],
        "n2": [Allocation(gang="shardyard-job-b-1", cpu=0.1, gpu=0.0)],
    }


def test_what_is_gone_or_not_ours_holds_nothing() -> None:
    table = [
        group("shardyard-job-a-1", "REMOVED", ({"CPU": 1.0}, "n1")),
        group("another-users", "CREATED", ({"CPU": 1.0}, "n1")),
        group("", "CREATED", ({"CPU": 1.0}, "n1")),
    ]
    assert by_node(table) == {}
