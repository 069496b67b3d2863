"""Reads from Ray what room each node has for a gang, and chooses where its bundles go (`policies/topology.py`).

What other placement groups hold is not free. Actors and tasks outside of them are not counted: Ray then waits for their end.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ...messages.gang_spec import GangSpec
from ..policies.topology import IMAGE_LABEL, LABELS, MODEL_LABEL, NodeRoom, Place, choose, selectors
from .group_table import Row, living_groups


@dataclass(frozen=True)
class Choice:
    """Ray's label selector of each tensor group. Not `possible`: no zone or domain that the spec requires has room."""

    selectors: Sequence[Mapping[str, str]] = ()
    possible: bool = True


def choose_nodes(spec: GangSpec) -> Choice:
    import ray

    nodes = ray.nodes()
    uniform = len({(place_of(node), _model(node), image_of(node)) for node in nodes if node["Alive"]}) <= 1
    return chosen(spec, nodes, () if uniform else living_groups())


def node_places() -> dict[str, Place]:
    """The place of each node that has labels."""
    import ray

    return {str(node["NodeID"]): place for node in ray.nodes() if (place := place_of(node)) != Place()}


def chosen(spec: GangSpec, nodes: Iterable[Row], groups: Iterable[Row]) -> Choice:
    """The best nodes with room now, else those that have room when others have ended."""
    used = used_by_others(groups, spec.name)
    living = [node for node in nodes if node["Alive"] and node["NodeID"] not in spec.avoided]
    free = [room(node, spec, used.get(node["NodeID"], {})) for node in living]
    whole = [room(node, spec, {}) for node in living]
    parts = choose(free, spec) or choose(whole, spec)
    if parts is None and spec.within is not None:
        return Choice(possible=False)
    able = [node for node in whole if node.bundles or (spec.spares and node.rest)]
    return Choice(selectors(parts, able, spec))


def used_by_others(groups: Iterable[Row], gang: str) -> dict[str, Counter[str]]:
    """Node → resource → what the placement groups of other gangs hold of it."""
    used: dict[str, Counter[str]] = defaultdict(Counter)
    for group in groups:
        if group["name"] != gang:
            for bundle, node in group["bundles_to_node_id"].items():
                used[str(node)].update(group["bundles"][bundle])
    return used


def room(node: Row, spec: GangSpec, used: Mapping[str, float]) -> NodeRoom:
    """A node's room for the tensor groups and spares of a gang, beside what is `used`."""
    total = node["Resources"]
    ranks = min(
        int(max(0.0, total.get(name, 0) - used.get(name, 0) + 1e-6) / share) for name, share in spec.resources.items()
    )
    bundles, rest = divmod(ranks, spec.tensor)
    return NodeRoom(str(node["NodeID"]), bundles, _model(node), place_of(node), image_of(node), rest)


def place_of(node: Row) -> Place:
    labels = node.get("Labels", {})
    return Place(**{level: labels.get(label, "") for level, label in LABELS.items()})


def image_of(node: Row) -> str:
    """Name of the image that the node's Ray worker runs; empty: the cluster's own."""
    return str(node.get("Labels", {}).get(IMAGE_LABEL, ""))


def _model(node: Row) -> str:
    return str(node.get("Labels", {}).get(MODEL_LABEL, ""))
