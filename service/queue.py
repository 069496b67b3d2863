"""Who may start: a pure policy. It is given the queue, the nodes and what is held, and returns decisions.

First come, first served: the first job of a device kind that has to wait makes those behind it wait too, so that no
stream of small jobs overtakes a large one for ever. A job that is larger than the cluster can ever be holds up nobody.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import floor
from typing import Literal

Device = Literal["cpu", "cuda"]
Wanted = Literal["auto", "cpu", "cuda"]

_DEVICES: tuple[Device, ...] = ("cpu", "cuda")


@dataclass(frozen=True)
class Waiting:
    """A queued job: `world_size` ranks, of which each `tensor` neighbours must stand on one node, and spares anywhere."""

    id: str
    world_size: int
    tensor: int
    wanted: Wanted
    spares: int = 0
    others: tuple[
        int, ...
    ] = ()  # of an elastic job: the world sizes that it takes now where there is no room for the first
    least: int | None = None  # of an elastic job: the smallest that it may ever take

    @property
    def devices(self) -> int:
        return self.world_size + self.spares

    @property
    def forms(self) -> "list[Waiting]":
        """The job in every size that it takes now, the one it prefers first."""
        return [replace(self, world_size=size) for size in (self.world_size, *self.others)]

    @property
    def smallest(self) -> "Waiting":
        return self if self.least is None else replace(self, world_size=self.least)

    def __str__(self) -> str:
        spares = f" and {self.spares} spare{'s' * (self.spares > 1)}" if self.spares else ""
        return f"{self.world_size} ranks{spares}"


@dataclass(frozen=True)
class Machine:
    """A living node's devices by kind, in ranks: all of them, and those that nobody uses. None of a cordoned one is for new gangs."""

    capacity: Mapping[Device, int]
    free: Mapping[Device, int]
    cordoned: bool = False


@dataclass(frozen=True)
class Start:
    id: str
    device: Device
    world_size: int | None = None  # of an elastic job: the one that it takes


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
    waiting: Sequence[Waiting], machines: Sequence[Machine], held: Mapping[str, int], max_ranks: int | None
) -> list[Decision]:
    """A decision for each waiting job, in the queue's order.

    `held` is device → ranks of the jobs that were already placed: a gang that is just being built does not show in the
    machines' numbers yet.
    """
    pools = {device: _Pool(device, machines, held, max_ranks) for device in _DEVICES}
    blocked: set[Device] = set()
    return [_decide(job, pools, blocked) for job in waiting]


def _decide(job: Waiting, pools: "Mapping[Device, _Pool]", blocked: set[Device]) -> Decision:
    device = resolve(job.wanted, job.smallest.devices, {name: pool.capacity for name, pool in pools.items()})
    room = pools[device]
    never = room.never(job.smallest)
    if never is not None:
        return Wait(job.id, "too_many_ranks", never)
    *larger, last = job.forms  # the last needs least: where it has no room, no other has
    absent = room.absent(last)
    if absent is not None:  # for a while this cluster is smaller than the job, which holds up nobody then
        return absent
    if device in blocked:
        return Wait(job.id, "waiting_for_turn", "Waits for its turn: jobs that were submitted earlier go first.")
    problem = room.problem(last)
    if problem is not None:
        blocked.add(device)
        return problem
    form = next((form for form in larger if room.fits(form)), last)
    room.take(form)
    return Start(job.id, device, None if job.least is None else form.world_size)


def impossible(job: Waiting, machines: Sequence[Machine], max_ranks: int | None) -> str | None:
    """Why the cluster can never run the job, as far as it is known, or None."""
    pools = {device: _Pool(device, machines, {}, max_ranks) for device in _DEVICES}
    return pools[resolve(job.wanted, job.devices, {name: pool.capacity for name, pool in pools.items()})].never(job)


def resolve(wanted: Wanted, devices: int, capacity: Mapping[Device, int]) -> Device:
    """`auto` is GPUs where the cluster has enough of them, or when CPUs would not be enough either; else CPUs."""
    if wanted != "auto":
        return wanted
    if capacity["cuda"] >= devices or (capacity["cuda"] and capacity["cpu"] < devices):
        return "cuda"
    return "cpu"


class _Pool:
    """The devices of one kind while decisions are taken, one after the other."""

    def __init__(
        self, device: Device, machines: Sequence[Machine], held: Mapping[str, int], max_ranks: int | None
    ) -> None:
        self.word = "GPUs" if device == "cuda" else "CPU ranks"
        self.capacity = sum(machine.capacity[device] for machine in machines)
        self.away = sum(machine.capacity[device] for machine in machines if machine.cordoned)
        self.largest = max((machine.capacity[device] for machine in machines), default=0)
        self.max_ranks = max_ranks
        self.known = bool(machines) or max_ranks is not None
        self.free = sorted((machine.free[device] for machine in machines if not machine.cordoned), reverse=True)
        idle = sum(machine.free[device] for machine in machines if machine.cordoned)
        self.left = min(sum(self.free), self.capacity - held.get(device, 0) - idle)

    def never(self, job: Waiting) -> str | None:
        """Why the cluster can never run the job as far as it is known, or None."""
        most = max(self.capacity, self.max_ranks or 0)
        if not self.known:
            return None  # whatever comes may be anything
        if job.devices > most:
            return f"Needs {job}; the cluster has {self.capacity} {self.word}{self._growth()}."
        if job.tensor > self.largest and self.max_ranks is None:
            return f"A tensor group of {job.tensor} needs one node; the largest node has {self.largest} {self.word}."
        return None

    def absent(self, job: Waiting) -> Wait | None:
        """Why the job cannot start before nodes come (of an elastic one) or a cordon ends, or None."""
        never = self.never(job)
        if never is not None:
            return Wait(job.id, "waiting_for_nodes", never)
        here = self.capacity - self.away
        if not here < job.devices <= self.capacity:
            return None
        has = f"{here} of {self.capacity} {self.word} are on nodes in use, the others on cordoned ones"
        return Wait(job.id, "waiting_for_nodes", f"Needs {job}, {has}; see `shardyard nodes`.")

    def problem(self, job: Waiting) -> Wait | None:
        """Why the job cannot start now, or None."""
        needs = f"Needs {job}"
        if self.capacity < job.devices:
            lacking = job.devices - self.capacity
            has = f"the cluster has {self.capacity} {self.word}{self._growth()}"
            return Wait(job.id, "waiting_for_nodes", f"{needs}, {has}; waiting for {lacking} more.")
        if self.left < job.devices:
            lacking = job.devices - max(0, self.left)
            free = f"{max(0, self.left)} of {self.capacity} {self.word} are free"
            return Wait(job.id, "waiting_for_devices", f"{needs}, {free}; waiting for {lacking} more.")
        if self._pack(job) is None:
            free = f"no nodes have {job.world_size // job.tensor} groups of {job.tensor} free {self.word}"
            return Wait(
                job.id, "waiting_for_devices", f"Needs {job.world_size} ranks in tensor groups of {job.tensor}, {free}."
            )
        return None

    def fits(self, job: Waiting) -> bool:
        return self.absent(job) is None and self.problem(job) is None

    def take(self, job: Waiting) -> None:
        packed = self._pack(job)
        assert packed is not None
        self.free = packed
        self.left -= job.devices

    def _growth(self) -> str:
        if self.max_ranks is None or self.max_ranks <= self.capacity:
            return ""
        return f" and may grow to {self.max_ranks}"

    def _pack(self, job: Waiting) -> list[int] | None:
        """What is free on each node after the job's tensor groups, each whole on one node, and its spares took their places."""
        after = _placed(self.free, job.world_size // job.tensor, job.tensor)
        return None if after is None else _placed(after, job.spares, 1)


def _placed(free: Sequence[int], groups: int, size: int) -> list[int] | None:
    """What is free on each node after so many groups, each whole on one node; None when there is no room for them."""
    after = []
    for here in free:
        taken = min(groups, here // size)
        groups -= taken
        after.append(here - taken * size)
    return None if groups else sorted(after, reverse=True)
