"""Plans the memory of a job's ranks before any device is taken, and refuses a job that cannot fit.

Refused is only what fits on no known node. The plan is that of the fullest rank. An elastic job fits if one of its layouts does, and it
takes none of the others. Nodes of several kinds have room if enough of them do. Where the memory of a device is unknown, the job is not
refused. A module of the user's own has no formulas: its plan is its submitter's dry run, if the spec has one (`workers/own_plan.py`).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Final

from sqlalchemy.engine import RowMapping

from ...strategies.cost.node_room import Cluster, Room, Verdict, verdict
from ...strategies.cost.plan import Plan, plan
from ...strategies.expert_rules import groups_experts
from ...workers import own_plan
from ...workers.cost_inputs import planned_setting
from ...workers.device_choices import DeviceFacts
from ...workers.elastic_layouts import ElasticLayout
from ...workers.fitting_changes import Change, smallest_change
from ...workers.gpu_models import GpuModel, gpus_of_ray
from ...workers.models.presets import Architecture
from ...workers.spec import TrainSpec, facts_of
from ..capacity import Nodes
from ..errors import DoesNotFit
from ..policies import queue
from ..schemas.memory_plan import KindBytes, MemoryPlan
from ..schemas.problem import FieldError
from ..spec import JobSpec
from . import queued_job, validation

_GIB: Final = 2**30
_BY_CHOICE: Final[tuple[queue.Device, ...]] = ("cuda", "cpu")
#: Clusters of each kind take such a job, whichever has devices first.
_NOT_ON_GPUS: Final = (
    "It does not fit on GPUs, and a cluster that has some may start it all the same: set resources.device to cpu."
)
_FORCE: Final = "Or set resources.force to true to try all the same."
#: The plan of a spec's layout, and whether its ranks fit.
_Judge = Callable[[TrainSpec], tuple[Plan, Verdict]]


@dataclass(frozen=True)
class Planned:
    """The plan of a job's ranks, and whether they fit.

    `spec`, `checked`: of the job as it can run. `unfit`: elastic layouts on which they do not fit. The job does not take these, unless
    `resources.force`. `not_on_gpus`: whether they fit on no GPU of another cluster, which would take them.
    """

    plan: Plan
    verdict: Verdict
    device: DeviceFacts
    spec: JobSpec
    checked: validation.Checked
    unfit: tuple[ElasticLayout, ...] = ()
    not_on_gpus: bool = False

    @property
    def may_fit(self) -> bool:
        """Whether they fit on one of the layouts that the job takes, as far as it is known."""
        others = self.spec.resources.force and len(self.unfit) < len(self.checked.elastic_layouts)
        return self.verdict.fits is not False or others

    @property
    def warnings(self) -> list[FieldError]:
        """Which elastic layouts the job does not take."""
        if not self.unfit or self.spec.resources.force:
            return []
        message = f"The job does not take the elastic layouts on which a rank does not fit: {self._unfit}."
        remedy = "Change what a rank holds, or set resources.force to true to try all the same."
        return [FieldError(field="train.layout.data", message=message, remedy=remedy)]

    @property
    def _unfit(self) -> str:
        return ", ".join(layout.layout for layout in self.unfit)

    def record(self) -> MemoryPlan:
        found = self.verdict
        forced = bool(self.unfit) and self.spec.resources.force
        also = {
            f"{_on_host(self)}.": found.fits is False and found.host.share > 1,
            f"A rank does not fit on these elastic layouts: {self._unfit}.": forced,
            _NOT_ON_GPUS: self.not_on_gpus,
        }
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
            notes=[*self.plan.notes, *(note for note, holds in also.items() if holds)],
        )


def planned(spec: JobSpec, checked: validation.Checked, clusters: Sequence[Nodes]) -> Planned | None:
    """The plan of the job as it can run. None if the model's numbers are not known here, and its submitter sent none.

    It is for the first kind of devices, of those that clusters give the job, on which it may fit. Raises DoesNotFit if there is none,
    unless `resources.force`.
    """
    if checked.architecture is None and spec.train.planned is None:
        return None
    kinds = _kinds(spec, clusters, checked.least_ranks(spec))
    answers: list[Planned] = []
    for facts, those in kinds:
        answer = _judged(spec, checked, facts, those)
        if answer.may_fit:
            return replace(answer, not_on_gpus=bool(answers))
        answers.append(answer)
    if spec.resources.force:
        return answers[0]
    if checked.architecture is None:
        knobs = own_plan.HOST_KNOBS if answers[0].verdict.lacks_host else own_plan.KNOBS
        raise DoesNotFit(_message(answers[0]), field="train.layout", remedy=f"{knobs} {_FORCE}")
    raise _refusal(checked.architecture, answers[0], kinds[0][1])


def _judged(spec: JobSpec, checked: validation.Checked, facts: DeviceFacts, nodes: Sequence[Nodes]) -> Planned:
    """The plan for devices of one kind. If there is no room for any of the elastic layouts that fit, that of one that does not."""
    judge = _judge(spec, checked, facts, nodes)
    found = {layout: judge(_with_degree(spec, layout).train)[1].fits for layout in checked.elastic_layouts}
    unfit = tuple(layout for layout, fits in found.items() if fits is False)
    if unfit and not spec.resources.force:
        others = [layout for layout in found if layout not in unfit]
        # Of those for which all clusters are too small it is not known whether they fit.
        if any(_have_room(nodes, queued_job.waiting(_with_degree(spec, layout)), facts.kind) for layout in others):
            spec, checked = _only(spec, checked, others)
        elif judge(spec.train)[1].fits is not False:
            spec = _with_degree(spec, unfit[0])
    return Planned(*judge(spec.train), facts, spec, checked, unfit)


def _judge(spec: JobSpec, checked: validation.Checked, facts: DeviceFacts, nodes: Sequence[Nodes]) -> _Judge:
    """Judges layouts for devices of one kind: by formulas, or by the plan that came with the spec."""
    model = queued_job.waiting(spec).model
    clusters = [_cluster(one, facts.kind, max, model) for one in nodes]
    if checked.architecture is not None:
        return partial(_verdict, architecture=checked.architecture, device=facts, clusters=clusters)
    assert spec.train.planned is not None
    plan = own_plan.plan_of(spec.train.planned, facts.kind)
    if spec.train.offload.to == "disk":  # a dry run counts that state as host memory
        clusters = [one.without_host for one in clusters]
    # On a smaller layout of an elastic job a rank holds as much or more.
    return lambda train: (plan, verdict(plan, facts.kind, train.layout.world_size, clusters))


def _only(
    spec: JobSpec, checked: validation.Checked, layouts: Sequence[ElasticLayout]
) -> tuple[JobSpec, validation.Checked]:
    """The job with these of its elastic layouts: on its present one if that is among them, else on the largest."""
    if all(layout.data != spec.train.layout.data for layout in layouts):
        spec = _with_degree(spec, layouts[0])
    batch = spec.train.layout.batch(spec.train.global_batch)
    return spec, replace(checked, batch=batch, elastic_layouts=tuple(layouts) if len(layouts) > 1 else ())


def device_facts(spec: JobSpec, clusters: Sequence[Nodes]) -> DeviceFacts:
    """The devices that the job would get now: GPUs if a cluster has them for it."""
    return _kinds(spec, clusters, spec.world_size)[0][0]


def _kinds(spec: JobSpec, clusters: Sequence[Nodes], least: int) -> list[tuple[DeviceFacts, list[Nodes]]]:
    """The kinds of devices that the job may get, GPUs first, and the clusters that would give it these.

    Clusters that are too small for `least` ranks of it count only if all are. The queue chooses by `least` ranks, too.
    """
    waiting = queued_job.waiting(spec)
    smallest = replace(waiting, world_size=least)
    able = [one for one in clusters if queue.impossible(smallest, one.inventory) is None] or clusters
    kinds = [queue.resolved(smallest, one.inventory) for one in able]
    found = {kind: [one for one, its in zip(able, kinds, strict=True) if its == kind] for kind in _BY_CHOICE}
    return [(_facts(kind, those, waiting.model), those) for kind, those in found.items() if those]


def _facts(device: queue.Device, clusters: Sequence[Nodes], model: str) -> DeviceFacts:
    """Of several models that which needs least memory decides: one that groups experts, else the newest. An unknown one counts as new."""
    models = [models for cluster in clusters for models in gpu_models(cluster, model)]
    if device == "cpu" or not all(models):
        return DeviceFacts(device)
    capabilities = {model.capability for several in models for model in several}
    return DeviceFacts(device, max(capabilities, key=lambda one: (groups_experts(one), one), default=None))


def gpu_models(nodes: Nodes, model: str) -> list[tuple[GpuModel, ...]]:
    """The models that the GPUs of each node may be; empty where they are not known. `model`: only of GPUs of this name, if given."""
    return [gpus_of_ray(row["gpu_model"]) for row in gpu_rows(nodes, model)]


def gpu_rows(nodes: Nodes, model: str) -> list[RowMapping]:
    """The nodes that have GPUs, of this name if one is given."""
    return [row for row in nodes.rows if row["gpu"] >= 1 and _is_asked(row["gpu_model"], model)]


def _verdict(
    train: TrainSpec, architecture: Architecture, device: DeviceFacts, clusters: Sequence[Cluster]
) -> tuple[Plan, Verdict]:
    found = plan(planned_setting(train, architecture, device.kind, device.capability))
    return found, verdict(found, device.kind, train.layout.world_size, clusters)


def _with_degree(spec: JobSpec, layout: ElasticLayout) -> JobSpec:
    changed = spec.train.layout.model_copy(update={"data": layout.data})
    return spec.model_copy(update={"train": spec.train.model_copy(update={"layout": changed})})


def _have_room(nodes: Sequence[Nodes], job: queue.Waiting, device: queue.Device) -> bool:
    """Whether one of the clusters has as many such devices as the job needs, as far as its capacity is known."""
    return any(queue.impossible(replace(job, wanted=device), cluster.inventory) is None for cluster in nodes)


def _cluster(nodes: Nodes, device: queue.Device, pick: Callable[[Iterable[int]], int], model: str) -> Cluster:
    """The rooms of nodes with GPUs of `model`, if given. `pick` chooses where a GPU's name stands for models of several sizes."""
    rooms = [(row["gpu_model"], _room(row, device, nodes.cpu_ranks_per_core, pick)) for row in nodes.rows]
    here = sum(room.ranks for _, room in rooms)
    whole = max(sum(queue.ranks_of(nodes.inventory.whole, device, "")), nodes.inventory.max_ranks or 0)
    asked = [room for name, room in rooms if room.ranks and _is_asked(name, model)]
    return Cluster(asked, max(0, whole - here))


def _is_asked(name: str, model: str) -> bool:
    """Whether GPUs of this name are those that a job asks for; it may ask for none."""
    return not model or name.casefold() == model.casefold()


def _room(row: RowMapping, device: queue.Device, per_core: int, pick: Callable[[Iterable[int]], int]) -> Room:
    ranks = queue.machine(row["cpu"], 0, row["gpu"], 0, per_core).capacity[device]
    if device == "cpu":
        return Room(ranks, row["host_memory_bytes"] or None, shared=True)
    models = gpus_of_ray(row["gpu_model"])
    memory = pick(model.memory_bytes for model in models) if models else None
    return Room(ranks, memory, host=row["host_memory_bytes"] or None)


def _refusal(architecture: Architecture, found: Planned, nodes: Sequence[Nodes]) -> DoesNotFit:
    """The error with the breakdown, and the smallest change that fits."""
    spec, device = found.spec, found.device
    now = queued_job.waiting(spec)
    clusters = [_cluster(one, device.kind, min, now.model) for one in nodes]

    @cache
    def has_nodes(job: queue.Waiting) -> bool:
        return _have_room(nodes, job, device.kind)

    def judge(changed: TrainSpec) -> Verdict | None:
        job = queued_job.waiting(spec.model_copy(update={"train": changed}))
        if job != now and not has_nodes(job):  # the next submission would refuse it
            return None
        return _verdict(changed, architecture, device, clusters)[1]

    most_ranks = max((one.ranks for one in clusters), default=0)
    change = smallest_change(spec.train, facts_of(architecture), judge, most_ranks)
    field = f"train.{change.edits[0][0]}" if change is not None and change.fits else "train.layout"
    return DoesNotFit(_message(found), field=field, remedy=_remedy(change))


def _message(found: Planned) -> str:
    verdict = found.verdict
    parts = [f"{kind} {size(held)}" for kind, held in found.plan.by_kind.items()]
    offloaded = found.plan.offloaded.items()
    parts += [f"{kind} on the host {size(held)}" for kind, held in offloaded] if verdict.shared else []
    parts.append(f"the process itself {size(verdict.reserved)}")
    has = f"a GPU has {size(verdict.memory)}" if verdict.memory else "what memory a GPU has is not known"
    if verdict.shared:
        has = f"the largest known node has {size(verdict.memory)} for all its ranks"
    on_host = f" {_on_host(found)}." if verdict.host.needed else ""
    return f"A rank needs {size(verdict.needed)} ({', '.join(parts)}); {has}.{on_host}"


def _on_host(found: Planned) -> str:
    """What a GPU's rank needs of host memory, and what there is of it, as a sentence."""
    host = found.verdict.host
    parts = [f"{kind} {size(held)}" for kind, held in found.plan.offloaded.items()]
    parts.append(f"the process itself {size(host.reserved)}")
    has = "" if host.memory is None else f"; a node has {size(host.memory)} for {host.ranks} of them"
    return f"In host memory each rank needs {size(host.needed)} ({', '.join(parts)}){has}"


def _remedy(change: Change | None) -> str:
    if change is None:
        return f"Use more devices or a smaller model. {_FORCE}"
    needed = _needed(change.verdict)
    if change.verdict.memory is None and change.verdict.share <= 1:
        return f"Set {change}: a rank then needs {needed}, and what memory a GPU has is not known. {_FORCE}"
    if not change.fits:
        closest = f"The closest is {change}: it needs {needed} per rank."
        return (
            f"No change of the layout fits on these devices. {closest} Use more devices, or a smaller model. {_FORCE}"
        )
    return f"Set {change}: a rank then needs {needed}. {_FORCE}"


def _needed(verdict: Verdict) -> str:
    on_host = f", and {size(verdict.host.needed)} of host memory" if verdict.host.needed else ""
    return size(verdict.needed) + on_host


def size(number: int | None) -> str:
    """Bytes for people."""
    value = (number or 0) / _GIB
    return f"{value:,.0f} GiB" if value >= 100 else f"{value:.1f} GiB" if value >= 0.1 else f"{value * 1024:.0f} MiB"
