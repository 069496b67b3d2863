"""Lets elastic jobs that train with fewer replicas than they may take more when devices stay free.

Jobs that wait for such devices, or for cores that the job would take, come first. Devices must have been free for the job's grace time.
There must be room for the whole gang of the new size on nodes that new gangs may use: it saves and ends before it is placed again.
A job that was placed recently keeps its size (`elastic.SETTLED`), so that devices that come and go do not move it all the time. A gang
that grows saves and ends as after a change of layout. A command starts again, and so it grows only after it has saved a checkpoint in its
present attempt. A job that trains grows only if no save has failed since its newest checkpoint. A job that cannot grow leaves the free
devices to those behind it. Only the dispatcher that manages a job lets it grow.
"""

import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence, Set
from math import ceil
from typing import NamedTuple

from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from .. import capacity
from ..errors import LeaseLost
from ..ids import job_of
from ..jobs import elastic, queued_job
from ..jobs.transitions import Cause, move
from ..nodes import fleet, machine_of
from ..policies.pool import ranks_left
from ..policies.queue import DEVICES, Device, Machine, Start, Wait, Waiting, decide, queues
from ..settings import Settings
from ..states import State
from ..store import events, jobs
from ..store.engine import Store
from . import final_save
from .admission import lock, reserved


class Growth:
    """A dispatcher's record of since when there has been room for each job, by its own clock."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    async def grow(self, store: Store, settings: Settings, tokens: Collection[str], actor: str) -> None:
        """Let those jobs under these leases grow for which there has been room for the grace time."""
        async with store.read() as tx:
            small = [row for row in await jobs.may_grow(tx) if row["lease_token"] in tokens and elastic.larger(row)]
            room = await _room(tx, settings, small)
        now = time.monotonic()
        self._since = {job_id: self._since.get(job_id, now) for job_id in room}
        patient = [row for row in small if row["id"] in room and now - self._since[row["id"]] >= _patience_s(row)]
        for row in patient:
            await _grow(store, settings, row, room[row["id"]], actor)


class _Takes(NamedTuple):
    """What ranks take of a node: devices, and on GPUs perhaps cores beside them."""

    device: Device
    cores: bool


def _takes(row: RowMapping) -> _Takes:
    return _Takes(row["device"], row["device"] == "cpu" or queued_job.wants(row["spec"])["cpus"] > 0)


async def _wanted(tx: AsyncConnection, settings: Settings, kinds: Collection[_Takes]) -> Set[_Takes]:
    """Those of the kinds of which jobs in the queue wait for a part."""
    if not kinds:
        return set()
    stand = queues(await jobs.shapes(tx), await capacity.inventory(tx, settings, settings.cluster))
    waiting = {
        shape: _Takes(at, at == "cpu" or Waiting.of(shape).cpus > 0)
        for shape, at in stand.items()
        if not isinstance(at, Wait)
    }
    found = set()
    for kind in kinds:
        shapes = [shape for shape, one in waiting.items() if one.device == kind.device or (one.cores and kind.cores)]
        if shapes and await jobs.any_wants_devices(tx, shapes, settings.cluster):
            found.add(kind)
    return found


def _patience_s(row: RowMapping) -> float:
    return max(elastic.grace_s(row), elastic.FREED_S)


async def _can_continue(tx: AsyncConnection, row: RowMapping) -> bool:
    """Whether the next attempt need not repeat all that this one has done.

    A gang that trains saves when it ends. If its newest save failed, that one may fail, too, each time that devices become free.
    """
    if "train" in row["spec"]:
        return not await final_save.is_in_doubt(tx, row["id"])
    saved = await events.newest(tx, row["id"], "checkpoint")
    return saved is not None and saved["attempt"] == row["attempt"]


async def _room(tx: AsyncConnection, settings: Settings, small: Sequence[RowMapping]) -> dict[str, int]:
    """Job → the larger world size that it can have, if any. First submitted, first served, after all jobs that wait in the queue."""
    wanted = await _wanted(tx, settings, {_takes(row) for row in small})
    small = [row for row in small if _takes(row) not in wanted]
    if not small:
        return {}
    among, per_core = await fleet(tx, settings.cluster), settings.cpu_ranks_per_core
    machines = [machine_of(node, settings, node["id"] in among.avoided) for node in among.alive]
    held = Counter(await reserved(tx, settings, machines))
    left = {device: ranks_left(device, machines, held) for device in DEVICES}
    own = _places({row["id"] for row in small}, among.alive)
    room = {}
    for row in small:
        if min(elastic.larger(row)) - row["world_size"] > left[row["device"]]:
            continue  # most clusters are full, and a decision reads all machines
        alone = [*machines]
        for number in own[row["id"]]:
            alone[number] = _without(among.alive[number], row["id"], settings, among.avoided)
        size = _size(row, alone, held, per_core)
        if size is not None and await _can_continue(tx, row):
            room[row["id"]] = size
            left[row["device"]] -= size - row["world_size"]
            # As of a gang that is being built: it is not known which machines will have them.
            held += _holds(row, size - row["world_size"], per_core)
    return room


def _places(wanted: Set[str], nodes: Sequence[RowMapping]) -> Mapping[str, Set[int]]:
    """Job → the numbers of the nodes on which its gang is, of these jobs."""
    found: dict[str, set[int]] = {job: set() for job in wanted}
    for number, node in enumerate(nodes):
        for share in node["gangs"]:
            gang = job_of(share["gang"])
            if gang is not None and gang[0] in found:
                found[gang[0]].add(number)
    return found


def _size(row: RowMapping, machines: Sequence[Machine], held: Mapping[str, int], ranks_per_core: int) -> int | None:
    """The largest world size above the job's own for which there is room as a whole. On `machines`, its own devices are free."""
    first, *others = elastic.larger(row)
    spares = row["spec"].get("policy", {}).get("spares", 0)
    own = _holds(row, row["world_size"] + spares, ranks_per_core)
    wants = queued_job.wants(row["spec"])
    least = min([first, *others])
    job = Waiting(row["id"], first, row["tensor"], row["device"], spares, tuple(others), least, **wants)
    (found,) = decide([job], machines, {kind: ranks - own[kind] for kind, ranks in held.items()}, None)
    return found.world_size if isinstance(found, Start) else None


def _holds(row: RowMapping, ranks: int, ranks_per_core: int) -> Counter[str]:
    """Devices that this number of the job's ranks takes, by kind. Cores beside GPUs count as ranks on CPUs, as in `reserved`."""
    beside = queued_job.wants(row["spec"])["cpus"] if row["device"] == "cuda" else 0.0
    return Counter({row["device"]: ranks}) + Counter(cpu=ceil(ranks * beside * ranks_per_core))


def _without(node: RowMapping, job: str, settings: Settings, avoided: Collection[str]) -> Machine:
    """The machine as if the job's gang had ended."""
    own = [share for share in node["gangs"] if (job_of(share["gang"]) or ("",))[0] == job]
    used = {name: node[f"{name}_used"] - sum(share[name] for share in own) for name in ("cpu", "gpu")}
    gangs = [share for share in node["gangs"] if share not in own]
    found = {**node, "cpu_used": used["cpu"], "gpu_used": used["gpu"], "gangs": gangs}
    return machine_of(found, settings, node["id"] in avoided)


async def _grow(store: Store, settings: Settings, row: RowMapping, size: int, actor: str) -> None:
    """Let the job take `size` ranks, unless another job was given devices since `row` was read, and there is no room any more."""
    try:
        async with store.write() as tx:
            await lock(tx)
            job = await jobs.locked(tx, row["id"], row["lease_token"])
            if job is None or job["state"] != State.RUNNING or job["world_size"] != row["world_size"]:
                return
            if (await _room(tx, settings, [job])).get(job["id"], 0) < size:
                return
            columns = await elastic.take(tx, job, size, "devices_free", actor)
            cause = Cause(actor, time.time(), "reshard", f"continues as {columns['layout']}: devices are free for it")
            await move(tx, job["id"], State.RUNNING, State.RESHARDING, cause, token=job["lease_token"], also=columns)
    except LeaseLost:
        return  # it ended meanwhile, or another dispatcher manages it now
