"""Decides which jobs may start: a pure policy. Its inputs are the queue, the nodes and the held devices; it returns decisions.

First come, first served: the first job of a device kind that has to wait makes those behind it wait too, so that a stream of small
jobs never overtakes a large one forever. A job for which the cluster is too small, permanently or while nodes are away, blocks no
other job. The cluster's full capacity, not that of the living nodes, decides which devices a job takes, and whether it is refused.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import floor
from typing import Literal, Self, cast

Device = Literal["cpu", "cuda"]
Wanted = Literal["auto", "cpu", "cuda"]

DEVICES: tuple[Device, ...] = ("cpu", "cuda")

#: Device → ranks of each node of the cluster with all its nodes.
Whole = Mapping[Device, Sequence[int]]


@dataclass(frozen=True)
class Waiting:
    """A queued job: `world_size` ranks, of which each `tensor` neighbours must be placed on one node, and spares on any node."""

    id: str
    world_size: int
    tensor: int
    wanted: Wanted
    spares: int = 0
    others: tuple[
        int, ...
    ] = ()  # other world sizes of an elastic job that it now takes if there is no room for the first
    least: int | None = None  # the smallest world size that an elastic job may ever take

    @property
    def shape(self) -> str:
        """Identifies the job's queue, as text. For an elastic job its smallest layout does."""
        return f"{self.wanted} {self.smallest.world_size} {self.tensor} {self.spares}"

    @classmethod
    def of(cls, shape: str) -> Self:
        """A job of this shape, without an id."""
        wanted, world_size, tensor, spares = shape.split()
        return cls("", int(world_size), int(tensor), cast("Wanted", wanted), int(spares))

    @property
    def devices(self) -> int:
        return self.world_size + self.spares

    @property
    def forms(self) -> "list[Waiting]":
        """The job in every size that it takes now, the preferred size first."""
        return [replace(self, world_size=size) for size in (self.world_size, *self.others)]

    @property
    def smallest(self) -> "Waiting":
        return self if self.least is None else replace(self, world_size=self.least)

    def __str__(self) -> str:
        spares = f" and {self.spares} spare{'s' * (self.spares > 1)}" if self.spares else ""
        return f"{self.world_size} ranks{spares}"


@dataclass(frozen=True)
class Machine:
    """A living node's devices by kind, in ranks: all of them, and the free ones. New gangs use none of a cordoned node."""

    capacity: Mapping[Device, int]
    free: Mapping[Device, int]
    cordoned: bool = False


@dataclass(frozen=True)
class Inventory:
    """A cluster as a submission sees it: the living nodes, and the capacity with all nodes."""

    machines: Sequence[Machine]
    max_ranks: int | None = None
    whole: Whole = field(default_factory=dict)


@dataclass(frozen=True)
class Start:
    id: str
    device: Device
    world_size: int | None = None  # the world size that an elastic job takes


@dataclass(frozen=True)
class Wait:
    id: str
    reason: str
    message: str


Decision = Start | Wait


def machine(
    cpu: float, cpu_used: float, gpu: float, gpu_used: float, cpu_ranks_per_core: int, cordoned: bool = False
) -> Machine:
    """A node's CPUs and GPUs in ranks: a GPU takes one, a core `cpu_ranks_per_core`."""
    share = 1e-6  # of a rank: Ray's fractions do not add up exactly
    return Machine(
        {"cpu": floor(cpu) * cpu_ranks_per_core, "cuda": floor(gpu + share)},
        {
            "cpu": max(0, floor((floor(cpu) - cpu_used) * cpu_ranks_per_core + share)),
            "cuda": max(0, floor(gpu - gpu_used + share)),
        },
        cordoned,
    )


def decide(
    waiting: Sequence[Waiting],
    machines: Sequence[Machine],
    held: Mapping[str, int],
    max_ranks: int | None,
    whole: Whole | None = None,
) -> list[Decision]:
    """A decision for each waiting job, in the queue's order.

    `held` is device → ranks of the jobs that were already placed: a gang that is still being built is not counted in the machines'
    numbers yet. `whole` None: the full capacity is unknown, so the living nodes are all.
    """
    pools = _pools(machines, held, max_ranks, whole or {})
    blocked: set[Device] = set()
    return [_decide(job, pools, blocked) for job in waiting]


def queues(shapes: Iterable[str], cluster: Inventory) -> dict[str, Device | Wait]:
    """Shape → the device whose queue its jobs are in, or why they cannot run now and block no other job."""
    pools = _pools(cluster.machines, {}, cluster.max_ranks, cluster.whole)
    return {shape: _queue(Waiting.of(shape), pools) for shape in shapes}


def _queue(job: Waiting, pools: "_Pools") -> Device | Wait:
    device = _resolve(job, pools)
    room = pools[device]
    never = room.never(job)
    return room.absent(job) or device if never is None else Wait(job.id, "too_many_ranks", never)


def turn(job_id: str) -> Wait:
    """The decision for a job behind another that waits for devices of its kind."""
    return Wait(job_id, "waiting_for_turn", "Waits for its turn: jobs that were submitted earlier go first.")


def _decide(job: Waiting, pools: "_Pools", blocked: set[Device]) -> Decision:
    device = _resolve(job.smallest, pools)
    room = pools[device]
    never = room.never(job.smallest)
    if never is not None:
        return Wait(job.id, "too_many_ranks", never)
    *larger, last = job.forms  # the last needs least: if it has no room, no other has
    absent = room.absent(last)
    if absent is not None:  # the cluster is temporarily smaller than the job, which therefore blocks no other job
        return absent
    if device in blocked:
        return turn(job.id)
    problem = room.problem(last)
    if problem is not None:
        blocked.add(device)
        return problem
    form = next((form for form in larger if room.fits(form)), last)
    room.take(form)
    return Start(job.id, device, None if job.least is None else form.world_size)


def impossible(job: Waiting, cluster: Inventory) -> str | None:
    """Why the cluster can never run the job, as far as its capacity is known, or None."""
    pools = _pools(cluster.machines, {}, cluster.max_ranks, cluster.whole)
    return pools[_resolve(job, pools)].never(job)


def resolved(job: Waiting, cluster: Inventory) -> Device:
    """The kind of devices that the job would get."""
    return _resolve(job, _pools(cluster.machines, {}, cluster.max_ranks, cluster.whole))


def _pools(machines: Sequence[Machine], held: Mapping[str, int], max_ranks: int | None, whole: Whole) -> "_Pools":
    return {device: _Pool(device, machines, held, max_ranks, whole) for device in DEVICES}


def _resolve(job: Waiting, pools: "_Pools") -> Device:
    """The device kind of `auto`: GPUs if the whole cluster has enough of them, or if CPUs would not be enough either; else CPUs."""
    if job.wanted != "auto":
        return job.wanted
    gpus = pools["cuda"]
    if gpus.has_room_when_whole(job) or (gpus.most and not pools["cpu"].has_room_when_whole(job)):
        return "cuda"
    return "cpu"


class _Pool:
    """The devices of one kind while decisions are made, one after the other."""

    def __init__(
        self,
        device: Device,
        machines: Sequence[Machine],
        held: Mapping[str, int],
        max_ranks: int | None,
        whole: Whole,
    ) -> None:
        self.noun = "GPUs" if device == "cuda" else "CPU ranks"
        self.here = [machine.capacity[device] for machine in machines]
        self.in_use = [machine.capacity[device] for machine in machines if not machine.cordoned]
        self.whole = whole.get(device, ())
        self.capacity = sum(self.here)
        self.most = max(self.capacity, sum(self.whole))
        self.max_ranks = max_ranks
        anything = any(ranks for machine in machines for ranks in machine.capacity.values())
        self.known = anything or max_ranks is not None or any(whole.values())
        self.free = sorted((machine.free[device] for machine in machines if not machine.cordoned), reverse=True)
        idle = sum(machine.free[device] for machine in machines if machine.cordoned)
        self.left = min(sum(self.free), self.capacity - held.get(device, 0) - idle)

    def has_room_when_whole(self, job: Waiting) -> bool:
        """Whether the job fits on the nodes of the full cluster, or on the present ones."""
        return any(_pack(nodes, job) is not None for nodes in (self.whole, self.here))

    def never(self, job: Waiting) -> str | None:
        """Why the cluster can never run the job, as far as its capacity is known, or None."""
        if not self.known or self.has_room_when_whole(job):  # while the capacity is unknown, any node may still come
            return None
        if self.max_ranks is not None and job.devices <= self.max_ranks:
            return None
        if job.devices > self.most:
            return f"Needs {job}; the cluster has {self.most} {self.noun}{self._growth()}."
        largest = max((*self.whole, *self.here))
        if job.tensor > largest:
            return f"A tensor group of {job.tensor} needs one node; the largest node has {largest} {self.noun}."
        room = max(_groups(nodes, job.tensor) for nodes in (self.whole, self.here))
        return f"{_grouped(job)}; the cluster's nodes have room for {room}."

    def absent(self, job: Waiting) -> Wait | None:
        """Why the job cannot start before nodes come or a cordon ends, or None."""
        never = self.never(job)
        if never is not None:
            return Wait(job.id, "waiting_for_nodes", never)
        if not self.has_room_when_whole(job) or _pack(self.in_use, job) is not None:
            return None
        here, cordoned = sum(self.in_use), self.capacity - sum(self.in_use)
        if job.devices <= here:
            has = f"the nodes in use have room for {_groups(self.in_use, job.tensor)}"
            return Wait(job.id, "waiting_for_nodes", f"{_grouped(job)}, {has}; see `shardyard nodes`.")
        away = self.most - self.capacity
        if not away:
            others = "the others on cordoned ones"
        elif not cordoned:
            others = "the others on nodes that are away"
        else:
            others = f"{cordoned} on cordoned ones, {away} on nodes that are away"
        has = f"{here} of {self.most} {self.noun} are on nodes in use, {others}"
        return Wait(job.id, "waiting_for_nodes", f"Needs {job}, {has}; see `shardyard nodes`.")

    def problem(self, job: Waiting) -> Wait | None:
        """Why the job cannot start now, or None."""
        needs = f"Needs {job}"
        if self.capacity < job.devices:
            lacking = job.devices - self.capacity
            has = f"the cluster has {self.capacity} {self.noun}{self._growth()}"
            return Wait(job.id, "waiting_for_nodes", f"{needs}, {has}; waiting for {lacking} more.")
        if self.left < job.devices:
            lacking = job.devices - max(0, self.left)
            free = f"{max(0, self.left)} of {self.capacity} {self.noun} are free"
            return Wait(job.id, "waiting_for_devices", f"{needs}, {free}; waiting for {lacking} more.")
        if _pack(self.free, job) is None:
            free = f"no nodes have {job.world_size // job.tensor} groups of {job.tensor} free {self.noun}"
            return Wait(job.id, "waiting_for_devices", f"{_grouped(job)}, {free}.")
        return None

    def fits(self, job: Waiting) -> bool:
        return self.absent(job) is None and self.problem(job) is None

    def take(self, job: Waiting) -> None:
        packed = _pack(self.free, job)
        assert packed is not None
        self.free = packed
        self.left -= job.devices

    def _growth(self) -> str:
        if self.max_ranks is None or self.max_ranks <= self.most:
            return ""
        return f" and may grow to {self.max_ranks}"


_Pools = Mapping[Device, _Pool]


def _grouped(job: Waiting) -> str:
    return f"Needs {job.world_size} ranks in tensor groups of {job.tensor}"


def _groups(nodes: Sequence[int], size: int) -> int:
    """Number of tensor groups that fit on nodes with these numbers of ranks, each on one node."""
    return sum(ranks // size for ranks in nodes)


def _pack(free: Sequence[int], job: Waiting) -> list[int] | None:
    """The free ranks of each node after the job's tensor groups, each on one node, and its spares are placed. None if they do not fit."""
    after = _placed(free, job.world_size // job.tensor, job.tensor)
    return None if after is None else _placed(after, job.spares, 1)


def _placed(free: Sequence[int], groups: int, size: int) -> list[int] | None:
    """The free ranks of each node after `groups` groups are placed, each on one node. None if they do not fit."""
    after = []
    for here in free:
        taken = min(groups, here // size)
        groups -= taken
        after.append(here - taken * size)
    return None if groups else sorted(after, reverse=True)
