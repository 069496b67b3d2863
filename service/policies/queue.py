"""Decides which jobs may start: a pure policy. Its inputs are the queue, the nodes and the held devices; it returns decisions.

First come, first served: the first job of a device kind that has to wait makes those behind it wait too, so that a stream of small
jobs never overtakes a large one forever. Cores, which jobs on CPUs and jobs on GPUs share, are not free while an earlier job waits for
them; a job that then has no room makes those behind it wait like any other. A job for which the cluster is too small, permanently, while
nodes are away or until it grows, blocks no other job. The cluster's full capacity, not that of the living nodes, decides which devices a
job takes, and whether it is refused.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import floor

from ...workers.messages.gang_spec import ANY_MODELS
from .pool import (
    Machine,
    Pool,
    Pools,
    Whole,
    awaited_by,
    block,
    give,
    gives_way,
    has_devices,
    lacking_cores,
    ranks_of,
    reserving,
)
from .waiting import Device, DeviceChoice, Wait, Waiting, Within

__all__ = ["Device", "DeviceChoice", "Machine", "Wait", "Waiting", "Whole", "Within", "ranks_of", "reserving"]

DEVICES: tuple[Device, ...] = ("cpu", "cuda")


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
    numbers yet. Cores beside GPUs count as ranks on CPUs. `whole` None: the full capacity is unknown, so the living nodes are all.
    """
    pools = _pools(machines, held, max_ranks, whole or {})
    return [_decide(job, pools) for job in waiting]


def queues(shapes: Iterable[str], cluster: Inventory) -> dict[str, Device | Wait]:
    """Shape → the device whose queue its jobs are in, or why they cannot run now and block no other job."""
    pools = _pools(cluster.machines, {}, cluster.max_ranks, cluster.whole)
    return {shape: _queue(Waiting.of(shape), pools) for shape in shapes}


def _queue(job: Waiting, pools: Pools) -> Device | Wait:
    device = _resolve(job, pools)
    room = pools[device]
    never = room.never(job)
    return room.absent(job) or device if never is None else Wait(job.id, "too_many_ranks", never)


def places(shapes: Mapping[str, Device], machines: Sequence[Machine]) -> dict[str, frozenset[int]]:
    """Shape → the machines of its device that its jobs may use together, by their numbers: a waiting job blocks these for later jobs."""
    pools = _pools(machines, {}, None, {})
    return {shape: awaited_by(pools[device], Waiting.of(shape)) for shape, device in shapes.items()}


def turn(job_id: str) -> Wait:
    """The decision for a job behind another that waits for devices of its kind."""
    return Wait(job_id, "waiting_for_turn", "Waits for its turn: jobs that were submitted earlier go first.")


def _decide(job: Waiting, pools: Pools) -> Decision:
    device = _resolve(job.smallest, pools)
    room = pools[device]
    never = room.never(job.smallest)
    if never is not None:
        return Wait(job.id, "too_many_ranks", never)
    *larger, last = job.sizes  # the last needs least: if it has no room, no other has
    absent = room.absent(last)
    if absent is not None:  # the cluster is temporarily smaller than the job, which therefore blocks no other job
        return absent
    if room.blocked(last):
        return turn(job.id)
    problem = room.problem(last)
    if problem is not None:
        wait = turn(job.id) if gives_way(room, last) else problem
        block(pools, device, last)
        return wait
    size = next((size for size in larger if room.fits(size)), last)
    give(pools, device, size)
    return Start(job.id, device, None if job.least is None else size.world_size)


def awaited_cores(shapes: Iterable[str], machines: Sequence[Machine], held: Mapping[str, int]) -> set[int]:
    """The numbers of the machines for whose cores queued jobs of these shapes may wait, beside GPUs that are free."""
    pools = _pools(machines, held, None, {})
    room = pools["cuda"]
    jobs = [job for job in map(Waiting.of, shapes) if job.cpus and _resolve(job, pools) == "cuda"]
    return {room.numbers[place] for job in jobs if room.absent(job) is None for place in lacking_cores(room, job)}


def impossible(job: Waiting, cluster: Inventory) -> str | None:
    """Why the cluster can never run the job, as far as its capacity is known, or None."""
    pools = _pools(cluster.machines, {}, cluster.max_ranks, cluster.whole)
    return pools[_resolve(job, pools)].never(job)


def resolved(job: Waiting, cluster: Inventory) -> Device:
    """The kind of devices that the job would get."""
    return _resolve(job, _pools(cluster.machines, {}, cluster.max_ranks, cluster.whole))


def _pools(machines: Sequence[Machine], held: Mapping[str, int], max_ranks: int | None, whole: Whole) -> Pools:
    return {device: Pool(device, machines, held, max_ranks, whole) for device in DEVICES}


def _resolve(job: Waiting, pools: Pools) -> Device:
    """The device kind of `auto`: GPUs if the whole cluster has enough of them, or if CPUs would not be enough either; else CPUs.

    Nodes of the job's image count.
    """
    if job.wanted != "auto":
        return job.wanted
    if job.model:
        return "cuda"
    job = replace(job, gpu=ANY_MODELS, within=None, cpus=0.0)  # what it lacks on GPUs is no reason for CPUs
    gpus = pools["cuda"]
    if gpus.has_room_when_whole(job) or (has_devices(gpus, job) and not pools["cpu"].has_room_when_whole(job)):
        return "cuda"
    return "cpu"
