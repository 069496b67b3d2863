"""The nodes of a Ray cluster: what they have, what is free, and which gangs hold the rest."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from ...workers.host_memory import total_memory
from ...workers.supervisor.policies.topology import MODEL_LABEL
from ...workers.supervisor.ranks.group_table import living_groups
from ...workers.supervisor.ranks.room import image_of, place_of
from ..schemas.node import ClusterNode
from . import allocations, ray_private
from .ray_connection import inside

#: Ray gives each node with GPUs a resource of this name and their model.
_GPU_MODEL = "accelerator_type:"


def read_nodes() -> list[ClusterNode]:
    return inside(_read_nodes_inside)


def _read_nodes_inside() -> list[ClusterNode]:
    import ray

    available = ray_private.free_resources()
    shares = allocations.by_node(living_groups())
    here, nodes = ray.get_runtime_context().get_node_id(), []
    for node in ray.nodes():
        total, free = node["Resources"], available.get(node["NodeID"], {})
        alive = bool(node["Alive"])
        cpu, gpu = float(total.get("CPU", 0)), float(total.get("GPU", 0))
        nodes.append(
            ClusterNode(
                id=node["NodeID"],
                host=node["NodeManagerHostname"],
                alive=alive,
                cpu=cpu,
                gpu=gpu,
                cpu_used=cpu - float(free.get("CPU", 0)) if alive else 0.0,
                gpu_used=gpu - float(free.get("GPU", 0)) if alive else 0.0,
                memory_bytes=int(total.get("memory", 0)),
                gangs=shares.get(node["NodeID"], []),
                gpu_model=_gpu_model(node) if gpu else "",
                **asdict(place_of(node)),
                image=image_of(node),
                host_memory_bytes=total_memory() if node["NodeID"] == here else free_memory_bytes(total),
            )
        )
    return nodes


def _gpu_model(node: Mapping[str, Any]) -> str:
    """By the label that placement uses, else by the node's resources."""
    return str(node.get("Labels", {}).get(MODEL_LABEL) or gpu_model(node["Resources"]))


def gpu_model(resources: Mapping[str, float]) -> str:
    """The model of a node's GPUs, as Ray names it; empty if Ray does not know it."""
    found = (name.removeprefix(_GPU_MODEL) for name in resources if name.startswith(_GPU_MODEL))
    return next(found, "")


def free_memory_bytes(resources: Mapping[str, float]) -> int:
    """What was free on a node when Ray began there: its object store takes memory only as it is filled."""
    return int(resources.get("memory", 0) + resources.get("object_store_memory", 0))
