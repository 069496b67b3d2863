"""Memory and traffic of a job's ranks: by the formulas for its layout, and as the newest probe measured them."""

from collections.abc import Mapping
from typing import Any, Final

from pydantic import ValidationError
from sqlalchemy.engine import RowMapping

from ...strategies.cost.communication import Traffic, traffic
from ...strategies.cost.estimate import Formula, Setting, Unknown
from ...strategies.cost.memory import Answer, memory
from ...strategies.layout import Refusal
from ...workers.cost_inputs import setting_of, vocabulary
from ...workers.spec import TrainSpec
from ..errors import FilesTooSlow
from ..schemas.resource import CommVolume, MemoryUsage, ResourceReport
from ..spec_files import SpecFiles
from ..store import events
from ..store.engine import Store
from .jobs import existing

#: Kinds of memory that have no formula.
_PEAK: Final = Unknown("The peak of all memory that torch had allocated, including buffers and fragments.")

Numbers = Mapping[str, Any]


async def resources(store: Store, job: str, files: SpecFiles) -> ResourceReport:
    """Memory and traffic of a job (id or name). Raises JobNotFound."""
    async with store.read() as tx:
        row = await existing(tx, job)
        plan = await events.newest(tx, row["id"], "plan")
        probe = await events.newest(tx, row["id"], "probe")
        changed = await events.newest(tx, row["id"], "reshard")
    if probe is not None and changed is not None and changed["position"] > probe["position"]:
        probe = None  # it measured another layout
    try:
        setting = await files.look(lambda _: _setting(row, plan))  # a model may come from a folder
    except FilesTooSlow as error:
        setting = Unknown(f"The model's numbers cannot be read here: {error.message}")
    measured: Numbers = {} if probe is None else probe["data"]
    return ResourceReport(
        layout=row["layout"],
        step=measured.get("step"),
        memory=_memory(setting, measured.get("memory") or {}),
        traffic=_traffic(setting, measured.get("traffic") or {}),
        reason=setting.reason if isinstance(setting, Unknown) else None,
    )


def _setting(row: RowMapping, plan: RowMapping | None) -> Setting | Unknown:
    spec = TrainSpec.model_validate(row["spec"]["train"])
    try:
        vocab = _vocabulary(spec, plan)
        if isinstance(vocab, Unknown):
            return vocab
        return setting_of(spec, vocab, row["device"] or "cpu")
    except (Refusal, ValidationError) as error:
        return Unknown(f"The model's numbers cannot be read here: {error}")


def _vocabulary(spec: TrainSpec, plan: RowMapping | None) -> int | Unknown:
    """The vocabulary size by the spec or the trainers' plan; only the trainers read the tokenizer's file."""
    if spec.model.import_ is not None or spec.model.vocab is not None:
        return spec.model.vocab or 2
    if plan is None:
        return 256 if spec.data.tokenizer == "bytes" else Unknown("The vocabulary is known when the job has begun.")
    return vocabulary(spec, int(plan["data"]["parameters"])) or Unknown("The model has other sizes than its spec says.")


def _memory(setting: Setting | Unknown, measured: Numbers) -> list[MemoryUsage]:
    said: dict[str, Answer] = {} if isinstance(setting, Unknown) else memory(setting)
    kinds = [
        *("parameters", "gradients", "optimizer", "activations"),
        *(kind for kind in measured if kind == "allocated"),
    ]
    unknown = setting if isinstance(setting, Unknown) else _PEAK
    return [_held(kind, said.get(kind, unknown), measured.get(kind) or {}) for kind in kinds]


def _held(kind: str, said: Answer, measured: Numbers) -> MemoryUsage:
    least, most = measured.get("min"), measured.get("max")
    if isinstance(said, Formula):
        formula: Numbers = {"formula": said.words, "low": said.low, "high": said.high, "reason": None}
    else:
        formula = {"formula": None, "low": None, "high": None, "reason": said.reason}
    return MemoryUsage(kind=kind, least=least, most=most, **formula)


def _traffic(setting: Setting | Unknown, measured: Mapping[str, Mapping[str, Numbers]]) -> list[CommVolume]:
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
