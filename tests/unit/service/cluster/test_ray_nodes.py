"""What Ray says of a node: its resources, and which gangs hold them."""

from types import SimpleNamespace

from pytest import MonkeyPatch

from shardyard.service.cluster import ray_nodes, ray_private
from shardyard.service.cluster.ray_nodes import free_memory_bytes, gpu_model
from shardyard.service.schemas.node import Allocation


def test_the_model_of_the_gpus_is_the_name_of_a_resource() -> None:
    assert gpu_model({"CPU": 8.0, "GPU": 4.0, "accelerator_type:H100": 1.0}) == "H100"
    assert gpu_model({"CPU": 8.0, "GPU": 4.0}) == ""


def test_the_object_store_takes_memory_only_as_it_is_filled() -> None:
    assert free_memory_bytes({"memory": 3.0e9, "object_store_memory": 1.0e9}) == 4 * 10**9
    assert free_memory_bytes({"CPU": 1.0}) == 0


def test_gangs_are_read_from_the_groups_that_live(monkeypatch: MonkeyPatch) -> None:
    """Ray's public table has a row of each gang since its head began."""
    import ray

    row = {"NodeID": "n", "NodeManagerHostname": "host", "Alive": True, "Resources": {"CPU": 4.0}}
    group = {"name": "shardyard-job-a-1", "bundles": {0: {"CPU": 1.0}}, "bundles_to_node_id": {0: "n"}}
    monkeypatch.setattr(ray, "nodes", lambda: [row])
    monkeypatch.setattr(ray, "get_runtime_context", lambda: SimpleNamespace(get_node_id=lambda: "n"))
    monkeypatch.setattr(ray_private, "free_resources", lambda: {"n": {"CPU": 3.0}})
    monkeypatch.setattr(ray_nodes, "living_groups", lambda: [group])
    [node] = ray_nodes._read_nodes_inside()
    assert (node.cpu, node.cpu_used) == (4.0, 1.0)
    assert node.gangs == [Allocation(gang="shardyard-job-a-1", cpu=1.0, gpu=0.0)]
