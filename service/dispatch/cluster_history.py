"""Records a cluster's history: what it and its nodes use, each minute, and with each look at the nodes what changed on them.

A minute's sample is stored once, also by several dispatchers. What is older than is kept is removed with it, and what only dispatchers of
clusters that are gone would end ends.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from ..ids import job_of
from ..nodes import fleet, machine_of
from ..policies.queue import DEVICES
from ..settings import Settings
from ..store import cluster_samples, clusters, jobs, node_history, system_samples
from ..store.engine import Store
from . import gone_clusters

#: Seconds for which changes of nodes, attempts that were on them, and clusters without a dispatcher are kept.
KEPT_S: Final = 8 * 86_400.0
#: Seconds after which a sample of a node no longer says what it uses.
_FRESH_S: Final = 60.0
#: Seconds for which an attempt may have ended before what is open of it is ended too.
_LEFT_OPEN_S: Final = 300.0
#: Users, and teams, that are named in a sample; the others are added up under an empty name.
_MOST_HOLDERS: Final = 20
#: The label of a job that names its team.
TEAM: Final = "team"
#: Nodes in one transaction.
_AT_ONCE: Final = 200

#: A row of `nodes`.
_Row = Mapping[str, Any] | RowMapping


async def note_changes(
    tx: AsyncConnection, cluster: str, before: Sequence[_Row], found: Sequence[_Row], now: float
) -> None:
    """Store which nodes joined, were lost or returned, and which gangs came to nodes or left them, from one look to the next."""
    were, are = _living(before), _living(found)
    changes = [_lost(row, found, now) for id_, row in were.items() if id_ not in are]
    if new := [are[id_] for id_ in are.keys() - were.keys()]:
        lost = await node_history.lost_hosts(tx, cluster, now - KEPT_S)
        lost |= {row["host"]: now for row in changes}
        changes += [_joined(row, lost.get(row["host"]), now) for row in new]
    await node_history.insert_changes(tx, [{"cluster": cluster, **row} for row in changes])
    had, have = _shares(were.values()), _shares(are.values())
    await node_history.end(tx, had.keys() - have.keys(), now)
    # Ray may move a lost node's part of a gang to a node where the gang is: that share grows.
    await node_history.begin(tx, {share: part for share, part in have.items() if part != had.get(share)}, now)


def _living(rows: Iterable[_Row]) -> dict[str, _Row]:
    return {row["id"]: row for row in rows if row["alive"]}


def _lost(row: _Row, found: Iterable[_Row], now: float) -> dict[str, Any]:
    reported = any(one["id"] == row["id"] for one in found)
    reason = "Ray reports that it is dead" if reported else "The cluster no longer lists it"
    gangs = len(row["gangs"])
    on_it = "no gang was" if gangs == 0 else "1 gang was" if gangs == 1 else f"{gangs} gangs were"
    message = f"{reason}; {on_it} on it."
    return {"node": row["id"], "at": now, "kind": "lost", "host": row["host"], "message": message}


def _joined(row: _Row, lost_at: float | None, now: float) -> dict[str, Any]:
    same = {"node": row["id"], "at": now, "host": row["host"]}
    if lost_at is None:
        return {**same, "kind": "joined", "message": ""}
    return {**same, "kind": "returned", "message": f"The host was lost {_ago(now - lost_at)}."}


def _ago(seconds: float) -> str:
    for size, name in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {name} before"
    return f"{seconds:.0f} s before"


def _shares(rows: Iterable[_Row]) -> dict[node_history.Share, dict[str, float]]:
    """What each attempt has of each node."""
    return {
        (*gang, row["id"]): {"cpu": share["cpu"], "gpu": share["gpu"]}
        for row in rows
        for share in row["gangs"]
        if (gang := job_of(share["gang"])) is not None
    }


async def record(store: Store, settings: Settings) -> None:
    """Store this minute's sample, unless it is stored, and remove what is too old."""
    now, cluster = time.time(), settings.cluster
    async with store.read() as tx:
        if await cluster_samples.is_recorded(tx, cluster, now):
            return
        whole, nodes = await _samples(tx, settings, now)
    if not nodes:
        return
    async with store.write() as tx:
        await clusters.locked(tx, cluster)  # of two dispatchers one waits here, and finds the sample
        if await cluster_samples.is_recorded(tx, cluster, now):
            return
        await cluster_samples.add(tx, cluster, now, {cluster_samples.WHOLE: whole})
        await cluster_samples.remove_old(tx, now)
        await node_history.end_with_attempts(tx, now - _LEFT_OPEN_S)
        await node_history.remove_old(tx, now - KEPT_S)
        await clusters.remove_old(tx, KEPT_S, but=cluster)
    await gone_clusters.end_cancelled(store, settings, KEPT_S)
    await gone_clusters.end_operations(store, settings)
    ids = sorted(nodes)
    for start in range(0, len(ids), _AT_ONCE):
        async with store.write() as tx:
            await cluster_samples.add(tx, cluster, now, {id_: nodes[id_] for id_ in ids[start : start + _AT_ONCE]})


async def _samples(
    tx: AsyncConnection, settings: Settings, now: float
) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
    """What the cluster uses, and each of its living nodes."""
    among = await fleet(tx, settings.cluster)
    uses = await system_samples.of_nodes(tx, now - _FRESH_S)
    whole = {"nodes/alive": float(len(among.alive)), "nodes/cordoned": float(len(among.avoided))}
    nodes: dict[str, dict[str, float]] = {row["id"]: {} for row in among.alive}
    for row in among.alive:
        devices = _devices(row, settings, cordoned=row["id"] in among.avoided)
        nodes[row["id"]] |= devices
        for name, value in devices.items():
            whole[name] = whole.get(name, 0.0) + value
    for key, use in uses.items():
        node, _, gpu = key.partition("/")
        if node in nodes:
            nodes[node] |= {f"{name}/{gpu}" if gpu else name: value for name, value in use.items() if name != "at"}
    return whole | await _holders(tx, settings, among.alive), nodes


def _devices(row: _Row, settings: Settings, *, cordoned: bool) -> dict[str, float]:
    machine = machine_of(row, settings)
    found: dict[str, float] = {}
    for kind in DEVICES:
        if most := machine.capacity[kind]:
            free = machine.free[kind]
            parts = {
                "all": most,
                "used": most - free,
                "free": 0 if cordoned else free,
                "cordoned": free if cordoned else 0,
            }
            found |= {f"devices/{kind}/{name}": float(value) for name, value in parts.items()}
    return found


async def _holders(tx: AsyncConnection, settings: Settings, alive: Sequence[_Row]) -> dict[str, float]:
    """Devices by user, and by team, of those with the most."""
    shares = _shares(alive)
    owners = await jobs.owners(tx, sorted({job for job, _, _ in shares}))
    sums: dict[tuple[str, str], dict[str, float]] = {}
    for (job, _, _), part in shares.items():
        if job not in owners:
            continue
        kind = "cuda" if part["gpu"] else "cpu"
        devices = part["gpu"] or part["cpu"] * settings.cpu_ranks_per_core
        for by, name in (("user", owners[job]["actor"]), ("team", owners[job]["labels"].get(TEAM))):
            if name:
                held = sums.setdefault((by, kind), {})
                held[name] = held.get(name, 0.0) + devices
    found: dict[str, float] = {}
    for (by, kind), held in sums.items():
        ordered = sorted(held, key=lambda name: (-held[name], name))
        found |= {f"{by}/{kind}/{name}": held[name] for name in ordered[:_MOST_HOLDERS]}
        if others := ordered[_MOST_HOLDERS:]:
            found[f"{by}/{kind}/"] = sum(held[name] for name in others)
    return found
