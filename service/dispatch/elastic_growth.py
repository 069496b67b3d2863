"""Lets elastic jobs that train with fewer replicas than they may take more when devices stay free.

Jobs that wait for such devices, or for cores that the job would take, come first. Devices must have been free for the job's grace time.
A job that was placed recently keeps its size (`elastic.SETTLED`), so that devices that come and go do not move it all the time. A gang
that grows saves and ends as after a change of layout. A command starts again, and so it grows only after it has saved a checkpoint in its
present attempt. Only the dispatcher that manages a job lets it grow.
"""

import time
from collections.abc import Collection, Mapping, Sequence, Set
from typing import NamedTuple

from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from .. import capacity
from ..errors import LeaseLost
from ..ids import job_of
from ..jobs import elastic, queued_job
from ..jobs.transitions import Cause, move
from ..nodes import fleet, machine_of
from ..policies.queue import Device, Machine, Start, Wait, Waiting, decide, queues, restricted
from ..settings import Settings
from ..states import State
from ..store import events, jobs
from ..store.engine import Store
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
            if await _can_continue(store, row):
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


async def _can_continue(store: Store, row: RowMapping) -> bool:
    """Whether the next attempt need not repeat all that this one has done. A gang that trains saves when it ends."""
    if "train" in row["spec"]:
        return True
    async with store.read() as tx:
        saved = await events.newest(tx, row["id"], "checkpoint")
    return saved is not None and saved["attempt"] == row["attempt"]


async def _room(tx: AsyncConnection, settings: Settings, small: Sequence[RowMapping]) -> dict[str, int]:
    """Job → the additional ranks that it can have, if any, and for which no queued job waits. First submitted, first served."""
    wanted = await _wanted(tx, settings, {_takes(row) for row in small})
    small = [row for row in small if _takes(row) not in wanted]
    if not small:
        return {}
    among = await fleet(tx, settings.cluster)
    machines = [machine_of(row, settings, row["id"] in among.avoided) for row in among.alive]
    held = await reserved(tx, settings, machines)
    whole = await capacity.whole(tx, settings, settings.cluster)
    decisions = decide([_more(row) for row in small], machines, held, settings.max_ranks, whole)
    more = {one.id: one.world_size for one in decisions if isinstance(one, Start) and one.world_size is not None}
    rows = {row["id"]: row for row in small if row["id"] in more}
    return {
        job: ranks
        for job, ranks in more.items()
        if _are_together(rows[job], ranks, [_without(node, job, settings, among.avoided) for node in among.alive], held)
    }


def _are_together(row: RowMapping, more: int, machines: Sequence[Machine], held: Mapping[str, int]) -> bool:
    """Whether the devices that the job has and `more` may serve it together. On `machines`, its own are free."""
    size, device = row["world_size"], row["device"]
    job = Waiting(row["id"], size + more, row["tensor"], device, **queued_job.wants(row["spec"]))
    others = {device: held.get(device, 0) - size}
    return not restricted(job, machines, device) or isinstance(decide([job], machines, others, None)[0], Start)


def _without(node: RowMapping, job: str, settings: Settings, avoided: Collection[str]) -> Machine:
    """The machine as if the job's gang had ended."""
    own = [share for share in node["gangs"] if (job_of(share["gang"]) or ("",))[0] == job]
    used = {name: node[f"{name}_used"] - sum(share[name] for share in own) for name in ("cpu", "gpu")}
    gangs = [share for share in node["gangs"] if share not in own]
    found = {**node, "cpu_used": used["cpu"], "gpu_used": used["gpu"], "gangs": gangs}
    return machine_of(found, settings, node["id"] in avoided)


def _more(row: RowMapping) -> Waiting:
    """The job's missing ranks as a waiting job of that size. It keeps its present devices."""
    first, *others = (size - row["world_size"] for size in elastic.larger(row))
    least = min(first, *others) if others else first
    wants = queued_job.wants(row["spec"])
    return Waiting(row["id"], first, row["tensor"], row["device"], others=tuple(others), least=least, **wants)


async def _grow(store: Store, settings: Settings, row: RowMapping, more: int, actor: str) -> None:
    """Let the job take `more` ranks, unless another job was given devices since `row` was read, and there is no room any more."""
    try:
        async with store.write() as tx:
            await lock(tx)
            job = await jobs.locked(tx, row["id"], row["lease_token"])
            if job is None or job["state"] != State.RUNNING or job["world_size"] != row["world_size"]:
                return
            if (await _room(tx, settings, [job])).get(job["id"], 0) < more:
                return
            columns = await elastic.take(tx, job, job["world_size"] + more, "devices_free", actor)
            cause = Cause(actor, time.time(), "reshard", f"continues as {columns['layout']}: devices are free for it")
            await move(tx, job["id"], State.RUNNING, State.RESHARDING, cause, token=job["lease_token"], also=columns)
    except LeaseLost:
        return  # it ended meanwhile, or another dispatcher manages it now
