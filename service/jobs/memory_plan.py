"""Plans the memory of a job's ranks before any device is taken, and refuses a job that cannot fit.

Refused is only what fits on no known node. The plan is that of the fullest rank. An elastic job fits if one of its layouts does, and
nodes of several kinds have room if enough of them do. Where the memory of a device is unknown, the job is not refused.
A module of the user's own has no formulas: its plan is its submitter's dry run, if the spec has one (`workers/own_plan.py`).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from sqlalchemy.engine import RowMapping

from ...strategies.cost.node_room import Cluster, Room, Verdict, verdict
from ...strategies.cost.plan import Plan, plan
from ...strategies.cost.snapshots import SNAPSHOTS
from ...strategies.layout import Layout
from ...workers import own_plan
from ...workers.cost_inputs import planned_setting
from ...workers.device_choices import DeviceFacts
from ...workers.fitting_changes import Change, smallest_change
from ...workers.gpu_models import GpuModel, gpus_of_ray
from ...workers.models.presets import Architecture
from ...workers.planned_memory import PlannedMemory
from ...workers.spec import TrainSpec, facts_of
from ..errors import DoesNotFit
from ..policies import queue
from ..schemas.memory_plan import KindBytes, MemoryPlan
from ..settings import Settings
from ..spec import JobSpec
from . import queued_job, validation

_GIB: Final = 2**30
_FORCE: Final = "Or set resources.force to true to try all the same."


@dataclass(frozen=True)
class Nodes:
    """A cluster's living nodes, and its devices as the queue sees them."""

    rows: Sequence[RowMapping]
    inventory: queue.Inventory


@dataclass(frozen=True)
class Planned:
    """The plan of a job's ranks, and whether they fit. `smaller`: whether only a smaller layout of an elastic job does."""

    plan: Plan
    verdict: Verdict
    device: DeviceFacts
    smaller: bool = False

    def record(self) -> MemoryPlan:
        found = self.verdict
        return MemoryPlan(
            device=self.device.kind,
            source=self.plan.source,
            fits=found.fits,
            bytes=self.plan.peak,
            needed_bytes=found.needed,
            reserved_bytes=found.reserved,
            device_bytes=found.memory,
            kinds=[KindBytes(kind=kind, bytes=held) for kind, held in self.plan.by_kind.items()],
            host=[KindBytes(kind=kind, bytes=held) for kind, held in self.plan.host.items()],
            notes=[*self.plan.notes, *(["Only a smaller layout of this elastic job fits."] if self.smaller else [])],
        )


def planned(
    spec: JobSpec, checked: validation.Checked, clusters: Sequence[Nodes], settings: Settings
) -> Planned | None:
    """The plan of the spec's layout. None if the model's numbers are not known here, and its submitter sent none.

    Raises DoesNotFit unless `resources.force`.
    """
    architecture = checked.architecture
    if architecture is None:
        return _by_dry_run(spec, spec.train.planned, checked, clusters, settings)
    waiting = queued_job.waiting(spec)
    facts = device_facts(spec, clusters)
    most = [_cluster(cluster, facts.kind, settings, max, waiting.model) for cluster in clusters]
    judge = partial(_verdict, architecture=architecture, device=facts, clusters=most)
    whole, found = judge(spec.train)
    layouts = (_with_degree(spec.train, layout.data) for layout in checked.elastic_layouts)
    smaller = found.fits is False and any(judge(layout)[1].fits is not False for layout in layouts)
    answer = Planned(whole, found, facts, smaller)
    if found.fits is False and not smaller and not spec.resources.force:
        least = [_cluster(cluster, facts.kind, settings, min, waiting.model) for cluster in clusters]
        raise _refusal(spec, architecture, answer, least, clusters)
    return answer


def _by_dry_run(
    spec: JobSpec,
    given: PlannedMemory | None,
    checked: validation.Checked,
    clusters: Sequence[Nodes],
    settings: Settings,
) -> Planned | None:
    """The plan that came with the spec. On a smaller layout of an elastic job a rank holds as much or more."""
    if given is None:
        return None
    waiting, facts = queued_job.waiting(spec), device_facts(spec, clusters)
    most = [_cluster(cluster, facts.kind, settings, max, waiting.model) for cluster in clusters]
    plan = own_plan.plan_of(given, facts.kind)
    found = verdict(plan, facts.kind, spec.world_size, most)
    others = (verdict(plan, facts.kind, layout.world_size, most) for layout in checked.elastic_layouts)
    smaller = found.fits is False and any(other.fits is not False for other in others)
    answer = Planned(plan, found, facts, smaller)
    if found.fits is False and not smaller and not spec.resources.force:
        raise DoesNotFit(_message(answer), field="train.layout", remedy=f"{own_plan.KNOBS} {_FORCE}")
    return answer


def device_facts(spec: JobSpec, clusters: Sequence[Nodes]) -> DeviceFacts:
    """The devices that the job would get now. GPUs count as old only if all of them are known to be."""
    waiting = queued_job.waiting(spec)
    device = queue.resolved(waiting, clusters[0].inventory)
    models = [models for cluster in clusters for models in gpu_models(cluster, waiting.model)]
    if device == "cpu" or not all(models):
        return DeviceFacts(device)
    newest = max((model.capability for several in models for model in several), default=None)
    return DeviceFacts(device, newest)


def gpu_models(nodes: Nodes, model: str) -> list[tuple[GpuModel, ...]]:
    """The models that the GPUs of each node may be; empty where they are not known. `model`: only of GPUs of this name, if given."""
    names = (row["gpu_model"] for row in nodes.rows if row["gpu"] >= 1)
    return [gpus_of_ray(name) for name in names if _is_asked(name, model)]


def _verdict(
    train: TrainSpec, architecture: Architecture, device: DeviceFacts, clusters: Sequence[Cluster]
) -> tuple[Plan, Verdict]:
    found = plan(planned_setting(train, architecture, device.kind, device.capability))
    return found, verdict(found, device.kind, train.layout.world_size, clusters)


def _with_degree(train: TrainSpec, data: int) -> TrainSpec:
    return train.model_copy(update={"layout": train.layout.model_copy(update={"data": data})})


def _cluster(
    nodes: Nodes, device: queue.Device, settings: Settings, pick: Callable[[Iterable[int]], int], model: str
) -> Cluster:
    """The rooms of nodes with GPUs of `model`, if given. `pick` chooses where a GPU's name stands for models of several sizes."""
    rooms = [(row["gpu_model"], _room(row, device, settings, pick)) for row in nodes.rows]
    here = sum(room.ranks for _, room in rooms)
    whole = max(sum(nodes.inventory.whole.get(device, ())), nodes.inventory.max_ranks or 0)
    asked = [room for name, room in rooms if room.ranks and _is_asked(name, model)]
    return Cluster(asked, max(0, whole - here))


def _is_asked(name: str, model: str) -> bool:
    """Whether GPUs of this name are those that a job asks for; it may ask for none."""
    return not model or name.casefold() == model.casefold()


def _room(row: RowMapping, device: queue.Device, settings: Settings, pick: Callable[[Iterable[int]], int]) -> Room:
    ranks = queue.machine(row["cpu"], 0, row["gpu"], 0, settings.cpu_ranks_per_core).capacity[device]
    if device == "cpu":
        return Room(ranks, row["host_memory_bytes"] or None, shared=True)
    models = gpus_of_ray(row["gpu_model"])
    return Room(ranks, pick(model.memory_bytes for model in models) if models else None)


def _refusal(
    spec: JobSpec, architecture: Architecture, found: Planned, clusters: Sequence[Cluster], nodes: Sequence[Nodes]
) -> DoesNotFit:
    """The error with the breakdown, and the smallest change that fits."""

    def judge(changed: TrainSpec) -> Verdict | None:
        if not _on_nodes(spec, changed.layout, found.device.kind, nodes):
            return None
        return _verdict(changed, architecture, found.device, clusters)[1]

    change = smallest_change(spec.train, facts_of(architecture), judge)
    field = f"train.{change.edits[0][0]}" if change is not None and change.fits else "train.layout"
    return DoesNotFit(_message(found), field=field, remedy=_remedy(change))


def _on_nodes(spec: JobSpec, layout: Layout, device: queue.Device, nodes: Sequence[Nodes]) -> bool:
    """Whether larger tensor groups than the spec's have nodes, as far as the clusters' capacity is known."""
    if layout.tensor <= spec.train.layout.tensor:
        return True
    group = replace(queued_job.waiting(spec), wanted=device, world_size=layout.tensor, tensor=layout.tensor)
    return any(queue.impossible(group, cluster.inventory) is None for cluster in nodes)


def _message(found: Planned) -> str:
    verdict = found.verdict
    parts = [f"{kind} {size(held)}" for kind, held in found.plan.by_kind.items()]
    host = {kind: held for kind, held in found.plan.host.items() if kind != SNAPSHOTS}
    parts += [f"{kind} on the host {size(held)}" for kind, held in host.items()] if verdict.shared else []
    parts.append(f"the process itself {size(verdict.reserved)}")
    has = (
        f"the largest known node has {size(verdict.memory)} for all its ranks"
        if verdict.shared
        else f"a GPU has {size(verdict.memory)}"
    )
    return f"A rank needs {size(verdict.needed)} ({', '.join(parts)}); {has}."


def _remedy(change: Change | None) -> str:
    if change is None:
        return f"Use more devices or a smaller model. {_FORCE}"
    if not change.fits:
        closest = f"The closest is {change}: it needs {size(change.verdict.needed)} per rank."
        return (
            f"No change of the layout fits on these devices. {closest} Use more devices, or a smaller model. {_FORCE}"
        )
    return f"Set {change}: a rank then needs {size(change.verdict.needed)}. {_FORCE}"


def size(number: int | None) -> str:
    """Bytes for people."""
    value = (number or 0) / _GIB
    return f"{value:,.0f} GiB" if value >= 100 else f"{value:.1f} GiB" if value >= 0.1 else f"{value * 1024:.0f} MiB"
