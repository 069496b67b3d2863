"""Memory and traffic of a job's ranks: by the formulas for its layout, and as the newest probe measured them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from pydantic import ValidationError
from sqlalchemy.engine import RowMapping

from ...strategies.cost.communication import Traffic, traffic
from ...strategies.cost.estimate import Formula, Setting, Unknown
from ...strategies.cost.memory import Answer, memory
from ...strategies.cost.plan import Plan, plan
from ...strategies.layout import Refusal
from ...workers import own_plan
from ...workers.cost_inputs import planned_setting, setting_of, vocabulary
from ...workers.device_choices import Capability, DeviceFacts, DeviceKind, as_reported
from ...workers.models.presets import Architecture
from ...workers.planned_peak import off_plan
from ...workers.spec import TrainSpec
from .. import capacity
from ..errors import FilesTooSlow
from ..schemas.resource import CommVolume, MemoryUsage, ResourceReport
from ..settings import Settings
from ..spec import JobSpec
from ..spec_files import SpecFiles
from ..store import events
from ..store.engine import Store
from .jobs import existing

#: The kinds that a probe measures.
_MEASURED: Final = ("parameters", "gradients", "optimizer", "activations")
_AT_THE_PEAK: Final = Unknown("A part of the planned peak. A probe does not measure it apart.")
#: Kinds of memory that have no formula.
_PEAK: Final = Unknown("The peak of all memory that torch had allocated, including buffers and fragments.")

Numbers = Mapping[str, Any]
#: The devices that a job would get now of these clusters.
WouldGet = Callable[[JobSpec, Sequence[capacity.Nodes]], DeviceFacts]


async def resources(
    store: Store, settings: Settings, job: str, files: SpecFiles, would_get: WouldGet
) -> ResourceReport:
    """Memory and traffic of a job (id or name), before its first placement on the devices that it would get. Raises JobNotFound."""
    async with store.read() as tx:
        row = await existing(tx, job)
        known = [] if row["device"] else await capacity.known(tx, settings)
        reported = await events.newest(tx, row["id"], "plan")
        probe = await events.newest(tx, row["id"], "probe")
        changed = await events.newest(tx, row["id"], "reshard")
    if probe is not None and changed is not None and changed["position"] > probe["position"]:
        probe = None  # it measured another layout
    try:
        # A model may come from a folder.
        setting, planned = await files.look(lambda _: _setting(row, reported, lambda spec: would_get(spec, known)))
    except FilesTooSlow as error:
        setting, planned = Unknown(f"The model's numbers cannot be read here: {error.message}"), None
    measured: Numbers = {} if probe is None else probe["data"]
    return ResourceReport(
        layout=row["layout"],
        step=measured.get("step"),
        memory=memory_usage(setting, measured.get("memory") or {}, planned),
        traffic=comm_volume(setting, measured.get("traffic") or {}),
        off_plan=_off_plan(planned, measured.get("memory") or {}),
        planned_by=None if planned is None else planned.source,
        reason=setting.reason if isinstance(setting, Unknown) else None,
    )


def _setting(
    row: RowMapping, reported: RowMapping | None, would_get: Callable[[JobSpec], DeviceFacts]
) -> tuple[Setting | Unknown, Plan | None]:
    """The inputs of the formulas, or why there are none; and the memory plan, which covers more models."""
    if "train" not in row["spec"]:
        return Unknown("The job runs a command. What its programs hold and send is not measured."), None
    whole = {"name": row["name"], "train": row["spec"]["train"]} if row["device"] else row["spec"]
    try:
        job = JobSpec.model_validate(whole)
    except ValidationError as error:  # an earlier version stored it
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(map(str, first["loc"]))
        return Unknown(f"This version cannot read the job's stored spec: {field}: {first['msg']}."), None
    spec, device = job.train, DeviceFacts(row["device"]) if row["device"] else would_get(job)
    capability = device.capability
    if reported is not None and reported["data"].get("device") == device.kind:
        spec, capability = as_reported(spec, reported["data"]), _capability(reported["data"])
    try:
        vocab = _vocabulary(spec, reported)
        if isinstance(vocab, Unknown):
            return vocab, None
        architecture = spec.architecture(vocab)
        return setting_of(spec, vocab, device.kind, capability), _planned(spec, architecture, device.kind, capability)
    except (Refusal, ValidationError) as error:
        return Unknown(f"The model's numbers cannot be read here: {error}"), None


def _capability(plan: Numbers) -> Capability | None:
    """That of the GPUs by a `plan` event; None: older trainers, which did not report it."""
    found = plan.get("capability")
    return None if found is None else (int(found[0]), int(found[1]))


def _planned(
    spec: TrainSpec, architecture: Architecture | None, device: DeviceKind, capability: Capability | None
) -> Plan | None:
    """The memory plan: by the formulas, or the submitter's own of a module without them."""
    if architecture is not None:
        return plan(planned_setting(spec, architecture, device, capability))
    found = own_plan.present(spec)
    return None if found is None else own_plan.plan_of(found, device)


def _vocabulary(spec: TrainSpec, reported: RowMapping | None) -> int | Unknown:
    """The vocabulary size by the spec or the trainers' plan; only the trainers read the tokenizer's file."""
    if spec.model.import_ is not None or spec.model.vocab is not None:
        return spec.model.vocab or 2
    if reported is None:
        return 256 if spec.data.tokenizer == "bytes" else Unknown("The vocabulary is known when the job has begun.")
    return vocabulary(spec, int(reported["data"]["parameters"])) or Unknown(
        "The model has other sizes than its spec says."
    )


def memory_usage(setting: Setting | Unknown, measured: Numbers, planned: Plan | None) -> list[MemoryUsage]:
    """Memory by kind, from a probe's `memory` and the memory plan."""
    said: dict[str, Answer] = {} if isinstance(setting, Unknown) else memory(setting)
    kept: dict[str, float] = {} if planned is None else dict(planned.by_kind.items()) | {"allocated": planned.peak}
    more = [kind for kind in kept if kind not in (*_MEASURED, "allocated")]
    kinds = [*_MEASURED, *more, *(kind for kind in measured if kind == "allocated")]
    unknown = setting if isinstance(setting, Unknown) else None
    missing = {kind: unknown or (_AT_THE_PEAK if kind in more else _PEAK) for kind in kinds}
    return [_held(kind, said.get(kind, missing[kind]), measured.get(kind) or {}, kept.get(kind)) for kind in kinds]


def _off_plan(planned: Plan | None, measured: Numbers) -> str | None:
    """By how much a rank's peak is off its plan. Only a GPU's allocator knows it: a CPU rank's resident pages are not tensors alone."""
    peak = (measured.get("allocated") or {}).get("max")
    return off_plan(planned.peak, peak) if planned is not None and planned.peak and peak is not None else None


def _held(kind: str, said: Answer, measured: Numbers, planned: float | None) -> MemoryUsage:
    least, most = measured.get("min"), measured.get("max")
    if isinstance(said, Formula):
        formula: Numbers = {"formula": said.words, "low": said.low, "high": said.high, "reason": None}
    else:
        formula = {"formula": None, "low": None, "high": None, "reason": said.reason}
    return MemoryUsage(kind=kind, least=least, most=most, planned=planned, **formula)


def comm_volume(setting: Setting | Unknown, measured: Mapping[str, Mapping[str, Numbers]]) -> list[CommVolume]:
    """Traffic by axis and collective, from a probe's `traffic`."""
    said = Traffic({}, {}) if isinstance(setting, Unknown) else traffic(setting)
    flows = {
        (axis, kind): numbers
        for axis, kinds in measured.items()
        for kind, numbers in kinds.items()
        if numbers["elements"]
    }
    return [_flow(axis, kind, said, setting, flows.get((axis, kind))) for axis, kind in sorted({*flows, *said.moved})]


def _flow(axis: str, kind: str, said: Traffic, setting: Setting | Unknown, measured: Numbers | None) -> CommVolume:
    moved = said.moved.get((axis, kind))
    reason = None
    if moved is None:
        missing = said.unknown.get(axis, "There is no formula for this.")
        reason = setting.reason if isinstance(setting, Unknown) else missing
    return CommVolume(
        axis=axis,
        collective=kind,
        calls=measured["calls"] if measured else None,
        elements=measured["elements"] if measured else None,
        bytes=measured["bytes"] if measured else None,
        formula=moved.words if moved else None,
        formula_elements=moved.elements if moved else None,
        formula_bytes=moved.bytes if moved else None,
        reason=reason,
    )
