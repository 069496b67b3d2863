"""The peak of memory that a GPU's allocator measured, beside that of the memory plan. Imports no torch."""

from typing import Final

from ..strategies.cost.plan import plan
from . import own_plan
from .cost_inputs import planned_setting
from .device_choices import Capability
from .models.presets import Architecture
from .spec import TrainSpec

#: A peak this far off its plan, above or below, is reported.
TOLERATED: Final = 0.05
#: An incident also needs this many bytes: of a small model, kernels' workspace is more than the tolerated share.
_WORTH_AN_INCIDENT: Final = 1 << 28


def off_plan(planned: int, peak: int) -> str | None:
    """In words, by how much the fullest rank's `peak` is off its plan; None: by 5% or less. Both in bytes."""
    share = peak / planned - 1
    if abs(share) <= TOLERATED:
        return None
    side = "above" if share > 0 else "below"
    return f"The fullest rank peaks at {peak / 2**30:.1f} GiB, {abs(share):.0%} {side} the {planned / 2**30:.1f} GiB of its plan."


def incident_text(
    train: TrainSpec, architecture: Architecture | None, peak: int, capability: Capability | None = None
) -> str | None:
    """What an incident says of a measured `peak` of a run on GPUs of this `capability`; None: it has no plan, or is near it."""
    planned = _planned(train, architecture, capability)
    if not planned:
        return None
    return off_plan(planned, peak) if abs(peak - planned) >= _WORTH_AN_INCIDENT else None


def _planned(train: TrainSpec, architecture: Architecture | None, capability: Capability | None) -> int:
    """The planned peak; 0: there is no plan."""
    if architecture is not None:
        return plan(planned_setting(train, architecture, "cuda", capability)).peak
    found = own_plan.present(train)
    return 0 if found is None else own_plan.plan_of(found, "cuda").peak
