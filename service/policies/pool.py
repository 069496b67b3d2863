"""The devices of one kind on a cluster's nodes, while the queue's policy gives them to jobs, one after the other.

A job's devices may have to be together: GPUs of one model, nodes of one zone or NVLink domain. Its nodes run one image. Nodes that may
serve a job together are a part of the pool. Most clusters have one part.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import floor
from typing import Final

from ...workers.messages.gang_spec import ANY_MODELS
from .packing import groups_on, placed
from .waiting import Device, Wait, Waiting, Within

#: Device → image of nodes, empty: the cluster's own → ranks of each such node of the cluster with all its nodes.
Whole = Mapping[Device, Mapping[str, Sequence[int]]]

_TOGETHER: Final[dict[Within, str]] = {"zone": "zone", "domain": "NVLink domain"}


@dataclass(frozen=True)
class Machine:
    """A living node's devices by kind, in ranks: all of them, and the free ones. New gangs use none of a cordoned node."""

    capacity: Mapping[Device, int]
    free: Mapping[Device, int]
    cordoned: bool = False
    model: str = ""  # of its GPUs; empty: unknown
    zone: str = ""
    domain: str = ""
    image: str = ""  # of its Ray worker; empty: the cluster's own
    cores: float = 0.0
    cores_free: float = 0.0
    others: Mapping[Device, int] = field(default_factory=dict)  # what other applications on the same Ray have of it

    @property
    def cores_per_rank(self) -> float:
        return floor(self.cores) / (self.capacity["cpu"] or 1)


class Pool:
    """The devices of one kind while decisions are made, one after the other."""

    def __init__(
        self,
        device: Device,
        machines: Sequence[Machine],
        held: Mapping[str, int],
        max_ranks: int | None,
        whole: Whole,
    ) -> None:
        self.device: Device = device
        self.noun = "GPUs" if device == "cuda" else "CPU ranks"
        self.numbers = [number for number, machine in enumerate(machines) if machine.capacity[device]]
        self.machines = [machines[number] for number in self.numbers]
        self.here = [machine.capacity[device] for machine in self.machines]
        self.in_use = [0 if machine.cordoned else machine.capacity[device] for machine in self.machines]
        self._by_image = whole.get(device, {})
        self.images = {machine.image for machine in self.machines} | {
            name for name, nodes in self._by_image.items() if any(nodes)
        }
        self.whole = ranks_of(whole, device, None)
        self.capacity = sum(self.here)
        self.most = max(self.capacity, sum(self.whole))
        self.max_ranks = max_ranks
        self._growth = f" and may grow to {max_ranks}" if (max_ranks or 0) > self.most else ""
        anything = any(ranks for machine in machines for ranks in machine.capacity.values())
        self.known = anything or max_ranks is not None or any(ranks_of(whole, one, None) for one in whole)
        self.free = [0 if machine.cordoned else machine.free[device] for machine in self.machines]
        self.left = sum(self.free) - _unseen(device, machines, held)
        self.cores_free = [machine.cores_free for machine in self.machines]
        per_rank = max((machine.cores_per_rank for machine in machines), default=0.0)
        self.cores_unseen = per_rank * _unseen("cpu", machines, held)
        self._blocked: set[int] = set()  # places of nodes for which a job waits that comes first
        self.awaited: set[int] = set()  # those for whose cores a job waits, on whichever devices it runs
        self._parts: dict[tuple[str, Within | None, str | None], list[list[int]]] = {}
        self._lasting: dict[Waiting, tuple[bool, bool]] = {}

    # Which nodes may serve a job together.

    def parts(self, job: Waiting) -> list[list[int]]:
        """The places of the machines of each part. One list of all of them for most jobs and clusters."""
        wants = (job.gpu, job.within, job.image)
        if wants not in self._parts:
            found: dict[tuple[str, str, str], list[int]] = {}
            for place, machine in enumerate(self.machines):
                key = part_of(machine, job, self.device)
                if key is not None:
                    found.setdefault(key, []).append(place)
            self._parts[wants] = [found[key] for key in sorted(found)]
        return self._parts[wants]

    def restricts(self, job: Waiting) -> bool:
        """Whether not all nodes may serve the job together, or some have too few cores for all their GPUs."""
        if job.image is not None and not self.images <= {job.image}:  # nodes that are away have an image, too
            return True
        return bool(self.machines) and (
            [len(part) for part in self.parts(job)] != [len(self.machines)] or _wants_cores(job, self.device)
        )

    def _fits(self, numbers: Sequence[int], job: Waiting) -> bool:
        """Whether a part has room. `numbers`: ranks by machine."""
        return any(_pack(self._ranks(numbers, part, job), job) is not None for part in self.parts(job))

    def _most(self, numbers: Sequence[int], job: Waiting) -> int:
        """The ranks of the largest part."""
        return max((sum(self._ranks(numbers, part, job)) for part in self.parts(job)), default=0)

    def _ranks(self, numbers: Sequence[int], part: Sequence[int], job: Waiting) -> list[int]:
        """The ranks of a part's machines that their cores suffice for: the free cores for free ranks, else all.

        Cores for which an earlier job waits are not free.
        """
        is_now = numbers is self.free
        kept = self.awaited if is_now and _takes_cores(job, self.device) else ()
        if not _wants_cores(job, self.device):
            return [0 if place in kept else numbers[place] for place in part]
        cores = self.cores_free if is_now else [machine.cores for machine in self.machines]
        return [0 if place in kept else min(numbers[place], int((cores[place] + 1e-6) / job.cpus)) for place in part]

    # Whether a job fits.

    def has_room_when_whole(self, job: Waiting) -> bool:
        """Whether the job fits on the nodes of the full cluster, or on the present ones. Of what is away only the image is known."""
        return self._room_of_all(job)[0]

    def _room_of_all(self, job: Waiting) -> tuple[bool, bool]:
        """`has_room_when_whole`, and whether it fits on the nodes in use. What is given to jobs changes neither: equal jobs ask once."""
        alike = replace(job, id="", others=(), least=None)
        if alike not in self._lasting:
            nodes = _of_image(self._by_image, job.image)
            here = sum(one.capacity[self.device] for one in self.machines if job.image in (one.image, None))
            away = not self.restricts(job) or sum(nodes) > here
            whole = (away and _pack(nodes, job) is not None) or self._fits(self.here, job)
            self._lasting[alike] = whole, self._fits(self.in_use, job)
        return self._lasting[alike]

    def never(self, job: Waiting) -> str | None:
        """Why the cluster can never run the job, as far as its capacity is known, or None."""
        if not self.known or self.has_room_when_whole(job):  # while the capacity is unknown, any node may still come
            return None
        if self.max_ranks is not None and job.devices <= self.max_ranks:
            return None
        if job.devices > self.most:
            return f"Needs {job}; the cluster has {self.most} {self.noun}{self._growth}."
        if self.restricts(job):
            return f"{_needs(job)}{self._on(job)}; {self._has(self.here, job)}."
        largest = max((*self.whole, *self.here))
        if job.tensor > largest:
            return f"A tensor group of {job.tensor} needs one node; the largest node has {largest} {self.noun}."
        room = max(groups_on(nodes, job.tensor) for nodes in (self.whole, self.here))
        return f"{_grouped(job)}; the cluster's nodes have room for {room}."

    def absent(self, job: Waiting) -> Wait | None:
        """Why the job cannot start before nodes come or a cordon ends, or None."""
        never = self.never(job)
        if never is not None:
            return Wait(job.id, "waiting_for_nodes", never)
        if self._room_of_all(job)[1]:
            return None
        if self.restricts(job):
            message = f"{_needs(job)}{self._on(job)}; {self._has(self.in_use, job)}; see `shardyard nodes`."
            return Wait(job.id, "waiting_for_nodes", message)
        if self.capacity < job.devices and not self.has_room_when_whole(job):
            lacking = job.devices - self.capacity
            has = f"the cluster has {self.capacity} {self.noun}{self._growth}"
            return Wait(job.id, "waiting_for_nodes", f"Needs {job}, {has}; waiting for {lacking} more.")
        here, cordoned = sum(self.in_use), self.capacity - sum(self.in_use)
        if job.devices <= here:
            has = f"the nodes in use have room for {groups_on(self.in_use, job.tensor)}"
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

    def blocked(self, job: Waiting) -> bool:
        """Whether an earlier job waits for nodes of each part that may serve the job."""
        return not self.open(job)

    def block(self, job: Waiting) -> set[int]:
        """The job waits: later jobs do not take the nodes that it may use. Returns the numbers of those for whose cores it waits.

        On GPUs it waits for cores once it lacks nothing else: until then others may use them. On CPUs it needs no cores beside GPUs if
        the nodes without GPUs would be enough.
        """
        parts = _large_enough(self, job)
        if _wants_cores(job, self.device):
            awaited = lacking_cores(self, job)
        else:
            beside = {place for place, machine in enumerate(self.machines) if machine.capacity["cuda"]}
            bare = [0 if place in beside else ranks for place, ranks in enumerate(self.in_use)]
            needed = self.device == "cpu" and not self._fits(bare, job)
            awaited = {place for part in parts for place in part if needed and place in beside}
        self._blocked.update(place for part in parts for place in part)
        return {self.numbers[place] for place in awaited}

    def open(self, job: Waiting) -> list[list[int]]:
        """The places of each part that may serve the job, and for which no earlier job waits."""
        return [part for part in self.parts(job) if self._blocked.isdisjoint(part)]

    def problem(self, job: Waiting) -> Wait | None:
        """Why the job cannot start now, or None."""
        if self._room(job) is not None:
            return None
        if self.restricts(job):
            free = f"{self._most(self.free, job)} of {self._most(self.here, job)} are free together"
            message = f"{_needs(job)}{self._on(job)}; {free}."
            return Wait(job.id, "waiting_for_devices", message)
        if self.left < job.devices:
            lacking = job.devices - max(0, self.left)
            free = f"{max(0, self.left)} of {self.capacity} {self.noun} are free"
            return Wait(job.id, "waiting_for_devices", f"Needs {job}, {free}; waiting for {lacking} more.")
        free = f"no nodes have {job.world_size // job.tensor} groups of {job.tensor} free {self.noun}"
        return Wait(job.id, "waiting_for_devices", f"{_grouped(job)}, {free}.")

    def fits(self, job: Waiting) -> bool:
        return self.absent(job) is None and self.problem(job) is None

    def take(self, job: Waiting) -> dict[int, float]:
        """Give the job its devices. Returns the cores that go with them, by the number of the machine."""
        room = self._room(job)
        assert room is not None
        for place, ranks in room.items():
            self.free[place] -= ranks
        self.left -= job.devices
        each = {place: job.cpus if self.device == "cuda" else self.machines[place].cores_per_rank for place in room}
        return {self.numbers[place]: ranks * each[place] for place, ranks in room.items()}

    def _room(self, job: Waiting) -> dict[int, int] | None:
        """Place → the ranks that the job takes there, of the fullest part that has room; None if none has."""
        found = self.rooms(job)
        if not found:
            return None
        _, part, taken = min(found, key=lambda one: one[:2])
        return dict(zip(part, taken, strict=True))

    def rooms(self, job: Waiting) -> list[tuple[int, list[int], list[int]]]:
        """Of each part that has room: its free ranks, its places, and the ranks that the job takes at each.

        Devices and cores of gangs that are still being built count as free on their nodes; any part may be the one that has them.
        """
        unseen = sum(self.free) - self.left
        found = []
        for part in self.open(job):
            free = self._ranks(self.free, part, job)
            cores = sum(self.cores_free[place] for place, ranks in zip(part, free, strict=True) if ranks) + 1e-6
            enough = not _wants_cores(job, self.device) or cores - self.cores_unseen >= job.devices * job.cpus
            after = _pack(free, job) if enough and sum(free) - unseen >= job.devices else None
            found += [] if after is None else [(sum(free), part, [a - b for a, b in zip(free, after, strict=True)])]
        return found

    # Messages.

    def _on(self, job: Waiting) -> str:
        """What the job asks of its devices, in words."""
        one = self.device == "cuda" and job.gpu != ANY_MODELS
        model = f" on {job.model} GPUs" if job.model else " on GPUs of one model" if one else ""
        together = f" in one {_TOGETHER[job.within]}" if job.within else ""
        cores = f" with {job.cpus:g} cores for each GPU" if _wants_cores(job, self.device) else ""
        several = any(self.images)
        image = f" on nodes of {_image(job.image)}" if job.image is not None and (job.image or several) else ""
        return model + together + cores + image

    def _has(self, numbers: Sequence[int], job: Waiting) -> str:
        """What there is of it, in words."""
        if self.parts(job):
            return f"the most together are {self._most(numbers, job)}"
        if job.image is not None and job.image not in self.images:
            return f"the cluster's nodes have {', '.join(_image(name) for name in sorted(self.images))}"
        if job.image is not None and all(machine.image != job.image for machine in self.machines):
            return "all of these are away"
        if job.within and any(part_of(machine, replace(job, within=None), self.device) for machine in self.machines):
            return f"no node has a label of its {_TOGETHER[job.within]}"
        models = sorted({machine.model for machine in self.machines} - {""})
        return f"the cluster has {', '.join(models) or 'GPUs of unknown models'}"


def ranks_of(whole: Whole, device: Device, image: str | None) -> list[int]:
    """The ranks of each node of the full cluster that runs the image; None: any image."""
    return _of_image(whole.get(device, {}), image)


def has_devices(pool: Pool, job: Waiting) -> bool:
    """Whether the full cluster has nodes of the job's image with such devices."""
    return any(job.image in (image, None) for image in pool.images)


def awaited_by(pool: Pool, job: Waiting) -> frozenset[int]:
    """The numbers of the machines that the job blocks while it waits."""
    return frozenset(pool.numbers[place] for part in _large_enough(pool, job) for place in part)


def _large_enough(pool: Pool, job: Waiting) -> list[list[int]]:
    """The places of each part that has room for the job while nothing runs."""
    return [part for part in pool.parts(job) if _pack(pool._ranks(pool.in_use, part, job), job) is not None]


def gives_way(pool: Pool, job: Waiting) -> bool:
    """Whether an earlier job waits for cores of nodes that may serve the job, which takes cores, too."""
    return _takes_cores(job, pool.device) and any(not pool.awaited.isdisjoint(part) for part in pool.open(job))


def lacking_cores(pool: Pool, job: Waiting) -> set[int]:
    """The places with free GPUs of the parts in which the job on GPUs lacks nothing but cores at most."""
    return {place for _, part, _ in pool.rooms(replace(job, cpus=0.0)) for place in part if pool.free[place]}


Pools = Mapping[Device, Pool]


def give(pools: Pools, device: Device, job: Waiting) -> None:
    """Give the job its devices of one kind. Ranks on CPUs that need the same cores are free no longer."""
    cores = pools[device].take(job)
    for pool in pools.values():
        for place, number in enumerate(pool.numbers):
            pool.cores_free[place] -= cores.get(number, 0.0)
            if pool.device == "cpu" and cores.get(number):
                fit = max(0, floor(pool.cores_free[place] / pool.machines[place].cores_per_rank + 1e-6))
                pool.left -= max(0, pool.free[place] - fit)
                pool.free[place] = min(pool.free[place], fit)


def block(pools: Pools, device: Device, job: Waiting) -> None:
    """The job waits: later jobs take neither the nodes that it may use, nor the cores for which it waits."""
    awaited = pools[device].block(job)
    for pool in pools.values():
        pool.awaited.update(place for place, number in enumerate(pool.numbers) if number in awaited)


def reserving(machines: Sequence[Machine], held: Mapping[str, int], promised: Mapping[str, int]) -> dict[str, int]:
    """`held` with the promised ranks, which no machine shows."""
    devices: tuple[Device, ...] = ("cpu", "cuda")
    return {one: max(held.get(one, 0), _used(one, machines)) + promised.get(one, 0) for one in devices}


def _unseen(device: Device, machines: Sequence[Machine], held: Mapping[str, int]) -> int:
    """Ranks of gangs that are still being built: the machines do not show yet which of them has those."""
    return max(0, held.get(device, 0) - _used(device, machines))


def ranks_left(device: Device, machines: Sequence[Machine], held: Mapping[str, int]) -> int:
    """Ranks that are free on machines in use, but for those of gangs that are still being built."""
    return sum(one.free[device] for one in machines if not one.cordoned) - _unseen(device, machines, held)


def _used(device: Device, machines: Sequence[Machine]) -> int:
    """Ranks of our gangs on the machines."""
    return sum(max(0, one.capacity[device] - one.free[device] - one.others.get(device, 0)) for one in machines)


def part_of(machine: Machine, job: Waiting, device: Device) -> tuple[str, str, str] | None:
    """Equal for machines that may serve the job together; None if this one may not serve it."""
    if (
        job.image not in (machine.image, None)
        or (job.model and machine.model.casefold() != job.model.casefold())
        or (job.within is not None and not getattr(machine, job.within))
    ):
        return None
    model = "" if device == "cpu" or job.gpu == ANY_MODELS else machine.model
    zone = machine.zone if job.within else ""
    return model, zone, machine.domain if job.within == "domain" else ""


def _of_image(nodes: Mapping[str, Sequence[int]], image: str | None) -> list[int]:
    return [ranks for name, those in nodes.items() if image in (name, None) for ranks in those]


def _wants_cores(job: Waiting, device: Device) -> bool:
    return device == "cuda" and job.cpus > 0


def _takes_cores(job: Waiting, device: Device) -> bool:
    return device == "cpu" or _wants_cores(job, device)


def _image(name: str) -> str:
    """An image of nodes, in words."""
    return f"the image {name}" if name else "the cluster's own image"


def _pack(free: Sequence[int], job: Waiting) -> list[int] | None:
    """The free ranks of each node after the job's tensor groups, each on one node, and its spares are placed. None if they do not fit."""
    after = placed(free, job.world_size // job.tensor, job.tensor)
    return None if after is None else placed(after, job.spares, 1)


def _needs(job: Waiting) -> str:
    return _grouped(job) if job.tensor > 1 else f"Needs {job}"


def _grouped(job: Waiting) -> str:
    return f"Needs {job.world_size} ranks in tensor groups of {job.tensor}"
