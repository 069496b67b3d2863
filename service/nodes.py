"""Operations on the cluster's nodes: list them, and keep new gangs away from one for a while."""

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from .errors import AmbiguousNode, NodeNotFound
from .ids import job_of
from .policies import cordon as policy
from .policies import queue
from .schemas.node import Cordon, DeviceCapacity, ElasticRanks, Node, NodeAllocation
from .schemas.system import NodeUse
from .settings import Settings
from .store import clusters, cordons, jobs, node_history, nodes, system_samples
from .store.engine import Store

#: An id may be shortened to this number of characters if it still identifies one node.
_SHORTEST = 6
#: The most gangs of a node that are named. If there are more, only their number is returned.
_NAMED = 64
#: Seconds after which a sample of a node no longer says what it uses.
_USE_S = 60.0


def machine_of(row: RowMapping | Mapping[str, Any], settings: Settings, cordoned: bool = False) -> queue.Machine:
    """A row of `nodes` as the queue's policy sees it."""
    ranks = settings.cpu_ranks_per_core
    found = queue.machine(row["cpu"], row["cpu_used"], row["gpu"], row["gpu_used"], ranks, cordoned)
    cores = {"cores": row["cpu"], "cores_free": row["cpu"] - row["cpu_used"]}
    where = {"zone": row["zone"], "domain": row["domain"], "image": row["image"]}
    cpu, gpu = (sum(share[name] for share in row["gangs"]) for name in ("cpu", "gpu"))
    used = queue.machine(row["cpu"], row["cpu_used"] - cpu, row["gpu"], row["gpu_used"] - gpu, ranks)
    others = {one: max(0, used.capacity[one] - used.free[one]) for one in queue.DEVICES}
    return replace(found, model=row["gpu_model"], others=others, **where, **cores)


def kinds_of(row: RowMapping) -> frozenset[queue.Device]:
    """The kinds of devices that a node has."""
    return frozenset(device for device, amount in (("cpu", row["cpu"]), ("cuda", row["gpu"])) if amount >= 1)  # type: ignore[misc]


@dataclass(frozen=True)
class Fleet:
    """The living nodes, those that no new gang may use, and those that stay in use though they are cordoned."""

    alive: Sequence[RowMapping]
    avoided: Collection[str]
    spared: Collection[str]


async def fleet(tx: AsyncConnection, cluster: str) -> Fleet:
    alive = [row for row in await nodes.all_nodes(tx, cluster) if row["alive"]]
    held = await cordons.holding(tx)
    ids = {row["id"] for row in alive}
    mine = {node: policy.Cordon(row["until"], row["by_hand"]) for node, row in held.items() if node in ids}
    spared = policy.spared({row["id"]: kinds_of(row) for row in alive}, mine)
    return Fleet(alive, sorted(mine.keys() - set(spared)), spared)


async def settings_of(tx: AsyncConnection, settings: Settings, cluster: str) -> Settings:
    """Those by which the cluster's devices are counted in ranks. Of another cluster, as its dispatcher has stored them."""
    stored = None if cluster == settings.cluster else await clusters.limits(tx, cluster)
    return settings if stored is None else settings.model_copy(update=dict(stored))


async def living_clusters(tx: AsyncConnection) -> set[str]:
    """The clusters that are not gone for good."""
    return {name for name, age in (await clusters.ages(tx)).items() if age <= clusters.GONE_S}


async def all_nodes(store: Store, settings: Settings) -> list[Node]:
    """The cluster's machines as last seen; empty until a dispatcher has seen them."""
    async with store.read() as tx:
        return await _records(tx, settings)


async def _records(tx: AsyncConnection, settings: Settings) -> list[Node]:
    held = await cordons.holding(tx)
    faults = await cordons.counts(tx, settings.rules.cordon.window_s)
    living = await living_clusters(tx)
    found = await nodes.all_nodes(tx)
    rows = [{**row, "alive": row["alive"] and row["cluster"] in living} for row in found]
    uses = await system_samples.of_nodes(tx, time.time() - _USE_S)
    spared = {node for name in living for node in (await fleet(tx, name)).spared}
    named = {(row["cluster"], row["id"]): _gangs(row)[:_NAMED] for row in rows}
    holders = await jobs.holders(tx, {job for gangs in named.values() for job, _ in gangs})
    theirs = {name: await settings_of(tx, settings, name) for name in {row["cluster"] for row in rows}}
    return [
        Node(
            **row,
            use=NodeUse(**uses[row["id"]]) if row["id"] in uses else None,
            devices=_devices(row, theirs[row["cluster"]]),
            held=[
                _holding(holders[job], share, theirs[row["cluster"]])
                for job, share in named[row["cluster"], row["id"]]
                if job in holders
            ],
            held_more=max(0, len(_gangs(row)) - _NAMED),
            faults=faults.get(row["id"], 0),
            cordon=_cordon(held.get(row["id"])),
            in_use=row["alive"] and (row["id"] not in held or row["id"] in spared),
        )
        for row in rows
    ]


def _gangs(row: Mapping[str, Any]) -> list[tuple[str, Mapping[str, float]]]:
    """The jobs whose gangs are on a living node, and the share of each, the largest first."""
    shares = sorted(row["gangs"], key=lambda share: (-share["gpu"], -share["cpu"], share["gang"]))
    named = [(job_of(share["gang"]), share) for share in shares] if row["alive"] else []
    return [(gang[0], share) for gang, share in named if gang is not None]


def _devices(row: Mapping[str, Any], settings: Settings) -> list[DeviceCapacity]:
    machine = machine_of(row, settings)
    return [
        DeviceCapacity(kind=kind, all=machine.capacity[kind], free=machine.free[kind])
        for kind in machine.capacity
        if machine.capacity[kind]
    ]


def _holding(job: RowMapping, share: Mapping[str, float], settings: Settings) -> NodeAllocation:
    ranks = round(share["gpu"] or share["cpu"] * settings.cpu_ranks_per_core)
    sizes = [layout["world_size"] for layout in job["elastic"] or ()]
    elastic = ElasticRanks(min=min(sizes), max=max(sizes)) if sizes else None
    return NodeAllocation(job=job["id"], name=job["name"], state=job["state"], ranks=ranks, elastic=elastic)


async def last_seen(store: Store) -> tuple[int, float | None]:
    """How many machines are alive, and how many seconds ago a dispatcher saw one of them, or else a lost one; None without any.

    Reads no machine's record.
    """
    async with store.read() as tx:
        living, rows = await living_clusters(tx), await nodes.seen(tx)
    alive = [row for row in rows if row["alive"] and row["cluster"] in living]
    last = max((row["last"] for row in alive or rows), default=None)
    return sum(row["count"] for row in alive), None if last is None else time.time() - last


async def cordon(store: Store, settings: Settings, node: str, seconds: float | None, message: str, actor: str) -> Node:
    """Keep new gangs away from a node (id, start of an id, or host) for `seconds`, or until it is uncordoned if that is None.

    Gangs that run there continue. Raises NodeNotFound, AmbiguousNode.
    """
    async with store.write() as tx:
        found = await _find(tx, node)
        await cordons.begin(tx, {"node": found, "by_hand": True, "actor": actor, "message": message}, seconds)
        return await _record(tx, settings, found)


async def uncordon(store: Store, settings: Settings, node: str, actor: str) -> Node:
    """Let gangs use a node again, and count its faults from zero. Harmless when it was not cordoned. Raises NodeNotFound, AmbiguousNode."""
    async with store.write() as tx:
        found = await _find(tx, node)
        await cordons.end(tx, found, actor)
        await cordons.forget_faults(tx, found, settings.rules.cordon.window_s)
        return await _record(tx, settings, found)


async def history(store: Store, limit: int = 100) -> list[Cordon]:
    """All cordons, the newest first."""
    async with store.read() as tx:
        return [Cordon(**row) for row in await cordons.history(tx, limit)]


async def _record(tx: AsyncConnection, settings: Settings, node: str) -> Node:
    return next(record for record in await _records(tx, settings) if record.id == node)


@dataclass(frozen=True)
class PastNode:
    """A node of which something may be stored; it may be gone."""

    cluster: str
    id: str
    host: str


async def find_past(tx: AsyncConnection, wanted: str) -> PastNode:
    """A node (id, start of an id, or host), or one of this id that is gone. Raises NodeNotFound, AmbiguousNode."""
    try:
        found = await _find(tx, wanted)
    except NodeNotFound:
        gone = None if "\0" in wanted else await node_history.newest_change(tx, wanted)
        if gone is None:
            raise
        return PastNode(gone["cluster"], wanted, gone["host"])
    row = next(row for row in await nodes.all_nodes(tx) if row["id"] == found)
    return PastNode(row["cluster"], found, row["host"])


async def _find(tx: AsyncConnection, wanted: str) -> str:
    """The node of this id; else the living one of this start of an id, or host; else the lost one that was seen last."""
    rows, there = await nodes.all_nodes(tx), await living_clusters(tx)
    living = [row for row in rows if row["alive"] and row["cluster"] in there]
    newest = sorted(rows, key=lambda row: -row["seen_at"])
    exact = [row["id"] for row in rows if row["id"] == wanted]
    # A restart of Ray gives a host another id; a cluster that was renamed has the same ids.
    found = [*dict.fromkeys(exact or _matching(living, wanted) or _matching(newest, wanted)[:1])]
    if not found:
        raise NodeNotFound(
            f"There is no node {wanted[:80]!r}.", remedy="See `shardyard nodes` for the nodes that are known."
        )
    if len(found) > 1:
        raise AmbiguousNode(
            f"{wanted[:80]!r} matches {len(found)} nodes.", remedy=f"Give an id: {', '.join(found[:8])}."
        )
    return str(found[0])


def _matching(rows: Sequence[RowMapping], wanted: str) -> list[str]:
    begins = [row["id"] for row in rows if len(wanted) >= _SHORTEST and row["id"].startswith(wanted)]
    return begins or [row["id"] for row in rows if row["host"] == wanted]


def _cordon(row: RowMapping | None) -> Cordon | None:
    return None if row is None else Cordon(**row)
