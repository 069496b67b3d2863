"""A module of the user's own is dry-run on this machine before its spec is previewed or submitted: the control plane never runs it.

Its code runs in a process of its own, with a time limit. The plan that the dry run finds is sent with the spec (`train.planned`).
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

from pydantic import ValidationError

from ...service.schemas.preview import Preview
from ...service.schemas.problem import FieldError
from ...service.settings import Settings
from ...service.spec import JobSpec
from ...strategies.layout import ModelFacts, Refusal
from ...workers.dry_run.processes import DryRunFailed, DryRunUnavailable
from ...workers.fitting_changes import Change, few_changes
from ...workers.planned_memory import PlannedMemory, without_plan
from ...workers.spec import Dtype, TrainSpec
from .transport import ApiError

#: Is given why there is no plan.
OnUnplanned = Callable[[str], None]
#: Makes the plan of a spec, computed in a dtype, within a number of seconds.
MakePlan = Callable[[TrainSpec, Dtype, float], PlannedMemory]

_UNKNOWN = ModelFacts(None, None, None, None)


def dry_run_here(train: TrainSpec, precision: Dtype, timeout_s: float) -> PlannedMemory:
    """The plan of a dry run on this machine. Raises as `workers.dry_run.module_plan.planned_memory`."""
    from ...workers.dry_run.module_plan import planned_memory  # numpy, which no other call of the client needs

    return planned_memory(train, precision, timeout_s)


@dataclass(frozen=True)
class OwnModule:
    """A spec, as plain data and checked, whose model is a module of the user's own. `until`: when there is no time left, as `monotonic`."""

    document: dict[str, Any]
    train: TrainSpec
    precision: Dtype
    until: float
    make: MakePlan = dry_run_here

    def planned(self) -> dict[str, Any]:
        """The spec with its plan. Raises `DryRunUnavailable` where there can be none, and `ApiError` if the module fails."""
        try:
            return self._with_plan(self.document["train"], self.train)
        except Refusal as refusal:
            raise _failed(refusal.message, f"train.{refusal.field}", refusal.remedy) from None
        except DryRunUnavailable:
            raise
        except DryRunFailed as error:
            remedy = "Correct it, or submit it without a plan: --no-plan, or plan_s=0 of the Python client."
            raise _failed(str(error), "train.model.import", remedy) from None

    def changes(self) -> Iterator[Change]:
        """Changes of the spec that may fit, those that cost least first, while there is time."""
        for change in few_changes(self.train, _UNKNOWN):
            if time.monotonic() >= self.until:
                return
            yield change

    def changed(self, change: Change) -> dict[str, Any] | None:
        """The changed spec with its plan; None: it cannot run, or not be planned in time."""
        train = change.train.model_dump(mode="json", by_alias=True, exclude_unset=True)
        try:
            return self._with_plan(train, change.train)
        except (Refusal, DryRunFailed):
            return None

    def _with_plan(self, given: dict[str, Any], train: TrainSpec) -> dict[str, Any]:
        left = self.until - time.monotonic()
        if left <= 0:
            raise DryRunUnavailable("There was no time left for a dry run.")
        found = self.make(train, self.precision, left)
        return {**self.document, "train": {**given, "planned": found.model_dump(mode="json")}}


def train_of(document: Any) -> TrainSpec | None:
    """What a spec trains, if that is a module of the user's own; None also for a spec that the server will refuse."""
    try:
        train = JobSpec.model_validate(document, strict=True).train
    except ValidationError:
        return None
    return None if train.model.import_ is None else train


def plans(document: Any, plan_s: float | None) -> bool:
    """Whether the client dry-runs a module of the spec before it submits it. `plan_s`: as of its `submit`."""
    return (Settings().dry_run_s if plan_s is None else plan_s) > 0 and train_of(without_plan(document)) is not None


def of_preview(document: Any, found: Preview, seconds: float) -> OwnModule | None:
    """The module of a previewed spec that only a dry run can plan; None: it is another spec, or there is no time for a dry run."""
    train = train_of(document) if found.needs_dry_run and seconds > 0 else None
    if train is None or found.precision is None:
        return None
    return OwnModule(document, train, cast(Dtype, found.precision), time.monotonic() + seconds)


def with_change(error: ApiError, change: Change, found: Preview) -> ApiError:
    """The refusal for lack of memory, with the change that fits as its remedy."""
    needed = "" if found.memory is None else f": a rank then needs {found.memory.needed_bytes / 2**30:.1f} GiB"
    remedy = f"Set {change}{needed}. Or set resources.force to true to try all the same."
    message = error.errors[0].message if error.errors else error.detail
    where = FieldError(field=f"train.{change.edits[0][0]}", message=message, remedy=remedy)
    return ApiError(error.code, error.detail, error.status, [where])


def _failed(message: str, field: str, remedy: str) -> ApiError:
    return ApiError("dry_run_failed", message, None, [FieldError(field=field, message=message, remedy=remedy)])
