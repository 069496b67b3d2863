"""The capacity of a cluster with all its nodes: from its settings, else the largest that was seen at one time.

While nodes are away, this capacity, not that of the living nodes, decides which devices a job takes and whether it is refused. A
dispatcher stores it for all processes. For an embedded cluster, which is one machine, it is the machine's capacity.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from .nodes import fleet, living_clusters, machine_of, settings_of
from .policies import queue
from .schemas.node import ClusterNode
from .settings import NodeGroup, Settings
from .store import capacities, nodes


async def remember(tx: AsyncConnection, settings: Settings, found: Iterable[ClusterNode]) -> None:
    """Store the capacity of the settings, or the present one of each image if it is the largest so far."""
    stored = {row["device"]: row for row in await capacities.of(tx, settings.cluster)}
    living = [(node.image, queue.machine(node.cpu, 0, node.gpu, 0, 1)) for node in found if node.alive]
    for device in queue.DEVICES:
        here = _by_image((image, machine.capacity[device]) for image, machine in living)
        configured = None if settings.capacity is None else _configured(settings.capacity, device)
        row = stored.get(device)
        most = here if configured is None else configured
        if configured is None and row is not None and not row["configured"] and settings.ray_address is not None:
            most = _largest(row["nodes"], here)
        if row is None or (row["nodes"], row["configured"]) != (most, configured is not None):
            await capacities.put(tx, settings.cluster, device, most, configured is not None)


def _largest(stored: Mapping[str, list[int]], here: Mapping[str, list[int]]) -> dict[str, list[int]]:
    """Of each image the capacity that is larger, the present one if they are equal."""
    both = sorted(stored.keys() | here.keys())
    return {image: max(here.get(image, []), stored.get(image, []), key=sum) for image in both}


async def whole(tx: AsyncConnection, settings: Settings, cluster: str) -> queue.Whole:
    """Device → image → ranks of each node; devices and images of unknown capacity are left out."""
    if settings.capacity is not None and cluster == settings.cluster:
        most = {device: _configured(settings.capacity, device) for device in queue.DEVICES}
    else:
        most = {row["device"]: row["nodes"] for row in await capacities.of(tx, cluster)}
    ranks = {"cpu": (await settings_of(tx, settings, cluster)).cpu_ranks_per_core, "cuda": 1}
    return {
        device: {image: [each * ranks[device] for each in nodes] for image, nodes in most[device].items()}
        for device in queue.DEVICES
        if most.get(device)
    }


async def images(tx: AsyncConnection, settings: Settings) -> tuple[str, ...]:
    """Names of the images that nodes of this process's cluster have, also those that are away."""
    known = await whole(tx, settings, settings.cluster)
    return tuple(sorted({name for nodes_of in known.values() for name in nodes_of if name}))


@dataclass(frozen=True)
class Nodes:
    """A cluster's living nodes of its own image, on which trainings run, and its devices as the queue sees them."""

    rows: Sequence[RowMapping]
    inventory: queue.Inventory
    cpu_ranks_per_core: int


async def _nodes(tx: AsyncConnection, settings: Settings, cluster: str) -> Nodes:
    among, theirs = await fleet(tx, cluster), await settings_of(tx, settings, cluster)
    machines = [machine_of(row, theirs, row["id"] in among.avoided) for row in among.alive]
    found = queue.Inventory(machines, theirs.max_ranks, await whole(tx, settings, cluster))
    return Nodes([row for row in among.alive if not row["image"]], found, theirs.cpu_ranks_per_core)


async def inventory(tx: AsyncConnection, settings: Settings, cluster: str) -> queue.Inventory:
    """A cluster's living nodes and its capacity."""
    return (await _nodes(tx, settings, cluster)).inventory


async def known(tx: AsyncConnection, settings: Settings, only: str | None = None) -> list[Nodes]:
    """The clusters whose nodes or capacity are known and that are not gone for good, by name. `only`: this one alone, known or not.

    If all are gone, all of them: their dispatchers may come back. If none was ever seen, this process's own.
    """
    if only is not None:
        return [await _nodes(tx, settings, only)]
    seen = await nodes.clusters(tx) | await capacities.clusters(tx)
    found = (await living_clusters(tx) & seen) or seen
    if settings.capacity is not None:
        found.add(settings.cluster)
    return [await _nodes(tx, settings, name) for name in sorted(found) or [settings.cluster]]


def _configured(groups: Iterable[NodeGroup], device: queue.Device) -> dict[str, list[int]]:
    amounts = [(group.image, int(group.cpus) if device == "cpu" else group.gpus, group.nodes) for group in groups]
    return _by_image((image, amount) for image, amount, nodes in amounts for _ in range(nodes))


def _by_image(amounts: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    """Image → the CPUs or GPUs of each of its nodes that has some, the largest first."""
    found: dict[str, list[int]] = defaultdict(list)
    for image, amount in sorted(amounts, key=lambda one: (one[0], -one[1])):
        if amount:
            found[image].append(amount)
    return dict(found)
