"""What the plan of a module of the user's own says for a spec: which spec it is of, and its bytes. Imports no torch.

`dry_run/module_plan.py` makes the plan.
"""

import hashlib
import json
from typing import Final

from ..strategies.cost.plan import Kind, Plan
from .planned_memory import PlannedMemory
from .spec import TrainSpec

#: The parts of a spec that a plan depends on, besides the optimizer's name.
_PARTS: Final = frozenset(
    ("model", "data", "layout", "precision", "loss", "recompute", "offload", "compile", "overlap", "global_batch")
)
#: Where no change of the spec was tried.
KNOBS: Final = (
    "Less memory need: recompute, a smaller layout.micro_batch, a higher layout.zero, offload.optimizer: 1, more ranks."
)
#: The same where host memory is short.
HOST_KNOBS: Final = (
    "Less host memory: a smaller offload.optimizer, offload.activations: false, a higher layout.zero, more nodes."
)
_NOTE: Final = "By the submitter's dry run of the module, not by formulas."
_OF_GPUS: Final = "The dry run is of GPUs: buffers of gloo are not counted."


def digest(train: TrainSpec) -> str:
    """SHA-256 of all that a plan depends on, as the spec has it. The data degree of an elastic job changes while it runs."""
    given = train.model_dump(mode="json", by_alias=True, include=set(_PARTS), exclude_defaults=True)
    layout = given.get("layout", {})
    layout.pop("auto", None)
    if train.layout.elastic is not None:
        layout.pop("data", None)
    canonical = json.dumps([given, train.optimizer.name], sort_keys=True)
    return hashlib.sha256(canonical.encode()).hexdigest()


def kept(train: TrainSpec) -> TrainSpec:
    """The spec without a plan that was made for another one, or for a model that has formulas."""
    planned = train.planned
    if planned is None or (train.model.import_ is not None and planned.of == digest(train)):
        return train
    return train.model_copy(update={"planned": None})


def plan_of(planned: PlannedMemory, device: str) -> Plan:
    """The plan that came with a spec, for a job on `device`."""
    by_kind: dict[Kind, int] = {
        "parameters": planned.at_peak.parameters,
        "gradients": planned.at_peak.gradients,
        "optimizer": planned.at_peak.optimizer,
        "activations": planned.at_peak.activations,
        "logits": planned.at_peak.logits,
        "buffers": planned.at_peak.buffers,
    }
    host = {"tensors": planned.host_bytes} if planned.host_bytes else {}
    notes = (_NOTE, _OF_GPUS) if device == "cpu" else (_NOTE,)
    return Plan({kind: held for kind, held in by_kind.items() if held}, None, host, notes, source="dry run")


def present(train: TrainSpec) -> PlannedMemory | None:
    """The spec's plan, while the job has as many ranks as it was made for."""
    planned = train.planned
    return None if planned is None or planned.ranks != train.layout.world_size else planned
