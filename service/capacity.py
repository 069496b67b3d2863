"""The capacity of a cluster with all its nodes: from its settings, else the largest that was seen at one time.

While nodes are away, this capacity, not that of the living nodes, decides which devices a job takes and whether it is refused. A
dispatcher stores it for all processes. For an embedded cluster, which is one machine, it is the machine's capacity.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from .nodes import fleet, living_clusters, machine_of, settings_of
from .policies import queue
from .schemas.node import ClusterNode
from .settings import NodeGroup, Settings
from .store import capacities, nodes


async def remember(tx: AsyncConnection, settings: Settings, found: Iterable[ClusterNode]) -> None:
    """Store the capacity of the settings, or the present one if it is the largest so far."""
    stored = {row["device"]: row for row in await capacities.of(tx, settings.cluster)}
    living = [queue.machine(node.cpu, 0, node.gpu, 0, 1) for node in found if node.alive]
    for device in queue.DEVICES:
        here = _sorted(machine.capacity[device] for machine in living)
        configured = None if settings.capacity is None else _configured(settings.capacity, device)
        row = stored.get(device)
        if configured is None and row is not None and settings.ray_address is not None and not _outgrown(row, here):
            continue
        most = here if configured is None else configured
        if row is None or (row["nodes"], row["configured"]) != (most, configured is not None):
            await capacities.put(tx, settings.cluster, device, most, configured is not None)


def _outgrown(row: RowMapping, here: Sequence[int]) -> bool:
    """Whether the present capacity replaces the stored one."""
    return bool(row["configured"]) or sum(here) >= sum(row["nodes"])


async def whole(tx: AsyncConnection, settings: Settings, cluster: str) -> queue.Whole:
    """Device → ranks of each node; devices of unknown capacity are left out."""
    if settings.capacity is not None and cluster == settings.cluster:
        most = {device: _configured(settings.capacity, device) for device in queue.DEVICES}
    else:
        most = {row["device"]: row["nodes"] for row in await capacities.of(tx, cluster)}
    ranks = {"cpu": (await settings_of(tx, settings, cluster)).cpu_ranks_per_core, "cuda": 1}
    return {device: [each * ranks[device] for each in most[device]] for device in queue.DEVICES if most.get(device)}


@dataclass(frozen=True)
class Nodes:
    """A cluster's living nodes, and its devices as the queue sees them."""

    rows: Sequence[RowMapping]
    inventory: queue.Inventory
    cpu_ranks_per_core: int


async def _nodes(tx: AsyncConnection, settings: Settings, cluster: str) -> Nodes:
    among, theirs = await fleet(tx, cluster), await settings_of(tx, settings, cluster)
    machines = [machine_of(row, theirs, row["id"] in among.avoided) for row in among.alive]
    found = queue.Inventory(machines, theirs.max_ranks, await whole(tx, settings, cluster))
    return Nodes(among.alive, found, theirs.cpu_ranks_per_core)


async def inventory(tx: AsyncConnection, settings: Settings, cluster: str) -> queue.Inventory:
    """A cluster's living nodes and its capacity."""
    return (await _nodes(tx, settings, cluster)).inventory


async def known(tx: AsyncConnection, settings: Settings) -> list[Nodes]:
    """The clusters whose nodes or capacity are known and that are not gone for good, by name.

    If all are gone, all of them: their dispatchers may come back. If none was ever seen, this process's own.
    """
    seen = await nodes.clusters(tx) | await capacities.clusters(tx)
    found = (await living_clusters(tx) & seen) or seen
    if settings.capacity is not None:
        found.add(settings.cluster)
    return [await _nodes(tx, settings, name) for name in sorted(found) or [settings.cluster]]


def _configured(groups: Iterable[NodeGroup], device: queue.Device) -> list[int]:
    amounts = [(int(group.cpus) if device == "cpu" else group.gpus, group.nodes) for group in groups]
    return _sorted(amount for amount, nodes in amounts for _ in range(nodes))


def _sorted(amounts: Iterable[int]) -> list[int]:
    return sorted((amount for amount in amounts if amount), reverse=True)
