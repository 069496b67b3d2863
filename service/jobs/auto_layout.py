"""Chooses the layout of a spec with `layout: auto`: the first of the layout advisor's answers, for the devices of the cluster.

Equal specs get equal layouts on equal devices: the whole cluster's capacity and the models of its GPUs count. What is free does not.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final

from ...strategies.advisor.hardware import Hardware
from ...strategies.auto_layout import MOST_RANKS, AutoLayout
from ...strategies.layout import divisors
from ...workers.advisor import search
from ...workers.advisor.known_hardware import Given
from ...workers.device_choices import Capability
from ...workers.gpu_models import GpuModel, gpus_of_ray
from ...workers.models.presets import Architecture
from ...workers.spec import TrainSpec
from ..capacity import Nodes
from ..errors import DoesNotFit, InvalidLayout, InvalidSpec, ShardyardError
from ..policies import queue
from ..policies.pool import part_of
from ..spec import JobSpec
from . import advice, queued_job
from .advice import AdviceRequest, Cpus
from .memory_plan import gpu_models, gpu_rows, size

#: What changes neither a layout's time nor its memory: trials of a sweep over it share one search.
_WITHOUT_EFFECT: Final[Any] = {"seed": True, "schedule": True, "optimizer": {"lr", "weight_decay"}}
_FIELD: Final = "train.layout"
_WORLD: Final = "train.layout.auto.world"


@dataclass(frozen=True)
class Devices:
    """What a layout is chosen for. `most`: how many ranks of the job can run at once; 0: not known.

    `per_node`: ranks of the largest node. `room(world, tensor)`: whether the nodes have room for `world` ranks in tensor groups of `tensor`
    ranks, each group on one node. `host_memory`: bytes of host memory that the GPUs of a node share. None: not known.
    """

    model: GpuModel | Cpus
    most: int
    per_node: int | None = None
    room: Callable[[int, int], bool] | None = field(default=None, compare=False)
    host_memory: int | None = None

    @property
    def name(self) -> str:
        return "CPU" if isinstance(self.model, Cpus) else self.model.name


def decided(spec: JobSpec, architecture: Architecture | None, devices: Devices) -> JobSpec:
    """The spec with the layout that is fastest, with recompute and offload, and for what it was chosen.

    Takes 12 s of a core or more for a model of 70B on 256 GPUs. Raises InvalidSpec, InvalidLayout, DoesNotFit.
    """
    auto = spec.train.layout.auto or AutoLayout()
    too_large: DoesNotFit | None = None
    for world in _worlds(auto, devices):
        if too_large is not None and world & (world - 1):
            continue  # fewer ranks have less memory: only a power of two may divide the model better
        wanted = AdviceRequest(
            world, devices.model, 1, Given(per_node=devices.per_node, host_memory=devices.host_memory)
        )
        asked = advice.question(spec.train, architecture, wanted)
        if devices.room is not None and not (auto.world and "tensor" in spec.train.layout.model_fields_set):
            asked = replace(asked, tensors=tuple(t for t in divisors(world) if devices.room(world, t)))
        found = _found(asked)
        if found.rows:
            return _with(spec, found.rows[0], auto, f"{world} × {devices.name}")
        if found.too_large and too_large is None:
            too_large = _does_not_fit(asked, found, devices)
    raise too_large or _no_layout(asked, found, auto)


def _worlds(auto: AutoLayout, devices: Devices) -> Sequence[int]:
    """Numbers of ranks, the first of which has a layout is taken. Raises InvalidSpec."""
    if auto.world is not None:
        return [auto.world]
    if not devices.most:
        message = "How many devices there are for this job is not known yet."
        remedy = "Give the number of ranks, as in layout: {auto: {world: 8}}, or wait until `shardyard nodes` lists the cluster."
        raise InvalidSpec(message, field=_WORLD, remedy=remedy)
    return range(min(devices.most, MOST_RANKS), 0, -1)


def _found(asked: search.Question) -> search.Advice:
    """The search's answer, kept for the next equal question. Raises InvalidLayout."""
    text = asked.train.model_dump_json(by_alias=True, exclude_unset=True, exclude=_WITHOUT_EFFECT)
    return _answer(text, asked.architecture, asked.hardware, asked.world, asked.capability, asked.tensors)


@lru_cache(maxsize=256)
def _answer(
    train: str,
    architecture: Architecture,
    hardware: Hardware,
    world: int,
    capability: Capability | None,
    tensors: tuple[int, ...] | None,
) -> search.Advice:
    asked = search.Question(TrainSpec.model_validate_json(train), architecture, hardware, world, 1, capability, tensors)
    return advice.found_layouts(asked)


def _with(spec: JobSpec, row: search.Row, auto: AutoLayout, devices: str) -> JobSpec:
    chosen = AutoLayout(world=auto.world, devices=devices, step_s=row.time.seconds)
    layout = row.train.layout.model_copy(update={"auto": chosen})
    options = {"layout": layout, "recompute": row.train.recompute, "offload": row.train.offload}
    return spec.model_copy(update={"train": spec.train.model_copy(update=options)})


def _does_not_fit(asked: search.Question, found: search.Advice, devices: Devices) -> DoesNotFit:
    """The error with what is short."""
    on_host = math.isfinite(found.least_on_host)
    needed, what = (found.least_on_host, " of host memory") if on_host else (found.least_needed, "")
    where, has = _memory(asked, on_host)
    least = f"The most frugal one needs {size(round(needed))}{what} per rank or more"
    short = f"{where} has {size(has)}: {size(max(0, round(needed) - has))} or more are short."
    disk = "offload: {optimizer: 1, to: disk} beside layout, " if on_host and asked.fixed.offload is None else ""
    remedy = f"{_more_ranks(asked.world, devices)}{disk}a shorter data.seq_len, or a smaller model."
    fewer = f" Or leave out a part of what the spec fixes: {asked.fixed}." if str(asked.fixed) else ""
    message = f"No layout of {asked.world} × {devices.name}{_fixed(asked)} fits. {least}, and {short}"
    return DoesNotFit(message, field=_FIELD, remedy=remedy + fewer)


def _more_ranks(world: int, devices: Devices) -> str:
    """The beginning of a remedy: more ranks as far as there are devices for them."""
    if world >= MOST_RANKS:
        return "Use "
    more = min(2 * world, devices.most or MOST_RANKS, MOST_RANKS)
    return f"Use more ranks, as in layout: {{auto: {{world: {more}}}}}, " if more > world else "Add devices, or use "


def _memory(asked: search.Question, on_host: bool) -> tuple[str, int]:
    """What a rank has of the memory that is short, as a part of a sentence and in bytes. `on_host`: a GPU's rank of its node's."""
    hardware, sharing = asked.hardware, min(asked.world, asked.hardware.ranks_per_node)
    memory = hardware.host_memory if on_host else hardware.memory
    assert memory is not None
    if on_host:
        return "a rank's part of its node", memory // sharing
    return ("a GPU", memory) if hardware.device == "cuda" else ("a CPU rank", memory // sharing)


def _no_layout(asked: search.Question, found: search.Advice, auto: AutoLayout) -> ShardyardError:
    """The error for a model, a batch and options that no layout has."""
    ranks = f"{asked.world}" if auto.world is not None else "any number of"
    reasons = "".join(f" {name}: {message}" for name, message, _ in found.axes.refused[:2])
    message = f"The model and its batch have no layout of {ranks} ranks{_fixed(asked)}.{reasons}"
    remedy = "Give another number of ranks, as in layout: {auto: {world: 8}}, another global_batch, or fewer fields beside auto."
    return InvalidLayout(message, field=_FIELD, remedy=remedy)


def _fixed(asked: search.Question) -> str:
    """What the spec fixes, as a part of a sentence."""
    return f" with {asked.fixed}" if str(asked.fixed) else ""


# The devices of the cluster.


def of_cluster(spec: JobSpec, clusters: Sequence[Nodes]) -> Devices:
    """Those of the cluster that has most of them for this job, GPUs before CPUs.

    Raises InvalidSpec if its GPUs are of a model that is not known.
    """
    auto = spec.train.layout.auto or AutoLayout()
    asked = replace(queued_job.waiting(spec), world_size=auto.world or 1, tensor=1)  # not yet what the spec fixes

    def place(one: Nodes) -> tuple[bool, bool, int]:
        kind = queue.resolved(asked, one.inventory)
        able = queue.impossible(asked, one.inventory) is None
        return able, kind == "cuda", _most(replace(asked, wanted=kind), one.inventory)

    cluster = max(clusters, key=place)
    kind, most = queue.resolved(asked, cluster.inventory), place(cluster)[-1]
    waiting = replace(asked, wanted=kind)
    per_node = _per_node(waiting, kind, cluster.inventory)

    def room(world: int, tensor: int) -> bool:
        return queue.impossible(replace(waiting, world_size=world, tensor=tensor), cluster.inventory) is None

    memory = _node_memory(waiting, kind, cluster, per_node)
    if kind == "cuda":
        return Devices(_gpu(waiting, cluster), most, per_node, room, memory)
    each = cluster.cpu_ranks_per_core
    cores = max(1, per_node // each) if per_node else auto.world or 1
    # Ranks that share a core are no faster than one that has it.
    return Devices(Cpus(cores, memory), most and max(1, most // each), per_node, room)


def _most(waiting: queue.Waiting, inventory: queue.Inventory) -> int:
    """The largest number of ranks that the cluster can run of the job; 0: not known."""
    kind = waiting.wanted
    assert kind != "auto"
    here = sum(machine.capacity[kind] for machine in inventory.machines)
    upper = max(here, sum(queue.ranks_of(inventory.whole, kind, waiting.image)), inventory.max_ranks or 0)
    sizes = range(1, upper + 1)
    return bisect_left(
        sizes, True, key=lambda n: queue.impossible(replace(waiting, world_size=n), inventory) is not None
    )


def _per_node(waiting: queue.Waiting, kind: queue.Device, inventory: queue.Inventory) -> int | None:
    """Ranks of the largest node of the cluster's own image, on which trainings run; None: no such node is known.

    If the job names a model of GPU, a zone or a domain, the largest living node that may serve it; only those have labels.
    """
    if waiting.model or waiting.within:
        able = [one for one in inventory.machines if part_of(one, waiting, kind) is not None]
        largest = max((machine.capacity[kind] for machine in able), default=0)
        if largest:
            return largest
    here = (machine.capacity[kind] for machine in inventory.machines if not machine.image)
    return max((*here, *queue.ranks_of(inventory.whole, kind, "")), default=0) or None


def _node_memory(waiting: queue.Waiting, kind: queue.Device, cluster: Nodes, per_node: int | None) -> int | None:
    """Bytes that `per_node` ranks share on a node, at the least that a known node has for each of its ranks; None: not known.

    Ranks are placed whatever memory a node has. Nodes without the label that all nodes of the job must share get none of them.
    """
    rows = gpu_rows(cluster, waiting.model) if kind == "cuda" else cluster.rows
    shares = [
        row["host_memory_bytes"] / ranks
        for row in rows
        if waiting.within is None or row[waiting.within]
        if (ranks := queue.machine(row["cpu"], 0, row["gpu"], 0, cluster.cpu_ranks_per_core).capacity[kind])
    ]
    least = min(filter(None, shares), default=None)
    return None if least is None or per_node is None else int(least * per_node)


def _gpu(waiting: queue.Waiting, cluster: Nodes) -> GpuModel:
    """The model of the cluster's GPUs; of several that a name stands for, or that are there, the one with least memory."""
    known = gpu_models(cluster, waiting.model) or [gpus_of_ray(waiting.model)]
    models = [model for several in known for model in several]
    if not models or not all(known):
        message = "What memory and speed the cluster's GPUs have is not known, so no layout can be chosen for them."
        remedy = (
            "Name their model in resources.gpu, such as H100, or write the layout that `shardyard advise SPEC --world N --gpu MODEL` "
            "shows for a known model of similar memory."
        )
        raise InvalidSpec(message, field=_FIELD, remedy=remedy)
    return min(models, key=lambda model: model.memory_mib)
